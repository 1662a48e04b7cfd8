"""Labels of boxes: learned at once, written before they are answered, learned once however often they are sent."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from whet.corrections.box_windows import SAME, SAME_PLACE, check_consistent, checked_labels
from whet.corrections.records import Record
from whet.detector.detector import Detector
from whet.errors import BoxError, NotNowError, UnknownItemError
from whet.images.boxes import box_iou
from whet.images.detections import Detections
from whet.images.pyramid import Level
from whet.web import page_state, quality
from whet.web.history import History, person_of
from whet.web.open_models import MODEL, OpenModel, id_of
from whet.web.quality import as_box, boxes_of, labelled
from whet.web.schemas import Box, Corrected
from whet.web.store import Label, StoredImage, StoredModel
from whet.web.workspace import REVIEWED, Workspace

# Boxes of one request: a user draws fewer; each takes up to 35 ms, and a client waits for all of them.
MOST_BOXES = 50
# A detection that is as likely as this and marked wrong may be a slip. In the reference set of `face`, at the default
# minimum score, nine of ten objects are as likely, and none of the nine other places.
SURE = 0.98


@dataclass(frozen=True)
class Judged:
    """Boxes of an image, whether each is the object, and whether it was a detection when it was judged."""

    image: StoredImage
    boxes: Sequence[Box]
    flags: Sequence[bool]
    was_found: Sequence[bool]


class Labeller:
    """Takes the labels of a workspace, one request of a client at a time; see `whet.web.workspace.Workspace`."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = self._workspace = workspace
        self._busy: set[str] = set()
        self._lock = Lock()

    def label(
        self,
        key: str,
        boxes: Sequence[Sequence[float]],
        is_object: bool | Sequence[bool],
        *,
        author: str = "",
        request: str | None = None,
        replaces: Sequence[str] = (),
        effect: bool = True,
    ) -> Corrected:
        """Learn labels of boxes of an image; those in `replaces` are unlearned in the same step.

        The answer has the `effect` on all images, unless a client asks for that later, to see the boxes sooner.
        A box that the same author labelled otherwise before is labelled anew; opposite labels of two authors are both
        kept.
        """
        if len(boxes) > MOST_BOXES:
            raise BoxError(f"got {len(boxes)} boxes in one request; expected at most {MOST_BOXES}")
        image = self._workspace.gallery[key]
        array = np.array(boxes, np.float64).reshape(-1, 4)
        array, flags = checked_labels(array, is_object, (image.height, image.width))
        check_consistent(array, flags)

        def judge() -> tuple[list[Judged], str | None]:
            judged, hint = self._judged(image, [as_box(box) for box in array], flags.tolist())
            return [judged], hint

        def text(new: Sequence[Label]) -> str:
            return f"{image.name}: {_counted(new)}"

        return self._learn(judge, text, key, author, request, effect, replaces=replaces)

    def _learn(
        self,
        judge: Callable[[], tuple[list[Judged], str | None]],
        text: Callable[[Sequence[Label]], str],
        key: str | None,
        author: str,
        request: str | None,
        effect: bool,
        replaces: Sequence[str] = (),
        reviewed: Sequence[str] = (),
    ) -> Corrected:
        """Learn what `judge` returns, with a hint for the user; the answer shows the image `key`, if there is one."""
        workspace = self._workspace
        with self._one_at_a_time(author):
            known = self._answered(request, key)
            if known is not None:
                return known
            judged, hint = judge()
            with self._learned(judged, author) as (history, model, new):
                known = self._answered(request, key)
                if known is not None:
                    return known
                before, ids = history.current, [label.id for label in new]
                former = [one for label_id in replaces for one in self._present(label_id)]
                replaced, items = [*former, *self._contrary_of(new, author)], [*ids, *reviewed]
                if replaced or not history.items().issuperset(items):
                    workspace.commit(new, replaced, items=items, author=author, text=text(new), request=request)
            if model is not None and key is not None:
                workspace.look_around(key, model.cache, new)
            n_kept = 0 if model is None else sum(label.record is None for label in new)
            return replace(self._answer(before, ids, key, author, effect), hint=hint or kept_hint(n_kept))

    def unlabel(self, label_id: str, *, author: str = "", request: str | None = None, effect: bool = True) -> Corrected:
        """Unlearn one correction, as if it had never been learned."""
        workspace = self._workspace
        label = workspace.labels.get(label_id)
        if label is None:
            raise UnknownItemError(f"got label {label_id[:16]!r}; expected the record_id of a label")
        shown = label.image if label.image in workspace.gallery else None
        with self._one_at_a_time(author), workspace.locked() as history:
            known = self._answered(request, shown)
            if known is not None:
                return known
            present = self._present(label_id)
            if not present:
                raise UnknownItemError(f"the label {label_id[:8]} is not part of this state; nothing was changed")
            before = history.current
            text = f"{self._name_of(label)}: label removed"
            workspace.commit((), present, author=author, text=text, request=request)
        return self._answer(before, [], shown, author, effect)

    def confirm(
        self,
        keys: Sequence[str],
        *,
        is_object: bool = True,
        author: str = "",
        request: str | None = None,
        effect: bool = True,
    ) -> Corrected:
        """Review some images: the detections shown that nobody has judged are all right, or all wrong.

        Each of them becomes a label; a right one guards.
        """
        workspace = self._workspace
        images = [workspace.gallery[key] for key in dict.fromkeys(keys)]
        if not images:
            raise UnknownItemError("got no images to confirm; expected at least one id")
        only = images[0].id if len(images) == 1 else None

        def judge() -> tuple[list[Judged], str | None]:
            judged, n_sure = [], 0
            for image in images:
                found = workspace.shown(image.id)
                labels = labelled(found, workspace.labels_of(image.id))
                is_open = np.array([label is None for label in labels], np.bool_)
                boxes = [as_box(box) for box in found.boxes[is_open]]
                judged.append(Judged(image, boxes, [is_object] * len(boxes), [True] * len(boxes)))
                n_sure += 0 if is_object else int((is_sure(found) & is_open).sum())
            return judged, slip_hint(n_sure, sum(len(one.boxes) for one in judged)) if n_sure else None

        def text(new: Sequence[Label]) -> str:
            rest = f", {_counted(new)}" if new and not is_object else ""
            return f"{images[0].name if only else f'{len(images)} images'}: confirmed{rest}"

        reviewed = [REVIEWED + image.id for image in images]
        return self._learn(judge, text, only, author, request, effect, reviewed=reviewed)

    def use_trained(self, detector: Detector, name: str) -> None:
        """Go on with another detector: a new state, with all labels learned by it. Undo gives the one before back."""
        workspace = self._workspace
        data = detector.to_bytes()
        model = StoredModel(id_of(data), detector.base_id, name, data)
        learned: dict[str, Label] = {}
        self._relearn(detector, learned)  # takes seconds: others go on labelling
        with workspace.locked() as history:
            self._relearn(detector, learned)  # what they labelled meanwhile
            now = history.items()
            new = [label for item, label in learned.items() if item in now]
            removed = [item for item in now if item.startswith(MODEL) or item in workspace.labels]
            reviewed = [item for item in now if item.startswith(REVIEWED)]
            items = [MODEL + model.id, *(label.id for label in new), *reviewed]
            text = f"trained {name} on {len(new)} labels"
            workspace.commit(new, removed, items=items, text=text, model=model)
        workspace.publish()

    def _relearn(self, detector: Detector, learned: dict[str, Label]) -> None:
        """Add what another detector learns of the labels of the current state that are not `learned` yet.

        A label that it cannot learn, or whose image cannot be read, stays a label.
        """
        workspace = self._workspace
        with workspace.locked():
            keys = {label.image for label in workspace.labels.values() if label.image is not None}
            by_image = {key: workspace.labels_of(key) for key in sorted(keys)}
        for key, labels in by_image.items():
            shared: dict[float, Level] = {}
            for label in labels:
                if label.id in learned:
                    continue
                record = None
                with suppress(BoxError, UnknownItemError):
                    pixels, image_name = workspace.gallery.pixels(key), workspace.gallery[key].name
                    (record,) = detector.new_records(
                        pixels, [label.box], [label.is_object], name=image_name, shared=shared
                    )
                learned[label.id] = replace(label, id=_key(key, label.box, label.is_object, record), record=record)

    def _judged(self, image: StoredImage, boxes: Sequence[Box], flags: Sequence[bool]) -> tuple[Judged, str | None]:
        """Boxes of an image as they were judged, and a hint that says what the user may not expect."""
        shown = self._workspace.shown(image.id)
        overlaps = box_iou(np.array(boxes).reshape(-1, 4), shown.boxes)
        was_found = np.asarray((overlaps >= SAME_PLACE).any(axis=1)).tolist()
        rejected = boxes_of([label for label in self._workspace.labels_of(image.id) if not label.is_object])
        known = np.concatenate([overlaps, box_iou(np.array(boxes).reshape(-1, 4), rejected)], axis=1)
        is_free, is_wrong = ~(known >= SAME).any(axis=1), ~np.array(flags, np.bool_)
        n_free = int((is_free & is_wrong).sum())
        n_sure = int(((overlaps[:, is_sure(shown)] >= SAME_PLACE).any(axis=1) & is_wrong).sum())
        hint = None
        if n_free and self._workspace.has_model:
            hint = (
                f"nothing is detected at {n_free} of the {len(boxes)} boxes, so nothing was there to reject; the "
                "labels are kept: unlearn them if the boxes are not where you meant"
            )
        elif n_sure:
            hint = slip_hint(n_sure, len(boxes))
        return Judged(image, boxes, flags, was_found), hint

    @contextmanager
    def _learned(
        self, judged: Sequence[Judged], author: str
    ) -> Iterator[tuple[History, OpenModel | None, list[Label]]]:
        """Labels with what the model learns of them, and the history, which nobody can change meanwhile.

        Records are made before the history is locked, because that takes long. They are of one model: if the state has
        another one by then, they are made again.
        """
        workspace = self._workspace
        while True:
            model = workspace.open_model
            new = [label for one in judged for label in self._new_labels(one, model, author)]
            with workspace.locked() as history:
                if workspace.open_model is model:
                    yield history, model, new
                    return

    def _new_labels(self, judged: Judged, model: OpenModel | None, author: str) -> list[Label]:
        """Labels with what a model learns of them; they do not depend on what it learned before.

        A box that no window of the model fits stays a label without a record: the next training learns it.
        """
        image, now = judged.image, time.time()
        try:
            records = self._records(image, model, judged.boxes, judged.flags)
        except BoxError:
            records = []
            for box, flag in zip(judged.boxes, judged.flags, strict=True):
                record: list[Record | None] = [None]
                with suppress(BoxError):
                    record = self._records(image, model, [box], [flag])
                records += record
        return [
            Label(_key(image.id, box, flag, record), image.id, box, flag, found, person_of(author), now, record)
            for box, flag, found, record in zip(judged.boxes, judged.flags, judged.was_found, records, strict=True)
        ]

    def _records(
        self, image: StoredImage, model: OpenModel | None, boxes: Sequence[Box], flags: Sequence[bool]
    ) -> list[Record | None]:
        """What a model learns of boxes of an image; None without a model."""
        workspace = self._workspace
        if model is None or not boxes:
            return [None] * len(boxes)
        workspace.scan(image.id, model.cache)
        return list(
            model.detector.new_records(
                workspace.gallery.pixels(image.id),
                boxes,
                flags,
                name=image.name,
                min_score=workspace.chosen_score(model),
                threads=workspace.threads,
                shared=model.cache.levels(image.id),
                base_found=model.base_detections(image.id),
            )
        )

    def _present(self, label_id: str) -> list[str]:
        """The labels of the current state that equal a known one, which another model may have learned."""
        label, workspace = self._workspace.labels.get(label_id), self._workspace
        if label is None or label_id in workspace.history.items():
            return [] if label is None else [label_id]
        same = (label.box, label.is_object)
        return [other.id for other in workspace.labels_of(label.image or "") if (other.box, other.is_object) == same]

    def _contrary_of(self, new: Sequence[Label], author: str) -> list[str]:
        """Earlier labels of the same author that contradict new ones on the same box."""
        ids: list[str] = []
        person = person_of(author).partition(":")[0]  # a name may have been given since
        for label in new:
            others = [
                other
                for other in self._workspace.labels_of(label.image or "")
                if other.is_object is not label.is_object and other.author.partition(":")[0] == person
            ]
            same = box_iou(boxes_of([label]), boxes_of(others))[0] >= SAME_PLACE
            ids += [other.id for other, is_same in zip(others, same.tolist(), strict=True) if is_same]
        return ids

    def _answered(self, request: str | None, key: str | None) -> Corrected | None:
        """The answer to a request that was carried out already."""
        workspace = self._workspace
        known = None if request is None else workspace.store.answered(request)
        if known is None:
            return None
        view = None if key is None else page_state.image(workspace, key)
        return Corrected(known[0], workspace.revision, known[1], view, None)

    def _answer(self, before: int, added: list[str], key: str | None, author: str, effect: bool) -> Corrected:
        workspace = self._workspace
        view = None if key is None else page_state.image(workspace, key)
        workspace.publish(image=key, client=author)
        with workspace.locked() as history:
            after, revision = history.current, workspace.revision
        summary = quality.summary(workspace, before, after) if effect and workspace.has_model else None
        return Corrected(after, revision, added, view, summary)

    @contextmanager
    def _one_at_a_time(self, author: str) -> Iterator[None]:
        """One request of a client that learns at a time: a page sends the next one when it has the answer."""
        with self._lock:
            if author and author in self._busy:
                raise NotNowError("another correction of this client is being learned; send the next one after it")
            self._busy.add(author)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(author)

    def _name_of(self, label: Label) -> str:
        if label.image is not None and label.image in self._workspace.gallery:
            return self._workspace.gallery[label.image].name
        return label.record.name if label.record is not None else ""


