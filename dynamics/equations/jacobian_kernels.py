"""The Jacobian of a system; executed after the kernels of the system and a line that sets HAS_PRODUCT.

One function for its product and for its diagonal, since what is called by its address has machine code of its own for
all that it calls.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.network.product_kernels import jacobian_diagonal, jacobian_product

    HAS_PRODUCT = True


@kernel
def jacobian(t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the product with `v`, or the diagonal if `v` has no components."""
    if HAS_PRODUCT and v.size > 0:
        jacobian_product(t, y, v, out, parameters, sizes, work)
    else:
        jacobian_diagonal(t, y, out, parameters, sizes, work)
