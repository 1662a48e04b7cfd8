"""Cascades as models: trained stages, whose weights follow from counts of examples.

`count_examples` says which stages an example teaches; sums of counts can be undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from whet._kernels.window_scan import OPENCV_MIN_SIGMA
from whet.errors import CannotLearnError
from whet.images.detections import FiredWindows
from whet.images.pyramid import Grid, Pyramid, Span, WindowIndex
from whet.lda.statistics import BinaryStatistics
from whet.models.contract import Area, Arrays, Counts, Family, Saved
from whet.models.gslda.cascade import (
    Cascade,
    ClassPair,
    LearningStage,
    Stage,
    TrainedStage,
    check_count,
    check_statistics,
)
from whet.models.gslda.cascade_scan import is_on_grid, looked_at, scan_pyramid, windows_at_once
from whet.models.responses import Responses, Votes


@dataclass(frozen=True, eq=False)
class ExampleCounts:
    """Statistics of the positives and of the negatives that each stage has learned; treated as a value.

    A stage with fixed weights has statistics of no responses at all.

    >>> ones, none = BinaryStatistics.from_samples(np.ones((4, 3), np.uint8)), BinaryStatistics.empty(3)
    >>> seen = ExampleCounts(((ones, none),))
    >>> (seen + seen).counts, (seen - seen).is_empty
    (((8, 0),), True)
    """

    stages: tuple[ClassPair, ...]

    @classmethod
    def empty(cls, sizes: Sequence[int]) -> Self:
        """Nothing learned, by stages with these numbers of weak learners."""
        return cls(tuple((BinaryStatistics.empty(size), BinaryStatistics.empty(size)) for size in sizes))

    def __add__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_sum(a[0], b[0]), _sum(a[1], b[1])) for a, b in pairs))

    def __sub__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_difference(a[0], b[0]), _difference(a[1], b[1])) for a, b in pairs))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Weak learners of each stage."""
        return tuple(len(positive.s) for positive, _ in self.stages)

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Positives and negatives that each stage has counted."""
        return tuple((positive.n, negative.n) for positive, negative in self.stages)

    @property
    def n_examples(self) -> tuple[int, int]:
        """Positives and negatives that were counted in any stage."""
        positives, negatives = zip(*self.counts, strict=True)
        return max(positives), max(negatives)

    @property
    def is_empty(self) -> bool:
        """Nothing was learned."""
        return not any(map(any, self.counts))

    @property
    def is_possible(self) -> bool:
        """Whether 0 <= C_jk <= min(s_j, s_k) <= n holds everywhere: some samples could have been learned."""
        return all(statistics.is_possible(statistics) for pair in self.stages for statistics in pair)

    def check(self, stages: Sequence[TrainedStage]) -> None:
        """Raise ValueError unless the counts fit these stages, some samples could have them, and sums stay exact."""
        sizes = learning_sizes(stages)
        if self.sizes != sizes:
            raise ValueError(
                f"got counts of stages with {self.sizes} weak learners; expected {sizes}, 0 for each fixed stage"
            )
        for number, (stage, pair) in enumerate(zip(stages, self.stages, strict=True)):
            for name, before, new in zip(("positives", "negatives"), stage.statistics, pair, strict=True):
                check_statistics(new, f"{name} in stage {number}")
                check_count(before.n + new.n, name)


def learning_sizes(stages: Sequence[TrainedStage]) -> tuple[int, ...]:
    """Weak learners of each stage that learns, and 0 for the others."""
    return tuple(len(stage) if stage.learns else 0 for stage in stages)


def count_examples(
    stages: Sequence[TrainedStage], responses: Responses, is_object: NDArray[np.bool_], weights: NDArray[np.int64]
) -> ExampleCounts:
    """What each stage counts of examples with labels (n,), each `weights` (n,) times.

    An object counts in all stages; another window in those that it reaches by the weights and stage thresholds of the
    training. So the result depends neither on the order of the examples nor on what was learned before.
    """
    bits = responses.bits
    reaches, end = np.ones(len(bits), np.bool_), 0
    pairs = []
    for stage in stages:
        run, seen = stage.run(), bits[:, end : end + len(stage)]
        end += len(stage)
        if stage.learns:
            positive, negative = (
                BinaryStatistics.from_samples(seen[side], weights[side])
                for side in (reaches & is_object, reaches & ~is_object)
            )
            pairs.append((positive, negative))
        else:
            pairs.append((BinaryStatistics.empty(0), BinaryStatistics.empty(0)))
        # Rejection thresholds are left out: a soft stage learns what its stage threshold lets through.
        reaches &= is_object | (run.weigh(seen.T.astype(np.bool_))[-1] > run.threshold)
    return ExampleCounts(tuple(pairs))


def _sum(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    """Values may be shared: most often one class alone was learned, and the other's matrices need not be copied."""
    return (a if a.n else b) if len(a.s) == len(b.s) and not (a.n and b.n) else a + b


