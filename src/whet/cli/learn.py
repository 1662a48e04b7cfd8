"""`whet learn`: correct a detector with new images."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli import inputs, options
from whet.cli.output import (
    SHORT_ID,
    as_fields,
    before_and_after,
    box_text,
    estimate_fields,
    exit_if_skipped,
    held_out_lines,
    nothing_changed_on_ctrl_c,
    plural,
    print_list,
    progress_bar,
    refit_bar,
    say,
    say_json,
    start,
    unsatisfied_lines,
    warn,
)

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.state import Update
    from whet.training.learning import LearningInput, LearningRun

# False positives that remain, in the command that corrects them.
MAX_WRONG = 5


def learn(
    model: options.Model,
    wrong: Annotated[
        list[str] | None,
        typer.Option(metavar="IMAGE:x,y,w,h", help="A false positive: this box is not the object. Repeatable."),
    ] = None,
    missed: Annotated[
        list[str] | None,
        typer.Option(metavar="IMAGE:x,y,w,h", help="A missed object: this box is the object. Repeatable."),
    ] = None,
    detections: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV, COCO or JSON of whet detect with a column (or key) wrong: 1 for a false positive.",
        ),
    ] = None,
    annotations: inputs.AnnotationsOption = None,
    negatives: inputs.Negatives = None,
    positives: inputs.Positives = None,
    held_out: inputs.HeldOut = None,
    format: options.FormatOption = None,
    images: options.ImageFolder = None,
    class_: options.Class = None,
    split: options.Split = None,
    weight: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How often each crop of --positives counts (default: 1).")
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="A note to store with the corrections.")] = "",
    site: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who learns this; whet unlearn --site removes it from a merged model."),
    ] = None,
    min_score: options.MinScore = None,
    min_size: options.MinSize = None,
    max_size: options.MaxSize = None,
    scale_factor: options.ScaleFactor = 1.2,
    step: options.Step = 1,
    out: options.ModelOut = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write even if results get worse; overwrite an existing --out file.")
    ] = False,
    refit: Annotated[
        bool,
        typer.Option("--refit/--no-refit", help="Make the model again from all samples, so that it learns everywhere."),
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the changes without writing them.")] = False,
    threads: options.Threads = None,
    scheduler: options.Scheduler = None,
    n_workers: options.NWorkers = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Correct a detector: single boxes, marked detections, annotated images, or images without the object.

    What looks like a false positive (--wrong) is rejected from now on, what looks like a missed object (--missed) is
    found, at once. Some seconds later, the model is made again from the samples that it keeps, with the new ones: it
    does better on all other images, too (--no-refit leaves that to a later whet refit). In annotated images, each box
    is the object, and each detection of the base model away from all boxes is a false positive; in negatives, each
    detection of the base model is. Crops (--positives) are no corrections: they are further training examples. Use the
    same minimum score and sizes as for detection.

    The corrections are stored in the model; whet log lists them and whet unlearn removes them. The model is written in
    one step at the end, and keeps what others have written in the meantime. Ctrl-C changes nothing.

    Nothing is written, and the exit code is 6, if held-out results get worse: lower recall (by more than 0.3 points)
    or more false positives. Without --held-out, the reference set inside the model decides: recall lower by more than
    1 point, or false positives per image higher by more than 10 % and by 0.02. Use --force to write nevertheless.

    Images that cannot be read and boxes that fit no window are skipped and listed; the exit code is then 5.

    \b
    Examples:
      whet learn mine.whet --wrong shot.png:40,30,64,64 --note "a poster"
      whet learn mine.whet --negatives street/*.jpg
      whet learn mine.whet --annotations new.json --class car --held-out val.json
      whet learn face --detections boxes.csv --out mine.whet
    """
    start(quiet=quiet)
    from whet.detector.storage import load
    from whet.training.learning import learn_from, tight_crop_warning

    given = inputs.LearningOptions(wrong, missed, detections, annotations, negatives, positives, held_out)
    _check(given, weight, note)
    loaded = load(model)
    class_name = loaded.class_name  # or an error that lists several
    loaded.check_can_learn()
    if site == "":
        raise typer.BadParameter("got an empty name; expected that of a site", param_hint="--site")
    target = options.model_out(model, out, force=force)
    scan = options.scan_options(min_size, max_size, scale_factor, step, threads, min_score)
    with nothing_changed_on_ctrl_c():
        source = inputs.AnnotationOptions(format, images, class_, split, class_name)
        read, held, is_incomplete = inputs.read_learning_input(source, given, quiet=quiet)
        warning = tight_crop_warning(read, loaded.reporting.box_offset)
        if warning is not None:
            warn(warning)
        cluster = options.workers_of(scheduler, n_workers, threads, quiet=quiet)
        bars = progress_bar("learning", hidden=quiet), refit_bar(hidden=quiet)
        with options.usage_errors(), cluster as workers, bars[0] as progress, bars[1] as refit_progress:
            scan |= {"weight": weight or 1, "note": note, "site": site or "", "refit": refit, "force": force}
            scan |= {"progress": progress, "refit_progress": refit_progress}
            run = learn_from(loaded, read, held_out=held, workers=workers, **scan)
    outcome = _outcome(model, target, run, force=force, dry_run=dry_run)
    if as_json:
        say_json(_results(run, read, outcome, target))
    elif not quiet:
        for line in _report(run, read, outcome.update):
            say(line)
        say(f"Nothing written ({outcome.reason})" if outcome.reason else f"Wrote {target}")
        if not outcome.reason or options.is_in_place(model, target):
            same = {"min-score": min_score, "min-size": min_size, "max-size": max_size, "site": site}
            same |= {"scale-factor": None if scale_factor == 1.2 else scale_factor, "step": None if step == 1 else step}
            for line in (*_remaining(run, outcome.update, target, same), *_new(run, target, same)):
                say(line)
        if outcome.undo is not None:
            say(f"Undo: {outcome.undo}")
        if not outcome.reason and run.detector.needs_refit:
            say(f"To learn this for all other images, too: whet refit {shlex.quote(str(target))}")
    undetected = run.report.undetected
    if undetected:
        print_list(
            f"the model detects nothing near {plural(len(undetected), 'box', 'boxes')} of --wrong or --detections; "
            "expected x,y,w,h of a detection, as whet detect prints it",
            undetected,
        )
    if outcome.setbacks:
        warn(f"Warning: {' and '.join(outcome.setbacks)}" + "; nothing was written" * (outcome.reason == REFUSED))
    if outcome.reason == REFUSED:
        raise typer.Exit(options.ExitCode.WORSE)
    _exit_if_skipped(run, read, is_incomplete)


