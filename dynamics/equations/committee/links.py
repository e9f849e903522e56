"""Links of which a committee's Gaussian means are known exactly at every norm: erf(z/√2) and polynomials.

The overlap kernel g(s) of a link serves unit vectors alone; here projections have any variance. Both kinds of link say
which family of the compiled functions they are, which numbers these take, how much scratch they need for M vectors, and
E σ(λ_a) σ(λ_b) for λ ~ N(0, gram).

Of a vector of length ρ the part of degree k is that of σ(ρ z) with the Hermite polynomial h_k(z), z ~ N(0, 1), so that
each length has coefficients of its own. In E σ_a σ_b it makes the term with C_ab^k: degree 1 of erf(z/√2), which is
odd, makes the linear term of the arcsine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import hermite
from dynamics.equations.committee.committee_kernels import ERF, POLYNOMIAL
from hermite.moments import mean_derivatives

if TYPE_CHECKING:
    from hermite import HermiteExpansion
    from hermite.arrays import Array

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
        lack = 0.5 * (np.diag(gram) - 1.0)
        total, power = np.zeros_like(gram), np.ones_like(gram)
        for k in range(self.degree + 1):
            later = self.numbers[k::2]
            mean = sum(F * lack**j / math.factorial(j) for j, F in enumerate(later))
            if k >= first:
                total += power * np.outer(mean, mean)
            power = power * gram / (k + 1)
        return total


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
