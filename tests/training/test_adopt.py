"""An adopted cascade: OpenCV's weak learners with statistics, taught, saved and exported again."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load as parse
from safetensors.numpy import save as serialise
from tests.cascades import textured
from tests.samples import brighter_on_the_right

from whet.cascade.cascade import Cascade, LearningStage
from whet.detector.model_file import from_bytes, to_bytes
from whet.detector.records import default_weight, learn, unlearn
from whet.detector.summary import Summary
from whet.errors import ModelFileError, TrainingDataError
from whet.features.haar import HaarPool
from whet.features.rectangles import RectanglePool
from whet.opencv import CascadeClassifier, write_opencv
from whet.opencv.cascade import stages_of
from whet.opencv.xml import read_opencv
from whet.tracking.self_training import memory_of
from whet.training.adopt import SHARE, adopt, joined, yielding
from whet.training.mining import Miner
from whet.training.stage import train_stage

WINDOW = (8, 8)


def relearned(*case, **options):
    return adopt(*case, keep_votes=False, **options)


def objects(n, seed):
    return brighter_on_the_right(n, WINDOW, seed)


@pytest.fixture
def case(tmp_path):
    """A cascade file of two stages, and images without the object."""
    rng = np.random.default_rng(1)
    patches = np.concatenate([objects(200, 0), rng.integers(0, 230, (200, *WINDOW), dtype=np.uint8)])
    labels = np.arange(400) < 200
    stages = [train_stage(HaarPool.from_window(WINDOW), patches, labels, n) for n in (2, 5)]
    write_opencv(Cascade(WINDOW, tuple(node.stage() for node in stages)), tmp_path / "object.xml")
    images = []
    for seed in range(6):
        images.append(tmp_path / f"{seed}.png")
        Image.fromarray(textured((60, 70), np.random.default_rng(seed))).save(images[-1])
    return tmp_path / "object.xml", images


def test_stages_are_counted_and_keep_the_weak_learners(case):
    path, images = case
    heard = []
    detector = relearned(path, objects(300, 5), images, n_negatives=60, tell=lambda *what: heard.append(what))
    source, stages = read_opencv(path), detector.base.stages
    assert [len(stage) for stage in stages] == [source.stages[i].stop - source.stages[i].start for i in range(2)]
    assert all(isinstance(stage, LearningStage) and isinstance(stage.features, RectanglePool) for stage in stages)
    assert [number for number, _, _ in heard] == [0, 1]
    assert stages[0].positive.n == 300
    assert stages[0].negative.n == heard[0][2] == 60
    assert detector.cascade.stages[0].accepts(objects(300, 5)).mean() > 0.9
    same = relearned(path, objects(300, 5), images, n_negatives=60, threads=1)
    assert same.to_bytes() == detector.to_bytes()


def test_a_threshold_lets_through_what_opencvs_does_or_keeps_a_detection_rate(case):
    path, images = case
    theirs = stages_of(read_opencv(path))[0]
    everything = Cascade(WINDOW, (replace(theirs, coef=np.zeros(len(theirs)), threshold=-1.0),))
    negatives = Miner(images, WINDOW, max_per_image=100).mine(everything, 60, 0).patches
    ours = relearned(path, objects(300, 5), images, n_negatives=60).cascade.stages[0]
    # Of two learners' few sums several windows share each, so that at least as many pass, and the next sum is above.
    kept, let_through = ours.accepts(negatives), theirs.accepts(negatives).mean()
    assert 0 < let_through <= kept.mean() < 1
    assert (ours.score(negatives[kept]) > ours.score(negatives[kept]).min()).mean() < let_through
    rated = relearned(path, objects(300, 5), images, n_negatives=60, detection_rate=0.9)
    assert rated.base.stages[0].positive.n == 240  # 8 of 10 runs
    fresh = rated.cascade.stages[0].accepts(objects(2000, 11)).mean()
    assert fresh > 0.85


def test_merged_copies_are_the_detector_that_saw_both_streams(case):
    path, images = case
    first = relearned(path, objects(300, 5), images, n_negatives=60)
    second, both, adopted = first.copy(), first.copy(), first.to_bytes()
    lessons = [
        (textured((60, 70), np.random.default_rng(seed)), [[10, 10, 22, 22], [30, 30, 44, 44]]) for seed in (2, 3)
    ]
    entries = [
        one.learn(*lesson, [False, True], weight=4) for one, lesson in zip((first, second), lessons, strict=True)
    ]
    for lesson in reversed(lessons):
        both.learn(*lesson, [False, True], weight=4)
    first.merge(second)
    assert first.to_bytes() == both.to_bytes() != adopted
    first.unlearn(entries[1])
    first.unlearn(entries[0])
    assert first.to_bytes() == adopted


def noisy_objects():
    """Of a hundred, twenty are something else: no stage gives all of them one score."""
    return np.concatenate([objects(80, 5), np.random.default_rng(6).integers(0, 230, (20, *WINDOW), dtype=np.uint8)])


@pytest.fixture
def half(case):
    """A detector whose first stage was counted, and whose second keeps OpenCV's votes."""
    path, images = case
    small = images[0].with_name("small.png")
    Image.fromarray(textured((10, 11), np.random.default_rng(1))).save(small)
    return relearned(path, noisy_objects(), [small], n_negatives=20, detection_rate=0.8)


