"""Decision "Exported files decide alike".

Exported files in OpenCV 4, in OpenCV 5 and in whet: `python -m benchmarks.exported_in_opencv5 OTHER/bin/python`.

Prints JSON. The other Python has `opencv-contrib-python-headless` 5; OpenCV 4 is that of this environment. Small
detectors are trained and exported as in `benchmarks.soft_export` (a hard Haar cascade, an LBP cascade, a soft Haar
cascade with all of its exits and with some). All raw windows (minNeighbors = 0) and grouped boxes in images with faces
and without have to be the same in the three, and on patches the file has to decide as the detector it was made of.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray
from scripts.train_face import WINDOW, split_faces, split_images

from benchmarks import opencv_windows
from benchmarks.measuring import cascade_model
from benchmarks.opencv_agreement import chosen
from benchmarks.soft_export import trained
from whet.images.pyramid import Pyramid
from whet.io.image_files import read_grey
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.pools import BlockPatternPool
from whet.opencv import CascadeClassifier, write_opencv
from whet.opencv.xml_writer import Exported

# A window of any size of an image, taken at random: nearly all are rejected, as nearly all of a scan are.
WINDOWS_PER_IMAGE = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="of an environment with OpenCV 5")
    parser.add_argument("--images", type=int, default=24, help="half with faces, half without")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    images = chosen(options.images)
    patches = held_out_patches(options.seed)
    with TemporaryDirectory() as folder:
        files = exported(Path(folder), options.seed)
        arrays: dict[str, Any] = {f"{n:03}": one for n, one in enumerate(images)}
        np.savez(f"{folder}/images.npz", patches=patches, **arrays)
        call = [opencv_windows.__file__, f"{folder}/images.npz", *(str(path) for path in files)]
        four, five = (opencv(python, call) for python in (sys.executable, options.python))
        results = [
            compared(path, cascade, written, (four["files"][str(path)], five["files"][str(path)]), images, patches)
            for path, (cascade, written) in files.items()
        ]
    report = {
        "options": {"images": options.images, "seed": options.seed},
        "versions": versions(),
        "opencv": [four["opencv"], five["opencv"]],
        "patches": len(patches),
        "files": results,
    }
    print(json.dumps(report, indent=1))


def held_out_patches(seed: int) -> NDArray[np.uint8]:
    """Faces that were held out, and windows of images that were held out."""
    rng = np.random.default_rng(seed)
    height, width = WINDOW
    cut = []
    for path in split_images()[1][:10]:
        levels = Pyramid.from_image(read_grey(path), WINDOW).levels
        for number in rng.integers(0, len(levels), WINDOWS_PER_IMAGE):
            image = levels[number].image
            y, x = (int(rng.integers(0, n - m + 1)) for n, m in zip(image.shape, WINDOW, strict=True))
            cut.append(image[y : y + height, x : x + width])
    return np.concatenate([split_faces()[1], np.array(cut)])


def exported(folder: Path, seed: int) -> dict[Path, tuple[Cascade, Exported]]:
    """Files, the cascades that they were made of, and the reports of the export."""
    made: dict[Path, tuple[Cascade, Exported]] = {}
    kinds = {"hard Haar": (HaarPool, False), "LBP": (BlockPatternPool, False), "soft Haar": (HaarPool, True)}
    for name, (family, soft) in kinds.items():
        cascade = cascade_model(trained(family.from_window(WINDOW), soft=soft, seed=seed)).cascade
        for early_exits in ("doubling", "all") if soft else ("doubling",):
            path = folder / (f"{name}, {early_exits}.xml" if soft else f"{name}.xml")
            made[path] = cascade, write_opencv(cascade, path, early_exits=early_exits)
    return made


def opencv(python: str, call: list[str]) -> dict[str, Any]:
    """What the OpenCV of an environment finds."""
    done = subprocess.run([python, *call], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compared(
    path: Path,
    cascade: Cascade,
    written: Exported,
    found: tuple[dict[str, Any], dict[str, Any]],
    images: list[NDArray[np.uint8]],
    patches: NDArray[np.uint8],
) -> dict[str, Any]:
    """How many windows each accepts, and whether they are the same ones."""
    file = opencv_windows.report(CascadeClassifier(path), images, patches)
    accepted = np.flatnonzero(cascade.accepts(patches)).tolist()
    four, five = found
    return {
        "file": path.stem,
        "stages": written.stages,
        "stumps": written.stumps,
        "differences": written.differences,
        "images": len(images),
        "windows": {name: sum(map(len, one["windows"])) for name, one in named(four, five, file)},
        "same windows": four["windows"] == five["windows"] == file["windows"],
        "boxes": sum(map(len, four["grouped"])),
        "same boxes": four["grouped"] == five["grouped"] == file["grouped"],
        "patches accepted": {name: len(one["accepted"]) for name, one in named(four, five, file)}
        | {"detector": len(accepted)},
        "patches classified as by the detector": len(patches) - len(set(four["accepted"]) ^ set(accepted)),
    }


def named(four: Any, five: Any, file: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - JSON
    return [("OpenCV 4", four), ("OpenCV 5", five), ("whet.opencv", file)]


if __name__ == "__main__":
    main()
