"""The images of a project: pixels, files for the browser, and near-duplicates. Clients name images by opaque ids."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np

from whet.arrays import Pixels
from whet.corrections.records import image_hash
from whet.errors import UnknownItemError, UnreadableImageError
from whet.io.files import printable
from whet.io.image_files import as_array
from whet.web.store import Store, StoredImage

log = logging.getLogger(__name__)

FileState = tuple[int, int] | None
T = TypeVar("T")

# Characters of the hash of an image's pixels that name it.
ID_LENGTH = 32
MOST_UPLOAD_PIXELS = 25_000_000
# Formats that are decoded from uploads: Pillow's others are seldom used, and seldom audited.
UPLOAD_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
QUALITY = 90
THUMBNAIL = 192
# Near-duplicates differ in few of the HASH_SIDE x HASH_SIDE comparisons of neighbouring pixels of a reduced image.
HASH_SIDE, ALIKE = 16, 26


class ByteCache:
    """Values by name, the least recently used dropped when they take more than some bytes.

    >>> cache = ByteCache(10, len)
    >>> cache.get("a", lambda: "12345678"), cache.get("b", lambda: "1234"), cache.get("a", lambda: "new")
    ('12345678', '1234', 'new')
    """

    def __init__(self, most: int, size: Callable[[object], int]) -> None:
        self._most, self._size, self._used = most, size, 0
        self._values: OrderedDict[object, object] = OrderedDict()
        self._lock = Lock()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The value of a key; `make` is called where it is not known."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]  # type: ignore[return-value] # what `make` made for this key
        value = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._used += self._size(value)
            while self._used > self._most and len(self._values) > 1:
                self._used -= self._size(self._values.popitem(last=False)[1])
        return value


class Gallery:
    """Images of a project by id. Files stay where they are; uploads and video frames are kept in the project."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._images = {image.id: image for image in store.images()}
        # A project knows images of earlier runs too: those that are not given now are shown if they have labels.
        self._shown: dict[str, None] = {image.id: None for image in self._images.values() if image.path is None}
        self._pixels = ByteCache(256_000_000, lambda value: value.nbytes)  # type: ignore[attr-defined]
        self._files = ByteCache(128_000_000, lambda value: len(value))  # type: ignore[arg-type]
        self._groups: dict[str, int] = {}
        # Images that could not be read, with the state of their files then.
        self._unreadable: dict[str, FileState] = {}
        self._gone: frozenset[str] = frozenset()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._shown)

    def __iter__(self) -> Iterator[StoredImage]:
        with self._lock:
            shown = list(self._shown)
        return (self._images[key] for key in shown)

    def __contains__(self, key: object) -> bool:
        return key in self._images

    def __getitem__(self, key: str) -> StoredImage:
        if key not in self._images:
            raise UnknownItemError(f"got image {key[:40]!r}; expected the id of one of the {len(self)} images")
        return self._images[key]

    def show_labelled(self, ids: Iterable[str | None]) -> None:
        """Also show images of earlier runs that have labels and can still be read."""
        with self._lock:
            for key in ids:
                image = self._images.get(key or "")
                if image is not None and (image.path is None or Path(image.path).is_file()):
                    self._shown[image.id] = None

    def add_files(self, paths: Sequence[Path], at_once: int = 16) -> Iterator[list[StoredImage]]:
        """Add image files, some at a time; files that cannot be read are left out, and named in the log."""
        with self._lock:
            known = {(image.path, image.file_time, image.file_size): image for image in self._images.values()}
        for start in range(0, len(paths), at_once):
            added, new = [], []
            for path in paths[start : start + at_once]:
                try:
                    state = path.stat()
                    image = known.get((str(path.resolve()), state.st_mtime_ns, state.st_size))
                    if image is None:
                        image = self._of_file(path, state.st_mtime_ns, state.st_size)
                        new.append((image, None))
                except (OSError, UnreadableImageError) as error:
                    log.warning("Warning: skipped %s", printable(str(error)))
                    continue
                added.append(image)
            if new:
                self._store.add_images(new)
            with self._lock:
                for image in added:
                    self._images[image.id] = image
                    self._shown[image.id] = None
            yield added

    def _of_file(self, path: Path, time: int, size: int) -> StoredImage:
        image = _described(as_array(path), path.name, str(path.resolve()), time, size)
        before = self._images.get(image.id, image)
        return replace(image, truth=before.truth, locked_at=before.locked_at)

    @property
    def missing(self) -> frozenset[str]:
        """Images whose files are gone or cannot be read: shown as missing, and in no queue and no count."""
        return self._gone.union(self._unreadable)

    @property
    def readable(self) -> list[StoredImage]:
        """The images that are not missing."""
        missing = self.missing
        return [image for image in self if image.id not in missing]

    def leave_out(self, key: str) -> None:
        """Note an image that cannot be read."""
        if _is_gone(self[key]):
            self._gone |= {key}
        else:
            self._unreadable = {**self._unreadable, key: _file_state(self[key])}

    def check_files(self) -> bool:
        """Check which files are gone; returns whether `missing` has changed.

        A file that is back is used again, and one that could not be read is read again after it was written.
        """
        before = self.missing
        self._gone = frozenset(image.id for image in self if _is_gone(image))
        self._unreadable = {key: state for key, state in self._unreadable.items() if _file_state(self[key]) == state}
        return self.missing != before

    def add_pixels(self, pixels: Pixels, name: str) -> StoredImage:
        """Keep an image in the project itself, without loss."""
        image = _described(pixels, name)
        if image.id not in self._images:
            self._store.add_images([(image, _encoded(pixels, "PNG"))])
        with self._lock:
            image = self._images.setdefault(image.id, image)
            self._shown[image.id] = None
        return image

    def update(self, image: StoredImage) -> None:
        """Replace what is known of an image."""
        self._images[image.id] = image

    def pixels(self, key: str) -> Pixels:
        """The pixels of an image, grey (height, width) or RGB (height, width, 3)."""
        image = self[key]

        def read() -> Pixels:
            pixels = self._read(image)
            if image_hash(pixels)[:ID_LENGTH] != image.id:
                raise UnknownItemError(f"{image.name} has changed since it was opened; start the studio again")
            return pixels

        return self._pixels.get(key, read)

    def _read(self, image: StoredImage) -> Pixels:
        if image.path is None:
            content = self._store.content(image.id)
            if content is None:
                raise UnknownItemError(f"{image.name} is not in the project; start the studio with its folder")
            return decode(content, MOST_UPLOAD_PIXELS * 4)
        try:
            return as_array(Path(image.path))  # never a URL: a project may come from anyone
        except (UnreadableImageError, OSError) as error:
            raise UnknownItemError(f"{image.name} cannot be read any more; start the studio again") from error

    def jpeg(self, key: str) -> bytes:
        """An image for the browser."""
        return self._files.get(("image", key), lambda: _encoded(self.pixels(key), "JPEG"))

    def thumbnail(self, key: str) -> bytes:
        """A small copy of an image."""
        return self._files.get(("thumbnail", key), lambda: _encoded(_reduced(self.pixels(key)), "JPEG"))

    def groups(self, images: Sequence[StoredImage]) -> dict[str, int]:
        """A number for each of these images; near-duplicates have the same.

        Other threads may add images meanwhile, so the caller says which it has.
        """
        ids, groups = [image.id for image in images], self._groups
        if groups.keys() != set(ids):
            groups = dict(zip(ids, alike([image.perceptual_hash for image in images]), strict=True))
            self._groups = groups
        return groups


