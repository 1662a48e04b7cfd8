"""A running studio: a workspace with its images, its background work, its video and its training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

from whet.detector.detector import Detector
from whet.io.images import find_images
from whet.web.workspace import Workspace


class StudioSession(Workspace):
    """A workspace that looks at its images in the background."""

    _stop: Event
    _worker: Thread | None = None

    @classmethod
    def open(  # type: ignore[override]
        cls,
        project: Path,
        detector: Detector | None,
        name: str | None,
        sources: Sequence[str] = (),
        *,
        threads: int | None = None,
    ) -> StudioSession:
        """Open a project with images to show."""
        paths = find_images(sources) if sources else []
        session = super().open(project, detector, name=Path(name or "model").stem, threads=threads)
        session._stop = Event()
        session._worker = Thread(target=session._look, args=(paths,), daemon=True)
        session._worker.start()
        return session

    def _look(self, paths):
        for added in self.gallery.add_files(paths):
            self.events.publish("images", total=len(self.gallery))
            if self._stop.is_set():
                return
        for image in self.gallery:
            if self._stop.is_set():
                return
            if self.has_model:
                self.detections(image.id)
                self.events.publish("rescan", done=0)
    def close(self):
        self._stop.set()
        self._worker.join(5)
        super().close()
