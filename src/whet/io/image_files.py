"""Read images: one image as a grey or colour array, its size, and the image files that a path or a pattern names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from whet.arrays import Pixels
from whet.errors import DataNotFoundError, RemoteError, UnreadableImageError
from whet.io.files import as_path, as_remote, open_regular, shown_name

if TYPE_CHECKING:
    from PIL.Image import Image

    ImageLike = str | PathLike[str] | Image | NDArray[Any]

ColorOrder = Literal["rgb", "bgr"]

# Refused before any pixel is decoded: 100 megapixels of grey take 100 MB, their integral images another 800 MB.
MAX_PIXELS = 100_000_000
# Pillow keeps eight bytes for each row, and a level has a padding: a single row of more pixels takes gigabytes.
MAX_SIDE = 10_000_000
# Pixels of larger images are converted in parts of this many.
CONVERTED_AT_ONCE = 1 << 24
# Pillow reads others, too: EPS files start Ghostscript, whatever their suffix. The most frequent come first.
FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "PPM", "TIFF", "WEBP", "JPEG2000", "TGA", "AVIF")
EXIF_ORIENTATION = 0x0112


def as_grey(image: ImageLike, color: ColorOrder = "rgb") -> Pixels:
    """Return an image as a grey array (height, width) of uint8.

    `image` is a file path or a URL (extra `remote`), a Pillow image, or an array (height, width) or (height, width,
    channels). The channels are grey, grey and alpha, RGB, or RGBA; alpha is ignored. Set `color="bgr"` for BGR and BGRA
    arrays, such as those of `cv2.imread`; it has no effect on files and Pillow images, which know the order of their
    channels. Arrays hold uint8, uint16, bool, or floats from 0 to 1. Files and Pillow images are rotated by their EXIF
    orientation.

    Pass palette and CMYK images as files or Pillow images. Their arrays look like grey and RGBA arrays.

    >>> as_grey(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=np.uint8))
    array([[ 76, 150,  29]], dtype=uint8)
    >>> as_grey(np.array([[[0, 0, 255], [0, 255, 0], [255, 0, 0]]], dtype=np.uint8), color="bgr")
    array([[ 76, 150,  29]], dtype=uint8)
    >>> as_grey(np.array([[0.0, 0.5, 1.0]]))
    array([[  0, 128, 255]], dtype=uint8)
    """
    if isinstance(image, np.ndarray):
        return _grey_from_array(image, color)
    _check_color(color)
    if isinstance(image, str | PathLike):
        return read_grey(as_path(image))
    with _opened(image) as (pillow, name):
        return _grey_from_pillow(pillow, name)


def as_rgb(image: ImageLike, color: ColorOrder = "rgb") -> Pixels:
    """Return an image as a colour array (height, width, 3) of uint8, for drawing; see `as_grey` for `image`.

    >>> as_rgb(np.array([[7]], dtype=np.uint8)).tolist()
    [[[7, 7, 7]]]
    >>> as_rgb(np.array([[[0, 0, 255]]], dtype=np.uint8), color="bgr").tolist()
    [[[255, 0, 0]]]
    """
    pixels = as_array(image, color)
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)


def as_array(image: ImageLike, color: ColorOrder = "rgb") -> Pixels:
    """Return an image in its own colours: RGB (height, width, 3), or grey (height, width) if it has no colours.

    `as_grey` gives the same grey values for the result and for `image`.

    >>> as_array(np.zeros((4, 5, 1), dtype=np.uint8)).shape, as_array(np.zeros((4, 5, 4), dtype=np.uint8)).shape
    ((4, 5), (4, 5, 3))
    """
    if isinstance(image, np.ndarray):
        is_colour = _checked_channels(image) > 2
        return _rgb_from_array(image, color) if is_colour else _grey_from_array(image, color)
    _check_color(color)
    with _opened(image) as (pillow, name):
        if pillow.mode in GREY_MODES or pillow.mode.startswith("I;"):
            return _grey_from_pillow(pillow, name)
        return _converted(_upright(pillow, name), lambda part: np.asarray(part.convert("RGB")), 3)


def read_grey(path: Path) -> Pixels:
    """Read an image file as a grey array (height, width) of uint8, rotated by its EXIF orientation.

    Raises `UnreadableImageError` if the file is not an image, is truncated, or has more than 100 megapixels.
    """
    with _opened(path) as (pillow, name):
        return _grey_from_pillow(pillow, name)


def read_upright(path: Path) -> Image:
    """Read an image file as a Pillow image in its own mode, rotated by its EXIF orientation."""
    with _opened(path) as (pillow, name):
        return _upright(pillow, name).copy()


def image_shape(path: Path) -> tuple[int, int]:
    """Return the height and width of an image file, rotated by its EXIF orientation.

    Only the header is read, except for TIFF files with an orientation that exchanges height and width.
    """
    with _opened(path) as (pillow, name):
        is_swapped = False
        with suppress(OSError):  # Pillow looks for it behind the pixels of a PNG file, whose end may be missing
            is_swapped = pillow.getexif().get(EXIF_ORIENTATION) in (5, 6, 7, 8)  # height and width exchanged
        if is_swapped and pillow.format == "TIFF":
            pillow.load()  # rotates the image; until then `size` may be either of the two
            is_swapped = False
        width, height = pillow.size
        _check_size(height, width, name)
    return (width, height) if is_swapped else (height, width)


def shape_or_error(path: Path) -> tuple[int, int] | UnreadableImageError:
    """The same, or why it cannot be read, so that others are read on."""
    try:
        return image_shape(path)
    except UnreadableImageError as error:
        return error


# Modes without colours. Those with "I" and "F" hold more than 8 bits, which Pillow clips instead of scaling.
GREY_MODES = ("1", "L", "LA", "La", "I", "F")


@contextmanager
def _opened(image: str | PathLike[str] | Image) -> Iterator[tuple[Image, str]]:
    """Open a file, or take a Pillow image as it is; errors of Pillow become `UnreadableImageError`."""
    from PIL import Image, UnidentifiedImageError

    if not isinstance(image, str | PathLike | Image.Image):
        raise UnreadableImageError(
            f"got a {type(image).__name__} for an image; expected a path, a Pillow image or a NumPy array"
        )
    name = "the image" if isinstance(image, Image.Image) else shown_name(image)
    try:
        if isinstance(image, Image.Image):
            yield image, name
        else:
            with open_regular(as_path(image)) as file, Image.open(file, formats=FORMATS) as opened:
                yield opened, name
    except UnreadableImageError:
        raise
    except RemoteError as error:
        raise UnreadableImageError(str(error)) from error
    except FileNotFoundError as error:
        raise UnreadableImageError(f"{name} cannot be read: no such file") from error
    except (UnidentifiedImageError, KeyError) as error:  # KeyError: a Pillow without AVIF
        raise UnreadableImageError(
            f"{name} cannot be read as an image: expected one of {', '.join(FORMATS)}"
        ) from error
    except Exception as error:  # a decoder raises whatever it runs into in damaged bytes
        reason = str(error) or type(error).__name__
        raise UnreadableImageError(f"{name} cannot be read as an image: {reason}") from error


def _upright(image: Image, name: str) -> Image:
    from PIL import ImageOps

    _check_size(image.height, image.width, name)
    image.load()  # PNG files have their orientation behind the pixels; TIFF files are rotated by this
    # No copy of an image that is upright already: it may take 400 MB.
    return ImageOps.exif_transpose(image) if image.getexif().get(EXIF_ORIENTATION, 1) != 1 else image


def _grey_from_pillow(image: Image, name: str) -> Pixels:
    upright = _upright(image, name)
    if upright.mode == "I":  # 16 bits in 32
        return _converted(upright, lambda part: (np.asarray(part).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if upright.mode == "F" or upright.mode.startswith("I;"):
        return _converted(upright, lambda part: _grey_from_array(np.asarray(part)))
    return _converted(upright, lambda part: np.asarray(part.convert("L")))


def _converted(image: Image, convert: Callable[[Image], Pixels], colours: int = 0) -> Pixels:
    """The pixels of an image, converted in parts if it is large: Pillow's copies take four bytes a pixel and more."""
    width, height = image.size
    if width * height <= CONVERTED_AT_ONCE:
        return convert(image)
    out = np.empty((height, width, colours) if colours else (height, width), np.uint8)
    columns = min(width, CONVERTED_AT_ONCE)
    rows = CONVERTED_AT_ONCE // columns
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            right, bottom = min(left + columns, width), min(top + rows, height)
            out[top:bottom, left:right] = convert(image.crop((left, top, right, bottom)))
    return out


