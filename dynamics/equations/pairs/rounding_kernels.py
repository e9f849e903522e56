"""Bounds within which products of neurons may be taken in single precision, and the rounding of a coordinate."""

from dynamics.kernels.jit import kernel

NEAR = 0.15  # overlap of two neurons from which on single precision is not enough
# Coordinates and weights below which zero takes their place: products of smaller ones are subnormal in single
# precision, and processors take a hundred times as long for those. Learned neurons become as orthogonal as that.
SMALLEST_COORDINATE, SMALLEST_WEIGHT = 1e-15, 1e-20


@kernel
def rounded_coordinate(u: float) -> float:
    """Return a coordinate that is safe to round, or zero."""
    return u if abs(u) > SMALLEST_COORDINATE else 0.0
