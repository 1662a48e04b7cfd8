"""Cascades that tests make for themselves: random learners, thresholds in the middle of what they see."""

import numpy as np

from tests.opencv_files import random_rectangles
from whet.images.detections import report
from whet.images.pyramid import Pyramid, resized
from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.cascade_scan import scan_images
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.haar import HaarKind, HaarPool
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool, RectanglePool
from whet.models.gslda.weak_learners import LeafPool, Leaves, Stumps, Subsets, conditions_of


def model_of(cascade, **options):
    """A cascade as a model, of stages that do not learn."""
    return CascadeModel(cascade.window, cascade.stages, cascade.min_sigma, **options)


def detect(model, image, *, threads=None, grouping="peaks", min_score=None, max_detections=None, **options):
    """What a model finds in an image; `options` are those of its pyramid."""
    pyramid = Pyramid.from_image(image, model.window, grid=model.grid, threads=threads, **options)
    fired = model.scan(pyramid, threads=threads)
    return report(fired, grouping=grouping, min_score=min_score, max_detections=max_detections)


def scan(cascade, image, *, step=1, threads=None):
    """The windows of one image that a cascade accepts."""
    return scan_images(cascade, [image], step=step, threads=threads)[0]


def windows_of(image, window, step=1):
    """All windows (n, height, width) of an image, row by row, and their (y, x)."""
    views = np.lib.stride_tricks.sliding_window_view(image, window)[::step, ::step]
    places = np.stack(np.indices(views.shape[:2]), -1).reshape(-1, 2) * step
    return views.reshape(-1, *window), places


def random_rectangle_pool(window, n, rng):
    """Features of two or three rectangles, half of them tilted."""
    tilted = rng.random(n) < 0.5
    boxes, weights = np.zeros((n, 3, 4), np.int32), np.zeros((n, 3), np.float32)
    for i in range(n):
        for k, (*box, weight) in enumerate(random_rectangles(rng, window, tilted[i])):
            boxes[i, k], weights[i, k] = box, float(weight)
    return RectanglePool(window, boxes, weights, tilted)


def random_learners(kind, window, T, rng, stack):
    """Haar stumps, LBP subsets, or leaves of up to three conditions on rectangles or on LBP."""
    if "leaves" in kind:
        first = np.cumsum([0, *rng.integers(1, 4, T)])
        features, weak = random_learners(kind.removesuffix(" leaves"), window, first[-1], rng, stack)
        return LeafPool(features, first), Leaves(weak, first)
    if kind == "rectangle":
        features, feature = random_rectangle_pool(window, T, rng), np.arange(T)
    else:
        pool = (HaarPool if kind == "haar" else BlockPatternPool).from_window(window)
        feature = rng.choice(len(pool), T)
        features = pool.take(feature)
    if kind == "lbp":
        return features, Subsets(feature, rng.integers(0, 2**64, (T, 4), dtype=np.uint64), np.zeros(T))
    threshold = np.quantile(features.evaluate(stack), rng.uniform(0.3, 0.7), axis=1).astype(np.float32)
    return features, Stumps(feature, threshold, rng.choice(np.array([-1, 1], dtype=np.int8), T), np.zeros(T))


def random_stage(kind, window, T, rng, *, soft=False, passing=0.5, like=None):
    """A stage that `passing` of the patches `like` pass."""
    like = rng.integers(0, 256, (500, *window), dtype=np.uint8) if like is None else like
    stack = IntegralStack.from_patches(like)
    chosen, weak = random_learners(kind, window, T, rng, stack)
    coef = rng.normal(1, 0.7, T)
    sums = Stage(chosen, weak, coef, 0.0).partial_sums(stack)
    rejection_thresholds = np.where(rng.random(T) < 0.7, np.quantile(sums, 0.07, axis=1), -np.inf) if soft else None
    return Stage(chosen, weak, coef, float(np.quantile(sums[-1], 1 - passing)), rejection_thresholds)


def random_cascade(kinds, window, sizes, rng, min_sigma=10.0, **options):
    stages = [random_stage(kind, window, T, rng, **options) for kind, T in zip(kinds, sizes, strict=True)]
    return Cascade(window, tuple(stages), min_sigma)


