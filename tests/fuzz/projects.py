"""Hostile project files of the studio: each is refused by name, or is a project that can be worked with."""

import sqlite3
import tempfile
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import numpy as np

from whet.errors import WhetError

BOX = [89.0, 46.0, 143.0, 100.0]


@cache
def projects() -> tuple[bytes, ...]:
    """Projects with images, labels, a review and an undone change, with a model and without.

    None without the studio's packages.
    """
    try:
        from tests.web.studios import finder, labels_for, scene
        from whet.web.workspace import Workspace
    except ImportError:
        return ()
    found = []
    for model in (finder(), None):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.studio"
            with Workspace.open(path, model, name="bull", threads=1) as workspace:
                keys = [workspace.add_image(scene(seed)[:60, :80], f"{seed}.png").id for seed in range(2)]
                labels = labels_for(workspace)
                labels.label(keys[0], [[40, 20, 60, 40]], True)
                labels.confirm([keys[1]])
                labels.label(keys[1], [[4, 4, 30, 30]], False)
                workspace.undo()
            with closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                database.execute("PRAGMA journal_mode = DELETE")
            found.append(path.read_bytes())
    return tuple(found)


def run_project(data: bytes) -> str:
    """A file is refused by name; or else its images, states and exports are shown, and a label is kept."""
    from tests.web.studios import labels_for
    from whet.web import page_state
    from whet.web.exports import annotated
    from whet.web.workspace import Workspace

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.studio"
        path.write_bytes(data)
        try:
            workspace = Workspace.open(path, threads=1)
        except WhetError:
            return "refused"
        with workspace:
            for image in list(workspace.gallery):
                with suppress(WhetError):
                    page_state.image(workspace, image.id)
            for node in workspace.history.nodes:
                with suppress(WhetError):
                    workspace.checkout(node=node)
            with suppress(WhetError):
                annotated(workspace, Path(folder) / "out")
            with suppress(WhetError):
                labels_for(workspace).label(next(iter(workspace.gallery)).id, np.array([[5.0, 5, 40, 40]]), True)
                before = len(workspace.labels)
                workspace.close()
                with Workspace.open(path, threads=1) as again:
                    assert len(again.labels) == before
    return "accepted"
