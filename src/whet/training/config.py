"""Training settings: one typed object for Python, the command line, TOML files and checkpoints."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import numpy as np
import tomli_w
from msgspec import Meta

from whet._kernels.threads import DEFAULT_MAX_MEMORY
from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.detector.model_header import MOST_WEAK
from whet.errors import ConfigError
from whet.features.families import MOST_CONDITIONS, TRAINABLE
from whet.features.weak_learners import LEAVES
from whet.io.files import is_url, write_atomically
from whet.training.positives import Jitter

MOST_TREES = MOST_CONDITIONS // LEAVES
Mirror = bool | Literal["safe"]

# Trees on channels, instead of a cascade.
CHANNELS = "channels"
# As many views of a class as the shapes of its boxes need.
AUTO: Literal["auto"] = "auto"
MOST_VIEWS = 3
Views = Literal["auto"] | Annotated[int, Meta(ge=1, le=MOST_VIEWS)]
_NAME = f"({'|'.join(TRAINABLE)})"
FamilyNames = Annotated[
    str,
    Meta(
        pattern=f"^({CHANNELS}|{_NAME}(,{_NAME})*)$",
        description=f"{CHANNELS}, or feature families, one or more of {', '.join(TRAINABLE)}",
    ),
]
Count = Annotated[int, Meta(ge=1, description="a whole number of at least 1")]
Share = Annotated[float, Meta(gt=0, lt=1, description="a number between 0 and 1")]
Side = Annotated[int, Meta(ge=4)]
StageSize = Annotated[int, Meta(ge=1, le=MOST_WEAK)]
Window = Annotated[tuple[Side, Side], Meta(description="width and height, two whole numbers of at least 4 pixels")]
StageSizes = Annotated[
    StageSize | Annotated[tuple[StageSize, ...], Meta(min_length=1)],
    Meta(description=f"a whole number from 1 to {MOST_WEAK}, or one for each stage"),
]


@dataclass(frozen=True)
class TrainingConfig:
    """All settings of a training. Wrong values raise `ConfigError`.

    Data: `annotations` is a file or folder with boxes, `format` its format (None: detect automatically), `images` the
    folder of the annotated images, `class_name` the class to train (`class` in TOML files), `split` the part of the
    data set (None: "train" if there is one). `negatives` are images without the object, or folders of them. With
    `backgrounds`, the annotated images also supply negatives, outside all boxes.

    Views: boxes of very different shapes do not fit one window. `views` is the number of detectors of a class, each for
    boxes of one shape. "auto" makes several where one window cannot find 5 % of the boxes, if their shapes are apart
    and each view has at least 40. `whet train` and `whet.train_classes` train them; `whet.train` makes one detector.

    Positives: `window` is (width, height) in pixels (None: choose from the boxes). `margin` is the context on each
    side, as a share of the box size (None: 0.2 of the square root of its area with channels, 0.1 of each side in a
    cascade, 0 for crops). `mirror` adds mirror images; "safe" adds them if
    they resemble the originals. `copies_per_object` patches are cut from each object (None: as many as give about
    1,000 patches, at most 10), at random shifted by up to `jitter_shift` windows, scaled by up to `jitter_scale` and
    rotated by up to `jitter_rotation` degrees.

    Features: `features` are "channels" (colour and gradients), or families of grey features for a cascade, by names
    such as "haar" or "haar,lbp", or a list of them: stages take turns between them.

    Channels: the detector has `trees` trees, which are grown in four rounds, from the beginning in each. A round adds
    up to `negatives_per_round` windows to the negatives. The settings of a cascade do not apply.

    Cascade: `max_features` is the number of features per family. Training adds up to `max_stages` stages until the
    false-positive rate of the whole cascade is at most `target_false_positive_rate`. A stage trains on
    `negatives_per_stage` windows and adds weak learners until it has `min_detection_rate` and
    `max_false_positive_rate` on validation samples, or `max_weak_learners` (a number, or one per stage; the last holds
    for all further stages). `validation_share` of the positives and images is held out. `ridge` regularises the
    discriminant (None: choose from the data if there are few objects). `early_exits` adds rejection thresholds inside
    each stage. `drop_rejected_positives` trains a stage only on positives that the stages before it accept. Windows
    with a standard deviation up to `min_sigma` are skipped. `max_memory` is in bytes.

    Training from patches (`whet.training.cascade.train_cascade`) uses only the settings in `CASCADE_SETTINGS`.

    >>> TrainingConfig("cars.csv", max_stages=8).max_stages
    8
    >>> TrainingConfig("cars.csv", features="colour")
    Traceback (most recent call last):
    whet.errors.ConfigError: features='colour': expected channels, or feature families, one or more of haar, lbp
    """

    annotations: str | None = None
    negatives: tuple[str, ...] = ()
    _: KW_ONLY
    format: str | None = None
    images: str | None = None
    class_name: str | None = None
    split: str | None = None
    backgrounds: bool = True
    views: Annotated[Views, Meta(description=f"'auto', or a whole number from 1 to {MOST_VIEWS}")] = AUTO
    window: Window | None = None
    margin: Annotated[float, Meta(ge=0, le=1, description="a share of the box size from 0 to 1")] | None = None
    mirror: Annotated[Mirror, Meta(description="true, false or 'safe'")] = "safe"
    copies_per_object: Count | None = None
    jitter_shift: Annotated[float, Meta(ge=0, le=0.5, description="a share of the window from 0 to 0.5")] = 0.04
    jitter_scale: Annotated[float, Meta(ge=0, lt=1, description="a number from 0, below 1")] = 0.09
    jitter_rotation: Annotated[float, Meta(ge=0, le=45, description="degrees from 0 to 45")] = 3.0
    features: FamilyNames = CHANNELS
    trees: Annotated[int, Meta(ge=1, le=MOST_TREES, description=f"a whole number from 1 to {MOST_TREES}")] = 1024
    negatives_per_round: Count = 5000
    max_features: Count = 10_000
    max_stages: Count = 12
    max_weak_learners: StageSizes = 100
    negatives_per_stage: Count = 3000
    min_detection_rate: Share = 0.98
    max_false_positive_rate: Share = 0.4
    target_false_positive_rate: Annotated[float, Meta(ge=0, lt=1, description="a number from 0, below 1")] = 1e-6
    validation_share: Share = 0.25
    ridge: Annotated[float, Meta(ge=0, le=1e12, description="a finite number of at least 0")] | None = None
    early_exits: bool = True
    drop_rejected_positives: bool = True
    min_sigma: Annotated[float, Meta(gt=0, le=255, description="a number above 0, such as 5")] = 5.0
    max_memory: Count = DEFAULT_MAX_MEMORY
    seed: Annotated[int, Meta(ge=0, description="a whole number of at least 0")] = 0

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            given = getattr(self, name)
            try:
                value = msgspec.convert(_plain(name, given), hint)
            except msgspec.ValidationError as error:
                text = str(error)
                expected = _description(hint) or text[0].lower() + text[1:].replace("`", "")
                raise ConfigError(
                    f"{name}={given!r}: {'' if expected.startswith('expected') else 'expected '}{expected}"
                ) from error
            object.__setattr__(self, name, value)

    @property
    def jitter(self) -> Jitter:
        """Random shift, scale and rotation of the copies of a positive."""
        return Jitter(self.jitter_shift, self.jitter_scale, self.jitter_rotation)

    def stage_size(self, stage: int) -> int:
        """Maximum number of weak learners of a stage, numbered from 0.

        >>> TrainingConfig(max_weak_learners=(10, 20)).stage_size(5)
        20
        """
        sizes = self.max_weak_learners
        return sizes if isinstance(sizes, int) else sizes[min(stage, len(sizes) - 1)]

    @property
    def held_out_per_stage(self) -> int:
        """Number of windows from held-out images that validate a stage.

        >>> TrainingConfig(negatives_per_stage=5000, validation_share=0.2).held_out_per_stage
        1000
        """
        return max(round(self.negatives_per_stage * self.validation_share), 100)


# The settings that `train_cascade` uses.
CASCADE_SETTINGS = (
    "max_stages",
    "max_weak_learners",
    "negatives_per_stage",
    "min_detection_rate",
    "max_false_positive_rate",
    "target_false_positive_rate",
    "validation_share",
    "ridge",
    "early_exits",
    "drop_rejected_positives",
    "min_sigma",
    "max_memory",
    "seed",
)
SETTINGS = tuple(each.name for each in fields(TrainingConfig))


@cache
def _hints() -> dict[str, Any]:
    hints = get_type_hints(TrainingConfig, include_extras=True)
    return {name: hints[name] for name in SETTINGS}


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 - as the user gave it
    """Paths as text, numpy scalars as numbers, one folder of negatives as a tuple of one, families as one text."""
    if name == "features":
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            value = ",".join(value)
        return ",".join(dict.fromkeys(map(str.strip, value.split(",")))) if isinstance(value, str) else value
    if name == "negatives":
        several = [value] if isinstance(value, str | os.PathLike) else value
        return [_plain("", one) for one in several] if isinstance(several, Iterable) else several
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if isinstance(value, np.generic) else value


def _description(hint: Any) -> str | None:  # noqa: ANN401 - any type hint
    """The first description in a type hint."""
    parts = [*getattr(hint, "__metadata__", ()), *get_args(hint)]
    own = [part.description for part in parts if isinstance(part, Meta) and part.description]
    inner = (_description(part) for part in parts if not isinstance(part, Meta))
    return own[0] if own else next((text for text in inner if text), None)


def opencv_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a detector that can be exported to OpenCV, from other settings.

    One family of grey features (haar, unless it is lbp), OpenCV's smallest standard deviation, and no early exits: the
    exported cascade then decides as the detector does.

    >>> opencv_settings({"annotations": "cars.csv"})["features"]
    'haar'
    >>> opencv_settings({"features": "haar,lbp"})
    Traceback (most recent call last):
    whet.errors.ConfigError: features='haar,lbp': expected haar or lbp, because an OpenCV cascade has one kind of ...
    """
    features = settings.get("features", CHANNELS)
    if features not in (CHANNELS, "haar", "lbp"):
        raise ConfigError(
            f"features={features!r}: expected haar or lbp, because an OpenCV cascade has one kind of features"
        )
    grey = "haar" if features == CHANNELS else features
    return {**settings, "features": grey, "min_sigma": OPENCV_MIN_SIGMA, "early_exits": False}


