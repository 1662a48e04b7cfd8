"""Draw docs/results/few-examples.png from the results of that benchmark: `python -m scripts.few_examples_figure`.

One panel per set: average precision over the number of training boxes, a line per method (solid with the longest limit,
dotted with shorter ones), the mean over seeds, and the range over seeds as an area. A method without training is a
horizontal line. Points without any trained detector (refused, or over the time limit) are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.results_tables import FEW_EXAMPLES_METHODS, OBJECTS, RESULTS

from whet.plots.figure import BLUE, GREEN, GREY, ORANGE, new_figure, save

COLORS = {"whet": BLUE, "dlib": ORANGE, "yolo": GREEN, "opencv-people": GREY}
COLUMNS = 3


def main() -> None:
    """Draw the figure of a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="?", type=Path, default=RESULTS / "benchmark-few-examples.json")
    parser.add_argument("--out", type=Path, default=RESULTS / "few-examples.png")
    options = parser.parse_args()
    print(draw(json.loads(options.json.read_text(encoding="utf-8"))["summary"], options.out))


def lines_of(rows: Sequence[dict[str, Any]], name: str) -> dict[tuple[str, float], list[dict[str, Any]]]:
    """The rows of a set that have a result, by method and limit, in order of boxes."""
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["minutes"], row["boxes"])):
        if row["set"] == name and row["trained"]:
            found.setdefault((row["method"], row["minutes"]), []).append(row)
    return found


def draw(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """Draw all sets of a summary."""
    sets = [name for name in OBJECTS if any(row["set"] == name and row["boxes"] for row in rows)]
    n_rows = -(-len(sets) // COLUMNS)
    columns = min(COLUMNS, len(sets))
    figure, axes = new_figure(n_rows, columns, 4.0 * columns, 3.0 * n_rows + 0.8, sharey=True)
    longest = max(row["minutes"] for row in rows)
    boxes = sorted({row["boxes"] for row in rows if row["boxes"]})
    handles: dict[str, Any] = {}
    for axis, name in zip(axes.flat, sets, strict=False):
        for (method, minutes), line in lines_of(rows, name).items():
            label = FEW_EXAMPLES_METHODS[method] + (f", {minutes:g} min" if minutes else ", as shipped")
            style = {"color": COLORS[method], "label": label, "linestyle": "-" if minutes in (0, longest) else ":"}
            if not minutes:
                handles[label] = axis.axhline(line[0]["mean"], linewidth=1, **style)
                continue
            x = [row["boxes"] for row in line]
            handles[label] = axis.plot(x, [row["mean"] for row in line], marker="o", markersize=3, **style)[0]
            low, high = [row["low"] for row in line], [row["high"] for row in line]
            axis.fill_between(x, low, high, color=COLORS[method], alpha=0.15, linewidth=0)
        axis.set(title=OBJECTS[name], xscale="log", ylim=(0, 1), xlim=(boxes[0] / 1.2, boxes[-1] * 1.2))
        axis.set_xticks(boxes, [str(n) for n in boxes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(sets) :]:
        axis.set_axis_off()
    figure.supxlabel("training boxes", fontsize="medium")
    figure.supylabel("average precision", fontsize="medium")
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, fontsize="small")
    return save(figure, path)


if __name__ == "__main__":
    main()
