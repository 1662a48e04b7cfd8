"""The progress of a training: its events, its result, and checkpoints to resume it when it was interrupted.

A checkpoint is the state of a training in one file, written atomically.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whet.detector.base import DetectorBase
from whet.detector.shape import ShapeDetector
from whet.errors import CheckpointError, ModelFileError
from whet.io.files import write_locked
from whet.models.contract import Model
from whet.training.backgrounds import Mined
from whet.training.samples import NO_PLACES, Places

if TYPE_CHECKING:
    from whet.training.samples import Samples

# Detection rate and false-positive rate on validation samples.
Rates = tuple[float, float]

# A detector that accepts a larger share of all windows, or finds a smaller share of the objects, is of no use.
MOST_ACCEPTED = 0.1
FEWEST_FOUND = 0.3


@dataclass(frozen=True, eq=False)
class Event:
    """Base of all events: number of the step from 0, seconds since the start of all runs, and estimated seconds left.

    A step fits a stage of a cascade, or a round of trees. The estimate is None before two steps are finished.
    """

    stage: int
    seconds: float
    seconds_left: float | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {duration(self.seconds_left)} left"
        return f"[{duration(self.seconds)}{left}] {self.text}"

    @property
    def text(self) -> str:
        """What happens, without the times."""
        return self._text()

    def _text(self) -> str:
        raise NotImplementedError


Callback = Callable[[Event], None]


@dataclass(frozen=True, eq=False)
class Resumed(Event):
    """Training continues from a checkpoint with `stage` finished steps."""

    def _text(self) -> str:
        return f"resumed from a checkpoint with {self.stage} finished step{'s' * (self.stage != 1)}"


@dataclass(frozen=True, eq=False)
class FitStarted(Event):
    """A step starts to fit a model to this many samples."""

    n_positives: int
    n_negatives: int

    def _text(self) -> str:
        return f"step {self.stage}: training on {self.n_positives} positives and {self.n_negatives} negatives"


@dataclass(frozen=True, eq=False)
class FitProgress(Event):
    """Some weak learners or trees were added, for the model or for another `purpose`; rates, where they are known."""

    n_done: int
    n_most: int
    what: str
    purpose: str = ""
    rates: Rates | None = None

    def _text(self) -> str:
        purpose = self.purpose or f"step {self.stage}"
        return f"{purpose}: {self.n_done:,} of {self.n_most:,} {self.what}{_rates(self.rates)}"


@dataclass(frozen=True, eq=False)
class FitFinished(Event):
    """A step fitted a model to samples; `mined` are counts of what was mined for it, None before the first mining."""

    model: Model
    samples: Samples
    mined: Mined | None
    what: str
    rates: Rates | None = None

    def _text(self) -> str:
        return f"step {self.stage}: trained {self.what}{_rates(self.rates)}"


@dataclass(frozen=True, eq=False)
class Mining(Event):
    """Search for negatives of a step in the training images, or in the held-out images."""

    n_found: int
    n_wanted: int
    n_tested: int
    n_images: int
    most_images: int
    held_out: bool

    def _text(self) -> str:
        side = "held-out" if self.held_out else "training"
        return (
            f"step {self.stage}: mined {self.n_found:,} of {self.n_wanted:,} negatives in {self.n_images:,} of "
            f"{self.most_images:,} {side} images, {self.n_tested:,} windows"
        )


@dataclass(frozen=True, eq=False)
class StepStarted(Event):
    """A part of the training before the first or after the last step starts, such as cross-validation."""

    name: str

    def _text(self) -> str:
        return self.name


def _rates(rates: Rates | None) -> str:
    return "" if rates is None else f", detection rate {rates[0]:.2%}, false-positive rate {rates[1]:.2%}"


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(59.6), duration(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class StopReason(StrEnum):
    """Why training stopped."""

    TARGET_REACHED = "target reached"
    ALL_STAGES = "all stages"
    ALL_TREES = "all trees"
    ALL_STEPS = "all steps"
    IMAGES_EXHAUSTED = "images exhausted"
    CANNOT_IMPROVE = "cannot improve"


Stop = tuple[StopReason, str]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Why training stopped, and the rates of the model on held-out data, with 95 % intervals.

    `false_positive_rate` is the share of windows that the model accepts, of all places and scales in the held-out
    images. `detection_rate` is measured on objects that were not trained on; those of a cascade also set its
    thresholds, so expect a lower rate on a test set. `weak_stages` are the stages above `max_false_positive_rate`.
    `seconds` include all runs. `object_scores` (n,) are scores of held-out objects in their images, -inf if they are
    not found; with channels, cross-validated scores of all objects.
    """

    stop_reason: StopReason
    message: str
    false_positive_rate: float
    false_positive_interval: tuple[float, float]
    n_windows: int
    n_images: int
    detection_rate: float
    detection_interval: tuple[float, float]
    weak_stages: tuple[int, ...]
    n_stages: int
    seconds: float
    object_scores: NDArray[np.float64] | None = None

    @property
    def fault(self) -> str | None:
        """Why the detector is not usable; None if it is."""
        if self.false_positive_rate > MOST_ACCEPTED:
            return (
                f"accepts {self.false_positive_rate:.0%} of all windows of held-out images; add images without the "
                "object (--negatives), and check that boxes fit their objects"
            )
        if self.detection_rate < FEWEST_FOUND:
            return (
                f"finds {self.detection_rate:.0%} of the held-out objects; add annotated objects, and check that boxes "
                "of one class show one kind of object from one side"
            )
        return None

    def __str__(self) -> str:
        low, high = self.false_positive_interval
        weak = (
            f"; stages above max_false_positive_rate: {', '.join(map(str, self.weak_stages))}"
            if self.weak_stages
            else ""
        )
        return (
            f"{self.message}. False-positive rate {self.false_positive_rate:.2g} ({low:.2g} to {high:.2g}) in "
            f"{self.n_windows:,} windows of {self.n_images} held-out images, detection rate "
            f"{self.detection_rate:.2%} on validation positives{weak}"
        )


