"""`whet evaluate`: how good a detector is on annotated images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.images import is_incomplete, read_set, scan_options
from whet.cli.models import Destination, Force
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
    Seed,
    Split,
    Step,
    Threads,
    Threshold,
    threshold_of,
    wrong_call_if_value_error,
)
from whet.cli.output import count, exit_if_skipped, number, progress_bar, rounded, start

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.evaluation.runs import EvaluationRun


# So many samples a bootstrap should have: with fewer, what is rare was not seen often enough to be drawn.
FEW = 30


def evaluate(
    model: Model,
    annotations: Annotated[Path, typer.Argument(metavar="ANNOTATIONS", help="Annotated images: a file or a folder.")],
    layout: FormatOption = None,
    images: ImageFolder = None,
    class_: Class = None,
    split: Split = None,
    iou: Annotated[
        float, typer.Option(min=0, max=0.99, help="Intersection over union above which an object is found.")
    ] = 0.5,
    threshold: Threshold = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    scale_factor: Factor = 1.2,
    step: Step = 1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for numbers, curves and sheets of the worst mistakes.")
    ] = None,
    draw: Annotated[Path | None, typer.Option(help="Folder for all images, found and missed drawn in.")] = None,
    set_point: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Store the score for --false-positives in the model, by this name."),
    ] = None,
    false_positives: Annotated[float, typer.Option(min=0, help="False positives an image for --set-point.")] = 0.1,
    save: Annotated[Path | None, typer.Option(help="Where --set-point writes the model; else MODEL itself.")] = None,
    force: Force = False,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a detector on annotated images that it was not trained on.

    Recall, precision and false positives per image are those at the threshold in use; the two areas are over all
    thresholds. Intervals (95 %) take images, not boxes, for the samples.

    \b
    whet evaluate mine.whet val.json
    whet evaluate mine.whet VOC2007 --class car --out report
    whet evaluate mine.whet val.json --set-point default --false-positives 0.1
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.evaluation.runs import evaluate_many
    from whet.plots.figure import check_places

    if save is not None and set_point is None:
        raise typer.BadParameter("--save writes the model with an operating point: give its name, --set-point NAME")
    detector = load(model)
    target = (
        None if set_point is None else Destination.from_options(model, detector, save, force=force, option="--save")
    )
    found = read_set(annotations, layout, images, class_, split, quiet=quiet)
    check_places([image.path for image in found.images], out, draw)
    options = scan_options(min_size, max_size, scale_factor, step, threads)
    with wrong_call_if_value_error(), progress_bar("evaluate", hidden=quiet) as progress:
        above = threshold_of(threshold)
        run = evaluate_many(detector, found.images, iou=iou, min_score=above, tell=progress, **options)
    left_out = [str(problem) for problem in found.problems if is_incomplete([problem])]
    numbers = _numbers(run, model, annotations, iou, seed, left_out)
    point = None
    if set_point is not None and target is not None:
        point = _set_point(detector, run, set_point, false_positives)
        target.save(detector, [])
        numbers["set_point"] = {"name": set_point, "threshold": point, "model": str(target.out)}
    written, fault = _draw(run, out, draw, model, numbers)
    if as_json:
        typer.echo(json.dumps(numbers, indent=1))
    elif not quiet:
        for line in _table(numbers):
            typer.echo(line)
        if target is not None and point is not None:
            typer.echo(f"operating point {set_point!r}: scores above {point:.4g}, stored in {target.out}")
        if written:
            typer.echo(f"wrote {', '.join(map(str, written))}")
    if fault and not quiet:
        typer.echo(f"whet: no curves were drawn: {fault}", err=True)
    exit_if_skipped(run.unread, len(found.images))
    if left_out:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


def _numbers(
    run: EvaluationRun, model: str, annotations: Path, iou: float, seed: int, left_out: list[str]
) -> dict[str, Any]:
    measures = {
        name: {"value": number(one.value), "low": number(one.low), "high": number(one.high)}
        for name, one in run.measures(seed).items()
    }
    return {
        "model": model,
        "annotations": str(annotations),
        "images": len(run.paths),
        "objects": int(run.truths.sum()),
        "ignored": sum(int(each.ignored.sum()) for each in run.evaluation.images),
        "found": int(run.found.sum()),
        "missed": run.n_missed,
        "false_positives": run.n_false_positives,
        "overlap": iou,
        "threshold": number(run.threshold),
        "measures": {name.replace(" ", "_").replace("-", "_"): one for name, one in measures.items()},
        "left_out": [*left_out, *map(str, run.unread)],
    }


def _table(numbers: dict[str, Any]) -> Iterator[str]:
    above = "all scores" if numbers["threshold"] is None else f"scores above {numbers['threshold']:.4g}"
    ignored = f", {numbers['ignored']:,} to ignore" if numbers["ignored"] else ""
    yield f"{count(numbers['images'], 'image')}, {count(numbers['objects'], 'object')}{ignored}; {above}"
    right, wrong = numbers["found"], numbers["false_positives"]
    counts = {
        "recall": f"{right:,} of {numbers['objects']:,} found",
        "precision": f"{right:,} of {right + wrong:,} detections right",
        "false_positives_per_image": f"{wrong:,} in {count(numbers['images'], 'image')}",
    }
    yield f"{'measure':<22}    value  95 % interval"
    for name, one in numbers["measures"].items():
        interval = "-" if one["low"] is None else f"{rounded(one['low'])} to {rounded(one['high'])}"
        named = name.replace("_", " ").replace("log average", "log-average")
        yield f"{named:<22}  {rounded(one['value']):>7}  {interval:<16}  {counts.get(name, '')}".rstrip()
    if numbers["images"] < FEW:
        yield f"With fewer than {FEW} images the last three intervals are too narrow: annotate more to be sure."


def _set_point(detector: Detector, run: EvaluationRun, name: str, false_positives: float) -> float:
    from whet.evaluation.curves import operating_point

    point = operating_point(run.evaluation.curve, false_positives)
    if number(point) is None:
        raise typer.BadParameter("nothing was detected in these images: there is no score that a point could be")
    with wrong_call_if_value_error():
        detector.set_operating_point(name, point)
    return point


def _draw(
    run: EvaluationRun, out: Path | None, draw: Path | None, model: str, numbers: dict[str, Any]
) -> tuple[list[Path], str]:
    from whet.plots.figure import draw_results, write_report

    if draw is not None:
        draw_results(run, draw)
    written, fault = ([], "") if out is None else write_report(run, out, Path(model).stem, numbers)
    return [*written, *([] if draw is None else [draw])], fault
