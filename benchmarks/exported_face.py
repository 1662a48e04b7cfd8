"""Decision "Integer stage sums".

A small face detector of one feature family, as an OpenCV file: `python -m benchmarks.exported_face LBP face.xml`.

Trained as `scripts.train_face` trains the detector that ships, but with fewer windows and looser goals, in minutes;
hard stages, so that the file decides as the detector does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.patches import train_detector
from scripts.train_face import WINDOW, show, split_faces, split_images

from benchmarks.measuring import cascade_model
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import FeatureFamily
from whet.models.gslda.pools import BlockPatternPool
from whet.opencv.xml_writer import write_opencv
from whet.training.config import TrainingConfig

FAMILIES = {"Haar": HaarPool, "LBP": BlockPatternPool}
CONFIG = TrainingConfig(
    max_stages=10,
    max_weak_learners=(20, 40, 100),
    negatives_per_stage=4000,
    min_detection_rate=0.995,
    max_false_positive_rate=0.35,
    target_false_positive_rate=1e-5,
    validation_share=0.15,
    early_exits=False,
    drop_rejected_positives=False,
    min_sigma=10.0,
)


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("xml", type=Path)
    options = parser.parse_args()
    family: FeatureFamily = FAMILIES[options.family].from_window(WINDOW)
    detector, result = train_detector(family, split_faces()[0][:5000], split_images()[0], CONFIG, show)
    print(result)
    print(write_opencv(cascade_model(detector).cascade, options.xml))


if __name__ == "__main__":
    main()
