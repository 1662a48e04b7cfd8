"""Train a detector for each of several classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet._kernels.workers import workers_from
from whet.detector.classes import VIEW, MultiClassDetector, check_class_name
from whet.detector.detector import Detector
from whet.errors import CheckpointError, ConfigError
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import read_annotations
from whet.training.progress import Event
from whet.training.train import PathOrText, config_from
from whet.training.views import prepare_views, train_views

if TYPE_CHECKING:
    from distributed import Client


def train_classes(
    annotations: PathOrText,
    negatives: PathOrText | Iterable[PathOrText] = (),
    *,
    classes: Sequence[str] | None = None,
    for_opencv: bool = False,
    checkpoint: PathOrText | None = None,
    callback: Callable[[Event], None] | None = None,
    threads: int | None = None,
    client: Client | None = None,
    **settings: Any,  # noqa: ANN401 - those of `train`
) -> MultiClassDetector:
    """Train a detector for each of several classes, in one model; None: for all classes of the annotations.

    Objects of other classes are background for a class. A class whose boxes differ too much in shape gets several
    detectors (`views`), named "car@1", "car@2". All other parameters are those of `train`; `checkpoint` is a folder
    here.

    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> rows = []
    >>> for i in range(24):  # bright and dark squares on noise; use photographs in practice
    ...     scene = rng.integers(90, 160, (90, 180, 3), dtype=np.uint8)
    ...     scene[30:60, 20:50], scene[30:60, 120:150] = 250, 5
    ...     Image.fromarray(scene).save(folder / f"{i}.png")
    ...     rows += [f"{i}.png,20,30,30,30,bright", f"{i}.png,120,30,30,30,dark"]
    >>> _ = (folder / "squares.csv").write_text("\\n".join(rows))
    >>> squares = train_classes(folder / "squares.csv", trees=16, negatives_per_round=200, copies_per_object=2)
    >>> squares
    MultiClassDetector(bright, dark)
    >>> sorted(set(squares.detect(folder / "0.png").labels))
    ['bright', 'dark']
    """
    found = read_annotations(annotations, settings.get("format"), settings.get("images"))
    workers = workers_from(client, threads)
    trained: dict[str, Detector] = {}
    every: list[str | None] = [*selected_names(found, classes)] or [None]  # without boxes, an error that says so
    for name in every:
        given = {"annotations": annotations, "negatives": negatives, "class_name": name, **settings}
        prepared = prepare_views(config_from(given, for_opencv=for_opencv), workers=workers, found=found)
        numbers = range(len(trained), len(trained) + len(prepared.views))
        files = [None if checkpoint is None else class_checkpoint(Path(checkpoint), number) for number in numbers]
        done = train_views(prepared, callback or (lambda _: None), checkpoints=files, workers=workers)
        trained |= {each: one.detector for each, one in done.items()}
    return MultiClassDetector(trained)


def classes_of(
    annotations: PathOrText, format: str | None, images: PathOrText | None, classes: Sequence[str] | None
) -> list[str]:
    """The classes of a data set to train; see `selected_names`."""
    return selected_names(read_annotations(annotations, format, images), classes)


def selected_names(found: Annotations, classes: Sequence[str] | None) -> list[str]:
    """The classes to train, in the order given; None: all that have boxes. An unknown one is an `AnnotationError`."""
    if classes is None:
        return checked_names([name for name, n in found.counts.items() if n])
    names = list(dict.fromkeys(classes.split(",") if isinstance(classes, str) else classes))
    for name in names:
        found.select(name)
    return checked_names(names)


def checked_names(names: list[str]) -> list[str]:
    """The same names; raises `ConfigError` for one that a model of several classes cannot have."""
    try:
        for name in names:
            check_class_name(name)
            if VIEW.fullmatch(name):
                raise ValueError(f"got the class name {name!r}; expected one that is not read as a view of a class")
    except ValueError as error:
        raise ConfigError(f"classes={', '.join(names)}: {error}; rename it, or train it alone with --class") from error
    return names


def class_checkpoint(folder: Path, number: int) -> Path:
    """The checkpoint of one of several classes, in a folder that is made."""
    if folder.is_file():
        raise CheckpointError(f"{folder} is of a training of one class; remove it (--fresh), or choose another output")
    folder.mkdir(exist_ok=True)
    return folder / f"{number}.checkpoint"
