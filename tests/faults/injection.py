"""File operations that are counted, and one of which kills the process or fails.

Python's own calls are replaced, in a process that was forked for it: opening, writing and closing files, and the calls
of `os` that change a directory or its files. Reading is counted too, as a place to be killed at.
"""

import builtins
import io
import os
import signal
from collections.abc import Callable
from typing import Any

# Calls of `os` by name; those that change nothing can only be places to be killed at.
CHANGES = ("open", "fsync", "replace", "rename", "unlink", "remove", "fchmod", "fchown", "mkdir", "rmdir", "link")
READS = ("listdir",)


class Injection:
    """Counts file operations; at number `at` the process is killed, or with an `error` number the operation fails.

    `torn` writes half of the data first. `replaced` is called after every file that was replaced.
    """

    def __init__(
        self, at: int = 0, error: int | None = None, torn: bool = False, replaced: Callable[[], None] = lambda: None
    ) -> None:
        self.at, self.error, self.torn, self.replaced = at, error, torn, replaced
        self.names: list[str] = []
        self.is_counting = True

    def install(self) -> None:
        """Replace the calls, for the rest of this process."""
        for name in (*CHANGES, *READS):
            setattr(os, name, self._counted(name, getattr(os, name)))
        builtins.open = io.open = self._opening(io.open)

    def _counted(self, name: str, call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            changes = name in CHANGES
            if name == "open":
                flags = arguments[1] if len(arguments) > 1 else options.get("flags", 0)
                changes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            self.step(name, changes)
            result = call(*arguments, **options)
            if name == "replace" and self.is_counting:
                self.is_counting = False
                self.replaced()
                self.is_counting = True
            return result

        return counted

    def step(self, name: str, changes: bool) -> None:
        """Count one operation; those that do not change anything never fail."""
        if not self.is_counting or (self.error is not None and not changes):
            return
        self.names.append(name)
        if len(self.names) == self.at:
            self.strike()

    def strike(self) -> None:
        """Kill the process, or raise the error."""
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        os.kill(os.getpid(), signal.SIGKILL)

    def _opening(self, call: Any) -> Any:
        def opening(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            writes = not set(mode).isdisjoint("wax+")
            self.step("open file", writes)
            opened = call(file, mode, *arguments, **options)
            return Counted(opened, self) if writes else opened

        return opening


class Counted:
    """A file that is written; every write, flush and close is an operation."""

    def __init__(self, file: Any, injection: Injection) -> None:
        self.file, self.injection = file, injection

    def write(self, data: Any) -> int:
        """Write, or half of it."""
        here = len(self.injection.names) + 1 == self.injection.at
        if here and self.injection.torn:
            self.file.write(data[: len(data) // 2])
            self.file.flush()
        self.injection.step("write", True)
        return int(self.file.write(data))

    def flush(self) -> None:
        """Flush."""
        self.injection.step("flush", True)
        self.file.flush()

    def close(self) -> None:
        """Close; the descriptor is free in any case."""
        try:
            self.injection.step("close file", True)
        finally:
            self.file.close()

    def __enter__(self) -> "Counted":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __iter__(self) -> Any:
        return iter(self.file)
