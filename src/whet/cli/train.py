"""What a person sees of a training: a live view in a terminal, a line for each stage elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    usage_errors,
)
from whet.cli.output import progress_bar, start, warnings_as_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from whet.training.preparation import Preparation
    from whet.training.progress import Event
    from whet.training.recipe import Recipe
    from whet.training.train import Trained


@contextmanager
def training_view(*, quiet: bool) -> Iterator[tuple[Callable[[Event], None], list[Warning | str]]]:
    """Yields what training tells its events to, and a list of the warnings on the way, which become lines."""
    from rich.console import Console

    console = Console(stderr=True)
    with warnings_as_lines(console) as warned:
        if quiet:
            yield (lambda _: None), warned
        elif console.is_terminal:
            with _live(console) as tell:
                yield tell, warned
        else:
            yield _tell_stages, warned


def _tell_stages(event: Event) -> None:
    from whet.training.progress import Mining, WeakAdded

    if not isinstance(event, WeakAdded | Mining):
        typer.echo(str(event), err=True)


@contextmanager
def _live(console: Any) -> Iterator[Callable[[Event], None]]:  # noqa: ANN401 - rich is imported when needed
    """Finished stages scroll by; below them one line tells what is being done, and how long it will take."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from whet.training.progress import Mining, StageStarted, WeakAdded, duration

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("begins", total=1.0)

        def tell(event: Event) -> None:
            left = "" if event.seconds_left is None else f", about {duration(event.seconds_left)} left"
            match event:
                case WeakAdded():
                    said = (
                        f"stage {event.stage}: {event.n_weak} weak learners, detection rate "
                        f"{event.detection_rate:.1%}, false positives {event.false_positive_rate:.1%}{left}"
                    )
                    progress.update(task, description=said, completed=event.n_weak / event.most_weak)
                case Mining():
                    said = (
                        f"stage {event.stage}: {event.n_found:,} of {event.n_wanted:,} "
                        f"{'held-out ' * event.held_out}negatives, {event.n_looked_at:,} windows{left}"
                    )
                    progress.update(task, description=said, completed=event.n_found / max(event.n_wanted, 1))
                case StageStarted():
                    progress.update(task, description=f"stage {event.stage}: features{left}", completed=0.0)
                case _:
                    console.print(str(event), highlight=False, markup=False)

        yield tell


def plan_table(preparation: Preparation, threads: int | None) -> dict[str, Any]:
    """The plan, for programs."""
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
        "held_out_images": trained.n_images,
        "false_positives": trained.false_positives,
        "operating_points": dict(trained.detector.operating_points),
        "seconds": round(ending.seconds, 1),
    }


def summary_lines(trained: Trained, out: Path, recipe_file: Path) -> list[str]:
    """What came of a training, for a person to act on."""
    from whet.training.progress import duration

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
        f"false positives in {trained.n_images:,} held-out images: {trained.false_positives:,} at any score{default}",
        f"settings: {recipe_file}",
        f"next: whet detect {out} IMAGES --draw drawn; whet evaluate {out} ANNOTATIONS",
    ]


class FeatureChoice(StrEnum):
    """Which features: those of `whet.training.recipe.FEATURES`."""

    both = "both"
    haar = "haar"
    lbp = "lbp"


class MirrorChoice(StrEnum):
    """Whether mirror images are examples too."""

    yes = "yes"
    no = "no"
    safe = "safe"


