"""Why a detector is weak, as `whet train` and `whet evaluate` print it: kinds of errors, learning curve, advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from whet.cli.output import finite_or_none, plural

if TYPE_CHECKING:
    from whet.evaluation.advice import Advice
    from whet.evaluation.error_kinds import ErrorReport
    from whet.training.train import Trained

# Advice that is printed; --json has all.
MOST_ADVICE = 3


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


def training_table(trained: Trained) -> dict[str, Any]:
    """What cross-validation of a channel detector says, for --json; nothing for a cascade."""
    findings = trained.findings
    if findings is None or findings.curve is None:
        return {}
    curve, errors = findings.curve, findings.errors
    return {
        "unseen_objects": {
            "objects": errors.n_objects,
            "recall": finite_or_none(errors.recall),
            "average_precision": finite_or_none(errors.average_precision),
            "errors": errors_table(errors),
        },
        "learning_curve": {
            "objects": curve.n_objects,
            "unseen": curve.unseen,
            "seen": curve.seen,
            "negative_images": curve.n_negative_images,
            "by_negatives": curve.by_negatives,
        },
        "advice": advice_table(trained.advice),
    }


def training_lines(trained: Trained) -> Iterator[str]:
    """Why a channel detector is weak, for the terminal; nothing if it is not, and nothing for a cascade."""
    findings = trained.findings
    if findings is None or findings.curve is None:
        return
    if not findings.is_weak:
        yield from advice_lines(trained.advice)
        return
    curve, errors = findings.curve, findings.errors
    n_found = errors.n_objects - errors.n_missed
    yield (
        f"weak: finds {n_found:,} of {plural(errors.n_objects, 'object')} not trained on ({errors.recall:.0%}) at the "
        f"default minimum score, average precision {errors.average_precision:.2f} (cross-validated)"
    )
    kinds = [f"{one.missed:,} {one.kind}" for one in errors.counts if one.missed]
    if kinds:
        yield f"missed: {', '.join(kinds)}"
    points = ", ".join(f"{n:,} objects {rate:.0%}" for n, rate in zip(curve.n_objects, curve.unseen, strict=True))
    yield f"learning curve: {points} of objects not trained on; {curve.seen[-1]:.0%} of those trained on"
    yield from advice_lines(trained.advice)


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
