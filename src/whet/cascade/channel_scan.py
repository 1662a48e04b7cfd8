"""A stage of trees over the windows of a pyramid with channels, in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from whet._kernels.cell_trees import scan_cells
from whet._kernels.threads import blocks, for_each_block
from whet.cascade.cascade import Cascade
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import Level, Pyramid, WindowIndex
from whet.cascade.stage import Stage
from whet.features.channels import CELL, ChannelTrees, cells_of
from whet.features.weak_learners import LEAVES, Trees

# Rows of windows a task.
BAND = 16


class Span(NamedTuple):
    """First and last + 1 row and column of windows in a level, in cells."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True, eq=False)
class ChannelScan:
    """Accepted windows of a pyramid, and how many windows it has."""

    fired: FiredWindows
    n_windows: int


class CompiledTrees(NamedTuple):
    """Trees for levels of one size."""

    offsets: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    votes: NDArray[np.float64]
    rejection: NDArray[np.float64]
    least: float


@lru_cache(maxsize=64)  # the levels of some sizes of images
def _compiled(stage: Stage, rows: int, columns: int, reject: bool) -> CompiledTrees:
    features, weak = cast(ChannelTrees, stage.features), cast(Trees, stage.weak)
    rejection = np.full(len(weak) // LEAVES, -np.inf)
    if reject and stage.rejection_thresholds is not None:
        rejection = np.ascontiguousarray(stage.rejection_thresholds[LEAVES - 1 :: LEAVES])
    votes = np.ascontiguousarray(stage.coef.reshape(-1, LEAVES), dtype=np.float64)
    least = stage.threshold if reject else -np.inf
    return CompiledTrees(features.offsets(rows, columns), weak.threshold, votes, rejection, least)


def scan_channels(
    cascade: Cascade,
    pyramid: Pyramid,
    *,
    reject: bool = True,
    spans: dict[float, Span] | None = None,
    threads: int | None = None,
) -> ChannelScan:
    """Windows of a pyramid that a cascade with channels accepts, by level, y and x.

    With `reject=False` all windows are accepted. `spans` choose the levels, by their scales, and the windows in them.
    The result does not depend on `threads`.
    """
    height, width = cells_of(cascade.window)
    step = pyramid.step // CELL
    chosen = [number for number, scale in enumerate(pyramid.scales) if spans is None or scale in spans]

    # Levels that others are resampled from come first.
    sources = {id(level.source or level): level.source or level for level in (pyramid.levels[i] for i in chosen)}
    _for_each(list(sources.values()), lambda level: level.channels, threads)
    _for_each([pyramid.levels[i] for i in chosen], lambda level: level.filtered, threads)
    tasks: list[tuple[int, NDArray[np.intp], NDArray[np.intp]]] = []
    for number in chosen:
        _, rows, columns = pyramid.levels[number].filtered.shape
        whole = Span(0, rows - height + 1, 0, columns - width + 1)
        span = whole if spans is None else spans[pyramid.scales[number]]
        starts = np.arange(span.top, min(span.bottom, whole.bottom), step)
        places = np.arange(span.left, min(span.right, whole.right), step)
        tasks += [(number, starts[band], places) for band in blocks(len(starts), BAND)]
    found: list[tuple[FiredWindows, int]] = [(FiredWindows(), 0)] * len(tasks)

    def work(task: slice) -> None:
        found[task.start] = _scan_band(cascade, pyramid, *tasks[task.start], reject=reject)

    for_each_block(work, len(tasks), 1, threads)
    fired = FiredWindows.concatenate([part for part, _ in found])
    return ChannelScan(fired, sum(n for _, n in found))


def _for_each(levels: Sequence[Level], compute: Callable[[Level], object], threads: int | None) -> None:
    """Compute what levels keep, in threads."""

    def work(block: slice) -> None:
        compute(levels[block.start])

    for_each_block(work, len(levels), 1, threads)


def _scan_band(
    cascade: Cascade, pyramid: Pyramid, number: int, rows: NDArray[np.intp], places: NDArray[np.intp], *, reject: bool
) -> tuple[FiredWindows, int]:
    """The accepted windows in some rows of a level, and the number of windows."""
    level, scale = pyramid.levels[number], pyramid.scales[number]
    (stage,) = cascade.stages
    _, n_rows, n_columns = level.filtered.shape
    trees = _compiled(stage, n_rows, n_columns, reject)
    n = len(rows) * len(places)
    where, sums = np.empty((n, 2), np.int32), np.empty(n)
    n_found = scan_cells(level.filtered.ravel(), n_columns, rows, places, *trees, where, sums)
    y, x = where[:n_found].T.astype(np.intp) * CELL
    index = WindowIndex(np.full(n_found, scale), y, x)
    scores = sums[:n_found] - stage.threshold
    return FiredWindows(index, level.boxes(y, x, cascade.window), scores), n


def span_around(pyramid: Pyramid, number: int, centre: tuple[float, float], reach: float) -> Span:
    """Windows of a level whose centres lie within `reach` pixels of the image of a centre (y, x), in each direction."""
    level, limits = pyramid.levels[number], []
    for at, scale, length in zip(centre, (level.scale_y, level.scale_x), pyramid.window, strict=True):
        low, high = ((at + side) / scale + level.padding - length / 2 for side in (-reach, reach))
        limits += [max(int(np.ceil(low / CELL)), 0), int(np.floor(high / CELL)) + 1]
    return Span(*limits)
