"""Files: regular ones only, atomic writes, locks, short hashes, output directories and names, and bounded XML.

Untrusted XML files can neither exhaust memory nor expand entities.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader, BytesIO
from os import PathLike
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, TypeVar, cast
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers.expat import errors as expat

import numpy as np

from whet.arrays import UInt32s
from whet.errors import CannotWriteError, CascadeFileError, ModelChangedError, WhetError

if TYPE_CHECKING:
    from whet.io.remote import RemotePath
    from whet.parallel.workers import Workers

R = TypeVar("R")

# fsspec's, also chained ones such as filecache::s3://. One letter is a drive of Windows.
URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://")
# What pathlib makes of one.
FORMER_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")

TEMPORARY = ".tmp"


def is_url(path: str | PathLike[str]) -> bool:
    """Whether a path is a URL; those of pathlib never are: they have single slashes.

    >>> is_url("s3://bucket/1.png"), is_url(Path("s3://bucket/1.png")), is_url("C://1.png")
    (True, False, False)
    """
    return URL.match(os.fspath(path)) is not None


def as_path(path: str | PathLike[str]) -> Path:
    """The path of a file name or of a URL; file:// URLs become file names.

    A URL is a `whet.io.remote.RemotePath`, which has all of `Path` that reading images needs.

    >>> as_path("a/b.png"), as_path("file:///a/b.png"), as_path("memory://a/b.png")
    (PosixPath('a/b.png'), PosixPath('/a/b.png'), RemotePath('memory://a/b.png'))
    """
    if not is_url(path):
        return Path(path)
    text = os.fspath(path)
    if text.startswith("file://"):
        from urllib.request import url2pathname

        return Path(url2pathname(text.removeprefix("file://").removeprefix("localhost")))
    from whet.io.remote import checked_url

    return cast(Path, checked_url(text))


def shown_name(path: str | PathLike[str]) -> str:
    """The name of a file or a URL for messages: a URL without user, password and query, which may be secret.

    >>> shown_name("https://ada:se@cret@host/a.png?signature=secret"), shown_name("a?b.png")
    ('https://host/a.png', 'a?b.png')
    """
    text = os.fspath(path)
    return re.sub("//[^/]*@", "//", text).partition("?")[0] if is_url(text) else text


def as_remote(path: Path) -> RemotePath | None:
    """The path as that of a URL; None for one of a file."""
    return cast("RemotePath", path) if is_url(path) else None


def check_local(path: Path) -> None:
    """Raise `CannotWriteError` for the URL of an output, also if pathlib has taken a slash of it."""
    if is_url(path) or (FORMER_URL.match(str(path)) and not path.parent.is_dir()):
        url = FORMER_URL.sub(r"\g<0>/", str(path), count=1) if not is_url(path) else shown_name(path)
        raise CannotWriteError(
            f"got the output {url}, which looks like a URL; whet writes local files only: write a file, then copy it"
        )


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a temporary file and rename it, so that readers and crashes never see a partial file.

    If `path` is a symbolic link, the file that it points to is replaced. Mode and owner of that file are kept, and a
    write-protected file is refused. `durable` also protects against power loss; it takes a few milliseconds per file,
    so set it to False for thousands of files that can be written again. Raises `CannotWriteError` if the system refuses
    any step; the file is then as it was.
    """
    check_local(path)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a directory; expected a file name")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: directory does not exist: {path.parent}")
    try:
        _replace(target, data, durable)
    except CannotWriteError:
        raise
    except OSError as error:
        raise CannotWriteError(
            f"cannot write {path}: {error.strerror or error}; the file is as it was before: free disk space, or choose "
            "another path"
        ) from error


def _replace(target: Path, data: bytes, durable: bool) -> None:
    before = target.stat() if target.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise CannotWriteError(f"{target} is a device, a pipe or a socket; expected a regular file")
    if before is not None and not (before.st_mode & 0o222 and os.access(target, os.W_OK)):
        raise CannotWriteError(f"{target} is write-protected; run chmod u+w on it, or choose another file")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
    # A new file gets the default permissions of the user; one that is replaced must not be readable meanwhile.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if before is None else 0o600)
    try:
        with open(handle, "wb") as file:
            if before is not None and hasattr(os, "fchmod"):  # Windows has neither owners nor modes
                _copy_owner_and_mode(handle, before)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):  # the error that comes first is the one to report
            temporary.unlink()
        raise
    if durable:
        _sync_folder(target.parent)


def _copy_owner_and_mode(handle: int, before: os.stat_result) -> None:
    if (before.st_uid, before.st_gid) != (os.getuid(), os.getgid()):
        with suppress(PermissionError):  # only root may give a file away
            os.fchown(handle, before.st_uid, before.st_gid)
    with suppress(PermissionError):  # a file system without modes
        os.fchmod(handle, stat.S_IMODE(before.st_mode))


