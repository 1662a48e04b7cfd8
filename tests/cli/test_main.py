"""The command line as a user meets it: a real process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import check_message, whet, whet_here

from whet import __main__
from whet.cli.main import COMMANDS
from whet.cli.options import CTRL_C

IMPORTED = """
import sys
from pathlib import Path
from whet.cli.main import COMMANDS, main
sys.argv = ["whet", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
heavy = {"numpy", "numba", "sklearn", "rich", "scipy"} | {target.partition(":")[0] for target, _ in COMMANDS.values()}
print(sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [
        (["--help"], []),
        (["learn", "--help"], ["whet.cli.learn"]),
        (["train", "--help"], ["whet.cli.train"]),
    ],
)
def test_help_imports_only_the_command_it_is_about(arguments, imported):
    done = subprocess.run([sys.executable, "-c", IMPORTED, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(imported)


def test_help_lists_every_command_with_one_line_that_fits():
    lines = whet("--help").stdout.splitlines()
    for name, (_, line) in COMMANDS.items():
        assert f"  {name:<{max(map(len, COMMANDS))}}  {line}" in lines
    assert list(COMMANDS) == [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_loaded_and_its_help_has_examples(monkeypatch, capsys, name):
    done = whet_here(monkeypatch, capsys, name, "--help")
    assert done.code == 0
    assert (
        2 <= done.out.count(f"\n    whet {name}") + done.out.count(f"\n  whet {name}") + done.out.count("| whet") <= 5
    )


def test_a_wrong_command_is_named_with_the_one_that_was_meant(monkeypatch, capsys):
    done = whet_here(monkeypatch, capsys, "detct", "a.png")
    assert done.code == 2
    assert "'detct'. Did you mean 'detect'?" in done.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "learn",
            [
                "whet learn mine.whet --wrong shot.png:40,30,64,64",
                "--held-out",
                "exit code is then 5",
                "exit code is 6",
                "--detections",
            ],
        ),
        ("unlearn", ["whet unlearn mine.whet --last 1", "cannot be removed", "--id", "--image", "--all"]),
        ("log", ["whet log mine.whet", "--json", "object", "not object"]),
        ("export-corrections", ['"not-object"', "--out"]),
        ("merge", ["whet merge door.whet yard.whet --out both.whet", "count twice", "--force"]),
        ("evaluate", ["whet evaluate mine.whet val.json", "--set-point NAME", "images, not boxes", "ANNOTATIONS"]),
    ],
)
def test_help_of_a_command_has_examples_and_what_matters(monkeypatch, capsys, command, says):
    done = whet_here(monkeypatch, capsys, command, "--help")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert [part for part in says if part not in text] == []


def test_importing_whet_imports_nothing_heavy():
    code = "import sys, whet; print(sorted({'numpy', 'numba', 'sklearn', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_version():
    assert whet("--version").stdout.startswith("whet 0.")


@pytest.mark.slow
def test_demo_corrects_takes_back_and_draws(tmp_path):
    pytest.importorskip("skimage")
    done = whet("demo", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" gone after ") == 2
    assert done.stdout.count(" yes") == 2
    assert "STILL" not in done.stdout
    for name in ("photograph.png", "correction.png", "vans.png", "digits.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    used = re.findall(r"\b(?:test|empty)/[\w.]+|\b(?:test|vans)\.csv", readme)
    assert len(used) > 4
    assert [name for name in used if not (tmp_path / "vans" / name).exists()] == []


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


@pytest.mark.parametrize(
    ("message", "is_good"),
    [
        ("whet: cars.whet already exists; use --force to overwrite it", True),
        ("Usage: whet learn\n\nError: Invalid value: cars.whet already exists; use --force to overwrite it", True),
        ("whet: cars.whet is strange", False),  # no remedy
        ("whet: a file already exists; use --force", False),  # no cause
        ("Traceback (most recent call last):\ncars.whet: use --force", False),
    ],
)
def test_the_check_of_messages_asks_for_a_cause_and_a_remedy(message, is_good):
    if is_good:
        assert check_message(message, ["cars.whet"])
    else:
        with pytest.raises(AssertionError):
            check_message(message, ["cars.whet"])
