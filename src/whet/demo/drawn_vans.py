"""A detector trained on drawn vans, evaluated and corrected."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whet.arrays import Floats, Pixels
from whet.detector.detector import Detector
from whet.errors import MissingExtraError
from whet.evaluation.runs import EvaluationRun, evaluate
from whet.images.boxes import box_iou
from whet.io.annotations.annotation import AnnotatedImage, Annotations, Examples
from whet.io.annotations.formats import read_annotations, write_annotations
from whet.io.files import prepared_folder
from whet.io.image_files import as_grey, read_grey
from whet.plots.drawing import draw_evaluation, save_image, side_by_side
from whet.training.config import TrainingConfig
from whet.training.learning import LearningInput, learn_from
from whet.training.preparation import prepare
from whet.training.train import train, train_prepared

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw


FINER = 4  # drawn this much larger, then reduced, for smooth edges


def draw_set(
    kind: str, backgrounds: Sequence[Path], out: Path, seed: int = 0, sizes: tuple[int, int] = (24, 160)
) -> Annotations:
    """Draw one or two objects into each of these images, save them in a folder, and return their boxes.

    `kind` is a key of `OBJECTS`. `sizes` is the range of the longer side in pixels.
    """
    rng = np.random.default_rng(seed)
    out.mkdir(parents=True, exist_ok=True)
    images = []
    for number, path in enumerate(backgrounds):
        grey, boxes = read_grey(path).astype(np.float64), np.empty((0, 4))
        for _ in range(int(rng.integers(1, 3))):
            grey, boxes = _with_object(grey, boxes, kind, sizes, rng)
        drawn = save_image(grey.clip(0, 255).astype(np.uint8), out / f"{kind}{number:04d}.png")
        shape = grey.shape[0], grey.shape[1]
        images.append(AnnotatedImage(drawn, shape, boxes, (kind,) * len(boxes), np.zeros(len(boxes), np.bool_)))
    return Annotations(tuple(images), (kind,))


def _with_object(
    grey: Floats, boxes: Floats, kind: str, sizes: tuple[int, int], rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """One more object, where there is room for it."""
    longer = float(np.exp(rng.uniform(*np.log(sizes))))
    patch, mask = object_drawn(kind, longer, rng)
    height, width = patch.shape
    for _ in range(20):
        if height >= grey.shape[0] or width >= grey.shape[1]:
            break
        y, x = (int(rng.integers(0, room - side)) for room, side in zip(grey.shape, patch.shape, strict=True))
        box = np.array([x, y, x + width, y + height], dtype=np.float64)
        if not ((box[:2] < boxes[:, 2:]) & (boxes[:, :2] < box[2:])).all(axis=1).any():
            under = grey[y : y + height, x : x + width]
            grey[y : y + height, x : x + width] = under * (1 - mask) + patch * mask
            return grey, np.concatenate([boxes, box[None]])
    return grey, boxes


def object_drawn(kind: str, longer: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw an object with this longer side in pixels: grey values and mask, both (height, width).

    >>> patch, mask = object_drawn("van", 90.0, np.random.default_rng(0))
    >>> patch.shape[1] > 1.8 * patch.shape[0], bool(0 < mask.mean() < 1)
    (True, True)
    """
    from PIL import Image, ImageDraw

    draw, aspect = OBJECTS[kind]
    ratio = aspect * float(np.exp(rng.normal(0, 0.07)))
    width, height = (longer, longer / ratio) if ratio > 1 else (longer * ratio, longer)
    size = max(4, round(width)), max(4, round(height))
    large = FINER * size[0], FINER * size[1]
    body, mask = Image.new("L", large, 0), Image.new("L", large, 0)
    draw(ImageDraw.Draw(body), ImageDraw.Draw(mask), np.array(large, dtype=np.float64), rng)
    mirrored = rng.random() < 0.5
    layers = []
    for layer in (body, mask):
        turned = layer.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else layer
        layers.append(np.asarray(turned.resize(size, Image.Resampling.BOX), dtype=np.float64))
    return _photographed(layers[0], rng), layers[1] / 255


def _photographed(patch: Floats, rng: np.random.Generator) -> Floats:
    """Add light from one side, contrast and noise."""
    height, width = patch.shape
    slope = (
        rng.uniform(-40, 40) * np.linspace(-1, 1, width)[None]
        + rng.uniform(-30, 30) * np.linspace(-1, 1, height)[:, None]
    )
    lit = (patch - 128) * rng.uniform(0.5, 1.1) + 128 + rng.uniform(-25, 25) + slope
    return np.asarray(lit + rng.normal(0, rng.uniform(1, 8), patch.shape))