Tensors = dict[str, NDArray[Any]]

FORMAT = "whet checkpoint 2"
SIDES = ("training", "held_out")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; training continues without it."""


@dataclass(frozen=True)
class StepRecord:
    """A finished step: its negatives, the seconds that it took, and those from the start of all runs to its end."""

    n_negatives: int
    seconds: float
    ended: float


@dataclass(eq=False)
class State:
    """State of a training between two steps; lists have the training images first, then the held-out images.

    `model` is that of the last step. `places` (n, 4) are all negatives so far, each of a step. `mined` are those of
    the next step, with counts; None before they are searched. `notes` are those of the family.
    """

    model: Model | None = None
    steps: list[StepRecord] = field(default_factory=list)
    places: list[Places] = field(default_factory=lambda: [NO_PLACES, NO_PLACES])
    step_of_places: list[NDArray[np.int32]] = field(default_factory=lambda: [np.empty(0, np.int32) for _ in SIDES])
    mined: list[Mined | None] = field(default_factory=lambda: [None, None])
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, mined: Mined, held_out: bool) -> None:
        """Add the negatives of the next step."""
        self.mined[held_out] = mined
        self.places[held_out] = np.concatenate([self.places[held_out], mined.places])
        steps = np.full(len(mined.places), len(self.steps), np.int32)
        self.step_of_places[held_out] = np.concatenate([self.step_of_places[held_out], steps])


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The checkpoint file of a training; without a path nothing is saved."""

    path: Path | None
    fingerprint: Mapping[str, str]

    def save(self, state: State) -> None:
        """Write the state. A write error before the first step is an error, later a `CheckpointWarning`.

        Before the first step, stopping loses nothing. Later the training is worth more than its checkpoint.
        """
        if self.path is None:
            return
        try:
            write_locked(self.path, _to_bytes(state, self.fingerprint))
        except OSError as error:
            message = f"cannot write the checkpoint {self.path}: {getattr(error.__cause__, 'strerror', None) or error}"
            if state.model is None:
                raise CheckpointError(f"{message}; free disk space or choose another file") from error
            warnings.warn(f"{message}; training continues, free disk space now", CheckpointWarning, stacklevel=3)

    def load(self, notes: Collection[str] = ()) -> State | None:
        """The saved state, or None if there is no file. Raises `CheckpointError` for the file of another training.

        `notes` are the names of what the family has noted in it.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            header, tensors = _read(self.path)
            state, fingerprint = _state(header, tensors), dict(header["fingerprint"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise _damaged(self.path, f"its header lacks or contradicts {error}") from error
        different = differences(self.fingerprint, fingerprint)
        if different:
            raise CheckpointError(
                f"the checkpoint {self.path} belongs to another training: {'; '.join(different)}. Use the same "
                "settings and data, or another checkpoint file (whet train --fresh)"
            )
        if state.notes.keys() != set(notes):
            raise _damaged(self.path, f"it has the notes {sorted(state.notes)}, expected {sorted(notes)}")
        return state


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Each part in which two fingerprints differ, with both values.

    >>> differences({"seed": "1"}, {"seed": "0"})
    ['seed is 1, the checkpoint has 0']
    """
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        f"{name} is {ours.get(name, 'not set')}, the checkpoint has {theirs.get(name, 'none')}"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def _to_bytes(state: State, fingerprint: Mapping[str, str]) -> bytes:
    from safetensors.numpy import save

    tensors: Tensors = {}
    if state.model is not None:
        tensors["detector"] = np.frombuffer(ShapeDetector(DetectorBase(state.model)).to_bytes(), dtype=np.uint8)
    for side, places, steps, mined in zip(SIDES, state.places, state.step_of_places, state.mined, strict=True):
        tensors |= {f"{side}.places": places, f"{side}.steps": steps}
        if mined is not None:
            tensors |= {f"{side}.accepted": mined.accepted, f"{side}.tested": mined.tested}
    header = {
        "fingerprint": dict(fingerprint),
        "steps": [asdict(step) for step in state.steps],
        "exhausted": [mined is not None and mined.is_exhausted for mined in state.mined],
        "notes": state.notes,
        "seconds": state.seconds,
    }
    text = json.dumps(header)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    return bytes(save(tensors, {"format": FORMAT, "header": text, "sha256": _digest(text, tensors)}))


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint in the format {FORMAT!r}; choose another file")
    if metadata.get("sha256") != _digest(metadata.get("header", ""), tensors):
        raise _damaged(path, "its hash does not match its contents")
    header: dict[str, Any] = json.loads(metadata["header"])
    return header, tensors


