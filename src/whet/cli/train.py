"""The command `whet train`: options, settings, and one run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.inputs import print_problems, skipped
from whet.cli.main import GlobbingCommand
from whet.cli.options import (
    Class,
    ExitCode,
    FormatOption,
    ImageFolder,
    Json,
    NWorkers,
    Quiet,
    Scheduler,
    Threads,
    check_model_file,
    path_or_url,
    provenance,
    refuse,
    usage_errors,
    workers_of,
)
from whet.cli.output import progress_bar, say, say_json, start
from whet.training.config import (
    CHANNELS,
    CLASSES,
    SETTINGS,
    TrainingConfig,
    opencv_settings,
    read_settings,
    write_settings,
)

if TYPE_CHECKING:
    from whet.io.annotations.annotation import Annotations
    from whet.parallel.workers import Workers
    from whet.training.preparation import Preparation, PreparedClass
    from whet.training.train import Trained


class Command(GlobbingCommand):
    """A command that tells where to write a setting that is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own context
        """Refuse settings of the config file."""
        options = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for option in (arg.partition("=")[0] for arg in args):
            name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
            setting = next((known for known in SETTINGS.values() if known.toml_name == name), None)
            if option.startswith("--") and option not in options and setting is not None:
                value = "false" if "--no-" in option else "..." if setting.default is None else setting.default_text
                where = f"under [{setting.table}] in" if setting.table else "in"
                raise typer.BadParameter(
                    f"no such option {option}; write {name} = {value} {where} a file and pass --config FILE"
                )
        return super().parse_args(ctx, args)


def _option(name: str, metavar: str, *declarations: str) -> Any:  # noqa: ANN401 - as that of Typer
    return typer.Option(*declarations, metavar=metavar, help=str(SETTINGS[name]))


