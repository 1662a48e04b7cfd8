"""What a detector consists of: its trained base, and what it reports."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, isnan

import numpy as np

from whet.arrays import Pixels, UInt32s
from whet.corrections.kept import Crops
from whet.corrections.reference import Estimate, HeldOutScores, Reference
from whet.images.boxes import BoxOffset
from whet.models.contract import Model
from whet.models.responses import Responses

Fact = str | int | float

MOST_POINTS = 100
MOST_COUNT = 2**53
# Settings of samples: bounds of files.
MOST_TREES, MOST_COPIES, MOST_SIDE = 25_000, 1000, 1024
LONGEST_NAME = 100
# The operating point that is used where none is named.
DEFAULT_POINT = "default"

LONGEST_CLASS = 255
# The fact of the provenance that names the class of the objects.
CLASS_FACT = "class"

# A slash, a home or a drive letter that begins a word: a directory of one machine, often with a user name.
MOST_FACTS = 1000
LONGEST_FACT = 10_000
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s='"(,])(?:/\w|~[\w./\\]|[A-Za-z]:[\\/]|\\\\\w)""")


@dataclass(frozen=True)
class Provenance:
    """What a detector was trained on, under which licence, by which command, and to which goals.

    `facts` are further numbers and text (class of the objects, seeds, versions). Nothing here changes what a
    detector finds.

    >>> Provenance(data="faces of our own", licence="CC0-1.0", goals={"detection_rate": 0.99}).licence
    'CC0-1.0'
    >>> Provenance(command="whet train /home/ada/faces")
    Traceback (most recent call last):
    ValueError: provenance names a path of one machine: 'whet train /home/ada/faces'; write it relative, or leave it out
    """

    data: str = ""
    licence: str = ""
    command: str = ""
    goals: Mapping[str, Fact] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def class_name(self) -> str | None:
        """The class of the objects, as the annotations call it; None if it is not known.

        >>> Provenance().with_class("van").class_name
        'van'
        """
        name = self.facts.get(CLASS_FACT)
        return name if isinstance(name, str) and 0 < len(name) <= LONGEST_CLASS and name.isprintable() else None

    def with_class(self, name: str) -> Provenance:
        """The same with the name of the class; without it where the name looks like a path, which no file holds."""
        if not name or ABSOLUTE_PATH.search(name):
            return self
        return replace(self, facts={CLASS_FACT: name} | dict(self.facts))

    def __post_init__(self) -> None:
        n = len(self.goals) + len(self.facts)
        if n > MOST_FACTS:
            raise ValueError(f"got {n:,} goals and facts; expected at most {MOST_FACTS:,}")
        texts: list[object] = [self.data, self.licence, self.command]
        for table in (self.goals, self.facts):
            texts += [*table, *(fact for fact in table.values() if not _is_number(fact))]
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"got {text!r} in the provenance; expected text or finite numbers")
            if len(text) > LONGEST_FACT:
                raise ValueError(f"got {len(text):,} characters in the provenance; expected at most {LONGEST_FACT:,}")
            if ABSOLUTE_PATH.search(text):
                raise ValueError(
                    f"provenance names a path of one machine: {text!r}; write it relative, or leave it out"
                )


def _is_number(fact: object) -> bool:
    return isinstance(fact, int | float) and not isinstance(fact, bool) and abs(fact) < inf


@dataclass(frozen=True)
class RefitSettings:
    """What a model is made again by, beside its samples: the settings of its training, as far as they matter.

    `n_images` are the images of the held-out crops, `n_mined` those that supplied backgrounds.
    """

    seed: int
    trees: int
    n_images: int
    n_mined: int = 0
    mirror: bool | str = "safe"
    margin: float | None = None
    window: tuple[int, int] | None = None
    copies: int | None = None

    def __post_init__(self) -> None:
        counts = self.seed, self.n_images, self.n_mined, self.trees - 1, (self.copies or 1) - 1
        sides, margin = self.window or (1, 1), self.margin or 0.0
        sound = min(counts) >= 0 and max(counts) <= MOST_COUNT and self.mirror in (True, False, "safe")
        sound = sound and 1 <= self.trees <= MOST_TREES and (self.copies or 1) <= MOST_COPIES and 0 <= margin <= 1
        if not (sound and min(sides) >= 1 and max(sides) <= MOST_SIDE):
            raise ValueError(f"got settings of samples that no training has: {self}")


