r"""The coupled overlap flow carried by unit vectors, for the implicit method.

.. math::
   u_i' &= F_i - (F_i \cdot u_i)\, u_i, \qquad
   F_i = \sum_p a_p g'(u_i \cdot \theta_p)\, \theta_p - \sum_{j \ne i} n_j g'(u_i \cdot u_j)\, u_j \\
   (\ln n_i)' &= 4 \Big[ \sum_p a_p g(u_i \cdot \theta_p) - \sum_j n_j g(u_i \cdot u_j) \Big]

in R^D, D = min(d, r + m): the flow of `dynamics.equations.overlaps.system`, of which [C | G | ln n] is a function of
the state. Overlaps computed from vectors always exist. Integrated by themselves (C, G) leave the set of those that
vectors have: the rates of G are differences of terms of order 1, so that rounding moves neurons at rest by 1e-16 per
unit of time, and where C and G contradict each other learned directions exert a force that should cancel. With a
horizon of 1e10 that decides where a slow neuron goes. The rates of vectors are right relative to the components that
move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.pairs import vectors_kernels as kernels
from dynamics.equations.pairs.link import link_data
from dynamics.equations.pairs.unit_vectors import overlap_state, teacher_rows, unit_vectors

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

FUNCTIONS = Functions(
    kernels.rhs, kernels.event_values, kernels.normalise, kernels.jacobian_diagonal, kernels.jacobian_product
)


class VectorSystem(System):
    """State and kernels of the coupled flow on unit vectors."""

    name = "vectors"
    functions = FUNCTIONS

    def __init__(self, problem: Problem) -> None:
        U, log_norm = unit_vectors(problem)
        m, D = U.shape
        P = problem.num_directions
        self.problem = problem
        self.shape = (m, D)
        self.teacher = teacher_rows(problem, D)
        self.initial_state: Array = self.pack(U, log_norm)
        self.parameters: Array = np.concatenate(
            [problem.teacher.coefficients, self.teacher.ravel(), self.teacher.ravel() ** 2, link_data(problem)]
        )
        sign_matters = problem.information_exponent % 2
        self.sizes: Integers = np.array(
            [m, P, D, self.teacher.shape[0], sign_matters, P + 2 * self.teacher.size], dtype=np.int64
        )
        self.work_size = 2 * m * P + 3 * m * m + 2 * m * D + m + 2 * m * max(m, P)
        self.num_events = 2 * P

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for vectors; plain for ln n."""
        m, D = self.shape
        return np.repeat([atol / np.sqrt(self.problem.dimension), atol], [m * D, m])

    def pack(self, U: Array, log_norm: Array) -> Array:
        """Return the state with these unit vectors, shape (m, D), and ln n, shape (m,)."""
        return np.concatenate([U.ravel(), log_norm])

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views of the vectors, shape (m, D), and of ln n, shape (m,), of a state or of a stack of them."""
        m, D = self.shape
        return state[..., : m * D].reshape(*state.shape[:-1], m, D), state[..., m * D :]

    def overlaps(self, state: Array, out: Array | None = None) -> Array:
        """Return [C | G | ln n], the state of `OverlapSystem`, or a stack of them."""
        return overlap_state(*self.unpack(state), self.teacher, self.problem.num_directions, out)

    def overlap_rates(self, state: Array, rates: Array) -> Array:
        """Return the rates of [C | G | ln n] for given rates of the state: C' = U' θᵀ, G' = U' Uᵀ + U U'ᵀ."""
        (U, _), (dU, growth) = self.unpack(state), self.unpack(rates)
        dC = dU @ self.teacher.T if self.teacher.shape[0] > 0 else dU[:, : self.problem.num_directions]
        product = dU @ U.T
        return np.concatenate([dC.ravel(), (product + product.T).ravel(), growth])
