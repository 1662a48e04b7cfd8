"""Decision "The queue begins with most boxes".

The studio in a real browser: latencies, and a simulated user. `python -m benchmarks.studio_page`.

Prints JSON. Needs Chromium (`make packages`) and data sets in $WHET_DATA.

- `latency`: the bundled face detector on 200 photographs of 640 x 480 (`negatives`), at the operating point of one
  false positive per image. Boxes are marked wrong by clicks; times are taken in the page, from the click to the frame
  that shows it: `shown` is the first redraw (the page does not wait), `learned` the redraw with the boxes of the
  corrected detector, `effect` that of the list of changes in all images.
- `user`: a user who knows the truth reviews images of a set of `objects`: judges detections, draws every missed object,
  confirms, goes on. The start is weak: a detector trained on few boxes, which the project has as labels. The pool is
  the images of the set as given, or as a camera gives them (`benchmarks.studio_pools`). The order is the queue of the
  studio, or random (files with shuffled names, in the order of names). At some numbers of clicks the user presses
  "Train again", goes on with the new detector, and this is evaluated on the test part of the set: recall at equal false
  positives per image. Judging a box takes two clicks (select, right or wrong), drawing one two (press and release),
  confirming one: all boxes that are left are right (Space), or wrong (N).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.datasets import find
from experiments.report import versions
from numpy.typing import NDArray
from PIL import Image
from scripts import studio_browser
from scripts.studio_browser import Studio

from benchmarks.measuring import VGA, progress
from benchmarks.objects import SETS, test_part
from benchmarks.studio_pools import POOLS, WITH_OBJECT, Parts, parts_of, pool_of, summary
from whet.corrections.box_windows import SAME
from whet.detector.detector import Detector
from whet.evaluation.evaluation import evaluate_detections
from whet.evaluation.runs import truths_of
from whet.images.boxes import box_iou
from whet.io.annotations.annotation import AnnotatedImage, Annotations
from whet.io.annotations.formats import write_annotations
from whet.io.image_files import as_rgb
from whet.training.train import train

Floats = NDArray[np.float64]

N_IMAGES = 200
SIZE = VGA[::-1]
POINT = "one false positive per image"
MOST_ACTIONS = 25  # of the user in one image: a box that does not hold is left
SETTINGS: dict[str, Any] = {"trees": 256, "negatives_per_round": 2000}  # of trainings outside the page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["latency", "user"], choices=["latency", "user"])
    parser.add_argument("--clicks", type=int, default=60, help="corrections that are timed")
    parser.add_argument("--set", default="rear_cars", choices=list(SETS))
    parser.add_argument("--boxes", type=int, default=10, help="training boxes of the weak start")
    parser.add_argument("--pools", nargs="+", default=list(POOLS), choices=POOLS)
    parser.add_argument("--pool", type=int, default=80, help="images that the user may review")
    parser.add_argument("--with-objects", type=float, default=WITH_OBJECT, help="share of scenes that have an object")
    parser.add_argument("--budget", nargs="+", type=int, default=[30, 60], help="clicks at which to train again")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--orders", nargs="+", default=["queue", "random"], choices=["queue", "random"])
    parser.add_argument("--false-positives", type=float, default=0.5, help="per image, at which recall is compared")
    parser.add_argument("--test-images", type=int, help="images of the test part, chosen at random (default: all)")
    options = parser.parse_args()
    missing = studio_browser.missing()
    if missing is not None:
        raise SystemExit(missing)
    result: dict[str, Any] = {"options": vars(options), "versions": versions()}
    for part in options.parts:
        result[part] = {"latency": latency, "user": user}[part](options)
    print(json.dumps(result, indent=1))


@contextmanager
def opened(studio: Studio) -> Iterator[Any]:
    """The page of a studio in a browser of its own."""
    with studio_browser.browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        page.goto(studio.address)
        page.wait_for_selector(".picture")
        yield page


def settle(page: Any) -> None:  # noqa: ANN401
    """Wait until the server has acknowledged everything, and the image that was asked for is shown."""
    page.wait_for_function(
        "() => document.querySelector('.topbar .status').dataset.waiting === '0'"
        " && document.querySelector('.stage').dataset.opening === ''"
    )


# --- Latency ----------------------------------------------------------------------------------------------------------

# Times of the frames after a click on a button of judgement: when the box first looks judged, when everything is
# acknowledged, and when the list of changes is that of another state.
TIMER = """() => {
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".judge")) return;
    const begin = performance.now();
    const node = () => document.querySelector(".totals")?.dataset.node ?? "";
    const before = node();
    const times = {};
    const look = () => {
      const waiting = document.querySelector(".topbar .status").dataset.waiting;
      const now = performance.now() - begin;
      if (!("shown" in times) && (waiting !== "0" || document.querySelector(".box.is-suppressed"))) times.shown = now;
      if ("shown" in times && !("learned" in times) && waiting === "0") times.learned = now;
      if ("learned" in times && node() !== before) { times.effect = now; window.timed = times; return; }
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }, true);
}"""


def latency(options: argparse.Namespace) -> dict[str, Any]:
    """Click to redrawn boxes, in milliseconds."""
    times: dict[str, list[float]] = {"shown": [], "learned": [], "effect": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "images"
        save_photographs(folder)
        with Studio("face", folder, project=Path(name) / "latency.studio") as studio:
            set_point(studio, POINT)
            wait_for_scan(studio)
            with opened(studio) as page:
                page.evaluate(TIMER)
                while len(times["effect"]) < options.clicks:
                    settle(page)
                    boxes = page.locator(".box.is-detection:not(.is-right):not(.is-wrong)")
                    if not boxes.count() or not click_box(page, boxes.first.get_attribute("data-key")):
                        page.keyboard.press("d")
                        page.wait_for_timeout(50)
                        continue
                    page.evaluate("() => { window.timed = null; }")
                    page.locator(".tools .judge.is-wrong").click()
                    page.wait_for_function("() => window.timed")
                    for kind, value in page.evaluate("() => window.timed").items():
                        times[kind].append(value)
            state = rescanned(studio)
    summary = {kind: {"median": _ms(np.median(of)), "p95": _ms(np.quantile(of, 0.95))} for kind, of in times.items()}
    return {
        "images": N_IMAGES,
        "size": SIZE,
        "corrections": state["n_corrections"],
        "milliseconds": summary,
    }


def _ms(value: Any) -> float:  # noqa: ANN401 - a number of NumPy
    return round(float(value), 1)


def save_photographs(folder: Path) -> None:
    """Photographs without a face, at 640 x 480."""
    root = find("negatives")
    if root is None:
        raise SystemExit("the data set negatives is not in $WHET_DATA")
    folder.mkdir()
    paths = sorted(root.glob("*.jpg"))
    for number in np.random.default_rng(0).permutation(len(paths))[:N_IMAGES].tolist():
        Image.open(paths[number]).convert("RGB").resize(SIZE).save(folder / paths[number].name, quality=92)


def set_point(studio: Studio, point: str) -> None:
    answer = studio.client.put("/api/min_score", json={"min_score": point}, headers={"Origin": studio.address})
    answer.raise_for_status()


def rescanned(studio: Studio) -> dict[str, Any]:
    """The state when all images were scanned again in the background, with the present corrections."""
    while True:
        state: dict[str, Any] = studio.get("/api/state")
        if state["rescan"]["done"] == state["rescan"]["total"]:
            return state
        time.sleep(1)


def wait_for_scan(studio: Studio) -> None:
    """Wait until all images are in the cache."""
    while any(row["n_detections"] is None for row in studio.get("/api/images", limit=1000)["images"]):
        time.sleep(0.5)


# --- Simulated user ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reviewed:
    """The detector that was trained after some clicks, and how many images and objects were reviewed by then."""

    clicks: int
    images: int
    boxes: int
    model: bytes


def user(options: argparse.Namespace) -> dict[str, Any]:
    """Both orders, for each seed."""
    root = find("objects")
    if root is None:
        raise SystemExit("the data set objects is not in $WHET_DATA")
    test = test_part(root / SETS[options.set].test, SETS[options.set].class_name).images
    order = np.random.default_rng(4).permutation(len(test))[: options.test_images].tolist()
    test, rows = tuple(test[i] for i in sorted(order)), []
    with tempfile.TemporaryDirectory() as name:
        for seed in options.seeds:
            rows += one_seed(options, seed, Path(name), test)
    return {"set": options.set, "test images": len(test), "rows": rows, "summary": summary(rows, "recall")}


def one_seed(
    options: argparse.Namespace, seed: int, folder: Path, test: Sequence[AnnotatedImage]
) -> list[dict[str, Any]]:
    """A weak start, and both orders from there, in each pool."""
    parts = parts_of(options.set, options.boxes, 0, seed)
    weak = trained(parts.start, folder)
    path = folder / f"weak-{seed}.whet"
    weak.save(path)
    start = recall_of(weak, test, options.false_positives)
    progress(f"seed {seed}: start {start}")
    rows = []
    for kind in options.pools:
        pool = pool_of(kind, parts, options.pool, folder / f"frames-{seed}", seed, options.with_objects)
        progress(f"{kind}: {sum(len(image) > 0 for image in pool)} of {len(pool)} images with objects")
        for order in options.orders:
            place = folder / f"{kind}-{order}-{seed}"
            for at in review(options, seed, order, Parts(parts.start, pool, ()), path, place):
                recall = recall_of(Detector.from_bytes(at.model), test, options.false_positives)
                row = {"seed": seed, "pool": kind, "order": order, "clicks": at.clicks, "images": at.images}
                rows.append({**row, "boxes": at.boxes, "start": start, "recall": recall})
                progress(json.dumps(rows[-1]))
    return rows


def trained(images: Sequence[AnnotatedImage], folder: Path) -> Detector:
    """A detector trained on the true boxes of images: what the user has drawn and confirmed."""
    path = folder / "train.json"
    named = tuple(image.relabelled("object") for image in images)
    write_annotations(Annotations(named, ("object",)), path, replace=True)
    return train(path, **SETTINGS)


def recall_of(detector: Detector, test: Sequence[AnnotatedImage], false_positives: float) -> float:
    """Recall at a number of false positives per image, on images that the user does not see."""
    found = [detector.detect(as_rgb(image.path), min_score=-np.inf) for image in test]
    curve = evaluate_detections([(one.boxes, one.scores) for one in found], [truths_of(image) for image in test]).curve
    allowed = np.flatnonzero(curve.false_positives_per_image <= false_positives)
    return round(float(curve.recall[allowed[-1]]), 4) if len(allowed) else 0.0


def review(
    options: argparse.Namespace, seed: int, order: str, parts: Parts, model: Path, place: Path
) -> Iterator[Reviewed]:
    """Click through the page, and train again, until every budget is spent."""
    place.mkdir()
    pool = parts.pool
    shuffled = np.random.default_rng([seed, 2]).permutation(len(pool)).tolist()
    shown = {f"{number:04d}{pool[i].path.suffix}": pool[i] for number, i in enumerate(shuffled)}
    first = {f"start{number:04d}{image.path.suffix}": image for number, image in enumerate(parts.start)}
    for name, image in {**shown, **first}.items():
        (place / name).symlink_to(image.path.resolve())
    with Studio(model, place, project=place.with_suffix(".studio")) as studio:
        wait_for_scan(studio)
        label_all(studio, first)
        with opened(studio) as page:
            open_first(page, studio, order)
            clicks, done = 0, []
            for budget in options.budget:
                while clicks < budget and len(done) < len(pool):
                    settle(page)
                    name = page.locator(".image-name").get_attribute("title")
                    clicks += judge_image(page, *truths_of(shown[name]))
                    done.append(name)
                    page.wait_for_function(
                        "name => document.querySelector('.image-name').title !== name"
                        " || document.querySelector('.notices')?.innerText.includes('All images are reviewed')",
                        arg=name,
                    )
                settle(page)
                train_again(page, studio)
                wait_for_scan(studio)
                if order == "queue" and len(done) < len(pool):  # the order is that of the new detector
                    page.reload()
                    page.wait_for_selector(".picture")
                    open_first(page, studio, order)
                content = studio.client.get("/api/model.whet").content
                yield Reviewed(clicks, len(done), sum(len(shown[name].objects) for name in done), content)


def open_first(page: Any, studio: Studio, order: str) -> None:  # noqa: ANN401
    """Choose an order, scroll to its start, and open its first image, or the near-duplicate of it that is open."""
    by_queue = order == "queue"
    page.get_by_role("button", name="Queue" if by_queue else "Name", exact=True).click()
    name = studio.get("/api/images", order="queue" if by_queue else "name", limit=1)["images"][0]["name"]
    first = page.wait_for_function(
        """name => {
          document.querySelector(".tiles").scrollTo({ left: 0, top: 0 });
          const first = document.querySelector(".tile-image");
          const standsForGroup = first?.parentElement.matches(".is-current.is-stack");
          return (first?.title === name || standsForGroup) && first.title;
        }""",
        arg=name,
    ).json_value()
    page.locator(".tile-image").first.click()
    page.wait_for_function("name => document.querySelector('.image-name').title === name", arg=first)
    settle(page)


def label_all(studio: Studio, images: dict[str, AnnotatedImage]) -> None:
    """Give images their true boxes as labels, and no others: the first detector was trained on them."""
    ids = studio.ids()
    for name, image in images.items():
        truth, ignored = truths_of(image)
        for path, body in (
            ("labels", {"boxes": truth[~ignored].tolist(), "is_object": True, "effect": False}),
            ("confirm", {"is_object": False, "effect": False}),
        ):
            answer = studio.client.post(
                f"/api/images/{ids[name]}/{path}", json=body, headers={"Origin": studio.address}
            )
            if not answer.is_success and answer.status_code != 422:  # a box of a size that the detector cannot learn
                answer.raise_for_status()


def train_again(page: Any, studio: Studio) -> None:  # noqa: ANN401
    """Press the button, and wait for the new detector."""
    before = studio.get("/api/state")["model"]["base_id"]
    page.get_by_role("tab", name="Quality").click()
    page.get_by_role("button", name="Train again").click()
    while studio.get("/api/state")["model"]["base_id"] == before:
        time.sleep(1)
        if studio.get("/api/train")["state"] not in ("running", "finished"):
            raise SystemExit(f"the training failed: {studio.get('/api/train')}")
    page.get_by_role("tab", name="Effect").click()


def judge_image(page: Any, truth: Floats, ignored: NDArray[np.bool_]) -> int:  # noqa: ANN401
    """Judge the fewer of right and wrong detections, draw what is missing, confirm; returns the number of clicks."""
    clicks, given_up, is_mostly_wrong = 0, set(), None
    for _ in range(MOST_ACTIONS):
        shown = page.eval_on_selector_all(
            ".box",
            "all => all.map((one) => [one.dataset.key, one.dataset.kind, one.classList.contains('is-right')])",
        )
        boxes = np.array([key.split(",") for key, *_ in shown], np.float64).reshape(-1, 4)
        overlaps = box_iou(boxes, truth)
        is_true = (overlaps >= SAME).any(axis=1)
        is_open = np.array([kind == "detection" and not is_right for _, kind, is_right in shown], bool)
        if is_mostly_wrong is None:
            is_mostly_wrong = bool((is_open & ~is_true).sum() > (is_open & is_true).sum())
        wanted = np.flatnonzero(is_open & (is_true == is_mostly_wrong)).tolist()
        keys = [shown[i][0] for i in wanted if shown[i][0] not in given_up]
        is_shown = np.array([kind != "suppressed" for _, kind, _ in shown], bool)
        is_missed = ~((overlaps[is_shown] >= SAME).any(axis=0) | ignored)
        missed = [box for box in truth[is_missed] if tuple(box) not in given_up]
        if keys:
            given_up.add(keys[0])
            if click_box(page, keys[0]):
                page.locator(f".tools .judge.is-{'right' if is_mostly_wrong else 'wrong'}").click()
                clicks += 2
        elif missed:
            given_up.add(tuple(missed[0]))
            draw(page, missed[0])
            clicks += 2
        else:
            break
        settle(page)
    page.keyboard.press("Escape")
    page.keyboard.press("n" if is_mostly_wrong else " ")
    return clicks + 1


def click_box(page: Any, key: str) -> bool:  # noqa: ANN401
    """Select a box at its upper edge, where others rarely cover it; returns whether that worked."""
    x1, y1, x2, _ = (float(value) for value in key.split(","))
    page.keyboard.press("Escape")
    page.mouse.click(*on_screen(page, (x1 + x2) / 2, y1 + 1))
    selected = page.locator(f'.box.is-selected[data-key="{key}"]')
    if not selected.count():
        page.locator(f'.box[data-key="{key}"]').focus()
    return bool(selected.count() and page.locator(".tools").count())


def draw(page: Any, box: Floats) -> None:  # noqa: ANN401
    """Drag over a box, in drawing mode."""
    page.keyboard.press("Escape")
    page.mouse.move(*on_screen(page, *box[:2]))
    page.mouse.down()
    page.mouse.move(*on_screen(page, *(box[:2] + box[2:]) / 2))
    page.mouse.move(*on_screen(page, *box[2:]))
    page.mouse.up()


def on_screen(page: Any, x: float, y: float) -> list[float]:  # noqa: ANN401
    place: list[float] = page.evaluate(
        "([x, y]) => { const p = new DOMPoint(x, y).matrixTransform("
        "document.querySelector('.picture').getScreenCTM()); return [p.x, p.y]; }",
        [float(x), float(y)],
    )
    return place


if __name__ == "__main__":
    main()