def _key(image: str, box: Box, is_object: bool, record: Record | None) -> str:
    """The id of a label: that of its record, or a hash of its content."""
    if record is not None:
        return record.id
    return hashlib.sha256(json.dumps([image, box, bool(is_object)]).encode()).hexdigest()


def _counted(labels: Sequence[Label]) -> str:
    right = sum(label.is_object and label.was_found for label in labels)
    missed = sum(label.is_object and not label.was_found for label in labels)
    wrong = len(labels) - right - missed
    parts = [f"{n} {word}" for n, word in ((wrong, "wrong"), (missed, "missed"), (right, "right")) if n]
    return ", ".join(parts)


def is_sure(found: Detections) -> NDArray[np.bool_]:
    """Which detections (n,) the detector is nearly certain of."""
    return np.asarray(np.nan_to_num(found.probabilities) >= SURE)


def kept_hint(n: int) -> str | None:
    """A hint for boxes that no window of the model fits; None without any.

    >>> kept_hint(1)
    'this box is too small or too long for the detector as it is: it is kept, and the next training learns it'
    """
    if not n:
        return None
    which, pronoun = ("this box is", "it is") if n == 1 else (f"{n} boxes are", "they are")
    learns = "learns it" if n == 1 else "learns them"
    return f"{which} too small or too long for the detector as it is: {pronoun} kept, and the next training {learns}"


def slip_hint(n_sure: int, n: int) -> str:
    """A hint for boxes marked wrong, of which the detector is nearly certain.

    >>> slip_hint(1, 1)
    'the detector was at least 98 % sure of this box; undo this if it was a slip'
    """
    which = "this box" if n == 1 else f"{n_sure} of the {n} boxes"
    return f"the detector was at least {round(100 * SURE)} % sure of {which}; undo this if it was a slip"
