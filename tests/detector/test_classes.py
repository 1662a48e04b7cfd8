"""Several classes in one model: each finds and learns what its detector would by itself, and files hold all."""

from dataclasses import replace

import numpy as np
import pytest
from tests.channels import colourful, random_detector
from tests.detectors import bull_finder, bull_scene, judged_finder

import whet
from whet.detector import edit
from whet.detector.base import Provenance
from whet.detector.detector import Detector
from whet.detector.storage import class_in_file
from whet.errors import (
    CannotMergeError,
    DetectorNotFoundError,
    ModelChangedError,
    ModelFileError,
    SeveralClassesError,
    UnknownClassError,
    WhetError,
)
from whet.images import pyramid as pyramids
from whet.images.detections import Detections


@pytest.fixture(scope="module")
def image():
    return colourful((90, 110), np.random.default_rng(0))


@pytest.fixture
def signs():
    return Detector({"stop": random_detector(0).shapes(), "yield": random_detector(1).shapes()})


def test_each_class_has_the_detections_of_its_own_detector(signs, image):
    found = signs.detect(image)
    for name in signs.classes:
        assert np.array_equal(found.of_class(name).to_array(), signs.select(name).detect(image).to_array())
        assert len(found.of_class(name))
    assert set(found.labels) == {"stop", "yield"}
    assert (np.diff(found.scores) <= 0).all()


def test_grey_and_colour_detectors_go_together():
    both = Detector({"bull": bull_finder().shapes(), "sign": random_detector().shapes()})
    scene = np.repeat(bull_scene()[..., None], 3, axis=2)
    for name in both.classes:
        expected = both.select(name).detect(scene).to_array()
        assert np.array_equal(both.detect(scene).of_class(name).to_array(), expected)


def test_channels_are_computed_once(signs, image, monkeypatch):
    made = []
    level_at = pyramids.level_at
    monkeypatch.setattr(pyramids, "level_at", lambda *args: made.append(args[1]) or level_at(*args))
    signs.detect(image)
    assert len(made) == len(set(made))
    together = len(made)
    for name in signs.classes:
        signs.select(name).detect(image)
    assert len(made) - together == 2 * together


def test_windows_and_groups_are_those_of_the_detections(signs, image):
    found = signs.detect(image)
    alone = signs.select("yield").detect(image)
    first = found.labels.index("yield")
    expected = alone.windows.boxes[alone.windows_of(0)]
    assert np.array_equal(found.windows.boxes[found.windows_of(first)], expected)


def test_options_hold_for_all_classes(signs, image):
    assert len(signs.detect(image, max_detections=3)) == 3
    assert signs.detect(image, max_detections=3).scores.tolist() == signs.detect(image).scores[:3].tolist()
    assert np.array_equal(signs.detect(image[..., ::-1], color="bgr").to_array(), signs.detect(image).to_array())
    assert [len(one) for one in signs.detect([image, image], threads=1)] == [len(signs.detect(image))] * 2


def test_a_correction_touches_one_class_only(signs, image):
    before = signs.select("yield").to_bytes()
    box = signs.select("stop").detect(image).boxes[:1]
    learned = signs.learn(image, box, False, class_name="stop")
    assert signs.select("yield").to_bytes() == before
    assert len(signs.select("stop").records) == 1
    signs.select("stop").unlearn(learned)
    assert signs.select("stop").records == []


def test_a_class_that_is_not_there_is_named(signs, image):
    with pytest.raises(UnknownClassError, match="unknown class 'go'; classes: stop, yield"):
        signs.learn(image, [[0, 0, 9, 9]], False, class_name="go")
    with pytest.raises(ValueError, match="0 classes"):
        Detector({})


