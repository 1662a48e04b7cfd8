"""A scan with a coarse pass, against its definition: windows next to one of the grid that the coarse stages accept."""

from dataclasses import replace

import numpy as np
import pytest
from tests.cascades import model_of, random_cascade, scan, textured, windows_of

import whet
from whet.corrections.effects import Corrected, KnownWindows, unknown_distance
from whet.images.pyramid import Pyramid, Span, WindowIndex
from whet.models.gslda import cascade_scan as scan_module
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_scan import looked_at, scan_images, scan_pyramid
from whet.models.responses import Responses

WINDOW = (9, 11)


def is_near(cascade, image):
    """Which windows lie next to one of the grid that the coarse stages accept, window by window."""
    patches, places = windows_of(image, WINDOW)
    shape = places.max(axis=0) + 1
    on_grid = (places % 2 == 0).all(axis=1)
    passed = Cascade(WINDOW, cascade.coarse_stages, cascade.min_sigma).accepts(patches) & on_grid
    wide = np.pad(passed.reshape(shape), 1)
    return np.any([wide[y : y + shape[0], x : x + shape[1]] for y in range(3) for x in range(3)], axis=0).ravel()


def expected(cascade, image):
    """Places and scores by the plain cascade, window by window."""
    patches, places = windows_of(image, WINDOW)
    scores = np.where(is_near(cascade, image), cascade.scores(patches), -np.inf)
    return places[scores > -np.inf], scores[scores > -np.inf]


def coarse_cascade(rng, n_coarse=1, room=0.0):
    like = windows_of(textured((60, 60), rng), WINDOW, 2)[0]
    cascade = random_cascade(("haar", "lbp", "haar"), WINDOW, (5, 4, 6), rng, soft=True, passing=0.4, like=like)
    return replace(cascade, coarse_stages=tuple(stage.loosened(room) for stage in cascade.stages[:n_coarse]))


@pytest.mark.parametrize(("n_coarse", "room"), [(1, 0.0), (2, 0.0), (3, 0.0), (1, 0.3), (3, 0.3)])
@pytest.mark.parametrize("shape", [(9, 11), (10, 12), (11, 13), (47, 60), (70, 41)])
def test_windows_and_scores_are_those_of_the_definition(n_coarse, room, shape, rng):
    cascade = coarse_cascade(rng, n_coarse, room)
    for image in (textured((60, 60), rng)[: shape[0], : shape[1]], rng.integers(0, 256, shape, dtype=np.uint8)):
        image = np.ascontiguousarray(np.resize(image, shape))
        places, scores = expected(cascade, image)
        found = scan(cascade, image)
        assert np.array_equal(np.stack([found.y, found.x], axis=1), places)
        assert np.array_equal(found.scores, scores)


def test_bands_and_threads_change_nothing(rng, monkeypatch):
    cascade, images = coarse_cascade(rng), [textured(shape, rng) for shape in ((64, 50), (31, 70), (8, 8))]
    monkeypatch.setattr(scan_module, "WINDOWS_AT_ONCE", 0)
    monkeypatch.setattr(scan_module, "BAND", 1000)
    whole = scan_images(cascade, images, threads=1)
    dense = scan_images(cascade.full, images, threads=1)
    assert 0 < len(whole[0]) < len(dense[0])
    for band, at_once in ((2, 0), (8, 0), (96, 0), (2, 50 * 3), (2, 50 * 5)):
        monkeypatch.setattr(scan_module, "BAND", band)
        monkeypatch.setattr(scan_module, "WINDOWS_AT_ONCE", at_once)
        for threads in (1, 3):
            for one, other in zip(whole, scan_images(cascade, images, threads=threads), strict=True):
                assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("y", "x", "scores"))


def test_a_step_or_no_rejection_means_every_window(rng):
    cascade, image = coarse_cascade(rng), textured((50, 52), rng)
    dense = cascade.full
    for options in ({"step": 2}, {"step": 3}, {"votes": cascade.votes.unlimited}):
        ours, theirs = (scan_images(one, [image], **options)[0] for one in (cascade, dense))
        assert np.array_equal(ours.scores, theirs.scores)


def test_fast_is_the_own_coarse_pass_or_two_fifths_of_the_stages(rng):
    own = coarse_cascade(rng, 2, room=0.3)
    assert own.fast is own
    cascade = own.full
    assert cascade.fast.coarse_stages == cascade.stages[:1]
    assert len(replace(cascade, stages=(cascade.stages * 4)[:10]).fast.coarse_stages) == 4
    short = Cascade(WINDOW, cascade.stages[:2])
    assert short.fast is short


