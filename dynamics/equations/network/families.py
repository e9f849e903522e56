"""Links as the kernels of pairs know them: by family, with their numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hermite.closed_forms import ClosedForm
from hermite.text.formulas import variable

if TYPE_CHECKING:
    from dynamics.equations.network.series import SeriesTable
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Families by their number in the kernels.
RELU, SIGN, ERF, POLYNOMIAL, TABLE = range(5)
#: Largest degree of a polynomial, whose derivatives at 0 are float64.
LARGEST_DEGREE = 150
#: |h_j(x)| φ(x) <= CRAMER e^(-x²/4) (Cramér's inequality).
CRAMER = 1.0865 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Link:
    """A link's family, and E_j of a polynomial at q = 1 and 0, its table, or κ, β and γ of a link κ f + βz + γ."""

    family: int
    coefficients: Array = field(default_factory=lambda: np.empty((2, 0)))
    table: SeriesTable | None = None
    scale: float = 1.0
    slope: float = 0.0
    offset: float = 0.0

    @property
    def has_line(self) -> bool:
        """Whether it is more than f."""
        return (self.scale, self.slope, self.offset) != (1.0, 0.0, 0.0)

    @property
    def numbers(self) -> Array:
        """What the kernels read."""
        return self.coefficients.ravel() if self.table is None else self.table.numbers

    @property
    def terms(self) -> int:
        """The degree of a polynomial and one, 0 of other links."""
        return int(self.coefficients.shape[1])

    def tails(self, terms: int, q: Array, b: Array) -> Array:
        """Return bounds on what a series of so many terms leaves out of σ and of σ', shape (2, units).

        Terms of relu, erf and sign are bounded one by one. Those of the slope of sign do not fall: its row holds their
        bound. Infinity stands for what is outside the range of a table.
        """
        if self.family == POLYNOMIAL:
            return np.zeros((2, q.size))
        length = np.sqrt(q)
        if self.table is not None:
            bound: Array = np.where(self.table.covers(length, b), self.table.tails(length, b), np.inf)
            return bound
        T = q + 1.0 if self.family == ERF else q
        size = abs(self.scale) * CRAMER * np.exp(-0.25 * b * b / T)
        if self.family == RELU:
            return np.stack([length * size / math.sqrt(terms - 1.0), np.full_like(q, abs(self.scale))])
        if self.family == SIGN:
            return np.stack([np.full_like(q, abs(self.scale)), 2.0 * size / length])
        power = 2.0 * size * np.sqrt((q / T) ** terms * T)
        return np.stack([power / math.sqrt(terms), power / np.sqrt(T)])


def known_link(link: HermiteExpansion) -> Link | None:
    """Return a polynomial, or κ f + βz + γ with f one of relu, sign and erf(z/√2); None for any other link."""
    if link.is_polynomial:
        degree = len(link.link_coefficients()) - 1
        if degree > LARGEST_DEGREE:
            msg = (
                f"Argument `student` must have links of degree at most {LARGEST_DEGREE}, but one is of degree {degree}."
            )
            raise ValueError(msg)
        return Link(POLYNOMIAL, np.stack([link.link_coefficients(), _at_zero(link)]))
    if not isinstance(link.exact_source, ClosedForm):
        return None
    line = [0.0, 0.0]
    scales = dict.fromkeys((RELU, SIGN, ERF), 0.0)
    for term in link.exact_source.terms:
        size = float(term.coefficient)
        if term.kind == "one" and term.power <= 1:
            line[term.power] += size
        elif term.kind == "step" and term.power == 0 and term.parameters == (0,):
            scales[SIGN] += 0.5 * size
            line[0] += 0.5 * size
        elif term.kind == "step" and term.power == 1 and term.parameters == (0,):
            scales[RELU] += size
        elif term.kind == "erf" and term.power == 0 and 2 * term.parameters[0] ** 2 == 1 and term.parameters[1] == 0:
            scales[ERF] += size * (1.0 if term.parameters[0] > 0 else -1.0)
        else:
            return None
    found = [family for family, scale in scales.items() if scale != 0.0]
    return Link(found[0], scale=scales[found[0]], slope=line[1], offset=line[0]) if len(found) == 1 else None


def _at_zero(link: HermiteExpansion) -> list[float]:
    """Return σ^(j)(0)/√j! of a polynomial, from exact coefficients where they are known."""
    count = len(link.link_coefficients())
    if link.exact_source is None:
        given = [c * math.sqrt(math.factorial(k)) for k, c in enumerate(link.link_coefficients())]
        heat = [(-0.5) ** n / math.factorial(n) for n in range(count)]
        derivatives = [math.fsum(h * d for h, d in zip(heat, given[j::2], strict=False)) for j in range(count)]
    else:
        import sympy

        powers = sympy.Poly(link.expression, variable()).all_coeffs()[::-1]
        derivatives = [float(power * math.factorial(j)) for j, power in enumerate(powers)]
    return [derivative / math.sqrt(math.factorial(j)) for j, derivative in enumerate(derivatives)]
