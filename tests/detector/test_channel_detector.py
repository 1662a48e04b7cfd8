"""Channel detectors in files, in detection, and where they are refused."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load as parse
from tests.channels import colourful, random_detector, random_trees
from tests.security.test_model_file_attacks import closed, opened

from whet.detector.detector import Detector
from whet.errors import CannotExportError, ModelFileError


@pytest.fixture(scope="module")
def image():
    return colourful((90, 110), np.random.default_rng(0))


def test_a_saved_detector_is_the_same_detector(tmp_path, image):
    detector = random_detector()
    detector.save(tmp_path / "trees.whet")
    again = Detector.from_bytes((tmp_path / "trees.whet").read_bytes())
    assert again.base_id == detector.base_id
    assert again.to_bytes() == detector.to_bytes()
    assert np.array_equal(again.detect(image).to_array(), detector.detect(image).to_array())
    assert len(detector.detect(image))


def test_the_id_depends_on_every_array():
    assert len({random_detector(seed).base_id for seed in range(3)}) == 3


def test_colour_order_matters_and_files_are_read_in_colour(tmp_path, image):
    from PIL import Image

    detector = random_detector()
    Image.fromarray(image).save(tmp_path / "image.png")
    expected = detector.detect(image).to_array()
    assert np.array_equal(detector.detect(tmp_path / "image.png").to_array(), expected)
    assert np.array_equal(detector.detect(image[..., ::-1], color="bgr").to_array(), expected)
    assert not np.array_equal(detector.detect(image[..., ::-1]).to_array(), expected)


def test_smaller_objects_are_found_by_default_where_the_model_says_so(image):
    detector = random_detector()
    sizes = detector.detect(image, grouping=None).boxes
    assert (sizes[:, 3] - sizes[:, 1]).min() < 0.6 * detector.window[0]


def test_sizes_beyond_what_a_detector_finds_give_nothing_and_its_own_least_size_is_kept_within_them(image):
    detector = random_detector()
    assert len(detector.detect(image, max_size=3)) == 0
    tiny = Detector.from_base(detector.base, reporting=replace(detector.reporting, min_size=1e-9))
    assert len(tiny.detect(image)) >= len(detector.detect(image)) > 0


@pytest.mark.parametrize(("name", "value", "says"), [("channel", 40, "channel 40"), ("y", 6, "y 6"), ("x", 5, "x 5")])
def test_cells_outside_of_the_window_are_refused(name, value, says):
    header, tensors = opened(random_detector().to_bytes())
    tensors[f"model.{name}"][3, 1] = value
    with pytest.raises(ModelFileError, match=says):
        Detector.from_bytes(closed(header, tensors))


def test_parts_of_trees_are_refused():
    header, tensors = opened(random_detector().to_bytes())
    tensors["model.votes"] = np.ascontiguousarray(tensors["model.votes"].ravel()[:-1])
    with pytest.raises(ModelFileError, match="votes"):
        Detector.from_bytes(closed(header, tensors))
    model = random_trees()
    with pytest.raises(ValueError, match="4 for each"):
        replace(model, threshold=model.threshold[1:], channel=model.channel[1:], y=model.y[1:], x=model.x[1:])
    with pytest.raises(ValueError, match=r"expected .30, 3. of each"):
        replace(model, channel=model.channel[1:])


def test_rejection_inside_of_a_tree_is_refused():
    """A file has one limit for each tree; a model refuses others."""
    model = random_trees()
    limits = model.votes.limits.copy()
    limits[5] = 0.5
    with pytest.raises(ValueError, match="whole trees"):
        replace(model, votes=replace(model.votes, limits=limits))
    header, tensors = opened(random_detector().to_bytes())
    tensors["model.limits"] = model.votes.limits
    with pytest.raises(ModelFileError, match=r"limits|channel"):
        Detector.from_bytes(closed(header, tensors))


def test_a_window_of_parts_of_cells_is_refused():
    header, tensors = opened(random_detector().to_bytes())
    header["window"] = [22, 20]
    with pytest.raises(ModelFileError, match="multiples of 4"):
        Detector.from_bytes(closed(header, tensors))


@pytest.mark.parametrize("min_size", [0.0, -3.0, float("nan"), "12"])
def test_a_smallest_size_that_is_none_is_refused(min_size):
    data = random_detector().to_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["whet"])
    header["min_size"] = min_size
    with pytest.raises(ModelFileError):
        Detector.from_bytes(closed(header, parse(data)))


def test_files_of_other_detectors_have_no_smallest_size():
    from whet.detector.storage import load

    assert b"min_size" not in load("face").to_bytes()


def test_trees_vote_in_one_stage():
    model = random_trees()
    two = replace(model.votes, ends=np.array([60, 120]))
    with pytest.raises(ValueError, match="votes"):
        replace(model, votes=two)


def test_opencv_has_no_format_for_trees_on_channels(tmp_path):
    with pytest.raises(CannotExportError, match="haar or lbp"):
        random_detector().export_opencv(tmp_path / "trees.xml")


def test_windows_without_their_channels_are_refused():
    with pytest.raises(ValueError, match="got cells"):
        random_trees().respond(np.zeros((2, 24, 20), np.uint8))
