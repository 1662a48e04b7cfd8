"""The studio in a real browser: start from nothing, and live video."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect
from scripts.studio_browser import Studio
from tests.cascades import random_stage

from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.io.video import VideoWriter
from whet.models.gslda.cascade_model import CascadeModel

pytestmark = pytest.mark.slow

SIDE = 24
ROWS, COLUMNS = 3, 7


@pytest.fixture
def crosses(tmp_path):
    """An image with 21 bright crosses on noise, and one without."""
    folder = tmp_path / "crosses"
    folder.mkdir()
    noise = np.random.default_rng(3).integers(60, 120, (240, 480), np.uint8)
    Image.fromarray(noise).save(folder / "empty.png")
    image = Image.fromarray(noise)
    pen = ImageDraw.Draw(image)
    for x, y in places():
        pen.line([x + 2, y + 12, x + 22, y + 12], 230, 5)
        pen.line([x + 12, y + 2, x + 12, y + 22], 230, 5)
    image.save(folder / "crosses.png")
    return folder


def places():
    return [(30 + 60 * column, 40 + 60 * row) for row in range(ROWS) for column in range(COLUMNS)]


def test_boxes_in_confirmed_images_are_enough_to_train(crosses, tmp_path, browser, open_page):  # noqa: ARG001
    with Studio(crosses, project=tmp_path / "new.studio") as studio:
        page = open_page(studio, "crosses.png")
        train = page.page.get_by_role("button", name="Train")
        expect(train).to_be_disabled()
        for x, y in places():
            page.draw([x, y, x + SIDE, y + SIDE])
        page.page.keyboard.press("Escape")
        page.settle()
        expect(page.page.locator(".training")).to_contain_text("Enough boxes")
        assert len(page.labels("crosses.png")) == ROWS * COLUMNS
        page.page.get_by_label("Name of the class").fill("cross")
        train.click()
        expect(page.page.get_by_role("status").filter(has_text="images without the object")).to_be_visible()
        page.page.locator(".notice button").click()
        for name in ("crosses.png", "empty.png"):
            page.choose(name)
            page.page.get_by_role("button", name="Confirm", exact=True).click()
            page.settle()
        train.click()
        expect(page.page.locator(".training")).to_contain_text("left")
        assert studio.get("/api/train")["state"] == "running"
        page.page.get_by_role("button", name="Cancel").click()
        expect(train).to_be_visible()


@pytest.fixture
def film(photographs, tmp_path):
    """The astronaut, with a camera that moves slowly."""
    picture = np.asarray(Image.open(photographs / "astronaut.png"))
    path = tmp_path / "film.mp4"
    with VideoWriter(path, rate=2) as writer:  # half a minute: the page may take seconds to open
        for number in range(60):
            writer.write(picture[10:330, 60 + number : 60 + number + 320])
    return path


def test_a_video_is_paused_corrected_and_continued(film, tmp_path, browser, open_page):  # noqa: ARG001
    with Studio("face", film, project=tmp_path / "film.studio") as studio:
        page = open_page(studio, view="stream")
        page.page.wait_for_function("() => document.querySelector('.stream img')?.naturalWidth === 320")
        page.page.get_by_role("button", name="Pause and correct").click()
        expect(page.boxes().first).to_be_visible()
        rows = studio.get("/api/images")["images"]
        assert len(rows) == 1, [row["name"] for row in rows]
        (row,) = rows
        assert row["name"].startswith("film-")
        page.boxes().first.click()
        page.page.locator(".tools").get_by_role("button", name="Right").click()
        page.settle()
        assert [label["is_object"] for label in page.labels(row["name"])] == [True]
        page.page.get_by_role("button", name="Continue").click()
        expect(page.page.locator(".stream img")).to_be_visible()
        assert studio.get("/api/video")["state"] == "playing"


def test_a_detector_that_cannot_learn_shows_the_reason_and_no_controls(photographs, tmp_path, browser, open_page):  # noqa: ARG001
    stage = random_stage("haar", (24, 24), 4, np.random.default_rng(3))
    stage = replace(stage, threshold=1e3)  # it finds nothing, in little time
    path = tmp_path / "fixed.whet"
    Detector.from_base(DetectorBase(CascadeModel((24, 24), (stage,), 12.5))).save(path)
    with Studio(path, photographs, project=tmp_path / "fixed.studio") as studio:
        page = open_page(studio, "coffee.png")
        expect(page.page.get_by_role("alert")).to_contain_text("whet adopt")
        for name in ("Draw", "Confirm"):
            expect(page.page.get_by_role("toolbar").get_by_role("button", name=name)).to_be_disabled()


def test_a_deleted_image_is_shown_as_missing_and_not_counted(photographs, tmp_path, browser, open_page):  # noqa: ARG001
    folder = tmp_path / "photographs"
    folder.mkdir()
    for name in ("astronaut.png", "coffee.png", "coins.png"):
        (folder / name).write_bytes((photographs / name).read_bytes())
    with Studio("face", folder, project=tmp_path / "gone.studio") as studio:
        page = open_page(studio, "astronaut.png")
        page.page.get_by_role("button", name="Name", exact=True).click()
        expect(page.page.locator(".progress-text")).to_contain_text("0 / 3")
        (folder / "coins.png").unlink()
        expect(page.page.get_by_role("button", name="coins.png: file not found")).to_be_disabled()
        expect(page.page.locator(".progress-text")).to_contain_text("0 / 2")
        page.page.get_by_role("button", name="Queue", exact=True).click()
        expect(page.page.get_by_role("button", name="coins.png: file not found")).to_have_count(0)
