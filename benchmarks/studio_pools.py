"""Images that the user of `studio_page` and `studio_agreement` reviews: a data set as given, or as of a camera.

People collect a data set for its objects: nearly every image has some, and no two are alike. A camera that stays where
it is takes images one after another: most have no object, and many are near-duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from benchmarks.few_examples import choose_images, train_part
from whet.io.annotations.annotation import AnnotatedImage

POOLS = ("given", "camera")
# Sets of animals: hardly any of the other sets' objects is in their images. Kangaroos are with people.
ELSEWHERE = ("raccoon", "cats")
# Share of the scenes of a camera that have an object, by default, and frames of a scene, 1 to MOST_FRAMES.
WITH_OBJECT, MOST_FRAMES = 0.2, 4
# Largest shift of a frame, as a share of the image's sides, and largest change of its brightness.
SHIFT, BRIGHTNESS = 0.01, 0.1


@dataclass(frozen=True, eq=False)
class Parts:
    """Images of the weak start, images to review, and other images to evaluate on."""

    start: Sequence[AnnotatedImage]
    pool: Sequence[AnnotatedImage]
    held_out: Sequence[AnnotatedImage]


def parts_of(name: str, n_boxes: int, n_held_out: int, seed: int) -> Parts:
    """Divide the train part of a set at random. The start is images with `n_boxes` boxes together."""
    images = train_part(name).images
    start = choose_images([image for image in images if len(image)], n_boxes, seed)
    used = {image.path for image in start}
    rest = [image for image in images if image.path not in used]
    order = np.random.default_rng([seed, 1]).permutation(len(rest)).tolist()
    return Parts(start, [rest[i] for i in order[n_held_out:]], [rest[i] for i in order[:n_held_out]])


def pool_of(
    kind: str, parts: Parts, n: int, folder: Path, seed: int, share: float = WITH_OBJECT
) -> list[AnnotatedImage]:
    """`n` images to review, as given or as a camera gives them."""
    return list(parts.pool[:n]) if kind == "given" else camera_pool(parts.pool, n, folder, seed, share)


def camera_pool(
    images: Sequence[AnnotatedImage], n: int, folder: Path, seed: int, share: float
) -> list[AnnotatedImage]:
    """Images as a camera takes them: `n` frames of scenes, written to a folder.

    A share of the scenes are images with an object. The others are images of the set without one; where these are not
    enough, images of `ELSEWHERE`. A scene has up to four frames, which differ in place and brightness a little.
    """
    folder.mkdir()
    rng = np.random.default_rng([seed, 3])
    elsewhere = [AnnotatedImage(image.path, image.shape) for name in ELSEWHERE for image in train_part(name).images]
    kinds = elsewhere, [image for image in images if not len(image)], [image for image in images if len(image)]
    shuffled = [[kind[i] for i in rng.permutation(len(kind))] for kind in kinds]
    empty, with_object = shuffled[0] + shuffled[1], shuffled[2]  # the last is taken first
    frames: list[AnnotatedImage] = []
    while len(frames) < n:
        side = with_object if rng.random() < share else empty
        if not side:
            raise SystemExit(f"{n} frames need more images; expected at most {len(frames)}")
        scene = side.pop()
        for _ in range(min(int(rng.integers(1, MOST_FRAMES + 1)), n - len(frames))):
            frames.append(frame_of(scene, folder / f"{len(frames):04d}.png", rng))
    return frames


def frame_of(scene: AnnotatedImage, path: Path, rng: np.random.Generator) -> AnnotatedImage:
    """One frame of a scene: cut at another place, darker or brighter."""
    height, width = scene.shape
    most = np.array([width, height]) * SHIFT
    left, top = (int(value) for value in rng.integers(0, most.astype(int) + 1))
    right, bottom = width - int(most[0]) + left, height - int(most[1]) + top
    with Image.open(scene.path) as file:
        cut = file.convert("RGB").crop((left, top, right, bottom))
    ImageEnhance.Brightness(cut).enhance(1 + rng.uniform(-BRIGHTNESS, BRIGHTNESS)).save(path, compress_level=1)
    shape = (bottom - top, right - left)
    boxes = np.clip(scene.boxes - [left, top, left, top], 0, [shape[1], shape[0]] * 2)
    return replace(scene, path=path, shape=shape, boxes=boxes, others=np.empty((0, 4)))


def summary(rows: Sequence[dict[str, Any]], measure: str) -> dict[str, Any]:
    """For each pool the start, the mean curve of each order over seeds, and the clicks that the queue needs.

    `spread` is the standard deviation over the seeds. Rows of one seed, pool and order are in the order of clicks. The
    queue is compared with the last recall of the random order.
    """
    table: dict[str, Any] = {}
    for kind in dict.fromkeys(row["pool"] for row in rows):
        here = [row for row in rows if row["pool"] == kind]
        start = float(np.mean([row["start"] for row in here]))
        curves = {}
        for order in dict.fromkeys(row["order"] for row in here):
            seeds = dict.fromkeys(row["seed"] for row in here)
            runs = [[row for row in here if (row["seed"], row["order"]) == (seed, order)] for seed in seeds]
            curves[order] = [
                {name: round(float(np.mean([row[name] for row in at])), 4) for name in ("clicks", "boxes", measure)}
                | {"spread": round(float(np.std([row[measure] for row in at], ddof=int(len(at) > 1))), 4)}
                for at in zip(*runs, strict=False)
            ]
        table[kind] = {"start": round(start, 4), **curves}
        if {"queue", "random"} <= set(curves):
            aim = curves["random"][-1]
            curve = [(row["clicks"], row[measure]) for row in curves["queue"]]
            needed = clicks_for(aim[measure], start, curve)
            table[kind]["clicks for the same recall"] = {"random": aim["clicks"], "queue": needed}
    return table


def clicks_for(recall: float, start: float, curve: Sequence[tuple[float, float]]) -> float | None:
    """Clicks at which a curve (clicks, recall) that begins at `start` reaches a recall; None if it does not.

    >>> clicks_for(0.75, 0.5, [(40, 0.7), (80, 0.8)]), clicks_for(0.9, 0.5, [(40, 0.7)])
    (60.0, None)
    """
    before = (0.0, start)
    for point in curve:
        if point[1] >= recall:
            share = (recall - before[1]) / (point[1] - before[1]) if point[1] > before[1] else 0.0
            return round(before[0] + max(share, 0.0) * (point[0] - before[0]), 1)
        before = point
    return None