def _is_gone(image: StoredImage) -> bool:
    return image.path is not None and not Path(image.path).is_file()


def _file_state(image: StoredImage) -> FileState:
    """When the file of an image was written, and its size; None without a file."""
    try:
        state = None if image.path is None else Path(image.path).stat()
    except OSError:
        return None
    return None if state is None else (state.st_mtime_ns, state.st_size)


def _described(
    pixels: Pixels, name: str, path: str | None = None, time: int | None = None, size: int | None = None
) -> StoredImage:
    key = image_hash(pixels)[:ID_LENGTH]
    return StoredImage(key, name, pixels.shape[1], pixels.shape[0], path, time, size, perceptual_hash(pixels))


def decode(data: bytes, most_pixels: int = MOST_UPLOAD_PIXELS) -> Pixels:
    """Decode an image file from a client; its size is checked before any pixel is decoded.

    >>> decode(b"no image")
    Traceback (most recent call last):
    whet.errors.UnreadableImageError: the upload cannot be read as an image...
    """
    from PIL import Image

    try:
        with Image.open(BytesIO(data), formats=UPLOAD_FORMATS) as image:
            if image.width * image.height > most_pixels:
                raise UnreadableImageError(
                    f"the upload has {image.width} x {image.height} pixels; expected at most {most_pixels:,}: "
                    "resize the image"
                )
            return as_array(image)
    except UnreadableImageError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, NotImplementedError) as error:
        kinds = ", ".join(UPLOAD_FORMATS)
        # The first line, without addresses of objects in memory.
        reason = str(error).partition("\n")[0].partition("<")[0].strip(" .") or type(error).__name__
        raise UnreadableImageError(
            f"the upload cannot be read as an image: {reason}; expected a whole file, one of {kinds}"
        ) from error


def _encoded(pixels: Pixels, form: str) -> bytes:
    from PIL import Image

    content = BytesIO()
    Image.fromarray(pixels).save(content, form, **({"quality": QUALITY} if form == "JPEG" else {"compress_level": 1}))
    return content.getvalue()


def _reduced(pixels: Pixels) -> Pixels:
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(image)


def perceptual_hash(pixels: Pixels) -> bytes:
    """A difference hash: which of two neighbouring pixels of a reduced image is brighter."""
    from PIL import Image

    grey = Image.fromarray(pixels).convert("L").resize((HASH_SIDE + 1, HASH_SIDE), Image.Resampling.BILINEAR)
    values = np.asarray(grey, np.int16)
    return np.packbits(values[:, 1:] > values[:, :-1]).tobytes()


def alike(hashes: Sequence[bytes]) -> list[int]:
    """A group for each hash: those that differ in few bits from one in the group belong to it.

    >>> alike([bytes(32), bytes([1]) + bytes(31), bytes([255] * 32)])
    [0, 0, 2]
    """
    if not hashes:
        return []
    n_bytes = HASH_SIDE * HASH_SIDE // 8
    bits = np.unpackbits(np.frombuffer(b"".join(one.ljust(n_bytes, b"\0") for one in hashes), np.uint8))
    signs = bits.reshape(len(hashes), -1).astype(np.float32) * 2 - 1
    group = list(range(len(hashes)))

    def first(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for start in range(0, len(hashes), 512):
        same = signs[start : start + 512] @ signs.T
        for i, j in np.argwhere(same >= HASH_SIDE * HASH_SIDE - 2 * ALIKE).tolist():
            one, other = first(start + i), first(j)
            group[max(one, other)] = min(one, other)
    return [first(i) for i in range(len(hashes))]
