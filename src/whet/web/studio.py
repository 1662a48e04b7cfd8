"""A running studio: a workspace, its work in the background, its training and its video."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import inf
from pathlib import Path
from threading import Event, Thread
from typing import Self

import numpy as np

from whet.detector.detector import Detector
from whet.errors import NotNowError, UnknownItemError, UnreadableImageError, WhetError
from whet.io.image_files import as_array, find_images, is_image_name
from whet.io.video import is_live
from whet.web.labelling import Labeller
from whet.web.live import Player, Video
from whet.web.schemas import RescanView
from whet.web.training import Training
from whet.web.workspace import Workspace

# A model by its id, and corrections.
State = tuple[str | None, frozenset[str]]

VIDEO_SUFFIXES = frozenset(
    (  # noqa: SIM905
        ".264 .265 .3g2 .3gp .asf .avi .dav .divx .f4v .flv .h264 .h265 .hevc .m2ts .m2v .m4v .mjpeg .mjpg .mkv .mov "
        ".mp4 .mpeg .mpg .mts .mxf .ogv .ts .vob .webm .wmv .y4m"
    ).split()
)
# Seconds to wait for the first frame of a video before the page opens; a slow camera goes on in the page.
START_TIMEOUT = 10.0
PAUSE = 0.02  # seconds between two images in the background: requests come first


class Studio:
    """Everything that a server serves; a context manager that stops its threads and closes the project."""

    def __init__(self, workspace: Workspace, paths: Sequence[Path] = (), video: Video | None = None) -> None:
        self.workspace = workspace
        self.labeller = Labeller(workspace)
        self.training = Training(self.labeller)
        self.video = video
        self.rescan = Rescan(workspace, paths)

    @classmethod
    def open(
        cls,
        project: Path,
        detector: Detector | None,
        model: str | None,
        sources: Sequence[str] = (),
        *,
        threads: int | None = None,
    ) -> Studio:
        """Open a project with images or a video to show."""
        _check_kinds(sources)
        videos = [source for source in sources if is_video(source)]
        if len(videos) > 1 or (videos and len(sources) > 1):
            raise UnknownItemError(f"got {', '.join(sources)}; expected images and directories, or one video")
        paths = find_images(sources) if sources and not videos else []
        _check_readable(paths)
        name = "model" if model is None else Path(model.partition(":")[0]).stem
        workspace = Workspace.open(project, detector, name=name, model=model, threads=threads)
        try:
            video = Player(workspace, videos[0]) if videos else None
            if video is not None:
                video.wait_for_start(START_TIMEOUT)
            return cls(workspace, paths, video)
        except BaseException:
            workspace.close()
            raise

    def __enter__(self) -> Self:
        self.rescan.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all threads and close the project."""
        self.workspace.events.publish("end")
        if self.video is not None:
            self.video.close()
        self.training.cancel()
        self.rescan.stop()
        self.workspace.close()


def is_video(source: str) -> bool:
    """Whether a source is a camera, a stream or a video file, by its name.

    >>> is_video("camera"), is_video("street.mp4"), is_video("notes.txt"), is_video("rtsp://10.0.0.7/live")
    (True, True, False, True)
    """
    path = Path(source)
    return is_live(source) or (path.suffix.lower() in VIDEO_SUFFIXES and not path.is_dir())


def _check_kinds(sources: Sequence[str]) -> None:
    """Refuse files that are neither images nor videos, before anything is opened."""
    for source in sources:
        path = Path(source)
        if path.is_file() and not is_video(source) and not is_image_name(path):
            raise UnknownItemError(
                f"{source} is neither an image nor a video; expected images, directories of images, "
                f"a video ({', '.join(sorted(VIDEO_SUFFIXES))}) or camera"
            )


def _check_readable(paths: Sequence[Path]) -> None:
    """Refuse image files of which none can be read; later, one that cannot is left out with a warning."""
    errors = []
    for path in paths:
        try:
            as_array(path)
        except (OSError, UnreadableImageError) as error:
            errors.append(str(error))
        else:
            return
    if errors:
        more = f" (and {len(errors) - 1} more files)" if len(errors) > 1 else ""
        raise UnreadableImageError(f"no image can be read: {errors[0]}{more}")


