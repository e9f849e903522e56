r"""Online learning of a committee, f(x) = Σ_i σ(w_i·x), in its order parameters R = WΘᵀ and S = WWᵀ.

The M = m + P vectors v_b, with Gram matrix C, are the neurons, of weight w_b = 1, and the directions, of weight −a_p.
By Stein's lemma

.. math:: E[\bar e\, \sigma'_i\, x] = \sum_b N_{ib} v_b + k_i w_i, \qquad N_{ib} = w_b E\,\sigma'_i\sigma'_b, \qquad
   k_i = \sum_b w_b E\,\sigma''_i\sigma_b,

so that with F = N C + diag(k) C, and in time t = η · step,

.. math:: R' = -F_{\cdot p}, \qquad S' = -F_{\cdot j} - F_{\cdot j}^T + \eta\, E[(\bar e^2 + \tau^2)\,
   \sigma'_i \sigma'_j\, |x|^2]

for one sample, see docs/committees.md. Means are closed forms for erf(z/√2), finite sums for polynomials.

State y = [R (m, P) | S (m, m)]; `CommitteeCounts`, `CommitteeNumbers` and `CommitteeWork` say what `sizes`,
`parameters` and `work` hold. Each family has a right-hand side of its own for steps, whose terms of second order take
long to compile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import hermite
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.losses import by_degree, largest_overlaps, teacher_parts, teacher_term, without_rounding
from dynamics.equations.mean_step import add_noise, average_batch, write_descent
from dynamics.equations.network import steps
from dynamics.equations.network.families import normalised_overlaps
from dynamics.equations.network.normal_kernels import mirror
from dynamics.equations.network.series import write_series_means
from dynamics.equations.overlaps import write_gram
from dynamics.kernels.jit import kernel, matrix, pasted_kernel, vector
from dynamics.kernels.products import multiply
from dynamics.kernels.units import unit
from dynamics.problem.checks import require
from dynamics.problem.emergence import LOWEST_DEGREE
from hermite.arrays import Integers, Matrix, Vector
from hermite.polynomials import mean_derivatives, series_derivative

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Families of links.
ERF, POLYNOMIAL = 0, 1


class CommitteeCounts(NamedTuple):
    """First entries of `sizes`, which the layout of the step follows."""

    #: Neurons m and directions P.
    width: int
    directions: int
    #: 1 where the sign of an overlap matters.
    sign_matters: int
    #: Degree K of a polynomial, 0 of erf.
    degree: int
    #: 0 in the flow, 1 for steps in the limit d → ∞, 2 for steps at finite d.
    theory: int
    #: Lowest degree that counts in learned masses.
    first_degree: int
    #: `ERF` or `POLYNOMIAL`.
    family: int
    #: Place of N in `work`.
    forces_at: int


class CommitteeNumbers(NamedTuple):
    """Layout of `parameters`: weights w (M,), Gram matrix T (P, P) of directions, five numbers, and those of the link.

    The numbers are the variance τ² of label noise, the learning rate η, the dimension d, the samples B of a batch and
    the emergence level; `link` holds the mean derivatives of a polynomial at variance 1 (K + 1,), and is empty for erf.
    """

    weights: Vector
    gram: Matrix
    noise: float
    rate: float
    dimension: float
    batch: float
    level: float
    link: Vector


class CommitteeWork(NamedTuple):
    """Parts of `work`: C (M, M), `derivatives` (M, K + 4), N + diag(k) and F (m, M), `second` (m, m), and scratch.

    `derivatives` are F_ak = E σ^(k)(λ_a) of a polynomial, without rows for erf; `second` are the terms of second order.
    """

    C: Matrix
    derivatives: Matrix
    N: Matrix
    F: Matrix
    second: Matrix
    scratch: Vector


#: Place of the step's layout in `sizes`.
LAYOUT = len(CommitteeCounts._fields)


@kernel
def counts_of(sizes: Integers) -> CommitteeCounts:
    """Return the first entries of `sizes` by name."""
    return CommitteeCounts(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7])


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> CommitteeNumbers:
    """Return the parts of `parameters` by name, arrays as views, see `CommitteeNumbers`.

    `parameters` = [weights (M) | T (P, P) | τ² | η | d | B | level of emergence | numbers of the link], for P
    directions and M = m + P vectors, which `sizes` counts.
    """
    counts = counts_of(sizes)
    P, M = counts.directions, counts.width + counts.directions
    at = M + P * P
    return CommitteeNumbers(
        vector(parameters, 0, M), matrix(parameters, M, P, P), parameters[at], parameters[at + 1], parameters[at + 2],
        parameters[at + 3], parameters[at + 4], vector(parameters, at + 5, parameters.size - at - 5),
    )  # fmt: skip


@kernel
def work_of(sizes: Integers, work: Vector) -> CommitteeWork:
    """Return the parts of `work` by name."""
    counts = counts_of(sizes)
    m, M, at = counts.width, counts.width + counts.directions, counts.forces_at
    rows, last = M if counts.family == POLYNOMIAL else 0, at + 2 * m * M
    return CommitteeWork(
        matrix(work, 0, M, M), matrix(work, M * M, rows, counts.degree + 4), matrix(work, at, m, M),
        matrix(work, at + m * M, m, M), matrix(work, last, m, m), vector(work, last + m * m, work.size - last - m * m),
    )  # fmt: skip


@kernel
def split(y: Vector, sizes: Integers) -> tuple[Matrix, Matrix]:
    """Return views of a state, or of its rates: R (m, P), neurons times directions, and S (m, m), times neurons."""
    counts = counts_of(sizes)
    m, P = counts.width, counts.directions
    return matrix(y, 0, m, P), matrix(y, m * P, m, m)


@kernel
def write_means(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the Gram matrix C = [S R; Rᵀ T] of all vectors, then the mean derivatives of a polynomial."""
    numbers, (C, derivatives, _, _, _, _) = numbers_of(parameters, sizes), work_of(sizes, work)
    write_gram(y, counts_of(sizes).width, numbers.gram, C)
    for a in range(derivatives.shape[0]):
        write_series_means(C[a, a], 0.0, numbers.link, derivatives[a])


