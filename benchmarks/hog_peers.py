"""Peers of `few_examples` on histograms of oriented gradients: dlib's trainer and OpenCV's people detector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whet.io.annotations.annotation import AnnotatedImage
from whet.io.image_files import as_rgb

if TYPE_CHECKING:
    from benchmarks.few_examples import Method, Run, Trained

Floats = NDArray[np.float64]

# dlib's cells have 8 pixels: 80 x 80 is its default window, and 40 x 40 still has five cells a side.
LARGEST_WINDOW, SMALLEST_WINDOW = 80 * 80, 40 * 40
# Context on each side, as a share of the square root of the box area.
PADDING = 0.1
# dlib refuses boxes that its window cannot cover with an IoU of 0.5; these limits are tried one after the other.
SHAPE_LIMITS = (0.6, 0.7, 0.8)
# Smaller boxes, as a share of the window, are ignored: for one of them, dlib would double all images once more.
SMALLEST_SHARE = 0.8
FIRST_C, OTHER_C = 5.0, (1.0, 25.0)
LOWEST_SCORE = -1.0


def dlib_method() -> Method:
    """The HOG trainer of dlib; C is chosen by cross-validation in two folds of images if time allows."""
    import dlib

    from benchmarks.few_examples import Trained, core_time, in_fork
    from whet.evaluation.evaluation import evaluate_detections
    from whet.evaluation.runs import truths_of

    def train(images: Sequence[AnnotatedImage], run: Run, folder: Path, threads: int) -> Trained:
        begun = core_time()
        files = [_as_bitmap(image.path, folder / f"{i}.bmp") for i, image in enumerate(images)]
        boxes = np.concatenate([image.objects for image in images])
        window, upsampling = window_and_upsampling(boxes)
        least = SMALLEST_SHARE * window / 4**upsampling

        def seconds_left() -> float:
            return run.core_seconds - (core_time() - begun)

        def fit(C: float, part: Sequence[int], name: str) -> tuple[Any, int]:
            options = dlib.simple_object_detector_training_options()
            options.C, options.num_threads, options.detection_window_size = C, threads, window
            options.add_left_right_image_flips, options.upsample_limit = True, upsampling
            data = str(folder / f"{name}.xml")
            for limit in SHAPE_LIMITS:
                text = dataset_xml([files[i] for i in part], [images[i] for i in part], boxes, limit, least)
                Path(data).write_text(text, encoding="utf-8")
                try:
                    dlib.train_simple_object_detector(data, str(folder / name), options)
                    break
                except RuntimeError as error:
                    if "impossible" not in str(error).lower() or limit == SHAPE_LIMITS[-1]:
                        raise
            return loaded(name)

        def loaded(name: str) -> tuple[Any, int]:
            path = str(folder / name)
            return dlib.fhog_object_detector(path), dlib.simple_object_detector(path).upsampling_amount

        def detect_with(detector: Any, upsampling: int, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:  # noqa: ANN401
            found, scores, _ = detector.run(pixels, upsampling, LOWEST_SCORE)
            corners = [[one.left(), one.top(), one.right() + 1, one.bottom() + 1] for one in found]
            return unpadded(np.array(corners, np.float64).reshape(-1, 4)), np.array(scores, np.float64)

        def validated(C: float) -> float:
            order = np.random.default_rng([run.seed, 18]).permutation(len(images))
            found, truths = [], []
            for fold in (order[::2], order[1::2]):
                others = sorted(set(range(len(images))) - set(fold.tolist()))
                model = fit(C, others, "fold")
                found += [detect_with(*model, _pixels(files[i])) for i in fold]
                truths += [truths_of(images[i]) for i in fold]
            return evaluate_detections(found, truths).average_precision

        everything = range(len(images))
        chosen, model = FIRST_C, fit(FIRST_C, everything, "first")
        precision: dict[float, float] = {}
        has_folds = sum(len(image.objects) > 0 for image in images) >= 4
        is_limited = has_folds
        # A cross-validation costs about one training; with less time left than for all of them, C stays.
        if has_folds and seconds_left() > (2 + len(OTHER_C)) * (core_time() - begun):
            for C in (FIRST_C, *OTHER_C):
                value = in_fork(lambda C=C: validated(C), seconds_left())
                if value is None:
                    break
                precision[C] = value
            best = max(precision, key=precision.__getitem__, default=FIRST_C)
            is_limited = len(precision) < 1 + len(OTHER_C)
            if best != FIRST_C and in_fork(lambda: fit(best, everything, "best") and 0.0, seconds_left()) is not None:
                chosen, model = best, loaded("best")
            is_limited |= chosen != best
        settings = {"C": chosen, "window": window, "upsampling": model[1], "validated": precision}
        return Trained(lambda path: detect_with(*model, _rgb(path)), is_limited, settings)

    return train


def window_and_upsampling(boxes: Floats) -> tuple[int, int]:
    """Area of dlib's window, and how often images are doubled: once if small boxes do not fill the largest window.

    >>> window_and_upsampling(np.array([[0.0, 0, 200, 200]])), window_and_upsampling(np.array([[0.0, 0, 30, 30]]))
    ((6400, 0), (5184, 1))
    """
    small = float(np.quantile(_areas(padded_boxes(boxes)), 0.1))
    upsampling = int(small < LARGEST_WINDOW)
    return int(np.clip(small * 4**upsampling, SMALLEST_WINDOW, LARGEST_WINDOW)), upsampling


def _areas(boxes: Floats) -> Floats:
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))


def padded_boxes(boxes: Floats) -> Floats:
    """Boxes (n, 4) with context on all sides."""
    margin = PADDING * np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    return boxes + margin[:, None] * np.array([-1.0, -1.0, 1.0, 1.0])


def unpadded(boxes: Floats) -> Floats:
    """The boxes (n, 4) whose `padded_boxes` these are.

    >>> unpadded(padded_boxes(np.array([[10.0, 20, 70, 50]]))).round(6)
    array([[10., 20., 70., 50.]])
    """
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    # With a = sqrt(w h) of the box: (w + 2 p a)(h + 2 p a) = W H, where w = W - 2 p a and h = H - 2 p a.
    b = PADDING * (width + height)
    c = width * height
    p = 1 - 4 * PADDING**2
    root = (-b + np.sqrt(b**2 + p * c)) / p
    return boxes - PADDING * root[:, None] * np.array([-1.0, -1.0, 1.0, 1.0])


def shape_overlap(boxes: Floats, aspect: float) -> Floats:
    """IoU (n,) of each box with a box of that width over height, with the same centre and area.

    >>> shape_overlap(np.array([[0.0, 0, 10, 10], [0, 0, 20, 10]]), 1.0).round(3)
    array([1.   , 0.547])
    """
    ratio = np.sqrt((boxes[:, 2] - boxes[:, 0]) / (boxes[:, 3] - boxes[:, 1]) / aspect)
    shared = np.minimum(ratio, 1 / ratio)
    return np.asarray(shared / (2 - shared))


def dataset_xml(
    files: Sequence[Path], images: Sequence[AnnotatedImage], all_boxes: Floats, limit: float, least_area: float = 0.0
) -> str:
    """Data set file of dlib; boxes that are too small, or too far from the median shape, are ignored in training."""
    padded = padded_boxes(all_boxes)
    aspect = float(np.median((padded[:, 2] - padded[:, 0]) / (padded[:, 3] - padded[:, 1])))
    lines = ["<dataset><images>"]
    for file, image in zip(files, images, strict=True):
        lines.append(f"<image file={quoteattr(str(file))}>")
        shapes = padded_boxes(image.boxes)
        ignored = image.ignore | (shape_overlap(shapes, aspect) < limit) | (_areas(shapes) < least_area)
        for (x1, y1, x2, y2), ignore in zip(shapes.round().astype(int).tolist(), ignored.tolist(), strict=True):
            place = f"top='{y1}' left='{x1}' width='{x2 - x1}' height='{y2 - y1}'"
            lines.append(f"<box {place}{' ignore=' + repr('1') if ignore else ''}/>")
        lines.append("</image>")
    return "\n".join([*lines, "</images></dataset>"])


def opencv_people_method() -> Method:
    """OpenCV's people detector: trained on INRIA Person by its authors, with windows of 64 x 128."""
    import cv2

    from benchmarks.few_examples import Trained

    def train(images: Sequence[AnnotatedImage], run: Run, folder: Path, threads: int) -> Trained:  # noqa: ARG001
        hog = cv2.HOGDescriptor()
        hog.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
        cv2.setNumThreads(threads)

        def detect(path: Path) -> tuple[Floats, Floats]:
            pixels = cv2.cvtColor(_rgb(path), cv2.COLOR_RGB2BGR)
            windows, scores = hog.detectMultiScale(
                pixels, hitThreshold=-0.5, winStride=(8, 8), padding=(16, 16), scale=1.05, groupThreshold=0
            )
            boxes = np.array(windows, np.float64).reshape(-1, 4)
            boxes[:, 2:] += boxes[:, :2]
            return suppressed(people_in(boxes), np.array(scores, np.float64).ravel())

        return Trained(detect, False, {"scale": 1.05, "stride": 8})

    return train


