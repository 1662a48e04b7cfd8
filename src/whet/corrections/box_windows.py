"""Corrections: which windows of an image a box stands for.

A correction is an example to compare with, not a heavy sample: windows like those of a false positive are rejected, and
windows like that of a missed object accepted (`whet.corrections.effects`). The windows are chosen by geometry and
by the trained model. So the state of a detector does not depend on the order in which it was corrected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from whet.arrays import Bools, Boxes, Floats, Indices, Pixels
from whet.corrections.kept import Region
from whet.corrections.records import Record, checked_flags
from whet.errors import BoxError
from whet.images.boxes import BoxOffset, box_iou, checked_boxes
from whet.images.detections import Detections, report
from whet.images.pyramid import Pyramid, Span, WindowIndex
from whet.models.contract import Model
from whet.models.responses import Responses

# A detection is the one that a box stands for from this IoU on, as in every evaluation.
SAME = 0.5
# A false positive is rejected in all windows with this IoU or more with its box: when the best are gone, others would
# form a detection in the same place.
AROUND = 0.4
# The window of a missed object has at least this IoU with its box, and hardly less than the best window.
ALIGNED = 0.6
NEARLY_BEST = 0.1
# Boxes with this IoU or more mean the same place: those of both labels contradict each other.
SAME_PLACE = 0.9
# Detections with this IoU or more may be one object: a missed one beside them needs a score higher by STRONGER.
BESIDE = 0.2
STRONGER = 3.0
# Windows that some stage rejects by more, in units of margins, are far from being accepted.
NEAR = 0.25
MAX_WINDOWS = 32
MOST_ACCEPTED = 128
# The same for copies of a missed object: it is rejected itself.
OBJECT_NEAR = 0.5
# Copies of the best windows, as the next video frame may show them: moved, resized, in other light, with noise.
COPIED_WINDOWS = 4
COPIES = 10


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of a correction: their index, responses, and closeness (n,) to acceptance in the trained model."""

    index: WindowIndex
    responses: Responses
    closeness: Floats

    def __len__(self) -> int:
        return len(self.responses)

    def take(self, rows: Indices | Bools | slice) -> Windows:
        """Those at these indices, in this order."""
        return Windows(self.index.take(rows), self.responses.take(rows), self.closeness[rows])

    def __add__(self, other: Windows) -> Windows:
        """One set of windows after the other."""
        return Windows(
            WindowIndex.concatenate([self.index, other.index]),
            Responses.concatenate([self.responses, other.responses], self.responses.n_weak),
            np.concatenate([self.closeness, other.closeness]),
        )

    @classmethod
    def from_pyramid(cls, model: Model, pyramid: Pyramid, index: WindowIndex) -> Windows:
        """Those of the windows that have contrast."""
        responses, has_contrast = model.responses(pyramid, index)
        return cls(index, responses, model.votes.closeness(responses)).take(has_contrast)


def false_positive_record(
    model: Model,
    offset: BoxOffset,
    pyramid: Pyramid,
    image: str,
    box: Floats,
    objects: Boxes,
    region: Region | None = None,
) -> Record:
    """The correction of a false positive (4,): every window near its box that the model accepts, or nearly accepts.

    Windows of `objects` (n, 4) in the same image are left out. With a `region`, only its windows are known, and no
    copies are made.
    """
    index = _known(pyramid.overlapping(box, AROUND, offset), region, pyramid)
    is_object = (box_iou(offset.boxes(pyramid.boxes(index)), objects) >= SAME).any(axis=1)
    index = index.take(np.flatnonzero(~is_object))
    if not len(index):
        raise _no_window(pyramid, offset, box)
    near = Windows.from_pyramid(model, pyramid, _nearly_accepted(model, pyramid, index))
    if not len(near):  # the model is far from accepting any: keep the nearest, in case other corrections change that
        windows = Windows.from_pyramid(model, pyramid, index)
        best = windows.take(np.argsort(-windows.closeness, kind="stable")[:COPIED_WINDOWS])
    else:
        # Where windows are pixels apart, all that the model accepts: they look less alike.
        n_accepted = int((near.closeness > 0).sum()) if model.grid.cell > 1 else 0
        most = max(MAX_WINDOWS, min(n_accepted, MOST_ACCEPTED))
        best = near.take(np.argsort(-near.closeness, kind="stable")[:most])
    if region is None and len(near):
        best += look_alikes(model, pyramid, best.take(slice(COPIED_WINDOWS)).index, image)
    return Record("correction", image, _as_box(box), False, index=best.index, responses=best.responses)


