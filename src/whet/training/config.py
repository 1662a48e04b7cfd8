"""Training settings, each defined once: name, type, bounds, default and help.

The keywords of `whet.train`, the TOML file, the options of `whet train`, the fingerprint of a checkpoint and the tables
of docs/guides/train.md (`python -m scripts.settings_tables`) follow from the fields of `TrainingConfig`. Importing this
module is fast, so that `whet train --help` is.
"""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypedDict, TypeVar, get_args, get_type_hints

import msgspec
import tomli_w
from msgspec import Meta

from whet.errors import ConfigError
from whet.io.annotations import FORMAT_NAMES

T = TypeVar("T")
P = ParamSpec("P")
PathOrText = str | os.PathLike[str]

# What a setting belongs to. The last two are model families, and tables of the TOML file.
DATA, TRAINING, CHANNELS, GSLDA = "data", "training", "channels", "gslda"
TABLES = (CHANNELS, GSLDA)
# The grey features of the family `gslda`.
GREY_FEATURES = ("haar", "lbp")
# What a model file can hold: trees, and weak learners of a stage.
MOST_TREES = 25_000
MOST_WEAK = 2000
# As many shapes of a class as its boxes need.
AUTO: Literal["auto"] = "auto"
MOST_SHAPES = 3

PATH = Meta(description="a path or URL")
FORMAT = Meta(description=f"{', '.join(FORMAT_NAMES[:-1])} or {FORMAT_NAMES[-1]}")
COUNT = Meta(ge=1, description="a whole number of at least 1")
SHARE = Meta(gt=0, lt=1, description="a number between 0 and 1")
RATE = Meta(ge=0, lt=1, description="a number from 0, below 1")
TREES = Meta(ge=1, le=MOST_TREES, description=f"a whole number from 1 to {MOST_TREES}")
Side = Annotated[int, Meta(ge=4)]
StageSize = Annotated[int, Meta(ge=1, le=MOST_WEAK)]
StageSizes = Annotated[tuple[StageSize, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class About:
    """The help of a setting, what it belongs to, and what its default None means.

    An interrupted training of the families `may_change` resumes with another value.
    """

    help: str
    belongs_to: str = TRAINING
    automatic: str = ""
    may_change: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingConfig:
    """All settings of a training; `help(whet.train)` and docs/guides/train.md describe them.

    Wrong values raise `ConfigError`.

    >>> TrainingConfig("cars.csv", max_stages=8).max_stages
    8
    >>> TrainingConfig("cars.csv", features="colour")
    Traceback (most recent call last):
    whet.errors.ConfigError: features='colour': expected channels, or one or more of haar, lbp
    """

    annotations: Annotated[str | None, PATH, About("File or directory with boxes, or a directory of crops", DATA)] = (
        None
    )
    negatives: Annotated[
        tuple[str, ...],
        Meta(description="a path or URL, or a list of them"),
        About("Images without the object, or directories of them", DATA),
    ] = ()
    _: KW_ONLY
    format: Annotated[str | None, FORMAT, About("Annotation format", DATA, "detected")] = None
    images: Annotated[str | None, PATH, About("Directory of the images", DATA, "next to the annotations")] = None
    class_name: Annotated[
        str | None, About("Class to train; cat,dog makes one class of both", DATA, "the only one")
    ] = None
    split: Annotated[str | None, About("Part of the data set", DATA, "train, if there is one")] = None
    backgrounds: Annotated[bool, About("Take negatives also from the annotated images, outside all boxes", DATA)] = True
    shapes: Annotated[
        Literal["auto"] | Annotated[int, Meta(ge=1, le=MOST_SHAPES)],
        Meta(description=f"auto, or a whole number from 1 to {MOST_SHAPES}"),
        About("Shapes of the class, each with its own window; auto: several if the boxes clearly differ", DATA),
    ] = AUTO
    window: Annotated[
        tuple[Side, Side] | None,
        Meta(description="width and height, two whole numbers of at least 4"),
        About("Window in pixels", DATA, "from the boxes"),
    ] = None
    margin: Annotated[
        float | None,
        Meta(ge=0, le=1, description="a number from 0 to 1"),
        About("Context on each side, as a share of the box", DATA, "0.2; grey features 0.1; crops 0"),
    ] = None
    mirror: Annotated[
        bool | Literal["safe"],
        Meta(description="true, false or safe"),
        About("Add mirror images; safe: only if they resemble the originals", DATA),
    ] = "safe"
    copies_per_object: Annotated[
        int | None,
        COUNT,
        About("Patches of each object, shifted, scaled and rotated", DATA, "up to 12, for 1,000 in all"),
    ] = None
    features: Annotated[
        str,
        Meta(description=f"{CHANNELS}, or one or more of {', '.join(GREY_FEATURES)}"),
        About("channels (colour and gradients); haar, lbp or haar,lbp (grey values) for a cascade"),
    ] = CHANNELS
    validation_share: Annotated[float, SHARE, About("Share of the data to hold out")] = 0.25
    seed: Annotated[int, Meta(ge=0, description="a whole number of at least 0"), About("Random seed")] = 0
    samples: Annotated[
        Literal["keep", "none"],
        Meta(description="keep or none"),
        About(
            "Keep small crops of objects and backgrounds in the model of channels, so that it can learn from more",
            may_change=(CHANNELS, GSLDA),
        ),
    ] = "keep"
    max_memory: Annotated[int, COUNT, About("Memory for features, in bytes", may_change=(CHANNELS,))] = 1 << 30
    trees: Annotated[int, TREES, About("Number of trees", CHANNELS)] = 1024
    negatives_per_round: Annotated[int, COUNT, About("Negative windows that each of four rounds adds", CHANNELS)] = 5000
    max_features: Annotated[int, COUNT, About("Maximum number of features of each kind", GSLDA)] = 10_000
    max_stages: Annotated[int, COUNT, About("Maximum number of stages", GSLDA, may_change=(GSLDA,))] = 12
    max_weak_learners: Annotated[
        StageSize | StageSizes,
        Meta(description=f"a whole number from 1 to {MOST_WEAK}, or one for each stage"),
        About("Maximum number of weak learners per stage; the last of a list holds for further stages", GSLDA),
    ] = 100
    negatives_per_stage: Annotated[int, COUNT, About("Negative windows per stage", GSLDA)] = 3000
    min_detection_rate: Annotated[float, SHARE, About("Detection rate of each stage, on held-out data", GSLDA)] = 0.98
    max_false_positive_rate: Annotated[
        float, SHARE, About("False-positive rate of each stage, on held-out data", GSLDA)
    ] = 0.4
    target_false_positive_rate: Annotated[
        float,
        RATE,
        About("Stop when the whole cascade accepts at most this share of windows", GSLDA, may_change=(GSLDA,)),
    ] = 1e-6
    ridge: Annotated[
        float | None,
        Meta(ge=0, le=1e12, description="a finite number of at least 0"),
        About("Ridge of the discriminant", GSLDA, "20"),
    ] = None
    early_exits: Annotated[bool, About("Add rejection thresholds inside each stage", GSLDA)] = True
    drop_rejected_positives: Annotated[
        bool, About("Train a stage only on positives that the stages before it accept", GSLDA)
    ] = True
    min_sigma: Annotated[
        float,
        Meta(gt=0, le=255, description="a number above 0, up to 255"),
        About("Skip windows with a standard deviation up to this", GSLDA),
    ] = 5.0

    def __post_init__(self) -> None:
        for name, about in SETTINGS.items():
            given = getattr(self, name)
            try:
                value = msgspec.convert(_plain(name, given), about.hint)
                if name == "features" and not _are_features(value):
                    raise msgspec.ValidationError
            except msgspec.ValidationError as error:
                raise ConfigError(f"{name}={given!r}: expected {about.values}") from error
            object.__setattr__(self, name, value)

    def fingerprint(self, family: str) -> dict[str, str]:
        """A text for each setting that a checkpoint of a family must agree on; the data have hashes of their own.

        >>> TrainingConfig(trees=64).fingerprint("channels")
        {'features': 'channels', 'validation_share': '0.25', 'seed': '0', 'trees': '64', 'negatives_per_round': '5000'}
        """
        return {
            name: str(getattr(self, name))
            for name, about in SETTINGS.items()
            if about.belongs_to in (TRAINING, family) and family not in about.may_change
        }

    def of_family(self, family: str) -> str:
        """The settings of a family in words.

        >>> TrainingConfig(trees=64).of_family("channels")
        'trees 64, negatives_per_round 5000'
        """
        return ", ".join(f"{name} {getattr(self, name)}" for name in SETTINGS if SETTINGS[name].belongs_to == family)

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


@dataclass(frozen=True)
class Setting(About):
    """A setting with its name, its type with bounds, and its default."""

    _: KW_ONLY
    name: str
    hint: Any
    default: Any

    @property
    def toml_name(self) -> str:
        """The name in TOML files; `class` is a keyword of Python."""
        return "class" if self.name == "class_name" else self.name

    @property
    def table(self) -> str:
        """The table of a TOML file, "" at the top."""
        return self.belongs_to if self.belongs_to in TABLES else ""

    @property
    def values(self) -> str:
        """The values that it takes, in words."""
        annotated = get_args(self.hint)[0] if self.default is None else self.hint
        said = (part.description for part in annotated.__metadata__ if isinstance(part, Meta))
        return next(filter(None, said), "true or false" if annotated.__origin__ is bool else "a name")

    @property
    def default_text(self) -> str:
        """The default as in a TOML file; for None, what happens then."""
        if self.default is None or self.default == ():
            return self.automatic or "none"
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)

    def __str__(self) -> str:
        return self.help if self.default_text == "none" else f"{self.help} [default: {self.default_text}]"


def _setting(name: str, hint: Any, default: Any) -> Setting:  # noqa: ANN401 - of any type
    """A setting from a field; msgspec takes bounds of `int | None` inside of the union only."""
    (about,) = (part for part in hint.__metadata__ if isinstance(part, About))
    if default is None:
        hint = Annotated[(get_args(hint.__origin__)[0], *hint.__metadata__)] | None
    return Setting(**vars(about), name=name, hint=hint, default=default)


_HINTS = get_type_hints(TrainingConfig, include_extras=True)
SETTINGS = {field.name: _setting(field.name, _HINTS[field.name], field.default) for field in fields(TrainingConfig)}


def _are_features(text: str) -> bool:
    if text == CHANNELS or set(text.split(",")) <= set(GREY_FEATURES):
        return True
    from whet.models.contract import FAMILIES

    return text in set(FAMILIES) - {GSLDA}


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 - as the user gave it
    """Paths as text, numpy scalars as numbers, one folder of negatives as a tuple of one, features as one text."""
    if name == "features":
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            value = ",".join(value)
        return ",".join(dict.fromkeys(map(str.strip, value.split(",")))) if isinstance(value, str) else value
    if name == "negatives":
        paths = [value] if isinstance(value, str | os.PathLike) else value
        return [_plain("", path) for path in paths] if isinstance(paths, Iterable) else paths
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if getattr(value, "shape", None) == () else value


# --- Keywords of Python -----------------------------------------------------------------------------------------------


class Settings(TypedDict, total=False):
    """Types of the keywords of `train` for type checkers, which cannot read them from `TrainingConfig`; a test does."""

    format: str | None
    images: PathOrText | None
    class_name: str | None
    split: str | None
    backgrounds: bool
    shapes: Literal["auto"] | int
    window: tuple[int, int] | None
    margin: float | None
    mirror: bool | Literal["safe"]
    copies_per_object: int | None
    features: str | Sequence[str]
    validation_share: float
    seed: int
    samples: Literal["keep", "none"]
    max_memory: int
    trees: int
    negatives_per_round: int
    max_features: int
    max_stages: int
    max_weak_learners: int | tuple[int, ...]
    negatives_per_stage: int
    min_detection_rate: float
    max_false_positive_rate: float
    target_false_positive_rate: float
    ridge: float | None
    early_exits: bool
    drop_rejected_positives: bool
    min_sigma: float


def with_settings(function: Callable[P, T], *, without: Collection[str] = ()) -> Callable[P, T]:
    """Show the settings in the signature and in the docstring of a function that takes them as `**settings`."""
    signature = inspect.signature(function)
    types = get_type_hints(Settings)
    parameters = [given for given in signature.parameters.values() if given.kind is not given.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=SETTINGS[name].default, annotation=hint)
        for name, hint in types.items()
        if name not in signature.parameters and name not in without
    ]
    function.__signature__ = signature.replace(parameters=[*parameters, *keywords])  # type: ignore[attr-defined]
    rows = "\n".join(f"- `{keyword.name}`: {SETTINGS[keyword.name]}" for keyword in keywords)
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nSettings:\n\n{rows}\n"
    return function


