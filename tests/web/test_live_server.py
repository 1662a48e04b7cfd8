"""The page with the live image, as browsers and players meet it: a real session, a real server, real sockets."""

import socket
import struct
import threading
import time
from itertools import islice, pairwise

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene
from tests.web.live_sessions import TIMEOUT, asked, jpegs_of, news_of, served

from whet.errors import CannotServeError
from whet.io.video import VideoFrame, read_frames
from whet.tracking.tracker import Tracker
from whet.web import page as live_image
from whet.web import server as live_server
from whet.web.page import DRAWN_EVERY, LiveImage
from whet.web.server import MAX_VIEWERS, LiveServer


def noise(number):
    """Images that do not compress: a few are more than the system keeps for a viewer."""
    return np.random.default_rng(number).integers(0, 256, (150, 900), dtype=np.uint8)


def silent_viewer(server, path="/stream.mjpg"):
    """A connection that has asked, and never reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(server.server_address)
    connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    return connection


def until(is_true):
    end = time.monotonic() + TIMEOUT
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_stream_is_of_the_frames_as_they_come_with_the_followed_object_in_green():
    with served() as (_, server):
        images = list(islice(jpegs_of(asked(server, "/stream.mjpg")), 5))
    for image in images:
        red, green, blue = image.astype(int).transpose(2, 0, 1)
        assert image.shape == (150, 200, 3)
        assert np.sum((green > red + 60) & (green > blue + 40)) > 60
    assert all((one != other).any() for one, other in pairwise(images))


def test_players_open_the_stream():
    """By FFmpeg, as players and OpenCV do: `whet watch` can watch what another shows."""
    pytest.importorskip("av")
    with served() as (_, server):
        frames = read_frames(server.address + "stream.mjpg")
        assert [frame.image.shape for frame in islice(frames, 3)] == [(150, 200, 3)] * 3
        frames.close()
        until(lambda: not server._viewers)


def test_numbers_come_while_it_runs_and_the_end_comes_last():
    with served() as (run, server):
        news = news_of(asked(server, "/events"))
        first = list(islice(news, 3))
        run.end()
        last = list(news)[-1]
    assert {event["state"] for event in first} <= {"waiting", "live"}
    assert first[-1]["model"] == "bull"
    assert first[-1]["rate"] > 0
    assert last["state"] == "ended"
    assert last["frame"] == run.frames - 1
    assert last["learned"] == run.summary.learned > 0
    assert last["weight_change"] == pytest.approx(run.summary.weight_change, abs=1e-4)


def test_the_last_image_of_the_stream_is_the_last_frame():
    with served() as (run, server):
        images = jpegs_of(asked(server, "/stream.mjpg"))
        next(images)
        run.end()
        *_, last = images
    bare = np.roll(bull_scene(), run.frames - 1, axis=1)
    # All but the boxes, and what JPEG makes of their surroundings.
    assert np.median(np.abs(last.mean(axis=2) - bare)) < 8


def test_a_page_and_a_single_image():
    with served(begins=False) as (run, server):
        page = asked(server, "/")
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"/stream.mjpg" in page.read()
        assert asked(server, "/frame.jpg").status == 503
        run.begins.set()
        run.wait_for(1)
        image = asked(server, "/frame.jpg?now")
        assert (image.headers["Content-Type"], image.read(2)) == ("image/jpeg", b"\xff\xd8")
        for path in ("/", "/frame.jpg", "/stream.mjpg", "/events"):
            head = asked(server, path, "HEAD")
            assert (head.status, head.read()) == (200, b"")
            assert head.headers["Cache-Control"] == "no-store"


@pytest.fixture
def drawn(monkeypatch):
    """The moments at which an image was encoded."""
    moments, jpeg = [], live_image._jpeg

    def noted(*arguments):
        moments.append(time.monotonic())
        return jpeg(*arguments)

    monkeypatch.setattr(live_image, "_jpeg", noted)
    return moments


def test_nothing_is_drawn_unless_somebody_looks(drawn):
    with served() as (run, server):
        next(news_of(asked(server, "/events")))
        run.wait_for(20)
        assert not drawn
        next(jpegs_of(asked(server, "/stream.mjpg")))
        assert drawn


def test_many_who_look_at_many_frames_have_few_drawn(drawn):
    """Fifteen a second for all together, whoever asks, and however."""
    live, image = LiveImage(), bull_scene()
    frame, tracked = VideoFrame(0, 0.0, image), Tracker(bull_finder()).update(image)
    viewers = [live.jpegs(lambda: False) for _ in range(3)]
    begin = time.monotonic()
    while len(drawn) < 8:
        for viewer in viewers:
            live.show(frame, tracked)
            assert next(viewer)[:2] == b"\xff\xd8"
            live.show(frame, tracked)
            live.jpeg()
    assert len(drawn) <= 1 + (time.monotonic() - begin) / DRAWN_EVERY


@pytest.mark.slow
def test_images_that_take_long_to_draw_are_drawn_less_often(drawn, monkeypatch):
    monkeypatch.setattr(live_image, "SHARE", 1e-3)
    live, image = LiveImage(), noise(0)
    frame, tracked = VideoFrame(0, 0.0, image), Tracker(bull_finder()).update(bull_scene())
    live.show(frame, tracked)
    begin = time.thread_time()
    live.jpeg()
    took = time.thread_time() - begin
    while len(drawn) < 2:
        live.show(frame, tracked)
        live.jpeg()
    assert np.diff(drawn)[0] > 500 * took > DRAWN_EVERY


@pytest.mark.slow
def test_a_viewer_that_stops_reading_stops_nobody_and_is_left_in_the_end(monkeypatch):
    monkeypatch.setattr(live_server._Request, "timeout", 10 * TIMEOUT)

    def waiting():
        return [thread for thread in threading.enumerate() if "process_request" in thread.name]

    with served(noise) as (run, server):
        silent = [silent_viewer(server), silent_viewer(server, "/events")]
        assert len(list(islice(jpegs_of(asked(server, "/stream.mjpg")), 12))) == 12
        run.wait_for(3)
        run.end()
        until(lambda: server._viewers == 1)  # of the three, the one that cannot be notified of the end
    until(lambda: not waiting())
    assert all(viewer.fileno() > 0 for viewer in silent)  # none of them has hung up
    assert run.summary.frames == run.frames


def test_a_viewer_that_reads_nothing_for_too_long_is_let_go(monkeypatch):
    monkeypatch.setattr(live_server._Request, "timeout", 0.3)
    with served(noise) as (run, server), silent_viewer(server):
        until(lambda: server._viewers == 1)
        until(lambda: server._viewers == 0)
        run.wait_for(5)


@pytest.mark.slow
@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("linger", [None, struct.pack("ii", 1, 0)])
def test_a_viewer_that_disappears_is_forgotten(begins, linger, capfd):
    """Before the first frame and after it, with a farewell and without."""
    with served(begins=begins) as (run, server):
        for path in ("/stream.mjpg", "/events"):
            viewer = silent_viewer(server, path)
            until(lambda: server._viewers == 1)
            if linger is not None:
                viewer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            viewer.close()
            until(lambda: server._viewers == 0 and not server._open)
        run.begins.set()
        run.wait_for(3)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_one_viewer_too_many_is_reported():
    with served() as (run, server):
        viewers = [silent_viewer(server, "/events") for _ in range(MAX_VIEWERS)]
        until(lambda: server._viewers == MAX_VIEWERS)
        refused = asked(server, "/stream.mjpg")
        assert (refused.status, b"too many" in refused.read()) == (503, True)
        assert asked(server, "/frame.jpg").status == 200
        viewers.pop().close()
        until(lambda: server._viewers < MAX_VIEWERS)
        next(jpegs_of(asked(server, "/stream.mjpg")))
        run.wait_for(3)
        for viewer in viewers:
            viewer.close()


def test_a_source_that_pauses_has_its_last_image_sent_again():
    """Browsers show a part when they see the next."""
    pause = threading.Event()

    def once(number):
        if number:
            pause.wait(TIMEOUT)
        return bull_scene()

    with served(once) as (_, server):
        one, other = islice(jpegs_of(asked(server, "/stream.mjpg")), 2)
        pause.set()
    assert (one == other).all()


@pytest.mark.slow
def test_large_images_are_sent_smaller_with_the_box_at_its_place():
    small = bull_scene()
    large = np.kron(small, np.ones((10, 10), np.uint8))  # 2000 x 1500
    with served(lambda _: small) as (run, server):
        run.wait_for(1)
        expected = next(jpegs_of(asked(server, "/stream.mjpg")))
    assert expected.shape == (150, 200, 3)
    with served(lambda _: large) as (run, server):
        image = next(jpegs_of(asked(server, "/stream.mjpg")))
        assert image.shape == (750, 1000, 3)
        frame, tracked = run.live._latest
    assert frame.image is large
    red, green, blue = image.astype(int).transpose(2, 0, 1)
    is_box = (green > red + 60) & (green > blue + 40)
    x1, y1, x2, y2 = np.rint(tracked.box / 2).astype(int)
    assert is_box[y1 : y1 + 2, x1:x2].mean() > 0.8
    is_box[: y1 + 3] = False  # the tag is above the box
    y, x = np.nonzero(is_box)
    assert np.abs(np.subtract([x.min(), x.max() + 1, y.max() + 1], [x1, x2, y2])).max() < 3


def test_a_port_that_is_taken_is_named_and_is_free_again_after_the_end():
    with LiveServer(LiveImage()) as server:
        port = server.server_address[1]
        asked(server, "/").read()
        with pytest.raises(CannotServeError, match=rf"port {port} of 127.0.0.1 is in use.*--port"):
            LiveServer(LiveImage(), port=port)
    with LiveServer(LiveImage(), port=port) as server:
        assert asked(server, "/").status == 200


@pytest.mark.parametrize("host", ["203.0.113.9", "nowhere.invalid", "a" * 70 + ".x", "bad host"])
def test_hosts_that_are_not_of_this_machine_are_named(host):
    with pytest.raises(CannotServeError, match=r"not an address of this machine.*--host"):
        LiveServer(LiveImage(), host)


def test_it_listens_where_it_is_asked_to():
    with LiveServer(LiveImage()) as server:
        assert server.is_private
        assert server.address == f"http://127.0.0.1:{server.server_address[1]}/"
    with LiveServer(LiveImage(), "0.0.0.0") as server:
        assert not server.is_private
        assert socket.gethostname() in server.address
        assert asked(server, "/").status == 200


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_it_listens_on_numbers_of_version_six():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with LiveServer(LiveImage(), "::1") as server, socket.create_connection(("::1", server.server_address[1])) as one:
        assert server.is_private
        assert server.address.startswith("http://[::1]:")
        one.sendall(b"HEAD / HTTP/1.0\r\nHost: [::1]:80\r\n\r\n")
        assert one.recv(100).startswith(b"HTTP/1.0 200")
