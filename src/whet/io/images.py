"""Pictures as grey arrays."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import UnreadableImageError

if TYPE_CHECKING:
    from PIL.Image import Image

    ImageLike = str | PathLike[str] | Image | NDArray[Any]

# Refused before any pixel is decoded: 100 megapixels of grey are 100 MB, their integrals another 800.
MOST_PIXELS = 100_000_000


def as_grey(image: ImageLike) -> NDArray[np.uint8]:
    """A picture (height, width) in 256 greys, from a file's path, a Pillow image or an array.

    Arrays are (height, width), or (height, width, channels) with grey, grey and alpha, RGB or RGBA; of 8 or 16 bits,
    bool, or floats from 0 to 1. Alpha is left out. Files and Pillow images are turned upright as their EXIF
    orientation says. An array of a palette image holds indices, and one of a CMYK image looks like RGBA: neither
    is known by its array, so hand over the image itself.

    >>> as_grey(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=np.uint8))
    array([[ 76, 150,  29]], dtype=uint8)
    >>> as_grey(np.array([[0.0, 0.5, 1.0]]))
    array([[  0, 128, 255]], dtype=uint8)
    """
    if isinstance(image, np.ndarray):
        return _grey_of_array(image)
    if isinstance(image, str | PathLike):
        return read_grey(Path(fspath(image)))
    from PIL import Image

    if not isinstance(image, Image.Image):
        raise UnreadableImageError(
            f"got a {type(image).__name__} for an image; expected a path, a Pillow image or a NumPy array"
        )
    try:
        return _grey_of_opened(image, "the image")
    except (OSError, SyntaxError, ValueError) as error:
        raise _unreadable(error, "the image") from error


def read_grey(path: Path) -> NDArray[np.uint8]:
    """A picture (height, width) in 256 greys, turned upright as its EXIF orientation says.

    Raises `UnreadableImageError` for what is not an image, is cut short, or has over 100 megapixels.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            return _grey_of_opened(opened, str(path))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, NotImplementedError) as error:
        raise _unreadable(error, str(path)) from error


def _unreadable(error: Exception, name: str) -> UnreadableImageError:
    if isinstance(error, UnreadableImageError):
        return error
    return UnreadableImageError(f"{name} cannot be read as an image: {error}")


def _grey_of_opened(opened: Image, name: str) -> NDArray[np.uint8]:
    from PIL import ImageOps

    _check_size(opened.height, opened.width, name)
    upright = ImageOps.exif_transpose(opened)
    if upright.mode == "I":  # 16 bits in 32: Pillow would clip at 255 instead of scaling
        return (np.asarray(upright).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
    if upright.mode == "F" or upright.mode.startswith("I;"):
        return _grey_of_array(np.asarray(upright))
    return np.asarray(upright.convert("L"))


def _grey_of_array(array: NDArray[Any]) -> NDArray[np.uint8]:
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or not 1 <= channels <= 4:
        raise UnreadableImageError(
            f"got an image of shape {array.shape}; expected (height, width), or with 1 to 4 channels behind"
        )
    _check_size(array.shape[0], array.shape[1], "the image")
    if channels > 2:
        from PIL import Image

        # By Pillow, so that an array has the greys of the file that it was read from.
        return np.asarray(Image.fromarray(np.ascontiguousarray(_eight_bits(array[..., :3]))).convert("L"))
    return np.ascontiguousarray(_eight_bits(array if array.ndim == 2 else array[..., 0]))


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    match array.dtype.kind, array.dtype.itemsize:
        case "u", 1:
            return array
        case "u", 2:
            return (array >> 8).astype(np.uint8)
        case "b", _:
            return array.astype(np.uint8) * np.uint8(255)
        case "f", _:
            if not ((array >= 0) & (array <= 1)).all():
                raise UnreadableImageError(
                    f"got an image of floats from {array.min():g} to {array.max():g}; expected them from 0 to 1"
                )
            return np.rint(array.astype(np.float64) * 255).astype(np.uint8)
    raise UnreadableImageError(
        f"got an image of {array.dtype}; expected uint8, uint16, bool, or floats from 0 to 1: convert it first"
    )


def _check_size(height: int, width: int, name: str) -> None:
    if not height * width:
        raise UnreadableImageError(f"{name} has {width} x {height} pixels; expected at least one")
    if height * width > MOST_PIXELS:
        raise UnreadableImageError(f"{name} has {width} x {height} pixels, more than {MOST_PIXELS:,}; make it smaller")
