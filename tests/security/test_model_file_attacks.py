"""Model files from somebody else: whatever they hold, the answer is a sound detector or a ModelFileError."""

import io
import json
import os
import pickle
import struct
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load as parse
from safetensors.numpy import save as serialise
from tests.cascades import random_cascade
from tests.detectors import detector, from_bytes, learn, mixed_detector, patches, to_bytes

from whet.detector import model_file
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector, load
from whet.detector.model_file import read_model
from whet.errors import ModelFileError


@pytest.fixture(scope="module")
def sound():
    made = detector()
    learn(made, *patches(40, np.random.default_rng(1)))
    return to_bytes(made)


def opened(data):
    """Header and arrays of a file, free to be changed."""
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["whet"]), parse(data)


def closed(header, tensors):
    return serialise(tensors, {"whet": header if isinstance(header, str) else json.dumps(header)})


def with_header_changed(data, attack):
    header, tensors = opened(data)
    attack(header)
    return closed(header, tensors)


def with_arrays_changed(data, attack):
    header, tensors = opened(data)
    tensors = {name: array.copy() for name, array in tensors.items()}
    attack(tensors)
    return closed(header, tensors)


def raw(header, body=b""):
    """A file with any bytes for safetensors' own header."""
    return struct.pack("<Q", len(header)) + header + body


def test_a_file_can_be_opened_and_closed_without_harm(sound):
    assert to_bytes(from_bytes(closed(*opened(sound)))) == sound  # else the attacks below would prove nothing


def test_a_file_cut_short_anywhere(sound):
    for length in [*range(0, len(sound), 50), len(sound) - 1]:
        with pytest.raises(ModelFileError, match="not a whole safetensors file"):
            from_bytes(sound[:length])


def test_a_file_with_something_behind_its_end(sound):
    with pytest.raises(ModelFileError, match="not a whole safetensors file"):
        from_bytes(sound + b"\0")


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(sound):
    """Counts that were learned are not hashed: a flip there may give other counts, but never a crash."""
    rng = np.random.default_rng(0)
    n_refused = 0
    for at in rng.choice(len(sound), 400, replace=False):
        flipped = bytearray(sound)
        flipped[at] ^= 1 << rng.integers(8)
        try:
            assert from_bytes(bytes(flipped)).cascade.n_weak == 19
        except ModelFileError:
            n_refused += 1
    assert n_refused > 200


def png():
    file = io.BytesIO()
    Image.new("L", (20, 20)).save(file, "PNG")
    return file.getvalue()


class Exploit:
    def __reduce__(self):
        return os.abort, ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 64,
        png(),
        pickle.dumps(Exploit()),
        b"<opencv_storage></opencv_storage>",
        raw(b"[]"),
        raw(b"{}"),
        raw(b'{"__metadata__": 3}'),
        raw(b"not json"),
        raw(b"[" * 100_000),
        serialise({"x": np.zeros(3)}),
        serialise({}, {"whet": "3"}),
        struct.pack("<Q", 2**63) + b"{}",
        raw(b'{"a":{"dtype":"U8","shape":[9223372036854775807,9],"data_offsets":[0,1]}}', b"\0"),
        raw(b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', b"\0\0"),
    ],
    ids=range(16),
)
def test_a_file_of_another_kind(data):
    with pytest.raises(ModelFileError):
        from_bytes(data)


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", '"x"', "[" * 100_000, '{"format": 1e', "1" * 5000, '{"version": 1}']
)
def test_a_header_that_is_no_header(text, sound):
    with pytest.raises(ModelFileError, match=r"JSON|of another kind"):
        from_bytes(closed(text, opened(sound)[1]))


