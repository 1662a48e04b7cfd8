"""OpenCV cascade files: what is read, and what is refused before any compiled loop sees it."""

import re

import numpy as np
import pytest
from tests.opencv_files import haar_file, lbp_file, old_file

from whet.errors import CascadeFileError
from whet.opencv.xml_reader import parse_opencv, read_opencv


@pytest.fixture
def haar():
    return haar_file(np.random.default_rng(0), (20, 24), [3, 5], sizes=(2,))


@pytest.fixture
def lbp():
    return lbp_file(np.random.default_rng(0), (24, 20), [3, 5])


def parse(text):
    return parse_opencv(text.encode(), "cascade.xml")


def test_a_file_becomes_arrays(haar):
    cascade = parse(haar)
    assert (cascade.window, cascade.family, len(cascade)) == ((20, 24), "HAAR", 2)
    assert cascade.first_tree.tolist() == [0, 3, 8]
    assert cascade.trees.sizes.tolist() == [2] * 8
    assert len(cascade.features) == 16


def test_the_old_format_has_width_before_height(rng):
    cascade = parse(old_file(rng, (16, 20), [2, 5]))
    assert cascade.window == (16, 20)
    assert len(cascade) == 2


def test_opencv_takes_its_margin_off_thresholds_in_float32(lbp):
    text = lbp.replace("<stageThreshold>", "<stageThreshold>1.5</stageThreshold><was>", 1)
    text = text.replace("</stageThreshold><weak", "</was><weak", 1)
    assert parse(text).threshold[0] == np.float32(1.5) - np.float32(1e-5)


