import numpy as np
from PIL import Image
from tests.detectors import bull_base, bull_scene

from whet.training.negatives import rejected_by_stage, windows_of_images


def test_windows_are_counted_where_they_fall(tmp_path):
    scene = bull_scene().copy()
    scene[:, 100:] = 90  # flat
    path = tmp_path / "scene.png"
    Image.fromarray(scene).save(path)
    cascade = bull_base().cascade
    counts = rejected_by_stage(cascade, [path], n=3000, seed=4)
    windows = windows_of_images([path], 3000, cascade.window, np.random.default_rng(4))
    assert 3000 - sum(counts) == cascade.accepts(windows).sum()
    assert counts[0] > 500
    assert all(count >= 0 for count in counts)
