"""Decision "Early exits in OpenCV's format".

The cost of OpenCV's format for a soft cascade: `python -m benchmarks.soft_export`.

Prints JSON. A small soft cascade of Haar stumps is trained on `faces_opencv24` and exported with all rejection
thresholds, with those after 1, 2, 4, ... learners, and with none. For each file: stages, stumps, bytes, and the number
of windows that OpenCV accepts in images without faces and in the held-out faces, compared with whet. Windows are those
of whet's scan.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
from experiments.patches import train_detector
from experiments.report import versions
from scripts.train_face import WINDOW, split_faces, split_images

import whet
from benchmarks.measuring import cascade_model
from whet.detector.detector import Detector
from whet.images.pyramid import Pyramid
from whet.io.image_files import read_grey
from whet.models.gslda.cascade_scan import scan_pyramid
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import FeatureFamily
from whet.opencv.xml_writer import EarlyExits
from whet.training.config import TrainingConfig

FACES, FEATURES, STAGES = 2000, 4000, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=FACES)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--stages", type=int, default=STAGES)
    parser.add_argument("--images", type=int, default=40, help="to count windows in")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    detector = trained(
        HaarPool.from_window(WINDOW),
        n_faces=options.faces,
        n_features=options.features,
        n_stages=options.stages,
        seed=options.seed,
    )
    faces, images = split_faces()[1], [read_grey(path) for path in split_images()[1][: options.images]]
    report = {"options": vars(options), "versions": versions(), "learners": cascade_model(detector).votes.n_weak}
    report["whet"] = accepted(detector, faces, images)
    with TemporaryDirectory() as folder:
        for early_exits in get_args(EarlyExits):
            path = Path(folder) / f"{early_exits}.xml"
            written = detector.export_opencv(path, early_exits=early_exits)
            size = {"stages": written.stages, "stumps": written.stumps, "bytes": path.stat().st_size}
            report[early_exits] = size | accepted(whet.load(path), faces, images)
    print(json.dumps(report, indent=1))


def trained(
    pool: FeatureFamily,
    *,
    soft: bool = True,
    n_faces: int = FACES,
    n_features: int = FEATURES,
    n_stages: int = STAGES,
    seed: int = 0,
) -> Detector:
    """A small cascade of some features of a pool."""
    rng = np.random.default_rng(seed)
    some = pool.take(np.sort(rng.choice(len(pool), min(n_features, len(pool)), replace=False)))
    faces = split_faces()[0]
    chosen = faces[np.sort(rng.choice(len(faces), n_faces, replace=False))]
    config = TrainingConfig(
        max_stages=n_stages,
        max_weak_learners=100,
        negatives_per_stage=4000,
        min_detection_rate=0.995,
        max_false_positive_rate=0.3,
        validation_share=0.2,
        early_exits=soft,
        drop_rejected_positives=False,
        min_sigma=10.0,
        seed=seed,
    )
    detector, result = train_detector([some], chosen, split_images()[0], config)
    print(result, file=sys.stderr)
    return detector


def accepted(detector: Detector, faces: Any, images: list[Any]) -> dict[str, int]:  # noqa: ANN401 - arrays
    """Numbers of windows that pass; tests show that an exported file decides as in OpenCV."""
    cascade = cascade_model(detector).cascade
    windows = sum(len(scan_pyramid(cascade, Pyramid.from_image(image, WINDOW, step=2))) for image in images)
    return {"windows without a face": windows, "held-out faces": int(cascade.accepts(faces).sum()), "of": len(faces)}


if __name__ == "__main__":
    main()