def _nearly_accepted(model: Model, pyramid: Pyramid, index: WindowIndex) -> WindowIndex:
    """Those of some windows that no stage rejects by more than `NEAR`: a scan is faster than all responses."""
    spans = {}
    for scale in np.unique(index.scale).tolist():
        y, x = index.y[index.scale == scale], index.x[index.scale == scale]
        spans[scale] = Span(int(y.min()), int(y.max()) + 1, int(x.min()), int(x.max()) + 1)
    fired = model.scan(pyramid, model.votes.nearly(NEAR), spans=spans, threads=1).index
    wanted = set(index)
    return fired.take(np.array([window in wanted for window in fired], np.bool_))


def object_record(
    model: Model,
    offset: BoxOffset,
    pyramid: Pyramid,
    image: str,
    box: Floats,
    min_score: float,
    detections: Detections,
    region: Region | None = None,
) -> Record:
    """The correction of a missed object (4,): the window at its box that the model is nearest to accepting.

    An object that is among the `detections` of the model only has to stay found. One beside a detection that overlaps
    it has to be stronger than this: else the two would be taken for one object, at the place of the other. If the model
    has a coarse pass, windows that it is sure to look at come first.
    """
    index = _known(pyramid.overlapping(box, SAME, offset), region, pyramid)
    overlap = box_iou(box[None], offset.boxes(pyramid.boxes(index)))[0]
    if not (overlap >= ALIGNED).any():
        raise _no_window(pyramid, offset, box)
    windows = Windows.from_pyramid(model, pyramid, index)
    scores = model.votes.scores(windows.responses)
    aligned = box_iou(box[None], offset.boxes(pyramid.boxes(windows.index)))[0] >= max(
        ALIGNED, overlap.max() - NEARLY_BEST
    )
    if not aligned.any():
        raise BoxError(
            f"got a box of {_box_text(box)}; its windows have too little contrast, and are never looked at; nothing "
            "was changed"
        )
    is_sure = model.looks_at(windows.index)
    beside = box_iou(box[None], detections.boxes)[0]
    if (beside >= SAME).any() and scores.max() > 0:  # the best window keeps most of its score
        chosen = _best(scores, is_sure)
        # The share of its score that an object keeps which the model finds.
        min_score = 0.9 * float(scores[chosen])
    else:
        chosen = _best(np.where(aligned, windows.closeness, -np.inf), is_sure)
        min_score = max(min_score, STRONGER * float(detections.scores[beside >= BESIDE].max(initial=0.0)))
    best = windows.take(np.array([chosen]))
    if region is None:
        best += look_alikes(model, pyramid, best.index, image, near=OBJECT_NEAR)
    index, responses = best.index, best.responses
    return Record("correction", image, _as_box(box), True, min_score=float(min_score), index=index, responses=responses)


def _known(index: WindowIndex, region: Region | None, pyramid: Pyramid) -> WindowIndex:
    return index if region is None else index.take(region.covers(index, pyramid.window))


def seen_by(model: Model, offset: BoxOffset, record: Record, objects: Boxes, min_score: float) -> Record:
    """A correction as another model sees it, in the region that it keeps; without windows where it keeps too little.

    `objects` (n, 4) are all that are known in its image.
    """
    region, box = record.keeps.region, np.array(record.box)
    none = record.with_windows(WindowIndex(), Responses.empty(model.votes.n_weak), min_score)
    if region is None:
        return none
    pyramid = region.pyramid(model)
    try:
        if record.is_object:
            fired = model.scan(pyramid, spans=region.spans, threads=1)
            fired = fired.take(region.covers(fired.index, model.window))
            detections = report(fired, offset=offset, by_object=model.grid.by_object)
            seen = object_record(model, offset, pyramid, record.image, box, min_score, detections, region)
        else:
            seen = false_positive_record(model, offset, pyramid, record.image, box, objects, region)
    except BoxError:
        return none
    return record.with_windows(seen.index, seen.responses, seen.min_score)


def _best(values: Floats, is_preferred: Bools) -> int:
    """The highest of values (n,), of the preferred ones if any of these is above -inf."""
    preferred = np.where(is_preferred, values, -np.inf)
    return int(np.argmax(preferred if (preferred > -np.inf).any() else values))


def example_record(
    model: Model, pyramid: Pyramid, image: str, box: Floats, index: WindowIndex, is_object: bool, weight: int
) -> Record | None:
    """One window as an ordinary sample that counts `weight` times; None for a negative without contrast."""
    responses, has_contrast = model.responses(pyramid, index)
    if not (is_object or has_contrast[0]):
        return None
    return Record("example", image, _as_box(box), is_object, weight, index=index, responses=responses)


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


