"""Decision "Old samples are unlearned, not decayed".

Tracking at 320 x 240: frames per second with and without learning, the cost of learning, and a stream of an hour.

    python -m benchmarks.tracking
    python -m benchmarks.tracking --video trellis
    python -m benchmarks.tracking --always
    python -m benchmarks.tracking --harm-only
    python -m benchmarks.tracking --stream 108000

Frames are those of `david`, or synthetic ones if it is not on this machine. Runs with and without learning alternate.
Processor seconds are measured on one thread, because other processes disturb them less than wall-clock time. Learning
is the part of `Tracker.update` that is not detection: patches are cropped, counted and guarded, and cascades with new
weights are compiled. The stream has crops of 48 x 48 pixels around the face, with new noise in each: 108,000 are an
hour at 30 frames per second.

`harm` is what learning costs elsewhere, before and after the video: the share of held-out faces that the cascade
accepts, the share of LFW's faces that are found at the default operating point, and false positives at this point and
at any score in held-out images. Half of the held-out faces are in the half of the reference set that the
guard looks at; LFW's faces and these 100 images are not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from experiments import datasets
from experiments.datasets import LFW_FACE, face_video, lfw_images
from experiments.single_stage import FACE_OFFSET
from numpy.typing import NDArray
from scripts.train_face import CONFIG, split_faces, split_images

import whet
from benchmarks.measuring import cascade_model, resident_mb
from whet.detector.detector import Detector
from whet.images.boxes import box_iou
from whet.images.pyramid import resized
from whet.io.image_files import read_grey
from whet.models.gslda import cascade_scan as scan
from whet.tracking.tracker import SelfTraining, Tracker

GreyImages = list[NDArray[np.uint8]]


def images(n: int | None, video: str = "david") -> GreyImages:
    if datasets.find(video) is not None:
        return [read_grey(path) for path in face_video(video).paths[:n]]
    from whet.demo.faces_digits import drawn_scene

    return [resized(np.roll(drawn_scene(), i, axis=1), (240, 320)) for i in range(n or 400)]


class Clock:
    """Processor seconds spent in some methods of an object."""

    def __init__(self, owner: object, *names: str) -> None:
        self.seconds = 0.0
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: object, **options: object) -> object:
            begin = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds += time.process_time() - begin

        return timed


def one_way(frames: GreyImages, learn: bool, self_training: SelfTraining) -> dict[str, float]:
    tracker = Tracker(whet.load("face"), learn=learn, threads=1, self_training=self_training)
    tracker.update(frames[0])
    compile_cascade = scan.compiled
    learning, compiling = Clock(tracker, "_new_update", "_learn_pending"), Clock(scan, "compiled")
    begin, on_the_clock = time.process_time(), time.perf_counter()
    tracked = [tracker.update(frame) for frame in frames]
    seconds, passed = time.process_time() - begin, time.perf_counter() - on_the_clock
    scan.compiled = compile_cascade
    return {
        "updates": sum(one.n_learned for one in tracked),
        "updates_rolled_back": sum(one.n_rolled_back for one in tracked),
        "processor_ms_a_frame": 1e3 * seconds / len(frames),
        "frames_a_processor_second": len(frames) / seconds,
        "frames_a_second_on_the_clock": len(frames) / passed,
        "share_of_updates": learning.seconds / seconds,
        "share_of_compiling": compiling.seconds / seconds,
    }


def both_ways(frames: GreyImages, turns: int, self_training: SelfTraining) -> dict[str, Any]:
    """Medians of several turns; runs with and without learning alternate."""
    pairs = [tuple(one_way(frames, learn, self_training) for learn in (False, True)) for _ in range(turns)]
    without, with_learning = (
        {name: round(statistics.median(one[name] for one in side), 4) for name in side[0]}
        for side in zip(*pairs, strict=True)
    )
    shares = [on["share_of_updates"] + on["share_of_compiling"] - off["share_of_compiling"] for off, on in pairs]
    return {
        "frames": len(frames),
        "turns": turns,
        "without_learning": without,
        "with_learning": with_learning,
        "share_of_learning": round(statistics.median(shares), 4),
        "shares_of_all_turns": [round(share, 4) for share in shares],
    }


# Of 300 held-out images in the order of `make_reference`, the first 192 hold all that judges.
N_IMAGES, N_LFW = 100, 400


def unused_images() -> list[Path]:
    """Held-out images without faces that are not in the estimating half of the bundled detector's reference set."""
    faces, images = split_faces()[1], split_images()[1]
    rng = np.random.default_rng([CONFIG.seed, 7])  # as in `make_reference`
    rng.permutation(len(faces))
    return [images[i] for i in rng.permutation(len(images))[-N_IMAGES:].tolist()]


