"""The training of a model: fit, mine what it mistakes for the object, and fit again, until the family says stop."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np

from whet.errors import CannotSeparateError, TrainingDataError
from whet.models.contract import Model
from whet.parallel.workers import ALL_THREADS, Workers
from whet.training.backgrounds import Backgrounds, Mined
from whet.training.checkpoint import Checkpoint, State, StepRecord
from whet.training.preparation import Preparation
from whet.training.progress import (
    Callback,
    Event,
    FitFinished,
    FitStarted,
    Mining,
    Resumed,
    StepStarted,
    Stop,
    StopReason,
)
from whet.training.samples import NO_PLACES, Negatives, Places, Samples
from whet.training.validation import Fitted


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
