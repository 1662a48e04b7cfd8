"""A scan with a coarse pass, against its definition: windows next to one of the grid that the first stages accept."""

from dataclasses import replace

import numpy as np
import pytest
from tests.cascades import random_cascade, textured, windows_of

from whet.cascade import scan as scan_module
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import Pyramid
from whet.cascade.scan import scan, scan_images, scan_pyramid

WINDOW = (9, 11)


def expected(cascade, image):
    """Places and scores by the plain cascade, window by window."""
    patches, places = windows_of(image, WINDOW)
    shape = places.max(axis=0) + 1
    on_grid = (places % 2 == 0).all(axis=1)
    passed = Cascade(WINDOW, cascade.stages[: cascade.coarse_stages], cascade.min_sigma).accepts(patches) & on_grid
    wide = np.pad(passed.reshape(shape), 1)
    near = np.any([wide[y : y + shape[0], x : x + shape[1]] for y in range(3) for x in range(3)], axis=0).ravel()
    scores = np.where(near, cascade.scores(patches), -np.inf)
    return places[scores > -np.inf], scores[scores > -np.inf]


def coarse_cascade(rng, coarse_stages=1):
    like = windows_of(textured((60, 60), rng), WINDOW, 2)[0]
    cascade = random_cascade(("haar", "lbp", "haar"), WINDOW, (5, 4, 6), rng, soft=True, passing=0.4, like=like)
    return replace(cascade, coarse_stages=coarse_stages)


@pytest.mark.parametrize("coarse_stages", [1, 2, 3])
@pytest.mark.parametrize("shape", [(9, 11), (10, 12), (11, 13), (47, 60), (70, 41)])
def test_windows_and_scores_are_those_of_the_definition(coarse_stages, shape, rng):
    cascade = coarse_cascade(rng, coarse_stages)
    for image in (textured((60, 60), rng)[: shape[0], : shape[1]], rng.integers(0, 256, shape, dtype=np.uint8)):
        image = np.ascontiguousarray(np.resize(image, shape))
        places, scores = expected(cascade, image)
        found = scan(cascade, image)
        assert np.array_equal(np.stack([found.y, found.x], axis=1), places)
        assert np.array_equal(found.scores, scores)


def test_bands_and_threads_change_nothing(rng, monkeypatch):
    cascade, images = coarse_cascade(rng), [textured(shape, rng) for shape in ((64, 50), (31, 70), (8, 8))]
    monkeypatch.setattr(scan_module, "BAND", 1000)
    whole = scan_images(cascade, images, threads=1)
    dense = scan_images(replace(cascade, coarse_stages=0), images, threads=1)
    assert 0 < len(whole[0]) < len(dense[0])
    for band in (2, 8, 96):
        monkeypatch.setattr(scan_module, "BAND", band)
        for threads in (1, 3):
            for one, other in zip(whole, scan_images(cascade, images, threads=threads), strict=True):
                assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("y", "x", "scores"))


def test_a_step_or_no_rejection_means_every_window(rng):
    cascade, image = coarse_cascade(rng), textured((50, 52), rng)
    dense = replace(cascade, coarse_stages=0)
    for options in ({"step": 2}, {"step": 3}, {"reject": False}):
        ours, theirs = (scan_images(one, [image], **options)[0] for one in (cascade, dense))
        assert np.array_equal(ours.scores, theirs.scores)


def test_fast_is_two_fifths_of_the_stages_and_nothing_for_short_or_lowered_cascades(rng):
    cascade = replace(coarse_cascade(rng), coarse_stages=0)
    assert cascade.fast.coarse_stages == 1
    assert replace(cascade, stages=(cascade.stages * 4)[:10]).fast.coarse_stages == 4
    assert cascade.fast is cascade.fast
    short = Cascade(WINDOW, cascade.stages[:2])
    lowered = replace(cascade, lowered=cascade.stages)
    assert short.fast is short
    assert lowered.fast is lowered


def test_a_pyramid_is_scanned_coarsely_too(rng):
    cascade, image = coarse_cascade(rng), textured((40, 45), rng)
    pyramid = Pyramid.from_image(image, WINDOW)
    found = scan_pyramid(cascade, pyramid)
    per_level = [expected(cascade, level.image) for level in pyramid.levels]
    assert np.array_equal(found.scores, np.concatenate([scores for _, scores in per_level]))


def test_coarse_stages_are_some_of_the_stages(rng):
    with pytest.raises(ValueError, match="4 coarse stages"):
        coarse_cascade(rng, 4)
