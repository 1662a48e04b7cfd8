"""What is kept of images, so that a model can be made again without them: crops, and what a model reads around a box.

A **crop** is a small part of an image, of an object or of a background, from which any window can be cut: a training
sample. A **region** is what a model's responses depend on in the windows around one box, exactly: where a later model
still makes the mistake of a correction, the windows of that correction are looked up there.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, isfinite, prod
from typing import Any, NamedTuple

import numpy as np

from whet.arrays import Bools, Boxes, Floats, Indices, Int64s, Pixels
from whet.errors import ModelFileError
from whet.images.boxes import cut_box
from whet.images.pyramid import Level, Pyramid, Span, WindowIndex, level_shape
from whet.models.contract import Model, family_of

# What a crop shows: an object, a background of an image whose objects are all known, a detection that somebody called
# wrong, a background that is never trained on (false positives are estimated by it), or one that touches an object.
OBJECT, BACKGROUND, MISTAKE, HELD_OUT, BESIDE = range(5)
# Pixels of a crop around the window, as a share of the window's mean side and in pixels of the window: room for copies,
# for windows of another shape, and for what models read around a window. Pixels of a crop for one of the window: copies
# of objects are turned and resized.
ROOM = {OBJECT: 0.2, BACKGROUND: 0.0, MISTAKE: 0.2, HELD_OUT: 0.2, BESIDE: 0.0}
CONTEXT = 16
FINER = {OBJECT: 1.5, BACKGROUND: 1.0, MISTAKE: 1.0, HELD_OUT: 1.0, BESIDE: 1.0}
QUALITY = 75
MOST_SIDE = 4096
# The arrays of crops in a file, with the shape of a row.
ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "role": ("|u1", ()),
    "image": ("|u1", (32,)),
    "box": ("<f8", (4,)),
    "place": ("<f8", (3,)),
    "end": ("<i8", ()),
}
# Bytes of what one record keeps, unpacked: hostile files have more.
MOST_BYTES = 1 << 24
MOST_PIXELS = 1 << 16
MOST_AREA, MOST_LEVELS, MOST_PLANES = 1 << 26, 100, 64
MOST_COORDINATE = 1e6
LEAST_SCALE = 0.1
# Cells around a window that its responses depend on, and pixels around a part of a level that is resampled.
RIM = 1
REACH = 8


class Crop(NamedTuple):
    """A part of an image, as WebP.

    `box` (4,) is that of the object, or of the window of a background, in the image with this SHA-256 `image`. The
    first pixel of the crop begins at `x`, `y` of the image, and each covers `scale` of the image's pixels.
    """

    role: int
    image: bytes
    box: tuple[float, float, float, float]
    x: float
    y: float
    scale: float
    data: bytes

    @classmethod
    def cut(cls, role: int, image: bytes, pixels: Pixels, box: Floats, window: Floats, shape: tuple[int, int]) -> Crop:
        """Cut the surroundings of a window (4,) of an image; models read `shape` (height, width) pixels of it."""
        from PIL import Image

        centre, sides = (window[:2] + window[2:]) / 2, window[2:] - window[:2]
        scale = float(sides[0] / shape[1] / FINER[role])
        if role == OBJECT:  # an enlargement adds nothing
            scale = max(scale, 1.0)
        room = ROOM[role] * float(np.sqrt(sides.prod())) + CONTEXT * sides[0] / shape[1]
        wanted = sides + 2 * room
        scale = max(scale, float(wanted.max()) / (MOST_SIDE - 1))
        columns, rows = (max(round(side / scale), 1) for side in wanted.tolist())
        low = centre - np.array([columns, rows]) * scale / 2
        part = cut_box(pixels, np.concatenate([low, low + np.array([columns, rows]) * scale]), (rows, columns))
        packed = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(part)).save(packed, "WEBP", quality=QUALITY, method=2)
        x1, y1, x2, y2 = map(float, box)
        return cls(role, image, (x1, y1, x2, y2), float(low[0]), float(low[1]), scale, packed.getvalue())

    def pixels(self) -> Pixels:
        """The pixels (height, width, 3); raises `ModelFileError` for what is none."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(self.data), formats=("WEBP",)) as image:
                if max(image.size) > MOST_SIDE:
                    raise ValueError(f"it has {image.size[0]} x {image.size[1]} pixels")
                return np.asarray(image.convert("RGB"))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise ModelFileError(f"a crop of the model cannot be read: {error}") from error

    def local(self, boxes: Boxes) -> Boxes:
        """Boxes (n, 4) of the image as boxes of the crop."""
        return np.asarray((boxes - [self.x, self.y, self.x, self.y]) / self.scale)


