"""`whet adopt`: an OpenCV cascade is shown examples once, and learns from then on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.images import (
    AnnotationsOption,
    HeldOut,
    Negatives,
    Positives,
    figures,
    judgement_lines,
    left_out,
    origin,
    show,
    showing,
    unread_and_judged,
)
from whet.cli.models import Destination, Force
from whet.cli.options import (
    Class,
    ExitCode,
    FormatOption,
    ImageFolder,
    Json,
    Quiet,
    Split,
    Threads,
    wrong_call_if_value_error,
)
from whet.cli.output import count, exit_if_skipped, nothing_changed_on_ctrl_c, progress_bar, start, uninterrupted

if TYPE_CHECKING:
    from whet.training.adopt import AdoptionRun
    from whet.training.learning import Examples


# Of so many people, a cascade of faces gained three fifths of what it gained of 1,000 (docs/opencv.md).
FEW = 200


def adopt(
    cascade: Annotated[Path, typer.Argument(metavar="CASCADE", help="An OpenCV cascade, an .xml file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the detector to.")],
    annotations: AnnotationsOption = None,
    positives: Positives = None,
    negatives: Negatives = None,
    held_out: HeldOut = None,
    layout: FormatOption = None,
    images: ImageFolder = None,
    class_: Class = None,
    split: Split = None,
    seed: Annotated[int, typer.Option(min=0, help="What is drawn at random follows from it.")] = 0,
    force: Force = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make an OpenCV cascade learn: show it objects, and images without them, once.

    Its stages stay and one more follows, of its own weak learners, chosen and weighed by what is shown. From then on
    whet learn, unlearn and merge change that stage, and whet export writes the whole for OpenCV again. Boxes should
    frame the object as the cascade does. Show some hundred photographs: with fifty it gets a little worse.

    \b
    whet adopt haarcascade_frontalface_default.xml -a faces.json -n street/ -o mine.whet
    whet adopt haarcascade_smile.xml -p smiles/ -n 'others/*.jpg' --held-out val.json -o smile.whet
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.training.adopt import adopt_from

    if cascade.suffix.lower() != ".xml":
        raise typer.BadParameter(f"got {cascade}; expected an OpenCV cascade, an .xml file." + _own_instead(cascade))
    if not (positives or annotations):
        raise typer.BadParameter("there is no object to show: give --annotations or --positives")
    detector = load(cascade)
    target = Destination.from_options(str(cascade), detector, out, force=force)
    with nothing_changed_on_ctrl_c():
        seen = showing(annotations, positives, negatives, held_out, layout, images, class_, split, quiet=quiet)
        _warn_of_shape(seen.shown, detector.window)
        with wrong_call_if_value_error(), progress_bar("adopt", hidden=quiet) as progress:
            run = adopt_from(
                cascade,
                seen.shown,
                held_out=seen.judges,
                provenance=origin("adopt"),
                seed=seed,
                threads=threads,
                progress=progress,
            )
    with uninterrupted():
        target.save(run.detector, [])
    show(left_out(run.problems) if quiet else run.problems)
    if as_json:
        typer.echo(json.dumps(_table(run, target.out), indent=1))
    elif not quiet:
        for line in _report(run):
            typer.echo(line)
        typer.echo(f"wrote {target.out}")
    _end(run, seen.shown, seen.is_incomplete or bool(left_out(run.problems)))


def _own_instead(path: Path) -> str:
    from whet.detector.detector import bundled_names

    if not (path.is_file() or str(path) in bundled_names()):
        return ""
    return f" A detector of whet's own needs no adoption: teach it with whet learn {path}"


def _warn_of_shape(shown: Examples, window: tuple[int, int]) -> None:
    from whet.training.adopt import shape_warning

    told = shape_warning(shown.boxes, window) if shown.n_objects else None
    if told is not None:
        typer.echo(f"whet: {told}; whet detect CASCADE IMAGE --draw FOLDER shows them", err=True)


def _table(run: AdoptionRun, out: Path) -> dict[str, Any]:
    from whet.training.adopt import NEGATIVES

    return {
        "objects": run.positives.n_objects,
        "positives": len(run.positives),
        "images": len(run.images),
        "negatives": run.added.negative.n,
        "negatives_asked_for": NEGATIVES,
        "learners": len(run.added),
        "on_held_out": run.held_out
        and {name: figures(one) for name, one in zip(("before", "after"), run.held_out, strict=True)},
        "problems": [str(problem) for problem in run.problems],
        "model": str(out),
    }


def _report(run: AdoptionRun) -> Iterator[str]:
    from whet.training.adopt import NEGATIVES

    yield (
        f"shown: {run.positives}, and {count(run.added.negative.n, 'window')} without one of "
        f"{count(len(run.images), 'image')}"
    )
    if run.added.negative.n < NEGATIVES:
        yield f"asked for {NEGATIVES:,} such windows: the images gave no more; more --negatives give more"
    if run.positives.n_objects < FEW:
        yield f"that is few: with {FEW} objects or more it gains, with fifty it was a little worse than before"
    yield f"added: a stage of {count(len(run.added), 'weak learner')}, which learns from now on"
    if run.held_out is not None:
        yield from judgement_lines(run.held_out)
        before, after = (one.evaluation.average_precision for one in run.held_out)
        if after < before:
            yield "that is worse than before: do the boxes frame the object as the cascade does, and are there enough?"


def _end(run: AdoptionRun, shown: Examples, incomplete: bool) -> None:
    unread, judged = unread_and_judged(run.held_out)
    exit_if_skipped([*map(str, shown.unread), *unread], len(shown.images) + len(shown.unread) + judged)
    if incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
