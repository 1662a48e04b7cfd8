"""Find the objects in an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade
from whet.cascade.detections import Detections, FiredWindows
from whet.cascade.grouping import IOU, Groups, group_peaks, keep_all, suppress_non_maxima
from whet.cascade.pyramid import SCALE_FACTOR, Level, level_scales, levels_at
from whet.cascade.scan import scan_images

Grouping = Literal["peaks", "nms"]
GROUPING: Grouping = "peaks"


def detect(
    cascade: Cascade,
    image: NDArray[np.uint8],
    *,
    scale_factor: float = SCALE_FACTOR,
    step: int = 1,
    min_size: float | None = None,
    max_size: float | None = None,
    grouping: Grouping | None = GROUPING,
    iou: float = IOU,
    max_detections: int | None = None,
    min_score: float | None = None,
    threads: int | None = None,
) -> Detections:
    """Find objects in a grey image (height, width).

    Windows of all sizes from `min_size` to `max_size` (the longer side, in pixels), each `scale_factor` times the one
    before, are moved by `step` pixels of their level. Windows that overlap (IoU from `iou` up) are grouped around the
    best ones (`peaks`), or only the best are kept (`nms`, non-maximum suppression); None keeps every window. Only
    detections with scores above `min_score` are kept, `max_detections` of them at most. Results do not depend on the
    number of `threads`.

    >>> from whet.features.haar import HaarKind, HaarPool
    >>> from whet.features.weak_learners import Stumps
    >>> from whet.cascade.stage import Stage
    >>> pool = HaarPool.from_window((4, 4), [HaarKind.X2])  # the last one: dark on the left, bright on the right
    >>> edge = Stumps(*(np.array([v]) for v in (len(pool) - 1, np.float32(3.9), np.int8(1), 0.0)))
    >>> cascade = Cascade((4, 4), (Stage(pool.take(edge.feature), edge, np.array([2.0]), threshold=0.5),))
    >>> image = np.repeat(np.uint8([[0, 0, 0, 99, 99, 99]]), 5, axis=0)
    >>> found = detect(cascade, image, max_size=4)  # windows at (1, 0) and (1, 1)
    >>> found.boxes, found.scores
    (array([[1. , 0.5, 5. , 4.5]]), array([1.78381067]))
    """
    windows = fired_windows(
        cascade, image, scale_factor=scale_factor, step=step, min_size=min_size, max_size=max_size, threads=threads
    )
    groups = grouped(windows, grouping, iou)
    found = Detections(groups.boxes, groups.scores, windows, groups.group)
    found = found if min_score is None else found.above(min_score)
    return found if max_detections is None else found.first(max_detections)


def fired_windows(
    cascade: Cascade,
    image: NDArray[np.uint8],
    *,
    scale_factor: float = SCALE_FACTOR,
    step: int = 1,
    min_size: float | None = None,
    max_size: float | None = None,
    threads: int | None = None,
) -> FiredWindows:
    """All windows of a grey image that the cascade accepts, by level (largest first), y and x."""
    if image.ndim != 2 or image.dtype != np.uint8:
        raise ValueError(f"got an image {image.shape} of {image.dtype}; expected grey (height, width) of uint8")
    scales = level_scales(image.shape, cascade.window, scale_factor, min_size, max_size)
    return windows_of_levels(cascade, levels_at(image, scales, threads), scales, step=step, threads=threads)


def windows_of_levels(
    cascade: Cascade, levels: Sequence[Level], scales: Sequence[float], *, step: int = 1, threads: int | None = None
) -> FiredWindows:
    """All windows that the cascade accepts in the levels of a pyramid; `scales` are those of the levels."""
    if not levels:
        return FiredWindows()
    scans = scan_images(cascade, [level.image for level in levels], step=step, threads=threads)
    boxes = [level.boxes(scan.y, scan.x, cascade.window) for level, scan in zip(levels, scans, strict=True)]
    scale = np.repeat(np.array(scales), [len(scan) for scan in scans])
    y, x = (np.concatenate(places) for places in ([scan.y for scan in scans], [scan.x for scan in scans]))
    return FiredWindows(scale, y, x, np.concatenate(boxes), np.concatenate([scan.scores for scan in scans]))


def grouped(windows: FiredWindows, grouping: Grouping | None = GROUPING, iou: float = IOU) -> Groups:
    """One box for all windows that fired around one object."""
    match grouping:
        case None:
            return keep_all(windows.boxes, windows.scores)
        case "peaks":
            return group_peaks(windows.boxes, windows.scores, iou=iou)
        case "nms":
            return suppress_non_maxima(windows.boxes, windows.scores, iou=iou)
    raise ValueError(f"got grouping={grouping!r}; expected one of {', '.join(get_args(Grouping))}, or None")
