"""How much of a face a window should show, for a node that learns from its own detections in a video.

    python -m benchmarks.video_crops --seed 0
    python -m benchmarks.video_crops --seed 0 --boosting
    python -m benchmarks.video_crops --seed 0 --videos

GSLDA and online GSLDA as in `whet reproduce video`, with faces of `faces_opencv24` and with the inner part of Viola and
Jones's box in LFW, from all of it to six tenths. Judged by made-up footage of people who are not trained on, which
choices may be made by, or by the two test videos, to report. Prints JSON: shares of frames in which the face is found.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from experiments.datasets import lfw_images
from experiments.drifting_faces import clips
from experiments.face_tracks import Boxes, GreyImage, Track, followed
from experiments.face_videos import FIRST
from experiments.node import with_own_statistics
from experiments.video import RECIPES, SMALLEST, Footage
from experiments.video_nodes import INNER, Recipe, bootstrapped, pool_of, train_nodes

from whet.training.stage import Boosting, GreedyLDA, StageLearner

CROPS = (None, 1.0, 0.9, 0.8, 0.7, 0.6)
ASYMMETRIES = (1.0, 2.0, 10.0, 100.0)  # of AsymBoost; 1 is AdaBoost
CLIPS, LENGTH = 6, 240
JUDGED = 2  # frames that are judged; online GSLDA learns from all

Scene = tuple[str, list[GreyImage], Boxes]
Rates = dict[str, dict[str, float]]


def made_up(seed: int) -> Iterator[Scene]:
    """Clips of people whom no node is trained on."""
    for number, clip in enumerate(clips(CLIPS, LENGTH, seed, faces=lfw_images()[1::2])):
        yield f"clip {number}", list(clip.frames), clip.truths


def videos() -> Iterator[Scene]:
    """The paper's frames of both videos."""
    for name in FIRST:
        footage = Footage.from_name(name, 1).as_in_paper
        yield name, list(footage.images), footage.video.truths


def rates(recipe: Recipe, scenes: Sequence[Scene], learners: dict[str, StageLearner], seed: int) -> Rates:
    """Shares of the judged frames in which the face is found, a scene, and their mean; GSLDA also learns."""
    pool = pool_of(recipe, seed)
    found: Rates = {}
    for method, node in train_nodes(recipe, pool, bootstrapped(recipe, pool, seed), learners).items():
        tracks = [followed(node, images[::JUDGED], min_size=SMALLEST) for _, images, _ in scenes]
        found[method] = _shares(tracks, scenes, recipe)
        if method == "GSLDA":
            online = [with_own_statistics(node) for _ in scenes]
            tracks = [
                followed(one, images, learn=True, min_size=SMALLEST).every(JUDGED)
                for one, (_, images, _) in zip(online, scenes, strict=True)
            ]
            found["OGSLDA"] = _shares(tracks, scenes, recipe)
    return found


def _shares(tracks: Sequence[Track], scenes: Sequence[Scene], recipe: Recipe) -> dict[str, float]:
    shares = {
        name: track.rate(truths[::JUDGED], recipe.frame)
        for track, (name, _, truths) in zip(tracks, scenes, strict=True)
    }
    return {name: round(share, 3) for name, share in (shares | {"mean": float(np.mean(list(shares.values())))}).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--videos", action="store_true", help="the two test videos instead of made-up footage")
    parser.add_argument("--boosting", action="store_true", help="asymmetries of AsymBoost instead of crops")
    parser.add_argument("--crops", type=float, nargs="+", help="these alone")
    arguments = parser.parse_args()
    scenes = list(videos() if arguments.videos else made_up(arguments.seed))
    learners: dict[str, StageLearner] = {"GSLDA": GreedyLDA()}
    if arguments.boosting:
        learners = {f"asymmetry {k:g}": Boosting(asymmetry=k, balance=False) for k in ASYMMETRIES}
    for crop in arguments.crops or ((INNER,) if arguments.boosting else CROPS):
        recipe = replace(RECIPES["paper"], inner=crop)
        name = "faces_opencv24" if crop is None else f"inner {crop} of LFW"
        found = rates(recipe, scenes, learners, arguments.seed)
        print(json.dumps({"faces": name, "seed": arguments.seed, "found": found}), flush=True)


if __name__ == "__main__":
    main()
