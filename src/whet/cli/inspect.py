"""`whet inspect`: the contents of a detector, as plain data and as text."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import ExitCode, Json, Model, Quiet, Seed, Threads, refuse
from whet.cli.output import estimate_fields, plural, say, say_json, start, warnings_as_lines

if TYPE_CHECKING:
    from whet.cascade.cascade import Cascade
    from whet.cascade.stage import LearningStage, Stage, TrainedStage
    from whet.detector.detector import Detector


def inspect(
    model: Model,
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGES", help="Count the windows of these images that each stage rejects."),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the first features of each stage on the mean positive (PNG)."),
    ] = None,
    windows: Annotated[int, typer.Option(min=1, metavar="N", help="Number of random windows to count.")] = 20_000,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check statistics, weights, corrections and the file; exit code 1 if one fails."),
    ] = False,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the stages, sample counts, corrections, reference set, operating points and provenance of a detector.

    Images that cannot be read or are too small are skipped and listed; the exit code is then 5.

    \b
    Examples:
      whet inspect face
      whet inspect mine.whet --draw features.png
      whet inspect mine.whet --check
      whet inspect mine.whet shots/ --json | jq .rejected
    """
    start(quiet=quiet)
    from whet.detector.detector import Detector
    from whet.detector.storage import load_model

    detector = load_model(model)
    if check:
        refuse("with --check; run the two one after the other", draw=draw, images=images)
        _check({"": detector} if isinstance(detector, Detector) else detector, as_json=as_json, quiet=quiet)
        return
    if not isinstance(detector, Detector):
        refuse("for a model of several classes; name one of them: FILE:CLASS", draw=draw, images=images)
        if as_json:
            tables = {name: Summary.from_detector(one).table() for name, one in detector.items()}
            say_json({"classes": tables})
        elif not quiet:
            for name, one in detector.items():
                say(f"{model}:{name} {one!r}")
        return
    summary = Summary.from_detector(detector)
    rejected, is_incomplete = None, False
    if images:
        rejected, is_incomplete = _count(detector.cascade, images, windows, seed, threads)
    if draw is not None:
        from whet.plots.drawing import save_image
        from whet.plots.sheets import feature_sheet

        save_image(feature_sheet(detector), draw)
    if as_json:
        counted = {} if rejected is None else {"windows": windows, "rejected": rejected}
        say_json(summary.table() | counted)
    elif not quiet:
        for line in (*_table(summary, rejected, windows), *_learned(summary), *_provenance(summary)):
            say(line)
        if draw is not None:
            say(f"Wrote {draw}")
    if is_incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


def _check(detectors: Mapping[str, Detector], *, as_json: bool, quiet: bool) -> None:
    """Print which checks hold; exit with code 1 if one does not."""
    found = {name: detector.check() for name, detector in detectors.items()}
    if as_json:
        tables = {name: [asdict(one) | {"holds": one.holds} for one in checks] for name, checks in found.items()}
        say_json({"checks": tables.get("", tables)})
    elif not quiet:
        for name, checks in found.items():
            for one in checks:
                say(f"{f'class {name}: ' * bool(name)}{one.name}: {'; '.join(one.faults) or 'yes'}")
    if not all(one.holds for checks in found.values() for one in checks):
        raise typer.Exit(ExitCode.FAILED)


@dataclass(frozen=True)
class StageSummary:
    """A stage: its features, and the samples it has counted, in training and, if it learns, since.

    `rejects` is the share of the negatives it was trained on that its threshold rejects, as the two projected Gaussians
    say it: an estimate without any image, of windows that all stages before accept. Early exits reject some more.
    """

    family: str
    n_weak: int
    is_soft: bool
    learns: bool
    positives: int = 0
    negatives: int = 0
    learned_positives: int = 0
    learned_negatives: int = 0
    rejects: float | None = None


@dataclass(frozen=True)
class Summary:
    """A detector: window (height, width), stages, what was learned, the reference set, points and provenance."""

    class_name: str | None
    window: tuple[int, int]
    n_weak: int
    base_id: str
    min_sigma: float
    stages: tuple[StageSummary, ...]
    operating_points: dict[str, float]
    corrections: dict[str, int]
    reference: dict[str, int] | None
    estimate: dict[str, float] | None
    provenance: dict[str, Any]
    training_images: int | None = None

    @classmethod
    def from_detector(cls, detector: Detector) -> Summary:
        """Summarise a detector.

        >>> from whet.detector.storage import load
        >>> face = Summary.from_detector(load("face"))
        >>> face.window, len(face.stages), face.stages[1].family
        ((24, 24), 10, 'lbp')
        """
        base = detector.base
        parts = zip(base.stages, detector.delta.counts, base.cascade.stages, strict=True)
        stages = tuple(_summary(*part) for part in parts)
        return cls(
            detector.class_name,
            (int(base.window[0]), int(base.window[1])),
            sum(stage.n_weak for stage in stages),
            base.base_id,
            base.min_sigma,
            stages,
            dict(detector.reporting.operating_points),
            _corrections(detector),
            _reference(detector),
            estimate_fields(detector.estimate),
            asdict(base.provenance),
            None if base.training_images is None else len(base.training_images),
        )

    def table(self) -> dict[str, Any]:
        """All of it as a table for JSON."""
        return asdict(self)


def _corrections(detector: Detector) -> dict[str, int]:
    """Numbers of records by kind, and of the corrections that do not hold."""
    kinds = Counter(record.kind_name for record in detector.records)
    counts = {name: kinds[name] for name in ("object", "not object", "example")}
    return counts | {"unsatisfied": len(detector.unsatisfied)}


