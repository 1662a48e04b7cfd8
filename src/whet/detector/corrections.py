"""Corrections: which windows of an image a box stands for, and the weights that put all corrections right.

A correction is a constraint, not a heavy sample: a false positive has to be rejected, a missed object accepted. The
windows are chosen by geometry and by the frozen base, and the weights are derived from the base and the set of all
corrections. So the state of a detector does not depend on the order in which it was corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.boxes import Boxes, BoxOffset, box_iou, checked_boxes
from whet.cascade.cascade import Cascade, ClassPair, Stage
from whet.cascade.detect import group_score
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.detector.base import Delta, DetectorBase
from whet.detector.records import Record
from whet.detector.reference import Reference
from whet.errors import BoxError
from whet.features.integral import IntegralStack
from whet.lda.constraints import Constraints, nearest_weights

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
# Margins of corrected windows, in units of |w|. Wider margins reach further: 20 corrections left 149, 111 and 80 of 246
# false positives in other images at margins of 0.2 with 40 and 160 look-alikes, and of 0.5; recall fell by 0, 0.25 and
# 0.25 points.
MARGIN = 0.2
# Windows that the base rejects by more, in units of |w|, in some stage are far from being accepted.
NEAR = 0.25
MAX_WINDOWS = 32
# Copies of the best windows, as the next video frame may show them: moved, resized, in other light, with noise.
COPIED_WINDOWS = 4
COPIES = 10
# Guards keep their margins, or so much of it, in units of |w|; objects also keep all but so much of it.
GUARD = 0.05
KEPT_MARGIN = 0.1
# The score that a missed object gets, as a multiple of the minimum score.
SCORE_ROOM = 1.05
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

    Windows of `objects` (n, 4) in the same image are left out. Each window is assigned to the stage in which it costs
    least to reject it.
    """
    index = pyramid.overlapping(box, AROUND, offset)
    index = index.take(~(box_iou(offset.boxes(pyramid.boxes(index)), objects) >= SAME).any(axis=1))
    if not len(index):
        raise _no_window(pyramid, offset, box)
    found = Windows.from_patches(base, index, pyramid.patches(index))
    if not len(found):  # the base is far from accepting any: keep the nearest, in case other corrections change that
        found = Windows.from_patches(base, index, pyramid.patches(index), near=None)
        best = found.take(np.argsort(-found.closeness(base), kind="stable")[:COPIED_WINDOWS])
    else:
        best = found.take(np.argsort(-found.closeness(base), kind="stable")[:MAX_WINDOWS])
        alike = look_alikes(base, pyramid, best.take(slice(COPIED_WINDOWS)).index, image)
        best = Windows(
            WindowIndex.concatenate([best.index, alike.index]),
            np.concatenate([best.responses, alike.responses]),
            np.concatenate([best.margins, alike.margins]),
        )
    return Record(
        "correction",
        image,
        _as_box(box),
        False,
        index=best.index,
        stage=cheapest_stages(base, best),
        responses=np.packbits(best.responses, axis=1),
        base_id=base.base_id,
    )


def object_record(
    base: DetectorBase, offset: BoxOffset, pyramid: Pyramid, image: str, box: Floats, min_score: float
) -> Record:
    """The correction of a missed object (4,): the window at its box that costs least to accept, in all stages."""
    index = pyramid.overlapping(box, SAME, offset)
    overlap = box_iou(box[None], offset.boxes(pyramid.boxes(index)))[0]
    if not (overlap >= ALIGNED).any():
        raise _no_window(pyramid, offset, box)
    found = Windows.from_patches(base, index, pyramid.patches(index), near=None)
    scores = base.cascade.scores_of_responses(found.responses)
    aligned = box_iou(box[None], offset.boxes(pyramid.boxes(found.index)))[0] >= max(
        ALIGNED, overlap.max() - NEARLY_BEST
    )
    if not aligned.any():
        raise BoxError(
            f"got the box {box.round(1).tolist()}; its windows have less contrast than a standard deviation of "
            f"{base.min_sigma:g}, and are never looked at; nothing was changed"
        )
    if group_score(scores[scores > 0]) > min_score:  # the base finds it: the best window keeps most of its score
        chosen = int(np.argmax(scores))
        min_score = KEPT_SCORE * float(scores[chosen])
    else:
        targets = object_targets(base, found.responses, found.margins, min_score)
        missing = np.maximum(targets - found.margins, 0.0) ** 2 / _leverages(base, found.responses)
        chosen = int(np.argmin(np.where(aligned, missing.sum(axis=1), np.inf)))
    best = found.take(np.array([chosen]))
    return Record(
        "correction",
        image,
        _as_box(box),
        True,
        min_score=float(min_score),
        index=best.index,
        stage=np.full(1, -1, np.int16),
        responses=np.packbits(best.responses, axis=1),
        base_id=base.base_id,
    )


