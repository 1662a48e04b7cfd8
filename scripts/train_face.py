"""Train the face detector that ships with whet: `python -m scripts.train_face`.

The faces are the data set `faces_opencv24`, the negative images `negatives`, both in $WHET_DATA. One in ten runs of 100
faces, and 300 images, are held out for evaluation. A checkpoint beside the model lets a repeated call resume an
interrupted training. Stages alternate between Haar features and local binary patterns.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from experiments.datasets import faces24, negative_images
from experiments.mit_cmu import FACE_OFFSET
from experiments.patches import train_detector
from numpy.typing import NDArray

from whet.corrections.reference import Reference
from whet.detector.base import DEFAULT_POINT, DetectorBase, Provenance, Reporting
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.evaluation.evaluation import evaluate_detections, operating_point
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.pools import BlockPatternPool
from whet.training.backgrounds import Backgrounds
from whet.training.config import TrainingConfig
from whet.training.gslda import CascadeTraining
from whet.training.progress import Event, FitProgress, Mining
from whet.training.samples import Positives
from whet.training.validation import ScannedImages, held_out_reference
from whet.training.windows import WindowChoice

WINDOW = (24, 24)
RUN = 100
HELD_OUT_IMAGES = 300
CONFIG = TrainingConfig(
    max_stages=10,
    max_weak_learners=250,
    negatives_per_stage=12_000,
    min_detection_rate=0.998,
    max_false_positive_rate=0.3,
    target_false_positive_rate=1e-7,
    validation_share=0.15,
    early_exits=True,
    drop_rejected_positives=False,
    min_sigma=5.0,
)
ORIGIN = Provenance(
    data="faces_opencv24, the frontal faces of OpenCV's own cascades, and 3,017 images without a face",
    licence="that of OpenCV, with which the faces are distributed",
    command="python -m scripts.train_face",
).with_class("face")
# False positives per image.
POINTS = {"one false positive per image": 1.0, "one per ten images": 0.1, "one per hundred images": 0.01}
DEFAULT = "one per ten images"
# Stages of the coarse pass, and how much lower their thresholds are, in units of |w|: of 5,462 development faces, none
# is lost (docs/decisions.md).
COARSE_ROOM = (0.0, 0.0, 0.2)


def split_faces() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Training faces and held-out faces: neighbours in the file, which may be near-duplicates, stay together."""
    faces = faces24()
    runs = np.array_split(np.arange(len(faces)), len(faces) // RUN)
    order = np.random.default_rng([CONFIG.seed, 1]).permutation(len(runs))
    held_out, rest = order[: len(runs) // 10], order[len(runs) // 10 :]
    train, test = (np.sort(np.concatenate([runs[i] for i in some])) for some in (rest, held_out))
    return faces[train], faces[test]


def split_images() -> tuple[list[Path], list[Path]]:
    """Images to mine negatives from, and images to count false positives in."""
    paths: Sequence[Path] = negative_images()
    order = np.random.default_rng([CONFIG.seed, 2]).permutation(len(paths))
    return [paths[i] for i in order[HELD_OUT_IMAGES:]], [paths[i] for i in order[:HELD_OUT_IMAGES]]


def show(event: Event) -> None:
    """Print a line for each stage."""
    if not isinstance(event, FitProgress | Mining):
        print(event, flush=True)


def evaluated(base: DetectorBase, faces: NDArray[np.uint8], images: Sequence[Path]) -> Detector:
    """The detector with operating points by its false positives in images, and its rates as provenance."""
    detector, model = Detector.from_base(base, reporting=Reporting(FACE_OFFSET)), base.model
    assert isinstance(model, CascadeModel)
    found = [detector.detect(path) for path in images]
    curve = evaluate_detections([(one.boxes, one.scores) for one in found], [([], None)] * len(found)).curve
    facts = {
        "held-out faces": len(faces),
        "held-out faces accepted": float(model.cascade.accepts(faces).mean()),
        "held-out images": len(images),
        "false positives in them, all stages passed": int(curve.false_positives[-1]),
    }
    provenance = replace(base.provenance, facts={**base.provenance.facts, **facts})
    base = replace(base, model=replace(model, coarse_room=COARSE_ROOM), provenance=provenance)
    base = replace(base, reference=reference_of(model, faces, images))
    detector = Detector.from_base(base, reporting=detector.reporting)
    for name, rate in POINTS.items():
        detector.set_operating_point(name, operating_point(curve, rate))
    detector.set_operating_point(DEFAULT_POINT, detector.operating_points[DEFAULT])
    return detector


def reference_of(model: CascadeModel, faces: NDArray[np.uint8], images: Sequence[Path]) -> Reference:
    """Responses to held-out faces and to hard places of held-out images."""
    height, width = model.window
    choice = WindowChoice(height, width, FACE_OFFSET, len(faces), 1.0, 1.0, 1.0, holds=True)
    held_out = Backgrounds(images, CascadeTraining(), choice, seed=CONFIG.seed)
    scanned = ScannedImages.from_backgrounds(held_out, model)
    return held_out_reference(model, Positives(faces, np.arange(len(faces))), held_out, scanned, seed=CONFIG.seed)


def main() -> None:
    """Train, evaluate and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/face.whet"))
    parser.add_argument("--base", type=Path, help="a trained detector: evaluate it again instead of training")
    options = parser.parse_args()
    out = options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    faces, held_out_faces = split_faces()
    images, held_out_images = split_images()
    if options.base:
        save(evaluated(load(options.base).base, held_out_faces, held_out_images), out)
        return
    families = [HaarPool.from_window(WINDOW), BlockPatternPool.from_window(WINDOW)]
    checkpoint = out.with_suffix(".checkpoint")
    trained, result = train_detector(families, faces, images, CONFIG, show, checkpoint=checkpoint, origin=ORIGIN)
    print(result)
    save(evaluated(trained.base, held_out_faces, held_out_images), out)


def save(detector: Detector, out: Path) -> None:
    """Write the model and print what it is."""
    detector.save(out)
    print(f"{detector}\n{out}: {out.stat().st_size:,} bytes\n{detector.provenance.facts}")


if __name__ == "__main__":
    main()
