"""Pictures as grey arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import UnreadableImageError

# Refused before any pixel is decoded: 100 megapixels of grey are 100 MB, their integrals another 800.
MOST_PIXELS = 100_000_000


def read_grey(path: Path) -> NDArray[np.uint8]:
    """A picture (height, width) in 256 greys, turned upright as its EXIF orientation says.

    Raises `UnreadableImageError` for what is not an image, is cut short, or has over 100 megapixels.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise UnreadableImageError(
                    f"{path} has {opened.width} x {opened.height} pixels, more than {MOST_PIXELS:,}; make it smaller"
                )
            upright = ImageOps.exif_transpose(opened)
            if upright.mode.startswith("I"):  # 16 bits and more: Pillow would clip at 255 instead of scaling
                return (np.asarray(upright).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
            return np.asarray(upright.convert("L"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, UnreadableImageError):
            raise
        raise UnreadableImageError(f"{path} cannot be read as an image: {error}") from error
