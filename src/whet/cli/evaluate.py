"""`whet evaluate`: recall, precision and false positives of a detector on annotated images."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.inputs import AnnotationOptions, skipped
from whet.cli.options import (
    Class,
    ExitCode,
    Force,
    FormatOption,
    ImageFolder,
    Json,
    MaxSize,
    MinScore,
    MinSize,
    Model,
    NWorkers,
    Quiet,
    ScaleFactor,
    Scheduler,
    Seed,
    Split,
    Step,
    Threads,
    is_model_file,
    model_out,
    parse_min_score,
    path_or_url,
    scan_options,
    usage_errors,
    workers_of,
)
from whet.cli.output import exit_if_skipped, finite_or_none, plural, progress_bar, rounded, say, say_json, start, warn
from whet.cli.training import advice_lines, advice_table, error_lines, errors_table

if TYPE_CHECKING:
    from whet.detector.classes import MultiClassDetector
    from whet.detector.detector import Detector
    from whet.evaluation.runs import EvaluationRun


# With fewer images a bootstrap rarely draws the rare failures, and its intervals are too narrow.
MIN_IMAGES = 30


def evaluate(
    model: Model,
    annotations: Annotated[
        Path,
        typer.Argument(metavar="ANNOTATIONS", parser=path_or_url, help="Annotated images: a file or a directory."),
    ],
    format: FormatOption = None,
    images: ImageFolder = None,
    class_: Class = None,
    split: Split = None,
    iou: Annotated[
        float,
        typer.Option(
            min=0, max=0.99, metavar="IOU", help="An object is found if a box overlaps it with more than this IoU."
        ),
    ] = 0.5,
    min_score: MinScore = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    scale_factor: ScaleFactor = 1.2,
    step: Step = 1,
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
    force: Force = False,
    seed: Seed = 0,
    threads: Threads = None,
    scheduler: Scheduler = None,
    n_workers: NWorkers = None,
    as_json: Json = False,
    quiet: Quiet = False,
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
    given = locals()
    start(quiet=quiet)
    from whet.detector.detector import Detector
    from whet.detector.storage import load_model

    if save_as is not None and set_point is None:
        raise typer.BadParameter(f"got --save-as {save_as} without --set-point; use --set-point NAME")
    if set_point is not None:
        _check_no_view(model if save_as is None else str(save_as))
    loaded = whole = load_model(model)
    if class_ is not None and not isinstance(loaded, Detector) and loaded.classes != (class_,):
        loaded = loaded.of_class(class_)
    if isinstance(loaded, Detector) or len(loaded.classes) == 1:
        # A class with views is no model of its own: its file may have others.
        one = _Evaluated.from_options(given, loaded, loaded if isinstance(loaded, Detector) else whole)
        one.show(as_json=as_json, quiet=quiet)
        one.exit_if_skipped()
        return
    if set_point is not None:
        first = loaded.classes[0]
        one_of_them = f"{model}:{first}" if first in loaded else f"--class {first}"
        raise typer.BadParameter(f"got --set-point for several classes; name one: {one_of_them}")
    done = {
        name: _Evaluated.from_options(_of_class(given, name), loaded.of_class(name), loaded) for name in loaded.classes
    }
    precisions = [one.results["measures"]["average_precision"]["value"] for one in done.values()]
    mean = None if None in precisions else sum(precisions) / len(precisions)
    if as_json:
        results = {name: one.results for name, one in done.items()}
        say_json({"classes": results, "mean_average_precision": mean})
    for name, one in done.items():
        if not as_json and not quiet:
            say(f"class {name}:")
        one.show(as_json=False, quiet=quiet or as_json)
    if not as_json and not quiet:
        say(f"mean average precision of {len(done)} classes: {rounded(mean)}")
    for one in done.values():
        one.exit_if_skipped()


def _check_no_view(target: str) -> None:
    """Raise a usage error for an output that is one view of a class: all views have the same operating points."""
    from whet.detector.classes import class_by_name
    from whet.detector.storage import class_in_file, load_classes

    file, name = class_in_file(target)
    if name is not None and file.is_file():
        class_name = class_by_name(load_classes(file)).get(name, name)
        if class_name != name:
            raise typer.BadParameter(
                f"got --set-point for {target}, one of several views, which share their operating points; use {file} "
                f"--class {class_name}"
            )


def _of_class(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The options of one of several classes; each has a folder of its own for reports and drawings."""
    folders = {key: None if given[key] is None else given[key] / name for key in ("out", "draw")}
    for folder in folders.values():
        if folder is not None:
            folder.parent.mkdir(parents=True, exist_ok=True)
    return {**given, **folders, "model": f"{given['model']}:{name}", "class_": name}


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
    def from_options(
        cls, given: Mapping[str, Any], detector: Detector | MultiClassDetector, whole: Detector | MultiClassDetector
    ) -> _Evaluated:
        """Evaluate one detector, or all views of a class, and write what was asked for.

        The operating point is stored in it, and saved with the `whole` model that it is a part of.
        """
        from whet.detector.classes import detectors_of
        from whet.evaluation.runs import evaluate_on, learned_from, trained_on
        from whet.io.annotations.annotation import HELD_OUT_PARTS
        from whet.plots.figure import check_places

        model, quiet, set_point = given["model"], given["quiet"], given["set_point"]
        target = None
        if set_point is not None:
            target = model_out(model, given["save_as"], force=given["force"], option="--save-as")
        source = AnnotationOptions(
            given["format"], given["images"], given["class_"], given["split"], detectors_of(detector)[0].class_name
        )
        annotated = source.read(given["annotations"], HELD_OUT_PARTS, quiet=quiet)
        check_places([image.path for image in annotated.images], given["out"], given["draw"])
        options = scan_options(*(given[name] for name in ("min_size", "max_size", "scale_factor", "step", "threads")))
        cluster = workers_of(given["scheduler"], given["n_workers"], given["threads"], quiet=quiet)
        with usage_errors(), cluster as workers, progress_bar("evaluating", hidden=quiet) as progress:
            run = evaluate_on(
                workers,
                detector,
                annotated.images,
                iou=given["iou"],
                min_score=parse_min_score(given["min_score"]),
                progress=progress,
                **options,
            )
        problems = [str(problem) for problem in skipped(annotated.problems)]
        results = _results(run, model, given["annotations"], given["iou"], given["seed"], problems)
        results |= {"class": annotated.classes[0], "split": annotated.splits[0] if len(annotated.splits) == 1 else ""}
        results["trained_on"] = len(trained_on(detector, run.paths))
        results["learned_from"] = len(learned_from(detector, run.paths))
        results["estimated_false_positives_per_image"] = _estimate(detector, run)
        if set_point is not None and target is not None:
            point = _set_point(detector, run, set_point, given["false_positives"])
            whole.save(target)
            results["operating_point"] = {"name": set_point, "min_score": point, "model": str(target)}
        written, fault = _write_report(run, given["out"], given["draw"], model, results)
        return cls(results, run, written, fault, problems, len(annotated.images))

    def show(self, *, as_json: bool, quiet: bool) -> None:
        """Print the results, and warnings after them."""
        results, run = self.results, self.run
        if as_json:
            say_json(results)
        elif not quiet:
            advice = *advice_lines(run.advice), *_estimate_lines(results)
            lines = *_table(results), *error_lines(run.errors), *advice, *_point_lines(results)
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
            raise typer.Exit(ExitCode.SOME_SKIPPED)


