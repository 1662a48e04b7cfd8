"""Hostile requests to the studio over a socket of a real server; a status of 500 or above is a finding."""

import atexit
import io
import json
import os
import shutil
import socket
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from tests.fuzz.mutations import bytes_changed, text_changed

PATIENCE = 1.5  # seconds to wait for an answer; a request without its end gets none
LONGEST = 30.0  # seconds in which a sound request is answered
BODIES = {
    "/api/images/IMAGE/labels": {"boxes": [[2, 2, 32, 32]], "is_object": False, "request_id": "a"},
    "/api/images/IMAGE/confirm": {"request_id": "b"},
    "/api/images/IMAGE/lock": {"is_locked": True},
    "/api/undo": {},
    "/api/redo": {},
    "/api/branches": {"name": "try", "node": 0},
    "/api/checkout": {"node": 0},
    "/api/blame": {"image": "IMAGE", "box": [40, 30, 70, 60]},
    "/api/confirm": {"images": ["IMAGE"]},
}
PATHS = (
    *("/", "/api/state", "/api/history", "/api/effect", "/api/curves", "/api/train", "/api/openapi.json", "/metrics"),
    *("/api/images?order=queue&offset=0&limit=3", "/api/images/IMAGE", "/api/images/IMAGE/file"),
    *("/api/images/IMAGE/thumbnail", "/api/export?format=coco", "/api/model.whet", "/static/studio.js"),
)


@cache
def requests() -> tuple[bytes, ...]:
    """Sound requests: every kind of address, JSON and forms; none without the studio's packages."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        return ()
    found = [_request("GET", path) for path in PATHS]
    found += [
        _request("POST", path, json.dumps(body).encode(), "application/json", "X-Whet-Client: fuzz\r\n")
        for path, body in BODIES.items()
    ]
    found.append(
        _request("PUT", "/api/min_score", b'{"min_score": 1.5}', "application/json", "X-Whet-Client: fuzz\r\n")
    )
    return (
        *found,
        *(_request("POST", path, *_form()) for path in ("/v1/vision/detection", "/api/detect", "/api/learn")),
    )


def _request(method: str, path: str, body: bytes = b"", kind: str = "", more: str = "") -> bytes:
    length = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n{length}{more}Connection: close\r\n\r\n".encode() + body
    )


def _form() -> tuple[bytes, str]:
    file = io.BytesIO()
    Image.fromarray(np.full((40, 50, 3), 90, np.uint8)).save(file, "png")
    parts = (
        b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
        + file.getvalue()
        + b'\r\n--edge\r\nContent-Disposition: form-data; name="min_score"\r\n\r\n0.5'
        + b'\r\n--edge\r\nContent-Disposition: form-data; name="wrong"\r\n\r\n[[1, 1, 20, 20]]\r\n--edge--\r\n'
    )
    return parts, "multipart/form-data; boundary=edge"


def request_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """The body, the head or all of it changes; where only the body does, its length is right again."""
    head, _, body = data.partition(b"\r\n\r\n")
    match rng.integers(4):
        case 0:
            return bytes_changed(data, rng)
        case 1:
            return text_changed(head, rng) + b"\r\n\r\n" + body
        case _ if body:
            changed = text_changed(body, rng)
            return head.replace(b"Length: %d" % len(body), b"Length: %d" % len(changed)) + b"\r\n\r\n" + changed
        case _:
            return text_changed(head, rng) + b"\r\n\r\n"


@cache
def served_by_process(number: int) -> tuple[int, str, ExitStack]:  # noqa: ARG001 - a server does not survive a fork
    """The port of a server of this process, the id of an image there, and what is to be kept open."""
    from tests.web.studios import opened
    from whet.web.api import make_app
    from whet.web.security import Access, Limits
    from whet.web.server import StudioServer
    from whet.web.studio import Studio

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    stack = ExitStack()
    workspace, keys = stack.enter_context(opened(folder, n=2))
    app = make_app(Studio(workspace), Access(limits=Limits(rate=1e6, burst=1e6, body_seconds=1.0)))
    server = stack.enter_context(StudioServer(app))
    return int(server.address.rstrip("/").rpartition(":")[2]), keys[0], stack


def run_request(data: bytes) -> str:
    """A request is answered or refused; the server goes on."""
    port, image, _ = served_by_process(os.getpid())
    data = data.replace(b"PORT", str(port).encode()).replace(b"IMAGE", image.encode())
    answer = _exchanged(port, data, PATIENCE)
    status = int(answer[9:12]) if answer.startswith(b"HTTP/1.") and answer[9:12].isdigit() else 0
    assert status < 500, answer[:2000]
    alive = _exchanged(port, _request("GET", "/api/state").replace(b"PORT", str(port).encode()), LONGEST)
    assert alive.startswith(b"HTTP/1.1 200"), f"the server does not answer any more: {alive[:300]!r}"
    return "accepted" if 200 <= status < 400 else "refused"


def _exchanged(port: int, data: bytes, seconds: float) -> bytes:
    """The beginning of the server's answer; empty if it closes the connection, or waits for the rest."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            connection.sendall(data)
            return connection.recv(65536)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return b""
