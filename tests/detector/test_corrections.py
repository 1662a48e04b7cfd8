import numpy as np
import pytest
from tests.detectors import BULL, bull_base, bull_finder, bull_scene, content, false_positive, still_there

from whet.cascade.boxes import box_iou
from whet.cascade.pyramid import level_at, level_scales
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector, load
from whet.detector.journal import count_records
from whet.detector.records import count_patches, default_weight
from whet.errors import (
    BoxError,
    CannotLearnError,
    CannotMergeError,
    CannotUnlearnError,
    JournalError,
)

# Learning.


def test_an_object_is_learned_by_exactly_the_pixels_of_a_scan():
    finder = bull_finder()
    (record,) = finder.learn(bull_scene(), [[41, 29, 71.5, 61]], [True], weight=7)
    assert record.scale in level_scales(bull_scene().shape, (12, 12))
    assert abs(np.log(record.scale * 12 / 31)) <= np.log(1.2) / 2 + 1e-9
    level = level_at(bull_scene(), record.scale)
    box = level.boxes(np.array([record.y]), np.array([record.x]), (12, 12))
    centre = (box[0, :2] + box[0, 2:]) / 2
    assert (abs(centre - [56.25, 45]) <= np.array([level.scale_x, level.scale_y]) / 2 + 1e-9).all()
    patch = level.image[record.y : record.y + 12, record.x : record.x + 12]
    taught = count_patches(bull_base(), patch[None], [True], 7)
    assert finder.delta.counts == taught.counts == ((7, 0),) * 3
    for ours, theirs in zip(finder.delta.stages, taught.stages, strict=True):
        np.testing.assert_array_equal(ours[0].C, theirs[0].C)


def of_many_windows(found):
    """The detection with the most windows behind it that is no bull."""
    wrong = np.flatnonzero(box_iou(found.boxes, BULL).max(axis=1) < 0.3)
    return max(wrong.tolist(), key=lambda i: len(found.windows_of(i)))


def test_a_false_positive_is_learned_by_the_windows_behind_it():
    finder = bull_finder()
    found = finder.detect(bull_scene())
    i = of_many_windows(found)
    windows = found.windows_of(i)
    records = finder.learn(bull_scene(), found.boxes[i : i + 1], [False], weight=100)
    places = {(found.windows.index.scale[i], found.windows.index.y[i], found.windows.index.x[i]) for i in windows}
    assert {(record.scale, record.y, record.x) for record in records} == places
    assert sum(record.weight for record in records) == 100
    assert len(windows) > 1


def test_where_nothing_fires_the_nearest_window_is_learned():
    finder = bull_finder()
    box = np.array([[5.0, 5.0, 25.0, 25.0]])
    assert not still_there(finder, box)
    records = finder.learn(bull_scene(), box, [False])
    assert [record.weight for record in records] == [default_weight(bull_base(), False)]


def test_a_box_beside_a_detection_does_not_correct_it():
    finder = bull_finder()
    found = finder.detect(bull_scene(), max_detections=1)
    beside = np.add(found.boxes, [0.9 * 32, 0, 0.9 * 32, 0])
    records = finder.learn(bull_scene(), beside, [False])
    behind = found.windows_of(0)
    fired = set(
        zip(
            *(each[behind] for each in (found.windows.index.scale, found.windows.index.y, found.windows.index.x)),
            strict=True,
        )
    )
    assert (records[0].scale, records[0].y, records[0].x) not in fired


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_corrected_false_positive_is_gone_and_the_object_is_still_found(seed):
    finder = bull_finder()
    wrong = false_positive(finder, seed)
    records = finder.learn(bull_scene(seed), wrong, [False])
    assert records
    assert not still_there(finder, wrong, seed)
    assert still_there(finder, BULL, seed)


def test_a_loosely_drawn_false_positive_is_gone_too():
    finder = bull_finder()
    wrong = false_positive(finder, 3)
    loose = wrong + np.array([[-7.0, -7.0, 7.0, 7.0]])
    assert 0.3 < box_iou(wrong, loose)[0, 0] < 0.5
    finder.learn(bull_scene(3), loose, [False])
    assert not still_there(finder, wrong, 3)


