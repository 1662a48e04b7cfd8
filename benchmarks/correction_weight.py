"""The weight of a correction: its effect and its cost. `python -m benchmarks.correction_weight`.

Prints JSON. Trains a small face cascade, or loads `--model`, a detector of `scripts.train_face`, with the faces and
images held out from its training. Each trial corrects one mistake on a fresh copy with `Detector.learn`: a false
positive in a held-out image without a face, or a held-out face that is missed, pasted into such an image. For each
policy: the share of false positives removed (no detection has an IoU of 0.5 with the box), the number of windows
learned, and the points of recall on held-out faces that one corrected false positive costs, on average and at worst (a
gain is negative); for the default, the share of missed faces that are found.

A policy is a share of the base's count; whether the windows of a false positive share it or each counts as much; and
the maximum number of rounds in which windows that still fire are learned again, with the growth of the weight in each
round.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from experiments.datasets import faces24, negative_images
from experiments.report import versions
from numpy.typing import NDArray
from scripts.train_face import split_faces, split_images

from whet.cascade.boxes import box_iou
from whet.cascade.cascade import Cascade
from whet.detector import corrections, records
from whet.detector.base import DEFAULT_POINT, DetectorBase
from whet.detector.detector import Detector, load
from whet.features.haar import HaarPool
from whet.features.integral import IntegralStack
from whet.io.images import read_grey
from whet.training.cascade import train_cascade
from whet.training.config import TrainingConfig

Patches = NDArray[np.uint8]

# A quarter of most of the images: trials go four times as fast.
PART = (240, 320)
DEFAULT = (records.CORRECTION_SHARE, corrections.MOST_ROUNDS, corrections.GROWTH)


@dataclass(frozen=True, eq=False)
class Mistake:
    """An image, the box (1, 4) of a false positive or of a missed face in it, and the false positive's windows."""

    image: Patches
    box: NDArray[np.float64]
    n_windows: int = 0


@dataclass(frozen=True)
class Policy:
    """A share of the base's count, whether each window counts as much, the most rounds, and the growth of weights."""

    share: float
    each: bool = False
    rounds: int = 1
    growth: int = 1


POLICIES = [
    Policy(0.04),
    Policy(0.08),
    Policy(0.04, each=True),
    Policy(0.04, rounds=10),
    Policy(0.02, rounds=6, growth=2),
    Policy(0.04, rounds=4, growth=2),
    Policy(0.04, rounds=6, growth=2),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="name or path of a detector (default: train a small one)")
    parser.add_argument("--save", help="path to save the trained detector")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--default-only", action="store_true", help="only the policy of `Detector.learn`")
    parser.add_argument("--threshold", type=float, help="minimum score (default: the default operating point)")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    files = negative_images()
    order = rng.permutation(len(files))
    if args.model:
        detector, held_out = load(args.model), split_faces()[1]
        apart = [read_grey(path) for path in rng.permutation(np.array(split_images()[1]))]
        images, others = iter(apart), iter(apart[::-1])
    else:
        detector, held_out = train([files[i] for i in order[:600]], rng), faces24()[6000:9000]
        images, others = ((read_grey(files[i])[: PART[0], : PART[1]] for i in order[600 + k :: 2]) for k in (0, 1))
    if args.threshold is not None:
        detector.set_operating_point(DEFAULT_POINT, args.threshold)
    if args.save:
        detector.save(args.save)
    faces = Responses(detector.base, held_out)
    found = faces.accepted(detector.cascade)
    false_positives = list(find_false_positives(detector, images, args.trials, rng))
    misses = list(missed_faces(detector, rng.permutation(held_out[~found]), others, args.trials, rng))
    default = Policy(DEFAULT[0], rounds=DEFAULT[1], growth=DEFAULT[2])
    policies = [default] if args.default_only else POLICIES
    report = {
        "detector": repr(detector),
        "recall": float(found.mean()),
        "false positives": len(false_positives),
        "windows of a false positive": np.quantile(
            [mistake.n_windows for mistake in false_positives] or [0], [0, 0.5, 0.9, 1]
        ).tolist(),
        "misses": len(misses),
        "misses found": after_misses(detector, misses),
        "default": vars(default),
        "versions": versions(),
        "policies": [after_false_positives(detector, policy, false_positives, faces) for policy in policies],
    }
    print(json.dumps(report, indent=1))


