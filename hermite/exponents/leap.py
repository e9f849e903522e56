r"""Leap of a function of up to three directions: in which degrees they are found, one subspace after the other.

Conditional means ζ_α = E[h_α(z_rest) | label, z_found] of all multi-indices |α| = k are one symmetric tensor of degree
k, ζ_k, with entries ζ_α √(α!/k!). Its matrix Λ_k = E ζ_k ζ_kᵀ, unfolded along one direction, has the trace
λ_k² = Σ_α E ζ_α², and its range is what degree k tells of the directions.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from scipy.special import ndtr, ndtri

from hermite import polynomials
from hermite.arrays import Array, as_integer
from hermite.expansion import callable_name, compile_formula, expand
from hermite.exponents.generative import coefficient_shares, generative_exponent, interval_moments
from hermite.quadrature import check_pointwise
from hermite.text.formulas import named_axes, parse_several
from hermite.text.messages import not_a_choice, refuse, require, shown

MOST_AXES = 3
#: Points, shape (n, axes), to values, shape (n,).
PointFunction: TypeAlias = Callable[[Array], Array]
MultiIndex: TypeAlias = tuple[int, ...]

#: Cells are quantiles of a Gaussian this much wider than the inputs', or the outermost would be too wide for h_k.
_WIDENED = 3.0**0.5
#: Levels of a ranked label, and the deviation of the noise that is added to it.
_LEVELS, _BLUR = 128, 0.03
#: Ranks that vary by less than this are one label.
RESOLUTION = 0.01
#: Largest degree of polynomials that are known exactly.
POLYNOMIAL_DEGREE = 15

Kind = Literal["generative", "information"]

#: Largest degree looked at, but for polynomials in `kind="information"`.
HIGHEST_DEGREE = 6
#: λ_k² up to this size counts as zero where it comes from cells.
THRESHOLD = 2e-3
_EXACT_THRESHOLD = 1e-12
#: Random points at which a function is looked at first.
_TRIED = 400
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
    """Directions that become visible together.

    Examples
    --------
    >>> first, second = leap("sign(z1) + sign(z1*z2*z3)").flag
    >>> second
    2 {z2, z3}
    >>> second.degree, second.directions.shape, f"{second.strength:.2f}"
    (2, (2, 3), '0.41')
    """

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

    Examples
    --------
    >>> found = leap("z1 + z1*z2*z3", kind="information")
    >>> found
    information leap 2: 1 {z1}, 2 {z2, z3}
    >>> found.leap, found.complete
    (2, True)
    """

    #: Largest degree of the flag.
    leap: int
    #: Degree, new directions and λ_k² of each step.
    flag: tuple[LeapStep, ...]
    kind: Kind
    #: Whether the function is known once the directions of the flag are. Else degree 6 and the threshold hide others.
    complete: bool

    def __repr__(self) -> str:
        end = "" if self.complete else ", and more beyond"
        return f"{self.kind} leap {self.leap}: {', '.join(map(repr, self.flag))}{end}"


