"""Pictures in files as a sequence of arrays, each read when it is asked for and then forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from whet.io.images import read_grey


class GreyFiles(Sequence[NDArray[np.uint8]]):
    """Grey pictures (height, width) of these files, in their order; they need not fit into memory together.

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
