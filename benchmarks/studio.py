"""Decision "A click waits for its own image".

Latencies of the studio's engine and API, on 640 x 480 images: median and 95th percentile, in milliseconds.

Times are those of the clock; `cpu` are processor times of the same calls, which other programs disturb less.

    python -m benchmarks.studio [--images 200] [--data DIR] [--only PART,...]

- `correction`: request to answered boxes over HTTP on loopback, of false positives and of missed objects, then the
  effect on all images;
- `rescoring`: a correction's effect on the whole set; `benchmarks.studio_agreement` compares the boxes with scans;
- `blame`: planted errors (wrong labels that make a box appear), the time to find the cause, and how often it is right;
- `restore`: any of 1,000 states, with bytes equal to those of a detector that learned the set at once;
- `load`: eight clients that detect and correct at once for `--seconds`: every answer is in the project once, and the
  model is that of a replay.

Images are photographs of `$WHET_DATA/negatives` and of faces, pasted to 640 x 480; without data, synthetic ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import whet
from benchmarks.measuring import VGA, resident_mb
from whet.detector.detector import Detector
from whet.errors import WhetError
from whet.images.boxes import box_iou
from whet.web import quality
from whet.web.labelling import Labeller
from whet.web.open_models import model_in
from whet.web.window_cache import WindowCache
from whet.web.workspace import Workspace

Pixels = NDArray[np.uint8]


def images(n: int, folder: Path | None) -> list[Pixels]:
    """Photographs of 640 x 480: landscapes, every second one with three faces in it."""
    rng = np.random.default_rng(0)
    if folder is None or not (folder / "negatives").is_dir():
        return [rng.integers(0, 256, (48, 64), np.uint8).repeat(10, 0).repeat(10, 1) for _ in range(n)]
    places = sorted((folder / "negatives").rglob("*.jpg"))
    faces = sorted((folder / "faces_lfw").glob("*.jpg"))
    found = []
    for i in range(n):
        with Image.open(places[i % len(places)]) as opened:
            image = opened.convert("RGB")
        if i >= len(places):  # the same place once more, seen from elsewhere
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = image.resize(VGA[::-1])
        for j in range(3 * (i % 2)):
            with Image.open(faces[(3 * i + j) % len(faces)]) as face:
                side = int(rng.integers(70, 160))
                where = int(rng.integers(0, VGA[1] - side)), int(rng.integers(0, VGA[0] - side))
                image.paste(face.convert("RGB").resize((side, side)), where)
        found.append(np.asarray(image))
    return found


Times = tuple[float, float]


def summarised(times: Sequence[Times]) -> dict[str, Any]:
    """Median and 95th percentile in milliseconds, of the clock and of the processor."""
    found: dict[str, Any] = {"n": len(times)}
    for name, column in (("", 0), ("cpu_", 1)):
        ms = sorted(1000 * each[column] for each in times)
        found[f"{name}median"] = round(statistics.median(ms), 2)
        found[f"{name}p95"] = round(ms[int(0.95 * (len(ms) - 1))], 2)
    return found


def timed(work: Callable[[], Any]) -> tuple[Times, Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    result = work()
    return (time.perf_counter() - begin, time.process_time() - cpu), result


def wrong_boxes(detector: Detector, pixels: Sequence[Pixels], n: int) -> list[tuple[int, list[float], bool]]:
    """Corrections to make, one after the other: false positives, and faces just below the minimum score as misses."""
    found: list[tuple[int, list[float], bool]] = []
    lowest = detector.reporting.min_score(None)
    for i, image in enumerate(pixels):
        every = detector.detect(image, min_score=0.0)
        for box, score in list(every)[:6]:
            if score > lowest and i % 2 == 0:
                found.append((i, box.tolist(), False))
            elif score < lowest:
                found.append((i, box.tolist(), bool(len(found) % 3 == 0)))
        if len(found) >= n:
            break
    return found[:n]


def prepared(pixels: Sequence[Pixels], folder: Path) -> tuple[Workspace, list[str]]:
    workspace = Workspace.open(folder / "bench.studio", whet.load("face"), name="face")
    keys = [workspace.add_image(image, f"{i}.png").id for i, image in enumerate(pixels)]
    return workspace, keys


def correction(pixels: Sequence[Pixels], folder: Path) -> dict[str, Any]:
    """Requests of a client over HTTP, as the page sends them: the boxes of the image, then the effect on all others."""
    import httpx

    from whet.web.api import make_app
    from whet.web.security import Access, Limits
    from whet.web.server import StudioServer
    from whet.web.studio import Studio

    workspace, keys = prepared(pixels, folder)
    (_, scan_seconds), _ = timed(lambda: [workspace.detections(key) for key in keys])
    steps = wrong_boxes(workspace.detector, pixels, 60)
    app = make_app(Studio(workspace), Access(limits=Limits(rate=1e6, burst=1e6)))
    times: dict[str, list[Times]] = {"false_positive": [], "missed": [], "effect": [], "undo": []}
    with StudioServer(app) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        client.get("/api/state")
        for number, (i, box, is_object) in enumerate(steps):
            client.get(f"/api/images/{keys[i]}")
            body = {"boxes": [box], "is_object": is_object, "effect": False, "request_id": f"r{number}"}
            path = f"/api/images/{keys[i]}/labels"
            seconds, answer = timed(lambda path=path, body=body: client.post(path, json=body))  # type: ignore[misc]
            assert answer.status_code == 200, answer.text
            effect = timed(lambda: client.get("/api/effect"))[0]
            if number >= 3:  # the first ones compile
                times["missed" if is_object else "false_positive"].append(seconds)
                times["effect"].append(effect)
        for _ in range(20):
            times["undo"].append(timed(lambda: client.post("/api/undo", json={}))[0])
    workspace.close()
    result: dict[str, Any] = {name: summarised(seconds) for name, seconds in times.items() if seconds}
    return result | {"scan_cpu_ms_per_image": round(1000 * scan_seconds / len(keys), 1)}


def rescoring(pixels: Sequence[Pixels], folder: Path) -> dict[str, Any]:
    """The whole set after each of some corrections."""
    workspace, keys = prepared(pixels, folder)
    for key in keys:
        workspace.detections(key)
    labeller, times = Labeller(workspace), []
    for i, box, is_object in wrong_boxes(workspace.detector, pixels, 40):
        before = workspace.history.current
        new = workspace.detector.new_records(pixels[i], [box], [is_object])
        workspace.cache.detections(keys[0], workspace.record_ids())

        def rescored(new: list[Any] = new) -> list[Any]:
            workspace.cache.add(new)
            ids = workspace.record_ids() | {record.id for record in new}
            return [workspace.cache.detections(key, ids) for key in keys]

        times.append(timed(rescored)[0])
        labeller.label(keys[i], [box], is_object)
        quality.summary(workspace, before, workspace.history.current)
    workspace.close()
    return {"whole_set": summarised(times[3:]), "windows": workspace.cache.n_windows}


def blame(pixels: Sequence[Pixels], folder: Path, n_errors: int = 100) -> dict[str, Any]:
    """Among 100 corrections, one wrong label at a time makes a box appear: whether it is named, and how soon."""
    workspace, keys = prepared(pixels[:40], folder)
    labeller, times, right, planted = Labeller(workspace), [], 0, 0
    for i, box, is_object in wrong_boxes(workspace.detector, pixels[:40], 100):
        labeller.label(keys[i], [box], is_object)
    n_corrections = len(workspace.record_ids())
    rng = np.random.default_rng(1)
    for _ in range(20 * n_errors):
        if planted == n_errors:
            break
        i, side = int(rng.integers(len(keys))), float(rng.uniform(40, 120))
        x, y = float(rng.uniform(0, VGA[1] - side)), float(rng.uniform(0, VGA[0] - 1.12 * side))
        box = [x, y, x + side, y + 1.11 * side]
        found = workspace.shown(keys[i])
        if (box_iou(np.array([box]), found.boxes)[0] > 0.2).any():
            continue
        node = workspace.history.current
        try:
            answer = labeller.label(keys[i], [box], True)
        except WhetError:
            continue  # a place without contrast
        shown = workspace.shown(keys[i])
        new = [b for b in shown.boxes if not (box_iou(b[None], found.boxes)[0] >= 0.5).any()]
        if answer.added and new:
            planted += 1
            target = new[0].tolist()
            seconds, view = timed(lambda i=i, target=target: quality.blame(workspace, keys[i], target))  # type: ignore[misc]
            times.append(seconds)
            right += bool(view.causes and view.causes[0].record_id == answer.added[0])
        workspace.checkout(node=node)
    workspace.close()
    return {"corrections": n_corrections, "planted": planted, "right": right, "time": summarised(times)}


def restore(pixels: Sequence[Pixels], folder: Path, n_states: int = 1000) -> dict[str, Any]:
    """Any of 1,000 states, from the project's base and its set of corrections."""
    workspace, keys = prepared(pixels, folder)
    detector, made = workspace.detector, []
    rng = np.random.default_rng(2)
    while len(made) < n_states:
        i = len(made) % len(pixels)
        side = float(rng.uniform(30, 150))
        x, y = float(rng.uniform(0, VGA[1] - side)), float(rng.uniform(0, VGA[0] - side))
        try:
            made.append((i, detector.new_records(pixels[i], [[x, y, x + side, y + 1.11 * side]], [False])[0]))
        except WhetError:
            continue
    from whet.web.store import Label

    for i, record in made:
        label = Label(record.id, keys[i], record.box, record.is_object, False, "", 0.0, record)
        workspace.commit([label], ())
    n = len(workspace.history.nodes)
    times, equal = [], 0
    wanted = rng.integers(1, n, 60).tolist()
    for node in wanted:
        seconds, data = timed(lambda node=node: (workspace.checkout(node=node), workspace.detector.to_bytes())[1])  # type: ignore[misc]
        times.append(seconds)
        fresh = Detector.from_bytes(workspace.store.model(model_in(workspace.history.items()) or "")[1])
        fresh.only.replace_records(workspace.records())
        equal += data == fresh.to_bytes()
    workspace.close()
    return {"states": n, "byte_identical": f"{equal} of {len(wanted)}", "time": summarised(times[3:])}


