"""Model files from somebody else: whatever they hold, the answer is a sound detector or a ModelFileError."""

import hashlib
import io
import json
import os
import pickle
import struct
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load as parse
from safetensors.numpy import save as serialise
from tests.cascades import model_of, random_cascade
from tests.channels import colourful, random_detector
from tests.detectors import (
    BULL,
    bull_scene,
    detector,
    false_positive,
    from_bytes,
    judged_finder,
    learn,
    mixed_detector,
    patches,
    to_bytes,
)

from whet.detector import model_file, model_header
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.detector.model_file import read_bytes
from whet.detector.storage import load
from whet.errors import ModelFileError
from whet.images.pyramid import WindowIndex
from whet.models.channels import tree_model
from whet.models.responses import Responses


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
    """A file with a content hash that is right, so that attacks come past it."""
    tensors = {name: np.array(array, order="C") for name, array in tensors.items()}
    return serialise(tensors, {"whet": header if isinstance(header, str) else sealed(header, tensors)})


def sealed(header, tensors):
    def dump(content):
        return json.dumps(header | {"content": content}, sort_keys=True, separators=(",", ":"))

    digest = hashlib.sha256(dump("").encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return dump(digest.hexdigest())


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


def flips(data, n, seed=0):
    """So many copies of a file, each with one bit flipped: half of them in the header."""
    rng = np.random.default_rng(seed)
    start = 8 + struct.unpack("<Q", data[:8])[0]
    places = [*rng.choice(start, n // 2, replace=False), *rng.integers(start, len(data), n - n // 2)]
    for at in places:
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.integers(8)
        yield bytes(flipped)


def test_every_flipped_bit_is_noticed(sound):
    for flipped in flips(sound, 400):
        with pytest.raises(ModelFileError):
            from_bytes(flipped)


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
        raw(b'{"__metadata__": null}'),
        raw(b'{"__metadata__": {"whet": null}}'),
        raw(b'{"__metadata__": {}}'),
        raw(b"not json"),
        raw(b"[" * 100_000),
        serialise({"x": np.zeros(3)}),
        serialise({}, {"whet": "3"}),
        struct.pack("<Q", 2**63) + b"{}",
        raw(b'{"a":{"dtype":"U8","shape":[9223372036854775807,9],"data_offsets":[0,1]}}', b"\0"),
        raw(b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', b"\0\0"),
    ],
    ids=range(19),
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
    "later version": (lambda h: h.update(version=4), "format version 4, this whet reads 3: .* update whet"),
    "earlier version": (lambda h: h.update(version=2), "format version 2, this whet reads 3"),
    "version of another type": (lambda h: h.update(version=True), "format version"),
    "other format": (lambda h: h.update(format="x"), "of another kind"),
    "missing key": (lambda h: h["model"].pop("min_sigma"), "lacks .'min_sigma'"),
    "unknown key": (lambda h: h.update(exec="rm"), "unknown .'exec'"),
    "unknown key of the model": (lambda h: h["model"].update(exec="rm"), "unknown .'exec'"),
    "unknown model family": (lambda h: h.update(family="os"), "the family of the model"),
    "model family of another type": (lambda h: h.update(family=["gslda"]), "the family of the model"),
    "another model family": (lambda h: h.update(family="channels"), "not those of trees"),
    "no model": (lambda h: h.pop("model"), "lacks .'model'"),
    "model of another type": (lambda h: h.update(model=[]), "expected a JSON object"),
    "coarse pass of another type": (lambda h: h["model"].update(coarse_room={}), "coarse_room"),
    "coarse pass without a stage": (lambda h: h["model"].update(coarse_room=[]), "coarse_room"),
    "longer coarse pass than stages": (lambda h: h["model"].update(coarse_room=[0.0] * 9), "coarse_room"),
    "NaN room": (lambda h: h["model"].update(coarse_room=[float("nan")]), "JSON compliant"),
    "class that is a list": (lambda h: h["provenance"]["facts"].update({"class": ["van"]}), "finite numbers"),
    "no stages": (lambda h: h["model"].update(stages=[]), "does not belong"),
    "stages of another type": (lambda h: h["model"].update(stages={}), "no list"),
    "a stage of another type": (lambda h: h["model"]["stages"].__setitem__(1, 7), "stage 1 is 7"),
    "small window": (lambda h: h.update(window=[2, 8]), "not inside the window|at least 3 x 3"),
    "huge window": (lambda h: h.update(window=[30_000, 30_000]), "at least 3 x 3, and"),
    "negative window": (lambda h: h.update(window=[-10, 8]), "whole number from 0"),
    "fractional window": (lambda h: h.update(window=[10.0, 8]), "whole number"),
    "window of one number": (lambda h: h.update(window=[10]), "two whole numbers"),
    "deep window": (lambda h: h.update(window=json.loads("[" * 900 + "]" * 900)), "two whole numbers|recursion"),
    "deep sigma": (lambda h: h["model"].update(min_sigma=json.loads("[" * 900 + "]" * 900)), "finite number|recursion"),
    "NaN sigma": (lambda h: h["model"].update(min_sigma=float("nan")), "JSON compliant"),
    "negative sigma": (lambda h: h["model"].update(min_sigma=-1.0), "above 0"),
    "text for sigma": (lambda h: h["model"].update(min_sigma="10"), "finite number"),
    "huge sigma": (lambda h: h["model"].update(min_sigma=10**400), "finite number"),
    "no box offset": (lambda h: h.pop("box_offset"), "lacks .'box_offset'"),
    "box offset of another type": (lambda h: h.update(box_offset={"left": 0}), "box_offset: expected four numbers"),
    "box offset of three": (lambda h: h.update(box_offset=[0, 0, 1]), "box_offset: expected four numbers"),
    "NaN box offset": (lambda h: h.update(box_offset=[0, 0, float("nan"), 1]), "a side of the box offset is nan"),
    "infinite box offset": (lambda h: h.update(box_offset=[0, 0, float("inf"), 1]), "a side of the box offset is inf"),
    "text in the box offset": (lambda h: h.update(box_offset=[0, 0, "1", 1]), "a side of the box offset is '1'"),
    "true in the box offset": (lambda h: h.update(box_offset=[0, 0, True, 1]), "a side of the box offset is True"),
    "box offset of many digits": (
        lambda h: h.update(box_offset=[0, 0, 10**400, 1]),
        "a side of the box offset is 1000",
    ),
    "empty box offset": (lambda h: h.update(box_offset=[0, 0, 0, 1]), "expected left < right"),
    "box offset turned round": (lambda h: h.update(box_offset=[0, 1, 1, 0]), "expected left < right"),
    "far box offset": (lambda h: h.update(box_offset=[0, 0, 1, 3.01]), "from -2 to 3"),
    "box offset far above": (lambda h: h.update(box_offset=[0, -1e308, 1, 1]), "from -2 to 3"),
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
    "unknown family": (lambda h: h["model"]["stages"][0].update(family="hog"), "feature family of stage 0"),
    "family of another type": (lambda h: h["model"]["stages"][0].update(family=[]), "feature family of stage 0"),
    "another family": (lambda h: h["model"]["stages"][0].update(family="lbp"), "array"),
    "no weak learners": (lambda h: h["model"]["stages"][0].update(n_weak=0), "from 1 to"),
    "other number of weak learners": (lambda h: h["model"]["stages"][0].update(n_weak=6), "by the header expected"),
    "too many weak learners": (lambda h: h["model"]["stages"][0].update(n_weak=10**9), "from 1 to 2000"),
    "too many in all": (
        lambda h: h["model"]["stages"].extend([h["model"]["stages"][0] | {"n_weak": 2000}] * 9),
        "in all",
    ),
    "unknown criterion": (lambda h: h["model"]["stages"][0].update(criterion="pca"), "'fda', 'lac'"),
    "infinite ridge": (lambda h: h["model"]["stages"][0].update(ridge=float("inf")), "JSON compliant"),
    "negative ridge": (lambda h: h["model"]["stages"][0].update(ridge=-1.0), "ridge"),
    "NaN rule": (lambda h: h["model"]["stages"][0].update(z=float("nan")), "JSON compliant"),
    "unknown rule": (lambda h: h["model"]["stages"][0].update(rule="eval"), "rule of stage 0"),
    "no positives": (lambda h: h["model"]["stages"][0].update(positives=0), "no samples can have it"),
    "negative count": (lambda h: h["model"]["stages"][0].update(positives=-1), "whole number from 0"),
    "overflowing count": (lambda h: h["model"]["stages"][0].update(positives=2**52), "whole number from 0"),
    "count of many digits": (lambda h: h["model"]["stages"][0].update(positives=2**200), "whole number from 0"),
    "overflowing sum": (lambda h: h["model"]["stages"][0].update(learned=[2**52 - 1, 1]), "no samples|exact below"),
    "fewer than seen": (lambda h: h["model"]["stages"][0].update(negatives=3), "no samples can have it"),
    "learned of another type": (lambda h: h["model"]["stages"][0].update(learned=5), "two whole numbers"),
    "learned, but not there": (lambda h: h["model"]["stages"][0].pop("learned"), "does not belong there"),
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


def sliced(prefix, rows):
    def attack(tensors):
        for name in tensors:
            if name.startswith(prefix):
                tensors[name] = tensors[name][rows]

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
    tensors["model.stage000.positive"] = upper[np.triu_indices(5)]


def not_positive(tensors):
    """Every pair is possible, but no samples have all: five learners, each pair exclusive, each in many samples."""
    upper = np.zeros((5, 5), np.uint16)
    np.fill_diagonal(upper, 250)
    for side in ("positive", "negative"):
        tensors[f"model.stage000.{side}"] = upper[np.triu_indices(5)]


ARRAY_ATTACKS = {
    "NaN threshold": (put("model.stage000.threshold", np.nan), "threshold of stump 0 is not a finite"),
    "infinite threshold": (put("model.stage001.threshold", np.inf, 3), "threshold of stump 3"),
    "zero polarity": (put("model.stage000.polarity", 0), "1 or -1"),
    "smallest polarity": (put("model.stage000.polarity", -128), "1 or -1"),
    "negative x": (put("model.stage000.x", -1), "not inside the window"),
    "huge x": (put("model.stage000.x", 32_767), "not inside the window"),
    "huge height": (put("model.stage000.height", 32_766), "not inside the window"),
    "empty box": (put("model.stage000.width", 0), "not divisible"),
    "negative box": (put("model.stage000.width", -6), "not divisible"),
    "unknown kind": (put("model.stage000.kind", 255), "kind of a Haar feature"),
    "block outside": (put("model.stage002.block_width", 3, 1), "not inside the window"),
    "block that wraps around": (put("model.stage002.block_width", 21_846), "not inside the window"),
    "empty block": (put("model.stage002.block_height", 0), "not divisible"),
    "other threshold": (put("model.stage000.threshold", 0.125), "damaged or altered"),
    "other subset": (put("model.stage002.subset", 5), "damaged or altered"),
    "sum above the count": (put("model.stage000.positive", 65_535), "in 600 samples"),
    "learned above the count": (put("model.stage000.learned.positive", 255), "no samples can have it"),
    "impossible pair": (impossible("model.stage000.positive"), "0 <= C_jk"),
    "impossible learned pair": (impossible("model.stage000.learned.negative"), "0 <= C_jk"),
    "pair that excludes itself too often": (exclusive, "s_j . s_k - n"),
    "impossible altogether": (not_positive, "singular"),
    "thresholds in float64": (retype("model.stage000.threshold", np.float64), "expected float32"),
    "signed statistics": (retype("model.stage000.positive", np.int64), "expected uint8 or"),
    "statistics in floats": (retype("model.stage000.positive", np.float32), "expected uint8 or"),
    "other shape": (lambda t: t.update({"model.stage000.x": t["model.stage000.x"][None]}), "by the header expected"),
    "shorter": (
        lambda t: t.update({"model.stage000.positive": t["model.stage000.positive"][:-1]}),
        "by the header expected",
    ),
    "missing array": (lambda t: t.pop("model.stage001.kind"), "'stage001.kind' is missing"),
    "unknown array": (lambda t: t.update({"model.stage000.payload": np.zeros(3)}), "does not belong"),
}


@pytest.mark.parametrize(("attack", "message"), ARRAY_ATTACKS.values(), ids=ARRAY_ATTACKS)
def test_an_attack_by_the_arrays(attack, message, sound):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_arrays_changed(sound, attack))


def test_counts_that_would_wrap_around_to_small_ones(sound):
    header, tensors = opened(sound)
    tensors["model.stage000.positive"] = np.full(15, 2**64 - 1, np.uint64)
    with pytest.raises(ModelFileError, match="no samples can have it"):
        from_bytes(closed(header, tensors))


@pytest.mark.parametrize(
    ("name", "value"),
    [("model.stage000.coef", np.nan), ("model.stage002.exits", np.nan), ("model.stage002.exits", np.inf)],
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
    header["model"]["stages"][2].update(change)
    with pytest.raises(ModelFileError):
        from_bytes(closed(header, tensors))


@pytest.fixture(scope="module")
def of_leaves():
    rng = np.random.default_rng(5)
    kinds = ("rectangle leaves", "lbp leaves", "haar")
    leaves = model_of(random_cascade(kinds, (12, 12), (6, 5, 4), rng))
    return to_bytes(Detector.from_base(DetectorBase(leaves)))


def far_corner(tensors):
    """A rectangle that is inside the window as long as it is upright."""
    tensors["model.stage000.boxes"][0, 0], tensors["model.stage000.tilted"][0] = (0, 0, 12, 12), 1


LEAF_HEADERS = {
    "no conditions": (lambda h: h["model"]["stages"][0].pop("n_conditions"), "belongs to leaves"),
    "conditions of stumps": (lambda h: h["model"]["stages"][2].update(n_conditions=4), "belongs to leaves"),
    "fewer conditions than leaves": (lambda h: h["model"]["stages"][0].update(n_conditions=5), "whole number from 6"),
    "other number of conditions": (lambda h: h["model"]["stages"][0].update(n_conditions=99), "by the header expected"),
    "too many conditions": (lambda h: h["model"]["stages"][0].update(n_conditions=10**9), "to 100000"),
    "too many in all": (
        lambda h: h["model"]["stages"].extend([h["model"]["stages"][0] | {"n_conditions": 99_999}] * 2),
        "100,000 conditions in all",
    ),
    "conditions of another type": (lambda h: h["model"]["stages"][0].update(n_conditions="9"), "whole number"),
    "another family": (lambda h: h["model"]["stages"][0].update(family="lbp leaves"), "array"),
    "other number of leaves": (lambda h: h["model"]["stages"][1].update(n_weak=4), "by the header expected"),
}
LEAF_ARRAYS = {
    "no end": (put("model.stage000.joins", 1, -1), "the very last one"),
    "joined in another way": (put("model.stage001.joins", 7), "joins the next one"),
    "fewer leaves than weights": (lambda t: t["model.stage001.joins"][:-1].fill(1), "equal numbers"),
    "more leaves than weights": (lambda t: t["model.stage000.joins"].fill(0), "equal numbers"),
    "tilted in another way": (put("model.stage000.tilted", 2), "expected 0 or 1"),
    "tilted out of the window": (far_corner, "outside the window"),
    "far out": (put("model.stage000.boxes", 32_767, 1), "outside the window"),
    "half a weight": (put("model.stage000.weights", 0.5), "whole numbers"),
    "NaN weight": (put("model.stage000.weights", np.nan), "finite"),
    "NaN threshold": (put("model.stage000.threshold", np.nan), "not a finite number"),
    "zero polarity": (put("model.stage000.polarity", 0), "1 or -1"),
    "block outside": (put("model.stage001.block_width", 5), "not inside the window"),
    "altered": (put("model.stage001.subset", 5), "damaged or altered"),
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
    for flipped in flips(of_leaves, 300, seed=1):
        with pytest.raises(ModelFileError):
            from_bytes(flipped)


# Trees on channels.


@pytest.fixture(scope="module")
def of_trees():
    """Corrected trees, with their image."""
    made, image = random_detector(), colourful((90, 120), np.random.default_rng(2))
    made.learn(image, made.detect(image).boxes[:2], False)
    return to_bytes(made)


TREE_HEADERS = {
    "another model family": (lambda h: h.update(family="gslda"), "lacks"),
    "unknown key": (lambda h: h["model"].update(exec="rm"), "not those of trees"),
    "missing key": (lambda h: h["model"].pop("threshold"), "not those of trees"),
    "NaN threshold": (lambda h: h["model"].update(threshold=float("nan")), "JSON compliant"),
    "infinite threshold": (lambda h: h["model"].update(threshold=float("inf")), "JSON compliant"),
    "huge threshold": (lambda h: h["model"].update(threshold=1e300), "finite"),
    "threshold of many digits": (lambda h: h["model"].update(threshold=10**400), "finite|too large"),
    "threshold in words": (lambda h: h["model"].update(threshold="1"), "expected a finite number"),
    "true threshold": (lambda h: h["model"].update(threshold=True), "expected a finite number"),
    "threshold that is a list": (lambda h: h["model"].update(threshold=[0.5]), "expected a finite number"),
    "threshold above the last limit": (lambda h: h["model"].update(threshold=9.0), "last limit"),
    "other threshold": (lambda h: h["model"].update(threshold=0.25), "damaged or altered"),
    "whole number for the threshold": (lambda h: h["model"].update(threshold=0), "hash|damaged or altered"),
    "window of half a cell": (lambda h: h.update(window=[22, 20]), "multiples of 4"),
    "no window": (lambda h: h.update(window=[0, 0]), "multiples of 4"),
    "huge window": (lambda h: h.update(window=[60_000, 60_000]), "multiples of 4"),
    "smaller window": (lambda h: h.update(window=[8, 8]), "of a window with 2"),
    "larger window": (lambda h: h.update(window=[24, 24]), "damaged or altered"),
}
TREE_ARRAYS = {
    "NaN vote": (put("model.votes", np.nan), "finite numbers"),
    "infinite vote": (put("model.votes", np.inf, 7), "finite numbers"),
    "vote of minus infinity": (put("model.votes", -np.inf), "finite numbers"),
    "heavy vote": (put("model.votes", 1e41), "weights at most"),
    "NaN limit": (put("model.limits", np.nan), "below infinity"),
    "last limit that is NaN": (put("model.limits", np.nan, -1), "below infinity"),
    "infinite limit": (put("model.limits", np.inf, 3), "below infinity"),
    "last limit below the threshold": (put("model.limits", -5.0, -1), "last limit"),
    "channel beyond the last": (put("model.channel", 40), "channel 40 of a window with 40"),
    "row outside": (put("model.y", 6), "y 6 of a window with 6"),
    "column outside": (put("model.x", 255), "x 255 of a window with 5"),
    "other cell": (lambda t: put("model.x", (int(t["model.x"].flat[0]) + 1) % 5)(t), "damaged or altered"),
    "other vote": (put("model.votes", 0.125), "damaged or altered"),
    "missing array": (lambda t: t.pop("model.x"), "not those of trees"),
    "no limits": (lambda t: t.pop("model.limits"), "not those of trees"),
    "unknown array": (lambda t: t.update({"model.payload": np.zeros(3)}), "not those of trees"),
    "array of another family": (lambda t: t.update({"model.stage000.x": np.zeros(3)}), "not those of trees"),
    "no trees": (sliced("model.", slice(0)), "got 0 trees"),
    "fewer trees": (sliced("model.", slice(1, None)), "damaged or altered"),
    "fewer votes": (lambda t: t.update({"model.votes": t["model.votes"][1:]}), "votes is float64"),
    "votes in a row": (lambda t: t.update({"model.votes": t["model.votes"].reshape(-1)}), "votes is float64"),
    "votes of three leaves": (lambda t: t.update({"model.votes": t["model.votes"][:, :3]}), "votes is float64"),
    "limits without dimensions": (lambda t: t.update({"model.limits": np.array(1.0)}), "got 0 trees"),
    "limits of two dimensions": (lambda t: t.update({"model.limits": t["model.limits"][:, None]}), "got 0 trees"),
    "nodes of two": (lambda t: t.update({"model.channel": t["model.channel"][:, :2]}), "channel is uint8"),
    "cells without dimensions": (lambda t: t.update({"model.y": np.array(1, np.uint8)}), "y is uint8"),
    "votes in float32": (retype("model.votes", np.float32), "expected float64"),
    "limits in float32": (retype("model.limits", np.float32), "expected float64"),
    "signed channels": (retype("model.channel", np.int8), "expected uint8"),
    "wide rows": (retype("model.y", np.uint16), "expected uint8"),
    "thresholds in floats": (retype("model.threshold", np.float64), "expected uint8"),
    "responses of fewer trees": (
        lambda t: t.update({"records.responses": t["records.responses"][:, 1:]}),
        "by the header expected",
    ),
}


@pytest.mark.parametrize(("attack", "message"), TREE_HEADERS.values(), ids=TREE_HEADERS)
def test_an_attack_by_the_header_of_trees(attack, message, of_trees):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_header_changed(of_trees, attack))


@pytest.mark.parametrize(("attack", "message"), TREE_ARRAYS.values(), ids=TREE_ARRAYS)
def test_an_attack_by_the_arrays_of_trees(attack, message, of_trees):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_arrays_changed(of_trees, attack))


def test_trees_can_be_opened_and_closed_without_harm_and_bits_flipped(of_trees):
    assert to_bytes(from_bytes(closed(*opened(of_trees)))) == of_trees
    for flipped in flips(of_trees, 300, seed=3):
        with pytest.raises(ModelFileError):
            from_bytes(flipped)


def test_more_trees_than_any_training_makes(monkeypatch, of_trees):
    n = tree_model.MOST_TREES + 1
    header, tensors = opened(of_trees)
    many = {name: np.zeros((n, *array.shape[1:]), array.dtype) for name, array in tensors.items() if "model." in name}
    with pytest.raises(ModelFileError, match=f"got {n:,} trees"):
        from_bytes(closed(header, tensors | many))
    monkeypatch.setattr(tree_model, "MOST_TREES", 29)
    with pytest.raises(ModelFileError, match="got 30 trees; expected 1 to 29"):
        from_bytes(of_trees)


@pytest.mark.parametrize(
    "classes",
    [[["van", 1]], ["van"], {"van": [1]}, {"van": {}}, {"van": True}, {"van": 0}, {"van": -1}, {"van": 9}, "van"],
)
def test_classes_that_are_lists_or_have_other_numbers_of_shapes(classes, sound, of_trees):
    parts = [np.frombuffer(part, np.uint8) for part in (sound, of_trees)]
    tensors = {f"{number:04}": part for number, part in enumerate(parts)}
    text = json.dumps({"classes": classes, "hash": "0" * 64})
    with pytest.raises(ModelFileError):
        from_bytes(serialise(tensors, {model_file.CLASSES_KEY: text}))


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path, monkeypatch, sound):
    monkeypatch.setattr(model_file, "MOST_BYTES", 1000)
    (tmp_path / "a.whet").write_bytes(sound)
    with pytest.raises(ModelFileError, match="more than 1,000 bytes"):
        read_bytes(tmp_path / "a.whet")


def test_the_error_names_the_file_and_a_folder_is_none(tmp_path):
    (tmp_path / "a.whet").write_bytes(png())
    with pytest.raises(ModelFileError, match=r"a\.whet: .* copy it again"):
        load(tmp_path / "a.whet")
    with pytest.raises(ModelFileError, match="is a folder"):
        read_bytes(tmp_path)


def test_learned_samples_that_do_not_fit_the_base_are_an_error_that_names_the_file(tmp_path, sound):
    (tmp_path / "a.whet").write_bytes(with_arrays_changed(sound, impossible("model.stage000.learned.negative")))
    with pytest.raises(ModelFileError, match=r"a\.whet: .*damaged"):
        load(tmp_path / "a.whet")


# Records, the reference set and operating points of a detector that was corrected.


@pytest.fixture(scope="module")
def corrected():
    made = judged_finder(default=12.0)
    made.learn(bull_scene(), [*false_positive(made), *BULL], [False, True], name="yard.png", note="wrong \u00e9")
    made.learn(bull_scene(2), false_positive(made, 2), False, min_score=3.0)
    made.learn_patches(bull_scene()[None, 30:42, 40:52], True)
    made.set_operating_point("mine", 4.5)
    return to_bytes(made)


def test_a_corrected_file_can_be_opened_and_closed_without_harm(corrected):
    assert to_bytes(from_bytes(closed(*opened(corrected)))) == corrected
    header, tensors = opened(corrected)
    assert len(header["records"]) == 3
    assert sum(record["windows"] for record in header["records"]) == len(tensors["records.scale"])


def test_every_flipped_bit_of_a_corrected_file_is_noticed(corrected):
    for flipped in flips(corrected, 500, seed=2):
        with pytest.raises(ModelFileError):
            from_bytes(flipped)


def test_a_corrected_file_cut_short_anywhere(corrected):
    for length in np.random.default_rng(3).integers(0, len(corrected), 100):
        with pytest.raises(ModelFileError, match="not a whole safetensors file"):
            from_bytes(corrected[:length])


def test_a_wrong_content_hash_is_noticed(corrected):
    header, tensors = opened(corrected)
    for content in ("", "0" * 64, header["content"].upper(), None, 3):
        text = json.dumps(header | {"content": content}, sort_keys=True, separators=(",", ":"))
        with pytest.raises(ModelFileError, match="hash"):
            from_bytes(closed(text, tensors))


def test_another_spelling_of_the_header_is_no_sound_file(corrected):
    """Equal detectors have equal bytes: spaces, other orders and other numbers of the same value are refused."""
    header, tensors = opened(corrected)
    for text in (
        json.dumps(header, sort_keys=True),
        json.dumps(header, separators=(",", ":")),
        sealed(header, tensors).replace("12.0", "12.00"),
        sealed(header, tensors).replace("\\u00e9", "\u00e9"),
    ):
        if text != sealed(header, tensors):
            with pytest.raises(ModelFileError):
                from_bytes(closed(text, tensors))


def record(**changes):
    return lambda h: h["records"][1].update(changes)


RECORD_HEADERS = {
    "no records": (lambda h: h.update(records=[]), "does not belong"),
    "records of another type": (lambda h: h.update(records={}), "no list"),
    "a record of another type": (lambda h: h["records"].__setitem__(0, 7), "record 0 is 7"),
    "a record less": (lambda h: h["records"].pop(), "by the header expected"),
    "another order": (lambda h: h["records"].reverse(), "order of their ids"),
    "missing key": (lambda h: h["records"][0].pop("note"), "lacks .'note'"),
    "unknown key": (record(exec="rm"), "unknown .'exec'"),
    "unknown kind": (record(kind="order"), "kind of record 1"),
    "kind of another type": (record(kind=[]), "kind of record 1"),
    "image of another kind": (record(image="../../etc/passwd"), "SHA-256"),
    "image in capitals": (record(image="A" * 64), "SHA-256"),
    "image of another type": (record(image=5), "SHA-256"),
    "box of three": (record(box=[1.0, 2.0, 3.0]), "four numbers"),
    "NaN box": (record(box=[1.0, 2.0, float("nan"), 4.0]), "box of record 1 is nan"),
    "huge box": (record(box=[1.0, 2.0, 10**400, 4.0]), "box of record 1"),
    "label in numbers": (record(is_object=1), "true or false"),
    "no weight": (record(weight=0), "weight of record 1 is 0"),
    "huge weight": (record(weight=2**52), "weight of record 1"),
    "fractional weight": (record(weight=1.5), "weight of record 1"),
    "NaN score": (record(min_score=float("nan")), "min_score of record 1"),
    "infinite score": (record(min_score=float("inf")), "min_score of record 1"),
    "negative windows": (record(windows=-1), "windows of record 1"),
    "huge windows": (record(windows=2**62), "windows of record 1"),
    "many windows": (record(windows=250_000_000), "by the header expected"),
    "other windows": (
        lambda h: [r.update(windows=r["windows"] + d) for r, d in zip(h["records"][:2], (1, -1), strict=True)],
        "order of their ids|rejects a window in no stage|whole number",
    ),
    "long note": (record(note="a" * 1001), "at most 1000"),
    "long name": (record(name="a" * 256), "at most 255"),
    "note of another type": (record(note=None), "expected text"),
    "time before time": (record(time=-1), "time of record 1"),
    "time of many digits": (record(time=10**400), "time of record 1"),
    "no reference": (lambda h: h.update(reference=None), "does not belong"),
    "reference of another type": (lambda h: h.update(reference=8), "expected a JSON object"),
    "unknown key of the reference": (lambda h: h["reference"].update(exec="rm"), "unknown .'exec'"),
    "missing key of the reference": (lambda h: h["reference"].pop("was_trained_on"), "lacks .'was_trained_on'"),
    "trained on in numbers": (lambda h: h["reference"].update(was_trained_on=1), "true or false"),
    "images of another type": (lambda h: h["reference"].update(images=True), "images of the reference"),
    "fewer than no images": (lambda h: h["reference"].update(images=-1), "images of the reference"),
    "huge number of images": (lambda h: h["reference"].update(images=2**62), "images of the reference"),
    "unknown fixed point": (lambda h: h.update(fixed_points=["theirs"]), "fixed operating points"),
    "fixed points of another type": (lambda h: h.update(fixed_points={"mine": 1}), "fixed_points"),
    "a fixed point that is no name": (lambda h: h.update(fixed_points=[[]]), "fixed_points"),
    "a fixed point twice": (lambda h: h.update(fixed_points=["mine", "mine"]), "hash"),
}


@pytest.mark.parametrize(("attack", "message"), RECORD_HEADERS.values(), ids=RECORD_HEADERS)
def test_an_attack_by_the_records(attack, message, corrected):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_header_changed(corrected, attack))