def test_without_negatives_all_stages_keep_opencvs_votes(case):
    path, images = case
    flat = images[0].with_name("flat.png")
    Image.fromarray(np.full((40, 40), 90, np.uint8)).save(flat)
    voting = relearned(path, noisy_objects(), [flat], n_negatives=60)
    for ours, theirs in zip(voting.cascade.stages, stages_of(read_opencv(path)), strict=True):
        np.testing.assert_array_equal(ours.coef, theirs.coef)
        assert ours.threshold == theirs.threshold
    assert [stage.votes.until for stage in voting.base.stages] == [10, 25]
    assert default_weight(voting.base, False) == 1
    assert [stage.keeps_votes for stage in Summary.from_detector(voting.taught).stages] == [True, True]
    assert memory_of(voting.taught).kept == 1.0  # it was trained on too little to remember


def test_a_stage_that_few_negatives_reach_keeps_opencvs_votes_and_the_other_learns(case, half):
    theirs = stages_of(read_opencv(case[0]))
    assert [stage.votes is None for stage in half.base.stages] == [True, False]
    before = half.to_bytes()
    image = textured((60, 70), np.random.default_rng(2))
    entries = half.learn(image, [[10, 10, 20, 20], [30, 30, 44, 44]], [False, True], weight=5)
    assert entries
    assert half.delta.counts[0] != (0, 0)
    np.testing.assert_array_equal(half.cascade.stages[1].coef, theirs[1].coef)
    assert to_bytes(from_bytes(half.to_bytes())) == half.to_bytes()
    half.unlearn(entries)
    assert half.to_bytes() == before
    taught = half.taught.copy()
    learn(taught, objects(10, 9), np.zeros(10), weights=3)
    assert taught.cascade().stages[0].threshold != half.cascade.stages[0].threshold
    unlearn(taught, objects(10, 9), np.zeros(10), weights=3)
    assert to_bytes(taught) == before


