"""Groups of rows that go through a step together, and the rest of the field that a step extrapolates."""

from dynamics.integrators.large_flow.plan import CLUSTER, FIRST
from dynamics.kernels.arrays import Cube, Integers, Matrix, Vector
from dynamics.kernels.jit import kernel


@kernel
def group_end(x: int, rows: Integers, of_rows: Integers, clusters: Integers) -> int:
    """Return where the cluster of row x of a block ends, x + 1 for a row of none, and x if the cluster began before.

    The tables are those of the plan, since an array that is taken from a tuple costs a count of references.
    """
    c = of_rows[CLUSTER, rows[x]]
    if c < 0:
        return x + 1
    if x > 0 and of_rows[CLUSTER, rows[x - 1]] == c:
        return x
    count: int = clusters[FIRST, c + 1] - clusters[FIRST, c]
    return x + count


@kernel
def add_rest(i: int, weights: Vector, slots: Integers, rest: Cube, out: Vector) -> None:
    """Add Σ_q weights_q rest[slots_q] of row i: a pass per value, since a loop over values inside is not vectorised."""
    for q in range(slots.size):
        w, slot = weights[q], slots[q]
        for k in range(out.size):
            out[k] += w * rest[slot, i, k]


@kernel
def rest_number(i: int, weights: Vector, slots: Integers, rest_growth: Matrix) -> float:
    """Return Σ_q weights_q rest_growth[slots_q] of row i."""
    total = 0.0
    for q in range(slots.size):
        total += weights[q] * rest_growth[slots[q], i]
    return total
