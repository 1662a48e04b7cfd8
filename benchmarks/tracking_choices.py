"""The choice of tracking parameters, on synthetic video; no frame of the test videos is used.

    python -m benchmarks.tracking_choices --clips 8
    python -m benchmarks.tracking_choices --guard

The limit of the guard lies between two numbers: how many times more negatives of its training the detector would accept
after it learned faces of such video, and after it learned pieces of background as faces.
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
from whet.tracking.self_training import retention_of
from whet.tracking.tracker import MotionPrior, SelfTraining, Tracker
from whet.training.negatives import random_windows

PRIOR, SELF_TRAINING = MotionPrior(), SelfTraining()
MODES: dict[str, tuple[MotionPrior, SelfTraining | None]] = {
    "tracks": (PRIOR, None),
    "tracks, a quarter of the motion cost": (replace(PRIOR, cost=1.0), None),
    "learns": (PRIOR, SELF_TRAINING),
    "learns an eighth as much": (PRIOR, replace(SELF_TRAINING, share=0.001, kept=0.125)),
    "learns other windows too": (PRIOR, replace(SELF_TRAINING, others=3)),
    "learns every tracked window": (PRIOR, replace(SELF_TRAINING, learn_above=-np.inf)),
}


def rates(clip: Clip) -> dict[str, float]:
    found = {}
    for mode, (prior, self_training) in MODES.items():
        tracker = Tracker(
            whet.load("face"),
            learn=self_training is not None,
            prior=prior,
            self_training=self_training or SELF_TRAINING,
        )
        best, alone, _ = track_all(tracker, list(clip.frames))
        found[mode] = best.rate(clip.truths, FACE_OFFSET)
        found.setdefault("detector alone", alone.rate(clip.truths, FACE_OFFSET))
    return found


def guard(clip: Clip) -> dict[str, list[float]]:
    """How many times more negatives are accepted after the updates of a clip, and after 1, 2, 5 and 10 wrong ones."""
    free = replace(SELF_TRAINING, guarded=False)
    tracker = Tracker(whet.load("face"), learn=True, self_training=free)
    start = retention_of(tracker.detector)
    learning = [
        round(start.change(retention_of(tracker.detector))[1], 1)
        for frame in clip.frames
        if tracker.update(frame).n_learned
    ]
    rng, poisoned = np.random.default_rng(0), []
    patches = random_windows(clip.frames[0], 10, (24, 24), rng)
    for n in (1, 2, 5, 10):
        detector = whet.load("face")
        detector.learn_patches(patches[:n], [True] * n, weights=SELF_TRAINING.weight(detector))
        poisoned.append(round(start.change(retention_of(detector))[1], 1))
    return {"learning": learning, "poisoned": poisoned}


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
    found = [rates(Clip(clip.frames[::2], clip.truths[::2])) for clip in made]
    means = {mode: round(float(np.mean([one[mode] for one in found])), 4) for mode in found[0]}
    print(json.dumps({"settings": vars(arguments), "mean_rates": means, "clips": found}, indent=1))


if __name__ == "__main__":
    main()
