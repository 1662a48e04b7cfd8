import numpy as np
import pytest
from experiments import datasets, node, node_time
from experiments.face_samples import face_sets, mirrored, non_face_sets
from experiments.report import reproduce


@pytest.fixture
def data():
    for name in ("faces_opencv24", "negatives"):
        if datasets.find(name) is None:
            pytest.skip(f"{name} is not on this machine: set WHET_DATA")


def test_mirror_images_stand_side_by_side(rng):
    faces = rng.integers(0, 256, (3, 4, 4), dtype=np.uint8)
    both = mirrored(faces)
    np.testing.assert_array_equal(both[::2], faces)
    np.testing.assert_array_equal(both[1::2, :, ::-1], faces)


@pytest.mark.usefixtures("data")
def test_no_face_is_in_two_sets(rng):
    sets = face_sets(5, 2000, rng)
    seen = [{face.tobytes() for face in faces} for faces in sets]
    assert all(len(faces) == 2000 for faces in sets)
    duplicates_in_the_file = sum(map(len, seen)) - len(set.union(*seen))
    assert duplicates_in_the_file <= 5  # the same photograph twice, far apart in the file


@pytest.mark.usefixtures("data")
def test_more_faces_than_there_are_is_an_error(rng):
    with pytest.raises(ValueError, match="there are 16520"):
        face_sets(5, 10_000, rng)


@pytest.mark.usefixtures("data")
def test_non_face_sets_are_full(rng, monkeypatch):
    from experiments import face_samples

    few = datasets.negative_images()[:12]
    monkeypatch.setattr(face_samples, "negative_images", lambda: few)
    assert [len(windows) for windows in non_face_sets(3, 50, rng)] == [50, 50, 50]


def test_arrival_takes_faces_and_non_faces_in_turns_and_mirror_images_together(rng):
    order = node.arrival(100, rng)
    assert sorted(order) == list(range(200))
    assert (order[::2] < 100).all()
    assert (order[1::2] >= 100).all()
    faces = order[::2]
    np.testing.assert_array_equal(faces[::2] // 2, faces[1::2] // 2)


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_online_stages_learn_and_batch_stays_ahead(monkeypatch, tmp_path):
    monkeypatch.setattr(node, "N_FEATURES", 1000)
    report = reproduce("node", tmp_path).report
    start = report.one("error", "online from 250", n_weak=100, samples=250)
    end = report.one("error", "online from 250", n_weak=100, samples=2000)
    batch = report.one("error", "batch", n_weak=100, samples=2000)
    assert end.runs == 3
    assert end.mean < start.mean
    assert abs(end.mean - batch.mean) < 0.03


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_stream_is_absorbed_exactly(monkeypatch, tmp_path):
    monkeypatch.setattr(node_time, "N_FEATURES", 2000)
    monkeypatch.setattr(node_time, "N_HALF", {"small": (100, 200)})
    monkeypatch.setattr(node_time, "N_STREAM", {"small": 3000})
    monkeypatch.setattr(node_time, "CHUNK", 1100)
    monkeypatch.setattr(node_time, "N_WEAK", (5, 20))
    few = datasets.negative_images()[:30]
    monkeypatch.setattr(node_time, "negative_images", lambda: few)
    report = reproduce("node-time", tmp_path).report
    assert report.one(node_time.EXACT, "online").mean == 1.0
    assert {row.setting["n_weak"] for row in report.select(node_time.SECONDS, node_time.STREAM)} == {5, 20}
