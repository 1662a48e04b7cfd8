"""The page with the live image, and those who should not see it or would bring it down."""

import select
import socket
import sys
import threading
import time

import pytest
from tests.web.live_sessions import TIMEOUT, asked, served

from whet.web import server as live_server
from whet.web.page import LiveImage
from whet.web.server import LiveServer, is_own

PATHS = ("/", "/stream.mjpg", "/frame.jpg", "/events")


@pytest.fixture
def server():
    with LiveServer(LiveImage()) as server:
        yield server


def answer(server, request):
    """All that comes back for the bytes of a request."""
    with socket.create_connection(server.server_address[:2], timeout=TIMEOUT) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("path", PATHS)
def test_a_name_that_was_made_to_point_here_gets_nothing(server, path):
    """DNS rebinding."""
    port = server.server_address[1]
    for name in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example"):
        refused = asked(server, path, Host=name)
        assert refused.status == 403
        assert server.address in refused.read().decode()
    for request in (
        f"GET {path} HTTP/1.0\r\n\r\n",
        f"GET {path} HTTP/1.1\r\nHost:\r\n\r\n",
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    ):
        assert answer(server, request.encode()).startswith(b"HTTP/1.0 403")


def test_its_own_names_are_taken(server):
    for name in ("localhost", "LOCALHOST:1", "127.0.0.1:9999", "[::1]", "[::1]:80"):
        assert asked(server, "/", Host=name).status == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "localhost@evil.example",
        "evil@localhost",
        "[::1",
        "::1]",
        "localhost:port",
        "localhost/",
        "[localhost]",
    ],
)
def test_headers_that_name_nothing_are_not_ours(header):
    assert not is_own(header, frozenset({"127.0.0.1"}))
    assert not is_own(header, frozenset({"0.0.0.0"}))


def test_a_server_for_all_goes_by_numbers_and_by_the_names_of_the_machine():
    everywhere = frozenset({"0.0.0.0"})
    assert is_own("192.168.1.7:8000", everywhere)
    assert is_own("[fe80::1]:8000", everywhere)
    assert is_own(socket.gethostname(), everywhere)
    assert is_own(socket.gethostname().lower() + ".local:80", everywhere)
    assert not is_own("evil.example", everywhere)
    assert is_own("camera.home", frozenset({"camera.home", "192.168.1.7"}))
    assert not is_own("10.0.0.1", frozenset({"camera.home", "192.168.1.7"}))


@pytest.mark.parametrize(
    "path",
    [
        "/live.html",
        "//x",
        "/stream.mjpg/",
        "/../live_server.py",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/",
        "http://localhost/",
        "*",
    ],
)
def test_no_other_path_is_served(server, path):
    assert asked(server, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "NONSENSE"])
def test_nothing_but_looking(server, method):
    assert asked(server, "/", method).status == 501


def test_other_pages_cannot_embed_or_read_it(server):
    for path in ("/", "/stream.mjpg", "/events"):
        headers = asked(server, path, "HEAD", Origin="https://evil.example").headers
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # a browser that tries https
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00\xff\n",
        b"GET\n\n",
    ],
)
def test_nonsense_is_refused_and_the_session_goes_on(request_bytes, capfd):
    with served() as (run, server):
        try:
            reply = answer(server, request_bytes)
        except ConnectionResetError:  # it did not read all of it
            reply = b""
        assert b"200 OK" not in reply
        run.wait_for(2)
        assert asked(server, "/").status == 200
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of its own there only")
def test_it_listens_on_loopback_alone(server):
    """Another address of the same machine stands for its others."""
    assert server.server_address[0] == "127.0.0.1"
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(("127.0.0.2", server.server_address[1]), timeout=1),
    ):
        pass


@pytest.mark.slow
def test_connections_that_never_ask_are_let_go_and_not_without_number(monkeypatch):
    monkeypatch.setattr(live_server, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(live_server._Request, "timeout", 1.0)
    before = threading.active_count()
    with served() as (run, server):
        idle = [socket.create_connection(server.server_address[:2], timeout=TIMEOUT) for _ in range(30)]
        run.wait_for(3)
        assert threading.active_count() <= before + 8 + 2
        assert all(connection.recv(1) == b"" for connection in idle)
        assert asked(server, "/").status == 200
        for connection in idle:
            connection.close()


@pytest.mark.slow
def test_a_request_that_drips_is_hung_up_on(monkeypatch):
    """Each byte is in time, but the whole never comes."""
    monkeypatch.setattr(live_server, "TIMEOUT", 1.0)
    with served() as (_, server), socket.create_connection(server.server_address[:2], timeout=TIMEOUT) as drip:
        for _ in range(200):
            drip.sendall(b"G")
            time.sleep(0.05)
            if drip in select.select([drip], [], [], 0)[0]:
                break
        assert drip.recv(1) == b""
        assert asked(server, "/").status == 200
