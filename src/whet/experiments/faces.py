"""The demo: a photograph and a drawn scene, their false alarms corrected online, and taken back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detect.detections import Detections
from whet.errors import MissingExtraError
from whet.evaluate.overlap import intersection_over_union
from whet.experiments.drawn_scene import drawn_scene
from whet.io.images import as_grey
from whet.io.model_file import to_bytes
from whet.plots.drawn_boxes import FALSE_ALARM, boxes_drawn, save_picture
from whet.training.detector import Detector, load
from whet.training.journal_entry import Entry

Picture = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Correction:
    """A picture, what was found in it before and after, and from which number on detections were called no face."""

    picture: Picture
    before: Detections
    after: Detections
    wrong: int
    entries: list[Entry]
    seconds_to_detect: float
    seconds_to_learn: float

    @property
    def is_gone(self) -> bool:
        """Whether the detections that were called wrong are there no longer."""
        return not (intersection_over_union(self.before.boxes[self.wrong :], self.after.boxes) >= 0.5).any()

    def drawn(self) -> Picture:
        """Before and after, side by side; what was called wrong in orange."""
        before = boxes_drawn(self.picture, self.before.boxes[: self.wrong], width=3)
        before = boxes_drawn(before, self.before.boxes[self.wrong :], FALSE_ALARM, 3)
        gap = np.full((len(before), 12, 3), 255, dtype=np.uint8)
        return np.concatenate([before, gap, boxes_drawn(self.picture, self.after.boxes, width=3)], axis=1)

    def rows(self, name: str) -> list[tuple[str, str]]:
        """What to say of it in the terminal."""
        height, width = self.picture.shape
        gone = "gone" if self.is_gone else "STILL THERE"
        return [
            (f"{name}, {width} x {height}", f"{len(self.before)} detections in {1e3 * self.seconds_to_detect:.0f} ms"),
            (
                f'  told of {len(self.before) - self.wrong}: "not a face"',
                f"{gone} after {1e3 * self.seconds_to_learn:.0f} ms",
            ),
            ("  left", f"{len(self.after)}"),
        ]


@dataclass(frozen=True, eq=False)
class Story:
    """Both pictures, and whether unlearning both corrections gave the detector of the start."""

    photograph: Correction
    scene: Correction
    unlearning_is_exact: bool

    def summary(self) -> str:
        """A few lines for the terminal."""
        rows = [*self.photograph.rows("a photograph with one face"), *self.scene.rows("a drawing without any")]
        rows.append(("both unlearned, equal to the start, byte for byte", "yes" if self.unlearning_is_exact else "NO"))
        return "\n".join(f"{what:<50}  {value}" for what, value in rows)


def astronaut() -> Picture:
    """scikit-image's photograph of Eileen Collins, by NASA, in grey (512, 512)."""
    try:
        from skimage import data
    except ImportError as error:
        raise MissingExtraError("scikit-image", "demo") from error
    return as_grey(data.astronaut())  # type: ignore[no-untyped-call]


def run() -> Story:
    """Detect, correct, detect again, and take it all back."""
    photograph, detector = astronaut(), load("face")
    start = to_bytes(detector.taught)
    first = corrected(detector, photograph, 1)  # the name on her suit; the face is number 0
    second = corrected(detector, drawn_scene(), 0)
    detector.unlearn(first.entries + second.entries)
    return Story(first, second, to_bytes(detector.taught) == start)


def corrected(detector: Detector, picture: Picture, wrong: int) -> Correction:
    """Detect, and teach that the detections from number `wrong` on are no faces."""
    before = detector.detect(picture)
    boxes = before.boxes[wrong:]
    labels = [False] * len(boxes)
    detector.copy().learn(picture, boxes, labels)  # compiles, or reads from disk
    times = [time.perf_counter()]
    detector.detect(picture)
    times.append(time.perf_counter())
    entries = detector.learn(picture, boxes, labels)
    times.append(time.perf_counter())
    return Correction(picture, before, detector.detect(picture), wrong, entries, *np.diff(times).tolist())


def draw(story: Story, out: Path) -> list[Path]:
    """Both pictures before and after."""
    pictures = {"photograph.png": story.photograph, "correction.png": story.scene}
    return [save_picture(correction.drawn(), out / name) for name, correction in pictures.items()]
