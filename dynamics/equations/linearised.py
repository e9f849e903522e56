r"""The flow of weights with forces linear in the overlaps, for information exponents 1 and 2.

.. math::
   w_i' = 2 c_0^2 \Big(\sum_p a_p - \sum_j n_j\Big) w_i + c_1^2 [(u_i\cdot v) w_i + |w_i| v] + 2 c_2^2 (A - S) w_i,
   \qquad v = \sum_p a_p \theta_p - \sum_j |w_j| w_j

with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. It is the flow itself of a link that has c_0, c_1 and c_2 alone.

State W (m, D), sizes = [m, P, D, rows of θ, sign_matters, place of the link], parameters = [a (P) | θ (P, D) | data of
the link with c_0, c_1 and c_2 alone] or, with no row of θ, without it: the teacher's directions are the first P axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.link import HEAD, VALUE, data_of_series, g0, link_at
from dynamics.equations.vectors import LINK, add_pull, project, teacher_rows, write_events
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.kernels.products import product_until
from dynamics.problem.emergence import ALL_DEGREES, LEARNED_SHARE
from hermite.arrays import Integers, Vector

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write W' = B W + A θ, B_ij = −2 c_2² w_i·w_j − c_1² |w_i| |w_j| with the growth along w_i on its diagonal."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    a, teacher = parameters, matrix(parameters, P, sizes[3], D)
    squares = vector(parameters, sizes[LINK] + VALUE + HEAD, 3)
    W, moved = matrix(y, 0, m, D), matrix(out, 0, m, D)
    A, B, length = matrix(work, 0, m, P), matrix(work, m * P, m, m), work[m * P + m * m :]
    product_until(W, W.T, B, sizes)
    project(W, teacher, A, sizes)
    left = 0.0
    for p in range(P):
        left += a[p]
    for i in range(m):
        left -= B[i, i]
        length[i] = np.sqrt(B[i, i])
    for i in range(m):
        along = 0.0
        for p in range(P):
            along += a[p] * A[i, p]
            A[i, p] = a[p] * (2.0 * squares[2] * A[i, p] + squares[1] * length[i])
        for j in range(m):
            along -= length[j] * B[i, j]
            B[i, j] = -2.0 * squares[2] * B[i, j] - squares[1] * length[i] * length[j]
        B[i, i] += 2.0 * squares[0] * left + squares[1] * along / length[i]
    product_until(B, W, moved, sizes)
    add_pull(A, teacher, moved)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of `write_events`, then carried weight − a_p/2: the learned mass with g for g_3."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    W, C, n = matrix(y, 0, m, D), matrix(work, 0, m, P), vector(work, 2 * m * P, m)
    link = link_at(parameters, sizes[LINK])
    project(W, matrix(parameters, P, sizes[3], D), C, sizes)
    for p in range(P):
        out[2 * P + p] = -LEARNED_SHARE * parameters[p]
    for i in range(m):
        n[i] = 0.0
        for k in range(D):
            n[i] += W[i, k] * W[i, k]
        for p in range(P):
            C[i, p] /= np.sqrt(n[i])
            out[2 * P + p] += n[i] * g0(link, C[i, p]) / g0(link, 1.0)
    write_events(vector(work, 0, m * P), n, parameters, link, sizes[4], vector(work, m * P, m * P), out)


class LinearisedSystem(System):
    """State and kernels of the linearised flow.

    Its events are, P of each kind, that a direction emerges, that it is learned, and that its weight is carried by half
    as the degrees 0, 1 and 2 have it. The learned mass is that of the link's degrees from 3 on, which do not move this
    flow, at its overlaps; where all degrees count it is the carried weight.
    """

    name = "linearised"
    functions = Functions(rhs, event_values)

    def __init__(self, problem: Problem) -> None:
        weights, P = problem.reduced_weights(), problem.num_directions
        (m, D), part, kept = weights.shape, problem.learned_part, problem.activation.coefficients[:3]
        teacher, counted = teacher_rows(problem, D), kept if part.definition == ALL_DEGREES else part.coefficients
        link = data_of_series(tuple(kept.tolist()), tuple((counted**2).tolist()))
        self.problem = problem
        self.initial_state: Array = weights.ravel()
        self.parameters: Array = np.concatenate([problem.teacher.coefficients, teacher.ravel(), link])
        counts = [m, P, D, len(teacher), problem.information_exponent % 2, P + teacher.size]
        self.sizes: Integers = np.array(counts, dtype=np.int64)
        self.work_size = m * max(2 * P, P + m) + m
        self.num_events = 3 * P

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component, in units of the root mean square of the weights at the start."""
        return np.full(self.initial_state.size, atol * np.sqrt(np.mean(self.initial_state**2)))