def leap(f: object, axes: int | None = None, kind: Kind = "generative") -> Leap:
    r"""Return the leap of a function of up to three directions of N(0, I), with its flag of subspaces.

    With S the directions found so far and Y = f(Z), ζ_k = E[h_k(Z_rest) | Y, Z_S] is a symmetric tensor; the first
    k >= 1 with λ_k² = E|ζ_k|² > 0 adds the range of Λ_k = E ζ_k ζ_kᵀ (unfolded along one direction) to S, and so on
    until f is known (arXiv:2302.11055, 2506.05500). The leap is the largest k, and transformed labels find all from
    d^max(1, leap/2) samples. With ``kind="information"``, ζ_k = E[Y h_k(Z_rest) | Z_S] / √Var Y: what online SGD sees
    of the label as it is, from d^max(1, leap - 1).

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

    Raises
    ------
    TypeError, ValueError
        If f is no such function, not finite, or constant, or nothing up to degree 6 tells of it.

    Notes
    -----
    Means over exact Gaussian cells, the function taken at their medians, of labels replaced by their ranks with noise
    of 3 %, which keeps every exponent. Degrees up to 6 by two grids of 48³ cells that are turned against each other,
    λ_k² up to 2e-3 counting as zero; directions by one of 96³, right to some 1e-3. A label whose rank varies by less
    than 1 % once Z_S is known counts as known. For polynomials of degree up to 15 and ``kind="information"`` all is
    exact (Gauss-Hermite); for one direction see `generative_exponent`.

    Examples
    --------
    >>> leap("sign(z1) + sign(z1*z2*z3)")
    generative leap 2: 1 {z1}, 2 {z2, z3}
    >>> leap("z1 + z1*z2*z3", kind="information").leap, leap("z1*z2*z3", kind="information").leap
    (2, 3)
    """
    number = as_integer(axes)
    require(
        axes is None or number is not None,
        f"Argument `axes` must be an integer from 1 to {MOST_AXES}, but is {shown(axes)}.",
        error=TypeError,
    )
    require(
        number is None or 1 <= number <= MOST_AXES,
        f"Argument `axes` must be from 1 to {MOST_AXES}, but is {shown(axes)}.",
    )
    require(kind in get_args(Kind), not_a_choice("Argument `kind`", kind, get_args(Kind)))
    if (link := single_link(f, number)) is not None:
        expansion = expand(link)
        if kind == "generative":
            degree, strength = generative_exponent(expansion)
        else:
            degree = expansion.information_exponent
            strength = float(coefficient_shares(expansion)[degree])
        return Leap(degree, (LeapStep(degree, np.eye(1), strength),), kind, complete=True)
    function, count = point_function(f, number)
    label = ranked(function, count)
    exact = kind == "information" and polynomial_rows(function, np.eye(count), 0) is not None
    search: Callable[[Array, Array], tuple[int, Array] | None]
    if exact:
        search = partial(_by_coefficients, function)
    elif kind == "generative":
        search = partial(_by_cells, label, label_rows)
    else:
        search = partial(_by_cells, function, value_rows)
    subspace, steps, settled = np.empty((0, count)), list[LeapStep](), False
    while not settled:
        rest = _complement(subspace)
        if (result := search(subspace, rest)) is None:
            break
        degree, matrix = result
        sizes, vectors = np.linalg.eigh(matrix)
        new = vectors[:, sizes > _SMALLEST_PART * sizes[-1]].T[::-1] @ rest
        # The first large entry of each direction is positive.
        first = np.argmax(np.abs(new) > 0.5 * np.abs(new).max(axis=1, keepdims=True), axis=1)
        new = new * np.sign(np.take_along_axis(new, first[:, None], axis=1))
        steps.append(LeapStep(degree, new, float(sizes.sum())))
        subspace = np.concatenate([subspace, new])
        settled = len(subspace) == count or (not exact and _is_settled(label, subspace))
    if not steps:
        name = shown(f if isinstance(f, str) else callable_name(f))
        if _is_settled(label, subspace):
            refuse(f"Argument `f` must have a leap of at most {HIGHEST_DEGREE}, but {name} is constant.")
        refuse(
            f"Argument `f` must have a leap of at most {HIGHEST_DEGREE}, but no λ_k² of {name} is above {THRESHOLD:g}."
        )
    return Leap(max(step.degree for step in steps), tuple(steps), kind, settled or exact)


def _by_coefficients(function: PointFunction, subspace: Array, rest: Array) -> tuple[int, Array] | None:
    """Return the first degree k at which a polynomial has directions outside `subspace`, and the matrix Λ_k; or None.

    Rows of `subspace` and `rest` are orthonormal; Λ_k is in the coordinates of `rest`.
    """
    rows = polynomial_rows(function, np.concatenate([subspace, rest]), len(subspace)) or {}
    for degree in range(1, POLYNOMIAL_DEGREE + 1):
        of_degree = {alpha: row for alpha, row in rows.items() if sum(alpha) == degree}
        if sum(float(row @ row) for row in of_degree.values()) > _EXACT_THRESHOLD:
            return degree, direction_matrix(of_degree, len(rest), degree)
    return None


