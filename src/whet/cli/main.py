"""The `whet` command: a table of subcommands, each imported only when it runs, and the exit codes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from whet import __version__
from whet.cli.options import ExitCode
from whet.errors import DataNotFoundError, DetectorNotFoundError, MissingExtraError, WhetError

# `module:function` of each command, which is imported when it runs, and its line in `whet --help`.
COMMANDS = {
    "train": ("whet.cli.train:train", "Train a detector from annotated images."),
    "detect": ("whet.cli.detect:detect", "Detect objects in images."),
    "evaluate": ("whet.cli.detect:evaluate", "Measure a detector on annotated images."),
    "learn": ("whet.cli.learn:learn", "Correct a detector with new images."),
    "log": ("whet.cli.corrections:log", "List the corrections inside a detector."),
    "unlearn": ("whet.cli.corrections:unlearn", "Remove corrections from a detector, exactly."),
    "refit": ("whet.cli.corrections:refit", "Make the model again from all that it has learned."),
    "strip": ("whet.cli.corrections:strip", "Remove the samples, small crops, from a detector."),
    "merge": ("whet.cli.corrections:merge", "Combine the corrections of several copies of a detector."),
    "export-corrections": ("whet.cli.corrections:export_corrections", "Write the corrections as COCO annotations."),
    "watch": ("whet.cli.watch:watch", "Detect and track in a video or camera stream."),
    "serve": ("whet.cli.serve:serve", "Correct a detector in the browser."),
    "inspect": ("whet.cli.inspect:inspect", "Show the contents of a detector file."),
    "adopt": ("whet.cli.convert:adopt", "Make an OpenCV cascade correctable."),
    "export": ("whet.cli.convert:export", "Write a detector as an OpenCV cascade."),
    "convert": ("whet.cli.convert:convert", "Convert annotations between formats."),
    "demo": ("whet.cli.demo:demo", "Run a short demonstration."),
}

SETTINGS: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # rich takes longer to import than the rest of the help takes to print
}


class GlobbingCommand(TyperCommand):
    """A command whose options for images take all files to which the shell expands an unquoted pattern.

    `--negatives a.jpg b.jpg` becomes `--negatives a.jpg --negatives b.jpg`: image files and directories that follow the
    value of a repeatable option with the metavar IMAGES are further values of it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own context
        """Repeat the option before each of its values."""
        options = [p for p in self.params if p.param_type_name == "option" and p.metavar == "IMAGES"]
        names = {name for option in options for name in option.opts}
        return list(super().parse_args(ctx, list(_repeated(args, names))))


def _repeated(args: list[str], options: set[str]) -> Iterator[str]:
    option = ""  # whose values may follow
    for i, arg in enumerate(args):
        is_value = i > 0 and args[i - 1] in options
        if arg == "--":
            yield from args[i:]
            return
        if option and not is_value and _is_image(arg):
            yield option
        elif not is_value:
            option = arg if arg in options else ""
        yield arg


def _is_image(arg: str) -> bool:
    from whet.io.image_files import is_image_name

    path = Path(arg)
    return path.is_dir() or (is_image_name(path) and path.is_file())


class LazyGroup(TyperGroup):
    """A Typer group that lists its commands from a table and imports a command only to run it or to show its help."""

    table = COMMANDS

    def __init__(self, **attrs: Any) -> None:  # noqa: ANN401 - passed on as Typer gives them
        super().__init__(**attrs)
        self.commands = dict.fromkeys(self.table)  # type: ignore[assignment]  # names to list and to suggest

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ANN401, ARG002
        """Import one command; None for an unknown name."""
        if cmd_name not in self.table:
            return None
        name, _, function = self.table[cmd_name][0].partition(":")
        module = import_module(name)
        single = typer.Typer(add_completion=False, **SETTINGS)
        single.command(cmd_name, cls=getattr(module, "Command", GlobbingCommand))(getattr(module, function))
        return typer.main.get_command(single)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401, ARG002
        """Write the names and their one-line help without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


app = typer.Typer(cls=LazyGroup, name="whet", no_args_is_help=True, **SETTINGS)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train small, fast object detectors and correct them online, exactly.

    \b
    Examples:
      whet detect face photo.jpg --draw drawn
      whet train cars.json --out cars.whet
      whet learn cars.whet --negatives streets/

    \b
    Exit codes:
      0    success
      1    error
      2    invalid arguments
      3    input data or model not found
      4    optional package not installed
      5    finished, but some input was skipped
      6    not written, because results would get worse (whet learn)
      7    trained, but the detector is not usable (whet train)
      130  stopped with Ctrl-C
    """


def main() -> None:
    """Run the `whet` command."""
    run(app)


def run(command: Callable[[], object]) -> None:
    """Run a command; errors raised by whet become one line on standard error and an exit code."""
    import gc
    import logging

    # Imports create half a million permanent objects; collecting garbage among them takes a tenth of the start-up.
    gc.set_threshold(100_000)
    _open_closed_streams()
    _accept_any_file_name()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        command()
    except (DataNotFoundError, DetectorNotFoundError) as error:
        # A store, such as s3://, may need a package.
        _fail(error, ExitCode.EXTRA_MISSING if isinstance(error.__cause__, ImportError) else ExitCode.DATA_MISSING)
    except MissingExtraError as error:
        _fail(error, ExitCode.EXTRA_MISSING)
    except (WhetError, OSError) as error:
        _fail(error, ExitCode.FAILED)


def _open_closed_streams() -> None:
    """A stream that the caller has closed is empty: its number would go to the next file that is opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the rest of the process


def _accept_any_file_name() -> None:
    """File names may be any bytes: those that are not valid text are read and written unchanged."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")


def _fail(error: Exception, code: ExitCode) -> None:
    from whet.cli.output import warn

    warn(str(error))
    sys.exit(code)
