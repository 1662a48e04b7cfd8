"""`whet reproduce`: the experiments of the paper."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.progress import progress_bar, tell_if_compiling


class Name(StrEnum):
    """Experiments; the same as `whet.experiments.registry.EXPERIMENTS`, listed here for help without imports."""

    toy = "toy"
    node = "node"
    node_time = "node-time"
    ridge = "ridge"
    usps = "usps"


class Size(StrEnum):
    """How much work."""

    small = "small"
    paper = "paper"


def reproduce(
    name: Annotated[Name, typer.Argument(help="Which experiment.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.json and NAME-*.png.")] = Path("reproduced"),
    size: Annotated[Size, typer.Option(help="small: a minute or less; paper: as in the paper.")] = Size.small,
    runs: Annotated[int | None, typer.Option(min=1, help="Repetitions with different seeds.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON file instead of a table.")] = False,
) -> None:
    """Repeat an experiment of the paper: every number as JSON, and the figures as PNG.

    \b
    whet reproduce toy                        weak learners on asymmetric data
    whet reproduce usps --size paper          digits 3 against 5, ten runs
    whet reproduce usps --json | jq .remarks  for programs
    """
    from whet.experiments import registry

    tell_if_compiling()
    with progress_bar(f"reproduce {name.value}") as progress:
        done = registry.reproduce(name.value, out, size.value, runs, seed, progress)
    if as_json:
        typer.echo(done.files[0].read_text())
        return
    _show(done)


def _show(done: object) -> None:
    from rich.console import Console
    from rich.table import Table

    from whet.experiments.registry import Reproduction

    assert isinstance(done, Reproduction)
    table = Table("measure", "method", "setting", "mean", "std", "runs")
    for row in done.report.rows:
        setting = ", ".join(f"{key} {value}" for key, value in row.setting.items())
        table.add_row(row.measure, row.method, setting, f"{row.mean:.4f}", f"{row.std:.4f}", str(row.runs))
    console = Console()
    console.print(table)
    for line in done.report.remarks:
        console.print(line)
    for path in done.files:
        console.print(f"wrote {path}", soft_wrap=True)
