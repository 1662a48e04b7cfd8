"""The command `whet train`: options, live progress, summary."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.diagnosis import training_lines, training_table
from whet.cli.inputs import print_problems, skipped
from whet.cli.models import provenance
from whet.cli.options import (
    Class,
    ExitCode,
    FormatOption,
    ImageFolder,
    Json,
    Quiet,
    Split,
    Threads,
    refuse,
    usage_errors,
)
from whet.cli.output import progress_bar, start, warnings_as_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from whet.training.channel_preparation import ChannelPreparation
    from whet.training.config import TrainingConfig
    from whet.training.preparation import Preparation
    from whet.training.progress import Event
    from whet.training.train import Trained


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
        typer.echo(str(event), err=True)


@contextmanager
def _live(console: Any) -> Iterator[Callable[[Event], None]]:  # noqa: ANN401 - rich is imported when needed
    """Print finished stages; below them, one live line shows the current step and the estimated time."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from whet.training.progress import Mining, RoundStarted, StageStarted, TreesAdded, WeakAdded, duration

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
                case StageStarted() | RoundStarted():
                    text = f"{event.part} {event.stage}: computing features{left}"
                    progress.update(task, description=text, completed=0.0)
                case _:
                    console.print(str(event), highlight=False, markup=False)

        yield callback


def preparation_table(preparation: Preparation | ChannelPreparation, threads: int | None) -> dict[str, Any]:
    """Data and estimates of a training, for --json."""
    height, width = preparation.choice.window
    return {
        "window": {"width": width, "height": height},
        "positives": len(preparation.positives),
        "objects": preparation.positives.n_objects,
        "images": len(preparation.images),
        "features": preparation.n_features,
        "memory_bytes": preparation.memory,
        "seconds": round(preparation.seconds(threads), 1),
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
            f"{name}: {_found_text(rate)}{n:,} false positives in {trained.n_images:,} held-out images"
            for name, rate, n in rows
        ),
        "expect a lower detection rate on a test set",
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


class MirrorChoice(StrEnum):
    """Whether mirror images are positives too."""

    yes = "yes"
    no = "no"
    safe = "safe"


