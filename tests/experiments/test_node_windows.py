"""The best window of a single node against all windows, cut out one by one."""

import numpy as np
import pytest
from experiments.node_windows import Levels, best_window, node_windows, safe_exits
from tests.cascades import random_stage, textured, windows_of

from whet.features.integral import IntegralStack

WINDOW = (9, 9)


def all_scores(stage, levels):
    """Scale, y, x and margin of every window with contrast, by the stage's own definition."""
    rows = []
    for scale, level in zip(levels.scales, levels.levels, strict=True):
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
    return random_stage("haar", WINDOW, 30, rng, like=like), Levels.from_image(textured((50, 64), rng), WINDOW)


def test_the_best_window_is_the_best_of_all(case):
    stage, levels = case
    rows = all_scores(stage, levels)
    found = best_window(stage, levels)
    assert len(found) == 1
    assert found.scores[0] == pytest.approx(max(row[3] for row in rows), abs=1e-9)
    (same,) = [row for row in rows if row[:3] == (found.scale[0], found.y[0], found.x[0])]
    assert same[3] == pytest.approx(found.scores[0], abs=1e-9)


def test_what_is_known_does_not_change_what_is_found(case, rng):
    stage, levels = case
    rows = all_scores(stage, levels)
    best = best_window(stage, levels)
    for known in (rows[0], rows[rng.integers(len(rows))], max(rows, key=lambda row: row[3])):
        again = best_window(stage, levels, [known[:3]])
        assert (again.scale[0], again.y[0], again.x[0]) == (best.scale[0], best.y[0], best.x[0])
        assert again.scores[0] == pytest.approx(best.scores[0], abs=1e-9)


def test_all_windows_above_a_margin_are_found_and_no_others(case):
    stage, levels = case
    rows = all_scores(stage, levels)
    above = float(np.quantile([row[3] for row in rows], 0.97))
    expected = {row[:3] for row in rows if row[3] > above}
    found = node_windows(stage, levels, above)
    assert set(zip(found.scale.tolist(), found.y.tolist(), found.x.tolist(), strict=True)) == expected


def test_a_safe_exit_is_below_all_sums_that_can_still_win(case, rng):
    stage, _ = case
    patches = rng.integers(0, 256, (300, *WINDOW), dtype=np.uint8)
    sums = stage.partial_sums(IntegralStack.from_patches(patches))
    wins = sums[-1] > stage.threshold
    assert wins.any()
    assert (sums[:, wins] > safe_exits(stage, stage.threshold)[:, None]).all()


def test_a_flat_image_has_no_best_window(case):
    stage, _ = case
    assert not len(best_window(stage, Levels.from_image(np.full((40, 40), 90, np.uint8), WINDOW)))


def test_levels_from_a_size_on_have_no_smaller_window(case, rng):
    stage, _ = case
    image = textured((50, 64), rng)
    every, large = Levels.from_image(image, WINDOW), Levels.from_image(image, WINDOW, min_size=1.5 * WINDOW[0])
    assert large.scales == tuple(scale for scale in every.scales if scale >= 1.5)
    boxes = node_windows(stage, large, -100.0).boxes
    assert len(boxes)
    assert (boxes[:, 3] - boxes[:, 1]).min() >= 1.5 * WINDOW[0] - 1e-9
