"""The effect of any set of corrections on all images, without another scan.

Corrections judge windows by Hamming distances between responses (`whet.cascade.neighbours`). So the windows of an image
that the stages let through, or nearly let through, are kept with their responses. A correction that is new costs one
pass: the least distance of each window to the windows of the correction. The outcome of any set of corrections is then
a minimum over rows of distances and some comparisons, with exactly the result of a scan.

A window that the stages reject matters only if a correction of a missed object can accept it. Only such windows, and
those that the stages accept, have rows of distances: they are *live*.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from whet._kernels.responses import find_nearest, have_within
from whet._kernels.threads import for_each_block
from whet.cascade.detect import report
from whet.cascade.detections import Calibration, Detections, FiredWindows
from whet.cascade.neighbours import MUCH_NEARER, decided, is_nearer, unknown_distance, words_of
from whet.cascade.pyramid import Level, Pyramid, WindowIndex
from whet.cascade.scan import scan_pyramid, stage_scores
from whet.cascade.stage import Stage
from whet.detector.corrections import OBJECT_NEAR, SAME
from whet.detector.derive import (
    FARTHEST,
    FEWEST_GUARDS,
    Role,
    Roles,
    guards_of,
    is_within_reach,
    judging_objects,
    roles_of,
)
from whet.detector.detector import Detector
from whet.detector.records import Record
from whet.detector.reference import Estimate, Judgement
from whet.web.windows import (
    Bits,
    CachedImage,
    Cover,
    Everywhere,
    Floats,
    Indices,
    LiveWindows,
    ScoredState,
    Words,
    is_lower,
    is_same,
    merged,
    thresholds_of,
)

# Thresholds are lowered by so much, in units of |w|, for the windows that are kept: a bit more than copies of a missed
# object need (`OBJECT_NEAR`), so that objects just below the minimum score are covered.
MARGIN = OBJECT_NEAR + 0.01
MOST_WINDOWS = 6000
# By so much where no more than `MOST_DEEP` windows are expected to pass then: as much as any correction can reach.
DEEP = FARTHEST + 0.01
MOST_DEEP = 20_000
LEAST_MARGIN = 0.01
# Bytes of the windows of all images together. Beyond, images that were not asked for the longest keep only live ones.
MOST_BYTES = 1 << 29
# Images whose pyramids are remembered.
MOST_PYRAMIDS = 6
# States whose detections are remembered.
MOST_STATES = 32


class Rescorer:
    """The windows of images, and the outcome of any set of corrections in them.

    >>> from skimage import data
    >>> import whet
    >>> detector = whet.load("face")
    >>> wrong = detector.new_records(data.astronaut(), detector.detect(data.astronaut())[1].boxes, False)
    >>> rescorer = Rescorer(detector)
    >>> rescorer.scan("astronaut", data.astronaut())
    >>> rescorer.add(wrong)
    >>> [len(rescorer.detections("astronaut", frozenset(ids)).with_min_score(34)) for ids in ([], [wrong[0].id])]
    [2, 1]
    """

    def __init__(self, detector: Detector, threads: int | None = None) -> None:
        self._detector = detector.copy()
        self._base, self._weighted = detector.base, detector.weighted
        self._threads = threads
        self._guards = words_of(guards_of(self._base)[0]), words_of(guards_of(self._base)[1])
        self._judging = judging_objects(self._base)[1]
        n_weak = self._base.cascade.n_weak
        self._unknown = tuple(unknown_distance(n_weak, len(side) >= FEWEST_GUARDS) for side in self._guards)
        self._reporting = detector.reporting
        self._cover = None if self._weighted.coarse_stages else tuple(map(thresholds_of, self._weighted.stages))
        # Windows of the images that were scanned with both margins, to know how many more the deep one lets pass.
        self._n_both = 1, 1
        self._images: dict[str, CachedImage] = {}
        # Images that have windows which are not live, in the order in which they were asked for.
        self._whole: OrderedDict[str, None] = OrderedDict()
        self._roles: dict[str, Role] = {}
        self._rows: dict[str, int] = {}
        self._known: list[Words] = []
        self._states: OrderedDict[frozenset[str], ScoredState] = OrderedDict()
        self._levels: OrderedDict[str, dict[float, Level]] = OrderedDict()
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
            new = [r for r in records if r.kind == "correction" and len(r) and r.id not in self._roles]
            for role in roles_of(self._base, self._weighted, new):
                self._rows[role.record.id] = len(self._known)
                self._roles[role.record.id] = role
                self._known.append(role.words)

    def _fill_all(self) -> None:
        """Add the rows of new corrections in all images."""
        images = [image for image in self._images.values() if image.n_promoted < len(self._roles)]

        def work(rows: slice) -> None:
            for image in images[rows]:
                self._fill(image)

        for_each_block(work, len(images), 16, self._threads)
        if self._everywhere is not None:
            self._everywhere.live.take_rows(list(self._everywhere.images.values()))
        self._shed()

    def _fill(self, image: CachedImage) -> None:
        """Make windows live that a new correction can accept, and add the rows of new corrections."""
        if image.n_promoted == len(self._roles):
            return
        promoted = np.zeros(len(image.words), np.bool_)
        promoted[image.live_rows] = True
        n_before = int(promoted.sum())
        for role in list(self._roles.values())[image.n_promoted :]:
            if role.record.is_object and not role.holds:
                promoted |= self._can_accept(image.words, self._known[self._rows[role.record.id]])
        image.n_promoted = len(self._roles)
        if int(promoted.sum()) > n_before:
            self._make_live(image, np.flatnonzero(promoted))
        image.live.fill(self._known)

    def _can_accept(self, words: Words, known: Words) -> NDArray[np.bool_]:
        """Which windows a correction accepts if there are no others; with others, it accepts no more."""
        distance = np.full(len(words), 4 * self._base.cascade.n_weak, np.int64)
        find_nearest(words, known, distance, np.zeros(len(words), np.intp))
        has_nearer = ~is_nearer(distance, self._unknown[1], MUCH_NEARER)
        have_within(words, self._guards[1], distance, MUCH_NEARER, has_nearer)
        return ~has_nearer

    def _make_live(self, image: CachedImage, rows: Indices) -> None:
        self._forget_everywhere()
        image.live_rows = rows
        image.live = LiveWindows.from_words(image.words[rows], image.windows.scores[rows], self._guards)

    # Images.

    def levels(self, image: str) -> dict[float, Level]:
        """Levels of an image's pyramid, shared by all who scan it; those of the last images are kept."""
        with self._lock:
            known = self._levels.pop(image, {})
            self._levels[image] = known
            while len(self._levels) > MOST_PYRAMIDS:
                self._levels.popitem(last=False)
            return known

    def prepare(self, image: str, pixels: NDArray[np.uint8]) -> None:
        """Make the levels of an image's pyramid ahead of a correction, which then need not wait for them."""
        for level in self._pyramid(image, pixels).levels:
            if self._weighted.uses_channels:
                _ = level.filtered  # kept by the level

    def scan(self, image: str, pixels: NDArray[np.uint8], ids: frozenset[str] = frozenset()) -> None:
        """Keep the windows of an image that pass thresholds lowered by a margin, and by some corrections.

        A margin that lets too many windows pass is made smaller; corrections that do so are left out.
        """
        pyramid, margin = self._pyramid(image, pixels), MARGIN
        while True:
            stages = self._loosened(margin)
            fired = self._all_fired(stages, pyramid)
            if len(fired) <= MOST_WINDOWS or margin < LEAST_MARGIN:
                break
            margin = margin / 2 if margin > 2 * LEAST_MARGIN else 0.0
        if margin == MARGIN and self._may_be_deep(len(fired)):
            deep, n_before = self._loosened(DEEP), len(fired)
            more = self._all_fired(deep, pyramid)
            stages, fired = (deep, more) if len(more) <= MOST_DEEP else (stages, fired)
            with self._lock:
                self._n_both = self._n_both[0] + n_before, self._n_both[1] + len(more)
        with self._lock:
            needed = self._state(ids).roles.lowest()
        if needed is not None and not is_lower(tuple(map(thresholds_of, stages)), needed):
            deeper = tuple(stage.lowered(low) for stage, low in zip(stages, needed, strict=True))
            more = self._all_fired(deeper, pyramid)
            stages, fired = (deeper, more) if len(more) <= MOST_DEEP else (stages, fired)
        self._keep(image, pyramid, fired, self._responses(pyramid, fired), tuple(map(thresholds_of, stages)))

    def _loosened(self, margin: float) -> tuple[Stage, ...]:
        pairs = zip(self._weighted.stages, self._base.lengths.tolist(), strict=True)
        return tuple(stage.loosened(margin * length) for stage, length in pairs)

    def _may_be_deep(self, n: int) -> bool:
        """Whether the deep margin is tried in an image of which n windows pass the usual one: memory is left, too."""
        with self._lock:
            n_usual, n_deep = self._n_both
            return n * n_deep <= MOST_DEEP * n_usual and self.n_bytes < MOST_BYTES // 2

    def _all_fired(self, stages: tuple[Stage, ...], pyramid: Pyramid) -> FiredWindows:
        """All windows that pass stages, with thresholds of their own, whether or not a coarse pass looks at them."""
        return scan_pyramid(replace(self._weighted.full, stages=stages), pyramid, threads=self._threads)

    def look_around(self, image: str, pixels: NDArray[np.uint8], records: Iterable[Record]) -> None:
        """Also keep the windows around missed objects of an image that any correction can accept, known or not.

        Elsewhere, windows that lie deeper than those of `scan` are found by a scan with the corrections.
        """
        with self._lock:
            roles = [self._roles[record.id] for record in records if record.id in self._roles]
        missed = [role.record.box for role in roles if role.record.is_object and not role.holds]
        if not missed:
            return
        pyramid = self._pyramid(image, pixels)
        near = [pyramid.overlapping(np.array(box), SAME, self._reporting.box_offset) for box in missed]
        index = WindowIndex.concatenate(near)
        windows = FiredWindows(index, pyramid.boxes(index), np.zeros(len(index)))
        responses = self._responses(pyramid, windows)
        kept = is_within_reach(self._base, self._weighted, responses)
        self._keep(image, pyramid, windows.take(kept), responses[kept])

    def take_fired(self, image: str, pixels: NDArray[np.uint8], windows: FiredWindows) -> None:
        """Also keep the windows that fired in a scan with some corrections: with these, detections are then exact."""
        pyramid = self._pyramid(image, pixels)
        self._keep(image, pyramid, windows, self._responses(pyramid, windows))

    def _pyramid(self, image: str, pixels: NDArray[np.uint8]) -> Pyramid:
        shared = self.levels(image)
        return self._detector.pyramid(self._detector.pixels(pixels), threads=self._threads, shared=shared)

    def _responses(self, pyramid: Pyramid, windows: FiredWindows) -> Bits:
        return self._weighted.responses(pyramid, windows.index)

    def _keep(
        self, image: str, pyramid: Pyramid, windows: FiredWindows, responses: Bits, cover: Cover | None = None
    ) -> None:
        """Add windows to those of an image; with a `cover`, they are all that pass these thresholds."""
        scores = stage_scores(self._weighted, pyramid, windows.index, responses)
        windows, words = replace(windows, scores=scores), words_of(np.packbits(responses, axis=1))
        with self._lock:  # from reading to writing: no thread loses what another one keeps
            before = self._images.get(image)
            if before is not None:
                self._fill(before)  # what a known correction accepts is live, and stays
            cached = merged(before, windows, words, cover, self._cover, self._guards)
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
            self._images[image] = cached.only_live(self._cover)
            n_bytes += self._images[image].n_bytes

    def _forget_everywhere(self) -> None:
        self._everywhere = None
        for state in self._states.values():
            state.everywhere = None

    def is_covered(self, image: str, ids: frozenset[str]) -> bool:
        """Whether the detections of an image with these corrections are exact: no window is missing."""
        with self._lock:
            return image in self._images and self._images[image].has_all(self._state(ids).lowest)

    # Outcomes.

    def detections(self, image: str, ids: frozenset[str]) -> Detections:
        """What is found in an image with these corrections, at any score."""
        with self._lock:
            cached, state = self._images[image], self._state(ids)
            self._fill(cached)
            if image in self._whole:
                self._whole.move_to_end(image)
            known = state.found.get(image)
            if known is not None and known[0] == cached.number and known[1] == len(cached.live_rows):
                return known[2]
            scores = self._scores(cached.live, state)
            fired = scores > -np.inf
            rows = cached.live_rows[fired]
            windows = replace(cached.windows.take(rows), scores=scores[fired])
            same = next((other for other in self._recent(image, cached) if is_same(other, windows)), None)
            found = self._report(windows) if same is None else same
            found = replace(found, calibration=self._calibration(state))
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
            starts = np.cumsum([0, *(len(part.words) for part in parts.values())])[:-1]
            n_words = -(-self._base.cascade.n_weak // 64)
            self._everywhere = Everywhere(parts, starts, LiveWindows.joined(list(parts.values()), n_words))
        state = self._state(ids)
        if state.everywhere is None or state.everywhere[0] is not self._everywhere:
            state.everywhere = self._everywhere, self._scores(self._everywhere.live, state)
        return state.everywhere[1]

    def _recent(self, image: str, cached: CachedImage) -> list[Detections]:
        """The detections of an image in the states that were used last: most often, nothing has changed."""
        recent = [state.found[image] for state in list(self._states.values())[-4:] if image in state.found]
        return [found for number, _, found in recent if number == cached.number]

    def _calibration(self, state: ScoredState) -> Calibration | None:
        if self._base.reference is None or not self._base.reference.n_images:
            return None

        def probability(scores: Floats, _: Indices) -> Floats:
            judged = self.judgement_of(state)
            return np.full(len(scores), np.nan) if judged is None else judged.calibration.probability(scores)

        return probability

    def _report(self, windows: FiredWindows) -> Detections:
        return report(
            windows,
            offset=self._reporting.box_offset,
            min_score=-np.inf,
            by_object=self._weighted.uses_channels,
            class_name=self._detector.class_name,
        )

    def _scores(self, live: LiveWindows, state: ScoredState, *, is_scan: bool = True) -> Floats:
        """Scores (n,) of windows with the corrections of a state; -inf where they are rejected.

        A scan reaches only windows that pass the lowered thresholds.
        """
        rejected_rows, accepted_rows, found_rows, other_rows = state.rows
        far = 4 * self._base.cascade.n_weak
        rejected, accepted = live.least(rejected_rows, far), live.least(accepted_rows, far)
        objects, others = live.least(found_rows, live.objects), live.least(other_rows, live.others)
        is_rejected = is_nearer(
            rejected, np.minimum.reduce([accepted, objects]).clip(max=self._unknown[0]), state.reach
        )
        is_accepted = is_nearer(accepted, np.minimum.reduce([rejected, others]).clip(max=self._unknown[1]), MUCH_NEARER)
        targets = np.zeros(len(live.scores))
        if len(accepted_rows):
            targets = state.targets[live.table[accepted_rows].argmin(axis=0)]
        scores = decided(live.scores, is_rejected, is_accepted, targets)
        raised = np.flatnonzero((scores > -np.inf) & np.isneginf(live.scores))
        if len(raised) and state.lowered is not None:
            packed = live.words[raised].view(np.uint8)
            bits = np.unpackbits(packed, axis=1, count=self._base.cascade.n_weak)
            raised = raised[np.isneginf(state.lowered.scores_of_responses(bits))]
        elif not is_scan:
            raised = raised[:0]
        scores[raised] = -np.inf
        return scores

    def _state(self, ids: frozenset[str]) -> ScoredState:
        if ids in self._states:
            self._states.move_to_end(ids)
            return self._states[ids]
        roles = Roles.from_roles(self._roles[key] for key in sorted(ids) if key in self._roles)
        rows = [
            np.array([self._rows[role.record.id] for role in side], np.intp)
            for side in (roles.rejected, roles.accepted, roles.found, roles.others)
        ]
        stages = roles.lowered(self._weighted)
        state = ScoredState(
            roles,
            (rows[0], rows[1], rows[2], rows[3]),
            roles.reach(self._judging),
            None if stages is None else replace(self._weighted, stages=stages),
            None if stages is None else tuple(map(thresholds_of, stages)),
            np.array([role.target for role in roles.accepted]),
        )
        self._states[ids] = state
        while len(self._states) > MOST_STATES:
            self._states.popitem(last=False)
        return state

    # Estimates.

    @cached_property
    def _reference(self) -> list[tuple[LiveWindows, Floats, Indices]]:
        """The judging samples of the reference set as windows, with gains and items."""
        if self._base.reference is None:
            return []
        parts = []
        for bits, gain, items in self._base.reference.judging:
            words = words_of(np.packbits(bits, axis=1))
            scores = self._weighted.scores_of_responses(bits, self._threads)
            parts.append((LiveWindows.from_words(words, scores, self._guards), gain, items))
        return parts

    def judgement_of(self, state: ScoredState) -> Judgement | None:
        """Scores of the reference set with the corrections of a state; None without one."""
        from whet.detector.reference import item_scores

        with self._lock:
            if state.judgement is None and self._base.reference is not None:
                sides = []
                for live, gain, items in self._reference:
                    live.fill(self._known)
                    sides.append(item_scores(self._scores(live, state, is_scan=False), gain, items))
                state.judgement = Judgement(sides[0], sides[1], self._base.reference.n_images)
            judged = state.judgement
        return judged if judged is not None and judged.is_usable else None

    def estimate(self, ids: frozenset[str]) -> Estimate | None:
        """Recall and false positives per image with these corrections, by the reference set; None without one."""
        with self._lock:
            judged = self.judgement_of(self._state(ids))
        return None if judged is None else judged.estimate(self._reporting.min_score(None))

    def unsatisfied(self, ids: frozenset[str]) -> frozenset[str]:
        """The corrections that do not hold."""
        from whet.detector.derive import guard_rows

        with self._lock:
            return frozenset(self._state(ids).roles.unsatisfied(guard_rows(self._base)))
