"""Compiled functions of the flow in weights, whose Euler steps are gradient descent.

State y = [Ŵ (m, D)]; parameters and sizes are those of the flow in unit vectors, which does the work.
"""

import numpy as np

from dynamics.equations.classes.classes_kernels import event_values as flow_event_values
from dynamics.equations.classes.classes_kernels import rhs as flow_rhs
from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import vector


@kernel
def write_units(y: Vector, sizes: Integers, state: Vector) -> None:
    """Write unit vectors and ln n of weights."""
    m, D = sizes[0], sizes[2]
    for i in range(m):
        square = 0.0
        for k in range(i * D, i * D + D):
            square += y[k] * y[k]
        state[m * D + i] = np.log(square)
        for k in range(i * D, i * D + D):
            state[k] = y[k] / np.sqrt(square)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """ŵ' = ρ (u' + ½ (ln n)' u)."""
    m, D = sizes[0], sizes[2]
    size = m * D + m
    state, rate = vector(work, 0, size), vector(work, size, size)
    write_units(y, sizes, state)
    flow_rhs(t, state, rate, parameters, sizes, vector(work, 2 * size, work.size - 2 * size))
    for i in range(m):
        rho = np.exp(0.5 * state[m * D + i])
        for k in range(i * D, i * D + D):
            out[k] = rho * (rate[k] + 0.5 * rate[m * D + i] * state[k])


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence and learned mass of the flow."""
    size = sizes[0] * sizes[2] + sizes[0]
    state = vector(work, 0, size)
    write_units(y, sizes, state)
    flow_event_values(t, state, out, parameters, sizes, vector(work, size, work.size - size))


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Weights are free."""
