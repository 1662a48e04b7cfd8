"""`whet learn`: correct a detector with new images."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.inputs import (
    AnnotationOptions,
    AnnotationsOption,
    HeldOut,
    LearningOptions,
    Negatives,
    Positives,
    read_learning_input,
)
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
    ModelOut,
    NWorkers,
    Quiet,
    ScaleFactor,
    Scheduler,
    Split,
    Step,
    Threads,
    changed_model,
    is_in_place,
    model_out,
    parse_min_score,
    refuse,
    scan_options,
    usage_errors,
    workers_of,
)
from whet.cli.output import (
    SHORT_ID,
    as_fields,
    before_and_after,
    estimate_fields,
    exit_if_skipped,
    held_out_lines,
    nothing_changed_on_ctrl_c,
    plural,
    print_list,
    progress_bar,
    say,
    say_json,
    start,
    unread_held_out,
    unsatisfied_lines,
    warn,
)

if TYPE_CHECKING:
    from whet.detector.classes import MultiClassDetector
    from whet.detector.detector import Detector
    from whet.detector.records import Update
    from whet.training.learning import LearningInput, LearningRun

# Longer lists of ids are shortened to --last N where that is the same.
MAX_IDS = 4
# False positives that remain, in the command that corrects them.
MAX_WRONG = 5
# A false positive from this IoU on is that of a correction.
SAME_BOX = 0.5


def learn(
    model: Model,
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
    annotations: AnnotationsOption = None,
    negatives: Negatives = None,
    positives: Positives = None,
    held_out: HeldOut = None,
    format: FormatOption = None,
    images: ImageFolder = None,
    class_: Class = None,
    split: Split = None,
    weight: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How often each crop of --positives counts (default: 1).")
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="A note to store with the corrections.")] = "",
    site: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who learns this; whet unlearn --site removes it from a merged model."),
    ] = None,
    min_score: MinScore = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    scale_factor: ScaleFactor = 1.2,
    step: Step = 1,
    out: ModelOut = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write even if results get worse; overwrite an existing --out file.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the changes without writing them.")] = False,
    threads: Threads = None,
    scheduler: Scheduler = None,
    n_workers: NWorkers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Correct a detector: single boxes, marked detections, annotated images, or images without the object.

    What looks like a false positive (--wrong) is rejected from now on, what looks like a missed object (--missed) is
    found. In annotated images, each box is the object, and each detection of the base model away from all boxes is a
    false positive; in negatives, each detection of the base model is. Crops (--positives) are no corrections: they
    count as further training examples. Use the same minimum score and sizes as for detection.

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
    from whet.detector.classes import detectors_of
    from whet.detector.detector import Detector
    from whet.detector.storage import load, load_model
    from whet.training.learning import learn_from, tight_crop_warning

    given = LearningOptions(wrong, missed, detections, annotations, negatives, positives, held_out)
    _check(given, weight, note)
    loaded = load_model(model)
    if not isinstance(loaded, Detector) and len(loaded.classes) > 1:
        loaded = load(model)  # an error that lists the classes
    loaded.check_can_learn()
    if site == "":
        raise typer.BadParameter("got an empty name; expected that of a site", param_hint="--site")
    first = detectors_of(loaded)[0]
    target = model_out(model, out, force=force)
    options = scan_options(min_size, max_size, scale_factor, step, threads) | {"min_score": parse_min_score(min_score)}
    with nothing_changed_on_ctrl_c():
        source = AnnotationOptions(format, images, class_, split, first.class_name)
        read, held, is_incomplete = read_learning_input(source, given, quiet=quiet)
        warning = tight_crop_warning(read, first.box_offset)
        if warning is not None:
            warn(warning)
        cluster = workers_of(scheduler, n_workers, threads, quiet=quiet)
        with usage_errors(), cluster as workers, progress_bar("learning", hidden=quiet) as progress:
            run = learn_from(
                loaded,
                read,
                weight=weight or 1,
                note=note,
                site=site or "",
                held_out=held,
                progress=progress,
                workers=workers,
                **options,
            )
    same = {"min-score": min_score, "min-size": min_size, "max-size": max_size, "site": site}
    same |= {"scale-factor": None if scale_factor == 1.2 else scale_factor, "step": None if step == 1 else step}
    done = _Learned.from_run(model, target, read, run, force, dry_run)
    if as_json:
        say_json(done.table())
    elif not quiet:
        done.show(same)
    done.warn()
    if done.outcome.reason == REFUSED:
        raise typer.Exit(ExitCode.WORSE)
    _exit_if_skipped(run, read, is_incomplete)


REFUSED = "results would get worse; use --force to write nevertheless"


@dataclass(frozen=True)
class _Outcome:
    """What was added, what became worse, why nothing was written (or ""), and the command that undoes it."""

    update: Update
    setbacks: list[str]
    reason: str = ""
    undo: str | None = None


@dataclass(frozen=True)
class _Learned:
    """What a model was given and has learned, and what was written."""

    model: str
    target: Path
    given: LearningInput
    run: LearningRun
    outcome: _Outcome

    @classmethod
    def from_run(
        cls, model: str, target: Path, given: LearningInput, run: LearningRun, force: bool, dry_run: bool
    ) -> _Learned:
        """Write what was learned, unless something is against it."""
        if dry_run:
            outcome = _Outcome(run.update, run.setbacks, "dry run")
        elif not run.report.records or (not run.update.records and is_in_place(model, target)):
            outcome = _Outcome(run.update, run.setbacks, "nothing new")
        elif run.setbacks and not force:
            outcome = _Outcome(run.update, run.setbacks, REFUSED)
        else:
            outcome = _written(model, target, run, force=force)
        return cls(model, target, given, run, outcome)

    def table(self) -> dict[str, Any]:
        """The results, for --json."""
        return _results(self.run, self.given, self.outcome, self.target)

    def show(self, same: Mapping[str, object]) -> None:
        """Print the results; `same` are the options of the scan."""
        outcome, target = self.outcome, self.target
        for line in _report(self.run, self.given, outcome.update):
            say(line)
        say(f"Nothing written ({outcome.reason})" if outcome.reason else f"Wrote {target}")
        if not outcome.reason or is_in_place(self.model, target):
            for line in (*_remaining(self.run, outcome.update, target, same), *_new(self.run, target, same)):
                say(line)
        if outcome.undo is not None:
            say(f"Undo: {outcome.undo}")

    def warn(self) -> None:
        """Print what the user should look at."""
        undetected, outcome = self.run.report.undetected, self.outcome
        if undetected:
            print_list(
                f"the model detects nothing near {plural(len(undetected), 'box', 'boxes')} of --wrong or --detections; "
                "expected x,y,w,h of a detection, as whet detect prints it",
                undetected,
            )
        if outcome.setbacks:
            warn(f"Warning: {' and '.join(outcome.setbacks)}" + "; nothing was written" * (outcome.reason == REFUSED))


def _check(given: LearningOptions, weight: int | None, note: str) -> None:
    """Raise a usage error for options that make no sense."""
    from whet.detector.records import LONGEST_NOTE

    if not any(given[:-1]):
        raise typer.BadParameter(
            "got no images; use --wrong, --missed, --detections, --annotations, --negatives or --positives"
        )
    if not given.positives:
        refuse("without --positives; boxes have no weight, because a correction has to hold", weight=weight)
    if len(note) > LONGEST_NOTE:
        raise typer.BadParameter(f"got --note with {len(note):,} characters; expected at most {LONGEST_NOTE:,}")


class _WorseError(Exception):
    """Leaves the file as it is."""


def _written(model: str, target: Path, run: LearningRun, *, force: bool) -> _Outcome:
    """Add the corrections to the file as it is now; others may have changed it since the command has loaded it."""
    try:
        with changed_model(model, target) as current:
            update = current.add(run.report.records)
            setbacks = run.setbacks if run.held_out else update.setbacks
            if setbacks and not force:
                raise _WorseError
            return _Outcome(update, setbacks, undo=_undo(target, update, current))
    except _WorseError:
        return _Outcome(update, setbacks, REFUSED)


def _undo(target: Path, update: Update, model: Detector | MultiClassDetector) -> str | None:
    """The command that removes these corrections again: one for each view that has learned."""
    from whet.detector.detector import Detector

    if not isinstance(model, Detector):
        parts = update.views or dict.fromkeys(model, update)  # without views, there is one detector
        commands = [_undo(Path(f"{target}:{name}"), one, model[name]) for name, one in parts.items()]
        return " && ".join(filter(None, commands)) or None
    ids, n = set(update.ids), len(update.records)
    if not n:
        return None
    is_newest = {record.id for record in model.records[:n]} == ids
    named = " ".join(f"--id {record.id[:SHORT_ID]}" for record in update.records)
    return f"whet unlearn {shlex.quote(str(target))} " + (f"--last {n}" if is_newest and n > MAX_IDS else named)


def _results(run: LearningRun, given: LearningInput, outcome: _Outcome, target: Path) -> dict[str, Any]:
    report, update = run.report, outcome.update
    views = {name: {"new": one.ids, "estimate": _estimates(one)} for name, one in update.views.items()}
    return {
        "input": {"images": len(given), "objects": given.n_objects},
        "learned": {
            "objects": report.n_objects,
            "false_positives": report.n_false_positives,
            "examples": report.n_examples,
            "new": update.ids,
        },
        "estimate": _estimates(update),
        "unsatisfied": [as_fields(record, [record.id]) for record in update.unsatisfied],
        "on_input": before_and_after(run.on_examples),
        "on_held_out": before_and_after(run.held_out),
        "worse": outcome.setbacks,
        "skipped": {"images": _unread(run, given), "boxes": report.skipped_boxes},
        "undetected": report.undetected,
        "new_detections": [
            {"image": str(one.path), "box": one.box.tolist(), "score": one.score} for one in run.appeared
        ],
        "model": None if outcome.reason else str(target),
        "undo": outcome.undo,
        **({"views": views} if views else {}),
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
    estimates = [(name, one.before, one.after) for name, one in {"": update, **update.views}.items()]
    estimates = [each for each in estimates if None not in each]
    for name, before_it, after_it in estimates:
        view = f" of {name}" * bool(name)
        yield f"Estimate{view} before: {before_it}"
        yield f"Estimate{view} after:  {after_it}"
    if not estimates and update.records and run.held_out is None:
        yield "No estimate of the effect on other images: the model has no held-out objects; measure with --held-out"
    yield from unsatisfied_lines(update.unsatisfied)


def _remaining(run: LearningRun, update: Update, target: Path, same: Mapping[str, object]) -> Iterator[str]:
    """False positives that remain, except those of corrections that do not hold, and how to correct them.

    The input corrects what the base detects; where that is gone, a window beside it may become a detection. `same` are
    the options of the scan.
    """
    import numpy as np

    from whet.cascade.boxes import box_iou

    if run.on_examples is None:
        return
    after = run.on_examples[1]
    worst = [
        mistake
        for mistake in after.evaluation.worst_false_positives(after.threshold)
        if not any(
            record.name == after.paths[mistake.image].name
            and box_iou(mistake.box[None], np.array([record.box])).item() >= SAME_BOX
            for record in update.unsatisfied
        )
    ]
    if worst:
        what = plural(len(worst), "false positive remains", "false positives remain")
        yield from _to_correct(what, [(after.paths[one.image], one.box.tolist()) for one in worst], target, same)


def _new(run: LearningRun, target: Path, same: Mapping[str, object]) -> Iterator[str]:
    """Detections that the corrections bring in the corrected images, and how to correct them if they are wrong."""
    from whet.io.files import shown_name

    if not run.appeared:
        return
    for one in run.appeared[:MAX_WRONG]:
        x1, y1, x2, y2 = one.box.tolist()
        where = f"{x2 - x1:.0f} x {y2 - y1:.0f} at ({x1:.0f}, {y1:.0f})"
        yield f"New in {shown_name(one.path)}: {where} scores {one.score:.3g}"
    what = plural(len(run.appeared), "detection is new and may be wrong", "detections are new and may be wrong")
    yield from _to_correct(what, [(one.path, one.box.tolist()) for one in run.appeared], target, same)


def _to_correct(
    what: str, boxes: Sequence[tuple[Path, Sequence[float]]], target: Path, same: Mapping[str, object]
) -> Iterator[str]:
    """The command that corrects false positives: the worst, if there are many."""
    marks = []
    for path, (x1, y1, x2, y2) in boxes[:MAX_WRONG]:
        box = ",".join(f"{round(value, 1):.6g}" for value in (x1, y1, x2 - x1, y2 - y1))
        marks.append(f" --wrong {shlex.quote(f'{path}:{box}')}")
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
    held, _ = unread_held_out(run.held_out)
    evaluated = () if run.on_examples is None else run.on_examples[0].unread
    return list(dict.fromkeys(map(str, (*given.examples.unread, *evaluated, *run.report.unread, *held))))


def _exit_if_skipped(run: LearningRun, given: LearningInput, is_incomplete: bool) -> None:
    skipped_boxes = run.report.skipped_boxes
    if skipped_boxes:
        print_list(f"skipped {plural(len(skipped_boxes), 'box that fits', 'boxes that fit')} no window", skipped_boxes)
    _, n_held_out = unread_held_out(run.held_out)
    exit_if_skipped(_unread(run, given), len(given) + len(given.examples.unread) + n_held_out)
    if skipped_boxes or is_incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