@dataclass(frozen=True, eq=False)
class DetectorBase:
    """A trained model, and what came with it; it never changes.

    `mean_positive` (height, width) is the average object, for display; like the provenance it is no part of the id.
    `reference` are responses to held-out samples: they limit and rate corrections. `training_images` (n,) are sorted
    short hashes of the image files of the training (`whet.io.files.short_hashes`), or None if they are not known; no
    part of the id either. `crops` are samples to make a model from again, with those of what is learned, and `settings`
    those of that fitting; None: no samples were kept.
    """

    model: Model
    provenance: Provenance = field(default_factory=Provenance)
    mean_positive: Pixels | None = None
    reference: Reference | None = None
    training_images: UInt32s | None = None
    crops: Crops | None = None
    settings: RefitSettings | None = None

    def __post_init__(self) -> None:
        if self.model.learned(None) is not self.model:  # its answers are not those that the id stands for
            raise ValueError(
                "got a model that has learned examples; expected one as it was trained: use detector.base.model, and "
                "pass the counts of examples to Detector.from_base"
            )
        self.model.votes.check()
        mean, images, n_weak = self.mean_positive, self.training_images, self.model.votes.n_weak
        if images is not None and (images.dtype != np.uint32 or images.ndim != 1 or (images[1:] <= images[:-1]).any()):
            raise ValueError(
                f"got training images of {images.dtype} {images.shape}; expected rising uint32 hashes (n,)"
            )
        if mean is not None and (mean.shape != tuple(self.window) or mean.dtype != np.uint8):
            raise ValueError(f"got a mean positive of {mean.dtype} {mean.shape}; expected uint8 {self.window}")
        own = n_weak if self.reference is None else self.reference.responses.n_weak
        if own != n_weak:
            raise ValueError(f"got a reference set of {own} weak learners; expected {n_weak}")

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the model's windows."""
        return self.model.window

    @cached_property
    def base_id(self) -> str:
        """Hash of all that decides what the model answers and how it learns; provenance does not.

        Detectors with the same id have the same responses, so that what they learned can be added.
        """
        table, arrays, _ = self.model.saved()
        digest = hashlib.sha256(json.dumps([self.model.family, *map(int, self.window), table], sort_keys=True).encode())
        for name in sorted(arrays):
            digest.update(f"{name}{arrays[name].dtype.str}{arrays[name].shape}".encode())
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()

    def check_can_learn(self, *, examples: bool = False) -> None:
        """Raise `CannotLearnError` if the model cannot be corrected; with `examples`, if it cannot count them."""
        if examples or not self.model.votes.has_units:
            n = np.empty(0, np.int64)
            self.model.count(Responses.empty(self.model.votes.n_weak), n.astype(np.bool_), n)