def train(
    annotations: Annotated[
        Path | None, typer.Argument(parser=path_or_url, help="Annotations in a format that whet convert --help lists.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Model file to write, such as cars.whet.")
    ] = None,
    negatives: Annotated[list[str] | None, _option("negatives", "PATH", "--negatives", "-n")] = None,
    format: FormatOption = None,
    images: ImageFolder = None,
    class_name: Class = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME...|all", help="Train a detector for each of these classes, in one model."),
    ] = None,
    shapes: Annotated[str | None, _option("shapes", "N|auto")] = None,
    features: Annotated[str | None, _option("features", "NAME[,NAME...]")] = None,
    trees: Annotated[int | None, _option("trees", "N")] = None,
    seed: Annotated[int | None, _option("seed", "N")] = None,
    for_opencv: Annotated[
        bool,
        typer.Option("--for-opencv", help="Train a cascade for whet export, of haar features or --features lbp."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file with these and all other settings; options override it."),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--fresh", help="Resume an interrupted training, or discard it and start again."),
    ] = None,
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

    All settings are written beside the model as TOML: edit the file, and train again with --config. The guide
    docs/guides/train.md describes them. After Ctrl-C or a crash, --resume continues the training and gives the same
    detector. The exit code is 7 if the detector is not usable.

    \b
    Examples:
      whet train cars.json --class car --out cars.whet
      whet train signs/ --classes stop,speedlimit --out signs.whet
      whet train boxes.csv --negatives streets/ --out plates.whet --scheduler tcp://host:8786
      whet train cars.json --for-opencv --out cars.whet
      whet train --config cars.toml --out cars2.whet --seed 1
    """
    start(quiet=quiet)
    options = {
        "annotations": annotations,
        "negatives": negatives or None,
        "format": format and format.value,
        "images": images,
        "class_name": class_name,
        "shapes": int(shapes) if shapes and shapes.isdecimal() else shapes,
        "features": features,
        "trees": trees,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    settings, names = _settings(given, classes, config, for_opencv=for_opencv)
    if out is None and not dry_run:
        raise typer.BadParameter("missing output file: give --out, such as --out model.whet")
    if out is not None:
        _check_files(out, config, resume=resume, force=force)
        if resume is False and not dry_run:
            _discard(_checkpoint(out))
    with workers_of(scheduler, n_workers, threads, quiet=quiet) as workers:
        _Run(settings, names, None if dry_run else out, workers, as_json, quiet).run()


def _settings(
    given: Mapping[str, Any], classes: str | None, file: Path | None, *, for_opencv: bool
) -> tuple[TrainingConfig, tuple[str, ...]]:
    """The settings of the command line, over those of a file; and the classes of a model of several."""
    from whet.errors import ConfigError
    from whet.training.train import classes_of

    settings = {**(read_settings(file) if file else {}), **given}
    if "annotations" not in settings:
        raise typer.BadParameter("missing annotations: give a file or directory, or --config with `annotations`")
    if for_opencv:
        features = CHANNELS if given.get("features") == CHANNELS else None
        refuse("with --for-opencv, which sets it; give one of them", features=features)
    names: tuple[str, ...] = settings.pop(CLASSES, ())
    if classes is not None:
        names = tuple(filter(None, (part.strip() for part in classes.split(","))))
    elif "class_name" in given:
        names = ()
    if names and "class_name" in settings:
        raise typer.BadParameter("--class and --classes exclude each other: give one of them")
    try:
        config = TrainingConfig(**(opencv_settings(settings) if for_opencv else settings))
        if names:
            wanted = None if names == ("all",) else names
            names = tuple(classes_of(settings["annotations"], config.format, config.images, wanted))
        return config, names
    except ConfigError as error:  # values of the file are already checked
        name, _, rest = str(error).partition("=")
        if name not in given:
            raise
        raise ConfigError(f"--{SETTINGS[name].toml_name} {rest}") from error


def _check_files(out: Path, config: Path | None, *, resume: bool | None, force: bool) -> None:
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
    if _checkpoint(out).exists() and resume is None:
        raise typer.BadParameter(
            f"found an interrupted training, {_checkpoint(out)}: use --resume to continue or --fresh to start again"
        )
    settings = _settings_file(out)
    if config is not None and settings.exists() and settings.samefile(config):
        raise typer.BadParameter(f"the settings of {out} would overwrite {config}: choose another --out")
    existing = [path for path in (out, settings) if path.exists()]
    # A training that was killed before its first checkpoint has left its settings alone: it begins again.
    continues = resume and (_checkpoint(out).exists() or not out.exists())
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


def _checkpoint(out: Path) -> Path:
    """Where an interrupted training of a model is kept."""
    return out.with_name(f"{out.name}.checkpoint")


def _settings_file(out: Path) -> Path:
    """Where the settings of a model are written."""
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
    workers: Workers
    as_json: bool
    quiet: bool
    is_skipped: bool = False
    annotations: Annotations | None = None  # of all classes: they are read once

    def run(self) -> None:
        """Train, print and save."""
        from whet.cli.train_report import preparation_table, result_table, summary_lines
        from whet.detector.detector import Detector
        from whet.detector.storage import check_classes

        prepared = []
        for number, name in enumerate(self.classes, start=1):  # all of them first: errors come before a training
            self._say(f"class {name}, {number} of {len(self.classes)}")
            prepared.append(self._prepared(replace(self.config, class_name=name)))
        prepared = prepared or [self._prepared(self.config)]
        has_one = not self.classes and len(prepared[0].parts) == 1
        trained: dict[str, Trained] = {}
        if self.out is None:
            parts = [part for data in prepared for part in zip(data.titles, data.parts, strict=True)]
            tables = {title: preparation_table(part, self.workers) for title, part in parts}
        else:
            check_classes(self.out, [data.name for data in prepared])
            write_settings(self.config, _settings_file(self.out), self.classes)
            shapes = {}
            for data in prepared:
                results = self._train_class(data, self.out, len(trained), has_one=has_one)
                shapes[data.name] = [result.detector.only for result in results]
                trained |= zip(data.titles, results, strict=True)
            (results[0].detector if has_one else Detector(shapes)).save(self.out)
            _discard(_checkpoint(self.out))
            tables = {title: result_table(result, self.out) for title, result in trained.items()}
        if self.as_json:
            say_json(next(iter(tables.values())) if has_one else tables)
        elif self.out is not None and not self.quiet:
            for title, result in trained.items():
                if not has_one:
                    say(f"class {title}:")
                for line in summary_lines(result, self.out, _settings_file(self.out)):
                    say(line)
        if any(done.result.fault is not None for done in trained.values()):
            raise typer.Exit(ExitCode.NOT_USABLE)
        if self.is_skipped:
            raise typer.Exit(ExitCode.SOME_SKIPPED)

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(text, err=True)

    def _prepared(self, config: TrainingConfig) -> PreparedClass:
        """Prepare the data of a class, and print what they are; warnings are printed below the progress bar."""
        from whet.training.preparation import prepare_class, read_set

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with progress_bar("prepare", hidden=self.quiet) as progress, usage_errors():
                if self.annotations is None:
                    self.annotations = read_set(config, lambda _, share: progress(share))
                prepared = prepare_class(config, lambda _, share: progress(share), self.workers, self.annotations)
        for warning in caught:
            say(f"whet: Warning: {warning.message}", err=True)
        self._note([warning.message for warning in caught])
        if len(prepared.parts) > 1:
            self._say(f"shapes     {prepared.shapes}")
        for title, part in zip(prepared.titles, prepared.parts, strict=True):
            lost = skipped(part.problems)
            self.is_skipped |= bool(lost)
            print_problems(lost if self.quiet else part.problems)
            if len(prepared.parts) > 1:
                self._say(title)
            for line in part.describe(self.workers).splitlines():
                self._say(line)
        return prepared

    def _train_class(self, prepared: PreparedClass, out: Path, first: int, *, has_one: bool) -> list[Trained]:
        """Train all shapes of a class; `first` is the number of the shapes before."""
        from whet.training.train import class_checkpoint, with_common_points

        trained = []
        for number, (title, part) in enumerate(zip(prepared.titles, prepared.parts, strict=True), start=first):
            if not has_one:
                self._say(f"class {title}")
            file = _checkpoint(out) if has_one else class_checkpoint(_checkpoint(out), number)
            trained.append(self._train(part, out, file))
        return with_common_points(prepared, trained, self.workers)

    def _train(self, prepared: Preparation, out: Path, checkpoint: Path) -> Trained:
        from whet.cli.train_report import training_progress
        from whet.training.train import train_prepared

        try:
            with training_progress(quiet=self.quiet) as (callback, warned):
                trained = train_prepared(
                    prepared, callback, checkpoint=checkpoint, origin=provenance("train"), workers=self.workers
                )
        except KeyboardInterrupt:
            say(f"whet: stopped; repeat the command with --resume to continue from {_checkpoint(out)}", err=True)
            raise
        self._note(warned)
        return trained

    def _note(self, warned: list[Warning | str]) -> None:
        from whet.training.backgrounds import SkippedImagesWarning

        self.is_skipped |= any(isinstance(warning, SkippedImagesWarning) for warning in warned)