def _by_cells(
    function: PointFunction, rows_of: Callable[[Cells, int], dict[MultiIndex, Array]], subspace: Array, rest: Array
) -> tuple[int, Array] | None:
    """Return the lowest degree k at which a function shows directions outside `subspace`, and its matrix Λ_k.

    `subspace` (s, r) and `rest` (r − s, r) are orthonormal bases in rows that together span all directions. Means are
    sums over cells of space, and `rows_of` computes those of a degree from the cells. None is returned if no degree up
    to `HIGHEST_DEGREE` shows any.
    """
    coarse, fine, slices = _GRIDS[len(subspace), len(rest)]
    # In several dimensions the second grid is turned, so that the two favour no direction together.
    turned = np.linalg.qr(np.random.default_rng(7).standard_normal((len(rest), len(rest))))[0] @ rest
    bases = [rest, turned] if len(rest) > 1 else [rest]
    grids = [cells_of(function, subspace, basis, coarse, slices) for basis in bases]
    for degree in range(1, HIGHEST_DEGREE + 1):
        matrices = [direction_matrix(rows_of(cells, degree), len(rest), degree) for cells in grids]
        # A grid adds an error to a λ_k² of zero, which depends on its orientation to the function.
        if min(float(np.trace(matrix)) for matrix in matrices) > THRESHOLD:
            cells = cells_of(function, subspace, rest, fine, slices)
            return degree, direction_matrix(rows_of(cells, degree), len(rest), degree)
    return None


def _is_settled(label: PointFunction, subspace: Array) -> bool:
    """Return whether the label is a function of the directions in `subspace`, up to the error of these."""
    rest = _complement(subspace)
    coarse, _, slices = _GRIDS[len(subspace), len(rest)]
    cells = cells_of(label, subspace, rest, coarse, slices)
    centred = cells.values - (cells.values @ cells.mass)[:, None]
    return bool((np.sqrt(centred**2 @ cells.mass) < RESOLUTION).all())


def _complement(subspace: Array) -> Array:
    """Return an orthonormal basis, in rows, of the complement of orthonormal rows; the axes for no rows."""
    count = subspace.shape[1]
    if not len(subspace):
        return np.eye(count)
    return np.asarray(np.linalg.qr(np.concatenate([subspace, np.eye(count)]).T)[0][:, len(subspace) : count].T)


def _reduced(directions: Array) -> Array:
    """Return a basis of the space that the rows of `directions` span, in reduced row echelon form, for reading.

    Both have shape (rows, r). Entries below 0.05 in size are not used as pivots.
    """
    rows, row = directions.copy(), 0
    for column in range(rows.shape[1]):
        pivot = row + int(np.argmax(np.abs(rows[row:, column])))
        if abs(rows[pivot, column]) < 0.05:
            continue
        rows[[row, pivot]] = rows[[pivot, row]]
        rows[row] /= rows[row, column]
        is_other_row = np.arange(len(rows)) != row
        rows[is_other_row] -= np.outer(rows[is_other_row, column], rows[row])
        row += 1
        if row == len(rows):
            break
    return rows


def _named(row: Array) -> str:
    """Return a direction as a sum of z1, z2 and z3."""
    terms = []
    for a, number in enumerate(row, 1):
        if abs(number) >= 0.01:
            size = "" if abs(abs(number) - 1.0) < 0.01 else f"{abs(number):.2g} "
            terms.append(f"{'-' if number < 0 else '+'} {size}z{a}")
    text = " ".join(terms)
    return text.removeprefix("+ ") if text.startswith("+") else text.replace("- ", "-", 1)


# --- functions of several directions ----------------------------------------------------------------------------------


def single_link(f: object, axes: int | None) -> object:
    """Return f as an argument of `hermite.expand` if it has one direction, else None."""
    if isinstance(f, str):
        named = named_axes(f)
        if axes in (None, 1) and named <= {1}:
            return parse_several(f) if named else f
        return None
    if axes == 1 and callable(f) and not _takes(f, np.zeros(5)) and _takes(f, np.zeros((5, 1))):
        return lambda z: f(z.reshape(-1, 1)).reshape(z.shape)
    return f if axes == 1 or (axes is None and not callable(f)) else None