def unknown_setting(name: str, valid: Collection[str]) -> str:
    """A message for a setting that does not exist, with the closest names.

    >>> unknown_setting("stages", ["max_stages", "seed"])
    "unknown setting 'stages'; did you mean max_stages? Valid settings: max_stages, seed"
    """
    near = get_close_matches(name, valid, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"unknown setting {name!r}{hint} Valid settings: {', '.join(valid)}"


HEADING = "# Training settings; repeat with: whet train --config FILE --out MODEL. Paths are relative to this file.\n"
PATHS = ("annotations", "images", "negatives")
# `class` is a keyword of Python.
TOML_NAMES = {name: {"class_name": "class"}.get(name, name) for name in SETTINGS}


# Of a file only: the classes of a model of several, each trained with the same settings.
CLASSES = "classes"


def write_settings(config: TrainingConfig, path: Path, classes: Sequence[str] = ()) -> None:
    """Write a config as TOML, without settings that are None; `classes` of a model of several go along.

    Paths become relative to the file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cars.toml"
    >>> write_settings(TrainingConfig("cars.csv", class_name="car", seed=3), file)
    >>> TrainingConfig(**read_settings(file)).class_name
    'car'
    """
    table = asdict(config)
    for name in PATHS:
        table[name] = _mapped(table[name], lambda one: one if is_url(one) else os.path.relpath(one, path.parent))
    written = {TOML_NAMES[name]: value for name, value in table.items() if value is not None}
    text = tomli_w.dumps(written | ({CLASSES: list(classes)} if classes else {}))
    write_atomically(path, (HEADING + text).encode())


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings in a TOML file, by the field names of `TrainingConfig`; relative paths start at its folder.

    `classes`, if there, are those of a model of several. Raises `ConfigError`, with the name of the file, for an
    unknown setting or a wrong value.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"settings file does not exist: {path}; `whet train` writes one beside each model") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    names = {toml: name for name, toml in TOML_NAMES.items()}
    classes = table.pop(CLASSES, [])
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ConfigError(f"{path}: {CLASSES}={classes!r}; expected a list of class names")
    for key in table:
        if key not in names:
            raise ConfigError(f"{path}: {unknown_setting(key, names)}")
    try:
        config = TrainingConfig(**{names[key]: value for key, value in table.items()})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    settings = {names[key]: getattr(config, names[key]) for key in table}
    for name in set(PATHS) & set(settings):
        settings[name] = _mapped(settings[name], lambda one: one if is_url(one) else os.path.join(path.parent, one))
    return settings | ({CLASSES: tuple(classes)} if classes else {})


def _mapped(value: Any, change: Any) -> Any:  # noqa: ANN401 - a path, several, or none
    if value is None or isinstance(value, str):
        return None if value is None else change(value)
    return tuple(map(change, value))
