"""`whet convert`, `whet export` and `whet adopt`: annotations in another format, to and from OpenCV cascades."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli import inputs, options
from whet.cli.inputs import print_problems, skipped
from whet.cli.options import (
    AnnotationFormat,
    ExitCode,
    Force,
    ImageFolder,
    Json,
    Model,
    Quiet,
    Split,
    check_output_file,
    path_or_url,
)
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


def convert(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", parser=path_or_url, help="Annotations to read: a file or a directory.")
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="File or directory to write.")],
    from_: Annotated[
        AnnotationFormat | None, typer.Option("--from", help="Format of SOURCE (default: detect automatically).")
    ] = None,
    to: Annotated[
        AnnotationFormat | None, typer.Option("--to", help="Format of TARGET (default: from its suffix).")
    ] = None,
    class_: Annotated[str | None, typer.Option("--class", metavar="NAME", help="Convert only this class.")] = None,
    images: ImageFolder = None,
    split: Split = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite TARGET if it exists.")] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print counts and problems as JSON.")] = False,
) -> None:
    """Convert annotations between formats.

    \b
    coco    one JSON file                 csv     path,x,y,w,h[,label][,ignore]
    yolo    directory or its data.yaml    opencv  info.dat and bg.txt
    voc     directory of XML files        crops   directory of cropped objects

    Images are not moved: the new annotations refer to them. yolo copies images, crops cuts objects out.
    Annotations that cannot be read or represented in the new format are skipped and listed.
    The exit code is 5 if a part of SOURCE was skipped.

    \b
    Examples:
      whet convert instances.json cars.csv --class car
      whet convert VOC2007 yolo-set --to yolo
      whet convert labels.txt set.json --from opencv --images images
    """
    from whet.io.annotations.formats import place_to_write, read_annotations, write_annotations

    place_to_write(target, to and to.value, replace=force)  # fails before the slow part
    with progress_bar("reading", hidden=quiet) as progress:
        annotations = read_annotations(source, from_ and from_.value, images, progress)
    if split is not None:
        annotations = annotations.select_split(split)
    if class_ is not None:
        annotations = annotations.select(class_)
    with progress_bar("writing", hidden=quiet) as progress:
        lost = write_annotations(annotations, target, to and to.value, replace=force, progress=progress)
    problems = [*annotations.problems, *lost]
    if as_json:
        counts = {"images": len(annotations), "boxes": annotations.n_boxes, "ignored": annotations.n_ignored}
        rows = [{"kind": str(p.kind), "file": p.file, "line": p.line, "message": p.what} for p in problems]
        written = {"source": str(source), "format": annotations.format, "target": str(target)}
        say_json(written | counts | {"classes": annotations.counts, "problems": rows}, indent=None)
    else:
        print_problems(skipped(annotations.problems) if quiet else problems)
    if not as_json and not quiet:
        say(f"Wrote {target}: {annotations.summary()} (from {annotations.format})")
    if skipped(annotations.problems):
        raise typer.Exit(ExitCode.SOME_SKIPPED)


class EarlyExits(StrEnum):
    """Which early exits of soft stages become stages of the OpenCV file."""

    all = "all"
    doubling = "doubling"
    none = "none"


def export(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT.xml", help="File to write, for cv2.CascadeClassifier.")],
    early_exits: Annotated[
        EarlyExits,
        typer.Option(help="Early exits of soft stages to keep; all gives the same decisions with many more stumps."),
    ] = EarlyExits.doubling,
    exact: Annotated[
        bool, typer.Option("--exact", help="Add stumps that make up for the rounding to float32.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a detector as an OpenCV cascade.

    All stages must use Haar features, or all must use LBP: whet train --for-opencv trains such a detector. Sample
    counts, box offset and operating points cannot be represented in OpenCV's format. Differences in decisions and in
    the size of boxes are listed.

    \b
    Examples:
      whet export mine.whet mine.xml
      whet export mine.whet mine.xml --early-exits all
    """
    start(quiet=quiet)
    from whet.detector.storage import load

    if out.suffix.lower() != ".xml":
        raise typer.BadParameter(f"got {out}; expected a file name that ends in .xml")
    check_output_file(out, force=force)
    exported = load(model).export_opencv(out, early_exits=early_exits.value, exact=exact)
    if as_json:
        say_json({"file": str(out), **asdict(exported)})
    elif not quiet:
        size = f"{plural(exported.stages, 'stage')}, {plural(exported.stumps, 'tree')}, {out.stat().st_size:,} bytes"
        say(f"Wrote {out}: {size}")
        for line in exported.differences:
            say(f"  {line}")


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
        examples, _, was_skipped = inputs.read_training_input(
            source, annotations, positives, negatives, None, quiet=quiet
        )
        made_by = options.provenance("adopt")
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
    if was_skipped or inputs.skipped(run.problems):
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
