"""What the settings of watching were chosen by: made-up footage, no frame of the test videos.

    python -m benchmarks.watching_choices --clips 8
    python -m benchmarks.watching_choices --guard

The guard is set between two numbers: how many times more negatives of its training the detector would accept after it
learned faces of such footage, and after it was taught pieces of background as faces.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
from experiments.drifting_faces import HARD, Clip, clips
from experiments.face_tracks import FRAME
from experiments.watching import tracked_model

import whet
from whet.detector.records import learn
from whet.tracking.self_training import retention_of
from whet.tracking.tracker import MotionPrior, SelfTraining, Tracker
from whet.training.negatives import random_windows

PRIOR, LESSONS = MotionPrior(), SelfTraining()
MODES: dict[str, tuple[MotionPrior, SelfTraining | None]] = {
    "follows": (PRIOR, None),
    "follows, a surprise costs a quarter": (replace(PRIOR, cost=1.0), None),
    "learns": (PRIOR, LESSONS),
    "learns an eighth as much": (PRIOR, replace(LESSONS, share=0.001, kept=0.125)),
    "learns other windows too": (PRIOR, replace(LESSONS, others=3)),
    "learns whatever it follows": (PRIOR, replace(LESSONS, learn_above=-np.inf)),
}


def rates(clip: Clip) -> dict[str, float]:
    found = {}
    for mode, (prior, self_training) in MODES.items():
        tracker = Tracker(
            whet.load("face"), learn=self_training is not None, prior=prior, self_training=self_training or LESSONS
        )
        track, alone, _ = tracked_model(tracker, list(clip.frames))
        found[mode] = track.rate(clip.truths, FRAME)
        found.setdefault("detector alone", alone.rate(clip.truths, FRAME))
    return found


def guard(clip: Clip) -> dict[str, list[float]]:
    """Times more negatives accepted, after each few lessons of a clip, and after 1, 2, 5 and 10 poisoned ones."""
    free = replace(LESSONS, max_lost=2.0, max_accepted=np.inf)
    tracker = Tracker(whet.load("face"), learn=True, self_training=free)
    start = retention_of(tracker.detector.taught)
    learning = [
        round(start.lost(retention_of(tracker.detector.taught))[1], 1)
        for frame in clip.frames
        if tracker.update(frame).n_learned
    ]
    rng, poisoned = np.random.default_rng(0), []
    patches = random_windows(clip.frames[0], 10, (24, 24), rng)
    for n in (1, 2, 5, 10):
        taught = whet.load("face").taught
        learn(taught, patches[:n], [True] * n, weights=LESSONS.weight(taught))
        poisoned.append(round(start.lost(retention_of(taught))[1], 1))
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
