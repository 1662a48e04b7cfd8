"""Known neighbours against the definition in plain NumPy, and in the scan of an image."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cascades import windows_of
from tests.detectors import bull_base, bull_scene, judged_base

from whet._kernels.responses import find_nearest
from whet.cascade.neighbours import (
    LEAST_REACH,
    MOST_REACH,
    MUCH_NEARER,
    UNKNOWN,
    Neighbours,
    decided,
    is_nearer,
    nearest_distances,
    reach_of,
    words_of,
)
from whet.cascade.pyramid import Pyramid
from whet.cascade.scan import scan_pyramid


def some_bits(rng, n, n_weak):
    return rng.integers(0, 2, (n, n_weak), dtype=np.uint8)


def neighbours(rng, n_weak, sizes=(3, 2, 5, 4), n_guards=(1, 1)):
    """Random windows of all four kinds, one bit to a byte, and the `Neighbours` of them."""
    sets = [some_bits(rng, n, n_weak) for n in sizes]
    words = [words_of(np.packbits(part, axis=1)) for part in sets]
    targets = rng.uniform(1, 50, sizes[1])
    return sets, Neighbours(n_weak, words[0], words[1], targets, words[2], words[3], n_guards)


def by_definition(sets, known, window, score):
    """The score of one window, from the definition."""

    def distances(rows):
        return [int(sum(a != b for a, b in zip(window.tolist(), row.tolist(), strict=True))) for row in rows]

    rejected, accepted, objects, others = map(distances, sets)
    unknown = max(round(UNKNOWN * known.n_weak), 1)
    objects += [] if known.n_guards[0] else [unknown]
    others += [] if known.n_guards[1] else [unknown]
    if rejected and min(rejected) < known.reach * min([*accepted, *objects, 4 * known.n_weak]):
        return -np.inf
    if accepted and min(accepted) < 0.8 * min([*rejected, *others, 4 * known.n_weak]):
        return max(score, known.targets[accepted.index(min(accepted))])
    return score


@given(
    st.integers(0, 10**6), st.integers(5, 200), st.tuples(*[st.integers(0, 4)] * 4), st.tuples(*[st.integers(0, 1)] * 2)
)
def test_judging_is_the_definition(seed, n_weak, sizes, n_guards):
    rng = np.random.default_rng(seed)
    sets, known = neighbours(rng, n_weak, sizes, n_guards)
    windows = np.concatenate([some_bits(rng, 4, n_weak), *sets])
    windows = windows ^ (rng.random(windows.shape) < 0.1)  # some of them near the known ones
    scores = np.where(rng.random(len(windows)) < 0.3, -np.inf, rng.uniform(0, 60, len(windows)))
    expected = [by_definition(sets, known, window, score) for window, score in zip(windows, scores, strict=True)]
    np.testing.assert_array_equal(known.judge(windows.astype(np.uint8), scores), expected)


def test_the_first_of_equally_near_windows_counts_and_farther_ones_change_nothing():
    windows = np.array([[0b1111], [0b0000]], np.uint64)
    known = np.array([[0b1011], [0b1101], [0b0111]], np.uint64)
    distance, which = np.array([5, 2]), np.array([9, 9])
    find_nearest(windows, known, distance, which)
    assert distance.tolist() == [1, 2]
    assert which.tolist() == [0, 9]


@given(
    st.integers(0, 10**6), st.integers(5, 200), st.tuples(*[st.integers(0, 4)] * 4), st.tuples(*[st.integers(0, 1)] * 2)
)
def test_distances_decide_as_the_windows_do(seed, n_weak, sizes, n_guards):
    """A table of distances, one column for each known window, gives the scores of `judge`."""
    rng = np.random.default_rng(seed)
    sets, known = neighbours(rng, n_weak, sizes, n_guards)
    windows = np.concatenate([some_bits(rng, 4, n_weak), *sets]) ^ (rng.random((4 + sum(sizes), n_weak)) < 0.1)
    scores = np.where(rng.random(len(windows)) < 0.3, -np.inf, rng.uniform(0, 60, len(windows)))
    tables = [(windows[:, None] != part[None]).sum(axis=2) for part in sets]
    rejected, accepted, objects, others = (part.min(axis=1, initial=4 * n_weak) for part in tables)
    first = tables[1].argmin(axis=1) if sizes[1] else np.zeros(len(windows), np.intp)
    is_rejected = is_nearer(rejected, np.minimum.reduce([accepted, objects]).clip(max=known.unknown[0]), known.reach)
    is_accepted = is_nearer(accepted, np.minimum.reduce([rejected, others]).clip(max=known.unknown[1]), MUCH_NEARER)
    targets = known.targets[first] if sizes[1] else np.zeros(len(windows))
    expected = known.judge(windows.astype(np.uint8), scores)
    np.testing.assert_array_equal(decided(scores, is_rejected, is_accepted, targets), expected)


def test_the_reach_lets_next_to_no_held_out_object_follow():
    rng = np.random.default_rng(0)
    sets, known = neighbours(rng, 64, (5, 2, 30, 4), (20, 4))
    held_out = some_bits(rng, 1000, 64)
    packed, rejected, objects, opposite = (
        np.packbits(part, axis=1) for part in (held_out, sets[0], np.concatenate([sets[1], sets[2]]), 1 - sets[2][:1])
    )
    to_rejected, to_objects = nearest_distances(packed, rejected), nearest_distances(packed, objects)
    reach = reach_of(to_rejected, to_objects)
    assert LEAST_REACH <= reach < MOST_REACH
    lost = np.isneginf(replace(known, reach=reach).judge(held_out, np.ones(1000))).sum()
    assert lost <= 1 or reach == LEAST_REACH
    assert np.isneginf(known.judge(held_out, np.ones(1000))).sum() > 20
    # A mistake that no object is near reaches as far as it may, and without objects nothing is known.
    far = nearest_distances(np.packbits(sets[2], axis=1), opposite)
    assert reach_of(far, np.zeros(30, np.int64)) == MOST_REACH
    assert reach_of(far[:0], far[:0]) == LEAST_REACH


@pytest.mark.parametrize("base", [bull_base(), judged_base()], ids=["hard", "judged"])
def test_a_scan_with_neighbours_accepts_what_the_specification_accepts(base):
    """Every window of an image, by scan with lowered thresholds, and by the plain scores of its pixels."""
    pyramid = Pyramid.from_image(bull_scene(4), base.window, min_size=40)
    level = pyramid.levels[0].image
    windows = windows_of(level, base.window)[0]
    responses, has_contrast = base.cascade.respond(windows)
    scores = np.where(has_contrast, base.cascade.scores_of_responses(responses), -np.inf)
    words, near = words_of(np.packbits(responses, axis=1)), np.flatnonzero(has_contrast)
    closeness = (base.cascade.margins(responses) / base.lengths).min(axis=1)
    missed = near[np.argsort(-np.where(scores[near] == -np.inf, closeness[near], -np.inf))[:2]]
    fired = np.flatnonzero(scores > -np.inf)
    none = words[:0]
    known = Neighbours(base.cascade.n_weak, words[fired[:1]], words[missed], np.full(2, 7.0), none, none, (False,) * 2)
    lowered = tuple(
        stage.lowered(stage.lowest_sums(responses[missed][:, columns]))
        for stage, columns in zip(base.cascade.stages, base.cascade.columns, strict=True)
    )
    corrected = replace(base.cascade, neighbours=known, lowered=lowered)
    expected = corrected.scores(windows)
    assert np.isneginf(expected[fired]).any()
    assert (expected[missed] > -np.inf).all()
    for threads in (1, 2):
        found = scan_pyramid(corrected, pyramid, threads=threads)
        on_level = found.index.scale == pyramid.scales[0]
        np.testing.assert_array_equal(found.scores[on_level], expected[expected > -np.inf])
