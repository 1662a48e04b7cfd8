"""`whet learn`: correct a detector with new images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.inputs import AnnotationsOption, HeldOut, Negatives, Positives, read_training_input
from whet.cli.models import Destination, Force, ModelOut, is_in_place
from whet.cli.options import (
    Class,
    ExitCode,
    FormatOption,
    ImageFolder,
    Json,
    MaxSize,
    MinScore,
    MinSize,
    Model,
    Quiet,
    ScaleFactor,
    Split,
    Step,
    Threads,
    parse_min_score,
    scan_options,
    usage_errors,
)
from whet.cli.output import (
    before_and_after,
    exit_if_skipped,
    held_out_lines,
    nothing_changed_on_ctrl_c,
    plural,
    print_list,
    progress_bar,
    start,
    uninterrupted,
    unread_held_out,
    warn,
)

if TYPE_CHECKING:
    from whet.training.learning import Examples, LearningRun


def learn(
    model: Model,
    positives: Positives = None,
    negatives: Negatives = None,
    annotations: AnnotationsOption = None,
    held_out: HeldOut = None,
    format: FormatOption = None,
    images: ImageFolder = None,
    class_: Class = None,
    split: Split = None,
    weight: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Sample weight per box (default: automatic).")
    ] = None,
    min_score: MinScore = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    scale_factor: ScaleFactor = 1.2,
    step: Step = 1,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Journal for whet unlearn (default: OUT.journal.jsonl)."),
    ] = None,
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Keep no journal; whet unlearn needs one.")] = False,
    out: ModelOut = None,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the changes without writing them.")] = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Correct a detector with annotated images, crops of the object or images without it.

    In annotated images, each box is a positive sample and each detection away from all boxes is a false positive.
    IMAGES are files, directories or quoted patterns ('street/*.jpg'); - reads file names from stdin. Use the same
    minimum score and sizes as for detection.

    The model is written at the end; Ctrl-C changes nothing. The journal records each sample for whet unlearn.

    Images that cannot be read and boxes that fit no window are skipped and listed; the exit code is then 5.

    \b
    Examples:
      whet learn mine.whet --negatives street/
      whet learn mine.whet --positives crops/ --weight 20
      whet learn mine.whet --annotations new.json --class car --held-out val.json
      whet learn face --annotations boxes.csv --out mine.whet
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.training.learning import learn_from, tight_crop_warning

    if not (positives or negatives or annotations):
        raise typer.BadParameter("got no images; use --annotations, --positives or --negatives")
    if no_journal and journal is not None:
        raise typer.BadParameter(f"got --journal {journal} and --no-journal; choose one")
    detector = load(model)
    detector.check_can_learn()
    target = Destination.from_options(model, detector, out, journal, force=force)
    if no_journal:
        target = replace(target, journal=None)
    options = scan_options(min_size, max_size, scale_factor, step, threads) | {"min_score": parse_min_score(min_score)}
    with nothing_changed_on_ctrl_c():
        given = read_training_input(
            annotations, positives, negatives, held_out, format, images, class_, split, quiet=quiet
        )
        examples = given.examples
        warning = tight_crop_warning(examples, detector.box_offset)
        if warning is not None:
            warn(warning)
        with usage_errors(), progress_bar("learning", hidden=quiet) as progress:
            run = learn_from(detector, examples, weight, held_out=given.held_out, progress=progress, **options)
    is_written = not dry_run and (bool(run.report.records) or not is_in_place(model, target.out))
    if is_written:
        with uninterrupted():
            target.save(run.detector, run.report.records)
    if as_json:
        typer.echo(json.dumps(_results(run, examples, target if is_written else None), indent=1))
    elif not quiet:
        for line in _report(run, examples):
            typer.echo(line)
        reason = "dry run" if dry_run else "no samples"
        typer.echo(f"Wrote {target}" if is_written else f"Nothing written ({reason})")
        if is_written and run.report.records and target.journal is not None:
            named = "" if journal is None else f" {journal}"
            typer.echo(f"Undo: whet unlearn {target.out}{named} --last {len(run.report.records)}")
    _exit_if_skipped(run, examples, given.is_incomplete)


def _results(run: LearningRun, examples: Examples, target: Destination | None) -> dict[str, Any]:
    journal = None if target is None or target.journal is None else str(target.journal.path)
    return {
        "input": {"images": len(examples.images), "objects": examples.n_objects},
        "learned": {
            "objects": run.report.n_objects,
            "false_positives": run.report.n_false_positives,
            "windows": len(run.report.records),
            "weight": sum(record.weight for record in run.report.records),
        },
        "on_input": before_and_after(run.on_examples),
        "on_held_out": before_and_after(run.held_out),
        "rotation_degrees": run.rotations,
        "skipped": {
            "images": _unread(run, examples),
            "boxes": run.report.skipped_boxes,
        },
        "model": None if target is None else str(target.out),
        "journal": journal,
    }


def _report(run: LearningRun, examples: Examples) -> Iterator[str]:
    report, n = run.report, len(run.report.records)
    yield f"Input: {plural(len(examples.images), 'image')}, {plural(examples.n_objects, 'object')}"
    if not n:
        yield "Learned nothing: the images contain no objects and no false positives"
    else:
        weight = sum(record.weight for record in report.records)
        yield (
            f"Learned {plural(n, 'window')} (total weight {weight:,}): {plural(report.n_objects, 'object')}, "
            f"{plural(report.n_false_positives, 'false positive')}"
        )
        stage = max(range(len(run.rotations)), key=run.rotations.__getitem__)
        yield f"Largest change: the weights of stage {stage} rotated by {run.rotations[stage]:.2g} degrees"
    before, after = run.on_examples
    yield (
        f"Errors on these images: {before.n_missed} missed + {plural(before.n_false_positives, 'false positive')} "
        f"before, {after.n_missed} + {after.n_false_positives} after"
    )
    if after.n_missed + after.n_false_positives > before.n_missed + before.n_false_positives:
        yield "Warning: more errors than before; undo with whet unlearn, then use a smaller --weight or more images"
    if run.held_out is not None:
        yield from held_out_lines(run.held_out)


def _unread(run: LearningRun, examples: Examples) -> list[str]:
    """Each unreadable image once, although it may have been tried several times."""
    held, _ = unread_held_out(run.held_out)
    return list(dict.fromkeys(map(str, (*examples.unread, *run.on_examples[0].unread, *run.report.unread, *held))))


def _exit_if_skipped(run: LearningRun, examples: Examples, is_incomplete: bool) -> None:
    skipped_boxes = run.report.skipped_boxes
    if skipped_boxes:
        print_list(f"skipped {plural(len(skipped_boxes), 'box that fits', 'boxes that fit')} no window", skipped_boxes)
    _, n_held_out = unread_held_out(run.held_out)
    exit_if_skipped(_unread(run, examples), len(examples.images) + len(examples.unread) + n_held_out)
    if skipped_boxes or is_incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
