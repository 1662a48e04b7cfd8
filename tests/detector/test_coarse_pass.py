"""The coarse pass of the bundled face detector: corrections hold in what plain `detect` shows, and files keep it."""

import json
from dataclasses import replace

import numpy as np
import pytest

import whet
from whet.detector.detector import Detector
from whet.errors import ModelFileError
from whet.images.boxes import box_iou
from whet.models.gslda.cascade_scan import is_on_grid

data = pytest.importorskip("skimage.data")

ANY = {"min_score": -np.inf}
# Detections of the full scan that the coarse pass of the first four stages, as they are, does not look at.
LEFT_OUT = {"coffee": (34, 212, 80, 263), "rocket": (34, 115, 100, 188), "camera": (293, 411, 320, 441)}


def strict_detector():
    """The face detector with a coarse pass that leaves out more than its own does."""
    face = whet.load("face")
    model = replace(face.base.model, coarse_room=(0.0,) * 4)
    return Detector.from_base(replace(face.base, model=model), reporting=face.reporting)


def has(found, box):
    return bool((box_iou(np.array([box], float), found.boxes) > 0.5).any())


def windows(found):
    return dict(zip(found.windows.index, found.windows.scores.tolist(), strict=True))


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_only_the_coarse_pass_misses_can_be_corrected_and_undone(name):
    detector, image, box = strict_detector(), getattr(data, name)(), LEFT_OUT[name]
    before = detector.to_bytes()
    assert has(detector.detect(image, fast=False, **ANY), box)
    assert not has(detector.detect(image, **ANY), box)
    learned = detector.learn(image, box, True)
    assert not detector.unsatisfied
    assert has(detector.detect(image), box)
    assert has(Detector.from_bytes(detector.to_bytes()).detect(image), box)
    detector.unlearn(learned)
    assert detector.to_bytes() == before
    assert not has(detector.detect(image, **ANY), box)


def test_a_corrected_miss_changes_only_windows_like_it():
    detector = strict_detector()
    others = [data.astronaut(), data.chelsea(), data.coins()]
    before = [detector.detect(image, **ANY) for image in others]
    detector.learn(data.coffee(), LEFT_OUT["coffee"], True)
    assert detector.only.corrected.lowered is not None
    for image, then in zip(others, before, strict=True):
        now = detector.detect(image, **ANY)
        pyramid = detector.only.pyramid(detector.only.pixels(image))
        responses, _ = detector.model.responses(pyramid, now.windows.index)
        rejected = np.full(len(now.windows), -np.inf)
        follows = detector.only.corrected.known.decide(responses, rejected) > -np.inf
        following = {place for place, one in zip(now.windows.index, follows, strict=True) if one}
        own = {place: score for place, score in windows(now).items() if place not in following}
        assert own == {place: score for place, score in windows(then).items() if place not in following}
        assert len(following) < 0.1 * len(now.windows)


def test_a_false_positive_is_gone_after_a_corrected_miss_too():
    detector, image = strict_detector(), data.coffee()
    detector.learn(image, LEFT_OUT["coffee"], True)
    wrong = detector.detect(image, **ANY)
    wrong = wrong[~(box_iou(wrong.boxes, np.array([LEFT_OUT["coffee"]], float)) > 0.1).any(axis=1)]
    detector.learn(image, wrong, False)
    left = detector.detect(image, **ANY)
    assert has(left, LEFT_OUT["coffee"])
    assert not (box_iou(wrong.boxes, left.boxes) > 0.5).any()


def test_confirming_a_face_that_is_found_leaves_the_scan_as_it_is():
    detector, image = whet.load("face"), data.astronaut()
    found = detector.detect(image)
    detector.learn(image, found[0], True)
    assert detector.model.coarse_room
    assert detector.only.corrected.lowered is None
    assert np.array_equal(detector.detect(image).scores, found.scores)


def test_the_window_of_an_object_lies_on_the_coarse_grid():
    detector, image = whet.load("face"), data.coffee()
    (missed,) = detector.new_records(image, LEFT_OUT["coffee"], True)
    (confirmed,) = detector.new_records(data.astronaut(), detector.detect(data.astronaut())[0], True)
    for record in (missed, confirmed):
        assert is_on_grid(record.index).all()


def test_a_full_scan_and_a_model_without_coarse_pass_find_the_same():
    face, image = whet.load("face"), data.astronaut()
    base = replace(face.base, model=replace(face.base.model, coarse_room=()))
    plain = Detector.from_base(base, reporting=face.reporting)
    assert np.array_equal(face.detect(image, fast=False, **ANY).scores, plain.detect(image, **ANY).scores)
    assert len(plain.detect(image, fast=True, **ANY).windows) < len(plain.detect(image, **ANY).windows)


def test_the_coarse_pass_is_kept_in_the_file_and_is_no_part_of_the_base_id():
    face, strict = whet.load("face"), strict_detector()
    assert face.base.model.coarse_room
    assert Detector.from_bytes(strict.to_bytes()).base.model.coarse_room == (0.0,) * 4
    assert strict.base_id == face.base_id
    merged = strict.copy()
    merged.merge(face)
    assert merged.base.model.coarse_room == strict.base.model.coarse_room


@pytest.mark.parametrize("room", ["[]", '"0"', "[-0.5]", "[true]", "[" + ",".join(["0.0"] * 11) + "]"])
def test_a_file_with_another_coarse_pass_is_refused(room):
    stored = whet.load("face").to_bytes()
    room_before = json.dumps(list(whet.load("face").base.model.coarse_room), separators=(",", ":"))
    text = f'\\"coarse_room\\":{room_before}'.encode()
    assert stored.count(text) == 1
    length = int.from_bytes(stored[:8], "little")
    header = stored[8 : 8 + length].replace(text, f'\\"coarse_room\\":{room}'.replace('"0"', '\\"0\\"').encode())
    with pytest.raises(ModelFileError):
        Detector.from_bytes(len(header).to_bytes(8, "little") + header + stored[8 + length :])


@pytest.mark.parametrize("room", [(-0.1,), (np.inf,), (0.0,) * 11])
def test_room_is_at_least_zero_for_some_of_the_stages(room):
    model = whet.load("face").base.model
    with pytest.raises(ValueError, match="coarse_room"):
        replace(model, coarse_room=room)