RECORD_ARRAYS = {
    "NaN scale": (put("records.scale", np.nan), "outside of any image"),
    "no scale": (put("records.scale", 0.0), "outside of any image"),
    "infinite scale": (put("records.scale", np.inf), "outside of any image"),
    "negative y": (put("records.y", -1), "outside of any image"),
    "negative x": (put("records.x", -5), "outside of any image"),
    "fewer windows": (sliced("records.", slice(1, None)), "by the header expected"),
    "no windows": (sliced("records.", slice(0)), "by the header expected"),
    "scales in float32": (retype("records.scale", np.float32), "expected float64"),
    "flat responses": (
        lambda t: t.update({"records.responses": t["records.responses"].ravel()}),
        "by the header expected",
    ),
    "missing array": (lambda t: t.pop("records.x"), "is missing"),
    "part too many": (put("reference.part", 4), "parts 0 to 3"),
    "NaN gain": (put("reference.gain", np.nan), "gains above 0"),
    "negative gain": (put("reference.gain", -1.0), "gains above 0"),
    "no gain": (put("reference.gain", 0.0), "gains above 0"),
    "part without dimensions": (lambda t: t.update({"reference.part": np.array(1, np.uint8)}), "by the header"),
    "part of two dimensions": (
        lambda t: t.update({"reference.part": t["reference.part"][:, None]}),
        "by the header expected",
    ),
    "fewer gains": (lambda t: t.update({"reference.gain": t["reference.gain"][1:]}), "by the header expected"),
    "fewer responses": (lambda t: t.update({"reference.responses": t["reference.responses"][1:]}), "by the header"),
    "no part": (lambda t: t.pop("reference.part"), "is missing"),
}


