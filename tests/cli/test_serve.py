"""`whet serve` as a user meets it: what is wrong is one line, and Ctrl-C ends it."""

import signal

import pytest
from tests.commands import check_message, whet_here
from tests.detectors import bull_file
from tests.web.studios import TIMEOUT, running, scenes

from whet.cli.options import ExitCode


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["none.whet"], ExitCode.DATA_MISSING),
        (["unicorn"], ExitCode.DATA_MISSING),
        (["face", "missing.png"], ExitCode.DATA_MISSING),
        (["face", "fake.png"], ExitCode.FAILED),
        (["face", "a.mp4", "b.mp4"], ExitCode.FAILED),
        (["face", "--host", "203.0.113.9"], ExitCode.FAILED),
        (["face", "--project", "nowhere/face.studio"], ExitCode.FAILED),
    ],
)
def test_what_is_wrong_is_one_line(arguments, code, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake.png").write_text("a note\n")
    done = whet_here(monkeypatch, capsys, "serve", *arguments, "--no-browser")
    assert done.code == code, done.err
    check_message(done.err, arguments)


@pytest.mark.slow
def test_ctrl_c_ends_it_without_a_traceback(tmp_path):
    model, folder = bull_file(tmp_path), scenes(tmp_path / "scenes")
    with running(model, folder, "--project", tmp_path / "p.studio") as (run, _):
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=TIMEOUT)
    assert run.returncode == 130
    assert "Traceback" not in err
