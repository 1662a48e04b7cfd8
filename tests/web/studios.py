"""Small studios for tests: drawn scenes with bulls, the app over them, and a server in a process of its own."""

import http.client
import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import Image
from starlette.testclient import TestClient
from tests.detectors import bull_scene, judged_finder

from whet.web.api import make_app
from whet.web.labelling import Labeller
from whet.web.security import Access
from whet.web.studio import Studio
from whet.web.workspace import Workspace

TIMEOUT = 60  # seconds after which a test has failed
PAGE = {"X-Whet-Client": "page"}


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


@contextmanager
def running(*arguments, **options):
    """A server in a process of its own, and the port that it prints."""
    command = [
        sys.executable,
        "-m",
        "whet",
        "serve",
        *map(str, arguments),
        "--port",
        "0",
        "--no-browser",
        "--threads",
        "1",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test in the background ignores it
        **options,
    ) as run:
        try:
            line = run.stderr.readline()
            found = re.search(r"studio at http://127\.0\.0\.1:(\d+)/", line)
            assert found, line + run.stderr.read()
            yield run, int(found[1])
        finally:
            run.kill()


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