@pytest.mark.parametrize(("attack", "message"), RECORD_ARRAYS.values(), ids=RECORD_ARRAYS)
def test_an_attack_by_the_arrays_of_records(attack, message, corrected):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(with_arrays_changed(corrected, attack))


def test_a_record_that_is_there_twice(corrected):
    header, tensors = opened(corrected)
    n = header["records"][0]["windows"]
    header["records"].insert(0, header["records"][0])
    twice = {
        name: np.concatenate([array[:n], array]) if name.startswith("records.") else array
        for name, array in tensors.items()
    }
    with pytest.raises(ModelFileError, match="each once"):
        from_bytes(closed(header, twice))


def test_more_records_than_a_file_holds(monkeypatch, corrected):
    made = from_bytes(corrected)
    monkeypatch.setattr(model_header, "MOST_RECORDS", 2)
    with pytest.raises(ModelFileError, match="more than 2"):
        from_bytes(corrected)
    with pytest.raises(ModelFileError, match="at most 2"):
        to_bytes(made)


def test_examples_whose_weights_overflow_are_refused(corrected):
    def heavy(header):
        for one in header["records"]:
            one.update(kind="example", weight=2**52 - 1)

    with pytest.raises(ModelFileError):
        from_bytes(with_header_changed(corrected, heavy))