def test_files_hold_all_classes_and_one_of_them_can_be_loaded_changed_and_saved(signs, image, tmp_path):
    path = tmp_path / "signs.whet"
    signs.save(path)
    again = whet.load(path)
    assert again.to_bytes() == signs.to_bytes()
    assert again.classes == ("stop", "yield")
    stop = whet.load(f"{path}:stop")
    stop.learn(image, stop.detect(image).boxes[:1], False)
    stop.save(f"{path}:stop")
    after = whet.load(path)
    assert len(after.select("stop").records) == 1
    assert after.select("yield").to_bytes() == signs.select("yield").to_bytes()
    with pytest.raises(ModelChangedError):
        again.save(path)
    with edit(f"{path}:yield") as detector:
        detector.set_operating_point("careful", 3.0)
    assert whet.load(path).select("yield").operating_points["careful"] == 3.0
    assert len(whet.load(path).select("stop").records) == 1


def test_a_file_of_several_classes_is_no_single_detector(signs, tmp_path):
    path = tmp_path / "signs.whet"
    signs.save(path)
    with pytest.raises(SeveralClassesError, match=r"stop, yield; name one of them, such as '.*signs.whet:stop'"):
        _ = whet.load(path).only
    with pytest.raises(UnknownClassError, match="classes: stop, yield"):
        whet.load(f"{path}:go")
    with pytest.raises(DetectorNotFoundError):
        whet.load(f"{tmp_path / 'none.whet'}:stop")
    with pytest.raises(DetectorNotFoundError, match="no such file"):
        signs.select("stop").save(f"{tmp_path / 'none.whet'}:stop")


def test_one_class_is_loaded_from_a_file_of_one(tmp_path):
    bull_finder().save(tmp_path / "bull.whet")
    assert whet.load(tmp_path / "bull.whet").classes == ("object",)
    assert class_in_file("a/b.whet:road sign")[1] == "road sign"
    assert class_in_file("a/b.whet")[1] is None


def test_every_flipped_bit_of_the_header_is_noticed(signs):
    data = signs.to_bytes()
    size = int.from_bytes(data[:8], "little")
    rng = np.random.default_rng(0)
    for place in [*range(8, 8 + size, 3), *rng.integers(8 + size, len(data), 20).tolist()]:
        broken = bytearray(data)
        broken[place] ^= 1 << int(rng.integers(8))
        try:
            loaded = Detector.from_bytes(bytes(broken))
        except ModelFileError:
            continue
        assert loaded.to_bytes() == data  # white space, or the like


def test_truncated_files_are_refused(signs):
    data = signs.to_bytes()
    for n in (0, 7, 100, len(data) - 1):
        with pytest.raises(ModelFileError):
            Detector.from_bytes(data[:n])


def test_copies_are_merged_class_by_class(signs, image):
    one, two = signs.copy(), signs.copy()
    one.learn(image, one.select("stop").detect(image).boxes[:1], False, class_name="stop")
    two.learn(image, two.select("yield").detect(image).boxes[:1], False, class_name="yield")
    one.merge(two)
    assert [len(one.select(name).records) for name in one.classes] == [1, 1]
    with pytest.raises(CannotMergeError, match="'stop'"):
        one.merge(Detector({"stop": random_detector(5).shapes(), "yield": random_detector(1).shapes()}))


def test_detections_of_classes_become_coco_and_supervision(signs, image):
    found = signs.detect(image, max_detections=4)
    rows = found.to_coco(image_id=3, category_id=5)
    assert [row["category_id"] - 5 for row in rows] == found.class_ids.tolist()
    pytest.importorskip("supervision")
    theirs = found.to_supervision()
    assert theirs.data["class_name"].tolist() == found.labels
    assert theirs.class_id.tolist() == found.class_ids.tolist()


def test_detections_without_classes_have_no_labels():
    found = Detections.from_boxes([[0, 0, 5, 5]])
    assert found.labels == [""]
    assert len(Detections.from_classes({"a": Detections(), "b": Detections()})) == 0
    with pytest.raises(ValueError, match="class_ids"):
        Detections(found.boxes, found.scores, class_ids=np.zeros(2, np.intp))