def example_record(
    base: DetectorBase, image: str, box: Floats, index: WindowIndex, patch: Bits, is_object: bool, weight: int
) -> Record | None:
    """One window as an ordinary sample that counts `weight` times; None for a negative without contrast."""
    responses, has_contrast = base.respond(patch)
    if not (is_object or has_contrast[0]):
        return None
    return Record(
        "example",
        image,
        _as_box(box),
        is_object,
        weight,
        index=index,
        stage=np.full(1, -1, np.int16),
        responses=np.packbits(responses, axis=1),
        base_id=base.base_id,
    )


def _as_box(box: Floats) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = map(float, box)
    return x1, y1, x2, y2


def _no_window(pyramid: Pyramid, offset: BoxOffset, box: Floats) -> BoxError:
    height, width = (float(side * size) for side, size in zip(pyramid.window, offset.size, strict=True))
    rows, columns = pyramid.shape
    near = ""
    if pyramid.levels:
        (ours,) = offset.boxes(pyramid.boxes(pyramid.nearest(offset.windows(box[None])[0])))
        near = f"; the nearest box that this detector can report is {ours.round(1).tolist()}"
    return BoxError(
        f"got the box {box.round(1).tolist()} in an image of {columns} x {rows}{near}. Expected a box of about "
        f"{width:g} x {height:g} pixels or larger, of that shape, inside the image; nothing was changed"
    )


def look_alikes(base: DetectorBase, pyramid: Pyramid, index: WindowIndex, image: str) -> Windows:
    """Copies of windows, moved, resized, in other light and with noise, that the base accepts or nearly accepts.

    The same image and windows always have the same copies. At most `MAX_WINDOWS` are kept, the nearest to acceptance.
    """
    rng = np.random.default_rng(list(bytes.fromhex(image)))
    copies = [_copies(pyramid.level(scale).image, y, x, pyramid.window, rng) for scale, y, x in index]
    repeated = index.take(np.repeat(np.arange(len(index)), COPIES))
    found = Windows.from_patches(base, repeated, np.concatenate(copies))
    return found.take(np.argsort(-found.closeness(base), kind="stable")[:MAX_WINDOWS])


def _copies(level: Bits, y: int, x: int, window: tuple[int, int], rng: np.random.Generator) -> Bits:
    """Copies (`COPIES`, height, width) of one window of a level."""
    (height, width), (rows, columns) = window, level.shape
    # Windows of all whole pixels and of levels 1.2 apart are there already: half a pixel and half a level are left.
    zoom = 1 + rng.uniform(-0.09, 0.09, COPIES)
    shift = rng.uniform(-0.5, 0.5, (2, COPIES))
    ys = _sampled(y, height, zoom, shift[0], rows)
    xs = _sampled(x, width, zoom, shift[1], columns)
    top, left = np.minimum(ys.astype(np.intp), rows - 2), np.minimum(xs.astype(np.intp), columns - 2)
    down, across = (ys - top)[:, :, None], (xs - left)[:, None, :]
    pixels = level.astype(np.float64)
    top, left = top[:, :, None], left[:, None, :]
    upper = pixels[top, left] * (1 - across) + pixels[top, left + 1] * across
    lower = pixels[top + 1, left] * (1 - across) + pixels[top + 1, left + 1] * across
    patches = upper * (1 - down) + lower * down
    gain, lift, noise = (rng.uniform(low, high, (COPIES, 1, 1)) for low, high in ((0.7, 1.3), (-20, 20), (0, 6)))
    changed = (patches - 128) * gain + 128 + lift + noise * rng.standard_normal(patches.shape)
    return changed.clip(0, 255).round().astype(np.uint8)


def _sampled(start: int, length: int, zoom: Floats, shift: Floats, side: int) -> Floats:
    """Places (copies, length) on a line of a level, around the middle of the window."""
    middle = (length - 1) / 2
    places = (np.arange(length) - middle)[None] * zoom[:, None] + (start + middle + shift)[:, None]
    return places.clip(0, side - 1)


def _leverages(base: DetectorBase, responses: Bits) -> Floats:
    """Leverages (n, stages) of responses; next to nothing in stages without statistics: they cannot be corrected."""
    columns = zip(base.metrics, base.cascade.columns, strict=True)
    parts = [np.full(len(responses), 1e-12) if m is None else m.leverage(responses[:, c]) for m, c in columns]
    return np.stack(parts, axis=1)


def cheapest_stages(base: DetectorBase, windows: Windows) -> NDArray[np.int16]:
    """The stage (n,) in which it costs least to reject each window, by the margins of the base."""
    missing = np.maximum(windows.margins + MARGIN * base.lengths, 0.0)
    return np.argmin(missing**2 / _leverages(base, windows.responses), axis=1).astype(np.int16)