def test_a_false_positive_that_cannot_be_separated_keeps_its_first_round_only():
    finder = bull_finder()
    wrong = false_positive(finder, 8)
    records = finder.learn(bull_scene(8), wrong, [False])
    assert still_there(finder, wrong, 8)  # else another scene is needed here
    assert finder.learned[1] == sum(record.weight for record in records) <= default_weight(bull_base(), False)
    finder.unlearn(records)
    assert content(finder) == content(bull_finder())


def test_boxes_of_one_call_for_the_same_detection_correct_it_once():
    finder = bull_finder()
    found = finder.detect(bull_scene())
    i = of_many_windows(found)
    box = found.boxes[i : i + 1]
    twice = finder.copy().learn(bull_scene(), np.concatenate([box, box]), [False, False], weight=50)
    once = finder.learn(bull_scene(), box, [False], weight=50)
    assert twice == once
    assert len(once) > 1


def test_more_windows_than_the_weight_are_not_learned():
    finder = bull_finder()
    found = finder.detect(bull_scene())
    i = of_many_windows(found)
    records = finder.learn(bull_scene(), found.boxes[i : i + 1], [False], weight=2)
    windows = found.windows_of(i)
    best = windows[np.argsort(-found.windows.scores[windows], kind="stable")][:2]
    assert [(record.scale, record.y, record.x, record.weight) for record in records] == [
        (found.windows.index.scale[i], found.windows.index.y[i], found.windows.index.x[i], 1) for i in best
    ]
    assert len(windows) > 2


def test_an_object_is_never_learned_as_a_false_positive_of_the_same_call():
    finder = bull_finder()
    (box,) = finder.detect(bull_scene(), max_detections=1).boxes
    loose = box + np.array([-9.0, -9.0, 12.0, 12.0])
    assert 0.3 < box_iou(box[None], loose[None])[0, 0] < 0.6
    records = finder.learn(bull_scene(), [box, loose], [True, False])
    detections = finder.copy().detect(bull_scene())
    assert still_there(finder, box[None])
    levels = {record.scale: level_at(bull_scene(), record.scale) for record in records}
    for record in records:
        place = levels[record.scale].boxes(np.array([record.y]), np.array([record.x]), (12, 12))
        assert record.is_object or box_iou(place, box[None])[0, 0] < 0.7
    assert len(detections)


@pytest.mark.parametrize("weight", [100, 101, 157, 3])
def test_the_windows_of_a_false_positive_share_all_of_its_weight(weight):
    finder = bull_finder()
    found = finder.detect(bull_scene())
    records = finder.learn(bull_scene(), found.boxes[2:3], [False], weight=weight)
    weights = [record.weight for record in records]
    assert sum(weights) == weight
    assert max(weights) - min(weights) <= 1
    assert weights == sorted(weights, reverse=True)


def test_detections_between_limits_of_size_are_learned_with_the_same_limits():
    limits = {"min_size": 8, "max_size": 20}
    finder = bull_finder()
    found = finder.detect(bull_scene(), **limits)
    assert (found.boxes[:, 2] - found.boxes[:, 0] < 11).any()
    for box in found.boxes:
        assert finder.copy().learn(bull_scene(), box[None], [False], **limits)


def test_learning_nothing_changes_nothing():
    finder = bull_finder()
    assert finder.learn(bull_scene(), [], []) == []
    finder.unlearn([])
    finder.relearn([])
    finder.merge(bull_finder())
    assert content(finder) == content(bull_finder())


