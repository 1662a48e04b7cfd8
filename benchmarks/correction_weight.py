"""How often a correction has to count to be felt, and what that costs. `python -m benchmarks.correction_weight`.

Prints JSON. Trains a small face cascade on the spot, or takes `--model`, a detector of `scripts.train_face`, with the
faces and images that its training kept apart. Then each trial corrects one mistake, on a fresh copy, through
`Detector.learn`: a false positive in an image without a face that it was not trained on, or a held-out face that it
misses, put into such an image. For each policy: how many false positives are gone (no detection
overlaps the box by half), how many windows were taught, and how many points of recall on held-out faces one corrected
false positive costs, on average and at worst (a gain is negative); for the default, how many missed faces are found.

A policy is a share of the base's count; whether the windows of a false positive share it or each counts as much; and
the most rounds of scanning again and teaching what still fires, with how many times the weight of the round before.
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
from whet.detector import corrections as correction
from whet.detector import counting as online
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
DEFAULT = (online.CORRECTION_SHARE, correction.MOST_ROUNDS, correction.GROWTH)


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
    parser.add_argument("--model", help="a detector's name or path, instead of a small one that is trained on the spot")
    parser.add_argument("--save", help="where to keep the detector that is trained on the spot")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--default-only", action="store_true", help="no other policy than that of `Detector.learn`")
    parser.add_argument("--threshold", type=float, help="of detections, instead of the detector's default point")
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
            [alarm.n_windows for alarm in false_positives] or [0], [0, 0.5, 0.9, 1]
        ).tolist(),
        "misses": len(misses),
        "misses found": after_misses(detector, misses),
        "default": vars(default),
        "versions": versions(),
        "policies": [after_alarms(detector, policy, false_positives, faces) for policy in policies],
    }
    print(json.dumps(report, indent=1))


def train(images: list[Any], rng: np.random.Generator) -> Detector:
    """Up to eleven stages on 3,000 faces: some minutes.

    A cascade that fires at every leaf tells nothing: its false positives are chains of a thousand windows.
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
    _, nodes, _ = train_cascade(pool, faces24()[:3000], images, config)
    return Detector.from_base(DetectorBase((24, 24), tuple(node.base() for node in nodes)))


class Responses:
    """Weak responses to patches: they are the base's, and stay as they are whatever is learned."""

    def __init__(self, base: DetectorBase, patches: Patches) -> None:
        stack = IntegralStack.from_patches(patches, base.min_sigma)
        self.looked_at = stack.looked_at
        self.of_stage = [stage.respond(stack) for stage in base.cascade.stages]

    def accepted(self, cascade: Cascade) -> NDArray[np.bool_]:
        """Which patches a taught cascade accepts."""
        alive = self.looked_at.copy()
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
        box = detector.frame.boxes(np.array([[x, y, x + width, y + height]], np.float64))
        miss = Mistake(image, box)
        if not is_found(detector, miss):
            yield miss


def is_found(detector: Detector, mistake: Mistake) -> bool:
    boxes = detector.detect(mistake.image).boxes
    return bool((box_iou(mistake.box, boxes) >= correction.SAME).any())


def after_misses(detector: Detector, misses: list[Mistake]) -> float | None:
    """Share of the misses that are found once they were taught at the default weight."""
    found = []
    for miss in misses:
        taught = detector.copy()
        taught.learn(miss.image, miss.box, [True])
        found.append(is_found(taught, miss))
    return float(np.mean(found)) if found else None


def after_alarms(
    detector: Detector, policy: Policy, false_positives: list[Mistake], faces: Responses
) -> dict[str, Any]:
    """All false positives under one policy."""
    recall = faces.accepted(detector.cascade).mean()
    gone, costs, taught_windows = [], [], []
    for alarm in false_positives:
        taught = detector.copy()
        taught_windows.append(teach(taught, policy, alarm))
        gone.append(not is_found(taught, alarm))
        costs.append(100 * float(recall - faces.accepted(taught.cascade).mean()))
    result = {
        **vars(policy),
        "false_positives gone": round(float(np.mean(gone)), 3),
        "points of recall lost": round(float(np.mean(costs)), 3),
        "at worst": round(float(np.max(costs)), 3),
        "more than 0.2 points": round(float(np.mean(np.array(costs) > 0.2)), 3),
        "windows taught": float(np.mean(taught_windows)),
    }
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def teach(detector: Detector, policy: Policy, alarm: Mistake) -> int:
    """Correct a false positive; returns how many windows were taught."""
    online.CORRECTION_SHARE, correction.MOST_ROUNDS, correction.GROWTH = policy.share, policy.rounds, policy.growth
    weight = online.default_weight(detector.base, False) * alarm.n_windows if policy.each else None
    entries = detector.learn(alarm.image, alarm.box, [False], weight)
    online.CORRECTION_SHARE, correction.MOST_ROUNDS, correction.GROWTH = DEFAULT
    return len(entries)


if __name__ == "__main__":
    main()
