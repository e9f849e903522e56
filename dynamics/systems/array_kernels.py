"""Names for the arrays of compiled kernels, and views of flat work space."""

import numpy as np
from numpy.typing import NDArray

from dynamics.compilation import kernel

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
FloatCube = NDArray[np.float64]
IntVector = NDArray[np.int64]


@kernel
def cube(flat: FloatVector, start: int, count: int, rows: int, columns: int) -> FloatCube:
    """Part of a flat array as `count` matrices."""
    return flat[start : start + count * rows * columns].reshape(count, rows, columns)
