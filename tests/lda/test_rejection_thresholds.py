import numpy as np
import pytest
from tests.samples import correlated_stumps

from whet.lda.discriminant import OnlineDiscriminant
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import Rate, RejectionThresholds


@pytest.fixture
def vote_and_sums(rng):
    """A vote over 60 weak learners, and partial sums: of positives and negatives for calibration, of new positives."""
    X, y = correlated_stumps(8000, 60, rng)
    train, check, new = X[:1000], X[1000:2500], X[2500:]
    labels = y[:1000]
    positive, negative = BinaryStatistics.from_samples(train[labels]), BinaryStatistics.from_samples(train[~labels])
    vote = OnlineDiscriminant(positive, negative, 60, rule=Rate(-2.0), ridge=20.0)
    seen = y[1000:2500]
    sides = (check[seen], check[~seen], new[y[2500:]])
    return vote, *(np.cumsum(side * vote.coef, axis=1).T for side in sides)


def lost(rejection_thresholds, vote, sums):
    """Share of the positives above the threshold that some exit rejects."""
    accepted = sums[:, sums[-1] > vote.threshold]
    return float((accepted <= rejection_thresholds.thresholds(vote.positive, vote.coef)[:, None]).any(axis=0).mean())


def test_new_positives_pass_where_the_lowest_sums_alone_would_lose_many(vote_and_sums):
    vote, check, others, new = vote_and_sums
    accepted = check[:, check[-1] > vote.threshold]
    lowest = np.nextafter(accepted.min(axis=1), -np.inf)
    kept_new = new[:, new[-1] > vote.threshold]
    tight_loss = (kept_new <= lowest[:, None])[:-1].any(axis=0).mean()
    assert tight_loss > 0.01
    rejection_thresholds = RejectionThresholds.calibrated(check, others, vote)
    assert lost(rejection_thresholds, vote, check) == 0.0
    assert lost(rejection_thresholds, vote, new) < tight_loss / 3


def test_a_larger_loss_gives_tighter_exits(vote_and_sums):
    vote, check, others, _ = vote_and_sums
    strict, loose = (RejectionThresholds.calibrated(check, others, vote, loss).z[:-1] for loss in (0.001, 0.2))
    assert (strict <= loose).all()
    assert (strict < loose).any()


def test_without_enough_positives_there_are_no_exits(vote_and_sums):
    vote, check, others, _ = vote_and_sums
    assert np.isneginf(RejectionThresholds.calibrated(check[:, :3], others, vote).z).all()


def test_the_last_exit_is_left_to_the_threshold(vote_and_sums):
    vote, check, others, _ = vote_and_sums
    assert np.isneginf(RejectionThresholds.calibrated(check, others, vote).thresholds(vote.positive, vote.coef)[-1])


@pytest.mark.parametrize("seed", range(30))
def test_rounding_does_not_reject_the_many_that_lie_on_the_lowest_sum(seed):
    rng = np.random.default_rng(seed)
    X, y = correlated_stumps(400, 6, rng)
    vote = OnlineDiscriminant(
        BinaryStatistics.from_samples(X[y]), BinaryStatistics.from_samples(X[~y]), 6, rule=Rate(-9.0), ridge=20.0
    )
    sums, others = (np.cumsum(side * vote.coef, axis=1).T for side in (X[y], X[~y]))
    assert lost(RejectionThresholds.calibrated(sums, others, vote), vote, sums) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_one_more_positive_does_not_reject_the_many_that_lie_on_the_lowest_sum(seed):
    rng = np.random.default_rng(seed)
    X, y = correlated_stumps(400, 5, rng)
    positive, negative = BinaryStatistics.from_samples(X[y]), BinaryStatistics.from_samples(X[~y])
    vote = OnlineDiscriminant(positive, negative, 5, rule=Rate(-9.0), ridge=20.0)
    sums, others = (np.cumsum(side * vote.coef, axis=1).T for side in (X[y], X[~y]))
    rejection_thresholds = RejectionThresholds.calibrated(sums, others, vote)
    more = positive + BinaryStatistics.from_samples(np.ones((2, 5), np.uint8))
    updated = OnlineDiscriminant(more, negative, 5, rule=Rate(-9.0), ridge=20.0)
    assert lost(rejection_thresholds, updated, np.cumsum(X[y] * updated.coef, axis=1).T) < 0.02
