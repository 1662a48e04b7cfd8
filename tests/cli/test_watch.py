"""`whet watch` as a user meets it: a real process on real files."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image
from tests.commands import whet_here
from tests.detectors import bull_file, bull_frames, bull_scene
from tests.tracking.guarded import guarded_finder

import whet
from whet.cli.options import ExitCode

pytestmark = pytest.mark.slow  # each test runs a detector over a video


def watch(*arguments):
    command = [sys.executable, "-m", "whet", "watch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


# The detector of these tests has no reference set.
UNGUARDED = ("--learn", "--unguarded")
LEARN = (*UNGUARDED, "--learn-min-score", "-1e9", "--save-as")


@pytest.fixture
def model(tmp_path):
    return bull_file(tmp_path)


@pytest.fixture
def folder(tmp_path):
    return bull_frames(tmp_path / "frames", 6)


def test_it_learns_saves_draws_and_writes_lines(model, folder, tmp_path):
    pytest.importorskip("av")
    learned, lines, film = (tmp_path / name for name in ("learned.whet", "a.jsonl", "a.mp4"))
    done = watch(model, folder, *LEARN, learned, "--lines", lines, "--out", film, "--every", 2)
    assert done.returncode == 0, done.stderr
    assert "3 frames" in done.stdout
    assert "Learned 3 frames" in done.stdout
    for path in (learned, lines, film):
        assert f"Wrote {path}" in done.stdout
    assert whet.load(learned).n_examples[0] > 0
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["frame"] for row in rows] == [0, 2, 4]
    assert rows[0]["boxes"]
    from whet.io.video import read_frames

    frames = list(read_frames(film))
    assert len(frames) == 3
    assert frames[0].rate == pytest.approx(12.5)


def test_what_it_learned_is_in_the_model_and_can_be_unlearned(model, folder, tmp_path):
    learned = tmp_path / "learned.whet"
    assert watch(model, folder, *LEARN, learned).returncode == 0
    detector = whet.load(learned)
    assert {record.name for record in detector.records} == {f"frames frame {number}" for number in range(6)}
    detector.unlearn(detector.records)
    detector.save(learned)
    assert learned.read_bytes() == model.read_bytes()


def test_in_place_the_memory_goes_on(monkeypatch, capsys, model, folder):
    for n in (6, 6):  # a frame that was learned is not learned twice
        done = whet_here(monkeypatch, capsys, "watch", model, folder, *LEARN, model)
        assert done.code == 0, done.err
        assert len(whet.load(model).records) == n
    for number in range(6):
        Image.fromarray(np.roll(bull_scene(), 7 * number + 6, axis=1)).save(folder / f"{number}.png")
    assert whet_here(monkeypatch, capsys, "watch", model, folder, *LEARN, model).code == 0
    assert len(whet.load(model).records) == 12


def test_without_a_reference_set_it_learns_only_unguarded(monkeypatch, capsys, model, folder, tmp_path):
    call = ("watch", model, folder, "--learn", "--save-as", tmp_path / "new.whet")
    done = whet_here(monkeypatch, capsys, *call)
    assert done.code == ExitCode.FAILED
    assert "reference set" in done.err
    assert "--unguarded" in done.err
    assert not (tmp_path / "new.whet").exists()
    assert whet_here(monkeypatch, capsys, *call, "--unguarded").code == 0


def test_with_a_reference_set_it_prints_what_learning_changed(monkeypatch, capsys, folder, tmp_path):
    guarded_finder().save(tmp_path / "guarded.whet")
    call = ("watch", tmp_path / "guarded.whet", folder, "--learn", "--learn-min-score", "-1e9", "--save-as")
    done = whet_here(monkeypatch, capsys, *call, tmp_path / "new.whet")
    assert done.code == 0, done.err
    assert re.search(r"Held-out samples: recall .* before, recall .* after", done.out)
    summary = json.loads(whet_here(monkeypatch, capsys, *call, tmp_path / "other.whet", "--json").out)
    assert summary["held_out"]["before"]["recall"] > 0.9
    assert summary["held_out"]["after"]["recall"] > summary["held_out"]["before"]["recall"] - 0.02


def test_json_has_the_summary_and_quiet_is_quiet(monkeypatch, capsys, model, folder, tmp_path):
    learned, table = tmp_path / "learned.whet", tmp_path / "a.csv"
    done = whet_here(monkeypatch, capsys, "watch", model, folder, *LEARN, learned, "--lines", table, "--json", "-q")
    summary = json.loads(done.out)
    assert not done.err
    assert [summary[key] for key in ("frames", "learned", "error", "interrupted")] == [6, 6, None, False]
    assert summary["learn_min_score"] < summary["best_score"]
    assert summary["skipped"] == {"frames": 0, "first": []}
    assert summary["model"] == str(learned)
    assert summary["held_out"] == {"before": None, "after": None}
    with table.open() as file:
        assert [row["frame"] for row in csv.DictReader(file)] == list("012345")
    done = whet_here(monkeypatch, capsys, "watch", model, folder, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_what_is_there_is_not_replaced_without_force(monkeypatch, capsys, model, folder, tmp_path):
    pytest.importorskip("av")
    for option, name in (("--out", "a.mp4"), ("--lines", "a.jsonl"), ("--save-as", "a.whet")):
        there = tmp_path / name
        there.write_text("precious")
        arguments = ["watch", model, folder, option, there, *(UNGUARDED if option == "--save-as" else [])]
        done = whet_here(monkeypatch, capsys, *arguments)
        assert done.code == 2
        assert "--force" in done.err
        assert there.read_text() == "precious"
        assert whet_here(monkeypatch, capsys, *arguments, "--force").code == 0
        assert there.read_bytes() != b"precious"


def test_the_source_is_never_written_to(monkeypatch, capsys, model, tmp_path):
    film = tmp_path / "film.mp4"
    film.write_bytes(b"film")
    done = whet_here(monkeypatch, capsys, "watch", model, film, "--out", film, "--force")
    assert done.code == 2
    assert "is the source" in done.err
    assert film.read_bytes() == b"film"


def test_a_broken_frame_is_skipped_and_listed_and_sets_the_exit_code(model, folder, tmp_path):
    (folder / "4.png").write_bytes(b"nothing")
    learned = tmp_path / "learned.whet"
    done = watch(model, folder, *LEARN, learned)
    assert done.returncode == ExitCode.SOME_SKIPPED
    assert "skipped 1 frame" in done.stderr
    assert "frame 4 cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
    assert "5 frames" in done.stdout
    assert "Learned 5 frames" in done.stdout
    assert whet.load(learned).n_examples[0] > 0


def test_too_many_broken_frames_end_it_and_the_model_is_saved(monkeypatch, capsys, model, folder, tmp_path):
    for number in range(6, 120):
        (folder / f"{number}.png").write_bytes(b"nothing")
    done = whet_here(monkeypatch, capsys, "watch", model, folder, *LEARN, tmp_path / "learned.whet")
    assert done.code == ExitCode.FAILED
    assert "101 consecutive unreadable frames" in done.err
    assert "and 91 more" in done.err
    assert "6 frames" in done.out
    good = tmp_path / "good.whet"
    assert whet_here(monkeypatch, capsys, "watch", model, folder, *LEARN, good, "--stop", 6).code == 0
    ids = [{record.id for record in whet.load(path).records} for path in (good, tmp_path / "learned.whet")]
    assert ids[0] == ids[1]


def sent(images, then):
    """An address at which a process, here a thread, sends a video over a real socket, and then calls `then`."""
    import av

    server = socket.create_server(("127.0.0.1", 0))

    def send():
        connection, _ = server.accept()
        with connection, av.open(connection.makefile("wb"), "w", format="mpegts") as container:
            stream = container.add_stream("mpeg4", rate=25)
            stream.height, stream.width = images[0].shape
            stream.pix_fmt = "yuv420p"
            for image in images:
                frame = av.VideoFrame.from_ndarray(np.dstack([image] * 3), format="rgb24")
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
            then(connection)

    threading.Thread(target=send, daemon=True).start()
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_a_stream_that_ends_is_reported_and_the_model_is_saved(model, tmp_path):
    pytest.importorskip("av")
    images, learned = [np.roll(bull_scene(), n, axis=1) for n in range(40)], tmp_path / "learned.whet"
    done = watch(model, sent(images, lambda _: None), *LEARN, learned, "--out", tmp_path / "seen.mp4")
    assert done.returncode == 0, done.stderr
    assert "ended the stream" in done.stderr
    assert "40 frames" in done.stdout
    assert whet.load(learned).n_examples[0] > 0


def test_a_sender_that_falls_silent_ends_it(monkeypatch, capsys, model, tmp_path):
    pytest.importorskip("av")
    from whet.io import video as video_stream

    monkeypatch.setattr(video_stream, "SILENCE", 1.0)
    over = threading.Event()
    address = sent([bull_scene()] * 40, lambda _: over.wait(60))
    done = whet_here(monkeypatch, capsys, "watch", model, address, *LEARN, tmp_path / "learned.whet")
    over.set()
    assert done.code == ExitCode.FAILED
    assert "stopped after" in done.err
    assert "timed out" in done.err
    assert whet.load(tmp_path / "learned.whet").n_examples[0] > 0


@pytest.mark.skipif(sys.platform == "win32", reason="no signals for one process there")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_stops_it_and_everything_is_kept(name, model, folder, tmp_path):
    """A folder of many frames, and a process that is stopped when it has written some lines."""
    number = getattr(signal, name)
    for i in range(6, 3000):
        os.link(folder / f"{i % 6}.png", folder / f"{i}.png")
    learned, lines = tmp_path / "learned.whet", tmp_path / "a.jsonl"
    command = [sys.executable, "-m", "whet", "watch", model, folder, *LEARN, learned, "--lines", lines]
    with subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a test in the background ignores some
    ) as run:
        begin = time.monotonic()
        while (not lines.exists() or not lines.read_text()) and time.monotonic() - begin < 100:
            time.sleep(0.02)
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 128 + number, err
    assert "stopped after" in err
    assert "Traceback" not in err
    n = len(lines.read_text().splitlines())
    assert out.startswith(f"{n:,} frame")
    detector = whet.load(learned)
    assert detector.n_examples[0] > 0
    assert detector.records


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nothing.mp4",), ExitCode.DATA_MISSING, "no such file or directory: nothing.mp4"),
        (("empty",), ExitCode.DATA_MISSING, "the directory empty has no images"),
        (("text.mp4",), ExitCode.FAILED, "cannot be opened as a video"),
        (("camera:97",), ExitCode.DATA_MISSING, "no such device: /dev/video97"),
        (("frames", "--learn"), 2, "--save-as"),
        (("frames", "--save-as", "new.whet"), 2, "add --learn"),
        (
            ("frames", "--save-every", "5", "--learn-min-score", "3"),
            2,
            "--save-every, --learn-min-score without --learn",
        ),
        (("frames", "--unguarded"), 2, "--unguarded without --learn"),
        (("frames", "--learn", "--save-as", "nowhere/new.whet"), 2, "does not exist: nowhere/"),
        (("frames", "--resize", "big"), 2, "WIDTHxHEIGHT"),
        (("frames", "--resize", "²x3"), 2, "WIDTHxHEIGHT"),
        (("frames", "--resize", "20000x30", "--out", "big.mp4"), ExitCode.FAILED, "big.mp4 cannot be written"),
        (("frames", "--learn", "--save-as", "new.xml"), 2, "whet export"),
        (("frames", "--learn", "--save-as", "new.whet", "--lines", "new.whet"), 2, "is used twice"),
        (("frames", "--out", "new.mp4", "--lines", "new.mp4"), 2, "is used twice"),
        (("frames", "--start", "4", "--stop", "4"), 2, "--stop above --start"),
        (("frames", "--start", "99"), ExitCode.FAILED, "no frame from number 99"),
        (("frames", "--min-score", "bold"), 2, "bold"),
        (("frames", "--learn", "--save-as", "new.whet", "--learn-min-score", "nan"), 2, "--learn-min-score nan"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, code, said, model, folder, monkeypatch, capsys, tmp_path):
    pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.mp4").write_text("not a video")
    source, *options = arguments
    done = whet_here(monkeypatch, capsys, "watch", model, folder if source == "frames" else source, *options)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("new*"))


def test_lines_that_were_there_stay_until_there_is_a_frame(monkeypatch, capsys, model, tmp_path):
    pytest.importorskip("av")
    (tmp_path / "old.csv").write_text("mine")
    done = whet_here(
        monkeypatch, capsys, "watch", model, tmp_path / "no.mp4", "--lines", tmp_path / "old.csv", "--force"
    )
    assert done.code == ExitCode.DATA_MISSING
    assert (tmp_path / "old.csv").read_text() == "mine"


def test_if_no_score_is_high_enough_the_best_score_is_printed(monkeypatch, capsys, model, folder, tmp_path):
    new, lines = tmp_path / "new.whet", tmp_path / "lines.jsonl"
    call = ("watch", model, folder, *UNGUARDED, "--learn-min-score", "1e6", "--save-as", new, "--lines", lines)
    done = whet_here(monkeypatch, capsys, *call)
    assert done.code == 0
    best = max(json.loads(line)["score"] for line in lines.read_text().splitlines())
    assert f"scores {best:.2f}, and only windows above 1000000.00" in done.out
    assert "--learn-min-score" in done.out


def test_without_any_detection_no_score_is_printed(monkeypatch, capsys, model, tmp_path):
    (tmp_path / "dark").mkdir()
    Image.fromarray(np.zeros((60, 80), np.uint8)).save(tmp_path / "dark" / "0.png")
    done = whet_here(
        monkeypatch, capsys, "watch", model, tmp_path / "dark", *UNGUARDED, "--save-as", tmp_path / "new.whet"
    )
    assert done.code == 0
    assert "no frame has a detection" in done.out
    assert "--learn-min-score" not in done.out
