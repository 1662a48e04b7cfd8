"""The studio at a glance: its state, and its images in order."""

from __future__ import annotations

from math import isfinite

from whet.web import insights
from whet.web.effects import boxes_of
from whet.web.queue import expected_change, in_turns
from whet.web.studio import Studio
from whet.web.training import OBJECTS_TO_TRAIN
from whet.web.views import ImageList, StateView
from whet.web.workspace import Workspace


def state(studio: Studio) -> StateView:
    """The studio as a whole."""
    workspace = studio.workspace
    score = workspace.min_score
    ids = [image.id for image in workspace.gallery]
    with workspace.locked() as history:
        items = history.items()
        node, branch, can_undo, can_redo = history.current, history.branch, history.can_undo, history.can_redo
        revision = workspace.revision
    labels = [workspace.labels[key] for key in items if key in workspace.labels]
    return StateView(
        project=workspace.store.path.name,
        revision=revision,
        model=workspace.model_view(),
        node=node,
        branch=branch,
        n_corrections=len(labels),
        can_undo=can_undo,
        can_redo=can_redo,
        is_saved=workspace.is_saved,
        min_score=score if isfinite(score) else None,
        min_score_name=workspace.min_score_name,
        n_images=len(ids),
        n_reviewed=sum(workspace.is_reviewed(key) for key in ids),
        n_objects=sum(label.is_object for label in labels),
        objects_to_train=OBJECTS_TO_TRAIN,
        can_train=studio.training.can_start,
        locked=insights.locked(workspace),
        job=studio.training.job,
        video=None if studio.video is None else studio.video.view(),
        rescan=studio.rescan.view(),
    )


def images(workspace: Workspace, order: str, offset: int, limit: int) -> ImageList:
    """A part of all images, by name or by what is expected to change."""
    groups, every = workspace.gallery.groups(), list(workspace.gallery)
    expected = {image.id: _expected(workspace, image.id) for image in every}
    if order == "queue":
        known = {image.id: image for image in every}
        ranked = in_turns([(image.id, groups[image.id], expected[image.id] or 0.0) for image in every])
        every = sorted((known[key] for key in ranked), key=lambda image: workspace.is_reviewed(image.id))
    part = every[offset : offset + limit]
    return ImageList(len(every), [workspace.summary(image, groups[image.id], expected[image.id]) for image in part])


def _expected(workspace: Workspace, key: str) -> float | None:
    if not workspace.has_model or key not in workspace.rescorer:
        return None
    found = workspace.detections(key)
    return round(expected_change(found, workspace.min_score, boxes_of(workspace.labels_of(key))), 4)
