"""The studio in a real browser: drawn boxes are moved and resized, answers are kept, and narrow screens fit."""

import re

import pytest
from playwright.sync_api import expect
from tests.web.e2e.test_correcting import COIN, face_and_other

pytestmark = pytest.mark.slow


def only_label(page, image):
    (label,) = page.labels(image)
    return label["box"]


def drag(page, start, end):
    mouse = page.page.mouse
    mouse.move(*page.on_screen(*start))
    mouse.down()
    mouse.move(*page.on_screen((start[0] + end[0]) / 2, (start[1] + end[1]) / 2))
    mouse.move(*page.on_screen(*end))
    mouse.up()
    page.settle()


def test_the_mouse_moves_and_resizes_a_drawn_box_and_undo_returns_it(studio, open_page):
    page = open_page(studio, "coins.png")
    page.draw(COIN)
    page.settle()
    drawn = only_label(page, "coins.png")
    drag(page, ((drawn[0] + drawn[2]) / 2, (drawn[1] + drawn[3]) / 2), ((drawn[0] + drawn[2]) / 2 + 20, drawn[3] - 10))
    moved = only_label(page, "coins.png")
    assert moved[0] - drawn[0] == pytest.approx(20, abs=1)
    assert moved[2] - moved[0] == pytest.approx(drawn[2] - drawn[0], abs=0.2)
    drag(page, moved[2:], (moved[2] + 12, moved[3] + 8))
    resized = only_label(page, "coins.png")
    assert resized[:2] == moved[:2]
    assert [new - old for new, old in zip(resized[2:], moved[2:], strict=True)] == pytest.approx([12, 8], abs=1)
    for former in (moved, drawn):
        page.page.keyboard.press("Control+z")
        page.settle()
        assert only_label(page, "coins.png") == former


def test_a_drag_of_a_few_pixels_draws_nothing(studio, open_page):
    page = open_page(studio, "coins.png")
    x, y = page.on_screen(40, 40)
    page.page.mouse.move(x, y)
    page.page.mouse.down()
    page.page.mouse.move(x + 6, y + 5)
    page.page.mouse.up()
    page.settle()
    assert page.labels("coins.png") == []


def test_previous_leads_back_to_the_image_that_was_confirmed(studio, open_page):
    page = open_page(studio)
    title = page.page.locator(".image-name").get_attribute("title")
    previous = page.page.get_by_role("button", name="Previous image")
    expect(previous).to_be_disabled()
    page.page.keyboard.press("n")
    expect(page.page.locator(".image-name")).not_to_have_attribute("title", title)
    page.settle()
    previous.click()
    page.wait_until_shown(title)
    expect(previous).to_be_disabled()


def test_confirming_very_unlikely_boxes_asks_once(studio, open_page):
    page = open_page(studio, "astronaut.png")
    page.page.get_by_role("tab", name="Quality").click()
    request = {"min_score": -100.0}
    answer = studio.client.put("/api/min_score", json=request, headers={"Origin": studio.address})
    assert answer.is_success, answer.text
    unlikely = [found for found in page.detections("astronaut.png") if found["probability"] < 0.1]
    assert unlikely
    page.page.reload()
    page.wait_until_shown("astronaut.png")
    page.page.keyboard.press(" ")
    dialog = page.page.get_by_role("dialog", name="Are all boxes objects?")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Look again").click()
    page.settle()
    assert page.labels("astronaut.png") == []
    page.page.keyboard.press(" ")
    page.settle()
    assert len(page.labels("astronaut.png")) >= len(unlikely)


def test_a_person_is_the_same_on_two_pages_of_a_browser(studio, browser):
    context = browser.new_context()
    try:
        from tests.web.e2e.page import StudioPage

        pages = [StudioPage(context.new_page(), studio).open("astronaut.png") for _ in range(2)]
        _, other = face_and_other(pages[0])
        pages[0].judge(other, "Right")
        pages[0].settle()
        expect(pages[1].box_at(other)).to_have_class(re.compile(r"\bis-right\b"))
        pages[1].judge(other, "Wrong")
        pages[1].settle()
        (label,) = pages[0].labels("astronaut.png")
        assert label["is_object"] is False
        assert label["state"] == "holds"
    finally:
        context.close()


@pytest.mark.parametrize("width", [360, 390, 768])
def test_all_buttons_fit_a_narrow_screen(studio, open_page, width):
    page = open_page(studio, "astronaut.png", width=width, height=740, touch=width < 500)
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("Confirm", "Reject", "Draw"):
        for button in page.page.get_by_role("button", name=name).all():
            if button.is_visible():
                box = button.bounding_box()
                assert box["x"] >= 0, name
                assert box["x"] + box["width"] <= width, name
