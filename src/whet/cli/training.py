"""Running a training for `whet train`: live progress, checkpoint, several classes, summary.

The summary says why a detector is weak: kinds of errors, learning curve and advice, which `whet evaluate` prints, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whet.cli.inputs import print_problems, skipped
from whet.cli.options import ExitCode, provenance, usage_errors
from whet.cli.output import finite_or_none, plural, progress_bar, say, say_json, warnings_as_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from whet._kernels.workers import Workers
    from whet.evaluation.advice import Advice
    from whet.evaluation.error_kinds import ErrorReport
    from whet.io.annotations.annotation import Annotations
    from whet.training.channel_preparation import ChannelPreparation
    from whet.training.config import TrainingConfig
    from whet.training.preparation import Preparation
    from whet.training.progress import Event
    from whet.training.train import Trained
    from whet.training.views import PreparedViews

# Advice that is printed; --json has all.
MOST_ADVICE = 3


@contextmanager
def training_view(*, quiet: bool) -> Iterator[tuple[Callable[[Event], None], list[Warning | str]]]:
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
    from whet.training.progress import Mining, TreesAdded, WeakAdded

    if not isinstance(event, WeakAdded | TreesAdded | Mining):
        say(str(event), err=True)


@contextmanager
def _live(console: Any) -> Iterator[Callable[[Event], None]]:  # noqa: ANN401 - rich is imported when needed
    """Print finished stages; below them, one live line shows the current step and the estimated time."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from whet.training.progress import Mining, RoundStarted, StageStarted, StepStarted, TreesAdded, WeakAdded, duration

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)

        def callback(event: Event) -> None:
            left = "" if event.seconds_left is None else f", about {duration(event.seconds_left)} left"
            match event:
                case WeakAdded():
                    text = (
                        f"stage {event.stage}: {event.n_weak} weak learners, detection rate "
                        f"{event.detection_rate:.1%}, false-positive rate {event.false_positive_rate:.1%}{left}"
                    )
                    progress.update(task, description=text, completed=event.n_weak / event.max_weak)
                case TreesAdded():
                    purpose = f"{event.purpose or f'round {event.stage}'}: "
                    text = f"{purpose}{event.n_trees:,} of {event.max_trees:,} trees{left}"
                    progress.update(task, description=text, completed=event.n_trees / event.max_trees)
                case Mining():
                    text = (
                        f"{event.part} {event.stage}: mined {event.n_found:,} of {event.n_wanted:,} "
                        f"{'held-out ' * event.held_out}negatives, {event.n_tested:,} windows{left}"
                    )
                    progress.update(task, description=text, completed=event.n_found / max(event.n_wanted, 1))
                case StepStarted():
                    progress.update(task, description=f"{event.name}{left}", completed=0.0)
                case StageStarted() | RoundStarted():
                    text = f"{event.part} {event.stage}: computing features{left}"
                    progress.update(task, description=text, completed=0.0)
                case _:
                    console.print(str(event), highlight=False, markup=False)

        yield callback


def preparation_table(preparation: Preparation | ChannelPreparation, workers: Workers) -> dict[str, Any]:
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
        "weak_learners": trained.detector.cascade.n_weak,
        "false_positive_rate": result.false_positive_rate,
        "false_positive_interval": result.false_positive_interval,
        "detection_rate": result.detection_rate,
        "detection_interval": result.detection_interval,
        "found_at_any_score": _rate(trained.detection_rate(-inf)),
        "found_at_default_score": _rate(trained.detection_rate()),
        "held_out_images": trained.n_images,
        "false_positives": trained.false_positives,
        "false_positives_at_default_score": trained.default_false_positives,
        "operating_points": dict(trained.detector.operating_points),
        **training_table(trained),
        "seconds": round(result.seconds, 1),
    }