REFUSED = "results would get worse; use --force to write nevertheless"


class _WorseError(Exception):
    """Leaves the file as it is."""


@dataclass(frozen=True)
class _Outcome:
    """What was added, what became worse, why nothing was written (or ""), and the command that undoes it."""

    update: Update
    setbacks: list[str]
    reason: str = ""
    undo: str | None = None


def _outcome(model: str, target: Path, run: LearningRun, *, force: bool, dry_run: bool) -> _Outcome:
    """Write what was learned, and the model that was made again, unless something is against it.

    Corrections are added to the file as it is now: others may have changed it since the command has loaded it.
    """
    from whet.errors import RecordError

    update, setbacks = run.update, run.setbacks
    if dry_run:
        return _Outcome(update, setbacks, "dry run")
    is_known = not update.records and not run.is_refit_kept
    if not run.report.records or (is_known and options.is_in_place(model, target)):
        return _Outcome(update, setbacks, "nothing new")
    if setbacks and not force:
        return _Outcome(update, setbacks, REFUSED)
    try:
        with options.changed(model, target) as current:
            update = current.add(run.report.records)
            setbacks = setbacks if run.held_out else update.setbacks
            if setbacks and not force:
                raise _WorseError
            if run.is_refit_kept:
                with suppress(RecordError):  # others have unlearned meanwhile: whet refit is due
                    current.take_refit(run.detector)
            return _Outcome(update, setbacks, undo=_undo(target, update, current))
    except _WorseError:
        return _Outcome(update, setbacks, REFUSED)