BAD = {
    "outside": ([[300, 10, 330, 40]], [True], BoxError, "outside the 200 x 150 image"),
    "left of it": ([[-40, 10, -5, 40]], [False], BoxError, "outside"),
    "mostly outside": ([[-25, 10, 5, 40]], [True], BoxError, "overlaps it too little"),
    "no area": ([[10, 10, 10, 40]], [True], BoxError, "no area"),
    "turned round": ([[40, 40, 10, 10]], [True], BoxError, "xmin <= xmax"),
    "NaN": ([[10, np.nan, 40, 40]], [True], BoxError, "finite"),
    "infinite": ([[10, 10, np.inf, 40]], [True], BoxError, "finite"),
    "enormous": ([[-1e300, -1e300, 1e300, 1e300]], [True], BoxError, "outside"),
    "too small": ([[50, 50, 56, 56]], [True], BoxError, "about 12 x 12 pixels or larger"),
    "too small, and nothing there": ([[5, 5, 8, 8]], [False], BoxError, "about 12 x 12 pixels or larger"),
    "of another shape": ([[10, 10, 140, 30]], [True], BoxError, "of that shape"),
    "three numbers": ([[10, 10, 40]], [True], BoxError, "expected .N, 4."),
    "words": ([["a", "b", "c", "d"]], [True], BoxError, "could not convert"),
    "one good, one bad": ([[40, 30, 70, 60], [0, 0, 3, 3]], [True, True], BoxError, r"boxes\[1\]"),
    "fewer labels": ([[40, 30, 70, 60]], [], ValueError, "one for each"),
    "labels in two dimensions": ([[40, 30, 70, 60]], [[True]], ValueError, "one for each"),
    "labels of another kind": ([[40, 30, 70, 60]], [2], ValueError, "True .the object. or False"),
}


@pytest.mark.parametrize(("boxes", "labels", "error", "message"), BAD.values(), ids=BAD)
def test_bad_boxes_are_refused_by_name_and_nothing_changes(boxes, labels, error, message):
    finder = bull_finder()
    with pytest.raises(error, match=message):
        finder.learn(bull_scene(), boxes, labels)
    assert content(finder) == content(bull_finder())


def test_one_label_stands_for_all_boxes():
    one, each = bull_finder(), bull_finder()
    boxes = [[40, 30, 70, 60], [120, 70, 170, 120]]
    assert one.learn(bull_scene(), boxes, True, weight=3) == each.learn(bull_scene(), boxes, [True, True], weight=3)
    assert content(one) == content(each)


@pytest.mark.parametrize("weight", [0, -1, 1.5, True, 2**52, float("nan"), "3", 2**51])
def test_bad_weights_are_refused_and_nothing_changes(weight):
    finder = bull_finder()
    finder.learn(bull_scene(), BULL, [True], weight=2**51)
    before = content(finder)
    with pytest.raises(ValueError, match=r"whole number from 1|exact below"):
        finder.learn(bull_scene(), BULL, [True], weight=weight)
    assert content(finder) == before


def test_an_image_smaller_than_the_window_is_refused():
    with pytest.raises(BoxError, match="too few"):
        bull_finder().learn(np.zeros((9, 9), np.uint8), [[0, 0, 9, 9]], [True])


def test_a_detector_of_fixed_stages_runs_but_does_not_learn():
    fixed = Detector(DetectorBase(bull_finder().window, bull_finder().cascade.stages))
    assert fixed.detect(bull_scene()) is not None
    with pytest.raises(CannotLearnError, match="adopt"):
        fixed.learn(bull_scene(), BULL, [True])
    with pytest.raises(CannotLearnError):
        fixed.unlearn([])


# Exactness.


@pytest.fixture(scope="module")
def corrections():
    """What several corrections of one detector have left, and the detector."""
    finder, records = bull_finder(), []
    for seed in (1, 2, 3):
        records += finder.learn(bull_scene(seed), np.concatenate([false_positive(finder, seed), BULL]), [False, True])
    return records, finder


def test_learn_then_unlearn_gives_the_same_bytes_without_the_image(corrections):
    records, finder = corrections
    finder = finder.copy()
    assert content(finder) != content(bull_finder())
    finder.unlearn(records[::-1])
    assert content(finder) == content(bull_finder())


