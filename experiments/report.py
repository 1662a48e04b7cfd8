"""How an experiment runs, part by part and resumable, and its report: rows of numbers as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from experiments.claims import Claim
from experiments.table import BY_NAME, Entry, Size
from whet.io.files import prepared_folder, write_atomically
from whet.plots.figure import check_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Called with the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]
# Finished parts, so that an interrupted run continues.
PARTS_FOLDER = "parts"
# Seconds between two writings of the report of a run that is not finished.
WRITE_EVERY = 10.0


def silent(_: float) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Row:
    """One number of a table: the value of each run, by its seed, of a measure of a method in a setting."""

    measure: str
    method: str
    setting: dict[str, Any]
    values: dict[str, float]

    @classmethod
    def from_values(cls, measure: str, method: str, values: Sequence[float], **setting: object) -> Row:
        """One value a run.

        >>> Row.from_values("error", "online", [0.1, 0.3], share=0.5).mean
        0.2
        """
        return cls(measure, method, setting, {str(run): float(value) for run, value in enumerate(values)})

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return float(np.mean(list(self.values.values())))

    @property
    def std(self) -> float:
        """Sample standard deviation over the runs; 0 for one run."""
        return float(np.std(list(self.values.values()), ddof=1)) if self.runs > 1 else 0.0

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.values)

    def as_json(self) -> dict[str, Any]:
        """For the report's file: with mean, standard deviation and number of runs."""
        row = {"measure": self.measure, "method": self.method, "setting": self.setting}
        return row | {"mean": self.mean, "std": self.std, "runs": self.runs, "values": self.values}


@dataclass(frozen=True)
class Run:
    """One part of one run, which notes its values here; figures of data go to the folder `out`."""

    size: Size
    seed: int
    part: str
    out: Path
    is_first: bool
    notes: list[tuple[str, str, dict[str, Any], float]] = field(default_factory=list)

    def note(self, measure: str, method: str, value: float, /, **setting: object) -> None:
        """Add one value."""
        self.notes.append((measure, method, setting, float(value)))

    @property
    def rng(self) -> np.random.Generator:
        """The random numbers of this seed, the same in all parts."""
        return np.random.default_rng(self.seed)


class Experiment(Protocol):
    """The interface of a module with an experiment.

    `parts` are measured for each seed, those in `ONCE` for the first one only.
    """

    CLAIMS: Sequence[Claim]
    ONCE: Sequence[str]

    def parts(self, size: Size) -> Sequence[str]:
        """Names of the parts of a run."""

    def measure(self, run: Run) -> None:
        """Measure one part."""

    def draw(self, report: Report, out: Path) -> list[Path]:
        """Draw the figures."""


@dataclass
class Report:
    """The rows of an experiment, how long it took, and how much of it is done."""

    name: str
    size: str
    seeds: list[int] = field(default_factory=list)
    planned: int = 0  # parts, and how many of them are done
    done: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    def select(self, measure: str, method: str, /, **setting: object) -> list[Row]:
        """The rows of one curve: those whose setting contains these values."""
        return [
            row
            for row in self.rows
            if row.measure == measure and row.method == method and setting.items() <= row.setting.items()
        ]

    def one(self, measure: str, method: str, /, **setting: object) -> Row:
        """The only such row; raises LookupError if there is none, or more than one."""
        rows = self.select(measure, method, **setting)
        if len(rows) != 1:
            raise LookupError(f"{self.name} has {len(rows)} rows of {measure}, {method}, {setting}; expected one")
        return rows[0]

    @property
    def is_complete(self) -> bool:
        """Whether all planned parts are done."""
        return self.done == self.planned

    @property
    def command(self) -> str:
        """The command that measures this."""
        first, n = min(self.seeds, default=0), len(self.seeds)
        usual = BY_NAME[self.name].runs[self.size == "paper"] if self.name in BY_NAME else 0
        runs = f" --runs {n}" if self.is_complete and n != usual else ""
        seed = f" --seed {first}" if first else ""
        return f"python -m experiments {self.name} --size {self.size}{runs}{seed}"

    def write(self, out: Path, claims: Sequence[Claim]) -> Path:
        """Write `out/NAME.json` atomically, with a finding for each claim."""
        findings = [
            {"where": claim.where, "says": claim.says, "criterion": claim.criterion} | asdict(claim.judged(self))
            for claim in claims
        ]
        content = {
            "name": self.name,
            "size": self.size,
            "command": self.command,
            "seeds": self.seeds,
            "parts": {"done": self.done, "planned": self.planned},
            "seconds": round(self.seconds, 1),
            "processor_seconds": round(self.processor_seconds, 1),
            "versions": versions(),
            "machine": machine(),
            "figures": self.figures,
            "claims": findings,
        }
        head = json.dumps(content, indent=1)[:-2]
        rows = ",\n".join(f"  {json.dumps(row.as_json())}" for row in self.rows)
        path = out / f"{self.name}.json"
        write_atomically(path, f'{head},\n "results": [\n{rows}\n ]\n}}\n'.encode())
        return path

    @classmethod
    def read(cls, path: Path) -> Report:
        """The report in a file that `write` has written."""
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(row["measure"], row["method"], row["setting"], row["values"]) for row in content["results"]]
        parts = content["parts"]
        times = content["seconds"], content["processor_seconds"]
        about = content["name"], content["size"], content["seeds"], parts["planned"], parts["done"]
        return cls(*about, *times, rows, content["figures"])


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that the numbers depend on."""
    packages = ("whet", "numpy", "scipy", "numba", "scikit-learn")
    return {"python": sys.version.split()[0]} | {name: metadata.version(name) for name in packages}


def machine() -> dict[str, Any]:
    """Processor and number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"processor": models[0] if models else platform.machine(), "cores": os.cpu_count()}


