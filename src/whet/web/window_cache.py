"""The effect of any set of corrections on all images, without another scan.

Corrections decide by Hamming distances between responses (`whet.corrections.effects`). So the windows of an image that
the model accepts, or nearly accepts, are kept with their responses. A correction that is new costs one pass: the least
distance of each window to the windows of the correction. The outcome of any set of corrections is then a minimum over
rows of distances, and `decide` of it, as in a scan.

A window that the model rejects matters only if a correction of a missed object can accept it. Only such windows, and
those that the model accepts, have rows of distances: they are *live*.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from whet.arrays import Floats, Indices
from whet.corrections.box_windows import OBJECT_NEAR, SAME
from whet.corrections.effects import (
    FARTHEST,
    LEAST_REACH,
    Effect,
    Effects,
    KnownWindows,
    decide,
    effects_of,
    guards_of,
    is_within_reach,
    judging_objects,
    scanned_scores,
    unknown_distances,
)
from whet.corrections.records import Record
from whet.corrections.reference import Estimate, HeldOutScores, item_scores, probability_by
from whet.detector.shape import ScanSettings, ShapeDetector
from whet.errors import ImageMemoryError
from whet.images.detections import Detections, FiredWindows, report
from whet.images.pyramid import Level, Pyramid, Span, WindowIndex
from whet.models.responses import Responses
from whet.parallel.threads import for_each_block
from whet.web.cached_windows import CachedImage, Everywhere, LiveWindows, ScoredState, is_same, merged

# Limits are lowered by this much, in units of margins, for the windows that are kept: a bit more than copies of a
# missed object need (`OBJECT_NEAR`), so that objects just below the minimum score are covered.
MARGIN = OBJECT_NEAR + 0.01
# By this much where no more than `MOST_DEEP` windows are expected to pass then: as much as any correction can reach.
DEEP = FARTHEST + 0.01
MOST_DEEP = 20_000
LEAST_MARGIN = 0.01
# Bytes of the windows of all images together. Beyond, images that were not asked for the longest keep only live ones.
MOST_BYTES = 1 << 29


class WindowCache:
    """The windows of images, and the outcome of any set of corrections in them.

    >>> from skimage import data
    >>> import whet
    >>> detector = whet.load("face")
    >>> wrong = detector.new_records(data.astronaut(), detector.detect(data.astronaut())[1].boxes, False)
    >>> cache = WindowCache(detector.only)
    >>> cache.scan("astronaut", data.astronaut())
    >>> cache.add(wrong)
    >>> [len(cache.detections("astronaut", frozenset(ids)).with_min_score(34)) for ids in ([], [wrong[0].id])]
    [2, 1]
    """

    def __init__(self, detector: ShapeDetector, threads: int | None = None) -> None:
        self._detector = detector.copy()
        self._model, self._reference = detector.model, detector.current.reference
        self._threads = threads
        self._guards = guards_of(self._model, self._reference)
        self._unknown = unknown_distances(*self._guards)
        self._judging = judging_objects(self._model, self._reference)[1]
        self._reporting = detector.reporting
        # Windows of the images that were scanned with both margins, to know how many more the deep one lets pass.
        self._n_both = 1, 1
        self._images: dict[str, CachedImage] = {}
        # Images that have windows which are not live, in the order in which they were asked for.
        self._whole: OrderedDict[str, None] = OrderedDict()
        # Row i of every table of distances is that of the i-th correction here.
        self._effects: dict[str, Effect] = {}
        self._given: dict[str, Record] = {}
        self._states: OrderedDict[frozenset[str], ScoredState] = OrderedDict()
        # Levels of an image's pyramid, shared by all who scan it; those of the last images are kept.
        # Images whose pyramids are remembered.
        self.levels: Callable[[str], dict[float, Level]] = lru_cache(6)(lambda _: {})
        self._everywhere: Everywhere | None = None
        self._lock = RLock()

    def __contains__(self, image: object) -> bool:
        return image in self._images

    @property
    def n_windows(self) -> int:
        """Windows that are kept, of all images."""
        return sum(len(image.windows) for image in self._images.values())

    @property
    def n_bytes(self) -> int:
        """Memory of the windows that are kept, of all images."""
        return sum(image.n_bytes for image in self._images.values())

    # Corrections.

    def add(self, records: Iterable[Record]) -> None:
        """Note corrections that states can have; those that are known change nothing.

        Images get their rows of distances when they are asked for: a click waits for one image, not for all.
        """
        with self._lock:
            new = [r for r in records if r.kind == "correction" and len(r) and r.id not in self._effects]
            self._given |= {record.id: record for record in new}
            ids = {record.id for record in new}
            seen = [record for record in self._detector.as_seen(self._given.values()) if record.id in ids]
            for effect in effects_of(self._model, self._reference, seen):
                self._effects[effect.record.id] = effect

    @property
    def _known(self) -> list[Responses]:
        return [effect.record.responses for effect in self._effects.values()]

    def _fill_all(self) -> None:
        """Add the rows of new corrections in all images."""
        images = [image for image in self._images.values() if image.n_promoted < len(self._effects)]

        def work(rows: slice) -> None:
            for image in images[rows]:
                self._fill(image)

        for_each_block(work, len(images), 16, self._threads)
        if self._everywhere is not None:
            self._everywhere.live.take_rows(list(self._everywhere.images.values()))
        self._shed()

    def _fill(self, image: CachedImage) -> None:
        """Make windows live that a new correction can accept, and add the rows of new corrections."""
        if image.n_promoted == len(self._effects):
            return
        promoted = np.zeros(len(image.responses), np.bool_)
        promoted[image.live_rows] = True
        n_before = int(promoted.sum())
        for effect in list(self._effects.values())[image.n_promoted :]:
            if effect.record.is_object and not effect.holds:
                promoted |= self._can_accept(image.responses, effect.record.responses)
        image.n_promoted = len(self._effects)
        if int(promoted.sum()) > n_before:
            self._forget_everywhere()
            rows = image.live_rows = np.flatnonzero(promoted)
            responses, scores = image.responses.take(rows), image.windows.scores[rows]
            image.live = LiveWindows.from_responses(responses, scores, self._guards)
        image.live.fill(self._known)

    def _can_accept(self, responses: Responses, known: Responses) -> NDArray[np.bool_]:
        """Which windows a correction accepts if there are no others; with others, it accepts no more."""
        none, targets = Responses.empty(responses.n_weak), np.zeros(len(known))
        alone = KnownWindows(none, known, targets, none, self._guards[1], LEAST_REACH, self._unknown)
        return alone.decide(responses, np.full(len(responses), -np.inf), threads=1) > -np.inf

    # Images.

    def prepare(self, image: str, pixels: NDArray[np.uint8]) -> None:
        """Make the levels of an image's pyramid ahead of a correction, which then need not wait for them."""
        pyramid = self._pyramid(image, pixels)
        first = dict.fromkeys(pyramid.scales, Span(0, 1, 0, 1))
        self._model.scan(pyramid, spans=first, threads=self._threads)  # levels keep what the model computes of them

    def scan(self, image: str, pixels: NDArray[np.uint8], ids: frozenset[str] = frozenset()) -> None:
        """Keep the windows of an image that pass thresholds lowered by a margin, and by some corrections.

        A margin that lets too many windows pass is made smaller; corrections that do so are left out.
        """
        pyramid, margin = self._pyramid(image, pixels), MARGIN
        while True:
            votes = self._model.votes.loosened(margin)
            try:
                fired = self._model.scan(pyramid, votes, threads=self._threads)
                if len(fired) <= 6000 or margin < LEAST_MARGIN:
                    break
            except ImageMemoryError:  # far too many
                if margin < LEAST_MARGIN:
                    raise
            margin = margin / 2 if margin > 2 * LEAST_MARGIN else 0.0
        if margin == MARGIN and self._may_be_deep(len(fired)):
            deep, n_before = self._model.votes.loosened(DEEP), len(fired)
            with suppress(ImageMemoryError):
                more = self._model.scan(pyramid, deep, threads=self._threads)
                votes, fired = (deep, more) if len(more) <= MOST_DEEP else (votes, fired)
                with self._lock:
                    self._n_both = self._n_both[0] + n_before, self._n_both[1] + len(more)
        with self._lock:
            needed = self._state(ids).effects.limits(self._model.votes)
        if needed is not None and not (votes.limits <= needed).all():
            deeper = votes.lowered(needed)
            with suppress(ImageMemoryError):
                more = self._model.scan(pyramid, deeper, threads=self._threads)
                votes, fired = (deeper, more) if len(more) <= MOST_DEEP else (votes, fired)
        self._keep(image, pyramid, fired, self._responses(pyramid, fired), votes.limits)

    def _may_be_deep(self, n: int) -> bool:
        """Whether the deep margin is tried in an image of which n windows pass the usual one: memory is left, too."""
        with self._lock:
            n_usual, n_deep = self._n_both
            return n * n_deep <= MOST_DEEP * n_usual and self.n_bytes < MOST_BYTES // 2

    def look_around(self, image: str, pixels: NDArray[np.uint8], records: Iterable[Record]) -> None:
        """Also keep the windows around missed objects of an image that any correction can accept, known or not.

        Elsewhere, windows that lie deeper than those of `scan` are found by a scan with the corrections.
        """
        with self._lock:
            effects = [self._effects[record.id] for record in records if record.id in self._effects]
        missed = [effect.record.box for effect in effects if effect.record.is_object and not effect.holds]
        if not missed:
            return
        pyramid = self._pyramid(image, pixels)
        near = [pyramid.overlapping(np.array(box), SAME, self._reporting.box_offset) for box in missed]
        index = WindowIndex.concatenate(near)
        windows = FiredWindows(index, pyramid.boxes(index), np.zeros(len(index)))
        responses = self._responses(pyramid, windows)
        kept = is_within_reach(self._model, responses)
        self._keep(image, pyramid, windows.take(kept), responses.take(kept))

    def take_fired(self, image: str, pixels: NDArray[np.uint8], windows: FiredWindows) -> None:
        """Also keep the windows that fired in a scan with some corrections: with these, detections are then exact."""
        pyramid = self._pyramid(image, pixels)
        self._keep(image, pyramid, windows, self._responses(pyramid, windows))

    def _pyramid(self, image: str, pixels: NDArray[np.uint8]) -> Pyramid:
        shared = self.levels(image)
        return self._detector.pyramid(self._detector.pixels(pixels), ScanSettings(threads=self._threads), shared)

    def _responses(self, pyramid: Pyramid, windows: FiredWindows) -> Responses:
        return self._model.responses(pyramid, windows.index)[0]

    def _keep(
        self, image: str, pyramid: Pyramid, windows: FiredWindows, responses: Responses, cover: Floats | None = None
    ) -> None:
        """Add windows to those of an image; with a `cover`, they are all that pass these limits."""
        windows = replace(windows, scores=scanned_scores(self._model, pyramid, windows.index, responses))
        with self._lock:  # from reading to writing: no thread loses what another one keeps
            before = self._images.get(image)
            if before is not None:
                self._fill(before)  # what a known correction accepts is live, and stays
            cached = merged(before, windows, responses, cover, self._guards, self._model.votes)
            self._fill(cached)
            self._images[image] = cached
            self._whole[image] = None
            self._whole.move_to_end(image)
            self._forget_everywhere()
            self._shed()

    def _shed(self) -> None:
        """Keep only live windows of images that were not asked for the longest, until there is memory again."""
        n_bytes = self.n_bytes
        while n_bytes > MOST_BYTES and self._whole:
            image = self._whole.popitem(last=False)[0]
            cached = self._images[image]
            n_bytes -= cached.n_bytes
            self._fill(cached)  # what a known correction accepts is live, and stays
            self._images[image] = cached.only_live(self._model.votes)
            n_bytes += self._images[image].n_bytes

    def _forget_everywhere(self) -> None:
        self._everywhere = None
        for state in self._states.values():
            state.everywhere = None

    def is_covered(self, image: str, ids: frozenset[str]) -> bool:
        """Whether the detections of an image with these corrections are exact: no window is missing."""
        with self._lock:
            return image in self._images and self._images[image].has_all(self._state(ids).lowered)

    # Outcomes.

    def detections(self, image: str, ids: frozenset[str]) -> Detections:
        """What is found in an image with these corrections, at any score."""
        with self._lock:
            cached, state = self._images[image], self._state(ids)
            self._fill(cached)
            if image in self._whole:
                self._whole.move_to_end(image)
            known = state.found.get(image)
            if known is not None and known[:2] == (cached.number, len(cached.live_rows)):
                return known[2]
            scores = self._scores(cached.live, state)
            fired = scores > -np.inf
            rows = cached.live_rows[fired]
            windows = replace(cached.windows.take(rows), scores=scores[fired])
            # Most often, nothing has changed since the states that were used last.
            recent = [state.found[image] for state in list(self._states.values())[-4:] if image in state.found]
            same = (other for number, _, other in recent if number == cached.number and is_same(other, windows))
            found = next(same, None) or self._report(windows)
            probability = probability_by(self._reference, lambda: self.held_out_scores(state))
            found = replace(found, calibration=probability)
            state.found[image] = cached.number, len(cached.live_rows), found
            return found

    def differing(self, one: frozenset[str], other: frozenset[str]) -> list[str]:
        """The images in which a window has another score with other corrections; in all others nothing differs."""
        with self._lock:
            if not self._images:
                return []
            self._fill_all()
            scores = [self._everywhere_scores(ids) for ids in (one, other)]
            assert self._everywhere is not None
            changed = np.append(0, np.cumsum(scores[0] != scores[1]))
            starts = np.append(self._everywhere.starts, len(scores[0]))
            n_changed = np.diff(changed[starts])
            return [key for key, n in zip(self._everywhere.images, n_changed.tolist(), strict=True) if n]

    def _everywhere_scores(self, ids: frozenset[str]) -> Floats:
        """The scores of the live windows of all images."""
        if self._everywhere is None:
            parts = {key: image.live for key, image in self._images.items()}
            starts = np.cumsum([0, *(len(part.responses) for part in parts.values())])[:-1]
            live = LiveWindows.joined(list(parts.values()), self._model.votes.n_weak)
            self._everywhere = Everywhere(parts, starts, live)
        state = self._state(ids)
        if state.everywhere is None or state.everywhere[0] is not self._everywhere:
            state.everywhere = self._everywhere, self._scores(self._everywhere.live, state)
        return state.everywhere[1]

    def _report(self, windows: FiredWindows) -> Detections:
        return report(
            windows,
            offset=self._reporting.box_offset,
            min_score=-np.inf,
            by_object=self._model.grid.by_object,
            class_name=self._detector.class_name,
        )

    def _scores(self, live: LiveWindows, state: ScoredState, *, is_scan: bool = True) -> Floats:
        """Scores (n,) of windows with the corrections of a state; -inf where they are rejected.

        A scan reaches only windows that pass the lowered limits.
        """
        is_reached = None
        if state.lowered is not None:
            is_reached = live.scores > -np.inf
            below = np.flatnonzero(~is_reached)
            is_reached[below] = state.lowered.scores(live.responses.take(below)) > -np.inf
        elif is_scan:
            is_reached = live.scores > -np.inf
        targets = np.zeros(len(live.scores))
        if len(state.targets):
            targets = state.targets[live.table[state.rows[1]].argmin(axis=0)]
        return decide(live.scores, live.distances(state.rows), targets, state.reach, self._unknown, is_reached)

    def _state(self, ids: frozenset[str]) -> ScoredState:
        if ids in self._states:
            self._states.move_to_end(ids)
            return self._states[ids]
        effects = Effects.from_iterable(self._effects[key] for key in sorted(ids) if key in self._effects)
        row = {key: number for number, key in enumerate(self._effects)}
        rows = [
            np.array([row[effect.record.id] for effect in side], np.intp)
            for side in (effects.rejected, effects.accepted, effects.objects, effects.others)
        ]
        limits = effects.limits(self._model.votes)
        state = ScoredState(
            effects,
            (rows[0], rows[1], rows[2], rows[3]),
            effects.reach(self._judging),
            None if limits is None else self._model.votes.lowered(limits),
            np.array([effect.target for effect in effects.accepted]),
        )
        self._states[ids] = state
        # States whose detections are remembered.
        while len(self._states) > 32:
            self._states.popitem(last=False)
        return state

    # Estimates.

    @cached_property
    def _judging_windows(self) -> list[tuple[LiveWindows, Floats, Indices]]:
        """The judging samples of the reference set as windows, with gains and items."""
        parts = [] if self._reference is None else self._reference.judging
        votes = self._model.votes
        return [
            (LiveWindows.from_responses(responses, votes.scores(responses), self._guards), gain, items)
            for responses, gain, items in parts
        ]

    def held_out_scores(self, state: ScoredState) -> HeldOutScores | None:
        """Scores of the reference set with the corrections of a state; None without one."""
        with self._lock:
            if state.held_out is None and self._reference is not None:
                sides = []
                for live, gain, items in self._judging_windows:
                    live.fill(self._known)
                    sides.append(item_scores(self._scores(live, state, is_scan=False), gain, items))
                state.held_out = HeldOutScores(sides[0], sides[1], self._reference.n_images)
            held_out = state.held_out
        return held_out if held_out is not None and held_out.is_usable else None

    def estimate(self, ids: frozenset[str]) -> Estimate | None:
        """Recall and false positives per image with these corrections, by the reference set; None without one."""
        with self._lock:
            held_out = self.held_out_scores(self._state(ids))
        return None if held_out is None else held_out.estimate(self._reporting.min_score(None))

    def unsatisfied(self, ids: frozenset[str]) -> frozenset[str]:
        """The corrections that do not hold."""
        with self._lock:
            return frozenset(self._state(ids).effects.unsatisfied(self._reference))