def test_records_learned_in_any_order_make_the_same_detector(corrections):
    records, finder = corrections
    again = bull_finder()
    for i in np.random.default_rng(0).permutation(len(records)):
        again.relearn([records[i]])
    assert content(again) == content(finder)


def test_learning_after_loading_equals_learning_without_loading(tmp_path, corrections):
    _, straight = corrections
    finder = bull_finder()
    for seed in (1, 2, 3):
        finder.learn(bull_scene(seed), np.concatenate([false_positive(finder, seed), BULL]), [False, True])
        finder.save(tmp_path / "bull.whet")
        finder = load(tmp_path / "bull.whet")
    straight.save(tmp_path / "straight.whet")
    assert (tmp_path / "bull.whet").read_bytes() == (tmp_path / "straight.whet").read_bytes()


def test_merged_is_the_one_that_learned_both(corrections):
    records, both = corrections
    half = len(records) // 2
    one, other = bull_finder(), bull_finder()
    one.relearn(records[:half])
    other.relearn(records[half:])
    one.merge(other)
    assert content(one) == content(both)


def test_one_of_several_corrections_can_be_unlearned():
    finder, other = bull_finder(), bull_finder()
    first = finder.learn(bull_scene(1), BULL, [True])
    second = finder.learn(bull_scene(2), BULL, [True])
    finder.unlearn(first)
    other.relearn(second)
    assert content(finder) == content(other)


def test_records_say_the_same_as_the_patches():
    finder = bull_finder()
    records = finder.learn(bull_scene(), false_positive(finder), [False], weight=9)
    patches = []
    for record in records:
        level = level_at(bull_scene(), record.scale).image
        patches.append(level[record.y : record.y + 12, record.x : record.x + 12])
    labels, weights = [record.is_object for record in records], [record.weight for record in records]
    ours, theirs = count_records(bull_base(), records), count_patches(bull_base(), np.array(patches), labels, weights)
    for mine, plain in zip(ours.stages, theirs.stages, strict=True):
        for a, b in zip(mine, plain, strict=True):
            assert a.n == b.n
            np.testing.assert_array_equal(a.C, b.C)


def test_what_was_unlearned_once_is_not_unlearned_again(corrections):
    records, finder = corrections
    finder = finder.copy()
    finder.unlearn(records)
    with pytest.raises(CannotUnlearnError, match="nothing was changed"):
        finder.unlearn(records[:1])
    assert content(finder) == content(bull_finder())


def test_records_of_another_base_are_refused(corrections):
    records, _ = corrections
    other = Detector(DetectorBase((12, 12), bull_base().stages[:2]))
    for verb in (other.unlearn, other.relearn):
        with pytest.raises(JournalError, match="base"):
            verb(records)
    with pytest.raises(JournalError, match="got a str"):
        other.unlearn(["record"])
    with pytest.raises(CannotMergeError, match="base"):
        other.merge(bull_finder())


def test_a_copy_learns_on_its_own():
    finder = bull_finder()
    copy = finder.copy()
    copy.learn(bull_scene(), BULL, [True])
    copy.set_operating_point("some", 3.0)
    assert content(finder) == content(bull_finder())
    assert copy.base_id == finder.base_id


def test_a_missed_object_is_learned_until_it_is_found():
    finder, scene = bull_finder(), bull_scene(7).astype(int)
    scene[30:60, 40:70] += np.random.default_rng([7, 400]).normal(0, 400, (30, 30)).astype(int)
    image = scene.clip(0, 255).astype(np.uint8)
    assert not (box_iou(BULL, finder.detect(image).boxes) >= 0.5).any()
    once = finder.copy()
    once.learn(image, BULL, [True], weight=default_weight(bull_base(), True))
    assert not (box_iou(BULL, once.detect(image).boxes) >= 0.5).any()
    records = finder.learn(image, BULL, [True])
    assert len(records) > 1
    assert (box_iou(BULL, finder.detect(image).boxes) >= 0.5).any()
    finder.unlearn(records)
    assert content(finder) == content(bull_finder())
