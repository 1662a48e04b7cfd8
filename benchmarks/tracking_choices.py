"""The choice of tracking parameters, on synthetic video; no frame of the test videos is used.

    python -m benchmarks.tracking_choices --clips 8
    python -m benchmarks.tracking_choices --guard

Rates are the share of frames in which the face is found. `harm` is what learning costs elsewhere: the share of the
reference set's guarding positives, which the guard does not look at, that are accepted after the clip, and how many of
its guarding negatives are false positives at the default operating point. With --guard: recall and false positives of
the judging half after each update without a guard, and after 1, 2, 5 and 10 pieces of background learned as faces.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
from experiments.drifting_faces import HARD, Clip, clips
from experiments.single_stage import FACE_OFFSET
from experiments.tracking import track_all

import whet
from whet.detector.detector import Detector
from whet.detector.reference import GUARD_NEGATIVE
from whet.tracking.next_frame import MotionPrior
from whet.tracking.self_training import SelfTraining
from whet.tracking.tracker import Tracker
from whet.training.negatives import random_windows

PRIOR, SELF_TRAINING = MotionPrior(), SelfTraining()
STRONG = replace(SELF_TRAINING, share=0.008, kept=1.0)
MODES: dict[str, tuple[MotionPrior, SelfTraining | None]] = {
    "tracks": (PRIOR, None),
    "tracks, a quarter of the motion cost": (replace(PRIOR, cost=1.0), None),
    "learns": (PRIOR, SELF_TRAINING),
    "learns twice as much, keeps eight times as much": (PRIOR, STRONG),
    "the same without a guard": (PRIOR, replace(STRONG, guarded=False)),
    "learns an eighth as much": (PRIOR, replace(SELF_TRAINING, share=0.0005, kept=0.016)),
    "learns every tracked window": (PRIOR, replace(SELF_TRAINING, learn_min_score=-np.inf)),
}


def results(clip: Clip) -> dict[str, list[float]]:
    """Rate, accepted guarding positives and false positives of each mode."""
    found = {}
    for mode, (prior, self_training) in MODES.items():
        tracker = Tracker(
            whet.load("face"),
            learn=self_training is not None,
            prior=prior,
            self_training=self_training or SELF_TRAINING,
            threads=1,
        )
        best, alone, _ = track_all(tracker, list(clip.frames))
        tracker.finish()
        found[mode] = [best.rate(clip.truths, FACE_OFFSET), *harm(tracker.detector)]
        found.setdefault("detector alone", [alone.rate(clip.truths, FACE_OFFSET), *harm(whet.load("face"))])
    return found


def harm(detector: Detector) -> tuple[float, float]:
    """Accepted positives, and false positives at the default point, of the half that the guard does not look at."""
    reference, point = detector.base.reference, detector.operating_points["default"]
    assert reference is not None
    positive, negative = map(detector.cascade.scores_of_responses, reference.guards)
    gain = reference.gain[reference.part == GUARD_NEGATIVE]
    return float((positive > 0).mean()), int((negative * gain > point).sum())


def guard(clip: Clip) -> dict[str, list[list[float]]]:
    """Recall and false positives per image after the updates of a clip, and after 1, 2, 5 and 10 wrong ones."""
    tracker = Tracker(whet.load("face"), learn=True, self_training=replace(SELF_TRAINING, guarded=False))
    learning = [judged(tracker.detector) for frame in clip.frames if tracker.update(frame).n_learned]
    rng, poisoned = np.random.default_rng(0), []
    patches = random_windows(clip.frames[0], 10, (24, 24), rng)
    for n in (1, 2, 5, 10):
        detector = whet.load("face")
        detector.learn_patches(patches[:n], [True] * n, weights=SELF_TRAINING.weight(detector))
        poisoned.append(judged(detector))
    return {"learning": learning, "poisoned": poisoned}


def judged(detector: Detector) -> list[float]:
    estimate = detector.estimate
    assert estimate is not None
    return [round(estimate.recall, 4), round(estimate.false_positives_per_image, 4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=8)
    parser.add_argument("--length", type=int, default=180)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--guard", action="store_true")
    arguments = parser.parse_args()
    made = clips(arguments.clips, arguments.length, arguments.seed, HARD)
    if arguments.guard:
        print(json.dumps([guard(Clip(clip.frames[::2], clip.truths[::2])) for clip in made], indent=1))
        return
    found = [results(Clip(clip.frames[::2], clip.truths[::2])) for clip in made]
    means = {mode: np.mean([one[mode] for one in found], axis=0).round(4).tolist() for mode in found[0]}
    columns = {
        mode: dict(zip(("rate", "accepted", "false_positives"), row, strict=True)) for mode, row in means.items()
    }
    print(json.dumps({"settings": vars(arguments), "means": columns, "clips": found}, indent=1))


if __name__ == "__main__":
    main()
