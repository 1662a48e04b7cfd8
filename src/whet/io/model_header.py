"""The header of a model file: all of a detector that is not an array, as canonical JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

from whet.errors import ModelFileError
from whet.features.leaves import conditions_of
from whet.io.json_fields import Table, as_table, check_keys, finite, one_of, parse_table, whole
from whet.lda.class_statistics import MOST_SAMPLES
from whet.lda.discriminant import Criterion
from whet.lda.thresholds import Asymmetric, Rate
from whet.model.cascade import MOST_PIXELS
from whet.model.columns import LAYOUTS, LEAVES, MOST_CONDITIONS, family_name
from whet.model.detector_base import StageBase, StageRule, z_of
from whet.model.provenance import Provenance
from whet.model.reporting import Frame, Reporting
from whet.model.stage import Stage
from whet.model.taught_detector import TaughtDetector

FORMAT = "whet detector"
VERSION = 1

# A triangle of bytes becomes a square of 64-bit numbers: without limits, a small file could fill the memory.
# OpenCV's largest stages have some 200 weak learners; 100 stages of 200 have 4 million cells.
MOST_WEAK = 2000
MOST_CELLS = 2**23

# What the columns of leaves have entries for; columns of other families have one for every weak learner.
_OF_LEAVES = "n_conditions"
_LEARNING = {"family", "n_weak", "criterion", "ridge", "rule", "z", "positives", "negatives", "soft"}
_VOTES = ("threshold", "until")
_FIXED = {"family", "n_weak", "threshold", "soft"}
_TOP = {
    *("format", "version", "window", "min_sigma", "base_id"),
    *("frame", "operating_points", "provenance", "stages"),
}


@dataclass(frozen=True)
class LearningHeader:
    """What a stage that learns has beside its arrays; `learned` are positives and negatives since the base."""

    family: str
    n_weak: int
    n_conditions: int
    criterion: Criterion
    ridge: float
    rule: StageRule
    counts: tuple[int, int]
    learned: tuple[int, int]
    soft: bool
    votes: tuple[float, int] | None  # their threshold, and until how many negatives they are kept

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
        if self.votes is not None:
            table["votes"] = dict(zip(_VOTES, self.votes, strict=True))
        return table | ({"learned": list(self.learned)} if any(self.learned) else {})

    @classmethod
    def of_table(cls, table: Table, where: str) -> Self:
        """From JSON, checked."""
        check_keys(table, _LEARNING, {"learned", "votes", _OF_LEAVES}, where=where)
        rate = Rate(finite(table["z"], f"z of {where}"))
        name = one_of(table["rule"], {"rate", "asymmetric"}, f"rule of {where}")
        criterion = one_of(table["criterion"], {"fda", "lac"}, f"criterion of {where}")
        return cls(
            *_shape(table, where),
            cast(Criterion, criterion),
            finite(table["ridge"], f"ridge of {where}"),
            rate if name == "rate" else Asymmetric(rate),
            _pair([table["positives"], table["negatives"]], f"counts of {where}"),
            _pair(table.get("learned", [0, 0]), f"learned counts of {where}"),
            _flag(table["soft"], f"soft of {where}"),
            _votes(table["votes"], f"votes of {where}") if "votes" in table else None,
        )


@dataclass(frozen=True)
class FixedHeader:
    """What a stage with fixed weights has beside its arrays."""

    family: str
    n_weak: int
    n_conditions: int
    threshold: float
    soft: bool

    def table(self) -> Table:
        """As JSON."""
        return _shape_table(self) | {"threshold": self.threshold, "soft": self.soft}

    @classmethod
    def of_table(cls, table: Table, where: str) -> Self:
        """From JSON, checked."""
        check_keys(table, _FIXED, {_OF_LEAVES}, where=where)
        threshold = finite(table["threshold"], f"threshold of {where}")
        return cls(*_shape(table, where), threshold, _flag(table["soft"], f"soft of {where}"))


StageHeader = LearningHeader | FixedHeader


@dataclass(frozen=True)
class Header:
    """The whole header."""

    window: tuple[int, int]
    min_sigma: float
    base_id: str
    reporting: Reporting
    provenance: Provenance
    stages: tuple[StageHeader, ...]

    @classmethod
    def of(cls, detector: TaughtDetector) -> Self:
        """Describe a detector."""
        base = detector.base
        pairs = zip(base.stages, detector.learned.counts, strict=True)
        stages = tuple(_describe(stage, learned) for stage, learned in pairs)
        _check_sizes(stages)  # what could not be loaded is not saved
        window = int(base.window[0]), int(base.window[1])
        return cls(window, float(base.min_sigma), base.base_id, detector.reporting, base.provenance, stages)

    def to_json(self) -> str:
        """Sorted keys, no spaces, ASCII: equal headers have equal bytes."""
        table = {
            "format": FORMAT,
            "version": VERSION,
            "window": list(self.window),
            "min_sigma": self.min_sigma,
            "base_id": self.base_id,
            "frame": list(map(float, self.reporting.frame)),
            "operating_points": dict(self.reporting.operating_points),
            "provenance": asdict(self.provenance),
            "stages": [stage.table() for stage in self.stages],
        }
        return json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read and check everything that can be checked without the arrays."""
        table = parse_table(text, "header")
        _check_version(table)
        check_keys(table, _TOP, where="the header")
        if not isinstance(table["stages"], list) or not isinstance(table["base_id"], str):
            raise ModelFileError("the header's stages are no list, or its base_id is no text")
        stages = tuple(_read_stage(stage, number) for number, stage in enumerate(table["stages"]))
        _check_sizes(stages)
        window = _pair(table["window"], "window", MOST_PIXELS)
        sigma = finite(table["min_sigma"], "min_sigma")
        reporting, provenance = _read_reporting(table), _read_provenance(table["provenance"])
        return cls(window, sigma, table["base_id"], reporting, provenance, stages)


