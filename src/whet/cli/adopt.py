"""`whet adopt`: make an OpenCV cascade trainable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.inputs import (
    AnnotationOptions,
    AnnotationsOption,
    HeldOut,
    Negatives,
    Positives,
    print_problems,
    read_training_input,
    skipped,
)
from whet.cli.models import Force, model_out, provenance
from whet.cli.options import (
    Class,
    ExitCode,
    FormatOption,
    ImageFolder,
    Json,
    Quiet,
    Seed,
    Split,
    Threads,
    usage_errors,
)
from whet.cli.output import (
    before_and_after,
    exit_if_skipped,
    held_out_lines,
    nothing_changed_on_ctrl_c,
    plural,
    progress_bar,
    start,
    uninterrupted,
    unread_held_out,
    warn,
)

if TYPE_CHECKING:
    from whet.training.adopt import AdoptionRun
    from whet.training.examples import Examples


# With 200 objects a face cascade gained three fifths of what it gained with 1,000 (docs/opencv.md).
MIN_OBJECTS = 200


def adopt(
    cascade: Annotated[Path, typer.Argument(metavar="CASCADE", help="OpenCV cascade (.xml).")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output model, such as mine.whet.")],
    annotations: AnnotationsOption = None,
    positives: Positives = None,
    negatives: Negatives = None,
    held_out: HeldOut = None,
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
    """Make an OpenCV cascade trainable by adding a stage that learns.

    The stages of the cascade are unchanged. The new stage uses the same weak learners, selected and weighted on your
    images. Then whet learn, unlearn and merge update this stage, and whet export writes the whole cascade for OpenCV.
    Use at least 200 objects, with boxes like those that the cascade reports.

    \b
    Examples:
      whet adopt frontalface.xml -a faces.json -n street/ --out mine.whet
      whet adopt smile.xml -p smiles/ -n street/ --held-out val.json --out smile.whet
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.training.adopt import adopt_from

    if cascade.suffix.lower() != ".xml":
        raise typer.BadParameter(f"got {cascade}; expected an OpenCV cascade (.xml)" + _learn_instead(cascade))
    if not (positives or annotations):
        raise typer.BadParameter("got no objects; use --annotations or --positives")
    detector = load(cascade)
    target = model_out(str(cascade), out, force=force)
    with nothing_changed_on_ctrl_c():
        given = read_training_input(
            AnnotationOptions(format, images, class_, split), annotations, positives, negatives, held_out, quiet=quiet
        )
        _warn_of_shape(given.examples, detector.window)
        with usage_errors(), progress_bar("adopting", hidden=quiet) as progress:
            run = adopt_from(
                cascade,
                given.examples,
                held_out=given.held_out,
                provenance=provenance("adopt"),
                seed=seed,
                threads=threads,
                progress=progress,
            )
    with uninterrupted():
        run.detector.save(target)
    print_problems(skipped(run.problems) if quiet else run.problems)
    if as_json:
        typer.echo(json.dumps(_results(run, target), indent=1))
    elif not quiet:
        for line in _report(run):
            typer.echo(line)
        typer.echo(f"Wrote {target}")
        typer.echo(f"Next: whet learn {target} --negatives IMAGES, or whet export {target} OUT.xml")
    _exit_if_skipped(run, given.examples, given.is_incomplete or bool(skipped(run.problems)))


def _learn_instead(path: Path) -> str:
    from whet.detector.detector import bundled_names

    if not (path.is_file() or str(path) in bundled_names()):
        return ""
    return f". whet models need no adoption; use whet learn {path}"


def _warn_of_shape(examples: Examples, window: tuple[int, int]) -> None:
    from whet.training.adopt import shape_warning

    warning = shape_warning(examples.boxes, window) if examples.n_objects else None
    if warning is not None:
        warn(f"Warning: {warning}; see its boxes with whet detect CASCADE IMAGE --draw DIR")


def _results(run: AdoptionRun, out: Path) -> dict[str, Any]:
    from whet.training.adopt import NEGATIVES

    return {
        "objects": run.positives.n_objects,
        "positives": len(run.positives),
        "images": len(run.images),
        "negatives": run.added.negative.n,
        "negatives_requested": NEGATIVES,
        "weak_learners": len(run.added),
        "on_held_out": before_and_after(run.held_out),
        "problems": [str(problem) for problem in run.problems],
        "model": str(out),
    }


def _report(run: AdoptionRun) -> Iterator[str]:
    from whet.training.adopt import NEGATIVES

    n_negatives = run.added.negative.n
    yield f"Input: {run.positives}"
    yield f"Negatives: {plural(n_negatives, 'window')} from {plural(len(run.images), 'image')}"
    if n_negatives < NEGATIVES:
        yield f"Warning: fewer than {NEGATIVES:,} negative windows; add images with --negatives"
    if run.positives.n_objects < MIN_OBJECTS:
        yield f"Warning: fewer than {MIN_OBJECTS} objects; accuracy may be low"
    yield f"Added a stage with {plural(len(run.added), 'weak learner')}"
    if run.held_out is not None:
        yield from held_out_lines(run.held_out)
        before, after = (one.evaluation.average_precision for one in run.held_out)
        if after < before:
            yield (
                "Warning: average precision is lower than before; use more objects, and boxes like those that the "
                "cascade reports"
            )


def _exit_if_skipped(run: AdoptionRun, examples: Examples, incomplete: bool) -> None:
    unread, n_held_out = unread_held_out(run.held_out)
    exit_if_skipped([*map(str, examples.unread), *unread], len(examples.images) + len(examples.unread) + n_held_out)
    if incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
