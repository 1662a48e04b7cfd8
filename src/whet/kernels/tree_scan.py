"""An OpenCV cascade over the windows of a picture, a row of windows at a time.

The first stages are evaluated on all windows of a row, the later ones on those that are left. OpenCV walks along a row
window by window (`CascadeClassifierInvoker` in modules/objdetect/src/cascadedetect.cpp, branch 4.x): where the first
stage rejects a window, the next one is not visited. Here the first stage is known for all windows before the walk.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel
from whet.kernels.scan import ROW_ADVANTAGE
from whet.kernels.window_rows import corner_sums, corner_sums_at, pattern_codes, pattern_codes_at
from whet.kernels.windows import Windows, count, normalise_row

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]
Flags = NDArray[np.uint8]
Answers = NDArray[np.uint8]  # (nodes, windows)


class FlatTrees(NamedTuple):
    """Trees of all stages, for integral images of one layout.

    A node answers 1 where it goes left. The answers of a tree's nodes, the root's in the lowest bit, are the place of
    its leaf in `leaf` (trees, 2^nodes): no walk, and no branch that a processor could guess wrong.
    """

    corners: Int32s  # (nodes, 16): from the window's own place in the integral image
    weights: Int32s  # (nodes, 12)
    threshold: Float32s  # (nodes,)
    subset: UInt64s  # (nodes, 4): 256 bits
    first_node: Int32s  # (trees + 1,)
    leaf: Floats
    first_tree: Int32s  # (stages + 1,)
    stage_threshold: Floats  # (stages,)
    categorical: bool


class Row(NamedTuple):
    """What is known of the windows of a row, or of windows anywhere: one entry each."""

    factors: Float32s
    partial: Floats
    total: Int32s
    codes: Flags
    answers: Answers


@kernel
def scan_trees(
    sums: UInt32s, squares: UInt32s, windows: Windows, trees: FlatTrees, places: UInt32s, scores: Floats
) -> int:
    """Write the places of accepted windows to `places`, in any order, and their sums in the last stage to `scores`.

    `sums` and `squares` are flat; `places` and `scores` have room for all windows. Returns how many were accepted.
    """
    n = windows.columns
    room = windows.rows * n
    kept_places, kept_factors = np.empty(room, np.uint32), np.empty(room, np.float32)
    kept_scores, kept_stage = np.empty(room), np.empty(room, np.int32)
    most = np.diff(trees.first_node).max()
    row, alive = _row(n, most), np.empty(n, np.uint8)
    kept = 0
    for y in range(windows.rows):
        start = y * windows.row_step
        if trees.categorical:
            alive[:] = 1
        elif normalise_row(sums, squares, start, windows, row.factors, alive) == 0:
            continue
        _stage_on_row(sums, start, trees, 0, row)
        left = _walk(row.partial, trees.stage_threshold[0], alive)
        s = 1
        while s < trees.stage_threshold.size and left * ROW_ADVANTAGE > n:
            _stage_on_row(sums, start, trees, s, row)
            left = _leave(row.partial, trees.stage_threshold[s], alive)
            s += 1
        if left:
            for k in range(n):
                if alive[k]:
                    kept_places[kept], kept_factors[kept] = start + k, row.factors[k]
                    kept_scores[kept], kept_stage[kept] = row.partial[k], s
                    kept += 1
    return _scan_kept(sums, trees, kept_places[:kept], kept_factors, kept_scores, kept_stage[:kept], places, scores)


@kernel
def _row(n: int, nodes: int) -> Row:
    values = np.empty(n, np.float32), np.empty(n), np.empty(n, np.int32)
    return Row(values[0], values[1], values[2], np.empty(n, np.uint8), np.empty((nodes, n), np.uint8))


@kernel
def _walk(partial: Floats, threshold: float, alive: Flags) -> int:
    """The first stage: mark windows that fail it, and the neighbours that OpenCV then steps over; how many are left."""
    k, left = 0, 0
    while k < alive.size:
        if alive[k] and partial[k] < threshold:
            alive[k] = 0
            if k + 1 < alive.size:
                alive[k + 1] = 0
            k += 2
        else:
            left += alive[k]
            k += 1
    return left


@kernel
def _leave(partial: Floats, threshold: float, alive: Flags) -> int:
    """Mark windows that fail a stage; returns how many do not."""
    for k in range(alive.size):
        alive[k] &= np.uint8(partial[k] >= threshold)
    return count(alive)


@kernel
def _stage_on_row(sums: UInt32s, start: int, trees: FlatTrees, s: int, row: Row) -> None:
    row.partial[:] = 0.0
    for t in range(trees.first_tree[s], trees.first_tree[s + 1]):
        first, last = trees.first_node[t], trees.first_node[t + 1]
        for node in range(first, last):
            if trees.categorical:
                pattern_codes(sums, start, trees.corners[node], row.codes)
                _answer_by_code(row.codes, trees.subset[node], row.answers[node - first][: row.codes.size])
            else:
                corner_sums(sums, start, trees.corners[node], trees.weights[node], row.total)
                if last - first == 1:
                    _add_by_value(row.total, row.factors, trees.threshold[node], trees.leaf[t], row.partial)
                    continue
                answers = row.answers[node - first][: row.total.size]
                _answer_by_value(row.total, row.factors, trees.threshold[node], answers)
        if trees.categorical or last - first > 1:
            _add_leaves(row.answers, trees.leaf[t], last - first, row.partial)


@kernel
def _stage_on_some(sums: UInt32s, places: UInt32s, trees: FlatTrees, s: int, row: Row) -> None:
    row.partial[:] = 0.0
    for t in range(trees.first_tree[s], trees.first_tree[s + 1]):
        first, last = trees.first_node[t], trees.first_node[t + 1]
        for node in range(first, last):
            if trees.categorical:
                pattern_codes_at(sums, trees.corners[node], places, row.codes)
                _answer_by_code(row.codes, trees.subset[node], row.answers[node - first][: row.codes.size])
            else:
                corner_sums_at(sums, trees.corners[node], trees.weights[node], places, row.total)
                if last - first == 1:
                    _add_by_value(row.total, row.factors, trees.threshold[node], trees.leaf[t], row.partial)
                    continue
                answers = row.answers[node - first][: row.total.size]
                _answer_by_value(row.total, row.factors, trees.threshold[node], answers)
        if trees.categorical or last - first > 1:
            _add_leaves(row.answers, trees.leaf[t], last - first, row.partial)


@kernel
def _add_by_value(total: Int32s, factors: Float32s, threshold: np.float32, leaf: Floats, partial: Floats) -> None:
    """A stump in one go, without its answer in between."""
    right, left = leaf[0], leaf[1]
    for k in range(total.size):
        partial[k] += left if np.float32(total[k]) * factors[k] < threshold else right


@kernel
def _answer_by_value(total: Int32s, factors: Float32s, threshold: np.float32, answers: Flags) -> None:
    for k in range(total.size):
        answers[k] = np.uint8(np.float32(total[k]) * factors[k] < threshold)


@kernel
def _answer_by_code(codes: Flags, subset: UInt64s, answers: Flags) -> None:
    for k in range(codes.size):
        word, place = subset[codes[k] >> np.uint8(6)], np.uint64(codes[k] & np.uint8(63))
        answers[k] = np.uint8((word >> place) & np.uint64(1))


@kernel
def _add_leaves(answers: Answers, leaf: Floats, nodes: int, partial: Floats) -> None:
    n = partial.size
    root = answers[0][:n]
    if nodes == 1:
        right, left = leaf[0], leaf[1]
        for k in range(n):
            partial[k] += left if root[k] else right
    elif nodes == 2:  # by choice, not by looking up: the compiler does four windows at once
        child = answers[1][:n]
        neither, first, second, both = leaf[0], leaf[1], leaf[2], leaf[3]
        for k in range(n):
            on_left, on_right = (both if child[k] else first), (second if child[k] else neither)
            partial[k] += on_left if root[k] else on_right
    else:
        for k in range(n):
            place = 0
            for j in range(nodes):
                place |= answers[j, k] << j
            partial[k] += leaf[place]


@kernel
def _scan_kept(
    sums: UInt32s,
    trees: FlatTrees,
    kept_places: UInt32s,
    kept_factors: Float32s,
    kept_scores: Floats,
    kept_stage: Int32s,
    places: UInt32s,
    scores: Floats,
) -> int:
    """Take windows on to the end, each from its own next stage; those that pass all come first in `places`."""
    order = np.argsort(kept_stage, kind="mergesort")
    n, row = order.size, _row(order.size, np.diff(trees.first_node).max())
    left = entered = 0
    for s in range(1, trees.stage_threshold.size):
        while entered < n and kept_stage[order[entered]] == s:
            i = order[entered]
            places[left], row.factors[left] = kept_places[i], kept_factors[i]
            left, entered = left + 1, entered + 1
        if left == 0:
            continue
        here = Row(row.factors[:left], row.partial[:left], row.total[:left], row.codes[:left], row.answers)
        _stage_on_some(sums, places[:left], trees, s, here)
        kept = 0
        for i in range(left):
            places[kept], row.factors[kept], row.partial[kept] = places[i], row.factors[i], row.partial[i]
            kept += 1 if row.partial[i] >= trees.stage_threshold[s] else 0
        left = kept
    scores[:left] = row.partial[:left]
    for i in order[entered:]:  # windows that passed all stages with their row
        places[left], scores[left] = kept_places[i], kept_scores[i]
        left += 1
    return left
