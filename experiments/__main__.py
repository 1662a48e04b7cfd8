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
    """Experiments; the same as `experiments.registry.EXPERIMENTS`, listed here for help without imports."""

    toy = "toy"
    node = "node"
    node_time = "node-time"
    cascade = "cascade"
    video = "video"
    watching = "watching"
    ridge = "ridge"
    usps = "usps"


class Size(StrEnum):
    """How much work."""

    small = "small"
    paper = "paper"


def reproduce(
    name: Annotated[Name, typer.Argument(help="Which experiment.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.json and NAME-*.png.")] = Path("reproduced"),
    size: Annotated[
        Size, typer.Option(help="small: half a minute; paper: up to 5. cascade and video: minutes, and an hour.")
    ] = Size.small,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Repetitions with other seeds; else as the size says.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 0,
    table: Annotated[bool, typer.Option("--table", help="Print every number.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON file, for programs.")] = False,
    quiet: Quiet = False,
) -> None:
    """Repeat an experiment: every number as JSON, and the figures as PNG.

    \b
    toy        weak learners with updated thresholds on asymmetric data
    usps       digits 3 against 5, batch and online; fetches them with pip
    ridge      how whet's default ridge was chosen, on the same digits
    node       single nodes on faces as samples arrive; needs $WHET_DATA
    node-time  seconds of training a node; needs $WHET_DATA
    cascade    whole cascades on MIT+CMU, next to OpenCV's; needs $WHET_DATA
    video      nodes that learn from their own detections in two videos; needs $WHET_DATA
    watching   the face detector following the same faces, next to OpenCV's; needs $WHET_DATA

    \b
    python -m experiments toy
    python -m experiments usps --size paper --out results
    python -m experiments usps --json | jq .remarks
    """
    from experiments import registry

    start(quiet=quiet)
    with progress_bar(f"reproduce {name.value}", hidden=quiet) as progress:
        done = registry.reproduce(name.value, out, size.value, runs, seed, progress)
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

    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(reproduce)
    run(app)