def _check(given: inputs.LearningOptions, weight: int | None, note: str) -> None:
    """Raise a usage error for options that make no sense."""
    from whet.corrections.records import LONGEST_NOTE

    if not any(given[:-1]):
        raise typer.BadParameter(
            "got no images; use --wrong, --missed, --detections, --annotations, --negatives or --positives"
        )
    if not given.positives:
        options.refuse("without --positives; boxes have no weight, because a correction has to hold", weight=weight)
    if len(note) > LONGEST_NOTE:
        raise typer.BadParameter(f"got --note with {len(note):,} characters; expected at most {LONGEST_NOTE:,}")


def _undo(target: Path, update: Update, detector: Detector) -> str | None:
    """The command that removes these corrections again."""
    n = len(update.records)
    if not n:
        return None
    is_newest = {record.id for record in detector.records[:n]} == set(update.ids)
    named = " ".join(f"--id {key[:SHORT_ID]}" for key in update.ids)
    # Longer lists of ids are shortened to --last N where that is the same.
    return f"whet unlearn {shlex.quote(str(target))} " + (f"--last {n}" if is_newest and n > 4 else named)


def _results(run: LearningRun, given: LearningInput, outcome: _Outcome, target: Path) -> dict[str, Any]:
    report, update = run.report, outcome.update
    return {
        "input": {"images": len(given), "objects": given.n_objects},
        "learned": {
            "objects": report.n_objects,
            "false_positives": report.n_false_positives,
            "examples": report.n_examples,
            "backgrounds": report.n_backgrounds,
            "new": update.ids,
        },
        "estimate": _estimates(update),
        "refit": None if run.refit is None else _estimates(run.refit) | {"kept": run.is_refit_kept},
        "unsatisfied": [as_fields(record, [record.id]) for record in update.unsatisfied],
        "on_input": before_and_after(run.on_examples),
        "on_held_out": before_and_after(run.held_out),
        "worse": outcome.setbacks,
        "skipped": {"images": _unread(run, given), "boxes": report.skipped_boxes},
        "undetected": report.undetected,
        "new_detections": [
            {"image": str(new.path), "box": new.box.tolist(), "score": new.score} for new in run.appeared
        ],
        "model": None if outcome.reason else str(target),
        "undo": outcome.undo,
        "shapes": [{"new": shape.ids, "estimate": _estimates(shape)} for shape in update.shapes],
    }


def _estimates(update: Update) -> dict[str, Any]:
    return {"before": estimate_fields(update.before), "after": estimate_fields(update.after)}


def _report(run: LearningRun, given: LearningInput, update: Update) -> Iterator[str]:
    report = run.report
    yield f"Input: {plural(len(given), 'image')}, {plural(given.n_objects, 'object')}"
    if not report.records:
        yield f"Learned nothing: {_why_nothing(run, given)}"
    else:
        n_known = len({record.id for record in report.records}) - len(update.records)
        parts = [
            plural(report.n_objects, "object"),
            plural(report.n_false_positives, "false positive"),
            plural(report.n_examples, "example"),
            plural(report.n_backgrounds, "background"),
        ]
        known = f"; {n_known:,} of them known already" if n_known else ""
        yield f"Learned {', '.join(part for part in parts if not part.startswith('0 '))}{known}"
        if report.undetected:
            boxes = plural(len(report.undetected), "box", "boxes")
            yield f"Nothing is detected at {boxes}: nothing changes there, unless another correction would change it"
    if run.on_examples is not None:
        before, after = run.on_examples
        yield (
            f"Errors on these images: {before.n_missed} missed + {plural(before.n_false_positives, 'false positive')} "
            f"before, {after.n_missed} + {after.n_false_positives} after"
        )
    if run.held_out is not None:
        yield from held_out_lines(run.held_out)
    updates = {"": update} | {f" of {name}": shape for name, shape in update.named_shapes.items()}
    estimates = {name: (part.before, part.after) for name, part in updates.items() if part.before and part.after}
    for name, (old, new) in estimates.items():
        yield f"Estimate{name} before: {old}"
        yield f"Estimate{name} after:  {new}"
    yield from _refit_lines(run)
    if not estimates and update.records and run.held_out is None:
        yield "No estimate of the effect on other images: the model has no held-out objects; measure with --held-out"
    yield from unsatisfied_lines(update.unsatisfied)


