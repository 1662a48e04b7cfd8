"""The HTTP server of the live page."""

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
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # addresses that listen on all interfaces


def is_own(header: str, hosts: frozenset[str]) -> bool:
    """Return whether a Host header names this server, which listens on `hosts`: protects against DNS rebinding.

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
    """Return the host name of this machine, plain and as mDNS name."""
    name = socket.gethostname().lower()
    return frozenset({name, f"{name}.local"})


def _is_number(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


MAX_VIEWERS = 16  # simultaneous streams; a page uses two
MAX_CONNECTIONS = 64
TIMEOUT = 10.0  # seconds for a complete request, and for sending one image
CLOSE_TIMEOUT = 1.0  # seconds for the last messages when the server stops
# Send buffer in bytes: a larger one would only hold older images for a slow viewer.
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
    """An HTTP server for a live image, a context manager with its own threads; port 0 selects a free port.

    >>> from urllib.request import urlopen
    >>> with LiveServer(LiveImage()) as server, urlopen(server.address) as answer:
    ...     answer.status, answer.headers["Content-Type"]
    (200, 'text/html; charset=utf-8')
    """

    # Not http.server.HTTPServer: it looks up its own name in the DNS, which can be slow.
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = os.name == "posix"  # on Windows it would share a port that is in use

    def __init__(self, live: LiveImage, host: str = "127.0.0.1", port: int = 0) -> None:
        self.live = live
        self._host = host.lower()
        self._viewers = 0
        self._left = Condition()
        self._open: dict[Any, float] = {}  # deadline of each request
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            self.address_family = found[0]
            super().__init__(found[4], _Request)  # type: ignore[arg-type] # IPv6 has a scope too
        except (OSError, UnicodeError) as error:
            raise CannotServeError(_why(error, host, port)) from error
        self.hosts = frozenset({self._host, str(self.server_address[0])})

    @property
    def address(self) -> str:
        """The URL of the page."""
        host = socket.gethostname() if self.hosts & EVERYWHERE else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_address[1]}/"

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the server."""
        return ip_address(str(self.server_address[0]).partition("%")[0]).is_loopback

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(0.1,), name="live image", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Notify the viewers, wait for up to `CLOSE_TIMEOUT`, and close all connections."""
        self.live.end()
        self.shutdown()
        self.server_close()
        with self._left:
            self._left.wait_for(lambda: not self._viewers, CLOSE_TIMEOUT)
        self._hang_up(tuple(self._open))

    @staticmethod
    def _hang_up(requests: Iterable[Any]) -> None:
        for request in requests:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def viewer(self) -> Iterator[bool]:
        """Count a stream; yields False if there are too many."""
        with self._left:
            is_accepted = self._viewers < MAX_VIEWERS
            self._viewers += is_accepted
        try:
            yield is_accepted
        finally:
            with self._left:
                self._viewers -= is_accepted
                self._left.notify_all()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401, ARG002 - of socketserver
        """Limit the number of connections, each of which takes a thread."""
        return len(self._open) < MAX_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Store the connection with its deadline."""
        self._open[request] = time.monotonic() + TIMEOUT
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Remove a closed connection."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def asked(self, request: Any) -> None:  # noqa: ANN401
        """Remove the deadline of a request that was received completely."""
        self._open[request] = inf

    def service_actions(self) -> None:
        """Close requests after their deadline: a socket timeout applies to each read, which slow senders can avoid."""
        now = time.monotonic()
        self._hang_up(request for request, until in tuple(self._open.items()) if until < now)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Ignore closed connections; report all other errors."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    """One request of one connection."""

    server: LiveServer
    timeout = TIMEOUT
    server_version, sys_version = "whet", ""
    error_message_format, error_content_type = "%(code)d %(message)s: %(explain)s\n", "text/plain; charset=utf-8"

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        super().setup()

    def parse_request(self) -> bool:
        """Read the headers, and remove the deadline."""
        try:
            return super().parse_request()
        finally:
            self.server.asked(self.request)

    def do_GET(self) -> None:
        """Answer one of the fixed paths; browsers add a query to avoid their cache."""
        named = self.headers.get_all("Host") or [""]
        answer = ANSWERS.get(self.path.partition("?")[0])
        if len(named) > 1 or not is_own(named[0], self.server.hosts):
            self.send_error(HTTPStatus.FORBIDDEN, explain=f"unexpected Host header; open {self.server.address}")
        elif answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"available paths: {', '.join(ANSWERS)}")
        else:
            answer(self)

    def do_HEAD(self) -> None:
        """Answer without content."""
        self.do_GET()

    def page(self) -> None:
        self._whole("text/html; charset=utf-8", (files("whet.web") / "live.html").read_bytes())

    def jpeg(self) -> None:
        jpeg = self.server.live.jpeg()
        if jpeg:
            self._whole("image/jpeg", jpeg)
        else:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain="no frame received yet; try again")

    def stream(self) -> None:
        self._parts("multipart/x-mixed-replace; boundary=frame", self._images())

    def events(self) -> None:
        self._parts("text/event-stream", self._updates())

    def _images(self) -> Iterator[bytes]:
        # The boundary follows each image directly, because browsers wait for it.
        yield BOUNDARY[2:]
        for jpeg in self.server.live.jpegs(self._is_gone):
            yield b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg) + jpeg + BOUNDARY

    def _updates(self) -> Iterator[bytes]:
        for status in self.server.live.updates(self._is_gone):
            yield f"data: {json.dumps(status, allow_nan=False)}\n\n".encode()

    def _whole(self, kind: str, content: bytes) -> None:
        self._head({"Content-Type": kind, "Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _parts(self, kind: str, parts: Iterator[bytes]) -> None:
        with self.server.viewer() as is_accepted:
            if not is_accepted:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain="too many viewers; close another page")
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
        """Return whether the viewer has closed the connection; called while there is nothing to send."""
        self.connection.settimeout(0.0)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self.connection.settimeout(self.timeout)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log: standard error belongs to the session."""


ANSWERS: dict[str, Callable[[_Request], None]] = {
    "/": _Request.page,
    "/stream.mjpg": _Request.stream,
    "/frame.jpg": _Request.jpeg,
    "/events": _Request.events,
}


def _why(error: Exception, host: str, port: int) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another one (--port), or leave it out for a free port"
    if number == errno.EACCES:
        return f"permission denied for port {port}: ports below 1024 need root; choose a higher one (--port)"
    if isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose one of its own (--host), or 0.0.0.0 for all"
    return f"cannot listen on {host}, port {port}: {error}; choose others (--host, --port)"
