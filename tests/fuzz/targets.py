"""What is fuzzed: sound files to begin with, how they are changed, and what has to hold for any bytes."""

import atexit
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from PIL import Image

from tests.cascades import model_of, random_cascade, scan, windows_of
from tests.channels import colourful, random_detector
from tests.detectors import BULL, bull_scene, detector, false_positive, judged_finder, mixed_detector
from tests.fuzz.harness import isolated
from tests.fuzz.http import request_changed, requests, run_request
from tests.fuzz.mutations import bytes_changed, checkpoint_changed, model_changed, project_changed, text_changed
from tests.fuzz.projects import projects, run_project
from tests.opencv_files import haar_file, lbp_file, old_file
from whet.corrections.kept import BACKGROUND, HELD_OUT, OBJECT, Crop, Crops
from whet.detector.base import DetectorBase, RefitSettings, Reporting
from whet.detector.detector import Detector
from whet.errors import (
    AnnotationError,
    CannotConvertError,
    CascadeFileError,
    CheckpointError,
    ConfigError,
    DataNotFoundError,
    ModelFileError,
    UnreadableImageError,
    VideoError,
)
from whet.images.boxes import BoxOffset
from whet.io.annotations.annotation import AnnotatedImage, Annotations
from whet.io.annotations.formats import read_annotations, write_annotations
from whet.io.detection_files import Layout, pieces, read_wrong
from whet.io.image_files import as_array, as_grey, as_rgb, image_shape, read_upright
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_model import CascadeModel
from whet.opencv import CascadeClassifier
from whet.opencv.tree_cascade import stages_of
from whet.opencv.xml_reader import parse_opencv

SCENE = bull_scene()[20:68, 30:90]
Seeds = tuple[bytes, ...]


