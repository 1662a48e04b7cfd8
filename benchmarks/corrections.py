"""Corrections: help and harm, on this image and on others. `python -m benchmarks.corrections`.

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

The face detector is measured on photographs of streets, cars and plates (`objects`), faces of LFW, and faces pasted
into images. `--model plates` trains a detector of number plates with `whet.train` first, a channel detector, to which
the peers do not apply. With `--retrain` it is also trained anew with the corrected images as negatives. None of these
images was used to choose the method or its settings; those were chosen on images held out from the training of the
face detector.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.datasets import LFW_FACE, find, lfw_images
from experiments.report import versions
from numpy.typing import NDArray
from PIL import Image

import whet
from benchmarks.pasted_faces import scenes
from whet.cascade.boxes import box_iou
from whet.cascade.cascade import Cascade
from whet.cascade.detect import report
from whet.cascade.pyramid import Pyramid
from whet.cascade.scan import scan_pyramid
from whet.detector.base import DEFAULT_POINT, Delta, DetectorBase
from whet.detector.corrections import SAME, false_positive_record
from whet.detector.counting import count_responses
from whet.detector.detector import Detector
from whet.detector.records import image_hash
from whet.errors import BoxError
from whet.io.annotations.formats import read_annotations
from whet.io.images import as_rgb, read_grey

Grey = NDArray[np.uint8]  # or RGB, for a channel detector
Boxes = NDArray[np.float64]
Scene = tuple[Grey, Boxes]

COUNTS = (1, 5, 20, 100)
PEER_COUNTS = (20,)
MISSES = (1, 5, 20)
OTHERS = 80
FRAMES = 40
# The margin, in units of |w|, that SGD goes for.
MARGIN = 0.2
# The rule of earlier versions: share of the base's negatives, rounds, and growth of the weight in each round.
SHARE, ROUNDS, GROWTH = 0.04, 4, 2


@dataclass(frozen=True, eq=False)
class Setting:
    """A detector, images without its object, and held-out objects: images with boxes."""

    name: str
    detector: Detector
    images: list[Grey]
    objects: list[Scene]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["face", "plates"], default="face")
    parser.add_argument("--parts", nargs="+", default=["false positives", "misses", "camera", "cost"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--retrain", type=int, default=0, metavar="DRAWS", help="train anew for so many draws (plates)")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        setting = face() if options.model == "face" else plates()
        result: dict[str, Any] = {"options": vars(options), "versions": versions(), "detector": repr(setting.detector)}
        for part in options.parts:
            result[part] = PARTS[part](setting, options)
        if options.retrain:
            result["retraining"] = retraining(setting, options, Path(folder))
    print(json.dumps(result, indent=1))


def face() -> Setting:
    """The bundled face detector. None of the images was used to train, to choose settings or as a reference."""
    x, y, side = LFW_FACE
    box = np.array([[x, y, x + side, y + side]], np.float64)
    people = lfw_images()[1200:]
    objects = [(read_grey(path), box) for path in people[:150]]
    return Setting(
        "face",
        whet.load("face"),
        [read_grey(path) for path in images_without_faces()],
        objects + scenes(80, seed=101, hard=True, faces=people[150:]),
    )


def images_without_faces() -> list[Path]:
    """Photographs of streets, cars and number plates."""
    root = find("objects")
    if root is None:
        raise SystemExit("the data set objects is not in $WHET_DATA")
    folders = ("road_signs", "plates", "rear_cars", "inria_person/train/neg", "inria_person/test/neg")
    found = [path for folder in folders for path in sorted((root / folder).rglob("*.jpg"))]
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))[:500]]


def plates() -> Setting:
    """A detector of number plates, trained by `whet.train` with default settings on 138 plates, and other photographs.

    These show kangaroos, raccoons, pets and places without people.
    """
    root = find("objects")
    if root is None:
        raise SystemExit("the data set objects is not in $WHET_DATA")
    test = read_annotations(root / "plates" / "test.csv")
    objects = [(as_rgb(image.path), image.objects) for image in test.images]
    folders = ("kangaroo", "raccoon", "pet_heads", "inria_person/train/neg", "inria_person/test/neg")
    found = [path for folder in folders for path in sorted((root / folder).rglob("*.jpg"))]
    images = [as_rgb(found[i]) for i in np.random.default_rng(0).permutation(len(found))[:500]]
    return Setting("plates", whet.train(root / "plates" / "train.csv"), images, objects)


# --- Measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """Scores of false positives, and the best score at each object (-inf where it is missed)."""

    wrong: NDArray[np.float64]
    right: NDArray[np.float64]

    def counts(self, point: float) -> dict[str, float]:
        """False positives and recall, at a minimum score and at any."""
        return {
            "false positives": float((self.wrong > point).sum()),
            "false positives at any score": float(len(self.wrong)),
            "recall": 100 * float((self.right > point).mean()),
            "recall at any score": 100 * float((self.right > -np.inf).mean()),
        }


def measure(detector: Detector, images: Sequence[Grey], objects: Sequence[Scene]) -> Found:
    """Detect everywhere, at any score."""
    wrong = [detector.detect(image, min_score=-np.inf).scores for image in images]
    right = []
    for image, boxes in objects:
        found = detector.detect(image, min_score=-np.inf)
        hits = box_iou(boxes, found.boxes) >= SAME
        right += [float(found.scores[row].max()) if row.any() else -np.inf for row in hits]
    return Found(np.concatenate([np.empty(0), *wrong]), np.array(right))


def point_of(detector: Detector) -> float:
    return detector.operating_points[DEFAULT_POINT]


def compared(draws: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Any]:
    """Totals before and after over draws, ratios of false positives and points of recall, with 95 % intervals."""
    rng = np.random.default_rng(0)
    again = rng.integers(len(draws), size=(2000, len(draws)))
    rows: dict[str, Any] = {}
    for name in draws[0][0]:
        before, after = (np.array([pair[side][name] for pair in draws]) for side in (0, 1))
        if name.startswith("recall"):
            change = (after - before)[again].mean(axis=1)
            rows[name] = {"before": round(before.mean(), 2), "points": round((after - before).mean(), 3)}
            rows[name] |= {"interval": np.quantile(change, [0.025, 0.975]).round(3).tolist()}
            rows[name] |= {"worst": round((after - before).min(), 3)}
        else:
            ratios = after[again].sum(axis=1) / np.maximum(before[again].sum(axis=1), 1)
            rows[name] = {"before": before.sum(), "after": after.sum()}
            rows[name] |= {"ratio": round(after.sum() / max(before.sum(), 1), 3)}
            rows[name] |= {"interval": np.quantile(ratios, [0.025, 0.975]).round(3).tolist()}
            rows[name] |= {"worst": round(float((after / np.maximum(before, 1)).max()), 3)}
    return rows


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- False positives --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mistake:
    """An image and the box (4,) of a false positive or of a missed object in it."""

    image: Grey
    box: Boxes


def drawn_false_positives(setting: Setting, rng: np.random.Generator, n: int) -> tuple[list[Grey], list[Mistake]]:
    """Other images, and n false positives of the rest, at any score, in random order."""
    order = rng.permutation(len(setting.images))
    others = [setting.images[i] for i in order[:OTHERS]]
    pool: list[Mistake] = []
    for i in order[OTHERS:]:
        found = setting.detector.detect(setting.images[i], min_score=-np.inf)
        pool += [Mistake(setting.images[i], box) for box in found.boxes]
        if len(pool) > 2 * n:  # in images of random order
            break
    return others, [pool[i] for i in rng.permutation(len(pool))[:n]]


def corrections(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """Our own: one call of `learn` for each."""
    corrected = detector.copy()
    for mistake in mistakes:
        corrected.learn(mistake.image, mistake.box[None], False)
    return corrected


def weights(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """The rule of earlier versions: the windows that fired count as heavy samples, until they are gone."""
    base = detector.base
    single = max(1, round(SHARE * min(stage.statistics[1].n for stage in base.stages if stage.learns)))
    counts = Delta.empty(base.sizes)
    corrected = detector
    for mistake in mistakes:
        pyramid = Pyramid.from_image(mistake.image, base.window)
        for turn in range(ROUNDS):
            fired = scan_pyramid(corrected.cascade, pyramid)
            found = report(fired, offset=detector.box_offset)
            hits = np.flatnonzero(box_iou(mistake.box[None], found.boxes)[0] >= SAME)
            rows = np.flatnonzero(np.isin(found.group, hits))
            if not len(rows):
                break
            responses, _ = base.cascade.respond(pyramid.patches(fired.index.take(rows)))
            each = np.full(len(rows), max(1, GROWTH**turn * single // len(rows)), np.int64)
            counts = counts + count_responses(base, responses, np.zeros(len(rows), np.bool_), each)
            corrected = Detector(base, counts, detector.reporting)
    return corrected


def sgd(detector: Detector, mistakes: Sequence[Mistake]) -> Detector:
    """Hinge-loss steps on the same windows, each in the stage with its least margin, until they are rejected surely."""
    base = detector.base
    stages = list(detector.cascade.stages)
    for mistake in mistakes:
        pyramid = Pyramid.from_image(mistake.image, base.window)
        record = false_positive_record(
            base, detector.box_offset, pyramid, image_hash(mistake.image), mistake.box, np.empty((0, 4))
        )
        bits = record.unpacked(base.cascade.n_weak)
        least = np.argmin(base.cascade.margins(bits) / base.lengths, axis=1)
        for number in np.unique(least).tolist():
            length, run = float(base.lengths[number]), stages[number]
            x = bits[least == number][:, base.cascade.columns[number]].astype(np.float64)
            coef, threshold = run.coef.copy(), run.threshold
            for _ in range(200):
                late = x[x @ coef - threshold > -MARGIN * length]
                if not len(late):
                    break
                step = 0.05 * length / (1 + late.sum(axis=1).mean())
                coef, threshold = coef - step * late.mean(axis=0), threshold + step
            stages[number] = replace(run, coef=coef, threshold=threshold, rejection_thresholds=None)
    return _Fixed(detector, replace(detector.cascade, stages=tuple(stages)))


class _Fixed(Detector):
    """A detector with weights of another rule."""

    def __init__(self, detector: Detector, cascade: Cascade) -> None:
        super().__init__(DetectorBase(cascade.window, cascade.stages, cascade.min_sigma), None, detector.reporting)


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
        methods = {"corrections": corrections} if setting.detector.cascade.uses_channels else METHODS
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


def is_found(detector: Detector, mistake: Mistake, min_score: float = -np.inf) -> bool:
    found = detector.detect(mistake.image, min_score=min_score)
    return bool((box_iou(mistake.box[None], found.boxes) >= SAME).any())


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
    return Found(np.concatenate([np.empty(0), *wrong]), np.array(right)).counts(point)


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
    return {
        "images": len(large),
        "learn, milliseconds": _spread(learn),
        "rescan, milliseconds": _spread(rescan),
        "corrections": len(records),
        "derive all, seconds": round(derive, 3),
        "load, seconds": round(time.perf_counter() - begin, 3),
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


PARTS: dict[str, Callable[[Setting, argparse.Namespace], dict[str, Any]]] = {
    "false positives": false_positives,
    "misses": misses,
    "camera": camera,
    "cost": cost,
}

if __name__ == "__main__":
    main()