def _van(body: ImageDraw, mask: ImageDraw, size: Floats, rng: np.random.Generator) -> None:
    paint, glass, tyre = float(rng.uniform(90, 235)), float(rng.uniform(10, 70)), float(rng.uniform(0, 45))
    nose, roof, floor = rng.uniform(0.16, 0.28), rng.uniform(0.38, 0.5), rng.uniform(0.8, 0.86)
    outline = [
        (0.01, 0.04),
        (1 - nose, 0.04),
        (0.99 - nose * 0.35, roof),
        (0.99, roof + 0.08),
        (0.99, floor),
        (0.01, floor),
    ]
    for layer, tone in ((body, paint), (mask, 255.0)):
        layer.polygon(scaled(outline, size), fill=round(tone))
    n = int(rng.integers(2, 5))
    edges = np.linspace(0.05, 0.95 - nose, n + 1)
    for left, right in pairwise(edges.tolist()):
        body.rectangle(scaled([(left, 0.12), (right - 0.02, roof - 0.02)], size), fill=round(glass))
    body.line(scaled([(0.01, floor - 0.12), (0.99, floor - 0.12)], size), fill=round(paint * 0.6), width=FINER)
    radius = rng.uniform(0.15, 0.19) * size[1]
    for centre in (rng.uniform(0.16, 0.24), rng.uniform(0.74, 0.82)):
        x, y = centre * size[0], size[1] - radius
        for layer, tone in ((body, tyre), (mask, 255.0)):
            layer.ellipse((x - radius, y - radius, x + radius, y + radius - 1), fill=round(tone))
        body.ellipse(
            (x - radius * 0.45, y - radius * 0.45, x + radius * 0.45, y + radius * 0.45), fill=round(paint * 0.8)
        )


def scaled(points: Sequence[tuple[float, float]], size: Floats) -> list[tuple[float, float]]:
    """Points of the unit square in an image of a size (width, height)."""
    return [(float(x * size[0]), float(y * size[1])) for x, y in points]


# Drawing function and aspect ratio (width over height) of each kind.
OBJECTS: dict[str, tuple[Callable[..., None], float]] = {"van": (_van, 2.25)}


TRAIN = ("astronaut", "brick", "camera", "coffee", "coins", "grass", "gravel", "page", "text", "rocket", "clock")
TEST = ("chelsea", "stereo_motorcycle", "moon", "retina")
SHAPE = (240, 320)
SIZES = (40, 120)  # of vans, in pixels
N_TRAIN, N_EMPTY, N_TEST = 70, 60, 40
# Vans of a first training, at least, whose detector learns the others, its trees and its negatives.
N_FIRST, TREES, NEGATIVES = 12, 64, 500
# An operating point with false positives to correct.
POINT = "one false positive per image"


def train_on_vans(out: Path, seed: int, progress: Callable[[float], None]) -> tuple[str, list[Path]]:
    """Draw, train, evaluate, correct and evaluate again; saves images, boxes and the detector in a folder.

    Returns a summary, and the files of figures.
    """
    folder = prepared_folder(out / "vans")
    rng = np.random.default_rng(seed)
    backgrounds = _crops(TRAIN, N_TRAIN, folder / "backgrounds", rng)
    drawn = draw_set("van", backgrounds, folder / "images", seed, sizes=SIZES)
    write_annotations(drawn, folder / "vans.csv", "csv", replace=True)
    _crops(TRAIN, N_EMPTY, folder / "empty", rng)
    backgrounds = _crops(TEST, N_TEST, folder / "test-backgrounds", rng)
    test = draw_set("van", backgrounds, folder / "test", seed + 1, sizes=SIZES)
    write_annotations(test, folder / "test.csv", "csv", replace=True)
    annotations, empty = str(folder / "vans.csv"), (str(folder / "empty"),)
    config = TrainingConfig(annotations, empty, features="haar,lbp", max_stages=8, negatives_per_stage=1500, ridge=20.0)
    prepared = prepare(config)
    begun = time.perf_counter()
    trained = train_prepared(prepared, lambda event: progress(min(0.9, (event.stage + 1) / (config.max_stages + 1))))
    seconds = time.perf_counter() - begun
    trained.detector.save(folder / "vans.whet")
    rows, files = _corrected(trained.detector, test, folder)
    progress(1.0)
    what = f"trained a van detector on {drawn.n_boxes} boxes"
    rows.insert(0, (what, f"{trained.result.n_stages} stages in {seconds:.0f} s"))
    return "\n".join(f"{what:<50}  {value}" for what, value in rows), files


