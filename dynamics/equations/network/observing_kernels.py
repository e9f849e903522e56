"""A call of a function of a network from Python, by its address; compiled once per machine, for all networks."""

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import entry
from dynamics.compiler.invocation import invoke


@entry("void(i8, f8[::1], f8[::1], f8[::1], i8[::1], f8[::1])")
def evaluate(address: int, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Call a right-hand side or events at time 0."""
    invoke(address, (0.0, y, out, parameters, sizes, work))
