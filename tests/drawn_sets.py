"""Small annotated sets that tests draw for themselves: vans on textures."""

import numpy as np
from PIL import Image

from tests.cascades import textured
from whet.demo.drawn_vans import draw_set
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
    (folder / QUICK[1]).write_text(CASCADE)
    (folder / QUICK_CHANNELS[1]).write_text(CHANNELS)
    return found


# Trainings of seconds: a cascade, and a channel detector; in the folder of `van_set`.
QUICK = ("--config", "quick-cascade.toml")
QUICK_CHANNELS = ("--config", "quick-channels.toml")
CASCADE = """
features = "haar,lbp"
copies_per_object = 3
[gslda]
max_stages = 3
max_weak_learners = 8
max_features = 400
negatives_per_stage = 300
"""
CHANNELS = """
copies_per_object = 3
[channels]
trees = 32
negatives_per_round = 300
"""
