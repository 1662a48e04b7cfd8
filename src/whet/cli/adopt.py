"""`whet adopt`: make an OpenCV cascade correctable."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli import inputs, options
from whet.cli.output import (
    estimate_fields,
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
    from whet.training.adopt import AdoptionRun


def adopt(
    cascade: Annotated[Path, typer.Argument(metavar="CASCADE", help="OpenCV cascade (.xml).")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output model, such as mine.whet.")],
    annotations: inputs.AnnotationsOption = None,
    positives: inputs.Positives = None,
    negatives: inputs.Negatives = None,
    format: options.FormatOption = None,
    images: options.ImageFolder = None,
    class_: options.Class = None,
    split: options.Split = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
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
    from whet.detector.storage import bundled_names, load
    from whet.training.adopt import adopt_from, shape_warning
    from whet.training.progress import FEWEST_FOUND

    if cascade.suffix.lower() != ".xml":
        is_model = cascade.is_file() or str(cascade) in bundled_names()
        instead = f". whet models need no adoption; use whet learn {cascade}" * is_model
        raise typer.BadParameter(f"got {cascade}; expected an OpenCV cascade (.xml){instead}")
    if not (positives or annotations):
        raise typer.BadParameter("got no objects; use --annotations or --positives")
    detector = load(cascade)
    target = options.model_out(str(cascade), out, force=force)
    with nothing_changed_on_ctrl_c(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = inputs.AnnotationOptions(format, images, class_, split)
        given = inputs.read_training_input(source, annotations, positives, negatives, None, quiet=quiet)
        examples, made_by = given.examples, options.provenance("adopt")
        shape = shape_warning(examples.boxes, detector.window) if examples.n_objects else None
        if shape is not None:
            warn(f"Warning: {shape}; see its boxes with whet detect CASCADE IMAGE --draw DIR")
        with options.usage_errors(), progress_bar("adopting", hidden=quiet) as progress:
            run = adopt_from(
                cascade, examples.images, provenance=made_by, seed=seed, threads=threads, progress=progress
            )
    with uninterrupted():
        run.detector.save(target)
    for warning in caught:
        warn(f"Warning: {warning.message}")
    estimate = run.detector.estimate
    if estimate is not None and estimate.recall < FEWEST_FOUND:
        warn(
            f"Warning: the cascade accepts {estimate.recall:.0%} of the held-out objects, as boxes enclose them. "
            "Draw boxes as the cascade reports them (whet detect CASCADE IMAGE --draw DIR); measure with whet evaluate"
        )
    inputs.print_problems(run.problems, quiet=quiet)
    if as_json:
        say_json(_results(run, target))
    elif not quiet:
        for line in _report(run):
            say(line)
        say(f"Wrote {target}")
        say(f"Next: whet learn {target} --negatives IMAGES, or whet export {target} OUT.xml")
    exit_if_skipped([*map(str, examples.unread)], len(examples.images) + len(examples.unread))
    if given.is_incomplete or inputs.skipped(run.problems):
        raise typer.Exit(options.ExitCode.SOME_SKIPPED)


def _results(run: AdoptionRun, out: Path) -> dict[str, Any]:
    return {
        "objects": run.positives.n_objects,
        "positives": len(run.positives),
        "images": len(run.images),
        "stages": len(run.detector.model.votes.ends),
        "negatives": run.n_negatives,
        "stages_with_few_negatives": [number + 1 for number in run.short_stages],
        "on_reference_set": estimate_fields(run.detector.estimate),
        "problems": [str(problem) for problem in run.problems],
        "model": str(out),
    }


def _report(run: AdoptionRun) -> Iterator[str]:
    yield f"Input: {run.positives}"
    yield f"Negatives: {min(run.n_negatives):,} windows or more in each stage, from {plural(len(run.images), 'image')}"
    yield f"Counted {plural(len(run.detector.model.votes.ends), 'stage')}; weights and thresholds are unchanged"
    if run.detector.estimate is not None:
        yield f"Held-out samples: {run.detector.estimate}"
