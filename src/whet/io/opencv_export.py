"""Write a cascade of stumps as an OpenCV cascade file.

OpenCV keeps leaves and thresholds in float32 and sums a stage in float64. Scaling a stage changes none of its
decisions, so each stage is scaled such that its threshold is a float32 number just above the true one: equality, which
whet rejects and OpenCV accepts, falls on the right side, and OpenCV's margin of 1e-5 is rounded away. What remains is
the rounding of the weights, at most 2^-25 of each: only a window that comes this close to a threshold can be judged
differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from whet.errors import CannotExportError
from whet.features.haar import HaarKind, HaarPool
from whet.features.lbp import BlockPatternPool
from whet.features.rectangle_pool import EXACT
from whet.features.stump_training import TrainedStumps
from whet.features.subset_training import TrainedSubsets
from whet.io.atomic_file import write_atomically
from whet.kernels.normalisation import OPENCV_MIN_SIGMA
from whet.model.cascade import Cascade
from whet.model.stage import Stage

Exits = Literal["doubling", "all", "none"]

# Where a threshold is put: half a step of float32 is 3e-5 there, so that taking 1e-5 off it changes nothing.
PLACE = 1024.0
# How far below that a sum equal to the threshold lies, as a part of it: less than the weights' own rounding.
BELOW = 2.0**-30
# OpenCV takes this off every threshold, in float32.
MARGIN = np.float32(1e-5)


class Piece(NamedTuple):
    """The first `n` learners of a stage and what their sum has to exceed: one stage of the file."""

    stage: Stage
    n: int
    threshold: float


@dataclass(frozen=True)
class Exported:
    """What was written, and how its decisions can differ from those of the cascade.

    `closest` is the largest of the stages' bounds on rounding, as a part of a stage's largest sum: windows whose margin
    is greater are judged alike. `differences` are sentences; none for a hard Haar cascade.
    """

    stages: int
    stumps: int
    closest: float
    differences: tuple[str, ...] = ()


def write_opencv(cascade: Cascade, path: Path | str, *, exits: Exits = "doubling") -> Exported:
    """Write a cascade for `cv2.CascadeClassifier` (OpenCV 3 and later) and for `whet.opencv`.

    A stage with early exits becomes several: OpenCV adds up every stage from zero, so the file repeats the first
    learners for each exit that is kept. "all" exits keep every decision, at the price of many repeated stumps;
    "doubling" keeps those after 1, 2, 4 and so on learners, which at most doubles the stumps and lets a few more
    windows through; "none" keeps the thresholds alone.

    >>> from tempfile import TemporaryDirectory
    >>> edge = TrainedStumps(*(np.array([v]) for v in (0, np.float32(0.5), np.int8(1), 0.0)))
    >>> pool = HaarPool.of_window((8, 8), [HaarKind.X2])
    >>> with TemporaryDirectory() as folder:
    ...     write_opencv(Cascade((8, 8), (Stage(pool.take([0]), edge, np.array([2.0]), 1.0),)), f"{folder}/edge.xml")
    Exported(stages=1, stumps=1, closest=2.9...e-08, differences=())
    """
    family = _family(cascade)
    pieces = [piece for stage in cascade.stages for piece in _pieces(stage, exits)]
    differences = tuple(_differences(cascade, family, exits))
    write_atomically(Path(path), "\n".join(_lines(cascade, family, pieces)).encode("ascii"))
    return Exported(len(pieces), sum(piece.n for piece in pieces), max(map(_closest, pieces)), differences)


def _family(cascade: Cascade) -> str:
    """HAAR or LBP; a file holds one of them."""
    kinds = {(type(stage.features), type(stage.weak)) for stage in cascade.stages}
    if kinds == {(BlockPatternPool, TrainedSubsets)}:
        return "LBP"
    if kinds != {(HaarPool, TrainedStumps)}:
        names = sorted(f"{weak.__name__} on {features.__name__}" for features, weak in kinds)
        raise CannotExportError(f"got stages of {', '.join(names)}; an OpenCV file holds Haar stumps alone or LBP alone")
    if cascade.min_sigma != OPENCV_MIN_SIGMA:
        raise CannotExportError(
            f"got min_sigma={cascade.min_sigma}; OpenCV looks at windows above {OPENCV_MIN_SIGMA}, no more and no less: "
            "train with that"
        )
    if 2 * 255 * cascade.window[0] * cascade.window[1] >= EXACT:
        raise CannotExportError(f"got a window of {cascade.window}; sums of its pixels are not exact in float32")
    return "HAAR"


def _differences(cascade: Cascade, family: str, exits: Exits) -> Iterator[str]:
    if family == "LBP":
        yield f"OpenCV looks at LBP windows of any contrast; whet leaves out those below {cascade.min_sigma} grey levels"
    soft = sum(stage.exits is not None for stage in cascade.stages)
    if soft and exits != "all":
        kept = "none of them" if exits == "none" else "those after 1, 2, 4, ... learners"
        yield f"{soft} stages have early exits; the file keeps {kept}, so that it accepts a few windows more"


def _pieces(stage: Stage, exits: Exits) -> list[Piece]:
    """A stage as stages without exits: prefixes up to each exit that is kept, then all of it."""
    size, thresholds = len(stage), np.full(len(stage), -np.inf)
    if stage.exits is not None:
        thresholds[:] = stage.exits
        final = max(float(thresholds[-1]), stage.threshold)
        counts = np.arange(1, size + 1)
        kept = {"none": counts < 0, "all": counts > 0, "doubling": (counts & (counts - 1)) == 0}[exits]
        thresholds[~kept] = -np.inf
        thresholds[-1] = final
    else:
        thresholds[-1] = stage.threshold
    return [Piece(stage, t + 1, float(thresholds[t])) for t in range(size) if thresholds[t] > -np.inf]


def _closest(piece: Piece) -> float:
    """A bound on what rounding does to a sum, as a part of the largest sum."""
    return (len(piece.stage.coef[: piece.n]) and 2.0**-25) + BELOW * abs(piece.threshold) / max(
        abs(piece.stage.coef[: piece.n]).sum(), np.finfo(np.float64).tiny
    )


def _scaled(piece: Piece) -> tuple[NDArray[np.float32], np.float32]:
    """Weights and the threshold of a stage as OpenCV has to read them."""
    coef = piece.stage.coef[: piece.n].astype(np.float64)
    largest = max(abs(coef).sum(), abs(piece.threshold), np.finfo(np.float64).tiny)
    if abs(piece.threshold) < 1e-9 * largest:  # a threshold of zero: MARGIN less MARGIN is exactly that
        return _exceeding_zero(coef - piece.threshold / piece.n, largest)
    sign = np.sign(piece.threshold)
    factor = PLACE * (1.0 - sign * BELOW) / abs(piece.threshold)
    return (coef * factor).astype(np.float32), np.float32(sign * PLACE)


def _exceeding_zero(coef: NDArray[np.float64], largest: float) -> tuple[NDArray[np.float32], np.float32]:
    scale = PLACE / largest
    return (coef * scale).astype(np.float32), np.nextafter(MARGIN, np.float32(np.inf))