@dataclass(frozen=True)
class Reporting:
    """What a detector reports: which box for a window, and named operating points, the scores to exceed.

    Neither decides what the base answers to a patch, so neither is part of the base's id. An operating point belongs
    to the base as it was evaluated, with that scale factor, step and grouping, and follows what is learned later; one
    that is `fixed` was set after learning, and stays. Objects smaller than `min_size` (their longer side) are looked
    for on demand only; None stands for the size of the window.

    >>> Reporting(operating_points={"careful": 4.5}).min_score("bold")
    Traceback (most recent call last):
    ValueError: unknown operating point 'bold'; use a score, or one of: 'careful'
    """

    box_offset: BoxOffset = field(default_factory=BoxOffset)
    operating_points: Mapping[str, float] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    min_size: float | None = None

    def __post_init__(self) -> None:
        self.box_offset.check()
        if self.min_size is not None and not (isfinite(self.min_size) and self.min_size > 0):
            raise ValueError(f"got min_size={self.min_size}; expected a number of pixels above 0")
        if not self.fixed <= set(self.operating_points):
            raise ValueError(f"got fixed operating points {sorted(self.fixed)}; expected names of operating points")
        if len(self.operating_points) > MOST_POINTS:
            raise ValueError(f"got {len(self.operating_points)} operating points; expected at most {MOST_POINTS}")
        for name, threshold in self.operating_points.items():
            if not _is_name(name):
                raise ValueError(
                    f"got an operating point named {str(name)[:LONGEST_NAME]!r}; expected text of 1 to {LONGEST_NAME} "
                    "characters that can be printed, none of them a space at the ends"
                )
            if not isfinite(threshold):
                raise ValueError(f"operating point {name!r} is {threshold}; expected a finite score")

    def min_score(self, wanted: float | str | None) -> float:
        """The score to exceed: a number, that of an operating point, or without either the default point's.

        Where there is no default point, every detection stands: -inf.
        """
        if wanted is None:
            return self.operating_points.get(DEFAULT_POINT, -inf)
        if not isinstance(wanted, str):
            if isnan(wanted):
                raise ValueError("got min_score=nan; expected a score, the name of an operating point, or None")
            return wanted
        if wanted not in self.operating_points:
            known = ", ".join(map(repr, sorted(self.operating_points)))
            choice = f"use a score, or one of: {known}" if known else "this detector has none, use a score"
            raise ValueError(f"unknown operating point {wanted!r}; {choice}")
        return self.operating_points[wanted]

    def with_point(self, name: str, threshold: float | None, *, follows: bool = True) -> Reporting:
        """The same with one more operating point, or with another score for it; None takes it away."""
        others = {other: score for other, score in self.operating_points.items() if other != name}
        fixed = self.fixed - {name}
        if threshold is None:
            return replace(self, operating_points=others, fixed=fixed)
        points = others | {name: float(threshold)}
        return replace(self, operating_points=points, fixed=fixed if follows else fixed | {name})

    def followed(self, before: HeldOutScores, after: HeldOutScores) -> Reporting:
        """The same with the operating points as they are after a change, but for those that are fixed."""
        points = self.operating_points.items()
        moved = {name: score if name in self.fixed else after.followed(before, score) for name, score in points}
        return replace(self, operating_points=moved)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_NAME


# Estimates on the reference set vary more: the fall of recall, and the rise of false positives, that are tolerated.
ESTIMATED_RECALL = 0.01
ESTIMATED_RISE = (0.10, 0.02)


def estimated_setbacks(before: Estimate | None, after: Estimate | None) -> list[str]:
    """What is worse by the reference set than before; nothing without one.

    >>> estimated_setbacks(Estimate(0.98, 0.1), Estimate(0.96, 0.1))
    ['recall falls from 98.0 % to 96.0 %']
    >>> estimated_setbacks(Estimate(0.98, 0.1), Estimate(0.975, 0.11))
    []
    """
    if before is None or after is None:
        return []
    share, least = ESTIMATED_RISE
    rise = after.false_positives_per_image - before.false_positives_per_image
    return setbacks(
        before.recall - after.recall > ESTIMATED_RECALL,
        rise > share * before.false_positives_per_image and rise >= least,
        (before.recall, after.recall),
        (before.false_positives_per_image, after.false_positives_per_image),
    )


def setbacks(
    loses_objects: bool, is_wrong_more_often: bool, recall: tuple[float, float], rate: tuple[float, float]
) -> list[str]:
    """In words, what became worse: recall, false positives per image, or both; each as before and after."""
    texts = (
        f"recall falls from {100 * recall[0]:.1f} % to {100 * recall[1]:.1f} %",
        f"false positives per image rise from {rate[0]:.3g} to {rate[1]:.3g}",
    )
    return [text for text, is_worse in zip(texts, (loses_objects, is_wrong_more_often), strict=True) if is_worse]
