"""Signals while files are written that belong together, and between the frames of a stream."""

import os
import signal
import subprocess
import sys

import pytest

from whet.cli.output import STOP_SIGNALS, StopSignals, uninterrupted

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


def default_handler(*_):
    raise AssertionError("a signal reached the handler of before")


@pytest.fixture(params=STOP_SIGNALS, ids=lambda number: number.name)
def number(request):
    """A signal with a handler of this test; a test run in the background ignores some."""
    before = signal.signal(request.param, default_handler)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_that_is_ignored_stays_ignored(number):
    signal.signal(number, signal.SIG_IGN)
    with StopSignals() as stop:
        for _ in stop.between(range(2)):
            signal.raise_signal(number)
    assert stop.received is None
    assert signal.getsignal(number) is signal.SIG_IGN


def test_a_signal_waits_until_an_item_is_done_and_ends_the_waiting_for_the_next(number):
    done = []

    def work(items):
        for item in items:
            if item == 2:
                signal.raise_signal(number)
            done.append(item)

    with StopSignals() as stop, pytest.raises(KeyboardInterrupt):
        work(stop.between(range(5)))
    assert done == [0, 1, 2]
    assert stop.exit_code == 128 + number

    def waiting():
        yield 0
        signal.raise_signal(number)
        yield 1

    with StopSignals() as stop:
        items = stop.between(waiting())
        assert next(items) == 0
        with pytest.raises(KeyboardInterrupt):
            next(items)
        signal.raise_signal(number)  # while everything is saved
    assert signal.getsignal(number) is default_handler
