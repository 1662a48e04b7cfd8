"""The studio without HTTP: one object over the project file, the history, the detector and the cache of its windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from threading import BoundedSemaphore, Lock, RLock
from typing import Any

import numpy as np

from whet.arrays import Pixels
from whet.corrections.records import Record
from whet.corrections.reference import Estimate
from whet.detector.detector import Detector
from whet.errors import NotNowError, ProjectError, UnknownItemError, WhetError
from whet.images.detections import Detections
from whet.parallel.threads import available_threads
from whet.web.gallery import Gallery
from whet.web.history import History, person_of
from whet.web.open_models import OpenModel, OpenModels, labels_of, model_in, take_over
from whet.web.store import Label, Store, StoredImage, StoredModel
from whet.web.window_cache import WindowCache

Event = dict[str, Any]

REVIEWED = "reviewed/"
LONGEST_BRANCH = 100


class Events:
    """Calls all subscribers with every event, from the thread that publishes it.

    >>> events, received = Events(), []
    >>> with events.subscribed(received.append):
    ...     events.publish("state", revision=3)
    >>> events.publish("state", revision=4)
    >>> received
    [{'type': 'state', 'revision': 3}]
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []
        self._lock = Lock()

    @contextmanager
    def subscribed(self, callback: Callable[[Event], None]) -> Iterator[None]:
        """Call `callback` with every event; it must not block."""
        with self._lock:
            self._subscribers.append(callback)
        try:
            yield
        finally:
            with self._lock:
                self._subscribers.remove(callback)

    def publish(self, type: str, **facts: object) -> None:
        """Send an event to all subscribers."""
        with self._lock:
            subscribers = list(self._subscribers)
        for callback in subscribers:
            callback({"type": type, **facts})


