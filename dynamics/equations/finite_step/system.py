r"""The overlaps under online SGD of a finite learning rate, closed by the exact mean change of one step.

With R = WΘᵀ, S = WWᵀ and the moments of `dynamics.equations.finite_step.step_moments`, in the time η · step,

.. math::
   R' = \mathrm{teacher\_first}, \qquad
   S' = \mathrm{student\_first} + \eta \begin{cases}
      D + (\mathrm{base} + d\,\mathrm{slope} - D)/B & \text{"finite-d"} \\
      d\,\mathrm{slope}/B & \text{"infinite-d"} \end{cases}

for minibatches of B samples.  In the coordinates of the flow, C = R/ρ, G = S/(ρρᵀ) and ln n = ln S_ii, with H the
relative part of second order, (S' − student_first)/(ρρᵀ),

.. math::
   C' = C'_{\mathrm{flow}} - \tfrac12 C_{ip} H_{ii}, \qquad
   G' = G'_{\mathrm{flow}} + H_{ij} - \tfrac12 G_{ij} (H_{ii} + H_{jj}), \qquad
   (\ln n_i)' = (\ln n_i)'_{\mathrm{flow}} + H_{ii},

so that G_ii = 1 is kept, and the flow is recovered term by term as η → 0.  H is made of Gram matrices of gradients, so
it is positive semidefinite, and overlaps of vectors stay overlaps of vectors.

"infinite-d" is the limit d → ∞ at fixed η d (Saad & Solla 1995), in which the overlaps of a single run concentrate.
"finite-d" keeps every term of the mean step; what it leaves out is the scatter of single runs about the mean, which
changes means by O(η) too, a part 1/d of the terms with d.  Dimensionless throughout.

Above the limit of stability the solution blows up in finite time, (ln n)' ~ η d n²: a squared norm beyond 1e4 Σ a
counts as infinite, and the run ends there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.finite_step import finite_step_kernels as kernels
from dynamics.equations.finite_step.step_moment_tables import moment_tables
from dynamics.equations.overlaps.overlaps_kernels import LINK
from dynamics.equations.overlaps.system import OverlapSystem
from dynamics.equations.pairs.link import link_data

if TYPE_CHECKING:
    from dynamics.problem import Problem


class FiniteStepSystem(OverlapSystem):
    """The equation of a finite learning rate η, with state and observables of the flow; any teacher and label noise.

    "finite-d" keeps every term of the mean step of B samples, "infinite-d" those that remain as d → ∞ with η d fixed.
    Raises ValueError if the link is not a polynomial or has too many diagrams.
    """

    name = "finite-step"

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        link, teacher = problem.activation, problem.teacher
        m, P = problem.width, problem.num_directions
        check_polynomial(problem)
        super().__init__(problem)
        self.functions = replace(self.functions, rhs=kernels.rhs, jacobian_product=kernels.jacobian_product)
        whole = step_theory == "finite-d"
        tables = moment_tables(link.coefficients, m, P, slope_only=not whole)
        share = learning_rate / batch_size
        weights = [learning_rate - share if whole else 0.0, share if whole else 0.0, share * problem.dimension]
        numbers = np.concatenate(
            [teacher.coefficients, teacher.gram().ravel(), [problem.label_noise, *weights], tables.numbers]
        )
        self.parameters = np.concatenate([numbers, link_data(problem)])
        self.sizes = np.concatenate([self.sizes, tables.layout])
        self.sizes[LINK] = numbers.size
        of_noise = 2 * m * P + 5 * m * m + m + tables.work_size
        self.work_size = max(self.work_size, self.initial_state.size + of_noise)


def check_polynomial(problem: Problem) -> None:
    """Raise ValueError unless the link is a polynomial, as the moments of a step need."""
    link = problem.activation
    if not link.is_polynomial or link.truncation_error > 0.0:
        msg = (
            f"Argument `problem` must have a polynomial link for the equation of a finite learning rate, but has "
            f"{link.name}; `activation=problem.activation.truncated()` asks for that of its series."
        )
        raise ValueError(msg)
