"""The rule of corrections against its definition in plain NumPy, and in the scan of an image."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cascades import windows_of
from tests.channels import colourful, random_trees
from tests.detectors import bull_base, bull_scene, judged_base

from whet._kernels.response_bits import find_nearest, lower_until
from whet.corrections.effects import (
    FEWEST_GUARDS,
    LEAST_REACH,
    MOST_REACH,
    UNKNOWN,
    Corrected,
    Distances,
    KnownWindows,
    decide,
    is_nearer,
    reach_of,
    unknown_distance,
)
from whet.images.pyramid import Pyramid
from whet.models.responses import Responses


def some_bits(rng, n, n_weak):
    return rng.integers(0, 2, (n, n_weak), dtype=np.uint8)


def known_windows(rng, n_weak, sizes=(3, 2, 5, 4), is_guarded=(True, True)):
    """Random windows of all four kinds, one bit to a byte, and the `KnownWindows` of them."""
    sets = [some_bits(rng, n, n_weak) for n in sizes]
    rejected, accepted, objects, others = map(Responses.from_bits, sets)
    unknown = tuple(unknown_distance(n_weak, FEWEST_GUARDS if is_known else 0) for is_known in is_guarded)
    targets = rng.uniform(1, 50, sizes[1])
    return sets, KnownWindows(rejected, accepted, targets, objects, others, MOST_REACH, unknown)


def by_definition(sets, known, window, score, is_guarded):
    """The score of one window, from the definition."""
    n_weak = len(window)

    def distances(rows):
        return [int(sum(a != b for a, b in zip(window.tolist(), row.tolist(), strict=True))) for row in rows]

    rejected, accepted, objects, others = map(distances, sets)
    unknown = max(round(UNKNOWN * n_weak), 1)
    objects += [] if is_guarded[0] else [unknown]
    others += [] if is_guarded[1] else [unknown]
    if rejected and min(rejected) < known.reach * min([*accepted, *objects, 4 * n_weak]):
        return -np.inf
    if accepted and min(accepted) < 0.8 * min([*rejected, *others, 4 * n_weak]):
        return max(score, known.targets[accepted.index(min(accepted))])
    return score


def windows_near(sets, rng):
    """Windows of which some are near the known ones, and their scores by the votes."""
    n_weak = sets[0].shape[1]
    windows = np.concatenate([some_bits(rng, 4, n_weak), *sets])
    windows = (windows ^ (rng.random(windows.shape) < 0.1)).astype(np.uint8)
    return windows, np.where(rng.random(len(windows)) < 0.3, -np.inf, rng.uniform(0, 60, len(windows)))


CASES = given(
    st.integers(0, 10**6), st.integers(5, 200), st.tuples(*[st.integers(0, 4)] * 4), st.tuples(*[st.booleans()] * 2)
)


@CASES
def test_known_windows_decide_by_the_definition(seed, n_weak, sizes, is_guarded):
    rng = np.random.default_rng(seed)
    sets, known = known_windows(rng, n_weak, sizes, is_guarded)
    known = replace(known, reach=float(rng.choice([LEAST_REACH, 0.93, MOST_REACH])))
    windows, scores = windows_near(sets, rng)
    pairs = zip(windows, scores, strict=True)
    expected = [by_definition(sets, known, window, score, is_guarded) for window, score in pairs]
    np.testing.assert_array_equal(known.decide(Responses.from_bits(windows), scores), expected)


@CASES
def test_distances_decide_as_the_windows_do(seed, n_weak, sizes, is_guarded):
    """A table of exact distances, one column for each known window, gives the scores of the known windows."""
    rng = np.random.default_rng(seed)
    sets, known = known_windows(rng, n_weak, sizes, is_guarded)
    windows, scores = windows_near(sets, rng)
    tables = [(windows[:, None] != part[None]).sum(axis=2) for part in sets]
    distances = Distances(*(part.min(axis=1, initial=4 * n_weak) for part in tables))
    first = tables[1].argmin(axis=1) if sizes[1] else np.zeros(len(windows), np.intp)
    targets = known.targets[first] if sizes[1] else np.zeros(len(windows))
    expected = known.decide(Responses.from_bits(windows), scores)
    decided = decide(scores, distances, targets, known.reach, known.unknown)
    np.testing.assert_array_equal(decided, expected)
    is_reached = rng.random(len(windows)) < 0.5
    reached = decide(scores, distances, targets, known.reach, known.unknown, is_reached)
    np.testing.assert_array_equal(reached, np.where(is_reached, expected, -np.inf))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_decide_nothing(threads):
    rng = np.random.default_rng(2)
    _, known = known_windows(rng, 90)
    windows, scores = Responses.from_bits(some_bits(rng, 1700, 90)), rng.uniform(0, 9, 1700)
    np.testing.assert_array_equal(known.decide(windows, scores, threads), known.decide(windows, scores))


def test_the_first_of_equally_near_windows_counts_and_farther_ones_change_nothing():
    windows = np.array([[0b1111], [0b0000]], np.uint64)
    known = np.array([[0b1011], [0b1101], [0b0111]], np.uint64)
    distance, which = np.array([5, 2]), np.array([9, 9])
    find_nearest(windows, known, distance, which)
    assert distance.tolist() == [1, 2]
    assert which.tolist() == [0, 9]


@CASES
def test_lowering_stops_where_the_rule_is_decided(seed, n_weak, sizes, is_guarded):
    """`is_nearer` says the same of a distance that was lowered until it is decided as of the exact one."""
    rng = np.random.default_rng(seed)
    windows, known = (Responses.from_bits(some_bits(rng, n, n_weak)) for n in (40, sum(sizes)))
    factor, unknown = float(rng.choice([LEAST_REACH, 0.93, MOST_REACH])), unknown_distance(n_weak, 60 * is_guarded[0])
    distance = rng.integers(0, n_weak + 1, 40)
    lowered = np.full(40, unknown, np.int64)
    lower_until(windows.words, known.words, lowered, factor, distance)
    exact = np.minimum(windows.distances(known), unknown)
    assert (lowered >= exact).all()
    np.testing.assert_array_equal(is_nearer(distance, lowered, factor), is_nearer(distance, exact, factor))


@pytest.mark.parametrize("threads", [1, 3])
def test_windows_that_a_scan_does_not_reach_are_rejected_on_any_number_of_threads(threads):
    rng = np.random.default_rng(3)
    _, known = known_windows(rng, 90)
    windows, scores = Responses.from_bits(some_bits(rng, 1700, 90)), rng.uniform(0, 9, 1700)
    is_reached = rng.random(1700) < 0.5
    decided = known.decide(windows, scores, threads, is_reached=is_reached)
    np.testing.assert_array_equal(decided, np.where(is_reached, known.decide(windows, scores), -np.inf))


def test_the_reach_lets_next_to_no_held_out_object_follow():
    rng = np.random.default_rng(0)
    sets, known = known_windows(rng, 64, (5, 2, 30, 4))
    held_out = Responses.from_bits(some_bits(rng, 1000, 64))
    objects = Responses.concatenate([known.accepted, known.objects], 64)
    reach = reach_of(held_out.distances(known.rejected), held_out.distances(objects))
    assert LEAST_REACH <= reach < MOST_REACH
    lost = np.isneginf(replace(known, reach=reach).decide(held_out, np.ones(1000))).sum()
    assert lost <= 1 or reach == LEAST_REACH
    assert np.isneginf(known.decide(held_out, np.ones(1000))).sum() > 20
    # A mistake that no object is near reaches as far as it may, and without objects nothing is known.
    far = known.objects.distances(Responses.from_bits(1 - sets[2][:1]))
    assert reach_of(far, np.zeros(30, np.int64)) == MOST_REACH
    assert reach_of(far[:0], far[:0]) == LEAST_REACH


def test_with_enough_guards_one_more_is_beyond_all_windows():
    assert unknown_distance(200, FEWEST_GUARDS) == 800
    assert unknown_distance(200, FEWEST_GUARDS - 1) == 30
    assert unknown_distance(1, 0) == 1


@pytest.mark.parametrize("base", [bull_base(), judged_base()], ids=["hard", "judged"])
def test_a_corrected_scan_accepts_what_the_specification_accepts(base):
    """Every window of an image, by a scan with lowered limits, and by the scores of its responses."""
    model = base.model
    pyramid = Pyramid.from_image(bull_scene(4), base.window, min_size=40)
    windows = windows_of(pyramid.levels[0].image, base.window)[0]
    responses, has_contrast = model.cascade.respond(windows)
    scores = np.where(has_contrast, model.votes.scores(responses), -np.inf)
    np.testing.assert_array_equal(scores, model.cascade.scores(windows))
    corrected, fired, missed = corrected_model(model, responses, has_contrast, scores)
    expected = np.where(has_contrast, corrected.scores(responses), -np.inf)
    assert np.isneginf(expected[fired]).any()
    assert (expected[missed] > -np.inf).all()
    for threads in (1, 2):
        found = corrected.scan(pyramid, threads=threads)
        on_level = found.index.scale == pyramid.scales[0]
        np.testing.assert_array_equal(found.scores[on_level], expected[expected > -np.inf])


def test_a_corrected_scan_of_trees_accepts_what_the_specification_accepts():
    model = random_trees()
    pyramid = Pyramid.from_image(colourful((70, 80), np.random.default_rng(4)), model.window, grid=model.grid)
    index = model.scan(pyramid, model.votes.unlimited).index  # every window
    responses, has_contrast = model.responses(pyramid, index)
    corrected, fired, missed = corrected_model(model, responses, has_contrast, model.votes.scores(responses))
    expected = corrected.scores(responses)
    assert np.isneginf(expected[fired]).any()
    assert (expected[missed] > -np.inf).all()
    found = corrected.scan(pyramid, threads=2)
    assert list(found.index) == list(index.take(expected > -np.inf))
    np.testing.assert_array_equal(found.scores, expected[expected > -np.inf])


def corrected_model(model, responses, has_contrast, scores):
    """A model in which one window that fires is a false positive, and two that are nearly accepted are objects."""
    near = np.flatnonzero(has_contrast)
    closeness = np.where(scores[near] == -np.inf, model.votes.closeness(responses.take(near)), -np.inf)
    missed, fired = near[np.argsort(-closeness)[:2]], np.flatnonzero(scores > -np.inf)
    none, unknown = Responses.empty(responses.n_weak), unknown_distance(responses.n_weak, 0)
    objects = responses.take(missed)
    rejected = responses.take(fired[:1])
    known = KnownWindows(rejected, objects, np.full(2, 7.0), none, none, MOST_REACH, (unknown, unknown))
    return Corrected(model, known, model.votes.lowered(model.votes.limits_for(objects))), fired, missed


def test_without_corrections_the_model_alone_decides():
    model = bull_base().model
    pyramid = Pyramid.from_image(bull_scene(), model.window)
    plain, corrected = model.scan(pyramid), Corrected(model).scan(pyramid)
    assert list(plain.index) == list(corrected.index)
    np.testing.assert_array_equal(plain.scores, corrected.scores)
    responses, _ = model.responses(pyramid, plain.index)
    np.testing.assert_array_equal(Corrected(model).scores(responses), plain.scores)
