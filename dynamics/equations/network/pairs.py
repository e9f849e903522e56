"""Kernels for pairs of units: the means K = E σ_a σ_b and their derivatives, as source, chosen by the links.

Of two units of variances q_a, q_b, biases b_a, b_b and covariance c the equations need K, K1 = E σ'_a σ_b,
K12 = E σ'_a σ'_b and K2 = E σ''_a σ_b; ∂K/∂c = K12, ∂K/∂q_a = K2/2 and ∂K/∂b_a = K1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import hermite
from dynamics.compiler.compilation import kernel_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.compiler.compilation import Piece
    from hermite import HermiteExpansion
    from hermite.arrays import Array

_HERE = "dynamics.equations.network"
#: Families of links by their number in the kernels.
_RELU, _SIGN, _ERF, _POLYNOMIAL = range(4)
_THRESHOLDS = {"relu": _RELU, "sign": _SIGN, "erf": _ERF}
#: Length of the head of a row, and of the table of square roots where there are no lists.
_HEAD, _ROOTS = 9, 40


@dataclass(frozen=True, eq=False)
class PairSource:
    """Source of the kernels of all pairs of one network, and the numbers that they take.

    Attributes
    ----------
    pieces : tuple of Piece
        Source of `write_row`, `pair_values`, `mutual_values`, `own_values`, `write_moments`, `own_slopes` and
        `write_derivatives`.
    numbers : ndarray
        What they know of the links.
    row_size : int
        Numbers of scratch per unit.
    """

    pieces: tuple[Piece, ...]
    numbers: Array
    row_size: int


def pair_source(student: HermiteExpansion, teachers: Sequence[HermiteExpansion] = ()) -> PairSource:
    """Return the kernels of a student's link with itself and with the distinct links of the teacher's units."""
    links = [student, *teachers]
    families = [_family(link) for link in links]
    if families[0] == _SIGN:
        msg = (
            f"Argument `student` must have a link whose slope has a square mean, but has {student.name}, which jumps: "
            "its gradient is a delta."
        )
        raise ValueError(msg)
    degrees = [_degree(link) for link in links]
    size = max(degrees) + 1
    listed = f"{_HERE}.list_kernels"
    if families[0] == _POLYNOMIAL:
        files = [listed, f"{_HERE}.smooth_own_kernels", f"{_HERE}.list_pairs_kernels"]
    else:
        name = "relu" if families[0] == _RELU else "erf"
        parts = ("threshold", "moment", "smooth_own", f"{name}_student", "list", "threshold_pairs")
        files = [f"{_HERE}.{part}_kernels" for part in parts]
    roots = np.sqrt(np.arange(max(size + 6, _ROOTS)))
    heads, own = [], []
    place = 3 + roots.size + 3 * len(links)
    for link, family, degree in zip(links, families, degrees, strict=True):
        coefficients = np.array(link.link_coefficients()) if family == _POLYNOMIAL else np.empty(0)
        heads += [float(family), float(place), float(degree)]
        own.append(coefficients)
        place += coefficients.size
    numbers = np.concatenate([[size, 3 + roots.size, 0.0], roots, heads, *own])
    return PairSource(kernel_pieces(f"{_HERE}.normal_kernels", *files), numbers, _HEAD + 3 * size + 4)


def _family(link: HermiteExpansion) -> int:
    """Return the family of a link."""
    if link.is_polynomial:
        return _POLYNOMIAL
    for name, family in _THRESHOLDS.items():
        if link == hermite.expand(name, order=link.order):
            return family
    msg = f"Argument `student` must have a link of which the means by pairs are known, but has {link.name}."
    raise ValueError(msg)


def _degree(link: HermiteExpansion) -> int:
    """Return the degree of a polynomial, -1 for other links."""
    return len(link.link_coefficients()) - 1 if link.is_polynomial else -1
