"""The contract of models: what answers for the windows of an image, the table of model families, and values in files.

Values of a JSON header, and arrays, are checked; what is wrong is named in a `ModelFileError`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from whet.errors import ModelFileError
from whet.images.detections import FiredWindows
from whet.images.pyramid import Grid, Level, Pyramid, Span, WindowIndex
from whet.lda.statistics import BinaryStatistics
from whet.models.responses import Responses, Votes

Table = dict[str, Any]
# The dtype of an array, or those that it may have, and its shape.
Layout = tuple[np.dtype[Any] | tuple[np.dtype[Any], ...], tuple[int, ...]]


def check_layout(arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, Layout]) -> None:
    """Raise `ModelFileError` unless these are the expected arrays.

    >>> check_layout({"limits": np.zeros(3)}, {"limits": (np.dtype(np.float64), (2,))})
    Traceback (most recent call last):
    whet.errors.ModelFileError: array limits is float64 (3,); by the header expected float64 (2,)
    """
    wrong = sorted(set(arrays) ^ set(expected))
    if wrong:
        fault = "is missing" if wrong[0] in expected else "does not belong there"
        raise ModelFileError(f"array {wrong[0][:60]!r} {fault}: arrays and header are not of one file; copy it again")
    for name, (dtype, shape) in expected.items():
        got, allowed = arrays[name], dtype if isinstance(dtype, tuple) else (dtype,)
        if got.dtype not in allowed or got.shape != shape:
            kinds = " or ".join(map(str, allowed))
            raise ModelFileError(f"array {name} is {got.dtype} {got.shape}; by the header expected {kinds} {shape}")


def flag(value: object, name: str) -> bool:
    """Return true or false, or raise `ModelFileError`."""
    if not isinstance(value, bool):
        raise ModelFileError(f"{name} is not true or false")
    return value


def pair(value: object, name: str, most: int) -> tuple[int, int]:
    """Return two whole numbers from 0 to `most`, or raise `ModelFileError`."""
    if not isinstance(value, list) or len(value) != 2:
        raise ModelFileError(f"{name}: expected two whole numbers")
    return whole(value[0], 0, most, name), whole(value[1], 0, most, name)


def parse_table(text: str, name: str) -> Table:
    """Parse a JSON object."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"the {name} is not JSON ({error}); the file is damaged or not a detector") from error
    return as_table(parsed, name)


def as_table(value: object, name: str) -> Table:
    """Return the value if it is a JSON object, or raise `ModelFileError`."""
    if not isinstance(value, dict):
        raise ModelFileError(f"the {name} is {_brief(value)}; expected a JSON object")
    return value


def check_keys(table: Table, required: Collection[str], optional: Collection[str] = (), *, where: str) -> None:
    """Raise `ModelFileError` for missing keys, and for unknown keys, which saving the detector would lose."""
    missing, unknown = sorted(set(required) - set(table)), sorted(set(table) - {*required, *optional})
    if missing or unknown:
        raise ModelFileError(f"{where} lacks {missing} and has unknown {unknown}; expected {sorted(required)}")


def whole(value: object, least: int, most: int, name: str) -> int:
    """Return an integer from `least` to `most`, inclusive, or raise `ModelFileError`.

    >>> whole(True, 0, 3, "count")
    Traceback (most recent call last):
    whet.errors.ModelFileError: count is True; expected a whole number from 0 to 3
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a whole number from {least} to {most}")
    return value


def finite(value: object, name: str) -> float:
    """Return a finite number, or raise `ModelFileError`."""
    # A comparison, because math.isfinite raises for an integer of 400 digits.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a finite number")
    return float(value)


def one_of(value: object, choices: Collection[str], name: str) -> str:
    """Return a string that is one of the choices, or raise `ModelFileError`."""
    if not isinstance(value, str) or value not in choices:
        raise ModelFileError(f"{name} is {_brief(value)}; expected one of {sorted(choices)}")
    return value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


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
    names what a training needs to know of the family (`whet.training.loop.FamilyTraining`), or is it.
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
