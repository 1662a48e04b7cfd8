"""Training settings of a user."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.errors import RecipeError
from whet.io.files import write_atomically
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.training.config import Plan
from whet.training.positives import Jitter
from whet.training.stage import GreedyLDA, NodeGoal

Features = Literal["both", "haar", "lbp"]
Mirror = bool | Literal["safe"]

FEATURES: tuple[Features, ...] = ("both", "haar", "lbp")


@dataclass(frozen=True)
class Recipe:
    """Annotations, images without the object, and how a detector is trained on them.

    Paths are as the user gave them. `negatives` are images without the object; with `backgrounds`, the parts of the
    annotated images outside of every box serve as well. `window` is (width, height); without one it is chosen from
    the boxes, with a `margin` of their size around (0.1; 0 for crops, which have nothing around). `mirror`, `copies`
    and the jitter (`shift`, `scale`, `rotation`) stretch few positives, see
    `whet.training.positives.cut_positives`. `most_features` bounds each family's pool, from which so many are drawn.
    Without a `ridge`, one is chosen from the data where there are few objects. The rest are goals and sizes of
    `whet.training.config.Plan`.

    >>> Recipe("cars.csv", stages=8).plan.n_stages
    8
    >>> Recipe("cars.csv", features="colour")
    Traceback (most recent call last):
    ValueError: features='colour': expected one of both, haar, lbp
    """

    annotations: str
    format: str | None = None
    images: str | None = None
    class_name: str | None = None
    split: str | None = None
    negatives: tuple[str, ...] = ()
    backgrounds: bool = True
    window: tuple[int, int] | None = None
    margin: float | None = None
    mirror: Mirror = "safe"
    copies: int | None = None
    shift: float = Jitter.shift
    scale: float = Jitter.scale
    rotation: float = Jitter.rotation
    features: Features = "both"
    most_features: int = 10_000
    stages: int = 12
    learners: int = 100
    n_negatives: int = 3000
    detection_rate: float = 0.98
    stage_false_positive_rate: float = 0.4
    false_positive_rate: float = 1e-6
    validation: float = 0.25
    ridge: float | None = None
    soft: bool = True
    drop_rejected: bool = True
    min_sigma: float = OPENCV_MIN_SIGMA / 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.features not in FEATURES:
            raise ValueError(f"features={self.features!r}: expected one of {', '.join(FEATURES)}")
        if self.mirror not in (True, False, "safe"):
            raise ValueError(f"mirror={self.mirror!r}: expected true, false or 'safe'")
        if self.window is not None and not _is_window(self.window):
            raise ValueError(f"window={self.window}: expected a width and a height, whole numbers of at least 4 pixels")
        for name in ("most_features", "copies"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: expected at least 1")
        if self.margin is not None and not 0 <= self.margin <= 1:
            raise ValueError(f"margin={self.margin}: expected a share of the box's size from 0 to 1")
        if self.ridge is not None and not 0 <= self.ridge < inf:
            raise ValueError(f"ridge={self.ridge}: expected a number from 0 on")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: expected 0 or more")
        _ = self.jitter, self.plan  # which check the rest

    @property
    def jitter(self) -> Jitter:
        """How copies of a positive differ from it."""
        return Jitter(self.shift, self.scale, self.rotation)

    @property
    def plan(self) -> Plan:
        """The plan of the cascade."""
        return Plan(
            NodeGoal(self.detection_rate, self.stage_false_positive_rate),
            n_stages=self.stages,
            n_weak=self.learners,
            n_negatives=self.n_negatives,
            validation=self.validation,
            false_positive_rate=self.false_positive_rate,
            soft=self.soft,
            drop_rejected=self.drop_rejected,
            learner=GreedyLDA(ridge=DEFAULT_RIDGE if self.ridge is None else self.ridge),
            seed=self.seed,
            min_sigma=self.min_sigma,
        )


def _is_window(window: tuple[int, ...]) -> bool:
    return len(window) == 2 and all(isinstance(side, int) and side >= 4 for side in window)


HEADING = "# How a detector was trained; `whet train --config` repeats it. Paths are relative to this file.\n"
PATHS = ("annotations", "images", "negatives")
# `class` is a word of Python's own.
NAMES = {"class_name": "class"}


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe; settings that are not given are left out. Paths become relative to the file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cars.toml"
    >>> write_recipe(Recipe("cars.csv", class_name="car", seed=3), file)
    >>> read_recipe(file).class_name
    'car'
    """
    table = asdict(recipe)
    for name in PATHS:
        table[name] = _mapped(table[name], lambda one: os.path.relpath(one, path.parent or "."))
    lines = (
        f"{NAMES.get(name, name)} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in table.items()
        if value is not None
    )
    write_atomically(path, (HEADING + "".join(lines)).encode())


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; raises `RecipeError` that says what is wrong, and where."""
    table = read_settings(path)
    if "annotations" not in table:
        raise RecipeError(f"{path} does not say `annotations`: the file or folder with the boxes")
    return recipe_of(table, str(path))


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a TOML file by the names of `Recipe`; paths are resolved from the file's folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError(f"there is no file {path}; every training writes one beside its detector") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not TOML: {error}") from error
    names = {NAMES.get(field.name, field.name): field.name for field in fields(Recipe)}
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise RecipeError(f"{path}: there is no setting {unknown[0]!r}; there are: {', '.join(sorted(names))}")
    settings = {names[name]: _checked(names[name], value, path) for name, value in table.items()}
    for name in PATHS:
        if name in settings:
            settings[name] = _mapped(settings[name], lambda one: os.path.join(path.parent, one))
    return settings


def recipe_of(settings: Mapping[str, Any], source: str = "the settings") -> Recipe:
    """A recipe of these settings; raises `RecipeError` where a value cannot be."""
    try:
        return Recipe(**settings)
    except (ValueError, TypeError) as error:
        raise RecipeError(f"{source}: {error}") from error


def _mapped(value: Any, change: Any) -> Any:  # noqa: ANN401 - a path, several, or none
    if value is None or isinstance(value, str):
        return None if value is None else change(value)
    return tuple(map(change, value))


def _checked(name: str, value: Any, path: Path) -> Any:  # noqa: ANN401 - of the type that the field has
    hint = get_type_hints(Recipe)[name]
    takes_several = any(get_origin(part) is tuple for part in (hint, *get_args(hint)))
    wanted = [_plain(part) for part in (get_args(hint) or (hint,)) if part is not NoneType]
    items = value if isinstance(value, list) and takes_several else [value]
    if float in wanted:
        items = [float(item) if type(item) is int else item for item in items]
    if not all(type(item) in wanted for item in items):
        words = " or ".join(sorted({part.__name__ for part in wanted if part is not type(Ellipsis)}))
        raise RecipeError(f"{path}: {NAMES.get(name, name)} is {value!r}; expected {words}")
    return tuple(items) if takes_several else items[0]


def _plain(hint: Any) -> type:  # noqa: ANN401 - any hint of a field
    """The type of one value: of the items of a tuple, of the words of a literal."""
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    first = parts[0] if parts else hint
    return first if isinstance(first, type) else type(first)
