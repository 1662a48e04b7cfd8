"""Decision "A correction is a known neighbour".

Corrections: help and harm, on this image and on others. `python -m benchmarks.corrections`.

Prints JSON. Each draw takes other images, other mistakes and another order. `before` and `after` are totals over draws;
`ratio` is after / before with a 95 % interval by bootstrap over draws; points of recall are means with the same
interval.

- `false positives`: detections at any score in images without the object are corrected one after the other. How many
  are gone (no detection has an IoU of 0.5 with the box), false positives in 80 other images, at the default operating
  point and at any score, and recall on held-out objects. Peers on the same mistakes: `weights` counts the windows that
  fired as heavy samples, 4 % of the base and twice as much in each further round (the rule of earlier versions); `sgd`
  takes hinge-loss steps on the same windows, each in the stage that is least sure of it.
- `misses`: missed objects are corrected; the rest is measured in images that none of them is from.
- `camera`: clips of a fixed camera made of photographs: shake, light, noise, and a passing object. False positives of
  the first half are corrected; false positives and recall are counted in the second half.
- `command line`: the corrections of the first draws once more, each by a call of `whet learn --wrong`. Counts the
  detections in other images that differ from those of the detector that learned in Python.
- `calibration`: probabilities against shares of detections that are right, before and after 20 corrections.

The face detector is measured on photographs of streets, cars and plates (`objects`), faces of LFW, and faces pasted
into images. `--model plates` trains a detector of number plates with `whet.train` first, a channel detector, to which
the peers do not apply. With `--retrain` it is also trained anew with the corrected images as negatives. None of these
images was used to choose the method or its settings; those were chosen on images held out from the training of the
face detector. To choose further ones, `--development` takes other photographs of the same kinds, and other people.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.datasets import find
from experiments.report import versions
from PIL import Image
from typer.testing import CliRunner

import whet
from benchmarks.correction_data import (
    OTHERS,
    Boxes,
    Grey,
    Mistake,
    Scene,
    Setting,
    compared,
    drawn_false_positives,
    face,
    found_of,
    is_found,
    measure,
    plates,
    point_of,
)
from benchmarks.correction_peers import sgd, weights
from benchmarks.measuring import progress
from whet.cli.main import app
from whet.corrections.box_windows import SAME
from whet.corrections.records import image_hash
from whet.detector.detector import Detector
from whet.errors import BoxError
from whet.images.boxes import box_iou

COUNTS = (1, 5, 20, 100)
PEER_COUNTS = (20,)
MISSES = (1, 5, 20)
FRAMES = 40
COMMAND_DRAWS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["face", "plates"], default="face")
    parser.add_argument("--parts", nargs="+", default=["false positives", "misses", "camera", "cost"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--retrain", type=int, default=0, metavar="DRAWS", help="draws that train again (plates)")
    parser.add_argument("--development", action="store_true", help="other images, to choose settings by (face)")
    options = parser.parse_args()
    if options.development and options.model != "face":
        parser.error("--development has images for --model face only")
    with TemporaryDirectory() as folder:
        setting = face(development=options.development) if options.model == "face" else plates()
        result: dict[str, Any] = {"options": vars(options), "versions": versions(), "detector": repr(setting.detector)}
        for part in options.parts:
            result[part] = PARTS[part](setting, options)
        if options.retrain:
            result["retraining"] = retraining(setting, options, Path(folder))
    print(json.dumps(result, indent=1))


# --- False positives --------------------------------------------------------------------------------------------------


def corrections(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """Our own: one call of `learn` for each."""
    corrected = detector.copy()
    for mistake in mistakes:
        corrected.learn(mistake.image, mistake.box[None], False)
    return corrected


METHODS: dict[str, Callable[[Detector, Sequence[Mistake]], Detector]] = {
    "corrections": corrections,
    "weights": weights,
    "sgd": sgd,
}


def false_positives(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """All methods, after 1, 5, 20 and 100 corrections in sequence."""
    rows: dict[tuple[str, int], list[Any]] = {}
    for draw in range(options.draws):
        rng = np.random.default_rng([options.seed, draw])
        others, mistakes = drawn_false_positives(setting, rng, max(COUNTS))
        before = measure(setting.detector, others, setting.objects).counts(point_of(setting.detector))
        methods = {"corrections": corrections} if setting.detector.model.family != "gslda" else METHODS
        for name, method in methods.items():
            for n in COUNTS if name == "corrections" else PEER_COUNTS:
                corrected = method(setting.detector, mistakes[:n])
                gone = 1 - np.mean([is_found(corrected, mistake) for mistake in mistakes[:n]])
                after = measure(corrected, others, setting.objects).counts(point_of(corrected))
                rows.setdefault((name, n), []).append((before, after, gone, len(mistakes[:n])))
                progress(f"draw {draw} {name} {n}: gone {gone:.3f} {before} -> {after}")
    return {
        f"{name} {n}": {
            "corrected": sum(row[3] for row in found),
            "gone": round(float(np.average([row[2] for row in found], weights=[row[3] for row in found])), 4),
            **compared([(row[0], row[1]) for row in found]),
        }
        for (name, n), found in rows.items()
    }


# --- Misses -----------------------------------------------------------------------------------------------------------


def misses(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """Objects that are missed at the default operating point."""
    point = point_of(setting.detector)
    missed = [
        (number, Mistake(image, box))
        for number, (image, boxes) in enumerate(setting.objects)
        for box in boxes
        if not is_found(setting.detector, Mistake(image, box), point)
    ]
    rows: dict[int, list[Any]] = {}
    for draw in range(options.draws):
        rng = np.random.default_rng([options.seed, draw, 1])
        order = rng.permutation(len(missed))
        images = [setting.images[i] for i in rng.permutation(len(setting.images))[:OTHERS]]
        for n in MISSES:
            corrected, chosen, refused = setting.detector.copy(), [], 0
            for k in order:
                if len(chosen) == n:
                    break
                number, miss = missed[k]
                try:
                    corrected.learn(miss.image, miss.box[None], True)
                    chosen.append((number, miss))
                except BoxError:
                    refused += 1
            own = {number for number, _ in chosen}
            objects = [scene for number, scene in enumerate(setting.objects) if number not in own]
            before = measure(setting.detector, images, objects).counts(point)
            after = measure(corrected, images, objects).counts(point_of(corrected))
            found = np.mean([is_found(corrected, miss, point_of(corrected)) for _, miss in chosen])
            rows.setdefault(n, []).append((before, after, found, len(chosen), refused))
            progress(f"draw {draw} misses {n}: found {found:.3f} {before} -> {after}")
    return {
        str(n): {
            "corrected": sum(row[3] for row in found),
            "refused": sum(row[4] for row in found),
            "found": round(float(np.average([row[2] for row in found], weights=[row[3] for row in found])), 4),
            **compared([(row[0], row[1]) for row in found]),
        }
        for n, found in rows.items()
    } | {"missed objects": len(missed)}


# --- A fixed camera ---------------------------------------------------------------------------------------------------


def clip(image: Grey, passing: Scene, rng: np.random.Generator) -> Iterator[tuple[Grey, Boxes]]:
    """Frames of a camera that shakes a little, in drifting light, with noise; an object passes. Boxes are of it."""
    height, width = image.shape[:2]
    patch, boxes = passing
    side = min(height, width) // 2
    scale = side / max(patch.shape[:2])
    small = np.asarray(Image.fromarray(patch).resize((round(patch.shape[1] * scale), round(patch.shape[0] * scale))))
    corner, box = boxes[0] * scale, np.empty((1, 4))
    top, light = int(rng.integers(0, height - small.shape[0] + 1)), rng.uniform(-0.2, 0.2)
    for number in range(FRAMES):
        left = round((width - small.shape[1]) * number / (FRAMES - 1))
        scene = image.copy()
        scene[top : top + small.shape[0], left : left + small.shape[1]] = small
        box = corner + np.array([left, top, left, top])
        zoom, (dx, dy) = np.exp(rng.uniform(-0.01, 0.01)), rng.uniform(-2, 2, 2)
        moved = Image.fromarray(scene).transform(
            (width, height), Image.Transform.AFFINE, (zoom, 0, dx, 0, zoom, dy), Image.Resampling.BICUBIC
        )
        gain = 1 + light * np.sin(2 * np.pi * number / FRAMES)
        noisy = (np.asarray(moved, np.float64) - 128) * gain + 128 + rng.normal(0, 3, image.shape)
        yield noisy.clip(0, 255).astype(np.uint8), (box[None] - np.array([dx, dy, dx, dy])) / zoom


def camera(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """Correct the first half of each clip, at any score; count in the second half."""
    draws = []
    for draw in range(options.draws):
        rng = np.random.default_rng([options.seed, draw, 2])
        frames: list[tuple[Grey, Boxes]] = []
        for i in rng.permutation(len(setting.images)):
            image = setting.images[i]
            if len(setting.detector.detect(image, min_score=-np.inf)) >= 3 and min(image.shape[:2]) >= 200:
                passing = setting.objects[int(rng.integers(min(150, len(setting.objects))))]
                frames = list(clip(image, passing, rng))
                break
        first, second = frames[: FRAMES // 2], frames[FRAMES // 2 :]
        corrected, n = setting.detector.copy(), 0
        for image, box in first:
            found = corrected.detect(image, min_score=-np.inf)
            wrong = found.boxes[~(box_iou(found.boxes, box) > 0.1).any(axis=1)]
            if len(wrong):
                corrected.learn(image, wrong, False)
            n += len(wrong)
        point = point_of(setting.detector)
        pair = tuple(camera_counts(one, second, point_of(one)) for one in (setting.detector, corrected))
        draws.append((pair[0], pair[1]))
        progress(f"draw {draw} camera: {n} corrections {pair[0]} -> {pair[1]} (point {point:.1f})")
    return compared(draws)


def camera_counts(detector: Detector, frames: Sequence[tuple[Grey, Boxes]], point: float) -> dict[str, float]:
    """Counts over frames; detections that touch the object are not false positives."""
    wrong, right = [], []
    for image, box in frames:
        found = detector.detect(image, min_score=-np.inf)
        overlap = box_iou(found.boxes, box)[:, 0]
        wrong.append(found.scores[overlap <= 0.1])
        right.append(found.scores[overlap >= SAME].max(initial=-np.inf))
    return found_of(wrong, right).counts(point)


# --- Cost and retraining ----------------------------------------------------------------------------------------------


def cost(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a correction with the scan after it in images of 640 x 480, and of deriving 1,000 corrections."""
    rng = np.random.default_rng([options.seed, 3])
    _, mistakes = drawn_false_positives(setting, rng, 1000)
    large = [mistake for mistake in mistakes if np.prod(mistake.image.shape[:2]) >= 0.9 * 640 * 480][:30]
    learn, rescan = [], []
    for mistake in large:
        corrected = setting.detector.copy()
        begin = time.perf_counter()
        corrected.learn(mistake.image, mistake.box[None], False)
        middle = time.perf_counter()
        corrected.detect(mistake.image)
        learn.append(middle - begin)
        rescan.append(time.perf_counter() - middle)
    records = [record for mistake in mistakes for record in _records(setting.detector, mistake)]
    many = setting.detector.copy()
    begin = time.perf_counter()
    many.add(records)
    derive = time.perf_counter() - begin
    data = many.to_bytes()
    begin = time.perf_counter()
    Detector.from_bytes(data)
    load = time.perf_counter() - begin
    detectors = {n: corrections(setting.detector, mistakes[:n]) for n in (0, 20, 100)}
    spent = dict.fromkeys(detectors, 0.0)
    for mistake in large:
        for n, one in detectors.items():
            begin = time.process_time()
            one.detect(mistake.image, threads=1)
            spent[n] += time.process_time() - begin
    return {
        "detecting with n corrections, over none": {str(n): round(spent[n] / spent[0], 3) for n in (20, 100)},
        "images": len(large),
        "learn, milliseconds": _spread(learn),
        "rescan, milliseconds": _spread(rescan),
        "corrections": len(records),
        "derive all, seconds": round(derive, 3),
        "load, seconds": round(load, 3),
        "bytes of a correction": (len(data) - len(setting.detector.to_bytes())) // len(records),
        "not satisfied": len(many.unsatisfied),
    }