# In a training window of 64 x 128, people are 96 pixels high; 0.33 is the median width over height of the train part.
PERSON_HEIGHT, PERSON_ASPECT = 96 / 128, 0.33


def people_in(windows: Floats) -> Floats:
    """Boxes (n, 4) of the people in the middle of windows.

    >>> people_in(np.array([[0.0, 0, 64, 128]])).round(1)
    array([[ 16.2,  16. ,  47.8, 112. ]])
    """
    centre = (windows[:, :2] + windows[:, 2:]) / 2
    height = PERSON_HEIGHT * (windows[:, 3] - windows[:, 1])
    half = np.stack([PERSON_ASPECT * height, height], axis=1) / 2
    return np.concatenate([centre - half, centre + half], axis=1)


def suppressed(boxes: Floats, scores: Floats, iou: float = 0.5) -> tuple[Floats, Floats]:
    """Non-maximum suppression: each box goes that overlaps one with a higher score.

    >>> suppressed(np.array([[0.0, 0, 9, 9], [0, 0, 9, 8], [20, 0, 29, 9]]), np.array([1.0, 2.0, 3.0]))[1]
    array([3., 2.])
    """
    left, kept = np.argsort(-scores, kind="stable"), []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        low, high = np.maximum(boxes[left, :2], boxes[best, :2]), np.minimum(boxes[left, 2:], boxes[best, 2:])
        shared = np.clip(high - low, 0, None).prod(axis=1)
        left = left[shared <= iou * (areas[left] + areas[best] - shared)]
    return boxes[kept], scores[kept]


def _rgb(path: Path) -> NDArray[np.uint8]:
    return np.ascontiguousarray(as_rgb(path))


def _as_bitmap(path: Path, target: Path) -> Path:
    Image.fromarray(_rgb(path)).save(target)
    return target


def _pixels(path: Path) -> NDArray[np.uint8]:
    return np.array(Image.open(path))
