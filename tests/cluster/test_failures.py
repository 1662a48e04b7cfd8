"""A cluster that fails: no scheduler, no workers, a poisoned image, a scheduler that goes away, Ctrl-C."""

import os
import signal
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
from tests.cluster.processes import scheduler, workers
from tests.crosses import WINDOW, write_images

from whet.detector.storage import load
from whet.errors import BoxError, ClusterError, UnreadableImageError
from whet.evaluation.runs import detect_many
from whet.parallel import workers as module
from whet.parallel.workers import Cluster, Threads, connect, lost_image
from whet.training.backgrounds import Backgrounds, SkippedImagesWarning
from whet.training.gslda import grey_backgrounds
from whet.training.loop import training_of

distributed = pytest.importorskip("distributed", reason="a cluster needs pip install 'whet[dask]'")
pytestmark = pytest.mark.slow

# A worker that reads the poisoned image dies, as it would of a fault in a decoder.
POISON = """
import os
from whet.io.image_files import read_grey
from whet.training import loop
loop.read_grey = lambda path: os._exit(1) if path.name == "3.png" else read_grey(path)
"""


def test_a_poisoned_image_is_reported_and_the_others_go_on(tmp_path):
    images = write_images(tmp_path)
    (tmp_path / "poison.py").write_text(POISON)
    with (
        scheduler() as address,
        workers(address, 2, "--preload", tmp_path / "poison.py"),
        distributed.Client(address) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        cluster = Cluster(client)
        with pytest.warns(SkippedImagesWarning, match=r"3\.png.*died.*remove the image"):
            places = grey_backgrounds(images, WINDOW, workers=cluster).random(80, [0])
        assert np.unique(places[:, 0]).tolist() == [0, 1, 2, 4, 5, 6, 7]
        with pytest.raises(ClusterError, match=r"died.*memory"):
            list(Cluster(client).map(os._exit, [1]))


def test_an_image_that_cannot_be_read_again_is_an_error_here_and_there(tmp_path):
    paths = write_images(tmp_path)[:4]
    family = training_of("channels")
    choice = family.choose_window(np.array([[0.0, 0.0, 40.0, 40.0]] * 30))
    with scheduler() as address, workers(address, 1), distributed.Client(address) as client:
        every = [
            Backgrounds(paths, family, choice, max_memory=0, workers=each) for each in (Threads(1), Cluster(client))
        ]
        places = [images.random(40, [0]) for images in every]
        np.testing.assert_array_equal(*places)
        paths[1].unlink()
        said = []
        for images in every:
            with pytest.raises(UnreadableImageError, match=r"no such file.*--resume") as caught:
                images.windows(places[0])
            said.append(str(caught.value))
            with pytest.warns(SkippedImagesWarning, match=r"no such file"):
                images.random(40, [1])
        assert said[0] == said[1]


class UnpicklableError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} of {second} arguments is kept")


def fail(number):
    raise UnpicklableError(1, 2) if number == 2 else BoxError(f"box {number}")


def test_errors_of_tasks_come_through_in_their_place():
    with scheduler() as address, workers(address, 1), distributed.Client(address) as client:
        cluster = Cluster(client)
        with pytest.raises(BoxError, match="box 1"):
            list(cluster.map(fail, [1]))
        with pytest.raises(ClusterError, match="UnpicklableError: 1 of 2 arguments"):
            list(cluster.map(fail, [2]))
        with pytest.raises(BoxError, match="box 3"):
            list(cluster.map(str, cluster.hold(fail, [3])))


# A worker on a machine without the directory of the images.
BLIND = """
import os
os.path.isfile = lambda path, isfile=os.path.isfile: "/images/" not in str(path) and isfile(path)
"""


