"""Small annotated sets that tests draw for themselves: vans on textures."""

import numpy as np
from PIL import Image

from tests.cascades import textured
from whet.demo.objects import draw_set
from whet.io.annotations.formats import write_annotations


def backgrounds(folder, n, seed, shape=(120, 160)):
    """Textures as images in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    paths = [folder / f"texture{number}.png" for number in range(n)]
    for path in paths:
        Image.fromarray(textured(shape, rng)).save(path)
    return paths


def van_set(folder, n=30, seed=0):
    """Images with vans in `folder/vans`, their boxes in `folder/vans.csv`, and textures in `folder/textures`."""
    found = draw_set("van", backgrounds(folder / "under", n, seed), folder / "vans", seed, sizes=(36, 80))
    write_annotations(found, folder / "vans.csv", "csv", replace=True)
    backgrounds(folder / "textures", 12, seed + 1)
    return found


# Trainings of seconds: a cascade, and a channel detector.
QUICK = (
    *("--features", "haar,lbp"),
    *("--max-stages", 3, "--max-weak-learners", 8, "--max-features", 400),
    *("--negatives-per-stage", 300, "--copies-per-object", 3),
)
QUICK_CHANNELS = ("--trees", 32, "--negatives-per-round", 300, "--copies-per-object", 3)
