"""What goes wrong around a studio harms nothing else: full disks, missing files, directories of the user."""

import logging
import sqlite3
import subprocess
import sys
import time

import pytest
from starlette.testclient import TestClient
from tests.web.studios import PAGE, TIMEOUT, finder, labels_for, opened, scene, scenes

from whet.errors import CannotWriteError, NotNowError, TrainingDataError, UnknownItemError
from whet.web import page_state
from whet.web.api import make_app
from whet.web.exports import annotated
from whet.web.security import Access
from whet.web.studio import Rescan, Studio
from whet.web.training import EVENT, Training
from whet.web.workspace import Workspace

BULLS = [[40, 30, 70, 60], [120, 70, 170, 120]]


def untrained(folder, name="new.studio", n=10):
    """A project with boxes in confirmed images, and no model."""
    workspace = Workspace.open(folder / name, threads=1)
    images = [workspace.add_image(scene(seed), f"{seed}.png").id for seed in range(n)]
    for image in images:
        labels_for(workspace).label(image, BULLS, True)
    labels_for(workspace).confirm(images)
    return workspace


def labelled_files(workspace, folder):
    """Add up to 16 image files, with boxes in each, and confirm them."""
    (images,) = workspace.gallery.add_files(sorted(folder.iterdir()))
    for image in images:
        labels_for(workspace).label(image.id, BULLS, True)
    labels_for(workspace).confirm([image.id for image in images])
    return images


# Directories of the user.


@pytest.fixture
def kept(tmp_path):
    """A function that makes directories of the user with a file each; afterwards the files are as they were."""
    files = []

    def make(*names):
        for name in names:
            files.append(tmp_path / name / "kept.txt")
            files[-1].parent.mkdir()
            files[-1].write_text("kept")

    yield make
    assert [file.read_text() for file in files] == ["kept"] * len(files)


@pytest.mark.parametrize("name", ["photos.studio", "photos.training"])
def test_preparing_a_training_leaves_the_directories_of_the_user_alone(tmp_path, kept, name):
    kept(*{"photos", "photos.new", "photos.training"} - {name})
    with untrained(tmp_path, name) as workspace:
        training, before = Training(labels_for(workspace)), set(tmp_path.iterdir())
        folder, counts = training._prepared("bull")
        assert counts == "20 boxes in 10 images"
        (folder / "checkpoint").touch()
        assert training._prepared("bull") == (folder, counts)
        assert (folder / "checkpoint").exists()  # the same boxes: it goes on from there
        training._prepared("other")
        assert not (folder / "checkpoint").exists()
        assert set(tmp_path.iterdir()) - before == {folder}


def test_a_directory_of_the_user_in_the_place_of_a_training_is_named(tmp_path, kept):
    kept("photos.studio.training")
    taken = pytest.raises(NotNowError, match=r"photos\.studio\.training")
    with untrained(tmp_path, "photos.studio") as workspace, taken:
        Training(labels_for(workspace)).start("bull")


# A new model.


def test_labels_that_come_while_a_trained_model_is_taken_over_are_kept(tmp_path, monkeypatch):
    with untrained(tmp_path, n=3) as workspace:
        labeller, detector = labels_for(workspace), finder()
        key = workspace.add_image(scene(7), "late.png").id
        new_records = detector.new_records

        def meanwhile(*arguments, **options):
            if not workspace.labels_of(key):
                labels_for(workspace).label(key, BULLS[:1], True, author="ann")
            return new_records(*arguments, **options)

        monkeypatch.setattr(detector, "new_records", meanwhile)
        labeller.use_trained(detector, "bull")
        assert [(label.author, label.box) for label in workspace.labels_of(key)] == [("ann", tuple(BULLS[0]))]
        assert len(workspace.record_ids()) == 2 * 3 + 1


def test_labels_of_images_that_are_gone_stay_labels_of_a_new_model(tmp_path):
    folder = scenes(tmp_path / "photos", n=2)
    with Workspace.open(tmp_path / "new.studio") as workspace:
        images = labelled_files(workspace, folder)
    (folder / "0.png").unlink()
    with Workspace.open(tmp_path / "new.studio") as workspace:
        labels_for(workspace).use_trained(finder(), "bull")
        assert [len(workspace.labels_of(image.id)) for image in images] == [2, 2]
        assert len(workspace.record_ids()) == 2


