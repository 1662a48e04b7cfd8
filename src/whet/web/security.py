"""Who may ask the studio, and how much: one concern per function, the attack named in its docstring."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # addresses that listen on all interfaces
MAX_HEADERS = 16_384  # bytes
SHORTEST_TOKEN = 12
SAFE_METHODS = frozenset({"GET", "HEAD"})
COOKIE = "whet_token"
# Paths that take files from programs. The token of DeepStack's clients is a field of the form: its handler checks it.
UPLOADS = frozenset({"/api/detect", "/api/learn", "/v1/vision/detection"})
# Paths that take the token as `?token=`: the first page, which moves it to a cookie, and streams for players.
TOKEN_IN_ADDRESS = frozenset({"/", "/api/video/stream.mjpg", "/api/video/frame.jpg"})
OWN_TOKEN = frozenset({"/v1/vision/detection"})

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
# Called with route, method, status and seconds of every request.
Count = Callable[[str, str, int, float], None]


@dataclass(frozen=True)
class Limits:
    """What one client may take: bytes of a request, seconds to send it, requests per second, connections.

    `connections` are those of all clients, `per_client` those of one address.
    """

    json_bytes: int = 1_000_000
    upload_bytes: int = 25_000_000
    body_seconds: float = 20.0
    rate: float = 200.0
    burst: float = 400.0
    connections: int = 128
    per_client: int = 96
    header_seconds: float = 5.0
    streams: int = 32
    viewers: int = 16


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered: a status, and a sentence with what was received, expected, and what to do."""

    status: int
    detail: str


@dataclass(eq=False)
class Access:
    """What the studio knows of its callers: the hosts that it listens on, and the token that they need."""

    hosts: frozenset[str] = LOOPBACK
    token: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        # An empty token, such as that of an unset variable, would admit everybody.
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise ValueError(
                f"got a token of {len(self.token)} characters; expected at least {SHORTEST_TOKEN}: leave it out for a "
                "random one"
            )

    def is_token(self, given: str) -> bool:
        """Whether a token is right; the time does not tell how much of it is (timing attacks)."""
        return self.token is None or secrets.compare_digest(given.encode(), self.token.encode())


def is_own(header: str, hosts: frozenset[str]) -> bool:
    """Whether a Host header names this server, which listens on `hosts`.

    DNS rebinding: a page of another site lets its own name point to this machine, and reads the answers. The browser
    sends that name as the host.

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
    if not hosts & EVERYWHERE:
        return False
    try:
        ip_address(name)
    except ValueError:  # the name of this machine, plain or as mDNS name
        return name in (own := socket.gethostname().lower(), f"{own}.local")
    return True


def check_host(headers: Iterable[tuple[bytes, bytes]], access: Access) -> Refusal | None:
    """DNS rebinding: refuse requests whose Host header is missing, double, or the name of another site."""
    named = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if len(named) == 1 and is_own(named[0], access.hosts):
        return None
    return Refusal(403, "unexpected Host header; expected the address that `whet serve` prints: open that one")


def check_origin(method: str, headers: dict[bytes, bytes]) -> Refusal | None:
    """Cross-site request forgery: another site's page sends a form or a script's request to this machine.

    Browsers say where a request comes from. Programs say nothing, and are no page of another site.
    """
    if method in SAFE_METHODS:
        return None
    site = headers.get(b"sec-fetch-site", b"none")
    origin = headers.get(b"origin")
    own = headers.get(b"host", b"").lower()
    is_ours = origin is None or _host_of(origin) == own
    if site in (b"same-origin", b"none") and is_ours:
        return None
    return Refusal(403, "the request comes from a page of another site; expected the studio's own page: open that one")


def _host_of(origin: bytes) -> bytes | None:
    """Host and port of an Origin header; None for what is no address."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc.lower().encode("latin-1")
    except ValueError:  # such as "http://["
        return None


def check_type(method: str, path: str, headers: dict[bytes, bytes]) -> Refusal | None:
    """Cross-site request forgery by forms: what changes something is JSON, which no form of another site can send.

    Uploads are forms; `check_origin` refuses those of other sites.
    """
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    if method in SAFE_METHODS or not has_body:
        return None
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")
    wanted, what = ("multipart/form-data", " with an image") if path in UPLOADS else ("application/json", "")
    return None if kind == wanted else Refusal(415, f"got content of type {kind[:100]!r}; expected {wanted}{what}")


def check_token(path: str, query: str, headers: dict[bytes, bytes], access: Access) -> Refusal | None:
    """Strangers on the network: beyond this machine, every request needs the token.

    It comes as `Authorization: Bearer TOKEN`, as the cookie that the first page sets, or as `?token=TOKEN` of the first
    page and of streams.
    """
    if access.token is None or path in OWN_TOKEN:
        return None
    given = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ").strip()
    if not given:
        given = _cookie(headers.get(b"cookie", b"").decode("latin-1"))
    if not given and path in TOKEN_IN_ADDRESS:
        given = token_in(query)
    if access.is_token(given):
        return None
    return Refusal(401, "the token is missing or wrong; open the address that `whet serve` prints, with its token")


