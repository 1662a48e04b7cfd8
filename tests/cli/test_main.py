"""The command line as a user meets it: a real process."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.commands import whet, whet_here

from whet import __main__
from whet.cli.exit_codes import CTRL_C, ExitCode
from whet.experiments.registry import EXPERIMENTS


def test_help_names_every_command_and_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from whet.cli.main import main\n"
        "sys.argv = ['whet', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'numba', 'sklearn', 'rich', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert all(
        command in done.stdout for command in ("train", "detect", "learn", "unlearn", "merge", "evaluate", "watch")
    )


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "learn",
            ["whet learn face --annotations boxes.csv -o mine.whet", "--held-out", "exit code is then 5", "--journal"],
        ),
        ("unlearn", ["whet unlearn mine.whet --entries 3,5-8", "cannot be taken out", "--list", "[JOURNAL]"]),
        ("merge", ["whet merge door.whet yard.whet -o both.whet", "counts twice", "--force"]),
        ("evaluate", ["whet evaluate mine.whet val.json", "--set-point NAME", "pictures, not boxes", "ANNOTATIONS"]),
    ],
)
def test_help_of_a_command_has_examples_and_what_matters(monkeypatch, capsys, command, says):
    done = whet_here(monkeypatch, capsys, command, "--help")
    assert done.code == 0
    told = " ".join(done.out.split())
    assert [text for text in says if text not in told] == []


def test_importing_whet_imports_nothing_heavy():
    code = "import sys, whet; print(sorted({'numpy', 'numba', 'sklearn', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_of_reproduce_names_every_experiment(name):
    assert name in whet("reproduce", "--help").stdout


def test_version():
    assert whet("--version").stdout.startswith("whet 0.")


def test_a_wrong_call_is_exit_code_2_and_says_what_is_known():
    done = whet("reproduce", "nothing")
    assert done.returncode == 2
    assert "toy" in done.stderr
    assert "Traceback" not in done.stderr


def test_reproduce_toy_writes_numbers_and_pictures(tmp_path):
    done = whet("reproduce", "toy", "--runs", 2, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "toy.json").read_text())
    assert printed["seeds"] == [0, 1]
    assert {"command", "seeds", "versions", "seconds", "results"} <= set(printed)
    assert {"method", "setting", "mean", "std"} <= set(printed["results"][0])
    assert len(list(tmp_path.glob("toy-*.png"))) == 3


def test_missing_data_has_an_exit_code_of_its_own(tmp_path):
    away = {key: value for key, value in os.environ.items() if key != "WHET_DATA"}
    done = whet(
        "reproduce",
        "usps",
        "--out",
        tmp_path,
        env=away | {"XDG_CACHE_HOME": str(tmp_path), "PIP_NO_INDEX": "1"},
    )
    assert done.returncode == ExitCode.DATA_MISSING
    assert "USPS" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = whet("reproduce", "toy", "--runs", 1, "--out", tmp_path / "file")
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.strip().splitlines()[-1].startswith("whet:")
    assert "Traceback" not in done.stderr


def test_ctrl_c_leaves_no_half_written_file(tmp_path):
    command = [sys.executable, "-m", "whet", "reproduce", "toy", "--runs", "100000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


def test_demo_corrects_takes_back_and_draws(tmp_path):
    pytest.importorskip("skimage")
    done = whet("demo", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" gone after ") == 2
    assert done.stdout.count(" yes") == 2
    for name in ("photograph.png", "correction.png", "vans.png", "digits.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_while_commands_are_imported_is_no_traceback(monkeypatch):
    class Interrupted:
        def find_spec(self, name, *_):
            if name == "whet.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "whet.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == CTRL_C
