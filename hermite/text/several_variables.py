"""Polynomials in several variables x1 ... x9 from text, without evaluating it.

Python's parser builds a tree, and an allow-list walks it into a table of monomials. Degree and number of terms are
bounded while walking, so that no text can exhaust the machine.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any, NoReturn, TypeAlias

from hermite.text.formulas import MAX_LENGTH, HermiteName, hermite_name
from hermite.text.messages import shown

MAX_DEGREE = 12
MAX_TERMS = 200
_MAX_DEPTH = 40
_MAX_NUMBER = 1e100
_COUNT = 9
_VARIABLE = re.compile(rf"x([1-{_COUNT}])", flags=re.IGNORECASE)

Monomials: TypeAlias = dict[tuple[int, ...], Any]
"""Exact sympy coefficient of each monomial, by the exponents of x1 ... x9; no coefficient is zero."""

_ONE = (0,) * _COUNT


def parse_polynomial(text: object) -> Monomials:
    """Return the monomials of a polynomial in x1 ... x9, of total degree at most 12 and with at most 200 terms.

    Numbers are exact: `0.1` is one tenth. `h2(x1)` is the orthonormal h_2, of any polynomial, `He2(x1)` the
    probabilists' and `H2(x1)` the physicists' polynomial. The exponents are as long as the largest index in the text.
    ValueError is raised for anything else.

    Examples
    --------
    >>> parse_polynomial("x1 + 2*x1*x2^2")
    {(1, 0): 1, (1, 2): 2}
    >>> parse_polynomial("h2(x1)")
    {(0,): -sqrt(2)/2, (2,): sqrt(2)/2}
    """
    if not isinstance(text, str):
        msg = f"Argument `text` must be a polynomial such as 'x1 + x1*x2', but is {shown(text)}."
        raise TypeError(msg)
    if len(text) > MAX_LENGTH:
        _refuse(f"has {len(text)} characters, more than {MAX_LENGTH}")
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        msg = f"Argument `text` must be a polynomial such as 'x1 + x1*x2', but is {shown(text)}."
        raise ValueError(msg) from None
    try:
        found = _walk(tree.body, 0)
    except RecursionError:
        _refuse(f"is nested more than {_MAX_DEPTH} deep")
    span = max((a + 1 for powers in found for a in range(_COUNT) if powers[a]), default=0)
    if span == 0:
        _refuse("depends on none of x1 ... x9")
    return {powers[:span]: found[powers] for powers in sorted(found, key=lambda powers: (sum(powers), powers[::-1]))}


def _refuse(what: str) -> NoReturn:
    msg = f"Argument `text` must be a polynomial in x1 ... x9, but {what}."
    raise ValueError(msg) from None


def _walk(node: ast.expr, depth: int) -> Monomials:
    """Return the monomials of a syntax tree; raise ValueError unless it is a polynomial."""
    if depth > _MAX_DEPTH:
        _refuse(f"is nested more than {_MAX_DEPTH} deep")
    match node:
        case ast.Constant(value=int() | float() as value):
            return _constant(value)
        case ast.Name(id=name):
            found = _VARIABLE.fullmatch(name)
            if found is None:
                _refuse(f"contains the name {name!r}")
            return {tuple(int(a + 1 == int(found[1])) for a in range(_COUNT)): _number(1)}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            inner = _walk(operand, depth + 1)
            return _product(inner, _constant(-1)) if isinstance(sign, ast.USub) else inner
        case ast.BinOp(left=left, op=operator, right=right):
            # Chains such as a + b + c lean left and cost no depth.
            return _combined(operator, _walk(left, depth), _walk(right, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if named := hermite_name(name):
            return _hermite(named, _walk(argument, depth + 1))
        case _:
            _refuse(f"contains {ast.unparse(node)!r}")


def _number(value: float) -> Any:
    import sympy

    # The shortest decimal of the float is the text of the user, and is read exactly.
    return sympy.Integer(value) if isinstance(value, int) else sympy.Rational(repr(value))


def _constant(value: float) -> Monomials:
    if isinstance(value, bool):
        _refuse(f"contains {value}, which is not a number")
    if not abs(value) <= _MAX_NUMBER or (value != 0 and abs(value) < 1.0 / _MAX_NUMBER):
        _refuse(f"contains a number outside {1.0 / _MAX_NUMBER:g} ... {_MAX_NUMBER:g}")
    return {} if value == 0 else {_ONE: _number(value)}


def _combined(operator: ast.operator, first: Monomials, second: Monomials) -> Monomials:
    match operator:
        case ast.Add():
            return _sum(first, second)
        case ast.Sub():
            return _sum(first, _product(second, _constant(-1)))
        case ast.Mult():
            return _product(first, second)
        case ast.Div():
            divisor = _as_constant(second)
            if not divisor:
                _refuse("divides by what is no number, or is zero")
            return {powers: value / divisor for powers, value in first.items()}
        case ast.Pow():
            exponent = _as_constant(second)
            if exponent is None or not exponent.is_Integer or not 0 <= exponent <= MAX_DEGREE:
                _refuse(f"has an exponent that is no integer from 0 to {MAX_DEGREE}")
            found = _constant(1)
            for _ in range(int(exponent)):
                found = _product(found, first)
            return found
        case _:
            _refuse(f"contains the operator {type(operator).__name__}, which is not one of + - * / **")


def _as_constant(found: Monomials) -> Any:
    """Return the number that a polynomial is, None if it is none."""
    return _number(0) if not found else found[_ONE] if list(found) == [_ONE] else None


def _sum(first: Monomials, second: Monomials) -> Monomials:
    found = dict(first)
    for powers, value in second.items():
        found[powers] = found.get(powers, 0) + value
    return _bounded(found)


def _product(first: Monomials, second: Monomials) -> Monomials:
    import sympy

    found: Monomials = {}
    for left, a in first.items():
        for right, b in second.items():
            powers = tuple(map(int.__add__, left, right))
            if sum(powers) > MAX_DEGREE:
                _refuse(f"has a total degree above {MAX_DEGREE}")
            found[powers] = found.get(powers, 0) + sympy.expand(a * b)
    return _bounded(found)


def _bounded(found: Monomials) -> Monomials:
    """Return the monomials whose coefficients are not zero; refuse more than there may be, and huge numbers."""
    kept = {powers: value for powers, value in found.items() if value != 0}
    if len(kept) > MAX_TERMS:
        _refuse(f"has more than {MAX_TERMS} terms")
    if any(not abs(float(value)) <= _MAX_NUMBER for value in kept.values()):
        _refuse(f"contains a number beyond {_MAX_NUMBER:g}")
    return kept


def _hermite(name: HermiteName, argument: Monomials) -> Monomials:
    """Return a Hermite polynomial of a polynomial, by He_(j+1) = z He_j − j He_(j−1), for H_k with all terms doubled.

    h_k is He_k/√(k!).
    """
    import sympy

    kind, degree = name
    factor = 2 if kind == "H" else 1
    if degree > MAX_DEGREE:
        _refuse(f"contains a Hermite polynomial of degree above {MAX_DEGREE}")
    before: Monomials = {}
    now = _constant(1)
    for j in range(degree):
        lower = {powers: -j * value for powers, value in before.items()} if j else {}
        total = _sum(_product(argument, now), lower)
        before, now = now, {powers: factor * value for powers, value in total.items()}
    root = sympy.sqrt(math.factorial(degree)) if kind == "h" else 1
    return {powers: sympy.expand(value / root) for powers, value in now.items()}
