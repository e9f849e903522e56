r"""The coupled overlap flow on inputs of covariance Σ: Σ times the field of isotropic inputs, exact for any link.

With ŵ = Σ^½ w the loss, C, G and n = wᵀΣw are those of isotropic inputs in ŵ, and gradient flow of w is
ŵ' = −Σ ∇_ŵ ½E(f − f*)². In unit vectors u_i = ŵ_i/√n_i, on the axes l with eigenvalues s_l,

.. math::
   u_{il}' = s_l Y_{il} - \tfrac12 \ell_i'\, u_{il}, \qquad \ell_i' = (\ln n_i)' = 2 \sum_l s_l u_{il} Y_{il}, \qquad
   Y_i = F_i + (2 S_i - F_i \cdot u_i)\, u_i

with F the forces of `dynamics.equations.vectors` and S_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij).
Axes of one eigenvalue are a class. Within it neurons stay in the span of their start and the teacher, so that r_c + m
axes carry it however many there are: the flow of R_c = Ŵ_cΘ̂_cᵀ and Q_c = Ŵ_cŴ_cᵀ in fewer numbers, and of vectors in
R^d where all eigenvalues are distinct.

State, sizes, parameters and work are those of `dynamics.equations.vectors`, with s (D) before the data of the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.link import g0, link_at
from dynamics.equations.overlaps import OverlapSystem
from dynamics.equations.vectors import (
    LINK,
    VectorSystem,
    add_bend,
    directions_and_norms,
    event_values,
    forces,
    normalise,
)
from dynamics.kernels.jit import kernel, matrix, vector
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.interface import OfStates
    from dynamics.problem import Problem
    from hermite.arrays import Array


@kernel
def class_rates(i: int, U: Matrix, F: Matrix, growth: float, s: Vector) -> tuple[float, float, float]:
    """Return what multiplies s u_i in s Y_i beside F, 2 S − F·u, then ℓ'/2 and Σ s u²."""
    radial = turn = stretch = 0.0
    for k in range(s.size):
        radial += F[i, k] * U[i, k]
        turn += s[k] * F[i, k] * U[i, k]
        stretch += s[k] * U[i, k] * U[i, k]
    along = 2.0 * growth - radial
    return along, turn + along * stretch, stretch


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """U' = Y diag(s) − diag(ℓ'/2) U, ℓ' = (ln n)' = 2 Σ_l s_l u_il Y_il, Y = F + diag(2 S − F·u) U."""
    m, D = sizes[0], sizes[2]
    U, F, growth, s = (
        matrix(y, 0, m, D),
        matrix(out, 0, m, D),
        vector(out, m * D, m),
        vector(parameters, sizes[LINK] - D, D),
    )
    forces(y, F, growth, parameters, sizes, work)
    for i in range(m):
        along, half, _ = class_rates(i, U, F, growth[i], s)
        for k in range(D):
            F[i, k] = s[k] * (F[i, k] + along * U[i, k]) - half * U[i, k]
        growth[i] = 2.0 * half


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """About the diagonal of the Jacobian: what multiplies U_il, the bend of its force, and −4 n g(1) Σ s U² of ln n."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    U, bend, growth, s = (
        matrix(y, 0, m, D),
        matrix(out, 0, m, D),
        vector(out, m * D, m),
        vector(parameters, sizes[LINK] - D, D),
    )
    pairs = m * P + m * m
    n, F = vector(work, pairs, m), matrix(work, pairs + m + 2 * m * max(m, P), m, D)
    forces(y, F, growth, parameters, sizes, work)
    bend.fill(0.0)
    add_bend(y, bend, parameters, sizes, work)
    own = g0(link_at(parameters, sizes[LINK]), 1.0)
    for i in range(m):
        along, half, stretch = class_rates(i, U, F, growth[i], s)
        for k in range(D):
            bend[i, k] = s[k] * (along + bend[i, k]) - half
        growth[i] = -4.0 * n[i] * own * stretch


# The flow in weights, whose Euler steps are gradient descent: state y = [Ŵ (m, D)].


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
def descent_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """ŵ' = ρ (u' + ½ (ln n)' u)."""
    m, D = sizes[0], sizes[2]
    size = m * D + m
    state, rate = vector(work, 0, size), vector(work, size, size)
    write_units(y, sizes, state)
    rhs(t, state, rate, parameters, sizes, vector(work, 2 * size, work.size - 2 * size))
    for i in range(m):
        rho = np.exp(0.5 * state[m * D + i])
        for k in range(i * D, i * D + D):
            out[k] = rho * (rate[k] + 0.5 * rate[m * D + i] * state[k])


@kernel
def descent_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of the events of the flow."""
    size = sizes[0] * sizes[2] + sizes[0]
    state = vector(work, 0, size)
    write_units(y, sizes, state)
    event_values(t, state, out, parameters, sizes, vector(work, size, work.size - size))


class ClassSystem(OverlapSystem):
    """State layout, kernels and observables of the coupled flow of a problem that has `inputs`.

    State: unit vectors U (m, D) on the axes that `Problem.input_axes` keeps, and ln n (m,).
    """

    name = "classes"
    has_unit_vectors = False
    against_clusters: str | None = "its slowed clusters are derived for isotropic inputs"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        axes = problem.input_axes()
        if axes is None:
            msg = "Argument `problem` must have `inputs`, but has none."
            raise ValueError(msg)
        self.axes = axes
        self.start = directions_and_norms(problem.reduced_weights())
        self.functions = Functions(rhs, event_values, normalise, jacobian_diagonal)
        self._vectors = VectorSystem(problem, self.start, axes.eigenvalues)
        self.initial_state, self.parameters = self._vectors.initial_state, self._vectors.parameters
        self.sizes, self.work_size = self._vectors.sizes, self._vectors.work_size

    def stiffness(self) -> float:
        """Return a bound on the rates of a learned direction, the largest eigenvalue times that of isotropic inputs."""
        return float(self.axes.eigenvalue.max()) * super().stiffness()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, and n."""
        return super().unpack(self._vectors.overlaps(state))

    def observer(self, keep: str, monitored: Callable[[], bool] = lambda: False) -> OfStates:
        """Return what observes a state; vectors are carried, so that no realisability margin is computed."""
        del monitored
        return super().observer(keep, lambda: False)


class ClassDescentSystem(ClassSystem):
    """The same flow in the weights Ŵ (m, D), of which one Euler step is one of population gradient descent in w."""

    name = "class-descent"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.functions = Functions(descent_rhs, descent_event_values)
        self.work_size += 2 * self.initial_state.size
        self.initial_state = problem.reduced_weights().ravel()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, or of a stack, and n."""
        m, D = self._vectors.shape
        unit, log_norm = directions_and_norms(state.reshape(*state.shape[:-1], m, D))
        return super().unpack(np.concatenate([unit.reshape(state.shape), log_norm], axis=-1))
