"""Replacing records counts the difference only, and equals counting the whole set."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

from whet.corrections.box_windows import example_record
from whet.corrections.records import image_hash
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import CannotLearnError, RecordError
from whet.images.pyramid import Pyramid, WindowIndex
from whet.models.gslda.cascade_model import CascadeModel


@pytest.fixture(scope="module")
def records():
    """Examples of both classes and of several weights, and a correction."""
    finder, scene = bull_finder(), bull_scene()
    pyramid, rng, made = Pyramid.from_image(scene, finder.window), np.random.default_rng(3), []
    for number in range(24):
        index = WindowIndex(np.ones(1), rng.integers(100, size=1), rng.integers(150, size=1))
        box, model = pyramid.boxes(index)[0], finder.base.model
        record = example_record(model, pyramid, image_hash(scene), box, index, number % 3 == 0, 1 + 7 * number)
        made += [] if record is None else [replace(record, base_id=finder.base_id)]
    return [*made, *finder.learn(bull_scene(2), [[20, 20, 32, 32]], False)]


def test_any_history_equals_the_final_set_counted_anew(records, rng):
    finder = bull_finder()
    finder.learn_patches(rng.integers(0, 256, (9, 12, 12), dtype=np.uint8), np.arange(9) % 2 == 0, 3)
    counts = finder.only.total
    for _ in range(30):
        there = finder.records
        remove = [record for record in there if rng.random() < 0.5]
        finder.only.replace_records([record for record in records if rng.random() < 0.3], remove)
        anew = Detector.from_base(finder.base, counts, records=finder.records)
        assert content(finder) == content(anew)
        for ours, theirs in zip(finder.only.total.stages, anew.only.total.stages, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert one.n == other.n
                np.testing.assert_array_equal(one.s, other.s)
                np.testing.assert_array_equal(one.C, other.C)
        for one, other in zip(finder.model.cascade.stages, anew.model.cascade.stages, strict=True):
            assert one.threshold == other.threshold
            assert one.coef.tobytes() == other.coef.tobytes()


def test_all_taken_out_is_the_base_byte_for_byte(records):
    finder = bull_finder()
    finder.only.replace_records(records)
    assert content(finder) != content(bull_finder())
    finder.only.replace_records(remove=records)
    assert content(finder) == content(bull_finder())
    assert finder.model is finder.base.model


def test_a_record_in_both_is_kept_and_one_that_is_not_learned_changes_nothing(records):
    finder = bull_finder()
    finder.add(records[:3])
    finder.only.replace_records(records[1:4], records[:2])
    assert {record.id for record in finder.records} == {record.id for record in records[1:4]}
    before = content(finder)
    with pytest.raises(RecordError, match="not learned"):
        finder.only.replace_records(records[5:6], records[:1])
    assert content(finder) == before


def test_examples_are_refused_where_no_weights_follow_from_them(records):
    finder = bull_finder()
    stages = tuple(replace(stage.run(), counts=stage.statistics) for stage in finder.base.model.stages)
    fixed = DetectorBase(CascadeModel(finder.window, stages))
    example = replace(next(record for record in records if record.kind == "example"), base_id=fixed.base_id)
    adopted = Detector.from_base(fixed)
    for change in (adopted.add, adopted.only.replace_records):
        with pytest.raises(CannotLearnError, match="examples"):
            change([example])
    assert not adopted.records