def test_votes_go_when_enough_negatives_have_come_and_return_with_them(half):
    """Wherever they came from: what was learned since, or merged, and in any order."""
    base = half.base.stages[1]
    missing = base.votes.until - base.negative.n
    assert missing > 1
    assert base.votes.until == 5 * len(base) * default_weight(half.base, False)
    reaching = objects(3000, 12)  # what looks like the object reaches the second stage
    reaching = reaching[half.base.cascade.stages[0].accepts(reaching)]
    few, rest = half.taught.copy(), half.taught.copy()
    learn(few, reaching[: missing - 1], np.zeros(missing - 1), weights=1)
    assert few.learned.counts[1] == (0, missing - 1)
    np.testing.assert_array_equal(few.cascade().stages[1].coef, base.votes.coef)
    learn(rest, reaching[missing - 1 : missing], np.zeros(1), weights=1)
    few.merge(rest)
    stage = few.cascade().stages[1]
    assert (stage.coef != base.votes.coef).all()
    assert [stage.keeps_votes for stage in Summary.from_detector(few).stages] == [False, False]
    counted = replace(base, negative=base.negative + few.learned.stages[1][1], votes=None).stage()
    np.testing.assert_array_equal(stage.coef, counted.coef)  # as if these negatives had been there from the first
    assert stage.threshold == counted.threshold
    assert to_bytes(from_bytes(to_bytes(few))) == to_bytes(few)
    unlearn(few, reaching[:1], np.zeros(1), weights=1)
    np.testing.assert_array_equal(few.cascade().stages[1].coef, base.votes.coef)
    unlearn(few, reaching[1:missing], np.zeros(missing - 1), weights=1)
    assert to_bytes(few) == half.to_bytes()


def test_votes_that_a_stage_cannot_keep(half):
    base = half.base.stages[1]
    for votes in (
        replace(base.votes, until=base.negative.n),
        replace(base.votes, coef=base.votes.coef[1:].copy()),
    ):
        with pytest.raises(ValueError, match=r"fewer negatives|as many of each"):
            replace(base, votes=votes)
    with pytest.raises(ValueError, match="finite"):
        replace(base.votes, threshold=np.inf)


# On the headers of both stages, and on the array of the votes.
VOTE_HEADERS = {
    "no votes": lambda _, second: second.pop("votes"),
    "votes of a stage that has none": lambda first, second: first.update(votes=second["votes"]),
    "votes of another type": lambda _, second: second.update(votes=[1, 2]),
    "NaN threshold": lambda _, second: second["votes"].update(threshold=float("nan")),
    "nothing to wait for": lambda _, second: second["votes"].update(until=0),
    "until of many digits": lambda _, second: second["votes"].update(until=2**60),
    "another key": lambda _, second: second["votes"].update(more=1),
}
VOTE_ARRAYS = {
    "NaN vote": lambda votes: votes * np.nan,
    "other votes": lambda votes: votes + 1,
    "fewer votes": lambda votes: votes[1:],
    "votes in float32": lambda votes: votes.astype(np.float32),
}


def opened(detector):
    data = detector.to_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["whet"]), parse(data)


def closed(header, tensors):
    return from_bytes(serialise(tensors, {"whet": json.dumps(header)}))


@pytest.mark.parametrize("attack", VOTE_HEADERS.values(), ids=VOTE_HEADERS)
def test_an_attack_by_the_header_of_votes(attack, half):
    header, tensors = opened(half)
    assert to_bytes(closed(header, tensors)) == half.to_bytes()
    attack(*header["stages"])
    with pytest.raises(ModelFileError):
        closed(header, tensors)


@pytest.mark.parametrize("attack", VOTE_ARRAYS.values(), ids=VOTE_ARRAYS)
def test_an_attack_by_votes(attack, half):
    header, tensors = opened(half)
    tensors["stage001.votes"] = attack(tensors["stage001.votes"])
    with pytest.raises(ModelFileError):
        closed(header, tensors)


def test_an_adopted_cascade_is_an_opencv_file_again(case, tmp_path):
    cv2 = pytest.importorskip("cv2")
    path, images = case
    detector = relearned(path, objects(300, 5), images, n_negatives=60)
    assert detector.export_opencv(tmp_path / "again.xml").differences == ()
    ours, theirs = CascadeClassifier(tmp_path / "again.xml"), cv2.CascadeClassifier(str(tmp_path / "again.xml"))
    image = textured((60, 70), np.random.default_rng(0))
    found = [sorted(map(tuple, np.array(c.detectMultiScale(image, 1.1, 0)).tolist())) for c in (ours, theirs)]
    assert found[0]
    assert found[0] == found[1]
    patches = np.concatenate([objects(50, 7), 255 - objects(50, 7)])
    accepted = [len(theirs.detectMultiScale(patch, 1.1, 0)) == 1 for patch in patches]
    np.testing.assert_array_equal(detector.cascade.accepts(patches), accepted)