@dataclass(frozen=True)
class Target:
    """A reader of files: the sound ones, a change of one, and the run, which returns `accepted` or `refused`.

    A target that `starts_threads` runs only in processes that are not forked any more.
    """

    name: str
    seeds: Callable[[], Seeds]
    change: Callable[[bytes, np.random.Generator], bytes]
    run: Callable[[bytes], str]
    starts_threads: bool = False

    def case(self, seed: int) -> bytes:
        """The bytes of one case; equal seeds give equal bytes."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        seeds = self.seeds()
        return self.change(seeds[rng.integers(len(seeds))], rng)


# --- Model files ---


@cache
def models() -> Seeds:
    """Stages that learn, fixed ones, leaves, channels; learned, corrected, with a reference set; several classes."""
    corrected = judged_finder(default=12.0)
    corrected.learn(bull_scene(), [*false_positive(corrected), *BULL], [False, True], name="yard.png", note="wrong")
    corrected.learn_patches(bull_scene()[None, 30:42, 40:52], True)
    rng = np.random.default_rng(5)
    leaves = model_of(random_cascade(("rectangle leaves", "lbp leaves", "haar"), (12, 12), (6, 5, 4), rng))
    soft = detector(soft=True)
    several = Detector({"a": detector().shapes(), "b": [*mixed_detector().shapes(), *random_detector().shapes()]})
    every = (
        detector(),
        soft,
        mixed_detector(),
        corrected,
        Detector.from_base(DetectorBase(leaves)),
        random_detector(),
        made_again(),
    )
    return tuple(bytes(one.to_bytes()) for one in (*every, several))


def made_again() -> Detector:
    """Boosted trees that keep samples, have corrections, and were made again."""
    rng, base = np.random.default_rng(8), random_detector().base
    pixels = colourful((120, 160), rng)
    shape = BoxOffset(0.2, 0.2, 0.8, 0.8)
    boxes = np.array([10.0, 8, 40, 46]) + 8 * np.arange(9)[:, None]
    rows = [
        Crop.cut(role, bytes([number]) * 32, pixels, box + 3 * role, window + 3 * role, base.window)
        for number, (box, window) in enumerate(zip(boxes, shape.windows(boxes), strict=True))
        for role in (OBJECT, BACKGROUND, HELD_OUT)
    ]
    kept = replace(base, crops=Crops.from_iterable(rows), settings=RefitSettings(0, 8, 9, 9, copies=1))
    made = Detector.from_base(kept, reporting=Reporting(shape, {"default": 0.5}))
    made.learn(pixels, np.array([[30.0, 30, 60, 66]]), True, complete=True, name="a.png")
    made.refit(threads=1)
    found = made.detect(pixels, min_score=-np.inf).boxes
    made.learn(pixels, found[:1], False, name="a.png", note="wrong")
    return made


def run_model(data: bytes) -> str:
    """A file is refused by name, or is a detector that saves what it was, and scans as the specification does."""
    try:
        made = Detector.from_bytes(data)
    except ModelFileError:
        return "refused"
    again = made.to_bytes()
    assert Detector.from_bytes(again).to_bytes() == again
    faults = [fault for one in made.check() for fault in one.faults]
    assert not [fault for fault in faults if "semidefinite" not in fault], faults  # pairs are checked, not all
    for shape in made.shapes():
        if isinstance(shape.base.model, CascadeModel):
            check_scan(shape.base.model.cascade)
    found = made.detect(SCENE, min_score=0.0, threads=1)
    assert np.isfinite(found.boxes).all()
    assert np.isfinite(found.scores).all()
    json.loads("".join(pieces([(Path("a.png"), found)], Layout.json, {})), parse_constant=_no_constant)
    return "accepted"


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def check_scan(cascade: Cascade) -> None:
    """The kernel accepts the windows of the specification, which cuts them out one by one, with the same scores."""
    if any(side < length for side, length in zip(SCENE.shape, cascade.window, strict=True)):
        return
    patches, places = windows_of(SCENE, cascade.window, 3)
    with np.errstate(all="ignore"):
        scores = cascade.scores(patches)
    found = scan(cascade, SCENE, step=3, threads=1)
    accepted = scores > -np.inf
    assert np.array_equal(np.stack([found.y, found.x], axis=1), places[accepted])
    assert np.array_equal(found.scores, scores[accepted])


# --- OpenCV's cascades ---


@cache
def cascades() -> Seeds:
    """Haar features, tilted and fractional, patterns, trees; in both formats."""
    texts = (
        haar_file(np.random.default_rng(0), (8, 9), [1, 2], sizes=(1, 2), tilted=True),
        haar_file(np.random.default_rng(1), (8, 9), [1, 2], sizes=(3,), fractional=True),
        haar_file(np.random.default_rng(4), (8, 9), [2, 3]),
        lbp_file(np.random.default_rng(2), (9, 8), [1, 2], sizes=(1, 2)),
        old_file(np.random.default_rng(3), (9, 8), [1, 2]),
    )
    return tuple(text.encode() for text in texts)


def run_cascade(data: bytes) -> str:
    """A file is refused by name, or runs; what OpenCV reads as well finds the same windows there."""
    try:
        cascade = parse_opencv(data)
    except CascadeFileError:
        return "refused"
    ours = CascadeClassifier(threads=1)
    ours.cascade = cascade
    boxes = ours.detectMultiScale(SCENE, 1.3, 0)
    theirs = isolated(partial(_of_opencv, data), seconds=5)
    if theirs.kind == "accepted":  # OpenCV crashes on some of these files: that is no finding of ours
        assert theirs.text.strip() == _rows(boxes), f"OpenCV finds {theirs.text}"
    try:
        stages = stages_of(cascade)
    except CannotConvertError:
        return "accepted"
    check_scan(Cascade(cascade.window, stages))
    return "accepted"


def _of_opencv(data: bytes) -> str:
    import cv2

    cv2.setNumThreads(1)
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        file.write(data)
        file.flush()
        theirs = cv2.CascadeClassifier(file.name)
    return "refused" if theirs.empty() else f"accepted\n{_rows(theirs.detectMultiScale(SCENE, 1.3, 0))}"


def _rows(boxes: object) -> str:
    return str(sorted(np.asarray(boxes).reshape(-1, 4).tolist()))


# --- Annotations and detections: the first line of a case is the name of its file ---


@cache
def annotated() -> Path:
    """A directory with images, annotated in all formats."""
    place = Path(tempfile.mkdtemp(prefix="whet-fuzz-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    root = place / "set"
    root.mkdir()
    images = []
    for name in ("a", "b"):
        Image.fromarray(SCENE).save(root / f"{name}.png")
        boxes = np.array([[3.0, 4.0, 20.0, 30.0], [10.5, 8.0, 40.0, 44.0]])
        labels, ignore = ("car", "van"), np.array([False, name == "b"])
        images.append(AnnotatedImage(root / f"{name}.png", SCENE.shape, boxes, labels, ignore))
    every = Annotations(tuple(images), ("car", "van"))
    for format, name in (("coco", "coco.json"), ("csv", "table.csv"), ("voc", "voc"), ("yolo", "yolo")):
        write_annotations(every, root / name, format)
    write_annotations(every.select("car"), root / "opencv", "opencv")
    marked = '[{"image": "a.png", "boxes": [[1, 2, 30, 40]], "scores": [3.5], "wrong": [1]}]'
    (root / "wrong.json").write_text(marked)
    (root / "wrong.csv").write_text("path,x,y,w,h,score,wrong\na.png,1,2,30,40,3.5,1\nb.png,1,2,30,40,3,0\n")
    return root


@cache
def copy_of_process(number: int) -> Path:
    """A copy of that directory for one process."""
    return Path(shutil.copytree(annotated(), annotated().parent / str(number)))


@cache
def annotations() -> Seeds:
    """The files of annotations and of marked detections, each after its name."""
    root = annotated()
    files = sorted(
        path for path in root.rglob("*") if path.suffix in (".json", ".csv", ".xml", ".yaml", ".txt", ".dat")
    )
    return tuple(f"{path.relative_to(root)}\n".encode() + path.read_bytes() for path in files)


def annotation_changed(data: bytes, rng: np.random.Generator) -> bytes:
    """The name stays, the file changes."""
    name, _, rest = data.partition(b"\n")
    return name + b"\n" + text_changed(rest, rng)


def run_annotations(data: bytes) -> str:
    """A file is refused by name, or gives finite boxes."""
    name, _, rest = data.partition(b"\n")
    root = copy_of_process(os.getpid())
    path = root / name.decode()
    sound = path.read_bytes()
    path.write_bytes(rest)
    try:
        if path.name.startswith("wrong"):
            found = read_wrong(path).boxes.values()
        else:
            source = root / path.relative_to(root).parts[0]
            format = {"table.csv": "csv", "coco.json": "coco"}.get(source.name, source.name)
            found = [each.boxes for each in read_annotations(source, format).images]
    except (AnnotationError, DataNotFoundError, UnreadableImageError):
        return "refused"
    finally:
        path.write_bytes(sound)
    assert all(np.isfinite(boxes).all() and boxes.shape[1:] == (4,) for boxes in found)
    return "accepted"


# --- Images, video, checkpoints and settings ---


@cache
def images() -> Seeds:
    """One image in every format that Pillow writes here, and in several modes; with EXIF data, and as PostScript."""
    found = []
    grey = Image.fromarray(SCENE)
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    for format in ("JPEG", "PNG", "BMP", "DIB", "GIF", "PPM", "TIFF", "WEBP", "JPEG2000", "TGA", "AVIF", "EPS", "ICO"):
        for mode in ("L", "RGB", "RGBA", "P", "1", "I;16", "CMYK", "F"):
            data = io.BytesIO()
            try:
                options = {"exif": exif} if format in ("JPEG", "PNG", "TIFF", "WEBP", "AVIF") else {}
                grey.convert(mode).save(data, format, **options)
            except (OSError, ValueError, KeyError, SystemError):
                continue
            found.append(data.getvalue())
    return tuple(found)


def run_image(data: bytes) -> str:
    """Every reader refuses the file by name, or gives pixels of the size that the header says."""
    kinds = set()
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        file.write(data)
        file.flush()
        shapes = set()
        for read in (image_shape, as_grey, as_rgb, as_array, read_upright):
            try:
                made = read(Path(file.name))
                shapes.add(made if read is image_shape else np.asarray(made).shape[:2])
                kinds.add("accepted")
            except UnreadableImageError:
                kinds.add("refused")
    assert len(shapes) <= 1, shapes
    return min(kinds)


@cache
def videos() -> Seeds:
    """A few frames as MP4; none without PyAV."""
    try:
        from whet.io.video import VideoWriter

        with tempfile.TemporaryDirectory() as folder:
            with VideoWriter(Path(folder) / "a.mp4", 25.0) as writer:
                for number in range(5):
                    writer.write(np.roll(np.repeat(SCENE[:, :, None], 3, axis=2), number, axis=1))
            return (Path(folder, "a.mp4").read_bytes(),)
    except ImportError:
        return ()


def run_video(data: bytes) -> str:
    """A video is refused by name, or has frames; single frames may be skipped."""
    from whet.io.video import read_frames

    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        file.write(data)
        file.flush()
        try:
            for frame in read_frames(file.name, skipped=lambda _: None, stop=20):
                assert frame.image.dtype == np.uint8
        except VideoError:
            return "refused"
    return "accepted"


@cache
def checkpoints() -> Seeds:
    """A checkpoint after one stage."""
    from tests.detectors import base
    from whet.training.backgrounds import Mined
    from whet.training.progress import Checkpoint, State, StepRecord

    ones = np.ones(3, np.int64)
    state = State(base().model, [StepRecord(3, 1.0, 2.0)])
    for held_out in (False, True):
        state.add(Mined(np.zeros((3, 4), np.int32), ones, ones), held_out)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.checkpoint"
        Checkpoint(path, {"seed": "1"}).save(state)
        return (path.read_bytes(),)


def run_checkpoint(data: bytes) -> str:
    """A checkpoint is refused by name, or is a state of stages."""
    from whet.training.progress import Checkpoint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.checkpoint"
        path.write_bytes(data)
        try:
            Checkpoint(path, {"seed": "1"}).load()
        except CheckpointError:
            return "refused"
    return "accepted"


@cache
def settings_files() -> Seeds:
    """The settings of a training."""
    from whet.training.config import TrainingConfig, write_settings

    with tempfile.TemporaryDirectory() as folder:
        write_settings(TrainingConfig("cars.csv", class_name="car", seed=3), Path(folder) / "a.toml")
        return (Path(folder, "a.toml").read_bytes(),)


def run_settings(data: bytes) -> str:
    """Settings are refused by name, or are settings."""
    from whet.training.config import read_settings

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.toml"
        path.write_bytes(data)
        try:
            read_settings(path)
        except ConfigError:
            return "refused"
    return "accepted"


TARGETS = {
    target.name: target
    for target in (
        Target("models", models, model_changed, run_model),
        Target("opencv", cascades, text_changed, run_cascade),
        Target("annotations", annotations, annotation_changed, run_annotations),
        Target("images", images, bytes_changed, run_image),
        Target("video", videos, bytes_changed, run_video),
        Target("checkpoints", checkpoints, checkpoint_changed, run_checkpoint),
        Target("settings", settings_files, text_changed, run_settings),
        Target("projects", projects, project_changed, run_project),
        Target("requests", requests, request_changed, run_request, starts_threads=True),
    )
}
