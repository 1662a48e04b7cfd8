"""The demo: faces in a photograph, false alarms in a drawn scene, and one of them corrected online."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from whet.detect.detections import Detections
from whet.errors import MissingExtraError
from whet.evaluate.overlap import intersection_over_union
from whet.experiments.drawn_scene import drawn_scene
from whet.io.images import as_grey
from whet.io.model_file import to_bytes
from whet.plots.drawn_boxes import FALSE_ALARM, boxes_drawn, save_picture
from whet.training.detector import load

Picture = NDArray[np.uint8]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Story:
    """What was found in both pictures, before and after the strongest false alarm was called one."""

    photograph: Picture
    faces: Detections
    faces_after: Detections
    scene: Picture
    alarms: Detections
    alarms_after: Detections
    seconds_to_detect: float
    seconds_to_learn: float
    unlearning_is_exact: bool

    @property
    def is_gone(self) -> bool:
        """Whether the corrected false alarm is no longer detected."""
        return not (intersection_over_union(self.alarms.boxes[:1], self.alarms_after.boxes) >= 0.5).any()

    def summary(self) -> str:
        """A few lines for the terminal."""
        height, width = self.photograph.shape
        rows = (
            (
                f"faces in the photograph, {width} x {height}",
                f"{len(self.faces)} in {_ms(self.seconds_to_detect)}",
            ),
            ("faces in the drawn scene, where there are none", f"{len(self.alarms)} false alarms"),
            (
                'told of the strongest: "not a face"',
                f"{'gone' if self.is_gone else 'STILL THERE'} after {_ms(self.seconds_to_learn)}",
            ),
            ("false alarms left in the scene", f"{len(self.alarms_after)}"),
            ("faces in the photograph now", f"{len(self.faces_after)}"),
            ("unlearned, equal to the start to the last byte", "yes" if self.unlearning_is_exact else "NO"),
        )
        return "\n".join(f"{what:<48}  {value}" for what, value in rows)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


def astronaut() -> Picture:
    """scikit-image's photograph of Eileen Collins, by NASA, in grey (512, 512)."""
    try:
        from skimage import data
    except ImportError as error:
        raise MissingExtraError("scikit-image", "demo") from error
    return as_grey(data.astronaut())  # type: ignore[no-untyped-call]


def run() -> Story:
    """Detect, correct, detect again, and take it back."""
    detector, photograph, scene = load("face"), astronaut(), drawn_scene()
    before, faces, alarms = to_bytes(detector.taught), detector.detect(photograph), detector.detect(scene)
    # Both were compiled, or read from disk, by now.
    seconds_to_detect, _ = _timed(lambda: detector.detect(photograph))
    detector.copy().learn(scene, alarms.boxes[:1], [False])
    seconds_to_learn, entries = _timed(lambda: detector.learn(scene, alarms.boxes[:1], [False]))
    faces_after, alarms_after = detector.detect(photograph), detector.detect(scene)
    detector.unlearn(entries)
    exact = to_bytes(detector.taught) == before
    times = seconds_to_detect, seconds_to_learn
    return Story(photograph, faces, faces_after, scene, alarms, alarms_after, *times, exact)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def draw(story: Story, out: Path) -> list[Path]:
    """The photograph with its faces, and the scene before and after side by side."""
    gap = np.full((len(story.scene), 12, 3), 255, dtype=np.uint8)
    both = story.alarms, story.alarms_after
    before, after = (boxes_drawn(story.scene, found.boxes, FALSE_ALARM, 3) for found in both)
    return [
        save_picture(boxes_drawn(story.photograph, story.faces.boxes, width=3), out / "faces.png"),
        save_picture(np.concatenate([before, gap, after], axis=1), out / "correction.png"),
    ]
