"""Other ways to learn from false positives, to compare with in `benchmarks.corrections`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.correction_data import Mistake
from benchmarks.measuring import cascade_model
from whet.corrections.box_windows import SAME, false_positive_record
from whet.corrections.records import image_hash
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.images.boxes import box_iou
from whet.images.detections import report
from whet.images.pyramid import Pyramid
from whet.models.gslda.cascade_model import CascadeModel, ExampleCounts

# The margin, in units of |w|, that SGD goes for.
MARGIN = 0.2
# The rule of earlier versions: share of the base's negatives, rounds, and growth of the weight in each round.
SHARE, ROUNDS, GROWTH = 0.04, 4, 2


def weights(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """The rule of earlier versions: the windows that fired count as heavy samples, until they are gone."""
    base, model = detector.base, cascade_model(detector)
    single = max(1, round(SHARE * min(stage.statistics[1].n for stage in model.stages if stage.learns)))
    counts: ExampleCounts | None = None
    corrected = detector
    for mistake in mistakes:
        pyramid = Pyramid.from_image(mistake.image, base.window)
        for turn in range(ROUNDS):
            fired = corrected.model.scan(pyramid)
            detections = report(fired, offset=detector.box_offset)
            hits = np.flatnonzero(box_iou(mistake.box[None], detections.boxes)[0] >= SAME)
            rows = np.flatnonzero(np.isin(detections.group, hits))
            if not len(rows):
                break
            responses, _ = model.responses(pyramid, fired.index.take(rows))
            times = np.full(len(rows), max(1, GROWTH**turn * single // len(rows)), np.int64)
            new = model.count(responses, np.zeros(len(rows), np.bool_), times)
            counts = new if counts is None else counts + new
            corrected = Detector.from_base(base, counts, detector.reporting)
    return corrected


def sgd(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """Hinge-loss steps on the same windows, each in the stage with its least margin, until they are rejected surely."""
    model = cascade_model(detector)
    trained, units, columns = model.cascade.stages, model.units, model.votes.columns
    stages = list(trained)
    for mistake in mistakes:
        pyramid = Pyramid.from_image(mistake.image, model.window)
        record = false_positive_record(
            model, detector.box_offset, pyramid, image_hash(mistake.image), mistake.box, np.empty((0, 4))
        )
        bits = record.responses.bits.astype(np.float64)
        margins = [bits[:, part] @ stage.coef - stage.threshold for part, stage in zip(columns, trained, strict=True)]
        least = np.argmin(np.array(margins).T / units, axis=1)
        for number in np.unique(least).tolist():
            length, run = float(units[number]), stages[number]
            x = bits[least == number][:, columns[number]]
            coef, threshold = run.coef.copy(), run.threshold
            for _ in range(200):
                late = x[x @ coef - threshold > -MARGIN * length]
                if not len(late):
                    break
                step = 0.05 * length / (1 + late.sum(axis=1).mean())
                coef, threshold = coef - step * late.mean(axis=0), threshold + step
            stages[number] = replace(run, coef=coef, threshold=threshold, rejection_thresholds=None)
    fixed = CascadeModel(model.window, tuple(stages), model.min_sigma)
    return Detector.from_base(DetectorBase(fixed), None, detector.reporting)