def _reference(detector: Detector) -> dict[str, int] | None:
    """Numbers of positives, negatives and images of the reference set."""
    from whet.detector.reference import GUARD_POSITIVE, POSITIVE

    reference = detector.base.reference
    if reference is None:
        return None
    n_positives = int(((reference.part == GUARD_POSITIVE) | (reference.part == POSITIVE)).sum())
    n_negatives = len(reference.part) - n_positives
    return {"positives": n_positives, "negatives": n_negatives, "images": reference.n_images}


def _summary(stage: TrainedStage, learned: tuple[int, int], run: Stage) -> StageSummary:
    from whet.cascade.stage import LearningStage
    from whet.features.families import family_name

    family, is_soft = family_name(stage.features), run.rejection_thresholds is not None
    if not isinstance(stage, LearningStage):
        positive, negative = stage.statistics
        return StageSummary(family, len(stage), is_soft, False, int(positive.n), int(negative.n))
    counts = int(stage.positive.n), int(stage.negative.n), int(learned[0]), int(learned[1])
    return StageSummary(family, len(stage), is_soft, True, *counts, _rejects(stage))


def _rejects(stage: LearningStage) -> float | None:
    from scipy.special import ndtr

    vote = stage.discriminant()
    p = vote.projection
    return float(ndtr((vote.threshold - p.mu_2) / p.sigma_2)) if p.sigma_2 > 0 else None


def _count(cascade: Cascade, images: list[str], windows: int, seed: int, threads: int | None) -> tuple[list[int], bool]:
    """Windows rejected per stage, and whether images were skipped."""
    from rich.console import Console

    from whet.io.images import find_images
    from whet.training.negatives import SkippedImagesWarning, rejected_by_stage

    with warnings_as_lines(Console(stderr=True)) as warned:
        rejected = rejected_by_stage(cascade, find_images(images, sys.stdin), windows, seed, threads)
    return rejected, any(isinstance(warning, SkippedImagesWarning) for warning in warned)


def _table(summary: Summary, rejected: list[int] | None, windows: int) -> Iterator[str]:
    from whet.features.families import TREES

    (height, width), stages = summary.window, summary.stages
    if summary.class_name is not None:
        yield f"Class {summary.class_name}"
    yield f"Window {width} x {height}, {len(stages)} stages, {summary.n_weak} weak learners"
    yield f"Base {summary.base_id[:12]}"
    if summary.stages[0].family not in TREES:
        yield f"Windows with standard deviation below {summary.min_sigma:g} are skipped"
    counted = "" if rejected is None else f"  of {windows:,} windows"
    yield f"stage  {_kinds(summary)[0]}  learners  positives  negatives  learned (+, -)  rejects{counted}"
    yield from _rows(summary, rejected, windows)
    if rejected is not None:
        yield f"Of {windows:,} windows, {rejected[0]:,} are too uniform and {windows - sum(rejected):,} pass all stages"


def _rows(summary: Summary, rejected: list[int] | None, windows: int) -> Iterator[str]:
    left = windows - (rejected[0] if rejected else 0)
    for number, (stage, kind) in enumerate(zip(summary.stages, _kinds(summary)[1:], strict=True)):
        counts = f"{stage.positives:9,}  {stage.negatives:9,}" if stage.positives else " " * 20
        learned = f"{stage.learned_positives:,}, {stage.learned_negatives:,}" if stage.learns else "fixed"
        rejects = "" if stage.rejects is None else f"{stage.rejects:.0%}"
        row = f"{number:5d}  {kind}  {stage.n_weak:8d}  {counts}  {learned:>14}  {rejects:>7}"
        if rejected is not None:
            row += f"  {rejected[1 + number]:,} of {left:,}"
            left -= rejected[1 + number]
        yield row


def _kinds(summary: Summary) -> list[str]:
    """The heading and the features of each stage, padded to one width."""
    kinds = ["features", *(stage.family + (", soft" if stage.is_soft else "") for stage in summary.stages)]
    return [f"{kind:<{max(10, *map(len, kinds))}}" for kind in kinds]


def _learned(summary: Summary) -> Iterator[str]:
    counts, reference, estimate = summary.corrections, summary.reference, summary.estimate
    corrections = plural(counts["object"] + counts["not object"], "correction")
    broken = f"; {counts['unsatisfied']:,} not satisfied" if counts["unsatisfied"] else ""
    yield (
        f"Learned: {corrections} ({counts['object']:,} object, {counts['not object']:,} not object{broken}), "
        f"{plural(counts['example'], 'example')}"
    )
    if reference is None:
        yield "Reference set: none"
    else:
        samples = f"{plural(reference['positives'], 'positive')}, {plural(reference['negatives'], 'negative')}"
        yield f"Reference set: {samples} from {plural(reference['images'], 'image')}"
    if summary.training_images is not None:
        yield f"Record of training images: {plural(summary.training_images, 'image')}"
    if estimate is not None:
        rate = estimate["false_positives_per_image"]
        yield f"Estimate: recall {100 * estimate['recall']:.1f} %, {rate:.2g} false positives per image"


def _provenance(summary: Summary) -> Iterator[str]:
    for name, score in sorted(summary.operating_points.items()):
        yield f"Operating point '{name}': minimum score {score:.4g}"
    provenance = summary.provenance
    for name in ("data", "licence", "command"):
        if provenance[name]:
            yield f"{name.capitalize()}: {provenance[name]}"
    for name, value in provenance["goals"].items():
        yield f"  goal {name}: {value}"
    for name, value in provenance["facts"].items():
        yield f"  {name}: {value}"
