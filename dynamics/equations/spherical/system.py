r"""The spherical network of finite width in its unit vectors, f(x) = (1/m) Σ_i σ(w_i·x), |w_i| = 1.

The tangential gradient flow of ½ E(f − f*)², with velocities scaled by the width,

.. math:: w_i' = F_i - (F_i\cdot w_i)\, w_i, \qquad
   F_i = \sum_p a_p\, g^{*\prime}(w_i\cdot\theta_p)\, \theta_p - \frac1m \sum_{j \ne i} g'(w_i\cdot w_j)\, w_j,

g(s) = Σ_j c_j² s^j, g*(s) = Σ_j c_j c*_j s^j, in the D = min(d, r + m) coordinates that no gradient leaves. The
overlaps (C, G) close too, with the algebra of `equations.overlaps.system` at n_i = 1/m, but carry m² numbers at 2 m³
operations where these are m D at 4 m² D: wide networks in few dimensions, the case of interest here, want the vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.mean_field.system import link_powers, teacher_square
from dynamics.equations.pairs.unit_vectors import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

#: Numbers of the Gram matrix treated at a time by numpy.
PAIRS = 1 << 20


class SphericalSystem(System):
    """State and observables of the network of finite width.

    `levels` are fractions of E f*² below which the loss is timed; the events are these, then per direction its
    emergence, then its learned mass.
    """

    name = "spherical"

    def __init__(self, problem: Problem, levels: Sequence[float]) -> None:
        # Imported here because the functions of this module need no Numba.
        from dynamics.equations.pairs.link import BLOCK, link_data
        from dynamics.equations.spherical.spherical_kernels import STRIP, event_values, normalise, rhs

        self.functions = Functions(rhs, event_values, normalise)
        start, _ = unit_vectors(problem)
        teacher = problem.teacher
        m, P = problem.width, problem.num_directions
        student, other = link_powers(problem)
        self.problem = problem
        self.shape = start.shape
        self.initial_state: Array = start.ravel()
        self._rows = np.eye(teacher.span) if teacher.directions is None else teacher.directions
        self._pull = student * other
        scale = self.teacher_loss()
        fixed = [teacher.coefficients, self._rows.ravel(), self._pull, np.array(levels) * scale, [scale]]
        link = link_data(problem)
        self.parameters: Array = np.concatenate([*fixed, link])
        counts = [m, P, self.shape[1], teacher.span, self._pull.size, len(levels), problem.information_exponent % 2]
        self.sizes: Integers = np.array([*counts, self.parameters.size - link.size], dtype=np.int64)
        self.work_size = STRIP * m + BLOCK
        self.num_events = len(levels) + 2 * P

    def unpack(self, state: Array) -> Array:
        """Return the neurons (m, D) of a state."""
        return state.reshape(self.shape)

    def overlaps(self, state: Array) -> Array:
        """Return w_i·θ_p, shape (m, P)."""
        return self.unpack(state)[:, : self._rows.shape[1]] @ self._rows.T

    def teacher_loss(self) -> float:
        """Return E f*², the loss of f = 0."""
        return teacher_square(self.problem)

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return squared_error(self.problem, self.unpack(state), self.overlaps(state))

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, and per direction the largest overlap and the learned mass."""
        C, part = self.overlaps(state), self.problem.learned_part
        size = np.maximum(C, 0.0) if self.problem.information_exponent % 2 else np.abs(C)
        return {
            "loss": self.loss(state),
            "max_overlap": size.max(axis=0),
            "learned_mass": part.kernel(C).mean(axis=0) / part.kernel_at_one,
        }

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, the overlaps C and the neurons W."""
        return {
            **self.summarise(state),
            "teacher_overlap": self.overlaps(state),
            "neuron_vector": self.unpack(state).copy(),
        }


def squared_error(problem: Problem, vectors: Array, overlaps: Array) -> float:
    """Return E(f − f*)² of neurons w (m, D) with overlaps w·θ (m, P)."""
    student, other = link_powers(problem)
    attraction = np.polynomial.polynomial.polyval(overlaps, student * other).mean(axis=0)
    own = mean_of_pairs(vectors, problem.activation.kernel)
    return float(own - 2.0 * attraction @ problem.teacher.coefficients + teacher_square(problem))


def mean_of_pairs(vectors: Array, kernel: Callable[[Array], Array], others: Array | None = None) -> float:
    """Return (1/mn) Σ_ij g(w_i·v_j) for w (m, D) and v (n, D), w itself by default; strips keep memory that of w."""
    second = vectors if others is None else others
    strip = max(PAIRS // len(second), 1)
    total = 0.0
    for first in range(0, len(vectors), strip):
        total += float(kernel(vectors[first : first + strip] @ second.T).sum())
    return float(total / (len(vectors) * len(second)))
