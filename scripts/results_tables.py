"""The tables of README.md and docs, from the JSON in docs/results: `python -m scripts.results_tables`.

Prints every table as Markdown, to be pasted into its page. `tests/test_docs_numbers.py` compares the pages with them:
each table of a page has a function here, and each function a table. To add a table, write a function that returns it
and name the function in `TABLES`; the header of a table without measured numbers goes to `UNMEASURED`. `SENTENCES`
has sentences of the running text with their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
VIDEOS = ("david", "trellis")
LEARNED = {
    "inria_person": "people (INRIA)",
    "plates": "number plates",
    "rear_cars": "cars from behind",
    "white_cells": "white blood cells",
    "raccoon": "raccoons",
    "kangaroo": "kangaroos",
}
CASCADES = ("frontalface_default", "frontalface_alt", "frontalface_alt2")


@dataclass(frozen=True)
class Table:
    """A Markdown table: the cells of its header and of its rows."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def from_cells(cls, header: Iterable[object], rows: Iterable[Iterable[object]]) -> Table:
        """A table of anything that has a text."""
        return cls(tuple(map(str, header)), tuple(tuple(map(str, row)) for row in rows))

    def __str__(self) -> str:
        lines = [" | ".join(cells) for cells in (self.header, *self.rows)]
        head, *body = [f"| {line} |" for line in lines]
        return "\n".join([head, "|" + "---|" * len(self.header), *body])


@cache
def results(name: str) -> Any:  # noqa: ANN401 - each file has its own shape
    """The contents of docs/results/NAME.json."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def measured(experiment: str, measure: str, method: str, statistic: str = "mean", **setting: object) -> float:
    """One number of an experiment's report."""
    rows = [
        row
        for row in results(experiment)["results"]
        if (row["measure"], row["method"], row["setting"]) == (measure, method, setting)
    ]
    if len(rows) != 1:
        raise LookupError(f"{experiment}.json has {len(rows)} rows of {measure}, {method}, {setting}; expected one")
    return float(rows[0][statistic])


def percent(share: float, digits: int = 1) -> str:
    """A share as a number of percent.

    >>> percent(0.8704)
    '87.0'
    """
    return f"{100 * share:.{digits}f}"


# README.md


def readme_faces() -> Table:
    """Faces of MIT+CMU, in short."""
    at = ("10", "26", "100")
    names = {
        "whet, factor 1.1": '`whet.load("face")`, scale factor 1.1',
        "whet, factor 1.2": '`whet.load("face")`, scale factor 1.2 (default)',
    } | {name: f"OpenCV `{name}`, best settings" for name in CASCADES}
    faces = results("benchmark-face-detector")["faces"]
    header = "faces of MIT+CMU found, of 511, by the number of false positives"
    return Table.from_cells([header, *at], [[label, *(faces[key][n] for n in at)] for key, label in names.items()])


def readme_objects() -> Table:
    """Average precision of `whet train` on sets of objects, in short."""
    return Table.from_cells(
        ["`whet train`, default settings", "average precision"], [row[:2] for row in objects().rows]
    )


def readme_video() -> Table:
    """Frames of video, in short."""
    names = {
        "tracks and learns": "`whet watch face --learn`",
        "OpenCV frontalface_alt2": "OpenCV `frontalface_alt2`",
        "OpenCV TrackerBoosting": "OpenCV `TrackerBoosting`, with the first box given",
        "OpenCV TrackerMIL": "OpenCV `TrackerMIL`, with the first box given",
    }
    header = ["face found in video frames, boxes as reported", *_VIDEO_COLUMNS]
    return Table.from_cells(header, [[label, *_tracking_rates(method)] for method, label in names.items()])


def readme_measures() -> Table:
    """One number of each of several benchmarks."""
    corrected = results("benchmark-corrections-face")["false positives"]["corrections 20"]
    gone = round(corrected["gone"] * corrected["corrected"])
    van = _drawn("van")
    scan = _opencv_scan("haarcascade_frontalface_default", [480, 640], 1)
    update = results("benchmark-online-update")["one sample"]["200"]["whet update"]
    rows = [
        (f"corrected false positives that are gone, of {corrected['corrected']}", gone),
        ("false positives in other images after 20 corrections, at any score (before: 1)", corrected[HARM[1]]["ratio"]),
        ("change of recall by 20 corrections, in points", f"{corrected['recall']['points']:+.2f}"),
        (
            "OpenCV's `frontalface_default` on 640 x 480: times as fast as OpenCV",
            f"{scan['opencv takes times ours (median of turns)']:.1f}",
        ),
        (
            f"drawn vans found after `whet train` on {van['drawn']['train']} objects, of {van['evaluate']['objects']}",
            van["evaluate"]["found"],
        ),
        ("microseconds to learn one sample with 200 weak learners", f"{update['least_us']:.1f}"),
        (
            "AdaBoost: times as fast as scikit-learn",
            results("benchmark-adaboost")["time"]["scikit-learn"]["times_ours"],
        ),
    ]
    return Table.from_cells(["measure", "value"], rows)


