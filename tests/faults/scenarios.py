"""Changes of a model that may be cut off anywhere: what was there before, the change, and the file to look at after."""

import hashlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from tests.channels import colourful
from tests.detectors import BULL, bull_finder, bull_frames, bull_scene, judged_finder
from tests.drawn_sets import QUICK, QUICK_CHANNELS, van_set
from tests.fuzz.harness import isolated
from tests.fuzz.targets import checkpoints, made_again
from whet.cli.main import main
from whet.detector import edit
from whet.detector.storage import load
from whet.training.progress import Checkpoint, CheckpointWarning

NOW = 1_700_000_000
N_FRAMES = 3
# A box of the scene that is no object.
WRONG = "scene.png:2,2,30,30"


@dataclass(frozen=True)
class Scenario:
    """`prepare` fills the current directory, `act` changes `file`, `content` loads it and says what it holds.

    `ended_early` gives contents that an error in the middle may leave as well: those of shorter acts.
    """

    name: str
    file: str
    prepare: Callable[[], None]
    act: Callable[[], None]
    content: Callable[[], str] = lambda: _digest(load(Path("a.whet").resolve()).to_bytes())
    ended_early: Callable[[], set[str]] = lambda: set()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def whet(*arguments: str) -> None:
    """The command line, in this process; raises SystemExit."""
    time.time = lambda: float(NOW)
    sys.argv = ["whet", *arguments]
    main()


@cache
def sound(n: int) -> bytes:
    """The bytes of a model with so many corrections."""
    detector = judged_finder()
    time_before, time.time = time.time, lambda: float(NOW)
    try:
        for number in range(n):
            detector.learn(bull_scene(number + 1), BULL, True)
    finally:
        time.time = time_before
    return detector.to_bytes()


def _model(n: int = 2, name: str = "a.whet") -> None:
    Path(name).write_bytes(sound(n))
    Image.fromarray(bull_scene()).save("scene.png")


def _two_models() -> None:
    _model(1)
    _model(3, "b.whet")


@cache
def sampled(n: int) -> bytes:
    """The bytes of a model with samples, which was made again, and has learned so many objects since."""
    detector, rng = made_again(), np.random.default_rng(n)
    time_before, time.time = time.time, lambda: float(NOW)
    try:
        for number in range(n):
            detector.learn(colourful((120, 160), rng), [[30.0, 30, 60, 66]], True, complete=True, name=f"{number}.png")
    finally:
        time.time = time_before
    return detector.to_bytes()


def _samples() -> None:
    Path("a.whet").write_bytes(sampled(2))


def _two_with_samples() -> None:
    Path("a.whet").write_bytes(sampled(1))
    Path("b.whet").write_bytes(sampled(2))


def _frames(n: int = N_FRAMES) -> None:
    Path("a.whet").write_bytes(bull_finder().to_bytes())
    if not Path("frames").exists():
        bull_frames(Path("frames"), n)


def _save() -> None:
    detector = load("a.whet")
    detector.learn(bull_scene(), [[2.0, 2.0, 32.0, 32.0]], False)
    detector.save("a.whet")


def _edit() -> None:
    time.time = lambda: float(NOW)
    with edit("a.whet") as detector:
        detector.learn(bull_scene(), [[2.0, 2.0, 32.0, 32.0]], False)


def _frozen(act: Callable[[], None]) -> Callable[[], None]:
    def acting() -> None:
        time.time = lambda: float(NOW)
        act()

    return acting


def _checkpoint() -> None:
    Path("a.checkpoint").write_bytes(checkpoints()[0])


def _next_checkpoint() -> None:
    checkpoint = Checkpoint(Path("a.checkpoint"), {"seed": "1"})
    state = checkpoint.load()
    assert state is not None
    state.seconds = 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        checkpoint.save(state)


def _checkpoint_content() -> str:
    state = Checkpoint(Path("a.checkpoint"), {"seed": "1"}).load()
    return "none" if state is None else f"{len(state.steps)} steps in {state.seconds} s"


WATCH = ("watch", "a.whet", "frames", "--learn", "--unguarded", "--learn-min-score", "0", "--save-as", "a.whet")


def _watched_less() -> set[str]:
    """A session that a failing save ends saves what it has learned: as one of a shorter video does."""
    found = set()
    for n in range(1, N_FRAMES):
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            _frames(n)

            def act() -> str:
                with suppress(SystemExit):
                    whet(*WATCH, "--force", "-q")
                return f"accepted\n{SCENARIOS['watch'].content()}"

            found.add(isolated(act, seconds=120).text)
    return found


SCENARIOS = {
    one.name: one
    for one in (
        Scenario("learn", "a.whet", _model, lambda: whet("learn", "a.whet", "--wrong", WRONG, "--force", "-q")),
        Scenario("unlearn", "a.whet", _model, lambda: whet("unlearn", "a.whet", "--last", "1", "-q")),
        Scenario("merge", "a.whet", _two_models, lambda: whet("merge", "a.whet", "b.whet", "-o", "a.whet", "-q")),
        Scenario("refit", "a.whet", _samples, lambda: whet("refit", "a.whet", "--threads", "1", "-q")),
        Scenario("strip", "a.whet", _samples, lambda: whet("strip", "a.whet", "-q")),
        Scenario(
            "merge of samples",
            "a.whet",
            _two_with_samples,
            lambda: whet("merge", "a.whet", "b.whet", "-o", "a.whet", "-q"),
        ),
        Scenario("save", "a.whet", _model, _frozen(_save)),
        Scenario("edit", "a.whet", _model, _edit),
        Scenario(
            "watch",
            "a.whet",
            _frames,
            lambda: whet(*WATCH, "--save-every", "1", "--force", "-q"),
            ended_early=_watched_less,
        ),
        Scenario("train (checkpoint)", "a.checkpoint", _checkpoint, _next_checkpoint, _checkpoint_content),
    )
}


def _trained(config: tuple[str, str]) -> Scenario:
    """A training by the command line that goes on where it was interrupted."""

    def act() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whet("train", "vans.csv", "--out", "a.whet", *config, "--resume", "--threads", "1", "-q")

    return Scenario(f"train {config[1]}", "a.whet", lambda: van_set(Path(), n=16) and None, act)


# Trainings that are killed and resumed until they end.
TRAININGS = {"cascade": _trained(QUICK), "channels": _trained(QUICK_CHANNELS)}


def one_box(number: int) -> np.ndarray:
    """A box of the scene of its own for every number."""
    return np.array([[2.0 + number, 2.0, 32.0 + number, 32.0]])
