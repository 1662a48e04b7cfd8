"""The rule of the video experiment, fixed on made-up video: which part of a face a window covers.

The paper gives neither the crop of its training faces, nor the smallest window, nor a box convention. Here windows are
of all sizes, from the 24 pixels of training on, and a window is reported as it is. Only the crop is chosen: of four
shares of Viola and Jones's box, the one with which GSLDA finds most faces in made-up video
(`experiments.drifting_faces`), of people that are not trained on. No frame of `david` or `trellis` is looked at.
`single_stage.INNER` is the result.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.claims import Claim, Finding, listed, percent, verdict
from experiments.datasets import lfw_images
from experiments.drifting_faces import clips
from experiments.report import Report, Row, Run
from experiments.single_stage import (
    GSLDA,
    INNER,
    BestWindows,
    StageSettings,
    best_windows,
    bootstrapped,
    sampled_pool,
    train_stages,
)
from experiments.table import Size
from whet.images.boxes import BoxOffset
from whet.plots import figure as figures

CROPS = (0.7, 0.8, 0.9, 1.0)
N_CLIPS = {"small": 4, "paper": 12}
LENGTH = {"small": 5, "paper": 20}
SEED = 1000  # of the made-up video: the same for all crops
RATE = "faces found in made-up video"
ONCE = ()


def settings(size: Size, crop: float) -> StageSettings:
    """A quick training of GSLDA."""
    n_features, n_mined = (1000, 600) if size == "small" else (5000, 3000)
    methods = (GSLDA,)
    return StageSettings(
        inner=crop, n_mined=n_mined, mining_rounds=1, n_weak=100, n_features=n_features, methods=methods
    )


def parts(size: Size) -> list[str]:  # noqa: ARG001 - both sizes have the same crops
    """A part for each crop."""
    return [f"crop {crop}" for crop in CROPS]


def measure(run: Run) -> None:
    """The share of frames in which GSLDA finds the face, with windows as boxes and with faces as boxes."""
    crop = float(run.part.split()[1])
    choice = settings(run.size, crop)
    pool = sampled_pool(choice, run.seed)
    stage = train_stages(choice, pool, bootstrapped(choice, pool, run.seed).train)[GSLDA]
    found: dict[str, list[np.ndarray]] = {"raw": [], "offset": []}
    for clip in clips(N_CLIPS[run.size], LENGTH[run.size], SEED, faces=lfw_images()[1::2]):
        best: BestWindows = best_windows(stage, list(clip.frames))
        for box, offset in (("raw", BoxOffset()), ("offset", choice.box_offset)):
            found[box].append(best.found(clip.truths, offset))
    for box, frames in found.items():
        run.note(RATE, GSLDA, float(np.concatenate(frames).mean()), crop=crop, box=box)


def best_crop(rows: list[Row]) -> float:
    """The crop of the highest rate, the largest of equal ones."""
    return float(max(rows, key=lambda row: (row.mean, row.setting["crop"])).setting["crop"])


def crop_is_used(report: Report) -> Finding:
    """The chosen crop against the one in use."""
    rows = [report.one(RATE, GSLDA, crop=crop, box="raw") for crop in CROPS]
    chosen = best_crop(rows)
    parts = [f"{row.setting['crop']}: {percent(row)}" for row in rows]
    return Finding(verdict(chosen == INNER), f"{listed(parts)}; chosen {chosen}, in use {INNER}")


CLAIMS = (
    Claim(
        "rule of Table tabross",
        "The crop of the video experiment is the one that finds most faces in made-up video, with windows as boxes.",
        "The chosen crop is the one in use.",
        crop_is_used,
    ),
)


def draw(report: Report, out: Path) -> list[Path]:
    """Rates by crop."""
    figure, axes = figures.new_figure(1, 1, 5.6, 3.6)
    for box, color in (("raw", figures.BLUE), ("offset", figures.GREY)):
        rows = report.select(RATE, GSLDA, box=box)
        axes[0, 0].errorbar(
            [row.setting["crop"] for row in rows],
            [row.mean for row in rows],
            [row.std for row in rows],
            color=color,
            marker="o",
            label="window as box" if box == "raw" else "face as box",
        )
    axes[0, 0].set_xlabel("part of Viola and Jones's box in a window")
    axes[0, 0].set_ylabel("faces found in made-up video")
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].grid(alpha=0.3)
    return [figures.save(figure, out / "video-rule-crop.png")]
