"""`whet adopt`: make an OpenCV cascade correctable."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.inputs import (
    AnnotationOptions,
    AnnotationsOption,
    Negatives,
    Positives,
    print_problems,
    read_training_input,
    skipped,
)
from whet.cli.options import (
    Class,
    ExitCode,
    Force,
    FormatOption,
    ImageFolder,
    Json,
    Quiet,
    Seed,
    Split,
    Threads,
    model_out,
    provenance,
    usage_errors,
)
from whet.cli.output import (
    exit_if_skipped,
    nothing_changed_on_ctrl_c,
    plural,
    progress_bar,
    say,
    say_json,
    start,
    uninterrupted,
    warn,
)

if TYPE_CHECKING:
    from whet.io.annotations.annotation import Examples
    from whet.training.adopt import AdoptionRun


def adopt(
    cascade: Annotated[Path, typer.Argument(metavar="CASCADE", help="OpenCV cascade (.xml).")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output model, such as mine.whet.")],
    annotations: AnnotationsOption = None,
    positives: Positives = None,
    negatives: Negatives = None,
    format: FormatOption = None,
    images: ImageFolder = None,
    class_: Class = None,
    split: Split = None,
    seed: Seed = 0,
    force: Force = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make an OpenCV cascade correctable.

    The cascade finds the same as before. whet counts how its weak learners respond to your objects and images, and
    keeps some of the responses, so that whet learn can correct it with little effect on other images. A corrected
    cascade runs in whet; OpenCV's format has no place for corrections. Use at least 10 photographs of the object,
    better 50, with boxes like those that the cascade reports, and a hundred images without it.

    \b
    Examples:
      whet adopt frontalface.xml -a faces.json -n street/ --out mine.whet
      whet adopt smile.xml -p smiles/ -n street/ --out smile.whet
    """
    start(quiet=quiet)
    from whet.detector.storage import load
    from whet.training.adopt import adopt_from

    if cascade.suffix.lower() != ".xml":
        raise typer.BadParameter(f"got {cascade}; expected an OpenCV cascade (.xml)" + _learn_instead(cascade))
    if not (positives or annotations):
        raise typer.BadParameter("got no objects; use --annotations or --positives")
    detector = load(cascade)
    target = model_out(str(cascade), out, force=force)
    with nothing_changed_on_ctrl_c(), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        given = read_training_input(
            AnnotationOptions(format, images, class_, split), annotations, positives, negatives, None, quiet=quiet
        )
        _warn_of_shape(given.examples, detector.window)
        with usage_errors(), progress_bar("adopting", hidden=quiet) as progress:
            run = adopt_from(
                cascade,
                given.examples.images,
                provenance=provenance("adopt"),
                seed=seed,
                threads=threads,
                progress=progress,
            )
    with uninterrupted():
        run.detector.save(target)
    for warning in found:
        warn(f"Warning: {warning.message}")
    _warn_of_misses(run)
    print_problems(skipped(run.problems) if quiet else run.problems)
    if as_json:
        say_json(_results(run, target))
    elif not quiet:
        for line in _report(run):
            say(line)
        say(f"Wrote {target}")
        say(f"Next: whet learn {target} --negatives IMAGES, or whet export {target} OUT.xml")
    _exit_if_skipped(given.examples, given.is_incomplete or bool(skipped(run.problems)))


def _learn_instead(path: Path) -> str:
    from whet.detector.storage import bundled_names

    if not (path.is_file() or str(path) in bundled_names()):
        return ""
    return f". whet models need no adoption; use whet learn {path}"


def _warn_of_shape(examples: Examples, window: tuple[int, int]) -> None:
    from whet.training.adopt import shape_warning

    warning = shape_warning(examples.boxes, window) if examples.n_objects else None
    if warning is not None:
        warn(f"Warning: {warning}; see its boxes with whet detect CASCADE IMAGE --draw DIR")


def _warn_of_misses(run: AdoptionRun) -> None:
    from whet.training.progress import FEWEST_FOUND

    estimate = run.detector.estimate
    if estimate is not None and estimate.recall < FEWEST_FOUND:
        warn(
            f"Warning: the cascade accepts {estimate.recall:.0%} of the held-out objects, as boxes enclose them. "
            "Draw boxes as the cascade reports them (whet detect CASCADE IMAGE --draw DIR); measure with whet evaluate"
        )


def _results(run: AdoptionRun, out: Path) -> dict[str, Any]:
    estimate = run.detector.estimate
    return {
        "objects": run.positives.n_objects,
        "positives": len(run.positives),
        "images": len(run.images),
        "stages": len(run.detector.base.stages),
        "negatives": run.n_negatives,
        "stages_with_few_negatives": [number + 1 for number in run.short_stages],
        "on_reference_set": estimate
        and {"recall": estimate.recall, "false_positives_per_image": estimate.false_positives_per_image},
        "problems": [str(problem) for problem in run.problems],
        "model": str(out),
    }


def _report(run: AdoptionRun) -> Iterator[str]:
    yield f"Input: {run.positives}"
    yield f"Negatives: {min(run.n_negatives):,} windows or more in each stage, from {plural(len(run.images), 'image')}"
    yield f"Counted {plural(len(run.detector.base.stages), 'stage')}; weights and thresholds are unchanged"
    if run.detector.estimate is not None:
        yield f"Held-out samples: {run.detector.estimate}"


def _exit_if_skipped(examples: Examples, incomplete: bool) -> None:
    exit_if_skipped([*map(str, examples.unread)], len(examples.images) + len(examples.unread))
    if incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