def in_order(header, tensors):
    """The records and their windows in the order of their ids, as a forger would write them."""
    made = model_header._read_records(header["records"], header["base_id"])
    ends = np.cumsum(made[1])
    packed = tensors["records.responses"]
    every = Responses.from_bytes(packed, 8 * packed.shape[1])
    parts = [np.arange(end - n, end) for end, n in zip(ends, made[1], strict=True)]
    windows = [WindowIndex(*(tensors[f"records.{name}"][rows] for name in ("scale", "y", "x"))) for rows in parts]
    ids = [
        replace(one, index=index, responses=every.take(rows)).id
        for one, index, rows in zip(made[0], windows, parts, strict=True)
    ]
    order = np.argsort(ids)
    rows = np.concatenate([parts[i] for i in order])
    header["records"] = [header["records"][i] for i in order]
    return header, {name: array[rows] if name.startswith("records.") else array for name, array in tensors.items()}


VALUES = [None, True, False, 0, 1, -1, 3, 2**31, 2**52, 2**64, 10**400, 0.5, -1e308, 1e308, float("nan"), float("inf")]
VALUES += ["", "x", "correction", "example", "fda", "0" * 64, [], [1], [0, 0, 1, 1], {}, {"a": 1}]


def altered(table, rng):
    """One value somewhere in a header is another one, is gone, or is there twice."""
    holder = table
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = keys[rng.integers(len(keys))]
        if isinstance(holder[key], dict | list) and len(holder[key]) and rng.random() < 0.9:
            holder = holder[key]
            continue
        match rng.integers(4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, holder[key])
            case _:
                holder[key] = VALUES[rng.integers(len(VALUES))]
        return


