"""How often a correction has to count to be felt, and what that costs. `python -m benchmarks.correction_weight`.

Prints JSON. Trains a small face cascade on the spot. Then each trial corrects one mistake of it: a false alarm from
pictures that it was not trained on, or a held-out face that it misses. For each share of the base's count: how many
false alarms are gone and how many faces are found, and how many points of recall on held-out faces one corrected
false alarm costs, on average and at worst (a gain is negative).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.experiments.report import versions
from whet.features.haar import HaarPool
from whet.io.datasets import faces24, negative_pictures
from whet.io.model_file import to_bytes
from whet.model.detector_base import DetectorBase
from whet.model.taught_detector import TaughtDetector
from whet.training.cascade import Plan, train_cascade
from whet.training.mining import Miner
from whet.training.node_goal import NodeGoal
from whet.training.online import learn

WINDOW = (24, 24)
SHARES = (0.005, 0.01, 0.02, 0.04, 0.08)
TRIALS = 60
# Recall is measured on 3,000 faces, for so many of the trials.
RECALL_TRIALS = 12
Patches = NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    rng = np.random.default_rng(parser.parse_args().seed)
    files = negative_pictures()
    order = rng.permutation(len(files))
    detector = train([files[i] for i in order[:150]], rng)
    miner = Miner([files[i] for i in order[300:330]], WINDOW, 5)
    alarms = rng.permutation(miner.mine(detector.cascade(), 300, 7).patches)[:TRIALS]
    held_out = faces24()[6000:9000]
    found = detector.cascade().accepts(held_out)
    misses = rng.permutation(held_out[~found])[:TRIALS]
    report = {
        "stages": [len(stage) for stage in detector.base.stages],
        "bytes": len(to_bytes(detector)),
        "recall": float(found.mean()),
        "versions": versions(),
        "shares": [measure(detector, share, alarms, misses, held_out) for share in SHARES],
    }
    print(json.dumps(report, indent=1))


def train(pictures: list[Any], rng: np.random.Generator) -> TaughtDetector:
    """Seven stages on 3,000 faces: half a minute."""
    pool = HaarPool.of_window(WINDOW).sample(4000, rng)
    sizes = (10, 20, 40, 60, 80, 100)
    plan = Plan(NodeGoal(0.995, 0.4), n_stages=7, n_weak=sizes, n_negatives=2500, seed=1)
    _, nodes, _ = train_cascade(pool, faces24()[:3000], pictures, plan)
    return TaughtDetector(DetectorBase(WINDOW, tuple(node.base() for node in nodes)))


def measure(
    detector: TaughtDetector, share: float, alarms: Patches, misses: Patches, held_out: Patches
) -> dict[str, float]:
    """Trials at one share of the base's counts."""
    recall = detector.cascade().accepts(held_out).mean()
    after_alarm = [corrected(detector, patch, False, share) for patch in alarms]
    after_miss = [corrected(detector, patch, True, share) for patch in misses]
    costs = [recall - one.cascade().accepts(held_out).mean() for one in after_alarm[:RECALL_TRIALS]]
    return {
        "share": share,
        "alarms gone": mean_accepted(after_alarm, alarms, False),
        "misses found": mean_accepted(after_miss, misses, True),
        "points of recall lost": round(100 * float(np.mean(costs)), 3),
        "at worst": round(100 * float(np.max(costs)), 3),
    }


def corrected(detector: TaughtDetector, patch: Patches, is_positive: bool, share: float) -> TaughtDetector:
    taught = detector.copy()
    last: Any = detector.base.stages[-1]
    n = (last.positive if is_positive else last.negative).n
    learn(taught, patch[None], [is_positive], weights=max(1, round(share * n)))
    return taught


def mean_accepted(taught: list[TaughtDetector], patches: Patches, wanted: bool) -> float:
    pairs = zip(taught, patches, strict=True)
    return float(np.mean([one.cascade().accepts(patch[None])[0] == wanted for one, patch in pairs]))


if __name__ == "__main__":
    main()
