r"""The coupled overlap flow carried by unit vectors, for the implicit method.

.. math::
   u_i' &= F_i - (F_i \cdot u_i)\, u_i, \qquad
   F_i = \sum_p a_p g'(u_i \cdot \theta_p)\, \theta_p - \sum_{j \ne i} n_j g'(u_i \cdot u_j)\, u_j \\
   (\ln n_i)' &= 4 \Big[ \sum_p a_p g(u_i \cdot \theta_p) - \sum_j n_j g(u_i \cdot u_j) \Big]

in R^D, D = min(d, r + m): the flow of `dynamics.equations.overlaps`, of which [C | G | ln n] is a function of
the state. Overlaps computed from vectors always exist. Integrated by themselves (C, G) leave the set of those that
vectors have: the rates of G are differences of terms of order 1, so that rounding moves neurons at rest by 1e-16 per
unit of time, and where C and G contradict each other learned directions exert a force that should cancel. With a
horizon of 1e10 that decides where a slow neuron goes. The rates of vectors are right relative to the components that
move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.pairs import linearised_kernels
from dynamics.equations.pairs import vectors_kernels as kernels
from dynamics.equations.pairs.field_kernels import FIELD_BLOCK, field_rows, field_rows_single, pair_products, round_rows
from dynamics.equations.pairs.link import link_data
from dynamics.equations.pairs.unit_vectors import overlap_state, teacher_rows, unit_vectors
from dynamics.problem.emergence import ALL_DEGREES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.threads.workers import Workers
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


# The full field of unit vectors: the compiled passes of `field_kernels`, shared among threads.


class UnitField:
    """Computes the field of m neurons, for directions in the rows of `teacher`; no row if they are the first P axes.

    `link` is the data of g (`dynamics.equations.pairs.link`).
    """

    def __init__(self, link: Array, workers: Workers, a: Array, teacher: Array, m: int) -> None:
        self._link, self._workers, self._target = link, workers, (a, teacher)
        self.pairs, self.work_size = pair_storage(m), FIELD_BLOCK * (m + a.size)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""

        def products(begin: int, end: int) -> None:
            pair_products(begin, end, U, self.pairs)

        def rows(begin: int, end: int) -> None:
            work = np.empty(self.work_size)
            field_rows(begin, end, self._link, (U, n), self._target, self.pairs, (F, growth), work)

        self._workers.over_parts(_halves(n.size), products)
        self._workers.over_rows(rows)


class SingleUnitField:
    """Computes it with products of neurons in single precision, twice as fast; directions are the first P axes."""

    def __init__(self, link: Array, workers: Workers, a: Array, m: int, columns: int) -> None:
        self._link, self._workers, self._a = link, workers, a
        self._pairs, self._units = pair_storage(m, np.float32), np.empty((m, columns), dtype=np.float32)
        self._work_size = FIELD_BLOCK * (m + columns)

    def write(self, U: Array, n: Array, F: Array, growth: Array) -> None:
        """Write F (m, D) and growth (m,) at unit vectors U and squared norms n; 3 m² D operations."""

        def convert(begin: int, end: int) -> None:
            round_rows(begin, end, U, self._units)

        def products(begin: int, end: int) -> None:
            pair_products(begin, end, self._units, self._pairs)

        def rows(begin: int, end: int) -> None:
            work = np.empty(self._work_size, dtype=np.float32)
            state = U, self._units, n
            field_rows_single(begin, end, self._link, state, self._a, self._pairs, (F, growth), work)

        self._workers.over_rows(convert)
        self._workers.over_parts(_halves(n.size), products)
        self._workers.over_rows(rows)


def _halves(m: int) -> int:
    """Return how many pairs of a long and a short block the stored half of G has."""
    return (-(-m // FIELD_BLOCK) + 1) // 2


def pair_storage(m: int, dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
    """Return an array for the half of G = U Uᵀ that `pair_products` writes: blocks of rows from the diagonal on."""
    return np.empty(sum(min(FIELD_BLOCK, m - first) * (m - first) for first in range(0, m, FIELD_BLOCK)), dtype)


# The flow of weights with forces linear in the overlaps, for information exponents 1 and 2.
#
# .. math::
# w_i' = 2 c_0^2 \Big(\sum_p a_p - \sum_j n_j\Big) w_i + c_1^2 [(u_i\cdot v) w_i + |w_i| v] + 2 c_2^2 (A - S) w_i,
# \qquad v = \sum_p a_p \theta_p - \sum_j |w_j| w_j
#
# with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. It is the flow itself of a link that has c_0, c_1 and c_2 alone.


class LinearisedSystem(System):
    """State and kernels of the linearised flow.

    Its events are, P of each kind, that a direction emerges, that it is learned, and that its weight is carried by half
    as the degrees 0, 1 and 2 have it. The learned mass is that of the link's degrees from 3 on, which do not move this
    flow, at its overlaps; where all degrees count it is the carried weight.
    """

    name = "linearised"
    functions = Functions(linearised_kernels.rhs, linearised_kernels.event_values, linearised_kernels.normalise)

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
