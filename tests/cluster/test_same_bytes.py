"""What a cluster trains is, byte for byte, what one thread trains: at any size, after dead workers, after a restart."""

import hashlib
import os
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from tests.cluster.processes import kill_one, scheduler, worker_processes, workers
from tests.crosses import CONFIG, detector_bytes, pool, positives, train_cascade, write_images
from tests.drawn_sets import van_set
from tests.training.test_checkpoint import StoppedError, stop_at

import whet
from whet.parallel.workers import Cluster, Threads
from whet.training.config import TrainingConfig
from whet.training.preparation import prepare
from whet.training.progress import FitProgress, FitStarted, Mining
from whet.training.train import train_prepared

distributed = pytest.importorskip("distributed", reason="a cluster needs pip install 'whet[dask]'")
TIMEOUT = 120
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:fewer than 200 different objects")]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("noise"))


@pytest.fixture(scope="module")
def address():
    with scheduler() as address, workers(address, 2):
        yield address


@pytest.fixture
def client(address):
    with distributed.Client(address) as client:
        client.wait_for_workers(2, timeout=TIMEOUT)
        yield client


def trained(images, workers, callback=lambda _: None, **options):
    """The hash of a small cascade."""
    config = replace(CONFIG, early_exits=True)
    _, stages, _ = train_cascade(pool(), positives(), images, config, callback, workers=workers, **options)
    return hashlib.sha256(detector_bytes(stages)).hexdigest()


@pytest.fixture(scope="module")
def expected(images):
    return trained(images, Threads(1))


class Blocks(Threads):
    """Threads that cut features into blocks of a given size."""

    def __init__(self, threads, size):
        super().__init__(threads)
        self.size = size

    @property
    def slots(self):
        return -(-len(pool()) // self.size)


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
def test_the_size_of_blocks_does_not_matter(images, expected, size):
    assert trained(images, Blocks(2, size)) == expected


def test_the_number_of_workers_does_not_matter(images, expected):
    with scheduler() as address, distributed.Client(address) as client, ExitStack() as stack:
        for more, n in ((1, 1), (1, 2), (2, 4)):
            stack.enter_context(workers(address, more))
            client.wait_for_workers(n, timeout=TIMEOUT)
            assert trained(images, Cluster(client)) == expected


def test_the_instructions_of_a_worker_do_not_matter(images, expected):
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NPY_DISABLE_CPU_FEATURES": "AVX2 AVX512F"}
    with scheduler() as address, workers(address, 1, environment=plain), distributed.Client(address) as client:
        assert trained(images, Cluster(client)) == expected
        assert client.submit(os.getenv, "NUMBA_CPU_NAME").result() == "generic"


@pytest.mark.parametrize("phase", [Mining, FitStarted, FitProgress])
def test_workers_that_die_twice_in_each_phase_do_not_matter(images, expected, client, phase):
    """Killed while they mine, train weak learners, and select; the next event of the phase kills again."""
    client.wait_for_workers(2, timeout=TIMEOUT)
    killed = []

    def kill(event):
        if isinstance(event, phase) and len(killed) < 2:
            killed.append(worker_processes(client)[0])
            kill_one(client)

    assert trained(images, Cluster(client), kill) == expected
    assert len(set(killed)) == 2


def in_second_stage(event):
    return isinstance(event, FitProgress) and event.stage == 1


def test_a_training_stopped_on_a_cluster_ends_on_a_laptop_and_the_other_way_round(images, expected, client, tmp_path):
    for number, (first, second) in enumerate([(Cluster(client), Threads(2)), (Threads(1), Cluster(client))]):
        file = tmp_path / f"{number}.checkpoint"
        with pytest.raises(StoppedError):
            trained(images, first, stop_at(in_second_stage), checkpoint=file)
        assert trained(images, second, checkpoint=file) == expected


def test_a_channel_detector_is_the_same(tmp_path, client):
    van_set(tmp_path, n=24)
    settings = {"trees": 32, "negatives_per_round": 300, "copies_per_object": 3}
    config = TrainingConfig(tmp_path / "vans.csv", [tmp_path / "textures"], **settings)
    one = train_prepared(prepare(config, workers=Threads(1)), workers=Threads(1)).detector
    killed = []

    def kill(event):
        if isinstance(event, Mining) and not killed:
            killed.append(kill_one(client))

    cluster = Cluster(client)
    two = train_prepared(prepare(config, workers=cluster), kill, workers=cluster).detector
    assert killed
    assert two.to_bytes() == one.to_bytes()
    run = whet.evaluate(one, tmp_path / "vans.csv", client=client)
    alone = whet.evaluate(one, tmp_path / "vans.csv")
    assert [len(image.scores) for image in run.evaluation.images]
    for ours, theirs in zip(run.evaluation.images, alone.evaluation.images, strict=True):
        np.testing.assert_array_equal(ours.boxes, theirs.boxes)
        np.testing.assert_array_equal(ours.scores, theirs.scores)
