"""Write a cascade as an OpenCV XML file.

A stump becomes a tree of one node. A leaf becomes a tree with one node per condition, whose other leaves are zero.
Consecutive leaves whose paths start alike share a tree, so that the leaves of an imported tree become that tree again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.window_scan import OPENCV_MIN_SIGMA
from whet.arrays import Float32s, Floats, Indices
from whet.errors import CannotExportError
from whet.io.files import write_atomically
from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.haar import HaarKind, HaarPool
from whet.models.gslda.integral import FeatureFamily
from whet.models.gslda.pools import EXACT, FAMILIES, BlockPatternPool, RectanglePool, name_in
from whet.models.gslda.weak_learners import Leaves, Stumps, Subsets, conditions_of

LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class Tree:
    """Nodes, parents first: the condition that each of them asks, and its children, left and right.

    A child is the number of a node, or the value of a leaf, None as long as there is none. A window goes left where its
    code is in the subset, or its value is not above the threshold.
    """

    conditions: list[int]
    children: list[list[int | float | None]]

    @property
    def leaves(self) -> list[float]:
        """The values of the leaves, in the order of their nodes."""
        return [child or 0.0 for pair in self.children for child in pair if not isinstance(child, int)]

    @property
    def links(self) -> list[list[int]]:
        """Children as a file has them: a node's number, above 0, or a leaf's, which is made negative."""
        leaves = iter(range(len(self.children) + 1))
        return [[child if isinstance(child, int) else -next(leaves) for child in pair] for pair in self.children]

    @property
    def depth(self) -> int:
        """The most nodes that a window meets."""
        depth = [1] * len(self.children)
        for node, pair in enumerate(self.children):
            for child in pair:
                if isinstance(child, int):
                    depth[child] = depth[node] + 1
        return max(depth)


def _names(features: FeatureFamily, conditions: Stumps | Subsets) -> list[bytes]:
    """Name conditions by feature and threshold, or by feature and a subset or all but that subset.

    A tree can ask once for all conditions of a name.
    """
    columns: list[NDArray[np.generic]]
    match features:
        case RectanglePool() as pool:
            columns = [pool.boxes, pool.weights, pool.tilted]
        case BlockPatternPool() as pool:
            columns = [pool.x, pool.y, pool.block_width, pool.block_height]
        case _:  # never in leaves, which alone share a tree
            columns = [np.arange(len(conditions))]
    if isinstance(conditions, Subsets):
        columns.append(np.where(conditions.subset[:, :1] >> np.uint64(63), ~conditions.subset, conditions.subset))
    else:
        columns.append(conditions.threshold)
    return [b"".join(column[t].tobytes() for column in columns) for t in range(len(conditions))]


def _side(conditions: Stumps | Subsets, condition: int, node: int) -> int:
    """Return the side of a window that meets a condition, at a node with another condition of the same name."""
    if isinstance(conditions, Subsets):
        return LEFT if np.array_equal(conditions.subset[condition], conditions.subset[node]) else RIGHT
    return LEFT if conditions.polarity[condition] < 0 else RIGHT


def trees_of(stage: Stage, n: int) -> list[Tree]:
    """Trees that together add what the first `n` weak learners of a stage add; those of fewer learners begin them.

    >>> from whet.models.gslda.haar import HaarPool
    >>> from whet.models.gslda.weak_learners import Stumps
    >>> above = Stumps(np.arange(2), np.zeros(2, np.float32), np.int8([1, -1]), np.zeros(2))
    >>> stage = Stage(HaarPool.from_window((3, 3)).take(np.arange(2)), above, np.array([2.0, 3.0]), 1.0)
    >>> [(tree.links, tree.leaves) for tree in trees_of(stage, 2)]
    [([[0, -1]], [0.0, 2.0]), ([[0, -1]], [3.0, 0.0])]
    """
    features, conditions, first = conditions_of(stage.features, stage.weak)
    names, trees = _names(features, conditions), list[Tree]()
    for t, value in enumerate(stage.coef[:n].tolist()):
        way = range(first[t], first[t + 1])
        may_share = bool(trees) and isinstance(stage.weak, Leaves)
        if not (may_share and _hang(trees[-1], way, float(value), names, conditions)):
            trees.append(Tree([way[0]], [[None, None]]))
            _hang(trees[-1], way, float(value), names, conditions)
    return trees


def _hang(tree: Tree, way: Sequence[int], value: float, names: list[bytes], conditions: Stumps | Subsets) -> bool:
    """Give a tree one more leaf, unless the way there leaves the tree at a node, or ends at a leaf that it has."""
    node = done = side = 0
    for done, condition in enumerate(way, start=1):
        asked = tree.conditions[node]
        if names[condition] != names[asked]:
            return False
        side = _side(conditions, condition, asked)
        child = tree.children[node][side]
        if child is None:
            break
        if isinstance(child, float) or done == len(way):
            return False
        node = child
    for condition in way[done:]:
        tree.children[node][side] = len(tree.conditions)
        node, side = len(tree.conditions), _side(conditions, condition, condition)
        tree.conditions.append(condition)
        tree.children.append([None, None])
    tree.children[node][side] = value
    return True


EarlyExits = Literal["doubling", "all", "none"]

# OpenCV subtracts this from every threshold, in float32.
MARGIN = np.float32(1e-5)
TINY = 1e-290


class Piece(NamedTuple):
    """The first `n` learners of a stage and what their sum has to exceed: one stage of the file, of these trees."""

    stage: Stage
    n: int
    threshold: float
    trees: list[Tree]


@dataclass(frozen=True)
class Exported:
    """What was written, and how its decisions can differ from those of the cascade.

    Windows whose margins, as parts of their stages' largest sums, are above `closest` or not above zero have the
    same result. `differences` are sentences; a hard Haar cascade has none. Trees are counted among the `stumps`.
    """

    stages: int
    stumps: int
    closest: float
    differences: tuple[str, ...] = ()


def export_model(model: CascadeModel, path: Path, early_exits: EarlyExits, exact: bool) -> Exported:
    """Write a model of the family gslda as it is now."""
    return write_opencv(model.cascade, path, early_exits=early_exits, exact=exact)


def write_opencv(
    cascade: Cascade, path: Path | str, *, early_exits: EarlyExits = "doubling", exact: bool = False
) -> Exported:
    """Write a cascade for `cv2.CascadeClassifier` (OpenCV 3 and later) and for `whet.opencv`.

    A stage with early exits becomes several: OpenCV adds up every stage from zero, so the file repeats the first
    learners for each exit that is kept. "all" exits keep every decision, at the price of many repeated stumps;
    "doubling" keeps those after 1, 2, 4 and so on learners, which at most trebles the stumps and lets more
    windows through; "none" keeps the thresholds alone. An `exact` file has two stumps for every learner, the second for
    what float32 rounded off the first.

    >>> from tempfile import TemporaryDirectory
    >>> edge = Stumps(*(np.array([v]) for v in (0, np.float32(0.5), np.int8(1), 0.0)))
    >>> pool = HaarPool.from_window((8, 8), [HaarKind.X2])
    >>> with TemporaryDirectory() as folder:
    ...     write_opencv(Cascade((8, 8), (Stage(pool.take([0]), edge, np.array([2.0]), 1.0),)), f"{folder}/edge.xml")
    Exported(stages=1, stumps=1, closest=..., differences=())
    """
    family = _family(cascade)
    pieces = [piece for stage in cascade.stages for piece in _pieces(stage, early_exits)]
    differences = tuple(_differences(cascade, family, early_exits))
    write_atomically(Path(path), "\n".join(_lines(cascade, family, pieces, exact)).encode("ascii"))
    closest = max(_written(piece, exact)[2] for piece in pieces)
    stumps = sum(len(piece.trees) for piece in pieces) * (2 if exact else 1)
    return Exported(len(pieces), stumps, closest, differences)


def _family(cascade: Cascade) -> str:
    """Return HAAR or LBP; a file holds one of them."""
    conditions = [conditions_of(stage.features, stage.weak)[:2] for stage in cascade.stages]
    kinds = {(type(features), type(weak)) for features, weak in conditions}
    if kinds == {(BlockPatternPool, Subsets)}:
        return "LBP"
    if not kinds <= {(HaarPool, Stumps), (RectanglePool, Stumps)}:
        known = {HaarPool: "Haar", RectanglePool: "Haar", BlockPatternPool: "LBP"}
        names = sorted({known.get(kind) or name_in(FAMILIES, kind) or kind.__name__ for kind, _ in kinds})
        raise CannotExportError(
            f"got {' and '.join(names)} stages; an OpenCV file holds either Haar stumps or LBP stumps: train with "
            "--for-opencv"
        )
    if cascade.min_sigma != OPENCV_MIN_SIGMA:
        raise CannotExportError(
            f"got min_sigma={cascade.min_sigma}; expected {OPENCV_MIN_SIGMA}, OpenCV's value: train with --for-opencv"
        )
    if 2 * 255 * cascade.window[0] * cascade.window[1] >= EXACT:
        raise CannotExportError(f"got a window of {cascade.window}; sums of its pixels are not exact in float32")
    return "HAAR"


def _differences(cascade: Cascade, family: str, early_exits: EarlyExits) -> Iterator[str]:
    if family == "LBP":
        skipped = f"whet skips those with standard deviation below {cascade.min_sigma}"
        yield f"OpenCV evaluates LBP windows of any contrast; {skipped}"
    soft = sum(stage.rejection_thresholds is not None for stage in cascade.stages)
    if soft and early_exits != "all":
        kept = "none of them" if early_exits == "none" else "those after 1, 2, 4, ... learners"
        yield f"{soft} stages have early exits; the file keeps {kept}, so that it accepts more windows"


def _pieces(stage: Stage, early_exits: EarlyExits) -> list[Piece]:
    """A stage as stages without exits: prefixes up to each exit that is kept, then all of it."""
    n = np.arange(1, len(stage) + 1)
    kept = {"none": n < 0, "all": n > 0, "doubling": (n & (n - 1)) == 0}[early_exits]
    exits = np.full(len(stage), -np.inf) if stage.rejection_thresholds is None else stage.rejection_thresholds
    thresholds = np.where(kept, exits.astype(np.float64), -np.inf)
    thresholds[-1] = max(float(exits[-1]), stage.threshold)
    ends = np.flatnonzero(thresholds > -np.inf).tolist()
    return [Piece(stage, t + 1, float(thresholds[t]), trees_of(stage, t + 1)) for t in ends]


def _leaves(piece: Piece) -> tuple[Floats, Indices]:
    """What each leaf adds to the margin (leaves,), and each tree's first; the first tree brings the threshold."""
    first = np.cumsum([0, *(len(tree.leaves) for tree in piece.trees)])
    leaves = np.array([value for tree in piece.trees for value in tree.leaves])
    leaves[: first[1]] -= piece.threshold
    largest = abs(piece.stage.coef[: piece.n].astype(np.float64)).sum() + abs(piece.threshold)
    # A power of two changes no digit. Far below 1, OpenCV's margin of 1e-5 would be coarse.
    if not 1 <= largest <= 2**20:
        leaves *= 2.0 ** -np.round(np.log2(max(largest, TINY)))
    return leaves, first[:-1]


