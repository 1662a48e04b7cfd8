"""The demo's second half: a detector of one's own, from boxes to a correction.

Vans are drawn into photographs that come with scikit-image; those to judge by are drawn into other photographs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.errors import MissingExtraError
from whet.experiments.drawn_objects import draw_set
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import write_annotations
from whet.io.images import as_grey, read_grey
from whet.plots.drawn_boxes import result_drawn, save_picture
from whet.plots.figure import prepared_folder
from whet.training.detector import Detector
from whet.training.evaluation_run import EvaluationRun, evaluate_many
from whet.training.preparation import prepare
from whet.training.recipe import Recipe
from whet.training.train import train_prepared

TRAIN = ("astronaut", "brick", "camera", "coffee", "coins", "grass", "gravel", "page", "text", "rocket", "clock")
TEST = ("chelsea", "stereo_motorcycle", "moon", "retina")
SHAPE = (240, 320)
SIZES = (40, 120)  # of vans, in pixels
N_TRAIN, N_EMPTY, N_TEST = 70, 60, 40
# A bold operating point, at which there is something to correct.
POINT = "one false alarm a picture"


@dataclass(frozen=True, eq=False)
class OwnStory:
    """A detector that was trained, how it did on other photographs, and what one correction changed."""

    n_objects: int
    n_stages: int
    seconds_to_train: float
    before: EvaluationRun
    after: EvaluationRun
    told: str
    files: tuple[Path, ...]

    def summary(self) -> str:
        """A few lines for the terminal."""
        rows = [
            (
                f"a detector of vans, from {self.n_objects} boxes",
                f"{self.n_stages} stages in {self.seconds_to_train:.0f} s",
            ),
            ("  on other photographs", _counts(self.before)),
        ]
        if self.told:
            rows.append((f"  {self.told}", _counts(self.after)))
        return "\n".join(f"{what:<50}  {value}" for what, value in rows)


def run(out: Path, progress: Callable[[float], None] = lambda _: None, seed: int = 0) -> OwnStory:
    """Draw, train, judge, correct, judge again; pictures, boxes and the detector stay in a folder."""
    folder = prepared_folder(out / "vans")
    rng = np.random.default_rng(seed)
    backgrounds = _crops(TRAIN, N_TRAIN, folder / "backgrounds", rng)
    drawn = draw_set("van", backgrounds, folder / "pictures", seed, sizes=SIZES)
    write_annotations(drawn, folder / "vans.csv", "csv", replace=True)
    _crops(TRAIN, N_EMPTY, folder / "empty", rng)
    backgrounds = _crops(TEST, N_TEST, folder / "test-backgrounds", rng)
    test = draw_set("van", backgrounds, folder / "test", seed + 1, sizes=SIZES)
    write_annotations(test, folder / "test.csv", "csv", replace=True)
    recipe = Recipe(
        str(folder / "vans.csv"), negatives=(str(folder / "empty"),), stages=8, n_negatives=1500, ridge=20.0
    )
    prepared = prepare(recipe)
    begun = time.perf_counter()
    trained = train_prepared(prepared, lambda event: progress(min(0.9, (event.stage + 1) / (recipe.stages + 1))))
    seconds = time.perf_counter() - begun
    trained.detector.save(folder / "vans.whet")
    correction = _corrected(trained.detector, test, folder)
    progress(1.0)
    return OwnStory(drawn.n_boxes, trained.ending.n_stages, seconds, *correction)


def _corrected(
    detector: Detector, test: Annotations, folder: Path
) -> tuple[EvaluationRun, EvaluationRun, str, tuple[Path, ...]]:
    """Judge, correct the worst false alarm or else a miss, and judge again."""
    threshold = detector.operating_points.get(POINT, -np.inf)
    before = evaluate_many(detector, test.pictures, threshold=threshold)
    alarms = before.evaluation.worst_false_alarms(threshold)
    misses = before.evaluation.worst_misses(threshold)
    if not alarms and not misses:
        return before, before, "", ()
    mistake = alarms[0] if alarms else misses[-1]
    told = 'told of the worst false alarm: "not a van"' if alarms else 'shown one that it missed: "a van"'
    path = before.paths[mistake.picture]
    detector.learn(path, mistake.box[None], [not alarms], threshold=threshold)
    detector.save(folder / "vans-corrected.whet")
    after = evaluate_many(detector, test.pictures, threshold=threshold)
    runs = (run.evaluation.pictures[mistake.picture] for run in (before, after))
    sides = [result_drawn(read_grey(path), result, threshold) for result in runs]
    file = save_picture(np.concatenate(sides, axis=1), folder.parent / "vans.png")
    return before, after, told, (file,)


def _counts(run: EvaluationRun) -> str:
    return f"{int(run.found.sum())} of {int(run.truths.sum())} vans, {run.n_false_alarms} false alarms"


def _crops(names: Sequence[str], n: int, folder: Path, rng: np.random.Generator) -> list[Path]:
    """Parts of photographs, of all sizes that they have, as pictures in a folder."""
    from PIL import Image

    prepared_folder(folder)
    photographs = [_photograph(name) for name in names]
    paths = []
    for number in range(n):
        grey = photographs[number % len(photographs)]
        largest = min(grey.shape[0] / SHAPE[0], grey.shape[1] / SHAPE[1])
        scale = largest * rng.uniform(0.5, 1.0)
        height, width = round(SHAPE[0] * scale), round(SHAPE[1] * scale)
        y, x = (int(rng.integers(0, room - side + 1)) for room, side in zip(grey.shape, (height, width), strict=True))
        cut = Image.fromarray(grey[y : y + height, x : x + width]).resize(SHAPE[::-1], Image.Resampling.BILINEAR)
        paths.append(folder / f"{number:03d}.png")
        save_picture(np.asarray(cut), paths[-1])
    return paths


def _photograph(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    try:
        from skimage import data
    except ImportError as error:
        raise MissingExtraError("scikit-image", "demo") from error
    picture = getattr(data, name)()
    return as_grey(picture[0] if isinstance(picture, tuple) else picture)
