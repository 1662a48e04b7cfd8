"""The minimum score of `whet watch --learn` on detectors other than `face`, with synthetic video of their objects.

    python -m benchmarks.tracking_min_score van
    python -m benchmarks.tracking_min_score face

Detectors of drawn vans and walkers are trained by `whet train` as in `benchmarks.drawn_objects`. The video has other
objects and backgrounds. Each clip is tracked without learning, with the detector's own minimum score, and with 40,
which was chosen for `face`. Prints JSON: the number of learned frames, how many of these showed the object (IoU above
0.5), and the share of frames in which the object was found. Faces come from `experiments.drifting_faces`; drawn objects
are animated here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.datasets import negative_images
from experiments.drifting_faces import HARD, HEIGHT, WIDTH, Clip, Light, clip, wander
from experiments.single_stage import FACE_OFFSET, IOU, overlaps
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates
from scripts.train_face import split_images

import whet
from benchmarks.adopted_cascade import people
from benchmarks.drawn_objects import SIZES, command, draw
from whet.demo.objects import object_drawn
from whet.detector.detector import Detector
from whet.io.images import read_grey
from whet.tracking.self_training import SelfTraining, expected_scores
from whet.tracking.tracker import TrackedFrame, Tracker

PEOPLE = 800
EVERY = 2
SMALLEST, LARGEST = 40.0, 130.0  # longer sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["van", "walker", "face"])
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--length", type=int, default=120)
    parser.add_argument("--seed", type=int, default=41)
    options = parser.parse_args()
    rng = np.random.default_rng([options.seed, 6])
    detector = whet.load("face") if options.kind == "face" else trained(options.kind)
    images = negative_images()
    used = np.random.default_rng([0, 11]).permutation(len(images))[: sum(SIZES.values())]  # as `draw` does
    free = [images[i] for i in np.setdiff1d(np.arange(len(images)), used).tolist()]
    made = [
        Clip(one.frames[::EVERY], one.truths[::EVERY])
        for one in footage(options.kind, free, options.clips, options.length, rng)
    ]
    own = Tracker(detector).learn_min_score
    modes = {"tracks": None, "learns, its own minimum score": own, "learns, minimum score 40": 40.0}
    scores = expected_scores(detector.base)
    print(
        json.dumps(
            {
                "options": vars(options),
                "minimum score": round(own, 2),
                "expected scores": [round(scores.negative, 2), round(scores.positive, 2)],
                "false positives score": false_positives(detector, free),
                "modes": {
                    name: track_clips(detector, made, min_score, options.kind) for name, min_score in modes.items()
                },
            },
            indent=1,
        )
    )


def trained(kind: str) -> Detector:
    """A detector of drawn objects."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        draw(kind, 0, folder)
        command(folder, "train", "train.csv", "--negatives", "empty", "--seed", 0, "--threads", 1, "--out", "it.whet")
        return whet.load(folder / "it.whet")


def footage(kind: str, images: list[Path], n: int, length: int, rng: np.random.Generator) -> Iterator[Clip]:
    others = people(PEOPLE, 0)[1] if kind == "face" else []
    chosen = [others[i] for i in rng.choice(len(others), n, replace=False).tolist()] if others else [None] * n
    for person in chosen:
        background = read_grey(images[rng.integers(len(images))])
        while background.shape[0] < HEIGHT or background.shape[1] < WIDTH:
            background = read_grey(images[rng.integers(len(images))])
        if person is None:
            yield drawn_clip(kind, background, length, rng)
        else:
            yield clip(read_grey(person), background, length, rng, HARD)