def load(pixels: Sequence[Pixels], folder: Path, seconds: float = 60.0) -> dict[str, Any]:
    """Eight clients at once, each with its own images."""
    import sqlite3
    from io import BytesIO
    from threading import Thread

    import httpx

    from whet.web.api import make_app
    from whet.web.server import StudioServer
    from whet.web.studio import Studio

    workspace, keys = prepared(pixels[:16], folder)
    for key in keys:
        workspace.detections(key)
    steps = [wrong_boxes(workspace.detector, [image], 40) for image in pixels[:16]]
    acknowledged: list[str] = []
    times: dict[str, list[Times]] = {"detect": [], "correct": []}
    problems: list[str] = []
    memory = [resident_mb()]
    with StudioServer(make_app(Studio(workspace))) as server:
        end = time.monotonic() + seconds

        def work(number: int) -> None:
            content = BytesIO()
            Image.fromarray(pixels[number]).save(content, "JPEG")
            boxes = [(keys[i], box) for i in (number, number + 8) for _, box, _ in steps[i]]
            with httpx.Client(base_url=server.address, timeout=120, headers={"X-Whet-Client": f"c{number}"}) as client:
                turn = 0
                while time.monotonic() < end:
                    begin = time.perf_counter()
                    answer = client.post("/api/detect", files={"image": ("a.jpg", content.getvalue(), "image/jpeg")})
                    times["detect"].append((time.perf_counter() - begin, 0.0))
                    key, box = boxes[turn % len(boxes)] if boxes else (keys[number], [100.0, 100.0, 160.0, 166.0])
                    shift = 0.5 * (turn // max(len(boxes), 1))
                    moved = [side + shift for side in box]
                    body = {"boxes": [moved], "is_object": False, "request_id": f"{number}-{turn}"}
                    begin = time.perf_counter()
                    answer = client.post(f"/api/images/{key}/labels", json=body)
                    if answer.status_code == 200:
                        times["correct"].append((time.perf_counter() - begin, 0.0))
                        acknowledged.extend(answer.json()["added"])
                    elif answer.status_code != 422:  # a box that was moved out of the image
                        problems.append(answer.text)
                    turn += 1

        threads = [Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for quarter in range(1, 5):
            time.sleep(max(0.0, end - seconds * (1 - quarter / 4) - time.monotonic()))
            memory.append(resident_mb())
        for thread in threads:
            thread.join()
    replay = whet.load("face")
    replay.add(workspace.records())
    is_equal, learned = replay.to_bytes() == workspace.detector.to_bytes(), workspace.record_ids()
    workspace.close()
    with sqlite3.connect(folder / "bench.studio") as db:
        rows = [row for (row,) in db.execute("SELECT item FROM changes WHERE node > 0")]
    db.close()
    n = sum(map(len, times.values()))
    return {
        "clients": 8,
        "seconds": seconds,
        "requests_per_second": round(n / seconds, 1),
        "acknowledged": len(set(acknowledged)),
        "each_once": sorted(rows) == sorted(set(rows)) == sorted(set(acknowledged)) == sorted(learned),
        "model_equals_replay": is_equal,
        "errors": len(problems),
        "memory_mb_at_quarters": memory,
        **{
            name: {key: row for key, row in summarised(rows_).items() if "cpu" not in key}
            for name, rows_ in times.items()
        },
    }


PARTS = {"correction": correction, "rescoring": rescoring, "blame": blame, "restore": restore, "load": load}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ["WHET_DATA"]) if "WHET_DATA" in os.environ else None
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of `load`")
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    pixels = images(options.images, options.data)
    WindowCache(whet.load("face").only).scan("first", pixels[0])  # compiles
    report: dict[str, Any] = {"images": len(pixels), "size": list(VGA[::-1])}
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            more = {"seconds": options.seconds} if name == "load" else {}
            report[name] = PARTS[name](pixels, Path(folder), **more)  # type: ignore[operator]
        print(f"{name}: {json.dumps(report[name])}", file=sys.stderr)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
