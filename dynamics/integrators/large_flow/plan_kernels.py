"""What passes of the large-flow solver over rows are told, and the rest of the field that a step extrapolates.

Integers and numbers that a pass needs travel in `plan`, a tuple of arrays:

    order     (m,)    rows, in the order in which they are visited
    cluster   (m,)    cluster of each row, −1 for none
    source    (m,)    place of each row among the fast sources, −1 for none
    first     (c + 1,) place in `order` at which each cluster begins
    direction (c,)    direction of each cluster
    sign      (m,)    +1 or −1: the pole of its direction at which a row of a cluster sits
    active    (P,)    a_p of the directions without a cluster, 0 for the others
    coefficient (c,)  a_p of each cluster
"""

from dynamics.compiler.arrays import Cube, Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

# Integers, then numbers, as listed above.
Plan = tuple[Integers, Integers, Integers, Integers, Integers, Vector, Vector, Vector]


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