def object_targets(base: DetectorBase, responses: Bits, margins: Floats, min_score: float) -> Floats:
    """The margins (n, stages) that an object needs: a little in each stage, and in the scoring ones the minimum score.

    What is missing of the score is shared by leverage: that changes the weights least. A window that the base finds
    only has to keep its margins, or what it needs of them.
    """
    targets = np.tile(MARGIN * base.lengths, (len(margins), 1))
    scoring = np.arange(len(base.stages)) >= base.cascade.first_scoring
    reached = np.maximum(margins, targets)
    missing = np.maximum(SCORE_ROOM * min_score - reached[:, scoring].sum(axis=1), 0.0)[:, None]
    share = np.where(scoring, _leverages(base, responses), 0.0)
    raised = reached + missing * share / share.sum(axis=1, keepdims=True)
    needed = np.where(scoring & (missing > 0), raised, targets)
    scores = base.cascade.scores_of_responses(responses)
    return np.where((scores > min_score)[:, None], np.minimum(needed, margins), needed)


@dataclass(frozen=True, eq=False)
class Derived:
    """The cascade that satisfies all corrections, and the ids of those that it does not satisfy."""

    cascade: Cascade
    unsatisfied: tuple[str, ...] = ()


def derive(base: DetectorBase, learned: Delta, corrections: Mapping[str, Record]) -> Derived:
    """The cascade of a base, counts and corrections; a function of these alone, to the last bit."""
    stages = weighted_stages(base, learned)
    cascade = Cascade(base.window, tuple(stages), base.min_sigma)
    records = [record for record in corrections.values() if record.kind == "correction" and len(record)]
    if not records:
        return Derived(cascade)
    bits = [record.unpacked(cascade.n_weak) for record in records]
    wanted = _Wanted.from_records(base, records, bits)
    for number, columns in enumerate(cascade.columns):
        stages[number] = wanted.corrected(number, stages[number], columns, base, learned.stages[number])
    cascade = replace(cascade, stages=tuple(stages))
    return Derived(cascade, _unsatisfied(cascade, records, bits))


def weighted_stages(base: DetectorBase, learned: Delta) -> list[Stage]:
    """The stages with the weights of base and counts together; where nothing was counted, the base's own."""
    parts = zip(base.stages, base.cascade.stages, learned.stages, strict=True)
    return [stage.run(pair) if any(side.n for side in pair) else own for stage, own, pair in parts]


def _unsatisfied(cascade: Cascade, records: list[Record], bits: list[Bits]) -> tuple[str, ...]:
    """Corrections that do not hold for the windows of the image itself; look-alikes are not counted."""
    bits = [part[_is_first(record.index)] for record, part in zip(records, bits, strict=True)]
    scores = cascade.scores_of_responses(np.concatenate(bits))
    parts = np.split(scores, np.cumsum([len(part) for part in bits])[:-1])
    return tuple(
        record.id
        for record, part in zip(records, parts, strict=True)
        if (not (part > record.min_score).all() if record.is_object else (part > 0).any())
    )


def _is_first(index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) are not copies of an earlier one."""
    first = np.zeros(len(index), np.bool_)
    first[np.unique(np.stack([index.scale, index.y, index.x]), axis=1, return_index=True)[1]] = True
    return first


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What all corrections together want of each stage, in the order of their ids."""

    rejected: Bits
    stage: NDArray[np.int16]
    accepted: Bits
    targets: Floats

    @classmethod
    def from_records(cls, base: DetectorBase, records: list[Record], bits: list[Bits]) -> _Wanted:
        n_weak, none = base.cascade.n_weak, np.empty((0, base.cascade.n_weak), np.uint8)
        false_positives = [i for i, record in enumerate(records) if not record.is_object]
        objects = [i for i, record in enumerate(records) if record.is_object]
        accepted = np.concatenate([none, *(bits[i] for i in objects)])
        parts = [object_targets(base, bits[i], base_margins(base, bits[i]), records[i].min_score) for i in objects]
        targets = np.concatenate([np.empty((0, len(base.stages))), *parts])
        stage = [np.empty(0, np.int16), *(records[i].stage for i in false_positives)]
        rejected = np.concatenate([none, *(bits[i] for i in false_positives)]).reshape(-1, n_weak)
        return cls(rejected, np.concatenate(stage), accepted, targets)

    def corrected(self, number: int, run: Stage, columns: slice, base: DetectorBase, learned: ClassPair) -> Stage:
        """One stage with the weights that satisfy its constraints."""
        metric, length = base.metrics[number], float(base.lengths[number])
        rejected, accepted = self.rejected[self.stage == number][:, columns], self.accepted[:, columns]
        if metric is None or not (len(rejected) or len(accepted)):
            return run
        guards = _guards(base, number, run, columns)
        wanted = Constraints(
            np.concatenate([rejected, accepted, guards.responses]),
            np.concatenate([np.full(len(rejected), -1.0), np.ones(len(accepted)), guards.side]),
            np.concatenate([np.full(len(rejected), MARGIN * length), self.targets[:, number], guards.margin]),
            n_guards=len(guards),
        )
        coef, threshold = nearest_weights(run.coef, run.threshold, metric, wanted)
        if threshold == run.threshold and np.array_equal(coef, run.coef):
            return _letting_pass(run, accepted)
        return _letting_pass(base.stages[number].corrected(coef, threshold, learned), accepted)


