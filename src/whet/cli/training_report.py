"""What a training was to be and what came of it, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.training.preparation import Preparation
    from whet.training.train import Trained


def plan_table(preparation: Preparation, threads: int | None) -> dict[str, Any]:
    """The plan, for programs."""
    height, width = preparation.choice.window
    return {
        "window": {"width": width, "height": height},
        "positives": len(preparation.positives),
        "objects": preparation.positives.n_objects,
        "pictures": len(preparation.pictures),
        "features": preparation.n_features,
        "memory_bytes": preparation.memory,
        "seconds": round(preparation.seconds(threads), 1),
        "problems": [str(problem) for problem in preparation.problems],
    }


def result_table(trained: Trained, out: Path) -> dict[str, Any]:
    """What came of a training, for programs."""
    ending = trained.ending
    return {
        "detector": str(out),
        "ending": str(ending.why),
        "reason": ending.reason,
        "stages": ending.n_stages,
        "learners": trained.detector.taught.cascade().n_weak,
        "false_positive_rate": ending.false_positive_rate,
        "false_positive_interval": ending.interval,
        "detection_rate": ending.detection_rate,
        "detection_interval": ending.detection_interval,
        "held_out_pictures": trained.n_pictures,
        "false_alarms": trained.false_alarms,
        "operating_points": dict(trained.detector.operating_points),
        "seconds": round(ending.seconds, 1),
    }


def summary_lines(trained: Trained, out: Path, recipe_file: Path) -> list[str]:
    """What came of a training, for a person to act on."""
    from whet.training.events import duration

    ending, (low, high) = trained.ending, trained.ending.detection_interval
    points = trained.detector.operating_points
    default = f"; by default boxes score above {points['default']:.3g}" if "default" in points else ""
    return [
        f"{out}: {ending.n_stages} stages, {trained.detector.taught.cascade().n_weak} weak learners, "
        f"{out.stat().st_size:,} bytes, in {duration(ending.seconds)}",
        f"why it ended: {ending.reason}",
        f"windows accepted by mistake: {ending.false_positive_rate:.2g} of held-out windows "
        f"({ending.interval[0]:.2g} to {ending.interval[1]:.2g})",
        f"objects kept: {ending.detection_rate:.1%} of those held out for validation ({low:.1%} to {high:.1%}); "
        "a test set will show less",
        f"false alarms in {trained.n_pictures:,} held-out pictures: {trained.false_alarms:,} at any score{default}",
        f"settings: {recipe_file}",
        f"next: whet detect {out} PICTURES --draw drawn; whet evaluate {out} ANNOTATIONS",
    ]