class Workspace:
    """A project: images, labels and the history of a detector.

    A state of the detector is its base with a set of corrections. Every change of the set is written to the project
    file before the call returns. Threads share a workspace; a request that comes twice is answered twice and learned
    once.

    >>> import tempfile
    >>> from skimage import data
    >>> import whet
    >>> from whet.web.labelling import Labeller
    >>> place = Path(tempfile.mkdtemp()) / "face.studio"
    >>> with Workspace.open(place, whet.load("face"), name="face") as studio:
    ...     image = studio.add_image(data.astronaut(), "astronaut.png")
    ...     answer = Labeller(studio).label(image.id, studio.shown(image.id).boxes[1:2], False)
    ...     len(studio.shown(image.id)), studio.undo(), len(studio.shown(image.id))
    (1, 0, 2)
    """

    def __init__(self, store: Store, name: str, threads: int | None = None) -> None:
        self.store, self._name, self.threads = store, name, threads
        self.events = Events()
        self.gallery = Gallery(store)
        self.history: History = store.history()
        self.previous: int | None = None  # the state before the last change, undo, redo or switch; not in the file
        self.labels: dict[str, Label] = {label.id: label for label in store.labels()}
        self.revision = 0
        self._lock = RLock()
        self._scanning = Lock()
        self._detecting = BoundedSemaphore(available_threads())
        self._models = OpenModels(store, self.labels, threads)
        self.open_model: OpenModel | None = None  # that of the current state
        self._by_image: dict[str, list[Label]] = {}
        self.gallery.show_labelled(label.image for label in self.labels.values())
        self._arrived()
        self.changed_at = 0.0  # by the monotonic clock; no request has changed anything yet

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
            known = store.model_names()
            if not known and detector is not None:
                take_over(store, detector, name, model)
            elif known and detector is not None and detector.base_id not in known:
                base, other = next(iter(known.items()))
                raise ProjectError(
                    f"{project} belongs to the model {other} (base {base[:12]}), not to {name} "
                    f"(base {detector.base_id[:12]}); choose another file with --project"
                )
            workspace = cls(store, name, threads)
            if detector is not None and workspace.has_model and workspace.detector.base_id == detector.base_id:
                workspace._learn_of(detector, name)
            return workspace
        except BaseException:
            store.close()
            raise

    def _learn_of(self, detector: Detector, name: str) -> None:
        """Take over corrections that the model's file has, and the project has never had."""
        new = [label for label in labels_of(detector, name) if label.id not in self.labels]
        if new:
            self.commit(new, (), author=name, text=f"{len(new)} corrections of {name}")

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
        if self.open_model is None:
            raise NotNowError("this project has no model yet; draw boxes and train one, or start `whet serve MODEL`")
        return self.open_model.detector

    @property
    def has_model(self) -> bool:
        """Whether there is a detector."""
        return self.open_model is not None

    @property
    def name(self) -> str:
        """The name of the model, or of what it is to be."""
        return self._name if self.open_model is None else self.open_model.name

    @property
    def cache(self) -> WindowCache:
        """The cache of windows of all images."""
        if self.open_model is None:
            raise NotNowError("this project has no model yet; train one first")
        return self.open_model.cache

    def cache_at(self, node: int | None) -> WindowCache | None:
        """The cache with the model of a state; None without a model."""
        with self._lock:
            key = model_in(self.history.items(node))
            if key is None or (self.open_model is not None and key == self.open_model.id):
                return None if key is None or self.open_model is None else self.open_model.cache
            return self._models.open(key).cache

    @property
    def model_path(self) -> Path:
        """The file that the detector is saved in."""
        known = self.store.get("path")
        return Path(known) if known is not None else self.store.path.absolute().with_name(f"{self.name}.whet")

    @property
    def is_saved(self) -> bool:
        """Whether the file of the detector is of this state."""
        return bool(self.store.get("saved_node") == self.history.current)

    def record_ids(self, node: int | None = None) -> frozenset[str]:
        """The corrections of a state; without a node, of the current one."""
        items = self.history.items(node)
        return frozenset(key for key in items if key in self.labels and self.labels[key].record is not None)

    def records(self, node: int | None = None) -> list[Record]:
        """The records of a state."""
        records = (self.labels[key].record for key in sorted(self.record_ids(node)))
        return [record for record in records if record is not None]

    def _go_to(self, moved: History) -> None:
        """Go on with a history that is written already."""
        if moved.current != self.history.current:
            self.previous = self.history.current
        self.history = moved
        self._arrived()

    def _arrived(self) -> None:
        """Bring the detector to the current state, and note the labels of each image."""
        items = self.history.items()
        by_image: dict[str, list[Label]] = {}
        for key in items:
            label = self.labels.get(key)
            if label is not None and label.image is not None:
                by_image.setdefault(label.image, []).append(label)
        self._by_image = by_image
        model = model_in(items)
        self.open_model = None if model is None else self._models.open(model)
        if self.open_model is not None:
            self.open_model.move_to(self.records())
        self.revision += 1
        self.changed_at = time.monotonic()

    @contextmanager
    def locked(self) -> Iterator[History]:
        """The history, while nobody can change it."""
        with self._lock:
            yield self.history

    def estimate_at(self, node: int) -> Estimate | None:
        """Recall and false positives in a state, by the reference set; None without a model or a reference set."""
        cache = self.cache_at(node)
        estimate = None if cache is None else cache.estimate(self.record_ids(node))
        return estimate and Estimate(round(estimate.recall, 5), round(estimate.false_positives_per_image, 5))

    # What is shown.

    def shown(self, key: str) -> Detections:
        """The detections of an image above the minimum score."""
        return self.detections(key).with_min_score(self.min_score)

    def detections(self, key: str, node: int | None = None) -> Detections:
        """The detections of an image at any score, now or in another state; nothing without a model."""
        with self._lock:
            cache, ids = self.cache_at(node), self.record_ids(node)
        if cache is None:
            return Detections()
        self.scan(key, cache)
        return cache.detections(key, ids)

    def scan(self, key: str, cache: WindowCache) -> None:
        """Keep the windows of an image, if that is not done yet; one scan at a time uses all threads."""
        if key not in cache:
            with self._scanning:
                if key not in cache:
                    cache.scan(key, self.gallery.pixels(key))
                    self.look_around(key, cache, self.labels_of(key))

    def look_around(self, key: str, cache: WindowCache, labels: Iterable[Label]) -> None:
        """Keep the windows around missed objects of an image, so that any corrections are right there."""
        records = [label.record for label in labels if label.is_object and label.record is not None]
        if records:
            cache.look_around(key, self.gallery.pixels(key), records)

    def prepare(self, key: str) -> None:
        """Make ready what a correction of an image needs: it is open in a page. Its file may be gone by now."""
        model = self.open_model
        if model is not None and key in model.cache:
            with suppress(WhetError):
                model.cache.prepare(key, self.gallery.pixels(key))

    def labels_of(self, key: str) -> list[Label]:
        """The labels of an image in the current state."""
        with self._lock:
            return list(self._by_image.get(key, []))

    def is_reviewed(self, key: str) -> bool:
        """Whether a user has confirmed all detections of an image."""
        return REVIEWED + key in self.history.items()

    def add_image(self, pixels: Pixels, name: str) -> StoredImage:
        """Add an image, such as a video frame, to the project itself."""
        image = self.gallery.add_pixels(pixels, name)
        self.events.publish("images", total=len(self.gallery))
        return image

    # The minimum score.

    @property
    def min_score_name(self) -> str | None:
        """The operating point that is used, if it has a name."""
        value, points = self.chosen_score(self.open_model), self.detector.operating_points if self.has_model else {}
        return value if isinstance(value, str) else "default" if value is None and "default" in points else None

    @property
    def min_score(self) -> float:
        """The score that detections have to exceed."""
        model = self.open_model
        return -np.inf if model is None else model.detector.reporting.min_score(self.chosen_score(model))

    def chosen_score(self, model: OpenModel | None) -> float | str | None:
        """The minimum score as it was set: a number, the name of an operating point, or None for the default."""
        if model is None:
            return None
        value: float | str | None = self.store.get("min_score")
        return None if isinstance(value, str) and value not in model.detector.operating_points else value

    def set_min_score(self, wanted: float | str, *, author: str = "") -> None:
        """Show detections above a score, or above that of an operating point."""
        with self._lock:
            if not isfinite(self.detector.reporting.min_score(wanted)):
                raise ValueError(f"got min_score={wanted}; expected a finite score or the name of an operating point")
            self.store.put(min_score=wanted)
            self.revision += 1
        self.publish(client=author)

    # Changes.

    def commit(
        self,
        new: Sequence[Label],
        removed: Iterable[str],
        *,
        items: Iterable[str] | None = None,
        author: str = "",
        text: str = "",
        request: str | None = None,
        model: StoredModel | None = None,
    ) -> None:
        """Write a new state to the project file, with a new `model` if there is one, and only then move there."""
        with self._lock:
            added = [label.id for label in new] if items is None else items
            moved = self.history.copy()
            node = moved.commit(added, removed, time=time.time(), author=person_of(author), text=text)
            fresh = [label for label in new if label.id not in self.labels]
            self.store.commit(node, fresh, moved, request, model)
            self.labels |= {label.id: label for label in fresh}
            self._models.add(label.record for label in fresh)
            self._go_to(moved)

    def publish(self, *, image: str | None = None, client: str = "") -> None:
        """Publish that the state has changed, and who did it."""
        self.events.publish(
            "state", revision=self.revision, node=self.history.current, image=image, client=client or None
        )

    # History.

    def undo(self, *, author: str = "", request: str | None = None) -> int:
        """Move to the state before this one."""
        return self._move(History.undo, author, request)

    def redo(self, *, author: str = "", request: str | None = None) -> int:
        """Move to the state that was undone last."""
        return self._move(History.redo, author, request)

    def checkout(
        self, node: int | None = None, branch: str | None = None, *, author: str = "", request: str | None = None
    ) -> int:
        """Move to any state, or to the end of a branch."""
        if (node is None) is (branch is None):
            raise UnknownItemError("got neither or both of node and branch; expected one of them")
        if branch is not None:
            return self._move(lambda history: history.switch(branch), author, request)
        return self._move(lambda history: history.jump(node or 0), author, request)

    def _move(self, move: Callable[[History], int], author: str, request: str | None = None) -> int:
        """Write a move of the history to the project file, and only then move there."""
        with self._lock:
            if request is not None and self.store.answered(request) is not None:
                return self.history.current
            moved = self.history.copy()
            node = move(moved)
            self.store.move(moved, request)
            self._go_to(moved)
        self.publish(client=author)
        return node

    def add_branch(self, name: str, node: int | None = None, *, author: str = "") -> None:
        """Give a state a name, and switch to it."""
        if not (name.isprintable() and name.strip() == name and 0 < len(name) <= LONGEST_BRANCH):
            raise ValueError(f"got the branch {name[:LONGEST_BRANCH]!r}; expected 1 to {LONGEST_BRANCH} characters")

        def add(history: History) -> int:
            if name in history.branches:
                raise NotNowError(f"the branch {name!r} exists already; choose another name, or switch to it")
            history.branches[name] = history.node(history.current if node is None else node).id
            return history.switch(name)

        self._move(add, author)

    def remove_branch(self, name: str, *, author: str = "") -> None:
        """Take a name away; the states stay."""

        def remove(history: History) -> int:
            if name not in history.branches:
                raise UnknownItemError(f"got branch {name[:LONGEST_BRANCH]!r}; expected one of the branches")
            if name == history.branch:
                raise NotNowError(f"the branch {name!r} is in use; switch to another one first")
            return history.branches.pop(name)

        self._move(remove, author)

    # The model.

    def found_in(self, pixels: Pixels, min_score: float | None = None) -> Detections:
        """Detections in an image that is not in the project, at the minimum score of the project or another one."""
        score = self.min_score if min_score is None else min_score
        with self._detecting:
            return self.detector.detect(pixels, min_score=score, threads=self.threads)
