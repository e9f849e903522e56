r"""Online learning of a committee, f(x) = Σ_i σ(w_i·x), in its order parameters R = WΘᵀ and S = WWᵀ.

One step of SGD is w_i ← w_i − η e σ'(λ_i) x with λ_i = w_i·x and e = ē − noise, ē = Σ_b w_b σ(v_b·x): the vectors v
are the m neurons, of weight 1, and the P directions, of weight −a_p. C is the Gram matrix of all of them. By Stein's
lemma the mean gradient of ½ E ē² is

.. math:: E[\bar e\, \sigma'_i\, x] = \sum_b N_{ib} v_b + k_i w_i, \qquad N_{ib} = w_b E\,\sigma'_i\sigma'_b, \qquad
   k_i = \sum_b w_b E\,\sigma''_i\sigma_b,

so that with F = N C + diag(k) C, and in time t = η · step,

.. math:: R' = -F_{\cdot p}, \qquad S' = -F_{\cdot j} - F_{\cdot j}^T + \eta\, E[(\bar e^2 + \tau^2)\,
   \sigma'_i \sigma'_j\, |x|^2].

The last term is left out in the flow η → 0; as d → ∞ with η d fixed |x|² is d (Saad & Solla 1995, their η is η d and
their α is step/d, for weights scaled by √d). For B samples per step it is divided by B, and the products of two samples
add η (1 − 1/B) D, D = F (N + diag(k))ᵀ that of the mean gradients, which is nothing in that limit. Means are closed
forms for erf(z/√2), finite sums for polynomials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

import hermite
from dynamics.equations import committee_kernels as kernels
from dynamics.equations.committee_kernels import ERF, POLYNOMIAL
from dynamics.equations.degrees import by_degree, teacher_parts
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.overlaps import teacher_term
from dynamics.problem.emergence import LOWEST_DEGREE
from hermite.moments import mean_derivatives

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers


FLOW = Functions(kernels.rhs, kernels.event_values, kernels.normalise, kernels.jacobian_diagonal)
#: The functions of steps, by the family of the link.
STEPS = {
    kernels.ERF: replace(FLOW, rhs=kernels.erf_step_rhs),
    kernels.POLYNOMIAL: replace(FLOW, rhs=kernels.polynomial_step_rhs),
}
STEP_THEORIES = ("infinite-d", "finite-d")


class CommitteeSystem(FlowSystem):
    """State layout, kernels and observables of a committee at a learning rate η, by default in the flow η → 0.

    In the term of order η², of B samples, |x|² is d for "infinite-d" and exact for "finite-d". Raises
    ValueError if the means of the link are not known exactly.
    """

    name = "committee"

    def __init__(
        self,
        problem: Problem,
        learning_rate: float | None = None,
        step_theory: str = "infinite-d",
        batch_size: int = 1,
    ) -> None:
        m, P = problem.width, problem.num_directions
        teacher, start = problem.teacher, problem.start()
        self.problem = problem
        self._link = committee_link(problem.activation, for_step=learning_rate is not None)
        self.functions = FLOW if learning_rate is None else STEPS[self._link.family]
        length = np.sqrt(start.squared_norm)
        self.initial_state: Array = np.concatenate(
            [
                (start.teacher_overlap * length[:, None]).ravel(),
                (start.student_overlap * np.outer(length, length)).ravel(),
            ]
        )
        gram = teacher.gram()
        theory = 0 if learning_rate is None else 1 + STEP_THEORIES.index(step_theory)
        step = [problem.label_noise**2, learning_rate or 0.0, float(problem.dimension), float(batch_size)]
        self.parameters: Array = np.concatenate([teacher.coefficients, gram.ravel(), step, self._link.numbers])
        part = problem.learned_part
        # Where no degree counts the kernels begin after the last one.
        self._first = part.first_degree if part.is_defined else self._link.degree + 1
        self.sizes: Integers = np.array(
            [m, P, problem.information_exponent % 2, self._link.degree, theory, self._first, self._link.family],
            dtype=np.int64,
        )
        M = m + P
        self.work_size = M * M + self._link.table_size(M) + 2 * m * M + m + m * m
        self.num_events = 2 * P
        self._gram, self._inverse_gram = gram, np.linalg.pinv(gram)
        self._weights = np.concatenate([np.ones(m), -teacher.coefficients])
        self.teacher_by_degree = teacher_parts(problem, teacher_term(problem))

    def stiffness(self) -> float:
        """Return a bound on the rates of the flow at norms 1, 2 m E[σ'² (1 + z²)]; the step's terms are not in it."""
        from hermite.polynomials import series_derivative

        c = self.problem.activation.coefficients
        nodes, weights = np.polynomial.hermite_e.hermegauss(c.size + 2)
        square = np.sum(weights * series_derivative(c, nodes) ** 2 * (1.0 + nodes**2)) / np.sum(weights)
        return 2.0 * self.problem.width * float(square)

    def unpack(self, state: Array) -> tuple[Array, Array]:
        """Return views (R, S) of a state."""
        m, P = self.problem.width, self.problem.num_directions
        return state[: m * P].reshape(m, P), state[m * P :].reshape(m, m)

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return C = R_ip/√S_ii, G = S_ij/√(S_ii S_jj), n = S_ii, loss, and the realisability margin."""
        R, S = self.unpack(state)
        C, G, n = _normalised(R, S)
        record = {"teacher_overlap": C, "student_overlap": G, "squared_norm": n}
        return record | self._losses(self._all_products(R, S)) | {"gram_margin": self.gram_margin(C, G)}

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return per direction the largest overlap and the learned mass, n, loss and margin."""
        R, S = self.unpack(state)
        C, G, n = _normalised(R, S)
        size = np.maximum(C, 0.0) if self.problem.information_exponent % 2 else np.abs(C)
        record = {"max_overlap": size.max(axis=0), "learned_mass": self.learned_mass(R, n), "squared_norm": n}
        return record | self._losses(self._all_products(R, S)) | {"gram_margin": self.gram_margin(C, G)}

    def _losses(self, gram: Array) -> dict[str, Array | float]:
        """Return the loss and, where it is told by degree, E of the squares of the parts of f − f*, (4,)."""
        loss = self._squared(self._link.products(gram))
        if self.teacher_by_degree is None:
            return {"loss": loss}
        parts = [self._squared(self._link.part(gram, degree)) for degree in range(LOWEST_DEGREE)]
        return {"loss": loss, "degree_loss": by_degree(parts, loss)}

    def _squared(self, means: Array) -> float:
        """Return the mean square of f − f*, or of a part of it, of the means of products of all its units."""
        return float(self._weights @ means @ self._weights)

    def loss(self, R: Array, S: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return self._squared(self._link.products(self._all_products(R, S)))

    def learned_mass(self, R: Array, n: Array) -> Array:
        """Return Σ_i E[σ_i σ_p]/E[σ_p²] per direction, of the degrees that count; NaN where the link has none of them.

        A neuron of squared norm n has, as degree j, that of σ(√n z) in h_j(z). Overlaps of two neurons are not needed.
        """
        m = self.problem.width
        if not self.problem.learned_part.is_defined:
            return np.full(self.problem.num_directions, np.nan)
        means = self._link.products(self._all_products(R, np.diag(n)), self._first)
        mass: Array = means[:m, m:].sum(axis=0) / np.diag(means)[m:]
        return mass

    def gram_margin(self, C: Array, G: Array) -> float:
        """Return the smallest eigenvalue of G − C T⁻¹ Cᵀ: vectors with these overlaps exist when it is ≥ 0."""
        return float(np.linalg.eigvalsh(G - C @ self._inverse_gram @ C.T)[0])

    def _all_products(self, R: Array, S: Array) -> Array:
        return np.block([[S, R], [R.T, self._gram]])


def _normalised(R: Array, S: Array) -> tuple[Array, Array, Array]:
    """Return C, G and n; a neuron that has shrunk to a length of 0, within the tolerance, has no direction: zeros."""
    n = np.maximum(np.diag(S), 0.0)
    length = np.sqrt(n)
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0.0)
    return R * inverse[:, None], S * np.outer(inverse, inverse), n


# Links of which a committee's Gaussian means are known exactly at every norm: erf(z/√2) and polynomials.
#
# The overlap kernel g(s) of a link serves unit vectors alone; here projections have any variance. Both kinds of link
# say which family of the compiled functions they are, which numbers these take, how much scratch they need for M
# vectors, and E σ(λ_a) σ(λ_b) for λ ~ N(0, gram).
#
# Of a vector of length ρ the part of degree k is that of σ(ρ z) with the Hermite polynomial h_k(z), z ~ N(0, 1), so
# that each length has coefficients of its own. In E σ_a σ_b it makes the term with C_ab^k: degree 1 of erf(z/√2),
# which is odd, makes the linear term of the arcsine.


#: Largest degree of a polynomial in the equations of the step, whose diagrams grow as the fourth power of it.
LARGEST_STEP_DEGREE = 12


@dataclass(frozen=True)
class ErfLink:
    """The link erf(z/√2): E σ_a σ_b = (2/π) arcsin(C_ab / √((1 + C_aa)(1 + C_bb)))."""

    family: int = ERF
    degree: int = 0

    @property
    def numbers(self) -> Array:
        """No numbers."""
        return np.empty(0)

    def table_size(self, vectors: int) -> int:
        """Return the numbers of scratch, M (M + 2)."""
        return vectors * (vectors + 2)

    def products(self, gram: Array, first: int = 0) -> Array:
        """Return E σ_a σ_b of all pairs, shape (M, M), of the degrees from `first`, 0 or 3, on."""
        width = np.sqrt(1.0 + np.diag(gram))
        ratio = gram / np.outer(width, width)
        means: Array = 2.0 / math.pi * (np.arcsin(ratio) if first == 0 else np.arcsin(ratio) - ratio)
        return means

    def part(self, gram: Array, degree: int) -> Array:
        """Return what degree 0, 1 or 2 has of E σ_a σ_b, shape (M, M); the link is odd."""
        width = np.sqrt(1.0 + np.diag(gram))
        return np.asarray((2.0 / math.pi if degree == 1 else 0.0) * gram / np.outer(width, width))


@dataclass(frozen=True)
class PolynomialLink:
    """A polynomial: E σ_a σ_b = Σ_k F_ak F_bk C_ab^k / k!, F_ak = E σ^(k)(λ_a)."""

    numbers: Array  # the mean derivatives F_k at variance 1, k = 0 … K
    family: int = POLYNOMIAL

    @property
    def degree(self) -> int:
        """Degree K."""
        return int(self.numbers.size - 1)

    def table_size(self, vectors: int) -> int:
        """Return the size of the tables after C that the page of the diagrams lists."""
        return diagram_size(vectors, self.degree) - vectors**2

    def products(self, gram: Array, first: int = 0) -> Array:
        """Return E σ_a σ_b of all pairs, shape (M, M), of the degrees from `first` on."""
        total = np.zeros_like(gram)
        for degree in range(first, self.degree + 1):
            total += self.part(gram, degree)
        return total

    def part(self, gram: Array, degree: int) -> Array:
        """Return what one degree k has of E σ_a σ_b, F_ak F_bk C_ab^k / k!, shape (M, M)."""
        lack = 0.5 * (np.diag(gram) - 1.0)
        mean = np.zeros_like(lack)
        for j, F in enumerate(self.numbers[degree::2].tolist()):
            mean += F * lack**j / math.factorial(j)
        return np.asarray(gram**degree / math.factorial(degree) * np.outer(mean, mean))


def diagram_size(vectors: int, degree: int) -> int:
    """Return the numbers of scratch for diagrams of M vectors and links of degree up to K, C included."""
    M, K = vectors, degree
    rows = (K + 1) * (K + 2) // 2
    return M * M + 2 * M * (K + 4) + 2 * K * K + 3 * rows * M + (K + 1) * M * M + M


def committee_link(link: HermiteExpansion, *, for_step: bool) -> ErfLink | PolynomialLink:
    """Return the exact means of a link, with those of the finite step if they are wanted.

    Raises ValueError if the link is neither a polynomial nor erf(z/√2), or of too high a degree for the step.
    """
    if link == hermite.expand("erf", order=link.order):
        return ErfLink()
    if not link.is_polynomial or link.truncation_error > 0.0:
        msg = (
            f"Argument `problem` must have a polynomial link or 'erf' for a committee, but has {link.name}; "
            "`activation=problem.activation.truncated()` asks for its series, close to it at norms up to 1 alone."
        )
        raise ValueError(msg)
    numbers = mean_derivatives(np.trim_zeros(link.coefficients, "b"))
    if for_step and numbers.size - 1 > LARGEST_STEP_DEGREE:
        msg = (
            f"Argument `problem` must have a link of degree at most {LARGEST_STEP_DEGREE} for a finite learning rate, "
            f"but has {numbers.size - 1}."
        )
        raise ValueError(msg)
    return PolynomialLink(numbers)
