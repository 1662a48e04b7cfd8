import json

import pytest
from tests.commands import check_message
from tests.detectors import BULL, bull_finder, bull_scene, false_positive

from whet.cli.options import ExitCode
from whet.detector.storage import load
from whet.errors import AnnotationError
from whet.io.annotations.formats import read_annotations

NASTY = "wall\x1b[2J\u202e\n.png"


@pytest.fixture
def folder(tmp_path):
    """A model with a false positive, a contradiction to it, a bull and an example."""
    detector = bull_finder()
    wrong = false_positive(detector)
    detector.learn(bull_scene(), wrong, False, name=NASTY, note="a \x07 bell")
    detector.learn(bull_scene(), wrong, True, name=NASTY)
    detector.learn(bull_scene(2), BULL, True, name="scene 2.png")
    detector.save(tmp_path / "bull.whet")
    return tmp_path


def test_every_correction_is_one_row_and_says_whether_it_holds(run_here):
    detector = load("bull.whet")
    broken = {record.id for record in detector.unsatisfied}
    assert broken  # the contradiction
    _, *rows = run_here("log", "bull.whet").out.splitlines()
    assert [row.split()[0] for row in rows] == [record.id[:8] for record in detector.records]
    assert ["NO" in row.split() for row in rows] == [record.id in broken for record in detector.records]
    listed = json.loads(run_here("log", "bull.whet", "--json").out)
    assert [(row["id"], row["holds"]) for row in listed] == [(r.id, r.id not in broken) for r in detector.records]
    assert sorted(row["kind"] for row in listed) == ["not object", "object", "object"]
    assert {row["file_name"] for row in listed} == {NASTY, "scene 2.png"}


def test_names_and_notes_cannot_write_to_the_terminal(run_here):
    out = run_here("log", "bull.whet").out
    assert all(row.isprintable() for row in out.splitlines())
    assert "wall\\x1b[2J" in out
    removed = run_here("unlearn", "bull.whet", "--all").out
    assert all(row.isprintable() for row in removed.splitlines())
    assert run_here("log", "bull.whet").code == 0
    assert run_here("log", "face").code == 0


def test_corrections_are_exported_as_coco(folder, run_here):
    from pycocotools.coco import COCO

    assert run_here("export-corrections", "bull.whet", "-o", "out.json").code == 0
    table = COCO(str(folder / "out.json"))
    records = {record.id: record for record in load("bull.whet").records}
    assert {row["record"] for row in table.anns.values()} == set(records)
    for row in table.anns.values():
        record = records[row["record"]]
        x, y, width, height = row["bbox"]
        assert (x, y, x + width, y + height) == pytest.approx(record.box)
        assert table.cats[row["category_id"]]["name"] == ("object" if record.is_object else "not-object")
        assert table.imgs[row["image_id"]]["file_name"] == record.name
        assert row["note"] == record.note
    assert len(table.imgs) == 2
    with pytest.raises(AnnotationError, match="export-corrections"):
        read_annotations(folder / "out.json")
    done = run_here("export-corrections", "bull.whet", "-o", "out.json")
    assert done.code == 2
    assert "--force" in check_message(done.err, ["out.json"])
    assert run_here("log", "nowhere.whet").code == ExitCode.DATA_MISSING
