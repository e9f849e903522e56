"""Leap of a function of up to three directions: in which degrees they are found, one subspace after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from hermite.arrays import Array
from hermite.conversion import expand
from hermite.exponents.generative import coefficient_shares, generative_exponent
from hermite.exponents.rows import (
    POLYNOMIAL_DEGREE,
    RESOLUTION,
    cells_of,
    direction_matrix,
    label_rows,
    polynomial_rows,
    ranked,
    value_rows,
)
from hermite.exponents.several_directions import MOST_AXES, point_function, single_link
from hermite.integers import as_integer
from hermite.links import callable_name
from hermite.text.messages import not_a_choice, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermite.exponents.rows import Cells, MultiIndex
    from hermite.exponents.several_directions import PointFunction

    #: From the directions known and the rest to the first degree that tells of the rest, and its matrix Λ_k.
    Search = Callable[[Array, Array], tuple[int, Array] | None]

Kind = Literal["generative", "information"]

HIGHEST_DEGREE = 6
"""Largest degree looked at, but for polynomials in `kind="information"`."""

THRESHOLD = 2e-3
"""λ_k² up to this size counts as zero where it comes from cells."""

_EXACT_THRESHOLD = 1e-12
#: Directions whose part of Λ_k is less than this of the largest are left to later steps, or are errors of cells.
_SMALLEST_PART = 0.02
#: (directions known, directions left) -> cells along each direction left, to find a degree and to find directions, and
#: slices along each direction known.
_GRIDS = {
    (0, 3): (48, 96, 1),
    (1, 2): (96, 256, 12),
    (2, 1): (512, 512, 16),
    (0, 2): (320, 1024, 1),
    (1, 1): (1024, 1024, 48),
}


@dataclass(frozen=True, eq=False)
class LeapStep:
    """Directions that become visible together."""

    #: Degree k of this step.
    degree: int
    #: The new directions, orthonormal rows, shape (new, axes).
    directions: Array
    #: λ_k² = tr Λ_k, dimensionless.
    strength: float

    def __repr__(self) -> str:
        return f"{self.degree} {{{', '.join(map(_named, _reduced(self.directions)))}}}"


@dataclass(frozen=True, eq=False)
class Leap:
    """The leap of a function, and its flag: the subspaces in the order in which they are found.

    Attributes
    ----------
    leap : int
        Largest degree of the flag.
    flag : tuple of LeapStep
        Degree, new directions and λ_k² of each step.
    kind : str
        "generative" or "information", as was asked for.
    complete : bool
        Whether the function is known once the directions of the flag are. Else degree 6 and the threshold hide others.
    """

    leap: int
    flag: tuple[LeapStep, ...]
    kind: Kind
    complete: bool

    def __repr__(self) -> str:
        end = "" if self.complete else ", and more beyond"
        return f"{self.kind} leap {self.leap}: {', '.join(map(repr, self.flag))}{end}"


def leap(f: object, axes: int | None = None, kind: Kind = "generative") -> Leap:
    r"""Return the leap of a function of up to three directions of N(0, I), with its flag of subspaces.

    With S the directions found so far and Y = f(Z), ζ_k = E[h_k(Z_rest) | Y, Z_S] is a symmetric tensor; the first
    k >= 1 with λ_k² = E|ζ_k|² > 0 adds the range of Λ_k = E ζ_k ζ_kᵀ (unfolded along one direction) to S, and so on
    until f is known. The leap is the largest k, and transformed labels find all from d^max(1, leap/2) samples. With
    ``kind="information"``, ζ_k = E[Y h_k(Z_rest) | Z_S] / √Var Y: what online SGD sees of the label as it is, from
    d^max(1, leap - 1).

    Parameters
    ----------
    f : str or callable
        A formula in z1, z2 and z3 (or x1, x2 and x3) such as ``"sign(z1) + sign(z1*z2*z3)"``, never evaluated as
        code; or a vectorised callable f(z1, ..., zr) of r arrays of one shape, or f(z) of one array of shape (n, r),
        or (r, n) where only that gives n values. For one direction whatever `hermite.expand` takes.
    axes : int, optional
        Number r of directions, 1 to 3. By default what the text names or the callable asks for.
    kind : {"generative", "information"}, default "generative"
        Whether labels may be transformed.

    Returns
    -------
    Leap
        `leap`, `flag` (degree, orthonormal directions and λ_k² of each step), `kind`, `complete`.

    Raises
    ------
    TypeError, ValueError
        If f is no such function, not finite, or constant, or nothing up to degree 6 tells of it.

    Notes
    -----
    Means over exact Gaussian cells, the function taken at their medians, of labels replaced by their ranks with noise
    of 3 %, which keeps every exponent. Degrees up to 6 by two grids of 48³ cells that are turned against each other,
    λ_k² up to 2e-3 counting as zero; directions by one of 96³, right to some 1e-3. A label whose rank varies by less
    than 1 % once Z_S is known counts as known. For polynomials of degree up to 15 and
    ``kind="information"`` all is exact (Gauss-Hermite); for one direction see `generative_exponent`. Directions are
    eigenvectors, not coordinates: none is preferred.

    References
    ----------
    Abbe, Boix-Adsera, Misiakiewicz, arXiv:2302.11055; Damian, Lee, Bruna, arXiv:2506.05500.

    Examples
    --------
    >>> leap("sign(z1) + sign(z1*z2*z3)")
    generative leap 2: 1 {z1}, 2 {z2, z3}
    >>> leap("z1 + z1*z2*z3", kind="information").leap, leap("z1*z2*z3", kind="information").leap
    (2, 3)
    """
    axes = _checked_axes(axes)
    _check_kind(kind)
    link = single_link(f, axes)
    if link is not None:
        return _of_one_direction(link, kind)
    function, count = point_function(f, axes)
    label = ranked(function, count)
    exact = kind == "information" and polynomial_rows(function, np.eye(count), 0) is not None
    if exact:
        search = _by_coefficients(function)
    else:
        search = _by_cells(label, label_rows) if kind == "generative" else _by_cells(function, value_rows)
    known, steps, settled = np.empty((0, count)), list[LeapStep](), False
    while not settled:
        rest = _complement(known)
        found = search(known, rest)
        if found is None:
            break
        sizes, vectors = np.linalg.eigh(found[1])
        new = _oriented(vectors[:, sizes > _SMALLEST_PART * sizes[-1]].T[::-1] @ rest)
        steps.append(LeapStep(found[0], new, float(sizes.sum())))
        known = np.concatenate([known, new])
        settled = len(known) == count or (not exact and _is_settled(label, known))
    if not steps:
        name = shown(f if isinstance(f, str) else callable_name(f))
        reason = f"{name} is constant" if _is_settled(label, known) else f"no λ_k² of {name} is above {THRESHOLD:g}"
        msg = f"Argument `f` must have a leap of at most {HIGHEST_DEGREE}, but {reason}."
        raise ValueError(msg)
    return Leap(max(step.degree for step in steps), tuple(steps), kind, settled or exact)


def _checked_axes(axes: Any) -> int | None:
    if axes is None:
        return None
    number = as_integer(axes)
    if number is None:
        msg = f"Argument `axes` must be an integer from 1 to {MOST_AXES}, but is {shown(axes)}."
        raise TypeError(msg)
    if not 1 <= number <= MOST_AXES:
        msg = f"Argument `axes` must be from 1 to {MOST_AXES}, but is {shown(axes)}."
        raise ValueError(msg)
    return number


def _check_kind(kind: Any) -> None:
    if kind not in get_args(Kind):
        raise ValueError(not_a_choice("Argument `kind`", kind, get_args(Kind)))


def _of_one_direction(link: object, kind: Kind) -> Leap:
    expansion = expand(link)
    if kind == "generative":
        degree, strength = generative_exponent(expansion)
    else:
        degree = expansion.information_exponent
        strength = float(coefficient_shares(expansion)[degree])
    return Leap(degree, (LeapStep(degree, np.eye(1), strength),), kind, complete=True)


def _by_coefficients(function: PointFunction) -> Search:
    def search(known: Array, rest: Array) -> tuple[int, Array] | None:
        rows = polynomial_rows(function, np.concatenate([known, rest]), len(known)) or {}
        for degree in range(1, POLYNOMIAL_DEGREE + 1):
            of_degree = {alpha: row for alpha, row in rows.items() if sum(alpha) == degree}
            if sum(float(row @ row) for row in of_degree.values()) > _EXACT_THRESHOLD:
                return degree, direction_matrix(of_degree, len(rest), degree)
        return None

    return search


def _by_cells(function: PointFunction, rows_of: Callable[[Cells, int], dict[MultiIndex, Array]]) -> Search:
    def search(known: Array, rest: Array) -> tuple[int, Array] | None:
        coarse, fine, slices = _GRIDS[len(known), len(rest)]
        grids = [cells_of(function, known, turned @ rest, coarse, slices) for turned in _rotations(len(rest))]
        for degree in range(1, HIGHEST_DEGREE + 1):
            matrices = [direction_matrix(rows_of(cells, degree), len(rest), degree) for cells in grids]
            # What a grid adds to a λ_k² that is zero depends on how it stands to the function.
            if min(float(np.trace(matrix)) for matrix in matrices) > THRESHOLD:
                cells = cells_of(function, known, rest, fine, slices)
                return degree, direction_matrix(rows_of(cells, degree), len(rest), degree)
        return None

    return search


def _is_settled(label: PointFunction, known: Array) -> bool:
    """Return whether the directions known tell the label, up to their errors."""
    rest = _complement(known)
    coarse, _, slices = _GRIDS[len(known), len(rest)]
    return bool((cells_of(label, known, rest, coarse, slices).spread() < RESOLUTION).all())


def _rotations(axes: int) -> list[Array]:
    """Return the identity and, in several dimensions, a rotation that favours no direction."""
    turned = np.linalg.qr(np.random.default_rng(7).standard_normal((axes, axes)))[0]
    return [np.eye(axes), turned][:axes]


def _complement(known: Array) -> Array:
    """Return an orthonormal basis, in rows, of what is orthogonal to orthonormal rows; without any, the axes."""
    count = known.shape[1]
    if not len(known):
        return np.eye(count)
    basis: Array = np.linalg.qr(np.concatenate([known, np.eye(count)]).T)[0][:, len(known) : count].T
    return basis


def _oriented(directions: Array) -> Array:
    """Return the directions with the sign that makes the first large entry of each positive."""
    size = np.abs(directions)
    first = np.argmax(size > 0.5 * size.max(axis=1, keepdims=True), axis=1)
    found: Array = directions * np.sign(np.take_along_axis(directions, first[:, None], axis=1))
    return found


def _reduced(directions: Array) -> Array:
    """Return the basis of the same space in reduced row echelon form, to three digits, for the eye."""
    rows, done = directions.copy(), 0
    for column in range(rows.shape[1]):
        pivot = done + int(np.argmax(np.abs(rows[done:, column])))
        if abs(rows[pivot, column]) < 0.05:
            continue
        rows[[done, pivot]] = rows[[pivot, done]]
        rows[done] /= rows[done, column]
        others = np.arange(len(rows)) != done
        rows[others] -= np.outer(rows[others, column], rows[done])
        done += 1
        if done == len(rows):
            break
    return rows


def _named(row: Array) -> str:
    """Return a direction as a sum of z1, z2 and z3."""
    text = ""
    for a, number in enumerate(row, 1):
        if abs(number) < 0.01:
            continue
        size = "" if abs(abs(number) - 1.0) < 0.01 else f"{abs(number):.2g} "
        sign = ("-" if number < 0 else "") if not text else (" - " if number < 0 else " + ")
        text += f"{sign}{size}z{a}"
    return text
