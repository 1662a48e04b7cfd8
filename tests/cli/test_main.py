"""The command line as a user meets it: a real process."""

import subprocess
import sys

import pytest
from tests.commands import whet, whet_here

from whet import __main__
from whet.cli.options import CTRL_C


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
        ("evaluate", ["whet evaluate mine.whet val.json", "--set-point NAME", "images, not boxes", "ANNOTATIONS"]),
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


def test_version():
    assert whet("--version").stdout.startswith("whet 0.")


@pytest.mark.slow
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
