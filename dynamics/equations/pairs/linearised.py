r"""The flow of weights with forces linear in the overlaps, for information exponents 1 and 2.

.. math::
   w_i' = 2 c_0^2 \Big(\sum_p a_p - \sum_j n_j\Big) w_i + c_1^2 [(u_i\cdot v) w_i + |w_i| v] + 2 c_2^2 (A - S) w_i,
   \qquad v = \sum_p a_p \theta_p - \sum_j |w_j| w_j

with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. It is the flow itself of a link that has c_0, c_1 and c_2 alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.pairs import linearised_kernels as kernels
from dynamics.equations.pairs.unit_vectors import teacher_rows
from dynamics.problem.emergence import ALL_DEGREES

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


class LinearisedSystem(System):
    """State and kernels of the linearised flow.

    Its events are, P of each kind, that a direction emerges, that it is learned, and that its weight is carried by half
    as the degrees 0, 1 and 2 have it. The learned mass is that of the link's degrees from 3 on, which do not move this
    flow, at its overlaps; where all degrees count it is the carried weight.
    """

    name = "linearised"
    functions = Functions(kernels.rhs, kernels.event_values, kernels.normalise)

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
