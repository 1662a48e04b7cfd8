"""Decision "Few examples".

Average precision by number of training boxes and training time: `python -m benchmarks.few_examples`.

Each run chooses whole images of a set's train part at random until they hold the number of boxes, trains a method on
them, and evaluates it on the test part. Images without the object cost no boxes: every run gets all of them. Sets that
have fewer boxes than asked for (by more than a tenth) are left out at that number.

`--minutes M` is the limit of a training on two cores: 120 M core seconds, however many threads run. Each run has a
process of its own, which is killed when its training takes longer; evaluation is not limited. `--resume FILE` appends
one line per run, and a repeated command continues after the last one; to repeat a run, delete its line. With
`--recorded` the report is printed as far as the file goes. Methods:

- `whet`: `whet.train` with default settings. The number of trees is halved until the time that `whet train --dry-run`
  expects fits the limit.
- `dlib`: `dlib.train_simple_object_detector` (`pip install dlib-bin`).
- `yolo`: YOLOv8n with weights of COCO, fine-tuned (`pip install ultralytics`, and `--weights yolov8n.pt`; see
  `benchmarks/yolo_peer.py` for where the file comes from).
- `opencv-people`: OpenCV's `HOGDescriptor` with its people detector, on people only and without training
  (`pip install opencv-python-headless`).

Prints JSON: every run, and mean and range of the average precision over the seeds. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray

from benchmarks.objects import SETS, test_part
from whet.errors import TrainingDataError
from whet.evaluation.evaluation import evaluate_detections
from whet.evaluation.runs import truths_of
from whet.io.annotations.annotation import AnnotatedImage, Annotations
from whet.io.annotations.formats import read_annotations, write_annotations

CORES = 2
DEFAULT_SETS = ("inria_person", "plates", "rear_cars", "white_cells", "raccoon", "cats", "stop")
BOXES = (10, 20, 50, 100, 200, 500)
METHODS = ("whet", "dlib", "yolo", "opencv-people")
UNTRAINED = {"opencv-people": "inria_person"}
ENOUGH = 0.9
TREES = (1024, 512, 256, 128, 64)

Floats = NDArray[np.float64]
# Boxes (n, 4) and scores (n,) of the file of an image.
Detect = Callable[[Path], tuple[Floats, Floats]]
Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One training: a method on some boxes of a set, chosen by the seed, with a limit in minutes on two cores."""

    set: str
    boxes: int
    seed: int
    minutes: float
    method: str

    @property
    def core_seconds(self) -> float:
        """Limit of the training."""
        return 60 * CORES * self.minutes


@dataclass(frozen=True, eq=False)
class Trained:
    """A method's result: how it detects, whether more time would have changed it, and settings to report."""

    detect: Detect
    is_limited: bool
    settings: Record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(DEFAULT_SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--boxes", nargs="+", type=int, default=list(BOXES), metavar="N")
    parser.add_argument("--seeds", type=int, default=3, help="number of choices of training images, from seed 0")
    parser.add_argument("--minutes", nargs="+", type=float, default=[1.0, 10.0], metavar="M")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--threads", type=int, default=CORES)
    parser.add_argument("--resume", type=Path, metavar="FILE", help="append one JSON line per run; skip those in it")
    parser.add_argument("--recorded", action="store_true", help="print what FILE has, without any further run")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="yolov8n.pt, for the method yolo")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # JSON of one run, in a process of its own
    options = parser.parse_args()
    if options.run is not None:
        print(json.dumps(measured(Run(**json.loads(options.run)), options.threads, options.weights)))
        return
    if options.recorded:
        print_report(
            {"sets": options.sets}, [one for one in read_records(options.resume) if one["set"] in options.sets]
        )
        return
    if "yolo" in options.methods:
        from benchmarks.yolo_peer import checked_weights

        checked_weights(options.weights)
    runs = list(planned(options.sets, options.boxes, options.seeds, options.minutes, options.methods))
    records = all_records(runs, options.threads, options.resume, options.weights)
    shown = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    print_report(shown, records)


def print_report(options: Record, records: Sequence[Record]) -> None:
    """All runs and their summary as JSON."""
    content = {"options": options, "versions": versions(), "runs": records, "summary": summary(records)}
    print(json.dumps(content, indent=1))


# Choice of images


def train_part(name: str) -> Annotations:
    """The annotations of a set to train on, of its class only."""
    found = read_annotations(_root() / SETS[name].train)
    return (found.select_split("train") if "train" in found.splits else found).select(SETS[name].class_name)


