"""Names of array types, the same in every module."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
UInt32s = NDArray[np.uint32]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Indices = NDArray[np.intp]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]
# Rows of x1, y1, x2, y2.
Boxes = NDArray[np.float64]
# One image (height, width) or (height, width, 3), or a stack of grey ones.
Pixels = NDArray[np.uint8]
