"""Corrections: which windows of an image a box stands for.

A correction is an example to compare with, not a heavy sample: windows like those of a false positive are rejected, and
windows like that of a missed object accepted (`whet.cascade.neighbours`). The windows are chosen by geometry and by the
frozen base. So the state of a detector does not depend on the order in which it was corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.boxes import Boxes, BoxOffset, box_iou, checked_boxes
from whet.cascade.detect import report
from whet.cascade.detections import Detections
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.cascade.scan import is_on_grid, scan_pyramid
from whet.detector.base import DetectorBase
from whet.detector.records import Record
from whet.errors import BoxError
from whet.features.integral import IntegralStack

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]

# A detection is the one that a box stands for from this IoU on, as in every evaluation.
SAME = 0.5
# A false positive is rejected in all windows that overlap its box so much: when the best are gone, others would
# form a detection in the same place.
AROUND = 0.4
# The window of a missed object overlaps its box at least so much, and hardly less than the best window.
ALIGNED = 0.6
NEARLY_BEST = 0.1
# Boxes that overlap so much mean the same place: those of both labels contradict each other.
SAME_PLACE = 0.9
# Detections that overlap so much may be taken for one object: a missed one beside them has to be so much stronger.
BESIDE = 0.2
STRONGER = 3.0
# Windows that the base rejects by more, in units of |w|, in some stage are far from being accepted.
NEAR = 0.25
MAX_WINDOWS = 32
MOST_ACCEPTED = 128
# The same for copies of a missed object: it is rejected itself.
OBJECT_NEAR = 0.5
# Copies of the best windows, as the next video frame may show them: moved, resized, in other light, with noise.
COPIED_WINDOWS = 4
COPIES = 10
# Pixels around a window that its channels depend on: gradients are normalised by their surroundings.
CONTEXT = 8
# The share of its score that an object keeps which the base finds.
KEPT_SCORE = 0.9
# Beyond any image; products of such numbers are still far from the largest float.
FARTHEST_PIXEL = 1e9


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of a correction: their index, responses (n, n_weak), and margins (n, stages) in the base."""

    index: WindowIndex
    responses: Bits
    margins: Floats

    def __len__(self) -> int:
        return len(self.responses)

    def take(self, rows: NDArray[np.intp] | slice) -> Windows:
        """Those at these indices, in this order."""
        return Windows(self.index.take(rows), self.responses[rows], self.margins[rows])

    def closeness(self, base: DetectorBase) -> Floats:
        """The lowest margin (n,) over all stages, in units of |w|: above 0, all stages accept the window."""
        return np.asarray((self.margins / base.lengths).min(axis=1))

    @classmethod
    def concatenate(cls, parts: Sequence[Windows]) -> Windows:
        """One set of windows after the other."""
        responses, margins = (np.concatenate([getattr(p, name) for p in parts]) for name in ("responses", "margins"))
        return cls(WindowIndex.concatenate([part.index for part in parts]), responses, margins)

    @classmethod
    def from_pyramid(
        cls, base: DetectorBase, pyramid: Pyramid, index: WindowIndex, near: float | None = NEAR
    ) -> Windows:
        """Windows of a pyramid, and only those that no stage of the base rejects by more than `near`."""
        if not base.cascade.uses_channels:
            return cls.from_patches(base, index, pyramid.patches(index), near)
        return cls.from_responses(base, index, base.cascade.responses(pyramid, index), near)

    @classmethod
    def from_responses(cls, base: DetectorBase, index: WindowIndex, responses: Bits, near: float | None) -> Windows:
        """Windows with known responses, and only those that no stage of the base rejects by more than `near`."""
        margins = base.cascade.margins(responses)
        found = cls(index, responses, margins)
        return found if near is None else found.take(np.flatnonzero((margins > -near * base.lengths).all(axis=1)))

    @classmethod
    def from_patches(cls, base: DetectorBase, index: WindowIndex, patches: Bits, near: float | None = NEAR) -> Windows:
        """Windows with contrast, and only those that no stage of the base rejects by more than `near`."""
        stack = IntegralStack.from_patches(patches, base.min_sigma)
        rows, keep = np.arange(len(patches)), stack.has_contrast
        responses: list[Bits] = []
        margins: list[Floats] = []
        for stage, length in zip(base.cascade.stages, base.lengths, strict=True):
            stack, rows = stack.take(keep), rows[keep]
            responses, margins = [part[keep] for part in responses], [part[keep] for part in margins]
            seen = stage.respond(stack)
            margins.append(stage.weigh(seen)[-1] - stage.threshold)
            responses.append(seen.T.view(np.uint8))
            keep = np.ones(len(rows), np.bool_) if near is None else margins[-1] > -near * length
        rows = rows[keep]
        return cls(
            index.take(rows),
            np.ascontiguousarray(np.concatenate([part[keep] for part in responses], axis=1)),
            np.stack([part[keep] for part in margins], axis=1),
        )


