import json
import os
import struct
from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import WINDOW, base, detector, from_bytes, learn, mixed_detector, patches, to_bytes, unlearn

from whet.detector.base import DetectorBase, Provenance, Reporting
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import CannotUnlearnError, ModelFileError
from whet.images.boxes import BoxOffset
from whet.io import files as atomic_file
from whet.lda.thresholds import Asymmetric, Rate
from whet.models.gslda.cascade import LearningStage
from whet.models.gslda.cascade_model import CascadeModel


def taught(n=60, seed=1, **options):
    made = detector(**options)
    learn(made, *patches(n, np.random.default_rng(seed)))
    return made


def with_offset():
    points = {"careful": 4.5, "at most one in ten": 1e-300}
    return Detector.from_base(base(), reporting=Reporting(BoxOffset(-0.1, 0.0, 1.1, 1.2), points))


DETECTORS = {
    "box offset": with_offset,
    "untaught": detector,
    "taught": taught,
    "lac": lambda: taught(criterion="lac"),
    "soft": lambda: taught(soft=True),
    "fixed stages": mixed_detector,
}


def header_of(data):
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size])


@pytest.mark.parametrize("make", DETECTORS.values(), ids=DETECTORS)
def test_save_then_load_is_the_identity(make, tmp_path):
    original = make()
    original.save(tmp_path / "a.whet")
    loaded = load(tmp_path / "a.whet")
    loaded.save(tmp_path / "b.whet")
    assert (tmp_path / "a.whet").read_bytes() == (tmp_path / "b.whet").read_bytes()
    assert loaded.base.base_id == original.base.base_id
    assert loaded.base.provenance == original.base.provenance
    assert loaded.reporting == original.reporting
    for ours, theirs in zip(original.model.cascade.stages, loaded.model.cascade.stages, strict=True):
        np.testing.assert_array_equal(ours.coef, theirs.coef)
        assert ours.threshold == theirs.threshold
        np.testing.assert_array_equal(ours.rejection_thresholds, theirs.rejection_thresholds)
    X = np.random.default_rng(2).integers(0, 256, (300, *WINDOW), dtype=np.uint8)
    np.testing.assert_array_equal(loaded.model.cascade.scores(X), original.model.cascade.scores(X))


def test_the_asymmetric_rule_is_kept():
    stage = base().model.stages[0]
    rule = Asymmetric(Rate(-1.25))
    asymmetric = LearningStage(stage.features, stage.weak, stage.positive, stage.negative, rule, ridge=3)
    loaded = from_bytes(to_bytes(Detector.from_base(DetectorBase(CascadeModel(WINDOW, (asymmetric,))))))
    assert loaded.base.model.stages[0].rule == rule
    assert loaded.base.model.stages[0].ridge == 3.0


def test_learning_after_loading_equals_learning_without_loading():
    X, y = patches(80, np.random.default_rng(4))
    straight = detector()
    learn(straight, X, y)
    detour = detector()
    learn(detour, X[:30], y[:30])
    detour = from_bytes(to_bytes(detour))
    learn(detour, X[30:], y[30:])
    assert to_bytes(detour) == to_bytes(straight) != to_bytes(detector())


def test_learn_then_unlearn_gives_the_same_file():
    X, y = patches(50, np.random.default_rng(5))
    one = taught()
    before = to_bytes(one)
    learn(one, X, y, weights=3)
    assert to_bytes(one) != before
    reloaded = from_bytes(to_bytes(one))
    unlearn(reloaded, X, y, weights=3)
    assert to_bytes(reloaded) == before


def test_unlearning_all_gives_the_file_of_the_base():
    one = taught()
    unlearn(one, *patches(60, np.random.default_rng(1)))
    assert to_bytes(one) == to_bytes(detector())


def test_a_loaded_detector_still_refuses_what_it_never_learned():
    loaded = from_bytes(to_bytes(taught()))
    with pytest.raises(CannotUnlearnError):
        unlearn(loaded, *patches(60, np.random.default_rng(1)), weights=10_000)


def test_merged_files_are_the_file_that_saw_both():
    X, y = patches(90, np.random.default_rng(6))
    a, b, both = detector(), detector(), detector()
    learn(a, X[:40], y[:40])
    learn(b, X[40:], y[40:])
    learn(both, X, y)
    a, b = from_bytes(to_bytes(a)), from_bytes(to_bytes(b))
    a_first = a.copy()
    a_first.merge(b)
    b.merge(a)
    assert to_bytes(a_first) == to_bytes(b) == to_bytes(both)


