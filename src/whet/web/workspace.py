"""The studio without HTTP: one object over the project file, the history, the detector and the cache of its windows."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import isfinite
from pathlib import Path
from threading import BoundedSemaphore, Lock, RLock

import numpy as np

from whet._kernels.threads import available_threads
from whet.cascade.boxes import box_iou
from whet.cascade.detections import Detections
from whet.detector.corrections import CONTRARY, checked_labels
from whet.detector.detector import Detector
from whet.detector.records import Record
from whet.detector.reference import Estimate
from whet.detector.storage import BUNDLED, class_in_file
from whet.errors import BoxError, CannotExportError, CannotLearnError, NotNowError, ProjectError, UnknownItemError
from whet.web import effects
from whet.web.effects import as_box, boxes_of
from whet.web.events import Events
from whet.web.gallery import Gallery, Pixels
from whet.web.history import History
from whet.web.rescoring import Rescorer
from whet.web.store import Label, Store, StoredImage
from whet.web.views import (
    ChangeView,
    Corrected,
    DetectionView,
    EffectSummary,
    EstimateView,
    HistoryView,
    ImageSummary,
    ImageView,
    ModelView,
    NodeView,
)

REVIEWED = "reviewed/"
# Boxes of one request: a person draws fewer, and each takes some milliseconds.
MOST_BOXES = 200
LONGEST_BRANCH = 100


class Workspace:
    """A project: images, labels and the history of a detector.

    A state of the detector is its base with a set of corrections. Every change of the set is written to the project
    file before the call returns. Threads share a workspace; a request that comes twice is answered twice and learned
    once.

    >>> import tempfile
    >>> from skimage import data
    >>> import whet
    >>> place = Path(tempfile.mkdtemp()) / "face.studio"
    >>> with Workspace.open(place, whet.load("face"), name="face") as studio:
    ...     image = studio.add_image(data.astronaut(), "astronaut.png")
    ...     wrong = studio.image(image.id).detections[1].box
    ...     answer = studio.label(image.id, [wrong], False)
    ...     len(studio.image(image.id).detections), studio.undo(), len(studio.image(image.id).detections)
    (1, 0, 2)
    """

    def __init__(self, store: Store, detector: Detector | None, name: str, threads: int | None = None) -> None:
        self.store, self.name, self.threads = store, name, threads
        self.events = Events()
        self.gallery = Gallery(store)
        self.history: History = store.history()
        self.labels: dict[str, Label] = {label.id: label for label in store.labels()}
        self.revision = 0
        self._lock = RLock()
        self._busy: set[str] = set()
        self._busy_lock = Lock()
        self._scanning = Lock()
        self._detecting = BoundedSemaphore(available_threads())
        self._detector: Detector | None = None
        self._rescorer: Rescorer | None = None
        self._by_image: dict[str, list[Label]] = {}
        self.gallery.show_labelled(label.image for label in self.labels.values())
        if detector is not None:
            self._use(detector)
        self._arrived()

    @classmethod
    def open(
        cls,
        project: Path,
        detector: Detector | None = None,
        *,
        name: str = "model",
        model: str | None = None,
        threads: int | None = None,
    ) -> Workspace:
        """Open a project file, or make a new one, for a detector; without a detector, with that of the project.

        `model` is where the detector was loaded from: a file is saved there, a bundled one beside the project.
        """
        store = Store(project)
        try:
            snapshot = store.get("model")
            if snapshot is None and detector is not None:
                _take_over(store, detector, name, model)
                snapshot = store.get("model")
            base = None if snapshot is None else Detector.from_bytes(snapshot)
            if base is not None and detector is not None and base.base_id != detector.base_id:
                raise ProjectError(
                    f"{project} belongs to the model {store.get('name')} (base {base.base_id[:12]}), not to {name} (base "
                    f"{detector.base_id[:12]}); choose another file with --project"
                )
            workspace = cls(store, base, name if base is None else store.get("name") or name, threads)
            if detector is not None:
                workspace._learn_of(detector, name)
            return workspace
        except BaseException:
            store.close()
            raise

    def _learn_of(self, detector: Detector, name: str) -> None:
        """Take over corrections that the model's file has, and the project has never had."""
        new = [label for label in _labels_of(detector, name) if label.id not in self.labels]
        if new:
            self._commit(new, (), author=name, text=f"{len(new)} corrections of {name}")

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the project file."""
        with self._lock:
            self.store.close()

    # The detector and its states.

    @property
    def detector(self) -> Detector:
        """The detector as it is now; raises `NotNowError` without one."""
        if self._detector is None:
            raise NotNowError("this project has no model yet; draw boxes and train one, or start `whet serve MODEL`")
        return self._detector

    @property
    def has_model(self) -> bool:
        """Whether there is a detector."""
        return self._detector is not None

    @property
    def rescorer(self) -> Rescorer:
        """The cache of windows of all images."""
        if self._rescorer is None:
            raise NotNowError("this project has no model yet; train one first")
        return self._rescorer

    def _use(self, detector: Detector) -> None:
        self._detector = detector
        self._rescorer = Rescorer(detector, self.threads)
        self._rescorer.add(label.record for label in self.labels.values() if label.record is not None)

    @property
    def model_path(self) -> Path:
        """The file that the detector is saved in."""
        known = self.store.get("path")
        return Path(known) if known is not None else self.store.path.absolute().with_name(f"{self.name}.whet")

    @property
    def is_saved(self) -> bool:
        """Whether the file of the detector is of this state."""
        return bool(self.store.get("saved_node") == self.history.current)

    def set_model(self, detector: Detector, name: str) -> None:
        """Use a detector that was trained in this project."""
        with self._lock:
            self.store.put(model=detector.to_bytes(), name=name)
            self.name = name
            self.__dict__.pop("_can_export_opencv", None)
            self._use(detector)
            self._arrived()
        self._publish()

    def record_ids(self, node: int | None = None) -> frozenset[str]:
        """The corrections of a state; without a node, of the current one."""
        items = self.history.items(node)
        return frozenset(key for key in items if key in self.labels and self.labels[key].record is not None)

    def records(self, node: int | None = None) -> list[Record]:
        """The records of a state."""
        records = (self.labels[key].record for key in sorted(self.record_ids(node)))
        return [record for record in records if record is not None]

    def detector_at(self, node: int) -> Detector:
        """A detector with the corrections of any state."""
        with self._lock:
            twin, wanted = self.detector.copy(), self.record_ids(node)
            now = self.record_ids()
            twin.replace_records(*(self._records_of(ids) for ids in (wanted - now, now - wanted)))
        return twin

    def _records_of(self, ids: Iterable[str]) -> list[Record]:
        return [record for key in sorted(ids) if (record := self.labels[key].record) is not None]

    def _arrived(self) -> None:
        """Bring the detector to the current state, and note the labels of each image."""
        items = self.history.items()
        by_image: dict[str, list[Label]] = {}
        for key in items:
            label = self.labels.get(key)
            if label is not None and label.image is not None:
                by_image.setdefault(label.image, []).append(label)
        self._by_image = by_image
        if self._detector is not None:
            wanted, now = self.record_ids(), {record.id for record in self._detector.records}
            pinned = {record.id for record in self._detector.records if record.kind != "correction"}
            self._detector.replace_records(
                self._records_of(wanted - now), [r for r in self._detector.records if r.id in now - wanted - pinned]
            )
        self.revision += 1

    @contextmanager
    def locked(self) -> Iterator[History]:
        """The history, while nobody can change it."""
        with self._lock:
            yield self.history

    def estimate_at(self, node: int) -> Estimate | None:
        """Recall and false positives in a state, by the reference set; None without a model or a reference set."""
        return None if self._rescorer is None else self._rescorer.estimate(self.record_ids(node))

    # What is shown.

    def image(self, key: str) -> ImageView:
        """An image with its detections and labels."""
        image = self.gallery[key]
        found = self.shown(key)
        with self._lock:
            labels, node, items = self._by_image.get(key, []), self.history.current, self.history.items()
            unsatisfied = self._unsatisfied()
        return ImageView(
            image.id,
            image.name,
            image.width,
            image.height,
            effects.detection_views(found, labels),
            effects.label_views(labels, unsatisfied),
            REVIEWED + key in items,
            image.truth is not None,
            node,
        )

    def _unsatisfied(self) -> frozenset[str]:
        return frozenset() if self._rescorer is None else self._rescorer.unsatisfied(self.record_ids())

    def shown(self, key: str) -> Detections:
        """The detections of an image above the minimum score."""
        return self.detections(key).above(self.min_score)

    def detections(self, key: str, node: int | None = None) -> Detections:
        """The detections of an image at any score, now or in another state; nothing without a model."""
        if self._rescorer is None:
            return Detections()
        with self._lock:
            ids = self.record_ids(node)
        if key not in self._rescorer:
            with self._scanning:
                if key not in self._rescorer:
                    self._rescorer.scan(key, self.gallery.pixels(key))
        return self._rescorer.detections(key, ids)

    def labels_of(self, key: str) -> list[Label]:
        """The labels of an image in the current state."""
        with self._lock:
            return list(self._by_image.get(key, []))

    def is_reviewed(self, key: str) -> bool:
        """Whether a person has confirmed all detections of an image."""
        return REVIEWED + key in self.history.items()

    def summary(self, image: StoredImage, group: int = 0, expected: float | None = None) -> ImageSummary:
        """An image for a list; the number of detections is None until the image was scanned."""
        is_known = self._rescorer is not None and image.id in self._rescorer
        return ImageSummary(
            image.id,
            image.name,
            image.width,
            image.height,
            len(self.shown(image.id)) if is_known else None,
            effects.label_counts(self.labels_of(image.id)),
            self.is_reviewed(image.id),
            image.truth is not None,
            len(effects.disputes(self.labels_of(image.id))),
            group,
            expected,
        )

    def add_image(self, pixels: Pixels, name: str) -> StoredImage:
        """Add an image, such as a video frame, to the project itself."""
        image = self.gallery.add_pixels(pixels, name)
        self.events.publish("images", total=len(self.gallery))
        return image

    # The minimum score.

    @property
    def min_score_name(self) -> str | None:
        """The operating point that is used, if it has a name."""
        value = self._chosen_score()
        return value if isinstance(value, str) else "default" if value is None and self._has_default() else None

    @property
    def min_score(self) -> float:
        """The score that detections have to exceed."""
        return -np.inf if self._detector is None else self._detector.reporting.min_score(self._chosen_score())

    def _chosen_score(self) -> float | str | None:
        value: float | str | None = self.store.get("min_score")
        if isinstance(value, str) and value not in self.detector.operating_points:
            return None
        return value

    def _has_default(self) -> bool:
        return self._detector is not None and "default" in self._detector.operating_points

    def set_min_score(self, wanted: float | str, *, author: str = "") -> None:
        """Show detections above a score, or above that of an operating point."""
        with self._lock:
            if not isfinite(self.detector.reporting.min_score(wanted)):
                raise ValueError(f"got min_score={wanted}; expected a finite score or the name of an operating point")
            self.store.put(min_score=wanted)
            self.revision += 1
        self._publish(client=author)

    # Corrections.

    def label(
        self,
        key: str,
        boxes: Sequence[Sequence[float]],
        is_object: bool | Sequence[bool],
        *,
        author: str = "",
        request: str | None = None,
        replaces: Sequence[str] = (),
    ) -> Corrected:
        """Learn what a person says about boxes of an image; labels that it `replaces` are unlearned in the same step.

        A box that the same author labelled otherwise before is labelled anew; opposite labels of two authors are both
        kept.
        """
        if len(boxes) > MOST_BOXES:
            raise BoxError(f"got {len(boxes)} boxes in one request; expected at most {MOST_BOXES}")
        image = self.gallery[key]
        with self._one_at_a_time(author):
            known = self._answered(request, key)
            if known is not None:
                return known
            array, flags = checked_labels(np.array(boxes, np.float64).reshape(-1, 4), is_object, (image.height, image.width))
            new = self._new_labels(image, [as_box(box) for box in array], flags.tolist(), author)
            with self._lock:
                known = self._answered(request, key)
                if known is not None:
                    return known
                before = self.history.current
                replaced = [*replaces, *self._contrary_of(new, author)]
                text = f"{image.name}: {_said(new)}"
                self._commit(new, replaced, author=author, text=text, request=request)
            missed = [label.box for label in new if label.is_object and label.record is not None]
            if missed:
                self.rescorer.look_around(key, self.gallery.pixels(key), missed)
            return self._answer(before, [label.id for label in new], key, author)

    def _new_labels(
        self, image: StoredImage, boxes: Sequence[tuple[float, float, float, float]], flags: Sequence[bool], author: str
    ) -> list[Label]:
        """Labels with what the detector learns of them; they do not depend on what was learned before."""
        found = self.shown(image.id).boxes
        was_found = (box_iou(np.array(boxes).reshape(-1, 4), found) >= CONTRARY).any(axis=1).tolist()
        records: Sequence[Record | None] = [None] * len(boxes)
        if self._detector is not None and boxes:
            pixels = self.gallery.pixels(image.id)
            score = self._chosen_score()
            records = self._detector.new_records(
                pixels, boxes, flags, name=image.name, min_score=score, threads=self.threads
            )
        now = time.time()
        return [
            Label(_key(image.id, box, flag, record), image.id, box, flag, found, author, now, record)
            for box, flag, found, record in zip(boxes, flags, was_found, records, strict=True)
        ]

    def _contrary_of(self, new: Sequence[Label], author: str) -> list[str]:
        """Earlier labels of the same author that say the contrary about the same box."""
        ids = []
        for label in new:
            others = [
                other
                for other in self._by_image.get(label.image or "", [])
                if other.is_object is not label.is_object and other.author == author
            ]
            same = box_iou(boxes_of([label]), boxes_of(others))[0] >= CONTRARY
            ids += [other.id for other, is_same in zip(others, same.tolist(), strict=True) if is_same]
        return ids

    def unlabel(self, label_id: str, *, author: str = "", request: str | None = None) -> Corrected:
        """Unlearn one correction, as if it had never been learned."""
        with self._one_at_a_time(author):
            label = self.labels.get(label_id)
            if label is None:
                raise UnknownItemError(f"got label {label_id[:16]!r}; expected the record_id of a label")
            with self._lock:
                known = self._answered(request, label.image)
                if known is not None:
                    return known
                if label_id not in self.history.items():
                    raise UnknownItemError(f"the label {label_id[:8]} is not part of this state; nothing was changed")
                before = self.history.current
                text = f"{self._name_of(label)}: label removed"
                self._commit((), [label_id], author=author, text=text, request=request)
            return self._answer(before, [], label.image, author)

    def confirm(self, keys: Sequence[str], *, author: str = "", request: str | None = None) -> Corrected:
        """Say of some images that all detections shown are right; each of them becomes a label, and guards."""
        images = [self.gallery[key] for key in dict.fromkeys(keys)]
        if not images:
            raise UnknownItemError("got no images to confirm; expected at least one id")
        with self._one_at_a_time(author):
            only = images[0].id if len(images) == 1 else None
            known = self._answered(request, only)
            if known is not None:
                return known
            new: list[Label] = []
            for image in images:
                found = self.shown(image.id)
                said = effects.labelled(found, self.labels_of(image.id))
                boxes = [as_box(box) for box, label in zip(found.boxes, said, strict=True) if label is None]
                new += self._new_labels(image, boxes, [True] * len(boxes), author)
            with self._lock:
                known = self._answered(request, only)
                if known is not None:
                    return known
                before = self.history.current
                name = images[0].name if only else f"{len(images)} images"
                items = [*(label.id for label in new), *(REVIEWED + image.id for image in images)]
                self._commit(new, (), items=items, author=author, text=f"{name}: confirmed", request=request)
            return self._answer(before, [label.id for label in new], only, author)

    def _commit(
        self,
        new: Sequence[Label],
        removed: Iterable[str],
        *,
        items: Iterable[str] | None = None,
        author: str = "",
        text: str = "",
        request: str | None = None,
    ) -> None:
        """Write a new state to the project file, and only then move there."""
        with self._lock:
            added = [label.id for label in new] if items is None else items
            node = self.history.next_node(added, removed, time=time.time(), author=author, text=text)
            fresh = [label for label in new if label.id not in self.labels]
            self.store.commit(node, fresh, self.history, request)
            self.labels |= {label.id: label for label in fresh}
            if self._rescorer is not None:
                self._rescorer.add(label.record for label in fresh if label.record is not None)
            self.history.append(node)
            self._arrived()

    def _answered(self, request: str | None, key: str | None) -> Corrected | None:
        """The answer to a request that was carried out already."""
        known = None if request is None else self.store.answered(request)
        if known is None:
            return None
        return Corrected(known[0], self.revision, known[1], None if key is None else self.image(key), None)

    def _answer(self, before: int, added: list[str], key: str | None, author: str) -> Corrected:
        view = None if key is None else self.image(key)
        self._publish(image=key, client=author)
        return Corrected(self.history.current, self.revision, added, view, self.effect_summary(before))

    def effect_summary(self, before: int) -> EffectSummary | None:
        """What differs in all scanned images between another state and now."""
        if self._rescorer is None:
            return None
        found = self.changes(before, self.history.current)
        estimates = [estimate_view(self.estimate_at(node)) for node in (before, self.history.current)]
        kinds = [sum(change.kind == kind for change in found) for kind in ("gained", "lost", "moved")]
        return EffectSummary(kinds[0], kinds[1], kinds[2], len({change.image for change in found}), *estimates)

    def changes(self, before: int, after: int) -> list[ChangeView]:
        """Boxes that differ between two states, in all images that were scanned, the most harmful first."""
        rescorer, lowest = self.rescorer, self.min_score
        with self._lock:
            ids = [self.record_ids(node) for node in (before, after)]
        found: list[ChangeView] = []
        for image in self.gallery:
            if image.id in rescorer:
                pair = [rescorer.detections(image.id, each) for each in ids]
                if pair[0] is not pair[1]:
                    shown = (each.above(lowest) for each in pair)
                    found += effects.changes(image.id, image.name, *shown, self.labels_of(image.id))
        return sorted(found, key=lambda change: (-change.harm, change.name, change.box))

    def _publish(self, *, image: str | None = None, client: str = "") -> None:
        self.events.publish(
            "state", revision=self.revision, node=self.history.current, image=image, client=client or None
        )

    @contextmanager
    def _one_at_a_time(self, author: str) -> Iterator[None]:
        """One request of a client that learns at a time: a page sends the next one when it has the answer."""
        with self._busy_lock:
            if author and author in self._busy:
                raise NotNowError("another correction of this client is being learned; send the next one after it")
            self._busy.add(author)
        try:
            yield
        finally:
            with self._busy_lock:
                self._busy.discard(author)

    def _name_of(self, label: Label) -> str:
        if label.image is not None and label.image in self.gallery:
            return self.gallery[label.image].name
        return label.record.name if label.record is not None else ""

    # History.

    def undo(self, *, author: str = "", request: str | None = None) -> int:
        """Move to the state before this one."""
        return self._move(self.history.undo, author, request)

    def redo(self, *, author: str = "", request: str | None = None) -> int:
        """Move to the state that was undone last."""
        return self._move(self.history.redo, author, request)

    def checkout(
        self, node: int | None = None, branch: str | None = None, *, author: str = "", request: str | None = None
    ) -> int:
        """Move to any state, or to the end of a branch."""
        if (node is None) is (branch is None):
            raise UnknownItemError("got neither or both of node and branch; expected one of them")
        if branch is not None:
            return self._move(lambda: self.history.switch(branch), author, request)
        return self._move(lambda: self.history.jump(node or 0), author, request)

    def _move(self, move: Callable[[], int], author: str, request: str | None) -> int:
        with self._lock:
            if request is not None and self.store.answered(request) is not None:
                return self.history.current
            node = move()
            self.store.move(self.history, request)
            self._arrived()
        self._publish(client=author)
        return node

    def add_branch(self, name: str, node: int | None = None, *, author: str = "") -> None:
        """Give a state a name, and switch to it."""
        if not (name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_BRANCH):
            raise ValueError(f"got the branch {name[:LONGEST_BRANCH]!r}; expected 1 to {LONGEST_BRANCH} characters")
        with self._lock:
            if name in self.history.branches:
                raise NotNowError(f"the branch {name!r} exists already; choose another name, or switch to it")
            end = self.history.node(self.history.current if node is None else node).id
            self.history.branches[name] = end
            self._move(lambda: self.history.switch(name), author, None)

    def remove_branch(self, name: str, *, author: str = "") -> None:
        """Take a name away; the states stay."""
        with self._lock:
            if name not in self.history.branches:
                raise UnknownItemError(f"got branch {name[:LONGEST_BRANCH]!r}; expected one of the branches")
            if name == self.history.branch:
                raise NotNowError(f"the branch {name!r} is in use; switch to another one first")
            del self.history.branches[name]
            self.store.move(self.history)
        self._publish(client=author)

    def history_view(self) -> HistoryView:
        """The whole tree."""
        with self._lock:
            nodes, counts = self.history.nodes, {}
            for number in sorted(nodes):
                node = nodes[number]
                own = sum(not item.startswith(REVIEWED) for item in node.added)
                own -= sum(not item.startswith(REVIEWED) for item in node.removed)
                counts[number] = own + (0 if node.parent is None else counts[node.parent])
            rows = [NodeView(n.id, n.parent, n.time, n.author, n.text, counts[n.id]) for _, n in sorted(nodes.items())]
            return HistoryView(rows, dict(self.history.branches), self.history.current, self.history.branch)

    # The model.

    def model_view(self) -> ModelView | None:
        """The detector for the page."""
        if self._detector is None:
            return None
        detector = self._detector
        try:
            detector.check_can_learn()
            can_learn = True
        except CannotLearnError:
            can_learn = False
        return ModelView(
            self.name,
            detector.class_name,
            detector.base_id[:12],
            detector.window,
            detector.cascade.n_weak,
            dict(detector.operating_points),
            can_learn,
            self._can_export_opencv,
            estimate_view(self.estimate_at(self.history.current)),
        )

    @cached_property
    def _can_export_opencv(self) -> bool:
        """Whether OpenCV's format can hold the trained stages; corrections do not change that."""
        from tempfile import TemporaryDirectory

        try:
            with TemporaryDirectory() as folder:
                self.detector.as_trained().export_opencv(Path(folder) / "model.xml")
        except CannotExportError:
            return False
        return True

    def found_in(self, pixels: Pixels, min_score: float | None = None) -> Detections:
        """Detections in an image that is not in the project, at the minimum score of the project or another one."""
        score = self.min_score if min_score is None else min_score
        with self._detecting:
            return self.detector.detect(pixels, min_score=score, threads=self.threads)


