"""A small detection problem: bright crosses on noise, and images of smooth noise without any."""

import sys
from pathlib import Path

import numpy as np
from experiments.patches import prepare_patches
from PIL import Image

from whet.models.gslda.haar import HaarPool
from whet.parallel.workers import ALL_THREADS
from whet.training.config import TrainingConfig
from whet.training.loop import Training

WINDOW = (12, 12)
CONFIG = TrainingConfig(
    max_stages=4,
    max_weak_learners=(4, 10, 20),
    negatives_per_stage=300,
    min_detection_rate=0.97,
    max_false_positive_rate=0.4,
    validation_share=0.2,
    early_exits=False,
    drop_rejected_positives=False,
    min_sigma=10.0,
    seed=5,
)


def crosses(n, rng, brightness=45):
    """A bright cross on noise, faint enough to need more than one weak learner."""
    X = rng.integers(30, 150, (n, *WINDOW)).astype(np.int64)
    X[:, 5:7] += brightness
    X[:, :, 5:7] += brightness
    return X.clip(0, 255).astype(np.uint8)


def positives():
    return crosses(500, np.random.default_rng(1))


def pool(seed=0):
    return HaarPool.from_window(WINDOW).sample(1500, np.random.default_rng(seed))


def train_cascade(
    pools,
    patches,
    images,
    config=None,
    callback=lambda _: None,
    *,
    learner=None,
    checkpoint=None,
    groups=None,
    excluded_boxes=None,
    workers=ALL_THREADS,
):
    """Train a cascade from patches: the weighted stages, the trained ones, and the result."""
    prepared = prepare_patches(pools, patches, images, config, learner, groups, excluded_boxes)
    fitted = Training(prepared, callback, checkpoint=checkpoint, workers=workers).run()
    return fitted.model.cascade, fitted.model.stages, fitted.result


def detector_bytes(stages):
    """The file of a detector with these stages."""
    from whet.detector.base import DetectorBase
    from whet.detector.detector import Detector
    from whet.models.gslda.cascade_model import CascadeModel

    return Detector.from_base(DetectorBase(CascadeModel(WINDOW, tuple(stages)))).to_bytes()


def write_images(folder, n=8):
    """Images of smooth noise, 80 x 100."""
    rng = np.random.default_rng(3)
    for i in range(n):
        noise = rng.integers(0, 256, (40, 50), dtype=np.uint8)
        Image.fromarray(noise).resize((100, 80), Image.Resampling.BICUBIC).save(folder / f"{i}.png")
    return sorted(folder.glob("*.png"))


def train_as_a_process(folder, checkpoint, out, threads, kill_at_write):
    """Train with a checkpoint, print a line for each event, and write the detector's bytes in the end."""
    import os
    import signal
    from dataclasses import replace

    from whet.parallel.workers import Threads

    moves, move = [], Path.replace

    def move_or_die(path, target):
        moves.append(target)
        if len(moves) == kill_at_write:
            os.kill(os.getpid(), signal.SIGKILL)
        return move(path, target)

    Path.replace = move_or_die
    _, nodes, result = train_cascade(
        pool(),
        positives(),
        sorted(folder.glob("*.png")),
        replace(CONFIG, early_exits=True),
        lambda event: print(event, flush=True),
        checkpoint=checkpoint,
        workers=Threads(threads),
    )
    out.write_bytes(detector_bytes(nodes))
    print(result, flush=True)


if __name__ == "__main__":
    train_as_a_process(*map(Path, sys.argv[1:4]), int(sys.argv[4]), int(sys.argv[5]))
