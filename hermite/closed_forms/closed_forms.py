"""Exact Hermite coefficients of sums of terms a z^n f(z), for every order, as sympy numbers and as floats.

One set of formulas runs in two arithmetics. Floats are computed at two precisions and accepted where they agree, so
that cancellation cannot pass unnoticed and exact zeros are recognised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermite.closed_forms.moment_families import Arithmetic, Number, exact_arithmetic, floating_arithmetic, moment_parts
from hermite.text.expressions import Expression

_DIGITS = (60, 120, 240, 480, 960)


@dataclass(frozen=True)
class Term:
    """One term a z^n f(z): `kind` names f, `parameters` are its sympy numbers."""

    coefficient: Expression
    power: int
    kind: str
    parameters: tuple[Number, ...]


@dataclass(frozen=True)
class GivenTerms:
    """Exact coefficients that the user gave, the nonzero ones by degree: int, Fraction or sympy numbers."""

    terms: tuple[tuple[int, object], ...]

    def exact(self, order: int) -> tuple[Number, ...]:
        """Return c_0 ... c_order as sympy numbers."""
        import sympy

        given = dict(self.terms)
        return tuple(sympy.sympify(given.get(j, 0)) for j in range(order + 1))


@dataclass(frozen=True)
class ClosedForm:
    """A sum of terms whose Hermite coefficients are known for every order."""

    terms: tuple[Term, ...]

    @property
    def degree(self) -> int | None:
        """Degree, where the sum is a polynomial (0 for the zero polynomial), else None."""
        if any(term.kind != "one" for term in self.terms):
            return None
        return max((term.power for term in self.terms), default=0)

    def floats(self, order: int) -> NDArray[np.float64]:
        """Return c_0 ... c_order rounded to float64, exact zeros as 0."""
        before = _values(self.terms, order, _DIGITS[0])
        for digits in _DIGITS[1:]:
            now = _values(self.terms, order, digits)
            settled = [_settle(x, y) for x, y in zip(before, now, strict=True)]
            if None not in settled:
                break
            before = now
        # Whatever still moves at 960 digits is smaller than rounding by hundreds of orders.
        return np.array([value or 0.0 for value in settled])

    def exact(self, order: int) -> tuple[Number, ...]:
        """Return c_0 ... c_order as sympy numbers."""
        import sympy

        sums = _moments(self.terms, order, exact_arithmetic())
        zero = self.floats(order) == 0.0
        return tuple(
            sympy.Integer(0) if zero[j] and abs(sympy.N(u, 15)) < 1e-200 else u / sympy.sqrt(math.factorial(j))
            for j, u in enumerate(sums)
        )


#: A source of exact coefficients.
ExactSource: TypeAlias = GivenTerms | ClosedForm


def _values(terms: tuple[Term, ...], order: int, digits: int) -> list[Number]:
    """Return c_0 ... c_order as mpmath numbers of so many digits."""
    import mpmath

    with mpmath.workdps(digits):
        sums = _moments(terms, order, floating_arithmetic())
        return [u / mpmath.sqrt(mpmath.factorial(j)) for j, u in enumerate(sums)]


def _settle(x: Number, y: Number) -> float | None:
    """Return the float on which two precisions agree, 0 where the value shrinks with it, else None."""
    if abs(x - y) <= 1e-20 * abs(y):
        return float(y)
    return 0.0 if abs(y) < 1e-30 * abs(x) else None


def _moments(terms: tuple[Term, ...], order: int, field: Arithmetic) -> list[Number]:
    """Return E[σ He_j], j = 0 ... order, in the arithmetic of `field`."""
    totals = [field.number(0)] * (order + 1)
    for term in terms:
        scale = field.number(term.coefficient)
        for factor, sequence in moment_parts(term.kind, term.parameters, term.power, order, field):
            for j in range(order + 1):
                if sequence[j] != 0:
                    totals[j] += scale * factor * sequence[j]
    return totals
