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
and for neurons of erf(z/√2): see `dynamics.equations.network.steps`. Dimensionless throughout.

State y = [C (m, P) | G (m, m)], sizes = [m, P, P, P, sign_matters, place of the link, J, n, M, place of the numbers |
layout], of which the first eight are those of `dynamics.equations.spherical` with T for the directions, parameters =
[a (P) | T (P, P) | c c* (J) | levels of the loss (n) | E f*² | γ/B | τ² | biases (M), all 0 | weights (M) | numbers |
link], for M vectors: neurons, directions, and what has no direction. `numbers` and `layout` are those of
`dynamics.equations.network.steps`.

Functions that take another one are inlined: Numba stores no function on disk that hands one over at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.equations.link import link_at, link_data, write_g0, write_g1
from dynamics.equations.network.normal_kernels import mirror
from dynamics.equations.network.steps import step_source, step_units, write_erf_second, write_polynomial_second
from dynamics.equations.overlaps import write_gram
from dynamics.equations.spherical import SphericalObservables, pull, write_all_events
from dynamics.equations.vectors import LINK
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, row_part, vector
from dynamics.kernels.products import product
from hermite.arrays import Integers, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array


VECTORS, NUMBERS, LAYOUT = 8, 9, 10


@inlined_kernel
def write_rates(
    write_step_second: Callable[..., None], y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """C' = X − diag(r) C − ½ γ/B diag(V) C and the same of G with γ/B V, X = N gram, r = X_ii."""
    m, P, M = sizes[0], sizes[1], sizes[VECTORS]
    gram, N, X = matrix(work, 0, M, M), matrix(work, M * M, m, M), matrix(work, M * M + m * M, m, M)
    V, at, link = matrix(work, M * M + 2 * m * M, m, m), sizes[NUMBERS], link_at(parameters, sizes[LINK])
    gram.fill(0.0)
    write_gram(y, m, matrix(parameters, P, P, P), gram)
    vectors = (gram, parameters[at - 2 * M : at - M], parameters[at - M : at])
    numbers, scratch = parameters[at : sizes[LINK]], work[M * M + 2 * m * M + m * m :]
    write_step_second(vectors, parameters[at - 2 * M - 1], 1.0, False, m, numbers, sizes[LAYOUT:], scratch, V)
    for i in range(m):
        write_g1(link, row_part(gram, i, 0, m), row_part(N, i, 0, m))
        for j in range(m):
            N[i, j] *= -1.0 / m
        # The force of a neuron on itself is radial.
        N[i, i] = 0.0
        for p in range(P):
            N[i, m + p] = parameters[p] * pull(gram[i, m + p], parameters, sizes)[1]
        for j in range(m + P, M):
            N[i, j] = 0.0
    product(N, gram, X)
    rate = parameters[at - 2 * M - 2]
    for i in range(m):
        lost = X[i, i] + 0.5 * rate * V[i, i]
        for p in range(P):
            out[i * P + p] = X[i, m + p] - lost * gram[i, m + p]
        out[m * P + i * m + i] = 0.0
        for j in range(i):
            both = lost + X[j, j] + 0.5 * rate * V[j, j]
            change = X[i, j] + X[j, i] + rate * V[i, j] - both * gram[i, j]
            out[m * P + i * m + j] = out[m * P + j * m + i] = change


@kernel
def rhs_of_erf(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates for neurons of erf."""
    write_rates(write_erf_second, y, out, parameters, sizes, work)


@kernel
def rhs_of_polynomials(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates for neurons of a polynomial."""
    write_rates(write_polynomial_second, y, out, parameters, sizes, work)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of `write_all_events`."""
    m, P = sizes[0], sizes[1]
    values = vector(work, 0, m * m)
    write_g0(link_at(parameters, sizes[LINK]), vector(y, m * P, m * m), values)
    write_all_events(np.sum(values) / m / m, vector(y, 0, m * P), parameters, sizes, work, out)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """G = Gᵀ, G_ii = 1."""
    m, first = sizes[0], sizes[0] * sizes[1]
    for i in range(m):
        y[first + i * m + i] = 1.0
    mirror(matrix(y, first, m, m))


class SphericalStepSystem(SphericalObservables):
    """State and observables of the network under mean steps of B samples; events are those of the flow's system.

    Raises ValueError if the means of the links are not known exactly.
    """

    name = "spherical-step"

    def __init__(self, problem: Problem, levels: Sequence[float], learning_rate: float, batch_size: int = 1) -> None:
        super().__init__(problem, levels)
        start, (m, P), units = problem.start(), (problem.width, problem.num_directions), step_units(problem)
        M, gram, link = m + len(units), problem.teacher.gram(), link_data(problem)
        noise = step_source(problem.activation, m, units, biased=False)
        self.functions = Functions(rhs_of_polynomials if noise.is_polynomial else rhs_of_erf, event_values, normalise)
        self.initial_state: Array = np.concatenate([start.teacher_overlap.ravel(), start.student_overlap.ravel()])
        self._inverse_gram = np.linalg.pinv(gram)
        weights = np.array([1.0 / m] * m + [-unit.coefficient for unit in units])
        step = np.array([learning_rate * problem.dimension / batch_size, problem.label_noise**2])
        given = (problem.teacher.coefficients, gram.ravel(), *self._fixed, step, np.zeros(M), weights, noise.numbers)
        numbers: Array = np.concatenate(given)
        self.parameters: Array = np.concatenate([numbers, link])
        counts = [m, P, P, P, problem.information_exponent % 2, numbers.size, self._kernel.size, len(levels), M]
        places = np.array([*counts, numbers.size - noise.numbers.size], dtype=np.int64)
        self.sizes: Integers = np.concatenate([places, noise.layout])
        self.work_size = M * M + 2 * m * M + m * m + noise.work_size

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views (C, G) of a state."""
        m, P = self.problem.width, self.problem.num_directions
        return state[: m * P].reshape(m, P), state[m * P :].reshape(m, m)

    def overlaps(self, state: Array) -> Array:
        """Return w_i·θ_p, shape (m, P)."""
        return self.unpack(state)[0]

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        C, G = self.unpack(state)
        attraction = np.polynomial.polynomial.polyval(C, self._kernel).mean(axis=0)
        own = float(self.problem.activation.kernel(G).mean())
        return float(own - 2.0 * attraction @ self.problem.teacher.coefficients + self.teacher_loss())

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, margin, and per direction the largest overlap and the learned mass."""
        C, G = self.unpack(state)
        margin = float(np.linalg.eigvalsh(G - C @ self._inverse_gram @ C.T)[0])
        return {**super().summarise(state), "gram_margin": margin}

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, and the overlaps C and G."""
        C, G = self.unpack(state)
        return {**self.summarise(state), "teacher_overlap": C.copy(), "student_overlap": G.copy()}