def base_margins(base: DetectorBase, bits: Bits) -> Floats:
    """Margins (n, stages) of responses in the base."""
    parts = zip(base.cascade.stages, base.cascade.columns, strict=True)
    return np.stack([run.margins(bits[:, columns]) for run, columns in parts], axis=1)


def _letting_pass(stage: Stage, accepted: Bits) -> Stage:
    """The stage with rejection thresholds below the partial sums of windows that have to be accepted."""
    if stage.rejection_thresholds is None or not len(accepted):
        return stage
    sums = stage.weigh(accepted.T.astype(np.bool_)).min(axis=1)
    lowered = np.minimum(stage.rejection_thresholds, np.nextafter(sums, -np.inf))
    return replace(stage, rejection_thresholds=lowered)


def _guards(base: DetectorBase, number: int, run: Stage, columns: slice) -> Constraints:
    """Constraints on the guarding half of the reference set; all are satisfied before any correction.

    Positives stay accepted, with most of their margins. A negative that the base rejects stays rejected in the stage that is surest of it; one
    that it accepts gets no higher margin in the scoring stages.
    """
    if base.reference is None:
        return Constraints(np.empty((0, len(run)), np.uint8), np.empty(0), np.empty(0))
    length = float(base.lengths[number])
    slack = GUARD * length
    positives, negatives = base.reference.guards
    positive, negative = run.margins(positives[:, columns]), run.margins(negatives[:, columns])
    surest, accepted = _surest_stages(base, base.reference)
    kept = positive > 0
    kept_margins = np.maximum(np.minimum(positive[kept], slack), positive[kept] - KEPT_MARGIN * length)
    stays_out = ~accepted & (surest == number) & (negative <= 0)
    capped = accepted & (number >= base.cascade.first_scoring)
    return Constraints(
        np.concatenate([positives[kept], negatives[stays_out], negatives[capped]])[:, columns],
        np.concatenate([np.ones(int(kept.sum())), np.full(int(stays_out.sum() + capped.sum()), -1.0)]),
        np.concatenate([kept_margins, np.minimum(-negative[stays_out], slack), -negative[capped]]),
    )


@lru_cache(maxsize=8)
def _surest_stages(base: DetectorBase, reference: Reference) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """For each guarding negative the stage that rejects it most surely, and whether all accept it."""
    margins = base_margins(base, reference.guards[1])
    return np.argmin(margins / base.lengths, axis=1), np.asarray((margins > 0).all(axis=1))


def checked_labels(boxes: ArrayLike, labels: ArrayLike, shape: tuple[int, ...]) -> tuple[Boxes, NDArray[np.bool_]]:
    """Boxes (n, 4) with some area in an image (height, width), and labels (n,); or a `BoxError` with the reason."""
    try:
        array = checked_boxes(boxes)
    except (TypeError, ValueError) as error:
        raise BoxError(str(error)) from error
    height, width = shape
    inside = np.minimum(array[:, 2:], [width, height]) - np.maximum(array[:, :2], 0)
    for i in range(len(array)):
        if (array[i, 2:] <= array[i, :2]).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()} and has no area; expected x1 < x2 and y1 < y2")
        if (inside[i] <= 0).any() or (abs(array[i]) > FARTHEST_PIXEL).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()}, outside the {width} x {height} image")
    flags: NDArray[Any] = np.asarray(labels)
    if flags.shape == ():
        flags = np.full(len(array), flags)
    if flags.shape != (len(array),):
        raise ValueError(f"got labels of shape {flags.shape} for {len(array)} boxes; expected one for each")
    if not np.isin(flags, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return array, flags.astype(np.bool_)


def new_records(
    base: DetectorBase,
    offset: BoxOffset,
    pyramid: Pyramid,
    image: str,
    boxes: Boxes,
    is_object: NDArray[np.bool_],
    min_score: float,
) -> Iterable[Record]:
    """A correction for each box (n, 4) of an image with labels (n,)."""
    objects = boxes[is_object]
    for box, label in zip(boxes, is_object.tolist(), strict=True):
        if label:
            yield object_record(base, offset, pyramid, image, box, min_score)
        else:
            yield false_positive_record(base, offset, pyramid, image, box, objects)
