"""Whole cascades that learn online, on MIT+CMU. Fig. cascade_face of the paper.

Starting from 500, 1,000 and 5,000 mirrored faces: a cascade trained in one batch, and the same cascade after it learned
a million false positives of its earlier stages, 5,000 new faces, or both; and a batch of 10,000. Each sample counts
once. A stage has as many negatives as faces, as the paper says for 5,000 and 10,000, stumps of least plain error and a
ridge of 1e-6. Variants: whet's default ridge; and from 500 faces, to find out what new negatives depend on, 5,000
negatives a stage and a threshold that follows the faces. OpenCV's cascades are evaluated on the same images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import opencv_peers
from experiments.cascade_training import CascadeSettings, count_faces, count_false_positives, train
from experiments.claims import Claim, Finding, listed, verdict
from experiments.datasets import faces24, negative_images
from experiments.face_samples import WINDOW, mirrored
from experiments.mit_cmu import Trial, faces_at
from experiments.report import Report, Run, draw_curve
from experiments.single_stage import PAPER_RIDGE
from experiments.table import Size
from whet.detector.detector import Detector
from whet.images.pyramid import Pyramid
from whet.io.image_files import read_grey
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.cascade_scan import scan_pyramid
from whet.models.gslda.haar import HaarPool
from whet.plots import figure as figures

METHODS = ("batch", "+ negatives", "+ faces", "+ both")
# Numbers of false positives in all 130 images at which faces are counted.
FALSE_POSITIVES = (0, 2, 5, 10, 15, 20, 26, 35, 50, 75, 100, 150, 200, 300)
SUMMARY = (10, 26, 50, 100, 200)
RUN = 20  # neighbouring faces in the file may be near-duplicates: they are drawn in runs of this length
HELD_OUT = 1000
CHECKED = 40  # images without faces, in which false positives are counted
AS_PAPER, RIDGED, MANY, FOLLOWING = "as in the paper", "default ridge", "5,000 negatives a stage", "following threshold"
ONCE = ("OpenCV",)

Patches = NDArray[np.uint8]


@dataclass(frozen=True)
class Scale:
    """Numbers of samples, features, stages and images of the small and the paper's size."""

    initial: tuple[int, ...]
    batch_only: tuple[int, ...]
    n_new_faces: int
    n_false_positives: int
    n_features: int
    n_negatives: int  # of the variant with many
    n_stages: int
    n_images: int


SCALES = {
    "small": Scale((500,), (), 1000, 20_000, 2000, 1500, 15, 300),
    "paper": Scale((500, 1000, 5000), (10_000,), 5000, 1_000_000, 10_000, 5000, 25, 1800),
}


def parts(size: Size) -> list[str]:
    """A part for each number of initial faces and variant; those of the first figure first."""
    scale = SCALES[size]
    sizes = (*scale.initial, *scale.batch_only)
    few = scale.initial[0]
    first = [(few, AS_PAPER), (few, MANY), (few, FOLLOWING), (few, RIDGED)]
    rest = [(n, variant) for n in sizes[1:] for variant in (AS_PAPER, RIDGED)]
    return [f"{n} faces, {variant}" for n, variant in first + rest]


def settings_of(scale: Scale, n: int, variant: str, seed: int) -> CascadeSettings:
    """How the cascade from n faces is trained."""
    return CascadeSettings(
        scale.n_stages,
        n_negatives=scale.n_negatives if variant == MANY else n,
        seed=seed,
        ridge=DEFAULT_RIDGE if variant == RIDGED else PAPER_RIDGE,
        balanced=variant == MANY,
        follows=variant == FOLLOWING,
    )


