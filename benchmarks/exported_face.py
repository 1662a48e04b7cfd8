"""A small face detector of one feature family, as an OpenCV file: `python -m benchmarks.exported_face LBP face.xml`.

Trained as `scripts.train_face` trains the detector that ships, but with fewer windows and looser goals, in minutes;
hard stages, so that the file decides as the detector does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.train_face import WINDOW, show, split_faces, split_images

from whet.features.haar import HaarPool
from whet.features.integral import FeatureFamily
from whet.features.lbp import BlockPatternPool
from whet.opencv.export import write_opencv
from whet.training.config import Plan
from whet.training.stage import NodeGoal
from whet.training.train import train_detector

FAMILIES = {"Haar": HaarPool, "LBP": BlockPatternPool}
PLAN = Plan(
    NodeGoal(detection_rate=0.995, false_positive_rate=0.35),
    n_stages=10,
    n_weak=(20, 40, 100),
    n_negatives=4000,
    validation=0.15,
    false_positive_rate=1e-5,
)


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("xml", type=Path)
    options = parser.parse_args()
    family: FeatureFamily = FAMILIES[options.family].from_window(WINDOW)
    detector, stop_reason = train_detector(family, split_faces()[0][:5000], split_images()[0], PLAN, show)
    print(stop_reason)
    print(write_opencv(detector.cascade, options.xml))


if __name__ == "__main__":
    main()
