import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from whet.errors import UnreadableImageError
from whet.io import image_files as images
from whet.io.image_files import as_array, as_grey, as_rgb, read_grey


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


def test_exif_orientation_turns_the_image(tmp_path, ramp):
    image = Image.fromarray(ramp)
    exif = image.getexif()
    exif[0x0112] = 6  # shown by turning it a quarter clockwise
    image.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_grey(tmp_path / "a.png"), np.rot90(ramp, -1))


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"text"])
def test_what_is_no_image_is_named(tmp_path, content):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(UnreadableImageError, match=r"a\.png cannot be read"):
        read_grey(tmp_path / "a.png")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UnreadableImageError, match=r"nothing\.png cannot be read: no such file"):
        read_grey(tmp_path / "nothing.png")


def test_an_image_cut_short_is_named(tmp_path, rng):
    Image.fromarray(rng.integers(0, 256, (99, 99), dtype=np.uint8)).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableImageError, match=r"a\.jpg"):
        read_grey(tmp_path / "a.jpg")


def test_an_image_too_large_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    Image.new("1", (300, 300)).save(tmp_path / "a.png")
    monkeypatch.setattr(images, "MAX_PIXELS", 80_000)
    with pytest.raises(UnreadableImageError, match="300 x 300 pixels"):
        read_grey(tmp_path / "a.png")


def colours(rng):
    return rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)


@pytest.mark.parametrize("mode", ["L", "1", "LA", "RGB", "RGBA", "I;16"])
def test_an_image_its_array_and_its_file_are_the_same_greys(tmp_path, rng, mode):
    if mode == "I;16":
        image = Image.fromarray(rng.integers(0, 2**16, (30, 40), dtype=np.uint16))
    else:
        image = Image.fromarray(colours(rng)).convert(mode)
    image.save(tmp_path / "a.png")
    grey = as_grey(tmp_path / "a.png")
    assert grey.dtype == np.uint8
    assert grey.shape == (30, 40)
    assert np.ptp(grey) > 200
    for same in (image, np.asarray(image), str(tmp_path / "a.png"), Image.open(tmp_path / "a.png")):
        np.testing.assert_array_equal(as_grey(same), grey)


@pytest.mark.parametrize("mode", ["P", "CMYK", "YCbCr", "HSV"])
def test_images_whose_arrays_say_too_little_are_read_as_images(tmp_path, rng, mode):
    image = Image.fromarray(colours(rng)).convert(mode)
    np.testing.assert_array_equal(as_grey(image), np.asarray(image.convert("L")))
    if mode in ("P", "CMYK"):
        image.save(tmp_path / "a.tif")
        np.testing.assert_array_equal(as_grey(tmp_path / "a.tif"), as_grey(image))


def test_exif_orientation_turns_an_image_too(tmp_path, ramp):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(ramp).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as opened:
        np.testing.assert_array_equal(as_grey(opened), np.rot90(ramp, -1))
        assert opened.size == ramp.shape[::-1]  # the caller's image stays as it was


def test_all_depths_of_one_image_are_the_same_greys(rng):
    rgb = colours(rng)
    for image in (rgb, rgb[..., 0], rgb[..., :1], rgb[:, ::-1]):
        grey = as_grey(image)
        for same in (image.astype(np.uint16) * 257, image / 255, (image / 255).astype(np.float32)):
            np.testing.assert_array_equal(as_grey(same), grey)
    half = rgb[..., 0] >= 128
    np.testing.assert_array_equal(as_grey(half), half * np.uint8(255))
    np.testing.assert_array_equal(as_grey(rgb.astype(">u2") * 257), as_grey(rgb))


def test_alpha_is_left_out(rng):
    rgb = colours(rng)
    rgba = np.dstack([rgb, rng.integers(0, 256, (30, 40), dtype=np.uint8)])
    np.testing.assert_array_equal(as_grey(rgba), as_grey(rgb))
    np.testing.assert_array_equal(as_grey(rgba[..., [0, 3]]), rgb[..., 0])


def test_one_pixel_is_an_image():
    np.testing.assert_array_equal(as_grey(np.array([[7]], np.uint8)), [[7]])
    np.testing.assert_array_equal(as_grey(Image.new("L", (1, 1), 7)), [[7]])


BAD_ARRAYS = {
    "floats above 1": (np.full((3, 3), 1.01), "from 1.01 to 1.01; expected floats from 0 to 1"),
    "floats below 0": (np.full((3, 3), -0.1), "from 0 to 1"),
    "NaN": (np.full((3, 3), np.nan), "from 0 to 1"),
    "whole numbers": (np.zeros((3, 3), np.int64), "got an image of int64; expected uint8"),
    "words": (np.full((3, 3), "a"), "expected uint8"),
    "objects": (np.full((3, 3), None), "expected uint8"),
    "complex": (np.zeros((3, 3), complex), "expected uint8"),
    "a row": (np.zeros(3, np.uint8), "got an image of shape .3,."),
    "a number": (np.array(3, np.uint8), "got an image of shape"),
    "five channels": (np.zeros((3, 3, 5), np.uint8), "1 to 4 channels"),
    "no channels": (np.zeros((3, 3, 0), np.uint8), "1 to 4 channels"),
    "several images": (np.zeros((2, 3, 3, 3), np.uint8), "got an image of shape"),
    "no rows": (np.zeros((0, 3), np.uint8), "3 x 0 pixels"),
    "too many pixels": (
        np.broadcast_to(np.uint8(0), (10_001, 10_000)),
        "10000 x 10001 pixels; expected at most 100,000,000",
    ),
    "a list": ([[1, 2]], "got a list for an image"),
    "nothing": (None, "got a NoneType for an image"),
    "bytes": (b"abc", "got a bytes for an image"),
}


