"""Images and annotation files at fsspec URLs, such as s3://, gs://, https:// and memory://; they are only read.

Imported where a URL is given. Every failure is a `RemoteError` with its cause and what to do.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import PurePosixPath
from threading import Thread
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import unquote

from whet.errors import MissingExtraError, RemoteError
from whet.io.files import shown_name

try:
    import fsspec
    from fsspec.core import url_to_fs
except ImportError as error:
    raise MissingExtraError("fsspec", "remote") from error

Answer = TypeVar("Answer")

# As many bytes as the largest image has as pixels: 100 megapixels of RGB.
MAX_BYTES = 300_000_000
AT_ONCE = 1 << 20
# Seconds that one request may take: the download of an image, or the list of a directory.
TIMEOUT = 60.0
TIMEOUT_VARIABLE = "WHET_REMOTE_TIMEOUT"
# Seconds after which a request is repeated once, if its failure may pass: of thousands, some fail by chance.
PAUSE = 0.5


class RemotePath(PurePosixPath):
    """A URL with the parts of `pathlib.Path` that reading needs; it is hashable, sortable and can be pickled.

    `str` is the whole URL; f-strings, of which messages are made, contain it as `shown`.

    >>> path = RemotePath("https://host/set/a.png?signature=secret")
    >>> str(path.parent / "b.png"), path.name, path.suffix
    ('https://host/set/b.png', 'a.png', '.png')
    """

    __slots__ = ()

    def __str__(self) -> str:
        """The URL; pathlib keeps one of two slashes."""
        return re.sub(r":/(?!/)", "://", super().__str__(), count=1)

    def __format__(self, form: str) -> str:
        return format(self.shown, form)

    @property
    def name(self) -> str:
        """The last part, without the query of an HTTP URL, which may hold a signature."""
        return super().name.partition("?")[0]

    @property
    def shown(self) -> str:
        """The URL for messages: without user, password and query.

        >>> RemotePath("https://ada:secret@host/a.png?signature=secret").shown
        'https://host/a.png'
        """
        return shown_name(str(self))

    def resolve(self) -> RemotePath:
        """The URL itself."""
        return self

    def is_file(self) -> bool:
        """Whether there is such an object."""
        return self._ask(lambda files, path: bool(files.isfile(path)))

    def is_dir(self) -> bool:
        """Whether there is such a directory; of an HTTP server, whether it answers, since most list no files."""

        def answers(files: Any, path: str) -> bool:  # noqa: ANN401 - file systems have no types
            if not self._is_http:
                return bool(files.isdir(path))
            try:
                files.exists(path, strict=True)
            except Exception as error:
                if getattr(error, "status", 0) not in (403, 405):  # servers that list no directory
                    raise
            return True

        return self._ask(answers, again=False)  # of the one that the user gave: say at once what is wrong with it

    def stat(self) -> SimpleNamespace:
        """The size of an object in bytes as `st_size`; None if the server does not say."""
        return SimpleNamespace(st_size=self._ask(lambda files, path: files.info(path)["size"]))

    def files(self) -> Iterator[RemotePath]:
        """All objects below a directory, without hidden ones; the object itself if it is one."""

        def listed(files: Any, path: str) -> list[str]:  # noqa: ANN401
            names = [str(name) for name in files.find(path)]
            if not names:
                files.ls(path)  # `find` hides errors
            return [name.removeprefix(path.rstrip("/")).lstrip("/") for name in names]

        names = self._ask(listed)
        if self._is_http:  # links quote what files are named; requests quote it again
            names = [name if re.search("[?#%]", plain := unquote(name)) else plain for name in names]
        for name in sorted(names):
            if not any(part.startswith(".") for part in name.split("/")):
                yield self / name

    def open(self) -> BytesIO:
        """The content; raises `RemoteError` for more than `MAX_BYTES`, or after `WHET_REMOTE_TIMEOUT` seconds."""

        def content(files: Any, path: str) -> bytes:  # noqa: ANN401
            # A stream of one request, whatever the server says of the size.
            options = {"block_size": 0, "size": 1} if self._is_http else {}
            data = bytearray()
            with files.open(path, "rb", **options) as file:
                while len(data) <= MAX_BYTES and (chunk := file.read(AT_ONCE)):
                    data += chunk
            return bytes(data)

        data = self._ask(content)
        if len(data) > MAX_BYTES:
            raise RemoteError(f"{self.shown} has more than {MAX_BYTES:,} bytes; expected an image: check the URL")
        return BytesIO(data)

    @property
    def _is_http(self) -> bool:
        return str(self).startswith(("http://", "https://"))

    def _ask(self, request: Callable[[Any, str], Answer], *, again: bool = True) -> Answer:
        """The answer of the store; any failure is a `RemoteError`. After one that may pass, it asks again."""
        try:
            return self._ask_once(request)
        except RemoteError as error:
            if not again or not _may_pass(error.__cause__):
                raise
        time.sleep(PAUSE)
        return self._ask_once(request)

    def _ask_once(self, request: Callable[[Any, str], Answer]) -> Answer:
        """The answer of the store. A store that hangs keeps its thread."""
        url = str(self)
        answers: list[Answer] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                files = _file_system("/".join(url.split("/")[:3]), os.getpid())
                answers.append(request(files, files._strip_protocol(url.rpartition("::")[2])))
            except Exception as error:  # each store has errors of its own
                errors.append(error)

        try:
            seconds = max(float(os.environ[TIMEOUT_VARIABLE]), 0.001)
        except (KeyError, ValueError):
            seconds = TIMEOUT
        thread = Thread(target=work, daemon=True)
        thread.start()
        thread.join(seconds)
        if answers:
            return answers[0]
        if not errors:
            raise RemoteError(
                f"{self.shown} did not answer within {seconds:g} s; check the store, or set the environment variable "
                f"{TIMEOUT_VARIABLE} to more seconds"
            )
        raise RemoteError(f"{self.shown}: {_reason(errors[0])}") from errors[0]


@lru_cache
def _file_system(store: str, process: int) -> Any:  # noqa: ANN401, ARG001
    """The file system of a protocol and host, one for all threads of a process: it keeps connections and caches."""
    return url_to_fs(store)[0]


def checked_url(url: str) -> RemotePath:
    """The path of a URL; raises `RemoteError` for an unknown protocol, or for what is no URL of one object.

    >>> checked_url("nothing://a/b")
    Traceback (most recent call last):
    whet.errors.RemoteError: nothing://a/b: Protocol not known: nothing; expected one of fsspec, such as s3://...
    """
    path = RemotePath(url)
    if str(path) != url.rstrip("/") or "/../" in f"{url}/":
        raise RemoteError(f"{shown_name(url)} has empty parts or ..; expected a URL such as s3://bucket/images/1.jpg")
    try:
        fsspec.get_filesystem_class(re.split("::|://", url)[0])
        fsspec.get_filesystem_class(url.partition("://")[0].rpartition("::")[2])
    except ValueError as error:
        raise RemoteError(
            f"{shown_name(url)}: {error}; expected one of fsspec, such as s3://, gs://, https:// and memory://"
        ) from error
    except ImportError as error:
        raise RemoteError(f"{shown_name(url)}: {error}") from error
    return path


def below(root: RemotePath, name: str) -> RemotePath | None:
    """The image that an annotation file names, below the URL that the user gave; None for a URL that is elsewhere.

    An annotation file from somebody else cannot make whet ask other servers, or for other directories. Of an absolute
    path, or one with `..`, the base name counts; None if it hides `..`, as `%2e%2e` does.

    >>> root = RemotePath("https://host/set")
    >>> below(root, "https://host/set/a.png"), below(root, "https://inside/a.png"), below(root, "../../b.png")
    (RemotePath('https://host/set/a.png'), None, RemotePath('https://host/set/b.png'))
    >>> below(root, "%2e%2e/private/b.png")
    """
    name = name.replace("\\", "/")
    if "://" in name or "::" in name:
        path = RemotePath(name)
    else:
        parts = PurePosixPath(name).parts
        if not parts:
            return None
        is_inside = not name.startswith("/") and ".." not in parts and not re.match(r"[A-Za-z]:", name)
        path = root.joinpath(*parts) if is_inside else root / parts[-1]
    return path if path.is_relative_to(root) and _stays_below(str(path.relative_to(root))) else None


def _stays_below(name: str) -> bool:
    """Whether a relative name has no `..`, also after what stores make of it, and does not begin a chained URL.

    Requests unquote `%2e`, and leave out tabs and line ends.
    """
    if "::" in name:
        return False
    for _ in range(8):  # a name of megabytes may be quoted thousands of times
        name = re.sub(r"[\x00-\x1f\x7f]", "", name)
        if ".." in re.split(r"[/\\]", name):
            return False
        plain = unquote(name)
        if plain == name:
            return True
        name = plain
    return False


def _causes(error: BaseException) -> tuple[list[BaseException], str, int]:
    """The errors that stores wrap in others, their names, and the status of an HTTP answer, or 0."""
    causes = [error]
    while (inner := causes[-1].__cause__ or causes[-1].__context__) is not None and inner not in causes:
        causes.append(inner)
    statuses = [getattr(cause, "status", None) for cause in causes]
    status = next((status for status in statuses if isinstance(status, int)), 0)
    return causes, " ".join(type(cause).__name__ for cause in causes), status


def _may_pass(error: BaseException | None) -> bool:
    """Whether a failure may pass by itself: no answer in time, one of status 5xx, or a connection that broke off."""
    if error is None:
        return True
    _, names, status = _causes(error)
    return status >= 500 if status else re.search("Timeout|Payload|Disconnected|ConnectionReset", names) is not None


def _without_secrets(text: str) -> str:
    """A text with its URLs as they are shown; a store may quote them in another way.

    >>> _without_secrets("404, url='https://ada:secret@host/a.png?signature=secret'")
    "404, url='https://host/a.png'"
    """
    return re.sub(r"""(?<=://)[^/\s'"]*@|(?<=[^\s'"])\?[^\s'"]*""", "", text)


def _reason(error: BaseException) -> str:
    """The cause of a failure, and what to do."""
    causes, names, status = _causes(error)
    text = " ".join(_without_secrets(str(causes[-1]) or type(causes[-1]).__name__).split())[:200]
    if status in (401, 403, 407) or re.search("Permission|Forbidden|Credential|Unauthorized|AccessDenied", names):
        return f"access denied ({text}); check the credentials and storage options of this store"
    if status:
        return f"the server answers {text}; check the URL, or try again later"
    if re.search("Timeout", names):
        return f"timed out ({text}); check the store, or try again later"
    if re.search("Connect|gaierror|DNS|Endpoint", names):
        return f"cannot connect ({text}); check the network and the name of the store"
    if isinstance(error, FileNotFoundError):
        return "no such object; check the URL"
    if "Payload" in names:
        return f"the connection ended too early ({text}); try again later"
    return f"{type(error).__name__}: {text}; check the URL and the storage options"