def false_positive_record(
    base: DetectorBase, offset: BoxOffset, pyramid: Pyramid, image: str, box: Floats, objects: Boxes
) -> Record:
    """The correction of a false positive (4,): every window near its box that the base accepts, or nearly accepts.

    Windows of `objects` (n, 4) in the same image are left out.
    """
    index = pyramid.overlapping(box, AROUND, offset)
    is_object = (box_iou(offset.boxes(pyramid.boxes(index)), objects) >= SAME).any(axis=1)
    index = index.take(np.flatnonzero(~is_object))
    if not len(index):
        raise _no_window(pyramid, offset, box)
    found = Windows.from_pyramid(base, pyramid, index)
    if not len(found):  # the base is far from accepting any: keep the nearest, in case other corrections change that
        found = Windows.from_pyramid(base, pyramid, index, near=None)
        best = found.take(np.argsort(-found.closeness(base), kind="stable")[:COPIED_WINDOWS])
    else:
        closeness = found.closeness(base)
        best = found.take(np.argsort(-closeness, kind="stable")[: _most_windows(base, closeness)])
        alike = look_alikes(base, pyramid, best.take(slice(COPIED_WINDOWS)).index, image)
        best = Windows.concatenate([best, alike])
    return Record(
        "correction",
        image,
        _as_box(box),
        False,
        index=best.index,
        responses=np.packbits(best.responses, axis=1),
        base_id=base.base_id,
    )


def _most_windows(base: DetectorBase, closeness: Floats) -> int:
    """How many windows of a false positive are kept: of channels, all that the base accepts.

    They are four pixels apart, and look less alike than windows that are one pixel apart.
    """
    n_accepted = int((closeness > 0).sum()) if base.cascade.uses_channels else 0
    return max(MAX_WINDOWS, min(n_accepted, MOST_ACCEPTED))


def object_record(
    base: DetectorBase,
    offset: BoxOffset,
    pyramid: Pyramid,
    image: str,
    box: Floats,
    min_score: float,
    detections: Detections,
) -> Record:
    """The correction of a missed object (4,): the window at its box that the base is nearest to accepting.

    An object that is among the `detections` of the base only has to stay found. One beside a detection that overlaps it
    has to be stronger than this: else the two would be taken for one object, at the place of the other. If the
    base has a coarse pass, windows on its grid come first: it finds what the stages accept there, and others only next
    to them.
    """
    index = pyramid.overlapping(box, SAME, offset)
    overlap = box_iou(box[None], offset.boxes(pyramid.boxes(index)))[0]
    if not (overlap >= ALIGNED).any():
        raise _no_window(pyramid, offset, box)
    found = Windows.from_pyramid(base, pyramid, index, near=None)
    scores = base.cascade.scores_of_responses(found.responses)
    aligned = box_iou(box[None], offset.boxes(pyramid.boxes(found.index)))[0] >= max(
        ALIGNED, overlap.max() - NEARLY_BEST
    )
    if not aligned.any():
        raise BoxError(
            f"got a box of {_box_text(box)}; its windows have less contrast than a standard deviation of "
            f"{base.min_sigma:g}, and are never looked at; nothing was changed"
        )
    on_grid = is_on_grid(found.index) if base.coarse_room else np.ones(len(found.index), np.bool_)
    beside = box_iou(box[None], detections.boxes)[0]
    if (beside >= SAME).any() and scores.max() > 0:  # the best window keeps most of its score
        chosen = _best(scores, on_grid)
        min_score = KEPT_SCORE * float(scores[chosen])
    else:
        chosen = _best(np.where(aligned, found.closeness(base), -np.inf), on_grid)
        min_score = max(min_score, STRONGER * float(detections.scores[beside >= BESIDE].max(initial=0.0)))
    best = found.take(np.array([chosen]))
    alike = look_alikes(base, pyramid, best.index, image, near=OBJECT_NEAR)
    best = Windows.concatenate([best, alike])
    return Record(
        "correction",
        image,
        _as_box(box),
        True,
        min_score=float(min_score),
        index=best.index,
        responses=np.packbits(best.responses, axis=1),
        base_id=base.base_id,
    )


def _best(values: Floats, is_preferred: NDArray[np.bool_]) -> int:
    """The highest of values (n,), of the preferred ones if any of these is above -inf."""
    preferred = np.where(is_preferred, values, -np.inf)
    return int(np.argmax(preferred if (preferred > -np.inf).any() else values))


