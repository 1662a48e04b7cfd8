"""One stage through `opencv_traincascade` and through whet, on the same patches.

    WHET_TRAINCASCADE=/path/to/opencv_traincascade python -m benchmarks.traincascade

Negatives are images of the size of the window, so that both train on the same ones.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.face_patches import WINDOW, face_patches
from whet.features.haar import HaarPool
from whet.training.stage import Boosting, train_stage


def write_vec(patches: NDArray[np.uint8], path: Path) -> None:
    """OpenCV's .vec: count, pixels a sample and four bytes unused; then a byte and 16-bit pixels for each."""
    size = patches[0].size
    with path.open("wb") as file:
        file.write(struct.pack("<iihh", len(patches), size, 0, 0))
        for patch in patches:
            file.write(b"\0" + patch.astype("<i2").tobytes())


def against_traincascade(binary: str, n: int = 2_000, n_weak: int = 20) -> dict[str, Any]:
    """Seconds of both for one stage of `n_weak` stumps on n / 2 faces and n / 2 non-faces."""
    patches, is_positive, data = face_patches(n)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_vec(patches[is_positive], folder / "faces.vec")
        for i, patch in enumerate(patches[~is_positive]):
            Image.fromarray(patch).save(folder / f"{i}.png")
        (folder / "bg.txt").write_text("".join(f"{folder / f'{i}.png'}\n" for i in range(n - n // 2)))
        (folder / "out").mkdir()
        options = {
            "-data": folder / "out",
            "-vec": folder / "faces.vec",
            "-bg": folder / "bg.txt",
            "-numPos": n // 2,
            "-numNeg": n - n // 2,
            "-numStages": 1,
            "-w": WINDOW[1],
            "-h": WINDOW[0],
            "-mode": "CORE",
            "-maxWeakCount": n_weak,
            "-maxFalseAlarmRate": 1e-6,
            "-minHitRate": 0.999,
        }
        start = time.perf_counter()
        subprocess.run([binary, *(str(part) for pair in options.items() for part in pair)], check=True)
        theirs = time.perf_counter() - start
    start = time.perf_counter()
    train_stage(HaarPool.from_window(WINDOW), patches, is_positive, n_weak, learner=Boosting())
    ours = time.perf_counter() - start
    return {"data": data, "samples": n, "weak learners": n_weak, "theirs": theirs, "ours": ours, "ratio": theirs / ours}


if __name__ == "__main__":
    if not os.environ.get("WHET_TRAINCASCADE"):
        sys.exit("set WHET_TRAINCASCADE to an opencv_traincascade binary (OpenCV 3 has one)")
    print(json.dumps(against_traincascade(os.environ["WHET_TRAINCASCADE"]), indent=1))