def _difference(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    return a if len(a.s) == len(b.s) and not b.n else a - b


@dataclass(frozen=True, eq=False)
class CascadeModel:
    """Stages on windows (height, width): those that learn, and those with fixed weights, which only run.

    `counts` are examples that were learned on top of the training. With `coarse_room`, scans have a coarse pass of as
    many stages, with thresholds that are lower by this much, in units of |w|.
    """

    window: tuple[int, int]
    stages: tuple[TrainedStage, ...]
    min_sigma: float = OPENCV_MIN_SIGMA
    coarse_room: tuple[float, ...] = ()
    counts: ExampleCounts | None = None
    family: ClassVar[str] = "gslda"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.min_sigma) and self.min_sigma > 0):
            raise ValueError(f"got min_sigma={self.min_sigma}; expected a number above 0")
        if len(self.coarse_room) > len(self.stages) or not all(0 <= room < inf for room in self.coarse_room):
            raise ValueError(
                f"got coarse_room={self.coarse_room}; expected finite numbers of at least 0 for the first of the "
                f"{len(self.stages)} stages"
            )
        if self.counts is None:
            for stage in self.stages:
                if isinstance(stage, LearningStage):
                    stage.check_rule()
            _ = self.cascade  # checks windows
        else:
            self.counts.check(self.stages)

    @property
    def grid(self) -> Grid:
        """Windows at every pixel of grey levels."""
        return Grid()

    @cached_property
    def units(self) -> NDArray[np.float64]:
        """The unit of margins in each stage: the length |w| of a discriminant's weights, summed in order.

        Of votes it is a quarter of the distance between the mean margins of positives and negatives: in OpenCV's late
        stages the two are 0.4 |w| apart, in discriminants 1.3 to 2.8 |w|.
        """
        return np.array([_unit_of_margins(stage, stage.run().coef) for stage in self.stages])

    @cached_property
    def cascade(self) -> Cascade:
        """The weighted stages; where nothing was counted, those of the training."""
        if self.counts is None:
            stages = tuple(stage.run() for stage in self.stages)
        else:
            pairs = zip(self.stages, self.counts.stages, strict=True)
            stages = tuple(stage.run(pair) if any(side.n for side in pair) else stage.run() for stage, pair in pairs)
        coarse: tuple[Stage, ...] = ()
        if self.coarse_room:
            parts = zip(stages, self.units.tolist(), self.coarse_room, strict=False)
            coarse = tuple(stage.loosened(room * unit) for stage, unit, room in parts)
        return Cascade(self.window, stages, self.min_sigma, coarse)

    @cached_property
    def votes(self) -> Votes:
        """Weights and thresholds as they are now, in units of the training."""
        has_units = any(stage.statistics[0].n for stage in self.stages)
        return replace(self.cascade.votes, units=self.units, has_units=has_units)

    def scan(
        self,
        pyramid: Pyramid,
        votes: Votes | None = None,
        *,
        spans: Mapping[float, Span] | None = None,
        fast: bool | None = None,
        threads: int | None = None,
    ) -> FiredWindows:
        """Windows of a pyramid that the votes accept; see `whet.models.contract.Model`."""
        return scan_pyramid(self._cascade_for(fast), pyramid, votes, spans=spans, threads=threads)

    def looks_at(
        self, index: WindowIndex, pyramid: Pyramid | None = None, *, fast: bool | None = None
    ) -> NDArray[np.bool_]:
        """Windows next to one that the coarse pass accepts; without a pyramid, those of its own grid."""
        cascade = self._cascade_for(fast)
        if pyramid is not None:
            return looked_at(cascade, pyramid, index)
        return is_on_grid(index) if cascade.coarse_stages else np.ones(len(index), np.bool_)

    def _cascade_for(self, fast: bool | None) -> Cascade:
        return self.cascade if fast is None else self.cascade.fast if fast else self.cascade.full

    def responses(self, pyramid: Pyramid, index: WindowIndex) -> tuple[Responses, NDArray[np.bool_]]:
        """Responses to windows of a pyramid, and which have enough contrast."""
        parts = windows_at_once(self.cascade, len(index))
        answers = [self.cascade.respond(pyramid.patches(index.take(rows))) for rows in parts]
        responses = Responses.concatenate((responses for responses, _ in answers), self.votes.n_weak)
        return responses, np.concatenate([np.empty(0, np.bool_), *(has_contrast for _, has_contrast in answers)])

    def count(self, responses: Responses, is_object: NDArray[np.bool_], weights: NDArray[np.int64]) -> ExampleCounts:
        """What each stage counts of examples with labels (n,), each `weights` (n,) times."""
        if not self.votes.has_units:
            raise CannotLearnError(
                "no stage has statistics, so this detector runs but cannot learn; adopt an OpenCV cascade first, with "
                "`whet adopt` or whet.adopt, or train a detector with `whet train`"
            )
        if not any(learning_sizes(self.stages)):
            raise CannotLearnError(
                "the weights of an adopted OpenCV cascade do not follow from examples; correct it by boxes in images "
                "(Detector.learn, `whet learn --wrong` or --missed), or train a detector with `whet train`"
            )
        return count_examples(self.stages, responses, is_object, weights)

    def learned(self, counts: Counts | None) -> CascadeModel:
        """The cascade of the training and of these examples."""
        if counts is None and self.counts is None:
            return self
        if not (counts is None or isinstance(counts, ExampleCounts)):
            raise TypeError(f"got counts of type {type(counts).__name__}; expected those that `count` has made")
        return replace(self, counts=counts)

    def saved(self, counts: Counts | None = None) -> Saved:
        """Weak learners, statistics, and what decides weights and thresholds."""
        from whet.models.gslda.cascade_file import save

        return save(self.learned(counts))