@kernel
def write_forces(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write N + diag(k) (m, M) to `work`: N_ib = w_b E σ'_i σ'_b and k_i = Σ_b w_b E σ''_i σ_b.

    σ_i is the output of neuron i, and w_b = 1 for neurons and −a_p for directions. For erf, k_i = −Σ_b N_ib C_ib/(1 +
    C_ii), C the Gram matrix.
    """
    counts, weights = counts_of(sizes), numbers_of(parameters, sizes).weights
    C, derivatives, N, _, _, _ = work_of(sizes, work)
    write_means(y, parameters, sizes, work)
    for i in range(counts.width):
        first, total = 1.0 + C[i, i], 0.0
        if counts.family == ERF:
            for b in range(weights.size):
                c, second = C[i, b], 1.0 + C[b, b]
                N[i, b] = weights[b] * (2.0 / math.pi / math.sqrt(first * second - c * c))
                total -= N[i, b] * c
            N[i, i] += total / first
            continue
        F = derivatives[i]
        for b in range(weights.size):
            G, c = derivatives[b], C[i, b]
            slopes = bend = 0.0
            for k in range(counts.degree, -1, -1):
                slopes = F[k + 1] * G[k + 1] + slopes * c / (k + 1)
                bend = F[k + 2] * G[k] + bend * c / (k + 1)
            N[i, b] = weights[b] * slopes
            total += weights[b] * bend
        N[i, i] += total


@unit()
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write R' = −F_R (m, P) and S' = −(F_S + F_Sᵀ) (m, m) of the flow; N, k and F stay in `work`.

    R and S are products of neurons with directions and with neurons, and F = (N + diag(k)) C has the columns [F_S |
    F_R]; C is the Gram matrix of all vectors.
    """
    (C, _, N, F, _, _), (dR, dS) = work_of(sizes, work), split(out, sizes)
    write_forces(y, parameters, sizes, work)
    multiply(N, C, F)
    write_descent(F, dR, dS)


@pasted_kernel
def write_step_second(parameters: Vector, sizes: Integers, work: Vector) -> Matrix:
    """Write and return E of the products of two gradients of a batch, (m, m); call it after `rhs`.

    Entries above the diagonal are not written.
    """
    m, exact, numbers = counts_of(sizes).width, counts_of(sizes).theory == 2, numbers_of(parameters, sizes)
    C, _, N, F, second, scratch = work_of(sizes, work)
    vectors, layout = (C, np.zeros(C.shape[0]), numbers.weights), vector(sizes, LAYOUT, sizes.size - LAYOUT)
    noise, d, link = numbers.noise, numbers.dimension, numbers.link
    if counts_of(sizes).family == ERF:
        steps.write_central_erf_second(vectors, noise, d, exact, m, link, layout, scratch, second)
    else:
        steps.write_polynomial_second(vectors, noise, d, exact, m, link, layout, scratch, second)
    # |x|² and the product of two samples differ by a factor of order d, so that the limit has no such product.
    average_batch(second, C, N, F, numbers.weights, numbers.batch, exact, 1.0, 0.0)
    return second


@kernel
def step_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of `rhs`, and add η E of the products of two gradients to S', for a finite learning rate."""
    rhs(t, y, out, parameters, sizes, work)
    _, dS = split(out, sizes)
    add_noise(numbers_of(parameters, sizes).rate, write_step_second(parameters, sizes, work), dS)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the diagonal of the Jacobian with N and k held: −N_ii − k_i for R, the sum of two such for S.

    N + diag(k) are the forces that `rhs` leaves in `work`.
    """
    (dR, dS), N = split(out, sizes), work_of(sizes, work).N
    for i in range(dR.shape[0]):
        for p in range(dR.shape[1]):
            dR[i, p] = -N[i, i]
        for j in range(dR.shape[0]):
            dS[i, j] = -N[i, i] - N[j, j]


@kernel
def learned_mean(i: int, b: int, sizes: Integers, work: Vector) -> float:
    """Return E σ_i σ_b of units i and b, without the degrees below the lowest one that counts as learned."""
    counts, (C, derivatives, _, _, _, _) = counts_of(sizes), work_of(sizes, work)
    c, value = C[i, b], 0.0
    if counts.family == ERF:
        ratio = c / math.sqrt((1.0 + C[i, i]) * (1.0 + C[b, b]))
        return 2.0 / math.pi * (math.asin(ratio) - (0.0 if counts.first_degree == 0 else ratio))
    F, G = derivatives[i], derivatives[b]
    for k in range(counts.degree, -1, -1):
        value = (F[k] * G[k] if k >= counts.first_degree else 0.0) + value * c / (k + 1)
    return value


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write max_i C_ip² − the emergence level per direction p, then learned mass − a_p/2 per direction.

    C_ip is the cosine of neuron i and direction p; where the sign matters only C > 0 counts. The mass is NaN where no
    degree of the link counts.
    """
    counts, numbers, C = counts_of(sizes), numbers_of(parameters, sizes), work_of(sizes, work).C
    m, P = counts.width, counts.directions
    write_means(y, parameters, sizes, work)
    for p in range(P):
        largest, mass = 0.0, 0.0
        for i in range(m):
            r = C[i, m + p]
            if r > 0.0 or counts.sign_matters == 0:
                largest = max(largest, r * r / C[i, i])
            mass += learned_mean(i, m + p, sizes, work)
        out[p] = largest - numbers.level
        unit_square = learned_mean(m + p, m + p, sizes, work)
        out[P + p] = mass / unit_square + 0.5 * numbers.weights[m + p] if unit_square > 0.0 else np.nan


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Make S symmetric: one half, which steps treat alike up to the order of sums, is copied over the other."""
    mirror(split(y, sizes)[1])


FLOW = Functions(rhs, event_values, normalise, jacobian_diagonal)
#: The functions of steps, by the family of the link.
STEPS = {
    ERF: replace(FLOW, rhs=step_rhs, choices=(steps.write_central_erf_second,)),
    POLYNOMIAL: replace(FLOW, rhs=step_rhs, choices=(steps.write_polynomial_second,)),
}
STEP_THEORIES = ("infinite-d", "finite-d")


class CommitteeSystem(FlowSystem):
    """A committee at a learning rate η, by default in the flow η → 0; ValueError unless means are known exactly."""

    name = "committee"

    def __init__(
        self, problem: Problem, learning_rate: float | None = None, step_theory: str = "infinite-d", batch_size: int = 1
    ) -> None:
        """Prepare the flow, or mean steps at `learning_rate` η on batches of `batch_size` samples.

        `step_theory` is "infinite-d" or "finite-d".
        """
        m, P = problem.width, problem.num_directions
        M, teacher, start = m + P, problem.teacher, problem.start()
        self.problem = problem
        self._link = link = committee_link(problem.activation, for_step=learning_rate is not None)
        self.functions = FLOW if learning_rate is None else STEPS[link.family]
        length = np.sqrt(start.squared_norm)
        R, S = start.teacher_overlap * length[:, None], start.student_overlap * np.outer(length, length)
        self.initial_state: Array = np.concatenate([R.ravel(), S.ravel()])
        self._gram = teacher.gram()
        self._inverse_gram = np.linalg.pinv(self._gram)
        self._weights = np.concatenate([np.ones(m), -teacher.coefficients])
        theory = 0 if learning_rate is None else 1 + STEP_THEORIES.index(step_theory)
        step = [problem.label_noise**2, learning_rate or 0.0, float(problem.dimension), float(batch_size)]
        scalars = [*step, problem.emergence_level]
        self.parameters: Array = np.concatenate([self._weights, self._gram.ravel(), scalars, link.numbers])
        part, K = problem.learned_part, max(link.numbers.size - 1, 0)
        # Where no degree counts the kernels begin after the last one.
        self._first = part.first_degree if part.is_defined else K + 1
        is_polynomial = link.family == POLYNOMIAL
        forces, scratch = (M * M + M * (K + 4), steps.diagram_size(M, K)) if is_polynomial else (M * M, M * (M + 2))
        sizes = [m, P, problem.information_exponent % 2, K, theory, self._first, link.family, forces]
        layout = [K, steps.lacking_parity([link.numbers]), *[0, K] * M]
        self.sizes: Integers = np.array([*sizes, *layout], dtype=np.int64)
        self.work_size = forces + 2 * m * M + m * m + (0 if learning_rate is None else scratch)
        self.num_events = 2 * P
        self.teacher_by_degree = teacher_parts(problem, teacher_term(problem))

    def stiffness(self) -> float:
        """Return a bound on the rates of the flow at norms 1, 2 m E[σ'² (1 + z²)]; the step's terms are not in it."""
        c = self.problem.activation.coefficients
        nodes, weights = np.polynomial.hermite_e.hermegauss(c.size + 2)
        square = np.sum(weights * series_derivative(c, nodes) ** 2 * (1.0 + nodes**2)) / np.sum(weights)
        return 2.0 * self.problem.width * float(square)

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views of a state: R (m, P), neurons times directions, and S (m, m), neurons times neurons."""
        m, P = self.problem.width, self.problem.num_directions
        return state[: m * P].reshape(m, P), state[m * P :].reshape(m, m)

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return C = R_ip/√S_ii, G = S_ij/√(S_ii S_jj), n = S_ii, loss, and the realisability margin."""
        C, G, _ = normalised_overlaps(*self.unpack(state))
        record = self.summarise(state)
        del record["max_overlap"], record["learned_mass"]
        return {"teacher_overlap": C, "student_overlap": G, **record}

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return observables of a state by name.

        They are the largest overlap and the learned mass of each direction, (P,), squared norms n (m,), the loss E(f −
        f*)², its parts by degree where these are known, and `gram_margin`, the least eigenvalue of G − C T⁻¹ Cᵀ, which
        is negative where no neurons have the overlaps C and G.
        """
        R, S = self.unpack(state)
        C, G, n = normalised_overlaps(R, S)
        gram = self._all_products(R, S)
        loss, parts = self._squared(self._link.products(gram)), {}
        if self.teacher_by_degree is not None:
            squares = [self._squared(self._link.part(gram, degree)) for degree in range(LOWEST_DEGREE)]
            parts["degree_loss"] = by_degree(squares, loss)
        return {
            "max_overlap": largest_overlaps(self.problem, C),
            "learned_mass": self.learned_mass(R, n),
            "squared_norm": n,
            "loss": loss,
            **parts,
            "gram_margin": float(np.linalg.eigvalsh(G - C @ self._inverse_gram @ C.T)[0]),
        }

    def _squared(self, means: Array) -> float:
        """Return the mean square of Σ_b w_b σ_b from `means` E σ_a σ_b (M, M), of all degrees or of some."""
        terms = np.abs(self._weights)
        return float(without_rounding(self._weights @ means @ self._weights, terms @ np.abs(means) @ terms))

    def loss(self, R: Array, S: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return self._squared(self._link.products(self._all_products(R, S)))

    def loss_of_state(self, state: Array) -> float:
        """Return E(f − f*)² of a state."""
        return self.loss(*self.unpack(state))

    def learned_mass(self, R: Array, n: Array) -> Array:
        """Return Σ_i E[σ_i σ_p]/E[σ_p²] per direction p, (P,), over the degrees that count; NaN if there are none.

        R (m, P) are products of neurons and directions, n (m,) squared norms.
        """
        m = self.problem.width
        if not self.problem.learned_part.is_defined:
            return np.full(self.problem.num_directions, np.nan)
        means = self._link.products(self._all_products(R, np.diag(n)), self._first)
        return np.asarray(means[:m, m:].sum(axis=0) / np.diag(means)[m:])

    def _all_products(self, R: Array, S: Array) -> Array:
        """Return the Gram matrix (M, M) of neurons and directions."""
        return np.block([[S, R], [R.T, self._gram]])


@dataclass(frozen=True)
class CommitteeLink:
    """A link of which Gaussian means are known exactly at every norm: erf(z/√2), or a polynomial.

    E σ_a σ_b is (2/π) arcsin(C_ab / √((1 + C_aa)(1 + C_bb))) or Σ_k F_ak F_bk C_ab^k / k!, F_ak = E σ^(k)(λ_a). The
    part of degree k, that of σ(ρ z) with h_k(z), z ~ N(0, 1), is the term with C_ab^k, of the arcsine the linear one.
    """

    #: The mean derivatives F_k at variance 1, k = 0 … K, of a polynomial; none for erf.
    numbers: Array

    @property
    def family(self) -> int:
        """Family of the compiled functions."""
        return POLYNOMIAL if self.numbers.size else ERF

    def products(self, gram: Array, first: int = 0) -> Array:
        """Return E σ_a σ_b of all pairs of units, shape (M, M), from their Gram matrix (M, M).

        Degrees below `first` are left out; for erf `first` is 0 or 3.
        """
        if self.family == POLYNOMIAL:
            return sum((self.part(gram, k) for k in range(first, self.numbers.size)), np.zeros_like(gram))
        width = np.sqrt(1.0 + np.diag(gram))
        ratio = gram / np.outer(width, width)
        return np.asarray(2.0 / math.pi * (np.arcsin(ratio) if first == 0 else np.arcsin(ratio) - ratio))

    def part(self, gram: Array, degree: int) -> Array:
        """Return the part of E σ_a σ_b of one degree (of erf 0, 1 or 2), shape (M, M)."""
        if self.family == ERF:
            width = np.sqrt(1.0 + np.diag(gram))
            return np.asarray((2.0 / math.pi if degree == 1 else 0.0) * gram / np.outer(width, width))
        lack = 0.5 * (np.diag(gram) - 1.0)
        terms = (F * lack**j / math.factorial(j) for j, F in enumerate(self.numbers[degree::2].tolist()))
        mean = sum(terms, np.zeros_like(lack))
        return np.asarray(gram**degree / math.factorial(degree) * np.outer(mean, mean))


def committee_link(link: HermiteExpansion, *, for_step: bool) -> CommitteeLink:
    """Return the means of a link; ValueError unless it is erf(z/√2) or a polynomial, of low degree for steps."""
    if link == hermite.expand("erf", order=link.order):
        return CommitteeLink(np.empty(0))
    require(
        link.is_polynomial and link.truncation_error <= 0.0,
        f"Argument `problem` must have a polynomial link or 'erf' for a committee, but has {link.name}; "
        "`activation=problem.activation.truncated()` asks for its series, close to it at norms up to 1 alone.",
    )
    numbers, most = mean_derivatives(np.trim_zeros(link.coefficients, "b")), steps.LARGEST_STEP_DEGREE
    require(
        not for_step or numbers.size - 1 <= most,
        f"Argument `problem` must have a link of degree at most {most} for a finite learning rate, but has "
        f"{numbers.size - 1}.",
    )
    return CommitteeLink(numbers)
