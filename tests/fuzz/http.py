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

LONGEST = 30.0  # seconds in which a request that is complete is answered
IMAGE = "IMAGE".ljust(32, "-")  # in place of an id, and as long, so that the length of a body is right
BODIES = {
    f"/api/images/{IMAGE}/labels": {"boxes": [[2, 2, 32, 32]], "is_object": False},
    f"/api/images/{IMAGE}/confirm": {},
    f"/api/images/{IMAGE}/lock": {"is_locked": True},
    "/api/undo": {},
    "/api/redo": {},
    "/api/branches": {"name": "try", "node": 0},
    "/api/blame": {"image": IMAGE, "box": [40, 30, 70, 60]},
    "/api/confirm": {"images": [IMAGE]},
    "/api/checkout": {"branch": "main"},
}
PATHS = (
    *("/", "/api/state", "/api/history", "/api/effect", "/api/curves", "/api/train", "/api/openapi.json", "/metrics"),
    *("/api/images?order=queue&offset=0&limit=3", f"/api/images/{IMAGE}", f"/api/images/{IMAGE}/file"),
    *(f"/api/images/{IMAGE}/thumbnail", "/api/export?format=coco", "/api/model.whet", "/static/js/app.js"),
)


@cache
def requests() -> tuple[bytes, ...]:
    """Sound requests: every kind of address, JSON and forms; none without the studio's packages."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        return ()
    posts = [_request("POST", path, json.dumps(body).encode(), "application/json") for path, body in BODIES.items()]
    score = _request("PUT", "/api/min_score", b'{"min_score": 1.5}', "application/json")
    forms = [
        _request("POST", "/v1/vision/detection", *_form(min_confidence="0.5")),
        _request("POST", "/api/detect", *_form(min_score="0.5")),
        _request("POST", "/api/learn", *_form(boxes="[[1, 1, 30, 30]]", is_object="false")),
    ]
    return (*posts, *(_request("GET", path) for path in PATHS), *forms, score)


def _request(method: str, path: str, body: bytes = b"", kind: str = "") -> bytes:
    length = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX-Whet-Client: fuzz\r\n{length}"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def _form(**fields: str) -> tuple[bytes, str]:
    file = io.BytesIO()
    Image.fromarray(np.full((40, 50, 3), 90, np.uint8)).save(file, "png")
    begin = b'--edge\r\nContent-Disposition: form-data; name="'
    parts = [begin + b'image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n' + file.getvalue()]
    parts += [begin + f'{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    return b"\r\n".join([*parts, b"--edge--\r\n"]), "multipart/form-data; boundary=edge"


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
    """A request is answered or refused, and the server goes on."""
    status = status_of(data)
    assert status < 500, status
    assert status_of(_request("GET", "/api/state")) == 200, "the server does not answer any more"
    return "accepted" if 200 <= status < 400 else "refused"


def status_of(data: bytes) -> int:
    """The status of the answer; 0 if the server closes the connection, or waits for the rest of the head."""
    port, image, _ = served_by_process(os.getpid())
    data = data.replace(b"PORT", str(port).encode()).replace(IMAGE.encode(), image.encode())
    is_complete = b"\r\n\r\n" in data
    with socket.create_connection(("127.0.0.1", port), timeout=LONGEST if is_complete else 0.5) as connection:
        try:
            connection.sendall(data)
            answer = connection.recv(65536)
        except (BrokenPipeError, ConnectionResetError):
            return 0
        except TimeoutError:
            assert not is_complete, f"no answer in {LONGEST} s"
            return 0
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.") and answer[9:12].isdigit() else 0


def check_sound_requests() -> None:
    """Every request that changes begin with is carried out, so that the fuzzer comes as far as the handlers."""
    found = {data.split(b" HTTP")[0].decode(): status_of(data) for data in requests()}
    assert set(found.values()) == {200}, found
