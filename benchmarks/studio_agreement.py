"""Decision "The cache agrees with a scan".

Whether the studio's cached boxes are those of a scan, after each of many corrections.

    python -m benchmarks.studio_agreement [--images 200] [--corrections 40] [--sets faces any people] [--hurried]

A user corrects a missed object and a false positive in turn, each in the next image that has one. After every
correction, a part of the images (another one each time) and the corrected image are scanned with the corrected
detector. Boxes above the minimum score that are in the cache and in the scan agree (IoU from 0.99 up). Then the
rescan of the studio runs to its end; in the page it begins a second after a correction. With `--hurried` it never runs,
as for a user who corrects without a pause.

- `faces`: the bundled detector on photographs of 640 x 480, every second one with three faces, of which one is turned
  by 20 to 45 degrees: these are the misses.
- `any`: the same detector on the images of `benchmarks.studio`, with its corrections: every third detection below the
  minimum score is called a missed object, whatever it is.
- `people`: a channel detector that is trained on ten boxes (64 trees) on images as a camera gives them; needs
  `$WHET_DATA/objects`.

Prints JSON: for each set and kind of the last correction the states, the boxes of all of them, the share that
agrees, and that of the worst state; the windows that are kept, their memory, and milliseconds (median and 95 %) from
a label to its effect on all images.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray
from PIL import Image

import whet
from benchmarks.measuring import VGA
from benchmarks.studio import Pixels, images, wrong_boxes
from benchmarks.studio_page import SETTINGS, trained
from benchmarks.studio_pools import parts_of, pool_of
from whet.corrections.box_windows import SAME
from whet.detector.detector import Detector
from whet.errors import BoxError
from whet.images.boxes import box_iou
from whet.images.detections import Detections
from whet.io.image_files import as_rgb
from whet.web.labelling import Labeller
from whet.web.studio import Rescan
from whet.web.workspace import Workspace

NAMES = ("faces", "any", "people")
# The face in a photograph of `faces_lfw`, as shares of its sides, and by how many degrees the third of an image is
# turned.
FACE = np.array([0.12, 0.10, 0.89, 0.96])
TURNED = (20.0, 45.0)
# Boxes and trees of the detector of people.
BOXES, TREES = 10, 64


@dataclass(frozen=True, eq=False)
class Scene:
    """An image and its objects (n, 4)."""

    pixels: Pixels
    truth: NDArray[np.float64]


def faces(n: int, data: Path) -> Iterator[Scene]:
    """Landscapes, every second one with two upright faces and one that is turned."""
    rng = np.random.default_rng(0)
    places = sorted((data / "negatives").rglob("*.jpg"))
    people = sorted((data / "faces_lfw").glob("*.jpg"))
    for i in range(n):
        with Image.open(places[i % len(places)]) as opened:
            image = opened.convert("RGB").resize(VGA[::-1])
        boxes = []
        for j in range(3 * (i % 2)):
            side = int(rng.integers(70, 160))
            left, top = int(rng.integers(0, VGA[1] - side)), int(rng.integers(0, VGA[0] - side))
            angle = float(rng.uniform(*TURNED) * rng.choice([-1, 1])) if j == 2 else 0.0
            with Image.open(people[(3 * i + j) % len(people)]) as face:
                turned = face.convert("RGB").resize((side, side)).rotate(angle, Image.Resampling.BICUBIC)
            mask = Image.new("L", (side, side), 255).rotate(angle)
            image.paste(turned, (left, top), mask)
            boxes.append(FACE * side + [left, top, left, top])
        yield Scene(np.asarray(image), np.array(boxes).reshape(-1, 4))


def people(n: int, folder: Path) -> tuple[Detector, list[Scene]]:
    """A weak detector of people, and images of a camera."""
    SETTINGS["trees"] = TREES
    parts = parts_of("inria_person", BOXES, 0, 0)
    frames = pool_of("camera", parts, n, folder / "frames", 0)
    return trained(parts.start, folder), [Scene(as_rgb(frame.path), frame.boxes) for frame in frames]


def corrections(
    workspace: Workspace, keys: Sequence[str], scenes: Sequence[Scene]
) -> Iterator[tuple[int, list[float], bool]]:
    """What a user corrects next: a missed object and a false positive in turn, as long as there are any of one kind."""
    left = {kind: list(range(len(keys))) for kind in (True, False)}
    for is_object in cycle((True, False)):
        if not any(left.values()):
            return
        while left[is_object]:
            i = left[is_object].pop(0)
            sides = scenes[i].truth, workspace.shown(keys[i]).boxes
            wrong, right = sides if is_object else sides[::-1]
            free = wrong[~(box_iou(wrong, right) >= SAME).any(axis=1)]
            if len(free):
                yield i, free[-1].tolist(), is_object
                break


Steps = Callable[[Workspace, Sequence[str], Sequence[Scene]], Iterable[tuple[int, list[float], bool]]]


def measured(
    detector: Detector, scenes: Sequence[Scene], steps: Steps, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """The agreement of cached boxes with scans after each of some corrections, in a share of the images each."""
    states: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    with Workspace.open(folder / "bench.studio", detector, name="bench") as workspace:
        keys = [workspace.add_image(scene.pixels, f"{i}.png").id for i, scene in enumerate(scenes)]
        for key in keys:
            workspace.detections(key)
        labeller, rescan, number, seconds = Labeller(workspace), Rescan(workspace, []), 0, []
        for i, box, is_object in steps(workspace, keys, scenes):
            if number == options.corrections:
                break
            begun = time.perf_counter()
            try:
                labeller.label(keys[i], [box], is_object)
            except BoxError:  # a place without contrast
                continue
            number += 1
            seconds.append(time.perf_counter() - begun)
            ids, lowest, same, every = workspace.record_ids(), workspace.min_score, 0, 0
            for j in sorted({i, *range(number % options.share, len(keys), options.share)}):
                scanned = workspace.detector.detect(scenes[j].pixels, min_score=lowest)
                cached = workspace.cache.detections(keys[j], ids).with_min_score(lowest)
                pair = agreement(cached, scanned)
                same, every = same + pair[0], every + pair[1]
            states[is_object].append((same, every))
            while not options.hurried and rescan.step():
                pass
        kinds = {"missed": states[True], "false_positive": states[False], "all": states[True] + states[False]}
        return {name: summarised(rows) for name, rows in kinds.items()} | {
            "windows": workspace.cache.n_windows,
            "megabytes": round(workspace.cache.n_bytes / 1e6, 1),
            "label_ms": [round(1e3 * float(np.quantile(seconds, share)), 1) for share in (0.5, 0.95)],
        }


def agreement(cached: Detections, scanned: Detections) -> tuple[int, int]:
    """How many boxes are the same in both, but for a hundredth, and how many there are."""
    same = int((box_iou(cached.boxes, scanned.boxes) >= 0.99).any(axis=1).sum())
    return same, len(cached) + len(scanned) - same


def summarised(states: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Boxes that agree in some states, and the share in the worst one."""
    same, every = (sum(row[side] for row in states) for side in (0, 1))
    shares = [one / both for one, both in states if both]
    return {
        "states": len(states),
        "boxes": every,
        "same": same,
        "agreement": round(same / max(every, 1), 5),
        "worst_state": round(min(shares, default=1.0), 5),
        "states_that_agree": sum(one == both for one, both in states),
    }


def made(name: str, options: argparse.Namespace, folder: Path) -> tuple[Detector, list[Scene], Steps]:
    """A detector, its images, and what is corrected."""
    data = Path(os.environ["WHET_DATA"])
    if name == "people":
        return *people(options.images, folder), corrections
    detector = whet.load("face")
    if name == "faces":
        return detector, list(faces(options.images, data)), corrections
    pixels = images(options.images, data)
    steps = wrong_boxes(detector, pixels, options.corrections)
    return detector, [Scene(each, np.empty((0, 4))) for each in pixels], lambda *_: steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--corrections", type=int, default=40)
    parser.add_argument("--share", type=int, default=7, help="scan one image of this number after each correction")
    parser.add_argument("--sets", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--hurried", action="store_true", help="no rescan between corrections")
    options = parser.parse_args()
    report: dict[str, Any] = {"options": vars(options), "versions": versions()}
    for name in options.sets:
        with tempfile.TemporaryDirectory() as place:
            detector, scenes, steps = made(name, options, Path(place))
            report[name] = measured(detector, scenes, steps, Path(place), options)
        print(f"{name}: {json.dumps(report[name])}", file=sys.stderr)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
