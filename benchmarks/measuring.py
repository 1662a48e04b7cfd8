"""For all benchmarks, timing on a noisy machine: contestants take turns, and ratios are taken within a turn."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from whet.detector.detector import Detector
from whet.models.gslda.cascade_model import CascadeModel

# Sizes of images (height, width) in tables of speed.
VGA, HD = (480, 640), (1080, 1920)


def progress(text: str) -> None:
    """Report progress beside the JSON."""
    print(text, file=sys.stderr, flush=True)


def resident_mb() -> float:
    """The memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def take_turns(
    contestants: dict[str, Callable[[], object]], turns: int, calls: dict[str, int]
) -> dict[str, list[float]]:
    """Seconds a call of every contestant, one value a turn; each is called once before, to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for call in contestants.values():
        call()
    for _ in range(turns):
        for name, call in contestants.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                call()
            seconds[name].append((time.perf_counter() - start) / calls[name])
    return seconds


def summary(seconds: dict[str, list[float]], ours: str, per: int = 1) -> dict[str, dict[str, float]]:
    """Least and median microseconds (a sample, of `per` in a call), and the median ratio to ours over the turns."""
    return {
        name: {
            "least_us": round(1e6 * min(values) / per, 2),
            "median_us": round(1e6 * median(values) / per, 2),
            "times_ours": round(median(v / o for v, o in zip(values, seconds[ours], strict=True)), 2),
        }
        for name, values in seconds.items()
    }


def cascade_model(detector: Detector) -> CascadeModel:
    """The model of a detector that is a cascade of grey features."""
    model = detector.model
    assert isinstance(model, CascadeModel), f"expected a cascade, got a model of the family {model.family}"
    return model