def test_the_state_before_the_first_training_is_shown_without_a_model(tmp_path):
    with (
        opened(tmp_path, detector=None, n=1) as (workspace, _),
        TestClient(make_app(Studio(workspace), Access()), base_url="http://localhost") as client,
    ):
        labels_for(workspace).use_trained(finder(), "bull")
        workspace.set_min_score("default")
        workspace.undo()
        answer = client.get("/api/state")
        assert answer.status_code == 200, answer.text
        assert (answer.json()["model"], answer.json()["min_score_name"]) == (None, None)
        workspace.redo()
        assert client.get("/api/state").json()["min_score_name"] == "default"


def process(code):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def followed(training, folder, code):
    """The job after a process that is followed to its end."""
    training._process = process(code)
    training._follow(training._process, folder, "bull")
    return training.job


def test_a_detector_that_cannot_be_used_is_a_failed_training_and_another_one_can_start(tmp_path):
    with untrained(tmp_path) as workspace:
        training = Training(labels_for(workspace))
        job = followed(training, tmp_path, "")
        assert (job.state, "model.whet" in job.error) == ("failed", True)
        assert training.can_start
        (tmp_path / "model.whet").write_bytes(b"no model")
        assert followed(training, tmp_path, "").state == "failed"
        assert not workspace.has_model


def test_lines_of_a_training_that_are_no_events_are_left_out(tmp_path):
    with untrained(tmp_path, n=1) as workspace:
        training, events, folder = Training(labels_for(workspace)), [], tmp_path / "new.studio.training"
        folder.mkdir()
        (folder / "model.whet").write_bytes(finder().to_bytes())
        event = EVENT + '{"text": "round 1", "progress": 0.5, "seconds": 1, "left": 1}'
        with workspace.events.subscribed(events.append):
            job = followed(training, folder, f"print('a library says hello')\nprint({event!r})\nprint('{{}}')")
        assert job.state == "finished", job
        assert [one["text"] for one in events if one.get("state") == "running"] == ["round 1"]
        assert workspace.has_model
        assert not folder.exists()


# A disk that is full.


@pytest.fixture
def full_disk(monkeypatch):
    """Make the project file of a workspace refuse to be written."""

    def fill(workspace):
        def refuse(*_):
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(workspace.store, "_put", refuse)

    return fill


def test_a_full_disk_is_answered_with_507_and_the_next_correction_works(tmp_path, full_disk, monkeypatch):
    with opened(tmp_path) as (workspace, keys):
        app = make_app(Studio(workspace), Access())
        with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
            label = {"boxes": [[2, 2, 32, 32]], "is_object": False}
            full_disk(workspace)
            refused = client.post(f"/api/images/{keys[0]}/labels", json=label, headers=PAGE)
            assert refused.status_code == 507, refused.text
            assert (
                "bull.studio cannot be written: database or disk is full; nothing was changed"
                in refused.json()["detail"]
            )
            monkeypatch.undo()
            assert client.post(f"/api/images/{keys[0]}/labels", json=label, headers=PAGE).status_code == 200
            assert len(workspace.record_ids()) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda workspace: workspace.undo(),
        lambda workspace: workspace.redo(),
        lambda workspace: workspace.checkout(node=0),
        lambda workspace: workspace.checkout(branch="main"),
        lambda workspace: workspace.add_branch("other"),
        lambda workspace: workspace.remove_branch("main"),
        lambda workspace: workspace.commit((), [], items=["reviewed/x"]),
    ],
)
def test_a_move_that_cannot_be_written_is_not_made(tmp_path, full_disk, change):
    with opened(tmp_path) as (workspace, keys):
        for key in keys[:3]:
            labels_for(workspace).confirm([key])
        workspace.add_branch("try")
        workspace.undo()

        def now():
            return page_state.history_view(workspace), dict(workspace.history.latest), workspace.detector.to_bytes()

        before = now()
        full_disk(workspace)
        with pytest.raises(CannotWriteError):
            change(workspace)
        assert now() == before
    with opened(tmp_path, detector=None) as (workspace, _):
        assert now() == before


