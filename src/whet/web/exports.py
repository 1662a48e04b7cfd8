"""What leaves the studio as a file: boxes as annotations, corrections, the detector."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np

from whet.corrections.box_windows import SAME_PLACE
from whet.corrections.records import as_coco
from whet.detector.storage import class_in_file, save
from whet.errors import NotNowError, UnreadableImageError
from whet.images.boxes import box_iou
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Annotations
from whet.io.annotations.formats import LIST, write_annotations
from whet.io.files import as_file_name
from whet.web.quality import labelled as labels_on
from whet.web.quality import objects_of
from whet.web.schemas import SavedView
from whet.web.store import StoredImage
from whet.web.workspace import Workspace

Format = Literal["coco", "yolo", "voc", "csv", "corrections"]


class Exported(NamedTuple):
    """The content of a file, its type and its name."""

    content: bytes
    media_type: str
    name: str


def exported(workspace: Workspace, format: Format, *, reviewed: bool = True, images: bool = False) -> Exported:
    """The confirmed boxes of reviewed images as annotations, or the corrections; else boxes of all images.

    Without `reviewed`, images that nobody reviewed also have what the detector finds there, with its mistakes. With
    `images`, the files of the images are in the archive, where the annotations expect them; YOLO's layout always has
    them.
    """
    stem = as_file_name(workspace.name) or "boxes"
    if format == "csv":
        return Exported(counts(workspace).encode(), "text/csv", f"{stem}-objects.csv")
    if format == "corrections":
        records = sorted(workspace.records(), key=lambda record: (-record.time, record.id))
        return Exported(json.dumps(as_coco(records), indent=1).encode(), "application/json", f"{stem}-corrections.json")
    with TemporaryDirectory() as place:
        folder = Path(place)
        boxes = annotated(workspace, folder / "images", reviewed=reviewed)
        target = folder / "annotations.json" if format == "coco" else folder / format
        write_annotations(boxes, target, format)
        if format == "coco" and not images:
            return Exported(target.read_bytes(), "application/json", f"{stem}-coco.json")
        has_images = images and format != "yolo"  # YOLO's directory has them itself
        content = _zipped(folder, [target, folder / "images"]) if has_images else _zipped(target, [target])
        return Exported(content, "application/zip", f"{stem}-{format}.zip")


def counts(workspace: Workspace) -> str:
    """The number of objects in each image with their boxes x y w h and scores, and a last row of totals.

    Objects are boxes that somebody drew or confirmed, and in images that nobody reviewed also what is detected there
    and was not judged. A drawn box that is not detected has no score.
    """
    rows, total, n_reviewed = [], 0, 0
    for image in workspace.gallery.readable:
        labels, found = workspace.labels_of(image.id), workspace.shown(image.id)
        is_reviewed = workspace.is_reviewed(image.id)
        objects = objects_of(labels)
        overlap = box_iou(objects, found.boxes)
        best = overlap.argmax(axis=1) if len(found) else np.zeros(len(objects), np.intp)
        scores = [
            f"{found.scores[at]:.4f}" if row.size and row[at] >= SAME_PLACE else ""
            for row, at in zip(overlap, best, strict=True)
        ]
        if not is_reviewed:
            is_open = np.array([label is None for label in labels_on(found, labels)], np.bool_)
            objects = np.concatenate([objects, found.boxes[is_open]])
            scores += [f"{score:.4f}" for score in found.scores[is_open]]
        boxes = [f"{x1:.1f} {y1:.1f} {x2 - x1:.1f} {y2 - y1:.1f}" for x1, y1, x2, y2 in objects.tolist()]
        rows.append((image.name, int(is_reviewed), len(objects), ";".join(boxes), ";".join(scores)))
        total, n_reviewed = total + len(objects), n_reviewed + is_reviewed
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("image", "reviewed", "objects", "boxes", "scores"))
    writer.writerows(rows)
    writer.writerow((f"total of {len(rows)} images", n_reviewed, total, "", ""))
    return file.getvalue()


def annotated(workspace: Workspace, folder: Path, *, reviewed: bool = False, labelled: bool = False) -> Annotations:
    """The images of a project with what is known of them, in a new folder; missing images are left out.

    Objects are the boxes that somebody drew or confirmed. Everything else in a reviewed image is background. In other
    images it is not known: with `labelled`, for a training, the whole image is a region to ignore, and images without
    labels are left out; without, detections that nobody judged are added.
    """
    folder.mkdir(parents=True)
    name = (workspace.has_model and workspace.detector.class_name) or ONLY_CLASS
    images, used = [], set[str]()
    for image in workspace.gallery.readable:
        labels = workspace.labels_of(image.id)
        is_reviewed = workspace.is_reviewed(image.id)
        if not is_reviewed and (reviewed or (labelled and not labels)):
            continue
        whole = np.array([[0.0, 0.0, image.width, image.height]])
        boxes = objects_of(labels)
        if not (is_reviewed or labelled):
            found = workspace.shown(image.id)
            is_open = np.array([label is None for label in labels_on(found, labels)], np.bool_)
            boxes = np.concatenate([boxes, found.boxes[is_open]])
        boxes = boxes.clip(0, whole[0, [2, 3, 2, 3]])
        boxes = boxes[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)]
        ignore = np.zeros(len(boxes), np.bool_)
        if labelled and not is_reviewed:
            boxes, ignore = np.concatenate([boxes, whole]), np.append(ignore, True)
        path = _linked(workspace, image, folder, used)
        images.append(AnnotatedImage(path, (image.height, image.width), boxes, (name,) * len(boxes), ignore))
    if not images:
        raise NotNowError(_why_none(workspace, reviewed=reviewed, labelled=labelled))
    return Annotations(tuple(images), (name,))


def _why_none(workspace: Workspace, *, reviewed: bool, labelled: bool) -> str:
    """Why there is no image to write, and what to do."""
    if labelled:
        return "no labelled image can be read; put the image files back, or draw boxes in other images"
    missing = workspace.gallery.missing
    n = sum(workspace.is_reviewed(key) for key in missing) if reviewed else len(missing)
    if n:
        kind = "reviewed images" if reviewed else "images"
        return f"the files of all {n} {kind} are missing; put them back where they were"
    if reviewed:
        return "no image is reviewed; confirm images (Space), or export all of them with reviewed=false"
    return "the project has no image; start the studio with a directory of images"


def _linked(workspace: Workspace, image: StoredImage, folder: Path, used: set[str]) -> Path:
    """A link to the file of an image, or a copy of one that is kept in the project, under a name of its own."""
    name = as_file_name(Path(image.name).stem) or "image"
    suffix = ".png" if image.path is None else Path(image.path).suffix
    while name + suffix in used:
        name += f"-{image.id[:8]}"
    used.add(name + suffix)
    path = folder / (name + suffix)
    if image.path is not None:
        path.symlink_to(image.path)
    else:
        content = workspace.store.content(image.id)
        if content is None:
            raise UnreadableImageError(f"{image.name} is not in the project any more; start the studio again")
        path.write_bytes(content)
    return path


def _zipped(folder: Path, parts: Sequence[Path]) -> bytes:
    """Some files and directories as an archive, with names relative to a folder; links are followed."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for part in parts for path in (part, *part.rglob("*"))):
            if path.is_file() and path.name != LIST:
                is_packed = path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp")
                kind = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
                archive.write(path, path.relative_to(folder).as_posix(), kind)
    return content.getvalue()


