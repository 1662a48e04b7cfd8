"""Demos of online learning: correct false positives of the bundled face detector, and learn digits one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detections import Detections
from whet.detector.detector import Detector
from whet.detector.records import Update
from whet.detector.storage import load
from whet.errors import MissingExtraError
from whet.estimators.gslda import GSLDA
from whet.estimators.online_gslda import OnlineGSLDA
from whet.features.weak_learners import Stumps
from whet.io.images import as_rgb
from whet.plots.drawing import FALSE_POSITIVE, draw_boxes, draw_detections, save_image, score_text, side_by_side
from whet.plots.figure import BLUE, RED, new_figure, save

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

Floats = NDArray[np.float64]
GreyImage = NDArray[np.uint8]

# Faces: a photograph, and a drawn street in which houses and cars resemble faces.

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


@dataclass(frozen=True, eq=False)
class Correction:
    """An image and its detections before and after; those from number `wrong` on were corrected as false positives."""

    image: GreyImage
    before: Detections
    after: Detections
    wrong: int
    update: Update
    seconds_to_detect: float
    seconds_to_learn: float

    @property
    def is_gone(self) -> bool:
        """Whether the false positives are gone."""
        return not (box_iou(self.before.boxes[self.wrong :], self.after.boxes) >= 0.5).any()

    def drawn(self) -> GreyImage:
        """Before and after, side by side; what was called wrong in orange."""
        texts = [
            f"{label} {score_text(score)}" for label, (_, score) in zip(self.before.labels, self.before, strict=True)
        ]
        before = draw_boxes(self.image, self.before.boxes[: self.wrong], texts=texts[: self.wrong])
        before = draw_boxes(before, self.before.boxes[self.wrong :], FALSE_POSITIVE, texts=texts[self.wrong :])
        after = draw_detections(self.image, self.after)
        return side_by_side([before, after], ["before", f"after: {self._learned} learned"])

    @property
    def _learned(self) -> str:
        n = len(self.before) - self.wrong
        return f"{n} false positive{'s' * (n != 1)}"

    def rows(self, name: str) -> list[tuple[str, str]]:
        """Lines for the terminal."""
        height, width = self.image.shape[:2]
        gone = "gone" if self.is_gone else "STILL DETECTED"
        return [
            (f"{name}, {width} x {height}", f"{len(self.before)} detections in {1e3 * self.seconds_to_detect:.0f} ms"),
            (
                f"  learned {self._learned}",
                f"{gone} after {1e3 * self.seconds_to_learn:.0f} ms",
            ),
            ("  remaining detections", f"{len(self.after)}"),
            *(
                (f"  held-out faces, {when}", str(estimate))
                for when, estimate in (("before", self.update.before), ("after", self.update.after))
                if estimate is not None
            ),
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


def correct_faces() -> FaceDemo:
    """Detect, correct, detect again and unlearn."""
    photograph, detector = astronaut(), load("face")
    start = detector.to_bytes()
    first = corrected(detector, photograph, 1)  # the name on her suit; the face is number 0
    second = corrected(detector, drawn_scene(), 0)
    detector.unlearn([*first.update, *second.update])
    return FaceDemo(first, second, detector.to_bytes() == start)


def corrected(detector: Detector, image: GreyImage, wrong: int) -> Correction:
    """Detect, then learn the detections from number `wrong` on as false positives."""
    before = detector.detect(image)
    boxes = before.boxes[wrong:]
    detector.copy().learn(image, boxes, False)  # compiles the kernels before anything is timed
    times = [time.perf_counter()]
    detector.detect(image)
    times.append(time.perf_counter())
    update = detector.learn(image, boxes, False)
    times.append(time.perf_counter())
    return Correction(image, before, detector.detect(image), wrong, update, *np.diff(times).tolist())


def draw_corrections(demo: FaceDemo, out: Path) -> list[Path]:
    """Draw both images before and after the correction."""
    images = {"photograph.png": demo.photograph, "correction.png": demo.scene}
    return [save_image(correction.drawn(), out / name) for name, correction in images.items()]


# Digits: 3 and 5 of scikit-learn, from 20 samples to all, in random orders.

N_FIRST = 20
N_WEAK = 24
N_ORDERS = 20
SIDE = 8


@dataclass(frozen=True, eq=False)
class DigitDemo:
    """Test errors over several random orders of the digits."""

    n_seen: NDArray[np.intp]
    errors: Floats  # (orders, samples seen)
    seconds_per_update: float
    batch_errors: Floats  # (orders,)
    weights: Floats  # of the pixels, in the last order
    mean_difference: Floats
    unlearning_is_exact: bool

    def summary(self) -> str:
        """Lines for the terminal."""
        n_new = self.n_seen[-1] - self.n_seen[0]
        rows = (
            (f"trained on {self.n_seen[0]} digits", f"test error {self.errors[:, 0].mean():6.1%}"),
            (f"{n_new} more learned one by one", f"test error {self.errors[:, -1].mean():6.1%}"),
            (f"trained on all {self.n_seen[-1]} at once", f"test error {self.batch_errors.mean():6.1%}"),
            ("time per update", f"{1e6 * self.seconds_per_update:.0f} microseconds"),
            ("original weights after unlearning, bit for bit", "yes" if self.unlearning_is_exact else "NO"),
        )
        return "\n".join(f"{what:<46}  {value}" for what, value in rows)


def learn_digits(seed: int = 0, progress: Callable[[float], None] = lambda _: None) -> DigitDemo:
    """Train on a few digits, then learn the others online; half of the digits are the test set."""
    X, y = _threes_and_fives()
    OnlineGSLDA(2).fit(X, y).update(X[0], y[0])  # compiles before anything is timed
    errors, batch_errors, seconds, exact = [], [], 0.0, []
    for number in range(N_ORDERS):
        order = np.random.default_rng([seed, number]).permutation(len(X))
        test, first, stream = np.split(order, [len(X) // 2, len(X) // 2 + N_FIRST])
        model = OnlineGSLDA(N_WEAK).fit(X[first], y[first])
        coef_at_start = model.coef_
        curve = [_error(model, X[test], y[test])]
        for i in stream:
            start = time.perf_counter()
            model.update(X[i], y[i])
            seconds += time.perf_counter() - start
            curve.append(_error(model, X[test], y[test]))
        weights = _pixel_weights(model)
        errors.append(curve)
        seen = np.concatenate([first, stream])
        batch_errors.append(_error(GSLDA(N_WEAK).fit(X[seen], y[seen]), X[test], y[test]))
        exact.append(np.array_equal(model.unlearn(X[stream], y[stream]).coef_, coef_at_start))
        progress((number + 1) / N_ORDERS)
    return DigitDemo(
        n_seen=N_FIRST + np.arange(len(curve)),
        errors=np.array(errors),
        seconds_per_update=seconds / (N_ORDERS * len(stream)),
        batch_errors=np.array(batch_errors),
        weights=weights,
        mean_difference=(X[y == 5].mean(axis=0) - X[y == 3].mean(axis=0)).reshape(SIDE, SIDE),
        unlearning_is_exact=all(exact),
    )


def _threes_and_fives() -> tuple[Floats, NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = np.isin(bunch.target, (3, 5))
    return bunch.data[chosen], bunch.target[chosen]


def _pixel_weights(model: GSLDA) -> Floats:
    """Weight of each pixel; positive if a bright pixel votes for 5."""
    stumps = model.weak_learners_
    assert isinstance(stumps, Stumps)
    weights = np.zeros(SIDE * SIDE)
    np.add.at(weights, stumps.feature, model.coef_ * stumps.polarity)
    return weights.reshape(SIDE, SIDE)


def _error(model: GSLDA, X: Floats, y: NDArray[np.int64]) -> float:
    return float((model.predict(X) != y).mean())


def draw_digits(demo: DigitDemo, out: Path) -> Path:
    """Draw the weights of the classifier, and its test error against the number of digits seen."""
    figure, ((left, middle, right),) = new_figure(1, 3, 13, 4, width_ratios=[1, 1, 1.6])
    for axes, image, title in (
        (left, demo.mean_difference, "mean 5 minus mean 3"),
        (middle, demo.weights, f"weights of the {N_WEAK} selected stumps\n(bright pixel: red votes 5, blue votes 3)"),
    ):
        bound = abs(image).max()
        axes.imshow(image, cmap="RdBu_r", vmin=-bound, vmax=bound)
        axes.set_title(title, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    mean, spread = demo.errors.mean(axis=0), demo.errors.std(axis=0)
    right.plot(demo.n_seen, mean, color=BLUE, label="online, one digit at a time")
    right.fill_between(demo.n_seen, mean - spread, mean + spread, color=BLUE, alpha=0.15, linewidth=0)
    right.axhline(demo.batch_errors.mean(), color=RED, linestyle="--", label="batch, all digits at once")
    right.set_title(f"mean and standard deviation, {N_ORDERS} random orders", fontsize=10)
    right.set_xlabel("digits seen")
    right.set_ylabel("test error")
    right.set_ylim(0, None)
    right.legend(fontsize=9)
    right.grid(alpha=0.3)
    return save(figure, out / "digits.png")
