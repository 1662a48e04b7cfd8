"""A studio from its command line: what it shows, what it refuses, and files that go."""

import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from tests.cascades import random_stage
from tests.detectors import bull_file
from tests.web.studios import TIMEOUT, scenes, served

import whet
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import NotNowError, UnknownItemError, UnreadableImageError, VideoError, VideoNotFoundError
from whet.models.gslda.cascade_model import CascadeModel
from whet.web import exports, page_state
from whet.web.studio import Studio


@pytest.mark.parametrize(
    ("name", "content", "error", "named"),
    [
        ("notes.txt", b"a note\n" * 100, UnknownItemError, "neither an image nor a video"),
        ("note.png", b"a note\n" * 100, UnreadableImageError, "note.png"),
        ("film.mp4", b"a note\n" * 100, VideoError, "film.mp4"),
        ("gone.mp4", None, VideoNotFoundError, "gone.mp4"),
    ],
)
def test_what_is_no_image_and_no_video_is_refused_before_the_page_opens(tmp_path, name, content, error, named):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=named):
        Studio.open(tmp_path / "a.studio", whet.load(bull_file(tmp_path)), "bull", [str(tmp_path / name)])


def test_files_that_cannot_be_read_are_left_out_beside_one_that_can(tmp_path):
    folder = scenes(tmp_path / "scenes", n=1)
    (folder / "0-note.png").write_text("a note\n")
    with Studio.open(tmp_path / "a.studio", whet.load(bull_file(tmp_path)), "bull", [str(folder)], threads=1) as studio:
        wait_until(lambda: len(studio.workspace.gallery))
        assert [image.name for image in studio.workspace.gallery] == ["0.png"]


def test_the_end_of_every_rescan_is_published(tmp_path):
    folder, events = scenes(tmp_path / "scenes", n=2), []

    def has_ended():
        return any(event["type"] == "rescan" and event["done"] == event["total"] == 2 for event in list(events))

    with (
        Studio.open(tmp_path / "a.studio", whet.load(bull_file(tmp_path)), "bull", [str(folder)], threads=1) as studio,
        studio.workspace.events.subscribed(events.append),
    ):
        wait_until(lambda: len(studio.workspace.gallery) == 2 and studio.rescan.view().done == 2)
        for _ in range(2):
            key = next(iter(studio.workspace.gallery)).id
            events.clear()
            studio.labeller.label(key, [studio.workspace.shown(key).boxes[-1].tolist()], False)
            wait_until(has_ended)


def test_raw_video_of_a_recorder_is_a_video(tmp_path):
    pytest.importorskip("av")
    frame = b"FRAME\n" + bytes(range(64)) * 48 + bytes([128]) * (32 * 24 * 2)
    (tmp_path / "film.y4m").write_bytes(b"YUV4MPEG2 W64 H48 F25:1 C420jpeg\n" + 5 * frame)
    detector = whet.load(bull_file(tmp_path))
    with Studio.open(tmp_path / "a.studio", detector, "bull", [str(tmp_path / "film.y4m")], threads=1) as studio:
        view = studio.video.view()
        assert (view.error, view.frame is not None) == (None, True)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "code"), [("notes.txt", 1), ("camera:77", 3)])
def test_a_source_that_fails_ends_the_command_with_its_reason(tmp_path, source, code):
    (tmp_path / "notes.txt").write_text("a note\n")
    command = [sys.executable, "-m", "whet", "serve", str(bull_file(tmp_path)), source, "--no-browser"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert run.returncode == code, run.stderr
    assert source.partition(":")[2] in run.stderr
    assert "Traceback" not in run.stderr


def test_a_detector_that_cannot_learn_says_so_and_why(tmp_path):
    stage = random_stage("haar", (12, 12), 4, np.random.default_rng(3))
    fixed = Detector.from_base(DetectorBase(CascadeModel((12, 12), (stage,), 12.5)))
    with served(tmp_path, detector=fixed) as (client, keys):
        model = client.get("/api/state").json()["model"]
        assert not model["can_learn"]
        assert "whet adopt" in model["cannot_learn_reason"]
        body = {"boxes": [[40, 30, 70, 60]], "is_object": True}
        answer = client.post(f"/api/images/{keys[0]}/labels", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (409, model["cannot_learn_reason"])


@pytest.mark.slow
def test_an_image_that_is_deleted_is_missing_in_no_queue_and_no_count_until_it_is_back(tmp_path):
    with four_scenes(tmp_path) as (studio, folder, gallery):
        content = (folder / "1.png").read_bytes()
        (folder / "1.png").unlink()
        wait_until(lambda: gallery.missing)
        (key,) = gallery.missing
        rows = {order: page_state.images(studio.workspace, order, 0, 100).images for order in ("name", "queue")}
        assert [row.is_missing for row in rows["name"]] == [row.id == key for row in rows["name"]]
        assert key not in [row.id for row in rows["queue"]]
        state = page_state.state(studio)
        assert (state.n_images, state.n_missing) == (3, 1)
        (folder / "1.png").write_bytes(content)
        wait_until(lambda: not gallery.missing)
        assert page_state.state(studio).n_images == 4


@pytest.mark.slow
def test_an_export_says_that_the_files_of_reviewed_images_are_missing(tmp_path):
    with four_scenes(tmp_path) as (studio, folder, gallery):
        first = next(iter(gallery))
        with pytest.raises(NotNowError, match="no image is reviewed"):
            exports.exported(studio.workspace, "coco")
        studio.labeller.confirm([first.id])
        (folder / first.name).unlink()
        wait_until(lambda: gallery.missing)
        with pytest.raises(NotNowError, match="the files of all 1 reviewed images are missing"):
            exports.exported(studio.workspace, "coco")
        assert exports.exported(studio.workspace, "coco", reviewed=False).name.endswith(".json")


@contextmanager
def four_scenes(place):
    """A studio that has read four image files, their folder, and the gallery."""
    folder = scenes(place / "scenes")
    with Studio.open(place / "a.studio", whet.load(bull_file(place)), "bull", [str(folder)], threads=1) as studio:
        wait_until(lambda: len(studio.workspace.gallery) == 4)
        yield studio, folder, studio.workspace.gallery


def wait_until(is_true):
    end = time.monotonic() + TIMEOUT
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)