def train(
    annotations: Annotated[
        Path | None, typer.Argument(help="Boxes: COCO, YOLO, VOC, info.dat or CSV; or a folder of crops.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The detector's file, such as cars.whet.")] = None,
    negatives: Annotated[
        list[str] | None, typer.Option("--negatives", "-n", help="Images without the object; may be repeated.")
    ] = None,
    class_name: Class = None,
    format: FormatOption = None,
    images: ImageFolder = None,
    split: Split = None,
    backgrounds: Annotated[
        bool | None,
        typer.Option("--backgrounds/--no-backgrounds", help="Take negatives outside the boxes too. [default: yes]"),
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="WxH", help="Window in pixels, such as 36x16; else chosen from the boxes.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of a box's size, to see around it. [default: 0.1; crops: 0]")
    ] = None,
    mirror: Annotated[
        MirrorChoice | None, typer.Option(help="Mirror images are examples too; safe: if they look alike. [safe]")
    ] = None,
    copies: Annotated[
        int | None, typer.Option(min=1, help="Patches of each object, a little moved and turned; else by their number.")
    ] = None,
    rotation: Annotated[float | None, typer.Option(min=0, max=45, help="Degrees to turn them by. [default: 3]")] = None,
    features: Annotated[FeatureChoice | None, typer.Option(help="Which kinds of features. [default: both]")] = None,
    most_features: Annotated[int | None, typer.Option(min=1, help="Of each kind. [default: 10000]")] = None,
    stages: Annotated[int | None, typer.Option(min=1, help="At most so many stages. [default: 12]")] = None,
    learners: Annotated[int | None, typer.Option(min=1, help="At most so many in a stage. [default: 100]")] = None,
    n_negatives: Annotated[
        int | None, typer.Option("--stage-negatives", min=1, help="Windows that a stage trains on. [default: 3000]")
    ] = None,
    detection_rate: Annotated[float | None, typer.Option(help="Goal of a stage. [default: 0.98]")] = None,
    false_positive_rate: Annotated[
        float | None, typer.Option(help="Goal of the whole: share of windows accepted. [default: 1e-6]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings; options on the command line come before it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, though a training was stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a detector and settings that are there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all, show the plan and stop.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all that is drawn at random. [default: 0]")] = None,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a detector from annotated images.

    Beside the detector, its settings are written as TOML: `whet train --config` repeats the training. A training
    that was stopped, by Ctrl-C or by a crash, goes on with --resume and ends with the same detector.

    \b
    whet train cars.json --class car --out cars.whet
    whet train boxes.csv --negatives streets/ --out plates.whet --mirror no
    whet train crops/ --negatives backgrounds/ --out logo.whet --dry-run
    whet train --config cars.toml --out cars2.whet --seed 1
    """
    given = {
        "annotations": None if annotations is None else str(annotations),
        "negatives": tuple(negatives) if negatives else None,
        "class_name": class_name,
        "format": None if format is None else format.value,
        "images": None if images is None else str(images),
        "split": split,
        "backgrounds": backgrounds,
        "window": _sides(window),
        "margin": margin,
        "mirror": {None: None, "yes": True, "no": False, "safe": "safe"}[mirror],
        "copies": copies,
        "rotation": rotation,
        "features": None if features is None else features.value,
        "most_features": most_features,
        "stages": stages,
        "learners": learners,
        "n_negatives": n_negatives,
        "detection_rate": detection_rate,
        "false_positive_rate": false_positive_rate,
        "seed": seed,
    }
    start(quiet=quiet)
    from whet.training.preparation import prepare

    recipe = _recipe({name: value for name, value in given.items() if value is not None}, config)
    if out is None and not dry_run:
        raise typer.BadParameter("where should the detector be written? Give --out, such as --out mine.whet")
    if resume and fresh:
        raise typer.BadParameter("--resume goes on and --fresh begins anew: give one of them")
    if out is not None:
        _check_places(out, config, resume=resume, fresh=fresh, force=force)
    with progress_bar("prepare", hidden=quiet) as progress, usage_errors():
        preparation = prepare(recipe, lambda _, share: progress(share), threads)
    lost = skipped(preparation.problems)
    print_problems(lost if quiet else preparation.problems)
    if not quiet:
        typer.echo(preparation.describe(threads), err=True)
    if dry_run or out is None:
        if as_json:
            typer.echo(json.dumps(plan_table(preparation, threads), indent=1))
        is_skipping = False
    else:
        if fresh:
            _checkpoint(out).unlink(missing_ok=True)
        is_skipping = _run(preparation, out, threads, as_json=as_json, quiet=quiet)
    if lost or is_skipping:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


def _recipe(given: dict[str, Any], config: Path | None) -> Recipe:
    from whet.training.recipe import read_settings, recipe_of

    settings = given if config is None else read_settings(config) | given
    if "annotations" not in settings:
        raise typer.BadParameter("which annotations? Give a file or folder, or --config")
    with usage_errors():
        return recipe_of(settings, "the command" if config is None else str(config))


def _sides(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise typer.BadParameter(f"got --window {text}; expected width x height in pixels, such as 36x16")
    return int(width), int(height)


def _checkpoint(out: Path) -> Path:
    return out.with_name(f"{out.name}.checkpoint")


def _check_places(out: Path, config: Path | None, *, resume: bool, fresh: bool, force: bool) -> None:
    """Nothing that is there is replaced unasked: neither a detector, nor settings, nor a training that was stopped."""
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent} to write {out.name} to: make it first")
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder: give the name of a file in it, such as {out / 'mine.whet'}")
    if not _can_write_in(out.parent):
        raise typer.BadParameter(f"nothing can be written to the folder {out.parent}: choose another --out")
    if _checkpoint(out).exists() and not resume and not fresh:
        raise typer.BadParameter(
            f"{_checkpoint(out)} is of a training that was stopped: --resume goes on with it, --fresh begins anew"
        )
    settings = _settings(out)
    if config is not None and settings.exists() and settings.samefile(config):
        raise typer.BadParameter(
            f"the settings of {out} would be written over {config}: choose another name for the detector"
        )
    there = [path for path in (out, settings) if path.exists()]
    if there and not force and not resume:
        raise typer.BadParameter(f"{there[0]} is there already: choose another --out, or replace it with --force")


def _can_write_in(folder: Path) -> bool:
    """By trying: what permissions say is not all, where a file system is full, of another kind or not ours."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=folder) as file:
            file.write(b"whet")
    except OSError:
        return False
    return True


def _settings(out: Path) -> Path:
    return out.with_suffix(".toml")


def _run(preparation: Preparation, out: Path, threads: int | None, *, as_json: bool, quiet: bool) -> bool:
    """Train, save and tell; whether images had to be skipped on the way."""
    from whet.training.negatives import SkippedImagesWarning
    from whet.training.recipe import write_recipe
    from whet.training.train import train_prepared

    recipe_file, checkpoint = _settings(out), _checkpoint(out)
    write_recipe(preparation.recipe, recipe_file)
    try:
        with training_view(quiet=quiet) as (tell, warned):
            trained = train_prepared(
                preparation, tell, checkpoint=checkpoint, origin=provenance("train"), threads=threads
            )
    except KeyboardInterrupt:
        typer.echo(f"whet: stopped; the same command with --resume goes on from {checkpoint}", err=True)
        raise
    trained.detector.save(out)
    checkpoint.unlink(missing_ok=True)
    if as_json:
        typer.echo(json.dumps(result_table(trained, out), indent=1))
    elif not quiet:
        for line in summary_lines(trained, out, recipe_file):
            typer.echo(line)
    return any(isinstance(one, SkippedImagesWarning) for one in warned)
