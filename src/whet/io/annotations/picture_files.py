"""The pictures that annotations name: where their files are, and how large they are upright."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from functools import cached_property
from pathlib import Path, PureWindowsPath

from whet.errors import UnreadableImageError
from whet.io.images import MOST_PIXELS
from whet.io.pictures import files_in, is_picture_name

# Where formats keep pictures beside their annotations.
USUAL_FOLDERS = ("", "images", "JPEGImages", "../images", "../JPEGImages")
EXIF_ORIENTATION = 0x0112
LYING = (5, 6, 7, 8)  # orientations that exchange height and width


def pictures_in(folder: Path) -> list[Path]:
    """All files under a folder that are named like pictures, sorted."""
    return sorted(path for path in files_in(folder) if is_picture_name(path))


def upright_shape(path: Path) -> tuple[int, int]:
    """Height and width of a picture, turned upright as its EXIF orientation says.

    Only the header is read, but of a TIFF that lies on its side.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            lies = opened.getexif().get(EXIF_ORIENTATION) in LYING
            if lies and opened.format == "TIFF":
                opened.load()  # which turns it; the size before that is not the one of the file
                lies = False
            width, height = opened.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, NotImplementedError) as error:
        raise UnreadableImageError(f"{path} cannot be read as an image: {error}") from error
    if not 0 < height * width <= MOST_PIXELS:
        raise UnreadableImageError(f"{path} has {width} x {height} pixels; expected 1 to {MOST_PIXELS:,} in all")
    return (width, height) if lies else (height, width)


class PictureFinder:
    """Finds the file of a picture by the name that annotations give it.

    A name is looked for as it stands, beside the annotations, in the folder of pictures, in the usual folders, and
    at last by its base name alone anywhere under these. Windows names are understood everywhere; letters that look the
    same are the same, however they are encoded.
    """

    def __init__(self, base: Path, images: Path | None = None) -> None:
        self.base, self.images = base, images
        given = [] if images is None else [images]
        self._folders = [*given, *(base / name for name in USUAL_FOLDERS), Path()]
        self._found: dict[str, Path | None] = {}

    def find(self, name: str) -> Path | None:
        """The picture's file, or None."""
        if name not in self._found:
            self._found[name] = self._in_folders(name) or self._by_base_name(name)
        return self._found[name]

    def _in_folders(self, name: str) -> Path | None:
        # A backslash may be part of a name on other systems than Windows: as it stands first.
        variants = dict.fromkeys(
            unicodedata.normalize(form, text) for text in (name, name.replace("\\", "/")) for form in ("NFC", "NFD")
        )
        for variant in dict.fromkeys([name, *variants]):
            for folder in self._folders:
                if _is_file(folder / variant):
                    # One file by one name; but not where a folder is a link, and .. leads elsewhere.
                    short = Path(os.path.normpath(folder / variant))
                    return short if _is_file(short) else folder / variant
        return None

    def _by_base_name(self, name: str) -> Path | None:
        # Of several files of one name, any could be the one that is meant.
        found = self._index.get(_key(PureWindowsPath(name).name), [])
        return found[0] if len(found) == 1 else None

    @cached_property
    def _index(self) -> dict[str, list[Path]]:
        index: dict[str, list[Path]] = defaultdict(list)
        for path in pictures_in(self.images or self.base):
            index[_key(path.name)].append(path)
        return index


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a null byte
        return False


def name_from(path: Path, folder: Path) -> str:
    """A picture's name in a file that is written to a folder: relative with slashes, or whole where nothing is shared.

    >>> name_from(Path("set/images/a.jpg"), Path("set/labels"))
    '../images/a.jpg'
    """
    target, here = os.path.abspath(path), os.path.abspath(folder)
    try:
        shared = os.path.commonpath([target, here])
    except ValueError:  # two drives
        shared = ""
    is_near = shared and Path(shared) != Path(shared).parent
    return Path(os.path.relpath(target, here) if is_near else target).as_posix()