def example_record(
    base: DetectorBase, image: str, box: Floats, index: WindowIndex, patch: Bits, is_object: bool, weight: int
) -> Record | None:
    """One window as an ordinary sample that counts `weight` times; None for a negative without contrast."""
    responses, has_contrast = base.cascade.respond(patch)
    if not (is_object or has_contrast[0]):
        return None
    return Record(
        "example",
        image,
        _as_box(box),
        is_object,
        weight,
        index=index,
        responses=np.packbits(responses, axis=1),
        base_id=base.base_id,
    )


def _as_box(box: Floats) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = map(float, box)
    return x1, y1, x2, y2


def _no_window(pyramid: Pyramid, offset: BoxOffset, box: Floats) -> BoxError:
    rows, columns = pyramid.shape
    sizes = reported_sizes(pyramid, offset)
    near = ""
    if pyramid.levels:
        (ours,) = offset.boxes(pyramid.boxes(pyramid.nearest(offset.windows(box[None])[0])))
        near = f"; the nearest box that this detector can report is {_box_text(ours)}"
    return BoxError(
        f"got a box of {_box_text(box)} in an image of {columns} x {rows}{near}. Expected a box inside the image, "
        f"{sizes}; nothing was changed"
    )


def reported_sizes(pyramid: Pyramid, offset: BoxOffset) -> str:
    """The sizes of boxes that a detector can report in an image, in words."""
    height, width = (float(side * size) for side, size in zip(pyramid.window, offset.size, strict=True))
    scales = pyramid.scales or (1.0,)
    least, most = (f"{scale * width:.0f} x {scale * height:.0f}" for scale in (min(scales), max(scales)))
    span = f"from {least} to {most} pixels" if pyramid.levels else f"of {least} pixels or larger"
    return f"{span} and of that shape (min_size and max_size choose the sizes)"


def _box_text(box: Floats) -> str:
    x1, y1, x2, y2 = box.tolist()
    return f"{x2 - x1:.0f} x {y2 - y1:.0f} pixels at ({x1:.0f}, {y1:.0f})"


def look_alikes(base: DetectorBase, pyramid: Pyramid, index: WindowIndex, image: str, near: float = NEAR) -> Windows:
    """Copies of windows, moved, resized, in other light and with noise, that the base accepts or nearly accepts.

    The same image and windows always have the same copies. At most `MAX_WINDOWS` are kept, the nearest to acceptance. A
    copy has the index of the window that it is made of, which distinguishes it from windows of the image itself.
    """
    rng = np.random.default_rng(list(bytes.fromhex(image)))
    repeated = index.take(np.repeat(np.arange(len(index)), COPIES))
    if base.cascade.uses_channels:
        copies = [_copies_in_context(pyramid, scale, y, x, rng) for scale, y, x in index]
        responses = base.cascade.respond_in_context(np.concatenate(copies), CONTEXT)
        found = Windows.from_responses(base, repeated, responses, near)
    else:
        copies = [_copies(pyramid.level(scale).image, y, x, pyramid.window, rng) for scale, y, x in index]
        found = Windows.from_patches(base, repeated, np.concatenate(copies), near)
    return found.take(np.argsort(-found.closeness(base), kind="stable")[:MAX_WINDOWS])


def _copies_in_context(pyramid: Pyramid, scale: float, y: int, x: int, rng: np.random.Generator) -> Bits:
    """Copies (`COPIES`, height, width, 3) of one window with `CONTEXT` pixels around it."""
    height, width = (side + 2 * CONTEXT for side in pyramid.window)
    rim = pyramid.step + max(height, width) // 16
    pixels = pyramid.level(scale).patch(y - CONTEXT - rim, x - CONTEXT - rim, (height + 2 * rim, width + 2 * rim))
    return _copies(pixels, rim, rim, (height, width), rng, pyramid.step)