def learn_more_vans(out: Path, seed: int, progress: Callable[[float], None]) -> str:
    """Train on a few of the vans that `train_on_vans` drew, learn the others, and evaluate; returns a summary."""
    folder = out / "vans"
    drawn, test = (read_annotations(folder / name) for name in ("vans.csv", "test.csv"))
    n = int(np.searchsorted(np.cumsum([len(image.objects) for image in drawn.images]), N_FIRST)) + 1
    first, others = drawn.images[:n], drawn.images[n:]
    write_annotations(replace(drawn, images=first), folder / "first.csv", "csv", replace=True)
    detector = train(folder / "first.csv", seed=seed, shapes=1, trees=TREES, negatives_per_round=NEGATIVES)
    progress(0.5)
    learned = learn_from(detector, LearningInput(Examples(others))).detector
    again = learned.copy()
    begun = time.perf_counter()
    again.refit()
    seconds = time.perf_counter() - begun
    again.save(folder / "vans-learned.whet")
    rows = [
        (f"trained on {sum(len(i.objects) for i in first)} vans, average precision on other photographs", detector),
        (f"{sum(len(i.objects) for i in others)} more vans learned: remembered at once", learned),
        (f"made again from samples in {seconds:.0f} s, without the first images", again),
    ]
    lines = []
    for number, (what, made) in enumerate(rows, start=1):
        run = evaluate(made, test.images, min_score=-np.inf)
        lines.append(f"{what:<62}  {run.evaluation.average_precision:.3f}")
        progress(0.5 + number / 6)
    return "\n".join(lines)


def _corrected(detector: Detector, test: Annotations, folder: Path) -> tuple[list[tuple[str, str]], list[Path]]:
    """Evaluate, correct the worst false positive or else a miss, and evaluate again: lines, and a figure."""
    # A number, not the name of the point, which follows what is learned: both evaluations use the same score.
    threshold = detector.operating_points.get(POINT, -np.inf)
    before = evaluate(detector, test.images, min_score=threshold)
    false_positives = before.evaluation.worst_false_positives(threshold)
    misses = before.evaluation.worst_misses(threshold)
    rows = [(f"  at {POINT}, other photographs", _counts(before))]
    if not false_positives and not misses:
        return rows, []
    mistake = false_positives[0] if false_positives else misses[-1]
    path = before.paths[mistake.image]
    detector.learn(path, mistake.box[None], not false_positives, min_score=threshold)
    detector.save(folder / "vans-corrected.whet")
    after = evaluate(detector, test.images, min_score=threshold)
    is_detected = bool((box_iou(mistake.box[None], detector.detect(path, min_score=threshold).boxes) >= 0.5).any())
    if false_positives:
        correction = f"worst false positive corrected: {'STILL DETECTED' if is_detected else 'gone'}"
    else:
        correction = f"missed van corrected: {'found' if is_detected else 'STILL MISSED'}"
    runs = (run.evaluation.images[mistake.image] for run in (before, after))
    sides = [draw_evaluation(path, result, threshold) for result in runs]
    learned = f"after: 1 {'false positive' if false_positives else 'missed van'} learned"
    file = save_image(side_by_side(sides, ["before", learned]), folder.parent / "vans.png")
    return [*rows, (f"  {correction}", _counts(after))], [file]


def _counts(run: EvaluationRun) -> str:
    return f"{int(run.found.sum())} of {int(run.truths.sum())} vans, {run.n_false_positives} false positives"


def _crops(names: Sequence[str], n: int, folder: Path, rng: np.random.Generator) -> list[Path]:
    """Cut random parts of photographs, at several scales, and save them in a folder."""
    from PIL import Image

    prepared_folder(folder)
    photographs = [_photograph(name) for name in names]
    paths = []
    for number in range(n):
        grey = photographs[number % len(photographs)]
        largest = min(grey.shape[0] / SHAPE[0], grey.shape[1] / SHAPE[1])
        scale = largest * rng.uniform(0.5, 1.0)
        height, width = round(SHAPE[0] * scale), round(SHAPE[1] * scale)
        y, x = (int(rng.integers(0, room - side + 1)) for room, side in zip(grey.shape, (height, width), strict=True))
        cut = Image.fromarray(grey[y : y + height, x : x + width]).resize(SHAPE[::-1], Image.Resampling.BILINEAR)
        paths.append(folder / f"{number:03d}.png")
        save_image(np.asarray(cut), paths[-1])
    return paths


def _photograph(name: str) -> Pixels:
    try:
        from skimage import data
    except ImportError as error:
        raise MissingExtraError("scikit-image", "demo") from error
    image = getattr(data, name)()
    return as_grey(image[0] if isinstance(image, tuple) else image)
