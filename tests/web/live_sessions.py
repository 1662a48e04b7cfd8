"""Sessions that run on a thread of their own until they are stopped, and what a viewer reads of them."""

import http.client
import json
import threading
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import Image
from tests.detectors import bull_finder, bull_scene

from whet.io.video import VideoFrame
from whet.tracking.self_training import SelfTraining
from whet.tracking.session import Session
from whet.tracking.tracker import Tracker
from whet.web.page import LiveImage
from whet.web.server import LiveServer

EAGER = SelfTraining(learn_min_score=-np.inf, every=1, share=0.01, guarded=False)
TIMEOUT = 60  # seconds after which a test has failed


class Running:
    """A session with its page; `frames` counts them, and `summary` is there when it is over."""

    def __init__(self, image_of):
        self.live = LiveImage({"model": "bull"})
        self.frames, self.summary = 0, None
        self.is_over, self.begins = threading.Event(), threading.Event()
        self._image_of = image_of
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self):
        self.is_over.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def wait_for(self, n):
        """Wait until so many more frames have been watched."""
        goal, pause = self.frames + n, threading.Event()
        for _ in range(TIMEOUT * 100):
            if self.frames >= goal:
                return
            pause.wait(0.01)
        raise AssertionError("the session does not go on")

    def _run(self):
        tracker = Tracker(bull_finder(), learn=True, self_training=EAGER, threads=1)
        self.summary = Session(tracker, (self.live.show, self._count)).run(self._source())
        self.live.end(self.summary)

    def _source(self):
        self.begins.wait(10 * TIMEOUT)
        number = 0
        while not self.is_over.is_set():
            yield VideoFrame(number, number / 25, self._image_of(number))
            number += 1

    def _count(self, *_):
        self.frames += 1


@contextmanager
def served(image_of=lambda number: np.roll(bull_scene(), number, axis=1), begins=True):
    """A running session and its server, on a free port."""
    run = Running(image_of)
    if begins:
        run.begins.set()
    try:
        with LiveServer(run.live) as server:
            yield run, server
    finally:
        run.begins.set()
        run.end()


def asked(server, path, method="GET", **headers):
    """The answer of a server, its content still to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=TIMEOUT)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


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


def news_of(answer):
    """The numbers in the events."""
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])
