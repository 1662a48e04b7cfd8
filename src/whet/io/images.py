"""Images as grey arrays, one by one or many by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataNotFoundError, UnreadableImageError

if TYPE_CHECKING:
    from PIL.Image import Image

    ImageLike = str | PathLike[str] | Image | NDArray[Any]

# Refused before any pixel is decoded: 100 megapixels of grey are 100 MB, their integrals another 800.
MOST_PIXELS = 100_000_000


def as_grey(image: ImageLike) -> NDArray[np.uint8]:
    """An image (height, width) in 256 greys, from a file's path, a Pillow image or an array.

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
    """An image (height, width) in 256 greys, turned upright as its EXIF orientation says.

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


class GreyFiles(Sequence[NDArray[np.uint8]]):
    """Grey images (height, width) of these files, in their order; they need not fit into memory together.

    >>> len(GreyFiles([Path("a.png"), Path("b.png")]))
    2
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...

    @overload
    def __getitem__(self, index: slice) -> GreyFiles: ...

    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | GreyFiles:
        return GreyFiles(self.paths[index]) if isinstance(index, slice) else read_grey(self.paths[index])


# What is looked for in folders; a file that is named is taken whatever its name.
SUFFIXES = frozenset(
    [
        ".avif",
        ".bmp",
        ".dib",
        ".gif",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pbm",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tga",
        ".tif",
        ".tiff",
        ".webp",
    ]
)


def find_images(names: Iterable[str | Path], listed: Iterable[str] = ()) -> list[Path]:
    """The images that names stand for, each once: files, folders with all below, and patterns such as `*/a*.png`.

    The name `-` stands for the names in `listed`, a line each, which a program may write to standard input.
    Names keep their order; what lies in a folder comes in the order in which people count: 2 before 10. Raises
    `DataNotFoundError` for a name that leads nowhere, and where there is no image at all.

    >>> find_images(["nowhere.png"])
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: there is no file or folder nowhere.png, and no file of such a pattern
    """
    found = dict.fromkeys(path for name in _spelled_out(names, listed) for path in _meant(name))
    if not found:
        raise DataNotFoundError(f"there is no image in {_brief(names)}; looked for {', '.join(sorted(SUFFIXES))}")
    return list(found)


def is_image_name(path: Path) -> bool:
    """Whether a file's name is that of an image, and not of a hidden file.

    >>> is_image_name(Path("A.JPG")), is_image_name(Path("a.txt")), is_image_name(Path("._a.jpg"))
    (True, False, False)
    """
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def files_in(folder: Path) -> Iterator[Path]:
    """All files under a folder but hidden ones."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in sorted(names) if not name.startswith("."))


def counting_order(path: Path) -> list[tuple[int, str]]:
    """A key that sorts file names as people count.

    >>> sorted(map(Path, ["a10.png", "a2.png"]), key=counting_order)
    [PosixPath('a2.png'), PosixPath('a10.png')]
    """
    pieces = re.split(r"(\d+)", str(path))
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def _spelled_out(names: Iterable[str | Path], listed: Iterable[str]) -> Iterator[str]:
    for name in map(str, names):
        if name == "-":
            yield from (line.rstrip("\r\n") for line in listed if line.strip())
        else:
            yield name


def _meant(name: str) -> Sequence[Path]:
    path = Path(name)
    if path.is_dir():
        return sorted((file for file in files_in(path) if is_image_name(file) and file.is_file()), key=counting_order)
    if path.exists():
        return [path]
    if has_magic(name):
        matches = sorted(map(Path, glob(name, recursive=True)), key=counting_order)
        if matches:
            return [image for match in matches for image in ([match] if match.is_file() else _meant(str(match)))]
    raise DataNotFoundError(f"there is no file or folder {name}, and no file of such a pattern")


def _brief(names: Iterable[str | Path], most: int = 3) -> str:
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