def _grey_from_array(array: NDArray[Any], color: ColorOrder = "rgb") -> Pixels:
    if _checked_channels(array) > 2:
        from PIL import Image

        # Pillow computes the grey values, so that an array and the file that it was read from give the same.
        return np.asarray(Image.fromarray(_rgb_from_array(array, color)).convert("L"))
    _check_color(color)
    return np.ascontiguousarray(_eight_bits(array if array.ndim == 2 else array[..., 0]))


def _rgb_from_array(array: NDArray[Any], color: ColorOrder) -> Pixels:
    _check_color(color)
    return np.ascontiguousarray(_eight_bits(array[..., :3] if color == "rgb" else array[..., 2::-1]))


def _checked_channels(array: NDArray[Any]) -> int:
    channels = int(array.shape[2]) if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or not 1 <= channels <= 4:
        raise UnreadableImageError(
            f"got an image of shape {array.shape}; expected (height, width) or (height, width, channels) with "
            "1 to 4 channels"
        )
    _check_size(array.shape[0], array.shape[1], "the image")
    return channels


def _check_color(color: str) -> None:
    if color not in get_args(ColorOrder):
        raise ValueError(f"got color={color!r}; expected 'rgb' or 'bgr'")


def _eight_bits(array: NDArray[Any]) -> Pixels:
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
                    f"got an image of floats from {array.min():g} to {array.max():g}; expected floats from 0 to 1"
                )
            return np.rint(array.astype(np.float64) * 255).astype(np.uint8)
    raise UnreadableImageError(
        f"got an image of {array.dtype}; expected uint8, uint16, bool, or floats from 0 to 1; convert it first"
    )