def broken(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


BROKEN_HAAR = {
    "no xml": (None, "this is no XML"),
    "half a file": (None, '<?xml version="1.0"?><opencv_storage><cascade>'),
    "another root": ("opencv_storage", "other"),
    "no stage type": ("<stageType>BOOST</stageType>", ""),
    "other stages": ("BOOST", "FOREST"),
    "other features": ("HAAR", "HOG"),
    "no window": ("<height>20</height>", ""),
    "negative window": ("<height>20</height>", "<height>-20</height>"),
    "huge window": ("<height>20</height>", "<height>9999</height>"),
    "tiny window": ("<height>20</height>", "<height>2</height>"),
    "window that is no number": ("<height>20</height>", "<height>many</height>"),
    "window of many digits": ("<height>20</height>", f"<height>{'2' * 5000}</height>"),
    "smaller window than its features": ("<height>20</height>", "<height>6</height>"),
    "categories": ("<maxCatCount>0</maxCatCount>", "<maxCatCount>256</maxCatCount>"),
    "no categories": ("<maxCatCount>0</maxCatCount>", ""),
    "no stages": ("<stages>", "<stages/><was>"),
    "node that is its own child": ("<internalNodes>", "<internalNodes>1 1 0 0. "),
    "child out of range": ("<internalNodes>", "<internalNodes>9 0 0 0. "),
    "leaf out of range": ("<internalNodes>", "<internalNodes>-9 0 0 0. "),
    "feature out of range": ("<internalNodes>", "<internalNodes>0 -1 999 0.</internalNodes><was>"),
    "negative feature": ("<internalNodes>", "<internalNodes>0 -1 -1 0.</internalNodes><was>"),
    "node cut short": ("<internalNodes>", "<internalNodes>1 2 "),
    "infinite threshold": ("<stageThreshold>", "<stageThreshold>1e999</stageThreshold><was>"),
    "threshold beyond float32": ("<stageThreshold>", "<stageThreshold>1e99</stageThreshold><was>"),
    "nan": ("<leafValues>", "<leafValues>nan "),
    "one leaf too many": ("<leafValues>", "<leafValues>1 "),
    "no leaves": ("<leafValues>", "<leafValues/><was>"),
    "four rectangles": ("<rects>", "<rects><_>0 0 1 1 1</_><_>0 0 1 1 1</_>"),
    "rectangle of four numbers": ("<rects><_>", "<rects><_>0 0 1 1</_><_>"),
    "rectangle of no size": ("<rects><_>", "<rects><_>5 5 -3 2 1</_><_>"),
    "rectangle outside": ("<rects><_>", "<rects><_>0 0 25 2 1</_><_>"),
    "rectangle far outside": ("<rects><_>", "<rects><_>0 0 2147483647 2147483647 1</_><_>"),
    "tilted rectangle outside": ("<rects>", "<rects><_>1 0 3 3 1</_></rects><tilted>1</tilted><was>"),
    "infinite weight": ("<rects><_>", "<rects><_>0 0 1 1 1e999</_><_>"),
    "weight beyond float32": ("<rects><_>", "<rects><_>0 0 1 1 1e39</_><_>"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", BROKEN_HAAR)
def test_haar_files_that_are_refused(haar, name):
    old, new = BROKEN_HAAR[name]
    text = new if old is None else haar.replace(old, new, 1)
    if "<was>" in text:  # hide what came after, well-formed
        text = _closed(text, old)
    assert text != haar
    with pytest.raises(CascadeFileError, match=r"cascade\.xml"):
        parse(text)


def _closed(text, opening):
    tag = opening.strip("<>")
    start = text.index("<was>")
    return text[:start] + text[start:].replace(f"</{tag}>", "</was>", 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<maxCatCount>256", "<maxCatCount>64"),
        ("<rect>", "<rect>9 9 9 9</rect><was>"),
        ("<rect>", "<rect>0 0 0 1</rect><was>"),
        ("<rect>", "<rect>0 0 1</rect><was>"),
        ("<internalNodes>", "<internalNodes>1 "),
    ],
)
def test_lbp_files_that_are_refused(lbp, old, new):
    text = broken(lbp, old, new)
    with pytest.raises(CascadeFileError, match=r"cascade\.xml"):
        parse(_closed(text, old) if "<was>" in text else text)


BOMB = """<?xml version="1.0"?>
<!DOCTYPE x [<!ENTITY a "0123456789"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><opencv_storage>&b;</opencv_storage>"""
OUTSIDE = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><opencv_storage>&a;</opencv_storage>'
)


@pytest.mark.parametrize("text", [BOMB, OUTSIDE], ids=["entities in entities", "a file from outside"])
def test_declarations_are_refused(text):
    with pytest.raises(CascadeFileError, match="declares a DTD or an entity"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cascade.xml is empty"),
        ('<?xml version="1.0"?>\n<opencv_storage>\n<cascade><a>1</a>', "truncated XML: it ends in line 3"),
        ('<?xml version="1.0"?>\n<opencv_storage>\n<cascade><a>1</', "truncated XML: it ends in line 3"),
        ("<opencv_storage></opencv_storage>", "nothing in its <opencv_storage>"),
        ("<html><body/></html>", "outermost element is <html>; expected <opencv_storage>"),
        ("<opencv_storage><camera><a>1</a></camera></opencv_storage>", "not a cascade: <camera> has no <stageType>"),
        ("whet", "not valid XML"),
    ],
)
def test_what_is_no_cascade_is_named_for_what_it_is(text, says):
    with pytest.raises(CascadeFileError, match=re.escape(says)):
        parse(text)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["<_/>" * 600_000, "<_>" * 40 + "</_>" * 40], ids=["wide", "deep"])
def test_too_many_elements_are_refused(text):
    with pytest.raises(CascadeFileError, match="elements or"):
        parse(f"<opencv_storage><c>{text}</c></opencv_storage>")


def test_large_files_are_not_read_to_the_end(tmp_path):
    with (tmp_path / "large.xml").open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(CascadeFileError, match="bytes"):
        read_opencv(tmp_path / "large.xml")


@pytest.mark.parametrize("name", [".", "missing.xml"])
def test_what_cannot_be_opened_is_named(tmp_path, name):
    with pytest.raises(CascadeFileError, match="cannot be read"):
        read_opencv(tmp_path / name)
