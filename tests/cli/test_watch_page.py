"""`whet watch --show` as a user meets it: a real process, and a client at the address that it says."""

import http.client
import json
import os
import re
import signal
import socket
import sys

import pytest
from tests.commands import serving, whet_here
from tests.detectors import bull_file, bull_frames
from tests.web.studios import TIMEOUT, jpegs_of, news_of

from whet.cli.options import ExitCode


@pytest.fixture
def model(tmp_path):
    return bull_file(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """Frames for longer than a test takes."""
    made = bull_frames(tmp_path / "frames", 4)
    for number in range(4, 3000):
        os.link(made / f"{number % 4}.png", made / f"{number}.png")
    return made


def watching(*arguments):
    """A process, and the port that it prints."""
    return serving("watch", *arguments, "--show", address=r"whet: live image at http://127\.0\.0\.1:(\d+)/\n")


def asked(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    connection.request("GET", path)
    return connection.getresponse()


pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process there"),
    pytest.mark.slow,  # each test runs a detector over a video
]


def test_who_looks_sees_the_run_and_its_end_and_programs_read_pure_json(model, folder, tmp_path):
    learning = ("--learn", "--unguarded", "--learn-min-score", "-1e9", "--save-as", tmp_path / "learned.whet")
    with watching(model, folder, *learning, "--json", "--quiet") as (run, port):
        images, news = (
            jpegs_of(asked(port, "/api/video/stream.mjpg")),
            news_of(map(bytes.decode, asked(port, "/api/events"))),
        )
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.sendall(b"GET /api/video/stream.mjpg HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert {next(images).shape for _ in range(4)} == {(150, 200, 3)}
            run.send_signal(signal.SIGINT)
            last = [event for event in news if event["type"] == "video"][-1]
            list(images)
            out, err = run.communicate(timeout=TIMEOUT)
    summary = json.loads(out)
    assert run.returncode == 130, err
    assert "stopped after" in err
    assert "Traceback" not in err
    assert summary["interrupted"]
    assert (last["state"], last["stop_reason"], last["source"]) == ("ended", "interrupted", "frames")
    assert (last["frame"] + 1, last["learned"]) == (summary["frames"], summary["learned"])
    with pytest.raises(ConnectionRefusedError):
        asked(port, "/")


def test_the_port_is_the_one_that_was_asked_for_and_is_free_again(model, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with watching(model, folder, "--port", port, "--stop", 40) as (run, printed):
        assert printed == port
        out, err = run.communicate(timeout=TIMEOUT)
        assert (run.returncode, out.startswith("40 frames")) == (0, True), err
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_port_that_is_taken_ends_it_before_anything_is_written(monkeypatch, capsys, model, folder, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        lines = tmp_path / "seen.csv"
        done = whet_here(monkeypatch, capsys, "watch", model, folder, "--show", "--port", port, "--lines", lines)
    assert done.code == ExitCode.FAILED
    assert done.err.startswith(f"whet: port {port} of 127.0.0.1 is in use; choose another one (--port)")
    assert not lines.exists()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--port", "8000"), 2, "--port without --show"),
        (("--host", "0.0.0.0", "--port", "8000"), 2, "--host, --port without --show"),
        (("--show", "--port", "70000"), 2, "65535"),
        (("--show", "--host", "203.0.113.9"), ExitCode.FAILED, "not an address of this machine"),
    ],
)
def test_what_is_wrong_is_one_line(options, code, said, model, folder, monkeypatch, capsys):
    done = whet_here(monkeypatch, capsys, "watch", model, folder, *options)
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_page_for_the_whole_network_gives_a_warning(monkeypatch, capsys, model, folder):
    done = whet_here(monkeypatch, capsys, "watch", model, folder, "--show", "--host", "0.0.0.0", "--stop", 2, "-q")
    assert done.code == 0
    assert socket.gethostname() in done.err
    assert "?token=" in done.err
    assert "not encrypted" in done.err


def test_a_source_that_ends_before_its_first_frame_ends_the_page(monkeypatch, capsys, model, tmp_path):
    (tmp_path / "none").mkdir()
    done = whet_here(monkeypatch, capsys, "watch", model, tmp_path / "none", "--show")
    assert done.code == ExitCode.DATA_MISSING
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", done.err)[1])
    with pytest.raises(ConnectionRefusedError):
        asked(port, "/")