def model_file(workspace: Workspace) -> Exported:
    """The detector as a .whet file."""
    name = f"{as_file_name(workspace.name) or 'model'}.whet"
    return Exported(workspace.detector.to_bytes(), "application/octet-stream", name)


def opencv_file(workspace: Workspace) -> Exported:
    """The detector for OpenCV; raises `CannotExportError` where its format cannot hold it."""
    with TemporaryDirectory() as place:
        path = Path(place) / f"{as_file_name(workspace.name) or 'model'}.xml"
        workspace.detector.export_opencv(path)
        return Exported(path.read_bytes(), "application/xml", path.name)


def save_model(workspace: Workspace) -> SavedView:
    """Write the detector to its own file; that of a bundled or trained one lies beside the project.

    A file that someone else has changed since is left as it is.
    """
    target = workspace.model_path
    file, known = class_in_file(target)[0], workspace.store.get("saved")
    if known is None and file.exists():
        raise NotNowError(f"{file.name} exists already and is not of this project; download the model instead")
    with workspace.locked() as history:
        detector, node = workspace.detector.copy(), history.current
    detector.files = {} if known is None else {file.resolve(): known}
    save(detector, target)
    workspace.store.put(saved=detector.origin[1] if detector.origin else None, saved_node=node)
    workspace.events.publish("state", revision=workspace.revision, node=node, image=None, client=None)
    return SavedView(file.name, len(detector.records))
