"""Boosted trees on channels as a model: trees of depth two over cells, their scan and their file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from whet._kernels.cell_trees import scan_cells
from whet.arrays import Pixels
from whet.errors import CannotLearnError, ImageMemoryError
from whet.images.detections import FiredWindows
from whet.images.pyramid import Grid, Level, Pyramid, Span, WindowIndex
from whet.images.scan_memory import WindowCount, windows_of_part
from whet.models.channels.channels import (
    CELL,
    GRID,
    N_FILTERED,
    Cells,
    Part,
    cells_of,
    level_cells,
    level_channels,
    part_of_level,
)
from whet.models.channels.channels import window_cells as window_cells
from whet.models.contract import Area, Arrays, Counts, Family, Layout, Saved, check_layout
from whet.models.responses import Responses, Votes
from whet.parallel.threads import blocks, for_each_block

# A tree asks its root, and then one of two further cells: four leaves, which are the weak learners.
NODES = 3
LEAVES = 4
# The arrays of a file.
TREES = {"channel": np.uint8, "y": np.uint8, "x": np.uint8, "threshold": np.uint8}
# More than this in a file is somebody's attack.
MOST_TREES = 25_000
# Rows of windows in a task of a scan.
BAND = 16
# Bytes of windows that respond at a time.
AT_ONCE = 1 << 26


@dataclass(frozen=True, eq=False)
class TreeModel:
    """Trees on windows (height, width): channel, row y, column x and threshold (trees, 3) of root and children.

    A cell answers 1 if its value is above the threshold. The first child is asked where the root answers 0, the second
    where it answers 1. Each tree has four leaves, which are the weak learners: a leaf responds 1 where a window ends in
    it. `votes` are those of the leaves, with limits after whole trees only.

    >>> one = np.zeros((1, 3), np.uint8)
    >>> votes = tree_votes(np.array([[-1.0, -1.0, -1.0, 1.0]]), np.array([-np.inf]), 0.0)
    >>> model = TreeModel((8, 8), one, one, one + np.uint8([0, 1, 1]), np.uint8([[5, 0, 7]]), votes)
    >>> cells = np.zeros((2, 40, 2, 2), np.uint8)
    >>> cells[0, 0, 0] = 9, 8
    >>> model.votes.scores(model.respond(cells))
    array([  1., -inf])
    """

    window: tuple[int, int]
    channel: NDArray[np.uint8]
    y: NDArray[np.uint8]
    x: NDArray[np.uint8]
    threshold: NDArray[np.uint8]
    votes: Votes
    family: ClassVar[str] = "channels"

    def __post_init__(self) -> None:
        parts, limits = (self.channel, self.y, self.x), (N_FILTERED, *cells_of(self.window))
        for name, part, limit in zip(TREES, parts, limits, strict=False):
            if len(part) and part.max() >= limit:
                raise ValueError(f"a tree asks for {name} {part.max()} of a window with {limit}")
        if {part.shape for part in (*parts, self.threshold)} != {(len(self), NODES)} or not len(self):
            raise ValueError(f"got trees of {self.channel.shape} cells; expected ({len(self)}, {NODES}) of each kind")
        if self.votes.n_weak != LEAVES * len(self) or len(self.votes.ends) != 1:
            raise ValueError(f"got {self.votes.n_weak} votes for {len(self)} trees; expected {LEAVES} for each")
        if not np.isneginf(self.votes.limits.reshape(-1, LEAVES)[:, :-1]).all():
            raise ValueError("trees have rejection thresholds after whole trees only")

    @classmethod
    def from_indices(
        cls, window: tuple[int, int], indices: NDArray[np.integer], threshold: NDArray[np.uint8], votes: Votes
    ) -> TreeModel:
        """Trees of cells (trees, 3), numbered by channel, row and column, column fastest."""
        parts = np.unravel_index(indices, (N_FILTERED, *cells_of(window)))
        channel, y, x = (part.astype(np.uint8) for part in parts)
        return cls(window, channel, y, x, threshold, votes)

    def __len__(self) -> int:
        return len(self.threshold)

    @property
    def grid(self) -> Grid:
        """Windows begin at whole cells, in a padding, on colour images."""
        return GRID

    @property
    def indices(self) -> NDArray[np.int32]:
        """Numbers (trees, 3) of the cells, by channel, row and column."""
        shape = (N_FILTERED, *cells_of(self.window))
        places = tuple(part.astype(np.intp) for part in (self.channel, self.y, self.x))
        return np.ravel_multi_index(places, shape).astype(np.int32)

    def offsets(self, rows: int, columns: int) -> NDArray[np.int32]:
        """Where the cells (trees, 3) of a window lie in the flat channels (40, rows, columns) of a level."""
        channel, y, x = (part.astype(np.int64) for part in (self.channel, self.y, self.x))
        return ((channel * rows + y) * columns + x).astype(np.int32)

    def scan(
        self,
        pyramid: Pyramid,
        votes: Votes | None = None,
        *,
        spans: Mapping[float, Span] | None = None,
        fast: bool | None = None,  # noqa: ARG002 - there is no coarse pass
        threads: int | None = None,
    ) -> FiredWindows:
        """Windows of a pyramid that the votes accept; see `whet.models.contract.Model`."""
        votes = self.votes if votes is None else votes
        chosen = [number for number, scale in enumerate(pyramid.scales) if spans is None or scale in spans]
        compute_cells([pyramid.levels[number] for number in chosen if not pyramid.levels[number].is_in_parts], threads)
        sources: dict[int, list[_Task]] = {}
        for number in chosen:
            level, scale = pyramid.levels[number], pyramid.scales[number]
            whole = Span(0, level.shape[0] - self.window[0] + 1, 0, level.shape[1] - self.window[1] + 1)
            span = whole if spans is None else spans[scale]
            rows = np.arange(span.top, min(span.bottom, whole.bottom), pyramid.step) // CELL
            columns = np.arange(span.left, min(span.right, whole.right), pyramid.step) // CELL
            # All that is in parts of one image comes together: the image is made once.
            source = id(level.source or level) if level.is_in_parts else 0
            sources.setdefault(source, []).extend(self._tasks(number, level, rows, columns, pyramid.step))
        fired, count = list[tuple[int, FiredWindows]](), WindowCount(pyramid.most_windows)
        for tasks in sources.values():
            fired += self._scan_tasks(votes, pyramid, tasks, count, threads)
        by_level = sorted(fired, key=lambda part: part[0])
        return _in_order(FiredWindows.concatenate([part for _, part in by_level]), is_mixed=set(sources) != {0})

    def _tasks(
        self, number: int, level: Level, rows: NDArray[np.intp], columns: NDArray[np.intp], step: int
    ) -> list[_Task]:
        """Bands of windows of a level, or parts of one that is looked at in parts."""
        if not level.is_in_parts:
            return [_Task(number, rows[band], columns) for band in blocks(len(rows), BAND)]
        n_rows, n_columns = windows_of_part(len(rows), len(columns), self.window, step)
        bands = blocks(len(rows), max(n_rows, 1))
        parts = blocks(len(columns), max(n_columns, 1))
        return [_Task(number, rows[band], columns[part]) for band in bands for part in parts]

    def _scan_tasks(
        self,
        votes: Votes,
        pyramid: Pyramid,
        tasks: Sequence[_Task],
        count: WindowCount,
        threads: int | None,
    ) -> list[tuple[int, FiredWindows]]:
        """What each task finds, with the number of its level; levels that are in parts have one source."""
        fired = [FiredWindows()] * len(tasks)
        first = pyramid.levels[tasks[0].number] if tasks else None
        pixels = (first.source or first).pixels if first is not None and first.is_in_parts else None

        def work(block: slice) -> None:
            task = tasks[block.start]
            fired[block.start] = self._scan_task(votes, pyramid, task, pixels)
            count.add(len(fired[block.start]))

        for_each_block(work, len(tasks), 1, threads)
        return [(task.number, part) for task, part in zip(tasks, fired, strict=True)]

    def _scan_task(self, votes: Votes, pyramid: Pyramid, task: _Task, pixels: Pixels | None) -> FiredWindows:
        """The accepted windows of a task."""
        level, scale = pyramid.levels[task.number], pyramid.scales[task.number]
        if not len(task.rows) or not len(task.columns):
            return FiredWindows()
        part = Part(level_cells(level), 0, 0) if pixels is None else self._part(level, pixels, task)
        n = len(task.rows) * len(task.columns)
        where, sums = np.empty((n, 2), np.int32), np.empty(n)
        _, rows, columns = part.cells.shape
        trees = _compiled(self, votes, rows, columns)
        down, across = task.rows - part.row, task.columns - part.column
        n_fired = scan_cells(part.cells.ravel(), columns, down, across, *trees, where, sums)
        if not n_fired:
            return FiredWindows(n_windows=n)
        y, x = (where[:n_fired] + np.array([part.row, part.column], np.intp)).T * CELL
        index = WindowIndex(np.full(n_fired, scale), y, x)
        return FiredWindows(index, level.boxes(y, x, self.window), sums[:n_fired] - votes.threshold[0], n)

    def _part(self, level: Level, pixels: Pixels, task: _Task) -> Part:
        """The cells of all windows of a task."""
        height, width = cells_of(self.window)
        rows = range(int(task.rows[0]), int(task.rows[-1]) + height)
        columns = range(int(task.columns[0]), int(task.columns[-1]) + width)
        return part_of_level(level, pixels, rows, columns)

    def looks_at(
        self,
        index: WindowIndex,
        pyramid: Pyramid | None = None,  # noqa: ARG002
        *,
        fast: bool | None = None,  # noqa: ARG002
    ) -> NDArray[np.bool_]:
        """All windows."""
        return np.ones(len(index), np.bool_)

    def responses(self, pyramid: Pyramid, index: WindowIndex) -> tuple[Responses, NDArray[np.bool_]]:
        """Responses to windows of a pyramid; all have enough contrast."""
        # Cells of a window, and of each tree the values, answers and leaves.
        window_bytes = N_FILTERED * prod(cells_of(self.window)) + 40 * len(self)
        at_once = max(AT_ONCE // window_bytes, 1)
        parts = (self.respond(window_cells(pyramid, index.take(rows))) for rows in blocks(len(index), at_once))
        return Responses.concatenate(parts, self.votes.n_weak), np.ones(len(index), np.bool_)

    def respond(self, cells: Cells) -> Responses:
        """Responses to the filtered channels (n, 40, rows, columns) of windows."""
        if cells.shape[1:] != (N_FILTERED, *cells_of(self.window)):
            raise ValueError(f"got cells of shape {cells.shape} for a window of {self.window}")
        values = cells.reshape(len(cells), prod(cells.shape[1:]))[:, self.indices.ravel()]
        above = values.reshape(len(cells), len(self), NODES) > self.threshold
        leaf = np.where(above[:, :, 0], 2 + above[:, :, 2], 0 + above[:, :, 1])
        return Responses.from_bits((leaf[:, :, None] == np.arange(LEAVES)).reshape(len(cells), -1))

    def count(self, *_: object) -> NoReturn:
        """Raise `CannotLearnError`: votes of trees do not follow from counts."""
        raise CannotLearnError(
            "the votes of a channel detector's trees do not follow from examples; correct it by boxes in images "
            "(Detector.learn, `whet learn --wrong` or --missed), or train it again with these examples"
        )

    def learned(self, counts: Counts | None) -> TreeModel:  # noqa: ARG002 - there are no counts
        """The same."""
        return self

    def saved(self, counts: Counts | None = None) -> Saved:  # noqa: ARG002 - there are no counts
        """Cells, thresholds, votes and limits."""
        arrays: dict[str, NDArray[Any]] = {name: np.ascontiguousarray(getattr(self, name)) for name in TREES}
        arrays |= {"votes": self.votes.coef.reshape(-1, LEAVES), "limits": self.votes.limits[LEAVES - 1 :: LEAVES]}
        return Saved({"threshold": float(self.votes.threshold[0])}, arrays)


def _in_order(fired: FiredWindows, *, is_mixed: bool) -> FiredWindows:
    """Windows by level, y and x: those of a level in parts come part by part."""
    if not is_mixed:
        return fired
    index = fired.index
    return fired.take(np.lexsort((index.x, index.y, index.scale)))


class _Task(NamedTuple):
    """Rows and columns of windows of a level, in cells."""

    number: int
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


class _Compiled(NamedTuple):
    """Trees for levels of one size."""

    offsets: NDArray[np.int32]
    threshold: NDArray[np.uint8]
    votes: NDArray[np.float64]
    limits: NDArray[np.float64]
    least: float


@lru_cache(maxsize=64)  # the levels of some sizes of images
def _compiled(model: TreeModel, votes: Votes, rows: int, columns: int) -> _Compiled:
    if N_FILTERED * rows * columns > np.iinfo(np.int32).max:  # kernels count in 32 bits
        raise ImageMemoryError(
            f"got a level of {CELL * columns} x {CELL * rows} pixels; use a smaller image, or a larger min_size"
        )
    limits = np.ascontiguousarray(votes.limits[LEAVES - 1 :: LEAVES])
    offsets = model.offsets(rows, columns)
    return _Compiled(offsets, model.threshold, votes.coef.reshape(-1, LEAVES), limits, float(limits[-1]))


def compute_cells(levels: Sequence[Level], threads: int | None = None) -> None:
    """Compute the cells that levels keep, in threads; levels that others are resampled from come first."""
    sources = {id(level.source or level): level.source or level for level in levels}
    _for_each(list(sources.values()), level_channels, threads)
    _for_each(levels, level_cells, threads)


def _for_each(levels: Sequence[Level], compute: Callable[[Level], object], threads: int | None) -> None:
    def work(block: slice) -> None:
        compute(levels[block.start])

    for_each_block(work, len(levels), 1, threads)


def tree_votes(votes: NDArray[np.float64], limits: NDArray[np.float64], threshold: float) -> Votes:
    """The votes of leaves (trees, 4), with limits (trees,) after each tree and a threshold."""
    after = np.full(votes.size, -np.inf)
    after[LEAVES - 1 :: LEAVES] = limits
    return Votes.from_stages([votes.ravel()], [threshold], [after])


def load(window: tuple[int, int], table: dict[str, Any], arrays: Arrays) -> tuple[TreeModel, None]:
    """A model from what a file holds; raises ValueError for anything that is not one."""
    if set(table) != {"threshold"} or set(arrays) != {*TREES, "votes", "limits"}:
        raise ValueError(f"got {sorted(table)} and arrays {sorted(arrays)}: not those of trees on channels")
    n = len(arrays["limits"]) if arrays["limits"].ndim == 1 else 0
    if not 0 < n <= MOST_TREES:
        raise ValueError(f"got {n:,} trees; expected 1 to {MOST_TREES:,}")
    expected: dict[str, Layout] = {name: (np.dtype(kind), (n, NODES)) for name, kind in TREES.items()}
    expected |= {"votes": (np.dtype(np.float64), (n, LEAVES)), "limits": (np.dtype(np.float64), (n,))}
    check_layout(arrays, expected)
    threshold = table["threshold"]
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise ValueError(f"threshold is {str(threshold)[:40]}; expected a finite number")
    votes = tree_votes(arrays["votes"], arrays["limits"], float(threshold))
    votes.check()
    if votes.limits[-1] != arrays["limits"][-1]:
        raise ValueError(
            f"the last limit is {arrays['limits'][-1]:g}; expected one of at least the threshold, {threshold:g}"
        )
    channel, y, x, limits = (arrays[name] for name in TREES)
    return TreeModel(window, channel, y, x, limits, votes), None


def summary(model: TreeModel, counts: Counts | None) -> list[dict[str, Any]]:  # noqa: ARG001
    """One row: all trees."""
    return [{"family": model.family, "n_weak": model.votes.n_weak, "is_soft": True, "learns": False}]


def areas(model: TreeModel, learner: int) -> list[Area]:
    """The three cells of a tree."""
    tree = learner // LEAVES
    return [Area(CELL * int(x), CELL * int(y), CELL, CELL) for x, y in zip(model.x[tree], model.y[tree], strict=True)]


def restored(level: Level, planes: Cells) -> Level:
    """A level with these channels (10, rows, columns)."""
    return replace(level, kept={"channels": planes})


FAMILY = Family(
    TreeModel.family,
    load,
    summary,
    areas=areas,
    training="whet.training.channels.ChannelTraining",
    keep_samples="whet.training.refit.keep_samples",
    refit="whet.training.refit.grow_again",
    planes=level_channels,
    restored=restored,
)
