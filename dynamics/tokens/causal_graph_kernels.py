"""Compiled kernels of a latent causal graph: softmax weights over keys, row by row.

State y = scores of rows 3, 4, … n one after the other, of 2, 3, … n − 1 keys; parameters = [fitness of the same keys |
share of the parent at which a row has progressed by half], 2 above any share for a row that has no parent; sizes = [n |
index of the parent of each of these rows, −1 for none | stage].
"""

import numpy as np

from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel


@kernel
def write_shares(y: Vector, sizes: Integers, work: Vector) -> None:
    """Write the softmax of every row."""
    first = 0
    for keys in range(2, sizes[0]):
        top, total = y[first], 0.0
        for s in range(first, first + keys):
            top = max(top, y[s])
        for s in range(first, first + keys):
            work[s] = np.exp(y[s] - top)
            total += work[s]
        for s in range(first, first + keys):
            work[s] /= total
        first += keys


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """W_t' = A_t ∘ (v_t − A_t·v_t)."""
    write_shares(y, sizes, work)
    first = 0
    for keys in range(2, sizes[0]):
        mean = 0.0
        for s in range(first, first + keys):
            mean += work[s] * parameters[s]
        for s in range(first, first + keys):
            out[s] = work[s] * (parameters[s] - mean)
        first += keys


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Share of the parent less that at which progress p − (1 − p)/(keys − 1) is ½."""
    write_shares(y, sizes, work)
    first = 0
    for keys in range(2, sizes[0]):
        parent = sizes[keys - 1]
        share = work[first + parent] if parent >= 0 else -1.0
        out[keys - 2] = share - parameters[y.size + keys - 2]
        first += keys


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Leave the state as it is."""
