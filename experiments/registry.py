"""Which experiments there are, and how one is run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, cast

from experiments import figures
from experiments.report import Progress, Report, silent

Size = Literal["small", "paper"]

EXPERIMENTS = ("toy", "usps", "ridge", "node", "node-time", "cascade", "video", "watching")


class Experiment(Protocol):
    """What a module of an experiment offers."""

    RUNS: dict[str, int]

    def run(self, size: Size, runs: int, seed: int, progress: Progress) -> Report:
        """Measure."""

    def draw(self, report: Report, out: Path) -> list[Path]:
        """Draw the figures."""


@dataclass(frozen=True)
class Reproduction:
    """A finished experiment and the files that it wrote."""

    report: Report
    files: list[Path]


def reproduce(
    name: str,
    out: Path,
    size: Size = "small",
    runs: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Reproduction:
    """Run an experiment of the paper; writes `out/NAME.json` and `out/NAME-*.png`.

    >>> import tempfile
    >>> done = reproduce("toy", Path(tempfile.mkdtemp()), runs=2)
    >>> sorted(path.name for path in done.files)[0]
    'toy-separable.png'
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; choose one of: {', '.join(EXPERIMENTS)}")
    experiment = cast(Experiment, import_module(f"experiments.{name.replace('-', '_')}"))
    figures.check_installed()
    figures.prepared_folder(out)
    report = experiment.run(size, runs or experiment.RUNS[size], seed, progress)
    return Reproduction(report, [report.write(out), *experiment.draw(report, out)])
