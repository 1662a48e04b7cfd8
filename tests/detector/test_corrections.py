"""Corrections: a false positive is gone, a missed object is found, and only the set of corrections matters."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.cascades import windows_of
from tests.detectors import (
    BULL,
    bull_base,
    bull_finder,
    bull_scene,
    content,
    false_positive,
    judged_base,
    judged_finder,
    mixed_detector,
    still_there,
)

from whet.corrections.box_windows import AROUND, COPIES, MAX_WINDOWS, look_alikes
from whet.corrections.records import image_hash
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import BoxError, CannotExportError, CannotLearnError, CannotMergeError, RecordError
from whet.images.boxes import BoxOffset, box_iou
from whet.images.pyramid import Pyramid, level_scales
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.responses import Responses

BOTH = np.array([[40.0, 30.0, 70.0, 60.0], [120.0, 70.0, 170.0, 120.0]])


@pytest.fixture(autouse=True)
def _frozen(monkeypatch):
    """Records carry the time: it must not tell two detectors apart."""
    monkeypatch.setattr("whet.detector.detector.time.time", lambda: 1_700_000_000.7)


def same_model(one, other):
    """Whether two detectors have the same weights, thresholds and known windows, to the bit."""

    def numbers(votes):
        return None if votes is None else [part.tobytes() for part in (votes.coef, votes.threshold, votes.limits)]

    def known(corrected):
        names, windows = ("rejected", "accepted", "objects", "others"), corrected.known
        if windows is None:
            return None
        responses = [getattr(windows, name).words.tobytes() for name in names]
        return responses, windows.targets.tobytes(), windows.reach, windows.unknown

    ours, theirs = one.only.corrected, other.only.corrected
    return (
        numbers(ours.model.votes) == numbers(theirs.model.votes)
        and numbers(ours.lowered) == numbers(theirs.lowered)
        and known(ours) == known(theirs)
    )


@cache
def hidden(seed=7, noise=300):
    """A scene in which the bull at (40, 30) is not found for noise."""
    image = bull_scene(seed).astype(int)
    image[30:60, 40:70] += np.random.default_rng([seed, noise]).normal(0, noise, (30, 30)).astype(int)
    return image.clip(0, 255).astype(np.uint8)


def finds(detector, box, image, **options):
    return bool((box_iou(box, detector.detect(image, **options).boxes) >= 0.5).any())


# The windows of a correction.


def test_an_object_is_learned_by_exactly_the_pixels_of_a_scan():
    (record,) = bull_finder().learn(bull_scene(), [[41, 29, 71.5, 61]], [True], name="yard.png", note="a bull")
    assert record.index.scale[0] in level_scales(bull_scene().shape, (12, 12))
    pyramid = Pyramid.from_image(bull_scene(), (12, 12))
    responses, _ = bull_base().model.cascade.respond(pyramid.patches(record.index))
    np.testing.assert_array_equal(record.responses.bits[0], responses.bits[0])
    assert box_iou(pyramid.boxes(record.index), np.array([[41, 29, 71.5, 61]]))[0, 0] > 0.6
    assert (record.name, record.note, record.time) == ("yard.png", "a bull", 1_700_000_000)
    assert record.image == image_hash(bull_scene())


def test_a_false_positive_is_learned_by_the_windows_near_it_that_the_base_accepts():
    finder = bull_finder()
    box = false_positive(finder, 3)
    (record,) = finder.learn(bull_scene(3), box, False)
    fired = bull_finder().detect(bull_scene(3), grouping=None)
    near = box_iou(box, fired.boxes)[0] >= AROUND
    index = fired.windows.index.take(np.array([fired.windows_of(i)[0] for i in np.flatnonzero(near)]))
    assert 1 < len(index) <= MAX_WINDOWS
    assert set(index) <= set(record.index)
    assert len(record) <= 2 * MAX_WINDOWS


def test_a_record_holds_no_pixels():
    n = bull_base().model.votes.n_weak
    for record in bull_finder().learn(bull_scene(), [*false_positive(bull_finder()), *BULL], [False, True]):
        assert record.responses.to_bytes().shape == (len(record), -(-n // 8))
        assert len(record.image) == 64


def test_windows_of_an_object_are_left_out_of_a_false_positive_beside_it():
    finder = bull_finder()
    (box,) = finder.detect(bull_scene(), max_detections=1).boxes
    loose = box + np.array([-9.0, -9.0, 12.0, 12.0])
    assert 0.3 < box_iou(box[None], loose[None])[0, 0] < 0.6
    records = finder.learn(bull_scene(), [box, loose], [True, False])
    assert still_there(finder, box[None])
    (wrong,) = (record for record in records if not record.is_object)
    places = Pyramid.from_image(bull_scene(), (12, 12)).boxes(wrong.index)
    assert (box_iou(places, box[None]) < 0.5).all()


def test_a_box_with_an_offset_is_learned_by_the_windows_behind_it():
    wider = BoxOffset(-0.1, -0.2, 1.1, 1.25)
    framed = bull_finder(offset=wider)
    found = framed.detect(bull_scene())
    box = found.boxes[2:3]
    assert framed.learn(bull_scene(), box, False)
    assert not finds(framed, box, bull_scene())
    missed = bull_finder(offset=wider)
    target = wider.boxes(BULL)
    missed.learn(hidden(), target, True)
    assert finds(missed, target, hidden())


def test_detections_between_limits_of_size_are_learned_with_the_same_limits():
    limits = {"min_size": 8, "max_size": 20}
    finder = bull_finder()
    found = finder.detect(bull_scene(), **limits)
    assert (found.boxes[:, 2] - found.boxes[:, 0] < 11).any()
    for box in found.boxes[:, None]:
        corrected = finder.copy()
        assert corrected.learn(bull_scene(), box, False, **limits)
        assert not finds(corrected, box, bull_scene(), **limits)


def test_look_alikes_are_the_same_every_time_and_others_for_another_image():
    pyramid = Pyramid.from_image(bull_scene(), (12, 12))
    index = pyramid.overlapping(false_positive(bull_finder())[0], 0.6)
    one, again, other = (
        look_alikes(bull_base().model, pyramid, index, name) for name in ("ab" * 32, "ab" * 32, "cd" * 32)
    )
    np.testing.assert_array_equal(one.responses.words, again.responses.words)
    np.testing.assert_array_equal(one.closeness, again.closeness)
    assert 0 < len(one) <= min(MAX_WINDOWS, COPIES * len(index))
    assert not np.array_equal(one.responses.words, other.responses.words)


# What a correction does.


@pytest.mark.parametrize("seed", range(1, 5))
def test_every_false_positive_is_gone_after_one_correction(seed):
    finder = bull_finder()
    found = finder.detect(bull_scene(seed))
    wrong = [i for i in range(len(found)) if box_iou(found.boxes[i : i + 1], BOTH).max() < 0.3]
    assert len(wrong) > 5
    for i in wrong:
        corrected = finder.copy()
        update = corrected.learn(bull_scene(seed), found.boxes[i : i + 1], False)
        assert len(update) == 1
        assert not update.unsatisfied
        assert not still_there(corrected, found.boxes[i : i + 1], seed)


@pytest.mark.parametrize("seed", range(1, 5))
def test_with_a_reference_set_a_false_positive_is_gone_or_reported_and_objects_stay(seed):
    finder = judged_finder()
    found, n_gone = finder.detect(bull_scene(seed)), 0
    wrong = [i for i in range(len(found)) if box_iou(found.boxes[i : i + 1], BOTH).max() < 0.3]
    for i in wrong:
        corrected = finder.copy()
        update = corrected.learn(bull_scene(seed), found.boxes[i : i + 1], False)
        gone = not still_there(corrected, found.boxes[i : i + 1], seed)
        assert gone or update.unsatisfied == tuple(corrected.unsatisfied) == tuple(update)
        assert still_there(corrected, BOTH[:1], seed)
        assert still_there(corrected, BOTH[1:], seed)
        n_gone += gone
    assert n_gone > len(wrong) / 2


def test_a_loosely_drawn_false_positive_is_gone_too():
    finder = bull_finder()
    wrong = false_positive(finder, 3)
    loose = wrong + np.array([[-5.0, -5.0, 5.0, 5.0]])
    assert 0.4 < box_iou(wrong, loose)[0, 0] < 0.6
    finder.learn(bull_scene(3), loose, [False])
    assert not still_there(finder, wrong, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["astronaut", "coffee", "coins", "page"])
def test_false_positives_in_photographs_are_gone_one_after_the_other(name):
    data = pytest.importorskip("skimage.data")
    faces, image = load("face"), getattr(data, name)()
    found = faces.detect(image, min_score=0)
    wrong = found.boxes[name == "astronaut" :][:6]
    for number in range(len(wrong)):
        update = faces.learn(image, wrong[number : number + 1], False)
        assert not update.unsatisfied
        left = faces.detect(image, min_score=0).boxes
        assert not (box_iou(wrong[: number + 1], left) >= 0.5).any()
    if name == "astronaut":
        assert finds(faces, found.boxes[:1], image)
    assert faces.estimate.recall > load("face").estimate.recall - 0.01


@pytest.mark.parametrize("seed", [7, 8, 9, 10])
@pytest.mark.parametrize("make", [bull_finder, judged_finder])
def test_a_missed_object_is_found_after_one_correction(make, seed):
    finder = make()
    noisy = (hidden(seed, noise) for noise in range(200, 900, 20))
    image = next(image for image in noisy if not finds(finder, BULL, image))
    update = finder.learn(image, BULL, True)
    assert finds(finder, BULL, image)
    assert not update.unsatisfied
    finder.unlearn(update)
    assert content(finder) == content(make())


def test_a_missed_object_exceeds_the_minimum_score_that_is_asked_for():
    for score in (5.0, 15.0, 40.0):
        finder = bull_finder()
        update = finder.learn(hidden(), BULL, True, min_score=score)
        assert not update.unsatisfied
        assert finds(finder, BULL, hidden(), min_score=score)
        (record,) = update
        assert finder.only.corrected.scores(record.responses)[0] > score


def test_an_object_that_is_far_from_being_accepted_is_reported():
    finder = bull_finder()
    update = finder.learn(255 - bull_scene(), BULL, True)
    assert update.unsatisfied == tuple(update)
    assert [record.id for record in finder.unsatisfied] == update.ids
    assert "not satisfied" in str(update)
    assert finder.only.corrected.lowered is None
    assert finder.model is bull_base().model


def test_a_minimum_score_without_an_end_is_refused():
    finder = bull_finder()
    with pytest.raises(ValueError, match="finite"):
        finder.learn(bull_scene(), BULL, True, min_score=np.inf)
    assert content(finder) == content(bull_finder())


@pytest.mark.parametrize("make", [bull_finder, judged_finder])
def test_corrections_that_hold_already_change_no_bit_of_the_cascade(make):
    finder = make()
    # Right with room to spare: an object, and a place that a stage rejects by far.
    update = finder.learn(bull_scene(), [[120, 70, 170, 120], [5, 5, 25, 25]], [True, False])
    assert len(update) == len(finder.records) == 2
    assert same_model(finder, make())


def test_corrections_that_hold_already_change_no_bit_of_the_face_detector():
    data = pytest.importorskip("skimage.data")
    faces = load("face")
    found = faces.detect(data.astronaut())
    faces.learn(data.astronaut(), found.boxes[:1], True)
    faces.learn(data.brick(), [[100, 100, 150, 150]], False)
    assert same_model(faces, load("face"))
    assert faces.operating_points == load("face").operating_points


def test_corrections_change_no_weight():
    finder = judged_finder()
    finder.learn(bull_scene(), false_positive(finder), False)
    finder.learn(hidden(), BULL, True)
    assert not same_model(finder, judged_finder())
    assert finder.model is judged_base().model


def test_a_correction_only_rejects_or_only_accepts():
    """Windows that fire after a false positive was corrected fired before, with the same scores."""
    before, wrong, missed = (judged_finder() for _ in range(3))
    wrong.learn(bull_scene(), false_positive(before), False)
    missed.learn(hidden(), BULL, True)
    n_rejected = n_accepted = 0
    for image in (bull_scene(), bull_scene(1), bull_scene(2), hidden()):
        fired, fewer, more = (
            dict(zip(found.windows.index, found.windows.scores.tolist(), strict=True))
            for found in (one.detect(image, min_score=-np.inf) for one in (before, wrong, missed))
        )
        assert fewer.items() <= fired.items()
        assert fired.keys() <= more.keys()
        n_rejected += len(fired) - len(fewer)
        n_accepted += len(more) - len(fired)
    assert n_rejected > 0
    assert n_accepted > 0


def test_objects_that_were_confirmed_are_not_rejected_by_a_false_positive_like_them():
    finder = bull_finder()
    found = finder.detect(bull_scene(), max_detections=1)
    finder.learn(bull_scene(), found.boxes, True)
    windows = found.windows.index.take(found.windows_of(0)[:1])
    patch = Pyramid.from_image(bull_scene(), (12, 12)).patches(windows)
    wrong = np.tile(patch[0], (3, 3))
    finder.learn(wrong, [[12, 12, 24, 24]], False)
    assert still_there(finder, found.boxes)


def test_contradictory_corrections_end_and_are_reported():
    finder = bull_finder()
    box = finder.detect(bull_scene(), max_detections=1).boxes
    yes = finder.learn(bull_scene(), box, True)
    no = finder.learn(bull_scene(), box, False)
    assert set(no.unsatisfied) <= {*yes, *no}
    assert no.unsatisfied
    finder.unlearn(no)
    assert not finder.unsatisfied
    finder.unlearn(yes)
    assert content(finder) == content(bull_finder())


def test_a_stage_with_fixed_weights_stays_and_the_others_are_corrected():
    mixed = mixed_detector()
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (60, 60), dtype=np.uint8)
    found = mixed.detect(image)
    assert len(found)
    update = mixed.learn(image, found.boxes[:1], False)
    assert mixed.model is mixed.base.model
    assert update.unsatisfied or not finds(mixed, found.boxes[:1], image)


def test_soft_stages_let_a_missed_object_pass():
    """Rejection thresholds on partial sums must not reject what the stage has to accept."""
    from tests.detectors import WINDOW, base, patches

    soft = Detector.from_base(base(soft=True))
    X, y = patches(400, np.random.default_rng(3))
    rejected = X[y & ~soft.model.cascade.accepts(X)]
    assert len(rejected) > 5
    for patch in rejected[:6]:
        corrected = soft.copy()
        update = corrected.learn(patch, [[0, 0, WINDOW[1], WINDOW[0]]], True)
        responses, has_contrast = corrected.model.cascade.respond(patch[None])
        assert update.unsatisfied or (has_contrast[0] and corrected.only.corrected.scores(responses)[0] > 0)
        assert not update.unsatisfied


# Sets: order, repetition, threads and earlier corrections do not matter.


def test_learning_twice_is_learning_once():
    once, twice = judged_finder(), judged_finder()
    boxes, labels = [*false_positive(once), *BULL], [False, True]
    for finder in (once, twice, twice):
        last = finder.learn(bull_scene(), boxes, labels)
    assert len(last) == 0
    assert content(once) == content(twice)
    together = judged_finder()
    together.learn(bull_scene(), [*boxes, *boxes], labels * 2)
    assert content(together) == content(once)


def test_of_equal_corrections_the_earliest_is_kept(monkeypatch):
    files = []
    for times in ((100, 200), (200, 100)):
        finder = bull_finder()
        for now in times:
            monkeypatch.setattr("whet.detector.detector.time.time", lambda now=now: now)
            finder.learn(bull_scene(), BULL, True)
        assert [record.time for record in finder.records] == [100]
        files.append(content(finder))
    assert files[0] == files[1]


def test_of_corrections_of_one_time_name_and_note_do_not_depend_on_the_order():
    one, other = bull_finder(), bull_finder()
    for name, note in (("b.png", ""), ("a.png", "x"), ("a.png", "w")):
        one.learn(bull_scene(), BULL, True, name=name, note=note)
    for name, note in (("a.png", "w"), ("b.png", ""), ("a.png", "x")):
        other.learn(bull_scene(), BULL, True, name=name, note=note)
    assert content(one) == content(other)
    assert (one.records[0].name, one.records[0].note) == ("a.png", "w")


def test_a_correction_depends_neither_on_earlier_ones_nor_on_threads():
    plain = judged_finder(default=3.0).learn(bull_scene(2), [*false_positive(judged_finder(), 2), *BULL], [False, True])
    busy = judged_finder(default=3.0)
    busy.learn(bull_scene(), false_positive(busy), False)
    busy.learn(hidden(), BULL, True)
    X = windows_of(bull_scene(3), (12, 12), 7)[0]
    busy.learn_patches(X, False)
    for threads in (1, 4):
        later = busy.copy().learn(
            bull_scene(2), [*false_positive(judged_finder(), 2), *BULL], [False, True], threads=threads
        )
        assert later.ids == plain.ids


@pytest.fixture(scope="module")
def corrections():
    """Several corrections, and the detector that learned them."""
    finder, records = judged_finder(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.detector.detector.time.time", lambda: 1_700_000_000.7)
        for seed in (1, 2, 3):
            boxes = np.concatenate([false_positive(judged_finder(), seed), BULL])
            records += finder.learn(bull_scene(seed), boxes, [False, True])
        records += finder.learn(hidden(), BULL, True)
    return records, finder


def test_learn_then_unlearn_gives_the_same_bytes_without_the_image(corrections):
    records, finder = corrections
    finder = finder.copy()
    assert content(finder) != content(judged_finder())
    finder.unlearn(records[::-1])
    assert content(finder) == content(judged_finder())
    assert finder.model is judged_base().model
    assert finder.only.corrected.known is None


def test_records_added_in_any_order_make_the_same_detector(corrections):
    records, finder = corrections
    again = judged_finder()
    for i in np.random.default_rng(0).permutation(len(records)):
        again.add([records[i]])
    assert content(again) == content(finder)
    assert same_model(again, finder)


def test_unlearning_one_is_never_having_learned_it(corrections):
    records, finder = corrections
    for record in records:
        one, other = finder.copy(), judged_finder()
        one.unlearn(record)
        other.add(each for each in records if each.id != record.id)
        assert content(one) == content(other)
        assert same_model(one, other)


def test_merged_is_the_one_that_learned_both(corrections):
    records, both = corrections
    one, other = judged_finder(), judged_finder()
    one.add(records[:4])
    other.add(records[2:])  # some are known to both
    turned = other.copy()
    turned.merge(one)
    one.merge(other)
    assert content(one) == content(both) == content(turned)
    assert same_model(one, both)


def test_a_loaded_detector_has_the_same_weights_and_learns_on(tmp_path, corrections):
    records, straight = corrections
    finder = judged_finder()
    for record in records:
        finder.add([record])
        finder.save(tmp_path / "bull.whet")
        finder = load(tmp_path / "bull.whet")
    assert content(finder) == content(straight)
    assert same_model(finder, straight)
    assert [record.id for record in finder.unsatisfied] == [record.id for record in straight.unsatisfied]


def test_records_are_unlearned_by_update_record_id_and_prefix(corrections):
    records, finder = corrections
    for what in (records, [record.id for record in records], [record.id[:8] for record in records]):
        copy = finder.copy()
        copy.unlearn(what)
        assert copy.records == []
    copy = judged_finder()
    updates = [copy.learn(bull_scene(seed), BULL, True) for seed in (1, 2)]
    copy.unlearn(updates)
    assert content(copy) == content(judged_finder())


def test_what_is_not_learned_is_not_unlearned_and_nothing_changes(corrections):
    records, finder = corrections
    finder = finder.copy()
    finder.unlearn(records[0])
    before = content(finder)
    for wrong in (records[0], [records[1], records[0]], "0" * 64, "", records[1].id[:3], ["zzzzzz"], [3], [None]):
        with pytest.raises(RecordError):
            finder.unlearn(wrong)
        assert content(finder) == before


ALTERED = {
    "more bits": lambda r: replace(r, responses=Responses.from_bits(np.repeat(r.responses.bits, 2, axis=1))),
    "fewer bits": lambda r: replace(r, responses=Responses.from_bits(r.responses.bits[:, :-1])),
    "fewer windows": lambda r: replace(r, responses=r.responses.take(slice(0, -1))),
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_records_that_no_window_could_have_left_are_refused(alter, corrections):
    finder = judged_finder()
    for record in corrections[0][:2]:
        with pytest.raises(RecordError):
            finder.add([alter(record)])
        with pytest.raises(RecordError):
            Detector.from_base(judged_base(), records=[alter(record)])
    assert content(finder) == content(judged_finder())


def test_records_of_another_base_are_refused(corrections):
    records, finder = corrections
    other = Detector.from_base(DetectorBase(CascadeModel((12, 12), bull_base().model.stages[:2])))
    with pytest.raises(RecordError, match="base"):
        other.add(records)
    with pytest.raises(CannotMergeError, match="base"):
        other.merge(finder)
    assert other.records == []


def test_a_copy_learns_on_its_own():
    finder = bull_finder()
    copy = finder.copy()
    copy.learn(bull_scene(), BULL, [True])
    copy.set_operating_point("some", 3.0)
    assert content(finder) == content(bull_finder())
    assert copy.base_id == finder.base_id


def test_corrections_stand_on_top_of_counts(corrections):
    """Counts move the weights; corrections hold on top of them, and both can be taken out in any order."""
    records, _ = corrections
    X = windows_of(bull_scene(5), (12, 12), 3)[0]
    one, other = judged_finder(), judged_finder()
    one.learn_patches(X, False)
    one.add(records)
    other.add(records)
    other.learn_patches(X, False)
    assert content(one) == content(other)
    assert same_model(one, other)
    one.unlearn_patches(X, False)
    other = judged_finder()
    other.add(records)
    assert content(one) == content(other)
    one.unlearn(records)
    assert content(one) == content(judged_finder())


def test_the_log_is_newest_first(monkeypatch):
    finder = bull_finder()
    for now, seed in ((5, 1), (9, 2), (7, 3)):
        monkeypatch.setattr("whet.detector.detector.time.time", lambda now=now: now)
        finder.learn(bull_scene(seed), BULL, True)
    assert [record.time for record in finder.records] == [9, 7, 5]


# Input that cannot be learned.


def test_learning_nothing_changes_nothing():
    finder = bull_finder()
    assert len(finder.learn(bull_scene(), [], [])) == 0
    finder.unlearn([])
    finder.add([])
    finder.merge(bull_finder())
    assert content(finder) == content(bull_finder())


BAD = {
    "outside": ([[300, 10, 330, 40]], [True], BoxError, "outside the 200 x 150 image"),
    "left of it": ([[-40, 10, -5, 40]], [False], BoxError, "outside"),
    "mostly outside": ([[-25, 10, 5, 40]], [True], BoxError, "nearest box"),
    "no area": ([[10, 10, 10, 40]], [True], BoxError, "no area"),
    "turned round": ([[40, 40, 10, 10]], [True], BoxError, "x1 <= x2"),
    "NaN": ([[10, np.nan, 40, 40]], [True], BoxError, "finite"),
    "infinite": ([[10, 10, np.inf, 40]], [True], BoxError, "finite"),
    "enormous": ([[-1e300, -1e300, 1e300, 1e300]], [True], BoxError, "outside"),
    "too small": ([[50, 50, 56, 56]], [True], BoxError, "got a box of 6 x 6 pixels"),
    "too small, and nothing there": ([[5, 5, 8, 8]], [False], BoxError, "from 12 x 12 to 128 x 128 pixels"),
    "of another shape": ([[10, 10, 140, 30]], [True], BoxError, "of that shape"),
    "three numbers": ([[10, 10, 40]], [True], BoxError, "expected .N, 4."),
    "words": ([["a", "b", "c", "d"]], [True], BoxError, "could not convert"),
    "one good, one bad": ([[40, 30, 70, 60], [0, 0, 3, 3]], [True, True], BoxError, "nothing was changed"),
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
    assert one.learn(bull_scene(), boxes, True).ids == each.learn(bull_scene(), boxes, [True, True]).ids
    assert content(one) == content(each)


def test_an_object_without_contrast_is_refused():
    with pytest.raises(BoxError, match="contrast"):
        bull_finder().learn(np.full((40, 40), 90, np.uint8), [[5, 5, 25, 25]], True)


def test_an_image_smaller_than_the_window_is_refused():
    with pytest.raises(BoxError, match="too few"):
        bull_finder().learn(np.zeros((9, 9), np.uint8), [[0, 0, 9, 9]], [True])


def test_a_detector_of_fixed_stages_runs_but_does_not_learn():
    fixed = Detector.from_base(DetectorBase(CascadeModel(bull_finder().window, bull_finder().model.cascade.stages)))
    assert fixed.detect(bull_scene()) is not None
    with pytest.raises(CannotLearnError, match="adopt"):
        fixed.learn(bull_scene(), BULL, [True])
    with pytest.raises(CannotLearnError):
        fixed.learn_patches(np.zeros((1, 12, 12), np.uint8), False)
    (record,) = bull_finder().learn(bull_scene(), BULL, True)
    with pytest.raises(CannotLearnError, match="adopt"):
        fixed.add([replace(record, base_id=fixed.base_id)])


# Other programs.


def test_a_corrected_detector_is_not_exported_and_the_message_says_what_to_do(tmp_path):
    finder = bull_finder()
    finder.learn(bull_scene(), false_positive(finder), False)
    with pytest.raises(CannotExportError, match="as_trained"):
        finder.export_opencv(tmp_path / "bull.xml")
    assert not list(tmp_path.iterdir())
    finder.as_trained().export_opencv(tmp_path / "bull.xml")
    finder.unlearn(finder.records)
    finder.export_opencv(tmp_path / "again.xml")
    assert (tmp_path / "again.xml").read_bytes() == (tmp_path / "bull.xml").read_bytes()
