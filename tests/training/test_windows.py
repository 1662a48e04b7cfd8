import warnings

import numpy as np
import pytest
from PIL import Image

from whet.errors import UnreadableImageError
from whet.training.negatives import SkippedImagesWarning, random_windows, windows_of_images


def ramp(height, width):
    return (np.arange(width, dtype=np.float64)[None] * 255 / width + np.zeros((height, 1))).astype(np.uint8)


def test_windows_are_parts_of_the_image_at_its_scales(rng):
    image = rng.integers(0, 256, (30, 40), dtype=np.uint8)
    windows = random_windows(image, 200, (24, 24), rng, scale_factor=10.0)  # one scale only
    views = {view.tobytes() for view in np.lib.stride_tricks.sliding_window_view(image, (24, 24)).reshape(-1, 24, 24)}
    assert {window.tobytes() for window in windows} <= views
    assert len({window.tobytes() for window in windows}) > 50


def test_larger_windows_cover_more_of_a_ramp(rng):
    spans = np.ptp(random_windows(ramp(240, 240), 300, (24, 24), rng).astype(int), axis=(1, 2))
    assert spans.min() < 40  # a tenth of the image
    assert spans.max() > 180  # nearly all of it


def test_an_image_smaller_than_the_window_has_none(rng):
    assert len(random_windows(ramp(20, 100), 5, (24, 24), rng)) == 0


@pytest.fixture
def folder(tmp_path, rng):
    for i in range(4):
        Image.fromarray(rng.integers(0, 256, (40, 50), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    return tmp_path


def test_all_windows_are_found_and_a_seed_repeats_them(folder):
    paths = sorted(folder.glob("*.png"))
    a, b = (windows_of_images(paths, 103, (24, 24), np.random.default_rng(1)) for _ in range(2))
    assert a.shape == (103, 24, 24)
    np.testing.assert_array_equal(a, b)


def test_bad_images_are_skipped_and_reported(folder, rng):
    (folder / "broken.png").write_bytes((folder / "0.png").read_bytes()[:100])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.png").write_text("not an image")
    Image.new("L", (5, 5)).save(folder / "small.png")
    paths = sorted(folder.glob("*.png"))
    with pytest.warns(SkippedImagesWarning, match="skipped 4 images"):
        assert len(windows_of_images(paths, 50, (24, 24), rng)) == 50


@pytest.mark.parametrize("n_images", [0, 1])
def test_nothing_usable_is_a_named_error(tmp_path, n_images, rng):
    paths = [tmp_path / f"{i}.png" for i in range(n_images)]
    for path in paths:
        path.write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedImagesWarning)
        with pytest.raises(UnreadableImageError, match="none of the"):
            windows_of_images(paths, 5, (24, 24), rng)