def _refit_lines(run: LearningRun) -> Iterator[str]:
    """What the model that was made again is expected to do on other images."""
    if run.refit is None:
        return
    if run.refit.before is not None and run.refit.after is not None:
        yield f"Refit, on other images before: {run.refit.before}"
        yield f"Refit, on other images after:  {run.refit.after}"
    if not run.is_refit_kept:
        worse = " and ".join(run.refit.setbacks)
        yield f"Kept the earlier model, since {worse}; the corrections hold; whet refit takes the new one"


def _remaining(run: LearningRun, update: Update, target: Path, same: Mapping[str, object]) -> Iterator[str]:
    """False positives that remain, except those of corrections that do not hold, and how to correct them.

    The input corrects what the base detects; where that is gone, a window beside it may become a detection. `same` are
    the options of the scan.
    """
    import numpy as np

    from whet.images.boxes import box_iou

    if run.on_examples is None:
        return
    after = run.on_examples[1]
    # A false positive from this IoU on is that of a correction.
    worst = [
        mistake
        for mistake in after.evaluation.worst_false_positives(after.threshold)
        if not any(
            record.name == after.paths[mistake.image].name
            and box_iou(mistake.box[None], np.array([record.box])).item() >= 0.5
            for record in update.unsatisfied
        )
    ]
    if worst:
        what = plural(len(worst), "false positive remains", "false positives remain")
        boxes = [(after.paths[mistake.image], mistake.box.tolist()) for mistake in worst]
        yield from _to_correct(what, boxes, target, same)


def _new(run: LearningRun, target: Path, same: Mapping[str, object]) -> Iterator[str]:
    """Detections that the corrections bring in the corrected images, and how to correct them if they are wrong."""
    from whet.io.files import shown_name

    if not run.appeared:
        return
    for new in run.appeared[:MAX_WRONG]:
        x1, y1, x2, y2 = new.box.tolist()
        where = f"{x2 - x1:.0f} x {y2 - y1:.0f} at ({x1:.0f}, {y1:.0f})"
        yield f"New in {shown_name(new.path)}: {where} scores {new.score:.3g}"
    what = plural(len(run.appeared), "detection is new and may be wrong", "detections are new and may be wrong")
    yield from _to_correct(what, [(new.path, new.box.tolist()) for new in run.appeared], target, same)


def _to_correct(
    what: str, boxes: Sequence[tuple[Path, Sequence[float]]], target: Path, same: Mapping[str, object]
) -> Iterator[str]:
    """The command that corrects false positives: the worst, if there are many."""
    marks = [f" --wrong {shlex.quote(f'{path}:{box_text(box)}')}" for path, box in boxes[:MAX_WRONG]]
    which = f" the {MAX_WRONG} with the highest scores" if len(boxes) > MAX_WRONG else ""
    yield f"{what}. To correct{which or ' them' * (len(boxes) > 1) or ' it'}:"
    marks += [f" --{name} {shlex.quote(str(value))}" for name, value in same.items() if value is not None]
    yield f"  whet learn {shlex.quote(str(target))}{''.join(marks)}"


def _why_nothing(run: LearningRun, given: LearningInput) -> str:
    boxes, images = run.report.skipped_boxes, _unread(run, given)
    if boxes:
        return f"{plural(len(boxes), 'box fits', 'boxes fit')} no window; {boxes[0]}"
    if images:
        return f"{plural(len(images), 'image')} cannot be read; {images[0]}"
    return "the images contain no objects and no false positives"


def _unread(run: LearningRun, given: LearningInput) -> list[str]:
    """Each unreadable image once, although it may have been tried several times."""
    evaluated, held = (() if runs is None else runs[0].unread for runs in (run.on_examples, run.held_out))
    return list(dict.fromkeys(map(str, (*given.examples.unread, *evaluated, *run.report.unread, *held))))


def _exit_if_skipped(run: LearningRun, given: LearningInput, is_incomplete: bool) -> None:
    skipped_boxes = run.report.skipped_boxes
    if skipped_boxes:
        print_list(f"skipped {plural(len(skipped_boxes), 'box that fits', 'boxes that fit')} no window", skipped_boxes)
    n_held_out = 0 if run.held_out is None else len(run.held_out[0].paths) + len(run.held_out[0].unread)
    exit_if_skipped(_unread(run, given), len(given) + len(given.examples.unread) + n_held_out)
    if skipped_boxes or is_incomplete:
        raise typer.Exit(options.ExitCode.SOME_SKIPPED)
