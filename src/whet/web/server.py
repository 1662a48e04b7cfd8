"""The web server of the studio: a socket with clear errors, limits of connections, and uvicorn around the app."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from ipaddress import ip_address
from threading import Thread, current_thread, main_thread
from typing import Any, Self

from whet.errors import CannotServeError, MissingExtraError

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError("uvicorn", "studio") from error

from whet.web.security import EVERYWHERE, MAX_HEADERS, Guard, Limits

KEEP_ALIVE = 30
CLOSE_TIMEOUT = 2


class StudioServer:
    """Serves an app on a socket of its own; port 0 selects a free port. A context manager serves in a thread."""

    def __init__(self, app: Guard, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host.lower()
        self._socket = _listening(self._host, port)
        app.access.hosts = app.access.hosts | {self._host, str(self._socket.getsockname()[0])}
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # no lines about starting and stopping
        self._server = _Server(
            uvicorn.Config(
                app,
                http=_protocol(app.access.limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=MAX_HEADERS,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=CLOSE_TIMEOUT,
            )
        )
        self._thread: Thread | None = None

    @property
    def address(self) -> str:
        """The URL of the page, without the token."""
        host = socket.gethostname() if self._host in EVERYWHERE else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._socket.getsockname()[1]}/"

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(str(self._socket.getsockname()[0]))

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        if current_thread() is main_thread():
            # uvicorn raises the signal again when it has stopped; the project is still to be closed then.
            signal.signal(signal.SIGTERM, lambda *_: None)
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ask the server to stop."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        self._thread = Thread(target=self.run, name="studio", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self.stop()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT + 3)
        self._socket.close()


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Viewers that do not read are left after a while: nobody has to read about that.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


def is_loopback(host: str) -> bool:
    """Whether an address is that of this machine only."""
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP with a limit of connections, and of the time for the headers of a request.

    Slow headers: a client that opens connections and sends a byte now and then would keep all of them. So where no
    place is left, among all or for one address, the connection that has waited longest for headers makes room: only
    requests that came keep a place. If there is none, the new connection is closed.
    """
    open_connections: set[LimitedProtocol] = set()

    def has_room(address: str) -> bool:
        own = {one for one in open_connections if one.address == address}
        for among, most in ((own, limits.per_client), (open_connections, limits.connections)):
            if len(among) < most:
                continue
            waiting = [one for one in among if one.deadline is not None]
            if not waiting:
                return False
            longest = min(waiting, key=lambda one: one.waits_since)
            open_connections.discard(longest)
            longest.transport.abort()
            return True
        return True

    class LimitedProtocol(H11Protocol):
        deadline: asyncio.TimerHandle | None = None
        waits_since: float = 0.0
        address: str = ""

        def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - of asyncio
            super().connection_made(transport)
            self.address = (self.client or ("", 0))[0]
            if not has_room(self.address):
                transport.abort()
                return
            open_connections.add(self)
            self._await_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            open_connections.discard(self)
            self._headers_came()
            super().connection_lost(exc)

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.cycle is not before:
                self._headers_came()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing() and self.deadline is None:
                self._await_headers(KEEP_ALIVE)

        def _await_headers(self, more: float = 0.0) -> None:
            self._headers_came()
            self.waits_since = self.loop.time()
            self.deadline = self.loop.call_later(limits.header_seconds + more, self._give_up)

        def _headers_came(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def _give_up(self) -> None:
            self.deadline = None
            if not self.transport.is_closing():
                self.transport.close()

    return LimitedProtocol


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # asyncio sends small packets at once (TCP_NODELAY) only if the protocol is named; else answers wait up to 40 ms
        listening = socket.socket(found[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(found[4])
            listening.listen(128)
        except BaseException:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:
        raise CannotServeError(_why(error, host, port)) from error
    return listening


def _why(error: Exception, host: str, port: int) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another one (--port), or leave it out for a free port"
    if number == errno.EACCES:
        return f"permission denied for port {port}: ports below 1024 need root; choose a higher one (--port)"
    if isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose one of its own (--host), or 0.0.0.0 for all"
    return f"cannot listen on {host}, port {port}: {error}; choose others (--host, --port)"
