"""What CVODE asks of a system and the stepper does not: Jacobian products and the diagonal preconditioner.

Executed after `system_calls`.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.integrators.system_calls import System, jacobian_diagonal, jacobian_product

# A growing component would make 1 − γ D vanish or change sign; the divisor is kept above one half.
LARGEST_PRODUCT = 0.5


@entry("void(f8, f8[::1], f8[::1], f8[::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def evaluate_product(t: float, y: Vector, v: Vector, out: Vector, system: System) -> None:
    """Call the product of the Jacobian with a vector from Python."""
    jacobian_product(t, y, v, out, system)


@entry("void(f8, f8[::1], f8[::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def evaluate_diagonal(t: float, y: Vector, out: Vector, system: System) -> None:
    """Call the diagonal of the Jacobian from Python."""
    jacobian_diagonal(t, y, out, system)


@entry("void(f8[::1], f8, f8[::1])")
def invert_diagonal(diagonal: Vector, gamma: float, out: Vector) -> None:
    """Write 1 / (1 − min(γ D, ½)), the inverse of the preconditioner, into `out`."""
    for i in range(out.size):
        out[i] = 1.0 / (1.0 - min(gamma * diagonal[i], LARGEST_PRODUCT))