def _threshold(raised: float) -> np.float32:
    """The number to be written so that OpenCV accepts all sums above `raised` and no other.

    OpenCV takes a margin off in float32, and accepts a sum that equals the rest.
    """
    wanted = np.nextafter(np.float32(raised), np.float32(np.inf))
    if wanted <= raised:
        wanted = np.nextafter(wanted, np.float32(np.inf))
    written = np.float32(wanted + MARGIN)
    while np.float32(written - MARGIN) < wanted:
        written = np.nextafter(written, np.float32(np.inf))
    return written


def _written(piece: Piece, exact: bool) -> tuple[Float32s, np.float32, float]:
    """Leaves (1 or 2, leaves) and threshold of a stage, and the margin above which all is alike.

    The margin is a part of the largest sum.
    """
    leaves, first = _leaves(piece)
    written = leaves.astype(np.float32)[None]
    if exact:  # with what was rounded off
        written = np.concatenate([written, (leaves - written).astype(np.float32)])
    largest = np.maximum.reduceat(abs(leaves), first).sum()
    # How much rounding can raise and lower the sum of a window, at most: that of the leaves, and that of the sum.
    off = written.astype(np.float64).sum(axis=0) - leaves
    adding = float(len(written) * len(first) * 2.0**-52 * largest)
    raised, lowered = (float(np.maximum.reduceat(side, first).clip(0).sum()) + adding for side in (off, -off))
    threshold = _threshold(raised)
    return written, threshold, float((np.float32(threshold - MARGIN) + lowered) / max(largest, TINY))


