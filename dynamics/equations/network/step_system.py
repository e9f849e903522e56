r"""A two-layer network under SGD of a finite learning rate η, in its order parameters.

A step on B samples changes the mean of v, b and M by η times the flow, that of Q also in the second order. In the time
η · step, with u_i = ε_w s v_i e σ'_i x, e = f − f* − noise, and ∇_i = ε_w ∇_{w_i} + κ_w w_i, whose first part is E u_i,

.. math:: Q_{ij}' = Q_{ij}'|_{\mathrm{flow}} + \eta\,
   \Big[\nabla_i\cdot\nabla_j + \tfrac1B \big(S_{ij} - E u_i\cdot E u_j\big)\Big], \qquad
   S_{ij} = \varepsilon_w^2 s^2 v_i v_j\, E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j\, |x|^2]

for "finite-d", exactly the mean of a step. In its limit d → ∞ at fixed η d, "infinite-d", η d S/(d B) is left, with d
for |x|² in S, and overlaps of a single run concentrate. On the sphere, where the step goes back to the neuron's length,

.. math:: M_i' = M_i'|_{\mathrm{flow}} - \frac{\eta}{2B} \frac{S_{ii}}{Q_{ii}} M_i, \qquad
   Q_{ij}' = Q_{ij}'|_{\mathrm{flow}} + \frac{\eta}{B}
   \Big[S_{ij} - \tfrac12 Q_{ij} \Big(\frac{S_{ii}}{Q_{ii}} + \frac{S_{jj}}{Q_{jj}}\Big)\Big]

in that limit; at finite d dividing by the length brings in means of all powers of η. S is known for erf(z/√2) and
polynomials: see `dynamics.equations.network.step_source`. The scatter of single runs about the mean is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.equations.network.network_kernels import event_values, jacobian_diagonal, normalise
from dynamics.equations.network.network_step_kernels import erf_product, erf_rhs, polynomial_product, polynomial_rhs
from dynamics.equations.network.step_source import step_source, step_units
from dynamics.equations.network.system import NetworkSystem
from hermite.text.messages import shown

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

_OF_ERF = Functions(erf_rhs, event_values, normalise, jacobian_diagonal, erf_product)
_OF_POLYNOMIALS = Functions(polynomial_rhs, event_values, normalise, jacobian_diagonal, polynomial_product)


class NetworkStepSystem(NetworkSystem):
    """The equation of SGD with a learning rate η and B samples per step, with state and observables of the flow.

    Raises ValueError if the mean step of the problem is not known exactly.
    """

    name = "network-step"
    falls = False

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        exact = step_theory == "finite-d"
        super().__init__(problem)
        if exact and self.student.first_layer == "sphere":
            msg = (
                "Argument `step_theory` must be 'infinite-d' for neurons on the sphere, whose mean step at finite d is "
                f"no finite sum because it divides by a length, but is {shown(step_theory)}."
            )
            raise ValueError(msg)
        units, m = step_units(problem), problem.width
        source = step_source(problem.activation, m, units, biased=self.student.has_biases)
        self.functions = _OF_POLYNOMIALS if source.is_polynomial else _OF_ERF
        step = [learning_rate, batch_size, problem.dimension, problem.label_noise**2]
        teacher = [[-unit.coefficient for unit in units], [unit.bias for unit in units]]
        directions = [unit.direction for unit in units]
        places = [len(units), self.sizes.size, self.parameters.size, self.work_size]
        self.parameters: Array = np.concatenate([self.parameters, step, *teacher, *directions, source.numbers])
        self.sizes: Integers = np.concatenate([self.sizes, source.layout, [exact, *places]])
        M = m + len(units)
        self.work_size += M * M + m * m + 2 * M + source.work_size + 2 * self.initial_state.size
