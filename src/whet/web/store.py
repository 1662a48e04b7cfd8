"""The project file: an SQLite database with the model's snapshot, images, labels, and the history.

Every change is one transaction in write-ahead mode with full synchronisation: it is on the disk before it is
acknowledged, as a whole or not at all, even if the process is killed.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import IO, Any

import numpy as np

from whet.corrections.records import INDEX, Record
from whet.errors import CannotWriteError, ProjectClosedError, ProjectError
from whet.images.pyramid import WindowIndex
from whet.models.responses import Responses
from whet.web.history import History, Node

# Former formats held records and models of earlier development versions.
SCHEMA = 4
# Types and conditions are checked when a file is opened, too: it may come from elsewhere, or be damaged.
TABLES = """
CREATE TABLE models (
    id TEXT PRIMARY KEY NOT NULL, base_id TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE TABLE settings (key TEXT PRIMARY KEY NOT NULL, value ANY) STRICT;
CREATE TABLE images (
    id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, width INTEGER NOT NULL CHECK (width > 0 AND width < 1e9),
    height INTEGER NOT NULL CHECK (height > 0 AND height < 1e9), path TEXT, file_time INTEGER, file_size INTEGER,
    content BLOB, perceptual_hash BLOB NOT NULL, truth TEXT, locked_at INTEGER REFERENCES nodes, position INTEGER
) STRICT;
CREATE INDEX images_by_path ON images (path);
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY, parent INTEGER CHECK (parent < id) REFERENCES nodes,
    time REAL NOT NULL CHECK (abs(time) < 1e16), author TEXT NOT NULL, text TEXT NOT NULL,
    CHECK (id >= 0 AND (parent IS NULL) = (id = 0))
) STRICT;
CREATE TABLE labels (
    id TEXT PRIMARY KEY NOT NULL, image TEXT, x1 REAL NOT NULL, y1 REAL NOT NULL, x2 REAL NOT NULL, y2 REAL NOT NULL,
    is_object INTEGER NOT NULL CHECK (is_object IN (0, 1)), was_found INTEGER NOT NULL CHECK (was_found IN (0, 1)),
    author TEXT NOT NULL, time REAL NOT NULL CHECK (abs(time) < 1e16), record BLOB,
    CHECK (max(abs(x1), abs(y1), abs(x2), abs(y2)) < 9e999)
) STRICT;
CREATE TABLE changes (
    node INTEGER NOT NULL REFERENCES nodes, item TEXT NOT NULL, is_added INTEGER NOT NULL CHECK (is_added IN (0, 1))
) STRICT;
CREATE INDEX changes_by_node ON changes (node);
CREATE TABLE branches (name TEXT PRIMARY KEY NOT NULL, node INTEGER NOT NULL REFERENCES nodes) STRICT;
CREATE TABLE requests (id TEXT PRIMARY KEY NOT NULL, node INTEGER NOT NULL, added TEXT NOT NULL) STRICT;
"""


@dataclass(frozen=True, eq=False)
class Label:
    """A box of an image that a user labelled: the object, or not. `record` is what the model learned of it.

    `was_found` says that the box was a detection, not drawn. `image` is None for corrections of images that are not in
    the project: those that the model came with.
    """

    id: str
    image: str | None
    box: tuple[float, float, float, float]
    is_object: bool
    was_found: bool
    author: str
    time: float
    record: Record | None


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model without corrections, as the bytes of its file."""

    id: str
    base_id: str
    name: str
    data: bytes


@dataclass(frozen=True, eq=False)
class StoredImage:
    """An image of the project. Its pixels are in a file (`path`) or in the project (`content`).

    `perceptual_hash` finds near-duplicates. `truth` are the boxes that hold while it is locked,
    since the state `locked_at`.
    """

    id: str
    name: str
    width: int
    height: int
    path: str | None = None
    file_time: int | None = None
    file_size: int | None = None
    perceptual_hash: bytes = b""
    truth: tuple[tuple[float, float, float, float], ...] | None = None
    locked_at: int | None = None


