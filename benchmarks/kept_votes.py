"""What a stage gains or loses when it gives up OpenCV's votes: `python -m benchmarks.kept_votes`.

Prints JSON. `frontalface_default` is adopted stage by stage (`keep_votes=False`) with a few images only, so that late
stages keep OpenCV's votes. The last of them is then shown windows that reach it in other images, and is asked without
its votes: which share of held-out faces it keeps, and which of other such windows it lets through. It learns five
windows for each weak learner, or an eighth or a fortieth of them, counted 8 or 40 times each, as corrections are.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
from experiments.report import versions
from numpy.typing import NDArray
from scripts.train_face import split_faces, split_images

from whet.cascade.cascade import Cascade
from whet.cascade.stage import Stage
from whet.detector.base import StageBase
from whet.features.integral import IntegralStack
from whet.lda.statistics import BinaryStatistics
from whet.training.adopt import adopt
from whet.training.mining import Miner

Patches = NDArray[np.uint8]
WEIGHTS = 1, 8, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=3000)
    parser.add_argument("--images", type=int, default=6, help="to adopt with")
    parser.add_argument("--others", type=int, default=640, help="images whose windows are learned and judged by")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    faces, held_out = split_faces()
    images = list(split_images()[0])
    rng.shuffle(images)
    shown = faces[rng.permutation(len(faces))[: options.faces]]
    path = f"{cv2.data.haarcascades}haarcascade_frontalface_default.xml"
    few, others = images[: options.images], images[options.images :][: options.others]
    detector = adopt(path, shown, few, keep_votes=False, n_negatives=1500, seed=options.seed, threads=options.threads)
    base = detector.taught.base
    waiting = [n for n, stage in enumerate(base.stages) if isinstance(stage, StageBase) and stage.votes is not None]
    print(f"stages that keep votes: {waiting}", file=sys.stderr)
    before = Cascade(base.window, base.cascade.stages[: waiting[-1]])
    miner = Miner(others, base.window, max_per_image=100, seed=options.seed, threads=options.threads)
    reaching = miner.mine(before, 4000, 0).patches
    reaching = reaching[rng.permutation(len(reaching))]
    stage = base.stages[waiting[-1]]
    assert isinstance(stage, StageBase)
    results = compared(stage, reaching[: len(reaching) // 2], reaching[len(reaching) // 2 :], held_out)
    report = {"options": vars(options), "versions": versions(), "stage": waiting[-1], "learners": len(stage)}
    print(json.dumps(report | {"negatives in the base": stage.negative.n, "results": results}, indent=1))


def compared(stage: StageBase, learned: Patches, others: Patches, faces: Patches) -> list[dict[str, Any]]:
    """A row for the votes, and one for each weight."""
    rows = [{"weights": "votes", **shares(stage.stage(), others, faces)}]
    responses = stage.stage().respond(IntegralStack.from_patches(learned)).view(np.uint8).T
    for weight in WEIGHTS:
        n = min(5 * len(stage) // weight, len(learned))
        new = BinaryStatistics.from_samples(responses[:n], np.full(n, weight))
        weighed = replace(stage, negative=stage.negative + new, votes=None).stage()
        rows.append({"weights": "LDA", "windows": n, "counted": weight, **shares(weighed, others, faces)})
    return rows


def shares(stage: Stage, others: Patches, faces: Patches) -> dict[str, float]:
    """Which share of faces and of windows without one a stage lets through."""
    return {
        "faces": round(float(stage.accepts(faces).mean()), 4),
        "others": round(float(stage.accepts(others).mean()), 4),
    }


if __name__ == "__main__":
    main()
