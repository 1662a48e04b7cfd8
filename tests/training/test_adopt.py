"""An adopted cascade finds what OpenCV's finds, until it is corrected, saved and exported again."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.patches import adopt_patches
from PIL import Image
from tests.cascades import textured
from tests.samples import brighter_on_the_right

from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import CannotExportError, CannotLearnError, ModelFileError, TrainingDataError
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage
from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool
from whet.opencv import CascadeClassifier, write_opencv
from whet.opencv.tree_cascade import stages_of
from whet.opencv.xml_reader import read_opencv
from whet.training import adopt as module
from whet.training.adopt import FewNegativesWarning, adopt_from, count_stages
from whet.training.gslda import grey_backgrounds
from whet.training.loop import FewPositivesWarning

WINDOW = (8, 8)


def objects(n, seed):
    return brighter_on_the_right(n, WINDOW, seed)


def image(seed, shape=(60, 70)):
    return textured(shape, np.random.default_rng(seed))


@pytest.fixture(scope="module", params=[HaarPool, BlockPatternPool], ids=["haar", "lbp"])
def case(request, tmp_path_factory):
    """A cascade file of two stages, of Haar features or of LBP, and images without the object."""
    folder = tmp_path_factory.mktemp("case")
    rng = np.random.default_rng(1)
    patches = np.concatenate([objects(200, 0), rng.integers(0, 230, (200, *WINDOW), dtype=np.uint8)])
    labels = np.arange(400) < 200
    stages = [train_stage(request.param.from_window(WINDOW), patches, labels, n) for n in (8, 25)]
    write_opencv(Cascade(WINDOW, tuple(node.run() for node in stages)), folder / "object.xml")
    images = []
    for seed in range(6):
        images.append(folder / f"{seed}.png")
        Image.fromarray(image(seed)).save(images[-1])
    return folder / "object.xml", images


@pytest.fixture(scope="module")
def adopted_once(case):
    path, images = case
    return adopt_patches(path, objects(300, 5), images, n_negatives=60)


@pytest.fixture
def adopted(adopted_once):
    return adopted_once.copy()


def false_positives(detector, seed):
    """An image, and the boxes of its two weakest detections: the best resemble objects in all 33 responses."""
    shown = image(seed)
    boxes = detector.detect(shown).boxes[-2:]
    assert len(boxes) == 2
    return shown, boxes


def test_adopting_changes_nothing_that_is_found(case, adopted):
    path, _ = case
    original = load(path)
    for before, after in zip(stages_of(read_opencv(path)), adopted.model.stages, strict=True):
        assert np.array_equal(before.coef, after.coef)
        assert (before.threshold, after.rejection_thresholds) == (after.threshold, None)
    for seed in range(20, 24):
        theirs, ours = original.detect(image(seed)), adopted.detect(image(seed))
        assert np.array_equal(theirs.boxes, ours.boxes)
        assert np.array_equal(theirs.scores, ours.scores)
    assert adopted.operating_points == {}
    assert adopted.base_id != original.base_id
    with pytest.raises(CannotLearnError, match="adopt"):
        original.learn(image(1), [[10, 10, 22, 22]], False)
    with pytest.raises(CannotLearnError, match="correct it"):
        adopted.learn_patches(objects(5, 0), True)


def test_stages_count_all_positives_and_the_negatives_that_reach_them(case):
    path, images = case
    stages = stages_of(read_opencv(path))
    positives = objects(2500, 5)  # two blocks
    counted, short = count_stages(stages, positives, grey_backgrounds(images, WINDOW), 60)
    assert short == []
    for stage in counted:
        answers = stage.respond(IntegralStack.from_patches(positives)).astype(int)
        assert np.array_equal(stage.statistics[0].C, answers @ answers.T)
        assert stage.statistics[1].n >= 60
        assert not stage.learns
    # All negatives of the second stage pass the first: its weighted sums of their responses exceed its threshold.
    again, _ = count_stages(stages[:1] * 2, positives, grey_backgrounds(images, WINDOW), 60)
    second, run = again[1].statistics[1], stages[0]
    assert second.s @ run.coef > second.n * run.threshold


def test_the_result_depends_on_the_seed_alone(case, adopted):
    path, images = case
    assert adopt_patches(path, objects(300, 5), images, n_negatives=60, threads=1).to_bytes() == adopted.to_bytes()
    other = adopt_patches(path, objects(300, 5), images, n_negatives=60, seed=1)
    assert other.base_id != adopted.base_id


def test_false_positives_are_corrected_and_nothing_is_counted(adopted):
    for seed in (30, 31):
        picture, boxes = false_positives(adopted, seed)
        boxes = boxes[-1:]
        update = adopted.learn(picture, boxes, False)
        assert len(update) == 1
        assert update.after is not None
        left, unsatisfied = adopted.detect(picture).boxes.tolist(), {record.box for record in update.unsatisfied}
        assert all((box in left) <= (tuple(box) in unsatisfied) for box in boxes.tolist())
    assert adopted.unsatisfied == []
    assert adopted.only.counts is None or adopted.only.counts.is_empty


def test_merged_copies_are_the_detector_that_saw_both(adopted, tmp_path):
    first, second, both, untouched = (adopted.copy() for _ in range(4))
    streams = [(*false_positives(adopted, seed), False) for seed in (30, 31)]
    learned = [one.learn(*stream) for one, stream in zip((first, second), streams, strict=True)]
    for stream in reversed(streams):
        both.learn(*stream)
    first.merge(second)
    timeless = [Detector.from_base(d.base, None, None, [replace(r, time=0) for r in d.records]) for d in (first, both)]
    assert timeless[0].to_bytes() == timeless[1].to_bytes() != untouched.to_bytes()
    first.save(tmp_path / "corrected.whet")
    assert load(tmp_path / "corrected.whet").to_bytes() == first.to_bytes()
    for update in learned:
        first.unlearn(update)
    assert first.to_bytes() == untouched.to_bytes()
    assert Detector.from_bytes(untouched.to_bytes()).to_bytes() == untouched.to_bytes()


def test_counts_of_a_file_are_checked(adopted):
    (stage, *_), base = adopted.model.stages, adopted.base
    positive, negative = stage.counts
    with pytest.raises(ValueError, match="weak learners"):
        replace(stage, counts=(positive.take(np.array([0])), negative))
    with pytest.raises(ValueError, match="no negatives"):
        replace(stage, counts=(positive, type(negative).empty(len(stage))))
    data = adopted.to_bytes()
    with pytest.raises(ModelFileError):
        Detector.from_bytes(data.replace(b'\\"positives\\":', b'\\"positivez\\":', 1))
    n = str(positive.n).encode()
    with pytest.raises(ModelFileError):
        Detector.from_bytes(data.replace(b'\\"positives\\":' + n, b'\\"positives\\":' + n[::-1], 1))
    stages = tuple(replace(stage, counts=None) for stage in base.model.stages)
    plain = Detector.from_base(replace(base, model=replace(base.model, stages=stages), reference=None))
    assert b"positives" not in plain.to_bytes()
    assert plain.base_id == Detector.from_base(replace(plain.only.base)).base_id != adopted.base_id


def test_a_cascade_without_its_corrections_is_an_opencv_file_again(adopted, tmp_path):
    cv2 = pytest.importorskip("cv2")
    adopted.learn(*false_positives(adopted, 30), False)
    with pytest.raises(CannotExportError, match="corrections"):
        adopted.export_opencv(tmp_path / "again.xml")
    differences = adopted.as_trained().export_opencv(tmp_path / "again.xml").differences
    assert all("contrast" in difference for difference in differences)  # of LBP
    ours, theirs = CascadeClassifier(tmp_path / "again.xml"), cv2.CascadeClassifier(str(tmp_path / "again.xml"))
    found = [sorted(map(tuple, np.array(c.detectMultiScale(image(0), 1.1, 0)).tolist())) for c in (ours, theirs)]
    assert found[0]
    assert found[0] == found[1]
    patches = np.concatenate([objects(50, 7), 255 - objects(50, 7)])
    accepted = [len(theirs.detectMultiScale(patch, 1.1, 0)) == 1 for patch in patches]
    np.testing.assert_array_equal(adopted.as_trained().model.cascade.accepts(patches), accepted)


def test_unusable_positives_and_too_few_are_refused(case):
    path, images = case
    with pytest.raises(TrainingDataError, match="window"):
        adopt_patches(path, np.zeros((10, 9, 9), np.uint8), images)
    with pytest.raises(TrainingDataError, match="photographs"):
        adopt_patches(path, objects(2, 0), images)
    with pytest.raises(TrainingDataError, match="groups"):
        adopt_patches(path, objects(20, 0), images, groups=np.arange(3))
    with pytest.raises(TrainingDataError, match="add images"):
        adopt_patches(path, objects(60, 0), images[:1])
    with pytest.warns(FewPositivesWarning, match="photographs"):
        adopt_patches(path, objects(20, 0), images, n_negatives=60)


def test_where_few_windows_reach_a_stage_those_before_are_counted(case, monkeypatch):
    """One strict stage: hardly any window passes it."""
    path, images = case
    stages = stages_of(read_opencv(path))
    strict = (replace(stages[0], threshold=float(stages[0].coef.clip(0).sum()) + 1), stages[1])
    counted, short = count_stages(strict, objects(100, 5), grey_backgrounds(images, WINDOW), 60)
    assert short == [1]
    assert counted[1].statistics[1].n == 60
    monkeypatch.setattr(module, "stages_of", lambda _: strict)
    with pytest.warns(FewNegativesWarning, match="stage 2"):
        adopt_patches(path, objects(60, 5), images, n_negatives=60)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::whet.training.adopt.FewNegativesWarning")
def test_a_photograph_is_counted_or_held_out_with_all_that_is_in_it(case, tmp_path, monkeypatch):
    path, _ = case
    images, sides = [], []
    for number in range(60):
        shown = image(100 + number)
        shown[5:21, 5:21], shown[30:46, 40:56] = (np.kron(one, np.ones((2, 2), np.uint8)) for one in objects(2, number))
        Image.fromarray(shown).save(tmp_path / f"with{number}.png")
        boxes = np.array([[5.0, 5, 21, 21], [40, 30, 56, 46]])
        names = (ONLY_CLASS, ONLY_CLASS)
        images.append(AnnotatedImage(tmp_path / f"with{number}.png", shown.shape, boxes, names, np.zeros(2, np.bool_)))
    real = module.adopt_sides
    monkeypatch.setattr(module, "adopt_sides", lambda *a, **k: sides.extend(a[1:3]) or real(*a, n_negatives=60, **k))
    run = adopt_from(path, images)
    counted, held_out = ({one.name for one in side.images} for side in sides)
    assert not counted & held_out
    assert len(counted | held_out) == 60
    assert len(sides[0].positives) + len(sides[1].positives) == len(run.positives)
    # Each photograph has two objects of ten patches each, perhaps with their mirror images.
    assert len(sides[1].positives) == len(held_out) * len(run.positives) // 60
    assert all(isinstance(stage, Stage) for stage in run.detector.model.stages)