class Rescan:
    """Reads the images, scans those that are new, and scans images again of which the cache lacks windows."""

    def __init__(self, workspace: Workspace, paths: Sequence[Path]) -> None:
        self._workspace, self._paths = workspace, list(paths)
        self._stopped = Event()
        self._threads = [Thread(target=work, daemon=True) for work in (self._read, self._run)]
        # By image, the last state, model and corrections, in which no window was missing.
        self._complete: dict[str, State] = {}
        # Images whose scan failed unexpectedly, with the revision of the state: they are scanned again in another one.
        self._failed: dict[str, int] = {}

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop soon, and wait for that."""
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10)

    def view(self) -> RescanView:
        """How many images show exactly what a scan finds in the current state, and how many cannot be read."""
        state, missing, complete = self._state(), self._workspace.gallery.missing, list(self._complete.items())
        n_complete = sum(known == state and key not in missing for key, known in complete)
        return RescanView(n_complete, len(self._workspace.gallery), len(missing))

    def _state(self) -> State:
        with self._workspace.locked():
            model = self._workspace.open_model
            return None if model is None else model.id, self._workspace.record_ids()

    def _read(self) -> None:
        """Add the image files to the project."""
        for _ in self._workspace.gallery.add_files(self._paths):
            self._publish_images()
            if self._stopped.is_set():
                return

    def _publish_images(self) -> None:
        self._workspace.events.publish("images", total=len(self._workspace.gallery))

    def _run(self) -> None:
        published = checked = 0.0
        was_idle, sent = False, (self._state(), self.view())
        while not self._stopped.wait(PAUSE):
            if time.monotonic() > checked + 2.0:  # are image files gone?
                checked = time.monotonic()
                if self._workspace.gallery.check_files():
                    self._publish_images()
            # It goes on a second after a change: who corrects boxes does so one after the other.
            if time.monotonic() < self._workspace.changed_at + 1.0:
                continue
            try:
                is_idle = not (self._workspace.has_model and self.step())
            except WhetError:  # the model is gone: an undo went to the time before it
                is_idle = True
            except Exception:
                logging.getLogger("whet").exception("the scan in the background failed; it goes on")
                is_idle = True
            if is_idle:
                self._stopped.wait(0.2)
            has_ended = is_idle and not was_idle
            was_idle = is_idle
            if has_ended or time.monotonic() > published + 1.0:
                published, now = time.monotonic(), (self._state(), self.view())
                if now != sent:
                    self._workspace.events.publish("rescan", **asdict(now[1]))
                    sent = now

    def step(self) -> bool:
        """Scan one image that can be read, if the cache lacks windows of it; returns whether there was any left."""
        workspace = self._workspace
        with workspace.locked():
            state, cache, revision = self._state(), workspace.cache, workspace.revision
        keys = [image.id for image in workspace.gallery.readable if self._failed.get(image.id) != revision]
        for key in keys:
            if key not in cache:
                with self._skipped_if_it_fails(key, revision):
                    workspace.detections(key)
                return True
        for key in keys:
            if self._complete.get(key) != state:
                if not cache.is_covered(key, state[1]):
                    with self._skipped_if_it_fails(key, revision):
                        self._scan_again(key, state)
                    return True
                self._complete[key] = state
        return False

    @contextmanager
    def _skipped_if_it_fails(self, key: str, revision: int) -> Iterator[None]:
        """Go on with the other images: one that cannot be read is missing, another error is logged."""
        gallery = self._workspace.gallery
        try:
            yield
        except NotNowError:  # not the image: the model is gone
            raise
        except (UnknownItemError, UnreadableImageError):
            gallery.leave_out(key)
            self._publish_images()
        except Exception:
            self._failed[key] = revision
            logging.getLogger("whet").exception("cannot scan %s", gallery[key].name)

    def _scan_again(self, key: str, state: State) -> None:
        """Add the windows of an image that the cache lacks, with lower limits, or from a scan with the corrections."""
        workspace, ids = self._workspace, state[1]
        with workspace.locked():
            revision, cache = workspace.revision, workspace.cache
        if key not in cache:  # another model was taken over since: its cache is filled first
            return
        pixels, before = workspace.gallery.pixels(key), cache.detections(key, ids).with_min_score(workspace.min_score)
        cache.scan(key, pixels, ids)
        if not cache.is_covered(key, ids):
            scanned = workspace.detector.detect(pixels, min_score=-inf, threads=1)
            with workspace.locked():
                if workspace.revision != revision or self._state() != state:
                    return
            cache.take_fired(key, pixels, scanned.windows)
        self._complete[key] = state
        after = cache.detections(key, ids).with_min_score(workspace.min_score)
        if not np.array_equal(before.to_array(), after.to_array()):
            with workspace.locked():  # open pages show other boxes
                workspace.revision += 1
            workspace.publish(image=key)
