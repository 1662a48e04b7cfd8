"""OpenCV's trees and tilted features, adopted on drawn data: corrected, saved, exported, and run by OpenCV."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cascades import textured, windows_of
from tests.detectors import from_bytes
from tests.opencv_files import shortened

from whet.cascade.cascade import Cascade, LearningStage
from whet.detector.detector import load
from whet.features.integral import IntegralStack
from whet.features.weak_learners import LeafPool, conditions_of
from whet.opencv import CascadeClassifier
from whet.opencv.cascade import stages_of
from whet.opencv.xml import read_opencv
from whet.training.adopt import SHARE, adopt_patches

cv2 = pytest.importorskip("cv2")

HAAR = Path(cv2.data.haarcascades)


def objects(path, seed, n=120):
    """Windows that OpenCV's stages take for the object, and that are brighter below: what is to be found."""
    source = read_opencv(path)
    cascade = Cascade(source.window, stages_of(source))
    patches = windows_of(textured((260, 300), np.random.default_rng(seed)), source.window, 3)[0]
    patches = patches[cascade.accepts(patches)]
    gain = patches[:, source.window[0] // 2 :].mean(axis=(1, 2)) - patches.mean(axis=(1, 2))
    return patches[np.argsort(-gain, kind="stable")[:n]]


@pytest.fixture(params=["frontalface_alt2", "eye_tree_eyeglasses", "lefteye_2splits", "fullbody"])
def case(request, tmp_path):
    """The first stages of a cascade of trees, of tilted ones or of both, and images without the object."""
    path = tmp_path / "short.xml"
    path.write_text(shortened((HAAR / f"haarcascade_{request.param}.xml").read_text(), 4))
    images = [tmp_path / f"{seed}.png" for seed in range(6)]
    for seed, image in enumerate(images):
        Image.fromarray(textured((90, 110), np.random.default_rng(seed))).save(image)
    return path, images


def adopted(case, **options):
    path, images = case
    return adopt_patches(path, objects(path, 50), images, n_weak=20, n_negatives=250, threads=1, **options)


def rows(features, weak):
    """Every condition as bytes."""
    pool, tests, _ = conditions_of(features, weak)
    return {b"".join((pool.boxes[t].tobytes(), tests.threshold[t].tobytes())) for t in range(len(tests))}


def test_the_stage_that_is_added_is_of_all_leaves(case):
    detector = adopted(case)
    theirs = stages_of(read_opencv(case[0]))
    *kept, added = detector.base.stages
    assert [stage.threshold for stage in kept] == [SHARE * stage.threshold for stage in theirs]  # all are kept
    assert isinstance(added, LearningStage)
    assert isinstance(added.features, LeafPool)
    assert rows(added.features, added.weak) <= set.union(*(rows(stage.features, stage.weak) for stage in theirs))
    shown, others = objects(case[0], 50), windows_of(textured((90, 110), np.random.default_rng(2)), detector.window)[0]
    assert added.run().accepts(shown).mean() > 0.9
    assert (added.run().score(shown)[:, None] > added.run().score(others)).mean() > 0.8


@pytest.mark.slow
def test_it_learns_and_is_saved_and_run_by_opencv(case, tmp_path):
    detector = adopted(case)
    stages = detector.base.stages
    assert sum(stage.learns for stage in stages) == 1
    before = detector.to_bytes()
    assert from_bytes(before).to_bytes() == before == adopted(case).to_bytes()
    (height, width), image = detector.window, textured((100, 120), np.random.default_rng(21))
    corrected = detector.copy()
    records = corrected.learn(image, [[10, 10, 10 + 2 * width, 10 + 2 * height]], [True], weight=5)
    assert corrected.learned == (5, 0)
    assert corrected.to_bytes() != before
    corrected.save(tmp_path / "corrected.whet")
    assert load(tmp_path / "corrected.whet").to_bytes() == corrected.to_bytes()
    assert corrected.export_opencv(tmp_path / "out.xml").differences == ()
    ours, theirs = CascadeClassifier(tmp_path / "out.xml"), cv2.CascadeClassifier(str(tmp_path / "out.xml"))
    found = [sorted(map(tuple, np.array(c.detectMultiScale(image, 1.1, 0)).tolist())) for c in (ours, theirs)]
    assert found[0] == found[1]
    patches = np.concatenate([objects(case[0], 60), windows_of(image, detector.window, 4)[0]])
    accepted = [len(theirs.detectMultiScale(np.ascontiguousarray(patch), 1.1, 0)) == 1 for patch in patches]
    np.testing.assert_array_equal(corrected.cascade.accepts(patches), accepted)
    assert 0 < sum(accepted) < len(accepted)
    corrected.unlearn(records)
    assert corrected.to_bytes() == before


def test_leaves_learn_what_their_responses_say(case):
    """The counts of a stage are those of its responses, leaf by leaf."""
    detector = adopted(case)
    stage = next(stage for stage in detector.base.stages if isinstance(stage, LearningStage))
    positives = objects(case[0], 50)
    answers = stage.run().respond(IntegralStack.from_patches(positives))
    counted, _ = stage.count(positives, np.ones(len(positives), np.bool_))
    np.testing.assert_array_equal(counted.s, answers.sum(axis=1))
    np.testing.assert_array_equal(counted.C, answers.astype(int) @ answers.T.astype(int))


def test_few_images_give_a_smaller_stage_whatever_the_number_of_stages(tmp_path):
    """Where windows that pass most stages are too few, those of fewer stages are taken, down to the first."""
    path, image = HAAR / "haarcascade_eye.xml", tmp_path / "one.png"
    Image.fromarray(textured((60, 70), np.random.default_rng(1))).save(image)
    faces = windows_of(textured((90, 110), np.random.default_rng(2)), (20, 20), 7)[0][:60]
    added = adopt_patches(path, faces, [image], threads=1).base.stages[-1]
    assert 5 <= len(added) < 1000
