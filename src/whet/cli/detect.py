"""`whet detect` and `whet evaluate`: the objects in images, and how well they are found in annotated ones."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli import inputs, options
from whet.cli.output import (
    exit_if_skipped,
    finite_or_none,
    plural,
    progress_bar,
    rounded,
    say,
    say_json,
    start,
    warn,
    write_text,
)
from whet.cli.train_report import advice_lines, advice_table, error_lines, errors_table

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.errors import UnreadableImageError
    from whet.evaluation.runs import DetectedImage, EvaluationRun
    from whet.images.detections import Detections
    from whet.plots.drawing import DrawnFolder


class Format(StrEnum):
    """The layouts of `whet.io.detection_files`, listed here so that help needs no imports."""

    text = "text"
    json = "json"
    csv = "csv"
    coco = "coco"


def format_of(out: Path | None) -> Format:
    """The format that the suffix of a file names, or text.

    >>> format_of(Path("boxes.CSV")).value, format_of(Path("boxes.txt")).value
    ('csv', 'text')
    """
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    return Format(suffix) if suffix in ("json", "csv") else Format.text


def detect(
    model: options.Model,
    images: options.Images,
    min_score: options.MinScore = None,
    max_detections: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the N highest-scoring detections per image.")
    ] = None,
    min_size: options.MinSize = None,
    max_size: options.MaxSize = None,
    scale_factor: options.ScaleFactor = 1.2,
    step: options.Step = 1,
    fast: Annotated[
        bool | None,
        typer.Option(
            "--fast/--full", help="Look at every second row and column first, or at all (default: as the model says)."
        ),
    ] = None,
    layout: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Output format (default: that of the suffix of --out, or text)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output file (default: standard output).")
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the images with their detections drawn to this directory.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(metavar="FILE", help="COCO file with the image ids for --format coco.")
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(min=1, metavar="MB", help="Megabytes that a scan may take (default: 1250, or a quarter of all)."),
    ] = None,
    threads: options.Threads = None,
    scheduler: options.Scheduler = None,
    n_workers: options.NWorkers = None,
    quiet: options.Quiet = False,
) -> None:
    """Detect objects in images and print their boxes and scores.

    JSON, CSV and COCO also have the class, if the model names it, and the probability that a
    detection is right, if the model can estimate it. To correct false positives, add a column (or key) wrong with 1 for
    each of them, and run whet learn --detections.

    Images that cannot be read, or do not fit into memory, are skipped and listed at the end; the
    exit code is then 5.

    \b
    Examples:
      whet detect face holiday.jpg
      whet detect mine.whet shots/ --draw drawn --min-score 40
      whet detect face 'shots/**/*.png' --format csv --out boxes.csv
      find . -name '*.jpg' | whet detect face - --json | jq '.[].boxes'
    """
    start(quiet=quiet)
    from whet.detector.storage import load
    from whet.evaluation.runs import detect_many
    from whet.io.detection_files import PIECEMEAL, Layout, coco_categories, coco_ids, ids_of, pieces
    from whet.io.image_files import find_images
    from whet.plots.drawing import DrawnFolder

    if as_json and layout not in (None, Format.json):
        raise typer.BadParameter(f"got --json and --format {layout}; choose one")
    chosen = Layout.json if as_json else Layout((layout or format_of(out)).value)
    if ids is not None and chosen is not Layout.coco:
        raise typer.BadParameter(f"got --ids {ids} with --format {chosen}; expected --format coco")
    detector = load(model)
    paths = find_images(images, sys.stdin)
    # Numbered by position among all images, so that a skipped image does not renumber the others.
    numbers = {path: n for n, path in enumerate(paths, start=1)} if ids is None else ids_of(paths, coco_ids(ids))
    drawings = None if draw is None else DrawnFolder(draw, paths)
    with options.usage_errors(), options.workers_of(scheduler, n_workers, threads, quiet=quiet) as workers:
        run = detect_many(
            detector,
            paths,
            workers=workers,
            max_detections=max_detections,
            fast=fast,
            max_memory=None if max_memory is None else max_memory * 1_000_000,
            **options.scan_options(min_size, max_size, scale_factor, step, threads, min_score),
        )
        # Lines that appear one by one on a terminal are progress enough, and a bar would be mixed up with them.
        is_streaming = out is None and chosen in PIECEMEAL and sys.stdout.isatty()
        with progress_bar("detecting", hidden=quiet or is_streaming or len(paths) < 2) as progress:
            results = _Results(drawings, lambda done: progress(done / len(paths)))
            categories = {} if ids is None else coco_categories(ids)
            write_text(pieces(results.detections(run), chosen, numbers, categories), out)
    if not quiet and out is not None:
        n = len(paths) - len(results.errors)
        say(f"Wrote {plural(results.n_boxes, 'detection')} in {plural(n, 'image')} to {out}", err=True)
    if not quiet and draw is not None:
        say(f"Wrote drawings to {draw}/", err=True)
    exit_if_skipped(results.errors, len(paths))


@dataclass
class _Results:
    """Counts the detections on their way from the scan to the output, collects errors and draws the images."""

    drawings: DrawnFolder | None
    progress: Callable[[int], None]
    n_boxes: int = 0
    errors: list[UnreadableImageError] = field(default_factory=list)

    def detections(self, run: Iterable[DetectedImage]) -> Iterator[tuple[Path, Detections]]:
        """Detections in the readable images; their windows, which take far more memory, are dropped."""
        import numpy as np

        from whet.images.detections import FiredWindows

        for number, image in enumerate(run, start=1):
            if image.error is not None:
                self.errors.append(image.error)
            if image.found is not None:
                self.n_boxes += len(image.found)
                if self.drawings is not None:
                    self.drawings.add(image.path, image.found)
                yield image.path, replace(image.found, windows=FiredWindows(), group=np.empty(0, np.intp))
            self.progress(number)


# With fewer images a bootstrap rarely draws the rare failures, and its intervals are too narrow.
MIN_IMAGES = 30


def evaluate(
    model: options.Model,
    annotations: Annotated[
        Path,
        typer.Argument(
            metavar="ANNOTATIONS", parser=options.path_or_url, help="Annotated images: a file or a directory."
        ),
    ],
    format: options.FormatOption = None,
    images: options.ImageFolder = None,
    class_: options.Class = None,
    split: options.Split = None,
    iou: Annotated[
        float,
        typer.Option(
            min=0, max=0.99, metavar="IOU", help="An object is found if a box overlaps it with more than this IoU."
        ),
    ] = 0.5,
    min_score: options.MinScore = None,
    min_size: options.MinSize = None,
    max_size: options.MaxSize = None,
    scale_factor: options.ScaleFactor = 1.2,
    step: options.Step = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Write a report: numbers, curves, worst errors."),
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all images with hits, misses and false positives drawn.")
    ] = None,
    set_point: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Store an operating point of this name in the model."),
    ] = None,
    false_positives: Annotated[
        float, typer.Option(min=0, metavar="RATE", help="False positives per image at --set-point.")
    ] = 0.1,
    save_as: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output model of --set-point (default: overwrite MODEL).")
    ] = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    scheduler: options.Scheduler = None,
    n_workers: options.NWorkers = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure a detector on annotated images that were not used for training.

    Of a data set with several parts, the part test is used, or else val. If there are several classes, that of the
    model is used; a model of several classes is evaluated for each. A warning counts the images on which the model was
    trained.

    Recall, precision and false positives per image hold at the minimum score in use. Average precision and
    log-average miss rate cover all scores. The 95 % intervals resample images, not boxes. A table shows the kinds of
    errors, and what average precision would be without each. If recall or average precision is below 0.8, advice
    follows.

    \b
    Examples:
      whet evaluate mine.whet val.json
      whet evaluate mine.whet VOC2007 --class car --out report
      whet evaluate mine.whet val.json --set-point default --false-positives 0.1
    """
    given = SimpleNamespace(**locals())
    start(quiet=quiet)
    from whet.detector.storage import load

    if save_as is not None and set_point is None:
        raise typer.BadParameter(f"got --save-as {save_as} without --set-point; use --set-point NAME")
    whole = load(model)
    loaded = whole if class_ is None or len(whole.classes) == 1 else whole.select(class_)
    if len(loaded.classes) == 1:
        evaluated = _Evaluated.from_options(given, loaded, whole)
        evaluated.show(as_json=as_json, quiet=quiet)
        evaluated.exit_if_skipped()
        return
    if set_point is not None:
        raise typer.BadParameter(f"got --set-point for several classes; name one: --class {loaded.classes[0]}")
    done = {
        name: _Evaluated.from_options(_options_of(given, name), loaded.select(name), loaded) for name in loaded.classes
    }
    precisions = [evaluated.results["measures"]["average_precision"]["value"] for evaluated in done.values()]
    mean = None if None in precisions else sum(precisions) / len(precisions)
    if as_json:
        results = {name: evaluated.results for name, evaluated in done.items()}
        say_json({"classes": results, "mean_average_precision": mean})
    for name, evaluated in done.items():
        if not as_json and not quiet:
            say(f"class {name}:")
        evaluated.show(as_json=False, quiet=quiet or as_json)
    if not as_json and not quiet:
        say(f"mean average precision of {len(done)} classes: {rounded(mean)}")
    for evaluated in done.values():
        evaluated.exit_if_skipped()


