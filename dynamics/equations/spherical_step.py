r"""The spherical network f(x) = (1/m) Σ_i σ(w_i·x), |w_i| = 1, under SGD with steps of a finite size γ = η d, d → ∞.

One step on B samples moves each neuron against the tangential gradient, scaled by the width, and back to the sphere:

.. math:: w_i \leftarrow \frac{w_i - \eta u_i}{|w_i - \eta u_i|}, \qquad
   u_i = \frac1B \sum_b e_b\, \sigma'(w_i\cdot x_b)\, (x_b - (w_i\cdot x_b)\, w_i).

u_i is orthogonal to w_i, so that the length is √(1 + η²|u_i|²), and as d → ∞, at η = γ/d, u_i·u_j is d/B times the mean
of e² σ'_i σ'_j over the batch: products of two samples, and powers of η beyond the second, are smaller by 1/d. With
C = WΘᵀ, G = WWᵀ, in the time η · step,

.. math:: C_{ip}' = F_i\cdot\theta_p - (F_i\cdot w_i)\, C_{ip} - \frac{\gamma}{2B} V_{ii} C_{ip}, \qquad
   V_{ij} = E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j],

   G_{ij}' = F_i\cdot w_j + w_i\cdot F_j - (F_i\cdot w_i + F_j\cdot w_j)\, G_{ij}
   + \frac{\gamma}{B} \Big[V_{ij} - \tfrac12 G_{ij} (V_{ii} + V_{jj})\Big],

F that of `dynamics.equations.spherical`, ē = f − f*. The overlaps of a single run concentrate there. At finite d
the mean step does not close: dividing by the length brings in means of all powers of η. V is known for polynomial links
and for neurons of erf(z/√2): see `dynamics.equations.network.step_system`. Dimensionless throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.mean_field import link_powers, teacher_square
from dynamics.equations.network.step_system import step_source, step_units
from dynamics.equations.pairs.link import link_data
from dynamics.equations.spherical_step_kernels import (
    event_values,
    normalise,
    rhs_of_erf,
    rhs_of_polynomials,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


class SphericalStepSystem(System):
    """State and observables of the network under mean steps of B samples; events are those of the flow's system.

    Raises ValueError if the means of the links are not known exactly.
    """

    name = "spherical-step"

    def __init__(self, problem: Problem, levels: Sequence[float], learning_rate: float, batch_size: int = 1) -> None:
        teacher, start = problem.teacher, problem.start()
        m, P = problem.width, problem.num_directions
        units = step_units(problem)
        M = m + len(units)
        noise = step_source(problem.activation, m, units, biased=False)
        student, other = link_powers(problem)
        self.problem = problem
        self.functions = Functions(rhs_of_polynomials if noise.is_polynomial else rhs_of_erf, event_values, normalise)
        self.initial_state: Array = np.concatenate([start.teacher_overlap.ravel(), start.student_overlap.ravel()])
        self._gram = teacher.gram()
        self._inverse_gram = np.linalg.pinv(self._gram)
        self._pull = student * other
        scale = self.teacher_loss()
        weights = np.array([1.0 / m] * m + [-unit.coefficient for unit in units])
        step = [learning_rate * problem.dimension / batch_size, problem.label_noise**2]
        link = link_data(problem)
        fixed = (teacher.coefficients, self._gram.ravel(), self._pull, np.array(levels) * scale, [scale], step)
        self.parameters: Array = np.concatenate([*fixed, np.zeros(M), weights, noise.numbers, link])
        end = self.parameters.size - link.size
        places = [end - noise.numbers.size, end]
        counts = [m, P, self._pull.size, len(levels), problem.information_exponent % 2, M, *places]
        self.sizes: Integers = np.concatenate([np.array(counts, dtype=np.int64), noise.layout])
        self.work_size = M * M + 2 * m * M + m * m + noise.work_size
        self.num_events = len(levels) + 2 * P

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views (C, G) of a state."""
        m, P = self.problem.width, self.problem.num_directions
        return state[: m * P].reshape(m, P), state[m * P :].reshape(m, m)

    def teacher_loss(self) -> float:
        """Return E f*², the loss of f = 0."""
        return teacher_square(self.problem)

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        C, G = self.unpack(state)
        attraction = np.polynomial.polynomial.polyval(C, self._pull).mean(axis=0)
        own = float(self.problem.activation.kernel(G).mean())
        return float(own - 2.0 * attraction @ self.problem.teacher.coefficients + self.teacher_loss())

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, margin, and per direction the largest overlap and the learned mass."""
        (C, G), part = self.unpack(state), self.problem.learned_part
        size = np.maximum(C, 0.0) if self.problem.information_exponent % 2 else np.abs(C)
        return {
            "loss": self.loss(state),
            "max_overlap": size.max(axis=0),
            "learned_mass": part.kernel(C).mean(axis=0) / part.kernel_at_one,
            "gram_margin": float(np.linalg.eigvalsh(G - C @ self._inverse_gram @ C.T)[0]),
        }

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, and the overlaps C and G."""
        C, G = self.unpack(state)
        return {**self.summarise(state), "teacher_overlap": C.copy(), "student_overlap": G.copy()}
