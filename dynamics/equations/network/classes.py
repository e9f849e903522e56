r"""A two-layer network on inputs of covariance Σ: Σ times the gradient of isotropic inputs, exact at every d.

With ŵ = Σ^½ w a neuron is σ(ŵ·z + b), z ~ N(0, I), so that the loss is that of isotropic inputs in M = ŴΘ̂ᵀ, Q = ŴŴᵀ, v
and b, and v and b move as there. Gradient flow of w with decay is, on the axes l with eigenvalues s_l,

.. math:: \hat w_{il}' = -\varepsilon_w s_l \Big(\sum_j A_{ij} \hat w_{jl} - B_{il}\Big) - \kappa_w \hat w_{il}

with A and B of `dynamics.equations.network.system`, B_il = 0 beyond the teacher's axes. One Euler step is one of
population gradient descent in w, v and b. The axes are those of `Problem.input_axes`, as in
`dynamics.equations.classes`.

State y = [v (m) | b (m) | Ŵ (m, D)]. Parameters and sizes are those of `dynamics.equations.network.network_kernels`,
with s (D) before the numbers of the links; `work` ends with a state [v | b | M | Q] and its rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.equations.network import network_kernels
from dynamics.equations.network.network_kernels import (
    AXES,
    DECAY_W,
    FORCES_AT,
    MEANS,
    NUMBERS_AT,
    PRODUCTS_AT,
    THEORY,
    WIDTH,
)
from dynamics.equations.network.system import NetworkSystem
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.kernels.products import is_stopped, product_until
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array


@kernel
def whitened_weights(y: Vector, sizes: Integers) -> Matrix:
    """Return Ŵ of a state, or of its rates."""
    m = sizes[WIDTH]
    return matrix(y, 2 * m, m, (y.size - 2 * m) // m)


@kernel
def overlap_state(y: Vector, sizes: Integers, work: Vector) -> Vector:
    """Write v, b, M and Q of a state to their place in `work`, and return them."""
    m, r = sizes[WIDTH], sizes[AXES]
    size = 2 * m + m * r + m * m
    W, state = whitened_weights(y, sizes), vector(work, work.size - 2 * size, size)
    for i in range(2 * m):
        state[i] = y[i]
    for i in range(m):
        for a in range(r):
            state[2 * m + i * r + a] = W[i, a]
    product_until(W, W.T, matrix(state, 2 * m + m * r, m, m), sizes)
    return state


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write v', b' and Ŵ' = −(N Ŵ) diag(s) − κ_w Ŵ diag(1 − s), where N holds κ_w too, after the means of `work`."""
    m, r = sizes[WIDTH], sizes[AXES]
    state = overlap_state(y, sizes, work)
    rates = vector(work, work.size - state.size, state.size)
    if is_stopped(sizes):
        return
    network_kernels.rhs(t, state, rates, parameters, sizes, work)
    if sizes[THEORY] == MEANS:
        return
    W, moved = whitened_weights(y, sizes), whitened_weights(out, sizes)
    N, own = matrix(work, sizes[FORCES_AT], m, m + r), matrix(work, sizes[PRODUCTS_AT], m, m)
    s, decay = vector(parameters, sizes[NUMBERS_AT] - W.shape[1], W.shape[1]), parameters[DECAY_W]
    for i in range(m):
        out[i], out[m + i] = rates[i], rates[m + i]
        for j in range(m):
            own[i, j] = N[i, j]
    product_until(own, W, moved, sizes)
    for i in range(m):
        for a in range(r):
            moved[i, a] += N[i, m + a]
        for k in range(s.size):
            moved[i, k] = -s[k] * moved[i, k] - decay * (1.0 - s[k]) * W[i, k]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of the events of the overlaps."""
    network_kernels.event_values(t, overlap_state(y, sizes, work), out, parameters, sizes, work)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Diagonal with the forces held: of v and b as for isotropic inputs, −s_l N_ii − κ_w (1 − s_l) of ŵ_il."""
    m, r = sizes[WIDTH], sizes[AXES]
    state = overlap_state(y, sizes, work)
    rates, moved = vector(work, work.size - state.size, state.size), whitened_weights(out, sizes)
    network_kernels.jacobian_diagonal(t, state, rates, parameters, sizes, work)
    s = vector(parameters, sizes[NUMBERS_AT] - moved.shape[1], moved.shape[1])
    for i in range(m):
        out[i], out[m + i] = rates[i], rates[m + i]
        for k in range(s.size):
            moved[i, k] = s[k] * rates[2 * m + i * r] - parameters[DECAY_W] * (1.0 - s[k])


class NetworkClassSystem(NetworkSystem):
    """State layout and motion of a network whose problem has `inputs`; observables are those of its overlaps."""

    name = "network-classes"
    functions = Functions(rhs, event_values, None, jacobian_diagonal)

    def __init__(self, problem: Problem) -> None:
        axes = problem.input_axes()
        if axes is None:
            msg = "Argument `problem` must have `inputs`, but has none."
            raise ValueError(msg)
        super().__init__(problem, more=axes.eigenvalues)
        self.fastest = float(axes.eigenvalue.max())
        self.work_size += 2 * self.initial_state.size
        v, b, weights = problem.network_start()
        self.initial_state = np.concatenate([v, b, weights.ravel()])

    def unpack(self, state: Array) -> tuple[Array, Array, Array, Array]:
        """Return v, b, M (m, r) and Q (m, m) of a state."""
        m = self.problem.width
        v, b, W = np.split(state, [m, 2 * m])
        W = W.reshape(m, -1)
        return v, b, W[:, : self.problem.teacher.span], W @ W.T

    def stiffness(self) -> float:
        """Return a bound on the rates of the flow at the start: that of isotropic inputs, times max s_l if over 1."""
        return max(self.fastest, 1.0) * super().stiffness()