def _options_of(given: SimpleNamespace, name: str) -> SimpleNamespace:
    """The options of one of several classes; each has a folder of its own for reports and drawings."""
    folders = {key: folder / name for key, folder in (("out", given.out), ("draw", given.draw)) if folder is not None}
    for folder in folders.values():
        folder.parent.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(**{**vars(given), **folders, "model": f"{given.model}:{name}", "class_": name})


@dataclass(frozen=True)
class _Evaluated:
    """An evaluation: the numbers for --json, the run, what was written, and what was skipped."""

    results: dict[str, Any]
    run: EvaluationRun
    written: list[Path]
    fault: str
    problems: list[str]
    n_images: int

    @classmethod
    def from_options(cls, given: SimpleNamespace, detector: Detector, whole: Detector) -> _Evaluated:
        """Evaluate a detector of one class, and write what was asked for.

        The operating point is stored in it, and saved with the `whole` model that it is a part of.
        """
        from whet.evaluation.runs import evaluate_on, learned_from, trained_on
        from whet.io.annotations.annotation import HELD_OUT_PARTS
        from whet.plots.figure import check_places, draw_results, write_report

        model, quiet, set_point = given.model, given.quiet, given.set_point
        target = None
        if set_point is not None:
            target = options.model_out(model, given.save_as, force=given.force, option="--save-as")
        source = inputs.AnnotationOptions(given.format, given.images, given.class_, given.split, detector.class_name)
        annotated = source.read(given.annotations, HELD_OUT_PARTS, quiet=quiet)
        check_places([image.path for image in annotated.images], given.out, given.draw)
        sizes = given.min_size, given.max_size, given.scale_factor, given.step
        scan = options.scan_options(*sizes, given.threads, given.min_score)
        cluster = options.workers_of(given.scheduler, given.n_workers, given.threads, quiet=quiet)
        with options.usage_errors(), cluster as workers, progress_bar("evaluating", hidden=quiet) as progress:
            run = evaluate_on(workers, detector, annotated.images, iou=given.iou, progress=progress, **scan)
        problems = [str(problem) for problem in inputs.skipped(annotated.problems)]
        estimate, is_default = detector.estimate, run.threshold == detector.reporting.min_score(None)
        rate = None if estimate is None or not is_default else estimate.false_positives_per_image
        results = _results(run, given, problems) | {
            "class": annotated.classes[0],
            "split": annotated.splits[0] if len(annotated.splits) == 1 else "",
            "trained_on": len(trained_on(detector, run.paths)),
            "learned_from": len(learned_from(detector, run.paths)),
            "estimated_false_positives_per_image": rate,
            "lowest_score": _lowest(run),
        }
        if set_point is not None and target is not None:
            point = _set_point(detector, run, set_point, given.false_positives)
            whole.save(target)
            results["operating_point"] = {"name": set_point, "min_score": point, "model": str(target)}
        if given.draw is not None:
            draw_results(run, given.draw)
        written, fault = ([], "") if given.out is None else write_report(run, given.out, Path(model).stem, results)
        written += [] if given.draw is None else [given.draw]
        return cls(results, run, written, fault, problems, len(annotated.images))

    def show(self, *, as_json: bool, quiet: bool) -> None:
        """Print the results, and warnings after them."""
        results, run = self.results, self.run
        if as_json:
            say_json(results)
        elif not quiet:
            advice = *advice_lines(run.advice), *_estimate_lines(results)
            lines = *_table(results), *_limit_lines(results), *error_lines(run.errors), *advice, *_point_lines(results)
            for line in lines:
                say(line)
            if self.written:
                say(f"Wrote {', '.join(map(str, self.written))}")
        for how, key in (("was trained on", "trained_on"), ("learned from", "learned_from")):
            if results[key]:
                warn(
                    f"Warning: the model {how} {results[key]:,} of these {plural(len(run.paths), 'image')}, so the "
                    "results are too optimistic; evaluate on other images"
                )
        if self.fault and not quiet:
            warn(f"Warning: curves were not drawn: {self.fault}")

    def exit_if_skipped(self) -> None:
        """Exit with code 5 if images or annotations were skipped."""
        exit_if_skipped(self.run.unread, self.n_images)
        if self.problems:
            raise typer.Exit(options.ExitCode.SOME_SKIPPED)


