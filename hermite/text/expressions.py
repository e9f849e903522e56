"""Formulas in one variable: what they may contain.

Responsible for the list of functions a formula may be made of, for the variable z it is written in, and for checking
sympy expressions. Knows nothing of text (`hermite.text.parser`) and nothing of coefficients.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn, TypeAlias

from hermite.activations import suggestion
from hermite.polynomials import MAX_DEGREE
from hermite.text.messages import shown

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
    """Raise the error of a formula that is not accepted.

    Parameters
    ----------
    what : str
        What is wrong, a clause whose subject is the formula.
    end : str, default "."
        End of the sentence, perhaps with a suggestion.

    Raises
    ------
    ValueError
        Always.
    """
    msg = f"Argument `x` must be a formula, but {what}{end}"
    raise ValueError(msg) from None


def check_degree(degree: int | None) -> None:
    """Refuse polynomials of degree beyond 300.

    Parameters
    ----------
    degree : int or None
        Degree, None for what is no polynomial.

    Raises
    ------
    ValueError
        If the degree is too large.
    """
    if degree is not None and degree > MAX_DEGREE:
        refuse(f"has degree {degree}, beyond {MAX_DEGREE}")


def hermite_polynomial(degree: int) -> Expression:
    """Return h_k(z) as a sympy polynomial, from its explicit coefficients.

    Parameters
    ----------
    degree : int
        Degree k, from 0 to 300.

    Returns
    -------
    sympy.Expr
        He_k(z) / sqrt(k!) in the real symbol z.

    Examples
    --------
    >>> hermite_polynomial(3)
    sqrt(6)*(z**3 - 3*z)/6
    """
    import sympy

    z = variable()
    terms = [
        sympy.Integer((-1) ** k * math.factorial(degree) // (math.factorial(k) * math.factorial(degree - 2 * k) * 2**k))
        * z ** (degree - 2 * k)
        for k in range(degree // 2 + 1)
    ]
    return sympy.Add(*terms) / sympy.sqrt(math.factorial(degree))


def normalise(expression: Expression) -> Expression:
    """Rewrite a user's sympy expression in the real symbol z, refusing what the package cannot evaluate.

    Floats are read as their shortest decimal, as in text.

    Parameters
    ----------
    expression : sympy.Expr
        Expression in exactly one symbol, of whatever name and assumptions.

    Returns
    -------
    sympy.Expr
        The same expression in z.

    Raises
    ------
    TypeError
        If `expression` is a sympy object but no scalar expression.
    ValueError
        If it has not exactly one symbol, or contains unknown functions or a polynomial of degree beyond 300.

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
