"""Votes against a plain loop over windows, stages and weak learners."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.models.responses import HEAVIEST, Responses, Votes


def random_votes(rng, sizes):
    """Votes of stages with these numbers of weak learners; some have rejection thresholds on the way."""
    coef = [rng.normal(1, 0.8, size) for size in sizes]
    rejection = [
        np.where(rng.random(size) < 0.5, rng.normal(-0.5, 0.5, size), -np.inf) if rng.random() < 0.6 else None
        for size in sizes
    ]
    threshold = [float(rng.normal(0, 0.3)) for _ in sizes]
    return coef, threshold, rejection, Votes.from_stages(coef, threshold, rejection, first_scoring=len(sizes) // 2)


def by_definition(coef, threshold, rejection, bits, first_scoring):
    """Score, lowest margin in units of |w| and rejecting stage of one window."""
    score, closeness, rejecting, start = 0.0, np.inf, len(coef), 0
    for number, (weights, least, limits) in enumerate(zip(coef, threshold, rejection, strict=True)):
        total, square = 0.0, 0.0
        for t, weight in enumerate(weights.tolist()):
            total += weight if bits[start + t] else 0.0
            square += weight * weight
            if limits is not None and not total > limits[t]:
                rejecting = min(rejecting, number)
        if not total > least:
            rejecting = min(rejecting, number)
        closeness = min(closeness, (total - least) / np.sqrt(square))
        score += total - least if number >= first_scoring else 0.0
        start += len(weights)
    return score if rejecting == len(coef) else -np.inf, closeness, rejecting


CASES = given(st.integers(0, 10**6), st.lists(st.integers(1, 40), min_size=1, max_size=5))


@CASES
def test_scores_closeness_and_rejecting_stages_are_those_of_a_plain_loop(seed, sizes):
    rng = np.random.default_rng(seed)
    coef, threshold, rejection, votes = random_votes(rng, sizes)
    bits = rng.integers(0, 2, (30, sum(sizes)), dtype=np.uint8)
    bits[:10] |= rng.integers(0, 2, (10, sum(sizes)), dtype=np.uint8)
    expected = [by_definition(coef, threshold, rejection, row.tolist(), votes.first_scoring) for row in bits]
    scores, closeness, rejecting = (np.array(column) for column in zip(*expected, strict=True))
    responses = Responses.from_bits(bits)
    assert np.array_equal(votes.scores(responses), scores)  # to the last bit
    np.testing.assert_allclose(votes.closeness(responses), closeness, rtol=1e-12)
    assert np.array_equal(votes.rejecting_stages(responses), rejecting)
    assert np.array_equal(votes.scores(responses) == -np.inf, rejecting < len(sizes))


@CASES
def test_lowered_limits_are_just_low_enough(seed, sizes):
    """Windows pass with the limits that are computed for them, and one of them not with any higher one."""
    rng = np.random.default_rng(seed)
    *_, votes = random_votes(rng, sizes)
    wanted = Responses.from_bits(rng.integers(0, 2, (3, sum(sizes)), dtype=np.uint8))
    limits = votes.limits_for(wanted)
    lowered = votes.lowered(limits)
    assert (lowered.scores(wanted) > -np.inf).all()
    assert (lowered.limits <= votes.limits).all()
    assert np.array_equal(lowered.scores(wanted), votes.unlimited.scores(wanted))
    for t in np.flatnonzero(limits < votes.limits):
        higher = lowered.limits.copy()
        higher[t] = np.nextafter(higher[t], np.inf)
        assert np.isneginf(replace(votes, limits=higher).scores(wanted)).any()
    assert np.array_equal(votes.lowered(votes.limits_for(wanted.take(slice(0)))).limits, votes.limits)


@CASES
def test_looser_votes_accept_more_with_the_same_scores(seed, sizes):
    rng = np.random.default_rng(seed)
    *_, votes = random_votes(rng, sizes)
    responses = Responses.from_bits(rng.integers(0, 2, (40, sum(sizes)), dtype=np.uint8))
    strict, loose, every = (each.scores(responses) for each in (votes, votes.loosened(0.4), votes.unlimited))
    assert np.isfinite(every).all()
    for scores, looser in ((strict, loose), (loose, every)):
        accepted = scores > -np.inf
        assert np.array_equal(scores[accepted], looser[accepted])
    units = np.repeat(votes.units, sizes)
    assert np.array_equal(votes.loosened(0.4).limits, votes.limits - 0.4 * units)


@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(0, 9))
def test_responses_are_the_same_as_bits_bytes_and_words(seed, n_weak, n):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (n, n_weak), dtype=np.uint8)
    responses = Responses.from_bits(bits)
    assert np.array_equal(responses.bits, bits)
    assert np.array_equal(responses.to_bytes(), np.packbits(bits, axis=1))
    again = Responses.from_bytes(responses.to_bytes(), n_weak)
    assert np.array_equal(again.words, responses.words)
    joined = Responses.concatenate([responses.take(slice(2)), responses.take(slice(2, None))], n_weak)
    assert np.array_equal(joined.words, responses.words)
    assert len(responses.rows) == len({row.tobytes() for row in bits})
    known = rng.integers(0, 2, (4, n_weak), dtype=np.uint8)
    distance, which = responses.nearest(Responses.from_bits(known))
    table = (bits[:, None] != known[None]).sum(axis=2)
    assert np.array_equal(distance, table.min(axis=1))
    assert np.array_equal(which, table.argmin(axis=1))
    assert (responses.distances(Responses.empty(n_weak)) == 4 * n_weak).all()


@pytest.mark.parametrize(
    ("packed", "n_weak", "message"),
    [
        (np.zeros((3, 2), np.uint8), 17, "expected \\(windows, 3\\)"),
        (np.zeros(3, np.uint8), 8, "expected \\(windows, 1\\)"),
        (np.zeros((3, 2), np.int8), 16, "int8"),
        (np.full((3, 2), 255, np.uint8), 15, "more weak learners than 15"),
    ],
)
def test_bytes_that_are_no_responses_are_refused(packed, n_weak, message):
    with pytest.raises(ValueError, match=message):
        Responses.from_bytes(packed, n_weak)


@pytest.mark.parametrize(
    "change",
    [
        {"coef": np.array([1.0, np.nan])},
        {"coef": np.array([1.0, 2 * HEAVIEST])},
        {"threshold": np.array([np.inf])},
        {"limits": np.array([np.nan, 0.0])},
        {"limits": np.array([np.inf, 0.0])},
    ],
)
def test_votes_that_no_training_makes_are_refused(change):
    votes = Votes.from_stages([np.array([1.0, 2.0])], [0.5], [None])
    votes.check()
    with pytest.raises(ValueError, match=r"finite|below infinity"):
        replace(votes, **change).check()
