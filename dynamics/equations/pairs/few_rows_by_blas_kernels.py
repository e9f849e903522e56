"""The products of `few_rows_kernels` by BLAS; executed after `array_kernels`.

OpenBLAS's kernels for AVX-512 copy no factor of a small product.
"""

from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dynamics.compiler.arrays import Real
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import product

# Products of numbers up to which no factor is copied.
UNCOPIED = 1e6


@kernel
def overlaps_of_rows(rows: NDArray[Real], others: NDArray[Real], out: NDArray[Real]) -> None:
    """Set out = rows othersᵀ."""
    product(rows, others.T, out)


@kernel
def sums_of_others(weights: NDArray[Real], others: NDArray[Real], out: NDArray[Real]) -> None:
    """Set out = weights others."""
    product(weights, others, out)
