"""Start from nothing: train a first detector on the boxes of a project, in a process of its own.

The process writes a line with JSON for every event. A training that is cancelled, or that ends with the studio, leaves
its checkpoint: the next one goes on from there if the boxes are the same.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any

from whet.detector.base import ABSOLUTE_PATH
from whet.detector.detector import Detector
from whet.errors import NotNowError, TrainingDataError
from whet.images.boxes import areas
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import write_annotations
from whet.web.exports import annotated
from whet.web.labelling import Labeller
from whet.web.quality import objects_of
from whet.web.schemas import JobView

# Objects that are needed to train: the least that `whet train` takes.
OBJECTS_TO_TRAIN = 10
# Reviewed images with room beside the boxes that are needed, and the share of an image that boxes may cover in them.
IMAGES_TO_TRAIN, MOST_COVERED = 2, 0.9
LONGEST_CLASS = 60
# How a line of the process begins that is an event.
EVENT = "event "
# The file that marks a folder as one of a training: a hash of the boxes and the settings.
DIGEST = "digest"
# A first detector is corrected at once: fewer trees than `whet train` grows, for a third of the time.
SETTINGS = {"trees": 512, "negatives_per_round": 3000}


class Training:
    """Trains a detector on the labels of a workspace, a first one or a new one; one training at a time."""

    n_needed = OBJECTS_TO_TRAIN

    def __init__(self, labeller: Labeller) -> None:
        self._labeller, self._workspace = labeller, labeller.workspace
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self._job: JobView | None = None
        self._is_cancelled = False

    @property
    def job(self) -> JobView | None:
        """The training that runs, or the last one."""
        return self._job

    @property
    def can_start(self) -> bool:
        """Whether there are enough objects, and no training runs."""
        return self._process is None and self.n_objects >= self.n_needed

    @property
    def n_objects(self) -> int:
        """Labelled objects in images that can be read."""
        workspace = self._workspace
        return sum(len(objects_of(workspace.labels_of(image.id))) for image in workspace.gallery.readable)

    def start(self, class_name: str) -> JobView:
        """Train on the boxes that were drawn or confirmed, and on reviewed images; returns at once."""
        name = class_name.strip()
        if not (0 < len(name) <= LONGEST_CLASS and name.isprintable() and not ABSOLUTE_PATH.search(name)):
            raise ValueError(f"got the class {class_name[:80]!r}; expected a name of 1 to {LONGEST_CLASS} characters")
        n = self.n_objects
        if n < OBJECTS_TO_TRAIN:
            raise TrainingDataError(
                f"got {n} boxes of objects in images that can be read; draw at least {OBJECTS_TO_TRAIN} to train a "
                "detector"
            )
        with self._lock:
            if self._process is not None:
                raise NotNowError("a training is running already; cancel it first, or wait")
            folder, counts = self._prepared(name)
            self._is_cancelled = False
            command = [sys.executable, "-m", "whet.web.training", str(folder), name]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._job = JobView("running", name, f"training on {counts}", None, 0.0, None)
        Thread(target=self._follow, args=(self._process, folder, name), name="training", daemon=True).start()
        return self._job

    def _prepared(self, name: str) -> tuple[Path, str]:
        """A folder with images and boxes, and how many; that of other boxes is replaced, with its checkpoint."""
        project = self._workspace.store.path
        folder = project.with_name(f"{project.name}.training")
        if folder.exists() and not (folder / DIGEST).is_file():
            raise NotNowError(f"{folder} was not written by a training and is in its place; move or rename it")
        with TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as place:
            new = Path(place) / "new"
            boxes = annotated(self._workspace, new / "images", labelled=True)
            _check_backgrounds(boxes)
            named = Annotations(tuple(image.relabelled(name) for image in boxes.images), (name,))
            write_annotations(named, new / "annotations.json", "coco")
            content = (new / "annotations.json").read_bytes() + json.dumps(SETTINGS).encode()
            digest = hashlib.sha256(content).hexdigest()
            (new / DIGEST).write_text(digest)
            if not folder.exists() or (folder / DIGEST).read_text() != digest:
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
        return folder, f"{boxes.n_boxes} boxes in {len(boxes)} images"

    def _follow(self, process: subprocess.Popen[str], folder: Path, name: str) -> None:
        """Follow the process to its end, however it ends; another training can start then."""
        began = time.monotonic()
        try:
            job = self._outcome(process, folder, name)
        except Exception as error:  # the page shows the reason, whatever it is
            process.kill()
            job = JobView("failed", name, "the new detector cannot be used", None, 0.0, None, str(error)[:500])
        with self._lock:
            self._process = None
        self._publish(replace(job, seconds=round(time.monotonic() - began, 1)))

    def _outcome(self, process: subprocess.Popen[str], folder: Path, name: str) -> JobView:
        """Pass the events of the process on, and use its detector in the end."""
        assert process.stdout is not None
        assert process.stderr is not None
        errors: list[str] = []
        reader = Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
        reader.start()
        for line in process.stdout:
            if line.startswith(EVENT):  # a library may print lines of its own
                event = json.loads(line.removeprefix(EVENT))
                self._publish(
                    JobView("running", name, *(event[key] for key in ("text", "progress", "seconds", "left")))
                )
        code = process.wait()
        reader.join()
        if code == 0:
            self._labeller.use_trained(Detector.from_bytes((folder / "model.whet").read_bytes()), name)
            shutil.rmtree(folder, ignore_errors=True)
            return JobView("finished", name, "trained", 1.0, 0.0, 0.0)
        if self._is_cancelled:
            return JobView("cancelled", name, "cancelled; train again to go on", None, 0.0, None)
        reason = next((line.strip() for line in reversed(errors) if line.strip()), f"exit code {code}")
        return JobView("failed", name, "the training failed", None, 0.0, None, reason[:500])

    def _publish(self, job: JobView) -> None:
        self._job = job
        facts = {"state": job.state, "text": job.text, "progress": job.progress, "seconds_left": job.seconds_left}
        self._workspace.events.publish("train", **facts)

    def cancel(self) -> JobView | None:
        """Stop the training; its checkpoint stays."""
        with self._lock:
            process = self._process
            self._is_cancelled = process is not None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        return self._job


def _check_backgrounds(boxes: Annotations) -> None:
    """Refuse a training that cannot find out what is not the object: negatives come from reviewed images."""
    n = sum(float(areas(i.boxes).sum()) < MOST_COVERED * i.shape[0] * i.shape[1] for i in boxes.images)
    if n < IMAGES_TO_TRAIN:
        raise TrainingDataError(
            f"{n} of {len(boxes)} images are confirmed and have room beside the boxes, where a training finds what is "
            f"not the object; expected at least {IMAGES_TO_TRAIN}, better many: confirm images (Space) in which every "
            "object has a box, and images without the object"
        )


def _train(folder: Path, name: str, write: Callable[[dict[str, Any]], None]) -> None:
    """Train on the annotations in a folder, and write the detector there."""
    from whet.io.files import write_atomically
    from whet.training.train import train

    write({"text": "reading images", "progress": None, "seconds": 0.0, "left": None})
    best = 0.0

    def show(event: Any) -> None:  # noqa: ANN401 - any event of `whet.training.progress`
        """Write the share of the training that is done, by its seconds and those that are left; it never falls."""
        nonlocal best
        left, seconds = event.seconds_left, event.seconds
        if left is not None and seconds + left > 0:
            best = max(best, min(seconds / (seconds + left), 0.99))
        text = str(event).partition("] ")[2]
        write({"text": text, "progress": best or None, "seconds": seconds, "left": left})

    detector = train(
        folder / "annotations.json",
        class_name=name,
        checkpoint=folder / "checkpoint",
        callback=show,
        trees=SETTINGS["trees"],
        negatives_per_round=SETTINGS["negatives_per_round"],
    )
    write_atomically(folder / "model.whet", detector.to_bytes())


def main() -> None:
    """Run one training: the folder and the class are the arguments."""
    from whet.errors import WhetError

    def write(event: dict[str, Any]) -> None:
        print(EVENT + json.dumps(event), flush=True)

    try:
        _train(Path(sys.argv[1]), sys.argv[2], write)
    except (WhetError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
