"""An adopted cascade: OpenCV's weak learners with statistics, corrected, saved and exported again."""

import numpy as np
import pytest
from PIL import Image
from tests.cascades import textured
from tests.samples import brighter_on_the_right

from whet.cascade.cascade import Cascade, LearningStage
from whet.errors import TrainingDataError
from whet.features.haar import HaarPool
from whet.opencv import CascadeClassifier, write_opencv
from whet.opencv.cascade import stages_of
from whet.opencv.xml import read_opencv
from whet.training.adopt import SHARE, adopt_patches, join_weak_learners, lower_thresholds
from whet.training.stage import train_stage

WINDOW = (8, 8)


def objects(n, seed):
    return brighter_on_the_right(n, WINDOW, seed)


@pytest.fixture
def case(tmp_path):
    """A cascade file of two stages, and images without the object."""
    rng = np.random.default_rng(1)
    patches = np.concatenate([objects(200, 0), rng.integers(0, 230, (200, *WINDOW), dtype=np.uint8)])
    labels = np.arange(400) < 200
    stages = [train_stage(HaarPool.from_window(WINDOW), patches, labels, n) for n in (2, 5)]
    write_opencv(Cascade(WINDOW, tuple(node.run() for node in stages)), tmp_path / "object.xml")
    images = []
    for seed in range(6):
        images.append(tmp_path / f"{seed}.png")
        Image.fromarray(textured((60, 70), np.random.default_rng(seed))).save(images[-1])
    return tmp_path / "object.xml", images


def test_merged_copies_are_the_detector_that_saw_both_streams(case):
    path, images = case
    first = adopt_patches(path, objects(300, 5), images, n_negatives=60)
    second, both, adopted = first.copy(), first.copy(), first.to_bytes()
    streams = [
        (textured((60, 70), np.random.default_rng(seed)), [[10, 10, 22, 22], [30, 30, 44, 44]]) for seed in (2, 3)
    ]
    records = [
        one.learn(*stream, [False, True], weight=4) for one, stream in zip((first, second), streams, strict=True)
    ]
    for stream in reversed(streams):
        both.learn(*stream, [False, True], weight=4)
    first.merge(second)
    assert first.to_bytes() == both.to_bytes() != adopted
    first.unlearn(records[1])
    first.unlearn(records[0])
    assert first.to_bytes() == adopted


def test_an_adopted_cascade_is_an_opencv_file_again(case, tmp_path):
    cv2 = pytest.importorskip("cv2")
    path, images = case
    detector = adopt_patches(path, objects(300, 5), images, n_negatives=60)
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
        adopt_patches(path, np.zeros((10, 9, 9), np.uint8), images)
    with pytest.raises(TrainingDataError, match="at least 2"):
        adopt_patches(path, objects(1, 0), images)
    with pytest.raises(TrainingDataError, match="photographs"):
        adopt_patches(path, objects(2, 0), images, detection_rate=0.9, held_out=0.1)


def test_votes_are_kept_and_one_more_stage_of_the_same_learners_learns(case):
    path, images = case
    detector = adopt_patches(path, objects(300, 5), images, n_weak=6, n_negatives=60)
    theirs = stages_of(read_opencv(path))
    *kept, added = detector.base.stages
    for old, new in zip(theirs, kept, strict=True):
        assert np.array_equal(SHARE * old.coef, new.coef)
        assert SHARE * old.threshold >= new.threshold
    assert isinstance(added, LearningStage)
    assert len(added) <= 6
    features, weak = join_weak_learners(theirs, WINDOW)
    own = {row.tobytes() for row in features.boxes}
    assert all(row.tobytes() in own for row in added.features.boxes)
    assert set(added.weak.threshold.tolist()) <= set(weak.threshold.tolist())
    assert added.run().accepts(objects(2000, 11)).mean() > 0.92
    again = adopt_patches(path, objects(300, 5), images, n_weak=6, n_negatives=60, threads=1)
    assert again.to_bytes() == detector.to_bytes()
    before = detector.to_bytes()
    image = textured((60, 70), np.random.default_rng(2))
    records = detector.learn(image, [[30, 30, 44, 44]], [True], weight=5)
    assert detector.delta.counts == ((0, 0), (0, 0), (5, 0))
    assert detector.export_opencv(images[0].with_name("corrected.xml")).stages == 3
    detector.unlearn(records)
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
        for old, new in zip(theirs, lower_thresholds(theirs, faint, rate), strict=True):
            margins = new.score(faint)
            kept = margins > 0
            assert (margins > margins[kept].min()).mean() < rate <= kept.mean()  # the next sum would be too high
            assert (new.accepts(negatives) >= old.accepts(negatives)).all()
    for rate in (0.0, 0.1):  # nothing is raised, and no decision changes
        for old, new in zip(theirs, lower_thresholds(theirs, faint, rate), strict=True):
            assert np.array_equal(old.accepts(negatives), new.accepts(negatives))
            assert np.array_equal(SHARE * old.score(negatives), new.score(negatives))
    with pytest.raises(ValueError, match="stage_rate"):
        lower_thresholds(theirs, faint, 98)


def test_images_without_a_hard_window_are_named(case):
    path, images = case
    flat = images[0].with_name("flat.png")
    Image.fromarray(np.full((40, 40), 90, np.uint8)).save(flat)
    with pytest.raises(TrainingDataError, match="add images"):
        adopt_patches(path, objects(100, 5), [flat])
