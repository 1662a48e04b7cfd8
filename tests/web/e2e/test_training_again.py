"""The studio in a real browser: train a new detector on all labels, and undo it."""

import pytest
from playwright.sync_api import expect
from scripts.studio_browser import Studio
from tests.detectors import bull_file
from tests.web.studios import scenes

pytestmark = pytest.mark.slow

BULLS = [[40, 30, 70, 60], [120, 70, 170, 120]]
N_IMAGES = 11
TRAINED = 300_000  # milliseconds; a real training on a busy machine


def test_train_again_uses_all_labels_and_undo_gives_the_former_detector(tmp_path, browser, open_page):  # noqa: ARG001
    folder = scenes(tmp_path / "scenes", N_IMAGES)
    with Studio(bull_file(tmp_path), folder, project=tmp_path / "bull.studio") as studio:
        page = open_page(studio, "0.png")
        panel = page.panel("Quality")
        again = panel.get_by_role("button", name="Train again")
        expect(again).to_be_disabled()  # there is nothing to train on yet
        expect(panel).to_contain_text("Label 10 more objects")
        for name, key in sorted(studio.ids().items()):
            for path, body in (("labels", {"boxes": BULLS, "is_object": True}), ("confirm", {})):
                answer = studio.client.post(f"/api/images/{key}/{path}", json=body, headers={"Origin": studio.address})
                assert answer.is_success, (name, answer.text)
        before, state = studio.client.get("/api/model.whet").content, studio.get("/api/state")
        labels = {name: labels_of(page, name) for name in studio.ids()}
        again.click()
        expect(page.page.locator(".training")).to_contain_text("left")
        assert studio.get("/api/train")["state"] == "running"
        expect(page.page.locator(".training")).to_have_count(0, timeout=TRAINED)
        assert studio.get("/api/train")["state"] == "finished", studio.get("/api/train")
        trained = studio.get("/api/state")
        assert trained["model"]["base_id"] != state["model"]["base_id"]
        assert {name: labels_of(page, name) for name in studio.ids()} == labels
        assert studio.client.get("/api/model.whet").content != before
        expect(page.panel("History")).to_contain_text("trained")
        page.page.get_by_role("button", name="Undo").click()
        page.settle()
        assert studio.client.get("/api/model.whet").content == before


def labels_of(page, name):
    return sorted((label["box"], label["is_object"]) for label in page.labels(name))
