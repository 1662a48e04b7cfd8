"""`whet watch` as a user meets it: a real process on real files."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tests.detectors import bull_finder, bull_scene

import whet
from whet.cli.exit_codes import ExitCode


def watch(*arguments):
    command = [sys.executable, "-m", "whet", "watch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def model(tmp_path):
    bull_finder().save(tmp_path / "bull.safetensors")
    return tmp_path / "bull.safetensors"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "frames"
    made.mkdir()
    for number in range(6):
        Image.fromarray(np.roll(bull_scene(), number, axis=1)).save(made / f"{number}.png")
    return made


def test_it_learns_saves_draws_and_writes_lines(model, folder, tmp_path):
    pytest.importorskip("av")
    taught, lines, table, film = (tmp_path / name for name in ("taught.safetensors", "a.jsonl", "a.csv", "a.mp4"))
    done = watch(model, folder, "--learn", "--above", -1e9, "--save-as", taught, "--json", lines, "--csv", table,
                 "--out", film, "--every", 2)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 frames" in done.stdout
    assert whet.load(taught).learned[0] > 0
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [row["frame"] for row in rows] == [0, 2, 4]
    assert rows[0]["detections"]
    with table.open() as file:
        assert [row["frame"] for row in csv.DictReader(file)] == ["0", "2", "4"]
    from whet.io.video import read_frames

    assert len(list(read_frames(film))) == 3


def test_a_broken_frame_keeps_what_was_learned_and_is_an_error(model, folder, tmp_path):
    (folder / "4.png").write_bytes(b"nothing")
    taught = tmp_path / "taught.safetensors"
    done = watch(model, folder, "--learn", "--above", -1e9, "--save-as", taught)
    assert done.returncode == ExitCode.FAILED
    assert "frame 4 cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
    assert "4 frames" in done.stdout
    assert whet.load(taught).learned[0] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nothing.mp4",), ExitCode.FAILED, "cannot be opened as a video"),
        (("camera:97",), ExitCode.FAILED, "cannot be opened as a video"),
        (("frames", "--learn"), 2, "--save-as"),
        (("frames", "--resize", "big"), 2, "WIDTHxHEIGHT"),
        (("frames", "--start", "99"), ExitCode.FAILED, "no frame from number 99"),
        (("frames", "--threshold", "bold"), 2, "no operating point"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, code, said, model, folder):
    pytest.importorskip("av")
    source, *options = arguments
    done = watch(model, folder if source == "frames" else source, *options)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
