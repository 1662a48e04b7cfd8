"""What a detector consists of: its frozen base, the counts of what was learned since, and what it reports."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, isnan
from typing import Self

import numpy as np
from numpy.typing import NDArray

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.cascade.boxes import BoxOffset
from whet.cascade.cascade import Cascade
from whet.cascade.stage import ClassPair, Stage, TrainedStage, check_count, check_statistics
from whet.detector.reference import Estimate, Judgement, Reference
from whet.errors import CannotLearnError
from whet.lda.statistics import BinaryStatistics

Fact = str | int | float

MOST_POINTS = 100
LONGEST_NAME = 100
# The operating point that is used where none is named.
DEFAULT_POINT = "default"

# The fact of the provenance that names the class of the objects.
CLASS_FACT = "class"

# In units of |w|: where votes hardly separate the classes, margins still have a width.
SMALLEST_UNIT = 0.02

# A slash, a home or a drive letter that begins a word: a directory of one machine, often with a user name.
MOST_FACTS = 1000
LONGEST_FACT = 10_000
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s='"(,])(?:/\w|~[\w./\\]|[A-Za-z]:[\\/]|\\\\\w)""")


@dataclass(frozen=True)
class Provenance:
    """What a detector was trained on, under which licence, by which command, and to which goals.

    `facts` are further numbers and text (class of the objects, seeds, versions). Nothing here changes what a
    detector finds.

    >>> Provenance(data="faces of our own", licence="CC0-1.0", goals={"detection_rate": 0.99}).licence
    'CC0-1.0'
    >>> Provenance(command="whet train /home/ada/faces")
    Traceback (most recent call last):
    ValueError: provenance names a path of one machine: 'whet train /home/ada/faces'; write it relative, or leave it out
    """

    data: str = ""
    licence: str = ""
    command: str = ""
    goals: Mapping[str, Fact] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def class_name(self) -> str | None:
        """The class of the objects, as the annotations call it; None if it is not known.

        >>> Provenance().with_class("van").class_name
        'van'
        """
        name = self.facts.get(CLASS_FACT)
        return name if isinstance(name, str) and name and name.isprintable() else None

    def with_class(self, name: str) -> Provenance:
        """The same with the name of the class; without it where the name looks like a path, which no file holds."""
        if not name or ABSOLUTE_PATH.search(name):
            return self
        return replace(self, facts={CLASS_FACT: name} | dict(self.facts))

    def __post_init__(self) -> None:
        if len(self.goals) + len(self.facts) > MOST_FACTS:
            raise ValueError(
                f"got {len(self.goals) + len(self.facts):,} goals and facts; expected at most {MOST_FACTS:,}"
            )
        texts: list[object] = [self.data, self.licence, self.command]
        for table in (self.goals, self.facts):
            texts += [*table, *(fact for fact in table.values() if not _is_number(fact))]
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"got {text!r} in the provenance; expected text or finite numbers")
            if len(text) > LONGEST_FACT:
                raise ValueError(f"got {len(text):,} characters in the provenance; expected at most {LONGEST_FACT:,}")
            if ABSOLUTE_PATH.search(text):
                raise ValueError(
                    f"provenance names a path of one machine: {text!r}; write it relative, or leave it out"
                )


def _is_number(fact: object) -> bool:
    return isinstance(fact, int | float) and not isinstance(fact, bool) and abs(fact) < float("inf")


