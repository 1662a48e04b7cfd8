import numpy as np
import pytest
from experiments import cascade, cascade_training, datasets, opencv_peers
from experiments.cascade_training import (
    CascadeSettings,
    FalsePositives,
    cascade_of,
    count_faces,
    count_false_positives,
    train,
)
from experiments.mit_cmu import FACE_OFFSET, Trial
from experiments.report import reproduce
from PIL import Image

from whet.detector.state import count_patches
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import Asymmetric, Rate
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack


@pytest.fixture
def data():
    for name in ("faces_opencv24", "negatives", "mit_cmu"):
        if datasets.find(name) is None:
            pytest.skip(f"{name} is not on this machine: set WHET_DATA")


def crosses(n, rng):
    patches = rng.integers(0, 150, (n, 24, 24))
    patches[:, 9:15] += 14
    patches[:, :, 9:15] += 14
    return patches.clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Crosses, images of noise, and a cascade of three stages that separates them."""
    rng = np.random.default_rng(4)
    folder = tmp_path_factory.mktemp("noise")
    for i in range(12):
        coarse = np.kron(rng.integers(0, 256, (16, 20)), np.ones((4, 4))) * 0.7 + rng.integers(0, 70, (64, 80))
        Image.fromarray(coarse.astype(np.uint8)).save(folder / f"{i}.png")
    images = sorted(folder.glob("*.png"))
    faces = crosses(200, rng)
    pool = HaarPool.from_window((24, 24)).sample(30, rng)
    settings = CascadeSettings(n_stages=3, n_weak=10, n_negatives=300)
    return images, faces, pool, train(pool, faces, images, settings)


def test_the_box_offset_keeps_the_eyes_at_their_place():
    window = np.array([[10.0, 20.0, 34.0, 44.0]])
    ((x1, y1, x2, y2),) = FACE_OFFSET.boxes(window)
    assert (x1 + x2) / 2 == 22.0
    assert x2 - x1 == pytest.approx(24 / 0.90)
    assert y2 - y1 == pytest.approx(24 / 0.81)
    assert y1 + 0.375 * (y2 - y1) == pytest.approx(20 + 0.39 * 24)


def test_a_trial_compares_windows_with_offset_to_whole_faces():
    window = np.array([[100.0, 100.0, 124.0, 124.0]])
    trial = Trial((np.zeros((9, 9), dtype=np.uint8),), (FACE_OFFSET.boxes(window),))
    found = [(window, np.array([1.0]))]
    overlaps = [trial.evaluate(found, how).curve.found[-1] for how in ("offset", "raw")]
    assert overlaps == [1, 1]
    shifted = [(window - 4.5, np.array([1.0]))]
    assert [trial.evaluate(shifted, how).curve.found[-1] for how in ("offset", "raw")] == [1, 0]


def test_stages_have_the_papers_threshold_and_reach_its_goal(drawn):
    images, faces, _, base = drawn
    assert all(isinstance(stage.rule, Asymmetric) for stage in base.model.stages)
    first = base.model.cascade.stages[0]
    assert first.accepts(faces).mean() >= 0.99
    negatives = cascade_training.windows_of_images(images, 300, (24, 24), np.random.default_rng(0))
    assert first.accepts(negatives).mean() <= 0.5


def test_a_following_threshold_keeps_the_training_faces(drawn):
    images, faces, pool, _ = drawn
    base = train(pool, faces, images, CascadeSettings(n_stages=2, n_weak=10, n_negatives=300, follows=True))
    assert all(isinstance(stage.rule, Rate) for stage in base.model.stages)
    assert base.model.cascade.stages[0].accepts(faces).mean() >= 0.99


def test_a_cascade_ends_when_the_images_run_out_of_negatives(drawn):
    images, faces, pool, _ = drawn
    settings = CascadeSettings(n_stages=30, n_weak=40, n_negatives=400)
    base = train(pool, faces, images[:2], settings)
    assert 1 <= len(base.model.stages) < 30


@pytest.mark.parametrize("keep_below", [0.0, 2.0])
def test_false_positives_are_accepted_by_all_stages_so_far(drawn, monkeypatch, keep_below):
    images, *_, base = drawn
    monkeypatch.setattr(cascade_training, "KEEP_BELOW", keep_below)
    source = FalsePositives(images, seed=0)
    for n in (1, 2, 3):
        part = cascade_of(base.model.stages[:n])
        windows = source.accepted_by(part, 50)
        assert 0 < len(windows) <= 50
        assert part.accepts(windows).all()


def test_every_stage_learns_windows_that_reach_it(drawn, monkeypatch):
    images, *_, base = drawn
    monkeypatch.setattr(cascade_training, "BLOCK", 40)
    given = []
    monkeypatch.setattr(cascade_training, "count_patches", lambda *a, **k: given.append(a[1]) or count_patches(*a, **k))
    delta = count_false_positives(base, images, 300, seed=1)
    assert [negatives for _, negatives in delta.counts][:2] == [100, 100]
    assert max(map(len, given)) <= 40
    second = np.concatenate(given[3:6])
    assert base.model.cascade.stages[0].accepts(second).all()
    expected = BinaryStatistics.from_samples(
        base.model.cascade.stages[1].respond(IntegralStack.from_patches(second)).view(np.uint8).T
    )
    np.testing.assert_array_equal(delta.stages[1][1].C, expected.C)
    assert all(positives == 0 for positives, _ in delta.counts)


@pytest.mark.slow
def test_if_windows_run_out_all_later_stages_learn_the_rest(drawn):
    images, *_, base = drawn
    first, second, third = (n for _, n in count_false_positives(base, images, 300_000, seed=1).counts)
    assert first == 100_000
    assert 100_000 > second > third > 0


def test_all_stages_learn_new_faces_once(drawn, rng):
    *_, base = drawn
    assert count_faces(base, crosses(7, rng)).counts == ((7, 0),) * 3


@pytest.mark.usefixtures("data")
def test_no_face_and_no_image_is_in_two_parts():
    material = cascade.Material.drawn(cascade.SCALES["paper"], np.random.default_rng(0))
    assert [len(material.initial), len(material.new), len(material.held_out)] == [10_000, 5000, 1000]
    parts = [{face.tobytes() for face in part} for part in (material.initial, material.new, material.held_out)]
    duplicates_in_the_file = sum(map(len, parts)) - len(set.union(*parts))
    assert duplicates_in_the_file <= 20
    images = [set(part) for part in (material.images, material.new_images, material.checked_images)]
    assert len(set.union(*images)) == sum(map(len, images))


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_peer_gives_what_opencv_gives():
    pytest.importorskip("cv2")
    peer = opencv_peers.classifier("frontalface_alt2")
    images = Trial.from_mit_cmu().images
    for image in sorted(images, key=lambda image: image.size)[20:30]:
        grouped = opencv_peers.groupings(peer, image, 1.2)
        for neighbours in (1, 3):
            boxes, _, weights = peer.detectMultiScale3(image, 1.2, neighbours, outputRejectLevels=True)
            theirs = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
            theirs[:, 2:] += theirs[:, :2]
            ours = grouped[neighbours]
            expected = sorted([*box, round(w, 6)] for box, w in zip(theirs.tolist(), np.ravel(weights), strict=True))
            got = sorted([*box, round(w, 6)] for box, w in zip(ours.boxes.tolist(), ours.weights, strict=True))
            assert got == expected


def test_without_opencv_the_remark_says_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(opencv_peers, "import_module", missing)
    with pytest.raises(opencv_peers.NoPeersError, match="pip install opencv-contrib-python-headless<5"):
        opencv_peers.cascade_file("frontalface_alt")


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_the_whole_experiment_in_miniature(monkeypatch, tmp_path):
    tiny = cascade.Scale((200,), (300,), 200, 1000, 300, 300, 3, 24)
    monkeypatch.setitem(cascade.SCALES, "small", tiny)
    trial = Trial.from_mit_cmu()
    few = sorted(range(130), key=lambda i: trial.images[i].size)[:3]
    small = Trial(tuple(trial.images[i] for i in few), tuple(trial.truths[i] for i in few))
    monkeypatch.setattr(Trial, "from_mit_cmu", classmethod(lambda _: small))
    monkeypatch.setattr(opencv_peers, "FACTORS", (1.2,))
    monkeypatch.setattr(cascade, "CHECKED", 3)
    report = reproduce("cascade", tmp_path).report
    for method in cascade.METHODS:
        setting = {"initial": 200, "variant": cascade.AS_PAPER}
        assert 0 <= report.one("faces", method, **setting, false_positives=300).mean <= small.n_truths
        equal = report.one("equal false positives", method, **setting).mean
        assert equal <= report.one("false positives in held-out images", method, **setting).mean
        accepted = report.one("held-out faces accepted", method, **setting).mean
        assert report.one("held-out faces accepted at equal false positives", method, **setting).mean <= accepted
    assert not report.select("faces", "+ both", initial=300)
    assert 0 < report.one("negatives learned", "+ both", initial=200, variant=cascade.MANY).mean <= 1000
    assert report.figures == ["cascade-roc.png"]