# docs/results.md: face detector


def faces() -> Table:
    """Faces of MIT+CMU at numbers of false positives."""
    at = ("10", "15", "20", "26", "35", "50", "69", "100", "150", "200")
    names = {f"whet, factor {factor}": f"`face`, scale factor {factor}" for factor in (1.1, 1.2)}
    names |= {name: f"OpenCV `{name}`" for name in CASCADES}
    found = results("benchmark-face-detector")["faces"]
    return Table.from_cells(["detector", *at], [[label, *(found[key][n] for n in at)] for key, label in names.items()])


def face_speed() -> Table:
    """Time of the face detector, of OpenCV's cascades and of YuNet."""
    data = results("benchmark-face-speed")
    sizes, threads = ("640 x 480", "1920 x 1080"), f"threads {data['threads']}"
    header = ["detector", *(f"{size}, processor ms" for size in sizes), "times `face`", f"{sizes[0]}, ms on {threads}"]
    small = data[sizes[0]]
    rows = [
        [
            name.replace("whet face", "`face`"),
            *(f"{data[size]['threads 1'][name]['processor ms']:.1f}" for size in sizes),
            f"{small['threads 1'][name]['times ours (processor)']:.2f}",
            f"{small[threads][name]['ms']:.1f}",
        ]
        for name in small["threads 1"]
    ]
    return Table.from_cells(header, rows)


def face_parts() -> Table:
    """Where the time of the face detector goes."""
    times, counts = results("benchmark-face-parts"), results("benchmark-face-speed")
    sizes = ("640 x 480", "1920 x 1080")
    rows = [[name, *(times[size][name] for size in sizes)] for name in times[sizes[0]]]
    names = "windows an image", "weak learners a window with contrast"
    rows += [[name, *(counts[size]["windows"][name] for size in sizes)] for name in names]
    return Table.from_cells(["an image, one thread", *sizes], rows)


def easy_choices() -> Table:
    """Scores, grouping and early exits, on easy faces."""
    return _choices("easy")


def hard_choices() -> Table:
    """Scores, grouping and early exits, on hard faces."""
    return _choices("hard")


def _choices(kind: str) -> Table:
    data = results("benchmark-face-choices")
    scores, grouping = data[kind]["by score, grouped around peaks"], data[kind]["by grouping"]
    rows = {
        "as shipped": scores["later half"],
        "score of all stages": scores["all stages"],
        "score of the last stage": scores["last stage"],
        "grouped in chains, weighted": grouping["weighted"],
        "non-maximum suppression": grouping["nms"],
        "without early exits": data[kind]["hard stages"],
    }
    at = [str(n) for n in data["false positives"]]
    return Table.from_cells(["setting", *at], [[label, *(row[n] for n in at)] for label, row in rows.items()])


# docs/results.md: corrections and drawn objects


def _interval(row: Any) -> str:  # noqa: ANN401 - JSON
    """A ratio or a change with its 95 % interval."""
    low, high = row["interval"]
    if "points" in row:
        return f"{row['points']:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"


HARM = ("false positives", "false positives at any score", "recall", "recall at any score")


