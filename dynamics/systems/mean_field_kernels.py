"""Compiled kernels that the mean field has in every subspace; executed before those of its particles.

The field is a function of the moments μ (M,) of the law: the loss is floor + Σ c (μ − μ*)², a particle's potential is
Σ c (μ − μ*) times its own share of each moment. sizes = [N, M, P, n, …] for N particles, P directions and n levels of
the loss; parameters = [c (M) | μ* (M) | learned (P, M) | a (P) | levels (n) | floor, d | weights (N) | …]. The moments
come first in `work`, then the forces c (μ − μ*).
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compilation import kernel

if TYPE_CHECKING:
    from dynamics.systems.mean_field_axis_kernels import write_moments

FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]

# Particles treated at a time, so that the compiler uses vector instructions and scratch stays in the fastest cache.
LANES = 64


@kernel
def scalars_start(sizes: IntVector) -> int:
    """Place of the floor in the parameters; d follows, then the weights."""
    M, P = sizes[1], sizes[2]
    return int(2 * M + P * M + P + sizes[3])


@kernel
def write_forces(parameters: FloatVector, sizes: IntVector, work: FloatVector) -> None:
    """Write the forces c (μ − μ*) behind the moments."""
    M = sizes[1]
    for k in range(M):
        work[M + k] = parameters[k] * (work[k] - parameters[M + k])


@kernel
def event_values(
    t: float, y: FloatVector, out: FloatVector, parameters: FloatVector, sizes: IntVector, work: FloatVector
) -> None:
    """Level − loss, one per level, then ∫ g(w·θ_p) dρ / g(1) − a_p/2, one per direction."""
    M, P, levels = sizes[1], sizes[2], sizes[3]
    write_moments(y, parameters, sizes, work)
    loss = parameters[scalars_start(sizes)]
    for k in range(M):
        difference = work[k] - parameters[M + k]
        loss += parameters[k] * difference * difference
    first = 2 * M + P * M + P
    for n in range(levels):
        out[n] = parameters[first + n] - loss
    for p in range(P):
        mass = 0.0
        for k in range(M):
            mass += parameters[2 * M + p * M + k] * work[k]
        out[levels + p] = mass - 0.5 * parameters[2 * M + P * M + p]
