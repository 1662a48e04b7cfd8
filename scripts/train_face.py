"""Train the face detector that ships with whet: `python -m scripts.train_face`.

Faces are those of `faces_opencv24`, the other pictures `negatives`, both looked for in $WHET_DATA. One run of 100 faces in
ten and 300 pictures are kept apart: they judge, and never train. A checkpoint beside the result lets a training that
was stopped go on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.features.haar import HaarPool
from whet.io.datasets import faces24, negative_pictures
from whet.model.provenance import Provenance
from whet.training.events import Event, Mining, WeakAdded
from whet.training.node_goal import NodeGoal
from whet.training.plan import Plan
from whet.training.trained_detector import train_detector

WINDOW = (24, 24)
RUN = 100
HELD_OUT_PICTURES = 300
PLAN = Plan(
    NodeGoal(detection_rate=0.997, false_positive_rate=0.35),
    n_stages=12,
    n_weak=250,
    n_negatives=12_000,
    validation=0.15,
    false_positive_rate=1e-7,
    soft=True,
)
ORIGIN = Provenance(
    data="faces_opencv24 (the frontal faces that OpenCV's own cascades were trained on) and 3,017 pictures without a face",
    licence="faces distributed with OpenCV (Apache-2.0)",
    command="python -m scripts.train_face",
)


def split_faces() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Faces to train on and faces to judge by: neighbours in the file, which may be near-duplicates, stay together."""
    faces = faces24()
    runs = np.array_split(np.arange(len(faces)), len(faces) // RUN)
    order = np.random.default_rng([PLAN.seed, 1]).permutation(len(runs))
    held_out, rest = order[: len(runs) // 10], order[len(runs) // 10 :]
    train, judge = (np.sort(np.concatenate([runs[i] for i in some])) for some in (rest, held_out))
    return faces[train], faces[judge]


def split_pictures() -> tuple[list[Path], list[Path]]:
    """Pictures to mine negatives from, and pictures to count false alarms in."""
    paths: Sequence[Path] = negative_pictures()
    order = np.random.default_rng([PLAN.seed, 2]).permutation(len(paths))
    return [paths[i] for i in order[HELD_OUT_PICTURES:]], [paths[i] for i in order[:HELD_OUT_PICTURES]]


def show(event: Event) -> None:
    """One line for each stage that is finished, and one for each picture that is mined on a terminal."""
    if not isinstance(event, WeakAdded | Mining):
        print(event, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/face.safetensors"))
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    faces, _ = split_faces()
    pictures, _ = split_pictures()
    detector, ending = train_detector(
        HaarPool.of_window(WINDOW), faces, pictures, PLAN, show, checkpoint=out.with_suffix(".checkpoint"), origin=ORIGIN
    )
    print(ending)
    from whet.io.model_file import save

    save(detector, out)
    print(f"{out}: {out.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