def test_what_was_not_learned_is_not_written():
    untaught, one = detector(), detector()
    X, y = patches(20, np.random.default_rng(8))
    learn(one, X[y], y[y])
    names, names_one = set(header_of(to_bytes(untaught))), set(header_of(to_bytes(one)))
    assert names_one - names == {f"model.stage{i:03d}.learned.positive" for i in range(3)}


def test_counts_take_the_smallest_type_that_holds_them():
    one = detector()
    X, y = patches(2, np.random.default_rng(9))
    for weight, dtype in ((255, "U8"), (1, "U16"), (65_280, "U32")):
        learn(one, X[:1], y[:1], weight)
        assert header_of(to_bytes(one))["model.stage000.learned.positive"]["dtype"] == dtype
        np.testing.assert_array_equal(
            from_bytes(to_bytes(one)).only.total.stages[0][0].C, one.only.total.stages[0][0].C
        )


def test_the_file_holds_no_path():
    with pytest.raises(ValueError, match="path of one machine"):
        Provenance(command="whet train --faces=/data/faces")
    assert Provenance(command="whet train faces/2024", data="https://example.org/a").data


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.whet"
    detector().save(path)
    before = path.read_bytes()

    def fail(_):
        raise OSError("disk full")

    monkeypatch.setattr(atomic_file.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        taught().save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.whet"]


def test_a_link_to_a_file_stays_one(tmp_path):
    detector().save(tmp_path / "a.whet")
    (tmp_path / "link.whet").symlink_to("a.whet")
    taught().save(tmp_path / "link.whet")
    assert (tmp_path / "link.whet").is_symlink()
    assert (tmp_path / "a.whet").read_bytes() == to_bytes(taught())


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.whet")


def test_facts_in_another_order_are_the_same_file():
    made = [
        Detector.from_base(DetectorBase(base().model, Provenance(facts=dict(facts))))
        for facts in ([("seed", 1), ("hours", 2)], [("hours", 2), ("seed", 1)])
    ]
    assert to_bytes(made[0]) == to_bytes(made[1])


def test_operating_points_in_another_order_are_the_same_file():
    made = [
        Detector.from_base(base(), reporting=Reporting(operating_points=dict(points)))
        for points in ([("a", 1.0), ("b", 2.0)], [("b", 2.0), ("a", 1.0)])
    ]
    assert to_bytes(made[0]) == to_bytes(made[1])


def test_the_mean_positive_travels_and_is_no_part_of_the_id():
    plain = base()
    mean = np.arange(80, dtype=np.uint8).reshape(plain.window)
    seen = from_bytes(to_bytes(Detector.from_base(replace(plain, mean_positive=mean))))
    assert np.array_equal(seen.base.mean_positive, mean)
    assert seen.base.base_id == plain.base_id
    with pytest.raises(ValueError, match="mean positive"):
        replace(plain, mean_positive=mean.T.copy())


def test_class_and_training_images_travel_and_are_no_part_of_the_id():
    plain = base()
    known = replace(
        plain,
        provenance=plain.provenance.with_class("van"),
        training_images=np.array([3, 2**32 - 1], np.uint32),
    )
    seen = from_bytes(to_bytes(Detector.from_base(known)))
    assert seen.class_name == "van"
    assert np.array_equal(seen.base.training_images, known.training_images)
    assert seen.base_id == plain.base_id
    assert to_bytes(Detector.from_base(replace(known, provenance=plain.provenance, training_images=None))) == to_bytes(
        Detector.from_base(plain)
    )
    for wrong in ([3, 3], [3, 2], [[3]]):
        with pytest.raises(ValueError, match="training images"):
            replace(plain, training_images=np.array(wrong, np.uint32))
    assert Provenance().with_class("/home/ada").class_name is None


@pytest.mark.parametrize(
    ("text", "says"), [("annotations = 'a.csv'\n", "text"), ("<?xml version='1.0'?>\n<a/>", "suffix .xml")]
)
def test_a_text_file_is_said_to_be_one(text, says, tmp_path):
    (tmp_path / "a.whet").write_text(text)
    with pytest.raises(ModelFileError, match=says):
        load(tmp_path / "a.whet")