@pytest.mark.parametrize(("image", "message"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_input_that_is_no_image_is_named(image, message):
    with pytest.raises(UnreadableImageError, match=message):
        as_grey(image)


def test_an_image_of_too_many_pixels_or_cut_short_is_named(tmp_path, rng):
    with pytest.raises(UnreadableImageError, match="at most 100,000,000"):
        as_grey(Image.new("1", (10_001, 10_000)))
    Image.fromarray(rng.integers(0, 256, (99, 99), dtype=np.uint8)).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) // 2])
    with Image.open(tmp_path / "a.jpg") as opened, pytest.raises(UnreadableImageError, match="cannot be read"):
        as_grey(opened)


def test_real_images_have_floats_from_0_to_1(tmp_path, ramp):
    Image.fromarray((ramp / 255).astype(np.float32)).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(as_grey(tmp_path / "a.tif"), ramp)
    Image.fromarray(ramp.astype(np.float32)).save(tmp_path / "b.tif")
    with pytest.raises(UnreadableImageError, match="from 0 to 230"):
        as_grey(tmp_path / "b.tif")


def test_a_bgr_array_gives_the_grey_of_its_rgb_twin(rng):
    rgb = colours(rng)
    alpha = rng.integers(0, 256, (30, 40), dtype=np.uint8)
    bgr = rgb[..., ::-1]
    grey = as_grey(rgb)
    assert (as_grey(bgr) != grey).any()
    for same in (bgr, bgr.copy(), np.dstack([bgr, alpha]), bgr.astype(np.uint16) * 257, bgr / 255):
        np.testing.assert_array_equal(as_grey(same, color="bgr"), grey)


def test_the_order_of_channels_has_no_effect_on_grey_arrays_files_and_pillow_images(tmp_path, rng):
    rgb = colours(rng)
    Image.fromarray(rgb).save(tmp_path / "a.png")
    for image in (rgb[..., 0], rgb[..., :1], rgb[..., :2], Image.fromarray(rgb), tmp_path / "a.png"):
        np.testing.assert_array_equal(as_grey(image, color="bgr"), as_grey(image))
        np.testing.assert_array_equal(as_rgb(image, color="bgr"), as_rgb(image))


@pytest.mark.parametrize("color", ["RGB", "grey", "", None])
@pytest.mark.parametrize("convert", [as_grey, as_rgb])
def test_an_unknown_order_of_channels_is_named(tmp_path, rng, color, convert):
    rgb = colours(rng)
    Image.fromarray(rgb).save(tmp_path / "a.png")
    for image in (rgb, rgb[..., 0], Image.fromarray(rgb), tmp_path / "a.png"):
        with pytest.raises(ValueError, match=f"got color={color!r}; expected 'rgb' or 'bgr'"):
            convert(image, color=color)


@pytest.mark.parametrize("mode", ["L", "1", "LA", "RGB", "RGBA", "P", "CMYK", "I;16", "F"])
def test_an_image_in_its_own_colours_has_the_greys_of_the_image(tmp_path, rng, mode):
    if mode == "I;16":
        image = Image.fromarray(rng.integers(0, 2**16, (30, 40), dtype=np.uint16))
    elif mode == "F":
        image = Image.fromarray(rng.random((30, 40), dtype=np.float32))
    else:
        image = Image.fromarray(colours(rng)).convert(mode)
    image.save(tmp_path / "a.tif")
    pixels = as_array(tmp_path / "a.tif")
    assert pixels.shape == ((30, 40, 3) if mode in ("RGB", "RGBA", "P", "CMYK") else (30, 40))
    np.testing.assert_array_equal(as_grey(pixels), as_grey(tmp_path / "a.tif"))
    np.testing.assert_array_equal(as_grey(as_rgb(image)), as_grey(image))


def test_colours_stay_as_they_are(tmp_path, rng):
    rgb = colours(rng)
    Image.fromarray(rgb).save(tmp_path / "a.png")
    for image in (rgb, tmp_path / "a.png", Image.fromarray(rgb)):
        np.testing.assert_array_equal(as_rgb(image), rgb)
    np.testing.assert_array_equal(as_rgb(rgb[..., ::-1], color="bgr"), rgb)


def test_reading_an_image_loads_neither_annotations_nor_xml():
    code = "import sys, whet.io.image_files; print(*(name for name in sys.modules if name.startswith('whet')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(loaded) == ["whet", "whet.arrays", "whet.errors", "whet.io", "whet.io.files", "whet.io.image_files"]