def _check_size(height: int, width: int, name: str) -> None:
    if not height * width:
        raise UnreadableImageError(f"{name} has {width} x {height} pixels; expected at least one pixel")
    if height * width > MAX_PIXELS:
        raise UnreadableImageError(
            f"{name} has {width} x {height} pixels; expected at most {MAX_PIXELS:,}: resize the image"
        )
    if max(height, width) > MAX_SIDE:
        raise UnreadableImageError(
            f"{name} has {width} x {height} pixels; expected at most {MAX_SIDE:,} on a side: cut the image"
        )


# Suffixes of the images in a directory. A file that is given by its name may have any suffix.
SUFFIXES = {".avif", ".bmp", ".dib", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png"}
SUFFIXES |= {".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp"}


def find_images(names: Iterable[str | Path], listed: Iterable[str] = ()) -> list[Path]:
    """List the image files that paths, directories (searched recursively) and patterns such as `*/a*.png` name.

    Paths and directories may be URLs; these have no patterns.

    The name `-` stands for the lines of `listed`, one path each, for example those of standard input. Names keep their
    order, and a file appears once. Files in a directory are sorted by natural order: 2 before 10. Raises
    `DataNotFoundError` if a name matches nothing, or if no image is found at all.

    >>> find_images(["missing.png"])
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: no such file or directory: missing.png
    """
    given = list(map(str, names))
    lines = (line.rstrip("\r\n") for line in listed if line.strip())
    every = (name for text in given for name in (lines if text == "-" else [text]))
    paths = list(dict.fromkeys(path for name in every for path in _matches(name)))
    if not paths:
        shown = ", ".join(map(shown_name, given[:3])) + (f" and {len(given) - 3} more" if len(given) > 3 else "")
        raise DataNotFoundError(f"found no image in {shown}; expected files with {', '.join(sorted(SUFFIXES))}")
    return paths


def is_image_name(path: Path) -> bool:
    """Return whether a file has the suffix of an image and is not hidden.

    >>> is_image_name(Path("A.JPG")), is_image_name(Path("a.txt")), is_image_name(Path("._a.jpg"))
    (True, False, False)
    """
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def images_in(folder: Path) -> list[Path]:
    """List the image files under a directory, sorted by path."""
    return sorted(path for path in files_in(folder) if is_image_name(path))


def files_in(folder: Path) -> Iterator[Path]:
    """Iterate over the files under a directory or a URL, without hidden files and directories."""
    remote = as_remote(folder)
    if remote is not None:
        yield from cast(Iterator[Path], remote.files())
        return
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in sorted(names) if not name.startswith("."))


def natural_order(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that compares the numbers in file names by value.

    >>> sorted(map(Path, ["a10.png", "a2.png"]), key=natural_order)
    [PosixPath('a2.png'), PosixPath('a10.png')]
    """
    pieces = re.split(r"(\d+)", str(path))
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def _matches(name: str) -> Sequence[Path]:
    from glob import has_magic

    path = as_path(name)
    if as_remote(path) is not None:
        # No request for what is named as an image; a single object without such a name lists itself.
        files = (
            [path] if is_image_name(path) else [file for file in files_in(path) if is_image_name(file) or file == path]
        )
        return sorted(files, key=natural_order)
    if path.is_dir():
        return sorted((file for file in files_in(path) if is_image_name(file) and file.is_file()), key=natural_order)
    if path.exists():
        return [path]
    if not has_magic(name):
        raise DataNotFoundError(f"no such file or directory: {name}")
    matches = sorted(_glob(Path(path.anchor), path.relative_to(path.anchor).parts), key=natural_order)
    if not matches:
        raise DataNotFoundError(f"no file or directory matches the pattern {name}; expected the path of an image")
    return [image for match in matches for image in ([match] if match.is_file() else _matches(str(match)))]


def _glob(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Paths under a directory that match a pattern; `**` enters no links, which may lead back to where they are."""
    from fnmatch import fnmatchcase
    from glob import has_magic

    if not parts:
        yield folder
        return
    part, *rest = parts
    if not has_magic(part):
        if os.path.lexists(folder / part):
            yield from _glob(folder / part, rest)
        return
    names = sorted(os.listdir(folder)) if folder.is_dir() and os.access(folder, os.R_OK) else []
    if part != "**":
        matching = (name for name in names if fnmatchcase(name, part) and (part[0] == "." or name[0] != "."))
        for name in matching:
            yield from _glob(folder / name, rest)
        return
    while rest[:1] == ["**"]:
        rest = rest[1:]
    yield from _glob(folder, rest)
    for inner in (folder / name for name in names if name[0] != "."):
        if inner.is_dir() and not inner.is_symlink():
            yield from _glob(inner, ["**", *rest])
