"""The project file: what was written is there after any end, and damage is noticed."""

import sqlite3
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, false_positive
from tests.web.studios import finder, labels_for, opened, scene

from whet.errors import CannotWriteError, ProjectClosedError, ProjectError
from whet.web import page_state
from whet.web.store import Store, as_bytes, from_bytes
from whet.web.workspace import Workspace


def test_a_record_comes_back_with_its_id_and_all_that_is_beside_it():
    detector = bull_finder()
    (record,) = detector.new_records(bull_scene(), false_positive(detector), False, name="a b.png", note="ünd")
    again = from_bytes(as_bytes(record))
    assert (again.id, again.name, again.note, again.time) == (record.id, record.name, record.note, record.time)


def test_all_is_there_when_the_project_is_opened_again(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        wrong = page_state.image(workspace, keys[0]).detections[-1].box
        labels_for(workspace).label(keys[0], [wrong], False, author="a", request="1")
        labels_for(workspace).confirm([keys[1]], author="a")
        workspace.add_branch("try")
        labels_for(workspace).label(keys[2], [page_state.image(workspace, keys[2]).detections[-1].box], False)
        workspace.undo()
        before = page_state.history_view(workspace), page_state.image(workspace, keys[0]), workspace.detector.to_bytes()
    with opened(tmp_path, detector=None) as (workspace, _):
        assert (
            page_state.history_view(workspace),
            page_state.image(workspace, keys[0]),
            workspace.detector.to_bytes(),
        ) == before
        assert workspace.is_reviewed(keys[1])
        workspace.redo()
        assert len(workspace.record_ids()) == len(workspace.record_ids(before[0].current)) + 1


def test_a_project_belongs_to_one_model_and_to_one_process(tmp_path):
    with opened(tmp_path):
        with pytest.raises(ProjectError, match="open in another studio"):
            Workspace.open(tmp_path / "bull.studio", finder())
        code = "import sys\nfrom whet.web.store import Store\nfrom pathlib import Path\nStore(Path(sys.argv[1]))"
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "bull.studio")], capture_output=True, text=True, check=False
        )
        assert "open in another studio" in other.stderr
    import whet

    with pytest.raises(ProjectError, match="belongs to the model bull"):
        Workspace.open(tmp_path / "bull.studio", whet.load("face"), name="face")


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to look like one" * 20, b"SQLite format 3\0"]
)
def test_other_files_are_refused_and_left_as_they_are(tmp_path, content):
    path = tmp_path / "x.studio"
    path.write_bytes(content)
    with pytest.raises(ProjectError, match="--project"):
        Store(path)
    assert path.read_bytes() == content


def test_other_databases_and_other_versions_are_refused(tmp_path):
    cases = {
        "CREATE TABLE a (b)": "another database",
        "PRAGMA user_version = 2": "older version",
        "PRAGMA user_version = 99": "newer version",
    }
    for statement, said in cases.items():
        path = tmp_path / f"{said}.studio"
        with sqlite3.connect(path) as db:
            db.execute(statement)
        db.close()
        with pytest.raises(ProjectError, match=said):
            Store(path)


def test_a_damaged_label_is_named(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        box = page_state.image(workspace, keys[0]).detections[-1].box
        (key,) = labels_for(workspace).label(keys[0], [box], False).added
    with sqlite3.connect(tmp_path / "bull.studio") as db:
        ((data,),) = db.execute("SELECT record FROM labels WHERE id = ?", (key,))
        db.execute("UPDATE labels SET record = ?", (data[:-1] + bytes([data[-1] ^ 1]),))
    db.close()
    with pytest.raises(ProjectError, match=key[:8]):
        Workspace.open(tmp_path / "bull.studio")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE nodes SET parent = 1 WHERE id = 1",
        "UPDATE changes SET node = 9",
        "INSERT INTO settings VALUES ('latest', '[1]')",
        """INSERT INTO settings VALUES ('latest', '{"0": []}')""",
        """INSERT INTO settings VALUES ('latest', '{"0": 9}')""",
        f"UPDATE images SET truth = '[[0, 0, 1, 1{400 * '0'}]]'",
        "UPDATE labels SET record = x'0100000033'",
        "UPDATE settings SET value = 7 WHERE key = 'current'",
        "UPDATE images SET truth = '[[1, 2, 3]]'",
        "UPDATE images SET width = 0",
        "UPDATE labels SET x1 = 9e999",
        "CREATE VIEW v AS WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT 1 FROM t) SELECT * FROM t",
    ],
)
def test_a_project_that_no_studio_wrote_is_refused_by_name(tmp_path, statement):
    with opened(tmp_path) as (workspace, keys):
        labels_for(workspace).label(keys[0], [(2.0, 2.0, 32.0, 32.0)], False)
    with sqlite3.connect(tmp_path / "bull.studio") as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute(statement.replace("INSERT", "INSERT OR REPLACE"))
    db.close()
    with pytest.raises(ProjectError, match=r"bull\.studio|label .* of the project"):
        Workspace.open(tmp_path / "bull.studio")


def test_a_correction_that_a_model_may_have_is_in_the_project(tmp_path):
    made = finder()
    (record,) = made.new_records(scene(0), [[2.0, 2.0, 32.0, 32.0]], False)
    made.add([replace(record, time=1_760_000_000_000)])  # milliseconds, from another program
    with Workspace.open(tmp_path / "a.studio", made, name="bull") as workspace:
        assert len(workspace.record_ids()) == 1
    with Workspace.open(tmp_path / "a.studio") as workspace:
        assert len(workspace.record_ids()) == 1


def test_a_full_disk_changes_nothing_and_the_next_change_works(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        database = workspace.store._db
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        before = page_state.history_view(workspace), workspace.detector.to_bytes()
        with pytest.raises(CannotWriteError, match=r"bull\.studio cannot be written: database or disk is full"):
            workspace.add_image(np.random.default_rng(0).integers(0, 256, (400, 400, 3), np.uint8), "large.png")
        assert (page_state.history_view(workspace), workspace.detector.to_bytes()) == before
        database.execute("PRAGMA max_page_count = 1000000")
        labels_for(workspace).label(keys[0], [(2.0, 2.0, 32.0, 32.0)], False)
        assert len(workspace.record_ids()) == 1


def test_a_closed_project_says_that_it_is_closed(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        pass
    for work in (lambda: workspace.store.put(a=1), workspace.store.labels, lambda: labels_for(workspace).confirm(keys)):
        with pytest.raises(ProjectClosedError, match="is closed"):
            work()