def _results(run: EvaluationRun, given: SimpleNamespace, problems: list[str]) -> dict[str, Any]:
    measures = {
        name.replace(" ", "_").replace("-", "_"): {
            key: finite_or_none(getattr(measure, key)) for key in ("value", "low", "high")
        }
        for name, measure in run.measures(given.seed).items()
    }
    return {
        "model": given.model,
        "annotations": str(given.annotations),
        "images": len(run.paths),
        "objects": int(run.truths.sum()),
        "ignored": sum(int(image.ignored.sum()) for image in run.evaluation.images),
        "found": int(run.found.sum()),
        "missed": run.n_missed,
        "false_positives": run.n_false_positives,
        "iou": given.iou,
        "min_score": finite_or_none(run.threshold),
        "measures": measures,
        "errors": errors_table(run.errors),
        "advice": advice_table(run.advice),
        "skipped": [*problems, *map(str, run.unread)],
    }


def _table(results: dict[str, Any]) -> Iterator[str]:
    score = "no minimum score" if results["min_score"] is None else f"minimum score {results['min_score']:.4g}"
    ignored = f" ({results['ignored']:,} ignored)" if results["ignored"] else ""
    yield f"{plural(results['images'], 'image')}, {plural(results['objects'], 'object')}{ignored}, {score}"
    right, wrong = results["found"], results["false_positives"]
    counts = {
        "recall": f"{right:,} of {plural(results['objects'], 'object')} found",
        "precision": f"{right:,} of {plural(right + wrong, 'detection')} correct",
        "false_positives_per_image": f"{plural(wrong, 'false positive')} in {plural(results['images'], 'image')}",
    }
    yield f"{'measure':<26}    value  95 % interval"
    for name, measure in results["measures"].items():
        interval = "-" if measure["low"] is None else f"{rounded(measure['low'])} to {rounded(measure['high'])}"
        title = name.replace("_", " ").replace("log average", "log-average")
        yield f"{title:<26}  {rounded(measure['value']):>7}  {interval:<16}  {counts.get(name, '')}".rstrip()
    if results["images"] < MIN_IMAGES:
        yield f"Warning: fewer than {MIN_IMAGES} images; the last three intervals are too narrow"