def _check_sizes(stages: Sequence[StageHeader]) -> None:
    most = max((stage.n_weak for stage in stages), default=0)
    if most > MOST_WEAK:
        raise ModelFileError(f"a stage has {most:,} weak learners; a file holds at most {MOST_WEAK:,} a stage")
    if sum(stage.n_weak**2 for stage in stages) > MOST_CELLS:
        raise ModelFileError(f"the stages have more than {MOST_CELLS:,} co-occurrences in all; expected fewer")
    if sum(stage.n_conditions for stage in stages) > MOST_CONDITIONS:
        raise ModelFileError(f"the stages have more than {MOST_CONDITIONS:,} conditions in all; expected fewer")


def _describe(stage: StageBase | Stage, learned: tuple[int, int]) -> StageHeader:
    shape = family_name(stage.features), len(stage), len(conditions_of(stage.features, stage.weak)[1])
    if isinstance(stage, Stage):
        return FixedHeader(*shape, float(stage.threshold), stage.exits is not None)
    counts = int(stage.positive.n), int(stage.negative.n)
    settings = stage.criterion, float(stage.ridge), stage.rule
    votes = None if stage.votes is None else (float(stage.votes.threshold), int(stage.votes.until))
    return LearningHeader(*shape, *settings, counts, learned, stage.exits is not None, votes)


def _check_version(table: Table) -> None:
    if table.get("format") != FORMAT:
        raise ModelFileError(f"the header is not that of a {FORMAT}: this file is of another kind")
    version = table.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ModelFileError(
            f"the file has format version {str(version)[:20]}, this whet reads {VERSION}: update whet, or save it again"
        )


def _read_stage(value: object, number: int) -> StageHeader:
    where = f"stage {number}"
    table = as_table(value, where)
    return FixedHeader.of_table(table, where) if "threshold" in table else LearningHeader.of_table(table, where)


def _read_reporting(table: Table) -> Reporting:
    sides, points = table["frame"], as_table(table["operating_points"], "table of operating points")
    if not isinstance(sides, list) or len(sides) != 4:
        raise ModelFileError("frame: expected four numbers, left, top, right and bottom")
    frame = Frame(*(finite(side, "a side of the frame") for side in sides))
    try:
        return Reporting(frame, {name: finite(points[name], f"operating point {name[:40]!r}") for name in points})
    except ValueError as error:
        raise ModelFileError(str(error)) from error


def _read_provenance(value: object) -> Provenance:
    table: dict[str, Any] = as_table(value, "provenance")
    check_keys(table, Provenance.__dataclass_fields__, where="provenance")
    for name in ("goals", "facts"):
        as_table(table[name], f"provenance's {name}")
    try:
        return Provenance(**table)
    except ValueError as error:
        raise ModelFileError(str(error)) from error


def _shape_table(stage: StageHeader) -> Table:
    of_leaves = {_OF_LEAVES: stage.n_conditions} if stage.family in LEAVES else {}
    return {"family": stage.family, "n_weak": stage.n_weak, **of_leaves}


def _shape(table: Table, where: str) -> tuple[str, int, int]:
    family = one_of(table["family"], LAYOUTS, f"feature family of {where}")
    n_weak = whole(table["n_weak"], 1, MOST_WEAK, f"n_weak of {where}")
    if (_OF_LEAVES in table) != (family in LEAVES):
        raise ModelFileError(f"{where} is of {family}: {_OF_LEAVES} belongs to leaves, and to them alone")
    return family, n_weak, whole(table.get(_OF_LEAVES, n_weak), n_weak, MOST_CONDITIONS, f"{_OF_LEAVES} of {where}")


def _votes(value: object, where: str) -> tuple[float, int]:
    table = as_table(value, where)
    check_keys(table, _VOTES, where=where)
    until = whole(table["until"], 0, MOST_SAMPLES - 1, f"until of {where}")
    return finite(table["threshold"], f"threshold of {where}"), until


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ModelFileError(f"{name} is not true or false")
    return value


def _pair(value: object, name: str, most: int = MOST_SAMPLES - 1) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ModelFileError(f"{name}: expected two whole numbers")
    return whole(value[0], 0, most, name), whole(value[1], 0, most, name)
