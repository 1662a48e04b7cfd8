"""How an experiment runs, and its report: rows of numbers as a JSON file, and curves for the figures."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np

from whet.io.files import prepared_folder, write_atomically
from whet.plots.figure import check_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXPERIMENTS = ("toy", "usps", "ridge", "node", "node-time", "cascade", "video", "tracking")

Size = Literal["small", "paper"]
# Called with the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]


def silent(_: float) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Row:
    """One number of a table: mean and standard deviation of a measure of a method in a setting, over the runs."""

    measure: str
    method: str
    setting: dict[str, Any]
    mean: float
    std: float
    runs: int

    @classmethod
    def from_values(cls, measure: str, method: str, values: Sequence[float], **setting: object) -> Row:
        """Mean and sample standard deviation of one value a run.

        >>> Row.from_values("error", "online", [0.1, 0.3], share=0.5).mean
        0.2
        """
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(measure, method, setting, float(np.mean(values)), spread, len(values))


@dataclass
class Report:
    """The rows of an experiment, and the options that reproduce them."""

    name: str
    seed: int
    runs: int
    size: str
    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.time)

    def select(self, measure: str, method: str, **setting: object) -> list[Row]:
        """The rows of one curve: those whose setting contains these values."""
        return [
            row
            for row in self.rows
            if row.measure == measure and row.method == method and setting.items() <= row.setting.items()
        ]

    def write(self, out: Path) -> Path:
        """Write `out/NAME.json` atomically."""
        content = {
            "name": self.name,
            "command": f"python -m experiments {self.name} --size {self.size} --runs {self.runs} --seed {self.seed}",
            "seeds": [self.seed + run for run in range(self.runs)],
            "seconds": round(time.time() - self.started, 1),
            "versions": versions(),
            "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
            "remarks": self.remarks,
            "results": [asdict(row) for row in self.rows],
        }
        path = out / f"{self.name}.json"
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
        return path


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that the numbers depend on."""
    packages = ("whet", "numpy", "scipy", "numba", "scikit-learn")
    return {"python": sys.version.split()[0]} | {name: metadata.version(name) for name in packages}


class Experiment(Protocol):
    """The interface of a module with an experiment."""

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
    """Run an experiment; writes `out/NAME.json` and `out/NAME-*.png`.

    >>> import tempfile
    >>> done = reproduce("toy", Path(tempfile.mkdtemp()), runs=2)
    >>> sorted(path.name for path in done.files)[0]
    'toy-separable.png'
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"got experiment {name!r}; expected one of: {', '.join(EXPERIMENTS)}")
    experiment = cast(Experiment, import_module(f"experiments.{name.replace('-', '_')}"))
    check_installed()
    prepared_folder(out)
    report = experiment.run(size, runs or experiment.RUNS[size], seed, progress)
    return Reproduction(report, [report.write(out), *experiment.draw(report, out)])


def draw_curve(axes: Axes, rows: Iterable[Row], along: str, label: str, color: str, style: str = "-") -> None:
    """Plot means against one value of the setting, with the standard deviation of the runs as a band."""
    points = sorted((row.setting[along], row.mean, row.std) for row in rows)
    if not points:
        return
    x, mean, std = zip(*points, strict=True)
    axes.plot(x, mean, style, color=color, label=label, linewidth=1.6, markersize=4)
    low = [m - s for m, s in zip(mean, std, strict=True)]
    high = [m + s for m, s in zip(mean, std, strict=True)]
    axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