HEADER_ATTACKS = {
    "later version": (lambda h: h.update(version=2), "format version 2, this whet reads 1: update whet"),
    "version of another type": (lambda h: h.update(version=True), "format version"),
    "other format": (lambda h: h.update(format="x"), "of another kind"),
    "missing key": (lambda h: h.pop("min_sigma"), "lacks .'min_sigma'"),
    "unknown key": (lambda h: h.update(exec="rm"), "unknown .'exec'"),
    "no stages": (lambda h: h.update(stages=[]), "does not belong"),
    "stages of another type": (lambda h: h.update(stages={}), "no list"),
    "a stage of another type": (lambda h: h["stages"].__setitem__(1, 7), "stage 1 is 7"),
    "small window": (lambda h: h.update(window=[2, 8]), "not inside the window|at least 3 x 3"),
    "huge window": (lambda h: h.update(window=[30_000, 30_000]), "at least 3 x 3, and"),
    "negative window": (lambda h: h.update(window=[-10, 8]), "whole number from 0"),
    "fractional window": (lambda h: h.update(window=[10.0, 8]), "whole number"),
    "window of one number": (lambda h: h.update(window=[10]), "two whole numbers"),
    "deep window": (lambda h: h.update(window=json.loads("[" * 900 + "]" * 900)), "two whole numbers|recursion"),
    "deep sigma": (lambda h: h.update(min_sigma=json.loads("[" * 900 + "]" * 900)), "finite number|recursion"),
    "NaN sigma": (lambda h: h.update(min_sigma=float("nan")), "finite"),
    "negative sigma": (lambda h: h.update(min_sigma=-1), "above 0"),
    "text for sigma": (lambda h: h.update(min_sigma="10"), "finite number"),
    "huge sigma": (lambda h: h.update(min_sigma=10**400), "finite number"),
    "no frame": (lambda h: h.pop("frame"), "lacks .'frame'"),
    "frame of another type": (lambda h: h.update(frame={"left": 0}), "frame: expected four numbers"),
    "frame of three": (lambda h: h.update(frame=[0, 0, 1]), "frame: expected four numbers"),
    "NaN frame": (lambda h: h.update(frame=[0, 0, float("nan"), 1]), "a side of the frame is nan"),
    "infinite frame": (lambda h: h.update(frame=[0, 0, float("inf"), 1]), "a side of the frame is inf"),
    "text in the frame": (lambda h: h.update(frame=[0, 0, "1", 1]), "a side of the frame is '1'"),
    "true in the frame": (lambda h: h.update(frame=[0, 0, True, 1]), "a side of the frame is True"),
    "frame of many digits": (lambda h: h.update(frame=[0, 0, 10**400, 1]), "a side of the frame is 1000"),
    "empty frame": (lambda h: h.update(frame=[0, 0, 0, 1]), "expected left < right"),
    "frame turned round": (lambda h: h.update(frame=[0, 1, 1, 0]), "expected left < right"),
    "far frame": (lambda h: h.update(frame=[0, 0, 1, 3.01]), "from -2 to 3"),
    "frame far above": (lambda h: h.update(frame=[0, -1e308, 1, 1]), "from -2 to 3"),
    "no operating points": (lambda h: h.pop("operating_points"), "lacks .'operating_points'"),
    "operating points of another type": (lambda h: h.update(operating_points=[1.0]), "expected a JSON object"),
    "NaN operating point": (lambda h: h.update(operating_points={"a": float("nan")}), "operating point 'a' is nan"),
    "infinite operating point": (lambda h: h.update(operating_points={"a": float("inf")}), "operating point 'a'"),
    "operating point in words": (lambda h: h.update(operating_points={"a": "1"}), "operating point 'a' is '1'"),
    "nameless operating point": (lambda h: h.update(operating_points={"": 1.0}), "1 to 100 characters"),
    "long name": (lambda h: h.update(operating_points={"a" * 10**6: 1.0}), "1 to 100 characters"),
    "name that moves the cursor": (lambda h: h.update(operating_points={"a\x1b[2J": 1.0}), "can be printed"),
    "many operating points": (lambda h: h.update(operating_points=dict.fromkeys(map(str, range(101)), 1.0)), "at most"),
    "other id": (lambda h: h.update(base_id="0" * 64), "damaged or altered"),
    "id of another type": (lambda h: h.update(base_id=None), "no text"),
    "absolute path": (lambda h: h["provenance"].update(command="whet /etc/passwd"), "path of one machine"),
    "provenance of another type": (lambda h: h["provenance"].update(goals=[1]), "JSON object"),
    "nested provenance": (lambda h: h["provenance"]["facts"].update(a=[1]), "finite numbers"),
    "infinite fact": (lambda h: h["provenance"]["facts"].update(a=float("inf")), "finite numbers"),
    "unknown family": (lambda h: h["stages"][0].update(family="hog"), "feature family of stage 0"),
    "family of another type": (lambda h: h["stages"][0].update(family=[]), "feature family of stage 0"),
    "another family": (lambda h: h["stages"][0].update(family="lbp"), "array"),
    "no weak learners": (lambda h: h["stages"][0].update(n_weak=0), "from 1 to"),
    "other number of weak learners": (lambda h: h["stages"][0].update(n_weak=6), "by the header expected"),
    "too many weak learners": (lambda h: h["stages"][0].update(n_weak=10**9), "from 1 to 2000"),
    "too many in all": (lambda h: h["stages"].extend([h["stages"][0] | {"n_weak": 2000}] * 9), "in all"),
    "unknown criterion": (lambda h: h["stages"][0].update(criterion="pca"), "'fda', 'lac'"),
    "infinite ridge": (lambda h: h["stages"][0].update(ridge=float("inf")), "finite"),
    "negative ridge": (lambda h: h["stages"][0].update(ridge=-1), "ridge"),
    "NaN rule": (lambda h: h["stages"][0].update(z=float("nan")), "finite"),
    "unknown rule": (lambda h: h["stages"][0].update(rule="eval"), "rule of stage 0"),
    "no positives": (lambda h: h["stages"][0].update(positives=0), "no samples can have it"),
    "negative count": (lambda h: h["stages"][0].update(positives=-1), "whole number from 0"),
    "overflowing count": (lambda h: h["stages"][0].update(positives=2**52), "whole number from 0"),
    "count of many digits": (lambda h: h["stages"][0].update(positives=2**200), "whole number from 0"),
    "overflowing sum": (lambda h: h["stages"][0].update(learned=[2**52 - 1, 1]), "no samples|exact below"),
    "fewer than seen": (lambda h: h["stages"][0].update(negatives=3), "no samples can have it"),
    "learned of another type": (lambda h: h["stages"][0].update(learned=5), "two whole numbers"),
    "learned, but not there": (lambda h: h["stages"][0].pop("learned"), "does not belong there"),
}