def train(
    annotations: Annotated[
        Path | None, typer.Argument(help="Annotations: COCO, YOLO, Pascal VOC, info.dat, CSV, or a folder of crops.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model file to write, such as cars.whet.")] = None,
    negatives: Annotated[
        list[str] | None,
        typer.Option("--negatives", "-n", help="Images without the object, or a folder; may be repeated."),
    ] = None,
    format: FormatOption = None,
    images: ImageFolder = None,
    class_name: Class = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME...|all", help="Train a detector for each of these classes, in one model."),
    ] = None,
    split: Split = None,
    backgrounds: Annotated[
        bool | None,
        typer.Option(
            "--backgrounds/--no-backgrounds",
            help="Also take negatives from the annotated images, outside all boxes. [default: yes]",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="WxH", help="Window in pixels, such as 36x16 (default: choose from the boxes)."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Context on each side, as a share of the box. [default: 0.2; cascade 0.1; crops 0]"
        ),
    ] = None,
    mirror: Annotated[
        MirrorChoice | None,
        typer.Option(help="Add mirror images; safe: only if they resemble the originals. [default: safe]"),
    ] = None,
    copies_per_object: Annotated[
        int | None, typer.Option(min=1, help="Jittered patches per object (default: automatic).")
    ] = None,
    jitter_shift: Annotated[
        float | None, typer.Option(min=0, max=0.5, help="Maximum shift, as a share of the window. [default: 0.04]")
    ] = None,
    jitter_scale: Annotated[
        float | None, typer.Option(min=0, max=1, help="Maximum change of scale. [default: 0.09]")
    ] = None,
    jitter_rotation: Annotated[
        float | None, typer.Option(min=0, max=45, help="Maximum rotation in degrees. [default: 3]")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="channels (colour and gradients), or for a cascade haar, lbp or both. [default: channels]",
        ),
    ] = None,
    trees: Annotated[int | None, typer.Option(min=1, help="Trees of a channel detector. [default: 1024]")] = None,
    negatives_per_round: Annotated[
        int | None, typer.Option(min=1, help="Negative windows that each round of channels adds. [default: 5000]")
    ] = None,
    max_features: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of features per family. [default: 10000]")
    ] = None,
    max_stages: Annotated[int | None, typer.Option(min=1, help="Maximum number of stages. [default: 12]")] = None,
    max_weak_learners: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Maximum number of weak learners per stage, or one number for each stage. [default: 100]",
        ),
    ] = None,
    negatives_per_stage: Annotated[
        int | None, typer.Option(min=1, help="Negative windows per stage. [default: 3000]")
    ] = None,
    min_detection_rate: Annotated[
        float | None, typer.Option(help="Detection rate of each stage. [default: 0.98]")
    ] = None,
    max_false_positive_rate: Annotated[
        float | None, typer.Option(help="False-positive rate of each stage. [default: 0.4]")
    ] = None,
    target_false_positive_rate: Annotated[
        float | None,
        typer.Option(help="Stop when the whole cascade accepts at most this share of windows. [default: 1e-6]"),
    ] = None,
    validation_share: Annotated[
        float | None, typer.Option(help="Share of the data to hold out. [default: 0.25]")
    ] = None,
    ridge: Annotated[float | None, typer.Option(min=0, help="Ridge of the discriminant (default: automatic).")] = None,
    early_exits: Annotated[
        bool | None,
        typer.Option(
            "--early-exits/--no-early-exits", help="Add rejection thresholds inside each stage. [default: yes]"
        ),
    ] = None,
    drop_rejected_positives: Annotated[
        bool | None,
        typer.Option(
            "--drop-rejected-positives/--no-drop-rejected-positives",
            help="Train a stage only on positives that pass the earlier stages. [default: yes]",
        ),
    ] = None,
    min_sigma: Annotated[
        float | None, typer.Option(help="Skip windows with a standard deviation up to this. [default: 5]")
    ] = None,
    max_memory: Annotated[
        int | None, typer.Option(min=1, help="Memory for features, in bytes. [default: 1073741824]")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed. [default: 0]")] = None,
    for_opencv: Annotated[
        bool,
        typer.Option(
            "--for-opencv",
            help="Train a cascade for whet export: features haar (or --features lbp), --min-sigma 10, no early exits.",
        ),
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings; options on the command line override it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted training.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard an interrupted training and start again.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model and its settings.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check data and settings, print a summary, and stop.")
    ] = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a detector from annotated images.

    The settings are written beside the model as TOML; `whet train --config` repeats the training. After Ctrl-C or a
    crash, --resume continues the training and gives the same detector. The exit code is 7 if the detector is not
    usable. A channel detector that is weak on objects it was not trained on comes with a learning curve and advice.

    \b
    whet train cars.json --class car --out cars.whet
    whet train signs/ --classes stop,speedlimit --out signs.whet
    whet train boxes.csv --negatives streets/ --out plates.whet --mirror no
    whet train cars.json --for-opencv --out cars.whet
    whet train --config cars.toml --out cars2.whet --seed 1
    """
    given = locals()
    start(quiet=quiet)
    settings, names = _settings(given, config)
    if out is None and not dry_run:
        raise typer.BadParameter("missing output file: give --out, such as --out model.whet")
    if resume and fresh:
        raise typer.BadParameter("--resume and --fresh exclude each other: give one of them")
    if out is not None:
        _check_files(out, config, resume=resume, fresh=fresh, force=force)
    if fresh and out is not None:
        _discard(_checkpoint(out))
    run = _Run(settings, names, None if dry_run else out, threads, as_json, quiet)
    run.run()


def _settings(given: Mapping[str, Any], file: Path | None) -> tuple[TrainingConfig, tuple[str, ...]]:
    """The settings of the command line, over those of a file; and the classes of a model of several."""
    from whet.errors import ConfigError
    from whet.training.config import (
        CHANNELS,
        CLASSES,
        SETTINGS,
        TOML_NAMES,
        TrainingConfig,
        opencv_settings,
        read_settings,
    )
    from whet.training.train import classes_of

    parsers: dict[str, Callable[[Any], Any]] = {
        "window": _sides,
        "max_weak_learners": _sizes,
        "mirror": MIRROR.__getitem__,
    }
    chosen = {name: given[name] for name in SETTINGS if given[name] not in (None, [])}
    chosen = {name: parsers.get(name, _plain)(value) for name, value in chosen.items()}
    settings = chosen if file is None else read_settings(file) | chosen
    if "annotations" not in settings:
        raise typer.BadParameter("missing annotations: give a file or folder, or --config with `annotations`")
    if given["for_opencv"]:
        clashing = {name: chosen.get(name) for name in ("min_sigma", "early_exits")}
        clashing["features"] = CHANNELS if chosen.get("features") == CHANNELS else None
        refuse("with --for-opencv, which sets it; give one of them", **clashing)
    names = settings.pop(CLASSES, ()) if given["classes"] is None else _names(given["classes"])
    if names and "class_name" in settings:
        raise typer.BadParameter("--class and --classes exclude each other: give one of them")
    try:
        config = TrainingConfig(**(opencv_settings(settings) if given["for_opencv"] else settings))
        if names:
            every = None if names == ("all",) else names
            names = tuple(classes_of(settings["annotations"], config.format, config.images, every))
        return config, names
    except ConfigError as error:  # values of the file are already checked
        name, _, rest = str(error).partition("=")
        raise ConfigError(f"--{TOML_NAMES[name].replace('_', '-')} {rest}") from error


MIRROR: dict[MirrorChoice, bool | str] = {MirrorChoice.yes: True, MirrorChoice.no: False, MirrorChoice.safe: "safe"}


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of any option
    return value.value if isinstance(value, StrEnum) else value


def _sides(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise typer.BadParameter(f"got --window {text}; expected width x height in pixels, such as 36x16")
    return int(width), int(height)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _sizes(text: str) -> int | tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"got --max-weak-learners {text}; expected a number such as 100, or 20,50,100")
    sizes = tuple(map(int, parts))
    return sizes if len(sizes) > 1 else sizes[0]


def _prepared(
    settings: TrainingConfig, threads: int | None, *, quiet: bool
) -> tuple[Preparation | ChannelPreparation, list[Warning | str]]:
    """Prepare the data; warnings are printed below the progress bar."""
    from whet.training.preparation import prepare

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with progress_bar("prepare", hidden=quiet) as progress, usage_errors():
            prepared = prepare(settings, lambda _, share: progress(share), threads)
    for one in caught:
        typer.echo(f"whet: warning: {one.message}", err=True)
    return prepared, [one.message for one in caught]


def _checkpoint(out: Path) -> Path:
    return out.with_name(f"{out.name}.checkpoint")


def _check_files(out: Path, config: Path | None, *, resume: bool, fresh: bool, force: bool) -> None:
    """Refuse to overwrite a model, settings or an interrupted training without --force, --resume or --fresh."""
    if not out.parent.is_dir():
        raise typer.BadParameter(f"output directory does not exist: {out.parent}")
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a directory: give a file, such as --out {out / 'model.whet'}")
    if not _can_write_in(out.parent):
        raise typer.BadParameter(f"cannot write to the directory {out.parent}: choose another --out")
    if _checkpoint(out).exists() and not resume and not fresh:
        raise typer.BadParameter(
            f"found an interrupted training, {_checkpoint(out)}: use --resume to continue or --fresh to start again"
        )
    settings = _settings_file(out)
    if config is not None and settings.exists() and settings.samefile(config):
        raise typer.BadParameter(f"the settings of {out} would overwrite {config}: choose another --out")
    existing = [path for path in (out, settings) if path.exists()]
    if existing and not force and not resume:
        raise typer.BadParameter(f"{existing[0]} already exists; use --force to overwrite it, or another --out")


def _can_write_in(folder: Path) -> bool:
    """Try to write a file: permissions do not show full or read-only file systems."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=folder) as file:
            file.write(b"whet")
    except OSError:
        return False
    return True


def _settings_file(out: Path) -> Path:
    return out.with_suffix(".toml")


def _discard(checkpoint: Path) -> None:
    """Remove a checkpoint, or the folder of those of several classes."""
    if checkpoint.is_dir():
        for file in checkpoint.glob("*.checkpoint"):
            file.unlink()
        checkpoint.rmdir()
    else:
        checkpoint.unlink(missing_ok=True)


@dataclass
class _Run:
    """Train one detector, or one for each of several classes; print and save the result. Without `out`, a dry run."""

    config: TrainingConfig
    classes: tuple[str, ...]
    out: Path | None
    threads: int | None
    as_json: bool
    quiet: bool
    skipped: bool = False

    def run(self) -> None:
        tables, trained = [], {}
        for number, name in enumerate(self.classes or (None,)):
            if name is not None and not self.quiet:
                typer.echo(f"class {name}, {number + 1} of {len(self.classes)}", err=True)
            prepared = self._prepared(name)
            if self.out is None:
                tables.append(preparation_table(prepared, self.threads))
                continue
            trained[name] = self._train(prepared, self.out, number)
            tables.append(result_table(trained[name], self.out))
        if self.out is not None:
            self._save(trained, self.out)
        if self.as_json:
            typer.echo(
                json.dumps(dict(zip(self.classes, tables, strict=True)) if self.classes else tables[0], indent=1)
            )
        elif self.out is not None and not self.quiet:
            self._summarize(trained, self.out)
        if any(one.result.fault is not None for one in trained.values()):
            raise typer.Exit(ExitCode.NOT_USABLE)
        if self.skipped:
            raise typer.Exit(ExitCode.SOME_SKIPPED)

    def _prepared(self, class_name: str | None) -> Preparation | ChannelPreparation:
        config = self.config if class_name is None else replace(self.config, class_name=class_name)
        prepared, warned = _prepared(config, self.threads, quiet=self.quiet)
        lost = skipped(prepared.problems)
        print_problems(lost if self.quiet else prepared.problems)
        if not self.quiet:
            typer.echo(prepared.describe(self.threads), err=True)
        self._note(warned, is_skipped=bool(lost))
        return prepared

    def _train(self, prepared: Preparation | ChannelPreparation, out: Path, number: int) -> Trained:
        from whet.training.config import write_settings
        from whet.training.train import class_checkpoint, train_prepared

        write_settings(self.config, _settings_file(out), self.classes)
        checkpoint = class_checkpoint(_checkpoint(out), number) if self.classes else _checkpoint(out)
        try:
            with training_view(quiet=self.quiet) as (callback, warned):
                trained = train_prepared(
                    prepared, callback, checkpoint=checkpoint, origin=provenance("train"), threads=self.threads
                )
        except KeyboardInterrupt:
            typer.echo(f"whet: stopped; repeat the command with --resume to continue from {_checkpoint(out)}", err=True)
            raise
        self._note(warned)
        return trained

    def _save(self, trained: Mapping[str | None, Trained], out: Path) -> None:
        from whet.detector.classes import MultiClassDetector

        if self.classes:
            MultiClassDetector({name: trained[name].detector for name in self.classes}).save(out)
        else:
            trained[None].detector.save(out)
        _discard(_checkpoint(out))

    def _summarize(self, trained: Mapping[str | None, Trained], out: Path) -> None:
        for name, one in trained.items():
            if name is not None:
                typer.echo(f"class {name}:")
            for line in summary_lines(one, out, _settings_file(out)):
                typer.echo(line)

    def _note(self, warned: list[Warning | str], *, is_skipped: bool = False) -> None:
        from whet.training.negatives import SkippedImagesWarning

        self.skipped |= is_skipped or any(isinstance(one, SkippedImagesWarning) for one in warned)
