"""Small studios for tests: drawn scenes with bulls, the app over them, and a server in a process of its own."""

import http.client
import json
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import Image
from starlette.testclient import TestClient
from tests.commands import serving
from tests.detectors import bull_scene, judged_finder

from whet.web.api import make_app
from whet.web.labelling import Labeller
from whet.web.security import Access
from whet.web.studio import Studio
from whet.web.workspace import Workspace

TIMEOUT = 60  # seconds after which a test has failed
PAGE = {"X-Whet-Client": "page"}
MISSED = [89.0, 46.0, 143.0, 100.0]  # called an object in the first scene; many windows then fire in all of them


def scene(seed):
    """An image (150, 200, 3) with two bulls."""
    return np.repeat(bull_scene(seed)[:, :, None], 3, axis=2)


def scenes(folder, n=4):
    folder.mkdir(exist_ok=True)
    for seed in range(n):
        Image.fromarray(scene(seed)).save(folder / f"{seed}.png")
    return folder


def finder():
    return judged_finder(default=0.5)


@contextmanager
def opened(folder, detector="bull", n=4):
    """A workspace with some scenes, and the ids of these."""
    made = finder() if detector == "bull" else detector
    with Workspace.open(folder / "bull.studio", made, name="bull", threads=1) as workspace:
        yield workspace, [workspace.add_image(scene(seed), f"{seed}.png").id for seed in range(n)]


def labels_for(workspace):
    return Labeller(workspace)


@contextmanager
def served(folder, access=None, **options):
    """A client of the app of a workspace, in this process; and the ids of its images."""
    with opened(folder, **options) as (workspace, keys):
        app = make_app(Studio(workspace), access or Access())
        with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
            yield client, keys


def running(*arguments, **options):
    """A server in a process of its own, and the port that it prints."""
    address = r"(?:whet: )?studio at http://127\.0\.0\.1:(\d+)/.*\n"
    return serving("serve", *arguments, "--port", "0", "--no-browser", address=address, **options)


def jpegs_of(answer):
    """Images of a stream as a strict reader takes them: by their boundaries and lengths."""
    assert answer.readline() == b"--frame\r\n"
    while True:
        headers = http.client.parse_headers(answer)
        if "Content-Length" not in headers:
            return
        assert headers["Content-Type"] == "image/jpeg"
        content = answer.read(int(headers["Content-Length"]))
        assert answer.read(11) == b"\r\n--frame\r\n"
        image = Image.open(BytesIO(content))
        assert image.format == "JPEG"
        yield np.asarray(image)


def news_of(lines):
    """The events of a stream of lines."""
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line[6:])
