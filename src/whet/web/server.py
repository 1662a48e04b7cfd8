"""The live page over HTTP."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from ipaddress import ip_address
from math import inf
from socketserver import ThreadingTCPServer
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Self

from whet.errors import CannotServeError
from whet.web.page import LiveImage

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # what servers listen on that are to be reached by all addresses


def is_own(header: str, hosts: frozenset[str]) -> bool:
    """Whether a request's Host header names a server that listens on these hosts; the port may be a tunnel's.

    >>> is_own("localhost:8000", frozenset({"127.0.0.1"})), is_own("evil.example:8000", frozenset({"127.0.0.1"}))
    (True, False)
    >>> is_own("192.168.1.7:8000", frozenset({"127.0.0.1"})), is_own("192.168.1.7:8000", frozenset({"0.0.0.0"}))
    (False, True)
    """
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", header.lower())
    if found is None:
        return False
    name = found[1] or found[2]
    if name in LOOPBACK or name in hosts:
        return True
    return bool(hosts & EVERYWHERE) and (_is_number(name) or name in machine_names())


def machine_names() -> frozenset[str]:
    """What this machine is called, on its own and in a home's network."""
    name = socket.gethostname().lower()
    return frozenset({name, f"{name}.local"})


def _is_number(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


MOST_VIEWERS = 16  # streams at once; a page has two
MOST_CONNECTIONS = 64
PATIENCE = 10.0  # seconds that a viewer may take for its request, or for an image
FAREWELL = 1.0  # seconds that viewers have in the end for what is on its way
# What the system keeps for a viewer that reads slowly: more would only be older images.
BUFFER = 2**17
BOUNDARY = b"\r\n--frame\r\n"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; connect-src 'self'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LiveServer(ThreadingTCPServer):
    """Serves a live image while it is entered, on threads of its own; port 0 is a free one.

    >>> from urllib.request import urlopen
    >>> with LiveServer(LiveImage()) as server, urlopen(server.address) as answer:
    ...     answer.status, answer.headers["Content-Type"]
    (200, 'text/html; charset=utf-8')
    """

    # Of http.server only the requests are used: its server looks its own name up in the DNS first, which may take long.
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = os.name == "posix"  # elsewhere that would share a port which is taken

    def __init__(self, live: LiveImage, host: str = "127.0.0.1", port: int = 0) -> None:
        self.live = live
        self._host = host.lower()
        self._viewers = 0
        self._left = Condition()
        self._open: dict[Any, float] = {}  # until when each must have asked
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            self.address_family = found[0]
            super().__init__(found[4], _Request)  # type: ignore[arg-type] # IPv6 has a scope too
        except (OSError, UnicodeError) as error:
            raise CannotServeError(_why(error, host, port)) from error
        self.hosts = frozenset({self._host, str(self.server_address[0])})

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        host = socket.gethostname() if self.hosts & EVERYWHERE else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_address[1]}/"

    @property
    def is_private(self) -> bool:
        """Whether nobody but this machine can reach it."""
        return ip_address(str(self.server_address[0]).partition("%")[0]).is_loopback

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(0.1,), name="live image", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Tell the viewers, wait for those that listen, and leave the others."""
        self.live.end()
        self.shutdown()
        self.server_close()
        with self._left:
            self._left.wait_for(lambda: not self._viewers, FAREWELL)
        self._hang_up(tuple(self._open))

    @staticmethod
    def _hang_up(requests: Iterable[Any]) -> None:
        for request in requests:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def viewer(self) -> Iterator[bool]:
        """Count somebody who stays; false if there are too many."""
        with self._left:
            is_welcome = self._viewers < MOST_VIEWERS
            self._viewers += is_welcome
        try:
            yield is_welcome
        finally:
            with self._left:
                self._viewers -= is_welcome
                self._left.notify_all()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401, ARG002 - of socketserver
        """A thread for everybody, but not for more than are likely to be people."""
        return len(self._open) < MOST_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Remember who is connected, to be able to leave them."""
        self._open[request] = time.monotonic() + PATIENCE
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Forget who is gone."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def asked(self, request: Any) -> None:  # noqa: ANN401
        """The request has come as a whole: it may last as long as it likes."""
        self._open[request] = inf

    def service_actions(self) -> None:
        """Hang up on requests that take too long: a timeout is of one read, and a byte now and then would last."""
        now = time.monotonic()
        self._hang_up(request for request, until in tuple(self._open.items()) if until < now)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """A viewer that is gone is no error; a fault of ours is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    """One request, one connection."""

    server: LiveServer
    timeout = PATIENCE
    server_version, sys_version = "whet", ""
    error_message_format, error_content_type = "%(code)d %(message)s: %(explain)s\n", "text/plain; charset=utf-8"

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        super().setup()

    def parse_request(self) -> bool:
        """Reads the headers: when they are all there, the viewer has asked."""
        try:
            return super().parse_request()
        finally:
            self.server.asked(self.request)

    def do_GET(self) -> None:
        """The fixed addresses; `?...` is for browsers, which would show what they have."""
        named = self.headers.get_all("Host") or [""]
        answer = ANSWERS.get(self.path.partition("?")[0])
        if len(named) > 1 or not is_own(named[0], self.server.hosts):
            self.send_error(HTTPStatus.FORBIDDEN, explain=f"expected to be called by {self.server.address}")
        elif answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"there are {', '.join(ANSWERS)}")
        else:
            answer(self)

    def do_HEAD(self) -> None:
        """The same, without content."""
        self.do_GET()

    def page(self) -> None:
        self._whole("text/html; charset=utf-8", (files("whet.web") / "live.html").read_bytes())

    def jpeg(self) -> None:
        jpeg = self.server.live.jpeg()
        if jpeg:
            self._whole("image/jpeg", jpeg)
        else:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain="no frame has come yet")

    def stream(self) -> None:
        self._parts("multipart/x-mixed-replace; boundary=frame", self._images())

    def events(self) -> None:
        self._parts("text/event-stream", self._news())

    def _images(self) -> Iterator[bytes]:
        # A boundary ends each image at once: browsers would wait for it.
        yield BOUNDARY[2:]
        for jpeg in self.server.live.jpegs(self._is_gone):
            yield b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg) + jpeg + BOUNDARY

    def _news(self) -> Iterator[bytes]:
        for told in self.server.live.news(self._is_gone):
            yield f"data: {json.dumps(told, allow_nan=False)}\n\n".encode()

    def _whole(self, kind: str, content: bytes) -> None:
        self._head({"Content-Type": kind, "Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _parts(self, kind: str, parts: Iterator[bytes]) -> None:
        with self.server.viewer() as is_welcome:
            if not is_welcome:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain="too many are looking; close another page")
                return
            self._head({"Content-Type": kind})
            if self.command != "HEAD":
                for part in parts:
                    self.wfile.write(part)

    def _head(self, headers: dict[str, str]) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {**headers, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def _is_gone(self) -> bool:
        """Whether the viewer has hung up: looked at while there is nothing to send."""
        self.connection.settimeout(0.0)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self.connection.settimeout(self.timeout)

    def log_message(self, format: str, *args: object) -> None:
        """Standard error is the session's."""


ANSWERS: dict[str, Callable[[_Request], None]] = {
    "/": _Request.page,
    "/stream.mjpg": _Request.stream,
    "/frame.jpg": _Request.jpeg,
    "/events": _Request.events,
}


def _why(error: Exception, host: str, port: int) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is taken: give another one (--port), or none for a free one"
    if number == errno.EACCES:
        return f"port {port} is not for everybody: give one (--port) from 1024 on, or none for a free one"
    if isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: give one of its own (--host), or 0.0.0.0 for all of them"
    return f"no page can be served at {host}, port {port}: {error}"