def _lines(cascade: Cascade, family: str, pieces: list[Piece], exact: bool) -> Iterator[str]:
    height, width = cascade.window
    most = max(len(piece.trees) for piece in pieces) * (2 if exact else 1)
    depth = max(tree.depth for piece in pieces for tree in piece.trees)
    yield '<?xml version="1.0"?>\n<opencv_storage>\n<cascade type_id="opencv-cascade-classifier">'
    yield f"  <stageType>BOOST</stageType>\n  <featureType>{family}</featureType>"
    yield f"  <height>{height}</height>\n  <width>{width}</width>"
    yield f"  <stageParams>\n    <maxDepth>{depth}</maxDepth>\n    <maxWeakCount>{most}</maxWeakCount></stageParams>"
    yield f"  <featureParams>\n    <maxCatCount>{256 if family == 'LBP' else 0}</maxCatCount></featureParams>"
    yield f"  <stageNum>{len(pieces)}</stageNum>\n  <stages>"
    numbers, number = dict[int, dict[int, int]](), count()  # of the conditions in the trees of a stage
    for stage in cascade.stages:
        asked = sorted({condition for tree in trees_of(stage, len(stage)) for condition in tree.conditions})
        numbers[id(stage)] = {condition: next(number) for condition in asked}
    for piece in pieces:
        yield from _stage_lines(piece, numbers[id(piece.stage)], exact)
    yield "  </stages>\n  <features>"
    for stage in cascade.stages:
        yield from _feature_lines(stage, numbers[id(stage)])
    yield "  </features></cascade>\n</opencv_storage>\n"