@pytest.mark.parametrize(("attack", "message"), HEADER_ATTACKS.values(), ids=HEADER_ATTACKS)
def test_an_attack_by_the_header(attack, message, sound):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_header_changed(sound, attack))


def put(name, value, at=0):
    def attack(tensors):
        tensors[name].flat[at] = value

    return attack


def retype(name, dtype):
    def attack(tensors):
        tensors[name] = tensors[name].astype(dtype)

    return attack


def impossible(name):
    """Two learners that respond together more often than one of them alone."""

    def attack(tensors):
        tensors[name][:] = 0
        tensors[name].flat[1] = 1

    return attack


def exclusive(tensors):
    """Learners that never respond together, each in most samples."""
    upper = np.zeros((5, 5), np.uint16)
    np.fill_diagonal(upper, 500)
    tensors["stage000.positive"] = upper[np.triu_indices(5)]


def not_positive(tensors):
    """Every pair is possible, but no samples have all: five learners, each pair exclusive, each in many samples."""
    upper = np.zeros((5, 5), np.uint16)
    np.fill_diagonal(upper, 250)
    for side in ("positive", "negative"):
        tensors[f"stage000.{side}"] = upper[np.triu_indices(5)]


ARRAY_ATTACKS = {
    "NaN threshold": (put("stage000.threshold", np.nan), "threshold of stump 0 is not a finite"),
    "infinite threshold": (put("stage001.threshold", np.inf, 3), "threshold of stump 3"),
    "zero polarity": (put("stage000.polarity", 0), "1 or -1"),
    "smallest polarity": (put("stage000.polarity", -128), "1 or -1"),
    "negative x": (put("stage000.x", -1), "not inside the window"),
    "huge x": (put("stage000.x", 32_767), "not inside the window"),
    "huge height": (put("stage000.height", 32_766), "not inside the window"),
    "empty box": (put("stage000.width", 0), "not divisible"),
    "negative box": (put("stage000.width", -6), "not divisible"),
    "unknown kind": (put("stage000.kind", 255), "kind of a Haar feature"),
    "block outside": (put("stage002.block_width", 3, 1), "not inside the window"),
    "block that wraps around": (put("stage002.block_width", 21_846), "not inside the window"),
    "empty block": (put("stage002.block_height", 0), "not divisible"),
    "other threshold": (put("stage000.threshold", 0.125), "damaged or altered"),
    "other subset": (put("stage002.subset", 5), "damaged or altered"),
    "sum above the count": (put("stage000.positive", 65_535), "in 600 samples"),
    "learned above the count": (put("stage000.learned.positive", 65_535), "no samples can have it"),
    "impossible pair": (impossible("stage000.positive"), "0 <= C_jk"),
    "impossible learned pair": (impossible("stage000.learned.negative"), "0 <= C_jk"),
    "pair that excludes itself too often": (exclusive, "s_j . s_k - n"),
    "impossible altogether": (not_positive, "singular"),
    "thresholds in float64": (retype("stage000.threshold", np.float64), "expected float32"),
    "signed statistics": (retype("stage000.positive", np.int64), "expected uint8 or"),
    "statistics in floats": (retype("stage000.positive", np.float32), "expected uint8 or"),
    "other shape": (lambda t: t.update({"stage000.x": t["stage000.x"][None]}), "by the header expected"),
    "shorter": (lambda t: t.update({"stage000.positive": t["stage000.positive"][:-1]}), "by the header expected"),
    "missing array": (lambda t: t.pop("stage001.kind"), "'stage001.kind' is missing"),
    "unknown array": (lambda t: t.update({"stage000.payload": np.zeros(3)}), "does not belong"),
}


