"""The studio in a real browser: reloads, a server that dies, two people at once."""

import os
import resource
import signal
import time
from contextlib import contextmanager
from threading import Timer

import pytest
from playwright.sync_api import expect
from tests.web.e2e.test_correcting import face_and_other

pytestmark = pytest.mark.slow


def test_a_reload_loses_nothing(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, other = face_and_other(page)
    page.judge(other, "Wrong")
    page.judge(face, "Right")
    page.page.reload()  # perhaps before the answers have come
    page.wait_until_shown("astronaut.png")
    expect(page.boxes()).to_have_count(1)
    expect(page.box_at(face)).to_have_class("box is-detection is-right")
    expect(page.page.locator(".topbar .status")).to_contain_text("2 corrections")
    assert len(studio.get("/api/history")["nodes"]) == 3


# Milliseconds between the click and `kill -9`: before the request arrives, while it is learned, after the answer.
@pytest.mark.parametrize("delay", [0, 15, 60])
def test_a_server_killed_in_mid_correction_loses_nothing_and_learns_nothing_twice(studio, open_page, delay):
    page = open_page(studio, "astronaut.png")
    face, other = face_and_other(page)
    page.box_at(other).click()
    kill_after_first_post(page.page, studio, delay)
    page.page.locator(".tools").get_by_role("button", name="Wrong").click()
    expect(page.page.get_by_role("alert")).to_contain_text("does not answer")
    expect(page.boxes()).to_have_count(1)  # what was said stays on the screen
    studio.start()
    expect(page.page.get_by_role("alert")).to_have_count(0)
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    expect(page.boxes()).to_have_count(1)
    (label,) = page.labels("astronaut.png")
    assert label["box"] == other
    nodes = studio.get("/api/history")["nodes"]
    assert [node["n_corrections"] for node in nodes] == [0, 1], "learned exactly once"
    assert [found["box"] for found in page.detections("astronaut.png")] == [face]


def kill_after_first_post(page, studio, delay):
    posts = []

    def on_request(request):
        if request.method == "POST" and not posts:
            posts.append(request)
            Timer(delay / 1000, studio.kill).start()

    page.on("request", on_request)


def test_two_browsers_see_each_other_and_disagree(studio, open_page):
    one, other = open_page(studio, "astronaut.png"), open_page(studio, "astronaut.png")
    _, wrong = face_and_other(one)
    one.judge(wrong, "Wrong")
    expect(other.boxes()).to_have_count(1)  # without a reload
    other.choose("coins.png")
    coin = other.detections("coins.png")[0]["box"]
    other.judge(coin, "Wrong")
    other.settle()
    one.judge(only_box(one), "Right")
    for page in (one, other):
        expect(page.page.locator(".topbar .status")).to_contain_text("3 corrections")
    other.choose("astronaut.png")
    other.judge(only_box(other), "Wrong")
    for page in (one, other):
        expect(page.page.locator(".box.is-disputed")).to_have_count(1)
    states = sorted(label["state"] for label in one.labels("astronaut.png"))
    assert states == ["disputed", "disputed", "holds"]
    other.page.locator(".box.is-disputed").click()
    other.page.locator(".dispute .row", has_text="you").get_by_role("button", name="Remove").click()
    for page in (one, other):
        expect(page.page.locator(".box.is-disputed")).to_have_count(0)


def only_box(page):
    """The box of the face as it is now: each correction may move it a little."""
    (found,) = page.detections("astronaut.png")
    return found["box"]


def test_corrections_wait_while_the_server_is_gone(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, other = face_and_other(page)
    studio.kill()
    page.judge(other, "Wrong")
    page.judge(face, "Right")
    expect(page.page.get_by_role("alert")).to_contain_text("2 changes wait")
    expect(page.boxes()).to_have_count(1)
    studio.start()
    expect(page.page.locator(".topbar .status")).to_contain_text("2 corrections")
    assert len(page.labels("astronaut.png")) == 2
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and page.page.get_by_role("alert").count():
        time.sleep(0.1)
    expect(page.page.get_by_role("alert")).to_have_count(0)


def test_corrections_wait_if_the_server_goes_before_the_event_stream_opens(studio, open_page):
    page = open_page(studio)
    page.page.route("**/api/events*", lambda route: route.abort())
    page.page.reload()
    page.choose("astronaut.png")
    face, _ = face_and_other(page)
    studio.kill()
    page.judge(face, "Right")
    expect(page.page.get_by_role("alert")).to_contain_text("1 change waits")
    page.page.unroute("**/api/events*")
    studio.start()
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    expect(page.page.get_by_role("alert")).to_have_count(0)


def test_a_request_that_fails_alone_is_sent_again(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, _ = face_and_other(page)
    expect(page.page.locator(".topbar .status")).to_have_attribute("data-waiting", "0")  # the event stream is open
    failed = []

    def fail_once(route):
        if route.request.method != "POST" or failed:
            return route.fallback()
        failed.append(route)
        return route.abort()

    page.page.route("**/api/**", fail_once)
    page.judge(face, "Right")
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    expect(page.page.get_by_role("alert")).to_have_count(0)
    assert failed


def test_what_waits_is_sent_if_the_first_request_of_a_reloaded_page_fails(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, _ = face_and_other(page)
    page.page.route("**/labels*", lambda route: route.abort())
    page.judge(face, "Right")
    expect(page.page.get_by_role("alert")).to_contain_text("1 change waits")
    failed = []

    def fail_once(route):
        if failed:
            return route.fallback()
        failed.append(route)
        return route.abort()

    page.page.unroute("**/labels*")
    page.page.route("**/api/state*", fail_once)
    page.page.reload()
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    assert failed


@contextmanager
def full_disk(studio):
    """The server can make no file longer: SQLite meets the error of a full disk."""
    limits = resource.prlimit(studio.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(studio.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    yield
    resource.prlimit(studio.pid, resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of other processes need Linux")
def test_corrections_wait_while_the_disk_is_full(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, other = face_and_other(page)
    with full_disk(studio):
        page.judge(other, "Wrong")
        expect(page.page.locator(".notice")).to_contain_text("wait in this page")
        page.judge(face, "Right")
        page.page.locator(".notice").get_by_role("button", name="Try again").click()
        expect(page.page.locator(".notice")).to_contain_text("wait in this page")
        expect(page.boxes()).to_have_count(1)  # what was said stays on the screen
        expect(page.page.locator(".topbar .status")).to_have_attribute("data-waiting", "2")
        assert page.labels("astronaut.png") == []
    page.page.locator(".notice").get_by_role("button", name="Try again").click()
    expect(page.page.locator(".topbar .status")).to_contain_text("2 corrections")
    expect(page.page.locator(".notice")).to_have_count(0)
    assert [node["n_corrections"] for node in studio.get("/api/history")["nodes"]] == [0, 1, 2]


def test_a_panel_that_takes_long_is_waited_for_and_asked_for_once(studio, open_page):
    page = open_page(studio, "astronaut.png")
    page.settle()
    # Half a minute passes in a second and a half.
    page.page.add_init_script(
        "const { timeout } = AbortSignal; AbortSignal.timeout = (ms) => timeout.call(AbortSignal, ms / 20);"
    )
    asked = []
    page.page.route("**/api/effect*", lambda route: asked.append(route))  # the answer is held back
    page.page.reload()
    page.wait_until_shown("astronaut.png")
    face, _ = face_and_other(page)
    page.judge(face, "Right")
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    before = len(asked)
    page.page.wait_for_timeout(3000)
    expect(page.page.get_by_role("alert")).to_have_count(0)
    assert len(asked) == before
    asked[-1].continue_()
    expect(page.page.locator(".totals")).to_be_visible()


def test_a_server_that_hangs_is_noticed_and_what_waits_is_sent(studio, open_page):
    page = open_page(studio, "astronaut.png")
    face, _ = face_and_other(page)
    page.page.clock.install()
    page.page.reload()
    page.wait_until_shown("astronaut.png")
    page.settle()
    os.kill(studio.pid, signal.SIGSTOP)  # connections stay open, and nothing answers
    try:
        page.judge(face, "Right")
        expect(page.page.get_by_role("alert")).to_have_count(0)
        page.page.clock.fast_forward(40_000)
        expect(page.page.get_by_role("alert")).to_contain_text("1 change waits")
    finally:
        os.kill(studio.pid, signal.SIGCONT)
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    expect(page.page.get_by_role("alert")).to_have_count(0)
    assert len(page.labels("astronaut.png")) == 1


def test_a_request_of_a_lost_connection_is_sent_again(studio, open_page):
    """A proxy may drop one connection and keep another: the answer of the first would never come."""
    page = open_page(studio, "astronaut.png")
    face, _ = face_and_other(page)
    held = []
    page.page.route("**/labels", lambda route: held.append(route))
    page.judge(face, "Right")
    page.page.wait_for_timeout(500)
    assert len(held) == 1  # it is under way, and stays so
    page.page.unroute("**/labels")
    os.kill(studio.pid, signal.SIGKILL)
    expect(page.page.get_by_role("alert")).to_contain_text("1 change waits")
    studio.start()
    expect(page.page.locator(".topbar .status")).to_contain_text("1 correction")
    expect(page.page.get_by_role("alert")).to_have_count(0)
    assert len(page.labels("astronaut.png")) == 1


def test_a_first_request_that_hangs_is_noticed(studio, open_page):
    page = open_page(studio, "astronaut.png")
    page.page.clock.install()
    held = []
    page.page.route("**/api/state", lambda route: held.append(route))
    page.page.reload()
    page.page.wait_for_timeout(500)
    assert held
    page.page.unroute("**/api/state")
    os.kill(studio.pid, signal.SIGSTOP)
    try:
        page.page.clock.fast_forward(40_000)
    finally:
        os.kill(studio.pid, signal.SIGCONT)
    page.page.clock.fast_forward(10_000)
    page.wait_until_shown("astronaut.png")