def _stage_lines(piece: Piece, numbers: dict[int, int], exact: bool) -> Iterator[str]:
    leaves, threshold, _ = _written(piece, exact)
    yield f"    <_>\n      <maxWeakCount>{len(leaves) * len(piece.trees)}</maxWeakCount>"
    yield f"      <stageThreshold>{threshold:.9g}</stageThreshold>\n      <weakClassifiers>"
    for once in leaves:
        values = iter(once)
        for tree in piece.trees:
            links = zip(tree.links, tree.conditions, strict=True)
            nodes = [f"{left} {right} {numbers[t]} {_test(piece.stage, t)}" for (left, right), t in links]
            own = " ".join(f"{value:.9g}" for value in islice(values, len(nodes) + 1))
            joined = "\n            ".join(nodes)
            yield f"        <_>\n          <internalNodes>\n            {joined}</internalNodes>"
            yield f"          <leafValues>\n            {own}</leafValues></_>"
    yield "      </weakClassifiers></_>"


def _test(stage: Stage, condition: int) -> str:
    """What sends a window to the left: a code of the subset, or a value below the threshold."""
    weak = conditions_of(stage.features, stage.weak)[1]
    if isinstance(weak, Subsets):
        words = np.ascontiguousarray(weak.subset[condition].astype("<u8")).view("<i4")
        return " ".join(str(int(word)) for word in words)
    # "Above t" is "not below the next number after t".
    return f"{np.nextafter(weak.threshold[condition], np.float32(np.inf)):.9g}"


def _feature_lines(stage: Stage, asked: Iterable[int]) -> Iterator[str]:
    pool = conditions_of(stage.features, stage.weak)[0]
    for t in asked:
        if isinstance(pool, BlockPatternPool):
            yield "    <_>\n      <rect>\n        {} {} {} {}</rect></_>".format(*pool.describe(t))
            continue
        rectangles, tilted = list[tuple[int, ...]](), False
        if isinstance(pool, HaarPool):
            rectangles = list(opencv_rectangles(pool, t))
        elif isinstance(pool, RectanglePool):
            used, tilted = pool.weights[t] != 0, bool(pool.tilted[t])
            used[0] = True  # a feature without any rectangle cannot be read
            boxes, weights = pool.boxes[t][used], pool.weights[t][used]
            rectangles = [(*box, int(weight)) for box, weight in zip(boxes, weights, strict=True)]
        lines = "".join("\n        <_>\n          {} {} {} {} {}.</_>".format(*rectangle) for rectangle in rectangles)
        yield f"    <_>\n      <rects>{lines}</rects>\n      <tilted>{tilted:d}</tilted></_>"


def opencv_rectangles(pool: HaarPool, i: int) -> list[tuple[int, int, int, int, int]]:
    """Feature i as the at most three rectangles (x, y, width, height, weight) that OpenCV has room for.

    Three parts in a row are their box and its middle, 2 x 2 parts their box and the two that count up.

    >>> opencv_rectangles(HaarPool.from_window((3, 3), [HaarKind.X3]), 0)
    [(0, 0, 3, 1, -1), (1, 0, 1, 1, 3)]
    """
    whole, parts = (*pool.describe(i)[1:], -1), list(pool.parts(i))
    match HaarKind(pool.kind[i]):
        case HaarKind.X3 | HaarKind.Y3:
            return [whole, (*parts[1][:4], 3)]
        case HaarKind.X2_Y2:
            return [whole, *((*part[:4], 2) for part in parts if part[4] > 0)]
        case _:
            return [whole, (*parts[1][:4], 2)]
