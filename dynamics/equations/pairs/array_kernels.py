"""Names for the arrays of compiled kernels, and views of flat work space."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import kernel

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
FloatCube = NDArray[np.float64]
IntVector = NDArray[np.int64]
SingleVector = NDArray[np.float32]
SingleMatrix = NDArray[np.float32]
SingleCube = NDArray[np.float32]
#: Of kernels that are compiled for both precisions.
Real = TypeVar("Real", bound=np.floating[Any])


@kernel
def matrix(flat: NDArray[Real], start: int, rows: int, columns: int) -> NDArray[Real]:
    """Part of a flat array as a matrix."""
    return flat[start : start + rows * columns].reshape(rows, columns)
