"""The gradient of a smoothed link, by its table of coefficients."""

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import kernel


@kernel
def gradient(z: float, square: float, table: NDArray[np.float64]) -> float:
    """ψ = Σ_ij table_ij z^i r^(2j), r² = `square`."""
    rows, columns = table.shape
    total = 0.0
    for i in range(rows - 1, -1, -1):
        row = 0.0
        for j in range(columns - 1, -1, -1):
            row = row * square + table[i, j]
        total = total * z + row
    return total