def _records(detector: Detector, mistake: Mistake) -> list[Any]:
    one = detector.copy()
    return list(one.learn(mistake.image, mistake.box[None], False))


def _spread(seconds: list[float]) -> dict[str, float]:
    median, high = (1000 * np.quantile(seconds, [0.5, 0.95])).round(1).tolist() if seconds else (0, 0)
    return {"median": median, "95 %": high}


def retraining(setting: Setting, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The plates' detector trained from scratch, with the images of 20 corrected mistakes among its negatives."""
    draws, seconds, gone = [], [], []
    root = find("objects")
    assert root is not None
    for draw in range(options.retrain):
        rng = np.random.default_rng([options.seed, draw])
        others, mistakes = drawn_false_positives(setting, rng, max(COUNTS))
        images = {image_hash(mistake.image): mistake.image for mistake in mistakes[:20]}
        extra = folder / f"extra{draw}"
        extra.mkdir()
        for name, image in images.items():
            Image.fromarray(image).save(extra / f"{name[:16]}.png")
        begin = time.perf_counter()
        anew = whet.train(root / "plates" / "train.csv", extra)
        seconds.append(time.perf_counter() - begin)
        gone.append(1 - np.mean([is_found(anew, mistake) for mistake in mistakes[:20]]))
        before, after = (
            measure(one, others, setting.objects).counts(point_of(one)) for one in (setting.detector, anew)
        )
        draws.append((before, after))
        progress(f"draw {draw} retraining: gone {gone[-1]:.3f} {before} -> {after}")
    return {"seconds": round(float(np.mean(seconds)), 1), "gone": round(float(np.mean(gone)), 4), "20": compared(draws)}


# --- Command line and calibration -------------------------------------------------------------------------------------


def command_line(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """Correct by `whet learn --wrong`, and compare with `Detector.learn`."""
    rows: dict[int, list[tuple[float, int, int]]] = {}
    for draw in range(min(options.draws, COMMAND_DRAWS)):
        rng = np.random.default_rng([options.seed, draw])
        others, mistakes = drawn_false_positives(setting, rng, max(COUNTS))
        python = setting.detector.copy()
        with TemporaryDirectory() as folder:
            model = Path(folder) / "model.whet"
            setting.detector.save(model)
            for n, mistake in enumerate(mistakes, start=1):
                python.learn(mistake.image, mistake.box[None], False)
                _learn_by_command(model, mistake, Path(folder) / f"{n}.png")
                if n in COUNTS:
                    command = whet.load(model)
                    gone = 1 - float(np.mean([is_found(command, one) for one in mistakes[:n]]))
                    pairs = [[one.detect(image, min_score=-np.inf) for one in (command, python)] for image in others]
                    different = sum(a.to_array().tobytes() != b.to_array().tobytes() for a, b in pairs)
                    rows.setdefault(n, []).append((gone, different, len(others)))
        progress(f"draw {draw} command line: {[row[-1] for row in rows.values()]}")
    return {
        str(n): {
            "draws": len(found),
            "gone": round(float(np.mean([row[0] for row in found])), 4),
            "images": sum(row[2] for row in found),
            "images with other detections than in Python": sum(row[1] for row in found),
        }
        for n, found in rows.items()
    }


def _learn_by_command(model: Path, mistake: Mistake, image: Path) -> None:
    Image.fromarray(mistake.image).save(image)
    x1, y1, x2, y2 = mistake.box.tolist()
    box = f"{image}:{x1!r},{y1!r},{x2 - x1!r},{y2 - y1!r}"
    answer = CliRunner().invoke(app, ["learn", str(model), "--wrong", box, "--force", "--quiet"])
    if answer.exit_code:
        raise SystemExit(f"whet learn failed: {answer.output}")


def calibration(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """As many images as objects: those with objects, and others without."""
    rng = np.random.default_rng([options.seed, 4])
    _, mistakes = drawn_false_positives(setting, rng, 20)
    n_objects = sum(len(boxes) for _, boxes in setting.objects)
    without = max(n_objects - len(setting.objects), 0)
    images = [setting.images[i] for i in rng.permutation(len(setting.images))[:without]]
    every: list[Scene] = [*setting.objects, *((image, np.empty((0, 4))) for image in images)]
    return {
        name: _calibration(detector, every)
        for name, detector in {
            "before": setting.detector,
            "after 20 corrections": corrections(setting.detector, mistakes),
        }.items()
    } | {"images": len(every), "objects": n_objects}


def _calibration(detector: Detector, scenes: Sequence[Scene]) -> dict[str, Any]:
    """Expected calibration error in ten bins of probability, Brier score, and the bins."""
    said, true = [], []
    for image, boxes in scenes:
        found = detector.detect(image, min_score=-np.inf)
        hits = box_iou(found.boxes, boxes) >= SAME
        said.append(found.probabilities)
        true.append(hits.any(axis=1) if len(boxes) else np.zeros(len(found), np.bool_))
    p, right = np.concatenate(said), np.concatenate(true).astype(np.float64)
    number = np.minimum((p * 10).astype(int), 9)
    bins = [
        {
            "detections": int((number == k).sum()),
            "probability": round(float(p[number == k].mean()), 3),
            "right": round(float(right[number == k].mean()), 3),
        }
        for k in range(10)
        if (number == k).any()
    ]
    error = sum(one["detections"] * abs(one["probability"] - one["right"]) for one in bins) / len(p)
    return {
        "detections": len(p),
        "expected calibration error": round(error, 4),
        "brier score": round(float(((p - right) ** 2).mean()), 4),
        "bins": bins,
    }


PARTS: dict[str, Callable[[Setting, argparse.Namespace], dict[str, Any]]] = {
    "false positives": false_positives,
    "misses": misses,
    "camera": camera,
    "command line": command_line,
    "calibration": calibration,
    "cost": cost,
}

if __name__ == "__main__":
    main()
