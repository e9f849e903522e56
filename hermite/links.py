"""The functions behind an expansion, σ(z) and σ'(z): Hermite series, formulas and plain callables."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hermite import polynomials
from hermite.arrays import as_numpy
from hermite.text.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from hermite.arrays import Array

    Function = Callable[[Array], Array]

_STEP = 2.0**-10


@dataclass(frozen=True)
class SeriesLink:
    """A finite series Σ_j c_j h_j, whose last coefficient is not zero unless the series is constant."""

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

    def value(self, z: ArrayLike) -> Array:
        """Return σ(z); the unit step is ½ at its jump."""
        return _evaluate(self._value, z)

    def derivative(self, z: ArrayLike) -> Array:
        """Return σ'(z), with no delta at a jump and the mean slope at a kink."""
        return _evaluate(self._derivative, z)

    @cached_property
    def _value(self) -> Function:
        return compile_formula(self.expression)

    @cached_property
    def _derivative(self) -> Function:
        import sympy

        (z,) = self.expression.free_symbols
        slope = sympy.diff(self.expression, z).replace(sympy.DiracDelta, lambda *_: sympy.Integer(0))
        return compile_formula(slope)

    def __reduce__(self) -> tuple[object, ...]:
        return FormulaLink, (self.expression,)


@dataclass(frozen=True)
class CallableLink:
    """A vectorised function: a float64 array in, or a tensor of torch where it takes no array; as many real values out.

    Its derivative is a central difference of fourth order with step 2^-10, accurate to about 1e-12 of the function's
    scale where the function is smooth; within two steps of a kink it is a slope across the kink.
    """

    function: Callable[[Any], Any]

    def value(self, z: ArrayLike) -> Array:
        """Return σ(z), checking what the function returns."""
        points = np.asarray(z, dtype=np.float64)
        name = callable_name(self.function)
        rule = "Argument `x` must be a vectorised callable (array in, real array of the same shape out)"
        try:
            raw = np.asarray(as_numpy(self._called(points)))
        except Exception as error:
            msg = f"{rule}, but {name!r} failed on an array of shape {points.shape}: {error}"
            raise TypeError(msg) from error
        if raw.dtype.kind not in "fiub" or (raw.dtype.kind == "f" and raw.dtype.itemsize < points.dtype.itemsize):
            msg = f"{rule}, but {name!r} returns dtype {raw.dtype}."
            raise TypeError(msg)
        if raw.shape != points.shape:
            msg = f"{rule}, but {name!r} returns shape {raw.shape} for shape {points.shape}."
            raise ValueError(msg)
        value: Array = raw.astype(np.float64)[()]
        return value

    def _called(self, points: Array) -> Any:
        """Return what the function returns of an array, or of a tensor where torch is in use and it takes no array."""
        try:
            return self.function(points)
        except Exception as of_array:
            if "torch" not in sys.modules:
                raise
            try:
                return self.function(sys.modules["torch"].from_numpy(np.array(points)))
            except Exception as of_tensor:
                raise (of_tensor if "Tensor" in str(of_array) else of_array) from None

    def derivative(self, z: ArrayLike) -> Array:
        """Return [8σ(z+h) - 8σ(z-h) - σ(z+2h) + σ(z-2h)] / 12h."""
        points, h = np.asarray(z, dtype=np.float64), _STEP
        near = self.value(points + h) - self.value(points - h)
        far = self.value(points + 2 * h) - self.value(points - 2 * h)
        slope: Array = (8.0 * near - far) / (12.0 * h)
        return slope

    def __reduce__(self) -> tuple[object, ...]:
        try:
            pickle.dumps(self.function)
        except Exception as error:
            name = callable_name(self.function)
            msg = (
                f"An expansion of a callable can be pickled only if the callable can, but {name!r} cannot: {error}. "
                "Define it at the top level of a module, or give a formula."
            )
            raise pickle.PicklingError(msg) from error
        return CallableLink, (self.function,)


#: A real function of one real variable, with its derivative.
Link: TypeAlias = SeriesLink | FormulaLink | CallableLink


def callable_name(function: object) -> str:
    """Return the `__name__` of a callable, or the name of its type.

    Examples
    --------
    >>> callable_name(np.tanh)
    'tanh'
    """
    return str(getattr(function, "__name__", type(function).__name__))


def _evaluate(function: Function, z: ArrayLike) -> Array:
    points = np.asarray(z, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        value: Array = np.broadcast_to(function(points), points.shape)[()]
    return value if value.ndim == 0 else value.copy()


def compile_formula(expression: Expression, axes: tuple[Expression, ...] = ()) -> Function:
    """Turn a checked formula into a numpy function, without generating or executing source text.

    The expression is made of the functions that `hermite.text.expressions` allows, in one symbol, or in those of
    `axes`, whose values are then the entries of the function's argument.

    Examples
    --------
    >>> from hermite.text.parser import parse
    >>> compile_formula(parse("z**2 + 1"))(np.array([2.0])).tolist()
    [5.0]
    """
    if not expression.free_symbols:
        number = np.array(float(expression))
        return lambda _: number
    if expression.is_Symbol and axes:
        index = axes.index(expression)
        return lambda z: z[index]
    if expression.is_Symbol:
        return lambda z: z
    combine = _numpy_functions()[expression.func]
    if expression.is_Pow and expression.exp.is_Integer:
        base, power = compile_formula(expression.base, axes), int(expression.exp)
        return lambda z: base(z) ** power
    parts = [compile_formula(part, axes) for part in expression.args]
    if len(parts) == 1:
        [inner] = parts
        return lambda z: combine(inner(z))

    def fold(z: Array) -> Array:
        total = parts[0](z)
        for part in parts[1:]:
            total = combine(total, part(z))
        return total

    return fold


def _numpy_functions() -> dict[Any, Callable[..., Any]]:
    import scipy.special
    import sympy

    return {
        sympy.Add: np.add, sympy.Mul: np.multiply, sympy.Pow: np.power,
        sympy.exp: np.exp, sympy.log: np.log, sympy.sin: np.sin, sympy.cos: np.cos, sympy.atan: np.arctan,
        sympy.sinh: np.sinh, sympy.cosh: np.cosh, sympy.tanh: np.tanh, sympy.erf: scipy.special.erf,
        sympy.erfc: scipy.special.erfc, sympy.Abs: np.abs, sympy.Max: np.maximum, sympy.Min: np.minimum,
        sympy.Heaviside: np.heaviside, sympy.sign: np.sign,
    }  # fmt: skip
