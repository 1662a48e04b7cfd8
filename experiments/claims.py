"""Claims of the paper, each with a criterion, and the verdict that the numbers of an experiment give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from experiments.report import Report, Row

Verdict = Literal["reproduced", "partly", "not", "not measured"]
# Differences count if a paired test over the seeds has a p-value below this.
SIGNIFICANT = 0.05
LEAST_RUNS = 3


@dataclass(frozen=True)
class Finding:
    """What was measured, the verdict, and what was tried to explain it if it is not "reproduced"."""

    verdict: Verdict
    measured: str
    tried: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in one sentence, where it stands, and the criterion that decides."""

    where: str
    says: str
    criterion: str
    judge: Callable[[Report], Finding]

    def judged(self, report: Report) -> Finding:
        """The finding; "not measured" if the report lacks a row that it needs."""
        try:
            finding = self.judge(report)
            return replace(finding, tried="") if finding.verdict == "reproduced" else finding
        except LookupError as error:
            return Finding("not measured", str(error).strip("'\""))


def verdict(*conditions: bool) -> Verdict:
    """Reproduced if all conditions hold, partly if some do.

    >>> verdict(True, True), verdict(True, False), verdict(False)
    ('reproduced', 'partly', 'not')
    """
    if all(conditions):
        return "reproduced"
    return "partly" if any(conditions) else "not"


@dataclass(frozen=True)
class Difference:
    """Mean difference of two rows over their common runs, and the p-value of a paired t-test."""

    mean: float
    std: float
    runs: int
    p: float

    @property
    def is_clear(self) -> bool:
        """Whether the difference exceeds the spread over the runs."""
        return self.p < SIGNIFICANT

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} ± {100 * self.std:.1f} points (p {self.p:.2g})"


def difference(a: Row, b: Row) -> Difference:
    """A minus b, paired by run; parts of a seed, which share data, are averaged if there are enough seeds.

    >>> from experiments.report import Row
    >>> a, b = Row.from_values("rate", "a", [0.9, 0.8, 0.7]), Row.from_values("rate", "b", [0.7, 0.6, 0.5])
    >>> difference(a, b).is_clear, round(difference(a, b).mean, 3)
    (True, 0.2)
    """
    common = [run for run in a.values if run in b.values]
    if len(common) < LEAST_RUNS:
        raise LookupError(
            f"{a.method} and {b.method} have {len(common)} common runs; a paired test needs at least {LEAST_RUNS}"
        )
    d = _by_seed({run: a.values[run] - b.values[run] for run in common})
    return Difference(float(d.mean()), float(d.std(ddof=1)), len(d), _p_value(d))


def _by_seed(differences: dict[str, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """One value per seed: a run is named by its seed, or by its seed and part. With few seeds, all of them.

    >>> _by_seed({"0 a": 1.0, "0 b": 3.0, "1 a": 4.0, "1 b": 4.0, "2 a": 5.0, "2 b": 5.0})
    array([2., 4., 5.])
    """
    of_seeds: dict[str, list[float]] = {}
    for run, value in differences.items():
        of_seeds.setdefault(run.split(" ")[0], []).append(value)
    if len(of_seeds) < LEAST_RUNS:
        return np.array(list(differences.values()))
    return np.array([float(np.mean(values)) for values in of_seeds.values()])


def _p_value(d: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Two-sided p-value of a mean of 0."""
    if np.ptp(d) < 1e-12:  # the same difference in all runs
        return 1.0 if abs(d[0]) < 1e-12 else 0.0
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(d, 0.0).pvalue)


def percent(row: Row, digits: int = 1) -> str:
    """Mean and spread in percent.

    >>> from experiments.report import Row
    >>> percent(Row.from_values("error", "m", [0.1, 0.2]))
    '15.0 ± 7.1 %'
    """
    spread = f" ± {100 * row.std:.{digits}f}" if row.runs > 1 else ""
    return f"{100 * row.mean:.{digits}f}{spread} %"


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence."""
    return "; ".join(parts)
