"""`python -m experiments`: the experiments of the paper."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Quiet
from whet.cli.output import progress_bar, start

if TYPE_CHECKING:
    from experiments.report import Report


class Name(StrEnum):
    """Names of experiments, as in `experiments.report.EXPERIMENTS`; listed here so that --help loads quickly."""

    toy = "toy"
    node = "node"
    node_time = "node-time"
    cascade = "cascade"
    video = "video"
    tracking = "tracking"
    ridge = "ridge"
    usps = "usps"


class Size(StrEnum):
    """Amount of data."""

    small = "small"
    paper = "paper"


def reproduce(
    name: Annotated[Name, typer.Argument(help="Experiment to run.")],
    out: Annotated[Path, typer.Option(help="Output folder for NAME.json and NAME-*.png.")] = Path("reproduced"),
    size: Annotated[Size, typer.Option(help="Amount of data: small takes minutes, paper up to an hour.")] = Size.small,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Number of runs with different seeds (default: depends on the size).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 0,
    table: Annotated[bool, typer.Option("--table", help="Print a table of all numbers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON file.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment; write its numbers as JSON and its figures as PNG.

    \b
    toy        weak learners with updated thresholds on asymmetric data
    usps       digits 3 and 5, batch and online (downloads them with pip)
    ridge      choice of the default ridge, on the same digits
    node       single stages on faces as samples arrive (needs $WHET_DATA)
    node-time  training time of a stage (needs $WHET_DATA)
    cascade    cascades on MIT+CMU, compared with OpenCV (needs $WHET_DATA)
    video      single stages that learn from their own detections in two videos (needs $WHET_DATA)
    tracking   the face detector as a tracker on the same videos, compared with OpenCV (needs $WHET_DATA)

    \b
    python -m experiments toy
    python -m experiments usps --size paper --out results
    python -m experiments usps --json | jq .remarks
    """
    from experiments import report

    start(quiet=quiet)
    with progress_bar(f"experiment {name.value}", hidden=quiet) as progress:
        done = report.reproduce(name.value, out, size.value, runs, seed, progress)
    if as_json:
        typer.echo(done.files[0].read_text())
        return
    if table:
        _show(done.report)
    if quiet:
        return
    for line in (*done.report.remarks, *(f"wrote {path}" for path in done.files)):
        typer.echo(line)


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    rows = Table("measure", "method", "setting", "mean", "std", "runs")
    for row in report.rows:
        setting = ", ".join(f"{key} {value}" for key, value in row.setting.items())
        rows.add_row(row.measure, row.method, setting, f"{row.mean:.4f}", f"{row.std:.4f}", str(row.runs))
    Console().print(rows)


if __name__ == "__main__":
    from whet.cli.main import run

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(reproduce)
    run(app)
