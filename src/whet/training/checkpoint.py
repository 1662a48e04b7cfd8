"""A training that was interrupted goes on where it was: its whole state in one file, written as a whole."""

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

from whet.cascade.cascade import TrainedStage
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import CheckpointError
from whet.io.files import write_atomically
from whet.training.data import differences
from whet.training.mining import Mined
from whet.training.progress import Pace

Tensors = dict[str, NDArray[Any]]

FORMAT = "whet checkpoint 1"
SIDES = ("training", "held_out")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; training goes on without."""


@dataclass(frozen=True)
class StageRecord:
    """What validation samples said of a stage; seconds of its training, and since the beginning when it ended."""

    n_negatives: int
    detection_rate: float
    false_positive_rate: float
    meets_goal: bool
    seconds: float
    ended: float


@dataclass(eq=False)
class State:
    """All that training knows between two steps.

    Negatives for the next stage are those `mined`, those that judge it `judged`; None where they are still to be
    searched. `miners` are the windows given so far by each side's miner. `stalled` is the false-positive rate of a
    stage that was left out because it rejects next to nothing.
    """

    stages: list[TrainedStage] = field(default_factory=list)
    records: list[StageRecord] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    mined: Mined | None = None
    judged: Mined | None = None
    miners: tuple[Mapping[str, NDArray[np.int32]], ...] = ()
    stalled: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The file of one training; without a path nothing is kept."""

    path: Path | None
    fingerprint: Mapping[str, str]

    def save(self, state: State) -> None:
        """Write the state; a first one that cannot be written is an error, a later one a `CheckpointWarning`.

        Before the first stage nothing is lost by stopping. Later the training itself is worth more than its net.
        """
        if self.path is None:
            return
        try:
            write_atomically(self.path, _to_bytes(state, self.fingerprint))
        except OSError as error:
            message = f"cannot write the checkpoint {self.path}: {error.strerror or error}"
            if not state.stages:
                raise CheckpointError(f"{message}; make room or choose another place") from error
            warnings.warn(f"{message}; training goes on, make room meanwhile", CheckpointWarning, stacklevel=3)

    def load(self) -> State | None:
        """The state to go on from; None if there is no file yet. Raises `CheckpointError` on any other training's."""
        if self.path is None:
            return None
        for remains in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            remains.unlink(missing_ok=True)  # of a process that was killed while it wrote
        if not self.path.exists():
            return None
        header, tensors = _read(self.path)
        different = differences(self.fingerprint, header["fingerprint"])
        if different:
            raise CheckpointError(
                f"the checkpoint {self.path} is of another training: {'; '.join(different)}. Give what it was begun "
                "with, or another checkpoint file to begin anew"
            )
        return _state(header, tensors)


def _to_bytes(state: State, fingerprint: Mapping[str, str]) -> bytes:
    from safetensors.numpy import save

    tensors: Tensors = {}
    if state.stages:
        base = DetectorBase(state.stages[0].features.window, tuple(state.stages))
        tensors["detector"] = np.frombuffer(Detector(base).to_bytes(), dtype=np.uint8)
    for side, mined in zip(SIDES, (state.mined, state.judged), strict=True):
        if mined is not None:
            tensors |= {f"{side}.{name}": getattr(mined, name) for name in ("patches", "accepted", "looked_at")}
    for side, miner in zip(SIDES, state.miners, strict=True):
        tensors |= {f"{side}.{name}": array for name, array in miner.items()}
    header = {
        "fingerprint": dict(fingerprint),
        "records": [asdict(record) for record in state.records],
        "paces": [asdict(pace) for pace in state.paces],
        "exhausted": [mined is not None and mined.is_exhausted for mined in (state.mined, state.judged)],
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
            said = file.metadata() or {}
            tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error
    if said.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no checkpoint of this whet ({FORMAT!r}); choose another file")
    if said.get("sha256") != _digest(said.get("header", ""), tensors):
        raise _damaged(path, "its contents do not have the hash that they had when it was written")
    header: dict[str, Any] = json.loads(said["header"])
    return header, tensors


def _damaged(path: Path, why: object) -> CheckpointError:
    return CheckpointError(f"the checkpoint {path} is damaged ({why}): delete it to begin anew")


def _digest(text: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(tensors.items()):
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _state(header: dict[str, Any], tensors: Tensors) -> State:
    mined, judged = (
        _mined(side, is_exhausted, tensors) for side, is_exhausted in zip(SIDES, header["exhausted"], strict=True)
    )
    return State(
        _stages(tensors),
        [StageRecord(**record) for record in header["records"]],
        [Pace(**pace) for pace in header["paces"]],
        mined,
        judged,
        tuple({name: tensors[f"{side}.{name}"] for name in ("used", "unreadable")} for side in SIDES),
        header["stalled"],
        header["seconds"],
    )


def _mined(side: str, is_exhausted: bool, tensors: Tensors) -> Mined | None:
    if f"{side}.patches" not in tensors:
        return None
    patches, accepted, looked_at = (tensors[f"{side}.{name}"] for name in ("patches", "accepted", "looked_at"))
    return Mined(patches, accepted, looked_at, is_exhausted)


def _stages(tensors: Tensors) -> list[TrainedStage]:
    return list(Detector.from_bytes(tensors["detector"].tobytes()).base.stages) if "detector" in tensors else []