def module_of(entry: Entry) -> Experiment:
    """The module of an experiment."""
    return cast(Experiment, import_module(entry.module))


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
    *,
    fresh: bool = False,
) -> Reproduction:
    """Run an experiment; writes `out/NAME.json` after each part, and `out/NAME-*.png` at the end.

    Parts that are done already, in `out/parts`, are not measured again, unless `fresh`.

    >>> import tempfile
    >>> done = reproduce("toy", Path(tempfile.mkdtemp()), runs=2)
    >>> sorted(path.name for path in done.files)[0]
    'toy-separable.png'
    """
    if name not in BY_NAME:
        raise ValueError(f"got experiment {name!r}; expected one of: {', '.join(BY_NAME)}")
    entry = BY_NAME[name]
    experiment = module_of(entry)
    check_installed()
    prepared_folder(out)
    folder = out / PARTS_FOLDER / f"{name}-{size}"
    if fresh and folder.exists():
        shutil.rmtree(folder)
    seeds = range(seed, seed + (runs or entry.n_runs(size)))
    plan = planned(experiment, size, seeds)
    folder.mkdir(parents=True, exist_ok=True)
    written = time.monotonic()
    for number, (of_seed, part) in enumerate(plan):
        path = folder / f"{of_seed}-{part}.json"
        if not path.exists():
            _measure(experiment, Run(size, of_seed, part, out, of_seed == seeds[0]), path)
            if time.monotonic() > written + WRITE_EVERY:
                collected(name, size, plan, folder).write(out, experiment.CLAIMS)
                written = time.monotonic()
        progress((number + 1) / len(plan))
    report = collected(name, size, plan, folder)
    figures = experiment.draw(report, out)
    report.figures = sorted({path.name for path in (*figures, *out.glob(f"{name}-*.png"))})
    return Reproduction(report, [report.write(out, experiment.CLAIMS), *figures])


def planned(experiment: Experiment, size: Size, seeds: Iterable[int]) -> list[tuple[int, str]]:
    """Seeds and parts in the order of measuring: what is measured once comes first."""
    plan: list[tuple[int, str]] = []
    for number, seed in enumerate(seeds):
        plan += [(seed, part) for part in experiment.ONCE if number == 0]
        plan += [(seed, part) for part in experiment.parts(size)]
    return plan


def _measure(experiment: Experiment, run: Run, path: Path) -> None:
    """Measure one part, and write its values."""
    start, processor = time.perf_counter(), time.process_time()
    experiment.measure(run)
    content = {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor,
        "notes": run.notes,
    }
    write_atomically(path, json.dumps(content).encode())


def collected(name: str, size: Size, plan: Sequence[tuple[int, str]], folder: Path) -> Report:
    """The report of all parts that are done; runs are seeds, or seeds and parts if a seed has several values."""
    report = Report(name, size, planned=len(plan))
    values: dict[str, dict[tuple[int, str], float]] = {}
    for seed, part in plan:
        path = folder / f"{seed}-{part}.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        report.done += 1
        report.seconds += content["seconds"]
        report.processor_seconds += content["processor_seconds"]
        report.seeds = sorted({*report.seeds, seed})
        for measure, method, setting, value in content["notes"]:
            values.setdefault(json.dumps([measure, method, setting]), {})[seed, part] = value
    for key, by_run in values.items():
        several = len({seed for seed, _ in by_run}) < len(by_run)
        of_runs = {f"{seed} {part}" if several else str(seed): value for (seed, part), value in by_run.items()}
        measure, method, setting = json.loads(key)
        report.rows.append(Row(measure, method, setting, of_runs))
    return report


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