def spoiled(tensors, rng):
    """One array has another number, another type or another shape, or is gone."""
    name = sorted(tensors)[rng.integers(len(tensors))]
    array = tensors[name].copy()
    match rng.integers(6):
        case 0:
            tensors[name] = array.astype(rng.choice([np.uint8, np.int16, np.uint32, np.float32, np.float64]))
        case 1:
            tensors[name] = array[rng.integers(2) :: 2]
        case 2:
            del tensors[name]
        case _:
            most = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
            choices = [most.min, most.max, 0, 1, 2] if most else [np.nan, np.inf, -1.0, 0.0, 1e300, 0.1]
            array.flat[rng.integers(array.size)] = np.array(choices).astype(array.dtype)[rng.integers(len(choices))]
            tensors[name] = array


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:overflow|invalid value:RuntimeWarning")
def test_whatever_is_altered_and_sealed_again_is_refused_or_a_sound_detector(seed, corrected):
    """150 forgeries each; what is accepted is a detector that saves what it was loaded from, and detects."""
    rng = np.random.default_rng(seed)
    n_sound = 0
    for _ in range(150):
        header, tensors = opened(corrected)
        tensors = dict(tensors)
        for _ in range(rng.integers(1, 3)):
            altered(header, rng) if rng.random() < 0.6 else spoiled(tensors, rng)
        with suppress(Exception):  # records that are still records are put in order: the attack comes further
            header, tensors = in_order(header, tensors)
        try:
            data = closed(header, tensors)
        except (ValueError, OverflowError, TypeError):
            continue  # not even a forger could write it
        try:
            made = from_bytes(data)
        except ModelFileError:
            continue
        again = to_bytes(made)  # equal but for counts in a wider type than they need
        assert to_bytes(from_bytes(again)) == again
        theirs, ours = parse(data), parse(again)
        assert theirs.keys() == ours.keys()
        assert all(np.array_equal(theirs[name], ours[name]) for name in ours)
        assert opened(again)[0] | {"content": ""} == header | {"content": ""}
        assert np.isfinite(made.detect(bull_scene(), min_score=0).scores).all()
        n_sound += 1
    assert n_sound > 5  # names, notes, times and operating points are free