def choose_images(images: Sequence[AnnotatedImage], n_boxes: int, seed: int) -> list[AnnotatedImage]:
    """Whole images in random order that have `n_boxes` objects together, or nearly, and all images without any box.

    An image that would exceed the number is passed over for smaller ones. If no choice reaches it, one more image is
    added if that comes closer.

    >>> box = np.array([[0.0, 0, 9, 9]])
    >>> one = AnnotatedImage(Path("a.png"), (20, 20), box, ("car",), np.array([False]))
    >>> len(choose_images([one] * 8 + [AnnotatedImage(Path("b.png"), (20, 20))], 5, seed=0))
    6
    """
    order = np.random.default_rng([seed, 17]).permutation(len(images)).tolist()
    chosen: list[int] = []
    left, n_left = [], n_boxes
    for i in order:
        n = len(images[i].objects)
        if 0 < n <= n_left:
            chosen.append(i)
            n_left -= n
        elif n:
            left.append(i)
    closer = [i for i in left if abs(n_left - len(images[i].objects)) < n_left]
    if closer:
        chosen.append(min(closer, key=lambda i: len(images[i].objects)))
    without = [i for i, image in enumerate(images) if not len(image)]
    return [images[i] for i in sorted([*chosen, *without])]


def planned(
    sets: Iterable[str],
    boxes: Sequence[int],
    n_seeds: int,
    minutes: Iterable[float],
    methods: Sequence[str],
    available: Callable[[str], int] = lambda name: train_part(name).n_boxes,
) -> Iterator[Run]:
    """All runs; one seed is done for everything before the next begins. Short limits come first."""
    sets = list(sets)
    enough = {name: [n for n in boxes if available(name) >= ENOUGH * n] for name in sets}
    for method in methods:
        if UNTRAINED.get(method) in sets:
            yield Run(UNTRAINED[method], 0, 0, 0.0, method)
    trained = [method for method in methods if method not in UNTRAINED]
    for seed in range(n_seeds):
        for limit in sorted(minutes):
            for name in sets:
                for n in enough[name]:
                    for method in trained:
                        yield Run(name, n, seed, float(limit), method)


# Records of runs


def all_records(runs: Sequence[Run], threads: int, resume: Path | None, weights: Path | None = None) -> list[Record]:
    """Do all runs that are not in the file yet."""
    done = {run_of(record): record for record in read_records(resume)}
    for number, run in enumerate(runs, start=1):
        if run in done:
            continue
        record = same_with_more_time(run, done.values()) or in_process(run, threads, weights)
        done[run] = record
        if resume is not None:
            with resume.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        found = record.get("average_precision")
        text = record["status"] if found is None else f"average precision {found:.3f}"
        used = f"{record['core_seconds']:.0f} core s" if "core_seconds" in record else ""
        print(f"{number}/{len(runs)} {' '.join(map(str, asdict(run).values()))}: {text} {used}", file=sys.stderr)
    return [done[run] for run in runs]


def read_records(resume: Path | None) -> list[Record]:
    """Records of earlier runs; a last line that was cut off is left out, and removed from the file."""
    if resume is None or not resume.exists():
        return []
    lines = resume.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        resume.write_text("".join(lines), encoding="utf-8")
    return [json.loads(line) for line in lines]


def run_of(record: Record) -> Run:
    """The run that a record is of."""
    return Run(**{name: record[name] for name in Run.__dataclass_fields__})


def same_with_more_time(run: Run, records: Iterable[Record]) -> Record | None:
    """The record of a shorter limit, where more time changes nothing."""
    for record in records:
        other = run_of(record)
        unchanged = record["status"] == "refused" or not record.get("is_limited", True)
        if unchanged and other.minutes < run.minutes and replace(other, minutes=run.minutes) == run:
            return record | {"minutes": run.minutes, "same_as_minutes": other.minutes}
    return None


def in_process(run: Run, threads: int, weights: Path | None = None) -> Record:
    """Do a run in a process of its own, which kills itself when the training exceeds its limit."""
    threads_of_libraries = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}
    command = [sys.executable, "-m", "benchmarks.few_examples", "--threads", str(threads)]
    if weights is not None:
        command += ["--weights", str(weights)]
    done = subprocess.run(
        [*command, "--run", json.dumps(asdict(run))],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | threads_of_libraries,
    )
    if done.returncode == -signal.SIGPROF:
        return asdict(run) | {"status": "time limit", "core_seconds": run.core_seconds}
    if done.returncode == MISSING:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return asdict(run) | {"status": "failed", "error": last[:300]}
    record: Record = json.loads(done.stdout.splitlines()[-1])
    return record


