"""Checkpoints: the state of a training in one file, written atomically, to resume an interrupted training."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.detector.base import DetectorBase
from whet.detector.shape import ShapeDetector
from whet.errors import CheckpointError, ModelFileError
from whet.io.files import write_locked
from whet.models.contract import Model
from whet.training.backgrounds import Mined
from whet.training.samples import NO_PLACES, Places

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
