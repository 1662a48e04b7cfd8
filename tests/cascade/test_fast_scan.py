"""A scan with a coarse pass, against its definition: windows next to one of the grid that the coarse stages accept."""

from dataclasses import replace

import numpy as np
import pytest
from tests.cascades import random_cascade, textured, windows_of

from whet.cascade import scan as scan_module
from whet.cascade.cascade import Cascade
from whet.cascade.neighbours import Neighbours, words_of
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.cascade.scan import looked_at, scan, scan_images, scan_pyramid

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
    for options in ({"step": 2}, {"step": 3}, {"reject": False}):
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


def test_a_corrected_miss_is_found_wherever_it_lies_and_changes_no_other_window(rng):
    """Neighbours accept windows that the coarse pass does not look at; all others are as before."""
    cascade, image = coarse_cascade(rng, 2), textured((40, 45), rng)
    pyramid = Pyramid.from_image(image, WINDOW)
    every, seen = scan_pyramid(cascade.full, pyramid), scan_pyramid(cascade, pyramid)
    responses = cascade.responses(pyramid, every.index)
    left_out = np.flatnonzero(~looked_at(cascade, pyramid, every.index))
    words = words_of(np.packbits(responses, axis=1))
    missed, others = words[left_out[:1]], words[(words != words[left_out[0]]).any(axis=1)]
    none = missed[:0]
    neighbours = Neighbours(cascade.n_weak, none, missed, np.array([1.5]), objects=none, others=others, n_guards=(9, 9))
    corrected = replace(cascade, neighbours=neighbours, lowered=tuple(stage.loosened(0.2) for stage in cascade.stages))
    found = scan_pyramid(corrected, pyramid)
    before = dict(zip(seen.index, seen.scores.tolist(), strict=True))
    after = dict(zip(found.index, found.scores.tolist(), strict=True))
    follows = neighbours.judge(cascade.responses(pyramid, found.index), np.full(len(found), -np.inf)) > -np.inf
    following = {place for place, one in zip(found.index, follows, strict=True) if one}
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
