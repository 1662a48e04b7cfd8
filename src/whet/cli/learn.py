"""`whet learn`: a detector is shown images, and corrected by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
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
    scan_options,
    showing,
    unread_and_judged,
)
from whet.cli.models import Destination, Force, ModelOut, is_same
from whet.cli.options import (
    Class,
    ExitCode,
    Factor,
    FormatOption,
    ImageFolder,
    Json,
    MaxSize,
    MinSize,
    Model,
    Quiet,
    Split,
    Step,
    Threads,
    Threshold,
    threshold_of,
    wrong_call_if_value_error,
)
from whet.cli.output import (
    MOST_NAMED,
    count,
    exit_if_skipped,
    nothing_changed_on_ctrl_c,
    progress_bar,
    start,
    uninterrupted,
)

if TYPE_CHECKING:
    from whet.training.learning import Examples, LearningRun


def learn(
    model: Model,
    positives: Positives = None,
    negatives: Negatives = None,
    annotations: AnnotationsOption = None,
    held_out: HeldOut = None,
    layout: FormatOption = None,
    images: ImageFolder = None,
    class_: Class = None,
    split: Split = None,
    weight: Annotated[
        int | None, typer.Option(min=1, help="How often a box counts; else by how many are shown.")
    ] = None,
    threshold: Threshold = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    scale_factor: Factor = 1.2,
    step: Step = 1,
    journal: Annotated[
        Path | None, typer.Option(help="File for what was learned, to undo it; else OUT.journal.jsonl.")
    ] = None,
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Keep none: what is learned stays.")] = False,
    out: ModelOut = None,
    force: Force = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Teach a detector by images.

    Of annotated images, every box is the object, and what is detected beside all boxes is a false positive. IMAGES are
    files, folders or quoted patterns ('street/*.jpg'), - reads names from stdin, and each option may be repeated. Give
    the threshold and the sizes that you detect with.

    \b
    All or nothing: Ctrl-C changes nothing. What was learned goes to a journal, for whet unlearn.
    Images that cannot be read, and boxes that fit no window, are skipped and named; the exit code is then 5.

    \b
    whet learn mine.whet --negatives street/
    whet learn mine.whet --positives crops/ --weight 20
    whet learn mine.whet --annotations new.json --class car --held-out val.json
    whet learn face --annotations boxes.csv -o mine.whet
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.training.learning import learn_from, tight_crop_warning

    if not (positives or negatives or annotations):
        raise typer.BadParameter("there is nothing to learn from: give --positives, --negatives or --annotations")
    if no_journal and journal is not None:
        raise typer.BadParameter("got --journal and --no-journal: choose one")
    detector = load(model)
    detector.check_can_learn()
    target = Destination.from_options(model, detector, out, journal, force=force)
    if no_journal:
        target = replace(target, journal=None)
    options = scan_options(min_size, max_size, scale_factor, step, threads) | {"min_score": threshold_of(threshold)}
    with nothing_changed_on_ctrl_c():
        seen = showing(annotations, positives, negatives, held_out, layout, images, class_, split, quiet=quiet)
        shown = seen.shown
        told = tight_crop_warning(shown, detector.box_offset)
        if told is not None:
            typer.echo(f"whet: {told}", err=True)
        with wrong_call_if_value_error(), progress_bar("learn", hidden=quiet) as progress:
            run = learn_from(detector, shown, weight, held_out=seen.judges, progress=progress, **options)
    is_written = not dry_run and (bool(run.report.records) or not is_same(model, target.out))
    if is_written:
        with uninterrupted():
            target.save(run.detector, run.report.records)
    if as_json:
        typer.echo(json.dumps(_table(run, shown, target if is_written else None), indent=1))
    elif not quiet:
        for line in _report(run, shown):
            typer.echo(line)
        typer.echo(f"wrote {target}" if is_written else "nothing was written")
    _tell_left_out(run, shown, seen.is_incomplete)


def _table(run: LearningRun, shown: Examples, target: Destination | None) -> dict[str, Any]:
    kept = None if target is None or target.journal is None else str(target.journal.path)
    return {
        "shown": {"images": len(shown.images), "objects": shown.n_objects},
        "taught": {
            "objects": run.report.n_objects,
            "false_positives": run.report.n_false_positives,
            "windows": len(run.report.records),
            "weight": sum(entry.weight for entry in run.report.records),
        },
        "on_shown": {name: figures(one) for name, one in zip(("before", "after"), run.on_examples, strict=True)},
        "on_held_out": run.held_out
        and {name: figures(one) for name, one in zip(("before", "after"), run.held_out, strict=True)},
        "degrees_turned": run.rotations,
        "skipped": {
            "images": [str(error) for error in _unread(run, shown)],
            "boxes": run.report.skipped_boxes,
        },
        "model": None if target is None else str(target.out),
        "journal": kept,
    }


def _report(run: LearningRun, shown: Examples) -> Iterator[str]:
    report, n = run.report, len(run.report.records)
    yield f"shown: {count(len(shown.images), 'image')}, {count(shown.n_objects, 'object')}"
    if not n:
        yield "learned nothing: there is no object and no false positive in what was shown"
    else:
        counted = sum(entry.weight for entry in report.records)
        yield (
            f"learned: {count(report.n_objects, 'object')} and {count(report.n_false_positives, 'false positive')}, "
            "by "
            f"{count(n, 'window that counts', 'windows that count')} {count(counted, 'time')}"
        )
        stage = max(range(len(run.rotations)), key=run.rotations.__getitem__)
        yield f"weights turned by up to {run.rotations[stage]:.2g} degrees (stage {stage})"
    before, after = run.on_examples
    yield (
        f"errors on what was shown: {before.n_missed} missed + {count(before.n_false_positives, 'false positive')} "
        "before, "
        f"{after.n_missed} + {after.n_false_positives} after"
    )
    if after.n_missed + after.n_false_positives > before.n_missed + before.n_false_positives:
        yield "that is worse than before: take it back with whet unlearn, and try a smaller --weight or more examples"
    if run.held_out is not None:
        yield from judgement_lines(run.held_out)


def _unread(run: LearningRun, shown: Examples) -> list[str]:
    """Each image once, though it may have been tried again and again."""
    held, _ = unread_and_judged(run.held_out)
    return list(dict.fromkeys(map(str, (*shown.unread, *run.on_examples[0].unread, *run.report.unread, *held))))


def _tell_left_out(run: LearningRun, shown: Examples, is_incomplete: bool) -> None:
    unfit = run.report.skipped_boxes
    if unfit:
        typer.echo(f"whet: {count(len(unfit), 'box that fits', 'boxes that fit')} no window, not learned:", err=True)
        for line in unfit[:MOST_NAMED]:
            typer.echo(f"  {line}", err=True)
    _, judged = unread_and_judged(run.held_out)
    exit_if_skipped(_unread(run, shown), len(shown.images) + len(shown.unread) + judged)
    if unfit or is_incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
