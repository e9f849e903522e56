"""`HermiteExpansion`: a link σ(z), its Hermite coefficients, and what follows from them.

A link is a Hermite series, a formula or a plain callable. `expand` takes exact coefficients where there are any
(polynomials and closed forms), quadrature otherwise. sympy is loaded only where a formula needs it.
"""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hermite import polynomials
from hermite.arrays import Array, as_integer, as_numpy, as_scalar, real_array
from hermite.polynomials import MAX_DEGREE, trimmed
from hermite.text import formulas
from hermite.text.formulas import MAX_LENGTH, Expression
from hermite.text.messages import refuse, require, shown
from hermite.text.signs import keyboard_text

if TYPE_CHECKING:
    from hermite.closed_forms import ClosedForm

    ExactSource: TypeAlias = "GivenTerms | ClosedForm"
    Function = Callable[[Array], Array]

_STEP = 2.0**-10
#: Terms of a series that are shown, half of them where it goes on.
MOST_TERMS = 8
Parity = Literal["even", "odd", "none"]


@dataclass(frozen=True, eq=False, repr=False)
class HermiteExpansion:
    r"""A link σ expanded as Σ_j c_j h_j, c_j = E[σ(z) h_j(z)], z ~ N(0, 1), h_j = He_j / sqrt(j!).

    Made by `hermite.expand`. Frozen, picklable (a callable inside must be, too), equal where function and
    coefficients are equal.

    Parameters
    ----------
    name : str
        Text that identifies the link: "he4", "0.8 h4 + 0.6 h6", "tanh(z)", a callable's name.
    coefficients : ndarray, shape (order + 1,)
        Coefficients c_0 ... c_order, dimensionless, read-only.
    link : Link
        The function itself.
    coefficient_error : float
        Bound on the error of every coefficient that is not 0: 0 for given series, rounding for closed forms, else the
        estimate of the quadrature.
    text : str or None
        Text from which `hermite.expand` makes the same expansion at the same order, where there is one.
    exact_source : GivenTerms, ClosedForm or None
        What knows the exact coefficients, where they are known.
    tolerance : float
        Size up to which a coefficient counts as zero (see `zero_tolerance`); 0 where zeros are exact.

    Examples
    --------
    >>> import hermite
    >>> link = hermite.expand({4: 0.8, 6: 0.6})
    >>> link.information_exponent, link.parity, link.norm_squared
    (4, 'even', 1.0)
    >>> float(link.kernel(0.5))
    0.045625000000000006
    """

    name: str
    coefficients: Array
    link: Link
    coefficient_error: float = 0.0
    text: str | None = None
    exact_source: ExactSource | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        frozen = np.array(self.coefficients, dtype=np.float64)
        frozen.setflags(write=False)
        object.__setattr__(self, "coefficients", frozen)

    def __reduce__(self) -> tuple[object, ...]:
        series = (self.name, self.coefficients, self.link, self.coefficient_error)
        return HermiteExpansion, (*series, self.text, self.exact_source, self.tolerance)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HermiteExpansion):
            return NotImplemented
        return self.link == other.link and np.array_equal(self.coefficients, other.coefficients)

    def __hash__(self) -> int:
        return hash((self.link, self.coefficients.tobytes()))

    @property
    def order(self) -> int:
        """Largest degree N of the coefficients kept."""
        return int(self.coefficients.size - 1)

    @property
    def is_polynomial(self) -> bool:
        """Whether the link itself is a polynomial."""
        return isinstance(self.link, SeriesLink)

    @cached_property
    def exact(self) -> tuple[Expression, ...] | None:
        """Coefficients as sympy numbers, or None where none are known. The first access computes them."""
        return None if self.exact_source is None else self.exact_source.exact(self.order)

    @cached_property
    def _norm_and_remainder(self) -> tuple[float, float]:
        """E σ(z)² and the distance (E[(σ − Σ_j c_j h_j)²])^½ of σ from its series, by quadrature or in closed form."""
        if isinstance(self.link, SeriesLink):
            whole = np.array(self.link.coefficients)
            return float(np.sum(whole**2)), float(np.linalg.norm(whole[self.order + 1 :]))
        from hermite.quadrature import integrate

        of_series = float(np.sum(self.coefficients**2))
        with suppress(ValueError):
            result = integrate(self.link.value, self.order)
            # Parseval: the nodes miss a narrow spike of a function whose coefficients have a closed form.
            if result.norm_squared >= (1.0 - UNCERTAIN_NORM) * of_series:
                return result.norm_squared, result.residual_norm(self.coefficients)
        # A Gaussian that grows almost as fast as it may has a norm, yet no finite support in floats.
        from hermite.closed_forms import closed_form

        square = closed_form(self.link.expression**2, moment=1) if isinstance(self.link, FormulaLink) else None
        if square is None:
            refuse(f"The norm of {self.name} must be computable, but neither quadrature nor a closed form gives it.")
        norm_squared = float(square.floats(0)[0])
        return norm_squared, math.sqrt(max(norm_squared - of_series, 0.0))

    @property
    def norm_squared(self) -> float:
        """E σ(z)² of the function itself, not of its truncation."""
        return self._norm_and_remainder[0]

    @property
    def truncation_error(self) -> float:
        """Distance (E σ² - Σ c_j²)^(1/2) from σ to the series, without cancellation; 0 for a whole polynomial."""
        return self._norm_and_remainder[1]

    @cached_property
    def information_exponent(self) -> int:
        """Smallest j >= 1 with c_j ≠ 0 by the rule for zero; ValueError for a constant link."""
        nonzero = np.flatnonzero(np.abs(self.coefficients[1:]) > self.tolerance)
        require(
            nonzero.size,
            "The information exponent must be the degree of a nonzero coefficient, but every coefficient "
            f"c_1 ... c_{self.order} is zero: the link is constant, or the order is too small.",
        )
        return int(nonzero[0]) + 1

    @cached_property
    def parity(self) -> Parity:
        """Parity "even", "odd" or "none" of the coefficients that do not count as zero; "even" if all count as zero."""
        nonzero = np.abs(self.coefficients) > self.tolerance
        return "even" if not nonzero[1::2].any() else "none" if nonzero[::2].any() else "odd"

    @cached_property
    def expression(self) -> Expression | None:
        """Formula of the link as a sympy expression in the real symbol z; None for callables."""
        if isinstance(self.link, FormulaLink):
            return self.link.expression
        if isinstance(self.link, CallableLink):
            return None
        import sympy

        degree = len(self.link_coefficients()) - 1
        coefficients = (
            self.exact_source.exact(degree) if self.exact_source else map(sympy.Float, self.link_coefficients())
        )
        return sympy.Add(
            *[sympy.expand(c * formulas.hermite_polynomial(j)) for j, c in enumerate(coefficients) if c != 0]
        )

    def link_coefficients(self) -> tuple[float, ...]:
        """Return all coefficients of a polynomial link, including those beyond `order`; TypeError for another link."""
        if not isinstance(self.link, SeriesLink):
            refuse(
                f"The link must be a polynomial to have finitely many coefficients, but is {self.name}.",
                error=TypeError,
            )
        return self.link.coefficients

    def value(self, z: ArrayLike) -> Array:
        """Return σ(z) at dimensionless points of any shape, in their shape; that of `truncated()` is the series."""
        return self.link.value(real_array(z, "z"))

    def derivative(self, z: ArrayLike) -> Array:
        """Return σ'(z) in the shape of z: exact almost everywhere, of callables a difference of fourth order."""
        return self.link.derivative(real_array(z, "z"))

    def kernel(self, s: ArrayLike) -> Array:
        """Return g(s) = Σ_j c_j² s^j = E[σ(u·x) σ(v·x)] of the series kept, u·v = s, in the shape of the cosines s."""
        return polynomials.kernel_value(self.coefficients, real_array(s, "s"))

    @cached_property
    def kernel_at_one(self) -> float:
        """g(1) = Σ c_j², the norm of the series kept."""
        return float(self.kernel(1.0))

    def kernel_derivative(self, s: ArrayLike, n: int = 1) -> Array:
        """Return the n-th derivative at s of the kernel g(s) = Σ_j c_j² s^j, in the shape of the cosines s.

        The sum goes over the coefficients c_j that are kept, j ≤ `order`. n = 0 gives the kernel itself. TypeError is
        raised if `n` is no integer, and ValueError if it is negative.
        """
        if (count := as_integer(n)) is None:
            refuse(f"Argument `n` must be an integer, but is {shown(n)}.", error=TypeError)
        return polynomials.kernel_value(self.coefficients, real_array(s, "s"), count)

    def truncated(self) -> HermiteExpansion:
        """Return the expansion of the truncated series, a polynomial, without coefficients that count as zero."""
        if isinstance(self.link, SeriesLink) and self.truncation_error == 0.0:
            return self
        kept = np.where(np.abs(self.coefficients) > self.tolerance, self.coefficients, 0.0)
        name, text = f"{self.name} truncated at order {self.order}", formulas.series_as_text(kept)
        return HermiteExpansion(name, kept, SeriesLink(trimmed(kept)), text=text, exact_source=self.exact_source)

    def __repr__(self) -> str:
        series = formulas.format_series(_rounded(self), limit=MOST_TERMS if self.is_polynomial else MOST_TERMS // 2)
        if self.is_polynomial and self.truncation_error == 0.0:
            return series
        left_side = f"{self.name}(z)" if self.name.isidentifier() else self.name
        if isinstance(self.link, FormulaLink) and (self.name == "erf" or not self.name.isidentifier()):
            left_side = str(self.link.expression)
        error = _known(lambda: f"{self.truncation_error:.2g}")
        return f"{left_side} = {series} (order {self.order}, truncation error {error})"

    def _repr_html_(self) -> str:
        rows = {
            "σ(z)": link_in_a_line(self),
            "information exponent k": _known(lambda: str(self.information_exponent), "none: σ is constant"),
            "parity": self.parity,
            "E σ(z)²": _known(lambda: f"{self.norm_squared:.4g}"),
            "distance from the series": _known(lambda: f"{self.truncation_error:.2g}, order {self.order}"),
        }
        return formulas.table_of_pairs(f"<b>Link</b> {formulas.clean(self.name)}", rows)

    def _repr_latex_(self) -> str:
        return f"${formulas.latex_series(_rounded(self), limit=MOST_TERMS)}$"


def link_in_a_line(link: HermiteExpansion) -> str:
    """Return the series of a link in HTML; the name comes first unless the link is a polynomial."""
    series = formulas.series_as_html(_rounded(link), MOST_TERMS)
    return series if link.is_polynomial else f"{formulas.clean(link.name)} = {series}"


def _rounded(link: HermiteExpansion) -> dict[int, str]:
    """Return the coefficients that are not zero, by degree, with four digits."""
    return {j: f"{c:.4g}" for j, c in enumerate(link.coefficients) if abs(c) > link.tolerance}


def _known(text: Callable[[], str], otherwise: str = "unknown") -> str:
    """Return the result of `text`, or `otherwise` where it raises ValueError because a number is unknown."""
    try:
        return text()
    except ValueError:
        return otherwise


@dataclass(frozen=True)
class GivenTerms:
    """Exact coefficients that the user gave, the nonzero ones by degree: int, Fraction or sympy numbers."""

    terms: tuple[tuple[int, object], ...]

    def exact(self, order: int) -> tuple[Expression, ...]:
        """Return c_0 ... c_order as sympy numbers."""
        import sympy

        by_degree = dict(self.terms)
        return tuple(sympy.sympify(by_degree.get(j, 0)) for j in range(order + 1))


# --- links ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeriesLink:
    """A finite series Σ_j c_j h_j. Its last coefficient is not zero unless the series is constant."""

    coefficients: tuple[float, ...]

    def value(self, z: ArrayLike) -> Array:
        """Return Σ_j c_j h_j(z)."""
        return polynomials.series_value(self.coefficients, z)

    def derivative(self, z: ArrayLike) -> Array:
        """Return Σ_j c_j sqrt(j) h_(j-1)(z)."""
        return polynomials.series_derivative(self.coefficients, z)


@dataclass(frozen=True)
class FormulaLink:
    """A formula in the real symbol z; its derivative is that of the formula almost everywhere."""

    expression: Expression

    @cached_property
    def value(self) -> Function:
        """σ(z); the unit step is ½ at its jump."""
        return _vectorised(self.expression)

    @cached_property
    def derivative(self) -> Function:
        """The function σ'(z) of arrays: a jump of σ adds nothing to it, and at a kink it is the mean of both slopes."""
        import sympy

        (z,) = self.expression.free_symbols
        return _vectorised(sympy.diff(self.expression, z).replace(sympy.DiracDelta, lambda *_: sympy.Integer(0)))

    def __reduce__(self) -> tuple[object, ...]:
        return FormulaLink, (self.expression,)


@dataclass(frozen=True)
class CallableLink:
    """A vectorised function of a float64 array, or of a tensor of torch, that returns a real array of the same shape.

    Its derivative is a central difference with step 2^-10, accurate to about 1e-12 of the function's scale, but within
    two steps of a kink.
    """

    function: Callable[[object], object]

    def value(self, z: ArrayLike) -> Array:
        """Return σ(z) in the shape of z, by a call of the user's function on a copy of z.

        TypeError or ValueError is raised if the call fails, or does not return real numbers in the shape of z.
        """
        points = np.asarray(z, dtype=np.float64)
        name = callable_name(self.function)
        try:
            raw = np.asarray(as_numpy(self._called(points)))
        except Exception as error:
            refuse(
                "Argument `x` must be a vectorised callable (array in, real array of the same shape out), but "
                f"{name!r} failed on an array of shape {points.shape}: {error}",
                error=TypeError,
                cause=error,
            )
        is_real = raw.dtype.kind in "iub" or (raw.dtype.kind == "f" and raw.dtype.itemsize >= points.dtype.itemsize)
        require(
            is_real,
            f"Argument `x` must be a vectorised callable (array in, real array of the same shape out), but {name!r} "
            f"returns dtype {raw.dtype}.",
            error=TypeError,
        )
        has_shape = raw.shape == points.shape
        require(
            has_shape,
            f"Argument `x` must be a vectorised callable (array in, real array of the same shape out), but {name!r} "
            f"returns shape {raw.shape} for shape {points.shape}.",
        )
        values: Array = raw.astype(np.float64)  # a copy: the function may fill one array again and again
        return values[()]

    def _called(self, points: Array) -> object:
        """Return the values at an array; a function that fails there gets a tensor if torch is loaded."""
        try:
            return self.function(points.copy())
        except Exception as of_array:
            if "torch" not in sys.modules:
                raise
            try:
                return self.function(sys.modules["torch"].from_numpy(points.copy()))
            except Exception as of_tensor:
                raise (of_tensor if "Tensor" in str(of_array) else of_array) from None

    def derivative(self, z: ArrayLike) -> Array:
        """Return [8σ(z+h) - 8σ(z-h) - σ(z+2h) + σ(z-2h)] / 12h."""
        points, h = np.asarray(z, dtype=np.float64), _STEP
        near = self.value(points + h) - self.value(points - h)
        far = self.value(points + 2 * h) - self.value(points - 2 * h)
        return np.asarray((8.0 * near - far) / (12.0 * h))[()]

    def __reduce__(self) -> tuple[object, ...]:
        try:
            pickle.dumps(self.function)
        except Exception as error:
            name = callable_name(self.function)
            refuse(
                f"An expansion of a callable can be pickled only if the callable can, but {name!r} cannot: {error}. "
                "Define it at the top level of a module, or give a formula.",
                error=pickle.PicklingError,
                cause=error,
            )
        return CallableLink, (self.function,)

    def __deepcopy__(self, memo: object) -> CallableLink:
        """Return the link itself, since a function is its own copy."""
        return self


#: A real function of one real variable, with its derivative.
Link: TypeAlias = SeriesLink | FormulaLink | CallableLink


def callable_name(function: object) -> str:
    """Return the `__name__` of a callable, or the name of its type.

    >>> callable_name(np.tanh)
    'tanh'
    """
    return str(getattr(function, "__name__", type(function).__name__))


def _vectorised(expression: Expression) -> Callable[[ArrayLike], Array]:
    """Return a formula in z as a function of points of any shape."""
    function = compile_formula(expression)

    @np.errstate(over="ignore", under="ignore")
    def evaluate(z: ArrayLike) -> Array:
        points = np.asarray(z, dtype=np.float64)
        return np.broadcast_to(function(points), points.shape).copy()[()]

    return evaluate


def compile_formula(expression: Expression, axes: tuple[Expression, ...] = ()) -> Function:
    """Turn a formula of `hermite.text.formulas` into a numpy function, without executing source text.

    It is in one symbol, or in those of `axes`, whose values are then the entries of the function's argument.

    >>> from hermite.text.formulas import parse
    >>> compile_formula(parse("z**2 + 1"))(np.array([2.0])).tolist()
    [5.0]
    """
    import scipy.special
    import sympy

    if not expression.free_symbols:
        number = np.array(float(expression))
        return lambda _: number
    if expression.is_Symbol:
        return (lambda z: z[axes.index(expression)]) if axes else (lambda z: z)
    functions: dict[object, Callable[..., Any]] = {
        sympy.Add: np.add, sympy.Mul: np.multiply, sympy.Pow: np.power,
        sympy.exp: np.exp, sympy.log: np.log, sympy.sin: np.sin, sympy.cos: np.cos, sympy.atan: np.arctan,
        sympy.sinh: np.sinh, sympy.cosh: np.cosh, sympy.tanh: np.tanh, sympy.erf: scipy.special.erf,
        sympy.erfc: scipy.special.erfc, sympy.Abs: np.abs, sympy.Max: np.maximum, sympy.Min: np.minimum,
        sympy.Heaviside: np.heaviside, sympy.sign: np.sign,
    }  # fmt: skip
    combine = functions[expression.func]
    if expression.is_Pow and expression.exp.is_Integer:
        base, power = compile_formula(expression.base, axes), int(expression.exp)
        return lambda z: base(z) ** power
    parts = [compile_formula(part, axes) for part in expression.args]
    if len(parts) == 1:
        return lambda z: combine(parts[0](z))
    return lambda z: reduce(combine, (part(z) for part in parts))


def zero_tolerance(norm_squared: float, coefficient_error: float) -> float:
    """Return the size up to which a coefficient from quadrature counts as zero: max(1e-10 sqrt(E σ²), 10 × error).

    >>> zero_tolerance(1.0, 1e-15)
    1e-10
    """
    return max(1e-10 * math.sqrt(norm_squared), 10.0 * coefficient_error)


#: Order of links that are no polynomials, where none is asked for.
DEFAULT_ORDER = 60
#: A norm whose error is this part of it is no norm.
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
          In text, decimals are exact, signs of a PDF such as − × ² are read as - * ^2, ``h4(z)`` is the orthonormal
          h_4, ``He4(z)`` the probabilists' polynomial z^4 - 6 z^2 + 3, ``H4(z)`` the physicists'
          16 z^4 - 48 z^2 + 12, and ``erf(z)`` the plain error function.
        * A vectorised callable: array in, real array of the same shape out; or tensors instead, such as
          ``torch.nn.functional.silu``. Its value at a point must not depend on the other points, as that of a softmax
          or of a standardised function does. Its coefficients come from quadrature, and those that the rule of
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
        If `x` is an unknown name, a formula outside the allow-list, not finite, of infinite second moment, or a
        callable whose value at a point changes with the other points or from call to call.

    Examples
    --------
    >>> expand("he4")
    h4
    >>> expand("relu")
    relu(z) = 0.3989 + 0.5 h1 + 0.2821 h2 - 0.08143 h4 + … (order 60, truncation error 0.0095)
    >>> expand("z**3").exact
    (0, 3, 0, sqrt(6))
    """
    degree = as_integer(order)
    require(
        order is None or degree is not None,
        f"Argument `order` must be an integer or None, but is {shown(order)}.",
        error=TypeError,
    )
    require(
        degree is None or 0 <= degree <= MAX_DEGREE,
        f"Argument `order` must be from 0 to {MAX_DEGREE}, but is {shown(degree)}.",
    )
    if isinstance(x, HermiteExpansion):
        return x if degree in (None, x.order) else _recut(x, degree)
    if isinstance(x, str):
        return _from_text(x, degree)
    if isinstance(x, list | tuple) or getattr(x, "ndim", False):
        x = _by_degree(x)
    if isinstance(x, Mapping):
        return _from_mapping(x, degree)
    if "sympy" in sys.modules and isinstance(x, sys.modules["sympy"].Basic):
        expression = formulas.normalise(x)
        return _from_expression(expression, str(expression), str(expression), degree)
    if isinstance(x, type):
        refuse(
            f"Argument `x` must be a function, but is a class; an object of it may be one: {x.__name__}().",
            error=TypeError,
        )
    if isinstance(x, np.vectorize) and x.otypes is None:  # the type of its first value would be that of all
        x = np.vectorize(x.pyfunc, otypes=[float])
    if callable(x):
        return _from_callable(x, degree)
    return refuse(
        "Argument `x` must be a name, a dict {degree: coefficient}, a formula, a vectorised callable or an "
        f"expansion, but is of type {type(x).__name__}.",
        error=TypeError,
    )


def _recut(x: HermiteExpansion, order: int | None) -> HermiteExpansion:
    """Return an expansion at another order, None for the default one."""
    if isinstance(x.link, SeriesLink):
        return _series(x.name, x.link.coefficients, x.exact_source, x.text, order)
    if isinstance(x.link, FormulaLink):
        return _from_expression(x.link.expression, x.name, x.text, order)
    return _by_quadrature(x.name, x.text, x.link, order)


def _from_text(formula_text: str, order: int | None) -> HermiteExpansion:
    """Return the expansion of a text, which is read as the first of these that fits.

    They are a Hermite polynomial such as "he4", the name of a link such as "relu", a printed series such as
    "0.8 h4 + 0.6 h6", and a formula in z. `order` is the highest degree to keep, None for the default one.
    """
    text = keyboard_text(formula_text)
    polynomial = formulas.hermite_name(text)
    if polynomial is not None and (polynomial.checked().kind == "h" or polynomial.degree == 0):
        name, degree = f"he{polynomial.degree}", polynomial.degree
        return _series(name, (*[0.0] * degree, 1.0), GivenTerms(((degree, 1),)), name, order)
    classical = None if polynomial is None else f"{polynomial.kind}{polynomial.degree}"
    name_in_table = formulas.canonical_name(text)
    if name_in_table is None and len(text) <= MAX_LENGTH:
        series = formulas.read_series(text)
        if series is not None and max(series) <= MAX_DEGREE and any(series.values()):
            return _from_mapping(series, order)
    formula = formulas.FORMULAS[name_in_table] if name_in_table else f"{classical}(z)" if classical else text
    expression = formulas.parse(formula_text if formula == text else formula)
    name = name_in_table or classical or str(expression)
    return _from_expression(expression, name, name, order)


def _from_mapping(mapping: Mapping[Any, Any], order: int | None) -> HermiteExpansion:
    """Return the expansion of the series Σ_j c_j h_j that `mapping` gives as {j: c_j}.

    If no number is a float, all are kept as exact coefficients too. `order` is the highest degree to keep, None for the
    default one. ValueError is raised for degrees that are no integers from 0 to `MAX_DEGREE` or occur twice, and if all
    coefficients are zero; TypeError for coefficients that are no real numbers.
    """
    terms: dict[int, object] = {}
    for key, number in mapping.items():
        degree = as_integer(key)
        if degree is None or not 0 <= degree <= MAX_DEGREE:
            refuse(f"Argument `x` must have degrees from 0 to {MAX_DEGREE} as keys, but has {key!r}.")
        require(degree not in terms, f"Argument `x` must give each degree once, but gives {degree} twice.")
        terms[degree] = _coefficient(degree, number)
    terms = {degree: number for degree, number in sorted(terms.items()) if number != 0}
    require(terms, f"Argument `x` must have at least one nonzero coefficient, but is {dict(mapping)!r}.")
    coefficients = np.array([terms.get(degree, 0.0) for degree in range(max(terms) + 1)], dtype=np.float64)
    exact = None if any(isinstance(number, float) for number in terms.values()) else GivenTerms(tuple(terms.items()))
    text = formulas.format_series(terms, formal=True) if exact else formulas.series_as_text(coefficients)
    text = text if text is not None and len(text) <= MAX_LENGTH else None
    return _series(formulas.format_series(terms, limit=8), tuple(coefficients.tolist()), exact, text, order)


def _by_degree(coefficients: Any) -> dict[int, object]:
    """Return coefficients c_0, c_1, … as a dict {j: c_j}.

    They are a list, a tuple, an array, or a column of pandas, whose labels are the degrees j. ValueError is raised for
    arrays of several dimensions, and for no or too many coefficients.
    """
    if hasattr(coefficients, "columns") and len(coefficients.columns) == 1:
        coefficients = coefficients.iloc[:, 0]
    if hasattr(coefficients, "index") and hasattr(coefficients, "items"):
        return dict(coefficients.items())  # a column of pandas has labels
    if not isinstance(coefficients, list | tuple):
        coefficients = np.asarray(as_numpy(coefficients))
    shape = np.shape(coefficients) if isinstance(coefficients, np.ndarray) else (len(coefficients),)
    require(len(shape) == 1, f"Argument `x` must be a one-dimensional array of coefficients, but has shape {shape}.")
    require(
        shape[0] <= MAX_DEGREE + 1, f"Argument `x` must have at most {MAX_DEGREE + 1} coefficients, but has {shape[0]}."
    )
    require(shape[0], "Argument `x` must have at least one nonzero coefficient, but is empty.")
    return dict(enumerate(coefficients))


def _coefficient(degree: int, number: object) -> object:
    """Return a coefficient as a float, or unchanged if it is exact: an int, a Fraction, or a real number of sympy.

    TypeError is raised for what is no number, and ValueError for numbers that are not real or beyond float64; both
    messages name its `degree`.
    """
    number = as_scalar(number)
    exact: object = None
    if isinstance(number, int | Fraction) and not isinstance(number, bool):
        exact = number
    elif "sympy" in sys.modules and isinstance(number, sys.modules["sympy"].Expr) and number.is_number:
        sympy = sys.modules["sympy"]
        exact = number if number.is_real and not number.has(sympy.Float) else None
        number = complex(number).real if number.is_real else math.nan
    elif not isinstance(number, float | np.floating):
        refuse(
            f"Argument `x` must have real numbers as coefficients, but has {number!r} at degree {degree}.",
            error=TypeError,
        )
    try:
        value = float(number if exact is None else exact)  # type: ignore[arg-type]
    except OverflowError:
        value = math.inf
    require(
        math.isfinite(value), f"Argument `x` must have finite real coefficients, but has {number} at degree {degree}."
    )
    return value if exact is None else exact


def _series(
    name: str, coefficients: tuple[float, ...], exact: ExactSource | None, text: str | None, order: int | None
) -> HermiteExpansion:
    """Return the expansion of a finite series, cut at `order` where one is asked for."""
    kept = polynomials.padded(coefficients, len(coefficients) if order is None else order + 1)
    return HermiteExpansion(name, kept, SeriesLink(trimmed(np.array(coefficients))), text=text, exact_source=exact)


def _from_expression(expression: Expression, name: str, text: str | None, order: int | None) -> HermiteExpansion:
    """Return the expansion of a sympy expression in z, by closed forms of its coefficients or else by quadrature.

    A polynomial becomes a series of its own degree. `name` is shown, `text` reproduces the link (None if it is not
    known), and `order` is the highest degree to keep, None for the default one. ValueError is raised for coefficients
    or a norm E σ(z)² beyond float64.
    """
    from hermite.closed_forms import closed_form

    text = text if text is not None and len(text) <= MAX_LENGTH else None
    form = closed_form(expression)
    if form is None:
        return _by_quadrature(name, text, FormulaLink(expression), order)
    degree = form.degree
    coefficients = form.floats((DEFAULT_ORDER if order is None else order) if degree is None else degree)
    j = int(np.argmin(np.isfinite(coefficients)))
    require(
        np.isfinite(coefficients[j]),
        f"Argument `x` must have Hermite coefficients within float64, but c_{j} of {name!r} is {coefficients[j]}.",
    )
    with np.errstate(over="ignore"):
        has_norm = np.isfinite(np.sum(coefficients**2))
    require(has_norm, f"Argument `x` must have a norm within float64, but E σ(z)² of {name!r} is not.")
    if degree is not None:
        return _series(name, tuple(coefficients.tolist()), form, text, order)
    rounding = float(np.finfo(np.float64).eps * np.max(np.abs(coefficients)))
    return HermiteExpansion(name, coefficients, FormulaLink(expression), rounding, text, form)


def _from_callable(function: Callable[[object], object], order: int | None) -> HermiteExpansion:
    """Return the expansion of a vectorised function; ValueError if its value at a point depends on other points."""
    from hermite.quadrature import POINTS, check_pointwise

    link, name = CallableLink(function), callable_name(function)
    check_pointwise(link.value, POINTS, "x", name)
    return _by_quadrature(name, None, link, order)


def _by_quadrature(name: str, text: str | None, link: Link, order: int | None) -> HermiteExpansion:
    """Return the expansion of a link whose coefficients c_j = E[σ(z) h_j(z)] are computed by quadrature.

    Coefficients within the error of the quadrature are set to 0. `name` is shown, `text` reproduces the link (None if
    it is not known), and `order` is the highest degree to keep, None for the default one. ValueError is raised unless
    the integral of σ² converges.
    """
    from hermite.quadrature import integrate

    result = integrate(link.value, DEFAULT_ORDER if order is None else order)
    norm, error = result.norm_squared, result.norm_squared_error
    require(
        error <= UNCERTAIN_NORM * norm,
        f"Argument `x` must be square-integrable under N(0, 1), but the integral of {name!r} squared does not "
        f"converge: {norm:.3g} with error {error:.3g}.",
    )
    tolerance = zero_tolerance(result.norm_squared, result.coefficient_error)
    # Coefficients are set to 0 here alone, so that callers may ask for `!= 0`.
    coefficients = np.where(np.abs(result.coefficients) > tolerance, result.coefficients, 0.0)
    return HermiteExpansion(name, coefficients, link, result.coefficient_error, text, tolerance=tolerance)
