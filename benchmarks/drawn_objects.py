"""Decision "Finished cascades are pruned".

Detectors of drawn objects, through the commands alone: `python -m benchmarks.drawn_objects`.

Vans (`whet.demo.drawn_vans`) and walkers are drawn into images of `negatives`; others of them, without the
object, are given as negatives. Train and evaluate. No image is in two of these sets. Prints JSON, with the seconds of
each command, start of the process included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from experiments.datasets import negative_images
from experiments.report import versions

from whet.arrays import Floats
from whet.demo.drawn_vans import OBJECTS, draw_set, object_drawn, scaled
from whet.io.annotations.formats import write_annotations

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["OBJECTS", "object_drawn"]

FEATURES = ("--features", "haar,lbp")
# Images: for training (about 200 objects), to try corrections on by hand, for evaluation, and without the object.
SIZES = {"train": 140, "more": 30, "test": 100, "empty": 300}


def draw_walker(body: ImageDraw, mask: ImageDraw, size: Floats, rng: np.random.Generator) -> None:
    """A person who walks, seen from the side."""
    skin, coat, trousers = (float(tone) for tone in rng.uniform((120, 20, 10), (230, 210, 160)))
    stride, lean = rng.uniform(0.05, 0.22), rng.uniform(-0.04, 0.04)
    hip, shoulder = (0.5, 0.55), (0.5 + lean, 0.22)
    broad = rng.uniform(0.16, 0.22)
    arm = rng.uniform(0.05, 0.25)
    parts: list[tuple[str, list[tuple[float, float]], float]] = [
        ("leg", [hip, (0.5 - stride, 0.78), (0.5 - stride - 0.05, 0.98)], trousers * 0.8),
        ("leg", [hip, (0.5 + stride, 0.76), (0.5 + stride * 0.8, 0.98)], trousers),
        ("arm", [shoulder, (0.5 - broad - arm * 0.5, 0.42), (0.5 - arm, 0.56)], coat * 0.85),
        ("arm", [shoulder, (0.5 + broad, 0.42), (0.5 + arm + 0.1, 0.52)], coat * 0.9),
    ]
    wide = {"leg": 0.16 * size[0], "arm": 0.1 * size[0]}
    for kind, points, tone in parts:
        for layer, fill in ((body, tone), (mask, 255.0)):
            layer.line(scaled(points, size), fill=round(fill), width=round(wide[kind]), joint="curve")
    trunk = [
        (shoulder[0] - broad, 0.2),
        (shoulder[0] + broad, 0.2),
        (hip[0] + broad * 0.8, 0.58),
        (hip[0] - broad * 0.8, 0.58),
    ]
    head = scaled([(shoulder[0] - 0.12, 0.01), (shoulder[0] + 0.12, 0.18)], size)
    for layer, fill, face in ((body, coat, skin), (mask, 255.0, 255.0)):
        layer.polygon(scaled(trunk, size), fill=round(fill))
        layer.ellipse(head, fill=round(face))


OBJECTS["walker"] = (draw_walker, 0.5)  # aspect ratio: width over height


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=sorted(OBJECTS), choices=sorted(OBJECTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    runs = [run(kind, seed) for kind in options.kinds for seed in options.seeds]
    print(json.dumps({"options": vars(options), "versions": versions(), "sizes": SIZES, "runs": runs}, indent=1))


def run(kind: str, seed: int) -> dict[str, Any]:
    """One kind of object, from drawing to the evaluation."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        drawn = draw(kind, seed, folder)
        train = command(
            folder, "train", "train.csv", "--negatives", "empty", "--seed", seed, "--out", "it.whet", *FEATURES
        )
        first = command(folder, "evaluate", "it.whet", "test.json")
    return {
        "kind": kind,
        "seed": seed,
        "drawn": drawn,
        "train": train,
        "evaluate": first,
    }


def draw(kind: str, seed: int, folder: Path) -> dict[str, int]:
    """Draw the sets; images without the object are linked to."""
    paths = negative_images()
    order = np.random.default_rng([seed, 11]).permutation(len(paths)).tolist()
    counts = {}
    for number, (name, n) in enumerate(SIZES.items()):
        chosen, order = [paths[i] for i in order[:n]], order[n:]
        if name == "empty":
            (folder / name).mkdir()
            for path in chosen:
                (folder / name / path.name).symlink_to(path)
            continue
        drawn = draw_set(kind, chosen, folder / f"{name}-images", 10 * seed + number)
        write_annotations(drawn, folder / f"{name}.{'json' if name == 'test' else 'csv'}")
        counts[name] = drawn.n_boxes
    return counts


def command(folder: Path, *arguments: object) -> dict[str, Any]:
    """What a command prints as JSON, and how long it took."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "whet", *map(str, arguments), "--json", "--quiet"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 5):
        raise SystemExit(f"whet {arguments[0]} failed: {done.stderr}")
    return {**json.loads(done.stdout), "wall seconds": round(time.perf_counter() - begun, 1)}


if __name__ == "__main__":
    main()
