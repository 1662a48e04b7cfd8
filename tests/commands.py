"""The command line as a user meets it: a real process; or, where there are many calls to try, its front door."""

import subprocess
import sys
from typing import NamedTuple

from whet.cli.main import main


def whet(*arguments, **options):
    return run("whet", *arguments, **options)


def run(module, *arguments, **options):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


class Done(NamedTuple):
    code: int
    out: str
    err: str


def whet_here(monkeypatch, capsys, *arguments):
    """Call the command in this process, which saves its start."""
    monkeypatch.setattr(sys, "argv", ["whet", *map(str, arguments)])
    capsys.readouterr()
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    return Done(code, *capsys.readouterr())
