import numpy as np
import pytest
from PIL import Image

from whet.errors import UnreadableImageError
from whet.io import images
from whet.io.images import read_grey


@pytest.fixture
def ramp():
    return np.tile(np.arange(0, 240, 10, dtype=np.uint8), (6, 1))


def test_grey_comes_back_as_it_was(tmp_path, ramp):
    Image.fromarray(ramp).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), ramp)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK", "LA", "1"])
def test_every_mode_becomes_grey(tmp_path, ramp, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.fromarray(ramp).convert(mode).save(path)
    grey = read_grey(path)
    assert (grey.dtype, grey.shape) == (np.uint8, ramp.shape)
    if mode != "1":
        assert abs(grey.astype(int) - ramp).max() <= 2


def test_sixteen_bits_are_scaled_not_clipped(tmp_path, ramp):
    Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), ramp)


def test_exif_orientation_turns_the_picture(tmp_path, ramp):
    picture = Image.fromarray(ramp)
    exif = picture.getexif()
    exif[0x0112] = 6  # shown by turning it a quarter clockwise
    picture.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), np.rot90(ramp, -1))


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"text"])
def test_what_is_no_image_is_named(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(UnreadableImageError, match=r"a\.png cannot be read"):
        read_grey(tmp_path / "a.png")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UnreadableImageError, match="nothing"):
        read_grey(tmp_path / "nothing.png")


def test_a_picture_cut_short_is_named(tmp_path, rng):
    Image.fromarray(rng.integers(0, 256, (99, 99), dtype=np.uint8)).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableImageError, match=r"a\.jpg"):
        read_grey(tmp_path / "a.jpg")


def test_a_picture_too_large_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    Image.new("1", (300, 300)).save(tmp_path / "a.png")
    monkeypatch.setattr(images, "MOST_PIXELS", 80_000)
    with pytest.raises(UnreadableImageError, match="300 x 300 pixels"):
        read_grey(tmp_path / "a.png")