def point_function(f: object, axes: int | None) -> tuple[PointFunction, int]:
    """Return f as a function from points in rows (n, r) to values (n,), and the number r of its directions.

    f is a formula in z1, z2, …, or a vectorised callable of r arrays (n,) or of one array (n, r) or (r, n). `axes` is
    r, or None to take it from the formula or the arguments. The returned function checks its values. TypeError or
    ValueError is raised for other f, and for more than `MOST_AXES` directions.
    """
    if isinstance(f, str):
        import sympy

        expression, named = parse_several(f), max(named_axes(f))
        count = named if axes is None else axes
        require(
            count >= named,
            f"Argument `axes` must be at least {named} for {shown(f)}, which names z{named}, but is {axes}.",
        )
        formula = compile_formula(expression, tuple(sympy.symbols(f"z1:{count + 1}", real=True)))
        return _checked(lambda points: formula(points.T), f, count), count
    if not callable(f):
        refuse(
            "Argument `f` must be a formula in z1, z2 and z3, a vectorised callable or, for one direction, what "
            f"`hermite.expand` takes, but is of type {type(f).__name__}.",
            error=TypeError,
        )
    required, name = _required_arguments(f), callable_name(f)
    has_count = axes is not None or (required is not None and required >= 2)
    require(has_count, f"Argument `axes` must be given for a callable of one array, but is not for {name!r}.")
    count = axes or required or 0
    require(
        count <= MOST_AXES,
        f"Argument `f` must be a function of at most {MOST_AXES} directions, but {name!r} has {count}.",
    )
    trial = np.random.default_rng(0).standard_normal((count + 4, count))
    rows: PointFunction = f
    if required in (None, count):
        rows = lambda points: f(*points.T.copy())  # noqa: E731
    elif not _takes(f, trial) and _takes(f, trial.T):  # only points in columns give a value for each
        rows = lambda points: f(points.T)  # noqa: E731
    evaluate = _checked(rows, name, count)
    points_tried = np.random.default_rng(1).standard_normal((_TRIED, count))
    check_pointwise(evaluate, points_tried[np.argsort(np.sum(points_tried**2, axis=1))], "f", name)
    return evaluate, count


