"""Functions of up to three directions, given as text or as callables, made into functions of points in rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hermite.arrays import Array
from hermite.links import callable_name, compile_formula
from hermite.text.messages import shown
from hermite.text.parser import named_axes, parse_several

if TYPE_CHECKING:
    from hermite.text.expressions import Expression

MOST_AXES = 3

PointFunction: TypeAlias = Callable[[Array], Array]
"""Points, shape (n, axes), to values, shape (n,)."""

_RULE = (
    "Argument `f` must be a vectorised function f(z1, …) of {axes} arrays, or f(z) of one of shape (n, {axes}), "
    "with n finite real values"
)


def single_link(f: object, axes: int | None) -> object:
    """Return what `hermite.expand` takes if f has one direction, else None."""
    if isinstance(f, str):
        named = named_axes(f)
        if axes in (None, 1) and named <= {1}:
            return parse_several(f) if named else f
        return None
    if axes == 1 and callable(f) and not _takes(f, np.zeros(5)) and _takes(f, np.zeros((5, 1))):
        return lambda z: f(z.reshape(-1, 1)).reshape(z.shape)
    return f if axes == 1 or (axes is None and not callable(f)) else None


def point_function(f: object, axes: int | None) -> tuple[PointFunction, int]:
    """Return f as a function of points in rows, and the number of directions; ValueError or TypeError if it is none."""
    if isinstance(f, str):
        return _from_text(f, axes)
    if not callable(f):
        msg = (
            "Argument `f` must be a formula in z1, z2 and z3, a vectorised callable or, for one direction, what "
            f"`hermite.expand` takes, but is of type {type(f).__name__}."
        )
        raise TypeError(msg)
    required, name = _required_arguments(f), callable_name(f)
    if axes is None and (required is None or required < 2):
        msg = f"Argument `axes` must be given for a callable of one array, but is not for {name!r}."
        raise ValueError(msg)
    count = axes or required or 0
    if count > MOST_AXES:
        msg = f"Argument `f` must be a function of at most {MOST_AXES} directions, but {name!r} has {count}."
        raise ValueError(msg)
    return _checked(_of_columns(f) if required in (None, count) else _of_array(f, count), name, count), count


def _from_text(text: str, axes: int | None) -> tuple[PointFunction, int]:
    import sympy

    expression: Expression = parse_several(text)
    named = max(named_axes(text))
    count = named if axes is None else axes
    if count < named:
        msg = f"Argument `axes` must be at least {named} for {shown(text)}, which names z{named}, but is {axes}."
        raise ValueError(msg)
    formula = compile_formula(expression, tuple(sympy.symbols(f"z1:{count + 1}", real=True)))
    return _checked(lambda points: formula(points.T), text, count), count


def _required_arguments(function: Any) -> int | None:
    """Return how many positional arguments a callable asks for, None where that is not known or any number will do."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return getattr(function, "nin", None)  # of numpy's own functions
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters)


def _of_columns(function: Any) -> PointFunction:
    return lambda points: function(*points.T.copy())


def _of_array(function: Any, axes: int) -> PointFunction:
    """Return the function of points in rows, or of points in columns where only these give a value for each."""
    trial = np.random.default_rng(0).standard_normal((axes + 4, axes))
    if not _takes(function, trial) and _takes(function, trial.T):
        return lambda points: function(points.T)
    return function  # type: ignore[no-any-return]  # checked wherever it is used


def _takes(function: Any, points: Array) -> bool:
    """Return whether a function gives one value for each of axes + 4 points."""
    try:
        with np.errstate(all="ignore"):
            return bool(np.shape(function(points)) == (max(points.shape),))
    except Exception:  # said when the function is used
        return False


def _checked(function: PointFunction, name: str, axes: int) -> PointFunction:
    """Return the function with its values checked."""
    rule = _RULE.format(axes=axes)

    def evaluate(points: Array) -> Array:
        try:
            with np.errstate(all="ignore"):
                raw = np.asarray(function(points))
        except Exception as error:
            msg = f"{rule}, but {shown(name)} failed on {len(points)} points: {error}"
            raise TypeError(msg) from error
        if raw.dtype.kind not in "fiub" or raw.shape != (len(points),):
            msg = f"{rule}, but {shown(name)} returns {raw.dtype} of shape {raw.shape} for {len(points)} points."
            raise TypeError(msg)
        values = raw.astype(np.float64)
        if not np.isfinite(values).all():
            where = int(np.argmin(np.isfinite(values)))
            msg = f"{rule}, but {shown(name)} is {values[where]} near {np.round(points[where], 4).tolist()}."
            raise ValueError(msg)
        return values

    return evaluate
