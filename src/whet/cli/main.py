"""The command `whet`. Commands import what they need when they run: help answers without numpy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated

import typer

from whet import __version__
from whet.cli import adopt, demo, detect, evaluate, export, inspect, learn, merge, train, unlearn, watch
from whet.cli import images as convert
from whet.cli.options import ExitCode
from whet.errors import DataNotFoundError, MissingExtraError, WhetError

app = typer.Typer(
    name="whet",
    help="Object detectors that are trained on a few hundred images and sharpened by every correction, exactly.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes longer to import than the rest of the help to print
)
app.command("train")(train.train)
app.command("detect")(detect.detect)
app.command("learn")(learn.learn)
app.command("unlearn")(unlearn.unlearn)
app.command("merge")(merge.merge)
app.command("evaluate")(evaluate.evaluate)
app.command("inspect")(inspect.inspect)
app.command("adopt")(adopt.adopt)
app.command("export")(export.export)
app.command("convert")(convert.convert)
app.command("demo")(demo.demo)
app.command("watch")(watch.watch)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Object detectors that are trained on a few hundred images and sharpened by every correction, exactly.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong call, 3 data missing, 4 a package missing,
    5 some images skipped, 130 Ctrl-C.
    """


def main() -> None:
    """Run the command `whet`."""
    run(app)


def run(command: Callable[[], object]) -> None:
    """Run a command; named errors become one line and an exit code."""
    import gc
    import logging

    # Imports make half a million objects that stay: to look through them again and again is a tenth of the start.
    gc.set_threshold(100_000)
    _take_any_name()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        command()
    except DataNotFoundError as error:
        _fail(error, ExitCode.DATA_MISSING)
    except MissingExtraError as error:
        _fail(error, ExitCode.EXTRA_MISSING)
    except (WhetError, OSError) as error:
        _fail(error, ExitCode.FAILED)


def _take_any_name() -> None:
    """Names of files may be any bytes: those that are no text come in and go out as they are."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")


def _fail(error: Exception, code: ExitCode) -> None:
    typer.echo(f"whet: {error}", err=True)
    sys.exit(code)
