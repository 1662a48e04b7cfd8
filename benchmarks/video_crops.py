"""The part of a face that a window should cover, for a stage that learns from its own detections in a video.

    python -m benchmarks.video_crops --seed 0
    python -m benchmarks.video_crops --seed 0 --boosting
    python -m benchmarks.video_crops --seed 0 --videos

GSLDA and online GSLDA as in `python -m experiments video`, with faces of `faces_opencv24` and with the inner part of
Viola and Jones's box in LFW, from all of it to six tenths. Evaluated on synthetic video of other people, on which
parameters may be chosen, or on the two test videos, for reporting. Prints JSON: shares of frames in which the face is
found.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from experiments.datasets import FIRST, lfw_images
from experiments.drifting_faces import clips
from experiments.single_stage import (
    INNER,
    BestWindows,
    Boxes,
    GreyImage,
    StageSettings,
    best_windows,
    bootstrapped,
    sampled_pool,
    self_trained,
    train_stages,
)
from experiments.video import SETTINGS, SMALLEST, Footage

from whet.cascade.stage import LearningStage
from whet.training.stage import Boosting, GreedyLDA, StageLearner

CROPS = (None, 1.0, 0.9, 0.8, 0.7, 0.6)
ASYMMETRIES = (1.0, 2.0, 10.0, 100.0)  # of AsymBoost; 1 is AdaBoost
CLIPS, LENGTH = 6, 240
EVALUATE_EVERY = 2  # step between evaluated frames; online GSLDA learns from all

Scene = tuple[str, list[GreyImage], Boxes]
Rates = dict[str, dict[str, float]]


def synthetic(seed: int) -> Iterator[Scene]:
    """Clips of people who are not in the training set."""
    for number, clip in enumerate(clips(CLIPS, LENGTH, seed, faces=lfw_images()[1::2])):
        yield f"clip {number}", list(clip.frames), clip.truths


def videos() -> Iterator[Scene]:
    """The paper's frames of both videos."""
    for name in FIRST:
        footage = Footage.from_name(name, 1).as_in_paper
        yield name, list(footage.images), footage.video.truths


def rates(settings: StageSettings, scenes: Sequence[Scene], learners: dict[str, StageLearner], seed: int) -> Rates:
    """Share of the evaluated frames in which the face is found, by scene, and their mean; GSLDA also learns online."""
    pool = sampled_pool(settings, seed)
    found: Rates = {}
    for method, stage in train_stages(settings, pool, bootstrapped(settings, pool, seed), learners).items():
        best = [best_windows(stage, images[::EVALUATE_EVERY], min_size=SMALLEST) for _, images, _ in scenes]
        found[method] = _shares(best, scenes, settings)
        if method == "GSLDA" and isinstance(stage, LearningStage):
            best = [self_trained(stage, images, min_size=SMALLEST)[0].every(EVALUATE_EVERY) for _, images, _ in scenes]
            found["OGSLDA"] = _shares(best, scenes, settings)
    return found


def _shares(best: Sequence[BestWindows], scenes: Sequence[Scene], settings: StageSettings) -> dict[str, float]:
    shares = {
        name: one.rate(truths[::EVALUATE_EVERY], settings.box_offset)
        for one, (name, _, truths) in zip(best, scenes, strict=True)
    }
    return {name: round(share, 3) for name, share in (shares | {"mean": float(np.mean(list(shares.values())))}).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--videos", action="store_true", help="the two test videos instead of synthetic video")
    parser.add_argument("--boosting", action="store_true", help="asymmetries of AsymBoost instead of crops")
    parser.add_argument("--crops", type=float, nargs="+", help="only these crops")
    arguments = parser.parse_args()
    scenes = list(videos() if arguments.videos else synthetic(arguments.seed))
    learners: dict[str, StageLearner] = {"GSLDA": GreedyLDA()}
    if arguments.boosting:
        learners = {f"asymmetry {k:g}": Boosting(asymmetry=k, balance=False) for k in ASYMMETRIES}
    for crop in arguments.crops or ((INNER,) if arguments.boosting else CROPS):
        settings = replace(SETTINGS["paper"], inner=crop)
        name = "faces_opencv24" if crop is None else f"inner {crop} of LFW"
        found = rates(settings, scenes, learners, arguments.seed)
        print(json.dumps({"faces": name, "seed": arguments.seed, "found": found}), flush=True)


if __name__ == "__main__":
    main()
