"""Detectors that tests train for themselves, and patches to train them on."""

from dataclasses import replace
from functools import cache

import numpy as np

from tests.cascades import bull_nodes, loose_crop, random_stage, scene, windows_of
from whet.corrections.box_windows import NEAR
from whet.corrections.reference import GUARD_POSITIVE, POSITIVE, Reference
from whet.detector.base import DetectorBase, Provenance, Reporting
from whet.detector.detector import Detector
from whet.images.boxes import box_iou
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_model import CascadeModel, ExampleCounts, learning_sizes
from whet.models.gslda.fitting import GreedyLDA, StageGoal, train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.pools import BlockPatternPool

WINDOW = (10, 8)
PROVENANCE = Provenance("drawn by the tests", "CC0-1.0", "pytest", {"detection_rate": 0.9}, {"seed": 7})


def patches(n, rng):
    """Noise; every second one, the object, has a bright bar and a dark corner, each in most of them."""
    X = rng.integers(40, 200, (n, *WINDOW), dtype=np.uint8)
    y = np.arange(n) % 2 == 0
    bar, corner = y & (rng.random(n) < 0.8), y & (rng.random(n) < 0.7)
    X[bar, :, 3:5] = np.minimum(X[bar, :, 3:5] + 35, 255)
    X[corner, :3, :3] -= 30
    return X, y


def bull_frames(folder, n):
    """So many images of a scene that moves."""
    from PIL import Image

    folder.mkdir()
    for number in range(n):
        Image.fromarray(np.roll(bull_scene(), number, axis=1)).save(folder / f"{number}.png")
    return folder


def bull_file(folder):
    """The detector that finds bulls, saved."""
    bull_finder().save(folder / "bull.whet")
    return folder / "bull.whet"


@cache
def base(sizes=(5, 8, 6), kinds=("haar", "haar", "lbp"), criterion="fda", seed=7, soft=False):
    """Stages that learn, each on the negatives that pass those before; cached, as a base never changes."""
    rng = np.random.default_rng(seed)
    X, y = patches(1200, rng)
    nodes = []
    for size, kind in zip(sizes, kinds, strict=True):
        pool = (HaarPool if kind == "haar" else BlockPatternPool).from_window(WINDOW)
        few = pool.take(np.sort(rng.choice(len(pool), min(200, len(pool)), replace=False)))
        goal, learner = StageGoal(0.9, 0.001), GreedyLDA(criterion=criterion)
        nodes.append(train_stage(few, X, y, size, learner=learner, goal=goal, validation=(X, y), soft=soft))
        keep = y | Cascade(WINDOW, tuple(node.run() for node in nodes)).accepts(X)
        X, y = X[keep], y[keep]
    return DetectorBase(CascadeModel(WINDOW, tuple(nodes)), PROVENANCE)


def detector(**options):
    return Detector.from_base(base(**options))


def to_bytes(detector):
    return detector.to_bytes()


from_bytes = Detector.from_bytes


def learn(detector, patches, labels, weights=1, threads=None):
    detector.learn_patches(patches, labels, weights, threads)


def unlearn(detector, patches, labels, weights=1, threads=None):
    detector.unlearn_patches(patches, labels, weights, threads)


def counts_in(detector, stage, is_positive, statistics):
    """Samples of one class in one stage of a detector."""
    return counts_of(learning_sizes(detector.base.model.stages), stage, is_positive, statistics)


def counts_of(sizes, stage, is_positive, statistics):
    """Samples of one class in one of the stages with these numbers of weak learners."""
    stages = list(ExampleCounts.empty(sizes).stages)
    positive, negative = stages[stage]
    stages[stage] = (positive + statistics, negative) if is_positive else (positive, negative + statistics)
    return ExampleCounts(tuple(stages))


def mixed_detector():
    """Two stages with fixed weights, one of them soft, around one that learns."""
    rng = np.random.default_rng(3)
    hard, soft = random_stage("haar", WINDOW, 4, rng), random_stage("lbp", WINDOW, 5, rng, soft=True)
    return Detector.from_base(DetectorBase(CascadeModel(WINDOW, (hard, base().model.stages[0], soft), 12.5)))


@cache
def bull_base():
    nodes = bull_nodes(np.random.default_rng(5), StageGoal(0.98, 1e-6))
    return DetectorBase(CascadeModel((12, 12), tuple(nodes)), PROVENANCE)


def bull_finder(offset=None):
    """A detector of the bull; it makes some false positives."""
    return Detector.from_base(bull_base(), reporting=None if offset is None else Reporting(offset))


@cache
def judged_base():
    """The base of the bull finder with a reference set: loose crops of bulls, and hard places of a scene."""
    rng, base = np.random.default_rng(9), bull_base()
    objects = np.array([loose_crop(rng) for _ in range(120)])
    windows = np.concatenate([windows_of(scene((240, 240), [], rng), base.window)[0] for _ in range(3)])
    responses, has_contrast = base.model.cascade.respond(windows)
    near = np.flatnonzero(has_contrast & (base.model.votes.closeness(responses) > -NEAR))
    responses, _ = base.model.cascade.respond(np.concatenate([objects, windows[near[:80]]]))
    part = np.concatenate([np.tile([GUARD_POSITIVE, POSITIVE], 60), np.arange(len(responses) - 120) % 2 * 2 + 1])
    gain = rng.uniform(1, 1.5, len(responses)).astype(np.float32)
    reference = Reference(responses, part.astype(np.uint8), gain, np.arange(len(part), dtype=np.int32), 8)
    return replace(base, reference=reference)


def judged_finder(**points):
    """A detector of the bull with a reference set, and operating points."""
    return Detector.from_base(judged_base(), reporting=Reporting(operating_points=points))


@cache
def bull_scene(seed=1):
    """An image (150, 200) with a bull at (40, 30) of side 30, and one at (120, 70) of side 50."""
    return scene((150, 200), [(40, 30, 30), (120, 70, 50)], np.random.default_rng(seed))


BULL = np.array([[40.0, 30.0, 70.0, 60.0]])


def content(detector):
    """The bytes of its file."""
    return detector.to_bytes()


def false_positive(detector, seed=1, number=2):
    """A false positive of several windows: in the drawn scenes, the third best detection."""
    return detector.detect(bull_scene(seed)).boxes[number : number + 1]


def still_there(detector, box, seed=1):
    return (box_iou(box, detector.detect(bull_scene(seed)).boxes) >= 0.5).any()
