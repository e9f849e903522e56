"""Whatever describes a link (name, coefficients by degree, formula, callable) made into a `HermiteExpansion`.

`expand` tells the kinds of argument apart and takes exact coefficients where there are any, quadrature otherwise.
sympy is loaded only where a formula needs it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from hermite.arrays import as_integer, as_numpy, as_scalar
from hermite.closed_forms import ExactSource, GivenTerms
from hermite.expansion import (
    CallableLink,
    FormulaLink,
    HermiteExpansion,
    Link,
    SeriesLink,
    callable_name,
    zero_tolerance,
)
from hermite.polynomials import MAX_DEGREE, trimmed
from hermite.text.formulas import FORMULAS, MAX_LENGTH, Expression, canonical_name, hermite_name
from hermite.text.messages import shown
from hermite.text.series import format_series, read_series, series_as_text

DEFAULT_ORDER = 60
"""Order of links that are no polynomials, where none is asked for."""

# A norm whose error is this part of it is no norm.
UNCERTAIN_NORM = 1e-6


def expand(x: object, *, order: int | None = None) -> HermiteExpansion:
    """Expand a link σ in the orthonormal Hermite polynomials, c_j = E[σ(z) h_j(z)] with z ~ N(0, 1).

    Parameters
    ----------
    x : str, mapping, sequence, sympy expression, callable or HermiteExpansion
        * A name: ``he<k>`` or ``h<k>`` (the orthonormal h_k, k <= 300), ``He<k>`` and ``H<k>`` (the probabilists' and
          the physicists' polynomial of degree k), ``relu``, ``erf`` (meaning erf(z/√2)), ``tanh``, ``gelu``,
          ``sin``, ``cos``, ``exp``, ``sigmoid``, ``softplus``, ``silu`` or ``swish``, ``elu``, ``selu``,
          ``leaky_relu`` (slope 1/100 below 0), ``mish``, ``abs``, ``quadratic``, ``step``, ``sign``, ``gaussian``
          (exp(-z²)), or ``x^2 exp(-x^2)`` (meaning z² exp(-z²) - √3/9). The others are the plain functions.
        * A dict {degree: coefficient} in the orthonormal basis, a list, array or tensor [c_0, c_1, ...] of them, or a
          column of pandas, whose index has the degrees.
        * A series as it prints, ``"0.8 h4 + 0.6 h6"``.
        * A formula in one variable z or x, as text or as a sympy expression; text is never evaluated as code.
          In text, decimals are exact, ``h4(z)`` is the orthonormal h_4, ``He4(z)`` the probabilists' polynomial
          z^4 - 6 z^2 + 3, ``H4(z)`` the physicists' 16 z^4 - 48 z^2 + 12, and ``erf(z)`` the plain error function.
        * A vectorised callable: array in, real array of the same shape out; or tensors instead, such as
          ``torch.nn.functional.silu``. Its coefficients come from quadrature, and those that the rule of
          `hermite.expansion.zero_tolerance` counts as zero are exactly 0.
        * An expansion, returned as it is or cut again at `order`.
    order : int, optional
        Largest degree kept, from 0 to 300. By default the degree for polynomials, and 60 otherwise.

    Returns
    -------
    HermiteExpansion
        Function, coefficients and what follows from them.

    Raises
    ------
    TypeError
        If `x` or `order` is of another kind, or a callable is not vectorised.
    ValueError
        If `x` is an unknown name, a formula outside the allow-list, not finite, or of infinite second moment.

    Examples
    --------
    >>> expand("he4")
    h4
    >>> expand("relu")
    relu(z) = 0.3989 + 0.5 h1 + 0.2821 h2 - 0.08143 h4 + … (order 60, truncation error 0.0095)
    >>> expand("z**3").exact
    (0, 3, 0, sqrt(6))
    """
    wanted = _check_order(order)
    if isinstance(x, HermiteExpansion):
        return x if wanted in (None, x.order) else _recut(x, wanted)
    if isinstance(x, str):
        return _from_text(x, wanted)
    if isinstance(x, Mapping):
        return _from_mapping(x, wanted)
    if isinstance(x, list | tuple) or getattr(x, "ndim", False):
        return _from_mapping(_by_degree(x), wanted)
    if "sympy" in sys.modules and isinstance(x, sys.modules["sympy"].Basic):
        from hermite.text.formulas import normalise

        expression = normalise(x)
        return _from_expression(expression, str(expression), str(expression), wanted)
    if isinstance(x, type):
        msg = f"Argument `x` must be a function, but is a class; an object of it may be one: {x.__name__}()."
        raise TypeError(msg)
    if isinstance(x, np.vectorize) and x.otypes is None:  # the type of its first value would be that of all
        x = np.vectorize(x.pyfunc, otypes=[float])
    if callable(x):
        return _by_quadrature(callable_name(x), None, CallableLink(x), wanted)
    msg = (
        "Argument `x` must be a name, a dict {degree: coefficient}, a formula, a vectorised callable "
        f"or an expansion, but is of type {type(x).__name__}."
    )
    raise TypeError(msg)


def _check_order(order: int | None) -> int | None:
    """Return the order as an int from 0 to 300, or None."""
    if order is None:
        return None
    value = as_integer(order)
    if value is None:
        msg = f"Argument `order` must be an integer or None, but is {shown(order)}."
        raise TypeError(msg)
    if not 0 <= value <= MAX_DEGREE:
        msg = f"Argument `order` must be from 0 to {MAX_DEGREE}, but is {shown(value)}."
        raise ValueError(msg)
    return value


def _recut(x: HermiteExpansion, order: int | None) -> HermiteExpansion:
    """Return an expansion cut at another order."""
    if isinstance(x.link, SeriesLink):
        return _series(x.name, x.link.coefficients, x.exact_source, x.text, order)
    if isinstance(x.link, FormulaLink):
        return _from_expression(x.link.expression, x.name, x.text, order)
    return _by_quadrature(x.name, x.text, x.link, order)


def _from_text(text: str, order: int | None) -> HermiteExpansion:
    """Return the expansion of a name, a series or a formula."""
    polynomial = hermite_name(text)
    if polynomial is not None and (polynomial.checked().kind == "h" or polynomial.degree == 0):
        name, degree = f"he{polynomial.degree}", polynomial.degree
        return _series(name, (*[0.0] * degree, 1.0), GivenTerms(((degree, 1),)), name, order)
    classical = None if polynomial is None else f"{polynomial.kind}{polynomial.degree}"
    name_in_table = canonical_name(text)
    from hermite.text.formulas import parse

    if name_in_table is None and len(text) <= MAX_LENGTH:
        series = read_series(text)
        if series is not None and max(series) <= MAX_DEGREE and any(series.values()):
            return _from_mapping(series, order)
    expression = parse(FORMULAS[name_in_table] if name_in_table else f"{classical}(z)" if classical else text)
    name = name_in_table or classical or str(expression)
    return _from_expression(expression, name, name, order)


def _from_mapping(given: Mapping[Any, Any], order: int | None) -> HermiteExpansion:
    """Return the expansion of coefficients by degree."""
    terms: dict[int, object] = {}
    for key, number in given.items():
        degree = as_integer(key)
        if degree is None or not 0 <= degree <= MAX_DEGREE:
            msg = f"Argument `x` must have degrees from 0 to {MAX_DEGREE} as keys, but has {key!r}."
            raise ValueError(msg)
        if degree in terms:
            msg = f"Argument `x` must give each degree once, but gives {degree} twice."
            raise ValueError(msg)
        terms[degree] = _coefficient(degree, number)
    terms = {degree: number for degree, number in sorted(terms.items()) if number != 0}
    if not terms:
        msg = f"Argument `x` must have at least one nonzero coefficient, but is {dict(given)!r}."
        raise ValueError(msg)
    coefficients = np.zeros(max(terms) + 1)
    for degree, number in terms.items():
        coefficients[degree] = float(number)  # type: ignore[arg-type]
    exact = None if any(isinstance(number, float) for number in terms.values()) else GivenTerms(tuple(terms.items()))
    text = format_series(terms, formal=True) if exact else series_as_text(coefficients)
    if text is not None and len(text) > MAX_LENGTH:
        text = None
    return _series(format_series(terms, limit=8), tuple(coefficients.tolist()), exact, text, order)


def _by_degree(coefficients: Any) -> dict[int, object]:
    """Return coefficients c_0, c_1, ... by their degree."""
    if hasattr(coefficients, "index") and hasattr(coefficients, "items"):
        return dict(coefficients.items())  # a column of pandas has labels
    if not isinstance(coefficients, list | tuple):
        coefficients = np.asarray(as_numpy(coefficients))
    if isinstance(coefficients, np.ndarray) and coefficients.ndim != 1:
        msg = f"Argument `x` must be a one-dimensional array of coefficients, but has shape {coefficients.shape}."
        raise ValueError(msg)
    if len(coefficients) > MAX_DEGREE + 1:
        msg = f"Argument `x` must have at most {MAX_DEGREE + 1} coefficients, but has {len(coefficients)}."
        raise ValueError(msg)
    if len(coefficients) == 0:
        msg = "Argument `x` must have at least one nonzero coefficient, but is empty."
        raise ValueError(msg)
    return dict(enumerate(coefficients))


def _coefficient(degree: int, number: object) -> object:
    """Return a coefficient as a float, or as the exact number that was given."""
    number = as_scalar(number)
    exact: object = None
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        exact = int(number)
    elif isinstance(number, Fraction):
        exact = number
    elif "sympy" in sys.modules and isinstance(number, sys.modules["sympy"].Expr) and number.is_number:
        sympy = sys.modules["sympy"]
        exact = number if number.is_real and not number.has(sympy.Float) else None
        number = complex(number).real if number.is_real else math.nan
    elif not isinstance(number, float | np.floating):
        msg = f"Argument `x` must have real numbers as coefficients, but has {number!r} at degree {degree}."
        raise TypeError(msg)
    try:
        value = float(number if exact is None else exact)  # type: ignore[arg-type]
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        msg = f"Argument `x` must have finite real coefficients, but has {number} at degree {degree}."
        raise ValueError(msg)
    return value if exact is None else exact


def _series(
    name: str,
    coefficients: tuple[float, ...],
    exact: ExactSource | None,
    text: str | None,
    order: int | None,
) -> HermiteExpansion:
    """Return the expansion of a finite series, cut at `order` where one is asked for."""
    kept = np.zeros(len(coefficients) if order is None else order + 1)
    count = min(kept.size, len(coefficients))
    kept[:count] = coefficients[:count]
    link = SeriesLink(trimmed(np.array(coefficients)))
    return HermiteExpansion(name=name, coefficients=kept, link=link, text=text, exact_source=exact)


def _from_expression(expression: Expression, name: str, text: str | None, order: int | None) -> HermiteExpansion:
    """Return the expansion of a sympy expression in z: a series, a closed form, or by quadrature."""
    from hermite.closed_forms import closed_form

    text = text if text is not None and len(text) <= MAX_LENGTH else None
    form = closed_form(expression)
    if form is None:
        return _by_quadrature(name, text, FormulaLink(expression), order)
    degree = form.degree
    coefficients = form.floats((DEFAULT_ORDER if order is None else order) if degree is None else degree)
    if not np.isfinite(coefficients).all():
        j = int(np.argmin(np.isfinite(coefficients)))
        msg = f"Argument `x` must have Hermite coefficients within float64, but c_{j} of {name!r} is {coefficients[j]}."
        raise ValueError(msg)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.sum(coefficients**2)):
            msg = f"Argument `x` must have a norm within float64, but E σ(z)² of {name!r} is not."
            raise ValueError(msg)
    if degree is not None:
        return _series(name, tuple(coefficients.tolist()), form, text, order)
    rounding = float(np.finfo(np.float64).eps * np.max(np.abs(coefficients)))
    return HermiteExpansion(
        name=name,
        coefficients=coefficients,
        link=FormulaLink(expression),
        coefficient_error=rounding,
        text=text,
        exact_source=form,
    )


def _by_quadrature(name: str, text: str | None, link: Link, order: int | None) -> HermiteExpansion:
    """Return the expansion of any link by quadrature, with coefficients that count as zero set to 0."""
    from hermite.quadrature import integrate

    result = integrate(link.value, DEFAULT_ORDER if order is None else order)
    if not result.norm_squared_error <= UNCERTAIN_NORM * result.norm_squared:
        msg = (
            f"Argument `x` must be square-integrable under N(0, 1), but the integral of {name!r} squared does not "
            f"converge: {result.norm_squared:.3g} with error {result.norm_squared_error:.3g}."
        )
        raise ValueError(msg)
    tolerance = zero_tolerance(result.norm_squared, result.coefficient_error)
    return HermiteExpansion(
        name=name,
        # Coefficients are set to 0 here alone, so that callers may ask for `!= 0`.
        coefficients=np.where(np.abs(result.coefficients) > tolerance, result.coefficients, 0.0),
        link=link,
        coefficient_error=result.coefficient_error,
        text=text,
        tolerance=tolerance,
    )
