"""Annotated images, crops and negatives that commands read, and how problems with them are reported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from whet.cli.options import AnnotationFormat, path_or_url
from whet.cli.output import plural, print_list, progress_bar, say, warn

if TYPE_CHECKING:
    from whet.io.annotations.annotation import AnnotatedImage, Annotations, Examples, Problem
    from whet.training.learning import LearningInput, MarkedImage


Positives = Annotated[
    list[str] | None,
    typer.Option("--positives", "-p", metavar="IMAGES", help="Crops: images filled by one object. Repeatable."),
]
Negatives = Annotated[
    list[str] | None,
    typer.Option("--negatives", "-n", metavar="IMAGES", help="Images without the object. Repeatable."),
]
AnnotationsOption = Annotated[
    Path | None,
    typer.Option(
        "--annotations", "-a", metavar="PATH", parser=path_or_url, help="Annotated images: a file or a directory."
    ),
]
HeldOut = Annotated[
    Path | None,
    typer.Option(
        "--held-out",
        metavar="PATH",
        parser=path_or_url,
        help="Annotations to evaluate on, before and after; not learned.",
    ),
]

# Kinds of `whet.io.annotations.annotation.ProblemKind` that mean that something was not read: exit code 5.
SKIPPED_KINDS = ("images missing", "images unreadable", "rows skipped", "boxes dropped")


def skipped(problems: Sequence[Problem]) -> list[Problem]:
    """Problems because of which a part of the annotations was not read."""
    return [problem for problem in problems if problem.kind in SKIPPED_KINDS]


def print_problems(problems: Sequence[Problem], *, quiet: bool = False) -> None:
    """Print the first problems to standard error, one per line; with `quiet`, only those that skip something."""
    print_list("", skipped(problems) if quiet else problems)


class AnnotationOptions(NamedTuple):
    """Options by which annotations are read; `model_class` is used if there are several classes and none is chosen."""

    format: AnnotationFormat | None = None
    images: Path | None = None
    class_: str | None = None
    split: str | None = None
    model_class: str | None = None

    def read(self, path: Path, parts: Sequence[str], *, quiet: bool) -> Annotations:
        """Read one class and one part of annotations; prints the choice and the problems.

        Without --split, a data set of several parts is represented by the first of `parts` that it has. With `quiet`,
        only problems that skip something are printed.
        """
        from whet.io.annotations.formats import read_annotations

        with progress_bar("reading", hidden=quiet) as progress:
            every = read_annotations(path, self.format and self.format.value, self.images, progress)
        split = every.find_split(*parts) if self.split is None and len(every.splits) > 1 else self.split
        chosen = every if split is None else every.select_split(split)
        if any(every.splits) and not quiet:
            used = ", ".join(part for part in chosen.splits if part) or "without a name"
            which = f"the part {used}" if len(chosen.splits) == 1 else f"all parts ({used})"
            hint = "; --split chooses another" if set(every.splits) - {""} - set(chosen.splits) else ""
            say(f"Using {which} of {path} (format {every.format}){hint}", err=True)
        chosen = chosen.select(self._class_of(chosen, quiet=quiet))
        print_problems(chosen.problems, quiet=quiet)
        return chosen

    def _class_of(self, annotations: Annotations, *, quiet: bool) -> str | None:
        has_several = sum(n > 0 for n in annotations.counts.values()) > 1
        name = self.model_class
        if self.class_ is not None or name is None or not has_several or not annotations.has_class(name):
            return self.class_
        if not quiet:
            say(f"Using the class {name}, as in the training; --class chooses another", err=True)
        return name


def read_training_input(
    options: AnnotationOptions,
    annotations: Path | None,
    positives: Sequence[str] | None,
    negatives: Sequence[str] | None,
    held_out: Path | None,
    *,
    quiet: bool,
) -> tuple[Examples, tuple[AnnotatedImage, ...], bool]:
    """Find and read the annotated images, crops and negatives of a command, and print the problems.

    Returns images to learn from, held-out images to evaluate on, and whether a part of the input was skipped.
    """
    from whet.io.annotations.annotation import HELD_OUT_PARTS, Examples
    from whet.io.image_files import find_images

    annotated = None if annotations is None else options.read(annotations, ("train",), quiet=quiet)
    held = None
    if held_out is not None:
        # The part to learn from is not the one to evaluate on.
        is_same = annotations is not None and annotations.resolve() == held_out.resolve()
        held = (options._replace(split=None) if is_same else options).read(held_out, HELD_OUT_PARTS, quiet=quiet)
    examples = Examples.from_annotations(
        () if annotated is None else annotated.images,
        find_images(positives, sys.stdin) if positives else (),
        find_images(negatives, sys.stdin) if negatives else (),
    )
    held_images = () if held is None else held.images
    _warn_if_shared([image.path for image in examples.images], held_images)
    problems = [problem for part in (annotated, held) if part is not None for problem in part.problems]
    return examples, held_images, bool(skipped(problems))


def marked_boxes(wrong: Sequence[str] | None, missed: Sequence[str] | None) -> list[MarkedImage]:
    """The boxes of `--wrong` and `--missed`, together for each image; raises a usage error for what is no box."""
    import numpy as np

    from whet.errors import DataNotFoundError
    from whet.training.learning import MarkedImage

    boxes: dict[Path, list[tuple[tuple[float, ...], bool]]] = {}
    for option, texts, label in (("--wrong", wrong, False), ("--missed", missed, True)):
        for text in texts or ():
            path, box = _parsed(option, text)
            if not path.is_file():
                raise DataNotFoundError(f"no such file: {path}; expected {option} IMAGE:x,y,w,h")
            boxes.setdefault(path, []).append((box, label))
    return [
        MarkedImage(path, np.array([box for box, _ in marks]), np.array([label for _, label in marks]))
        for path, marks in boxes.items()
    ]


def _parsed(option: str, text: str) -> tuple[Path, tuple[float, float, float, float]]:
    """Image and box (x1, y1, x2, y2) of IMAGE:x,y,w,h; a path may have colons."""
    from whet.io.annotations.assembly import decimal_sum, number_in
    from whet.io.files import as_path

    name, _, numbers = text.rpartition(":")
    values = [value for value in map(number_in, numbers.split(",")) if value is not None]
    if not name or len(values) != 4 or numbers.count(",") != 3 or min(values[2:]) <= 0:
        raise typer.BadParameter(f"got {option} {text}; expected IMAGE:x,y,w,h in pixels, such as dog.png:40,30,64,64")
    x, y, width, height = values
    return as_path(name), (x, y, decimal_sum(x, width), decimal_sum(y, height))


class LearningOptions(NamedTuple):
    """Where `whet learn` takes its input from."""

    wrong: Sequence[str] | None
    missed: Sequence[str] | None
    detections: Path | None
    annotations: Path | None
    negatives: Sequence[str] | None
    positives: Sequence[str] | None
    held_out: Path | None


def read_learning_input(
    options: AnnotationOptions, given: LearningOptions, *, quiet: bool
) -> tuple[LearningInput, tuple[AnnotatedImage, ...], bool]:
    """Input of `whet learn`, held-out images, and whether a part was skipped; prints the problems."""
    import numpy as np

    from whet.io.detection_files import read_wrong
    from whet.io.image_files import find_images
    from whet.training.learning import LearningInput, MarkedImage

    _check_annotated(given.annotations, options.format)
    marked = marked_boxes(given.wrong, given.missed)
    is_incomplete = False
    if given.detections is not None:
        wrong = read_wrong(given.detections, options.images)
        print_problems(wrong.problems, quiet=quiet)
        marked += [MarkedImage(image, boxes, np.zeros(len(boxes), np.bool_)) for image, boxes in wrong.boxes.items()]
        is_incomplete = bool(skipped(wrong.problems))
    examples, held, was_skipped = read_training_input(
        options, given.annotations, None, given.negatives, given.held_out, quiet=quiet
    )
    crops = find_images(given.positives, sys.stdin) if given.positives else []
    _warn_if_shared([*crops, *(image.path for image in marked)], held)
    return LearningInput(examples, marked, crops), held, is_incomplete or was_skipped


def _check_annotated(path: Path | None, format: AnnotationFormat | None) -> None:
    """Raise `AnnotationError` for a directory of images without annotations: nobody says what they show."""
    from whet.errors import AnnotationError
    from whet.io.annotations.formats import detect_format
    from whet.io.files import is_url

    if path is not None and not is_url(path) and path.is_dir() and format is None and detect_format(path) == "crops":
        raise AnnotationError(
            f"got --annotations {path}, a directory of images without annotations; use --negatives for images without "
            "the object, --positives for crops of it, or --format crops"
        )


def _warn_if_shared(paths: Sequence[Path], held_out: Sequence[AnnotatedImage]) -> None:
    """Results on images that were also learned are too optimistic."""
    learned = {path.resolve() for path in paths}
    shared = [image.path.name for image in held_out if image.path.resolve() in learned]
    if shared:
        names = ", ".join(shared[:3]) + (", ..." if len(shared) > 3 else "")
        warn(
            f"Warning: {len(shared):,} of {plural(len(held_out), 'held-out image')} will also be learned ({names}), so "
            "the held-out results are too optimistic; remove them from one of the two sets"
        )
