"""Training of a cascade: each stage on the windows that the stages before it still get wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade, TrainedStage
from whet.errors import CannotSeparateError, CheckpointError
from whet.evaluation.curves import image_interval, rate_interval
from whet.features.integral import FeatureFamily
from whet.training.checkpoint import Checkpoint, StageRecord, State
from whet.training.config import Plan
from whet.training.data import TrainingData, fingerprint
from whet.training.mining import Mined, Miner
from whet.training.negatives import Forbidden, windows_of_images
from whet.training.progress import (
    STALLED,
    Ending,
    Event,
    Mining,
    Pace,
    Resumed,
    StageFinished,
    StageStarted,
    WeakAdded,
    Why,
    judged_verdict,
    mined_verdict,
    seconds_left,
)
from whet.training.stage import StageValidation, train_stage

Patches = NDArray[np.uint8]
Tell = Callable[[Event], None]

# A stage that accepts more of the negatives than this is tried with the other families of features too.
HARD = 0.6


def train_cascade(
    family: FeatureFamily | Sequence[FeatureFamily],
    positives: Patches,
    images: Sequence[Path],
    plan: Plan | None = None,
    tell: Tell = lambda _: None,
    *,
    checkpoint: Path | None = None,
    groups: NDArray[np.intp] | None = None,
    forbidden: Forbidden | None = None,
) -> tuple[Cascade, tuple[TrainedStage, ...], Ending]:
    """Train stages until the plan's false-positive rate is reached or there is a reason to stop.

    `positives` are patches (n, height, width) of the object, `images` files without it. A part of both is for
    validation only: no positive of one run of neighbours, and no image, is on both sides. Every stage trains on
    all other positives. `tell` hears of all that happens, as events.

    Of several families each stage takes the next, in turns: what looks like the object to one kind of features often
    does not to the other. Where it rejects little, the others are tried as well, and the best is kept.

    Positives with the same number in `groups` (n,) show one object: all are on one side, and they count as one.
    Images may show the object where they have boxes (m, 4) in `forbidden`: negatives are taken outside of these.

    With a `checkpoint` file, a training that was stopped goes on after its last step when it is called again, and
    ends with the same cascade, to the last bit. Of the plan, `n_stages`, `false_positive_rate` and `threads` may
    have changed. Nothing depends on the number of threads.
    """
    plan = Plan() if plan is None else plan
    families = tuple(family) if isinstance(family, Sequence) else (family,)
    window = _common_window(families)
    data = TrainingData.from_patches(positives, images, window, plan, groups, forbidden)
    file = Checkpoint(checkpoint, fingerprint(families, data, plan))
    return _Training(families, window, data, plan, tell, file).run()


def _common_window(families: Sequence[FeatureFamily]) -> tuple[int, int]:
    windows = {family.window for family in families}
    if len(windows) != 1:
        raise ValueError(f"got families for windows of {sorted(windows) or 'no size'}: at least one, all of one size")
    return windows.pop()


@dataclass(eq=False)
class _Training:
    families: tuple[FeatureFamily, ...]
    window: tuple[int, int]
    data: TrainingData
    plan: Plan
    tell: Tell
    file: Checkpoint
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        sides = self.data.images, self.data.check_images
        self.miners = [
            Miner(side, self.window, self.plan.seed + k, threads=self.plan.threads, forbidden=self.data.forbidden)
            for k, side in enumerate(sides)
        ]
        self.begun = time.monotonic()
        self.expected_end: float | None = None

    def run(self) -> tuple[Cascade, tuple[TrainedStage, ...], Ending]:
        self._resume_or_begin()
        while True:
            ending = self._look_for_negatives() if self.state.stages else None
            if ending is not None:
                return self._cascade(), tuple(self.state.stages), ending
            self._train_stage()
            self._keep()

    def _resume_or_begin(self) -> None:
        state, plan = self.file.load(), self.plan
        if state is None:
            rng = np.random.default_rng(plan.seed)
            self.state.mined, self.state.judged = (
                self._random(miner, n, rng)
                for miner, n in zip(self.miners, (plan.n_negatives, plan.n_held_out), strict=True)
            )
            self._keep()
            return
        if len(state.stages) > plan.n_stages:
            raise CheckpointError(
                f"the checkpoint {self.file.path} has {len(state.stages)} stages, the plan asks for {plan.n_stages}: "
                "raise n_stages, or choose another checkpoint file"
            )
        self.state = state
        self.begun -= state.seconds
        for miner, used in zip(self.miners, state.miners, strict=True):
            miner.restore(used)
        self._expect()
        self._say(Resumed)

    def _random(self, miner: Miner, n: int, rng: np.random.Generator) -> Mined:
        """Random windows for the first stage: there is no cascade yet that could accept any."""
        none = np.empty(0, dtype=np.int64)
        windows = windows_of_images(miner.images, n, self.window, rng, forbidden=miner.forbidden)
        return Mined(windows, none, none, is_exhausted=False)

    def _look_for_negatives(self) -> Ending | None:
        """Mine for the next stage, unless training has come to its end: the held-out images are asked first."""
        state = self.state
        if state.judged is None:
            state.judged = self._mine(held_out=True)
            self._keep()
        verdict = judged_verdict(state.judged, len(state.stages), self.plan, state.stalled)
        if verdict is None:
            if state.mined is None:
                state.mined = self._mine(held_out=False)
                self._keep()
            verdict = mined_verdict(state.mined, self.plan)
        if verdict is None:
            return None
        return self._ending(*verdict, state.judged)

    def _ending(self, why: Why, reason: str, judged: Mined) -> Ending:
        accepted = self._cascade().accepts(self.data.check)
        return Ending(
            why,
            reason,
            judged.acceptance_rate,
            image_interval(judged.accepted, judged.looked_at),
            judged.n_looked_at,
            judged.n_images,
            float(accepted.mean()),
            _detection_interval(accepted, self.data.check_groups),
            tuple(number for number, record in enumerate(self.state.records) if not record.meets_goal),
            len(self.state.stages),
            self._seconds(),
        )

    def _mine(self, *, held_out: bool) -> Mined:
        miner, n = self.miners[held_out], self.plan.n_held_out if held_out else self.plan.n_negatives

        def progress(n_found: int, n_looked_at: int, n_images: int) -> None:
            self._say(Mining, n_found, n, n_looked_at, n_images, len(miner.images), held_out)

        return miner.mine(self._cascade(), n, len(self.state.stages), progress)

    def _train_stage(self) -> None:
        """Train one more stage; one that rejects next to nothing is left out, and ends the training."""
        state, plan = self.state, self.plan
        assert state.mined is not None
        assert state.judged is not None
        if state.records:
            last, n_images = state.records[-1], state.mined.n_images + state.judged.n_images
            mining = self._seconds() - last.ended
            windows = (state.mined.n_looked_at + state.judged.n_looked_at) / max(n_images, 1)
            state.paces.append(Pace(last.seconds, mining, n_images, windows, state.judged.acceptance_rate))
        self._expect()
        positives, check = self._positives()
        negatives, unseen = state.mined.patches, state.judged.patches
        self._say(StageStarted, len(positives), len(negatives))
        begun = self._seconds()
        trained, rates = self._best_stage((positives, negatives), (check, unseen))
        if trained is None or rates[1] > STALLED * plan.goal.detection_rate:
            self._stall(rates[1])
            return
        meets_goal = rates[1] <= plan.goal.false_positive_rate
        now = self._seconds()
        mined = state.mined if state.stages else None
        state.stages.append(trained)
        state.records.append(StageRecord(len(negatives), *rates, meets_goal, now - begun, now))
        state.mined = state.judged = None
        cascade = self._cascade()
        self._say(
            StageFinished, cascade, trained, len(negatives), *rates, meets_goal, mined, stage=len(state.stages) - 1
        )

    def _best_stage(
        self, training: tuple[Patches, Patches], validation: tuple[Patches, Patches]
    ) -> tuple[TrainedStage | None, tuple[float, float]]:
        """A stage of the family whose turn it is, and its rates on validation.

        Where it rejects little, the other families are tried too, and the best is taken. None where no family tells
        positives from negatives at all.
        """
        best, rates = None, (1.0, 1.0)
        for turn in range(len(self.families)):
            family = self.families[(len(self.state.stages) + turn) % len(self.families)]
            try:
                trained = self._train_family(family, training, validation)
            except CannotSeparateError:
                if not self.state.stages and len(self.families) == 1:
                    raise
                continue
            passed = [trained.run().score(side, self.plan.threads) > 0 for side in validation]
            found = float(passed[0].mean()), float(passed[1].mean())
            if best is None or found[1] < rates[1]:
                best, rates = trained, found
            if rates[1] <= HARD:
                break
        return best, rates

    def _train_family(
        self, family: FeatureFamily, training: tuple[Patches, Patches], validation: tuple[Patches, Patches]
    ) -> TrainedStage:
        plan, most = self.plan, self.plan.most_weak(len(self.state.stages))

        def added(n_weak: int, judge: StageValidation) -> None:
            self._say(WeakAdded, n_weak, most, judge.detection_rate, judge.false_positive_rate)

        return train_stage(
            family,
            *_labelled(*training),
            most,
            learner=plan.learner,
            goal=plan.goal,
            validation=_labelled(*validation),
            soft=plan.soft,
            max_memory=plan.max_memory,
            threads=plan.threads,
            seed=plan.seed,
            progress=added,
        )

    def _stall(self, rate: float) -> None:
        if not self.state.stages:
            raise CannotSeparateError(
                f"the first stage accepts {rate:.1%} of random windows of the held-out images at a detection rate of "
                f"{self.plan.goal.detection_rate:.1%}: see whether the images show the object and the positives do "
                "not show anything; else allow more weak learners or features"
            )
        self.state.stalled = rate

    def _positives(self) -> tuple[Patches, Patches]:
        sides = self.data.positives, self.data.check
        if not (self.plan.drop_rejected and self.state.stages):
            return sides
        cascade = self._cascade()
        train, check = (side[cascade.accepts(side)] for side in sides)
        return train, check

    def _cascade(self) -> Cascade:
        return Cascade(self.window, tuple(stage.run() for stage in self.state.stages), self.plan.min_sigma)

    def _keep(self) -> None:
        self.state.miners = tuple(miner.state() for miner in self.miners)
        self.state.seconds = self._seconds()
        self.file.save(self.state)

    def _seconds(self) -> float:
        return time.monotonic() - self.begun

    def _expect(self) -> None:
        left = seconds_left(self.state.paces, self.plan, sum(len(miner.images) for miner in self.miners))
        self.expected_end = None if left is None else self._seconds() + left

    def _say(self, kind: type[Event], *details: object, stage: int | None = None) -> None:
        now, end = self._seconds(), self.expected_end
        left = None if end is None else max(end - now, 0.0)
        self.tell(kind(len(self.state.stages) if stage is None else stage, now, left, *details))


def _detection_interval(accepted: NDArray[np.bool_], groups: NDArray[np.intp] | None) -> tuple[float, float]:
    """Interval of the detection rate; copies of one object are accepted together, so that objects are the samples."""
    if groups is None:
        return rate_interval(int(accepted.sum()), len(accepted))
    _, number = np.unique(groups, return_inverse=True)
    n = np.bincount(number)
    if accepted.all() or not accepted.any():  # no variance between objects can be seen: each counts as one
        return rate_interval(len(n) * int(accepted.any()), len(n))
    return image_interval(np.bincount(number, weights=accepted).astype(np.int64), n)


def _labelled(positives: Patches, negatives: Patches) -> tuple[Patches, NDArray[np.bool_]]:
    both = np.concatenate([positives, negatives])
    return both, np.arange(len(both)) < len(positives)