def state_of(detector: Detector) -> dict[str, float]:
    """How well a detector does elsewhere."""
    faces, people = split_faces()[1], lfw_images()
    chosen = np.random.default_rng(0).choice(len(people), N_LFW, replace=False)
    n_found = sum(_is_found(detector, people[i]) for i in chosen.tolist())
    detections = [detector.detect(path, min_score=-np.inf, threads=1) for path in unused_images()]
    scores, point = np.concatenate([one.scores for one in detections]), detector.operating_points["default"]
    return {
        "held_out_faces_accepted": round(float(cascade_model(detector).cascade.accepts(faces).mean()), 4),
        "lfw_faces_found": round(n_found / N_LFW, 4),
        "default_operating_point": round(point, 2),
        "false_positives_at_it": int((scores > point).sum()),
        "false_positives_at_any_score": len(scores),
    }


def _is_found(detector: Detector, photograph: Path) -> bool:
    left, top, side = LFW_FACE
    truth = FACE_OFFSET.boxes(np.array([[left, top, left + side, top + side]], np.float64))
    return bool((box_iou(truth, detector.detect(photograph, threads=1).boxes) >= 0.5).any())


def harm(frames: GreyImages, self_training: SelfTraining) -> dict[str, Any]:
    """Held-out results before and after a video is learned."""
    tracker = Tracker(whet.load("face"), learn=True, threads=1, self_training=self_training)
    before = state_of(tracker.detector)
    for frame in frames:
        tracker.update(frame)
    tracker.finish()
    return {"before": before, "after": state_of(tracker.detector), "updates_kept": len(tracker.kept)}


def looped(frames: GreyImages, n: int) -> Iterator[NDArray[np.uint8]]:
    """Frames in a loop, with noise in the lowest bit: a frame that was learned is not learned twice."""
    rng = np.random.default_rng(0)
    for number in range(n):
        frame = frames[number % len(frames)]
        yield frame ^ rng.integers(0, 2, frame.shape, dtype=np.uint8)


def stream(n: int) -> dict[str, Any]:
    """A loop of small frames around the face; nearly all of them are learned."""
    frames = [resized(np.ascontiguousarray(image[55:175, 90:210]), (48, 48)) for image in images(60)]
    tracker = Tracker(whet.load("face"), learn=True, threads=1, self_training=SelfTraining(learn_min_score=0.0))
    memory, n_updates, finite, begin = [], 0, True, time.perf_counter()
    for number, frame in enumerate(looped(frames, n)):
        tracked = tracker.update(frame)
        n_updates += tracked.n_learned
        if (number + 1) % max(1, n // 12) == 0:
            memory.append(resident_mb())
            finite &= all(np.isfinite(stage.coef).all() for stage in cascade_model(tracker.detector).cascade.stages)
    return {
        "frames": n,
        "updates": n_updates,
        "updates_kept": len(tracker.kept),
        "counted_since_the_base": tracker.detector.n_examples,
        "resident_mb": memory,
        "weights_are_finite": finite,
        "weights_moved": round(tracker.weight_change, 4),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", default="david", choices=["david", "trellis"])
    parser.add_argument("--frames", type=int, default=None)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--stream", type=int, default=0)
    parser.add_argument("--every", type=int, default=SelfTraining().every)
    parser.add_argument("--always", action="store_true", help="learn every frame, and roll nothing back")
    parser.add_argument("--harm-only", action="store_true", help="do not measure the time")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"command": f"python -m benchmarks.tracking {' '.join(sys.argv[1:])}".rstrip()}
    if arguments.stream:
        result["stream"] = stream(arguments.stream)
    else:
        frames, self_training = images(arguments.frames, arguments.video), SelfTraining(every=arguments.every)
        if arguments.always:
            self_training = replace(self_training, learn_min_score=-np.inf, guarded=False)
        result |= {"video": arguments.video}
        if not arguments.harm_only:
            result |= both_ways(frames, arguments.turns, self_training)
        if datasets.find("faces_lfw") is not None:
            result["harm"] = harm(frames, self_training)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
