"""Read OpenCV's cascade files, in the new format (Haar and LBP) and the old one (Haar).

Files are untrusted. The XML parser refuses entities and DTDs and has size limits; every index, size and count is
checked before compiled code uses it (scikit-image crashes the interpreter on a Haar file: scikit-image#5492). The
meaning of the fields follows
`CascadeClassifierImpl::Data::read` in modules/objdetect/src/cascadedetect.cpp and `haar_cvt::convert` in
cascadedetect_convert.cpp (opencv/opencv, 4.x).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from whet.arrays import Float32s, Int32s, Int64s
from whet.errors import CascadeFileError
from whet.io.files import MAX_BYTES, parse_bounded, read_bounded
from whet.models.gslda.pools import CODES, RECTANGLES, BlockPatternPool, RectanglePool
from whet.opencv.tree_cascade import OpenCVCascade, Trees

MAX_STAGES = 1_000
LONGEST_NAME = 64
MAX_TREES = 100_000
MAX_NODES = 200_000
# Trees of known cascades have a few nodes; a scan keeps one result of each node for each window at hand.
MAX_TREE_NODES = 1_000
# OpenCV subtracts this from every stage threshold, in float32.
MARGIN = np.float32(1e-5)
SUBSET_WORDS = CODES // 32
# Longer than any number in full precision.
MAX_NUMBER_LENGTH = 64
SIDE = "a window's side", 3  # at least
INTEGER = re.compile(r"[+-]?[0-9]{1,10}\Z", re.ASCII)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\Z", re.ASCII)


@dataclass
class _Parts:
    """Values of the file, in lists with one element per node, leaf, tree, stage or feature."""

    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    feature: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    subset: list[list[int]] = field(default_factory=list)
    leaves: list[float] = field(default_factory=list)
    first_node: list[int] = field(default_factory=lambda: [0])
    first_tree: list[int] = field(default_factory=lambda: [0])
    stage_threshold: list[float] = field(default_factory=list)
    boxes: list[list[list[int]]] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    tilted: list[bool] = field(default_factory=list)

    def end_tree(self, where: str) -> None:
        nodes = len(self.left) - self.first_node[-1]
        expected = len(self.left) + len(self.first_node)
        if not nodes or len(self.leaves) != expected:
            raise CascadeFileError(f"{where} has {nodes} nodes and {len(self.leaves) - expected + nodes + 1} leaves")
        if nodes > MAX_TREE_NODES:
            raise CascadeFileError(f"{where} has a tree of {nodes:,} nodes; expected at most {MAX_TREE_NODES:,}")
        self.first_node.append(len(self.left))
        if len(self.first_node) > MAX_TREES or len(self.left) > MAX_NODES:
            raise CascadeFileError(f"{where}: over {MAX_TREES:,} trees or {MAX_NODES:,} nodes")

    def end_stage(self, threshold: float, where: str) -> None:
        if len(self.first_node) - 1 == self.first_tree[-1]:
            raise CascadeFileError(f"{where} has no trees")
        self.first_tree.append(len(self.first_node) - 1)
        self.stage_threshold.append(threshold)


def read_opencv(path: Path | str) -> OpenCVCascade:
    """Read an OpenCV cascade file; `CascadeFileError` says what is wrong with one that is none.

    >>> from tempfile import TemporaryDirectory
    >>> from whet.opencv.xml_writer import write_opencv
    >>> from whet.models.gslda.haar import HaarKind, HaarPool
    >>> from whet.models.gslda.weak_learners import Stumps
    >>> from whet.models.gslda.cascade import Cascade
    >>> from whet.models.gslda.cascade import Stage
    >>> edge = Stumps(*(np.array([v]) for v in (0, np.float32(0.5), np.int8(1), 0.0)))
    >>> pool = HaarPool.from_window((8, 8), [HaarKind.X2])
    >>> stage = Stage(pool.take([0]), edge, np.array([2.0]), 1.0)
    >>> with TemporaryDirectory() as folder:
    ...     _ = write_opencv(Cascade((8, 8), (stage,)), f"{folder}/edge.xml")
    ...     cascade = read_opencv(f"{folder}/edge.xml")
    >>> cascade.window, cascade.family, len(cascade), len(cascade.trees)
    ((8, 8), 'HAAR', 1, 1)
    """
    path = Path(path)
    try:
        data = read_bounded(path, MAX_BYTES, CascadeFileError)
    except OSError as error:
        raise CascadeFileError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_opencv(data, str(path))


def parse_opencv(data: bytes, source: str = "the file") -> OpenCVCascade:
    """Read a cascade from the bytes of a file."""
    root = parse_bounded(data, source)
    if root.tag != "opencv_storage":
        raise CascadeFileError(
            f"{source} is no OpenCV file: its outermost element is <{root.tag[:LONGEST_NAME]}>; "
            "expected <opencv_storage>"
        )
    if not len(root):
        raise CascadeFileError(f"{source} has nothing in its <opencv_storage>; expected a cascade: write it again")
    node = root[0]
    is_old = node.find("stageType") is None and node.find("size") is not None
    try:
        return _old_cascade(node, source) if is_old else _new_cascade(node, source)
    except CascadeFileError:
        raise
    except (ValueError, OverflowError) as error:  # what the arrays themselves refuse
        raise CascadeFileError(f"{source}: {error}") from error


def _new_cascade(node: Element, source: str) -> OpenCVCascade:
    if node.find("stageType") is None:
        raise CascadeFileError(
            f"{source} is not a cascade: <{node.tag[:LONGEST_NAME]}> has no <stageType> (new format) and no <size> "
            "(old format); expected a file written by opencv_traincascade or shipped with OpenCV"
        )
    if (kind := _only_value(node, "stageType", source)) != "BOOST":
        raise CascadeFileError(f"{source} has stages of type {kind!r}; whet and OpenCV read BOOST")
    family = _only_value(node, "featureType", source)
    if family not in ("HAAR", "LBP"):
        raise CascadeFileError(f"{source} has features of type {family!r}; whet and OpenCV read HAAR and LBP")
    window = tuple(_pixels(_only_value(node, name, source), source, *SIDE) for name in ("height", "width"))
    codes = _integer(_only_value(_child(node, "featureParams", source), "maxCatCount", source), source)
    if codes != (expected := 0 if family == "HAAR" else CODES):
        raise CascadeFileError(f"{source} has maxCatCount={codes}; {family} features have {expected}")
    parts = _Parts()
    stages = _child(node, "stages", source)
    for i, stage in enumerate(_items(stages, MAX_STAGES, "stages", source)):
        where = f"{source}, stage {i}"
        for tree in _child(stage, "weakClassifiers", where):
            _new_tree(tree, family, parts, where)
        parts.end_stage(_number(_only_value(stage, "stageThreshold", where), where), where)
    features = list(_items(_child(node, "features", source), MAX_NODES, "features", source))
    if family == "HAAR":
        for i, feature in enumerate(features):
            _rectangles(feature, parts, f"{source}, feature {i}")
        return _assembled(parts, _rectangle_pool(parts, (window[0], window[1])))
    blocks = [_block(feature, (window[0], window[1]), f"{source}, feature {i}") for i, feature in enumerate(features)]
    columns = np.array(blocks, dtype=np.int16).reshape(-1, 4).T
    return _assembled(parts, BlockPatternPool((window[0], window[1]), *columns))


def _new_tree(tree: Element, family: str, parts: _Parts, where: str) -> None:
    words = _values(_child(tree, "internalNodes", where))
    step = 3 + (1 if family == "HAAR" else SUBSET_WORDS)
    if not words or len(words) % step:
        raise CascadeFileError(f"{where}: <internalNodes> holds {len(words)} values; a {family} node takes {step}")
    for start in range(0, len(words), step):
        left, right, feature, *test = words[start : start + step]
        parts.left.append(_integer(left, where))
        parts.right.append(_integer(right, where))
        parts.feature.append(_integer(feature, where))
        parts.threshold.append(_number(test[0], where) if family == "HAAR" else 0.0)
        parts.subset.append([] if family == "HAAR" else [_integer(word, where) for word in test])
    parts.leaves.extend(_number(word, where) for word in _values(_child(tree, "leafValues", where)))
    parts.end_tree(where)


def _old_cascade(node: Element, source: str) -> OpenCVCascade:
    size = _values(_child(node, "size", source))
    if len(size) != 2:
        raise CascadeFileError(f"{source}: <size> holds {len(size)} values; expected width and height")
    width, height = (_pixels(word, source, *SIDE) for word in size)
    parts = _Parts()
    for i, stage in enumerate(_items(_child(node, "stages", source), MAX_STAGES, "stages", source)):
        where = f"{source}, stage {i}"
        for tree in _child(stage, "trees", where):
            for old in tree:
                _old_node(old, parts, where)
            parts.end_tree(where)
        parts.end_stage(_number(_only_value(stage, "stage_threshold", where), where), where)
    return _assembled(parts, _rectangle_pool(parts, (height, width)))


def _old_node(node: Element, parts: _Parts, where: str) -> None:
    """A node with its own feature; its leaves are numbered as they come."""
    parts.feature.append(len(parts.tilted))
    _rectangles(_child(node, "feature", where), parts, where)
    parts.threshold.append(_number(_only_value(node, "threshold", where), where))
    parts.subset.append([])
    leaves_before = parts.first_node[-1] + len(parts.first_node) - 1
    for side, children in (("left", parts.left), ("right", parts.right)):
        if node.find(f"{side}_val") is not None:
            children.append(leaves_before - len(parts.leaves))
            parts.leaves.append(_number(_only_value(node, f"{side}_val", where), where))
        else:
            child = _integer(_only_value(node, f"{side}_node", where), where)
            if child < 1:
                raise CascadeFileError(f"{where}: <{side}_node> is {child}; a node other than the root is 1 or more")
            children.append(child)


def _rectangles(feature: Element, parts: _Parts, where: str) -> None:
    rectangles = list(_items(_child(feature, "rects", where), RECTANGLES, "rectangles of a feature", where))
    boxes, weights = [[0, 0, 0, 0] for _ in range(RECTANGLES)], [0.0] * RECTANGLES
    for k, rectangle in enumerate(rectangles):
        words = _values(rectangle)
        if len(words) != 5:
            raise CascadeFileError(
                f"{where}: a rectangle holds {len(words)} values; expected x, y, width, height, weight"
            )
        boxes[k] = [_pixels(word, where) for word in words[:4]]
        weights[k] = _number(words[4], where)
    tilted = feature.find("tilted")
    parts.boxes.append(boxes)
    parts.weights.append(weights)
    parts.tilted.append(tilted is not None and _integer(" ".join(_values(tilted)), where) != 0)


def _block(feature: Element, window: tuple[int, int], where: str) -> list[int]:
    words = _values(_child(feature, "rect", where))
    if len(words) != 4:
        raise CascadeFileError(f"{where}: <rect> holds {len(words)} values; expected x, y, width and height of a block")
    x, y, width, height = (_pixels(word, where) for word in words)
    if min(width, height) < 1 or min(x, y) < 0 or x + 3 * width > window[1] or y + 3 * height > window[0]:
        raise CascadeFileError(f"{where}: blocks {x} {y} {width} {height} do not fit {window[1]} x {window[0]}")
    return [x, y, width, height]


def _rectangle_pool(parts: _Parts, window: tuple[int, int]) -> RectanglePool:
    boxes = np.array(parts.boxes, dtype=np.int32).reshape(-1, RECTANGLES, 4)
    weights = _float32(parts.weights).reshape(-1, RECTANGLES)
    return RectanglePool(window, boxes, weights, np.array(parts.tilted, dtype=np.bool_))


def _assembled(parts: _Parts, features: RectanglePool | BlockPatternPool) -> OpenCVCascade:
    nodes = len(parts.left)
    words = [row or [0] * SUBSET_WORDS for row in parts.subset]
    subset = np.array(words, dtype=np.int64).reshape(nodes, SUBSET_WORDS)
    left, right = (np.array(column, dtype=np.int64) for column in (parts.left, parts.right))
    if nodes == len(parts.first_node) - 1:  # among stumps alone OpenCV does not read the children
        left, right = np.zeros(nodes, dtype=np.int64), np.full(nodes, -1)
    trees = Trees(
        np.array(parts.first_node, dtype=np.int32),
        _int32(left),
        _int32(right),
        _int32(np.array(parts.feature)),
        _float32(parts.threshold),
        np.ascontiguousarray((subset & 0xFFFFFFFF).astype("<u4")).view("<u8").astype(np.uint64),
        _float32(parts.leaves),
    )
    first_tree = np.array(parts.first_tree, dtype=np.int32)
    return OpenCVCascade(features, trees, first_tree, _float32(parts.stage_threshold) - MARGIN)


def _int32(values: Int64s) -> Int32s:
    """Indices; those beyond 32 bits stay out of range, and are refused as such."""
    return np.clip(values, -(2**31), 2**31 - 1).astype(np.int32)


def _float32(values: list[float] | list[list[float]]) -> Float32s:
    with np.errstate(over="ignore"):  # becomes infinite, and is refused as such
        return np.array(values, dtype=np.float64).astype(np.float32)


def _items(element: Element, most: int, name: str, where: str) -> Element:
    if not 1 <= len(element) <= most:
        raise CascadeFileError(f"{where} has {len(element):,} {name}; expected 1 to {most:,}")
    return element


def _pixels(word: str, where: str, what: str = "a rectangle's side or place", least: int = -10_000) -> int:
    if not least <= (value := _integer(word, where)) <= 10_000:
        raise CascadeFileError(f"{where}: {what} is {value} pixels; expected {least:,} to 10,000")
    return value


def _child(element: Element, name: str, where: str) -> Element:
    """Return the first child with this tag."""
    child = element.find(name)
    if child is None:
        raise CascadeFileError(f"{where} has no <{name}>")
    return child


def _integer(text: str, where: str) -> int:
    """Parse an integer of up to ten digits."""
    if not INTEGER.match(text):
        raise CascadeFileError(f"{where}: expected an integer, got {text[:MAX_NUMBER_LENGTH]!r}")
    return int(text)


def _number(text: str, where: str) -> float:
    """Parse a decimal number."""
    if len(text) > MAX_NUMBER_LENGTH or not NUMBER.match(text):
        raise CascadeFileError(f"{where}: expected a number, got {text[:MAX_NUMBER_LENGTH]!r}")
    return float(text)


def _values(element: Element) -> list[str]:
    """Split the text of an element at white space."""
    return (element.text or "").split()


def _only_value(element: Element, name: str, where: str) -> str:
    """Return the only value of the child with this tag."""
    words = _values(_child(element, name, where))
    if len(words) != 1:
        raise CascadeFileError(f"{where}: <{name}> holds {len(words)} values; expected one")
    return words[0]
