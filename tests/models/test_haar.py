"""The Haar pool: small truths written out, and large ones by formula."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from whet.models.gslda.haar import HaarKind, HaarPool
from whet.models.gslda.integral import IntegralStack

# Every feature of a 3 x 3 window, row by row: what a pixel counts for.
OF_3_BY_3 = {
    HaarKind.X2: """
        -+. ... ...   .-+ ... ...   ... -+. ...   ... .-+ ...   ... ... -+.   ... ... .-+
        -+. -+. ...   .-+ .-+ ...   ... -+. -+.   ... .-+ .-+   -+. -+. -+.   .-+ .-+ .-+
    """,
    HaarKind.Y2: """
        -.. +.. ...   .-. .+. ...   ..- ..+ ...   --. ++. ...   .-- .++ ...   --- +++ ...
        ... -.. +..   ... .-. .+.   ... ..- ..+   ... --. ++.   ... .-- .++   ... --- +++
    """,
    HaarKind.X3: """
        -2- ... ...   ... -2- ...   ... ... -2-   -2- -2- ...   ... -2- -2-   -2- -2- -2-
    """,
    HaarKind.Y3: """
        -.. 2.. -..   .-. .2. .-.   ..- ..2 ..-   --. 22. --.   .-- .22 .--   --- 222 ---
    """,
    HaarKind.X2_Y2: """
        +-. -+. ...   .+- .-+ ...   ... +-. -+.   ... .+- .-+
    """,
}
WEIGHT = {"-": -1, "+": 1, "2": 2, ".": 0}


def written_out(kind):
    letters = "".join(OF_3_BY_3[kind].split())
    return np.array([WEIGHT[letter] for letter in letters]).reshape(-1, 3, 3)


def weights_of(pool, i):
    """What each pixel of the window counts for in feature i."""
    weights = np.zeros(pool.window, dtype=np.int64)
    for x, y, width, height, weight in pool.parts(i):
        weights[y : y + height, x : x + width] += weight
    return weights


@pytest.mark.parametrize("kind", HaarKind)
def test_every_feature_of_a_3_by_3_window(kind):
    expected = written_out(kind)
    pool = HaarPool.from_window((3, 3), [kind])
    assert np.array_equal([weights_of(pool, i) for i in range(len(pool))], expected)
    patch = np.array([[1, 2, 4], [8, 16, 32], [64, 128, 255]], dtype=np.uint8)
    # The inside of a 3 x 3 window is one pixel, flat: its factor is 1.
    values = pool.evaluate(IntegralStack.from_patches(patch[None]))[:, 0]
    assert np.array_equal(values, (expected * patch).sum((1, 2)))


def test_a_3_by_3_window_has_no_other_features():
    assert len(HaarPool.from_window((3, 3))) == 40 == sum(len(written_out(kind)) for kind in HaarKind)


def places(length, parts):
    """How many intervals of a length that `parts` divides fit, in closed form."""
    n = length // parts
    return n * (length + 1) - parts * n * (n + 1) // 2


@pytest.mark.parametrize("window", [(24, 24), (20, 20), (19, 19), (36, 18), (12, 40), (2, 1), (1, 3)])
def test_the_number_of_features(window):
    down, across = ([places(length, parts) for parts in (1, 2, 3)] for length in window)
    expected = {
        HaarKind.X2: down[0] * across[1],
        HaarKind.Y2: down[1] * across[0],
        HaarKind.X3: down[0] * across[2],
        HaarKind.Y3: down[2] * across[0],
        HaarKind.X2_Y2: down[1] * across[1],
    }
    pool = HaarPool.from_window(window)
    assert {kind: int((pool.kind == kind).sum()) for kind in HaarKind} == expected


def test_viola_and_jones_have_162_336():
    pool = HaarPool.from_window((24, 24))
    assert [int((pool.kind == kind).sum()) for kind in HaarKind] == [43_200, 43_200, 27_600, 27_600, 20_736]
    assert len(pool) == 162_336


@pytest.mark.parametrize("window", [(24, 24), (5, 9)])
def test_features_differ_and_stay_inside(window):
    pool = HaarPool.from_window(window)
    rows = np.stack([pool.kind, pool.x, pool.y, pool.width, pool.height], axis=1)
    assert len(np.unique(rows, axis=0)) == len(pool)
    assert (pool.x + pool.width).max() == window[1]
    assert (pool.y + pool.height).max() == window[0]
    assert min(pool.x.min(), pool.y.min()) == 0


def test_the_order_never_changes():
    """Indices are written into model files."""
    pool = HaarPool.from_window((24, 24))
    rows = np.stack([pool.kind, pool.x, pool.y, pool.width, pool.height], axis=1).astype("<i2")
    assert hashlib.sha256(rows.tobytes()).hexdigest()[:16] == "cbc5aae4cfede223"


@given(arrays(np.uint8, (5, 7, 6)))
def test_values_are_weighted_pixels_over_area_times_sigma(patches):
    pool = HaarPool.from_window((7, 6)).sample(40, np.random.default_rng(0))
    stack = IntegralStack.from_patches(patches)
    weights = np.array([weights_of(pool, i) for i in range(len(pool))])
    sums = np.einsum("fyx,syx->fs", weights, patches.astype(np.int64))
    assert np.array_equal(pool.evaluate(stack), sums.astype(np.float32) * stack.factors)


def test_values_ignore_brightness_and_contrast():
    rng = np.random.default_rng(0)
    patches = rng.integers(0, 100, (3, 24, 24), dtype=np.uint8)
    pool = HaarPool.from_window((24, 24)).sample(500, rng)
    values = pool.evaluate(IntegralStack.from_patches(patches))
    assert np.allclose(pool.evaluate(IntegralStack.from_patches(patches * 2 + 30)), values, rtol=1e-5, atol=1e-6)


def test_every_feature_is_blind_to_a_flat_window():
    pool = HaarPool.from_window((8, 8))
    assert not pool.evaluate(IntegralStack.from_patches(np.full((1, 8, 8), 77, dtype=np.uint8))).any()


def test_a_pool_can_be_taken_apart():
    pool = HaarPool.from_window((10, 12))
    assert pool.take(np.array([5, 3])).describe(0) == pool.describe(5)
    sampled = pool.sample(100, np.random.default_rng(3))
    again = pool.sample(100, np.random.default_rng(3))
    assert [sampled.describe(i) for i in range(100)] == [again.describe(i) for i in range(100)]
    assert len({sampled.describe(i) for i in range(100)}) == 100
    wide = pool.take(pool.width > 6)
    assert 0 < len(wide) < len(pool)
    assert wide.width.min() > 6


def test_a_drawing_shows_signs():
    pool = HaarPool.from_window((4, 6))
    for i in range(0, len(pool), 7):
        assert np.array_equal(np.sign(pool.draw(i).astype(int) - 128), np.sign(weights_of(pool, i)))


def test_patches_of_another_size_are_refused():
    with pytest.raises(ValueError, match="got patches of 8 x 9 pixels for features of a 9 x 8 window"):
        HaarPool.from_window((9, 8)).evaluate(IntegralStack.from_patches(np.zeros((1, 8, 9), dtype=np.uint8)))
