"""Cascades in files: a table of the stages, and arrays of weak learners, weights and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from whet.errors import ModelFileError
from whet.lda.discriminant import Criterion
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics
from whet.lda.thresholds import Asymmetric, Rate, RejectionThresholds
from whet.models.contract import (
    Arrays,
    Layout,
    Saved,
    Table,
    as_table,
    check_keys,
    check_layout,
    finite,
    flag,
    one_of,
    pair,
    whole,
)
from whet.models.gslda.cascade import ClassPair, LearningStage, Stage, TrainedStage, z_of
from whet.models.gslda.cascade_model import CascadeModel, ExampleCounts, learning_sizes
from whet.models.gslda.pools import (
    LEAVES,
    MOST_CONDITIONS,
    columns_of,
    family_name,
    family_names,
    from_columns,
    layout_of,
    n_rows,
)

# A triangle of bytes becomes a square of 64-bit numbers: without limits, a small file could fill the memory.
# OpenCV's largest stages have some 200 weak learners; 100 stages of 200 have 4 million cells.
MOST_WEAK = 2000
MOST_STAGES = 1000
MOST_CELLS = 2**23
CLASSES = ("positive", "negative")
UNSIGNED = tuple(np.dtype(f"u{size}") for size in (1, 2, 4, 8))
# Columns of leaves have one row per condition; columns of other families one per weak learner.
_OF_LEAVES = "n_conditions"
_LEARNING = {"family", "n_weak", "criterion", "ridge", "rule", "z", "positives", "negatives", "soft"}
_FIXED = {"family", "n_weak", "threshold", "soft"}
_COUNTS = ("positives", "negatives")
# Only of cascades whose scans have a coarse pass.
_COARSE_ROOM = "coarse_room"


def save(model: CascadeModel) -> Saved:
    """The stages of a model and its counts of examples."""
    counts = model.counts or ExampleCounts.empty(learning_sizes(model.stages))
    stages = [_describe(stage, learned) for stage, learned in zip(model.stages, counts.counts, strict=True)]
    _check_sizes(stages)  # what could not be loaded is not saved
    table: Table = {"min_sigma": float(model.min_sigma), "stages": [stage.table() for stage in stages]}
    arrays: dict[str, NDArray[Any]] = {}
    for number, (stage, since) in enumerate(zip(model.stages, counts.stages, strict=True)):
        arrays |= {_name(number, name): column for name, column in columns_of(stage.features, stage.weak).items()}
        arrays |= {_name(number, name): np.ascontiguousarray(floats) for name, floats in _floats_of(stage)}
        for side, trained, learned in zip(CLASSES, stage.statistics, since, strict=True):
            if trained.n:
                arrays[_name(number, side)] = _triangle(trained)
            if learned.n:
                arrays[_name(number, f"learned.{side}")] = _triangle(learned)
    aside = {_COARSE_ROOM: list(map(float, model.coarse_room))} if model.coarse_room else {}
    return Saved(table, arrays, aside)


def load(window: tuple[int, int], table: Table, arrays: Arrays) -> tuple[CascadeModel, ExampleCounts | None]:
    """A model and counts of examples from what a file holds; raises `ModelFileError` for anything else."""
    check_keys(table, {"min_sigma", "stages"}, {_COARSE_ROOM}, where="the model")
    if not isinstance(table["stages"], list):
        raise ModelFileError("the stages of the model are no list")
    headers = [_read_stage(value, number) for number, value in enumerate(table["stages"][: MOST_STAGES + 1])]
    _check_sizes(headers)
    _check_arrays(headers, arrays)
    stages: list[TrainedStage] = []
    learned: list[ClassPair] = []
    for number, header in enumerate(headers):
        own = {name: arrays[_name(number, name)] for name in _layout(header)}
        stages.append(_stage(header, window, own))
        learned.append(_learned(header, own))
    room = table.get(_COARSE_ROOM, [])
    if not isinstance(room, list) or (_COARSE_ROOM in table and not room):
        raise ModelFileError(f"{_COARSE_ROOM}: expected a list of numbers, one for each stage of the coarse pass")
    rooms = tuple(finite(value, _COARSE_ROOM) for value in room)
    model = CascadeModel(window, tuple(stages), finite(table["min_sigma"], "min_sigma"), rooms)
    counts = ExampleCounts(tuple(learned))
    return model, None if counts.is_empty else counts


def _check_arrays(headers: Sequence[StageHeader], arrays: Arrays) -> None:
    expected = {
        _name(number, name): layout for number, header in enumerate(headers) for name, layout in _layout(header).items()
    }
    check_layout(arrays, expected)


@dataclass(frozen=True)
class LearningHeader:
    """What a stage that learns has beside its arrays; `learned` are positives and negatives since the base."""

    family: str
    n_weak: int
    n_conditions: int
    criterion: Criterion
    ridge: float
    rule: Rate | Asymmetric
    counts: tuple[int, int]
    learned: tuple[int, int]
    soft: bool

    def table(self) -> Table:
        """As JSON; what was never learned is not mentioned."""
        table = {
            **_shape_table(self),
            "criterion": self.criterion,
            "ridge": self.ridge,
            "rule": type(self.rule).__name__.lower(),
            "z": float(z_of(self.rule)),
            "positives": self.counts[0],
            "negatives": self.counts[1],
            "soft": self.soft,
        }
        return table | ({"learned": list(self.learned)} if any(self.learned) else {})

    @classmethod
    def from_table(cls, table: Table, where: str) -> Self:
        """From JSON, checked."""
        check_keys(table, _LEARNING, {"learned", _OF_LEAVES}, where=where)
        rate = Rate(finite(table["z"], f"z of {where}"))
        name = one_of(table["rule"], {"rate", "asymmetric"}, f"rule of {where}")
        criterion = one_of(table["criterion"], {"fda", "lac"}, f"criterion of {where}")
        return cls(
            *_shape(table, where),
            cast(Criterion, criterion),
            finite(table["ridge"], f"ridge of {where}"),
            rate if name == "rate" else Asymmetric(rate),
            pair([table["positives"], table["negatives"]], f"counts of {where}", MOST_SAMPLES - 1),
            pair(table.get("learned", [0, 0]), f"learned counts of {where}", MOST_SAMPLES - 1),
            flag(table["soft"], f"soft of {where}"),
        )


@dataclass(frozen=True)
class FixedHeader:
    """What a stage with fixed weights has beside its arrays; `counts` are the samples that it has counted, if any."""

    family: str
    n_weak: int
    n_conditions: int
    threshold: float
    soft: bool
    counts: tuple[int, int] | None = None

    def table(self) -> Table:
        """As JSON; a stage that has counted nothing does not mention it."""
        table = _shape_table(self) | {"threshold": self.threshold, "soft": self.soft}
        return table | ({} if self.counts is None else dict(zip(_COUNTS, self.counts, strict=True)))

    @classmethod
    def from_table(cls, table: Table, where: str) -> Self:
        """From JSON, checked."""
        is_counted = not set(_COUNTS).isdisjoint(table)
        check_keys(table, {*_FIXED, *(_COUNTS if is_counted else ())}, {_OF_LEAVES}, where=where)
        threshold = finite(table["threshold"], f"threshold of {where}")
        numbers = [table[name] for name in _COUNTS] if is_counted else None
        counts = None if numbers is None else pair(numbers, f"counts of {where}", MOST_SAMPLES - 1)
        return cls(*_shape(table, where), threshold, flag(table["soft"], f"soft of {where}"), counts)


StageHeader = LearningHeader | FixedHeader


def _check_sizes(stages: Sequence[StageHeader]) -> None:
    if len(stages) > MOST_STAGES:
        raise ModelFileError(f"got {len(stages):,} stages; expected at most {MOST_STAGES:,}")
    most = max((stage.n_weak for stage in stages), default=0)
    if most > MOST_WEAK:
        raise ModelFileError(f"a stage has {most:,} weak learners; a file holds at most {MOST_WEAK:,} a stage")
    if sum(stage.n_weak**2 for stage in stages) > MOST_CELLS:
        raise ModelFileError(f"the stages have more than {MOST_CELLS:,} co-occurrences in all; expected fewer")
    if sum(stage.n_conditions for stage in stages) > MOST_CONDITIONS:
        raise ModelFileError(f"the stages have more than {MOST_CONDITIONS:,} conditions in all; expected fewer")


def _describe(stage: TrainedStage, learned: tuple[int, int]) -> StageHeader:
    shape = family_name(stage.features), len(stage), n_rows(stage.features, stage.weak)
    match stage:
        case Stage():
            counted = None if stage.counts is None else (int(stage.counts[0].n), int(stage.counts[1].n))
            soft = stage.rejection_thresholds is not None
            return FixedHeader(*shape, float(stage.threshold), soft, counted)
        case LearningStage(rule=Rate() | Asymmetric() as rule):
            counts = int(stage.positive.n), int(stage.negative.n)
            soft = stage.rejection is not None
            return LearningHeader(*shape, stage.criterion, float(stage.ridge), rule, counts, learned, soft)
    raise TypeError(f"got a stage of type {type(stage).__name__}; a file holds Stage and LearningStage")


def _read_stage(value: object, number: int) -> StageHeader:
    where = f"stage {number}"
    table = as_table(value, where)
    return FixedHeader.from_table(table, where) if "threshold" in table else LearningHeader.from_table(table, where)


def _shape_table(stage: StageHeader) -> Table:
    of_leaves = {_OF_LEAVES: stage.n_conditions} if stage.family in LEAVES else {}
    return {"family": stage.family, "n_weak": stage.n_weak, **of_leaves}


def _shape(table: Table, where: str) -> tuple[str, int, int]:
    family = one_of(table["family"], family_names(), f"feature family of {where}")
    n_weak = whole(table["n_weak"], 1, MOST_WEAK, f"n_weak of {where}")
    if (_OF_LEAVES in table) != (family in LEAVES):
        raise ModelFileError(f"{where} is of {family}: {_OF_LEAVES} belongs to leaves, and to them alone")
    return family, n_weak, whole(table.get(_OF_LEAVES, n_weak), n_weak, MOST_CONDITIONS, f"{_OF_LEAVES} of {where}")


def _triangle(statistics: BinaryStatistics) -> NDArray[Any]:
    """Upper triangle of C, row by row, in the smallest unsigned type that holds it; the sums are its diagonal."""
    upper = statistics.C[np.triu_indices(len(statistics.s))]
    return upper.astype(np.min_scalar_type(upper.max()))


def _statistics(n: int, triangle: NDArray[Any], size: int) -> BinaryStatistics:
    if triangle.max() > n:  # before the cast: 2^64 - 1 would become -1
        raise ModelFileError(f"got a co-occurrence of {triangle.max()} in {n} samples: no samples can have it")
    C = np.zeros((size, size), np.int64)
    C[np.triu_indices(size)] = triangle
    C = np.maximum(C, C.T)
    return BinaryStatistics(n, np.diagonal(C).copy(), C)


def _floats_of(stage: TrainedStage) -> Iterator[tuple[str, NDArray[np.float64]]]:
    match stage:
        case Stage():
            yield "coef", stage.coef
            if stage.rejection_thresholds is not None:
                yield "exits", stage.rejection_thresholds
        case LearningStage(rejection=RejectionThresholds() as rejection):
            yield "exits", rejection.z


def _name(number: int, column: str) -> str:
    return f"stage{number:03d}.{column}"


def _layout(stage: StageHeader) -> dict[str, Layout]:
    """Every array that a stage has: dtypes that it may be of, and its shape."""
    T = stage.n_weak
    columns: dict[str, Layout] = {
        name: (dtype, (stage.n_conditions, *shape)) for name, (dtype, shape) in layout_of(stage.family).items()
    }
    floats = ["coef"] * isinstance(stage, FixedHeader) + ["exits"] * stage.soft
    columns |= dict.fromkeys(floats, (np.dtype(np.float64), (T,)))
    triangles = [] if stage.counts is None else [*CLASSES]
    if isinstance(stage, LearningHeader):
        triangles += [f"learned.{side}" for side, n in zip(CLASSES, stage.learned, strict=True) if n]
    return columns | dict.fromkeys(triangles, (UNSIGNED, (T * (T + 1) // 2,)))


def _stage(stage: StageHeader, window: tuple[int, int], own: Arrays) -> TrainedStage:
    features, weak = from_columns(stage.family, window, own)
    counts = None
    if stage.counts is not None:
        positive, negative = (
            _statistics(n, own[side], stage.n_weak) for side, n in zip(CLASSES, stage.counts, strict=True)
        )
        counts = positive, negative
    if isinstance(stage, FixedHeader):
        return Stage(features, weak, own["coef"], stage.threshold, own.get("exits"), counts)
    rejection = RejectionThresholds(own["exits"]) if stage.soft else None
    return LearningStage(features, weak, positive, negative, stage.rule, stage.criterion, stage.ridge, rejection)


def _learned(stage: StageHeader, own: Arrays) -> ClassPair:
    if not isinstance(stage, LearningHeader):
        return BinaryStatistics.empty(0), BinaryStatistics.empty(0)
    positive, negative = (
        _statistics(n, own[f"learned.{side}"], stage.n_weak) if n else BinaryStatistics.empty(stage.n_weak)
        for side, n in zip(CLASSES, stage.learned, strict=True)
    )
    return positive, negative