def _results(
    run: EvaluationRun, model: str, annotations: Path, iou: float, seed: int, problems: list[str]
) -> dict[str, Any]:
    measures = {
        name.replace(" ", "_").replace("-", "_"): {
            "value": finite_or_none(one.value),
            "low": finite_or_none(one.low),
            "high": finite_or_none(one.high),
        }
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
        "iou": iou,
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
    for name, one in results["measures"].items():
        interval = "-" if one["low"] is None else f"{rounded(one['low'])} to {rounded(one['high'])}"
        title = name.replace("_", " ").replace("log average", "log-average")
        yield f"{title:<26}  {rounded(one['value']):>7}  {interval:<16}  {counts.get(name, '')}".rstrip()
    if results["images"] < MIN_IMAGES:
        yield f"Warning: fewer than {MIN_IMAGES} images; the last three intervals are too narrow"


# The estimate is of other images: a rate is far above it from this factor on, for all of its 95 % interval.
FAR_ABOVE = 2.0


def _estimate(detector: Detector | MultiClassDetector, run: EvaluationRun) -> float | None:
    """False positives per image that the model estimates; None unless the default minimum score is in use.

    Views estimate for themselves, and not what their detections are together.
    """
    from whet.detector.classes import detectors_of

    first, *others = detectors_of(detector)
    is_default = run.threshold == first.reporting.min_score(None)
    return None if others or first.estimate is None or not is_default else first.estimate.false_positives_per_image


def _estimate_lines(results: dict[str, Any]) -> Iterator[str]:
    """How to set the minimum score, if these images have far more false positives than the model estimates."""
    estimated, rate = results["estimated_false_positives_per_image"], results["measures"]["false_positives_per_image"]
    if estimated is None or "operating_point" in results or (rate["low"] or 0.0) <= FAR_ABOVE * max(estimated, 0.01):
        return
    model, annotations = results["model"], results["annotations"]
    save_as = "" if is_model_file(model) else " --save-as mine.whet"
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


def _set_point(detector: Detector | MultiClassDetector, run: EvaluationRun, name: str, false_positives: float) -> float:
    from whet.detector.classes import detectors_of
    from whet.evaluation.curves import operating_point

    point = operating_point(run.evaluation.curve, false_positives)
    if finite_or_none(point) is None:
        raise typer.BadParameter(
            f"got --set-point {name}, but the detector found nothing in these images; use images that contain objects"
        )
    with usage_errors():
        for view in detectors_of(detector):
            view.set_operating_point(name, point)
    return point


def _write_report(
    run: EvaluationRun, out: Path | None, draw: Path | None, model: str, results: dict[str, Any]
) -> tuple[list[Path], str]:
    from whet.plots.figure import draw_results, write_report

    if draw is not None:
        draw_results(run, draw)
    written, fault = ([], "") if out is None else write_report(run, out, Path(model).stem, results)
    return [*written, *([] if draw is None else [draw])], fault
