"""`whet inspect`: the contents of a detector, as plain data and as text."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import ExitCode, Json, Model, Quiet, Seed, refuse
from whet.cli.output import estimate_fields, plural, say, say_json, start

# Windows whose responses are computed at a time.
AT_ONCE = 2000

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.shape import ShapeDetector


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
    from whet.detector.storage import load

    detector = load(model)
    if check:
        refuse("with --check; run the two one after the other", draw=draw, images=images)
        _check(detector, as_json=as_json, quiet=quiet)
        return
    if len(detector.shapes()) > 1:
        why = "for a model of several classes or shapes; name a class with one shape: FILE:CLASS"
        refuse(why, draw=draw, images=images)
        if as_json:
            shapes = {name: map(Summary.from_detector, detector.shapes(name)) for name in detector.classes}
            say_json({"classes": {name: list(map(asdict, parts)) for name, parts in shapes.items()}})
        elif not quiet:
            for name, shape in detector.named_shapes.items():
                say(f"{name}: {shape.summary}")
        return
    summary = Summary.from_detector(detector.only)
    rejected, is_incomplete = None, False
    if images:
        rejected, is_incomplete = _count(detector.only, images, windows, seed)
    if draw is not None:
        from whet.plots.drawing import feature_sheet, save_image

        save_image(feature_sheet(detector), draw)
    if as_json:
        counted = {} if rejected is None else {"windows": windows, "rejected": rejected}
        say_json(asdict(summary) | counted)
    elif not quiet:
        for line in (*_table(summary, rejected, windows), *_learned(summary), *_provenance(summary)):
            say(line)
        if draw is not None:
            say(f"Wrote {draw}")
    if is_incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


def _check(detector: Detector, *, as_json: bool, quiet: bool) -> None:
    """Print which checks hold; exit with code 1 if one does not."""
    checks = detector.check()
    if as_json:
        say_json({"checks": [asdict(check) | {"holds": check.holds} for check in checks]})
    elif not quiet:
        for check in checks:
            say(f"{check.name}: {'; '.join(check.faults) or 'yes'}")
    if not all(check.holds for check in checks):
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
    """A detector: window (height, width), stages, what was learned, the reference set, points and provenance.

    Windows with a standard deviation below `min_sigma` are skipped; None for models that look at all.
    """

    class_name: str | None
    window: tuple[int, int]
    n_weak: int
    base_id: str
    min_sigma: float | None
    stages: tuple[StageSummary, ...]
    operating_points: dict[str, float]
    corrections: dict[str, int]
    reference: dict[str, int] | None
    estimate: dict[str, float] | None
    provenance: dict[str, Any]
    training_images: int | None = None
    samples: dict[str, int] | None = None
    refit: dict[str, int] | None = None

    @classmethod
    def from_detector(cls, detector: ShapeDetector) -> Summary:
        """Summarise a detector.

        >>> from whet.detector.storage import load
        >>> face = Summary.from_detector(load("face").only)
        >>> face.window, len(face.stages), face.stages[1].family
        ((24, 24), 10, 'lbp')
        """
        from whet.corrections.reference import GUARD_POSITIVE, POSITIVE
        from whet.models.contract import family_of

        base, reference = detector.current, None
        rows = family_of(base.model.family).summary(base.model, detector.total)
        (min_sigma,) = {row.pop("min_sigma", None) for row in rows}
        stages = tuple(StageSummary(**row) for row in rows)
        kinds = Counter(record.kind_name for record in detector.records)
        corrections = {name: kinds[name] for name in ("object", "not object", "example", "background")}
        if base.reference is not None:
            part = base.reference.part
            n_positives = int(((part == GUARD_POSITIVE) | (part == POSITIVE)).sum())
            counts = n_positives, len(part) - n_positives, base.reference.n_images
            reference = dict(zip(("positives", "negatives", "images"), counts, strict=True))
        return cls(
            detector.class_name,
            (int(base.window[0]), int(base.window[1])),
            sum(stage.n_weak for stage in stages),
            base.base_id,
            min_sigma,
            stages,
            dict(detector.reporting.operating_points),
            corrections | {"unsatisfied": len(detector.unsatisfied)},
            reference,
            estimate_fields(detector.estimate),
            asdict(base.provenance),
            None if base.training_images is None else len(base.training_images),
            _samples(detector),
            _refit(detector),
        )


def _samples(detector: ShapeDetector) -> dict[str, int] | None:
    """The crops that a detector keeps, of objects and of backgrounds, and their bytes with what records keep."""
    from whet.corrections.kept import OBJECT

    base = detector.base
    every = [*filter(None, [base.crops]), *(record.keeps.crops for record in detector.records if record.kept)]
    if not any(map(len, every)):
        return None
    n_objects = sum(int((crops.role == OBJECT).sum()) for crops in every)
    n_bytes = sum(len(crops.data) for crops in every)
    return {"objects": n_objects, "backgrounds": sum(map(len, every)) - n_objects, "bytes": n_bytes}


def _refit(detector: ShapeDetector) -> dict[str, int] | None:
    """How many records the last refit learned, and how many corrections it satisfies by itself."""
    refit = detector.refit_of
    return None if refit is None else {"learned": len(refit.learned), "satisfied": len(refit.satisfied)}


def _count(detector: ShapeDetector, images: list[str], windows: int, seed: int) -> tuple[list[int], bool]:
    """Random windows without contrast, those that each stage rejects of those before, and if images were skipped."""
    import numpy as np
    from rich.console import Console

    from whet.errors import UnreadableImageError
    from whet.images.pyramid import WindowIndex
    from whet.io.image_files import find_images

    paths, rng, votes = find_images(images, sys.stdin), np.random.default_rng(seed), detector.model.votes
    rejected, left, skipped = np.zeros(1 + len(votes.ends), np.int64), windows, []
    queue, last = list(paths), None
    while left and (queue or last):  # the last image that can be used also takes the share of those that cannot
        n_images, path = max(len(queue), 1), queue.pop(0) if queue else last
        assert path is not None
        try:
            pyramid = detector.pyramid(detector.pixels(path))
        except UnreadableImageError as error:
            skipped.append(str(error))
            continue
        if not pyramid.levels:
            skipped.append(f"{path.name}: smaller than the window")
            continue
        share = -(-left // n_images)
        left -= share
        last = path
        level = rng.integers(0, len(pyramid.levels), share)
        sides = np.array([pyramid.levels[i].shape for i in level]).T - np.array(detector.window)[:, None]
        y, x = (rng.random((2, share)) * (sides // pyramid.step + 1)).astype(np.intp) * pyramid.step
        index = WindowIndex(np.array(pyramid.scales)[level], y, x)
        for first in range(0, share, AT_ONCE):
            responses, has_contrast = detector.model.responses(pyramid, index.take(slice(first, first + AT_ONCE)))
            stage = votes.rejecting_stages(responses)
            rejected += np.bincount(np.where(has_contrast, stage + 1, 0), minlength=len(rejected) + 1)[: len(rejected)]
    if left:
        raise UnreadableImageError(
            f"none of the {len(paths)} images could be used ({'; '.join(skipped[:3])}): add images that are larger "
            "than the window"
        )
    for line in skipped:
        Console(stderr=True).print(f"Skipped {line}", markup=False, highlight=False)
    return rejected.tolist(), bool(skipped)


def _table(summary: Summary, rejected: list[int] | None, windows: int) -> Iterator[str]:
    (height, width), stages = summary.window, summary.stages
    if summary.class_name is not None:
        yield f"Class {summary.class_name}"
    yield f"Window {width} x {height}, {len(stages)} stages, {summary.n_weak} weak learners"
    yield f"Base {summary.base_id[:12]}"
    if summary.min_sigma is not None:
        yield f"Windows with standard deviation below {summary.min_sigma:g} are skipped"
    counted = "" if rejected is None else f"  of {windows:,} windows"
    texts = ["features", *(stage.family + (", soft" if stage.is_soft else "") for stage in stages)]
    heading, *kinds = (f"{text:<{max(10, *map(len, texts))}}" for text in texts)
    yield f"stage  {heading}  learners  positives  negatives  learned (+, -)  rejects{counted}"
    left = windows - (rejected[0] if rejected else 0)
    for number, (stage, kind) in enumerate(zip(stages, kinds, strict=True)):
        counts = f"{stage.positives:9,}  {stage.negatives:9,}" if stage.positives else " " * 20
        learned = f"{stage.learned_positives:,}, {stage.learned_negatives:,}" if stage.learns else "fixed"
        rejects = "" if stage.rejects is None else f"{stage.rejects:.0%}"
        row = f"{number:5d}  {kind}  {stage.n_weak:8d}  {counts}  {learned:>14}  {rejects:>7}"
        if rejected is not None:
            row += f"  {rejected[1 + number]:,} of {left:,}"
            left -= rejected[1 + number]
        yield row
    if rejected is not None:
        yield f"Of {windows:,} windows, {rejected[0]:,} are too uniform and {left:,} pass all stages"


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
    if summary.samples is not None:
        n_crops, size = summary.samples["objects"] + summary.samples["backgrounds"], summary.samples["bytes"]
        yield (
            f"Samples: {plural(n_crops, 'small crop')} ({plural(summary.samples['objects'], 'object')}), "
            f"{size / 1e6:.1f} MB; whet strip removes them"
        )
    if summary.refit is not None:
        yield (
            f"Made again from {plural(summary.refit['learned'], 'record')}; it satisfies "
            f"{plural(summary.refit['satisfied'], 'correction')} by itself"
        )
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
    yield from (f"  goal {name}: {value}" for name, value in provenance["goals"].items())
    yield from (f"  {name}: {value}" for name, value in provenance["facts"].items())
