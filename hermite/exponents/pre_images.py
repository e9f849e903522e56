"""The line cut into intervals that a function sends into bins of its values: pre-images of bins, by root finding.

Levels that separate bins are values of the function on a fine irregular grid. Cells between grid points and turning
points are monotone, so that each level crosses a cell once, and bisection finds where, also at a jump. All intervals
of one bin's pre-image together are exact to rounding, and none is longer than a cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hermite.quadrature import finite_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermite.arrays import Array, Integers

    Function = Callable[[Array], Array]

_CELLS = 4096
#: Crossings to find; where a function has more, fewer levels are taken.
_MOST_CROSSINGS = 60_000
#: Values whose difference is this part of their size, plus this part of the function's usual size, are one value.
_ROUNDING, _CANCELLATION = 1e-13, 1e-15
#: Halvings of a cell until its ends are neighbours in float64.
_HALVINGS = 50
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class LabelCells:
    """Intervals of the line, and the bin of values into which the function sends each."""

    #: Increasing ends of the intervals, shape (n + 1,).
    ends: Array
    #: Bin of each interval, from 0 without gaps, shape (n,).
    bins: Integers


def label_cells(function: Function, reach: float) -> LabelCells:
    """Return pre-images of bins of a function's values, as intervals that cover |z| <= reach.

    What the function holds on a whole cell is a bin of its own: an atom of the label. Features between two grid points,
    reach / 2048 apart, are not seen. ValueError is raised where the function is not finite.

    Examples
    --------
    >>> cells = label_cells(np.sign, 10.0)
    >>> first_above = cells.bins.argmax()
    >>> cells.bins[[0, first_above, -1]].tolist(), bool(abs(cells.ends[first_above]) < 1e-12)
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
    return LabelCells(ends, np.unique(label, return_inverse=True)[1])


def _turning_points(function: Function, grid: Array, values: Array) -> Array:
    """Return where the function has a maximum or minimum, by golden sections of the cells around the grid's own."""
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
    """Return increasing levels: values on the grid, and both sides of what a whole cell or a turning point holds.

    Two levels that rounding cannot tell apart would make a bin of noise, so that one of them is left out. `at_points`,
    the values between which levels cross, decides how many there may be; `usual` is the function's usual size.
    """
    held = np.abs(np.diff(values)) <= 2.0 * _slack(values[:-1], usual)
    kept = np.sort(np.concatenate([values[:-1][held], at_turns]))
    atoms = _joined(kept, _slack(kept, usual))
    distinct = np.unique(values)
    width = 4.0 * _slack(distinct, usual)
    apart = np.diff(distinct, prepend=-np.inf) > width
    # The last atom that begins below a value, of those at [1:]; the first stands for none.
    below = np.searchsorted(atoms[:, 0], distinct + width)
    single = distinct[apart & (distinct - width > np.append(-np.inf, atoms[:, 1])[below])]
    low, high = _span(at_points)
    crossings = int((np.searchsorted(single, high) - np.searchsorted(single, low, side="right")).sum())
    return np.union1d(single[:: 1 + crossings // _MOST_CROSSINGS], atoms)


def _slack(values: Array, usual: float) -> Array:
    """Return by how much rounding may change values."""
    slack: Array = _ROUNDING * np.abs(values) + _CANCELLATION * usual
    return slack


def _joined(values: Array, slack: Array) -> Array:
    """Return the intervals values ± slack of increasing values, those that overlap joined, as rows of their ends."""
    low, high = values - slack, values + slack
    gap = low[1:] > high[:-1]
    return np.stack([low[np.append(True, gap)[: low.size]], high[np.append(gap, True)[: low.size]]], axis=1)


def _span(values: Array) -> tuple[Array, Array]:
    """Return the lower and the higher value at the ends of each cell."""
    return np.minimum(values[:-1], values[1:]), np.maximum(values[:-1], values[1:])


def _crossings(function: Function, points: Array, values: Array, levels: Array) -> Array:
    """Return where the function crosses levels inside the cells between points, on each of which it is monotone."""
    low, high = _span(values)
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
    found: Array = 0.5 * (left + right)
    return found