@dataclass(frozen=True, eq=False)
class Delta:
    """Statistics of the positives and of the negatives that each stage has learned; treated as a value.

    A stage with fixed weights has statistics of no responses at all.

    >>> import numpy as np
    >>> seen = Delta.empty([2, 3]).with_inserted(1, True, BinaryStatistics.from_samples(np.ones((4, 3), np.uint8)))
    >>> seen.counts, (seen - seen).is_empty
    (((0, 0), (4, 0)), True)
    """

    stages: tuple[ClassPair, ...]

    @classmethod
    def empty(cls, sizes: Sequence[int]) -> Self:
        """Nothing learned, by stages of so many weak learners."""
        return cls(tuple((BinaryStatistics.empty(size), BinaryStatistics.empty(size)) for size in sizes))

    def __add__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_sum(a[0], b[0]), _sum(a[1], b[1])) for a, b in pairs))

    def __sub__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_difference(a[0], b[0]), _difference(a[1], b[1])) for a, b in pairs))

    def with_inserted(self, stage: int, is_positive: bool, new: BinaryStatistics) -> Self:
        """Add samples of one class in one stage; raises ValueError unless they are responses of its weak learners."""
        positive, negative = self.stages[stage]
        if len(new.s) != len(positive.s):
            why = "" if len(positive.s) else ": its weights are fixed, so it cannot learn"
            raise ValueError(
                f"got statistics of {len(new.s)} responses for stage {stage}; expected {len(positive.s)}{why}"
            )
        pair = (positive + new, negative) if is_positive else (positive, negative + new)
        return type(self)((*self.stages[:stage], pair, *self.stages[stage + 1 :]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Weak learners of each stage."""
        return tuple(len(positive.s) for positive, _ in self.stages)

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Positives and negatives that each stage has counted."""
        return tuple((positive.n, negative.n) for positive, negative in self.stages)

    @property
    def is_empty(self) -> bool:
        """Nothing was learned."""
        return not any(map(any, self.counts))

    @property
    def is_possible(self) -> bool:
        """Whether 0 <= C_jk <= min(s_j, s_k) <= n holds everywhere: some samples could have been learned."""
        return all(statistics.is_possible(statistics) for pair in self.stages for statistics in pair)

    def check_counts(self, base: DetectorBase) -> None:
        """Raise ValueError where base and delta together count so many samples that sums would not be exact."""
        for stage, learned in zip(base.stages, self.stages, strict=True):
            for name, before, new in zip(("positives", "negatives"), stage.statistics, learned, strict=True):
                check_count(before.n + new.n, name)


def check_delta(delta: Delta, base: DetectorBase) -> None:
    """Raise ValueError unless a delta fits the stages of a base and some samples could have its counts."""
    if delta.sizes != base.sizes:
        raise ValueError(
            f"got a delta of stages with {delta.sizes} weak learners; expected {base.sizes}, 0 for each fixed stage"
        )
    for number, pair in enumerate(delta.stages):
        for name, statistics in zip(("positives", "negatives"), pair, strict=True):
            check_statistics(statistics, f"{name} in stage {number}")


def _sum(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    """Values may be shared: most often one class alone was learned, and the other's matrices need not be copied."""
    return (a if a.n else b) if len(a.s) == len(b.s) and not (a.n and b.n) else a + b


def _difference(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    return a if len(a.s) == len(b.s) and not b.n else a - b


@dataclass(frozen=True, eq=False)
class DetectorBase:
    """Stages on windows (height, width): those that learn, and those with fixed weights, which only run.

    `mean_positive` (height, width) is the average object, for display; like the provenance it is no part of the id.
    `reference` are responses to held-out samples: they judge and guard corrections. `training_images` (n,) are sorted
    short hashes of the image files of the training (`whet.io.files.short_hashes`), or None if they are not known; no
    part of the id either. With `coarse_room`, scans have a coarse pass of as many stages, with thresholds that are
    lower by so much, in units of |w|; none of it changes the answer to a patch, so it is no part of the id.
    """

    window: tuple[int, int]
    stages: tuple[TrainedStage, ...]
    min_sigma: float = OPENCV_MIN_SIGMA
    provenance: Provenance = field(default_factory=Provenance)
    mean_positive: NDArray[np.uint8] | None = None
    reference: Reference | None = None
    training_images: NDArray[np.uint32] | None = None
    coarse_room: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        mean, images = self.mean_positive, self.training_images
        if images is not None and not (
            images.dtype == np.uint32 and images.ndim == 1 and (images[1:] > images[:-1]).all()
        ):
            raise ValueError(
                f"got training images of {images.dtype} {images.shape}; expected rising uint32 hashes (n,)"
            )
        if mean is not None and (mean.shape != tuple(self.window) or mean.dtype != np.uint8):
            raise ValueError(f"got a mean positive of {mean.dtype} {mean.shape}; expected uint8 {self.window}")
        if not (np.isfinite(self.min_sigma) and self.min_sigma > 0):
            raise ValueError(f"got min_sigma={self.min_sigma}; expected a number above 0")
        if len(self.coarse_room) > len(self.stages) or not all(0 <= room < inf for room in self.coarse_room):
            raise ValueError(
                f"got coarse_room={self.coarse_room}; expected finite numbers of at least 0 for the first of the "
                f"{len(self.stages)} stages"
            )
        for stage in self.stages:
            stage.settings()  # refuses a threshold rule that no file can hold
        n_weak = self.cascade.n_weak  # checks windows and weights
        if self.reference is not None and self.reference.n_weak != n_weak:
            raise ValueError(f"got a reference set of {self.reference.n_weak} weak learners; expected {n_weak}")

    @cached_property
    def cascade(self) -> Cascade:
        """The cascade of the base's own weights and thresholds: the one that routes what is learned."""
        return self.cascade_of(stage.run() for stage in self.stages)

    def cascade_of(self, stages: Iterable[Stage]) -> Cascade:
        """The cascade of the base's stages with their weights, which may have learned."""
        stages = tuple(stages)
        parts = zip(stages, self.lengths.tolist(), self.coarse_room, strict=False)
        coarse = tuple(stage.loosened(room * length) for stage, length, room in parts)
        return Cascade(self.window, stages, self.min_sigma, coarse_stages=coarse)

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """The unit of margins in each stage: the length |w| of a discriminant's weights, summed in order.

        Of votes it is a quarter of the distance between the mean margins of positives and negatives: in OpenCV's late
        stages the two are 0.4 |w| apart, in discriminants 1.3 to 2.8 |w|.
        """
        return np.array([_unit_of_margins(stage, stage.run().coef) for stage in self.stages])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Weak learners of each stage that learns, and 0 for the others: the sizes of a `Delta`."""
        return tuple(len(stage) if stage.learns else 0 for stage in self.stages)

    @cached_property
    def base_id(self) -> str:
        """Hash of all that decides what the base answers and how it learns; provenance does not.

        Detectors with the same id count the same responses, so that what they learned can be added.
        """
        digest = hashlib.sha256(json.dumps([*map(int, self.window), float(self.min_sigma), len(self.stages)]).encode())
        for stage in self.stages:
            digest.update(json.dumps(stage.settings()).encode())
            for array in stage.arrays():
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def check_can_learn(self, *, examples: bool = False) -> None:
        """Raise `CannotLearnError` if no stage has statistics; with `examples`, if no weights follow from them."""
        if self.cascade.uses_channels:
            if examples:
                raise CannotLearnError(
                    "the votes of a channel detector's trees do not follow from examples; correct it by boxes in "
                    "images (Detector.learn, `whet learn --wrong` or --missed), or train it again with these examples"
                )
            return
        if not any(pair[0].n for pair in (stage.statistics for stage in self.stages)):
            raise CannotLearnError(
                "no stage has statistics, so this detector runs but cannot learn; adopt an OpenCV cascade first, with "
                "`whet adopt` or whet.adopt, or train a detector with `whet train`"
            )
        if examples and not any(stage.learns for stage in self.stages):
            raise CannotLearnError(
                "the weights of an adopted OpenCV cascade do not follow from examples; correct it by boxes in images "
                "(Detector.learn, `whet learn --wrong` or --missed), or train a detector with `whet train`"
            )


def _unit_of_margins(stage: TrainedStage, coef: NDArray[np.float64]) -> float:
    length = float(np.sqrt(np.cumsum(coef * coef)[-1]))
    positive, negative = stage.statistics
    if stage.learns or not (positive.n and negative.n):
        return length
    apart = float(np.cumsum(coef * (positive.s / positive.n - negative.s / negative.n))[-1])
    return max(apart / 4, SMALLEST_UNIT * length)


@dataclass(frozen=True)
class Reporting:
    """What a detector reports: which box for a window, and named operating points, the scores to exceed.

    Neither decides what the base answers to a patch, so neither is part of the base's id. An operating point belongs
    to the base as it was evaluated, with that scale factor, step and grouping, and follows what is learned later; one
    that is `fixed` was set after learning, and stays. Objects smaller than `min_size` (their longer side) are looked
    for on demand only; None stands for the size of the window.

    >>> Reporting(operating_points={"careful": 4.5}).min_score("bold")
    Traceback (most recent call last):
    ValueError: unknown operating point 'bold'; use a score, or one of: 'careful'
    """

    box_offset: BoxOffset = field(default_factory=BoxOffset)
    operating_points: Mapping[str, float] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    min_size: float | None = None

    def __post_init__(self) -> None:
        self.box_offset.check()
        if self.min_size is not None and not (isfinite(self.min_size) and self.min_size > 0):
            raise ValueError(f"got min_size={self.min_size}; expected a number of pixels above 0")
        if not self.fixed <= set(self.operating_points):
            raise ValueError(f"got fixed operating points {sorted(self.fixed)}; expected names of operating points")
        if len(self.operating_points) > MOST_POINTS:
            raise ValueError(f"got {len(self.operating_points)} operating points; expected at most {MOST_POINTS}")
        for name, threshold in self.operating_points.items():
            if not _is_name(name):
                raise ValueError(
                    f"got an operating point named {str(name)[:LONGEST_NAME]!r}; expected text of 1 to {LONGEST_NAME} "
                    "characters that can be printed, none of them a space at the ends"
                )
            if not isfinite(threshold):
                raise ValueError(f"operating point {name!r} is {threshold}; expected a finite score")

    def min_score(self, wanted: float | str | None) -> float:
        """The score to exceed: a number, that of an operating point, or without either the default point's.

        Where there is no default point, every detection stands: -inf.
        """
        if wanted is None:
            return self.operating_points.get(DEFAULT_POINT, -inf)
        if not isinstance(wanted, str):
            if isnan(wanted):
                raise ValueError("got min_score=nan; expected a score, the name of an operating point, or None")
            return wanted
        return self._named(wanted)

    def _named(self, name: str) -> float:
        if name not in self.operating_points:
            known = ", ".join(map(repr, sorted(self.operating_points)))
            choice = f"use a score, or one of: {known}" if known else "this detector has none, use a score"
            raise ValueError(f"unknown operating point {name!r}; {choice}")
        return self.operating_points[name]

    def with_point(self, name: str, threshold: float | None, *, follows: bool = True) -> Reporting:
        """The same with one more operating point, or with another score for it; None takes it away."""
        others = {other: score for other, score in self.operating_points.items() if other != name}
        fixed = self.fixed - {name}
        if threshold is None:
            return replace(self, operating_points=others, fixed=fixed)
        points = others | {name: float(threshold)}
        return replace(self, operating_points=points, fixed=fixed if follows else fixed | {name})

    def followed(self, before: Judgement, after: Judgement) -> Reporting:
        """The same with the operating points as they are after a change, but for those that are fixed."""
        points = self.operating_points.items()
        moved = {name: score if name in self.fixed else after.followed(before, score) for name, score in points}
        return replace(self, operating_points=moved)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_NAME


# Estimates on the reference set vary more: recall may fall by so much, and false positives rise by so much.
ESTIMATED_RECALL = 0.01
ESTIMATED_RISE = (0.10, 0.02)


def estimated_setbacks(before: Estimate | None, after: Estimate | None) -> list[str]:
    """What is worse by the reference set than before; nothing without one.

    >>> estimated_setbacks(Estimate(0.98, 0.1), Estimate(0.96, 0.1))
    ['recall falls from 98.0 % to 96.0 %']
    >>> estimated_setbacks(Estimate(0.98, 0.1), Estimate(0.975, 0.11))
    []
    """
    if before is None or after is None:
        return []
    share, least = ESTIMATED_RISE
    rise = after.false_positives_per_image - before.false_positives_per_image
    return setbacks(
        before.recall - after.recall > ESTIMATED_RECALL,
        rise > share * before.false_positives_per_image and rise >= least,
        (before.recall, after.recall),
        (before.false_positives_per_image, after.false_positives_per_image),
    )


def setbacks(
    loses_objects: bool, is_wrong_more_often: bool, recall: tuple[float, float], rate: tuple[float, float]
) -> list[str]:
    """In words, what became worse: recall, false positives per image, or both; each as before and after."""
    texts = (
        f"recall falls from {100 * recall[0]:.1f} % to {100 * recall[1]:.1f} %",
        f"false positives per image rise from {rate[0]:.3g} to {rate[1]:.3g}",
    )
    return [text for text, is_worse in zip(texts, (loses_objects, is_wrong_more_often), strict=True) if is_worse]
