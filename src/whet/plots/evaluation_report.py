"""A folder that shows an evaluation: its numbers, its curves, and the worst mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from whet.errors import MissingExtraError
from whet.evaluate.evaluation import Mistake
from whet.io.atomic_file import write_atomically
from whet.io.grey_files import GreyFiles
from whet.plots.contact_sheet import contact_sheet
from whet.plots.curves import draw_precision_recall, draw_roc
from whet.plots.drawn_boxes import FALSE_ALARM, MISSED, result_drawn, save_picture
from whet.plots.drawn_folder import check_none_replaced, drawing_places
from whet.plots.figure import check_installed, prepared_folder
from whet.training.evaluation_run import EvaluationRun

FILES = ("evaluation.json", "roc.png", "precision-recall.png", "misses.png", "false-alarms.png")


def check_places(pictures: Sequence[Path], report: Path | None, drawn: Path | None) -> None:
    """Raise a `WhetError` where a report, or drawn pictures, in these folders would replace one of the pictures."""
    if report is not None:
        check_none_replaced([report / name for name in FILES], pictures)
    if drawn is not None:
        drawing_places(drawn, pictures)


def write_report(run: EvaluationRun, folder: Path, name: str, numbers: Mapping[str, Any]) -> tuple[list[Path], str]:
    """Write evaluation.json, roc.png, precision-recall.png, misses.png and false-alarms.png; returns the files.

    Without matplotlib there are no curves; why is then returned, too. A sheet of no mistakes is not written, and an
    old one is taken away.
    """
    prepared_folder(folder)
    summary = folder / "evaluation.json"
    write_atomically(summary, (json.dumps(numbers, indent=1) + "\n").encode())
    written, fault = [summary], ""
    try:
        check_installed()
        curves = {name: run.evaluation.curve}
        written.append(draw_roc(curves, folder / "roc.png"))
        written.append(draw_precision_recall(curves, folder / "precision-recall.png"))
    except MissingExtraError as error:
        fault = str(error)
    pictures = GreyFiles(run.paths)
    sheets = {
        "misses.png": (run.evaluation.worst_misses(run.threshold), MISSED, "missed"),
        "false-alarms.png": (run.evaluation.worst_false_alarms(run.threshold), FALSE_ALARM, "false alarm"),
    }
    for file, (mistakes, color, what) in sheets.items():
        if mistakes:
            captions = [_caption(mistake, run.paths, what) for mistake in mistakes]
            sheet = contact_sheet(pictures, mistakes, color=color, captions=captions)
            written.append(save_picture(sheet, folder / file))
        else:
            (folder / file).unlink(missing_ok=True)
    return written, fault


def _caption(mistake: Mistake, paths: Sequence[Path], what: str) -> str:
    """The picture, what is wrong there, and the score; of a miss, that of the box which is below the threshold."""
    score = f" {mistake.score:.4g}" if isfinite(mistake.score) else ", no box"
    return f"{paths[mistake.picture].name}\n{what}{score}"


def draw_results(run: EvaluationRun, folder: Path, tell: Callable[[float], None] = lambda _: None) -> None:
    """Draw what was found, missed and falsely found into each picture, as PNG files in a folder."""
    pictures, places = GreyFiles(run.paths), drawing_places(folder, run.paths)
    prepared_folder(folder)
    for number, (place, result) in enumerate(zip(places, run.evaluation.pictures, strict=True)):
        save_picture(result_drawn(pictures[number], result, run.threshold), place)
        tell((number + 1) / len(places))
