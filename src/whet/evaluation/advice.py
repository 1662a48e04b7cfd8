"""What would improve a weak detector most: rules over measured quantities, ranked by what each promises.

All rules are here, and each is a function of `Findings`. Gains are differences of recall or of average precision, so
that they can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whet.evaluation.error_kinds import ErrorCount, ErrorKind, ErrorReport

# A detector is weak below this recall, or below this average precision.
WEAK = 0.8
# Smaller gains are not worth advice; those of a learning curve have to stand out from its noise, too.
LEAST_GAIN = 0.03
# With fewer objects, their number is the first suspect.
FEW_OBJECTS = 100
# From this share of the training boxes on, those are reported that the window cannot find, as it has another shape.
MANY_MISFITS = 0.05
# With fewer boxes, a shape of a class learns less than it gains by a window of its own.
FEWEST_IN_SHAPE = 40
# Objects of one property that are missed more often than others are at least this many.
FEWEST_SUCH = 5
# Sizes of detected boxes in relation to the annotated ones: standard deviation of their logarithm, and bias.
SPREAD = 0.15
BIAS = 0.15
# Rate of false positives per image at which recall is compared, as in the default operating point.
TARGET_RATE = 0.1


@dataclass(frozen=True)
class LearningCurve:
    """Detection rates over the number of objects trained on, and over the number of images that negatives come from.

    Rates are means over 0.25 to 2 false positives per image, of models with few trees: they compare, and no more.
    `unseen` are rates of objects that were not trained on, `seen` of those that were; the difference is overfitting.
    `by_negatives` are rates of unseen objects with the negatives of `n_negative_images`: of half of the images, and
    of all.
    """

    n_objects: tuple[int, ...]
    unseen: tuple[float, ...]
    seen: tuple[float, ...]
    n_negative_images: tuple[int, int]
    by_negatives: tuple[float, float]

    @property
    def gain_by_objects(self) -> float:
        """What the last doubling of the objects gained."""
        return self.unseen[-1] - self.unseen[-2]

    @property
    def gain_by_negatives(self) -> float:
        """What the last doubling of the images with negatives gained."""
        return self.by_negatives[1] - self.by_negatives[0]


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known of a detector: its errors, and where it was just trained, its data and learning curve.

    `recall_at_target` is the recall at 0.1 false positives per image. `aspects` are the limits of 80 % of the aspect
    ratios (width over height) of the training boxes; `misfits` is the share of them that have an IoU below 0.5 with
    the box of the window around them.
    """

    errors: ErrorReport
    recall_at_target: float | None = None
    curve: LearningCurve | None = None
    n_training_objects: int | None = None
    aspects: tuple[float, float] | None = None
    misfits: float = 0.0

    @property
    def is_training(self) -> bool:
        """Whether this is about a training; otherwise about an evaluation on other images."""
        return self.n_training_objects is not None

    @property
    def is_weak(self) -> bool:
        """Whether recall or average precision is low."""
        return self.errors.recall < WEAK or self.errors.average_precision < WEAK

    def gain(self, kind: ErrorKind) -> float:
        """Average precision that errors of a kind cost."""
        return self.errors.count(kind).average_precision - self.errors.average_precision


@dataclass(frozen=True)
class Advice:
    """What to do, why, and the gain that the measured quantities promise: recall or average precision, up to 1."""

    what: str
    why: str
    gain: float

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


def advise(findings: Findings) -> list[Advice]:
    """List what would help a weak detector, the most promising first; one that is not weak gets no advice.

    A detector is weak if its recall or its average precision is below 0.8. Boxes that disagree are reported of others
    too, if they cost average precision.

    >>> from whet.evaluation.error_kinds import BoxFit, ErrorCount, ErrorReport
    >>> background = ErrorCount(ErrorKind.BACKGROUND, false_positives=40, missed=0, average_precision=0.85)
    >>> fit = BoxFit(100, 1.0, 1.0, 0.0, 0.0, 0.1, 0.8)
    >>> print(*advise(Findings(ErrorReport(100, 50, 0.6, (background,), fit))), sep="\\n")
    more negatives: 40 false positives on the background, 0.80 per image; add images like these without the object
    """
    rules = RULES
    if not findings.is_weak:
        costs = findings.errors.box_fit.size_spread > SPREAD and findings.gain(ErrorKind.POOR_BOX) >= LEAST_GAIN
        rules = (_boxes,) if costs else ()
    every = [advice for rule in rules for advice in rule(findings)]
    return sorted((advice for advice in every if advice.gain >= LEAST_GAIN), key=lambda advice: -advice.gain)


def _minimum_score(findings: Findings) -> list[Advice]:
    errors, at_target = findings.errors, findings.recall_at_target
    rate = errors.n_false_positives / errors.n_images
    if at_target is None or rate > TARGET_RATE / 2:
        return []
    why = (
        f"it finds {errors.recall:.0%} of the objects, and would find {at_target:.0%} at {TARGET_RATE:g} false "
        f"positives per image (now {rate:.2g}); set it with --set-point default"
    )
    return [Advice("a lower minimum score", why, at_target - errors.recall)]


def _objects(findings: Findings) -> list[Advice]:
    curve, n = findings.curve, findings.n_training_objects
    if curve is None or n is None:
        return []
    (*_, fewer, most), gain = curve.n_objects, curve.gain_by_objects
    before, after = curve.unseen[-2:]
    rates = f"{before:.0%} of unseen objects with {fewer:,} training objects, {after:.0%} with {most:,}"
    if n < FEW_OBJECTS:
        return [Advice("more objects", f"only {n:,} were trained on; trees find {rates}", max(gain, WEAK / 4))]
    return [Advice("more objects", f"trees find {rates}: more would find further ones", gain)]


