"""Names for the arrays that compiled kernels read and write."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Cube = NDArray[np.float64]
Integers = NDArray[np.int64]
Switches = NDArray[np.bool_]
SingleVector = NDArray[np.float32]
SingleMatrix = NDArray[np.float32]
#: Of kernels that are compiled for both precisions.
Real = TypeVar("Real", bound=np.floating[Any])
