"""Other ways to learn from false positives, to compare with in `benchmarks.corrections`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.correction_data import Mistake
from whet.cascade.boxes import box_iou
from whet.cascade.cascade import Cascade
from whet.cascade.detect import report
from whet.cascade.pyramid import Pyramid
from whet.cascade.scan import scan_pyramid
from whet.detector.base import Delta, DetectorBase
from whet.detector.corrections import SAME, false_positive_record
from whet.detector.derive import count_responses
from whet.detector.detector import Detector
from whet.detector.records import image_hash

# The margin, in units of |w|, that SGD goes for.
MARGIN = 0.2
# The rule of earlier versions: share of the base's negatives, rounds, and growth of the weight in each round.
SHARE, ROUNDS, GROWTH = 0.04, 4, 2


def weights(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """The rule of earlier versions: the windows that fired count as heavy samples, until they are gone."""
    base = detector.base
    single = max(1, round(SHARE * min(stage.statistics[1].n for stage in base.stages if stage.learns)))
    counts = Delta.empty(base.sizes)
    corrected = detector
    for mistake in mistakes:
        pyramid = Pyramid.from_image(mistake.image, base.window)
        for turn in range(ROUNDS):
            fired = scan_pyramid(corrected.cascade, pyramid)
            found = report(fired, offset=detector.box_offset)
            hits = np.flatnonzero(box_iou(mistake.box[None], found.boxes)[0] >= SAME)
            rows = np.flatnonzero(np.isin(found.group, hits))
            if not len(rows):
                break
            responses, _ = base.cascade.respond(pyramid.patches(fired.index.take(rows)))
            each = np.full(len(rows), max(1, GROWTH**turn * single // len(rows)), np.int64)
            counts = counts + count_responses(base, responses, np.zeros(len(rows), np.bool_), each)
            corrected = Detector(base, counts, detector.reporting)
    return corrected


def sgd(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """Hinge-loss steps on the same windows, each in the stage with its least margin, until they are rejected surely."""
    base = detector.base
    stages = list(detector.cascade.stages)
    for mistake in mistakes:
        pyramid = Pyramid.from_image(mistake.image, base.window)
        record = false_positive_record(
            base, detector.box_offset, pyramid, image_hash(mistake.image), mistake.box, np.empty((0, 4))
        )
        bits = record.unpacked(base.cascade.n_weak)
        least = np.argmin(base.cascade.margins(bits) / base.lengths, axis=1)
        for number in np.unique(least).tolist():
            length, run = float(base.lengths[number]), stages[number]
            x = bits[least == number][:, base.cascade.columns[number]].astype(np.float64)
            coef, threshold = run.coef.copy(), run.threshold
            for _ in range(200):
                late = x[x @ coef - threshold > -MARGIN * length]
                if not len(late):
                    break
                step = 0.05 * length / (1 + late.sum(axis=1).mean())
                coef, threshold = coef - step * late.mean(axis=0), threshold + step
            stages[number] = replace(run, coef=coef, threshold=threshold, rejection_thresholds=None)
    return _Fixed(detector, replace(detector.cascade, stages=tuple(stages)))


class _Fixed(Detector):
    """A detector with weights of another rule."""

    def __init__(self, detector: Detector, cascade: Cascade) -> None:
        super().__init__(DetectorBase(cascade.window, cascade.stages, cascade.min_sigma), None, detector.reporting)
