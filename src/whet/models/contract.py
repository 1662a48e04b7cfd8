"""The contract of models: what answers for the windows of an image, and the table of model families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from whet.images.detections import FiredWindows
from whet.images.pyramid import Grid, Level, Pyramid, Span, WindowIndex
from whet.lda.statistics import BinaryStatistics
from whet.models.responses import Responses
from whet.models.votes import Votes

Arrays = Mapping[str, NDArray[Any]]


class Counts(Protocol):
    """Counts of examples, which can be added and taken away; made by `Model.count`."""

    def __add__(self, other: Self) -> Self: ...

    def __sub__(self, other: Self) -> Self: ...

    @property
    def is_empty(self) -> bool:
        """Nothing was counted."""

    @property
    def is_possible(self) -> bool:
        """Whether some examples could have these counts."""

    @property
    def n_examples(self) -> tuple[int, int]:
        """Objects and others that were counted."""


class Saved(NamedTuple):
    """A model as a file holds it: a table for JSON, and arrays by name.

    `aside` is a part of the table, too, but only about the coarse pass of a scan: it changes no response and no score,
    so it is no part of a base's id.
    """

    table: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    aside: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Model(Protocol):
    """Answers for windows (height, width) of an image; a value that never changes.

    Weak learners respond to a window with bits, and `votes` decide by these. What is common to all models stands on
    this contract: grouping, corrections, reference set, operating points, training loop, file and studio. A family
    implements it, and enters `FAMILIES`.
    """

    @property
    def family(self) -> str:
        """The name of its family in `FAMILIES` and in files."""

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of a window, in pixels of a level."""

    @property
    def grid(self) -> Grid:
        """How windows lie on the levels of a pyramid."""

    @property
    def votes(self) -> Votes:
        """Weights and thresholds of the weak learners."""

    def scan(
        self,
        pyramid: Pyramid,
        votes: Votes | None = None,
        *,
        spans: Mapping[float, Span] | None = None,
        fast: bool | None = None,
        threads: int | None = None,
    ) -> FiredWindows:
        """All windows of a pyramid that the votes accept, by level (largest first), y and x, with their scores.

        Other `votes` than the model's own differ in their limits. `spans` choose the levels, by their scales, and the
        windows in them. `fast` asks for, or against, a coarse pass, where a family has one; with other votes or spans,
        every window is looked at. `n_windows` counts what was looked at with enough contrast: with a coarse pass, the
        windows of that pass and those around what it accepts. The result does not depend on `threads`.
        """

    def looks_at(
        self, index: WindowIndex, pyramid: Pyramid | None = None, *, fast: bool | None = None
    ) -> NDArray[np.bool_]:
        """Which windows (n,) a scan with the model's own votes looks at; without a pyramid, those that it is sure to.

        A coarse pass leaves windows out that the votes would accept.
        """

    def responses(self, pyramid: Pyramid, index: WindowIndex) -> tuple[Responses, NDArray[np.bool_]]:
        """Responses to windows of a pyramid, and which of them (n,) have enough contrast to be scanned at all."""

    def count(self, responses: Responses, is_object: NDArray[np.bool_], weights: NDArray[np.int64]) -> Counts:
        """Counts of examples with labels (n,), each `weights` (n,) times; raises `CannotLearnError` if it has none."""

    def learned(self, counts: Counts | None) -> Self:
        """The model of its training and of these examples; the same for None."""

    def saved(self, counts: Counts | None = None) -> Saved:
        """What its file needs: the model as it was trained, and counts of examples beside it."""


class Area(NamedTuple):
    """A rectangle of a window that a weak learner looks at, and its weight; 0 for none of its own."""

    x: int
    y: int
    width: int
    height: int
    weight: float = 0.0
    is_tilted: bool = False


@dataclass(frozen=True)
class Family:
    """A family of models: its name in files and how a model is loaded from one.

    `load` gets a window, a table and arrays, checks them, and returns the model and counts of examples beside it.
    `summary` are rows of a table that describes a model, by column; `faults` what contradicts the claims of a model, by
    the name of a check. `statistics` are those of the training's positives and negatives in each stage; None for a
    stage that does not learn. `areas` are those of the window that a weak learner looks at. `export_opencv` names a
    function that writes a model for OpenCV; without it, models of the family cannot be represented there. `training`
    names what a training needs to know of the family (`whet.training.families.FamilyTraining`), or is it.
    `keep_samples` and `refit` name the functions that keep samples of a training in the model, and that make the model
    again from them; without these, models learn by counting. `planes` is what models read of a level (planes, rows,
    columns), in cells of their grid, and `restored` a level with these.
    """

    name: str
    load: Callable[[tuple[int, int], dict[str, Any], Arrays], tuple[Model, Counts | None]]
    summary: Callable[[Any, Counts | None], list[dict[str, Any]]] = lambda *_: []
    faults: Callable[[Any], Mapping[str, list[str]]] = lambda _: {}
    statistics: Callable[[Any], list[tuple[BinaryStatistics, BinaryStatistics] | None]] = lambda _: []
    areas: Callable[[Any, int], list[Area]] = lambda *_: []
    export_opencv: str = ""
    training: Any = ""
    keep_samples: str = ""
    refit: str = ""
    planes: Callable[[Level], NDArray[np.uint8]] = lambda level: np.atleast_3d(level.pixels).transpose(2, 0, 1)
    restored: Callable[[Level, NDArray[np.uint8]], Level] = lambda level, planes: replace(
        level, image=planes.transpose(1, 2, 0)
    )


# Where each family is; a detector imports only its own.
FAMILIES: dict[str, str | Family] = {
    "gslda": "whet.models.gslda.cascade_model",
    "channels": "whet.models.channels.tree_model",
}


def family_of(name: str) -> Family:
    """A family by its name; raises ValueError for an unknown one."""
    if name not in FAMILIES:
        raise ValueError(f"got a model of the family {name[:40]!r}; expected one of {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    if isinstance(family, str):
        family = FAMILIES[name] = import_module(family).FAMILY
    return family