def _damaged(path: Path, why: object) -> CheckpointError:
    return CheckpointError(f"the checkpoint {path} is damaged ({why}): delete it to start again")


def _digest(text: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(tensors.items()):
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _state(header: dict[str, Any], tensors: Tensors) -> State:
    steps = [StepRecord(**record) for record in header["steps"]]
    places, of_step, mined = [], [], []
    for side, is_exhausted in zip(SIDES, header["exhausted"], strict=True):
        own, numbers = tensors[f"{side}.places"].reshape(-1, 4), tensors[f"{side}.steps"]
        if own.dtype.kind not in "iu" or (own < 0).any() or numbers.shape != own.shape[:1]:
            raise ValueError(f"the places of {side}")
        places.append(own)
        of_step.append(numbers)
        accepted, tested = (tensors.get(f"{side}.{name}") for name in ("accepted", "tested"))
        new = None
        if accepted is not None and tested is not None:
            new = Mined(own[numbers == len(steps)], accepted, tested, is_exhausted)
        mined.append(new)
    return State(_model(tensors), steps, places, of_step, mined, dict(header["notes"]), float(header["seconds"]))


def _model(tensors: Tensors) -> Model | None:
    if "detector" not in tensors:
        return None
    try:
        return ShapeDetector.from_bytes(tensors["detector"].tobytes()).base.model
    except ModelFileError as error:
        raise CheckpointError(f"the model of the checkpoint cannot be read by this version: {error}") from error
