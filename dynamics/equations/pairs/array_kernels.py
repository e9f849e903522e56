"""Views of flat work space; executed before the kernels that use them."""

from numpy.typing import NDArray

from dynamics.compiler.arrays import Real
from dynamics.compiler.compilation import kernel


@kernel
def matrix(flat: NDArray[Real], start: int, rows: int, columns: int) -> NDArray[Real]:
    """Part of a flat array as a matrix; one compiled function, because every inlined reshape costs compile time."""
    return flat[start : start + rows * columns].reshape(rows, columns)
