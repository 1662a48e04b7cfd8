"""The studio, and those who should not reach it or would bring it down: each test names its attack."""

import asyncio
import io
import re
import socket
import struct
import tracemalloc
import zlib
from dataclasses import replace
from threading import Semaphore
from urllib.parse import quote

import pytest
from PIL import Image
from tests.remote_store import http_store
from tests.web.studios import PAGE, opened, served

from whet.errors import UnknownItemError, UnreadableImageError
from whet.web.gallery import MOST_UPLOAD_PIXELS, decode
from whet.web.programs import LimitedStream, Metrics
from whet.web.security import Access, Limits, Rates, is_own

# Whatever a field of a request may be called.
NAMES = ("image", "images", "url", "path", "source", "file", "name", "model", "project", "annotations", "negatives")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A client of a studio with one image, and the id of it: for attacks that change nothing."""
    with served(tmp_path_factory.mktemp("studio"), n=1) as (client, (key,)):
        yield client, key


PATHS = ("/", "/api/state", "/api/events", "/api/images", "/metrics", "/static/js/app.js", "/api/openapi.json")


@pytest.mark.parametrize("path", PATHS)
def test_dns_rebinding_a_name_that_was_made_to_point_here_gets_nothing(attacked, path):
    client, _ = attacked
    for name in ("evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        refused = client.get(path, headers={"Host": name})
        assert refused.status_code == 403
        assert "Host" in refused.json()["detail"]


@pytest.mark.parametrize(
    "header", ["", " ", "localhost@evil.example", "[::1", "::1]", "localhost:port", "localhost/", "[localhost]"]
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
    assert not is_own("10.0.0.1", frozenset({"camera.home", "192.168.1.7"}))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:1"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_cross_site_request_forgery_pages_of_other_sites_change_nothing(tmp_path, headers):
    with served(tmp_path, n=1) as (client, keys):
        body = {"boxes": [[40, 30, 70, 60]], "is_object": True}
        calls = [
            client.post(f"/api/images/{keys[0]}/labels", json=body, headers=headers),
            client.post("/api/undo", json={}, headers=headers),
            client.put("/api/min_score", json={"min_score": 1.0}, headers=headers),
            client.delete("/api/train", headers=headers),
            client.post("/api/learn", files={"image": b"x"}, data={"boxes": "[]", "is_object": "1"}, headers=headers),
        ]
        assert {answer.status_code for answer in calls} == {403}
        assert len(client.get("/api/history").json()["nodes"]) == 1
        own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
        assert client.post(f"/api/images/{keys[0]}/labels", json=body, headers=own).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_cross_site_request_forgery_forms_are_no_json(attacked, kind):
    client, key = attacked
    content = b'{"boxes": [[40, 30, 70, 60]], "is_object": true}'
    answer = client.post(f"/api/images/{key}/labels", content=content, headers={"Content-Type": kind})
    assert answer.status_code == 415


def test_server_side_request_forgery_a_url_from_a_client_is_not_opened(tmp_path):
    (tmp_path / "secret").mkdir()
    with http_store(tmp_path / "secret") as (url, asked), served(tmp_path, n=1) as (client, keys):
        url = f"{url}/a.png"
        document = client.get("/api/openapi.json").json()
        for path, methods in document["paths"].items():
            for method in set(methods) & {"get", "post", "put", "delete"} if "events" not in path else ():
                place = re.sub(r"\{\w+\}", quote(url, safe=""), path)
                named = re.sub(r"\{\w+\}", keys[0], path)
                every = dict.fromkeys(NAMES, url)
                client.request(method, place, params=every)
                client.request(method, named, params=every, json=every if method != "get" else None)
                if method in ("post", "put"):
                    client.request(method, named, files={name: (url, url.encode()) for name in NAMES}, data=every)
        assert not asked


def test_server_side_request_forgery_a_url_in_a_project_is_not_opened(tmp_path):
    (tmp_path / "secret").mkdir()
    Image.new("L", (40, 40)).save(tmp_path / "secret" / "a.png")
    with http_store(tmp_path / "secret") as (url, asked), opened(tmp_path, n=1) as (workspace, keys):
        gallery = workspace.gallery
        with pytest.raises(UnknownItemError):
            gallery._read(replace(gallery[keys[0]], path=f"{url}/a.png"))
        assert not asked


def test_other_pages_cannot_embed_read_or_script_it(attacked):
    client, _ = attacked
    for path in ("/", "/api/state", "/static/js/app.js", "/nothing"):
        headers = client.get(path, headers={"Origin": "https://evil.example"}).headers
        assert headers["cross-origin-resource-policy"] == "same-origin"
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "access-control-allow-origin" not in headers
        assert headers["x-content-type-options"] == "nosniff"
    assert client.options("/api/state", headers={"Origin": "https://evil.example"}).status_code in (403, 405)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../api.py",
        "/static/%2e%2e/api.py",
        "/static/..%2fapi.py",
        "/static/js/../../api.py",
        "/static//etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/api/images/..%2f..%2fetc%2fpasswd/file",
        "/api/images/%2Fetc%2Fpasswd/file",
        "/api/images/bull.studio/file",
        "//etc/passwd",
    ],
)
def test_path_traversal_no_file_of_the_machine_is_sent(attacked, path):
    client, _ = attacked
    answer = client.get(path)
    assert answer.status_code == 404
    assert b"root:" not in answer.content
    assert b"import" not in answer.content


@pytest.mark.parametrize("token", ["", "short"])
def test_a_token_that_can_be_guessed_is_refused(token):
    with pytest.raises(ValueError, match="12"):
        Access(token=token)


def test_guesses_of_the_token_are_limited_and_any_method_is_one_row_of_the_metrics(tmp_path):
    limits = Limits(rate=1, burst=2)
    with served(tmp_path, access=Access(token="a-secret-token", limits=limits), n=1) as (client, _):
        codes = [client.request(f"M{i}", "/api/state").status_code for i in range(20)]
    assert set(codes) == {401, 429}
    metrics = Metrics()
    for i in range(20):
        metrics.add("/", f"M{i}", 401, 0.0)
    assert metrics.text({}).count("whet_requests_total{") == 1


def test_strangers_need_the_token(tmp_path):
    with served(tmp_path, access=Access(token="a-secret-token"), n=1) as (client, _):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "whet_token=wrong"}, {"Cookie": "\x00;="}):
            assert client.get("/api/state", headers=headers).status_code == 401
        assert client.get("/api/state", headers={"Authorization": "Bearer a-secret-token"}).status_code == 200
        assert client.get("/api/state?token=a-secret-token").status_code == 401  # an address is easily shared
        first = client.get("/?token=a-secret-token", follow_redirects=False)
        cookie = first.headers["set-cookie"]
        assert first.status_code == 303
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert client.get("/api/state").status_code == 200  # by the cookie


def test_large_bodies_are_refused_before_they_are_read_and_while(tmp_path):
    limits = Limits(json_bytes=1000, upload_bytes=5000)
    with served(tmp_path, access=Access(limits=limits), n=1) as (client, keys):
        path = f"/api/images/{keys[0]}/labels"
        answer = client.post(path, content=b" " * 1001, headers={"content-type": "application/json"})
        assert answer.status_code == 413

        def parts():
            for _ in range(100):
                yield b" " * 100

        answer = client.post(path, content=parts(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert client.post("/api/detect", files={"image": b"x" * 6000}).status_code == 413


def test_floods_have_to_wait():
    rates = Rates(Limits(rate=10, burst=5))
    assert [rates.check("a", 0.0) is None for _ in range(7)] == [True] * 5 + [False] * 2
    assert rates.check("b", 0.0) is None
    assert rates.check("a", 0.5) is None
    for number in range(5000):
        rates.check(str(number), 1.0)
    assert len(rates._left) <= Rates.MOST_CLIENTS


def test_floods_get_a_429(tmp_path):
    with served(tmp_path, access=Access(limits=Limits(rate=1, burst=3)), n=1) as (client, _):
        assert [client.get("/api/state").status_code for _ in range(5)] == [200] * 3 + [429] * 2


def bomb(width, height):
    """A PNG of some hundred bytes that claims to have these sides."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 10**6, 9))
        + chunk(b"IEND", b"")
    )