def write_locked(path: Path, data: bytes) -> None:
    """Write a file as `write_atomically` does, as its only writer; remove what writers that were killed have left.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / ".a.whet.0badcafe.tmp").touch()
    >>> write_locked(folder / "a.whet", b"new")
    >>> [path.name for path in folder.iterdir()]
    ['a.whet']
    """
    with locked(path):
        target = Path(os.path.realpath(path))
        remains = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}{re.escape(TEMPORARY)}")
        with suppress(OSError):  # a directory that does not exist, or cannot be listed
            for name in filter(remains.fullmatch, os.listdir(target.parent)):
                (target.parent / name).unlink(missing_ok=True)
        write_atomically(path, data)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; systems that cannot open a directory write it in time themselves."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_regular(path: Path) -> BufferedReader | BytesIO:
    """Open a file or a URL to read it.

    Raises `OSError` for devices, pipes and sockets, whose reading may never end, and `RemoteError` where a URL fails.
    """
    remote = as_remote(path)
    if remote is not None:
        return remote.open()
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "a device, a pipe or a socket; expected a regular file", str(path))


def read_bounded(path: Path, most: int, error: type[WhetError]) -> bytes:
    """Read a regular file of at most `most` bytes; raises `error` for a larger one."""
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size > most:
            raise error(f"{path} has {size:,} bytes; expected at most {most:,}: split the file, or check its name")
        return file.read()


# Files of a store that are read at once: most of the time goes by while it answers.
AT_ONCE = 16


def map_files(work: Callable[[Path], R], paths: Iterable[Path]) -> Iterator[R]:
    """Results of `work` on each path, in order; several URLs are read at once.

    >>> list(map_files(lambda path: path.name, [Path("a/b.png"), Path("c.png")]))
    ['b.png', 'c.png']
    """
    listed = list(paths)
    if not any(map(is_url, listed)):
        return map(work, listed)
    from whet.parallel.threads import map_in_order

    return map_in_order(work, listed, AT_ONCE)


def short_hashes(paths: Iterable[Path], workers: Workers | None = None) -> UInt32s:
    """Short hashes (n,) of the contents of files, each once, sorted; files that cannot be read are left out.

    They tell whether a file is among others. Two different files have the same hash once in four billion pairs. The
    `workers` of a cluster read the files, which are far from here.
    """
    if workers is None or workers.in_process:
        hashes = map_files(short_hash, paths)
    else:
        hashes = workers.map(short_hash, paths, lost=lambda _: None)
    return np.unique(np.array([value for value in hashes if value is not None], np.uint32))


def short_hash(path: Path) -> int | None:
    """Four bytes of the BLAKE2 hash of a file; None if it cannot be read."""
    try:
        with open_regular(path) as file:
            return int.from_bytes(hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=4)).digest(), "little")
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
    check_local(out)
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


# Control characters, and marks that turn the direction of a line.
# The last range stands for bytes that are no text, which a terminal of 8 bits takes for control characters.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\udc80-\udc9f]")


def printable(text: str) -> str:
    r"""Text as one line for a terminal: control characters, which names and notes may have, are escaped.

    >>> print(printable("a\x1b[2Jb\n.png"))
    a\x1b[2Jb\n.png
    """
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


# The largest known cascade, OpenCV's alt_tree, has 2.6 MB, 69,000 elements and 6 levels.
MAX_BYTES = 16_000_000
MAX_ELEMENTS = 500_000
MAX_DEPTH = 32


class _BoundedBuilder(TreeBuilder):
    """A tree builder that raises `error` for too many elements, or for too many nested elements."""

    def __init__(self, source: str, error: type[WhetError]) -> None:
        super().__init__()
        self.source, self.error, self.elements, self.depth = source, error, 0, 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self.elements, self.depth = self.elements + 1, self.depth + 1
        if self.elements > MAX_ELEMENTS or self.depth > MAX_DEPTH:
            raise self.error(
                f"{self.source} has more than {MAX_ELEMENTS:,} elements or {MAX_DEPTH} levels; expected a smaller file"
            )
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self.depth -= 1
        return super().end(tag)


def parse_bounded(data: bytes, source: str, error: type[WhetError] = CascadeFileError) -> Element:
    """Parse an XML document and return its root; raises `error` if it is invalid, declares a DTD, or is too large."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    parser = DefusedXMLParser(target=_BoundedBuilder(source, error), forbid_dtd=True)
    try:
        parser.feed(data)
        root: Element = parser.close()
    except (ParseError, DefusedXmlException, ValueError, LookupError) as fault:
        if isinstance(fault, error):
            raise
        truncated = [expat.codes[text] for text in (expat.XML_ERROR_NO_ELEMENTS, expat.XML_ERROR_UNCLOSED_TOKEN)]
        if isinstance(fault, ParseError) and fault.code in truncated:
            line, what = fault.position[0], "is empty; expected XML"
            if data.strip():
                what = f"is truncated XML: it ends in line {line:,}, before the root element is closed"
            raise error(f"{source} {what}; copy or download it again") from fault
        if isinstance(fault, DefusedXmlException):
            kind = type(fault).__name__
            raise error(f"{source} declares a DTD or an entity ({kind}); expected XML without: remove it") from fault
        raise error(f"{source} is not valid XML: {fault or type(fault).__name__}") from fault
    return root
