"""Demos of online learning: correct false positives of the bundled face detector, and learn digits one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.arrays import Floats, Int64s, Pixels
from whet.detector.detector import Detector
from whet.detector.state import Update
from whet.detector.storage import load
from whet.errors import MissingExtraError
from whet.estimators.gslda import GSLDA
from whet.estimators.online_gslda import OnlineGSLDA
from whet.images.boxes import box_iou
from whet.images.detections import Detections
from whet.io.image_files import as_rgb
from whet.models.gslda.weak_learners import Stumps
from whet.plots.drawing import FALSE_POSITIVE, draw_boxes, draw_detections, save_image, score_text, side_by_side
from whet.plots.figure import BLUE, RED, new_figure, save

# Faces: a photograph, and a drawn street in which houses and cars resemble faces.

SHAPE = (320, 480)


def drawn_scene() -> Pixels:
    """A house, a car and a wall socket that resemble faces, in grey (320, 480).

    >>> drawn_scene().shape
    (320, 480)
    """
    from PIL import Image, ImageDraw, ImageFilter

    height, width = SHAPE
    image = Image.fromarray(np.repeat(np.linspace(200, 140, height).astype(np.uint8)[:, None], width, axis=1))
    pen = ImageDraw.Draw(image)
    pen.rectangle((40, 90, 190, 260), fill=205)  # the house
    pen.polygon(((30, 90), (115, 30), (200, 90)), fill=95)
    for x in (62, 134):
        pen.rectangle((x, 120, x + 34, 150), fill=50)
        pen.line((x + 17, 120, x + 17, 150), fill=150, width=2)
    pen.rectangle((88, 205, 142, 228), fill=70)
    pen.rounded_rectangle((250, 150, 440, 270), 30, fill=190)  # the car
    pen.rounded_rectangle((280, 110, 410, 165), 18, fill=80)
    for x in (290, 400):
        pen.ellipse((x - 20, 185, x + 20, 215), fill=50)
        pen.ellipse((x - 8, 193, x + 8, 205), fill=200)
    pen.rounded_rectangle((305, 232, 385, 250), 8, fill=60)
    pen.rounded_rectangle((300, 20, 370, 90), 12, fill=225)  # the wall socket
    for x in (318, 352):
        pen.ellipse((x - 6, 42, x + 6, 56), fill=40)
    pen.rectangle((328, 68, 342, 74), fill=60)
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(1.5)), dtype=np.float64)
    return (blurred + np.random.default_rng(0).normal(0, 4, SHAPE)).clip(0, 255).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Correction:
    """An image and its detections before and after; those from number `wrong` on were corrected as false positives."""

    image: Pixels
    before: Detections
    after: Detections
    wrong: int
    update: Update
    seconds_to_detect: float
    seconds_to_learn: float

    def drawn(self) -> Pixels:
        """Before and after, side by side; what was called wrong in orange."""
        scores = self.before.scores.tolist()
        texts = [f"{label} {score_text(score)}" for label, score in zip(self.before.labels, scores, strict=True)]
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
        is_left = (box_iou(self.before.boxes[self.wrong :], self.after.boxes) >= 0.5).any()
        gone = "STILL DETECTED" if is_left else "gone"
        rows = [
            (f"{name}, {width} x {height}", f"{len(self.before)} detections in {1e3 * self.seconds_to_detect:.0f} ms"),
            (f"  learned {self._learned}", f"{gone} after {1e3 * self.seconds_to_learn:.0f} ms"),
            ("  remaining detections", f"{len(self.after)}"),
        ]
        estimates = {"before": self.update.before, "after": self.update.after}
        return rows + [(f"  held-out faces, {when}", str(e)) for when, e in estimates.items() if e is not None]


def astronaut() -> Pixels:
    """scikit-image's photograph of Eileen Collins, by NASA, in colour (512, 512, 3)."""
    try:
        from skimage import data
    except ImportError as error:
        raise MissingExtraError("scikit-image", "demo") from error
    return as_rgb(data.astronaut())  # type: ignore[no-untyped-call]