def token_in(query: str) -> str:
    """The token of an address."""
    return parse_qs(query).get("token", [""])[0]


def _cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


class Rates:
    """Floods: a client that sends more requests per second than `rate`, after a burst, has to wait."""

    MOST_CLIENTS = 1024

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str, now: float | None = None) -> Refusal | None:
        """Count a request of a client; refuse it if there were too many."""
        now = time.monotonic() if now is None else now
        left, since = self._left.pop(client, (self._limits.burst, now))
        left = min(left + (now - since) * self._limits.rate, self._limits.burst)
        self._left[client] = (max(left - 1, 0.0), now)
        if len(self._left) > self.MOST_CLIENTS:
            self._left.popitem(last=False)
        if left >= 1:
            return None
        return Refusal(429, f"too many requests; expected at most {self._limits.rate:g} per second: wait a second")


class Guard:
    """All checks in front of the app, limits of the body behind them, and headers on every answer."""

    def __init__(self, app: App, access: Access, count: Count = lambda *_: None) -> None:
        self._app, self.access, self._rates, self._count = app, access, Rates(access.limits), count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        limits = self.access.limits
        most = limits.upload_bytes if scope["path"] in UPLOADS else limits.json_bytes
        began, status, body = time.perf_counter(), 500, LimitedBody(receive, most, limits.body_seconds)

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message["headers"]}
                extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items() if k.lower().encode() not in own]
                if b"cache-control" not in own:
                    extra.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        async def unless_refused(message: Message) -> None:
            if body.refusal is None:  # else the app answers to a body that it could not read
                await with_headers(message)

        refusal = self._refusal(scope, most)
        try:
            if refusal is None:
                with suppress(TooMuchError):
                    await self._app(scope, body, unless_refused)
                refusal = body.refusal
            if refusal is not None:
                await refused(refusal)(scope, receive, with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._count(route, scope["method"], status, time.perf_counter() - began)

    def _refusal(self, scope: Scope, most: int) -> Refusal | None:
        headers, path, method = dict(scope["headers"]), scope["path"], scope["method"]
        client = (scope.get("client") or ("", 0))[0]
        return (
            check_headers(scope)
            or self._rates.check(client)  # before the token: guesses are requests, too
            or check_host(scope["headers"], self.access)
            or check_origin(method, headers)
            or check_token(path, scope["query_string"].decode("latin-1"), headers, self.access)
            or check_type(method, path, headers)
            or check_length(headers, most)
        )


def check_headers(scope: Scope) -> Refusal | None:
    """Huge headers and addresses, and versions of HTTP that no client speaks: they are refused unread."""
    if scope.get("http_version") not in ("1.0", "1.1", "2"):
        return Refusal(400, "unexpected version of HTTP; expected 1.1: use another client")
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if size > MAX_HEADERS or len(scope["query_string"]) > MAX_HEADERS:
        return Refusal(431, f"got {size:,} bytes of headers; expected at most {MAX_HEADERS:,}: remove cookies")
    return None


def check_length(headers: dict[bytes, bytes], most: int) -> Refusal | None:
    """Large bodies: refuse them before they are read."""
    text = headers.get(b"content-length", b"0")
    if not text.isdigit() or int(text) <= most:
        return None
    return Refusal(413, f"got {int(text):,} bytes; expected at most {most:,}: send a smaller image")


class TooMuchError(Exception):
    """The body of a request is too large, or too slow."""


class LimitedBody:
    """Large bodies without a length, and slow ones: what a client sends is counted, and has to come in time."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._end, self._size, self._is_complete = time.monotonic() + seconds, 0, False
        self.refusal: Refusal | None = None

    async def __call__(self) -> Message:
        """The next part of the body."""
        if self._is_complete:
            return await self._receive()
        left = self._end - time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0.001))
        except TimeoutError:
            raise self._refused(408, f"the request did not arrive within {self._seconds:g} s; send it again") from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            if self._size > self._most:
                raise self._refused(413, f"got more than {self._most:,} bytes; expected fewer: send a smaller image")
        return message

    def _refused(self, status: int, detail: str) -> TooMuchError:
        self.refusal = Refusal(status, detail)
        return TooMuchError(detail)


def refused(refusal: Refusal) -> App:
    """An answer with the reason, which closes the connection."""
    from starlette.responses import JSONResponse

    more = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}.get(refusal.status, {})
    return JSONResponse({"detail": refusal.detail}, refusal.status, {"connection": "close", **more})
