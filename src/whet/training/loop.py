"""The training of a model: fit, mine what it mistakes for the object, and fit again, until the family says stop.

To train another family, derive from `FamilyTraining` (how it reads windows) and `Fitting` (how it is fitted), and name
it in `whet.models.contract.FAMILIES`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whet.detector.base import Fact
from whet.errors import CannotSeparateError, TrainingDataError, UnreadableImageError
from whet.images.boxes import Boxes
from whet.images.pyramid import Grid, Pixels, Pyramid, WindowIndex
from whet.io.image_files import as_rgb, image_shape, read_grey
from whet.models.contract import FAMILIES, Model, family_of
from whet.parallel.workers import ALL_THREADS, Workers
from whet.training.backgrounds import Backgrounds, Mined, MiningProgress, MiningRule
from whet.training.config import GSLDA, TrainingConfig
from whet.training.progress import (
    Callback,
    Checkpoint,
    Event,
    FitFinished,
    FitStarted,
    Mining,
    Rates,
    Resumed,
    State,
    StepRecord,
    StepStarted,
    Stop,
    StopReason,
)
from whet.training.samples import NO_PLACES, Negatives, Places, Positives, Samples, Windows
from whet.training.validation import Fitted, ScannedImages
from whet.training.windows import WindowChoice, grey_window

if TYPE_CHECKING:
    from whet.training.preparation import Preparation

# With fewer, thirds of the objects, each detected by a model of the others, say nothing.
FEWEST_OBJECTS = 10
FEW_OBJECTS = 200
# Steps, for want of a fitting of its own.
STEPS = 3


class FewPositivesWarning(UserWarning):
    """Few positives, or some of them are unusable; the message says how many."""


class FamilyTraining:
    """A family of models as a training sees it. This one reads the pixels of grey windows.

    `grid` is how windows lie on levels, `mining` which windows of backgrounds are negatives. A sample depends on `rim`
    pixels around its window. Objects below the share `smallest_object` of the window are skipped. At most
    `most_held_out` images are held out (None: as many as the settings say); with `holds_out_objects`, as large a share
    of the objects, too. With `keeps_negatives`, a step adds its negatives to those before; else it replaces them.
    With `has_shapes`, a class whose boxes do not fit one window has several. Copies of an object are shifted by a share
    of each side of the window, or with `jitters_by_shorter` of the shorter side: cells are squares.
    """

    name = ""
    grid = Grid()
    mining = MiningRule()
    rim = 0
    smallest_object = 0.5
    most_held_out: int | None = 20
    holds_out_objects = True
    keeps_negatives = True
    has_shapes = False
    jitters_by_shorter = False

    def choose_window(
        self, boxes: Boxes, margin: float | None = None, window: tuple[int, int] | None = None
    ) -> WindowChoice:
        """A window for boxes (n, 4), with a margin as a share of the box; or the choice for a given `window`."""
        return grey_window(boxes, margin, window)

    def read(self, path: Path) -> Pixels:
        """The pixels of an image file; raises `UnreadableImageError`."""
        return as_rgb(path) if self.grid.is_colour else read_grey(path)

    def sample_shape(self, window: tuple[int, int]) -> tuple[int, ...]:
        """The shape of a sample of a window (height, width)."""
        return (*window, 3) if self.grid.is_colour else window

    def sample(self, patch: Pixels) -> Windows:
        """What the family reads of a patch: a window with `rim` pixels around it."""
        return patch

    def samples(self, pyramid: Pyramid, index: WindowIndex) -> Windows:
        """What the family reads of windows of a pyramid (n, ...)."""
        return pyramid.patches(index)

    def as_grey(self, windows: Windows) -> Windows:
        """Samples (n, ...) as grey images (n, height, width), to compare with their mirror images."""
        return windows

    def compact(self, pyramid: Pyramid) -> Pyramid:
        """A copy of a pyramid with what samples need, and nothing that a scan adds."""
        return pyramid

    def compact_size(self, pyramid: Pyramid) -> int:
        """Bytes of that copy."""
        return sum(level.image.nbytes for level in pyramid.levels)

    def usable(self, positives: Positives, config: TrainingConfig) -> Positives:  # noqa: ARG002
        """The positives that the family can use; raises `TrainingDataError` if they are too few, and warns of few."""
        check_objects(positives.n_objects)
        return positives

    def fingerprint(self) -> dict[str, str]:
        """A text for each part of the family that a checkpoint must agree on, beside the settings."""
        return {}

    def n_features(self, prepared: Preparation) -> int:
        """Number of features of a window."""
        return int(np.prod(self.sample_shape(prepared.choice.window)))

    def memory(self, prepared: Preparation) -> int:
        """Bytes of the samples of the largest step."""
        return 2 * self.n_features(prepared) * len(prepared.positives)

    def core_seconds(self, prepared: Preparation) -> float:
        """Seconds that a training takes on one core, within a factor of two or three."""
        # Core seconds of a megapixel on a server of 2024.
        return 0.8 * mean_megapixels(prepared.images) * len(prepared.images)

    def fitting(self, prepared: Preparation) -> Fitting:
        """The fitting of one model."""
        return Fitting(prepared)

    def fit(self, samples: Samples, config: TrainingConfig) -> Model:
        """The model of samples, where a family has no fitting of its own."""
        raise NotImplementedError


class Fitting:
    """How a model is fitted to samples, one step after the other; made once for a training.

    This one fits a model to all samples in each of three steps. `notes` are what it remembers between steps, as JSON: a
    checkpoint keeps them. `summary` says what the last step made, with its rates on validation samples, if it has any.
    `goals` and `facts` are for the provenance.
    """

    def __init__(self, prepared: Preparation) -> None:
        self.prepared, self.config = prepared, prepared.config
        self.notes: dict[str, Any] = {}
        self.summary: tuple[str, Rates | None] = ("", None)
        self.goals: dict[str, Fact] = {}
        self.facts: dict[str, Fact] = {"family": prepared.family.name}

    def n_negatives(self, held_out: bool, step: int) -> int:  # noqa: ARG002
        """How many negatives a step takes from the training images, or from the held-out images."""
        return 0 if held_out else 2000

    def mine(self, training: Training, held_out: bool, progress: MiningProgress) -> Mined:
        """Negatives of the next step: windows that the model accepts; see `Backgrounds.mine`."""
        assert training.model is not None
        n, step = self.n_negatives(held_out, training.step), training.step
        if not n:
            return Mined.random(NO_PLACES)
        used = training.state.places[held_out]
        return training.backgrounds(held_out).mine(training.model, n, turn=step, used=used, progress=progress)

    def fit(self, training: Training) -> Model | None:
        """The model of one more step, a function of `training.samples` and of the model so far; None: no better one."""
        samples = training.samples
        training.start_fit(len(samples.positives), len(samples.negatives))
        self.summary = f"on {len(samples.negatives)} negatives", None
        return self.prepared.family.fit(samples, self.config)

    def stop(self, training: Training) -> Stop | None:
        """Why training stops, or None; called after each step, and after mining for the next one."""
        is_done = training.step == STEPS
        return (StopReason.ALL_STEPS, f"Trained in {STEPS} steps") if is_done else None

    def seconds_left(self, training: Training) -> float | None:  # noqa: ARG002
        """Estimated seconds of all steps to come; None: not known yet."""
        return None

    def finish(self, training: Training, reason: StopReason, message: str) -> Fitted:
        """The final model, its rates on what it was not trained on, and its reference set, if the family makes one."""
        model, windows = training.model, training.samples.positives.windows[training.samples.is_held_out]
        assert model is not None
        responses, has_contrast = model.responses(*Pyramid.from_patches(windows, model.window))
        n_found = int((has_contrast & (model.votes.scores(responses) > -np.inf)).sum())
        scanned = ScannedImages.from_backgrounds(training.held_out, model)
        result = scanned.result((reason, message), (n_found, len(windows)), training.step, training.seconds)
        return Fitted(model, result, scanned)


def training_of(features: str) -> FamilyTraining:
    """The training of the family that has these features, as the setting names them: a family, or grey features."""
    family = family_of(features if features in FAMILIES else GSLDA)
    if not isinstance(family.training, str):
        training: FamilyTraining = family.training
        return training
    module, _, name = family.training.rpartition(".")
    made: FamilyTraining = getattr(import_module(module), name)()
    return made


def check_objects(n: int, fewest: int = FEWEST_OBJECTS, got: str = "") -> None:
    """Raise `TrainingDataError` for too few objects to train on, and warn of few."""
    if n < fewest:
        raise TrainingDataError(
            f"got {got or f'{n} objects'}; expected at least {fewest}, better {FEW_OBJECTS} or more: add annotated "
            "images"
        )
    if n < FEW_OBJECTS:
        text = f"fewer than {FEW_OBJECTS} different objects ({n}); accuracy may be low"
        warnings.warn(text, FewPositivesWarning, stacklevel=5)


def mean_megapixels(images: Sequence[Path]) -> float:
    """Megapixels of an image on average, by 20 of them; those that cannot be read are left out."""
    sizes = []
    for path in images[:: max(1, len(images) // 20)]:
        with suppress(UnreadableImageError):
            height, width = image_shape(path)
            sizes.append(height * width / 1e6)
    return float(np.mean(sizes)) if sizes else 0.3


class Training:
    """One training. A family's `Fitting` reads what it needs here, and tells its progress.

    `samples` are all that the next step is fitted to. `model` is that of the last step, and `mined` what was mined
    with it for the next step, in the training and in the held-out images.
    """

    def __init__(
        self,
        prepared: Preparation,
        callback: Callback = lambda _: None,
        *,
        checkpoint: Path | None = None,
        workers: Workers = ALL_THREADS,
    ) -> None:
        self.prepared, self.callback, self.workers = prepared, callback, workers
        self.fitting = prepared.family.fitting(prepared)
        self.file = Checkpoint(checkpoint, prepared.fingerprint())
        self.images, self.held_out = (
            prepared.backgrounds(held_out=held_out, workers=workers) for held_out in (False, True)
        )
        none = Negatives.empty(prepared.family.sample_shape(prepared.choice.window))
        self.samples = Samples(prepared.positives, prepared.is_held_out, none, none, len(self.images.images))
        self.state = State()
        self.begun = time.monotonic()

    @property
    def model(self) -> Model | None:
        """The model so far."""
        return self.state.model

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return len(self.state.steps)

    @property
    def mined(self) -> list[Mined | None]:
        """What was mined for the next step, in the training images and in the held-out images; None: not yet."""
        return self.state.mined

    def run(self) -> Fitted:
        """Fit, mine, and repeat until the family says stop."""
        self._resume_or_start()
        while True:
            stop = self._fit() or self._mine_or_stop()
            if stop is not None:
                return self.fitting.finish(self, *stop)

    def _resume_or_start(self) -> None:
        state = self.file.load(self.fitting.notes)
        if state is None:
            for held_out in (False, True):
                n = self.fitting.n_negatives(held_out, 0)
                images = self.backgrounds(held_out)
                self._add(Mined.random(images.random(n, [self.prepared.config.seed, 11]) if n else NO_PLACES), held_out)
                if n and not len(self.state.places[held_out]):
                    which = "held-out" if held_out else "training"
                    raise TrainingDataError(
                        f"no window of the {len(images.images)} {which} images lies outside of the boxes; add images "
                        "without the object (--negatives, in Python negatives=)"
                    )
            self._save()
            return
        self.state, self.fitting.notes = state, state.notes
        self.begun -= state.seconds
        for held_out in (False, True):
            needed = np.ones(len(state.places[held_out]), np.bool_)
            if not self.prepared.family.keeps_negatives:
                needed = state.step_of_places[held_out] == self.step
            self._cut(state.places[held_out][needed], held_out)
        self.send(Resumed)

    def _fit(self) -> Stop | None:
        """One more step, unless it is done already; where the family has no better model, the last one stays: stop."""
        if None in self.mined or self.fitting.stop(self) is not None:  # resumed
            return None
        begun, mined = self.seconds, self.mined[False]
        n_negatives = len(self.samples.negatives) + len(self.samples.held_out_negatives)
        model = self.fitting.fit(self)
        if model is None:
            if self.model is None:
                raise CannotSeparateError(
                    f"no model of the family {self.prepared.family.name} separates the objects from random windows of "
                    "the images: check that the boxes fit the objects, and add annotated images"
                )
            self._save()
            message = f"Step {self.step + 1} gave no better model than the step before"
            return self.fitting.stop(self) or (StopReason.CANNOT_IMPROVE, message)
        step, self.state.model = self.step, model
        self.state.steps.append(StepRecord(n_negatives, self.seconds - begun, self.seconds))
        self.state.mined = [None, None]
        self._save()
        self.send(FitFinished, model, self.samples, mined if step else None, *self.fitting.summary, step=step)
        return None

    def _mine_or_stop(self) -> Stop | None:
        """Mine negatives for the next step, or say why to stop; the held-out images are scanned first."""
        stop = self.fitting.stop(self)
        for held_out in (True, False):
            if stop is None and self.mined[held_out] is None:
                self._add(self.fitting.mine(self, held_out, partial(self._report_mining, held_out)), held_out)
                self._save()
                stop = self.fitting.stop(self)
        return stop

    def _report_mining(self, held_out: bool, n_found: int, n_tested: int, n_images: int) -> None:
        wanted, images = self.fitting.n_negatives(held_out, self.step), self.backgrounds(held_out).images
        self.send(Mining, n_found, wanted, n_tested, n_images, len(images), held_out)

    def backgrounds(self, held_out: bool) -> Backgrounds:
        """The held-out images, or the training images."""
        return self.held_out if held_out else self.images

    def _add(self, mined: Mined, held_out: bool) -> None:
        """Add negatives of the next step."""
        self.state.add(mined, held_out)
        self._cut(mined.places, held_out)

    def _cut(self, places: Places, held_out: bool) -> None:
        windows = self.backgrounds(held_out).windows(places)
        keep = self.prepared.family.keeps_negatives
        self.samples = self.samples.with_negatives(windows, places, held_out=held_out, keep=keep)

    def _save(self) -> None:
        self.state.seconds, self.state.notes = self.seconds, self.fitting.notes
        self.file.save(self.state)

    @property
    def seconds(self) -> float:
        """Seconds since the start of all runs."""
        return time.monotonic() - self.begun

    def send(self, kind: type[Event], *details: object, step: int | None = None) -> None:
        """Report an event of the next step, or of another."""
        number = self.step if step is None else step
        self.callback(kind(number, self.seconds, self.fitting.seconds_left(self), *details))

    def announce(self, name: str) -> None:
        """Report that a part before the first or after the last step starts."""
        self.send(StepStarted, name)

    def start_fit(self, n_positives: int, n_negatives: int) -> None:
        """Report that a step starts to fit."""
        self.send(FitStarted, n_positives, n_negatives)
