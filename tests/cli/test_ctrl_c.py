"""Ctrl-C while files are written that belong together."""

import os
import signal
import subprocess
import sys

import pytest

from whet.cli.output import ctrl_c_between, uninterrupted

# As in a program around Python that had set its handler before Python began: the table of handlers is filled anew.
FOREIGN_HANDLER = """
import ctypes, os, signal, sys
hits = []
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(hits.append)
ctypes.CDLL(None).signal(signal.SIGINT, handler)
del sys.modules["_signal"]
import _signal
assert signal.getsignal(signal.SIGINT) is None

from whet.cli.output import uninterrupted
with uninterrupted():
    written = True
os.kill(os.getpid(), signal.SIGINT)
assert written and hits == [signal.SIGINT], hits
"""


@pytest.fixture
def hits():
    """The signals that the handler in force gets."""
    hits = []
    before = signal.signal(signal.SIGINT, lambda number, _: hits.append(number))
    yield hits
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_does_not_come_between_and_works_again_after(hits):
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
    assert hits == []
    os.kill(os.getpid(), signal.SIGINT)
    assert hits == [signal.SIGINT]


def test_the_handler_is_put_back_after_an_error(hits):
    with pytest.raises(OSError, match="full"), uninterrupted():
        raise OSError("full")
    os.kill(os.getpid(), signal.SIGINT)
    assert hits == [signal.SIGINT]


@pytest.mark.skipif(sys.platform == "win32", reason="no signals of C here")
def test_a_handler_that_is_none_of_pythons_is_left_alone():
    done = subprocess.run([sys.executable, "-c", FOREIGN_HANDLER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def handler():
    """Python's own handler, which a test run in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_that_is_ignored_stays_ignored(handler):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ctrl_c_between() as stoppable:
        for _ in stoppable(range(2)):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN is not handler


def test_ctrl_c_waits_until_an_item_is_done_and_ends_the_waiting_for_the_next(handler):
    done = []

    def work(items):
        for item in items:
            if item == 2:
                signal.raise_signal(signal.SIGINT)
            done.append(item)

    with ctrl_c_between() as stoppable, pytest.raises(KeyboardInterrupt):
        work(stoppable(range(5)))
    assert done == [0, 1, 2]

    def waiting():
        yield 0
        signal.raise_signal(signal.SIGINT)
        yield 1

    with ctrl_c_between() as stoppable:
        items = stoppable(waiting())
        assert next(items) == 0
        with pytest.raises(KeyboardInterrupt):
            next(items)
    assert signal.getsignal(signal.SIGINT) is handler
