"""A link in the form in which an engine evaluates it: a polynomial, a formula, or the Hermite series of a callable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermite import HermiteExpansion
    from hermite.arrays import Array

    Form = TypeVar("Form")


def simulated_link(
    expansion: HermiteExpansion, series: Callable[[], Form], formula: Callable[[Any], Form]
) -> tuple[Form, str]:
    """Return the form of a link, and one phrase saying what it is.

    Polynomials are evaluated as such, formulas as themselves; a callable is known to this program by its truncated
    Hermite series alone, and so is a formula for which `formula` raises NotImplementedError.
    """
    if expansion.is_polynomial:
        return series(), f"{expansion.name} (polynomial)"
    if expansion.expression is not None:
        try:
            return formula(expansion.expression), f"{expansion.name} (formula)"
        except NotImplementedError:
            pass
    return series(), f"{expansion.name} (Hermite series to order {expansion.order})"


def in_powers(c: Array) -> Array:
    """Return the coefficients in powers of z of Σ_j c_j h_j, c (…, degree + 1)."""
    size = c.shape[-1]
    table = np.zeros((size, size))
    table[0, 0] = 1.0
    for j in range(1, size):
        table[j, 1:] = table[j - 1, :-1] / np.sqrt(j)
        if j > 1:
            table[j] -= np.sqrt((j - 1) / j) * table[j - 2]
    found: Array = c @ table
    return found
