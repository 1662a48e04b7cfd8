"""Selection, boosting and FFS on bit rows against plain versions on response matrices."""

import itertools

import numpy as np
import pytest
from experiments import boosting as bit_boosting
from experiments import forward_feature_selection
from tests.samples import correlated_stumps

from whet.lda.selection import Scatter, forward, rounds
from whet.lda.statistics import BinaryStatistics
from whet.models.gslda.candidates import BitResponses, Responses, class_statistics
from whet.parallel.workers import Threads


@pytest.fixture
def sample(rng):
    X, y = correlated_stumps(191, 30, rng)  # three words of positives and negatives, none of them full
    return X, y, BitResponses.from_responses(X.T.astype(bool), y)


@pytest.mark.parametrize("criterion", ["fda", "lac"])
def test_bits_and_statistics_give_the_same_scatter(criterion, sample):
    X, y, bits = sample
    a = bits.scatter(criterion, 0.7)
    b = Scatter.from_statistics(
        BinaryStatistics.from_samples(X[y]), BinaryStatistics.from_samples(X[~y]), criterion, 0.7
    )
    np.testing.assert_array_equal(a.gap, b.gap)
    np.testing.assert_array_equal(a.diagonal, b.diagonal)
    for j in range(30):
        np.testing.assert_array_equal(a.row(a.described(j)), b.row(b.described(j)))


def forward_in_numpy(scatter, n):
    """The plain version of greedy forward search: its specification."""
    r, v, L, selected = scatter.gap.copy(), scatter.diagonal.copy(), [], []
    for _ in range(n):
        gain = np.where(v > 1e-11 * scatter.diagonal, r**2, 0) / np.maximum(v, 1e-300)
        gain[selected] = 0
        j = int(np.argmax(gain))
        row = (
            scatter.row(scatter.described(j)) - sum((earlier[j] * earlier for earlier in L), np.zeros_like(r))
        ) / np.sqrt(v[j])
        r, v = r - row * (r[j] / np.sqrt(v[j])), v - row**2
        L.append(row)
        selected.append(j)
    return selected


def test_rounds_are_the_plain_search(sample):
    X, _, bits = sample
    statistics = Scatter.from_statistics(*class_statistics(bits, np.arange(X.shape[1])), "fda", 2.0)
    assert [j for j, _ in rounds(bits.scatter("fda", 2.0), 20)] == forward_in_numpy(statistics, 20)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_the_size_of_blocks_does_not_change_a_bit(sample, size):
    bits = sample[2]
    n_blocks = -(-len(bits) // size)
    blocks = [bits.take(np.arange(k, len(bits), n_blocks)) for k in range(n_blocks)]
    responses = Responses(blocks, len(bits), bits.layout, Threads(2))
    assert list(responses.selected("fda", 2.0, 20)) == list(rounds(bits.scatter("fda", 2.0), 20))
    assert np.array_equal(responses.take(np.array([20, 3, 20])).bits, bits.bits[[20, 3, 20]])


def test_rounds_can_be_stopped_at_any_time(sample):
    scatter = sample[2].scatter("fda", 2.0)
    some = [j for j, _ in itertools.islice(rounds(scatter, 25), 6)]
    assert some == forward(scatter, 6)[0].tolist()


def test_class_statistics_of_selected_rows(sample):
    X, y, bits = sample
    chosen = np.array([7, 0, 22])
    for ours, rows in zip(class_statistics(bits, chosen), (X[y], X[~y]), strict=True):
        plain = BinaryStatistics.from_samples(rows[:, chosen])
        assert ours.n == plain.n
        np.testing.assert_array_equal(ours.s, plain.s)
        np.testing.assert_array_equal(ours.C, plain.C)


def adaboost_in_numpy(X, y, n, asymmetry):
    """Viola and Jones's AdaBoost over fixed weak learners, line by line."""
    D = np.where(y, 0.5 / y.sum(), 0.5 / (~y).sum())
    tilt = np.where(y, asymmetry ** (0.5 / n), asymmetry ** (-0.5 / n))
    chosen = []
    for _ in range(n):
        D = D * tilt / (D * tilt).sum()
        errors = np.array([D[(X[:, j] == 1) != y].sum() for j in range(X.shape[1])])
        j = int(np.argmin(errors))
        beta = errors[j] / (1 - errors[j])
        chosen.append((j, np.log(1 / beta)))
        D = D * np.where((X[:, j] == 1) == y, beta, 1.0)
    return chosen


@pytest.mark.parametrize("asymmetry", [1.0, 5.0])
def test_boosting_on_bits_is_the_plain_algorithm(sample, asymmetry):
    X, y, bits = sample
    ours = list(bit_boosting.rounds(bits, 10, asymmetry))
    plain = adaboost_in_numpy(X, y, 10, asymmetry)
    assert [j for j, _ in ours] == [j for j, _ in plain]
    np.testing.assert_allclose([v for _, v in ours], [v for _, v in plain])


def test_boosting_stops_where_no_learner_is_better_than_chance():
    y = np.arange(8) % 2 == 0
    assert list(bit_boosting.rounds(BitResponses.from_responses(np.ones((2, 8), dtype=bool), y), 5)) == []


def test_ffs_finds_the_least_error_of_all_candidates_and_thresholds(sample):
    X, y, bits = sample
    votes = np.zeros(len(X), dtype=int)
    for t, (j, needed) in enumerate(forward_feature_selection.rounds(bits, 9), start=1):
        least = min(
            ((votes + X[:, i] < k) & y).sum() / y.sum() + ((votes + X[:, i] >= k) & ~y).sum() / (~y).sum()
            for k in range(1, t + 1)
            for i in range(X.shape[1])
        )
        votes = votes + X[:, j]
        reached = ((votes < needed) & y).sum() / y.sum() + ((votes >= needed) & ~y).sum() / (~y).sum()
        assert reached == pytest.approx(least)


def test_without_balance_all_samples_start_alike():
    """One positive of four: the learner that misses it errs by a quarter, or in balance by one half."""
    responses = BitResponses.from_responses(np.array([[0, 0, 0, 0]], dtype=bool), np.array([True, False, False, False]))
    ((_, vote),) = bit_boosting.rounds(responses, 1, balance=False)
    assert vote == pytest.approx(np.log(3))
    assert list(bit_boosting.rounds(responses, 1)) == []