@dataclass(frozen=True, eq=False)
class Crops:
    """A set of crops, in the order of image, role, box and bytes; equal sets have equal arrays.

    >>> grey = np.full((60, 60, 3), 90, np.uint8)
    >>> one = Crop.cut(OBJECT, bytes(32), grey, np.array([9.0, 9, 39, 39]), np.array([5.0, 5, 43, 43]), (32, 32))
    >>> both = Crops.from_iterable([one, one._replace(role=BACKGROUND), one])
    >>> len(both), [crop.role for crop in both], both.pixels_of(0).shape
    (2, [0, 1], (91, 91, 3))
    """

    role: Pixels = field(default_factory=lambda: np.empty(0, np.uint8))
    image: Pixels = field(default_factory=lambda: np.empty((0, 32), np.uint8))
    box: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    place: Floats = field(default_factory=lambda: np.empty((0, 3)))
    end: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    data: Pixels = field(default_factory=lambda: np.empty(0, np.uint8))

    def __len__(self) -> int:
        return len(self.role)

    @classmethod
    def from_iterable(cls, crops: Iterable[Crop]) -> Crops:
        """Each crop once."""
        rows = sorted(set(crops), key=lambda crop: (crop.image, *crop))
        if not rows:
            return cls()
        return cls(
            np.array([row.role for row in rows], np.uint8),
            np.frombuffer(b"".join(row.image for row in rows), np.uint8).reshape(-1, 32),
            np.array([row.box for row in rows], np.float64),
            np.array([(row.x, row.y, row.scale) for row in rows], np.float64),
            np.cumsum([len(row.data) for row in rows], dtype=np.int64),
            np.frombuffer(b"".join(row.data for row in rows), np.uint8),
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Crops:
        """From the arrays of a file, checked; raises ValueError for what no crops have."""
        n = len(arrays["role"]) if arrays.get("role", np.empty(())).ndim == 1 else -1
        for name, (kind, shape) in ARRAYS.items():
            array = arrays.get(name)
            if array is None or array.dtype.str != kind or array.shape != (n, *shape):
                raise ValueError(f"crops lack the array {name}, or it does not fit the others")
        data = arrays.get("data")
        if data is None or data.dtype != np.uint8 or data.ndim != 1 or set(arrays) != {*ARRAYS, "data"}:
            raise ValueError("crops have other arrays than expected")
        crops = cls(**{name: np.ascontiguousarray(array) for name, array in arrays.items()})
        ends, place = crops.end, crops.place
        sound = (np.diff(ends, prepend=0) > 0).all() and (int(ends[-1]) if n else 0) == len(data)
        if not (sound and (crops.role <= BESIDE).all() and np.isfinite(crops.box).all()):
            raise ValueError("crops have no bytes, or boxes that are no numbers")
        boxes = crops.box
        sound = (abs(boxes) <= MOST_COORDINATE).all() and (boxes[:, :2] < boxes[:, 2:]).all()
        low = place[:, [0, 1, 0, 1]]
        if not (sound and (abs(place) <= MOST_COORDINATE).all() and (place[:, 2] > 0).all()):
            raise ValueError("crops have places that no image has")
        if not (abs(boxes - low) <= MOST_SIDE * place[:, 2:]).all():
            raise ValueError("crops do not show their boxes")
        return crops

    @property
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a file."""
        return {name: getattr(self, name) for name in (*ARRAYS, "data")}

    def __iter__(self) -> Iterator[Crop]:
        starts = np.append(0, self.end[:-1]).tolist()
        rows = zip(self.role.tolist(), self.image, self.box.tolist(), self.place.tolist(), strict=True)
        for (role, image, box, place), start, end in zip(rows, starts, self.end.tolist(), strict=True):
            x, y, scale = place
            yield Crop(role, image.tobytes(), tuple(box), x, y, scale, self.data[start:end].tobytes())

    def take(self, rows: Indices | Bools) -> Crops:
        """Those at these indices."""
        every = list(self)
        return Crops.from_iterable(every[i] for i in np.arange(len(self))[rows].tolist())

    def pixels_of(self, number: int) -> Pixels:
        """The pixels of one of them."""
        return list(self)[number].pixels()

    def of(self, role: int) -> list[Crop]:
        """Those of a role, in order."""
        return [crop for crop in self if crop.role == role]

    @cached_property
    def digest(self) -> str:
        """Hash of all crops."""
        digest = hashlib.sha256()
        for name, array in self.arrays.items():
            digest.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


class Extent(NamedTuple):
    """Which pixels of a level the kept windows cover; `source` is the scale of the level that it is resampled from.

    The source of other levels is 0.
    """

    scale: float
    source: float
    top: int
    bottom: int
    left: int
    right: int


class Plane(NamedTuple):
    """What a model reads of a part of a level (planes, rows, columns), from this row and column of cells on."""

    scale: float
    top: int
    left: int
    cells: Pixels


@dataclass(frozen=True, eq=False)
class Region:
    """What models of a family read in an image (height, width) around one box, exactly.

    Windows are `step` pixels of their level apart.
    """

    shape: tuple[int, int]
    step: int
    extents: tuple[Extent, ...]
    planes: tuple[Plane, ...]

    @classmethod
    def cut(cls, model: Model, pyramid: Pyramid, index: WindowIndex) -> Region:
        """Keep what the windows of an index depend on."""
        family, cell = family_of(model.family), model.grid.cell
        scale_of = {id(level): scale for scale, level in zip(pyramid.scales, pyramid.levels, strict=True)}
        extents, wanted = [], dict[float, tuple[Level, list[Span]]]()
        for scale in np.unique(index.scale).tolist():
            level, here = pyramid.level(scale), index.scale == scale
            (height, width), y, x = pyramid.window, index.y[here], index.x[here]
            span = Span(int(y.min()), int(y.max()) + height, int(x.min()), int(x.max()) + width)
            source = level if level.source is None else level.source
            key = scale if source is level else pyramid.shape[0] / source.image.shape[0]
            key = scale_of.get(id(source), key)
            extents.append(Extent(scale, 0.0 if source is level else key, *span))
            wanted.setdefault(key, (source, []))[1].append(_on(source, level, span))
        planes = []
        for scale, (level, spans) in sorted(wanted.items()):
            cells = family.planes(level)
            top, left = (
                max(min(sides) // cell - RIM, 0) for sides in ([s.top for s in spans], [s.left for s in spans])
            )
            bottom, right = (
                max(sides) // cell + 1 + RIM for sides in ([s.bottom for s in spans], [s.right for s in spans])
            )
            planes.append(Plane(scale, top, left, np.ascontiguousarray(cells[:, top:bottom, left:right])))
        height, width = pyramid.shape[:2]
        return cls((height, width), pyramid.step, tuple(extents), tuple(planes))

    def pyramid(self, model: Model) -> Pyramid:
        """The levels as the model reads them in these windows; everything else is black."""
        family, grid, levels = family_of(model.family), model.grid, dict[float, Level]()
        for scale, top, left, cells in self.planes:
            rows, columns = level_shape(self.shape, scale)
            level = Level(
                np.broadcast_to(np.uint8(0), (rows, columns, 3)),
                self.shape[0] / rows,
                self.shape[1] / columns,
                grid.padding,
            )
            whole = np.zeros((len(cells), *(side // grid.cell for side in level.shape)), np.uint8)
            whole[:, top : top + cells.shape[1], left : left + cells.shape[2]] = cells
            levels[scale] = family.restored(level, whole)
        own = []
        for extent in self.extents:
            if not extent.source:
                own.append(levels[extent.scale])
                continue
            rows, columns = level_shape(self.shape, extent.scale)
            black = np.broadcast_to(np.uint8(0), (rows, columns, 3))
            source = levels[extent.source]
            own.append(Level(black, self.shape[0] / rows, self.shape[1] / columns, grid.padding, source))
        scales = tuple(extent.scale for extent in self.extents)
        return Pyramid(self.shape, model.window, scales, tuple(own), self.step)

    def covers(self, index: WindowIndex, window: tuple[int, int]) -> Bools:
        """Which windows (n,) are kept whole."""
        covered = np.zeros(len(index), np.bool_)
        for extent in self.extents:
            inside = (index.scale == extent.scale) & (index.y >= extent.top) & (index.y + window[0] <= extent.bottom)
            covered |= inside & (index.x >= extent.left) & (index.x + window[1] <= extent.right)
        return covered

    @property
    def spans(self) -> dict[float, Span]:
        """The first and last + 1 pixels of each level that are kept."""
        return {extent.scale: Span(*extent[2:]) for extent in self.extents}


def _on(source: Level, level: Level, span: Span) -> Span:
    """The part of a level that a part of another, which is resampled from it, depends on."""
    if source is level:
        return span
    pad, limits = level.padding, []
    for first, last, ours, theirs in (
        (span.top, span.bottom, level.image.shape[0], source.image.shape[0]),
        (span.left, span.right, level.image.shape[1], source.image.shape[1]),
    ):
        ratio = theirs / ours
        limits += [floor((first - pad) * ratio) + pad - REACH, ceil((last - pad) * ratio) + pad + REACH]
    return Span(*limits)


@dataclass(frozen=True, eq=False)
class Kept:
    """What a record keeps: crops to train on, and the region of its box, if it has one."""

    crops: Crops = field(default_factory=Crops)
    region: Region | None = None

    def to_bytes(self) -> bytes:
        """Packed bytes; equal content gives equal bytes."""
        from safetensors.numpy import save

        arrays = {f"crops.{name}": np.ascontiguousarray(array) for name, array in self.crops.arrays.items()}
        if self.region is not None:
            shape, step, extents, planes = vars(self.region).values()
            arrays["region.shape"] = np.array([*shape, step], np.int64)
            arrays["region.extents"] = np.array(extents, np.float64).reshape(-1, 6)
            arrays["region.planes"] = np.array([plane[:3] for plane in planes], np.float64).reshape(-1, 3)
            arrays |= {f"region.cells.{number:03}": plane.cells for number, plane in enumerate(planes)}
        return zlib.compress(bytes(save(arrays)), 6)

    @classmethod
    def from_bytes(cls, packed: bytes) -> Kept:
        """From packed bytes; raises `ModelFileError` for others."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        unpack = zlib.decompressobj()
        try:
            data = unpack.decompress(packed, MOST_BYTES)
            if unpack.unconsumed_tail or not unpack.eof:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes, or is cut off")
            arrays = load(data)
            crops = {name: arrays.pop(name) for name in list(arrays) if name.startswith("crops.")}
            kept = Crops.from_arrays({name.removeprefix("crops."): array for name, array in crops.items()})
            return cls(kept, _region(arrays) if arrays else None)
        except (zlib.error, SafetensorError, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise ModelFileError(f"what a record keeps of its image is damaged: {error}") from error


def _region(arrays: dict[str, np.ndarray[Any, Any]]) -> Region:
    shape, extents, planes = (arrays.pop(f"region.{name}") for name in ("shape", "extents", "planes"))
    height, width, step = (int(side) for side in shape)
    rows = [Extent(float(row[0]), float(row[1]), *map(int, row[2:])) for row in extents.reshape(-1, 6)]
    cells = [arrays.pop(f"region.cells.{number:03}") for number in range(len(planes))]
    if arrays or not (0 < height <= MOST_PIXELS and 0 < width <= MOST_PIXELS and 0 < step <= MOST_PIXELS):
        raise ValueError("its region is that of no image")
    kept = [
        Plane(float(s), int(t), int(le), part) for (s, t, le), part in zip(planes.reshape(-1, 3), cells, strict=True)
    ]
    scales = {plane.scale for plane in kept}
    sound = all(part.ndim == 3 and part.dtype == np.uint8 and 0 < len(part) <= MOST_PLANES for part in cells)
    every = {max(scale, LEAST_SCALE) for scale in (*scales, *(row.scale for row in rows))}
    sizes = [prod(level_shape((height, width), scale)) for scale in every if isfinite(scale)]
    sound = sound and len(rows) <= MOST_LEVELS and max(sizes, default=0) <= MOST_AREA
    sound = sound and all(0 <= row.top < row.bottom <= MOST_PIXELS for row in rows)
    sound = sound and all(0 <= row.left < row.right <= MOST_PIXELS for row in rows)
    sound = sound and all(0 <= plane.top <= MOST_PIXELS and 0 <= plane.left <= MOST_PIXELS for plane in kept)
    sound = sound and all(LEAST_SCALE <= scale <= MOST_PIXELS for scale in [*scales, *(row.scale for row in rows)])
    if not sound or not all((row.source or row.scale) in scales for row in rows):
        raise ValueError("its region lacks a level")
    return Region((height, width), step, tuple(rows), tuple(kept))