def test_redo_leads_to_the_same_state_after_a_restart(tmp_path):
    with opened(tmp_path) as (workspace, keys):
        labels_for(workspace).confirm([keys[0]])
        labels_for(workspace).confirm([keys[1]])
        workspace.undo()
        last = labels_for(workspace).confirm([keys[2]]).node
        latest = dict(workspace.history.latest)
    with opened(tmp_path, detector=None) as (workspace, _):
        assert workspace.history.latest == latest
        workspace.checkout(node=1)
        assert workspace.redo() == last


# Images that are gone.


def until(condition):
    for _ in range(TIMEOUT * 20):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come")


def test_an_image_that_is_gone_does_not_stop_the_scan_of_the_others(tmp_path):
    folder = scenes(tmp_path / "photos", n=4)
    with Workspace.open(tmp_path / "bull.studio", finder(), name="bull", threads=1) as workspace:
        list(workspace.gallery.add_files(sorted(folder.iterdir())))
        (folder / "0.png").unlink()
        rescan = Rescan(workspace, [])
        rescan.start()
        until(lambda: rescan.view().done == 3)
        rescan.stop()
        assert (rescan.view().total, rescan.view().unreadable) == (4, 1)


def test_an_image_that_is_gone_after_its_scan_can_be_opened(tmp_path, monkeypatch):
    """What a correction needs is made ready after the answer: an error there would end the connection."""
    with opened(tmp_path) as (workspace, keys):
        workspace.detections(keys[0])

        def gone(_):
            raise UnknownItemError("no such image")

        monkeypatch.setattr(workspace.gallery, "pixels", gone)
        workspace.prepare(keys[0])


@pytest.mark.slow
def test_an_unexpected_error_is_logged_and_the_scan_goes_on(tmp_path, monkeypatch, caplog):
    with opened(tmp_path) as (workspace, keys):
        scan = workspace.cache.scan

        def failing(key, *arguments, **options):
            if key == keys[0]:
                raise MemoryError("no memory")
            return scan(key, *arguments, **options)

        monkeypatch.setattr(workspace.cache, "scan", failing)
        with caplog.at_level(logging.ERROR, "whet"):
            studio = Studio(workspace)
            studio.rescan.start()
            until(lambda: studio.rescan.view().done == 3)
            time.sleep(0.5)
            studio.rescan.stop()
        assert studio.rescan.view().unreadable == 0  # the image can be read: it is not missing
        assert caplog.text.count("cannot scan 0.png") == 1
        monkeypatch.undo()
        labels_for(workspace).confirm([keys[1]])  # in another state, it is scanned again
        while studio.rescan.step():
            pass
        assert studio.rescan.view().done == 4


def test_a_file_that_could_not_be_read_is_read_again_after_it_was_written(tmp_path):
    folder = scenes(tmp_path / "photos", n=2)
    with Workspace.open(tmp_path / "bull.studio", finder(), name="bull", threads=1) as workspace:
        list(workspace.gallery.add_files(sorted(folder.iterdir())))
        content, rescan, events = (folder / "0.png").read_bytes(), Rescan(workspace, []), []
        (folder / "0.png").write_bytes(content[:100])
        with workspace.events.subscribed(events.append):
            while rescan.step():
                pass
        assert len(workspace.gallery.missing) == 1
        assert "images" in [event["type"] for event in events]  # open pages show that it is missing
        assert not workspace.gallery.check_files()
        (folder / "0.png").write_bytes(content)
        assert workspace.gallery.check_files()
        while rescan.step():
            pass
        assert (rescan.view().done, rescan.view().unreadable) == (2, 0)


def test_objects_of_missing_images_do_not_count_for_a_training(tmp_path):
    folder = scenes(tmp_path / "photos", n=5)
    with Workspace.open(tmp_path / "new.studio") as workspace:
        labelled_files(workspace, folder)
        studio = Studio(workspace)
        state = page_state.state(studio)
        assert (state.n_objects, state.can_train) == (10, True)
        (folder / "3.png").unlink()
        workspace.gallery.check_files()
        state = page_state.state(studio)
        assert (state.n_objects, state.can_train, state.n_corrections) == (8, False, 10)
        with pytest.raises(TrainingDataError, match="8 boxes"):
            studio.training.start("bull")
        for path in folder.iterdir():
            path.unlink()
        workspace.gallery.check_files()
        with pytest.raises(NotNowError, match="no labelled image can be read"):
            annotated(workspace, tmp_path / "out", labelled=True)
