"""Polynomials of a few coordinates, f*(x) = f*(x_1, …, x_r), and the order in which their parts are learned.

Their components f*_α = E[∂^α f*]/√α! = E[f* Π_a h_(α_a)(x_a)] are the coefficients in orthonormal Hermite polynomials.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hermite.arrays import Array, Integers


class Component(NamedTuple):
    """One Hermite component of a polynomial: its degrees α, its value f*_α, its name, and its cost.

    The cost is |α| counted on those axes alone that no component before it in the order of learning has.
    """

    degrees: tuple[int, ...]
    value: float
    name: str
    cost: int

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes that the component depends on, from 0."""
        return tuple(a for a, degree in enumerate(self.degrees) if degree)

    @property
    def degree(self) -> int:
        """|α|."""
        return sum(self.degrees)


class Polynomial:
    """A polynomial of r coordinates, read from text; frozen, compared by its monomials.

    Parameters
    ----------
    text : str
        As `hermite.text.several_variables.parse_polynomial` takes it; it must not be constant.
    """

    def __init__(self, text: str) -> None:
        from hermite.text.several_variables import parse_polynomial

        self.text = text
        self._exact: dict[tuple[int, ...], Any] = parse_polynomial(text)

    @property
    def span(self) -> int:
        """Number r of coordinates."""
        return len(next(iter(self._exact)))

    @cached_property
    def exponents(self) -> Integers:
        """Exponents of the monomials, shape (terms, r)."""
        found: Integers = np.array(list(self._exact), dtype=np.int64)
        return found

    @cached_property
    def powers(self) -> Array:
        """Coefficients of the monomials, shape (terms,), dimensionless."""
        return np.array([float(value) for value in self._exact.values()])

    def value(self, x: ArrayLike) -> Array:
        """Return f* at points of shape (…, r)."""
        at = np.asarray(x, dtype=np.float64)
        found = np.zeros(at.shape[:-1])
        for exponents, power in zip(self.exponents, self.powers, strict=True):
            found += power * np.prod(at**exponents, axis=-1)
        return found

    @cached_property
    def mean(self) -> float:
        """E f*."""
        return float(self._hermite.get((0,) * self.span, 0))

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Components with |α| ≥ 1 that are not zero, in the order of learning: the cheapest next."""
        values = {degrees: value for degrees, value in self._hermite.items() if any(degrees)}
        known: set[int] = set()
        found: list[Component] = []
        while values:
            degrees = min(values, key=lambda each: (_cost(each, known), sum(each), tuple(-n for n in each)))
            found.append(Component(degrees, float(values.pop(degrees)), _named(degrees), _cost(degrees, known)))
            known.update(found[-1].axes)
        return tuple(found)

    @cached_property
    def _hermite(self) -> dict[tuple[int, ...], Any]:
        """Exact value of every component that is not zero, α = 0 included."""
        import sympy

        found: dict[tuple[int, ...], Any] = {}
        for exponents, value in self._exact.items():
            terms: dict[tuple[int, ...], Any] = {(): value}
            for n in exponents:
                terms = {(*left, j): a * b for left, a in terms.items() for j, b in _power_in_hermite(n).items()}
            for degrees, term in terms.items():
                found[degrees] = found.get(degrees, 0) + term
        return {degrees: value for degrees, each in found.items() if (value := sympy.expand(each)) != 0}

    def __eq__(self, other: object) -> bool:
        return self._exact == other._exact if isinstance(other, Polynomial) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._exact.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return Polynomial, (self.text,)


def _cost(degrees: tuple[int, ...], known: set[int]) -> int:
    """Return |α| on the axes that are not known."""
    return sum(degree for a, degree in enumerate(degrees) if a not in known)


def _power_in_hermite(n: int) -> dict[int, Any]:
    """Return the coefficients of z^n = Σ_j n!/(2^k k! j!) He_j, j = n − 2k, in the orthonormal h_j = He_j/√(j!)."""
    import sympy

    found = {}
    for k in range(n // 2 + 1):
        j = n - 2 * k
        count = sympy.Rational(math.factorial(n), 2**k * math.factorial(k) * math.factorial(j))
        found[j] = count * sympy.sqrt(math.factorial(j))
    return found


def _named(degrees: tuple[int, ...]) -> str:
    """Return a component as text that `Teacher.polynomial` reads, such as "h2(x1)*x2"."""
    factors = [f"x{a + 1}" if n == 1 else f"h{n}(x{a + 1})" for a, n in enumerate(degrees) if n]
    return "*".join(factors)