def summary(records: Iterable[Record]) -> list[Record]:
    """Mean and range of the average precision over seeds, with the number of runs that ended without a detector.

    `same` counts the runs that had ended by themselves with a shorter limit.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in ("set", "boxes", "minutes", "method")), []).append(record)
    rows = []
    for (name, boxes, minutes, method), runs in groups.items():
        found = [run["average_precision"] for run in runs if run["status"] == "trained"]
        faults = sorted({run["status"] for run in runs} - {"trained"})
        row = {"set": name, "boxes": boxes, "minutes": minutes, "method": method, "runs": len(runs)}
        row |= {"trained": len(found), "faults": faults, "same": sum("same_as_minutes" in run for run in runs)}
        if found:
            seconds = mean(run["core_seconds"] for run in runs if run["status"] == "trained")
            row |= {"mean": round(mean(found), 4), "low": min(found), "high": max(found)}
            row["core_seconds"] = round(seconds, 1)
        rows.append(row)
    return rows


# One run


def measured(run: Run, threads: int, weights: Path | None = None) -> Record:
    """Train and evaluate in this process."""
    warnings.simplefilter("ignore")
    images = choose_images(train_part(run.set).images, run.boxes, run.seed) if run.boxes else []
    train = method_of(run.method, weights)
    record = asdict(run) | {
        "n_boxes": sum(len(image.objects) for image in images),
        "n_images": sum(len(image) > 0 for image in images),
        "n_images_without": sum(len(image) == 0 for image in images),
    }
    limit_core_seconds(run.core_seconds)
    begun, used = time.perf_counter(), core_time()
    try:
        with tempfile.TemporaryDirectory() as folder:
            trained = train(images, run, Path(folder), threads)
    except TrainingDataError as error:
        return record | {"status": "refused", "error": str(error)}
    core_seconds, seconds = core_time() - used, time.perf_counter() - begun
    limit_core_seconds(0)
    record |= {"core_seconds": round(core_seconds, 1), "seconds": round(seconds, 1)}
    record |= {"is_limited": trained.is_limited, "settings": trained.settings}
    return record | {"status": "trained"} | evaluated(trained.detect, test_part(*_test(run.set)))


def limit_core_seconds(seconds: float) -> None:
    """Kill this process once it has used this number of core seconds more; 0 removes the limit.

    The signal keeps its default action, so that it ends compiled code as well.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)


def core_time() -> float:
    """Core seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def in_fork(action: Callable[[], float], core_seconds: float) -> float | None:
    """The result of an action in a child process; None if it takes too many core seconds, or fails.

    >>> in_fork(lambda: 0.5, core_seconds=10)
    0.5
    >>> in_fork(lambda: 1 / 0, core_seconds=10)
    """
    if core_seconds <= 0:
        return None
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            limit_core_seconds(core_seconds)
            os.write(writing, repr(float(action())).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    return float(text) if status == 0 else None


def evaluated(detect: Detect, test: Annotations) -> Record:
    """Average precision, and core milliseconds per test image with reading it."""
    used = time.process_time()
    found = [detect(image.path) for image in test.images]
    per_image = (time.process_time() - used) / len(test.images)
    result = evaluate_detections(found, [truths_of(image) for image in test.images])
    return {
        "average_precision": round(result.average_precision, 4),
        "core_milliseconds_per_image": round(1000 * per_image, 1),
    }


def _root() -> Path:
    if "WHET_DATA" not in os.environ:
        raise SystemExit("WHET_DATA is not set; expected the directory that holds objects/: set it, and run again")
    return Path(os.environ["WHET_DATA"]) / "objects"


def _test(name: str) -> tuple[Path, str | None]:
    return _root() / SETS[name].test, SETS[name].class_name


# Methods. Packages are imported before the limit starts to count.

Method = Callable[[Sequence[AnnotatedImage], Run, Path, int], Trained]
MISSING = 4


def method_of(name: str, weights: Path | None = None) -> Method:
    """The function that trains a method; exits with a message if a package is missing."""
    try:
        if name == "whet":
            return whet_method()
        if name == "yolo":
            from benchmarks.yolo_peer import yolo_method

            return yolo_method(weights)
        from benchmarks.hog_peers import dlib_method, opencv_people_method

        return dlib_method() if name == "dlib" else opencv_people_method()
    except ModuleNotFoundError as error:
        packages = {
            "dlib": "dlib-bin",
            "yolo": "ultralytics",
            "opencv-people": "opencv-python-headless",
        }
        text = f"--methods {name} needs the module {error.name}: pip install {packages.get(name, 'whet')}"
        print(text, file=sys.stderr)
        raise SystemExit(MISSING) from error


def trees_within(expected: Callable[[int], float], core_seconds: float) -> int:
    """The most trees whose expected core seconds are within the limit.

    >>> trees_within(lambda trees: 10 + trees / 6, core_seconds=120)
    512
    """
    return next((trees for trees in TREES if expected(trees) <= core_seconds), TREES[-1])


def whet_method() -> Method:
    """Boosted trees on channels, with as many trees as fit the limit."""
    from whet.parallel.workers import Threads
    from whet.training.config import TrainingConfig
    from whet.training.preparation import prepare
    from whet.training.train import train_prepared

    def train(images: Sequence[AnnotatedImage], run: Run, folder: Path, threads: int) -> Trained:
        name = SETS[run.set].class_name or "object"
        named = tuple(image.relabelled(name) for image in images)
        write_annotations(Annotations(named, (name,)), folder / "chosen.json")
        config = TrainingConfig(annotations=str(folder / "chosen.json"), seed=run.seed)
        prepared = prepare(config, workers=Threads(threads))

        def expected(trees: int) -> float:
            return replace(prepared, config=replace(config, trees=trees)).seconds(Threads(1))

        trees = trees_within(expected, run.core_seconds)
        prepared = replace(prepared, config=replace(prepared.config, trees=trees))
        detector = train_prepared(prepared, workers=Threads(threads)).detector

        def detect(path: Path) -> tuple[Floats, Floats]:
            found = detector.detect(path, min_score=-np.inf, threads=threads)
            return found.boxes, found.scores

        return Trained(detect, trees < TREES[0], {"trees": trees})

    return train


if __name__ == "__main__":
    main()
