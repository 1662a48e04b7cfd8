"""What `whet train` prints: live progress, the summary, and why a detector is weak, which `whet evaluate` says, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.cli.output import finite_or_none, plural, say, warnings_as_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from whet.evaluation.advice import Advice
    from whet.evaluation.error_kinds import ErrorReport
    from whet.parallel.workers import Workers
    from whet.training.preparation import Preparation
    from whet.training.progress import Event
    from whet.training.train import Trained


@contextmanager
def training_progress(*, quiet: bool) -> Iterator[tuple[Callable[[Event], None], list[Warning | str]]]:
    """Yields a callback for events, and a list of warnings, which are printed as lines."""
    from rich.console import Console

    console = Console(stderr=True)
    with warnings_as_lines(console) as warned:
        if quiet:
            yield (lambda _: None), warned
        elif console.is_terminal:
            with _live(console) as callback:
                yield callback, warned
        else:
            yield _print_stages, warned


def _print_stages(event: Event) -> None:
    from whet.training.progress import FitProgress, Mining

    if not isinstance(event, FitProgress | Mining):
        say(str(event), err=True)


@contextmanager
def _live(console: Any) -> Iterator[Callable[[Event], None]]:  # noqa: ANN401 - rich is imported when needed
    """Print finished stages; below them, one live line shows the current step and the estimated time."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from whet.training.progress import FitProgress, FitStarted, Mining, StepStarted, duration

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)

        def callback(event: Event) -> None:
            left = "" if event.seconds_left is None else f", about {duration(event.seconds_left)} left"
            match event:
                case FitProgress():
                    progress.update(task, description=event.text + left, completed=event.n_done / event.n_most)
                case Mining():
                    done = event.n_found / max(event.n_wanted, 1)
                    progress.update(task, description=event.text + left, completed=done)
                case FitStarted() | StepStarted():
                    progress.update(task, description=event.text + left, completed=0.0)
                case _:
                    console.print(str(event), highlight=False, markup=False)

        yield callback


def preparation_table(preparation: Preparation, workers: Workers) -> dict[str, Any]:
    """Data and estimates of a training, for --json."""
    height, width = preparation.choice.window
    return {
        "window": {"width": width, "height": height},
        "positives": len(preparation.positives),
        "objects": preparation.positives.n_objects,
        "images": len(preparation.images),
        "features": preparation.n_features,
        "memory_bytes": preparation.memory,
        "seconds": round(preparation.seconds(workers), 1),
        "problems": [str(problem) for problem in preparation.problems],
    }


def result_table(trained: Trained, out: Path) -> dict[str, Any]:
    """Result of a training, for --json."""
    result = trained.result
    return {
        "detector": str(out),
        "stop_reason": str(result.stop_reason),
        "message": result.message,
        "fault": result.fault,
        "stages": result.n_stages,
        "weak_learners": trained.detector.model.votes.n_weak,
        "false_positive_rate": result.false_positive_rate,
        "false_positive_interval": result.false_positive_interval,
        "detection_rate": result.detection_rate,
        "detection_interval": result.detection_interval,
        "found_at_any_score": _rate(trained.detection_rate(-inf)),
        "found_at_default_score": _rate(trained.detection_rate()),
        "held_out_images": trained.points.n_images,
        "false_positives": trained.points.false_positives,
        "false_positives_at_default_score": trained.points.default_false_positives,
        "operating_points": dict(trained.detector.operating_points),
        **training_table(trained),
        "seconds": round(result.seconds, 1),
    }


def summary_lines(trained: Trained, out: Path, settings: Path) -> list[str]:
    """Result of a training, for the terminal."""
    from whet.training.progress import duration

    result, points = trained.result, trained.detector.operating_points
    lowest, highest = result.false_positive_interval
    rows = [("at any score", trained.detection_rate(-inf), trained.points.false_positives)]
    if "default" in points:
        name = f"at the default minimum score of {points['default']:.3g}"
        rows.append((name, trained.detection_rate(), trained.points.default_false_positives))
    fault = [] if result.fault is None else [f"not usable: {out} {result.fault}"]
    next_step = [f"next: whet detect {out} IMAGES --draw drawn; whet evaluate {out} ANNOTATIONS"]
    return [
        *fault,
        f"{out}: {trained.detector.model.votes.n_weak:,} weak learners, {out.stat().st_size:,} bytes, trained in "
        f"{duration(result.seconds)}",
        f"stop reason: {result.message}",
        f"false-positive rate: {result.false_positive_rate:.2g} of held-out windows ({lowest:.2g} to {highest:.2g})",
        *(
            f"{name}: {_found_text(rate)}{plural(n, 'false positive')} in {trained.points.n_images:,} held-out images"
            for name, rate, n in rows
        ),
        *(["expect a lower detection rate on a test set"] if trained.findings is None else []),
        *training_lines(trained),
        f"settings: {settings}",
        *([] if fault else next_step),
    ]


def _rate(measured: tuple[float, tuple[float, float]] | None) -> float | None:
    return None if measured is None else measured[0]


def _found_text(measured: tuple[float, tuple[float, float]] | None) -> str:
    if measured is None:
        return ""
    rate, (low, high) = measured
    return f"{rate:.1%} of held-out objects ({low:.1%} to {high:.1%}), "


# --- Why a detector is weak -------------------------------------------------------------------------------------------


def errors_table(errors: ErrorReport) -> dict[str, Any]:
    """Kinds of errors, for --json."""
    fit = errors.box_fit
    return {
        "kinds": [
            {
                "kind": str(count.kind),
                "false_positives": count.false_positives,
                "missed": count.missed,
                "objects": count.n_objects,
                "average_precision_without": finite_or_none(count.average_precision),
            }
            for count in errors.counts
        ],
        "box_fit": {name: finite_or_none(value) for name, value in vars(fit).items()},
    }


def advice_table(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """Advice, for --json."""
    return [{"what": advised.what, "why": advised.why, "gain": round(advised.gain, 4)} for advised in advice]


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
    kinds = [f"{count.missed:,} {count.kind}" for count in errors.counts if count.missed]
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
    for count in errors.counts:
        missed = f"{count.missed:,}" if count.missed or count.n_objects else "-"
        such = "" if count.n_objects is None else f"of {count.n_objects:,} such"
        false_positives = f"{count.false_positives:,}" if count.false_positives else "-"
        gain = count.average_precision - errors.average_precision
        yield (
            f"{count.kind!s:<20}  {false_positives:>15}  {missed:>6} {such:<11}"
            f"{count.average_precision:>8.3f} ({gain:+.3f})"
        )


def advice_lines(advice: Sequence[Advice]) -> Iterator[str]:
    """The most promising advice, for the terminal."""
    # Advice that is printed; --json has all.
    for number, advised in enumerate(advice[:3]):
        yield f"{'what would help most' if not number else 'then'}: {advised}"
