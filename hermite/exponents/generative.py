"""Generative exponent of a link: the first degree in which the label tells something about z.

Labels are binned, and the line is cut into the pre-images of bins. Levels that separate bins are values of the link on
a fine irregular grid. Cells between grid points and turning points are monotone, so that each level crosses a cell
once, and bisection finds where, also at a jump. Over these intervals Gaussian integrals of h_k are exact:
∫_a^b h_k γ = (h_(k-1) γ(a) - h_(k-1) γ(b)) / √k, γ = N(0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr

from hermite import polynomials
from hermite.arrays import Array, Integers, as_integer
from hermite.expansion import HermiteExpansion, expand
from hermite.quadrature import finite_values
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    Function = Callable[[Array], Array]

#: Largest degree looked at: 2√24 + 6, as far as h_24 must be followed, is within what `expand` has looked at.
HIGHEST_DEGREE = 24
#: λ_k² up to this size counts as zero.
THRESHOLD = 1e-6
_CELLS = 4096
#: Crossings to find; where a function has more, fewer levels are taken.
_MOST_CROSSINGS = 60_000
#: Values whose difference is this part of their size, plus this part of the function's usual size, are one value.
_ROUNDING, _CANCELLATION = 1e-13, 1e-15
#: Halvings of a cell until its ends are neighbours in float64.
_HALVINGS = 50
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class GenerativeExponent(NamedTuple):
    """Generative exponent k* and λ_k*², dimensionless.

    Examples
    --------
    >>> found = generative_exponent("x^2 exp(-x^2)")
    >>> found.exponent, round(found.lambda_squared, 4)
    (4, 0.23)
    """

    exponent: int
    lambda_squared: float


def label_correlations(link: object, degree: int = 8) -> Array:
    r"""Return λ_k² = E ζ_k(Y)², ζ_k(y) = E[h_k(Z) | Y = y], for Y = σ(Z), Z ~ N(0, 1), and k = 0 ... `degree`.

    In definition 1 of arXiv:2403.05529, λ_k² is the squared correlation of h_k(Z) with the best function of the label,
    ζ_k, so that 0 <= λ_k² <= 1, λ_k² = 1 where the label determines h_k, and λ_k² >= c_k² / E σ². Computed from bins of
    Y: a lower bound, here within some 1e-5 k of its limit for links of a few branches, and zero to rounding wherever
    λ_k is. Values below 1e-15 of the usual size of σ count as one: where h_k² γ is not small there the bound is lower,
    for z exp(-z²) by 0.0014 at k = 5 and 0.02 at k = 7.

    `link` is whatever `hermite.expand` takes. The shape is (degree + 1,), all dimensionless. TypeError or ValueError is
    raised if `expand` refuses the link, or `degree` is no integer from 1 to 24.

    Examples
    --------
    >>> label_correlations("sign", 3).round(4).tolist()
    [1.0, 0.6366, 0.0, 0.1061]
    """
    value = 0 if isinstance(degree, bool) else as_integer(degree)
    if value is None or not 1 <= value <= HIGHEST_DEGREE:
        refuse(
            f"Argument `degree` must be an integer from 1 to {HIGHEST_DEGREE}, but is {shown(degree)}.",
            TypeError if value is None else ValueError,
        )
    return _correlations(expand(link), value)


def generative_exponent(link: object) -> GenerativeExponent:
    r"""Return the generative exponent k* of a link, the first k >= 1 with λ_k² > 1e-6, and λ_k*².

    With λ_k² = E ζ_k(Y)² as in `label_correlations` (arXiv:2403.05529). Direction u is found from d^max(1, k*/2)
    samples of y = σ(u·x), up to a constant over λ_k*², by transforming labels; the information exponent k >= k* rules
    what SGD sees of them as they are. k* is 1 or 2 for every polynomial, and the same for any one-to-one function of y
    and for y with independent noise.

    `link` is whatever `hermite.expand` takes. TypeError or ValueError is raised if `expand` refuses the link, it is
    constant, or λ_1² ... λ_24² all count as zero.

    Examples
    --------
    >>> exponent, lambda_squared = generative_exponent("x^2 exp(-x^2)")
    >>> exponent, round(lambda_squared, 4)
    (4, 0.23)
    >>> generative_exponent("he3").exponent
    1
    """
    expansion = expand(link)
    for degree in (4, 12, HIGHEST_DEGREE):
        squares = _correlations(expansion, degree)
        degrees = np.flatnonzero(squares[1:] > THRESHOLD)
        if degrees.size:
            exponent = int(degrees[0]) + 1
            return GenerativeExponent(exponent, float(squares[exponent]))
    return refuse(
        f"Argument `link` must have a generative exponent of at most {HIGHEST_DEGREE}, but λ_k² of {expansion.name!r} "
        f"is at most {THRESHOLD:g} up to there: it is constant, or its labels tell next to nothing."
    )


def coefficient_shares(expansion: HermiteExpansion) -> Array:
    """Return c_j² / Var σ, j = 1 ... order, after a 0 for j = 0; the variance is free of cancellation."""
    squares = np.square(expansion.coefficients)
    squares[0] = 0.0
    return np.asarray(squares / (float(np.sum(squares)) + expansion.truncation_error**2))


def _correlations(expansion: HermiteExpansion, degree: int) -> Array:
    """Return λ_0² ... λ_degree² by intervals of z that hold the integral of h_degree² γ up to rounding."""
    ends, bins = label_cells(expansion.link.value, 2.0 * degree**0.5 + 6.0)
    moments = np.stack([np.bincount(bins, row) for row in interval_moments(ends, degree)])
    seen = moments[0] > 0.0
    squares: Array = np.sum(moments[:, seen] ** 2 / moments[0, seen], axis=1)
    return np.minimum(squares, 1.0)


class SampleLaw(NamedTuple):
    """Samples ~ d^power, times log d where `logarithm` says so; an infinite power stands for never."""

    algorithm: str
    power: float
    logarithm: bool = False

    def __str__(self) -> str:
        if math.isinf(self.power):
            return "never"
        power = "d" if self.power == 1.0 else f"d^{self.power:g}"
        return f"{power} log d" if self.logarithm else power


def sample_laws(information: int, generative: int) -> dict[str, SampleLaw]:
    """Return the law of each algorithm from the information exponent k and the generative exponent k* of a link.

    Online SGD max(1, k - 1), times log d at k = 2 (2003.10409); smoothed max(1, k/2) (2305.10633); transformed labels
    max(1, k*/2) (2403.05529). A kernel of rotations, such as the tangent kernel of a wide network, k (1904.12191); that
    of relu without biases sees no odd degree above 1.

    >>> {key: str(law) for key, law in sample_laws(3, 1).items()}
    {'kernel': 'd^3', 'relu': 'never', 'online': 'd^2', 'smoothed': 'd^1.5', 'transformed': 'd'}
    """
    is_seen = information == 1 or information % 2 == 0
    return {
        "kernel": SampleLaw("kernel", float(information)),
        "relu": SampleLaw("kernel of relu", float(information) if is_seen else math.inf),
        "online": SampleLaw("online SGD", max(1.0, information - 1.0), information == 2),
        "smoothed": SampleLaw("SGD on the smoothed landscape", max(1.0, information / 2.0)),
        "transformed": SampleLaw("transformed labels, spectral or SGD", max(1.0, generative / 2.0)),
    }


# --- pre-images of bins -----------------------------------------------------------------------------------------------


def label_cells(function: Function, reach: float) -> tuple[Array, Integers]:
    """Return intervals that cover |z| <= reach, as n + 1 increasing ends, and the bin of a function's values in each.

    Bins count from 0 without gaps. A value on a whole cell is a separate bin: an atom of the label. Features between
    grid points, reach / 2048 apart, are not seen. ValueError is raised where the function is not finite.

    >>> ends, bins = label_cells(np.sign, 10.0)
    >>> bins[[0, bins.argmax(), -1]].tolist(), bool(abs(ends[bins.argmax()]) < 1e-12)
    ([0, 1, 1], True)
    """
    # Irregular ends: no point falls on a round number, where jumps of formulas live, nor on the mirror of another.
    grid = np.linspace(-reach - 0.0071, reach + 0.0042, _CELLS + 1)
    values = finite_values(function, grid)
    turning = _turning_points(function, grid, values)
    points = np.union1d(grid, turning)
    at_points = finite_values(function, points)
    usual = float(np.average(np.abs(values), weights=np.exp(-0.5 * grid**2)))
    levels = _levels(values, finite_values(function, turning), at_points, usual)
    ends = np.concatenate([points, _crossings(function, points, at_points, levels)])
    ends = np.unique(np.clip(ends, -reach, reach))
    ends = ends[np.append(True, np.diff(ends) > 1e-12)]
    label = np.searchsorted(levels, finite_values(function, 0.5 * (ends[1:] + ends[:-1])))
    return ends, np.unique(label, return_inverse=True)[1]


def _turning_points(function: Function, grid: Array, values: Array) -> Array:
    """Return the points z (turns,) of local maxima and minima of the function.

    `values` (n,) are those of the function on the increasing `grid` (n,). Each turning point of these values is refined
    by golden-section search between its neighbours on the grid.
    """
    step = np.diff(values)
    turns = (step[:-1] * step[1:] <= 0.0) & ((step[:-1] != 0.0) | (step[1:] != 0.0))
    middle = np.nonzero(turns)[0] + 1
    sign = np.where((step[middle - 1] > 0.0) | (step[middle] < 0.0), 1.0, -1.0)
    left, right = grid[middle - 1], grid[middle + 1]
    inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
    at_inner, at_outer = (sign * finite_values(function, z) for z in (inner, outer))
    for _ in range(_HALVINGS):
        lower = at_inner > at_outer
        left, right = np.where(lower, left, inner), np.where(lower, outer, right)
        fresh = np.where(lower, right - _GOLDEN * (right - left), left + _GOLDEN * (right - left))
        at_fresh = sign * finite_values(function, fresh)
        inner, outer = np.where(lower, fresh, outer), np.where(lower, inner, fresh)
        at_inner, at_outer = np.where(lower, at_fresh, at_outer), np.where(lower, at_inner, at_fresh)
    return 0.5 * (left + right)


def _levels(values: Array, at_turns: Array, at_points: Array, usual: float) -> Array:
    """Return increasing levels: values on the grid, and both sides of values at turning points and on constant cells.

    Two levels that rounding cannot tell apart would make a bin of noise, so that one of them is left out. `at_points`,
    the values between which levels cross, decides how many there may be; `usual` is the function's usual size.
    """
    held = np.abs(np.diff(values)) <= 2.0 * _slack(values[:-1], usual)
    kept = np.sort(np.concatenate([values[:-1][held], at_turns]))
    # Intervals kept ± slack, those that overlap joined, as rows of their ends.
    begin, end = kept - _slack(kept, usual), kept + _slack(kept, usual)
    gap = begin[1:] > end[:-1]
    atoms = np.stack([begin[np.append(True, gap)[: begin.size]], end[np.append(gap, True)[: end.size]]], axis=1)
    distinct = np.unique(values)
    width = 4.0 * _slack(distinct, usual)
    apart = np.diff(distinct, prepend=-np.inf) > width
    # The last atom that begins below a value, of those at [1:]; the first stands for none.
    below = np.searchsorted(atoms[:, 0], distinct + width)
    single = distinct[apart & (distinct - width > np.append(-np.inf, atoms[:, 1])[below])]
    low, high = np.sort([at_points[:-1], at_points[1:]], axis=0)
    crossings = int((np.searchsorted(single, high) - np.searchsorted(single, low, side="right")).sum())
    return np.union1d(single[:: 1 + crossings // _MOST_CROSSINGS], atoms)


def _slack(values: Array, usual: float) -> Array:
    """Return an upper bound on the change of values by rounding."""
    return np.asarray(_ROUNDING * np.abs(values) + _CANCELLATION * usual)


def _crossings(function: Function, points: Array, values: Array, levels: Array) -> Array:
    """Return the points z (crossings,) at which the function crosses any of the increasing `levels`, by bisection.

    The function is monotone between neighbours among the increasing `points` (n,), where it has the `values` (n,).
    """
    low, high = np.sort([values[:-1], values[1:]], axis=0)
    first, last = np.searchsorted(levels, low, side="right"), np.searchsorted(levels, high)
    count = np.maximum(last - first, 0)
    cell = np.repeat(np.arange(count.size), count)
    level = levels[first[cell] + np.arange(cell.size) - np.repeat(np.cumsum(count) - count, count)]
    rising = values[cell + 1] > values[cell]
    left, right = points[cell], points[cell + 1]
    for _ in range(_HALVINGS):
        middle = 0.5 * (left + right)
        beyond = (finite_values(function, middle) > level) == rising
        left, right = np.where(beyond, left, middle), np.where(beyond, middle, right)
    return np.asarray(0.5 * (left + right))


@np.errstate(under="ignore")
def interval_moments(ends: Array, degree: int) -> Array:
    """Return ∫ h_k γ, k = 0 ... degree, over the intervals between increasing ends, shape (degree + 1, intervals).

    The outermost ends may be infinite. Masses far out keep their relative accuracy.

    >>> interval_moments(np.array([-np.inf, 0.0, np.inf]), 1).round(4).tolist()
    [[0.5, 0.5], [-0.3989, 0.3989]]
    """
    left, right = ends[:-1], ends[1:]
    moments = np.empty((degree + 1, left.size))
    moments[0] = np.where(left > 0.0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))
    # Where the density is below rounding its product with any h_k is, and infinite ends have a product.
    inner = np.clip(ends, -38.0, 38.0)
    functions = polynomials.evaluate_functions(max(degree - 1, 0), inner)
    density = functions * functions[0]
    moments[1:] = (density[:degree, :-1] - density[:degree, 1:]) / np.sqrt(np.arange(1.0, degree + 1.0))[:, None]
    return moments
