"""Live video: what viewers get, and a player that pauses, seeks and adds frames to correct."""

import threading
import time
from itertools import islice

import numpy as np
import pytest
from tests.detectors import bull_scene
from tests.web.studios import TIMEOUT, opened, scene

from whet.errors import NotNowError
from whet.io.video import VideoWriter
from whet.web import live as live_module
from whet.web.live import DRAWN_EVERY, LiveImage, Player, as_jpeg


def plain(image, scale):  # noqa: ARG001 - draws nothing
    return image


@pytest.fixture
def drawn(monkeypatch):
    """The moments at which an image was encoded."""
    moments = []

    def noted(*arguments):
        moments.append(time.monotonic())
        return as_jpeg(*arguments)

    monkeypatch.setattr(live_module, "as_jpeg", noted)
    return moments


def test_nothing_is_drawn_unless_somebody_looks(drawn):
    live = LiveImage()
    for _ in range(20):
        live.show(bull_scene(), plain)
    assert not drawn
    assert next(live.jpegs())[:2] == b"\xff\xd8"
    assert drawn


@pytest.mark.slow
def test_many_who_look_at_many_frames_have_few_drawn(drawn):
    """Fifteen a second for all together, whoever asks, and however."""
    live, viewers = LiveImage(), None
    viewers = [live.jpegs() for _ in range(3)]
    begin = time.monotonic()
    while len(drawn) < 8:
        for viewer in viewers:
            live.show(bull_scene(), plain)
            assert next(viewer)[:2] == b"\xff\xd8"
            live.jpeg()
    assert len(drawn) <= 1 + (time.monotonic() - begin) / DRAWN_EVERY


@pytest.mark.slow
def test_a_source_that_pauses_has_its_last_image_sent_again_and_the_end_lets_viewers_go():
    live = LiveImage()
    live.show(bull_scene(), plain)
    images = live.jpegs()
    one, other = islice(images, 2)
    assert one == other
    live.end()
    assert len(list(images)) <= 2


def test_large_images_are_sent_smaller():
    sizes = []
    as_jpeg(np.zeros((1500, 2000, 3), np.uint8), lambda image, scale: sizes.append((image.shape, scale)) or image)
    assert sizes == [((750, 1000, 3), 0.5)]


@pytest.fixture
def film(tmp_path):
    pytest.importorskip("av")
    path = tmp_path / "film.mp4"
    with VideoWriter(path, rate=25) as writer:
        for number in range(60):
            writer.write(scene(number))
    return path


def until(condition):
    for _ in range(TIMEOUT * 50):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it does not come")


@pytest.mark.slow
def test_a_player_pauses_once_seeks_and_goes_on(tmp_path, film):
    with opened(tmp_path, n=0) as (workspace, _):
        received, changed = [], threading.Event()
        player = Player(workspace, str(film))
        try:
            with workspace.events.subscribed(lambda event: (received.append(event), changed.set())):
                until(lambda: player.view().state == "playing" and (player.view().frame or 0) > 2)
                paused = player.act("pause")
                assert (paused.state, paused.image in workspace.gallery) == ("paused", True)
                time.sleep(0.3)
                player.act("pause")
                assert len(workspace.gallery) == 1  # however often, and whatever was being detected
                assert player.view().frame == paused.frame
                player.act("seek", 40)
                until(lambda: player.view().image is not None)
                assert player.view().frame == 40
                assert len(workspace.gallery) == 2
                assert "ended" not in [event.get("state") for event in received]
                player.act("play")
                until(lambda: player.view().state == "ended")
                assert received[-1]["state"] == "ended"
                player.act("play")
                until(lambda: player.view().state == "playing")
        finally:
            player.close()


def test_what_cannot_be_done_with_a_video_is_said(tmp_path):
    with opened(tmp_path, n=0) as (workspace, _):
        player = Player(workspace, str(tmp_path / "none.mp4"))
        try:
            until(lambda: player.view().state == "failed")
            assert "none.mp4" in player.view().error
            with pytest.raises(NotNowError, match="no frame"):
                player.act("pause")
            with pytest.raises(ValueError, match="expected its number"):
                player.act("seek")
        finally:
            player.close()
