"""Exact Hermite coefficients of sums of terms a z^n f(z) to any order, as sympy numbers and as floats.

relu, |z|, sign, gelu, sinh and products of these with polynomials are sums of such terms. One set of formulas runs in
sympy's and in mpmath's arithmetic. Floats are computed at two precisions and accepted where they agree, so that
cancellation cannot pass unnoticed and exact zeros are recognised.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import mpmath
import numpy as np
import sympy

from hermite.arrays import Array
from hermite.polynomials import MAX_DEGREE
from hermite.text.formulas import Expression, variable
from hermite.text.messages import require

_DIGITS = (60, 120, 240, 480, 960)
_MAX_TERMS = 400

#: A sympy or an mpmath number.
Number: TypeAlias = Any
#: Moments as a sum of factor times sequence, the sequences being rational wherever the parameters are.
Parts: TypeAlias = list[tuple[object, list[Any]]]


@dataclass(frozen=True)
class Term:
    """One term a z^n f(z): `kind` names f, `parameters` are its sympy numbers."""

    coefficient: Expression
    power: int
    kind: str
    parameters: tuple[Number, ...]


@dataclass(frozen=True)
class ClosedForm:
    """A sum of terms with Hermite coefficients that are known to any order."""

    terms: tuple[Term, ...]

    @property
    def degree(self) -> int | None:
        """Degree, where the sum is a polynomial (0 for the zero polynomial), else None."""
        if any(term.kind != "one" for term in self.terms):
            return None
        return max((term.power for term in self.terms), default=0)

    def floats(self, order: int) -> Array:
        """Return the Hermite coefficients c_0 … c_order, shape (order + 1,), rounded to float64.

        They are computed with more and more digits until all have settled; values that never settle are exact zeros.
        """
        before: list[Number] = []
        settled: list[float | None] = []
        for digits in _DIGITS:
            with mpmath.workdps(digits):
                sums = _moments(self.terms, order, FLOATING)
                now = [u / mpmath.sqrt(mpmath.factorial(j)) for j, u in enumerate(sums)]
            settled = [_settled(x, y) for x, y in zip(before, now, strict=False)]
            if settled and None not in settled:
                break
            before = now
        # A value that still changes at 960 digits is smaller than rounding by hundreds of orders.
        return np.array([value or 0.0 for value in settled])

    def exact(self, order: int) -> tuple[Number, ...]:
        """Return c_0 ... c_order as sympy numbers."""
        sums = _moments(self.terms, order, EXACT)
        zero = self.floats(order) == 0.0
        return tuple(
            sympy.Integer(0) if zero[j] and abs(sympy.N(u, 15)) < 1e-200 else u / sympy.sqrt(math.factorial(j))
            for j, u in enumerate(sums)
        )


def _settled(x: Number, y: Number) -> float | None:
    """Return the float on which two precisions agree, 0 where the value falls with the precision, else None."""
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


def closed_form(expression: Expression, *, moment: int = 2) -> ClosedForm | None:
    """Return the closed form of a formula in the real symbol z, or None where it has a part without a closed form.

    `moment` is the moment that must be finite: 2 for links, 1 for their squares. ValueError is raised where a Gaussian
    factor grows too fast for that.

    >>> from hermite.text.formulas import parse
    >>> closed_form(parse("relu(z)")).exact(2)
    (sqrt(2)/(2*sqrt(pi)), 1/2, 1/(2*sqrt(pi)))
    >>> closed_form(parse("tanh(z)")) is None
    True
    """
    z = variable()
    if expression.is_polynomial(z):
        monomials = sympy.Poly(expression, z).terms()
        return ClosedForm(tuple(Term(value, power, "one", ()) for (power,), value in monomials if value != 0))
    rewritten = _with_steps(expression)
    if _count_terms(rewritten) > _MAX_TERMS:
        return None
    terms = []
    for part in sympy.Add.make_args(sympy.expand(rewritten)):
        if (term := _term(part, moment)) is None:
            return None
        terms.append(term)
    return ClosedForm(tuple(terms))


def _with_steps(expression: Expression) -> Expression:
    """Return the same function as a formula in unit steps, exponentials and erf.

    They replace relu, |z|, sign, Max, Min, sinh, cosh and erfc.
    """
    z, half = variable(), sympy.Rational(1, 2)

    def step(argument: Expression) -> Expression:
        """Return the unit step of an argument, by one of z itself where the argument is linear."""
        # H(a z + b) is the unit step at -b/a, from below where a < 0; its value at the point does not matter.
        line = _quadratic(argument)
        if line is None or line[0] != 0 or line[1] == 0:
            return sympy.Heaviside(argument, half)
        place = sympy.Heaviside(z + line[2] / line[1], half)
        return place if line[1].is_positive else 1 - place

    def maximum(*arguments: Expression) -> Expression:
        """Return the largest argument, by unit steps of differences."""
        result = arguments[0]
        for argument in arguments[1:]:
            result = argument + (result - argument) * step(result - argument)
        return result

    rules = [
        (sympy.Max, maximum),
        (sympy.Min, lambda *arguments: -maximum(*[-argument for argument in arguments])),
        (sympy.Abs, lambda argument: argument * (2 * step(argument) - 1)),
        (sympy.sign, lambda argument: 2 * step(argument) - 1),
        (sympy.Heaviside, lambda argument, *_: step(argument)),
        (sympy.sinh, lambda argument: (sympy.exp(argument) - sympy.exp(-argument)) / 2),
        (sympy.cosh, lambda argument: (sympy.exp(argument) + sympy.exp(-argument)) / 2),
        (sympy.erfc, lambda argument: 1 - sympy.erf(argument)),
    ]
    for kind, rule in rules:
        expression = expression.replace(kind, rule)
    return expression


def _count_terms(expression: Expression) -> int:
    """Return a bound on the number of terms of the expanded expression, so that expanding it stays cheap."""
    if isinstance(expression, sympy.Add):
        return sum(_count_terms(part) for part in expression.args)
    if isinstance(expression, sympy.Mul):
        return math.prod(_count_terms(part) for part in expression.args)
    if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and expression.exp > 0:
        terms, power = _count_terms(expression.base), int(expression.exp)
        return 1 if terms == 1 else math.comb(power + terms - 1, power)
    return 1


def _quadratic(argument: Expression) -> tuple[Expression, Expression, Expression] | None:
    """Return (q, b, c) of q z² + b z + c, or None where the argument is of another form."""
    z = variable()
    polynomial = sympy.Poly(argument, z) if argument.is_polynomial(z) else None
    if polynomial is None or polynomial.degree() > 2:
        return None
    return polynomial.nth(2), polynomial.nth(1), polynomial.nth(0)


def _term(part: Expression, moment: int) -> Term | None:
    """Return a product a z^n f(z) as a `Term`, or None if f is none of the functions with a closed form.

    f is 1, a Gaussian exp(q z² + b z), a unit step, or sin, cos or erf of a line a z + b. ValueError is raised for a
    Gaussian unless E f(z)^`moment` is finite for z ~ N(0, 1).
    """
    z = variable()
    coefficient, power, exponent, factors = sympy.Integer(1), 0, sympy.Integer(0), set()
    for factor in sympy.Mul.make_args(part):
        base, times = factor.as_base_exp()
        if not factor.has(z):
            coefficient *= factor
        elif base == z and times.is_Integer and times > 0:
            power += int(times)
        elif isinstance(factor, sympy.exp):
            exponent += factor.args[0]
        elif isinstance(base, sympy.Heaviside) and times.is_positive:
            factors.add(base)  # H^n = H almost everywhere
        elif times == 1:
            factors.add(factor)
        else:
            return None
    if power > MAX_DEGREE or len(factors) > 1 or (factors and exponent != 0):
        return None
    if factors:
        [factor] = factors
        kind = {sympy.sin: "sin", sympy.cos: "cos", sympy.erf: "erf", sympy.Heaviside: "step"}.get(factor.func)
        line = _quadratic(factor.args[0]) if kind else None
        if kind is None or line is None or line[0] != 0 or (kind == "step" and line[1] != 1):
            return None
        return Term(coefficient, power, kind, (-line[2],) if kind == "step" else line[1:])
    if (shape := _quadratic(sympy.expand(exponent))) is None:
        return None
    require(
        (1 - 2 * moment * shape[0]).is_positive,
        f"Argument `x` must have a finite second moment under N(0, 1), but contains exp({exponent}).",
    )
    coefficient *= sympy.exp(shape[2])
    return Term(coefficient, power, *(("one", ()) if shape[:2] == (0, 0) else ("gaussian", shape[:2])))


# --- moments ----------------------------------------------------------------------------------------------------------


class Arithmetic(NamedTuple):
    """Numbers of one kind: the module of their functions, the map from exact numbers, and one that tidies a sum."""

    of: Any
    number: Callable[[Number], Number]
    tidy: Callable[[Number], Number]


EXACT = Arithmetic(sympy, sympy.sympify, lambda value: value if value.is_Rational else value.expand())
#: Of mpmath, at the working precision.
FLOATING = Arithmetic(mpmath, lambda value: mpmath.mpf(str(sympy.N(value, mpmath.mp.dps + 5))), lambda value: value)


def moment_parts(kind: str, parameters: tuple[Number, ...], power: int, order: int, field: Arithmetic) -> Parts:
    """Return the moments u_j of z^n f(z), j = 0 ... order, as pairs: u_j is the sum of factor times sequence[j].

    f is "one", "gaussian", "sin", "cos", "erf" or "step", with exact parameters (), (q, b), (a, b), (a, b), (a, b) or
    (z_0,).

    >>> moment_parts("one", (), 4, 4, EXACT)
    [(1, [3, 0, 12, 0, 24])]
    """
    if kind == "one":
        moments = [field.number(0)] * (order + 1)
        for k in range(max(power - order + 1, 0) // 2, power // 2 + 1):
            moments[power - 2 * k] = field.number(math.factorial(power) // (2**k * math.factorial(k)))
        return [(field.number(1), moments)]
    parts = _parts_of_family(kind, tuple(map(field.number, parameters)), order + power, field)
    for _ in range(power):  # the moments of z f from those of f
        for at, (factor, moments) in enumerate(parts):
            inner = (field.tidy(moments[j + 1] + j * moments[j - 1]) for j in range(1, len(moments) - 1))
            parts[at] = factor, [moments[1], *inner]
    return parts


def _parts_of_family(kind: str, parameters: tuple[Number, ...], last: int, field: Arithmetic) -> Parts:
    """Return the moments u_j = E[He_j(z) f(z)], j = 0 … `last`, of f alone, in the form that `moment_parts` returns.

    `kind` and `parameters` name f as there; `field` does the arithmetic, with exact numbers or floats.
    """
    functions, zero, unity = field.of, field.number(0), field.number(1)
    if kind in ("sin", "cos"):
        a, b = parameters
        parts = []
        # sin(b + nπ/2) is sin b, cos b, -sin b, -cos b in turn; cos is one ahead.
        for behind, phase in ((0, functions.sin(b)), (1, functions.cos(b))):
            turns = range((kind == "cos") - behind, last + 1 + (kind == "cos") - behind)
            moments = [zero if n % 2 else field.tidy(a**j * (-1) ** (n // 2)) for j, n in enumerate(turns)]
            parts.append((functions.exp(-(a**2) / 2) * phase, moments))
        return parts
    if kind == "gaussian":
        q, b = parameters
        v = 1 - 2 * q
        return [(functions.exp(b**2 / (2 * v)) / functions.sqrt(v), _recurrence(b / v, 1 / v - 1, last, field))]
    if kind == "erf":
        a, b = parameters
        [(factor, moments)] = _parts_of_family("gaussian", (-(a**2), -2 * a * b), max(last - 1, 1), field)
        mean = functions.erf(b / functions.sqrt(1 + 2 * a**2))
        slope = 2 * a / functions.sqrt(functions.pi) * functions.exp(-(b**2)) * factor
    else:
        [place] = parameters
        moments = _recurrence(place, -unity, last, field)
        mean = (1 - functions.erf(place / functions.sqrt(2 * unity))) / 2
        slope = functions.exp(-(place**2) / 2) / functions.sqrt(2 * functions.pi)
    return [(mean, [unity, *[zero] * last]), (slope, [zero, *moments][: last + 1])]


def _recurrence(first: Number, pull: Number, last: int, field: Arithmetic) -> list[Number]:
    """Return m_0 ... m_last of m_(j+1) = first m_j + j pull m_(j-1), m_0 = 1."""
    moments = [field.number(1), first]
    for j in range(1, last):
        moments.append(field.tidy(first * moments[j] + j * pull * moments[j - 1]))
    return moments[: last + 1]
