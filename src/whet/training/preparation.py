"""From a recipe to what a cascade is trained on: read, chosen, cut and counted, before any training begins."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from whet._kernels.threads import available_threads
from whet.errors import TrainingDataError
from whet.features.haar import HaarPool
from whet.features.integral import FeatureFamily
from whet.features.lbp import BlockPatternPool
from whet.io.annotations.annotation import Annotations, Problem, ProblemKind
from whet.io.annotations.formats import read_annotations
from whet.io.images import find_images
from whet.training.data import usable_rows
from whet.training.negatives import Forbidden, backgrounds_of, image_faults
from whet.training.positives import Positives, WindowChoice, cut_positives, window_of
from whet.training.progress import duration
from whet.training.recipe import Recipe
from whet.training.ridge import RidgeChoice, choose_ridge

# Core seconds, measured on a server of 2024: for a feature on a sample, and for a stage on a megapixel of images.
A_RESPONSE = 6e-9
A_MEGAPIXEL = 0.15
TYPICAL_MEGAPIXELS = 0.3
# Of a box's size, on each side: what is around an object helps to tell it.
MARGIN = 0.1
# The part of a set that is trained on, where it has one of that name and no other was asked for.
TRAIN = "train"
# With more, the data outweigh any ridge.
FEW_OBJECTS = 500


@dataclass(frozen=True, eq=False)
class Preparation:
    """Annotations of one class, the window, positives, images to mine with their forbidden boxes, and features."""

    recipe: Recipe
    annotations: Annotations
    choice: WindowChoice
    positives: Positives
    images: tuple[Path, ...]
    forbidden: Forbidden
    families: tuple[FeatureFamily, ...]
    ridge: RidgeChoice | None = None
    faults: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be used: of annotations, of boxes, and of images to mine."""
        return (*self.annotations.problems, *self.positives.problems, *self.faults)

    @property
    def n_features(self) -> int:
        """Features of all families."""
        return sum(map(len, self.families))

    @property
    def memory(self) -> int:
        """Bytes that the largest stage takes: a bit for each response, and the integral images."""
        height, width = self.choice.window
        samples = len(self.positives) + self.recipe.n_negatives
        return max(map(len, self.families)) * samples // 8 + 2 * 4 * (height + 1) * (width + 1) * samples

    def seconds(self, threads: int | None = None) -> float:
        """A rough estimate of the time that training takes: within a factor of two or three."""
        samples = len(self.positives) + self.recipe.n_negatives
        stage = A_RESPONSE * self.n_features / len(self.families) * samples
        mining = A_MEGAPIXEL * TYPICAL_MEGAPIXELS * len(self.images)
        return self.recipe.stages * (stage + mining) / (threads or available_threads())

    def describe(self, threads: int | None = None) -> str:
        """The plan, in lines for people."""
        recipe, objects = self.recipe, self.positives
        name = self.annotations.classes[0] if self.annotations.classes else "object"
        return "\n".join(
            (
                f"object     {name}: {self.annotations.summary()}",
                f"window     {self.choice}",
                f"positives  {objects}",
                f"negatives  {len(self.images):,} images, up to {recipe.n_negatives:,} windows a stage"
                + (f"; {len(self.forbidden):,} show the object and are mined around it" if self.forbidden else ""),
                f"features   {self.n_features:,} ({recipe.features}); up to {recipe.stages} stages of "
                f"{recipe.learners} weak learners",
                *([] if self.ridge is None else [f"ridge      {self.ridge}"]),
                f"memory     {self.memory / 1e6:,.0f} MB",
                f"time       about {duration(self.seconds(threads))}, within a factor of two or three",
            )
        )


def prepare(
    recipe: Recipe, progress: Callable[[str, float], None] = lambda *_: None, threads: int | None = None
) -> Preparation:
    """Read, choose, cut and count as a recipe says; `progress` hears what is being done and the share of it."""
    found = read_annotations(
        recipe.annotations, recipe.format, recipe.images, lambda share: progress("reading annotations", share)
    )
    known = {image.path.resolve() for image in found.images}  # of all parts of the set: what is to be judged by too
    split = recipe.split or (TRAIN if TRAIN in found.splits else None)
    found = found if split is None else found.select_split(split)
    annotations = found.select(recipe.class_name)
    choice = _chosen(annotations, recipe)
    positives = cut_positives(
        annotations,
        choice,
        copies=recipe.copies,
        jitter=recipe.jitter,
        mirror=recipe.mirror,
        seed=recipe.seed,
        threads=threads,
        progress=lambda share: progress("cutting positives", share),
    )
    _check_enough(positives, choice, recipe)
    forbidden = backgrounds_of(annotations) if recipe.backgrounds else {}
    apart = find_images(recipe.negatives) if recipe.negatives else []
    mined = list(dict.fromkeys([*forbidden, *(path for path in apart if path.resolve() not in known)]))
    faults = image_faults(mined, choice.window)
    images = [path for path in mined if path not in faults]
    if not images:
        raise TrainingDataError(
            "there are no images to take negatives from: give some without the object (negatives), better hundreds; "
            "the annotated images show it all over"
        )
    families = families_for(choice.window, recipe)
    ridge = None
    if recipe.ridge is None and positives.n_objects < FEW_OBJECTS:
        ridge = choose_ridge(
            families[0],
            positives.patches,
            positives.groups,
            images,
            forbidden=forbidden,
            min_sigma=recipe.min_sigma,
            seed=recipe.seed,
            threads=threads,
            progress=lambda share: progress("choosing the ridge", share),
        )
    told = tuple(Problem(ProblemKind.UNREADABLE_IMAGE, "", None, fault) for fault in faults.values())
    return Preparation(recipe, annotations, choice, positives, tuple(images), forbidden, families, ridge, told)


def _check_enough(positives: Positives, choice: WindowChoice, recipe: Recipe) -> None:
    """Raise what the training would raise, before there is a plan to be shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training says the same
        usable_rows(positives.patches, choice.window, recipe.min_sigma, positives.groups)


def _chosen(annotations: Annotations, recipe: Recipe) -> WindowChoice:
    margin = recipe.margin
    if margin is None:
        margin = 0.0 if annotations.format == "crops" else MARGIN
    choice = window_of(annotations.boxes, margin=margin)
    if recipe.window is None:
        return choice
    width, height = recipe.window
    return replace(choice, height=height, width=width)


def families_for(window: tuple[int, int], recipe: Recipe) -> tuple[FeatureFamily, ...]:
    """The pools of features, each drawn down to the most that the recipe allows; the seed fixes the draw.

    >>> [len(pool) for pool in families_for((24, 24), Recipe("cars.csv", most_features=5000))]
    [5000, 5000]
    """
    kinds: Sequence[type[HaarPool] | type[BlockPatternPool]] = {
        "both": (HaarPool, BlockPatternPool),
        "haar": (HaarPool,),
        "lbp": (BlockPatternPool,),
    }[recipe.features]
    rng = np.random.default_rng([recipe.seed, 3])
    pools: list[FeatureFamily] = []
    for kind in kinds:
        pool = kind.from_window(window)
        if len(pool) > recipe.most_features:
            pool = pool.take(np.sort(rng.choice(len(pool), recipe.most_features, replace=False)))
        pools.append(pool)
    return tuple(pools)