def look_alikes(model: Model, pyramid: Pyramid, index: WindowIndex, image: str, near: float = NEAR) -> Windows:
    """Copies of windows, moved, resized, in other light and with noise, that the model accepts or nearly accepts.

    The same image and windows always have the same copies. At most `MAX_WINDOWS` are kept, the nearest to acceptance. A
    copy has the index of the window that it is made of, which distinguishes it from windows of the image itself.
    """
    rng = np.random.default_rng(list(bytes.fromhex(image)))
    repeated = index.take(np.repeat(np.arange(len(index)), COPIES))
    copies = [_copies_in_context(pyramid, scale, y, x, model.grid.context, rng) for scale, y, x in index]
    windows = Windows.from_pyramid(model, *Pyramid.from_patches(np.concatenate(copies), pyramid.window))
    windows = replace(windows, index=repeated.take(windows.index.scale.astype(np.intp) - 1))
    windows = windows.take(windows.closeness > -near)
    return windows.take(np.argsort(-windows.closeness, kind="stable")[:MAX_WINDOWS])


def _copies_in_context(
    pyramid: Pyramid, scale: float, y: int, x: int, context: int, rng: np.random.Generator
) -> Pixels:
    """Copies (`COPIES`, height, width[, 3]) of one window with this many pixels around it."""
    level = pyramid.level(scale)
    if not context:
        return _copies(level.pixels, y, x, pyramid.window, rng)
    height, width = (side + 2 * context for side in pyramid.window)
    rim = pyramid.step + max(height, width) // 16
    pixels = level.patch(y - context - rim, x - context - rim, (height + 2 * rim, width + 2 * rim))
    return _copies(pixels, rim, rim, (height, width), rng, pyramid.step)


def _copies(pixels: Pixels, y: int, x: int, window: tuple[int, int], rng: np.random.Generator, step: int = 1) -> Pixels:
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


def is_inside(boxes: Boxes, shape: tuple[int, ...]) -> Bools:
    """Whether some area of each of the boxes (n, 4) is inside an image (height, width)."""
    height, width = shape
    inside = np.minimum(boxes[:, 2:], [width, height]) - np.maximum(boxes[:, :2], 0)
    return np.asarray((inside > 0).all(axis=1))


def checked_labels(boxes: ArrayLike | Detections, labels: ArrayLike, shape: tuple[int, ...]) -> tuple[Boxes, Bools]:
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
        # Beyond any image; products of such numbers are still far from the largest float.
        if not inside[i] or (abs(array[i]) > 1e9).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()}, outside the {width} x {height} image")
    return array, checked_flags(labels, len(array), "boxes")


def check_consistent(boxes: Boxes, is_object: Bools) -> None:
    """Raise `BoxError` if one of the boxes (n, 4) is marked both as the object and as not the object."""
    objects = boxes[is_object]
    contrary = np.argwhere(box_iou(objects, boxes[~is_object]) >= SAME_PLACE)
    if len(contrary):
        raise BoxError(
            f"the box {objects[contrary[0, 0]].round(1).tolist()} is marked as the object and as not the object; "
            "nothing was changed"
        )


def new_records(
    model: Model,
    offset: BoxOffset,
    pyramid: Pyramid,
    image: str,
    boxes: Boxes,
    is_object: Bools,
    min_score: float,
    threads: int | None = None,
    base_found: Detections | None = None,
    other_objects: Boxes | None = None,
    keeps_samples: bool = False,
) -> Iterable[Record]:
    """A correction for each box (n, 4) of an image with labels (n,).

    `base_found` are the detections of the base at any score, if they are known. No window of `other_objects` (n, 4)
    becomes that of a false positive. An object that no window fits is an error, or with `keeps_samples` a sample.
    """
    check_consistent(boxes, is_object)
    objects = boxes[is_object]
    protected = objects if other_objects is None else np.concatenate([objects, other_objects])
    if len(objects) and base_found is None:
        fired = model.scan(pyramid, threads=threads)
        base_found = report(fired, offset=offset, by_object=model.grid.by_object)
    detections = Detections() if base_found is None else base_found.with_min_score(min_score)
    for box, label in zip(boxes, is_object.tolist(), strict=True):
        if label:
            try:
                yield object_record(model, offset, pyramid, image, box, min_score, detections)
            except BoxError:
                if not keeps_samples:
                    raise
                yield Record("sample", image, _as_box(box), True)
        else:
            yield false_positive_record(model, offset, pyramid, image, box, protected)