def _negatives(findings: Findings) -> list[Advice]:
    curve, background = findings.curve, findings.errors.count(ErrorKind.BACKGROUND)
    if curve is not None:
        few, many = curve.n_negative_images
        rates = (
            f"trees find {curve.by_negatives[0]:.0%} of unseen objects with negatives of {few:,} images, "
            f"{curve.by_negatives[1]:.0%} with {many:,}, at equal false positives"
        )
        if many < 30:  # their number is the first suspect
            why = f"they come from {many:,} images only; {rates}; add images without the object (--negatives)"
            return [Advice("more negatives", why, max(curve.gain_by_negatives, WEAK / 4))]
        return [Advice("more negatives", f"{rates}; add images (--negatives)", curve.gain_by_negatives)]
    if findings.is_training:
        return []
    rate = background.false_positives / findings.errors.n_images
    why = (
        f"{background.false_positives:,} false positives on the background, {rate:.2f} per image; add images like "
        "these without the object"
    )
    return [Advice("more negatives", why, findings.gain(ErrorKind.BACKGROUND))]


def _other_class(findings: Findings) -> list[Advice]:
    count = findings.errors.count(ErrorKind.OTHER_CLASS)
    why = f"{count.false_positives:,} false positives are objects of other classes; add images of these as negatives"
    return [Advice("negatives of other classes", why, findings.gain(ErrorKind.OTHER_CLASS))]


def _aspect_ratios(findings: Findings) -> list[Advice]:
    errors = findings.errors
    more, why = _more_often(errors, errors.count(ErrorKind.OTHER_ASPECT), "of another aspect ratio than its boxes")
    if findings.aspects is not None:
        low, high = findings.aspects
        if findings.misfits < MANY_MISFITS:
            return []
        shapes = (
            f"one window has one shape, and {findings.misfits:.0%} of the boxes have an IoU below 0.5 with it (80 % "
            f"are {low:.2g} to {high:.2g} times as wide as high)"
        )
        is_enough = (findings.n_training_objects or 0) >= 2 * FEWEST_IN_SHAPE
        more, why = max(more, findings.misfits if is_enough else LEAST_GAIN), f"{shapes}; {why}".removesuffix("; ")
    if not more:
        return []
    return [Advice(f"several shapes (whet train --shapes 2), with {FEWEST_IN_SHAPE} objects or more each", why, more)]


def _boxes(findings: Findings) -> list[Advice]:
    fit, poor = findings.errors.box_fit, findings.errors.count(ErrorKind.POOR_BOX)
    if fit.n < FEWEST_SUCH:
        return []
    counts = f"{poor.false_positives:,} false positives overlap an object too little"
    gain = max(findings.gain(ErrorKind.POOR_BOX), LEAST_GAIN)
    if fit.size_spread > SPREAD:
        why = f"sizes of detected and annotated boxes differ by {fit.size_spread:.0%}, in both directions"
        return [Advice("boxes that agree", f"{why}; {counts}; draw boxes around the same part of each object", gain)]
    sizes = max(abs(fit.width - 1), abs(fit.height - 1), abs(1 / fit.width - 1), abs(1 / fit.height - 1))
    if max(sizes, abs(fit.shift_x), abs(fit.shift_y)) < BIAS or not poor.false_positives:
        return []
    why = (
        f"detected boxes are {fit.width:.2g} times as wide and {fit.height:.2g} times as high as annotated ones, and "
        f"lie {abs(fit.shift_x):.0%} {'right' if fit.shift_x > 0 else 'left'} and {abs(fit.shift_y):.0%} "
        f"{'down' if fit.shift_y > 0 else 'up'} of them; {counts}"
    )
    return [Advice("boxes of the same extent in training and test", why, gain)]


def _small_or_cut_off(findings: Findings) -> list[Advice]:
    errors, cut_off = findings.errors, "cut-off objects marked as ignored, or more of them in training"
    small, why_small = _more_often(errors, errors.count(ErrorKind.TOO_SMALL), "smaller than its smallest boxes")
    cut, why_cut = _more_often(errors, errors.count(ErrorKind.CUT_OFF), "cut off by the image border")
    return [Advice("larger images or a smaller --min-size", why_small, small), Advice(cut_off, why_cut, cut)]


def _look_alikes(findings: Findings) -> list[Advice]:
    """Without a learning curve, nothing tells whether the number of objects or their kind is short."""
    if findings.is_training:
        return []
    low, none = (findings.errors.count(kind).missed for kind in (ErrorKind.LOW_SCORE, ErrorKind.NOT_FOUND))
    gain = findings.gain(ErrorKind.LOW_SCORE) + findings.gain(ErrorKind.NOT_FOUND)
    why = (
        f"{low:,} objects score below the minimum and {none:,} are not found at any score; train on more objects that "
        "look like them (--out writes misses.png)"
    )
    return [Advice("more objects", why, gain)]


def _more_often(errors: ErrorReport, count: ErrorCount, what: str) -> tuple[float, str]:
    """How much recall would rise if such objects were missed as rarely as others, and a sentence; or 0."""
    such = count.n_objects or 0
    others, missed = errors.n_objects - such, errors.n_missed - count.missed
    if such < FEWEST_SUCH or not others or count.missed / such < missed / others + 0.15:
        return 0.0, ""
    why = f"it misses {count.missed / such:.0%} of {such:,} objects {what}, and {missed / others:.0%} of the others"
    return (count.missed - such * missed / others) / errors.n_objects, why


RULES: tuple[Callable[[Findings], list[Advice]], ...] = (
    *(_minimum_score, _objects, _negatives, _other_class),
    *(_aspect_ratios, _boxes, _small_or_cut_off, _look_alikes),
)
