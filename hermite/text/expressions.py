"""Formulas in one variable: the functions they may be made of, and the check of sympy expressions."""

from __future__ import annotations

import math
from typing import Any, NoReturn, TypeAlias

from hermite.polynomials import MAX_DEGREE
from hermite.text.messages import shown, suggestion

Expression: TypeAlias = Any
"""A sympy expression; the alias keeps sympy out of the import of this module."""

MAX_LENGTH = 500
"""Longest formula read from text, in characters."""

# sympy's name of every function a formula may contain, by the name it has in text.
FUNCTIONS = {
    "exp": "exp", "log": "log", "ln": "log", "sqrt": "sqrt",
    "sin": "sin", "cos": "cos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "erf": "erf", "erfc": "erfc",
    "abs": "Abs", "max": "Max", "min": "Min", "heaviside": "Heaviside", "sign": "sign",
}  # fmt: skip


def variable() -> Expression:
    """Return the real sympy symbol z, in which every expression of the package is written."""
    import sympy

    return sympy.Symbol("z", real=True)


def refuse(what: str, end: str = ".") -> NoReturn:
    """Raise the ValueError of a formula that is not accepted: a clause that says what is wrong, and its end."""
    msg = f"Argument `x` must be a formula, but {what}{end}"
    raise ValueError(msg) from None


def check_degree(degree: int | None) -> None:
    """Raise ValueError for a polynomial of degree beyond 300; None is the degree of what is no polynomial."""
    if degree is not None and degree > MAX_DEGREE:
        refuse(f"has degree {degree}, beyond {MAX_DEGREE}")


def hermite_polynomial(degree: int, kind: str = "h") -> Expression:
    """Return h_k(z), He_k(z) or H_k(z) as a sympy polynomial, from its explicit coefficients.

    He_k = Σ_i (-1)^i k! / (2^i i! (k - 2i)!) z^(k - 2i) is the probabilists' polynomial, h_k = He_k / sqrt(k!) the
    orthonormal one, and H_k(z) = 2^(k/2) He_k(sqrt(2) z) the physicists'. They are the kinds "He", "h" and "H".

    Examples
    --------
    >>> hermite_polynomial(3), hermite_polynomial(3, "He"), hermite_polynomial(3, "H")
    (sqrt(6)*(z**3 - 3*z)/6, z**3 - 3*z, 8*z**3 - 12*z)
    """
    import sympy

    z = variable()
    terms = []
    for i in range(degree // 2 + 1):
        power = degree - 2 * i
        pairs = math.factorial(degree) // (math.factorial(i) * math.factorial(power))
        terms.append(sympy.Integer((-1) ** i * (pairs * 2**power if kind == "H" else pairs // 2**i)) * z**power)
    total = sympy.Add(*terms)
    return total / sympy.sqrt(math.factorial(degree)) if kind == "h" else total


def normalise(expression: Expression) -> Expression:
    """Return a user's sympy expression in exactly one symbol, rewritten in the real symbol z.

    Floats are read as their shortest decimal, as in text. TypeError is raised for a sympy object that is no scalar
    expression, ValueError for any other number of symbols, unknown functions or a polynomial of degree beyond 300.

    Examples
    --------
    >>> import sympy
    >>> normalise(0.5 * sympy.Symbol("t") ** 2)
    z**2/2
    """
    import sympy

    if not isinstance(expression, sympy.Expr):
        msg = f"Argument `x` must be a scalar sympy expression, but is {shown(expression)}."
        raise TypeError(msg)
    symbols = sorted(map(str, expression.free_symbols))
    if len(symbols) != 1:
        msg = f"Argument `x` must have exactly one symbol, but has {len(symbols)}: {', '.join(symbols) or 'none'}."
        raise ValueError(msg)
    known = tuple(getattr(sympy, name) for name in FUNCTIONS.values() if name != "sqrt")
    plain = (sympy.Symbol, sympy.Rational, sympy.Float, sympy.Add, sympy.Mul, sympy.Pow)
    for part in sympy.preorder_traversal(expression):
        if not isinstance(part, (*plain, *known)) and part not in (sympy.pi, sympy.E):
            name = type(part).__name__ if part.args else str(part)
            hint = suggestion(name, list(FUNCTIONS))
            refuse(f"contains {name}, which is not one of {', '.join(FUNCTIONS)}, pi and e", "." + hint)
    floats = {value: sympy.Rational(repr(float(value))) for value in expression.atoms(sympy.Float)}
    result = expression.xreplace(floats).subs(next(iter(expression.free_symbols)), variable())
    if result.is_polynomial(variable()):
        check_degree(int(sympy.degree(result, variable())))
    return result