def summary_lines(trained: Trained, out: Path, settings: Path) -> list[str]:
    """Result of a training, for the terminal."""
    from whet.training.progress import duration

    result, points = trained.result, trained.detector.operating_points
    lowest, highest = result.false_positive_interval
    rows = [("at any score", trained.detection_rate(-inf), trained.false_positives)]
    if "default" in points:
        name = f"at the default minimum score of {points['default']:.3g}"
        rows.append((name, trained.detection_rate(), trained.default_false_positives))
    cascade = trained.detector.cascade
    size = f"{result.n_stages} stages, {cascade.n_weak} weak learners"
    if cascade.uses_channels:
        size = f"{cascade.n_weak // 4:,} trees"
    fault = [] if result.fault is None else [f"not usable: {out} {result.fault}"]
    next_step = [f"next: whet detect {out} IMAGES --draw drawn; whet evaluate {out} ANNOTATIONS"]
    return [
        *fault,
        f"{out}: {size}, {out.stat().st_size:,} bytes, trained in {duration(result.seconds)}",
        f"stop reason: {result.message}",
        f"false-positive rate: {result.false_positive_rate:.2g} of held-out windows ({lowest:.2g} to {highest:.2g})",
        *(
            f"{name}: {_found_text(rate)}{plural(n, 'false positive')} in {trained.n_images:,} held-out images"
            for name, rate, n in rows
        ),
        *([] if cascade.uses_channels else ["expect a lower detection rate on a test set"]),
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


# --- One run ----------------------------------------------------------------------------------------------------------


def _prepared(
    settings: TrainingConfig, workers: Workers, found: Annotations | None, *, quiet: bool
) -> tuple[PreparedViews, Annotations, list[Warning | str]]:
    """Prepare the data, and return the annotations too; warnings are printed below the progress bar."""
    from whet.training.preparation import read_set
    from whet.training.views import prepare_views

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with progress_bar("prepare", hidden=quiet) as progress, usage_errors():
            found = read_set(settings, lambda _, share: progress(share)) if found is None else found
            prepared = prepare_views(settings, lambda _, share: progress(share), workers, found)
    for one in caught:
        say(f"whet: Warning: {one.message}", err=True)
    return prepared, found, [one.message for one in caught]


def checkpoint_of(out: Path) -> Path:
    """Where an interrupted training of a model is kept."""
    return out.with_name(f"{out.name}.checkpoint")


def settings_file(out: Path) -> Path:
    """Where the settings of a model are written."""
    return out.with_suffix(".toml")


def discard(checkpoint: Path) -> None:
    """Remove a checkpoint, or the folder of those of several classes."""
    if checkpoint.is_dir():
        for file in checkpoint.glob("*.checkpoint"):
            file.unlink()
        checkpoint.rmdir()
    else:
        checkpoint.unlink(missing_ok=True)


@dataclass
class Run:
    """Train one detector, or one for each of several classes; print and save the result. Without `out`, a dry run."""

    config: TrainingConfig
    classes: tuple[str, ...]
    out: Path | None
    workers: Workers
    as_json: bool
    quiet: bool
    skipped: bool = False
    found: Annotations | None = None  # of all classes: they are read once

    def run(self) -> None:
        """Train, print and save."""
        from whet.detector.storage import check_classes

        names: tuple[str | None, ...] = self.classes or (None,)
        prepared = []
        for name in names:  # all of them first: an error comes before the first training
            self._announce(name)
            prepared.append(self._prepared(name))
        has_one = not self.classes and len(prepared[0].views) == 1
        trained: dict[str, Trained] = {}
        if self.out is None:
            views = {name: one for each in prepared for name, one in each.views.items()}
            tables = {name: preparation_table(one, self.workers) for name, one in views.items()}
        else:
            check_classes(self.out, [] if has_one else [name for each in prepared for name in each.views])
            for each in prepared:
                trained |= self._train_class(each, self.out, len(trained), has_one=has_one)
            self._save(trained, self.out, has_one=has_one)
            tables = {name: result_table(one, self.out) for name, one in trained.items()}
        if self.as_json:
            say_json(next(iter(tables.values())) if has_one else tables)
        elif self.out is not None and not self.quiet:
            for name, one in trained.items():
                if not has_one:
                    say(f"class {name}:")
                for line in summary_lines(one, self.out, settings_file(self.out)):
                    say(line)
        if any(one.result.fault is not None for one in trained.values()):
            raise typer.Exit(ExitCode.NOT_USABLE)
        if self.skipped:
            raise typer.Exit(ExitCode.SOME_SKIPPED)

    def _announce(self, name: str | None) -> None:
        if name is not None and not self.quiet:
            say(f"class {name}, {self.classes.index(name) + 1} of {len(self.classes)}", err=True)

    def _prepared(self, class_name: str | None) -> PreparedViews:
        config = self.config if class_name is None else replace(self.config, class_name=class_name)
        prepared, self.found, warned = _prepared(config, self.workers, self.found, quiet=self.quiet)
        is_skipped = False
        if len(prepared.views) > 1 and not self.quiet:
            say(f"views      {prepared.shapes}", err=True)
        for name, one in prepared.views.items():
            lost = skipped(one.problems)
            is_skipped |= bool(lost)
            print_problems(lost if self.quiet else one.problems)
            if not self.quiet:
                if len(prepared.views) > 1:
                    say(f"view {name}", err=True)
                for line in one.describe(self.workers).splitlines():
                    say(line, err=True)
        self._note(warned, is_skipped=is_skipped)
        return prepared

    def _train_class(self, prepared: PreparedViews, out: Path, first: int, *, has_one: bool) -> dict[str, Trained]:
        """Train all views of a class; `first` is the number of the detectors before."""
        from whet.training.classes import class_checkpoint
        from whet.training.views import with_common_points

        trained = {}
        for number, (name, one) in enumerate(prepared.views.items(), start=first):
            if not has_one and not self.quiet:
                say(f"{'view' if len(prepared.views) > 1 else 'class'} {name}", err=True)
            file = checkpoint_of(out) if has_one else class_checkpoint(checkpoint_of(out), number)
            trained[name] = self._train(one, out, file)
        return with_common_points(prepared, trained, self.workers)

    def _train(self, prepared: Preparation | ChannelPreparation, out: Path, checkpoint: Path) -> Trained:
        from whet.training.config import write_settings
        from whet.training.train import train_prepared

        write_settings(self.config, settings_file(out), self.classes)
        try:
            with training_view(quiet=self.quiet) as (callback, warned):
                trained = train_prepared(
                    prepared, callback, checkpoint=checkpoint, origin=provenance("train"), workers=self.workers
                )
        except KeyboardInterrupt:
            say(f"whet: stopped; repeat the command with --resume to continue from {checkpoint_of(out)}", err=True)
            raise
        self._note(warned)
        return trained

    def _save(self, trained: Mapping[str, Trained], out: Path, *, has_one: bool) -> None:
        from whet.detector.classes import MultiClassDetector

        if has_one:
            next(iter(trained.values())).detector.save(out)
        else:
            MultiClassDetector({name: one.detector for name, one in trained.items()}).save(out)
        discard(checkpoint_of(out))

    def _note(self, warned: list[Warning | str], *, is_skipped: bool = False) -> None:
        from whet.training.negatives import SkippedImagesWarning

        self.skipped |= is_skipped or any(isinstance(one, SkippedImagesWarning) for one in warned)
