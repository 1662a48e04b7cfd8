"""Leaves of trees against a walk down the tree, and tilted sums against the pixels themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cascades import random_learners, random_rectangle_pool
from tests.opencv_files import haar_file, lbp_file

from whet.errors import CannotConvertError
from whet.models.gslda.integral import IntegralStack, tilted_integrals
from whet.models.gslda.pools import BlockPatternPool
from whet.models.gslda.weak_learners import LeafPool, Leaves, Stumps, Subsets, conditions_of, rows_of
from whet.opencv.tree_cascade import OpenCVCascade, Trees, stages_of
from whet.opencv.xml_reader import parse_opencv
from whet.plots.drawing import tilted_pixels

WINDOW = (12, 14)


def noise(n, seed=0, window=WINDOW):
    return np.random.default_rng(seed).integers(0, 256, (n, *window), dtype=np.uint8)


def test_tilted_sums_are_over_triangles():
    patches = noise(3, window=(5, 7))
    sums = tilted_integrals(patches).reshape(6, 8, 3)
    rows, columns = np.indices((5, 7))
    for y in range(6):
        for x in range(8):
            triangle = (rows < y) & (abs(columns - x + 1) <= y - rows - 1)
            np.testing.assert_array_equal(sums[y, x], patches[:, triangle].sum(axis=1))


def test_values_are_sums_of_the_pixels_that_a_rectangle_covers(rng):
    pool, patches = random_rectangle_pool(WINDOW, 60, rng), noise(20)
    assert 10 < pool.tilted.sum() < 50
    values = pool.evaluate(IntegralStack.from_patches(patches))
    for i in range(len(pool)):
        total = np.zeros(len(patches))
        for (x, y, width, height), weight in zip(pool.boxes[i].tolist(), pool.weights[i], strict=True):
            upright = np.zeros(WINDOW, dtype=bool)
            upright[y : y + height, x : x + width] = True
            covered = tilted_pixels(WINDOW, (x, y, width, height)) if pool.tilted[i] else upright
            assert covered.sum() == width * height * (2 if pool.tilted[i] else 1)
            total += weight * patches[:, covered].sum(axis=1, dtype=np.int64)
        np.testing.assert_array_equal(values[i], total.astype(np.float32) * IntegralStack.from_patches(patches).factors)


def test_a_stack_of_some_patches_has_their_tilted_sums():
    stack, kept = IntegralStack.from_patches(noise(9)), np.arange(9) % 3 == 0
    np.testing.assert_array_equal(stack.take(kept).tilted, stack.tilted[:, kept])


@pytest.mark.parametrize("kind", ["rectangle leaves", "lbp leaves"])
def test_a_leaf_responds_where_all_its_conditions_do(kind, rng):
    stack = IntegralStack.from_patches(noise(200))
    features, weak = random_learners(kind, WINDOW, 20, rng, stack)
    answers = weak.respond(features.evaluate(stack))
    conditions, tests, first = conditions_of(features, weak)
    each = tests.respond(conditions.evaluate(stack))
    for t in range(20):
        assert np.array_equal(answers[t], each[first[t] : first[t + 1]].all(axis=0))
    chosen = np.array([7, 3, 3, 19])
    assert weak.respond(features.evaluate(IntegralStack.from_patches(noise(0)))).shape == (20, 0)
    some = weak.take(chosen).respond(features.take(chosen).evaluate(stack))
    np.testing.assert_array_equal(some, answers[chosen])
    np.testing.assert_array_equal(
        weak.take(slice(2, 5)).respond(features.take(slice(2, 5)).evaluate(stack)), answers[2:5]
    )


def walked(cascade, patches):
    """Sums (stages, samples) of the leaves' values, window by window and node by node."""
    values, trees = cascade.features.evaluate(IntegralStack.from_patches(patches)), cascade.trees
    sums = np.zeros((len(cascade), len(patches)))
    for s, of_stage in enumerate(cascade.stages):
        for sample in range(len(patches)):
            for tree in range(of_stage.start, of_stage.stop):
                child, root = None, trees.first[tree]
                while child is None or child > 0:
                    node = root + (child or 0)
                    value = values[trees.feature[node], sample]
                    if cascade.family == "LBP":
                        left = int(trees.subset[node, value // 64]) >> int(value % 64) & 1
                    else:
                        left = value < trees.threshold[node]
                    child = (trees.left if left else trees.right)[node]
                sums[s, sample] += trees.leaves[root + tree - child]
    return sums


@given(st.integers(0, 2**32), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_trees_of_any_shape_are_their_leaves(seed, sizes, is_lbp, tilted):
    rng = np.random.default_rng(seed)
    text = (
        lbp_file(rng, WINDOW, [3, 2], sizes=sizes)
        if is_lbp
        else haar_file(rng, WINDOW, [3, 2], sizes=sizes, tilted=tilted)
    )
    cascade = parse_opencv(text.encode())
    patches = noise(30, seed)
    margins = walked(cascade, patches) - cascade.threshold.astype(np.float64)[:, None]
    stack = IntegralStack.from_patches(patches)
    for stage, margin in zip(stages_of(cascade), margins, strict=True):
        np.testing.assert_allclose(stage.judge(stack)[0], margin, atol=1e-12)
        if isinstance(stage.features, LeafPool):  # leaves of one tree never respond together
            assert stage.respond(stack).sum(axis=0).max() <= len(cascade.trees)
            assert len(stage) + 1 <= len(cascade.trees.leaves)


def chain(n):
    """One tree of n nodes, each the left child of the one before."""
    ints = np.arange(n, dtype=np.int32)
    left, right = np.append(ints[1:], 0).astype(np.int32), -(ints + 1)
    columns = np.zeros(n, np.int32), np.zeros(n, np.float32), np.zeros((n, 4), np.uint64)
    trees = Trees(np.array([0, n], np.int32), left, right, *columns, np.arange(n + 1, dtype=np.float32))
    pool = BlockPatternPool.from_window((3, 3))
    return OpenCVCascade(pool, trees, np.array([0, 1], np.int32), np.zeros(1, np.float32))


def test_a_tree_may_be_deep_but_not_without_end():
    (stage,) = stages_of(chain(300))
    assert len(stage) == 300
    assert np.diff(stage.features.first).max() == 300
    for n in (500, 100_000):  # 5e9 conditions would fill any memory
        with pytest.raises(CannotConvertError, match="conditions"):
            stages_of(chain(n))


@pytest.mark.parametrize("first", [[0], [0, 1], [0, 2, 2], [1, 2], [0, 3], [0, 2, 1, 2]])
def test_every_condition_has_one_leaf(first):
    two = Stumps(np.arange(2), np.zeros(2, np.float32), np.ones(2, np.int8), np.zeros(2))
    with pytest.raises(ValueError, match="at least one of the 2 conditions"):
        Leaves(two, np.array(first))
    with pytest.raises(ValueError, match="at least one of the 2 conditions"):
        LeafPool(BlockPatternPool.from_window((3, 4)), np.array(first))


def test_leaves_are_asked_on_the_pool_that_was_made_with_them():
    subsets = Subsets(np.arange(2), np.zeros((2, 4), np.uint64), np.zeros(2))
    pool = BlockPatternPool.from_window((3, 4))
    for features in (pool, LeafPool(pool, np.array([0, 1, 2]))):
        with pytest.raises(TypeError, match="made with them"):
            conditions_of(features, Leaves(subsets, np.array([0, 2])))


def test_conditions_of_chosen_leaves_stay_together():
    rows, first = rows_of(np.array([0, 3, 4, 6]), np.array([2, 0, 2]))
    assert rows.tolist() == [4, 5, 0, 1, 2, 4, 5]
    assert first.tolist() == [0, 2, 5, 7]
