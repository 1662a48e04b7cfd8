"""A fuzzer over the reader of OpenCV files: an error with a name or a cascade that runs, in bounded memory.

`numpy` and Python's own objects are traced: 16 MB of XML, the most that is read, must stay below `MOST_MEMORY`.
"""

import re
import tracemalloc
import xml.etree.ElementTree as ET
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.opencv_files import haar_file, lbp_file, old_file

from whet.errors import CascadeFileError
from whet.io.files import MAX_BYTES
from whet.opencv import CascadeClassifier
from whet.opencv.xml_reader import parse_opencv

MOST_MEMORY = 500_000_000

SEEDS = [
    haar_file(np.random.default_rng(0), (8, 9), [1, 2], sizes=(1, 2), tilted=True).encode(),
    haar_file(np.random.default_rng(1), (8, 9), [1, 2], sizes=(3,), fractional=True).encode(),
    lbp_file(np.random.default_rng(2), (9, 8), [1, 2], sizes=(1, 2)).encode(),
    old_file(np.random.default_rng(3), (9, 8), [1, 2]).encode(),
]
NUMBERS = [
    "0",
    "-1",
    "1",
    "7",
    "255",
    "2147483647",
    "-2147483648",
    "99999999999999999999",
    "1e308",
    "-1e-308",
    "nan",
    "inf",
    "",
    "x",
    "\u0661",
]
IMAGE = np.random.default_rng(0).integers(0, 256, (12, 14), dtype=np.uint8)


def run_if_read(data):
    """Read, and where that works, run: nothing but a named error may come of it."""
    try:
        cascade = parse_opencv(data)
    except CascadeFileError:
        return
    classifier = CascadeClassifier()
    classifier.cascade = cascade
    classifier.detectMultiScale(IMAGE, 1.2, 0)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data())
def test_numbers_replaced(data):
    """The structure stays, the numbers lie."""
    text = data.draw(st.sampled_from(SEEDS)).decode()
    spots = [match.span() for match in re.finditer(r"(?<=[> ])-?[0-9][0-9.e+-]*(?=[< ])", text)]
    for start, stop in sorted(
        data.draw(st.lists(st.sampled_from(spots), min_size=1, max_size=3, unique=True)), reverse=True
    ):
        text = text[:start] + data.draw(st.sampled_from(NUMBERS)) + text[stop:]
    run_if_read(text.encode())


@settings(max_examples=2 * settings.default.max_examples)
@given(st.data())
def test_elements_moved_dropped_or_doubled(data):
    """Every element may be missing, be there twice or stand somewhere else."""
    root = ET.fromstring(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 3))):
        elements = [(parent, i) for parent in root.iter() for i in range(len(parent))]
        if not elements:
            break
        parent, i = data.draw(st.sampled_from(elements))
        child = parent[i]
        match data.draw(st.sampled_from(["drop", "double", "move"])):
            case "drop":
                del parent[i]
            case "double":
                parent.append(deepcopy(child))  # the same one twice could later be moved into itself
            case "move":
                del parent[i]
                data.draw(st.sampled_from(list(root.iter()))).append(child)
    run_if_read(ET.tostring(root))


@settings(max_examples=2 * settings.default.max_examples)
@given(st.sampled_from(SEEDS), st.integers(0, 10_000), st.binary(max_size=8), st.integers(0, 30))
def test_bytes_replaced(seed, at, patch, cut):
    at %= len(seed)
    run_if_read(seed[:at] + patch + seed[at + cut :])


@given(st.binary(max_size=200))
def test_any_bytes(data):
    run_if_read(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    "filler",
    [b"<_/>", b"<internalNodes>0 -1 0 0.</internalNodes>", b"0 ", b"<!-- -->", b"<_ a='b'/>"],
    ids=["elements", "nodes", "words", "comments", "attributes"],
)
def test_memory_stays_within_its_bound(filler):
    head, tail = b"<opencv_storage><c><size>20 20</size><stages>", b"</stages></c></opencv_storage>"
    data = head + filler * ((MAX_BYTES - 200) // len(filler)) + tail
    tracemalloc.start()
    try:
        with pytest.raises(CascadeFileError):
            parse_opencv(data)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