@pytest.mark.parametrize(("attack", "message"), ARRAY_ATTACKS.values(), ids=ARRAY_ATTACKS)
def test_an_attack_by_the_arrays(attack, message, sound):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_arrays_changed(sound, attack))


def test_counts_that_would_wrap_around_to_small_ones(sound):
    header, tensors = opened(sound)
    tensors["stage000.positive"] = np.full(15, 2**64 - 1, np.uint64)
    with pytest.raises(ModelFileError, match="no samples can have it"):
        from_bytes(closed(header, tensors))


@pytest.mark.parametrize(
    ("name", "value"), [("stage000.coef", np.nan), ("stage002.exits", np.nan), ("stage002.exits", np.inf)]
)
def test_fixed_weights_that_are_no_numbers(name, value):
    header, tensors = opened(to_bytes(mixed_detector()))
    tensors = {key: array.copy() for key, array in tensors.items()}
    put(name, value)(tensors)
    with pytest.raises(ModelFileError, match=r"finite|below infinity"):
        from_bytes(closed(header, tensors))


@pytest.mark.parametrize("change", [{"threshold": float("nan")}, {"soft": 1}, {"threshold": None}])
def test_headers_of_fixed_stages(change):
    header, tensors = opened(to_bytes(mixed_detector()))
    header["stages"][2].update(change)
    with pytest.raises(ModelFileError):
        from_bytes(closed(header, tensors))


@pytest.fixture(scope="module")
def of_leaves():
    rng = np.random.default_rng(5)
    kinds = ("rectangle leaves", "lbp leaves", "haar")
    return to_bytes(Detector(DetectorBase((12, 12), random_cascade(kinds, (12, 12), (6, 5, 4), rng).stages)))


def far_corner(tensors):
    """A rectangle that is inside the window as long as it is upright."""
    tensors["stage000.boxes"][0, 0], tensors["stage000.tilted"][0] = (0, 0, 12, 12), 1


