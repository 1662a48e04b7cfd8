"""The best window of a single stage against all windows, cropped one by one."""

import numpy as np
import pytest
from experiments.single_stage import best_window, safe_rejection, stage_windows
from tests.cascades import random_stage, textured, windows_of

from whet.images.pyramid import Pyramid, WindowIndex
from whet.models.gslda.integral import IntegralStack

WINDOW = (9, 9)


def all_scores(stage, pyramid):
    """Scale, y, x and margin of every window with contrast, by the stage's own definition."""
    rows = []
    for scale, level in zip(pyramid.scales, pyramid.levels, strict=True):
        patches, places = windows_of(level.image, WINDOW)
        has_contrast = IntegralStack.from_patches(patches).has_contrast
        scores = stage.score(patches)
        rows += [
            (scale, *place, score)
            for place, score, seen in zip(places.tolist(), scores, has_contrast, strict=True)
            if seen
        ]
    return rows


@pytest.fixture
def case(rng):
    like = windows_of(textured((60, 60), rng), WINDOW, 2)[0]
    return random_stage("haar", WINDOW, 30, rng, like=like), Pyramid.from_image(textured((50, 64), rng), WINDOW)


def test_the_best_window_is_the_best_of_all(case):
    stage, pyramid = case
    rows = all_scores(stage, pyramid)
    found = best_window(stage, pyramid)
    assert len(found) == 1
    assert found.scores[0] == pytest.approx(max(row[3] for row in rows), abs=1e-9)
    (same,) = [row for row in rows if row[:3] == next(iter(found.index))]
    assert same[3] == pytest.approx(found.scores[0], abs=1e-9)


def test_known_windows_do_not_change_the_result(case, rng):
    stage, pyramid = case
    rows = all_scores(stage, pyramid)
    best = best_window(stage, pyramid)
    for known in (rows[0], rows[rng.integers(len(rows))], max(rows, key=lambda row: row[3])):
        index = WindowIndex(*(np.array([value]) for value in known[:3]))
        again = best_window(stage, pyramid, index)
        assert list(again.index) == list(best.index)
        assert again.scores[0] == pytest.approx(best.scores[0], abs=1e-9)


def test_all_windows_above_a_margin_are_found_and_no_others(case):
    stage, pyramid = case
    rows = all_scores(stage, pyramid)
    above = float(np.quantile([row[3] for row in rows], 0.97))
    expected = {row[:3] for row in rows if row[3] > above}
    found = stage_windows(stage, pyramid, above)
    assert set(found.index) == expected


def test_a_safe_rejection_threshold_is_below_all_sums_that_can_still_win(case, rng):
    stage, _ = case
    patches = rng.integers(0, 256, (300, *WINDOW), dtype=np.uint8)
    sums = stage.partial_sums(IntegralStack.from_patches(patches))
    wins = sums[-1] > stage.threshold
    assert wins.any()
    assert (sums[:, wins] > safe_rejection(stage, stage.threshold)[:, None]).all()


def test_a_flat_image_has_no_best_window(case):
    stage, _ = case
    assert not len(best_window(stage, Pyramid.from_image(np.full((40, 40), 90, np.uint8), WINDOW)))


def test_a_pyramid_from_a_size_on_has_no_smaller_window(case, rng):
    stage, _ = case
    image = textured((50, 64), rng)
    every, large = Pyramid.from_image(image, WINDOW), Pyramid.from_image(image, WINDOW, min_size=1.5 * WINDOW[0])
    assert large.scales == tuple(scale for scale in every.scales if scale >= 1.5)
    boxes = stage_windows(stage, large, -100.0).boxes
    assert len(boxes)
    assert (boxes[:, 3] - boxes[:, 1]).min() >= 1.5 * WINDOW[0] - 1e-9