def test_positives_of_another_size_are_refused(case):
    path, images = case
    with pytest.raises(TrainingDataError, match="window"):
        relearned(path, np.zeros((10, 9, 9), np.uint8), images)
    with pytest.raises(TrainingDataError, match="at least 2"):
        relearned(path, objects(1, 0), images)
    with pytest.raises(TrainingDataError, match="too few"):
        relearned(path, objects(2, 0), images, detection_rate=0.9, held_out=0.1)


def test_votes_are_kept_and_one_more_stage_of_the_same_learners_learns(case):
    path, images = case
    detector = adopt(path, objects(300, 5), images, n_weak=6, n_negatives=60)
    theirs = stages_of(read_opencv(path))
    *kept, added = detector.base.stages
    for old, new in zip(theirs, kept, strict=True):
        assert np.array_equal(SHARE * old.coef, new.coef)
        assert SHARE * old.threshold >= new.threshold
    assert isinstance(added, LearningStage)
    assert len(added) <= 6
    features, weak = joined(theirs, WINDOW)
    own = {row.tobytes() for row in features.boxes}
    assert all(row.tobytes() in own for row in added.features.boxes)
    assert set(added.weak.threshold.tolist()) <= set(weak.threshold.tolist())
    assert added.stage().accepts(objects(2000, 11)).mean() > 0.92
    again = adopt(path, objects(300, 5), images, n_weak=6, n_negatives=60, threads=1)
    assert again.to_bytes() == detector.to_bytes()
    before = detector.to_bytes()
    image = textured((60, 70), np.random.default_rng(2))
    entries = detector.learn(image, [[30, 30, 44, 44]], [True], weight=5)
    assert detector.delta.counts == ((0, 0), (0, 0), (5, 0))
    assert detector.export_opencv(images[0].with_name("taught.xml")).stages == 3
    detector.unlearn(entries)
    assert detector.to_bytes() == before


def test_stages_are_lowered_until_they_keep_a_share_of_the_positives(case):
    path, _ = case
    theirs = stages_of(read_opencv(path))
    faint = objects(2500, 5)
    faint[:, :, 4:] -= 40  # most are rejected as it is, in two blocks
    negatives = np.random.default_rng(3).integers(0, 230, (1000, *WINDOW), dtype=np.uint8)
    before = [stage.accepts(faint).mean() for stage in theirs]
    assert max(before) < 0.9
    for rate in (0.9, 1.0):
        for old, new in zip(theirs, yielding(theirs, faint, rate), strict=True):
            margins = new.score(faint)
            kept = margins > 0
            assert (margins > margins[kept].min()).mean() < rate <= kept.mean()  # the next sum would be too high
            assert (new.accepts(negatives) >= old.accepts(negatives)).all()
    for rate in (0.0, 0.1):  # nothing is raised, and no decision changes
        for old, new in zip(theirs, yielding(theirs, faint, rate), strict=True):
            assert np.array_equal(old.accepts(negatives), new.accepts(negatives))
            assert np.array_equal(SHARE * old.score(negatives), new.score(negatives))
    with pytest.raises(ValueError, match="stage_rate"):
        yielding(theirs, faint, 98)


def test_images_without_a_hard_window_are_named(case):
    path, images = case
    flat = images[0].with_name("flat.png")
    Image.fromarray(np.full((40, 40), 90, np.uint8)).save(flat)
    with pytest.raises(TrainingDataError, match="add images"):
        adopt(path, objects(100, 5), [flat])
