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

State y = [C (m, P) | G (m, m)], sizes = [m, P, J, n, sign_matters, M, place of the numbers, place of the link |
layout], parameters = [a (P) | T (P, P) | c c* (J) | levels of the loss (n) | E f*² | γ/B | τ² | biases (M), all 0 |
weights (M) | numbers | link], for J coefficients of g*(s) = Σ_j c_j c*_j s^j and M vectors: neurons, directions, and
what has no direction. `numbers` and `layout` are those of `dynamics.equations.network.steps`, and the link is as
in `dynamics.equations.link`. The equations are those of `dynamics.equations.spherical_step`.

Functions that take another one are inlined: Numba stores no function on disk that hands one over at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions, System
from dynamics.equations.link import learned_kernel, link_data, write_g0, write_g1
from dynamics.equations.mean_field import link_powers, teacher_square
from dynamics.equations.network.steps import step_source, step_units, write_erf_second, write_polynomial_second
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, row_part, vector
from dynamics.kernels.products import product
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


@kernel
def link_of(parameters: Vector, sizes: Integers) -> Vector:
    """Return the data of the link."""
    return vector(parameters, sizes[7], parameters.size - sizes[7])


@kernel
def write_gram(y: Vector, parameters: Vector, sizes: Integers, gram: Matrix) -> None:
    """Write the Gram matrix [G C; Cᵀ T] of all vectors, by loops: assignments of slices take seconds to compile."""
    m, P, M = sizes[0], sizes[1], sizes[5]
    for i in range(M):
        for j in range(M):
            gram[i, j] = 0.0
    for i in range(m):
        for j in range(m):
            gram[i, j] = y[m * P + i * m + j]
        for p in range(P):
            gram[i, m + p] = gram[m + p, i] = y[i * P + p]
    for p in range(P):
        for q in range(P):
            gram[m + p, m + q] = parameters[P + p * P + q]


@kernel
def pull(s: float, parameters: Vector, sizes: Integers) -> tuple[float, float]:
    """Return g*(s) and g*'(s), by Horner's rule."""
    first = sizes[1] + sizes[1] ** 2
    value = slope = 0.0
    for j in range(sizes[2] - 1, -1, -1):
        slope = slope * s + value
        value = value * s + parameters[first + j]
    return value, slope


@inlined_kernel
def write_noise(
    write_step_second: Callable[..., None],
    gram: Matrix,
    parameters: Vector,
    sizes: Integers,
    work: Vector,
    noise: Matrix,
) -> None:
    """V_ij = E[(ē² + τ²) σ'_i σ'_j]."""
    m, M, at = sizes[0], sizes[5], sizes[6]
    bias, weight = parameters[at - 2 * M : at - M], parameters[at - M : at]
    variance = parameters[at - 2 * M - 1]
    write_step_second((gram, bias, weight), variance, 1.0, False, m, parameters[at : sizes[7]], sizes[8:], work, noise)


@inlined_kernel
def write_rates(
    write_step_second: Callable[..., None], y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """C' = X − diag(r) C − ½ γ/B diag(V) C and the same of G with γ/B V, X = N gram, r = X_ii."""
    m, P, M = sizes[0], sizes[1], sizes[5]
    gram, N, X = matrix(work, 0, M, M), matrix(work, M * M, m, M), matrix(work, M * M + m * M, m, M)
    V = matrix(work, M * M + 2 * m * M, m, m)
    write_gram(y, parameters, sizes, gram)
    write_noise(write_step_second, gram, parameters, sizes, work[M * M + 2 * m * M + m * m :], V)
    link = link_of(parameters, sizes)
    for i in range(m):
        write_g1(link, row_part(gram, i, 0, m), row_part(N, i, 0, m))
        for j in range(m):
            N[i, j] *= -1.0 / m
        # The force of a neuron on itself is radial.
        N[i, i] = 0.0
        for p in range(P):
            _, slope = pull(gram[i, m + p], parameters, sizes)
            N[i, m + p] = parameters[p] * slope
        for j in range(m + P, M):
            N[i, j] = 0.0
    product(N, gram, X)
    rate = parameters[sizes[6] - 2 * M - 2]
    for i in range(m):
        lost = X[i, i] + 0.5 * rate * V[i, i]
        for p in range(P):
            out[i * P + p] = X[i, m + p] - lost * gram[i, m + p]
        out[m * P + i * m + i] = 0.0
        for j in range(i):
            both = lost + X[j, j] + 0.5 * rate * V[j, j]
            change = X[i, j] + X[j, i] + rate * V[i, j] - both * gram[i, j]
            out[m * P + i * m + j] = change
            out[m * P + j * m + i] = change


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
    """Level − loss per level; max_i C_ip² − ½ (C > 0 only, if the sign matters); Σ_i g_3(C_ip)/(m g_3(1)) − a_p/2."""
    m, P, J, levels = sizes[0], sizes[1], sizes[2], sizes[3]
    at, link, values = P + P * P + J, link_of(parameters, sizes), vector(work, 0, m * m)
    loss = 0.0
    write_g0(link, vector(y, m * P, m * m), values)
    for k in range(m * m):
        loss += values[k]
    loss = loss / m / m + parameters[at + levels]
    for p in range(P):
        largest = mass = attraction = 0.0
        for i in range(m):
            c = y[i * P + p]
            attraction += pull(c, parameters, sizes)[0]
            mass += learned_kernel(link, c)
            if c > 0.0 or sizes[4] == 0:
                largest = max(largest, c * c)
        loss -= 2.0 * parameters[p] * attraction / m
        out[levels + p] = largest - 0.5
        out[levels + P + p] = mass / m / learned_kernel(link, 1.0) - 0.5 * parameters[p]
    for n in range(levels):
        out[n] = parameters[at + n] - loss


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """G = Gᵀ, G_ii = 1."""
    m, first = sizes[0], sizes[0] * sizes[1]
    for i in range(m):
        y[first + i * m + i] = 1.0
        for j in range(i):
            y[first + j * m + i] = y[first + i * m + j]


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