def correct_faces(out: Path) -> tuple[str, list[Path]]:
    """Detect, correct, detect again and unlearn, in a photograph and in a drawing; a summary, and the drawn files."""
    detector = load("face")
    start = detector.to_bytes()
    photograph = corrected(detector, astronaut(), 1)  # the name on her suit; the face is number 0
    scene = corrected(detector, drawn_scene(), 0)
    detector.unlearn([*photograph.update, *scene.update])
    rows = [*photograph.rows("photograph with one face"), *scene.rows("drawing without faces")]
    rows.append(("original detector after unlearning, byte for byte", "yes" if detector.to_bytes() == start else "NO"))
    images = {"photograph.png": photograph, "correction.png": scene}
    files = [save_image(correction.drawn(), out / name) for name, correction in images.items()]
    return "\n".join(f"{what:<50}  {value}" for what, value in rows), files


def corrected(detector: Detector, image: Pixels, wrong: int) -> Correction:
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


# Digits: 3 and 5 of scikit-learn, from 20 samples to all, in random orders.

N_FIRST = 20
N_WEAK = 24
N_ORDERS = 20


def learn_digits(out: Path, seed: int, progress: Callable[[float], None]) -> tuple[str, Path]:
    """Train on a few digits, then learn the others online; half of the digits are the test set.

    Returns a summary, and the file of a figure.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = np.isin(bunch.target, (3, 5))
    X, y = bunch.data[chosen], bunch.target[chosen]
    OnlineGSLDA(2).fit(X, y).update(X[0], y[0])  # compiles before anything is timed
    errors, batch_errors, seconds, is_exact = [], [], 0.0, True
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
        is_exact &= np.array_equal(model.unlearn(X[stream], y[stream]).coef_, coef_at_start)
        progress((number + 1) / N_ORDERS)
    n, batch = len(stream), float(np.mean(batch_errors))
    rows = (
        (f"trained on {N_FIRST} digits", f"test error {np.mean([curve[0] for curve in errors]):6.1%}"),
        (f"{n} more learned one by one", f"test error {np.mean([curve[-1] for curve in errors]):6.1%}"),
        (f"trained on all {N_FIRST + n} at once", f"test error {batch:6.1%}"),
        ("time per update", f"{1e6 * seconds / (N_ORDERS * n):.0f} microseconds"),
        ("original weights after unlearning, bit for bit", "yes" if is_exact else "NO"),
    )
    difference = (X[y == 5].mean(axis=0) - X[y == 3].mean(axis=0)).reshape(weights.shape)
    file = _draw_digits(np.array(errors), batch, weights, difference, out)
    return "\n".join(f"{what:<46}  {value}" for what, value in rows), file


def _pixel_weights(model: GSLDA) -> Floats:
    """Weight of each pixel (8, 8), in the last order; positive if a bright pixel votes for 5."""
    stumps = model.weak_learners_
    assert isinstance(stumps, Stumps)
    weights = np.zeros((8, 8))
    np.add.at(weights.ravel(), stumps.feature, model.coef_ * stumps.polarity)
    return weights


def _error(model: GSLDA, X: Floats, y: Int64s) -> float:
    return float((model.predict(X) != y).mean())


def _draw_digits(errors: Floats, batch_error: float, weights: Floats, difference: Floats, out: Path) -> Path:
    """Draw the weights of the classifier, and its test errors (orders, samples) against the number of digits seen."""
    figure, ((left, middle, right),) = new_figure(1, 3, 13, 4, width_ratios=[1, 1, 1.6])
    for axes, image, title in (
        (left, difference, "mean 5 minus mean 3"),
        (middle, weights, f"weights of the {N_WEAK} selected stumps\n(bright pixel: red votes 5, blue votes 3)"),
    ):
        bound = abs(image).max()
        axes.imshow(image, cmap="RdBu_r", vmin=-bound, vmax=bound)
        axes.set_title(title, fontsize=10)
        axes.set(xticks=[], yticks=[])
    mean, spread, n_seen = errors.mean(axis=0), errors.std(axis=0), N_FIRST + np.arange(errors.shape[1])
    right.plot(n_seen, mean, color=BLUE, label="online, one digit at a time")
    right.fill_between(n_seen, mean - spread, mean + spread, color=BLUE, alpha=0.15, linewidth=0)
    right.axhline(batch_error, color=RED, linestyle="--", label="batch, all digits at once")
    right.set_title(f"mean and standard deviation, {N_ORDERS} random orders", fontsize=10)
    right.set(xlabel="digits seen", ylabel="test error", ylim=(0, None))
    right.legend(fontsize=9)
    right.grid(alpha=0.3)
    return save(figure, out / "digits.png")
