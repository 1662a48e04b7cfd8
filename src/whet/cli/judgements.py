"""A detector judged before and after a change, in figures and in lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whet.cli.words import count, number, rounded

if TYPE_CHECKING:
    from whet.training.evaluation_run import EvaluationRun
    from whet.training.learning_run import Judgement


def figures(run: EvaluationRun) -> dict[str, Any]:
    """Counts and rates, by name."""
    return {
        "pictures": len(run.paths),
        "objects": int(run.truths.sum()),
        "missed": run.n_missed,
        "false_alarms": run.n_false_alarms,
        "recall": number(run.recall),
        "false_alarms_a_picture": run.n_false_alarms / len(run.paths),
        "average_precision": number(run.evaluation.average_precision),
    }


def judgement_lines(judgement: Judgement) -> Iterator[str]:
    """What changed on pictures that were held out."""
    old, new = map(figures, judgement)
    yield f"held out, {count(old['pictures'], 'picture')} with {count(old['objects'], 'object')}:"
    for name in ("recall", "false_alarms_a_picture", "average_precision"):
        yield f"  {name.replace('_', ' '):<22}  {rounded(old[name])} -> {rounded(new[name])}"


def unread_and_judged(judgement: Judgement | None) -> tuple[list[str], int]:
    """Which pictures that were held out could not be read, and how many were held out, those included."""
    if judgement is None:
        return [], 0
    before, _ = judgement
    return list(map(str, before.unread)), len(before.paths) + len(before.unread)
