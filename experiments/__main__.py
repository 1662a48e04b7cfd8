"""`python -m experiments`: the experiments of the paper, one by one or all of them, and the report on one page."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.table import BY_NAME, EXPERIMENTS, Entry
from whet.cli.options import Quiet
from whet.cli.output import progress_bar, start

if TYPE_CHECKING:
    from experiments.report import Report

SAY_EVERY = 30.0  # seconds between two lines of progress, where no bar can be drawn


class Size(StrEnum):
    """Amount of data."""

    small = "small"
    paper = "paper"


class Name(StrEnum):
    """The names of `experiments.table`, and two more."""

    toy = "toy"
    usps = "usps"
    cited = "cited"
    ridge = "ridge"
    complexity = "complexity"
    node = "node"
    node_time = "node-time"
    tracking = "tracking"
    video_rule = "video-rule"
    video = "video"
    cascade = "cascade"
    all = "all"
    page = "page"


def reproduce(
    name: Annotated[Name, typer.Argument(help="Experiment to run, or `all`, or `page`.")],
    out: Annotated[Path, typer.Option(help="Output folder for NAME.json, NAME-*.png and paper.html.")] = Path(
        "reproduced"
    ),
    size: Annotated[Size, typer.Option(help="Amount of data: small takes minutes, paper up to hours.")] = Size.small,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Number of runs with different seeds (default: depends on the size).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first run.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what OUT/parts has from a run before.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="With `page`: also write the claims as Markdown.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Print a table of all numbers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON file.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment; write its numbers and verdicts as JSON and its figures as PNG.

    An interrupted run continues where it stopped. `all` runs every experiment whose data are there and writes
    OUT/paper.html, one page with all claims, figures and verdicts; `page` only writes that page from what OUT has.

    \b
    toy         weak learners with updated thresholds on asymmetric data
    usps        digits 3 and 5, batch and online (downloads them with pip)
    cited       systems that the paper cites, on the same digits and on faces
    ridge       choice of the default ridge, on the same digits
    complexity  time and memory against the orders that the paper states
    node        single stages on faces as samples arrive (needs $WHET_DATA)
    node-time   training time of a stage (needs $WHET_DATA)
    tracking    the face detector as a tracker in two videos, compared with OpenCV (needs $WHET_DATA)
    video-rule  the crop of the next one, chosen on made-up video (needs $WHET_DATA)
    video       single stages that learn from their own detections in the videos (needs $WHET_DATA)
    cascade     cascades on MIT+CMU, compared with OpenCV (needs $WHET_DATA)

    \b
    python -m experiments all
    python -m experiments usps --size paper --out results
    python -m experiments usps --json | jq .claims
    """
    if name == Name.page:
        from experiments import page
        from whet.io.files import prepared_folder

        prepared_folder(out)
        _say(page.write(out, markdown_file=markdown), quiet)
        return
    start(quiet=quiet)
    if name == Name.all:
        _say(run_all(out, size.value, runs, seed, fresh=fresh, quiet=quiet), quiet)
        return
    from experiments import report

    with progress_bar(f"experiment {name.value}", hidden=quiet) as progress:
        done = report.reproduce(name.value, out, size.value, runs, seed, progress, fresh=fresh)
    if as_json:
        typer.echo(done.files[0].read_text())
        return
    if table:
        _show(done.report)
    if not quiet:
        for claim in report.module_of(BY_NAME[name.value]).CLAIMS:
            finding = claim.judged(done.report)
            typer.echo(f"{finding.verdict}: {claim.says} {finding.measured}")
    _say(done.files, quiet)


def run_all(out: Path, size: str, runs: int | None, seed: int, *, fresh: bool, quiet: bool) -> list[Path]:
    """Run all experiments, the shortest first; those without their data are skipped, and the page says so."""
    from experiments import page, report
    from whet.errors import DataNotFoundError

    skipped: dict[str, str] = {}
    pace = Pace([entry.expected_seconds("paper" if size == "paper" else "small") for entry in EXPERIMENTS], quiet)
    with progress_bar("all experiments", hidden=quiet) as bar:
        for number, entry in enumerate(EXPERIMENTS):

            def progress(share: float, number: int = number, entry: Entry = entry) -> None:
                bar(pace.share(number, share))
                pace.say(entry.name, number, share)

            try:
                check_data(entry)
                report.reproduce(
                    entry.name, out, "paper" if size == "paper" else "small", runs, seed, progress, fresh=fresh
                )
            except DataNotFoundError as error:
                skipped[entry.name] = str(error)
                if not quiet:
                    typer.echo(f"skipped {entry.name}: {error}", err=True)
            page.write(out, skipped)  # after each, so that an interrupted run has a page
    return page.write(out, skipped)


def check_data(entry: Entry) -> None:
    """Raise `DataNotFoundError` if a data set is missing; that of the digits is downloaded when it is needed."""
    from experiments.datasets import find
    from whet.errors import DataNotFoundError

    missing = [name for name in entry.data if name != "usps" and find(name) is None]
    if missing:
        raise DataNotFoundError(f"needs {', '.join(missing)} in $WHET_DATA")


@dataclass
class Pace:
    """How much of all experiments is done, by their expected seconds, and how long the rest will take."""

    expected: list[float]
    quiet: bool = False
    started: float = field(default_factory=time.monotonic)
    said: float = 0.0

    def share(self, number: int, share: float) -> float:
        """The share of all experiments that is done, in the middle of one of them.

        >>> Pace([1.0, 3.0]).share(1, 0.5)
        0.625
        """
        return (sum(self.expected[:number]) + share * self.expected[number]) / sum(self.expected)

    def seconds_left(self, number: int, share: float) -> float:
        """At the pace so far."""
        done = self.share(number, share)
        return (time.monotonic() - self.started) * (1 - done) / max(done, 1e-9)

    def say(self, name: str, number: int, share: float) -> None:
        """Print a line now and then, where no bar can be drawn."""
        if self.quiet or sys.stderr.isatty() or time.monotonic() < self.said + SAY_EVERY:
            return
        self.said = time.monotonic()
        done = self.share(number, share)
        # Before a hundredth is done, the pace is that of the start and of compilation.
        left = f", about {self.seconds_left(number, share) / 60:.0f} min left" if done > 0.01 else ""
        typer.echo(f"{name} {share:.0%}; all {done:.0%}{left}", err=True)


def _say(files: list[Path], quiet: bool) -> None:
    if not quiet:
        for path in files:
            typer.echo(f"wrote {path}")


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