def _harm(row: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [_interval(row[name]) for name in HARM]


def corrected_faces() -> Table:
    """False positives of the face detector, corrected in sequence."""
    rows = results("benchmark-corrections-face")["false positives"]
    names = {f"corrections {n}": f"{n} corrections" for n in (1, 5, 20, 100)}
    names |= {"weights 20": "20, counted as heavy samples", "sgd 20": "20, gradient steps on the same windows"}
    cells = [[label, percent(rows[key]["gone"]), *_harm(rows[key])] for key, label in names.items()]
    return Table.from_cells(["face detector", "gone (%)", *HARM], cells)


def corrected_plates() -> Table:
    """False positives of a detector of plates, corrected in sequence."""
    rows = results("benchmark-corrections-plates")["false positives"]
    names = {f"corrections {n}": f"{n} corrections" for n in (1, 5, 20, 100)}
    cells = [[label, percent(rows[key]["gone"]), *_harm(rows[key])] for key, label in names.items()]
    return Table.from_cells(["detector of plates", "gone (%)", *HARM], cells)


def corrected_misses() -> Table:
    """Missed faces, corrected together."""
    rows = results("benchmark-corrections-face")["misses"]
    cells = [[f"{n} missed faces", percent(rows[str(n)]["found"]), *_harm(rows[str(n)])] for n in (1, 5, 20)]
    return Table.from_cells(["face detector, misses", "found (%)", *HARM], cells)


def corrected_camera() -> Table:
    """The second half of clips whose first half was corrected."""
    row = results("benchmark-corrections-face")["camera"]
    cells = [["after the false positives of the first half are corrected", *_harm(row)]]
    return Table.from_cells(["fixed camera, second half", *HARM], cells)


def corrected_plates_elsewhere() -> Table:
    """Misses and a fixed camera with a detector of plates, and training it again instead."""
    data = results("benchmark-corrections-plates")
    rows = [(f"{n} missed plates found", row) for n, row in data["misses"].items() if isinstance(row, dict)]
    cells = [[label, percent(row["found"]), *_harm(row)] for label, row in rows]
    cells.append(["fixed camera, second half", "", *_harm(data["camera"])])
    again = data["retraining"]
    label = f"trained again with 20 corrected images ({again['seconds']:.0f} s), gone"
    cells.append([label, percent(again["gone"]), *_harm(again["20"])])
    return Table.from_cells(["detector of plates, also", "%", *HARM], cells)


def corrected_by_command() -> Table:
    """Corrections by `whet learn` against those in Python."""
    different = "images with other detections than in Python"
    cells = [
        [f"{name}, {n} corrections", percent(row["gone"]), row[different], row["images"]]
        for name in ("face", "plates")
        for n, row in results(f"benchmark-corrections-{name}")["command line"].items()
    ]
    return Table.from_cells(["`whet learn --wrong`", "gone (%)", different, "images"], cells)


def calibration() -> Table:
    """Probabilities of detections against shares that are right."""
    cells = [
        [f"{name}, {when}", row["detections"], row["expected calibration error"], row["brier score"]]
        for name in ("face", "plates")
        for when, row in results(f"benchmark-corrections-{name}")["calibration"].items()
        if isinstance(row, dict)
    ]
    return Table.from_cells(["probabilities", "detections", "expected calibration error", "Brier score"], cells)


def people_speed() -> Table:
    """Time per image of detectors of people and of a cascade."""
    data = results("benchmark-people-speed")
    times, ratios = data["milliseconds per image"], data["times as long as whet"]
    cells = [[name, times[name], ratios[name]] for name in times]
    return Table.from_cells(["640 x 480, from 100 pixels up", "ms per image", "times as long"], cells)


def correction_cost() -> Table:
    """Time and space of corrections."""
    cost = results("benchmark-corrections-face")["cost"]
    rows = [
        (f"`learn`, images of 640 x 480, median of {cost['images']} (ms)", cost["learn, milliseconds"]["median"]),
        ("detecting again, median (ms)", cost["rescan, milliseconds"]["median"]),
        (f"adding {cost['corrections']} corrections at once (s)", cost["derive all, seconds"]),
        (f"loading a model with {cost['corrections']} corrections (s)", cost["load, seconds"]),
        ("bytes of a correction in the file", cost["bytes of a correction"]),
        *(
            (f"detecting with {n} corrections, over none", ratio)
            for n, ratio in cost["detecting with n corrections, over none"].items()
        ),
    ]
    return Table.from_cells(["cost", "value"], rows)


OBJECTS = {
    "inria_person": "people (INRIA)",
    "plates": "number plates",
    "stop": "stop signs",
    "rear_cars": "cars from behind",
    "white_cells": "white blood cells",
    "cats": "heads of cats",
    "raccoon": "raccoons",
    "kangaroo": "kangaroos",
}


def objects() -> Table:
    """Channel detectors of eight kinds of objects."""
    run, rows = results("benchmark-objects")["results"], []
    for key, name in OBJECTS.items():
        precision = [one["average_precision"] for one in run[key]["runs"]]
        spread = f"{sum(precision) / len(precision):.3f} ({min(precision):.3f} to {max(precision):.3f})"
        cells = run[key]["core_seconds"], run[key]["core_milliseconds_per_image"]
        rows.append([name, spread, *(f"{cell:.0f}" for cell in cells)])
    return Table.from_cells(["objects", "average precision", "training, core seconds", "test image, core ms"], rows)


def grey_objects() -> Table:
    """Cascades of grey features for objects of any pose, next to channel detectors."""
    channels, rows = results("benchmark-objects")["results"], []
    for key, run in results("benchmark-objects-grey")["results"].items():
        before, after = (each["average_precision"] for each in (run, channels[key]))
        rows.append([OBJECTS[key], f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}"])
    return Table.from_cells(["objects", "`--features haar,lbp`", "channels", "difference"], rows)


def face_families() -> Table:
    """The bundled face detector and one on channels that is trained on the same faces, on pasted faces."""
    data = results("benchmark-channel-face")
    names = {"bundled": "bundled cascade", "scenes": "channels, the same faces pasted into images"}
    rows = [[name, *(data[part][key] for part in ("easy", "hard", "milliseconds"))] for key, name in names.items()]
    return Table.from_cells(["faces", "easy scenes", "hard scenes", "640 x 480, ms"], rows)


# docs/guides/how-many-images.md

FEW_EXAMPLES_METHODS = {
    "whet": "whet",
    "dlib": "dlib",
    "yolo": "YOLOv8n, fine-tuned",
    "opencv-people": "OpenCV people detector",
}


def few_examples() -> Table:
    """Average precision by number of training boxes."""
    return few_examples_table(results("benchmark-few-examples")["summary"])


def few_examples_table(rows: Sequence[Any]) -> Table:
    """A row for each set, method and limit, a column for each number of boxes."""
    boxes = sorted({row["boxes"] for row in rows if row["boxes"]})
    cells = {(row["set"], row["method"], row["minutes"], row["boxes"]): _few_examples_cell(row) for row in rows}
    limits = sorted({row["minutes"] for row in rows})
    lines = []
    for name, title in OBJECTS.items():
        for method, label in FEW_EXAMPLES_METHODS.items():
            for minutes in limits:
                found = [cells.get((name, method, minutes, n), "") for n in boxes]
                untrained = cells.get((name, method, minutes, 0))
                if untrained is not None:
                    lines.append([title, label, "as shipped", *[untrained] * len(boxes)])
                elif any(found):
                    lines.append([title, label, f"{minutes:g} min", *found])
    return Table.from_cells(["objects", "method", "limit", *(f"{n} boxes" for n in boxes)], lines)


def _few_examples_cell(row: Any) -> str:  # noqa: ANN401 - JSON
    """The mean and range over seeds; or why no run gave a detector, or that more time changed none of them."""
    if row["same"] == row["runs"]:
        return "same"
    if not row["trained"]:
        return ", ".join(row["faults"])
    text = f"{row['mean']:.2f}"
    if row["trained"] > 1:
        text += f" ({row['low']:.2f} to {row['high']:.2f})"
    if row["trained"] < row["runs"]:
        text += f", {row['trained']} of {row['runs']} runs"
    return text


def _drawn(kind: str) -> Any:  # noqa: ANN401 - JSON
    return next(run for run in results("benchmark-drawn-objects")["runs"] if run["kind"] == kind)


def drawn_objects() -> Table:
    """Detectors trained on drawn vans and walkers."""
    runs = [_drawn("van"), _drawn("walker")]

    def area(key: str, step: str) -> Callable[[Any], str]:
        return lambda run: f"{run[step]['measures'][key]['value']:.3f}"

    measures: dict[str, Callable[[Any], object]] = {
        "objects to train on": lambda run: run["drawn"]["train"],
        "`whet train`, seconds": lambda run: f"{run['train']['wall seconds']:.1f}",
        "stages": lambda run: run["train"]["stages"],
        "weak learners": lambda run: run["train"]["weak_learners"],
        "objects in the test images": lambda run: run["evaluate"]["objects"],
        "found": lambda run: run["evaluate"]["found"],
        "false positives in 100 images": lambda run: run["evaluate"]["false_positives"],
        "recall": area("recall", "evaluate"),
        "average precision": area("average_precision", "evaluate"),
    }
    rows = [[label, *map(value, runs)] for label, value in measures.items()]
    return Table.from_cells(["measure", "vans", "walkers"], rows)


# docs/results.md: video


IOUS = (0.5, 0.3)
_VIDEO_COLUMNS = [f"{video}, IoU above {iou} (%)" for video in VIDEOS for iou in IOUS]


def _tracking_rates(method: str) -> list[str]:
    """Share of the frames of each video, with boxes as a user gets them."""
    measure, box = "frames in which the face is found", "as reported"
    return [
        percent(measured("tracking", measure, method, video=video, box=box, iou=iou))
        for video in VIDEOS
        for iou in IOUS
    ]


def tracking() -> Table:
    """Frames in which the face is found."""
    names = {
        "detector alone": "`face`, best detection of each frame",
        "tracks": "`face` with tracking",
        "tracks and learns": "`face` with tracking and self-training (`whet watch --learn`)",
    }
    names |= {
        f"OpenCV {name}": f"OpenCV `{name}`"
        for name in ("frontalface_default", "frontalface_alt2", "TrackerBoosting", "TrackerMIL")
    }
    return Table.from_cells(
        ["method", *_VIDEO_COLUMNS], [[label, *_tracking_rates(method)] for method, label in names.items()]
    )


def _before_after(run: Any, name: str) -> str:  # noqa: ANN401 - JSON
    before, after = (run["harm"][side][name] for side in ("before", "after"))
    return f"{percent(before)}, {percent(after)}" if isinstance(before, float) else f"{before}, {after}"


def tracking_cost() -> Table:
    """Processor time of tracking and of self-training, and what self-training does to other images."""
    runs = [results("benchmark-tracking")[video] for video in VIDEOS]
    measures: dict[str, Callable[[Any], object]] = {
        "tracking, processor ms per frame": lambda run: f"{run['without_learning']['processor_ms_a_frame']:.1f}",
        "tracking and self-training, processor ms per frame": (
            lambda run: f"{run['with_learning']['processor_ms_a_frame']:.1f}"
        ),
        "share of self-training (%)": lambda run: percent(run["share_of_learning"]),
        "samples learned": lambda run: run["with_learning"]["updates"],
        "samples undone by the guard": lambda run: run["with_learning"]["updates_rolled_back"],
        "held-out faces accepted, before and after (%)": lambda run: _before_after(run, "held_out_faces_accepted"),
        "false positives in 100 images, before and after": lambda run: _before_after(run, "false_positives_at_it"),
        "at any score": lambda run: _before_after(run, "false_positives_at_any_score"),
    }
    return Table.from_cells(["measure", *VIDEOS], [[label, *map(value, runs)] for label, value in measures.items()])


def live_page() -> Table:
    """The live page, with and without a viewer."""
    runs = [results("benchmark-live-image")[key] for key in ("without", "shown", "viewed")]
    measures = {
        "frames per second": "frames_a_second",
        "processor ms per frame": "processor_ms_a_frame",
        "images per second": "images_a_second",
    }
    header = ["measure", "no viewer, no page", "page, no viewer", "page with a viewer"]
    return Table.from_cells(header, [[label, *(f"{run[key]:.1f}" for run in runs)] for label, key in measures.items()])


def studio() -> Table:
    """Latencies of the studio, next to what was aimed at."""
    found = results("benchmark-studio")
    page = results("benchmark-studio-page")["latency"]

    def row(label: str, times: dict[str, float], aim: str) -> list[str]:
        return [label, f"{times['median']:.0f}", f"{times['p95']:.0f}", aim]

    correction = found["correction"]
    rows = [
        row("click in Chromium to redrawn boxes", page["milliseconds"]["learned"], "100"),
        row("click in Chromium to the list of effects", page["milliseconds"]["effect"], "300"),
        row("a false positive, request to answer", correction["false_positive"], "100"),
        row("a missed object, request to answer", correction["missed"], "100"),
        row("the effect on all 200 images", correction["effect"], "300"),
        row("all 200 images scored again", found["rescoring"]["whole_set"], "300"),
        row("blame over 100 corrections", found["blame"]["time"], "1,000"),
        row("restore one of 1,000 states", found["restore"]["time"], "200"),
    ]
    return Table.from_cells(["studio, 200 images of 640 x 480", "median ms", "p95 ms", "aim"], rows)


def studio_load() -> Table:
    """Eight clients that detect and correct at once."""
    found = results("benchmark-studio")
    load, blame = found["load"], found["blame"]
    rows = [
        ("planted errors that blame names", f"{blame['right']} of {blame['planted']}"),
        ("states restored to the byte", found["restore"]["byte_identical"]),
        ("load: requests per second, eight clients", f"{load['requests_per_second']:.0f}"),
        ("load: corrections acknowledged, each stored once", f"{load['acknowledged']}, {_yes(load['each_once'])}"),
        ("load: the model equals a replay", _yes(load["model_equals_replay"])),
        ("load: errors", str(load["errors"])),
        ("load: memory at each quarter, MB", ", ".join(f"{mb:.0f}" for mb in load["memory_mb_at_quarters"])),
    ]
    return Table.from_cells(["measure", "value"], rows)


def studio_agreement() -> Table:
    """Cached boxes that scans confirm, after each of many corrections."""
    found = results("benchmark-studio-agreement")
    sets = {
        ("hurried", "faces"): "turned faces, bundled detector",
        ("hurried", "people"): "people, trained on ten boxes",
        ("hurried", "any"): "any boxes called objects, bundled detector",
        ("rescanned", "any"): "the same, with the rescan in between",
    }
    kinds = {"missed": "a missed object", "false_positive": "a false positive"}
    rows = [
        [label, kind, *(f"{row[name]:,}" for name in ("states", "boxes", "same"))]
        + [f"{row[name]:.2%}" for name in ("agreement", "worst_state")]
        for (pace, name_of_set), label in sets.items()
        for key, kind in kinds.items()
        for row in [found[pace][name_of_set][key]]
    ]
    header = ["corrections", "after", "states", "boxes", "same in a scan", "share", "worst state"]
    return Table.from_cells(header, rows)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


# docs/results.md: OpenCV cascades


def agreement() -> Table:
    """Windows and boxes of OpenCV and of whet."""
    total = results("benchmark-opencv-agreement")["total"]
    rows = [
        ("raw windows accepted by OpenCV", f"{total['opencv']:,}"),
        ("raw windows accepted by whet", f"{total['whet']:,}"),
        ("accepted by both", f"{total['both']:,}"),
        ("lists of grouped boxes that are equal (17 cascades, 24 images)", total["images grouped alike"]),
    ]
    return Table.from_cells(["measure", "value"], rows)


def _opencv_scan(cascade: str, shape: Sequence[int], threads: int) -> Any:  # noqa: ANN401 - JSON
    return next(
        row
        for row in results("benchmark-opencv-scan")["results"]
        if (row["cascade"], row["shape"], row["threads"]) == (cascade, shape, threads)
    )


def opencv_speed() -> Table:
    """Time of OpenCV's cascades in OpenCV and in whet."""
    names = {
        "haarcascade_frontalface_default": "`frontalface_default`",
        "haarcascade_frontalface_alt2": "`frontalface_alt2`",
        "whet_face_haar": "exported Haar cascade",
        "whet_face_lbp": "exported LBP cascade",
    }
    header = ["cascade", "image", "threads", "whet (ms)", "OpenCV (ms)", "ratio, median", "ratio, processor time"]
    measures = (
        *("whet ms (least)", "opencv ms (least)"),
        *("opencv takes times ours (median of turns)", "opencv takes times ours (processor, least)"),
    )
    rows = [
        [
            names[row["cascade"]],
            "{1} x {0}".format(*row["shape"]),
            row["threads"],
            *(f"{row[key]:.1f}" for key in measures),
        ]
        for row in results("benchmark-opencv-scan")["results"]
    ]
    return Table.from_cells(header, rows)


def adopted() -> Table:
    """OpenCV's cascades, adopted and corrected."""
    header = [
        *("cascade", "photographs", "gone", "false positives, before", "after", "at one per image, before", "after"),
        *("recall, before (%)", "change (points)"),
    ]
    rows = []
    for run in results("benchmark-adopted-cascade")["runs"]:
        wrong = [run[key][when] for key in WRONG for when in ("before", "after")]
        recall = run["recall at any score"]
        rows.append(
            [
                *(f"`{run['cascade']}`", run["photographs"], f"{run['gone']} of {run['corrected']}"),
                *(f"{n:.0f}" for n in wrong),
                *(f"{recall['before']:.1f}", f"{recall['points']:+.2f}"),
            ]
        )
    return Table.from_cells(header, rows)


WRONG = ("false positives at any score", "false positives")


def soft_export() -> Table:
    """A cascade with early exits in OpenCV's format."""
    data = results("benchmark-soft-export")

    def counts(row: Any) -> list[str]:  # noqa: ANN401 - JSON
        return [f"{row['windows without a face']:,}", f"{row['held-out faces']:,}"]

    rows: list[list[object]] = [["the detector in whet", 5, data["learners"], "", *counts(data["whet"])]]
    for name in ("all", "doubling", "none"):
        row = data[name]
        size = f"{round(row['bytes'] / 1000):,}"
        rows.append([f'`early_exits="{name}"`', row["stages"], f"{row['stumps']:,}", size, *counts(row)])
    return Table.from_cells(["file", "stages", "stumps", "kB", "windows without a face", "faces of 1,600"], rows)


def exported_in_opencv5() -> Table:
    """Exported files in two versions of OpenCV and in whet."""
    header = ["file", "stages", "stumps", "raw windows in each", "boxes", "patches classified as by the detector"]
    rows = [
        [
            row["file"],
            row["stages"],
            f"{row['stumps']:,}",
            f"{row['windows']['OpenCV 4']:,}",
            row["boxes"],
            f"{row['patches classified as by the detector']:,}",
        ]
        for row in results("benchmark-exported-opencv5")["files"]
    ]
    return Table.from_cells(header, rows)


# docs/results.md: learner

UPDATES = {
    "whet update": "`OnlineGSLDA.update`",
    "whet partial_fit": "`OnlineGSLDA.partial_fit`",
    "whet partial_fit, coefficients read": "the same, coefficients read",
    "NumPy Sherman-Morrison": "NumPy",
    "SGDClassifier.partial_fit": "`SGDClassifier.partial_fit`",
    "River AdaBoostClassifier.learn_one": "River `AdaBoostClassifier`",
    "LinearDiscriminantAnalysis refit on 2,000": "LDA refit on 2,000",
}


def one_sample() -> Table:
    """Microseconds of one more sample."""
    rows = [
        [n_weak, *(f"{row[key]['least_us']:,.1f}" for key in UPDATES)]
        for n_weak, row in results("benchmark-online-update")["one sample"].items()
    ]
    return Table.from_cells(["weak learners", *UPDATES.values()], rows)


def one_sample_ratios() -> Table:
    """Time of one more sample, relative to whet."""
    peers = list(UPDATES)[1:]
    rows = [
        [n_weak, *(f"{row[key]['times_ours']:.1f}" for key in peers)]
        for n_weak, row in results("benchmark-online-update")["one sample"].items()
    ]
    return Table.from_cells(["weak learners", *(UPDATES[key] for key in peers)], rows)


def blocks() -> Table:
    """Microseconds of a sample in blocks of 1,000."""
    rows = [
        [n_weak, *(f"{peer['least_us']:.2f}" for peer in row.values())]
        for n_weak, row in results("benchmark-online-update")["a sample in blocks of 1,000"].items()
    ]
    return Table.from_cells(["weak learners", "`OnlineGSLDA.partial_fit`", "`SGDClassifier.partial_fit`"], rows)


def samples_seen() -> Table:
    """Microseconds of an update after many samples."""
    seen = results("benchmark-online-update")["least microseconds an update of 200, by samples seen"]
    return Table.from_cells(["samples seen", "microseconds"], [[f"{int(n):,}", value] for n, value in seen.items()])


def node() -> Table:
    """Training of a node at full scale."""
    data = results("benchmark-node")
    header = ["patches", "features", "stumps and bits (s)", "selection (s)", "total (s)", "peak memory (MB)"]
    rows = [
        [
            f"{row['samples']:,}",
            f"{row['features']:,}",
            f"{row['clock']['stumps and bits']:.1f}",
            f"{row['clock']['selection']:.1f}",
            f"{row['clock in all']:.1f}",
            f"{row['peak memory in MB']:,}",
        ]
        for row in data["by samples"] + data["by features"]
    ]
    return Table.from_cells(header, rows)


def adaboost() -> Table:
    """AdaBoost of whet and of scikit-learn."""
    data = results("benchmark-adaboost")
    names = {"whet": "`whet.estimators.baselines.AdaBoost`", "scikit-learn": "scikit-learn `AdaBoostClassifier`"}
    rows = [
        [
            label,
            f"{data['time'][key]['least_us'] / 1e6:.2f}",
            percent(data["test error, mean of 10 seeds"][key], 2),
        ]
        for key, label in names.items()
    ]
    return Table.from_cells(["implementation", "seconds", "test error (%)"], rows)


# docs/guarantees.md


def learning() -> Table:
    """What 80 boxes teach after 20, without the old images."""
    header = "objects", "20 boxes", "corrected at once", "made again", "trained on all", "share", "precision", "recall"
    rows = []
    for run in results("benchmark-learning")["runs"]:
        cells = [f"{run[part]['average_precision']:.3f}" for part in ("first", "at once", "learned", "all")]
        share = run["learned"]["average_precision"] / run["all"]["average_precision"]
        points = [f"{run['first'][name]:.2f} / {run['learned'][name]:.2f}" for name in ("precision", "recall")]
        rows.append((LEARNED[run["set"]], *cells, f"{share:.2f}", *points))
    return Table.from_cells(header, rows)


def learning_corrections() -> Table:
    """What 20 corrected mistakes teach."""
    header = "objects", "mistakes", "gone or found (%)", "false positives at equal recall", "average precision", "ms"
    rows = []
    for kind, name in (("wrong", "false positives"), ("missed", "missed objects")):
        for run in results("benchmark-learning")["runs"]:
            for row in run[kind][:1]:
                holds = " / ".join(percent(share, 0) for share in row["holds"])
                pairs = [row[key] for key in ("false_positives_at_recall", "average_precision", "milliseconds")]
                cells = [" / ".join("none" if value is None else f"{value}" for value in pair) for pair in pairs]
                rows.append((LEARNED[run["set"]], f"{row['corrections']} {name}", holds, *cells))
    return Table.from_cells(header, rows)


def campaigns() -> Table:
    """What came of hostile files and interrupted changes, by target and by scenario."""
    header = ("campaign", "cases", "crashes", "hangs", "errors without a name", "lost or doubled corrections")
    targets = results("trust-fuzz")["targets"]
    titles = {name: f"hostile files: {name}" for name in targets} | {"requests": "hostile requests to the studio"}
    every = {titles[name]: row for name, row in targets.items()} | results("trust-faults")["campaigns"]
    rows = [
        (
            name,
            f"{row['cases']:,}",
            *(row[kind] for kind in ("crash", "hang", "uncaught")),
            row.get("lost", ""),
            f"{row['worst_seconds']:.2f} s",
            f"{row['worst_megabytes']} MB",
        )
        for name, row in every.items()
    ]
    return Table.from_cells((*header, "worst time", "worst memory"), rows)


WHEN = ("second_quarter", "last_quarter", "worst")


def soak() -> Table:
    """What an hour of use took: the second quarter, the last one, and the worst moment."""
    found = results("trust-soak")
    labels = {"python": "Python", "commands": "process that starts commands", "studio": "studio's server"}
    rows = [
        [f"{label}: {measure}", f"{one['rounds']:,}", *(f"{one[measure][when]:.0f}" for when in WHEN)]
        for name, label in labels.items()
        for one in [found["programs"][name]]
        for measure in ("megabytes", "handles", "threads")
    ]
    header = [f"{found['minutes']:.0f} minutes", "rounds", "second quarter", "last quarter", "worst"]
    return Table.from_cells(header, rows)


def federated() -> Table:
    """Sites that learned apart: merged, and each taken out again."""
    found = results("benchmark-federated")
    rows = []
    for key, name in (("apart", "no face is shared"), ("sharing", f"{found['options']['shared']} faces are shared")):
        one = found[key]
        removed = one["removed_equals_never_there"]
        rows.append(
            (
                name,
                f"{one['records']:,}",
                f"{one['examples_counted']:,}",
                "yes" if one["merged_equals_one_that_learned_all"] else "no",
                f"{sum(removed.values())} of {len(removed)}",
                f"{one['bytes']['merged'] / 1e6:.2f}",
            )
        )
    header = ("records", "examples counted", "merged = one that learned all", "removed = never there", "file, MB")
    return Table.from_cells((f"{found['options']['sites']} sites", *header), rows)


def cluster() -> Table:
    """Two workers against one."""
    found = results("benchmark-cluster")["phases"]
    rows = [
        (name, one["one worker"], one["two workers"], one["times as fast"], one["worst turn"])
        for name, one in found.items()
        if isinstance(one, dict)
    ]
    header = f"{found['samples']:,} samples, {found['features']:,} features, {found['images']} images"
    columns = ("one worker, s", "two workers, s", "times as fast", f"worst of {len(found['mining']['turns'])} turns")
    return Table.from_cells((header, *columns), rows)


def cluster_memory() -> Table:
    """A matrix that does not fit into one worker, small jobs, and bytes on the wire."""
    found = results("benchmark-cluster")
    memory, small, wire = found["memory"], found["small job"], found["wire"]
    first, last = wire["a round, each way and block, first and last"]
    rows = [
        ("response matrix, MB", memory["matrix, MB"]),
        ("memory limit of each of four workers, MB", memory["limit of a worker, MB"]),
        ("peak memory of the workers, MB", f"{memory['peaks of the workers, MB'][-1]}"),
        ("stage of 20 weak learners on 400 patches: threads, s", small["threads"]),
        ("the same with two workers, s", small["two workers"]),
        (f"bytes of a round of selection, each way and block, {wire['samples']:,} samples", f"{first:,} to {last:,}"),
        ("bytes of a correction", f"{wire['a correction']:,}"),
    ]
    return Table.from_cells(("measure", "value"), rows)


def cluster_cost() -> Table:
    """What the training of Xiao et al. needs."""
    plan = results("benchmark-cluster-cost")["plan"]
    rows = [(f"{name}, core hours", hours) for name, hours in plan["core hours"].items()]
    others = {name: value for name, value in plan.items() if name not in ("sizes", "core hours")}
    return Table.from_cells(("need", "value"), [*rows, *others.items()])


TABLES: dict[str, tuple[Callable[[], Table], ...]] = {
    "README.md": (readme_faces, readme_objects, readme_video, readme_measures),
    "docs/guarantees.md": (campaigns, soak),
    "docs/guides/cluster.md": (cluster, cluster_memory, cluster_cost),
    "docs/guides/how-many-images.md": (few_examples,),
    "docs/results.md": (
        learning,
        learning_corrections,
        *(faces, face_speed, face_parts, easy_choices, hard_choices, drawn_objects, grey_objects, face_families),
        *(objects, corrected_faces, corrected_plates, corrected_misses, corrected_camera, correction_cost),
        *(federated, people_speed, corrected_plates_elsewhere, corrected_by_command, calibration),
        *(tracking, tracking_cost, live_page, studio, studio_agreement, studio_load),
        *(agreement, opencv_speed, adopted, soft_export, exported_in_opencv5),
        *(one_sample, one_sample_ratios, blocks, samples_seen, node, adaboost),
    ),
}

# Headers of tables that describe something and measure nothing.
UNMEASURED: dict[str, tuple[tuple[str, ...], ...]] = {
    "docs/guides/cluster.md": (
        ("phase", "on the workers", "on the machine of the command"),
        ("what happens", "what whet does"),
    ),
    "docs/results.md": (("path", "content"),),
}


def early_exits_sentence() -> str:
    """Weak learners per window with and without early exits."""
    easy = results("benchmark-face-choices")["easy"]
    without, used = (easy[key]["weak learners a window"] for key in ("hard stages", "soft stages"))
    return f"Early exits reduce the weak learners per window from {without} to {used}."


def adaboost_sentence() -> str:
    """Ratio of AdaBoost's times."""
    ratio = results("benchmark-adaboost")["time"]["scikit-learn"]["times_ours"]
    return f"whet is {ratio} times as fast (median over the turns)."


def families_sentence() -> str:
    """Average precision of raccoons with each family of models."""
    channels, grey = (results(f"benchmark-objects{name}")["results"]["raccoon"] for name in ("", "-grey"))
    means = [f"{run['average_precision']:.3f}" for run in (channels, grey)]
    return f"Raccoons have an average precision of {means[0]} with channels and {means[1]} with grey features"


def learning_sentence() -> str:
    """Average precision of people with 20 boxes, 80 more learned, and trained on all."""
    run = next(run for run in results("benchmark-learning")["runs"] if run["set"] == "inria_person")
    first, learned, trained = (f"{run[part]['average_precision']:.2f}" for part in ("first", "learned", "all"))
    return (
        f"For people in street images, average precision is {first} with 20 boxes, {learned} after 80 more were "
        f"learned, and {trained} trained on all 100"
    )


def families_speed_sentence() -> str:
    """Time of each family for an image."""
    times = results("benchmark-people-speed")["milliseconds per image"]
    return (
        f"For objects from 100 pixels up in an image of 640 x 480, the face cascade takes "
        f"{times['whet, face cascade']} ms and a detector of people on channels {times['whet, people']} ms"
    )


SENTENCES: dict[str, tuple[Callable[[], str], ...]] = {
    "README.md": (families_sentence, families_speed_sentence, learning_sentence),
    "docs/results.md": (early_exits_sentence, adaboost_sentence),
}


def main() -> None:
    """Print all tables and sentences, by page."""
    for page in TABLES:
        print(f"## {page}")
        for part in (*TABLES[page], *SENTENCES.get(page, ())):
            print(f"\n{part()}")
        print()


if __name__ == "__main__":
    main()
