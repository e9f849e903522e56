r"""The coupled overlap flow on inputs of covariance Σ: Σ times the field of isotropic inputs, exact for any link.

With ŵ = Σ^½ w the loss, C, G and n = wᵀΣw are those of isotropic inputs in ŵ, and gradient flow of w is
ŵ' = −Σ ∇_ŵ ½E(f − f*)². In unit vectors u_i = ŵ_i/√n_i, on the axes l with eigenvalues s_l,

.. math::
   u_{il}' = s_l Y_{il} - \tfrac12 \ell_i'\, u_{il}, \qquad \ell_i' = (\ln n_i)' = 2 \sum_l s_l u_{il} Y_{il}, \qquad
   Y = \mathrm{diag}(e)\, U - B U + A \Theta

with A = a g'(C), B = n g'(G), e_i = 2 S_i − Σ_p A_ip C_ip + Σ_j B_ij G_ij, S_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij).
Axes of one eigenvalue are a class. Within it neurons stay in the span of their start and the teacher, so that r_c + m
axes carry it however many there are: the flow of R_c = Ŵ_cΘ̂_cᵀ and Q_c = Ŵ_cŴ_cᵀ in fewer numbers, and of vectors in
R^d where all eigenvalues are distinct.

State y = [U (m, D) | ln n (m)], parameters = [a (P) | Θ (P, r) | s (D) | data of the link], sizes = [m, P, D, r,
sign_matters, place of the link]. The equations are those of `dynamics.equations.classes`. One right-hand side
costs 4 m² D + 4 m P r operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.link import g0, learned_kernel, link_at, link_data, write_both, write_g2
from dynamics.equations.overlaps import OverlapSystem
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.kernels.products import product_until
from hermite.arrays import Integers, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.interface import OfStates
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

LINK = 5


@kernel
def class_forces(y: Vector, parameters: Vector, sizes: Integers, work: Vector, e: Vector, n: Vector) -> None:
    """Write e of the system and n, and C, G, A = a g'(C), B = n g'(G), g(C) and g(G) to `work`."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    mP, mm = m * P, m * m
    both = mP + mm
    U, rows, link = matrix(y, 0, m, D), matrix(parameters, P, P, r), link_at(parameters, sizes[LINK])
    C, G = matrix(work, 0, m, P), matrix(work, mP, m, m)
    A, B = matrix(work, both, m, P), matrix(work, both + mP, m, m)
    toward, apart = matrix(work, 2 * both, m, P), matrix(work, 2 * both + mP, m, m)
    product_until(U, U.T, G, sizes)
    for i in range(m):
        n[i] = np.exp(y[m * D + i])
        for p in range(P):
            c = 0.0
            for k in range(r):
                c += rows[p, k] * U[i, k]
            C[i, p] = c
    write_both(link, vector(work, 0, both), vector(work, 2 * both, both), vector(work, both, both))
    for i in range(m):
        total = 0.0
        for p in range(P):
            A[i, p] *= parameters[p]
            total += 2.0 * parameters[p] * toward[i, p] - A[i, p] * C[i, p]
        for j in range(m):
            B[i, j] *= n[j]
            total += B[i, j] * G[i, j] - 2.0 * n[j] * apart[i, j]
        e[i] = total


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """U' = Y diag(s) − diag(ℓ'/2) U, ℓ' = (ln n)' = 2 Σ_l s_l U_il Y_il, Y = diag(e) U − B U + A Θ."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    both = m * P + m * m
    A, B = matrix(work, both, m, P), matrix(work, both + m * P, m, m)
    o = 3 * both
    BU, toward = matrix(work, o, m, D), matrix(work, o + m * D, m, r)
    o += m * D + m * r
    e, n = vector(work, o, m), vector(work, o + m, m)
    class_forces(y, parameters, sizes, work, e, n)
    U, dU = matrix(y, 0, m, D), matrix(out, 0, m, D)
    product_until(B, U, BU, sizes)
    product_until(A, matrix(parameters, P, P, r), toward, sizes)
    first = P + P * r
    for i in range(m):
        growth = 0.0
        for k in range(D):
            rate = e[i] * U[i, k] - BU[i, k]
            if k < r:
                rate += toward[i, k]
            dU[i, k] = parameters[first + k] * rate
            growth += dU[i, k] * U[i, k]
        for k in range(D):
            dU[i, k] -= growth * U[i, k]
        out[m * D + i] = 2.0 * growth


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """About the diagonal of the Jacobian: what multiplies U_il, the bend of its force, and −4 n g(1) Σ s U² of ln n."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    rhs(t, y, out, parameters, sizes, work)
    both = m * P + m * m
    B, bend = matrix(work, both + m * P, m, m), matrix(work, 2 * both, m, P)
    o = 3 * both + m * D + m * r
    e, n = vector(work, o, m), vector(work, o + m, m)
    link, first = link_at(parameters, sizes[LINK]), P + P * r
    own = g0(link, 1.0)
    write_g2(link, vector(work, 0, m * P), vector(work, 2 * both, m * P))
    for i in range(m):
        stretch = 0.0
        for k in range(D):
            u = y[i * D + k]
            rate = e[i] - B[i, i]
            if k < r:
                for p in range(P):
                    theta = parameters[P + p * r + k]
                    rate += parameters[p] * bend[i, p] * theta * theta
            out[i * D + k] = parameters[first + k] * rate - 0.5 * out[m * D + i]
            stretch += parameters[first + k] * u * u
        out[m * D + i] = -4.0 * n[i] * own * stretch


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    link = link_at(parameters, sizes[LINK])
    whole = learned_kernel(link, 1.0)
    for p in range(P):
        out[p] = -0.5
        out[P + p] = -0.5 * parameters[p]
    for i in range(m):
        share = np.exp(y[m * D + i]) / whole
        for p in range(P):
            c = 0.0
            for k in range(r):
                c += parameters[P + p * r + k] * y[i * D + k]
            if c > 0.0 or sizes[4] == 0:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += share * learned_kernel(link, c)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """|u_i| = 1, of which rounding would take a neuron that shrinks away."""
    m, D = sizes[0], sizes[2]
    for i in range(m):
        square = 0.0
        for k in range(i * D, i * D + D):
            square += y[k] * y[k]
        for k in range(i * D, i * D + D):
            y[k] /= np.sqrt(square)