LEAF_HEADERS = {
    "no conditions": (lambda h: h["stages"][0].pop("n_conditions"), "belongs to leaves"),
    "conditions of stumps": (lambda h: h["stages"][2].update(n_conditions=4), "belongs to leaves"),
    "fewer conditions than leaves": (lambda h: h["stages"][0].update(n_conditions=5), "whole number from 6"),
    "other number of conditions": (lambda h: h["stages"][0].update(n_conditions=99), "by the header expected"),
    "too many conditions": (lambda h: h["stages"][0].update(n_conditions=10**9), "to 100000"),
    "too many in all": (
        lambda h: h["stages"].extend([h["stages"][0] | {"n_conditions": 99_999}] * 2),
        "100,000 conditions in all",
    ),
    "conditions of another type": (lambda h: h["stages"][0].update(n_conditions="9"), "whole number"),
    "another family": (lambda h: h["stages"][0].update(family="lbp leaves"), "array"),
    "other number of leaves": (lambda h: h["stages"][1].update(n_weak=4), "by the header expected"),
}
LEAF_ARRAYS = {
    "no end": (put("stage000.joins", 1, -1), "the very last one"),
    "joined in another way": (put("stage001.joins", 7), "joins the next one"),
    "fewer leaves than weights": (lambda t: t["stage001.joins"][:-1].fill(1), "equal numbers"),
    "more leaves than weights": (lambda t: t["stage000.joins"].fill(0), "equal numbers"),
    "tilted in another way": (put("stage000.tilted", 2), "expected 0 or 1"),
    "tilted out of the window": (far_corner, "outside the window"),
    "far out": (put("stage000.boxes", 32_767, 1), "outside the window"),
    "half a weight": (put("stage000.weights", 0.5), "whole numbers"),
    "NaN weight": (put("stage000.weights", np.nan), "finite"),
    "NaN threshold": (put("stage000.threshold", np.nan), "not a finite number"),
    "zero polarity": (put("stage000.polarity", 0), "1 or -1"),
    "block outside": (put("stage001.block_width", 5), "not inside the window"),
    "altered": (put("stage001.subset", 5), "damaged or altered"),
}


@pytest.mark.parametrize(("attack", "message"), LEAF_HEADERS.values(), ids=LEAF_HEADERS)
def test_an_attack_by_the_header_of_leaves(attack, message, of_leaves):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_header_changed(of_leaves, attack))


@pytest.mark.parametrize(("attack", "message"), LEAF_ARRAYS.values(), ids=LEAF_ARRAYS)
def test_an_attack_by_the_arrays_of_leaves(attack, message, of_leaves):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_arrays_changed(of_leaves, attack))


def test_leaves_can_be_opened_and_closed_without_harm_and_bits_flipped(of_leaves):
    assert to_bytes(from_bytes(closed(*opened(of_leaves)))) == of_leaves
    rng = np.random.default_rng(1)
    for at in rng.choice(len(of_leaves), 300, replace=False):
        flipped = bytearray(of_leaves)
        flipped[at] ^= 1 << rng.integers(8)
        with suppress(ModelFileError):
            assert from_bytes(bytes(flipped)).cascade.n_weak == 15


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path, monkeypatch, sound):
    monkeypatch.setattr(model_file, "MOST_BYTES", 1000)
    (tmp_path / "a.whet").write_bytes(sound)
    with pytest.raises(ModelFileError, match="more than 1,000 bytes"):
        read_model(tmp_path / "a.whet")


def test_the_error_names_the_file_and_a_folder_is_none(tmp_path):
    (tmp_path / "a.whet").write_bytes(png())
    with pytest.raises(ModelFileError, match=r"a\.whet: .* copy it again"):
        read_model(tmp_path / "a.whet")
    with pytest.raises(ModelFileError, match="is a folder"):
        read_model(tmp_path)


def test_learned_samples_that_do_not_fit_the_base_are_an_error_that_names_the_file(tmp_path, sound):
    (tmp_path / "a.whet").write_bytes(with_arrays_changed(sound, impossible("stage000.learned.negative")))
    with pytest.raises(ModelFileError, match=r"a\.whet: .*damaged"):
        load(tmp_path / "a.whet")