class Store:
    """An open project file; one process at a time. Threads share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = RLock()
        self._is_closed = False
        self._held = _exclusive(path)
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except sqlite3.Error as error:
            self._held.close()
            raise ProjectError(f"{path} cannot be read: {error}; choose another file with --project") from error
        try:
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except sqlite3.Error as error:
            self._db.close()
            self._held.close()
            raise ProjectError(
                f"{path} cannot be opened as a project of the studio: {error}; choose another file with --project"
            ) from error
        except (ProjectError, CannotWriteError):
            self._db.close()
            self._held.close()
            raise

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA):
            which = "an older" if version < SCHEMA else "a newer"
            raise ProjectError(
                f"{self.path} was written by {which} version of whet (format {version}, expected {SCHEMA}); use that "
                "version, or start a new project in another file with --project"
            )
        if version == 0:
            if _schema(self._db):
                raise ProjectError(f"{self.path} is another database; choose another file with --project")
            with self.transaction():
                _make_tables(self._db)
                self._db.execute("INSERT INTO nodes VALUES (0, NULL, 0, '', 'start')")
                self._db.execute("INSERT INTO branches VALUES ('main', 0)")
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")
        self._check()

    def _check(self) -> None:
        """Raise `ProjectError` unless the tables are those of a project, and each value is one that it can have."""
        with closing(sqlite3.connect(":memory:")) as expected:
            _make_tables(expected)
            if _schema(self._db) != _schema(expected):
                raise ProjectError(f"{self.path} has other tables than a project; choose another file with --project")
        faults = [text for (text,) in self._db.execute("PRAGMA quick_check(1)") if text != "ok"]
        faults += [f"{table} refers to a missing state" for table, *_ in self._db.execute("PRAGMA foreign_key_check")]
        if faults:
            raise self._damaged(faults[0])

    def _damaged(self, how: object) -> ProjectError:
        return ProjectError(f"{self.path} is damaged: {how}; use a backup")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make several changes as one; they are on the disk afterwards, or none of them is."""
        with self._lock:
            self._check_open()
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    self._db.execute("COMMIT")
                except BaseException:
                    # A commit that a full disk stops may leave the transaction open, and no other one could begin.
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise CannotWriteError(
                    f"{self.path} cannot be written: {error}; nothing was changed. Make room on the disk, or check "
                    "that it can be written, and try again"
                ) from error

    def close(self) -> None:
        """Close the file; later calls raise `ProjectClosedError`."""
        with self._lock:
            self._is_closed = True
            self._db.close()
            self._held.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProjectClosedError(f"{self.path} is closed, nothing was changed; start the studio again")

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            self._check_open()
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise ProjectError(f"{self.path} cannot be read: {error}; check the disk, or use a backup") from error

    # Settings: the model's snapshot, its name, the minimum score.

    def get(self, key: str) -> Any:  # noqa: ANN401 - bytes, text or a number
        """A setting; None if it is not set."""
        rows = self._rows("SELECT value FROM settings WHERE key = ?", key)
        return rows[0][0] if rows else None

    def put(self, **settings: object) -> None:
        """Set some settings."""
        with self.transaction():
            self._put(settings)

    def _put(self, settings: Mapping[str, object]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", settings.items())

    # Models.

    def model(self, key: str) -> tuple[str, bytes]:
        """The name of a model, and its bytes without corrections."""
        rows = self._rows("SELECT name, data FROM models WHERE id = ?", key)
        if not rows:
            raise self._damaged(f"the model {key[:12]} is missing")
        return rows[0][0], rows[0][1]

    def model_names(self) -> dict[str, str]:
        """The names of all models, by the id of their base."""
        return dict(self._rows("SELECT base_id, name FROM models ORDER BY rowid"))

    def _insert_model(self, model: StoredModel) -> None:
        row = (model.id, model.base_id, model.name, model.data)
        self._db.execute("INSERT INTO models VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING", row)

    # Images.

    def images(self) -> list[StoredImage]:
        """All images, in the order in which they were added."""
        columns = "id, name, width, height, path, file_time, file_size, perceptual_hash, truth, locked_at"
        rows = self._rows(f"SELECT {columns} FROM images ORDER BY position, id")
        images = [StoredImage(*row) for row in rows]
        try:
            return [
                image if image.truth is None else replace(image, truth=_boxes(json.loads(str(image.truth))))
                for image in images
            ]
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise self._damaged(f"the boxes of an image: {error}") from error

    def content(self, image: str) -> bytes | None:
        """The file of an image that is kept in the project itself."""
        rows = self._rows("SELECT content FROM images WHERE id = ?", image)
        return rows[0][0] if rows else None

    def add_images(self, images: Iterable[tuple[StoredImage, bytes | None]]) -> None:
        """Add images; those that are there get the path of the new one."""
        with self.transaction():
            for image, content in images:
                size, file = (image.width, image.height), (image.path, image.file_time, image.file_size)
                self._db.execute(
                    "INSERT INTO images SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, "
                    "coalesce((SELECT max(position) FROM images), 0) + 1 WHERE true ON CONFLICT (id) DO UPDATE SET "
                    "name = excluded.name, path = excluded.path, file_time = excluded.file_time, "
                    "file_size = excluded.file_size",
                    (image.id, image.name, *size, *file, content, image.perceptual_hash),
                )

    def lock_image(self, image: str, truth: object | None, node: int | None) -> None:
        """Set or clear the boxes that hold while an image is locked."""
        with self.transaction():
            text = None if truth is None else json.dumps(truth)
            self._db.execute("UPDATE images SET truth = ?, locked_at = ? WHERE id = ?", (text, node, image))

    # History and labels.

    def history(self) -> History:
        """The tree of states, as it was written last."""
        added: dict[int, list[str]] = {}
        removed: dict[int, list[str]] = {}
        for node, item, is_added in self._rows("SELECT node, item, is_added FROM changes ORDER BY rowid"):
            (added if is_added else removed).setdefault(node, []).append(item)
        nodes, latest = {}, {}
        for number, parent, time, author, text in self._rows("SELECT * FROM nodes ORDER BY id"):
            changes = tuple(added.get(number, ())), tuple(removed.get(number, ()))
            nodes[number] = Node(number, parent, *changes, time, author, text)
            if parent is not None:
                latest[parent] = number
        branches = dict(self._rows("SELECT name, node FROM branches"))
        branch, current = self.get("branch"), self.get("current")
        if current is None:
            branch, current = "main", 0
        try:
            latest |= {int(key): value for key, value in json.loads(self.get("latest") or "{}").items()}
            is_sound = {current, 0} <= set(nodes) and all(nodes[end].parent == at for at, end in latest.items())
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
            raise self._damaged(f"where redo leads: {error}") from error
        if not is_sound:
            raise self._damaged("the current state, or one that redo leads to, is missing")
        if branch is not None and branches.get(branch) != current:
            raise self._damaged("the current branch does not end in the current state")
        return History(nodes, branches, current, branch, latest)

    def labels(self) -> list[Label]:
        """All labels of all states."""
        columns = "id, image, x1, y1, x2, y2, is_object, was_found, author, time, record"
        return [
            Label(key, image, (x1, y1, x2, y2), bool(is_object), bool(found), author, time, _as_record(key, data))
            for key, image, x1, y1, x2, y2, is_object, found, author, time, data in self._rows(
                f"SELECT {columns} FROM labels ORDER BY rowid"
            )
        ]

    def commit(
        self,
        node: Node,
        labels: Iterable[Label],
        history: History,
        request: str | None = None,
        model: StoredModel | None = None,
    ) -> None:
        """Write a new state with its labels, and move there; `history` is where the project is with it."""
        with self.transaction():
            if model is not None:
                self._insert_model(model)
            self._insert_labels(labels)
            row = (node.id, node.parent, node.time, node.author, node.text)
            self._db.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?)", row)
            rows = [(node.id, item, 1) for item in node.added] + [(node.id, item, 0) for item in node.removed]
            self._db.executemany("INSERT INTO changes VALUES (?, ?, ?)", rows)
            self._write_place(history, request, node.added)

    def start(self, model: StoredModel, items: Iterable[str], labels: Iterable[Label], **settings: object) -> None:
        """Write a snapshot of a model, and the corrections that it came with as items of the first state."""
        with self.transaction():
            self._insert_model(model)
            self._insert_labels(labels)
            self._db.execute("DELETE FROM changes WHERE node = 0")
            self._db.executemany("INSERT INTO changes VALUES (0, ?, 1)", [(item,) for item in items])
            self._put(settings)

    def _insert_labels(self, labels: Iterable[Label]) -> None:
        for label in labels:
            flags, record = (label.is_object, label.was_found), None if label.record is None else as_bytes(label.record)
            row = (label.id, label.image, *label.box, *flags, label.author, label.time, record)
            values = ", ".join("?" * len(row))
            self._db.execute(f"INSERT INTO labels VALUES ({values}) ON CONFLICT (id) DO NOTHING", row)

    def move(self, history: History, request: str | None = None) -> None:
        """Write where the project is: after an undo, a switch of branches, or a change of them."""
        with self.transaction():
            self._write_place(history, request)

    def _write_place(self, history: History, request: str | None, added: Sequence[str] = ()) -> None:
        """Write the branches, the current state, where redo leads, and the request that led here."""
        self._db.execute("DELETE FROM branches")
        self._db.executemany("INSERT INTO branches VALUES (?, ?)", history.branches.items())
        latest = json.dumps(history.latest)
        self._put({"current": history.current, "branch": history.branch, "latest": latest})
        if request is not None:
            self._db.execute("INSERT INTO requests VALUES (?, ?, ?)", (request, history.current, json.dumps(added)))

    def answered(self, request: str) -> tuple[int, list[str]] | None:
        """The state that a request led to, and what it added; None for a request that is new."""
        rows = self._rows("SELECT node, added FROM requests WHERE id = ?", request)
        if not rows:
            return None
        try:
            return rows[0][0], [str(item) for item in json.loads(rows[0][1])]
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(f"what a request added: {error}") from error


