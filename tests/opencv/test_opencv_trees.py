"""Leaves written for OpenCV: those of a tree are that tree again, and any other is a chain of its conditions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cascades import random_learners, random_stage, textured
from tests.opencv_files import haar_file, lbp_file

from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.weak_learners import LeafPool, Leaves, Subsets, conditions_of
from whet.opencv import CascadeClassifier
from whet.opencv.tree_cascade import stages_of
from whet.opencv.xml_reader import parse_opencv, read_opencv
from whet.opencv.xml_writer import trees_of, write_opencv


def shape_of(cascade, tree, node=0):
    """A tree as nested pairs: what a node asks, and what is to its left and right; a leaf is 0."""
    trees, features = cascade.trees, cascade.features
    at = trees.first[tree] + node
    feature = int(trees.feature[at])
    if cascade.family == "LBP":
        asked = *features.describe(feature), *trees.subset[at].tolist()
    else:
        boxes = features.boxes[feature][features.weights[feature] != 0]
        asked = boxes.tobytes(), bool(features.tilted[feature]), float(trees.threshold[at])
    sides = [shape_of(cascade, tree, int(child[at])) if child[at] > 0 else 0 for child in (trees.left, trees.right)]
    if cascade.family == "LBP" and asked[4] >> 63:  # a subset and all but it ask the same, with the sides exchanged
        asked, sides = (*asked[:4], *(2**64 - 1 - word for word in asked[4:])), sides[::-1]
    return asked, *sides


def assert_same_trees(source, path):
    again = read_opencv(path)
    np.testing.assert_array_equal(again.first_tree, source.first_tree)
    np.testing.assert_array_equal(again.trees.first, source.trees.first)
    for tree in range(len(source.trees)):
        assert shape_of(again, tree) == shape_of(source, tree)


@pytest.mark.parametrize("make", [haar_file, lbp_file])
@pytest.mark.parametrize("sizes", [(1, 2), (3,), (2, 5, 9)])
def test_a_file_of_trees_is_the_same_trees_again(make, sizes, tmp_path):
    rng = np.random.default_rng(len(sizes))
    options = {"tilted": True} if make is haar_file else {}
    source = parse_opencv(make(rng, (16, 16), [4, 7], sizes=sizes, **options).encode())
    exported = write_opencv(Cascade(source.window, stages_of(source)), tmp_path / "again.xml")
    assert exported.stumps == len(source.trees)
    assert_same_trees(source, tmp_path / "again.xml")


@pytest.mark.slow
def test_the_trees_that_come_with_opencv_are_the_same_again_and_find_the_same(tmp_path):
    cv2 = pytest.importorskip("cv2")
    image = textured((150, 200), np.random.default_rng(1))
    n_found = 0
    for path in sorted(Path(cv2.data.haarcascades).glob("*.xml")):
        source = read_opencv(path)
        if source.trees.are_stumps and not source.has_tilted:
            continue
        write_opencv(Cascade(source.window, stages_of(source)), tmp_path / "again.xml")
        assert_same_trees(source, tmp_path / "again.xml")
        both = cv2.CascadeClassifier(str(path)), cv2.CascadeClassifier(str(tmp_path / "again.xml"))
        found = [sorted(map(tuple, np.array(c.detectMultiScale(image, 1.1, 0)).tolist())) for c in both]
        assert found[0] == found[1], path.stem
        n_found += len(found[0])
    assert n_found > 100


def test_a_leaf_that_shares_nothing_is_a_chain_of_its_conditions(rng):
    stage = random_stage("rectangle leaves", (12, 12), 8, rng)
    sizes = np.diff(stage.features.first).tolist()
    trees = trees_of(stage, 8)
    assert [len(tree.conditions) for tree in trees] == sizes
    assert [tree.depth for tree in trees] == sizes
    for tree, coef in zip(trees, stage.coef, strict=True):
        assert sorted(tree.leaves) == sorted([*[0.0] * (len(tree.leaves) - 1), coef])


def related_leaves(kind, n, rng):
    """Leaves that ask three questions only, one way or the other: they begin alike, contain and repeat each other."""
    features, weak, _ = conditions_of(*random_learners(kind, (12, 12), 3, rng, IntegralStack.from_patches(noise(50))))
    sizes = rng.integers(1, 4, n)
    rows, flip = rng.integers(0, 3, sizes.sum()), rng.random(sizes.sum()) < 0.5
    if isinstance(weak, Subsets):
        chosen = replace(weak.take(rows), subset=np.where(flip[:, None], ~weak.subset[rows], weak.subset[rows]))
    else:
        chosen = replace(weak.take(rows), polarity=np.where(flip, -1, 1).astype(np.int8))
    first = np.cumsum([0, *sizes])
    return Stage(LeafPool(features.take(rows), first), Leaves(chosen, first), rng.normal(size=n), 0.1)


def noise(n):
    return np.random.default_rng(9).integers(0, 256, (n, 12, 12), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["rectangle leaves", "lbp leaves"])
@pytest.mark.parametrize("n", [2, 6, 30])
def test_leaves_that_have_much_in_common_add_up_to_the_same(kind, n, tmp_path):
    n_trees, n_leaves = 0, 0
    for seed in range(8):
        stage = related_leaves(kind, n, np.random.default_rng(seed))
        cascade = Cascade((12, 12), (stage,))
        n_trees, n_leaves = n_trees + write_opencv(cascade, tmp_path / "c.xml").stumps, n_leaves + n
        patches = noise(60)
        classifier = CascadeClassifier(tmp_path / "c.xml")
        found = [len(classifier.detectMultiScale(patch, 1.1, 0)) == 1 for patch in patches]
        np.testing.assert_array_equal(found, cascade.accepts(patches))
        for k in range(1, n):  # trees of fewer learners begin those of more
            few, more = trees_of(stage, k), trees_of(stage, k + 1)
            assert [tree.conditions for tree in few[:-1]] == [tree.conditions for tree in more[: len(few) - 1]]
            assert few[-1].conditions == more[len(few) - 1].conditions[: len(few[-1].conditions)]
    assert n_trees < n_leaves


@pytest.mark.parametrize("exact", [False, True])
def test_a_leaf_twice_is_two_trees(exact, rng, tmp_path):
    one = random_stage("lbp leaves", (12, 12), 3, rng)
    chosen = np.array([0, 0, 1, 2])
    stage = type(one)(one.features.take(chosen), one.weak.take(chosen), np.array([1.0, 2.0, -1.5, 0.5]), 0.7)
    assert len(trees_of(stage, 4)) == 4
    write_opencv(Cascade((12, 12), (stage,)), tmp_path / "c.xml", exact=exact)
    image = textured((40, 50), rng)
    boxes = CascadeClassifier(tmp_path / "c.xml").detectMultiScale(image, 1.1, 0, maxSize=(12, 12))
    patches = np.stack([image[y : y + 12, x : x + 12] for x, y, _, _ in boxes])
    assert (stage.score(patches) > 0).all()
