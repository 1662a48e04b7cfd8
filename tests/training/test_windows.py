"""Random windows of images."""

import numpy as np
import pytest
from PIL import Image

from whet.training.backgrounds import SkippedImagesWarning
from whet.training.gslda import grey_backgrounds

WINDOW = (24, 24)


def windows_of(paths, n, seed=0):
    source = grey_backgrounds(paths, WINDOW)
    return source.windows(source.random(n, [seed]))


def saved(path, image):
    Image.fromarray(image).save(path)
    return path


def test_windows_are_parts_of_the_image_at_its_scales(tmp_path, rng):
    image = rng.integers(0, 256, (25, 70), dtype=np.uint8)  # one scale only
    windows = windows_of([saved(tmp_path / "a.png", image)], 200)
    views = {view.tobytes() for view in np.lib.stride_tricks.sliding_window_view(image, WINDOW).reshape(-1, *WINDOW)}
    assert {window.tobytes() for window in windows} <= views
    assert len({window.tobytes() for window in windows}) > 50


def test_larger_windows_cover_more_of_a_ramp(tmp_path):
    ramp = np.tile((np.arange(240) * 255 / 240).astype(np.uint8), (240, 1))
    spans = np.ptp(windows_of([saved(tmp_path / "a.png", ramp)], 300).astype(int), axis=(1, 2))
    assert spans.min() < 40  # a tenth of the image
    assert spans.max() > 180  # nearly all of it


@pytest.fixture
def folder(tmp_path, rng):
    for i in range(4):
        saved(tmp_path / f"{i}.png", rng.integers(0, 256, (40, 50), dtype=np.uint8))
    return tmp_path


def test_a_seed_repeats_windows(folder):
    paths = sorted(folder.glob("*.png"))
    first, again = (windows_of(paths, 104, seed=1) for _ in range(2))
    assert first.shape == (104, *WINDOW)
    np.testing.assert_array_equal(first, again)


def test_bad_images_are_skipped_and_reported_and_small_ones_have_none(folder):
    (folder / "broken.png").write_bytes((folder / "0.png").read_bytes()[:100])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.png").write_text("not an image")
    saved(folder / "small.png", np.zeros((5, 5), np.uint8))
    source = grey_backgrounds(sorted(folder.glob("*.png")), WINDOW)
    with pytest.warns(SkippedImagesWarning) as caught:
        places = source.random(80, [0])
    assert np.unique(places[:, 0], return_counts=True)[1].tolist() == [20] * 4
    assert {str(warning.message).split(": ")[1].split(" ")[0] for warning in caught} == {
        str(folder / name) for name in ("broken.png", "empty.png", "text.png")
    }
