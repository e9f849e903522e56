"""A problem in the forms that engines compute with: links as polynomials, formulas or tables, and networks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.polynomial import hermite_e

from dynamics.problem import Problem, Student, ZerothOrder, is_correlation, is_network
from hermite import HermiteExpansion
from hermite.arrays import Array
from hermite.piecewise import TABLE_END, pieces_of
from hermite.text.messages import require

Form = TypeVar("Form")


def simulated_link(
    expansion: HermiteExpansion,
    series: Callable[[object], Form],
    formula: Callable[[object], Form],
    table: Callable[[Array], Form] | None = None,
) -> tuple[Form, str]:
    """Return the form of a link, and one phrase that names it.

    A callable, or a formula for which `formula` raises NotImplementedError, counts as its Hermite series, or as a table
    if `table` is given, as for networks: the series holds for the unit Gaussian alone.
    """
    if expansion.is_polynomial:
        return series(expansion.link_coefficients()), f"{expansion.name} (polynomial)"
    if expansion.expression is not None:
        with suppress(NotImplementedError):
            return formula(expansion.expression), f"{expansion.name} (formula)"
    if table is not None:
        return table(tabulated(expansion)), f"{expansion.name} (table)"
    return series(expansion.coefficients), f"{expansion.name} (Hermite series to order {expansion.order})"


def tabulated(expansion: HermiteExpansion) -> Array:
    """Return the pieces of a link, shape (pieces, TABLE_DEGREE + 1), see `hermite.piecewise.pieces_of`."""
    table = pieces_of(expansion.value)
    require(
        np.isfinite(table).all(),
        f"Links must be finite on [{-TABLE_END:g}, {TABLE_END:g}] to be simulated, but {expansion.name} is not.",
    )
    return table


def in_powers(c: Array) -> Array:
    """Return the coefficients in powers of z of Σ_j c_j h_j."""
    return np.asarray(hermite_e.herme2poly(c / np.sqrt(np.cumprod(np.maximum(np.arange(c.size), 1.0)))))


class Network(NamedTuple):
    """W (m, D), v (m,) and b (m,) at the start, s, rates ε of w, v and b, decays κ of w and v, |w_i| kept, or None."""

    weights: Array
    second_layer: Array
    bias: Array
    scale: float
    rates: tuple[float, float, float]
    decay: tuple[float, float]
    lengths: Array | None


def network_of(problem: Problem) -> Network:
    """Return the start, scale, rates and decay of a network; raise ValueError if its link jumps where it is trained."""
    student, start = cast("Student", problem.student), problem.network_start()
    rates = student.learning_rates
    if rates[0] > 0 or rates[2] > 0:
        check_no_jump(problem)
    lengths = np.linalg.norm(start.weights, axis=1) if student.first_layer == "sphere" else None
    return Network(start.weights, start.second_layer, start.bias, student.output_scale, rates, student.decay, lengths)


def check_no_jump(problem: Problem) -> None:
    """Refuse a formula that has a jump where its argument is trained; a callable counts as having none."""
    import sympy

    link = problem.activation
    expression = None if link.is_polynomial else link.expression
    jumps = expression is not None and sympy.diff(expression, *expression.free_symbols).has(sympy.DiracDelta)
    require(
        not jumps,
        "Argument `problem` must have a link without jumps where its argument is trained, since a sample has no "
        f"gradient at a jump, but has {link.name}.",
    )


def check_smoothing(optimizer: ZerothOrder, dtype: str) -> None:
    """Refuse a smoothing λ > 0 where the rounding u of losses has a part u/λ above 1/1000 in their difference."""
    least = 1000.0 * float(np.finfo(dtype).eps)
    require(
        optimizer.smoothing == 0.0 or optimizer.smoothing >= least,
        f"Argument `smoothing` must be 0, the limit, or at least {least:.2g} in {dtype}, since two losses that are "
        f"closer differ by rounding, but is {optimizer.smoothing:g}.",
    )


def has_callable(problem: Problem) -> bool:
    """Return whether a callable is simulated as it is, tabulated, though no file holds it."""
    units = problem.teacher.units(problem.teacher_link)
    links = [problem.activation, *(unit.link for unit in units)]
    is_tabulated = is_network(problem) or is_correlation(problem)
    return is_tabulated and any(not link.is_polynomial and link.expression is None for link in links)