def _make_tables(database: sqlite3.Connection) -> None:
    for statement in filter(str.strip, TABLES.split(";")):
        database.execute(statement)


def _schema(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    """All tables, indices, views and triggers of a database."""
    return database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


def _boxes(rows: object) -> tuple[tuple[float, float, float, float], ...]:
    """Boxes from JSON; raises ValueError or TypeError for what is none."""
    boxes = np.array(rows, np.float64).reshape(-1, 4)
    if not (np.isfinite(boxes).all() and (boxes[:, :2] < boxes[:, 2:]).all()):
        raise ValueError("expected corners x1, y1, x2, y2 of boxes")
    return tuple((x1, y1, x2, y2) for x1, y1, x2, y2 in boxes.tolist())


def _exclusive(path: Path) -> IO[bytes]:
    """An open file with a lock that other studios respect; the system drops it when the process ends, however."""
    try:
        held = path.open("ab")
    except OSError as error:
        raise ProjectError(f"{path} cannot be written: {error.strerror}; choose another file with --project") from error
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            raise ProjectError(
                f"{path} is open in another studio; close that one, or choose another file with --project"
            ) from None
        except OSError:
            pass  # a file system without locks
    return held


def as_bytes(record: Record) -> bytes:
    """A record as bytes: a line of JSON, and its arrays."""
    facts = {"base_id": record.base_id, "n_weak": record.responses.n_weak, "kept": len(record.kept), **record.table()}
    head = json.dumps(facts).encode()
    columns = (np.ascontiguousarray(getattr(record.index, name), dtype).tobytes() for name, dtype in INDEX.items())
    return b"".join([struct.pack("<I", len(head)), head, *columns, record.responses.to_bytes().tobytes(), record.kept])


def from_bytes(data: bytes) -> Record:
    """A record from bytes that `as_bytes` made.

    >>> one = Record("correction", "0" * 64, (8.0, 8.0, 32.0, 32.0), False)
    >>> from_bytes(as_bytes(one)).id == one.id
    True
    """
    (length,) = struct.unpack_from("<I", data)
    facts = json.loads(data[4 : 4 + length])
    base_id, n_weak, n_kept = (facts.pop(name) for name in ("base_id", "n_weak", "kept"))
    n, at = facts["windows"], 4 + length
    columns = []
    for dtype in INDEX.values():
        columns.append(np.frombuffer(data, dtype, n, at))
        at += columns[-1].nbytes
    scale, y, x = columns
    index = WindowIndex(scale.astype(np.float64), y.astype(np.intp), x.astype(np.intp))
    end = len(data) - n_kept
    packed = np.frombuffer(data[at:end], np.uint8).reshape(n, -(-n_weak // 8))
    responses = Responses.from_bytes(packed, n_weak)
    return replace(Record.from_table(facts, base_id), index=index, responses=responses, kept=data[end:])


def _as_record(key: str, data: bytes | None) -> Record | None:
    if data is None:
        return None
    try:
        record = from_bytes(data)
        if record.id == key:
            return record
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, struct.error) as error:
        raise ProjectError(f"the label {key[:8]} of the project is damaged: {error}; use a backup") from error
    raise ProjectError(f"the label {key[:8]} of the project does not have its own hash: it is damaged; use a backup")