def estimate_view(estimate: Estimate | None) -> EstimateView | None:
    """An estimate for the page."""
    if estimate is None:
        return None
    return EstimateView(round(estimate.recall, 5), round(estimate.false_positives_per_image, 5))


def _key(image: str, box: tuple[float, ...], is_object: bool, record: Record | None) -> str:
    """The id of a label: that of its record, or a hash of what it says."""
    if record is not None:
        return record.id
    return hashlib.sha256(json.dumps([image, box, bool(is_object)]).encode()).hexdigest()


def _said(labels: Sequence[Label]) -> str:
    right = sum(label.is_object and label.was_found for label in labels)
    missed = sum(label.is_object and not label.was_found for label in labels)
    wrong = len(labels) - right - missed
    parts = [f"{n} {word}" for n, word in ((wrong, "wrong"), (missed, "missed"), (right, "right")) if n]
    return ", ".join(parts)


def _take_over(store: Store, detector: Detector, name: str, model: str | None) -> None:
    """Write a model into a new project: its snapshot without corrections, and these as the first state."""
    labels = _labels_of(detector, name)
    base = detector.copy()
    base.replace_records([], [label.record for label in labels if label.record is not None])
    is_file = model is not None and detector.origin is not None and class_in_file(model)[0].resolve() == detector.origin[0]
    is_file = is_file and detector.origin is not None and detector.origin[0].parent != BUNDLED.resolve()
    path = str(Path(model).absolute()) if is_file and model is not None else None
    saved = detector.origin[1] if is_file and detector.origin is not None else None
    store.start(labels, model=base.to_bytes(), name=name, path=path, saved=saved, saved_node=0 if is_file else None)


def _labels_of(detector: Detector, name: str) -> list[Label]:
    """The corrections that a detector has."""
    records = [record for record in detector.records if record.kind == "correction"]
    return [
        Label(record.id, None, record.box, record.is_object, False, name, float(record.time), record)
        for record in records
    ]

