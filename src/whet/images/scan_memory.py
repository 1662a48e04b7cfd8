"""How much memory a scan takes, known before anything of it is allocated.

An image is scanned **whole**, with everything that a model computes of its levels kept, if that fits into `max_memory`.
Else it is scanned **in parts**: one level at a time is made, and what models compute of it is computed for one part of
it after the other, and not kept. Both find the same windows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock

from whet.errors import ImageMemoryError

# Memory that a scan may take, image included; less where the machine has less than four times as much.
MOST_MEMORY = 1_250_000_000
SHARE_OF_MACHINE = 0.25
# The share of it that is left for accepted windows.
WINDOWS_SHARE = 0.25
# A part of a level has about this many pixels, with those that its last windows reach to; more for large windows.
PART_PIXELS = 1 << 20
PART_WINDOWS = 4
# Kernels count in 32 bits.
MOST_KEPT = 2**31 - 1
# Of one colour, while an image is resized: copies of the image, of the one that is resized across, and of the level.
COPIES = 3
# Weights by which Pillow resizes an image, for each pixel of its longer side.
WEIGHT_BYTES = 48
# An accepted window: scale, place, box and score; once more when those of all parts are joined; and its grouping.
WINDOW_BYTES = 320


@cache
def default_max_memory() -> int:
    """Bytes that a scan may take by default: 1.25 GB, or a quarter of a smaller machine's memory.

    >>> 0 < default_max_memory() <= MOST_MEMORY
    True
    """
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return MOST_MEMORY
    return min(MOST_MEMORY, int(SHARE_OF_MACHINE * installed))


@dataclass(frozen=True)
class ScanMemory:
    """Bytes that a scan needs beside its accepted windows: with everything kept, and in parts.

    `image` (height, width) has so many `colours`; `levels` (height, width) are those whose pixels are made. A model
    keeps `kept` bytes of each pixel of `padded` levels, and needs `working` bytes of each while it computes them, in
    each of the `threads` for another level or another part of one.
    """

    image: tuple[int, int]
    colours: int
    levels: Sequence[tuple[int, int]]
    padded: Sequence[tuple[int, int]]
    kept: float
    working: float
    threads: int
    window: tuple[int, int]

    @property
    def whole(self) -> int:
        """Bytes with everything kept."""
        pixels = self._n_image + sum(map(_area, self.levels))
        computed = self.kept * sum(map(_area, self.padded)) + self.threads * self.working * part_pixels(self.window)
        return int(self.colours * (pixels + self._n_image) + computed)

    @property
    def in_parts(self) -> int:
        """Bytes in parts."""
        largest = max(map(_area, self.levels), default=0)
        computed = self.threads * (self.working + self.kept) * part_pixels(self.window)
        resized = COPIES * max(self._n_image, largest) + WEIGHT_BYTES * max(self.image)
        return int(self.colours * (self._n_image + largest) + resized + computed)

    @property
    def can_be_whole(self) -> bool:
        """Whether kernels can count what is kept of the largest level."""
        return max(map(_area, self.padded), default=0) * self.kept <= MOST_KEPT

    @property
    def _n_image(self) -> int:
        return _area(self.image)

    def is_in_parts(self, max_memory: int | None) -> bool:
        """Whether to scan in parts; raises `ImageMemoryError` where even that does not fit. None is no limit."""
        if self.can_be_whole and (max_memory is None or self.whole <= (1 - WINDOWS_SHARE) * max_memory):
            return False
        if max_memory is not None and self.in_parts > max_memory:
            height, width = self.image
            raise ImageMemoryError(
                f"an image of {width} x {height} pixels needs {self.in_parts / 1e6:,.0f} MB to be scanned, max_memory "
                f"allows {max_memory / 1e6:,.0f} MB: use a smaller image, fewer threads, or a larger max_memory"
            )
        return True


def part_pixels(window: tuple[int, int]) -> int:
    """Pixels of a part of a level that is looked at for windows (height, width)."""
    return max(PART_PIXELS, PART_WINDOWS * _area(window))


def windows_of_part(n_rows: int, n_columns: int, window: tuple[int, int], step: int) -> tuple[int, int]:
    """How many rows and columns of windows (height, width), `step` pixels apart, are looked at in one part of a level.

    >>> windows_of_part(1000, 1000, (64, 64), 4), windows_of_part(1, 1_000_000, (64, 64), 4)
    ((240, 240), (1, 3839))
    """
    (height, width), area = window, part_pixels(window)
    rows = min(n_rows, max(int(area**0.5) - height, height, step) // step)
    columns = min(n_columns, max(area // (rows * step + height) - width, step) // step)
    return rows, columns


def _area(shape: tuple[int, int]) -> int:
    return shape[0] * shape[1]


def most_windows(max_memory: int | None) -> int | None:
    """Windows that may be accepted in a scan that takes `max_memory` bytes."""
    return None if max_memory is None else int(WINDOWS_SHARE * max_memory) // WINDOW_BYTES


class WindowCount:
    """Counts the windows of an image that a model accepts, in threads, as long as memory has room for them."""

    def __init__(self, most: int | None) -> None:
        self._most, self._n, self._lock = most, 0, Lock()

    def add(self, n: int) -> None:
        """Count some more; raises `ImageMemoryError` beyond `most`."""
        if self._most is None or not n:
            return
        with self._lock:
            self._n += n
        if self._n > self._most:
            raise ImageMemoryError(
                f"the model accepts more than {self._most:,} windows of an image, which max_memory has no room for: "
                "use a detector that rejects more, a larger step or min_size, or a larger max_memory"
            )