def test_looser_coarse_stages_lose_fewer_windows(rng):
    image = textured((70, 80), rng)
    strict = coarse_cascade(rng, 3)
    loose = replace(strict, coarse_stages=tuple(stage.loosened(0.5) for stage in strict.coarse_stages))
    n_strict, n_loose, n_all = (len(scan(one, image)) for one in (strict, loose, strict.full))
    assert n_strict < n_loose <= n_all


def test_what_a_coarse_pass_looks_at_can_be_asked_for_single_windows(rng):
    cascade, image = coarse_cascade(rng, 2), textured((40, 45), rng)
    pyramid = Pyramid.from_image(image, WINDOW)
    for level, scale in zip(pyramid.levels, pyramid.scales, strict=True):
        y, x = windows_of(level.image, WINDOW)[1].T
        index = WindowIndex(np.full(len(y), scale), y, x)
        assert np.array_equal(looked_at(cascade, pyramid, index), is_near(cascade, level.image))
        assert looked_at(cascade.full, pyramid, index).all()


@pytest.mark.parametrize("fast", [None, True], ids=["own", "asked"])
def test_a_corrected_miss_is_found_wherever_it_lies_and_changes_no_other_window(fast, rng):
    """Corrections accept windows that the coarse pass does not look at; all others are as before."""
    cascade, image = coarse_cascade(rng, 2), textured((40, 45), rng)
    # The model has a coarse pass of its own, or only where a scan asks for one.
    model = model_of(cascade, coarse_room=(0.0, 0.0)) if fast is None else model_of(cascade)
    pyramid = Pyramid.from_image(image, WINDOW)
    every, seen = model.scan(pyramid, fast=False), model.scan(pyramid, fast=fast)
    responses, _ = model.responses(pyramid, every.index)
    is_seen = model.looks_at(every.index, pyramid, fast=fast)
    assert list(every.index.take(is_seen)) == list(seen.index)
    left_out = np.flatnonzero(~is_seen)
    missed = responses.take(left_out[:1])
    others = responses.take(responses.distances(missed) > 0)
    none, n_weak = Responses.empty(responses.n_weak), responses.n_weak
    known = KnownWindows(none, missed, np.array([1.5]), none, others, 1.0, (unknown_distance(n_weak, 99),) * 2)
    corrected = Corrected(model, known, model.votes.loosened(0.2))
    found = corrected.scan(pyramid, fast=fast)
    before = dict(zip(seen.index, seen.scores.tolist(), strict=True))
    after = dict(zip(found.index, found.scores.tolist(), strict=True))
    follows = known.decide(model.responses(pyramid, found.index)[0], np.full(len(found), -np.inf)) > -np.inf
    following = {place for place, is_like in zip(found.index, follows, strict=True) if is_like}
    assert list(every.index)[left_out[0]] in set(after) - set(before)
    assert {place: score for place, score in after.items() if place not in following} == {
        place: score for place, score in before.items() if place not in following
    }


def test_a_pyramid_is_scanned_coarsely_too(rng):
    cascade, image = coarse_cascade(rng), textured((40, 45), rng)
    pyramid = Pyramid.from_image(image, WINDOW)
    found = scan_pyramid(cascade, pyramid)
    per_level = [expected(cascade, level.image) for level in pyramid.levels]
    assert np.array_equal(found.scores, np.concatenate([scores for _, scores in per_level]))


def test_coarse_stages_are_some_of_the_stages(rng):
    cascade = coarse_cascade(rng)
    with pytest.raises(ValueError, match="4 coarse stages"):
        replace(cascade, coarse_stages=(*cascade.stages, cascade.stages[0]))


def test_windows_without_contrast_are_not_counted_in_spans_either():
    model = whet.load("face").model
    image = np.full((60, 64), 90, np.uint8)
    image[:, :32] = np.random.default_rng(0).integers(0, 256, (60, 32))
    pyramid = Pyramid.from_image(image, model.window)
    whole = {
        scale: Span(0, level.shape[0] - 23, 0, level.shape[1] - 23)
        for scale, level in zip(pyramid.scales, pyramid.levels, strict=True)
    }
    every = [model.scan(pyramid, fast=False).n_windows, model.scan(pyramid, spans=whole).n_windows]
    assert 0 < every[0] <= every[1] < sum(span.bottom * span.right for span in whole.values())
