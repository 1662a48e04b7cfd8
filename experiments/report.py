"""What an experiment found: rows of numbers, and the file that anyone can check them against."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from whet.io.files import write_atomically

# Called with the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]


def silent(_: float) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Row:
    """One number of a table: what was measured, of which method, in which setting, over how many runs."""

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
    """An experiment's rows with all that is needed to get them again."""

    name: str
    seed: int
    runs: int
    size: str
    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.time)

    def of(self, measure: str, method: str, **setting: object) -> list[Row]:
        """The rows of one curve: those whose setting has at least these entries."""
        return [
            row
            for row in self.rows
            if row.measure == measure and row.method == method and setting.items() <= row.setting.items()
        ]

    def write(self, out: Path) -> Path:
        """Write `out/NAME.json`, whole or not at all."""
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
    """Python and the packages that numbers depend on."""
    packages = ("whet", "numpy", "scipy", "numba", "scikit-learn")
    return {"python": sys.version.split()[0]} | {name: metadata.version(name) for name in packages}
