"""Moments E[σ(z) He_j(z)] of the elementary functions that have closed forms, in sympy's or mpmath's arithmetic.

With u_j = E[f(z) He_j(z)] = sqrt(j!) c_j, and E[f He_j] = E[f^(j)] by parts:

    exp(q z² + b z)   u_(j+1) = (b/v) u_j + j (1/v - 1) u_(j-1),  u_0 = v^(-1/2) exp(b²/(2v)),  v = 1 - 2q > 0
    sin(a z + b)      u_j = a^j exp(-a²/2) sin(b + jπ/2); cos likewise
    erf(a z + b)      u_0 = erf(b / sqrt(1 + 2a²)),  u_j = (2a/√π) E[exp(-(a z + b)²) He_(j-1)]
    step at z_0       u_0 = Φ(-z_0),  u_j = φ(z_0) He_(j-1)(z_0)
    z f               u_j -> u_(j+1) + j u_(j-1)
    z^n               u_(n-2k) = n! / (2^k k!)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Family: TypeAlias = Callable[[tuple[Any, ...], int, "Arithmetic"], "Parts"]

Number: TypeAlias = Any
"""A sympy or an mpmath number."""

Parts: TypeAlias = list[tuple[Any, list[Any]]]
"""Moments as a sum of factor times sequence, the sequences being rational wherever the parameters are."""


@dataclass(frozen=True)
class Arithmetic:
    """Numbers of one kind, and what the formulas need of them."""

    sqrt: Callable[[Number], Number]
    exp: Callable[[Number], Number]
    sin: Callable[[Number], Number]
    cos: Callable[[Number], Number]
    erf: Callable[[Number], Number]
    pi: Number
    #: Converts an exact number.
    number: Callable[[Number], Number]
    #: Simplifies a sum.
    tidy: Callable[[Number], Number]


def exact_arithmetic() -> Arithmetic:
    """Return the arithmetic of sympy numbers."""
    import sympy

    return Arithmetic(
        *(sympy.sqrt, sympy.exp, sympy.sin, sympy.cos, sympy.erf, sympy.pi),
        number=sympy.sympify,
        tidy=lambda value: value if value.is_Rational else value.expand(),
    )


def floating_arithmetic() -> Arithmetic:
    """Return the arithmetic of mpmath numbers at the working precision."""
    import mpmath
    import sympy

    return Arithmetic(
        *(mpmath.sqrt, mpmath.exp, mpmath.sin, mpmath.cos, mpmath.erf, +mpmath.mp.pi),
        number=lambda value: mpmath.mpf(str(sympy.N(value, mpmath.mp.dps + 5))),
        tidy=lambda value: value,
    )


def moment_parts(kind: str, parameters: tuple[Number, ...], power: int, order: int, field: Arithmetic) -> Parts:
    """Return the moments u_j of z^n f(z), j = 0 ... order, as pairs: u_j is the sum of factor times sequence[j].

    f is "one", "gaussian", "sin", "cos", "erf" or "step", with exact parameters (), (q, b), (a, b), (a, b), (a, b) or
    (z_0,).

    Examples
    --------
    >>> moment_parts("one", (), 4, 4, exact_arithmetic())
    [(1, [3, 0, 12, 0, 24])]
    """
    if kind == "one":
        return [(field.number(1), _moments_of_power(power, order, field))]
    parts = FAMILIES[kind](tuple(field.number(value) for value in parameters), order + power, field)
    for _ in range(power):
        parts = [(factor, _times_z(moments, field)) for factor, moments in parts]
    return parts


def _times_z(moments: list[Number], field: Arithmetic) -> list[Number]:
    """Return the moments of z f from those of f."""
    inner = (field.tidy(moments[j + 1] + j * moments[j - 1]) for j in range(1, len(moments) - 1))
    return [moments[1], *inner]


def _moments_of_power(power: int, order: int, field: Arithmetic) -> list[Number]:
    """Return the moments of z^power."""
    moments = [field.number(0)] * (order + 1)
    for k in range(power // 2 + 1):
        if power - 2 * k <= order:
            moments[power - 2 * k] = field.number(math.factorial(power) // (2**k * math.factorial(k)))
    return moments


def _gaussian(parameters: tuple[Number, ...], last: int, field: Arithmetic) -> Parts:
    q, b = parameters
    v = 1 - 2 * q
    moments = [field.number(1), b / v]
    for j in range(1, last):
        moments.append(field.tidy(b / v * moments[j] + j * (1 / v - 1) * moments[j - 1]))
    return [(field.exp(b**2 / (2 * v)) / field.sqrt(v), moments[: last + 1])]


def _wave(parameters: tuple[Number, ...], last: int, field: Arithmetic, quarter: int) -> Parts:
    """Return the moments of sin(a z + b + quarter π/2)."""
    a, b = parameters
    zero, parts = field.number(0), []
    # sin(b + nπ/2) is sin b, cos b, -sin b, -cos b in turn.
    for shift, phase in ((0, field.sin(b)), (1, field.cos(b))):
        moments = [zero] * (last + 1)
        for j in range(last + 1):
            n = j + quarter - shift
            if n % 2 == 0:
                moments[j] = field.tidy(a**j * (-1) ** (n // 2))
        parts.append((field.exp(-(a**2) / 2) * phase, moments))
    return parts


def _error_function(parameters: tuple[Number, ...], last: int, field: Arithmetic) -> Parts:
    a, b = parameters
    zero = field.number(0)
    [(factor, moments)] = _gaussian((-(a**2), -2 * a * b), max(last - 1, 1), field)
    mean = field.erf(b / field.sqrt(1 + 2 * a**2))
    slope = 2 * a / field.sqrt(field.pi) * field.exp(-(b**2)) * factor
    return [(mean, [field.number(1), *[zero] * last]), (slope, [zero, *moments][: last + 1])]


def _step(parameters: tuple[Number, ...], last: int, field: Arithmetic) -> Parts:
    [place] = parameters
    zero, one = field.number(0), field.number(1)
    polynomials = [one, place]
    for j in range(1, last):
        polynomials.append(field.tidy(place * polynomials[j] - j * polynomials[j - 1]))
    density = field.exp(-(place**2) / 2) / field.sqrt(2 * field.pi)
    upper = (1 - field.erf(place / field.sqrt(2 * one))) / 2
    return [(upper, [one, *[zero] * last]), (density, [zero, *polynomials][: last + 1])]


FAMILIES: dict[str, Family] = {
    "gaussian": _gaussian,
    "sin": lambda parameters, last, field: _wave(parameters, last, field, 0),
    "cos": lambda parameters, last, field: _wave(parameters, last, field, 1),
    "erf": _error_function,
    "step": _step,
}
