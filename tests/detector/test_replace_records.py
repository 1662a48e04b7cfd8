"""Replacing records counts the difference only, and equals counting the whole set."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.detector.base import DetectorBase
from whet.detector.corrections import example_record
from whet.detector.detector import Detector
from whet.detector.records import image_hash
from whet.errors import CannotLearnError, RecordError


@pytest.fixture(scope="module")
def records():
    """Examples of both classes and of several weights, and a correction."""
    finder, scene = bull_finder(), bull_scene()
    pyramid, rng, made = Pyramid.from_image(scene, finder.window), np.random.default_rng(3), []
    for number in range(24):
        index = WindowIndex(np.ones(1), rng.integers(100, size=1), rng.integers(150, size=1))
        box, patch = pyramid.boxes(index)[0], pyramid.patches(index)
        record = example_record(finder.base, image_hash(scene), box, index, patch, number % 3 == 0, 1 + 7 * number)
        made += [] if record is None else [record]
    return [*made, *finder.learn(bull_scene(2), [[20, 20, 32, 32]], False)]


def test_any_history_equals_the_final_set_counted_anew(records, rng):
    finder = bull_finder()
    finder.learn_patches(rng.integers(0, 256, (9, 12, 12), dtype=np.uint8), np.arange(9) % 2 == 0, 3)
    counts = finder.delta
    for _ in range(30):
        there = finder.records
        remove = [record for record in there if rng.random() < 0.5]
        finder.replace_records([record for record in records if rng.random() < 0.3], remove)
        anew = Detector(finder.base, counts, records=finder.records)
        assert content(finder) == content(anew)
        for ours, theirs in zip(finder.delta.stages, anew.delta.stages, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert one.n == other.n
                np.testing.assert_array_equal(one.s, other.s)
                np.testing.assert_array_equal(one.C, other.C)
        for one, other in zip(finder.cascade.stages, anew.cascade.stages, strict=True):
            assert one.threshold == other.threshold
            assert one.coef.tobytes() == other.coef.tobytes()


def test_all_taken_out_is_the_base_byte_for_byte(records):
    finder = bull_finder()
    finder.replace_records(records)
    assert content(finder) != content(bull_finder())
    finder.replace_records(remove=records)
    assert content(finder) == content(bull_finder())
    assert finder.cascade is finder.base.cascade


def test_a_record_in_both_is_kept_and_one_that_is_not_learned_changes_nothing(records):
    finder = bull_finder()
    finder.add(records[:3])
    finder.replace_records(records[1:4], records[:2])
    assert {record.id for record in finder.records} == {record.id for record in records[1:4]}
    before = content(finder)
    with pytest.raises(RecordError, match="not learned"):
        finder.replace_records(records[5:6], records[:1])
    assert content(finder) == before


def test_examples_are_refused_where_no_weights_follow_from_them(records):
    finder = bull_finder()
    fixed = DetectorBase(
        finder.window, tuple(replace(stage.run(), counts=stage.statistics) for stage in finder.base.stages)
    )
    example = replace(next(record for record in records if record.kind == "example"), base_id=fixed.base_id)
    adopted = Detector(fixed)
    for change in (adopted.add, adopted.replace_records):
        with pytest.raises(CannotLearnError, match="examples"):
            change([example])
    assert not adopted.records
