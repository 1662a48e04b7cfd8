"""What can be added can be loaded: records have one validation, and no file is replaced by one that does not load."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, false_positive

from whet.corrections.records import Record
from whet.detector import edit
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import ModelFileError, RecordError, WhetError
from whet.images.pyramid import WindowIndex
from whet.models.responses import Responses
from whet.tracking.session import SavedModel
from whet.tracking.tracker import Tracker

FACTS = {
    "a note that is too long": {"note": "x" * 1001},
    "a name that is too long": {"name": "x" * 256},
    "a name of bytes": {"name": b"a.png"},
    "no note": {"note": None},
    "no site": {"site": None},
    "a site with a space": {"site": " door"},
    "a time before 1970": {"time": -1},
    "a time of no calendar": {"time": 2**60},
    "a time in fractions": {"time": 1.5},
    "no weight": {"weight": 0},
    "a weight that is too large": {"weight": 2**60},
    "a fractional weight": {"weight": 1.5},
    "a weight as text": {"weight": "1"},
    "an image without a hash": {"image": "0" * 63},
    "an unknown kind": {"kind": "wish"},
    "a label that is text": {"is_object": "no"},
    "a score that is no number": {"min_score": float("nan")},
    "a box that is no number": {"box": (0.0, float("nan"), 9.0, 9.0)},
    "a box as text": {"box": ("0", "0", "9", "9")},
    "a box of three": {"box": (0.0, 0.0, 9.0)},
    "samples that are text": {"kept": "abc"},
    "another base": {"base_id": "0" * 64},
}


def moved(record: Record, **columns: object) -> Record:
    index = record.index
    return replace(record, index=WindowIndex(**{"scale": index.scale, "y": index.y, "x": index.x} | columns))


WINDOWS = {
    "a scale below 0": lambda r: moved(r, scale=-r.index.scale),
    "a scale that is no number": lambda r: moved(r, scale=r.index.scale * np.nan),
    "a window above the image": lambda r: moved(r, y=r.index.y - 10**6),
    "a window beyond 2^31": lambda r: moved(r, x=r.index.x + 2**31),
    "a window beyond 2^32": lambda r: moved(r, y=r.index.y + 2**32),
    "no index": lambda r: moved(r, scale=np.empty(0), y=np.empty(0, np.intp), x=np.empty(0, np.intp)),
    "more weak learners": lambda r: replace(r, responses=Responses(~r.responses.words, r.responses.n_weak)),
    "the id of another one": lambda r: replace(r, is_object=True).with_windows(r.index, r.responses, 1.0),
}
ALTERED = {name: lambda r, facts=facts: replace(r, **facts) for name, facts in FACTS.items()} | WINDOWS


@pytest.fixture(scope="module")
def record() -> Record:
    finder = bull_finder()
    (made,) = finder.new_records(bull_scene(), false_positive(finder), False)
    return made


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_what_would_not_load_is_not_added(tmp_path, record, alter):
    path = tmp_path / "mine.whet"
    bull_finder().save(path)
    before = path.read_bytes()
    with pytest.raises(RecordError), edit(path) as finder:
        finder.add([alter(record)])
    with pytest.raises(RecordError):
        finder.only.replace_records([alter(record)])
    assert path.read_bytes() == before


def test_numbers_of_numpy_are_as_good(tmp_path, record):
    finder = bull_finder()
    box = tuple(np.float64(record.box))
    finder.add([replace(record, time=np.int64(5), weight=np.int32(1), is_object=np.False_, box=box)])
    finder.save(tmp_path / "mine.whet")
    assert load(tmp_path / "mine.whet").records[0].time == 5


def test_a_clock_before_1970_does_no_harm(tmp_path, monkeypatch):
    path, finder = tmp_path / "mine.whet", bull_finder()
    monkeypatch.setattr("time.time", lambda: -3e8)
    finder.learn(bull_scene(), false_positive(finder), False)
    finder.save(path)
    assert [one.time for one in load(path).records] == [0]


def test_a_base_that_would_not_load_replaces_none(tmp_path):
    path, broken = tmp_path / "mine.whet", replace(bull_finder().base)
    bull_finder().save(path)
    before = path.read_bytes()
    broken.__dict__["base_id"] = "f" * 64
    with pytest.raises(ModelFileError, match="nothing was written"):
        Detector.from_base(broken).save(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("in_place", [True, False])
def test_the_model_of_a_session_is_read_back(tmp_path, in_place):
    path, broken = tmp_path / "mine.whet", replace(bull_finder().base)
    bull_finder().save(path)
    before = path.read_bytes()
    broken.__dict__["base_id"] = "f" * 64
    tracker = Tracker(Detector.from_base(broken))
    with pytest.raises(WhetError):
        SavedModel(path, in_place=in_place).save(tracker)
    assert path.read_bytes() == before
