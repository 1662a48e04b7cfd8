"""Files: atomic writes, locks, short hashes, output directories and unique names."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import local

import numpy as np
from numpy.typing import NDArray

from whet.errors import ModelChangedError, WhetError


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a temporary file and rename it, so that readers and crashes never see a partial file.

    If `path` is a symbolic link, the file that it points to is replaced. `durable` also protects against power loss; it
    takes a few milliseconds per file, so set it to False for thousands of files that can be written again.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a directory; expected a file name")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: directory does not exist: {path.parent}")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        # Mode "x" instead of tempfile: a new file gets the default permissions of the user.
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
        if durable:
            _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; systems that cannot open a directory write it in time themselves."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def short_hashes(paths: Iterable[Path]) -> NDArray[np.uint32]:
    """Short hashes (n,) of the contents of files, each once, sorted; files that cannot be read are left out.

    They tell whether a file is among others. Two different files have the same hash once in four billion pairs.
    """
    found = (short_hash(path) for path in paths)
    return np.unique(np.array([each for each in found if each is not None], np.uint32))


def short_hash(path: Path) -> int | None:
    """Four bytes of the BLAKE2 hash of a file; None if it cannot be read."""
    try:
        return int.from_bytes(hashlib.blake2b(path.read_bytes(), digest_size=4).digest(), "little")
    except OSError:
        return None


_held = local()
# A writer holds the lock while it compares and writes one file: milliseconds.
LONGEST_WAIT = 60.0


@contextmanager
def locked(path: Path, wait: float = LONGEST_WAIT) -> Iterator[None]:
    """Hold the lock of a file's directory: one writer at a time, in all processes and threads.

    The directory itself is locked, so no lock file is left behind. Where a system cannot lock directories, nothing is
    locked.
    """
    folder = Path(os.path.realpath(path)).parent
    held: set[Path] = _held.__dict__.setdefault("folders", set())
    if folder in held:  # by this thread
        yield
        return
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        end = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise ModelChangedError(
                        f"{path} is locked by another writer for more than {wait:g} s; wait until it is done, and try "
                        "again"
                    ) from None
                time.sleep(0.005)
            except OSError:
                break  # a file system without locks
        held.add(folder)
        yield
    finally:
        held.discard(folder)
        os.close(handle)


def prepared_folder(out: Path) -> Path:
    """Create an output directory if it does not exist, and return it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WhetError(f"cannot create the directory {out}: {error.strerror}; choose another one (--out)") from error
    return out


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """Return a unique file name without suffix for each path: its own, or with a number appended.

    Names that differ only in case count as equal.

    >>> unique_stems([Path("a/1.jpg"), Path("b/1.png"), Path("b/2.png")])
    ['1', '1-2', '2']
    """
    own = {path.stem.casefold() for path in paths}
    taken: set[str] = set()
    stems = []
    for path in paths:
        stem, number = path.stem, 1
        while stem.casefold() in taken or (number > 1 and stem.casefold() in own):
            number += 1
            stem = f"{path.stem}-{number}"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems


def as_file_name(text: str) -> str:
    """Convert a text to a directory name that is valid on every system.

    >>> as_file_name("../traffic light/red"), as_file_name("")
    ('_traffic light_red', '_')
    """
    return re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", text).strip(". ")[:100] or "_"
