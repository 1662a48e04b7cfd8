"""The models of a project: each state has one of them, with a cache of windows of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from whet.corrections.records import Record
from whet.detector.detector import Detector
from whet.detector.storage import BUNDLED
from whet.images.detections import Detections
from whet.web.store import Label, Store, StoredModel
from whet.web.window_cache import WindowCache

# The item of a state that names its model.
MODEL = "model/"


@dataclass(eq=False)
class OpenModel:
    """A detector and the cache of windows of all images with it; `own` are the records that it came with."""

    id: str
    name: str
    detector: Detector
    cache: WindowCache
    own: frozenset[str] = frozenset()

    def base_detections(self, image: str) -> Detections | None:
        """What the base finds in an image, at any score; None if that is not known without a scan."""
        if self.detector.model is not self.detector.base.model or image not in self.cache:
            return None
        return self.cache.detections(image, frozenset())

    def move_to(self, records: Iterable[Record]) -> None:
        """Give the detector these corrections, and no others; what it came with stays."""
        wanted = {record.id: record for record in records}
        now = {record.id: record for record in self.detector.records if record.id not in self.own}
        self.detector.only.replace_records(
            [record for key, record in wanted.items() if key not in now],
            [record for key, record in now.items() if key not in wanted],
        )


def id_of(data: bytes) -> str:
    """The name of a model in a project: a hash of its bytes."""
    return sha256(data).hexdigest()[:32]


class OpenModels:
    """Open models by their ids; the least recently used are dropped, and made again from the project file."""

    def __init__(self, store: Store, labels: dict[str, Label], threads: int | None) -> None:
        self._store, self._labels, self._threads = store, labels, threads
        self._open: OrderedDict[str, OpenModel] = OrderedDict()

    def open(self, key: str) -> OpenModel:
        """A model, from the project file if it is not open."""
        if key not in self._open:
            name, data = self._store.model(key)
            detector = Detector.from_bytes(data)
            own = frozenset(record.id for record in detector.records)
            self._open[key] = OpenModel(key, name, detector, WindowCache(detector.only, self._threads), own)
            self.add(label.record for label in self._labels.values())
            # Models whose caches are kept in memory: the present one, and the one before it.
            while len(self._open) > 3:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return self._open[key]

    def add(self, records: Iterable[Record | None]) -> None:
        """Note corrections in the caches of the models that they were made for."""
        every = [record for record in records if record is not None]
        for model in self._open.values():
            model.cache.add(record for record in every if record.base_id == model.detector.base_id)


def model_in(items: Iterable[str]) -> str | None:
    """The model of a state; None without one.

    >>> model_in({"abc", "model/123"}), model_in({"abc"})
    ('123', None)
    """
    return next((item.removeprefix(MODEL) for item in items if item.startswith(MODEL)), None)


def take_over(store: Store, detector: Detector, name: str, model: str | None) -> None:
    """Write a model into a new project: its snapshot without corrections, and these as the first state."""
    labels = labels_of(detector, name)
    base = detector.copy()
    base.only.replace_records([], [label.record for label in labels if label.record is not None])
    path = saved = None
    if model is not None and detector.origin is not None and detector.origin[0].parent != BUNDLED.resolve():
        path, saved = str(Path(model).absolute()), detector.origin[1]
    node = None if path is None else 0
    data = base.to_bytes()
    items = [MODEL + id_of(data), *(label.id for label in labels)]
    snapshot = StoredModel(id_of(data), base.base_id, name, data)
    store.start(snapshot, items, labels, path=path, saved=saved, saved_node=node)


def labels_of(detector: Detector, name: str) -> list[Label]:
    """The corrections that a detector has."""
    records = [record for record in detector.records if record.kind == "correction"]
    return [
        Label(record.id, None, record.box, record.is_object, False, name, float(record.time), record)
        for record in records
    ]
