"""The table of experiments: what each reproduces, how many runs it has, how long it takes and which data it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = Literal["small", "paper"]


@dataclass(frozen=True)
class Entry:
    """An experiment: the module `experiments.NAME` measures it.

    `runs` and `seconds` are (small, paper): the number of seeds, and the time of all of them on two quiet cores.
    """

    name: str
    title: str
    figure: str
    runs: tuple[int, int]
    seconds: tuple[float, float]
    data: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module that measures it."""
        return f"experiments.{self.name.replace('-', '_')}"

    def n_runs(self, size: Size) -> int:
        """Number of seeds of a size."""
        return self.runs[size == "paper"]

    def expected_seconds(self, size: Size) -> float:
        """Time of all runs of a size."""
        return self.seconds[size == "paper"]


FACES = ("faces_opencv24", "negatives")
VIDEOS = ("david", "trellis")

# The shortest first, so that an interrupted run has as much as possible.
EXPERIMENTS = (
    Entry("toy", "thresholds of weak learners that are updated", "Fig. compare_linear", (20, 200), (3, 15)),
    Entry("usps", "digits 3 and 5, batch and online", "Figs. USPS1, USPS2", (2, 10), (40, 400), ("usps",)),
    Entry("cited", "systems that the paper cites, on the digits", "Sections 1 and 2", (2, 10), (20, 350), ("usps",)),
    Entry("ridge", "choice of the default ridge, on the digits", "beyond the paper", (1, 10), (15, 120), ("usps",)),
    Entry("complexity", "time and memory against the stated orders", "Section 2, complexity", (1, 3), (20, 90)),
    Entry("node", "single nodes on faces as samples arrive", "Fig. single_face", (1, 3), (40, 300), FACES),
    Entry("node-time", "training time of a node", "Fig. gslda_cpu", (1, 3), (20, 270), FACES),
    Entry("tracking", "the face detector as a tracker", "beyond the paper", (1, 1), (40, 300), VIDEOS),
    Entry(
        "video-rule", "the crop of faces, chosen on made-up video", "tabross", (1, 3), (40, 300), (*FACES, "faces_lfw")
    ),
    Entry(
        "video", "nodes that learn from video", "Table tabross, Fig. davidROC", (1, 10), (60, 2400), (*VIDEOS, *FACES)
    ),
    Entry("cascade", "cascades on MIT+CMU", "Fig. cascade_face", (1, 3), (90, 2400), ("mit_cmu", *FACES)),
)
BY_NAME = {entry.name: entry for entry in EXPERIMENTS}