def _copies(pixels: Bits, y: int, x: int, window: tuple[int, int], rng: np.random.Generator, step: int = 1) -> Bits:
    """Copies (`COPIES`, height, width[, 3]) of one window of a level whose windows are `step` pixels apart."""
    (height, width), (rows, columns) = window, pixels.shape[:2]
    # Windows of all whole steps and of levels 1.2 apart are there already: half a step and half a level are left.
    zoom = 1 + rng.uniform(-0.09, 0.09, COPIES)
    shift = step * rng.uniform(-0.5, 0.5, (2, COPIES))
    ys = _sampled(y, height, zoom, shift[0], rows)
    xs = _sampled(x, width, zoom, shift[1], columns)
    top, left = np.minimum(ys.astype(np.intp), rows - 2), np.minimum(xs.astype(np.intp), columns - 2)
    colours = (1,) * (pixels.ndim - 2)
    down, across = (ys - top).reshape(COPIES, -1, 1, *colours), (xs - left).reshape(COPIES, 1, -1, *colours)
    top, left = top[:, :, None], left[:, None, :]
    upper = pixels[top, left] * (1 - across) + pixels[top, left + 1] * across
    lower = pixels[top + 1, left] * (1 - across) + pixels[top + 1, left + 1] * across
    patches = upper * (1 - down) + lower * down
    light = (COPIES, 1, 1, *colours)
    gain, lift, noise = (rng.uniform(low, high, light) for low, high in ((0.7, 1.3), (-20, 20), (0, 6)))
    changed = (patches - 128) * gain + 128 + lift + noise * rng.standard_normal(patches.shape)
    return np.asarray(changed.clip(0, 255).round(), np.uint8)


def _sampled(start: int, length: int, zoom: Floats, shift: Floats, side: int) -> Floats:
    """Places (copies, length) on a line of a level, around the middle of the window."""
    middle = (length - 1) / 2
    places = (np.arange(length) - middle)[None] * zoom[:, None] + (start + middle + shift)[:, None]
    return places.clip(0, side - 1)


def is_inside(boxes: Boxes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether some area of each of the boxes (n, 4) is inside an image (height, width)."""
    height, width = shape
    inside = np.minimum(boxes[:, 2:], [width, height]) - np.maximum(boxes[:, :2], 0)
    return np.asarray((inside > 0).all(axis=1))


def checked_labels(
    boxes: ArrayLike | Detections, labels: ArrayLike, shape: tuple[int, ...]
) -> tuple[Boxes, NDArray[np.bool_]]:
    """Boxes (n, 4) with some area in an image (height, width), and labels (n,); or a `BoxError` with the reason.

    Detections stand for their boxes; one box (4,) is one of one.
    """
    try:
        array = np.asarray(boxes.boxes if isinstance(boxes, Detections) else boxes, dtype=np.float64)
        array = checked_boxes(array[None] if array.shape == (4,) else array)
    except (TypeError, ValueError) as error:
        raise BoxError(str(error)) from error
    height, width = shape
    inside = is_inside(array, shape)
    for i in range(len(array)):
        if (array[i, 2:] <= array[i, :2]).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()} and has no area; expected x1 < x2 and y1 < y2")
        if not inside[i] or (abs(array[i]) > FARTHEST_PIXEL).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()}, outside the {width} x {height} image")
    flags: NDArray[Any] = np.asarray(labels)
    if flags.shape == ():
        flags = np.full(len(array), flags)
    if flags.shape != (len(array),):
        raise ValueError(f"got labels of shape {flags.shape} for {len(array)} boxes; expected one for each")
    if not np.isin(flags, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return array, flags.astype(np.bool_)


def check_consistent(boxes: Boxes, is_object: NDArray[np.bool_]) -> None:
    """Raise `BoxError` if one of the boxes (n, 4) is marked both as the object and as not the object."""
    objects = boxes[is_object]
    contrary = np.argwhere(box_iou(objects, boxes[~is_object]) >= SAME_PLACE)
    if len(contrary):
        raise BoxError(
            f"the box {objects[contrary[0, 0]].round(1).tolist()} is marked as the object and as not the object; "
            "nothing was changed"
        )


def new_records(
    base: DetectorBase,
    offset: BoxOffset,
    pyramid: Pyramid,
    image: str,
    boxes: Boxes,
    is_object: NDArray[np.bool_],
    min_score: float,
    threads: int | None = None,
    base_found: Detections | None = None,
    other_objects: Boxes | None = None,
) -> Iterable[Record]:
    """A correction for each box (n, 4) of an image with labels (n,).

    `base_found` are the detections of the base at any score, if they are known. No window of `other_objects` (n, 4)
    becomes that of a false positive.
    """
    check_consistent(boxes, is_object)
    objects = boxes[is_object]
    protected = objects if other_objects is None else np.concatenate([objects, other_objects])
    found = Detections()
    if len(objects) and base_found is None:
        fired = scan_pyramid(base.cascade, pyramid, threads=threads)
        base_found = report(fired, offset=offset, by_object=base.cascade.uses_channels)
    if len(objects) and base_found is not None:
        found = base_found.with_min_score(min_score)
    for box, label in zip(boxes, is_object.tolist(), strict=True):
        if label:
            yield object_record(base, offset, pyramid, image, box, min_score, found)
        else:
            yield false_positive_record(base, offset, pyramid, image, box, protected)
