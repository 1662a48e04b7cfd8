"""How a node chooses and weighs its weak learners: four ways over the same responses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whet.features.response_matrix import BitResponses
from whet.lda import thresholds
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion
from whet.lda.online import OnlineDiscriminant
from whet.learn import bit_boosting, forward_feature_selection, selection
from whet.learn.bit_statistics import class_statistics

Indices = NDArray[np.intp]


@dataclass(eq=False)
class FixedVote:
    """Weights and threshold that no further sample will move."""

    coef: NDArray[np.float64]
    threshold: float


Vote = OnlineDiscriminant | FixedVote


class NodeLearner(Protocol):
    """Chooses weak learners one after the other, and weighs those that were chosen so far."""

    def rounds(self, responses: BitResponses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`."""

    def vote(self, responses: BitResponses, chosen: Indices) -> Vote:
        """The vote of the learners chosen so far, in the order of choice."""


@dataclass(frozen=True)
class GreedyLDA:
    """Greedy sparse LDA [ALG:GSLDA] by the FDA or the LAC criterion; its vote learns online."""

    criterion: Criterion = "fda"
    ridge: float = DEFAULT_RIDGE
    threshold: str = "bayes"
    miss_rate: float = 0.01

    def rounds(self, responses: BitResponses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`."""
        scatter = selection.Scatter.of_bits(responses, self.criterion, self.ridge)
        for j, _ in selection.rounds(scatter, n_most, responses.threads):
            yield j

    def vote(self, responses: BitResponses, chosen: Indices) -> OnlineDiscriminant:
        """The discriminant of the chosen learners, with statistics to go on from."""
        positive, negative = class_statistics(responses, chosen)
        rule = thresholds.rule(self.threshold, self.miss_rate)
        return OnlineDiscriminant(
            positive, negative, len(chosen), rule=rule, criterion=self.criterion, ridge=self.ridge
        )


@dataclass
class Boosting:
    """AdaBoost, or with an `asymmetry` above 1 AsymBoost, over weak learners that stay as they are.

    With `balance` both classes start with the same weight; without it all samples do.
    """

    asymmetry: float = 1.0
    balance: bool = True
    votes: list[float] = field(default_factory=list, init=False, repr=False)

    def rounds(self, responses: BitResponses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`; one may come more than once."""
        self.votes = []
        for j, vote in bit_boosting.rounds(responses, n_most, self.asymmetry, self.balance):
            self.votes.append(vote)
            yield j

    def vote(self, responses: BitResponses, chosen: Indices) -> FixedVote:  # noqa: ARG002
        """Viola and Jones's strong classifier: at least half of the weighted votes."""
        votes = np.array(self.votes[: len(chosen)])
        return FixedVote(votes, float(votes.sum()) / 2)


@dataclass
class ForwardFeatureSelection:
    """FFS of Wu et al. (2008): every chosen learner has one vote."""

    needed: list[int] = field(default_factory=list, init=False, repr=False)

    def rounds(self, responses: BitResponses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`; one may come more than once."""
        self.needed = []
        for j, needed in forward_feature_selection.rounds(responses, n_most):
            self.needed.append(needed)
            yield j

    def vote(self, responses: BitResponses, chosen: Indices) -> FixedVote:  # noqa: ARG002
        """A count of votes against the number that is needed."""
        return FixedVote(np.ones(len(chosen)), self.needed[len(chosen) - 1] - 0.5)