def test_what_is_too_large_to_be_loaded_is_not_saved(monkeypatch, tmp_path, corrected):
    made = from_bytes(corrected)
    made.save(tmp_path / "a.whet")
    for limit in ("MOST_BYTES", "MOST_HEADER"):
        with monkeypatch.context() as patch:
            patch.setattr(model_file, limit, 1000)
            with pytest.raises(ModelFileError, match="unlearn some"):
                made.save(tmp_path / "a.whet")
    assert (tmp_path / "a.whet").read_bytes() == corrected


@pytest.mark.parametrize("name", ["x" * 10_000_000, "x" * 256, "a\x9b31m", "..", "a/b"])
def test_a_class_name_that_none_can_have_does_not_load(name, sound):
    with pytest.raises(ModelFileError):
        from_bytes(model_file.join_classes({name: [sound], "van": [sound]}))


@pytest.mark.parametrize("name", [["van"], {"van": 1}, None, True, "x" * 10_000_000])
def test_a_class_that_is_no_name_does_not_load(name, sound):
    def attack(header):
        header["provenance"]["facts"]["class"] = name

    with pytest.raises(ModelFileError):
        from_bytes(with_header_changed(sound, attack))
    with pytest.raises(ModelFileError):
        from_bytes(model_file.join_classes({"van": [with_header_changed(sound, attack)], "car": [sound]}))