def _required_arguments(function: Any) -> int | None:
    """Return the number of positional arguments that a callable requires; None if unknown or if it takes any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return getattr(function, "nin", None)  # of numpy's own functions
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(argument.kind in positional and argument.default is argument.empty for argument in parameters)


def _takes(function: Any, points: Array) -> bool:
    """Return whether a function gives one value for each of axes + 4 points."""
    try:
        with np.errstate(all="ignore"):
            return bool(np.shape(function(points.copy())) == (max(points.shape),))
    except Exception:  # said when the function is used
        return False


def _checked(function: PointFunction, name: str, axes: int) -> PointFunction:
    """Return the function with checks: it raises TypeError or ValueError unless each point has a finite real value.

    Points are rows (n, axes), and `name` is the name of the function in messages.
    """

    def evaluate(points: Array) -> Array:
        """Return the values (n,) of the function at points (n, axes), checked."""
        try:
            with np.errstate(all="ignore"):
                raw = np.asarray(function(points.copy()))
        except Exception as error:
            refuse(
                f"Argument `f` must be a vectorised function f(z1, …) of {axes} arrays, or f(z) of one of shape (n, "
                f"{axes}), with n finite real values, but {shown(name)} failed on {len(points)} points: {error}",
                error=TypeError,
                cause=error,
            )
        is_real = raw.dtype.kind in "fiub" and raw.shape == (len(points),)
        require(
            is_real,
            f"Argument `f` must be a vectorised function f(z1, …) of {axes} arrays, or f(z) of one of shape (n, "
            f"{axes}), with n finite real values, but {shown(name)} returns {raw.dtype} of shape {raw.shape} for "
            f"{len(points)} points.",
            error=TypeError,
        )
        values = raw.astype(np.float64)
        index = int(np.argmin(np.isfinite(values)))
        place = np.round(points[index], 4).tolist()
        require(
            np.isfinite(values[index]),
            f"Argument `f` must be a vectorised function f(z1, …) of {axes} arrays, or f(z) of one of shape (n, "
            f"{axes}), with n finite real values, but {shown(name)} is {values[index]} near {place}.",
        )
        return values

    return evaluate


# --- rows and cells ---------------------------------------------------------------------------------------------------


def multi_indices(axes: int, degree: int) -> list[MultiIndex]:
    """Return all multi-indices of a total degree.

    >>> multi_indices(2, 2)
    [(0, 2), (1, 1), (2, 0)]
    """
    return [alpha for alpha in itertools.product(range(degree + 1), repeat=axes) if sum(alpha) == degree]


def direction_matrix(rows: Mapping[MultiIndex, Array], axes: int, degree: int) -> Array:
    """Return the matrix Λ_k of order k = `degree`, (axes, axes), whose range holds the directions of a function.

    Entry (a, b) is Σ_α √((α_a + 1)(α_b + 1))/k rows[α + e_a] · rows[α + e_b] over multi-indices α of degree k − 1, with
    e_a that of axis a alone. `rows` holds one vector per multi-index of degree k, see `polynomial_rows`.
    """
    total = np.zeros((axes, axes))
    for lower in multi_indices(axes, degree - 1):
        raised = [(*lower[:a], lower[a] + 1, *lower[a + 1 :]) for a in range(axes)]
        vectors = np.array([math.sqrt(alpha[a] / degree) * rows[alpha] for a, alpha in enumerate(raised)])
        total += vectors @ vectors.T
    return total


def polynomial_rows(f: PointFunction, basis: Array, num_known: int) -> dict[MultiIndex, Array] | None:
    """Return the rows of a polynomial over its standard deviation, by Gauss-Hermite quadrature; None of another f.

    Rows of `basis` are the directions, of which the first `num_known` are known: rows[α] holds
    E[f h_β(z_known) h_α(z_rest)] for all β.
    """
    axes, degrees = len(basis), np.arange(POLYNOMIAL_DEGREE + 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(POLYNOMIAL_DEGREE + 5)
    table = polynomials.evaluate(POLYNOMIAL_DEGREE, nodes) * weights / math.sqrt(2.0 * math.pi)
    coefficients = f(_product(nodes, axes) @ basis).reshape((nodes.size,) * axes)
    for _ in range(axes):
        coefficients = np.tensordot(coefficients, table, (0, 1))
    coefficients[reduce(np.add.outer, [degrees] * axes) > POLYNOMIAL_DEGREE] = 0.0
    points = np.random.default_rng(1).standard_normal((64, axes))
    factors = [polynomials.evaluate(POLYNOMIAL_DEGREE, points[:, a]) for a in range(axes)]
    letters = "abc"[:axes]
    series = np.einsum(f"{letters},{','.join(f'{a}n' for a in letters)}->n", coefficients, *factors)
    values = f(points @ basis)
    if not np.allclose(series, values, rtol=0.0, atol=1e-9 * float(np.max(np.abs(values)))):
        return None
    spread = math.sqrt(float(np.sum(coefficients**2) - coefficients[(0,) * axes] ** 2)) or 1.0
    scaled = np.where(np.abs(coefficients) > 1e-9 * spread, coefficients / spread, 0.0)
    return {
        alpha: scaled[(slice(None),) * num_known + alpha].ravel()
        for alpha in itertools.product(degrees.tolist(), repeat=axes - num_known)
    }


@dataclass(frozen=True)
class Cells:
    """A function on a grid over the unknown directions, in each of several slices of those that are known.

    Cells are exact in z; the function is taken at their medians.
    """

    #: Ends of the cells along each direction.
    ends: Array
    #: Number of unknown directions.
    axes: int
    #: Values of the function, shape (slices, cells).
    values: Array

    def integrals(self, degree: int) -> dict[MultiIndex, Array]:
        """Return ∫ h_α γ over each cell, for all α of a degree."""
        moments, indices = interval_moments(self.ends, degree), multi_indices(self.axes, degree)
        return {alpha: reduce(np.multiply.outer, [moments[k] for k in alpha]).ravel() for alpha in indices}

    @cached_property
    def mass(self) -> Array:
        """Gaussian mass of each cell."""
        return self.integrals(0)[(0,) * self.axes]


def ranked(f: PointFunction, axes: int) -> PointFunction:
    """Return f with its values replaced by their ranks, from 0 to 1, among those at random points.

    Nothing that is said of labels changes under such a map, and ranks have a scale: `_BLUR` and `RESOLUTION`.
    """
    values = f(np.random.default_rng(3).standard_normal((20_000, axes)))
    unit = float(np.mean(np.abs(values))) or 1.0
    sample = np.sort(np.round(values / unit, 12))

    def rank(points: Array) -> Array:
        """Return the share of the sample below the values at points (n, axes), ties counted half, shape (n,)."""
        rounded = np.round(f(points) / unit, 12)
        up_to: Array = np.searchsorted(sample, rounded, side="right").astype(np.float64)
        return (up_to + np.searchsorted(sample, rounded)) / (2.0 * sample.size)

    return rank


def cells_of(f: PointFunction, subspace: Array, rest: Array, cells: int, slices: int) -> Cells:
    """Return a function on `cells` cells along each row of `rest`, in `slices` slices along each row of `subspace`."""
    ends = _WIDENED * ndtri(np.linspace(0.0, 1.0, cells + 1))
    inner = _product(ndtri(0.5 * (ndtr(ends[1:]) + ndtr(ends[:-1]))), len(rest)) @ rest
    places = _product(ndtri((np.arange(slices) + 0.5) / slices), len(subspace)) @ subspace
    return Cells(ends, len(rest), np.stack([f(inner + place) for place in places]))


@np.errstate(under="ignore")
def label_rows(cells: Cells, degree: int) -> dict[MultiIndex, Array]:
    """Return the rows of a ranked label with noise of deviation `_BLUR`: E[h_α | label] √p(label).

    The noise changes no exponent, and keeps from the label what only the errors of known directions tell.
    """
    slices, levels = len(cells.values), np.arange(_LEVELS)
    beyond = np.arange(-_LEVELS // 4, _LEVELS + _LEVELS // 4)
    kernel = np.exp(-0.5 * ((levels[:, None] - beyond) / (_BLUR * _LEVELS)) ** 2)
    kernel /= kernel.sum(axis=1, keepdims=True)
    place = np.minimum(_LEVELS * cells.values, _LEVELS - 1).astype(np.int64)
    index = (place + _LEVELS * np.arange(slices)[:, None]).ravel()

    def per_label(integrals: Array) -> Array:
        sums = np.bincount(index, np.tile(integrals, slices), slices * _LEVELS).astype(np.float64)
        return sums.reshape(slices, _LEVELS) @ kernel

    density = per_label(cells.mass)
    root = np.sqrt(slices * np.where(density > 0.0, density, 1.0))
    return {alpha: (per_label(integrals) / root).ravel() for alpha, integrals in cells.integrals(degree).items()}


def value_rows(cells: Cells, degree: int) -> dict[MultiIndex, Array]:
    """Return the rows of a label over its standard deviation: E[y h_α | slice] by α, shape (slices,)."""
    centred = cells.values - np.mean(cells.values @ cells.mass)
    size = math.sqrt(float(np.sum(centred**2 @ cells.mass))) or 1.0
    return {alpha: centred @ integrals / size for alpha, integrals in cells.integrals(degree).items()}


def _product(points: Array, axes: int) -> Array:
    """Return all points of a grid, shape (points^axes, axes)."""
    if axes == 0:
        return np.empty((1, 0))
    return np.stack(np.meshgrid(*[points] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
