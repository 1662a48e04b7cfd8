"""Checkpoints: the state of a training in one file, written atomically, to resume an interrupted training."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.cascade.stage import TrainedStage
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import CheckpointError, ModelFileError
from whet.io.files import write_locked
from whet.training.data import differences
from whet.training.mining import Mined
from whet.training.progress import Pace

Tensors = dict[str, NDArray[Any]]

FORMAT = "whet checkpoint 1"
SIDES = ("training", "held_out")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; training continues without it."""


@dataclass(frozen=True)
class StageRecord:
    """Rates of a stage on validation samples; seconds of its training, and from the start of all runs to its end."""

    n_negatives: int
    detection_rate: float
    false_positive_rate: float
    meets_goal: bool
    seconds: float
    ended: float


@dataclass(eq=False)
class State:
    """State of a training between two steps.

    `mined` are the negatives of the next stage, `held_out` those that validate it; None before they are searched.
    `miners` are the windows that each miner supplied so far. `stalled` is the false-positive rate of a stage that was
    dropped because it rejects almost nothing.
    """

    stages: list[TrainedStage] = field(default_factory=list)
    records: list[StageRecord] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    mined: Mined | None = None
    held_out: Mined | None = None
    miners: tuple[Mapping[str, NDArray[np.int32]], ...] = ()
    stalled: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The checkpoint file of a training; without a path nothing is saved."""

    path: Path | None
    fingerprint: Mapping[str, str]

    def save(self, state: State) -> None:
        """Write the state. A write error before the first stage is an error, later a `CheckpointWarning`.

        Before the first stage, stopping loses nothing. Later the training is worth more than its checkpoint.
        """
        if self.path is None:
            return
        try:
            write_locked(self.path, _to_bytes(state, self.fingerprint))
        except OSError as error:
            message = f"cannot write the checkpoint {self.path}: {getattr(error.__cause__, 'strerror', None) or error}"
            if not state.stages:
                raise CheckpointError(f"{message}; free disk space or choose another file") from error
            warnings.warn(f"{message}; training continues, free disk space now", CheckpointWarning, stacklevel=3)

    def load(self) -> State | None:
        """The saved state, or None if there is no file. Raises `CheckpointError` for the file of another training."""
        if self.path is None:
            return None
        if not self.path.exists():
            return None
        header, tensors = _read(self.path)
        try:
            state, fingerprint = _state(header, tensors), dict(header["fingerprint"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise _damaged(self.path, f"its header lacks or contradicts {error}") from error
        different = differences(self.fingerprint, fingerprint)
        if different:
            raise CheckpointError(
                f"the checkpoint {self.path} belongs to another training: {'; '.join(different)}. Use the same "
                "settings and data, or another checkpoint file (whet train --fresh)"
            )
        return state


def _to_bytes(state: State, fingerprint: Mapping[str, str]) -> bytes:
    from safetensors.numpy import save

    tensors: Tensors = {}
    if state.stages:
        base = DetectorBase(state.stages[0].features.window, tuple(state.stages))
        tensors["detector"] = np.frombuffer(Detector(base).to_bytes(), dtype=np.uint8)
    for side, mined in zip(SIDES, (state.mined, state.held_out), strict=True):
        if mined is not None:
            tensors |= {f"{side}.{name}": getattr(mined, name) for name in ("patches", "accepted", "has_contrast")}
    for side, miner in zip(SIDES, state.miners, strict=True):
        tensors |= {f"{side}.{name}": array for name, array in miner.items()}
    header = {
        "fingerprint": dict(fingerprint),
        "records": [asdict(record) for record in state.records],
        "paces": [asdict(pace) for pace in state.paces],
        "exhausted": [mined is not None and mined.is_exhausted for mined in (state.mined, state.held_out)],
        "stalled": state.stalled,
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
    mined, held_out = (
        _mined(side, is_exhausted, tensors) for side, is_exhausted in zip(SIDES, header["exhausted"], strict=True)
    )
    return State(
        _stages(tensors),
        [StageRecord(**record) for record in header["records"]],
        [Pace(**pace) for pace in header["paces"]],
        mined,
        held_out,
        tuple({name: tensors[f"{side}.{name}"] for name in ("used", "unreadable")} for side in SIDES),
        header["stalled"],
        header["seconds"],
    )


def _mined(side: str, is_exhausted: bool, tensors: Tensors) -> Mined | None:
    if f"{side}.patches" not in tensors:
        return None
    patches, accepted, has_contrast = (tensors[f"{side}.{name}"] for name in ("patches", "accepted", "has_contrast"))
    return Mined(patches, accepted, has_contrast, is_exhausted)


def _stages(tensors: Tensors) -> list[TrainedStage]:
    if "detector" not in tensors:
        return []
    try:
        return list(Detector.from_bytes(tensors["detector"].tobytes()).base.stages)
    except ModelFileError as error:
        raise CheckpointError(f"the stages of the checkpoint cannot be read by this version: {error}") from error