def jpeg():
    content = io.BytesIO()
    Image.new("RGB", (640, 480), (90, 120, 40)).save(content, "JPEG")
    return content.getvalue()


HOSTILE = {
    "bomb": bomb(60_000, 60_000),
    "wide bomb": bomb(2**31 - 1, 1),
    "truncated": jpeg()[:300],
    "half": jpeg()[: len(jpeg()) // 2],
    "text": b"<html>no image</html>",
    "nothing": b"",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "zip": b"PK\x03\x04" + bytes(100),
    "zeros": bytes(100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_uploads_get_a_4xx_in_bounded_memory(attacked, name):
    client, _ = attacked
    tracemalloc.start()
    try:
        for path, data in (
            ("/api/detect", {}),
            ("/api/learn", {"boxes": "[[1, 1, 30, 30]]", "is_object": "true"}),
            ("/v1/vision/detection", {}),
        ):
            answer = client.post(path, files={"image": ("a.jpg", HOSTILE[name], "image/jpeg")}, data=data)
            assert 400 <= answer.status_code < 500, (path, answer.status_code)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 * MOST_UPLOAD_PIXELS
    assert client.get("/api/state").json()["n_images"] == 1


def test_an_image_that_is_too_large_is_refused_before_it_is_decoded():
    with pytest.raises(UnreadableImageError, match="expected at most"):
        decode(bomb(6_000, 6_000))


def test_names_of_uploads_are_shown_and_never_opened(tmp_path):
    with served(tmp_path, n=1) as (client, _):
        content = io.BytesIO()
        Image.effect_noise((120, 100), 90).save(content, "PNG")
        body = {"boxes": "[[10, 10, 60, 60]]", "is_object": "true"}
        for name in ("../../../etc/passwd", "C:\\windows\\win.ini", "a\x1b[2J.png"):
            client.post("/api/learn", files={"image": (name, content.getvalue(), "image/png")}, data=body)
        names = [image["name"] for image in client.get("/api/images").json()["images"]]
        assert not any("/" in name or "\\" in name or not name.isprintable() for name in names)


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "CONNECT", "PROPFIND"])
def test_other_methods_are_refused(attacked, method):
    client, _ = attacked
    assert client.request(method, "/api/state", headers=PAGE).status_code in (403, 404, 405)


def test_more_boxes_than_a_request_may_have_are_refused_unread(attacked):
    client, key = attacked
    body = {"boxes": [[40, 30, 70, 60]] * 51, "is_object": True}
    assert client.post(f"/api/images/{key}/labels", json=body).status_code == 422


def test_a_burst_of_streams_gets_places_or_is_refused_at_once():
    """None waits: with two places, two of twelve that ask at the same time have an answer of events."""

    async def ask(app, answers):
        ended = asyncio.Event()

        async def send(message):
            if message["type"] == "http.response.start":
                answers.append(message["status"])

        async def receive():
            await ended.wait()
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "asgi": {"spec_version": "2.0"}}
        task = asyncio.create_task(app(scope, receive, send))
        return task, ended

    async def forever():
        while True:
            yield "data"
            await asyncio.sleep(0.01)

    async def burst():
        places, answers = Semaphore(2), []
        asked = [await ask(LimitedStream(forever(), "text/event-stream", places), answers) for _ in range(12)]
        await asyncio.sleep(0.1)
        assert sorted(answers) == [200, 200, *[429] * 10]
        for _, ended in asked:
            ended.set()
        await asyncio.gather(*(task for task, _ in asked))
        assert all(places.acquire(blocking=False) for _ in range(2))

    asyncio.run(burst())