def train(images: list[Any], rng: np.random.Generator) -> Detector:
    """Up to eleven stages on 3,000 faces: some minutes.

    With fewer stages, false positives would be chains of a thousand windows.
    """
    pool = HaarPool.from_window((24, 24)).sample(4000, rng)
    sizes = (10, 20, 40, 60, 80, 100, 120, 150)
    config = TrainingConfig(
        max_stages=11,
        max_weak_learners=sizes,
        negatives_per_stage=2500,
        min_detection_rate=0.995,
        max_false_positive_rate=0.35,
        validation_share=0.2,
        early_exits=False,
        drop_rejected_positives=False,
        min_sigma=10.0,
        seed=1,
    )
    _, stages, _ = train_cascade(pool, faces24()[:3000], images, config)
    return Detector(DetectorBase((24, 24), stages))


class Responses:
    """Responses of the weak learners to patches; they depend on the base only, not on what is learned."""

    def __init__(self, base: DetectorBase, patches: Patches) -> None:
        stack = IntegralStack.from_patches(patches, base.min_sigma)
        self.has_contrast = stack.has_contrast
        self.of_stage = [stage.respond(stack) for stage in base.cascade.stages]

    def accepted(self, cascade: Cascade) -> NDArray[np.bool_]:
        """Which patches a cascade of the same base accepts."""
        alive = self.has_contrast.copy()
        for stage, responses in zip(cascade.stages, self.of_stage, strict=True):
            sums = stage.weigh(responses)
            rejection_thresholds = (
                np.full(len(stage), -np.inf) if stage.rejection_thresholds is None else stage.rejection_thresholds
            )
            alive &= (sums[-1] > stage.threshold) & (sums > rejection_thresholds[:, None]).all(axis=0)
        return alive


def find_false_positives(
    detector: Detector, images: Iterator[Patches], n: int, rng: np.random.Generator
) -> Iterable[Mistake]:
    """At most one of an image."""
    while n:
        image = next(images, None)
        if image is None:
            return
        found = detector.detect(image)
        if len(found):
            i = int(rng.integers(len(found)))
            yield Mistake(image, found.boxes[i : i + 1], len(found.windows_of(i)))
            n -= 1


def missed_faces(
    detector: Detector, faces: Patches, images: Iterator[Patches], n: int, rng: np.random.Generator
) -> Iterable[Mistake]:
    """Faces put into images, where they are not found."""
    for face in faces[:n]:
        image = next(images, None)
        if image is None:
            return
        image = image.copy()
        height, width = face.shape
        y, x = (int(rng.integers(side - length)) for side, length in zip(image.shape, face.shape, strict=True))
        image[y : y + height, x : x + width] = face
        box = detector.box_offset.boxes(np.array([[x, y, x + width, y + height]], np.float64))
        miss = Mistake(image, box)
        if not is_found(detector, miss):
            yield miss


def is_found(detector: Detector, mistake: Mistake) -> bool:
    boxes = detector.detect(mistake.image).boxes
    return bool((box_iou(mistake.box, boxes) >= corrections.SAME).any())


def after_misses(detector: Detector, misses: list[Mistake]) -> float | None:
    """Share of the misses that are found after they were learned with the default weight."""
    found = []
    for miss in misses:
        corrected = detector.copy()
        corrected.learn(miss.image, miss.box, [True])
        found.append(is_found(corrected, miss))
    return float(np.mean(found)) if found else None


def after_false_positives(
    detector: Detector, policy: Policy, false_positives: list[Mistake], faces: Responses
) -> dict[str, Any]:
    """All false positives under one policy."""
    recall = faces.accepted(detector.cascade).mean()
    gone, costs, learned_windows = [], [], []
    for mistake in false_positives:
        corrected = detector.copy()
        learned_windows.append(correct(corrected, policy, mistake))
        gone.append(not is_found(corrected, mistake))
        costs.append(100 * float(recall - faces.accepted(corrected.cascade).mean()))
    result = {
        **vars(policy),
        "false_positives gone": round(float(np.mean(gone)), 3),
        "points of recall lost": round(float(np.mean(costs)), 3),
        "at worst": round(float(np.max(costs)), 3),
        "more than 0.2 points": round(float(np.mean(np.array(costs) > 0.2)), 3),
        "windows learned": float(np.mean(learned_windows)),
    }
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def correct(detector: Detector, policy: Policy, mistake: Mistake) -> int:
    """Correct a false positive; returns the number of windows learned."""
    records.CORRECTION_SHARE, corrections.MOST_ROUNDS, corrections.GROWTH = policy.share, policy.rounds, policy.growth
    weight = records.default_weight(detector.base, False) * mistake.n_windows if policy.each else None
    learned = detector.learn(mistake.image, mistake.box, [False], weight)
    records.CORRECTION_SHARE, corrections.MOST_ROUNDS, corrections.GROWTH = DEFAULT
    return len(learned)


if __name__ == "__main__":
    main()