def _unit_of_margins(stage: TrainedStage, coef: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore"):  # `Votes.check` refuses such weights
        length = float(np.sqrt(np.cumsum(coef * coef)[-1]))
    positive, negative = stage.statistics
    if stage.learns or not (positive.n and negative.n):
        return length
    apart = float(np.cumsum(coef * (positive.s / positive.n - negative.s / negative.n))[-1])
    # In units of |w|: where votes hardly separate the classes, margins still have a width.
    return max(apart / 4, 0.02 * length)


def faults(model: CascadeModel) -> Mapping[str, list[str]]:
    """Counts that no samples can have, and weights that do not solve the equations of the counts."""
    return {
        "statistics are those of samples": list(_impossible_statistics(model)),
        "weights follow from counts": list(_wrong_weights(model)),
    }


def _impossible_statistics(model: CascadeModel) -> Iterator[str]:
    """Counts that no samples can have, or scatter that is not positive semidefinite."""
    learned = model.counts or ExampleCounts.empty(learning_sizes(model.stages))
    for number, (stage, pair) in enumerate(zip(model.stages, learned.stages, strict=True)):
        for name, trained, new in zip(("positives", "negatives"), stage.statistics, pair, strict=True):
            for what, statistics in (("training", trained), ("learned", new)):
                if not statistics.n:
                    continue
                if not statistics.is_possible(statistics):
                    yield f"stage {number}, {what} {name}: counts that no samples can have"
                elif _least_eigenvalue(statistics.scatter) < -1e-9:  # the rounding of float64 may leave less
                    yield f"stage {number}, {what} {name}: scatter is not positive semidefinite"


def _least_eigenvalue(scatter: NDArray[np.float64]) -> float:
    """The least eigenvalue of the scatter, as a share of the largest variance."""
    most = float(np.diagonal(scatter).max(initial=0.0))
    return float(np.linalg.eigvalsh(scatter / most)[0]) if most > 0 else 0.0


def _wrong_weights(model: CascadeModel) -> Iterator[str]:
    """Weights that do not solve A w = f (m_1 - m_2) of the counts [FDA], by their residual."""
    from whet.lda.discriminant import degrees_of_freedom, regularised_scatter

    learned = model.counts or ExampleCounts.empty(learning_sizes(model.stages))
    parts = zip(model.stages, model.cascade.stages, learned.stages, strict=True)
    for number, (stage, run, pair) in enumerate(parts):
        if not isinstance(stage, LearningStage):
            continue
        positive, negative = (
            before + new if new.n else before for before, new in zip(stage.statistics, pair, strict=True)
        )
        A = regularised_scatter(positive, negative, stage.criterion, stage.ridge)
        b = degrees_of_freedom(positive.n, negative.n, stage.criterion) * (positive.mean - negative.mean)
        scale = np.abs(A).max() * np.abs(run.coef).max() * len(b) + np.abs(b).max()
        residual = np.abs(A @ run.coef - b).max()
        if not residual <= 1e-8 * scale:  # what the rounding of float64 may leave
            yield f"stage {number}: residual {residual / scale if scale else residual:.2g} of the weights"


def _load(window: tuple[int, int], table: dict[str, Any], arrays: Arrays) -> tuple[CascadeModel, Counts | None]:
    from whet.models.gslda.cascade_file import load

    return load(window, table, arrays)


def _summary(model: CascadeModel, counts: Counts | None) -> list[dict[str, Any]]:
    """A row for each stage."""
    from whet.models.gslda.pools import family_name

    learned = counts.counts if isinstance(counts, ExampleCounts) else [(0, 0)] * len(model.stages)
    rows = []
    for stage, run, pair in zip(model.stages, model.cascade.stages, learned, strict=True):
        positive, negative = stage.statistics
        row = {
            "family": family_name(stage.features),
            "n_weak": len(stage),
            "min_sigma": float(model.min_sigma),
            "is_soft": run.rejection_thresholds is not None,
            "learns": stage.learns,
            "positives": int(positive.n),
            "negatives": int(negative.n),
        }
        if isinstance(stage, LearningStage):
            row |= {"learned_positives": int(pair[0]), "learned_negatives": int(pair[1]), "rejects": _rejects(stage)}
        rows.append(row)
    return rows


def _rejects(stage: LearningStage) -> float | None:
    """The share of the negatives of the training that a stage rejects, by the Gaussian of their projections."""
    from scipy.special import ndtr

    vote = stage.discriminant()
    p = vote.projection
    return float(ndtr((vote.threshold - p.mu_2) / p.sigma_2)) if p.sigma_2 > 0 else None


def _statistics(model: CascadeModel) -> list[tuple[BinaryStatistics, BinaryStatistics] | None]:
    """Positives and negatives of the training in each stage that learns."""
    return [stage.statistics if stage.learns else None for stage in model.stages]


def _areas(model: CascadeModel, learner: int) -> list[Area]:
    """The rectangles of a feature; of a leaf, those of all its conditions."""
    from whet.models.gslda.pools import areas_of

    stage = int(np.searchsorted(model.votes.ends, learner, side="right"))
    return areas_of(model.stages[stage].features, learner - model.votes.columns[stage].start)


FAMILY = Family(
    CascadeModel.family,
    _load,
    _summary,
    faults,
    _statistics,
    _areas,
    "whet.opencv.xml_writer.export_model",
    "whet.training.gslda.CascadeTraining",
)
