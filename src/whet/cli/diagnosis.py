"""Why a detector is weak, as `whet train` and `whet evaluate` print it: kinds of errors, learning curve, advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from whet.cli.output import finite_or_none, plural

if TYPE_CHECKING:
    from whet.evaluation.advice import Advice, LearningCurve
    from whet.evaluation.error_kinds import ErrorReport

# Advice that is printed; --json has all.
MOST_ADVICE = 2


def errors_table(errors: ErrorReport) -> dict[str, Any]:
    """Kinds of errors, for --json."""
    fit = errors.box_fit
    return {
        "kinds": [
            {
                "kind": str(one.kind),
                "false_positives": one.false_positives,
                "missed": one.missed,
                "objects": one.n_objects,
                "average_precision_without": finite_or_none(one.average_precision),
            }
            for one in errors.counts
        ],
        "box_fit": {name: finite_or_none(value) for name, value in vars(fit).items()},
    }


def advice_table(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """Advice, for --json."""
    return [{"what": one.what, "why": one.why, "gain": round(one.gain, 4)} for one in advice]


def curve_table(curve: LearningCurve) -> dict[str, Any]:
    """A learning curve, for --json."""
    return {
        "objects": list(curve.n_objects),
        "unseen_detection_rates": list(curve.unseen),
        "seen_detection_rates": list(curve.seen),
        "negative_images": list(curve.n_negative_images),
        "detection_rates_by_negatives": list(curve.by_negatives),
    }


def error_lines(errors: ErrorReport) -> Iterator[str]:
    """A table of the kinds of errors, for the terminal; nothing without errors."""
    if not errors.counts:
        return
    yield f"{'errors':<20}  false positives  missed            average precision without"
    for one in errors.counts:
        missed = f"{one.missed:,}" if one.missed or one.n_objects else "-"
        such = "" if one.n_objects is None else f"of {one.n_objects:,} such"
        false_positives = f"{one.false_positives:,}" if one.false_positives else "-"
        gain = one.average_precision - errors.average_precision
        yield (
            f"{one.kind!s:<20}  {false_positives:>15}  {missed:>6} {such:<11}"
            f"{one.average_precision:>8.3f} ({gain:+.3f})"
        )


def advice_lines(advice: Sequence[Advice]) -> Iterator[str]:
    """The most promising advice, for the terminal."""
    for number, one in enumerate(advice[:MOST_ADVICE]):
        yield f"{'what would help most' if not number else 'then'}: {one}"


def curve_line(curve: LearningCurve) -> str:
    """A learning curve in one line, for the terminal."""
    points = ", ".join(f"{rate:.0%} with {n:,}" for n, rate in zip(curve.n_objects, curve.unseen, strict=True))
    return f"learning curve: {points} objects (of those not trained on); {curve.seen[-1]:.0%} of those trained on"


def unseen_line(errors: ErrorReport) -> str:
    """How many objects were found that were not trained on, for the terminal."""
    n_found = errors.n_objects - errors.n_missed
    return (
        f"weak: finds {errors.recall:.0%} of objects that it was not trained on ({n_found:,} of "
        f"{plural(errors.n_objects, 'object')}, default minimum score)"
    )