def drawn_clip(kind: str, background: NDArray[np.uint8], length: int, rng: np.random.Generator) -> Clip:
    """A drawn object that moves, approaches, rolls and is lit as a face of `drifting_faces`, without covers."""
    patch, mask = object_drawn(kind, 160.0, rng)
    frames, truths = np.empty((length, HEIGHT, WIDTH), np.uint8), np.empty((length, 4))
    shrunk = SMALLEST * (LARGEST / SMALLEST) ** wander(length, rng, 0.5) / max(patch.shape)
    height, width = patch.shape[0] * shrunk, patch.shape[1] * shrunk * (1 - 0.3 * wander(length, rng))
    x, y = (side / 2 + (room - side) * wander(length, rng) for side, room in ((width, WIDTH), (height, HEIGHT)))
    roll, light = 0.3 * (2 * wander(length, rng) - 1), Light.from_length(length, rng, HARD)
    rooms = background.shape[0] - HEIGHT, background.shape[1] - WIDTH
    pan_y, pan_x = (np.rint(room * wander(length, rng)).astype(int) for room in rooms)
    down, across = np.mgrid[:HEIGHT, :WIDTH]
    for t in range(length):
        scene = background[pan_y[t] : pan_y[t] + HEIGHT, pan_x[t] : pan_x[t] + WIDTH].astype(np.float64)
        u = (np.cos(roll[t]) * (across - x[t]) + np.sin(roll[t]) * (down - y[t])) / width[t]
        v = (np.cos(roll[t]) * (down - y[t]) - np.sin(roll[t]) * (across - x[t])) / height[t]
        place = np.stack([(v + 0.5) * patch.shape[0] - 0.5, (u + 0.5) * patch.shape[1] - 0.5])
        body, seen = (
            map_coordinates(gaussian_filter(layer, max(0.0, 0.5 / shrunk[t] - 0.5)), place, order=1, mode=mode)
            for layer, mode in ((patch, "nearest"), (mask, "constant"))
        )
        scene = scene * (1 - seen) + light.on(body, 2 * u, 2 * v, t) * seen
        frames[t] = (light.blurred(scene, t) + rng.normal(0, 2.5, scene.shape)).clip(0, 255).astype(np.uint8)
        truths[t] = x[t] - width[t] / 2, y[t] - height[t] / 2, x[t] + width[t] / 2, y[t] + height[t] / 2
    return Clip(frames, truths)


def track_clips(detector: Detector, clips: list[Clip], min_score: float | None, kind: str) -> dict[str, Any]:
    """Results of all clips; every clip starts with the detector as it was trained."""
    found, learned, n_updates, n_rolled_back = [], [], 0, 0
    for one in clips:
        self_training = SelfTraining(learn_min_score=min_score, guarded=detector.base.reference is not None)
        tracker = Tracker(detector, learn=min_score is not None, threads=1, self_training=self_training)
        frames = [tracker.update(frame) for frame in one.frames]
        last = tracker.finish()
        found.append(overlaps(np.array([box_of(frame, kind) for frame in frames]), one.truths) > IOU)
        learned.append([frame.is_learned for frame in frames])
        n_updates += sum(frame.n_learned for frame in frames) + last[0]
        n_rolled_back += sum(frame.n_rolled_back for frame in frames) + last[1]
    correct, is_learned = np.concatenate(found), np.concatenate(learned)
    return {
        "frames": len(correct),
        "found": round(float(correct.mean()), 4),
        "learned": int(is_learned.sum()),
        "learned correctly": int((is_learned & correct).sum()),
        "updates": n_updates,
        "updates rolled back": n_rolled_back,
    }


def box_of(tracked: TrackedFrame, kind: str) -> NDArray[np.float64]:
    if tracked.box is None or tracked.track is None:
        return np.full(4, np.nan)
    return tracked.box if kind != "face" else np.asarray(FACE_OFFSET.boxes(tracked.track.box[None])[0])


def false_positives(detector: Detector, free: list[Path]) -> dict[str, float]:
    """Scores of the windows that the detector accepts in images without faces, vans or walkers."""
    images = [path for path in split_images()[1] if path in free][:60]
    scores = np.concatenate([detector.detect(path, min_score=-np.inf, threads=1).windows.scores for path in images])
    above = float((scores > Tracker(detector).learn_min_score).mean())
    return {"windows": len(scores), "mean": round(float(scores.mean()), 2), "above the minimum score": round(above, 4)}


if __name__ == "__main__":
    main()
