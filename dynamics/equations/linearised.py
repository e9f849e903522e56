r"""The flow of weights with forces linear in the overlaps, for information exponents 1 and 2.

.. math::
   w_i' = 2 c_0^2 \Big(\sum_p a_p - \sum_j n_j\Big) w_i + c_1^2 [(u_i\cdot v) w_i + |w_i| v] + 2 c_2^2 (A - S) w_i,
   \qquad v = \sum_p a_p \theta_p - \sum_j |w_j| w_j

with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. It is the flow itself of a link that has c_0, c_1 and c_2 alone.

State W (m, D), sizes = [m, P, D, rows of θ, sign_matters, terms of g_3], parameters = [a (P) | c_0², c_1², c_2² |
θ (P, D) | g_3 in powers] or, with no row of θ, without it: the teacher's directions are the first P axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.vectors import add_pull, multiply, project, row_products, teacher_rows
from dynamics.kernels.jit import kernel, matrix
from dynamics.problem.emergence import ALL_DEGREES
from hermite.arrays import Integers, Vector

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write W' = B W + A θ, B_ij = −2 c_2² w_i·w_j − c_1² |w_i| |w_j| with the growth along w_i on its diagonal."""
    m, P, D = sizes[0], sizes[1], sizes[2]
    a, squares, teacher = parameters, parameters[P : P + 3], matrix(parameters, P + 3, sizes[3], D)
    W, moved = matrix(y, 0, m, D), matrix(out, 0, m, D)
    A, B, length = matrix(work, 0, m, P), matrix(work, m * P, m, m), work[m * P + m * m :]
    row_products(W, W, B, sizes)
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
    multiply(B, W, moved, sizes)
    add_pull(A, teacher, moved)


@kernel
def polynomial(s: float, powers: Vector, count: int) -> float:
    """Return Σ_j powers_j s^j, by Horner's rule."""
    total = 0.0
    for j in range(count - 1, -1, -1):
        total = total * s + powers[j]
    return total


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence max_i C_ip² − ½ (C > 0 only, if the sign matters), learned mass − a_p/2, carried weight − a_p/2.

    The learned mass is Σ_i n_i g_3(C_ip)/g_3(1), the carried weight the same with g(s) = c_0² + c_1² s + c_2² s².
    """
    m, P, D = sizes[0], sizes[1], sizes[2]
    squares, W, A = parameters[P : P + 3], matrix(y, 0, m, D), matrix(work, 0, m, P)
    powers = parameters[P + 3 + sizes[3] * D :]
    project(W, matrix(parameters, P + 3, sizes[3], D), A, sizes)
    norm, whole = squares[0] + squares[1] + squares[2], polynomial(1.0, powers, sizes[5])
    for p in range(P):
        out[p] = -0.5
        out[P + p] = out[2 * P + p] = -0.5 * parameters[p]
    for i in range(m):
        n = 0.0
        for k in range(D):
            n += W[i, k] * W[i, k]
        for p in range(P):
            c = A[i, p] / np.sqrt(n)
            if c > 0.0 or sizes[4] == 0:
                out[p] = max(out[p], c * c - 0.5)
            out[P + p] += n * polynomial(c, powers, sizes[5]) / whole
            out[2 * P + p] += n * (squares[0] + c * (squares[1] + c * squares[2])) / norm


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
        m, D = weights.shape
        teacher, squares, kept = teacher_rows(problem, D), np.zeros(3), problem.activation.coefficients[:3]
        squares[: kept.size] = kept**2
        self.problem = problem
        self.initial_state: Array = weights.ravel()
        part = problem.learned_part
        counted = squares if part.definition == ALL_DEGREES else part.coefficients**2
        self.parameters: Array = np.concatenate([problem.teacher.coefficients, squares, teacher.ravel(), counted])
        sign_matters = problem.information_exponent % 2
        self.sizes: Integers = np.array([m, P, D, teacher.shape[0], sign_matters, counted.size], dtype=np.int64)
        self.work_size = m * P + m * m + m
        self.num_events = 3 * P

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component, in units of the root mean square of the weights at the start."""
        return np.full(self.initial_state.size, atol * np.sqrt(np.mean(self.initial_state**2)))