def test_a_worker_that_does_not_see_the_images_is_an_error_that_names_it(tmp_path):
    (tmp_path / "blind.py").write_text(BLIND)
    for name in ("images", "shared"):
        (tmp_path / name).mkdir()
    hidden, shared = (write_images(tmp_path / name)[:6] for name in ("images", "shared"))
    gone = tmp_path / "nowhere" / "gone.png"
    detector = load("face")
    family = training_of("channels")
    choice = family.choose_window(np.array([[0.0, 0.0, 40.0, 40.0]] * 30))
    with (
        scheduler() as address,
        workers(address, 1),
        workers(address, 1, "--preload", tmp_path / "blind.py"),
        distributed.Client(address) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        cluster = Cluster(client)
        for attempt in (
            lambda: list(detect_many(detector, [*shared, *hidden], workers=cluster)),
            lambda: Backgrounds(hidden, family, choice, workers=cluster),
        ):
            with pytest.raises(ClusterError, match=rf"worker tcp://.* cannot see {tmp_path}/images.*--images URL"):
                attempt()
        found = list(detect_many(detector, [*shared, gone], workers=cluster))
        assert [one.found is None for one in found] == [False] * len(shared) + [True]


def test_another_server_at_the_address_of_the_scheduler(monkeypatch):
    monkeypatch.setattr(module, "HANDSHAKE", 2)
    silent = socket.create_server(("127.0.0.1", 0))
    page = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    Thread(target=page.serve_forever, daemon=True).start()
    try:
        for port in (silent.getsockname()[1], page.server_port):
            with pytest.raises(ClusterError, match=rf"127\.0\.0\.1:{port}, but it is no Dask scheduler.*dashboard"):
                connect(f"tcp://127.0.0.1:{port}").__enter__()
    finally:
        silent.close()
        page.shutdown()
        page.server_close()


def test_a_scheduler_that_is_not_there(monkeypatch):
    with pytest.raises(ClusterError, match=r"cannot connect to the scheduler tcp://127\.0\.0\.1:9.*dask scheduler"):
        connect("tcp://127.0.0.1:9").__enter__()
    monkeypatch.setattr(module, "FIRST_WORKER", 0.2)
    with (
        scheduler() as address,
        pytest.raises(ClusterError, match=r"has no workers.*dask worker tcp"),
        connect(address),
    ):
        pass


def test_an_encrypted_scheduler_without_certificates():
    with pytest.raises(ClusterError, match=r"tls://127\.0\.0\.1:9.*distributed\.comm\.tls"):
        connect("tls://127.0.0.1:9").__enter__()


def test_a_scheduler_that_goes_away():
    with scheduler() as address, workers(address, 1), distributed.Client(address, timeout=5) as client:
        cluster = Cluster(client)
        results = cluster.map(abs, range(1000))
        assert next(results) == 0
        number = client.run_on_scheduler(os.getpid)
        os.kill(number, signal.SIGKILL)
        with pytest.raises(ClusterError, match=r"lost the connection.*--resume"):
            list(results)


def test_tasks_that_nobody_waits_for_are_cancelled():
    with scheduler() as address, workers(address, 1), distributed.Client(address) as client:
        results = Cluster(client).map(time.sleep, [0.01] * 100)
        next(results)
        results.close()
        assert client.submit(abs, -1).result(timeout=5) == 1
        assert not client.futures.keys() - {"abs"} or all(key.startswith("abs") for key in client.futures)


def test_a_client_that_is_closed():
    with scheduler() as address:
        client = distributed.Client(address)
        client.close()
        with pytest.raises(ClusterError, match=r"client that is closed; expected a running one"):
            Cluster(client)


def test_workers_that_are_all_gone_are_not_waited_for_forever(monkeypatch):
    monkeypatch.setattr(module, "LOOKS_AFTER", 0.2)
    with scheduler() as address, distributed.Client(address) as client:
        with workers(address, 1):
            results = Cluster(client).map(time.sleep, [0.0, 600.0])
            next(results)
        monkeypatch.setattr(module, "FIRST_WORKER", 0.5)
        with pytest.raises(ClusterError, match=r"all workers of tcp.* are gone.*--resume"):
            next(results)


def test_a_value_that_kills_its_workers_blames_no_image():
    with scheduler() as address, workers(address, 2), distributed.Client(address) as client:
        client.wait_for_workers(2, timeout=120)
        cluster = Cluster(client)
        held = cluster.hold(os._exit, [1])
        with pytest.raises(ClusterError, match=r"the workers that ran exit died"):
            list(cluster.map(divmod, held * 2, [1, 2], lost=lost_image))