def config_from(
    settings: Mapping[str, Any], *, for_opencv: bool = False, function: Callable[..., Any] | None = None
) -> TrainingConfig:
    """The config of settings by name; raises TypeError for one that is neither known nor of the `function`."""
    for name in settings:
        if name not in SETTINGS:
            others = {} if function is None else inspect.signature(function).parameters
            raise TypeError(unknown_setting(name, dict.fromkeys([*SETTINGS, *others])))
    return TrainingConfig(**(opencv_settings(settings) if for_opencv else settings))


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
    from whet._kernels.window_scan import OPENCV_MIN_SIGMA

    features = settings.get("features", CHANNELS)
    if features not in (CHANNELS, *GREY_FEATURES):
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


# --- TOML files -------------------------------------------------------------------------------------------------------

HEADING = "# Training settings; repeat with: whet train --config FILE --out MODEL. Paths are relative to this file.\n"
PATHS = ("annotations", "images", "negatives")
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
    from whet.io.files import write_atomically

    document: dict[str, Any] = {CLASSES: list(classes)} if classes else {}
    for name, value in asdict(config).items():
        about = SETTINGS[name]
        table = document.setdefault(about.table, {}) if about.table else document
        if value is not None:
            table[about.toml_name] = _moved(value, lambda text: os.path.relpath(text, path.parent), name)
    write_atomically(path, (HEADING + tomli_w.dumps(document)).encode())


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings in a TOML file, by the field names of `TrainingConfig`; relative paths start at its folder.

    `classes`, if there, are those of a model of several. Raises `ConfigError`, with the name of the file, for an
    unknown setting or a wrong value.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"settings file does not exist: {path}; `whet train` writes one beside each model") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    classes = document.pop(CLASSES, [])
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ConfigError(f"{path}: {CLASSES}={classes!r}; expected a list of class names")
    try:
        given = _flat(document)
        config = TrainingConfig(**given)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    settings = {
        name: _moved(getattr(config, name), lambda text: os.path.join(path.parent, text), name) for name in given
    }
    return settings | ({CLASSES: tuple(classes)} if classes else {})


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a TOML document by name; raises `ConfigError` for one that is unknown or in another table."""
    rows = [("", key, value) for key, value in document.items() if key not in TABLES]
    for table in set(TABLES) & set(document):
        if not isinstance(document[table], dict):
            raise ConfigError(f"{table}={document[table]!r}: expected a table, [{table}]")
        rows += [(table, key, value) for key, value in document[table].items()]
    settings = {}
    for table, key, value in rows:
        about = next((setting for setting in SETTINGS.values() if setting.toml_name == key), None)
        if about is None:
            valid = [setting.toml_name for setting in SETTINGS.values() if setting.table == table]
            raise ConfigError(unknown_setting(key, valid) + ("" if table else f" and the tables {', '.join(TABLES)}"))
        if about.table != table:
            where = f"under [{about.table}]" if about.table else "above the first table"
            raise ConfigError(f"got {key} {f'under [{table}]' if table else 'at the top'}; expected it {where}")
        settings[about.name] = value
    return settings


def _moved(value: Any, move: Callable[[str], str], name: str) -> Any:  # noqa: ANN401 - of any setting
    """A path or several, relative to another folder; URLs and the values of other settings are unchanged."""
    from whet.io.files import is_url

    if name not in PATHS or value is None:
        return value
    if isinstance(value, str):
        return value if is_url(value) else move(value)
    return tuple(_moved(path, move, name) for path in value)