def _lowest(run: EvaluationRun) -> dict[str, Any]:
    """Objects that are not found at any score, and false positives per image at the lowest."""
    curve = run.evaluation.curve
    rate = float(curve.false_positives_per_image[-1])
    return {"missed": curve.n_truths - int(curve.found[-1]), "false_positives_per_image": finite_or_none(rate)}


def _limit_lines(results: dict[str, Any]) -> Iterator[str]:
    """Objects that no minimum score would find, because the model rejects them with few false positives."""
    missed, rate = results["lowest_score"]["missed"], results["lowest_score"]["false_positives_per_image"]
    # With fewer false positives per image at any score, the thresholds of a model are what it cannot go below.
    if missed and rate is not None and rate < 1.0:
        yield (
            f"Not found at any score: {plural(missed, 'object')}. The thresholds of the model let no more than "
            f"{rate:.2g} false positives per image through."
        )


def _estimate_lines(results: dict[str, Any]) -> Iterator[str]:
    """How to set the minimum score, if these images have far more false positives than the model estimates."""
    estimated, rate = results["estimated_false_positives_per_image"], results["measures"]["false_positives_per_image"]
    # The estimate is of other images: a rate is far above it from this factor on, for all of its 95 % interval.
    if estimated is None or "operating_point" in results or (rate["low"] or 0.0) <= 2.0 * max(estimated, 0.01):
        return
    model, annotations = results["model"], results["annotations"]
    save_as = "" if options.is_model_file(model) else " --save-as mine.whet"
    yield (
        f"{rate['value']:.2g} false positives per image, where the model estimates {estimated:.2g}. "
        "To set the minimum score on images like these:"
    )
    yield (
        f"  whet evaluate {shlex.quote(model)} {shlex.quote(annotations)} --set-point default --false-positives 0.1"
        f"{save_as}"
    )


def _point_lines(results: dict[str, Any]) -> Iterator[str]:
    if "operating_point" in results:
        point = results["operating_point"]
        yield f"Stored operating point '{point['name']}' (minimum score {point['min_score']:.4g}) in {point['model']}"
        yield f"Next: whet detect {point['model']} IMAGES --min-score {point['name']}"


def _set_point(detector: Detector, run: EvaluationRun, name: str, false_positives: float) -> float:
    from whet.evaluation.evaluation import operating_point

    point = operating_point(run.evaluation.curve, false_positives)
    if finite_or_none(point) is None:
        raise typer.BadParameter(
            f"got --set-point {name}, but the detector found nothing in these images; use images that contain objects"
        )
    with options.usage_errors():
        detector.set_operating_point(name, point)
    return point
