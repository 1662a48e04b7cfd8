"""The studio in a real browser: look, judge, draw, undo."""

import re
import time

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

FACE = (224, 110)  # a pixel of the astronaut's face
COIN = [128, 168, 168, 208]  # a coin with a head that the face detector does not find


def contains(box, point):
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def overlap(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(0, width) * max(0, height)
    area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return both / (area - both)


def face_and_other(page, image="astronaut.png"):
    """The detection at the face, and the false positive."""
    found = [detection["box"] for detection in page.detections(image)]
    (face,) = [box for box in found if contains(box, FACE)]
    (other,) = [box for box in found if box != face]
    return face, other


def test_the_page_shows_what_the_detector_finds(studio, open_page):
    page = open_page(studio, "astronaut.png")
    expect(page.boxes()).to_have_count(2)
    for box in face_and_other(page):
        expect(page.box_at(box)).to_be_visible()
    x, y, width, height = page.box_at(face_and_other(page)[0]).locator(".edge").bounding_box().values()
    left, top = page.on_screen(*FACE)
    assert x < left < x + width
    assert y < top < y + height
    expect(page.page.locator(".tile").first).to_be_visible()


def test_a_false_positive_that_is_marked_wrong_vanishes_and_the_face_stays(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, other = face_and_other(page)
    page.judge(other, "Wrong")
    expect(page.boxes()).to_have_count(1)
    expect(page.box_at(face)).to_have_attribute("data-kind", "detection")
    page.settle()
    assert [detection["box"] for detection in page.detections("astronaut.png")] == [face]
    (label,) = page.labels("astronaut.png")
    assert label["is_object"] is False


def test_space_confirms_the_image_after_a_click_on_a_tab(studio, open_page):
    page = open_page(studio, "astronaut.png")
    page.panel("Quality")
    page.page.keyboard.press(" ")
    expect(page.page.locator(".image-name")).not_to_have_attribute("title", "astronaut.png")
    page.settle()
    assert studio.get(f"/api/images/{studio.ids()['astronaut.png']}")["is_reviewed"]


def test_space_confirms_the_image_that_was_clicked_in_the_filmstrip(studio, open_page):
    page = open_page(studio, "astronaut.png")
    page.choose("coins.png")
    page.page.keyboard.press(" ")
    expect(page.page.locator(".image-name")).not_to_have_attribute("title", "coins.png")
    page.settle()
    rows = page.studio.get("/api/images", limit=100)["images"]
    assert [row["name"] for row in rows if row["is_reviewed"]] == ["coins.png"]


def test_a_missed_object_that_is_drawn_is_found(studio, open_page):
    page = open_page(studio, "coins.png")
    assert all(overlap(found["box"], COIN) < 0.3 for found in page.detections("coins.png"))
    before = page.boxes().count()
    page.draw(COIN)
    expect(page.boxes()).to_have_count(before + 1)
    page.settle()
    assert any(overlap(found["box"], COIN) > 0.5 for found in page.detections("coins.png"))


def test_the_diff_names_what_changed_in_other_images(studio, open_page):
    page = open_page(studio, "astronaut.png")
    _, other = face_and_other(page)
    page.judge(other, "Wrong")
    page.settle()
    for _ in range(600):  # until all images are scanned
        effect = studio.get("/api/effect")
        if effect["is_complete"]:
            break
        time.sleep(0.1)
    elsewhere = [change for change in effect["changes"] if change["name"] != "astronaut.png"]
    assert "dusk.png" in {change["name"] for change in elsewhere}, "the same false positive in other light"
    for change in elsewhere:
        row = page.panel("Effect").locator(f".change[data-image='{change['image']}'][data-kind={change['kind']}]")
        expect(row.first).to_contain_text(change["name"])
    page.panel("Effect").locator(".change", has_text="dusk.png").first.click()
    page.wait_until_shown("dusk.png")


def test_undo_gives_the_former_bytes_and_redo_the_corrected_ones(studio, open_page):
    page = open_page(studio, "astronaut.png")
    _, other = face_and_other(page)
    model = lambda: studio.client.get("/api/model.whet").content  # noqa: E731
    before = model()
    page.judge(other, "Wrong")
    expect(page.boxes()).to_have_count(1)
    page.settle()
    corrected = model()
    assert corrected != before
    page.page.keyboard.press("Control+z")
    expect(page.boxes()).to_have_count(2)
    page.settle()
    assert model() == before
    expect(page.panel("Effect").locator(".totals")).to_contain_text(re.compile("[1-9]new.*0gone"))
    page.page.keyboard.press("Control+Shift+z")
    expect(page.boxes()).to_have_count(1)
    page.settle()
    assert model() == corrected
    expect(page.panel("Effect").locator(".totals")).to_contain_text(re.compile("0new.*[1-9]gone"))


def test_a_branch_keeps_its_corrections_apart(studio, open_page):
    page = open_page(studio, "astronaut.png")
    _, other = face_and_other(page)
    page.panel("History").get_by_role("button", name="New branch").click()
    page.page.get_by_label("Name").fill("strict")
    page.page.get_by_role("button", name="Create and switch").click()
    expect(page.page.locator(".topbar .chip")).to_contain_text("strict")
    page.judge(other, "Wrong")
    expect(page.boxes()).to_have_count(1)
    page.settle()
    for branch, n_boxes in (("main", 2), ("strict", 1)):
        page.page.locator(".topbar .chip").click()
        page.page.get_by_role("menuitemradio", name=branch).click()
        expect(page.page.locator(".topbar .chip")).to_contain_text(branch)
        expect(page.boxes()).to_have_count(n_boxes)


def test_everything_works_by_keyboard(studio, open_page):
    page = open_page(studio, "coins.png")
    press = page.page.keyboard.press
    before = page.boxes().count()
    press("w")
    press("w")  # a box in the middle of the image
    expect(page.page.locator(".draft")).to_be_visible()
    for _ in range(3):
        press("Shift+ArrowLeft")
    press("ArrowUp")
    press("Enter")
    page.settle()
    (label,) = page.labels("coins.png")
    assert label["is_object"]
    assert label["box"][0] == (384 - 76) / 2 - 30
    press("ArrowRight")  # moves the drawn box, as one new state
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    page.page.wait_for_function("n => document.querySelectorAll('.box').length >= n", arg=before + 1)
    page.page.wait_for_timeout(700)
    page.settle()
    (moved,) = page.labels("coins.png")
    assert moved["box"][0] == label["box"][0] + 1
    press("Delete")
    expect(page.page.locator(".topbar .status")).to_contain_text("0 corrections")
    assert page.labels("coins.png") == []
    press("?")
    expect(page.page.get_by_role("dialog")).to_contain_text("Undo")
    press("Escape")
    expect(page.page.get_by_role("dialog")).to_have_count(0)
    name = page.page.locator(".image-name").get_attribute("title")
    press(" ")  # confirms, and goes on
    expect(page.page.locator(".image-name")).not_to_have_attribute("title", name)
    page.settle()
    assert studio.get(f"/api/images/{studio.ids()[name]}")["is_reviewed"]


def test_the_rest_of_an_image_is_wrong_by_one_key(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, other = face_and_other(page)
    page.judge(face, "Right")
    page.settle()
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("n")
    expect(page.page.locator(".image-name")).not_to_have_attribute("title", "astronaut.png")
    page.settle()
    judged = {label["is_object"]: label["box"] for label in page.labels("astronaut.png")}
    assert set(judged) == {True, False}
    assert judged[False] == pytest.approx(other, abs=1)
    assert len(page.detections("astronaut.png")) == 1
    assert studio.get(f"/api/images/{studio.ids()['astronaut.png']}")["is_reviewed"]


def test_a_phone_judges_by_touch_without_drawing(studio, open_page):
    page = open_page(studio, "astronaut.png", width=390, height=844, touch=True)
    face, other = face_and_other(page)
    expect(page.boxes()).to_have_count(2)
    page.page.get_by_role("button", name="Judge 2").tap()
    order = sorted((face, other))
    for box in order:
        expect(page.box_at(box)).to_have_attribute("aria-pressed", "true")
        page.page.locator(".touch-bar").get_by_role("button", name="Right" if box == face else "Wrong").tap()
    expect(page.boxes()).to_have_count(1)
    expect(page.page.locator(".touch-bar")).to_contain_text("All judged")
    page.page.wait_for_function("() => document.querySelectorAll('.box.is-pending').length === 0")
    assert {label["is_object"] for label in page.labels("astronaut.png")} == {True, False}
    page.page.get_by_role("tab", name="Effect").tap()
    expect(page.page.locator(".totals")).to_be_visible()
    width = page.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


def test_near_duplicates_of_a_reviewed_image_come_after_others(studio, open_page):
    while any(row["n_detections"] is None for row in studio.get("/api/images")["images"]):
        time.sleep(0.1)
    page, waiting = open_page(studio, "astronaut.png"), []
    face, other = face_and_other(page)
    page.judge(other, "Wrong")
    page.judge(face, "Right")  # now its near-duplicate has more to judge
    page.settle()
    page.page.route("**/confirm", lambda route: waiting.append(route))  # it is late
    title, seen = page.page.locator(".image-name"), ["astronaut.png"]
    for _ in range(3):
        page.page.keyboard.press("Space")
        expect(title).not_to_have_attribute("title", seen[-1])
        seen.append(title.get_attribute("title"))
        page.page.wait_for_timeout(300)  # a list that was asked for too early has come by now
    assert seen == ["astronaut.png", "coins.png", "mirrored.png", "coffee.png"]
    page.page.unroute("**/confirm")  # what waits goes on
    page.settle()
    assert studio.get("/api/state")["n_reviewed"] == 3