@dataclass(frozen=True, eq=False)
class Material:
    """The data of one run: initial, new and held-out faces, images for training and for learning, features."""

    initial: Patches
    new: Patches
    held_out: Patches
    images: list[Path]
    new_images: list[Path]
    checked_images: list[Path]
    pool: HaarPool

    @classmethod
    def drawn(cls, scale: Scale, rng: np.random.Generator) -> Material:
        """Draw at random; the parts share no run of neighbouring faces and no image."""
        n_initial = max((*scale.initial, *scale.batch_only)) // 2
        n_new = scale.n_new_faces // 2
        faces = faces24()
        runs = np.arange(len(faces) // RUN * RUN).reshape(-1, RUN)
        order = runs[rng.permutation(len(runs))].ravel()
        parts = np.split(order, np.cumsum([n_initial, -(-n_initial // RUN) * RUN - n_initial, n_new]))
        held_out = parts[3][RUN:][:HELD_OUT]
        paths = negative_images()
        shuffled = [paths[i] for i in rng.permutation(len(paths))]
        drawn, checked = shuffled[: scale.n_images], shuffled[scale.n_images :][:CHECKED]
        third = len(drawn) // 3
        pool = HaarPool.from_window(WINDOW).sample(scale.n_features, rng)
        initial, new = mirrored(faces[parts[0]]), mirrored(faces[parts[2]])
        return cls(initial, new, faces[held_out], drawn[third:], drawn[:third], checked, pool)


def measure(run: Run) -> None:
    """Faces found by the cascades of one part, or by OpenCV's."""
    trial = Trial.from_mit_cmu()
    if run.part in ONCE:
        note_peers(run, trial)
        return
    number, _, variant = run.part.partition(" faces, ")
    scale, n = SCALES[run.size], int(number)
    material = Material.drawn(scale, run.rng)
    cascades = {}
    for method, detector in detectors(material, scale, n, variant, run.seed):
        cascades[method] = cascade_model(detector).cascade
        note_faces(run, trial, method, detector, initial=n, variant=variant)
    note_held_out(run, cascades, material, initial=n, variant=variant)


def detectors(material: Material, scale: Scale, n: int, variant: str, seed: int) -> Iterator[tuple[str, Detector]]:
    """The batch cascade from n faces, and the same cascade after learning in the paper's three ways."""
    base = train(material.pool, material.initial[:n], material.images, settings_of(scale, n, variant, seed))
    yield "batch", Detector.from_base(base)
    if n in scale.batch_only:
        return
    negatives = count_false_positives(base, material.new_images, scale.n_false_positives, seed)
    faces = count_faces(base, material.new)
    for method, delta in (("+ negatives", negatives), ("+ faces", faces), ("+ both", negatives + faces)):
        yield method, Detector.from_base(base, delta)


def cascade_model(detector: Detector) -> CascadeModel:
    """The model of a detector that is a cascade."""
    assert isinstance(detector.model, CascadeModel)
    return detector.model


def note_faces(run: Run, trial: Trial, method: str, detector: Detector, **setting: object) -> None:
    """Faces of MIT+CMU at each number of false positives, and the size of the cascade."""
    model = cascade_model(detector)
    cascade = model.cascade
    curve = trial.run(cascade).curve
    for at, faces in zip(FALSE_POSITIVES, faces_at(curve, FALSE_POSITIVES), strict=True):
        run.note("faces", method, faces, **setting, false_positives=at)
    counts = () if model.counts is None else model.counts.counts
    run.note("negatives learned", method, sum(negatives for _, negatives in counts), **setting)
    run.note("stages", method, len(cascade.stages), **setting)
    run.note("weak learners", method, model.votes.n_weak, **setting)
    run.note("most faces", method, int(curve.found[-1]), **setting)
    run.note("most false positives", method, int(curve.false_positives[-1]), **setting)


def note_held_out(run: Run, cascades: Mapping[str, Cascade], material: Material, **setting: object) -> None:
    """Held-out faces that each cascade accepts, and its false positives; and the faces at equal false positives.

    False positives are windows of images without faces. All cascades are compared at the least number that any of them
    has: the minimum score of the others is raised until they have no more.
    """
    scores = {method: np.sort(window_scores(cascade, material.checked_images)) for method, cascade in cascades.items()}
    fewest = min(map(len, scores.values()))
    for method, cascade in cascades.items():
        faces = cascade.scores(material.held_out)
        least = scores[method][-fewest - 1] if len(scores[method]) > fewest else -np.inf
        run.note("held-out faces accepted", method, float(np.isfinite(faces).mean()), **setting)
        run.note("false positives in held-out images", method, len(scores[method]), **setting)
        run.note("held-out faces accepted at equal false positives", method, float((faces > least).mean()), **setting)
        run.note("equal false positives", method, fewest, **setting)


def window_scores(cascade: Cascade, paths: Sequence[Path]) -> NDArray[np.float64]:
    """Scores of all windows of images that a cascade accepts."""
    found = [scan_pyramid(cascade, Pyramid.from_image(read_grey(path), WINDOW)).scores for path in paths]
    return np.concatenate([np.zeros(0), *found])


def note_peers(run: Run, trial: Trial) -> None:
    """OpenCV's cascades at paper size, which takes minutes; nothing if OpenCV is not installed."""
    if run.size == "small":
        return
    try:
        peers = opencv_peers.run_peers(trial)
    except opencv_peers.NoPeersError:
        return
    for peer in peers:
        for at, faces in zip(FALSE_POSITIVES, peer.faces_at(FALSE_POSITIVES), strict=True):
            run.note("faces", peer.name, faces, false_positives=at)


def curve(report: Report, method: str, n: int, variant: str = AS_PAPER) -> dict[int, float]:
    """Mean number of faces at each number of false positives of the summary."""
    setting = {"initial": n, "variant": variant}
    return {at: report.one("faces", method, **setting, false_positives=at).mean for at in SUMMARY}


def level(report: Report, method: str, n: int, variant: str = AS_PAPER) -> float:
    """Faces found, averaged over the summary's numbers of false positives and over seeds."""
    return float(np.mean(levels(report, method, n, variant)))


def levels(report: Report, method: str, n: int, variant: str = AS_PAPER) -> list[float]:
    """Faces found by each seed, averaged over the summary's numbers of false positives."""
    setting = {"initial": n, "variant": variant}
    rows = [report.one("faces", method, **setting, false_positives=at).values for at in SUMMARY]
    return [float(np.mean([values[seed] for values in rows])) for seed in rows[0]]


def _gain(report: Report, method: str, n: int, variant: str = AS_PAPER) -> str:
    gain = level(report, method, n, variant) - level(report, "batch", n, variant)
    return f"{method} {gain:+.1f}"


def _variants(report: Report) -> str:
    """What new negatives change from 500 faces, in each variant."""
    few = min(row.setting["initial"] for row in report.select("stages", "batch"))
    parts = []
    for variant in (AS_PAPER, MANY, FOLLOWING, RIDGED):
        try:
            parts.append(
                f"{variant}: {_gain(report, '+ negatives', few, variant)}, {_gain(report, '+ faces', few, variant)}"
            )
        except LookupError:
            parts.append(f"{variant}: not measured")
    return (
        "At a fixed threshold, new negatives also lower what a stage accepts of faces; a threshold that follows the "
        "faces undoes that. Varied were this threshold, the number of negatives of a stage, and the ridge. Faces more "
        f"than batch from {few} faces: {listed(parts)}."
    )


def _seeds(report: Report, sizes: Sequence[int]) -> str:
    """The levels of each seed: differences of methods are to be compared with theirs."""
    parts = [
        f"{method} from {n:,}: {', '.join(f'{faces:.0f}' for faces in levels(report, method, n))}"
        for n in sizes
        for method in ("batch", "+ both")
    ]
    return f"Faces of each seed, to compare differences with: {listed(parts)}."


def online_is_above(report: Report) -> Finding:
    """All three ways of learning against the batch, at all numbers of false positives."""
    batch = curve(report, "batch", 500)
    parts, above = [], []
    for method in METHODS[1:]:
        learned = curve(report, method, 500)
        gains = [learned[at] - batch[at] for at in SUMMARY]
        above.append(min(gains) > 0)
        parts.append(f"{method}: {min(gains):+.0f} to {max(gains):+.0f} faces")
    equal, setting = "held-out faces accepted at equal false positives", {"initial": 500, "variant": AS_PAPER}
    accepted = ", ".join(f"{method} {report.one(equal, method, **setting).mean:.1%}" for method in METHODS)
    measured = listed([*parts, f"held-out faces at equal false positives: {accepted}"])
    return Finding(verdict(*above), measured, _variants(report))


def faces_beat_negatives(report: Report) -> Finding:
    """The order of the three ways of learning from 500 faces."""
    levels = {method: level(report, method, 500) for method in METHODS}
    order = sorted(METHODS, key=lambda method: -levels[method])
    measured = " > ".join(f"{method} {levels[method]:.0f}" for method in order)
    conditions = levels["+ faces"] > levels["+ negatives"], levels["+ both"] == max(levels.values())
    return Finding(verdict(*conditions), measured, _variants(report))


def gap_shrinks(report: Report) -> Finding:
    """The gain of learning both from 500 and from 1,000 faces, and that of negatives from 1,000."""
    gains = {n: level(report, "+ both", n) - level(report, "batch", n) for n in (500, 1000)}
    negatives = level(report, "+ negatives", 1000) - level(report, "batch", 1000)
    measured = listed(
        [
            *(f"{n:,} faces, + both: {gain:+.0f}" for n, gain in gains.items()),
            f"1,000 faces, + negatives: {negatives:+.0f}",
        ]
    )
    return Finding(verdict(gains[1000] < gains[500], abs(negatives) <= 5), measured, _seeds(report, (500, 1000)))


def many_faces_are_enough(report: Report) -> Finding:
    """All cascades from 5,000 faces, and the batch of 10,000."""
    levels = {method: level(report, method, 5000) for method in METHODS} | {
        "batch of 10,000": level(report, "batch", 10_000)
    }
    spread = max(levels.values()) - min(levels.values())
    parts = [f"{method} {faces:.0f}" for method, faces in levels.items()]
    return Finding(verdict(spread <= 10), f"{listed(parts)}; spread {spread:.0f}", _seeds(report, (5000,)))


CLAIMS = (
    Claim(
        "Fig. cascade_face a",
        "From 500 faces, online GSLDA outperforms batch GSLDA at all false positive rates.",
        "More faces at 10, 26, 50, 100 and 200 false positives, after new negatives, new faces, and both.",
        online_is_above,
    ),
    Claim(
        "Fig. cascade_face a",
        "New faces help more than new false positives, and both together most.",
        "From 500 faces, averaged over 10 to 200 false positives: + faces above + negatives, and + both highest.",
        faces_beat_negatives,
    ),
    Claim(
        "Fig. cascade_face b",
        "From 1,000 faces the gap is smaller, and new negatives change almost nothing.",
        "The gain of both is below that from 500 faces, and new negatives change at most 5 faces.",
        gap_shrinks,
    ),
    Claim(
        "Fig. cascade_face c",
        "From 5,000 faces all detectors, and a batch of 10,000, perform very similarly.",
        "Averaged over 10 to 200 false positives, all within 10 of 511 faces.",
        many_faces_are_enough,
    ),
)


def draw(report: Report, out: Path) -> list[Path]:
    """A row for each ridge, a panel for each number of initial faces, as in the paper; and the other variants."""
    sizes = sorted({row.setting["initial"] for row in report.select("most faces", "+ both")})
    batch_only = sorted({row.setting["initial"] for row in report.select("most faces", "batch")} - {*sizes})
    if not sizes:
        return []
    figure, axes = figures.new_figure(4, len(sizes), 5.2 * len(sizes), 16, sharey=True)
    colors = dict(zip(METHODS, (figures.RED, figures.ORANGE, figures.BLUE, figures.GREEN), strict=True))
    for row_of_axes, variant in zip(axes, (AS_PAPER, RIDGED, MANY, FOLLOWING), strict=True):
        for panel, n in zip(row_of_axes, sizes, strict=True):
            if not report.select("faces", "batch", initial=n, variant=variant):
                panel.set_axis_off()
                continue
            for method, color in colors.items():
                rows = report.select("faces", method, initial=n, variant=variant)
                draw_curve(panel, rows, "false_positives", method, color, "-o")
            for other in batch_only if n == sizes[-1] else []:
                rows = report.select("faces", "batch", initial=other, variant=variant)
                draw_curve(panel, rows, "false_positives", f"batch of {other:,}", figures.PURPLE, "-s")
            for name, style in zip(opencv_peers.NAMES, ("-", "--", ":"), strict=True):
                rows = report.select("faces", name)
                draw_curve(panel, rows, "false_positives", f"OpenCV {name[12:]}", figures.GREY, style)
            panel.set_title(f"{n:,} initial faces, {variant}", fontsize=10)
            panel.set_xlabel("false positives in 130 images")
            panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("faces found, of 511")
    axes[0, -1].legend(fontsize=8, loc="lower right")
    return [figures.save(figure, out / "cascade-roc.png")]