# Compiled functions of the flow in weights, whose Euler steps are gradient descent.
#
# State y = [Ŵ (m, D)]; parameters and sizes are those of the flow in unit vectors, which does the work.


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
    """Emergence and learned mass of the flow."""
    size = sizes[0] * sizes[2] + sizes[0]
    state = vector(work, 0, size)
    write_units(y, sizes, state)
    event_values(t, state, out, parameters, sizes, vector(work, size, work.size - size))


FUNCTIONS = Functions(rhs, event_values, normalise, jacobian_diagonal)
#: Euler steps alone are taken of these.
DESCENT = Functions(descent_rhs, descent_event_values)


class ClassSystem(OverlapSystem):
    """State layout, kernels and observables of the coupled flow of a problem that has `inputs`.

    State: unit vectors U (m, D) on the axes that `Problem.input_axes` keeps, and ln n (m,).
    """

    name = "classes"
    has_unit_vectors = False
    against_clusters: str | None = "its slowed clusters are derived for isotropic inputs"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.functions = FUNCTIONS
        weights, axes, teacher = problem.reduced_weights(), problem.input_axes(), problem.teacher
        if axes is None:
            msg = "Argument `problem` must have `inputs`, but has none."
            raise ValueError(msg)
        m, P, r = problem.width, problem.num_directions, teacher.span
        squared_norm = np.sum(weights**2, axis=1)
        self.axes = axes
        self.shape = weights.shape
        self.initial_state: Array = np.concatenate(
            [(weights / np.sqrt(squared_norm)[:, None]).ravel(), np.log(squared_norm)]
        )
        rows = np.eye(r) if teacher.directions is None else teacher.directions
        self.teacher: Array = np.ascontiguousarray(rows)
        numbers = np.concatenate([teacher.coefficients, self.teacher.ravel(), axes.eigenvalues])
        self.parameters: Array = np.concatenate([numbers, link_data(problem)])
        D, sign_matters = weights.shape[1], problem.information_exponent % 2
        self.sizes: Integers = np.array([m, P, D, r, sign_matters, numbers.size], dtype=np.int64)
        self.work_size = 3 * m * (m + P) + m * D + m * r + 2 * m

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for vectors; plain for ln n."""
        m, D = self.shape
        return np.repeat([atol / np.sqrt(self.problem.dimension), atol], [m * D, m])

    def stiffness(self) -> float:
        """Return a bound on the rates of a learned direction, the largest eigenvalue times that of isotropic inputs."""
        return float(self.axes.eigenvalue.max()) * super().stiffness()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, and n."""
        m, D = self.shape
        U = state[..., : m * D].reshape(*state.shape[:-1], m, D)
        G = U @ np.swapaxes(U, -1, -2)
        np.einsum("...ii->...i", G)[...] = 1.0
        return U[..., : self.teacher.shape[1]] @ self.teacher.T, G, np.exp(state[..., m * D :])

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
        self.functions = DESCENT
        self.work_size += 2 * self.initial_state.size
        self.initial_state = problem.reduced_weights().ravel()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, or of a stack, and n."""
        weights = state.reshape(*state.shape[:-1], *self.shape)
        squared_norm = np.sum(weights**2, axis=-1)
        unit = weights / np.sqrt(squared_norm)[..., None]
        return super().unpack(np.concatenate([unit.reshape(state.shape), np.log(squared_norm)], axis=-1))
