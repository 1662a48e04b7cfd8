"""Demo: correct false positives of the bundled face detector in a photograph and in a drawn street."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detections import Detections
from whet.detector.detector import Detector, load
from whet.detector.records import Record
from whet.errors import MissingExtraError
from whet.io.images import as_rgb
from whet.plots.drawing import FALSE_POSITIVE, draw_boxes, draw_detections, save_image, score_text

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw


SHAPE = (320, 480)


def drawn_scene(seed: int = 0) -> NDArray[np.uint8]:
    """A house, a car and a wall socket that resemble faces, in grey (320, 480).

    >>> drawn_scene().shape
    (320, 480)
    """
    from PIL import Image, ImageDraw, ImageFilter

    height, width = SHAPE
    image = Image.fromarray(np.repeat(np.linspace(200, 140, height).astype(np.uint8)[:, None], width, axis=1))
    pen = ImageDraw.Draw(image)
    _house(pen)
    _car(pen)
    _socket(pen)
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(1.5)), dtype=np.float64)
    return (blurred + np.random.default_rng(seed).normal(0, 4, SHAPE)).clip(0, 255).astype(np.uint8)


def _house(pen: ImageDraw) -> None:
    pen.rectangle((40, 90, 190, 260), fill=205)
    pen.polygon(((30, 90), (115, 30), (200, 90)), fill=95)
    for x in (62, 134):
        pen.rectangle((x, 120, x + 34, 150), fill=50)
        pen.line((x + 17, 120, x + 17, 150), fill=150, width=2)
    pen.rectangle((88, 205, 142, 228), fill=70)


def _car(pen: ImageDraw) -> None:
    pen.rounded_rectangle((250, 150, 440, 270), 30, fill=190)
    pen.rounded_rectangle((280, 110, 410, 165), 18, fill=80)
    for x in (290, 400):
        pen.ellipse((x - 20, 185, x + 20, 215), fill=50)
        pen.ellipse((x - 8, 193, x + 8, 205), fill=200)
    pen.rounded_rectangle((305, 232, 385, 250), 8, fill=60)


def _socket(pen: ImageDraw) -> None:
    pen.rounded_rectangle((300, 20, 370, 90), 12, fill=225)
    for x in (318, 352):
        pen.ellipse((x - 6, 42, x + 6, 56), fill=40)
    pen.rectangle((328, 68, 342, 74), fill=60)


GreyImage = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Correction:
    """An image and its detections before and after; those from number `wrong` on were corrected as false positives."""

    image: GreyImage
    before: Detections
    after: Detections
    wrong: int
    entries: list[Record]
    seconds_to_detect: float
    seconds_to_learn: float

    @property
    def is_gone(self) -> bool:
        """Whether the false positives are gone."""
        return not (box_iou(self.before.boxes[self.wrong :], self.after.boxes) >= 0.5).any()

    def drawn(self) -> GreyImage:
        """Before and after, side by side; what was called wrong in orange."""
        texts = [score_text(score) for score in self.before.scores]
        before = draw_boxes(self.image, self.before.boxes[: self.wrong], texts=texts[: self.wrong])
        before = draw_boxes(before, self.before.boxes[self.wrong :], FALSE_POSITIVE, texts=texts[self.wrong :])
        gap = np.full((len(before), 12, 3), 255, dtype=np.uint8)
        return np.concatenate([before, gap, draw_detections(self.image, self.after)], axis=1)

    def rows(self, name: str) -> list[tuple[str, str]]:
        """Lines for the terminal."""
        height, width = self.image.shape[:2]
        gone = "gone" if self.is_gone else "STILL DETECTED"
        n_wrong = len(self.before) - self.wrong
        return [
            (f"{name}, {width} x {height}", f"{len(self.before)} detections in {1e3 * self.seconds_to_detect:.0f} ms"),
            (
                f"  learned {n_wrong} false positive{'s' * (n_wrong != 1)}",
                f"{gone} after {1e3 * self.seconds_to_learn:.0f} ms",
            ),
            ("  remaining detections", f"{len(self.after)}"),
        ]


@dataclass(frozen=True, eq=False)
class FaceDemo:
    """Two corrected images, and whether unlearning both corrections restored the original detector."""

    photograph: Correction
    scene: Correction
    unlearning_is_exact: bool

    def summary(self) -> str:
        """Lines for the terminal."""
        rows = [*self.photograph.rows("photograph with one face"), *self.scene.rows("drawing without faces")]
        rows.append(("original detector after unlearning, byte for byte", "yes" if self.unlearning_is_exact else "NO"))
        return "\n".join(f"{what:<50}  {value}" for what, value in rows)


def astronaut() -> GreyImage:
    """scikit-image's photograph of Eileen Collins, by NASA, in colour (512, 512, 3)."""
    try:
        from skimage import data
    except ImportError as error:
        raise MissingExtraError("scikit-image", "demo") from error
    return as_rgb(data.astronaut())  # type: ignore[no-untyped-call]


def run() -> FaceDemo:
    """Detect, correct, detect again and unlearn."""
    photograph, detector = astronaut(), load("face")
    start = detector.to_bytes()
    first = corrected(detector, photograph, 1)  # the name on her suit; the face is number 0
    second = corrected(detector, drawn_scene(), 0)
    detector.unlearn(first.entries + second.entries)
    return FaceDemo(first, second, detector.to_bytes() == start)


def corrected(detector: Detector, image: GreyImage, wrong: int) -> Correction:
    """Detect, then learn the detections from number `wrong` on as false positives."""
    before = detector.detect(image)
    boxes = before.boxes[wrong:]
    labels = [False] * len(boxes)
    detector.copy().learn(image, boxes, labels)  # compiles the kernels before anything is timed
    times = [time.perf_counter()]
    detector.detect(image)
    times.append(time.perf_counter())
    entries = detector.learn(image, boxes, labels)
    times.append(time.perf_counter())
    return Correction(image, before, detector.detect(image), wrong, entries, *np.diff(times).tolist())


def draw(demo: FaceDemo, out: Path) -> list[Path]:
    """Draw both images before and after the correction."""
    images = {"photograph.png": demo.photograph, "correction.png": demo.scene}
    return [save_image(correction.drawn(), out / name) for name, correction in images.items()]