def test_errors_of_classes_are_errors_of_whet():
    assert issubclass(UnknownClassError, WhetError)
    assert str(UnknownClassError("no class")) == "no class"


def test_a_detector_of_one_class_does_not_replace_a_file_of_several(signs, tmp_path):
    path = tmp_path / "signs.whet"
    signs.save(path)
    stop = whet.load(f"{path}:stop")
    with pytest.raises(SeveralClassesError, match="also has the classes yield"):
        stop.save(path)
    with pytest.raises(UnknownClassError, match="unknown class 'sotp'"):
        stop.save(f"{path}:sotp")
    assert whet.load(path).to_bytes() == signs.to_bytes()


def test_a_class_of_a_loaded_model_is_not_saved_over_the_changes_of_another_writer(signs, image, tmp_path):
    path = tmp_path / "signs.whet"
    signs.save(path)
    loaded = whet.load(path)
    with edit(f"{path}:yield") as other:
        other.learn(image, other.detect(image).boxes[:1], False)
    with pytest.raises(ModelChangedError):
        loaded.select("stop").save(f"{path}:stop")


def test_a_model_and_its_classes_are_saved_in_turn(signs, image, tmp_path):
    path = tmp_path / "signs.whet"
    signs.save(path)
    loaded = whet.load(path)
    stop = loaded.select("stop")
    for model, where in ((loaded, path), (stop, f"{path}:stop"), (loaded, path)):
        stop.learn(image, stop.detect(image).boxes[:1], False)
        model.save(where)
        assert whet.load(path).to_bytes() == loaded.to_bytes()
    stop.save(tmp_path / "stop.whet")
    with edit(f"{path}:yield") as other:
        other.learn(image, other.detect(image).boxes[:1], False)
    for model, where in ((loaded, path), (stop, f"{path}:stop")):
        with pytest.raises(ModelChangedError):
            model.save(where)


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a:b", "..", " ", "a\nb", 3])
def test_names_that_no_path_can_have_are_refused(name):
    with pytest.raises(ValueError, match="class name"):
        Detector({name: random_detector().shapes()})


def test_a_class_may_be_called_like_a_file(signs, tmp_path):
    Detector({"stop.xml": signs.shapes("stop"), "a b": signs.shapes("yield")}).save(tmp_path / "odd.whet")
    assert whet.load(f"{tmp_path / 'odd.whet'}:stop.xml").base_id == signs.select("stop").base_id
    assert whet.load(f"{tmp_path / 'odd.whet'}:a b").base_id == signs.select("yield").base_id


def test_probabilities_are_those_of_each_class():
    both = Detector({"bull": judged_finder().shapes(), "other": random_detector().shapes()})
    found = both.detect(bull_scene(), min_score=-np.inf)
    alone = judged_finder().detect(bull_scene(), min_score=-np.inf)
    assert np.array_equal(found.of_class("bull").probabilities, alone.probabilities)
    assert np.isnan(found.of_class("other").probabilities).all()


def test_classes_that_only_one_of_two_models_has_are_not_merged(signs):
    with pytest.raises(CannotMergeError, match="'third'"):
        signs.merge(
            Detector({**{name: signs.shapes(name) for name in signs.classes}, "third": random_detector(7).shapes()})
        )


def test_the_class_of_a_file_of_one_may_be_named(tmp_path):
    named = replace(bull_finder().base, provenance=Provenance().with_class("bull"))
    path = tmp_path / "bull.whet"
    Detector.from_base(named).save(path)
    again = whet.load(f"{path}:bull")
    again.set_operating_point("careful", 2.0)
    again.save(f"{path}:bull")
    assert whet.load(path).operating_points == {"careful": 2.0}
    with pytest.raises(UnknownClassError, match="classes: bull"):
        whet.load(f"{path}:cow")


def test_several_classes_are_not_evaluated_at_once(signs):
    with pytest.raises(SeveralClassesError, match="stop, yield; name one"):
        whet.evaluate(signs, [])