def textured(shape, rng):
    """An image with structure at several scales, flat parts and full contrast."""
    image = np.zeros(shape)
    for size in (1, 3, 8):
        coarse = rng.normal(size=(shape[0] // size + 2, shape[1] // size + 2))
        image += np.kron(coarse, np.ones((size, size)))[: shape[0], : shape[1]]
    image = np.clip(128 + 45 * image, 0, 255).astype(np.uint8)
    image[: shape[0] // 3, shape[1] // 2 :] = 90
    return image


def needed_learners(cascade, patches):
    """How many weak learners all patches together need until they are rejected or accepted, from the definition.

    Of a leaf, every condition counts.
    """
    needed = 0
    stack = IntegralStack.from_patches(patches, cascade.min_sigma)
    alive = stack.has_contrast.copy()
    for stage in cascade.stages:
        sums = stage.partial_sums(stack)
        rejection_thresholds = (
            np.full(len(stage), -np.inf) if stage.rejection_thresholds is None else stage.rejection_thresholds
        )
        conditions = np.diff(conditions_of(stage.features, stage.weak)[2])
        for t in range(len(stage)):
            needed += int(alive.sum()) * conditions[t]
            alive = alive & (sums[t] > rejection_thresholds[t])
        alive &= sums[-1] > stage.threshold
    return needed


def flipped(cascade):
    """The cascade that sees every window in a mirror."""
    return Cascade(cascade.window, tuple(_flipped_stage(stage) for stage in cascade.stages), cascade.min_sigma)


def _flipped_stage(stage):
    pool, weak = stage.features, stage.weak
    x = (pool.window[1] - pool.x - pool.width).astype(np.int16)
    mirrored = HaarPool(pool.window, pool.kind, x, pool.y, pool.width, pool.height)
    # A feature that compares left and right changes its sign: v > t becomes -v > t, that is not v >= -t.
    odd = np.isin(pool.kind, [HaarKind.X2, HaarKind.X2_Y2])
    threshold = np.where(odd, np.nextafter(-weak.threshold, np.float32(-np.inf)), weak.threshold)
    polarity = np.where(odd, -weak.polarity, weak.polarity).astype(np.int8)
    learners = Stumps(weak.feature, threshold, polarity, weak.error)
    return Stage(mirrored, learners, stage.coef, stage.threshold, stage.rejection_thresholds)


def bull(side):
    """A dark disc in a bright ring, with a nose to the left that its mirror image has to the right."""
    y, x = (np.indices((side, side)) + 0.5) / side - 0.5
    image = np.where(np.hypot(x, y) < 0.22, 30.0, np.where(np.hypot(x, y) < 0.45, 220.0, 110.0))
    image[(abs(y) < 0.1) & (x < -0.1)] = 30
    return image


def bull_nodes(rng, goal=None):
    """Three nodes of a cascade that finds the bull at 12 x 12."""
    nodes = []
    positives = np.array([loose_crop(rng) for _ in range(300)])
    pool = HaarPool.from_window((12, 12)).sample(1500, rng)
    background = scene((200, 200), [], rng)
    negatives = windows_of(background, (12, 12), 2)[0]
    for n_weak in (4, 12, 25):
        chosen = negatives[rng.permutation(len(negatives))[:600]]
        patches = np.concatenate([positives, chosen])
        samples = patches, np.arange(len(patches)) < 300
        nodes.append(train_stage(pool, *samples, n_weak, goal=goal, validation=samples if goal else None))
        hard = negatives[Cascade((12, 12), tuple(node.run() for node in nodes)).accepts(negatives)]
        negatives = np.concatenate([hard, negatives[:300]])
    return nodes


def bull_detector(rng):
    """Three stages that find the bull at 12 x 12."""
    return Cascade((12, 12), tuple(node.run() for node in bull_nodes(rng)))


def loose_crop(rng):
    """A bull (12, 12), out of place and size by up to a tenth."""
    canvas = scene((80, 80), [(16, 16, 48)], rng)
    side = int(rng.integers(45, 54))
    x, y = (40 - side // 2 + rng.integers(-4, 5, 2)).tolist()
    return resized(canvas[y : y + side, x : x + side], (12, 12))


def scene(shape, objects, rng):
    """Texture, and a bull of each (x, y, side) on it."""
    image = 110 + rng.normal(0, 12, shape)
    for size in (4, 9, 20):
        coarse = rng.normal(0, 14, (shape[0] // size + 1, shape[1] // size + 1))
        image += np.kron(coarse, np.ones((size, size)))[: shape[0], : shape[1]]
    for x, y, side in objects:
        image[y : y + side, x : x + side] = bull(side) + rng.normal(0, 6, (side, side))
    return np.clip(image, 0, 255).astype(np.uint8)
