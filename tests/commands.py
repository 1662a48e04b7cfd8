"""The command line as a user meets it: a real process; or, where there are many calls to try, its front door."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import NamedTuple

from whet.cli.main import COMMANDS, main


def whet(*arguments, **options):
    return run("whet", *arguments, **options)


def run(module, *arguments, **options):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@contextmanager
def serving(*arguments, address, **options):
    """A command that goes on, and the port in the first line of its errors, which matches `address`."""
    with subprocess.Popen(
        [sys.executable, "-m", "whet", *map(str, arguments), "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test in the background ignores it
        **options,
    ) as process:
        try:
            line = process.stderr.readline()
            found = re.fullmatch(address, line)
            assert found, line + process.stderr.read()
            yield process, int(found[1])
        finally:
            process.kill()


class Done(NamedTuple):
    code: int
    out: str
    err: str


# What to do about an error: a verb that asks for something, an option or command to use, a list of the choices, or a
# statement that the file named does not exist or cannot be read, which needs no advice.
REMEDY = re.compile(
    r"\b(use|expected|choose|give|pass|run|remove|take|create|install|set|available|knows?|there are)\b|--[a-z]"
    rf"|(?<!\.)\bwhet (?:{'|'.join(COMMANDS)})\b|no such|does not exist|cannot be read|damaged",
    re.IGNORECASE,
)


def check_message(stderr, arguments):
    """Check that an error message names its cause, one of the arguments, and a remedy; returns it as one line."""
    assert "Traceback" not in stderr
    line = " ".join(stderr.split())
    message = re.split(r"Error: (?:Invalid value: )?", line)[-1].removeprefix("whet: ")
    causes = [str(argument).lstrip("-") for argument in arguments]
    assert any(cause in message for cause in causes) or message.startswith(("got no ", "Missing ")), message
    assert REMEDY.search(message), message
    return line


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
