"""Names for the arrays of compiled kernels, and views of flat work space."""

import numpy as np
from numpy.typing import NDArray

from dynamics.compilation import kernel

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
FloatCube = NDArray[np.float64]
IntVector = NDArray[np.int64]


@kernel
def matrix(flat: FloatVector, start: int, rows: int, columns: int) -> FloatMatrix:
    """Part of a flat array as a matrix."""
    return flat[start : start + rows * columns].reshape(rows, columns)
