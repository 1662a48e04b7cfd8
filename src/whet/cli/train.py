"""The command `whet train`: options and settings."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import (
    Class,
    FormatOption,
    ImageFolder,
    Json,
    NWorkers,
    Quiet,
    Scheduler,
    Split,
    Threads,
    check_model_file,
    path_or_url,
    refuse,
    workers_of,
)
from whet.cli.output import start
from whet.cli.training import Run, checkpoint_of, discard, settings_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from whet.training.config import TrainingConfig


class MirrorChoice(StrEnum):
    """Whether mirror images are positives too."""

    yes = "yes"
    no = "no"
    safe = "safe"


def train(
    annotations: Annotated[
        Path | None,
        typer.Argument(
            parser=path_or_url, help="Annotations: COCO, YOLO, Pascal VOC, info.dat, CSV, or a directory of crops."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Model file to write, such as cars.whet.")
    ] = None,
    negatives: Annotated[
        list[str] | None,
        typer.Option(
            "--negatives",
            "-n",
            metavar="PATH",
            help="Image without the object, or a directory or URL of them. Repeatable.",
        ),
    ] = None,
    format: FormatOption = None,
    images: ImageFolder = None,
    class_name: Class = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME...|all", help="Train a detector for each of these classes, in one model."),
    ] = None,
    split: Split = None,
    views: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Detectors of the class, 1 to 3, each for boxes of one shape; auto: several if their shapes are "
            "clearly different. [default: auto]",
        ),
    ] = None,
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
            metavar="SHARE",
            min=0,
            max=1,
            help="Context on each side, as a share of the box. [default: 0.2; cascade 0.1; crops 0]",
        ),
    ] = None,
    mirror: Annotated[
        MirrorChoice | None,
        typer.Option(help="Add mirror images; safe: only if they resemble the originals. [default: safe]"),
    ] = None,
    copies_per_object: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Jittered patches per object (default: automatic).")
    ] = None,
    jitter_shift: Annotated[
        float | None,
        typer.Option(metavar="SHARE", min=0, max=0.5, help="Maximum shift, as a share of the window. [default: 0.04]"),
    ] = None,
    jitter_scale: Annotated[
        float | None, typer.Option(metavar="SHARE", min=0, max=1, help="Maximum change of scale. [default: 0.09]")
    ] = None,
    jitter_rotation: Annotated[
        float | None, typer.Option(metavar="DEGREES", min=0, max=45, help="Maximum rotation in degrees. [default: 3]")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME...]",
            help="channels (colour and gradients), or for a cascade haar, lbp or both. [default: channels]",
        ),
    ] = None,
    trees: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Trees of a channel detector. [default: 1024]")
    ] = None,
    negatives_per_round: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Negative windows that each round of channels adds. [default: 5000]"),
    ] = None,
    max_features: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of features per family. [default: 10000]")
    ] = None,
    max_stages: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of stages. [default: 12]")
    ] = None,
    max_weak_learners: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Maximum number of weak learners per stage, or one number for each stage. [default: 100]",
        ),
    ] = None,
    negatives_per_stage: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Negative windows per stage. [default: 3000]")
    ] = None,
    min_detection_rate: Annotated[
        float | None, typer.Option(metavar="RATE", help="Detection rate of each stage. [default: 0.98]")
    ] = None,
    max_false_positive_rate: Annotated[
        float | None, typer.Option(metavar="RATE", help="False-positive rate of each stage. [default: 0.4]")
    ] = None,
    target_false_positive_rate: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", help="Stop when the whole cascade accepts at most this share of windows. [default: 1e-6]"
        ),
    ] = None,
    validation_share: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of the data to hold out. [default: 0.25]")
    ] = None,
    ridge: Annotated[
        float | None, typer.Option(metavar="X", min=0, help="Ridge of the discriminant (default: automatic).")
    ] = None,
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
        float | None, typer.Option(metavar="X", help="Skip windows with a standard deviation up to this. [default: 5]")
    ] = None,
    max_memory: Annotated[
        int | None, typer.Option(metavar="BYTES", min=1, help="Memory for features, in bytes. [default: 1073741824]")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Random seed. [default: 0]")] = None,
    for_opencv: Annotated[
        bool,
        typer.Option(
            "--for-opencv",
            help="Train a cascade for whet export: features haar (or --features lbp), --min-sigma 10, no early exits.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file with settings; options on the command line override it."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted training.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard an interrupted training and start again.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model and its settings.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check data and settings, print a summary, and stop.")
    ] = False,
    threads: Threads = None,
    scheduler: Scheduler = None,
    n_workers: NWorkers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a detector from annotated images.

    The settings are written beside the model as TOML; `whet train --config` repeats the training. After Ctrl-C or a
    crash, --resume continues the training and gives the same detector. The exit code is 7 if the detector is not
    usable. A channel detector that is weak on objects it was not trained on comes with a learning curve and advice.

    \b
    Examples:
      whet train cars.json --class car --out cars.whet
      whet train signs/ --classes stop,speedlimit --out signs.whet
      whet train boxes.csv --negatives streets/ --out plates.whet --scheduler tcp://host:8786
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
        discard(checkpoint_of(out))
    with workers_of(scheduler, n_workers, threads, quiet=quiet) as workers:
        Run(settings, names, None if dry_run else out, workers, as_json, quiet).run()


def _settings(given: Mapping[str, Any], file: Path | None) -> tuple[TrainingConfig, tuple[str, ...]]:
    """The settings of the command line, over those of a file; and the classes of a model of several."""
    from whet.errors import ConfigError
    from whet.training.classes import classes_of
    from whet.training.config import (
        CHANNELS,
        CLASSES,
        SETTINGS,
        TOML_NAMES,
        TrainingConfig,
        opencv_settings,
        read_settings,
    )

    parsers: dict[str, Callable[[Any], Any]] = {
        "window": _sides,
        "max_weak_learners": _sizes,
        "mirror": MIRROR.__getitem__,
        "views": lambda text: int(text) if text.isdecimal() else text,
    }
    chosen = {name: given[name] for name in SETTINGS if given[name] not in (None, [])}
    chosen = {name: parsers.get(name, _plain)(value) for name, value in chosen.items()}
    settings = chosen if file is None else read_settings(file) | chosen
    if "annotations" not in settings:
        raise typer.BadParameter("missing annotations: give a file or directory, or --config with `annotations`")
    if given["for_opencv"]:
        clashing = {name: chosen.get(name) for name in ("min_sigma", "early_exits")}
        clashing["features"] = CHANNELS if chosen.get("features") == CHANNELS else None
        refuse("with --for-opencv, which sets it; give one of them", **clashing)
    names = settings.pop(CLASSES, ()) if given["classes"] is None else _names(given["classes"])
    if given["classes"] is None and "class_name" in chosen:
        names = ()
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


def _check_files(out: Path, config: Path | None, *, resume: bool, fresh: bool, force: bool) -> None:
    """Refuse to overwrite a model, settings or an interrupted training without --force, --resume or --fresh."""
    from whet.io.files import check_local

    check_local(out)
    if not out.parent.is_dir():
        raise typer.BadParameter(f"output directory does not exist: {out.parent}")
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a directory: give a file, such as --out {out / 'model.whet'}")
    check_model_file(out)
    if not _can_write_in(out.parent):
        raise typer.BadParameter(f"cannot write to the directory {out.parent}: choose another --out")
    if checkpoint_of(out).exists() and not resume and not fresh:
        raise typer.BadParameter(
            f"found an interrupted training, {checkpoint_of(out)}: use --resume to continue or --fresh to start again"
        )
    settings = settings_file(out)
    if config is not None and settings.exists() and settings.samefile(config):
        raise typer.BadParameter(f"the settings of {out} would overwrite {config}: choose another --out")
    existing = [path for path in (out, settings) if path.exists()]
    # A training that was killed before its first checkpoint has left its settings alone: it begins again.
    continues = resume and (checkpoint_of(out).exists() or not out.exists())
    if existing and not force and not continues:
        raise typer.BadParameter(f"{existing[0]} already exists; use --force to overwrite it, or another --out")


def _can_write_in(directory: Path) -> bool:
    """Try to write a file: permissions do not show full or read-only file systems."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=directory) as file:
            file.write(b"whet")
    except OSError:
        return False
    return True
