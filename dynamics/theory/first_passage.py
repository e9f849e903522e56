r"""When SGD on single samples brings one neuron to an overlap with one direction, by the exact law of its steps.

The overlap C of a spherical neuron, and of a homogeneous one whose norm is negligible, is a Markov chain: a step needs
the coordinates a of the sample along the neuron and v along the rest of the direction, and a number q ~ χ² with d − 2
degrees of freedom, the squared length of the sample in all other axes. With s = √(1 − C²), x_p = C a + s v, the label y
and g = η y σ'(a) it is

.. math:: C' = \frac{C + g s v}{\sqrt{1 + g^2 (v^2 + q)}}, \qquad\text{or}\qquad
    C' = \frac{u C + g x_p}{\sqrt{u^2 + 2 u g a + g^2 (a^2 + v^2 + q)}}, \quad u = 1 + \eta y\, (2 σ(a) - a σ'(a)).

The means P f(C) = E f(C') of functions f on a grid of overlaps are a matrix P, so that the mean number of steps T
solves (1 − P) T = 1. Powers of P have the law of the number of steps. They are kept as P^n − 1, which has the digits of
steps that are far below the distance of two points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.laguerre import laggauss
from numpy.polynomial.polynomial import polyval2d

from dynamics.equations.correlation import chi_square_rule, gradient_table
from dynamics.kernels.jit import entry, kernel
from dynamics.problem import Problem, is_correlation, is_homogeneous, is_spherical
from dynamics.problem.checks import check_type, checked_number, require
from dynamics.signals import stop_if_heard
from dynamics.theory.learning_rates import resolved_rate
from hermite.arrays import Array, Integers, Matrix, Vector
from hermite.text.formulas import clean, table_of_pairs
from hermite.text.messages import refuse, rounded, shown, with_error

#: Random start: the neuron is uniform on the sphere.
UNIFORM = "uniform"
#: Midpoints of the law of the overlap at a uniform start.
STARTS = 400
#: Lowest overlap where the sign of the overlap matters: what falls below stays there, and returns through 0.
LOWEST = -0.95
#: Density of points, over that far from 0 and from the ends: at an end, within this part of the range, and about 0.
END_DENSITY, END_PART, CENTRE_DENSITY = 12.0, 0.01, 0.25
#: Doublings of the number of steps after which a run counts as one that never arrives.
MOST_DOUBLINGS = 60
#: Share of runs that never arrive from which on the mean is infinite.
SOME = 1e-9
#: Difference of the means on two grids, over the mean, from which on the grids do not resolve the law.
LARGEST_ERROR = 0.5
#: Relative scatter of steps up to which they have the law of leading order: cells are too wide for such narrow laws.
NARROW = 0.05
#: Points of its integral, and steps from the level within which moments of a step lack what leaves.
PATH, LEAVING = 4001, 6.0
#: Learning rate below which the change of an overlap by one step is lost in rounding.
LEAST_RATE = 1e-14
#: Chances at which the law is computed; others are interpolated between them.
CHANCES = np.unique([0.001, 0.0025, *np.linspace(0.005, 0.995, 199), 0.9975, 0.999])
#: Ends of an interval that holds 95 % of runs.
LOW, HIGH = 0.025, 0.975
#: Largest squared norm at the arrival over the coefficient of the direction for which it is negligible.
LARGEST_NORM = 0.05


class Rule(NamedTuple):
    """Numbers of points of a grid, and of nodes of its means.

    `points` is that of the grid; `normal` nodes are in each of a and v for polynomials, `angles` times `radii` in their
    plane for other links, which may have kinks; `noise` nodes are in the noise of the label, `lengths` in q.
    """

    points: int
    normal: int
    angles: int
    radii: int
    noise: int
    lengths: int


#: The rule of the answer, and the one whose difference from it is the error.
FINE, COARSE = Rule(401, 48, 360, 20, 7, 3), Rule(201, 36, 240, 16, 5, 3)


# --- the answer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FirstPassage:
    """Law of the number of steps of SGD until the squared overlap of a neuron and a direction is at least a level.

    Told in a line by `str`. Errors are differences from a second grid, of half the points.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(
    ...     activation="he2", teacher=dynamics.Teacher([1.0]), width=1, dimension=32, student="spherical",
    ...     objective="correlation", initial_overlaps=([[0.3]], [[1.0]], [1.0]),
    ... )
    >>> law = dynamics.first_passage(problem, learning_rate=1e-3)
    >>> print(law)
    C² ≥ 0.5 after 619.75 ± 0.09 steps (95 % of runs: 415 to 844) at η = 0.001
    """

    #: Learning rate η, dimensionless, and the squared overlap that counts as arrival.
    learning_rate: float
    level: float
    #: Mean number of steps over all runs, inf where some never arrive; its error; standard deviation over runs.
    mean_steps: float
    mean_error: float
    steps_deviation: float
    #: Chance of arriving at −θ where the sign of the overlap does not matter (k even), and 0 where it does.
    chance_other_side: float
    #: Chance of no arrival within 2^60 steps.
    chance_never: float
    #: Increasing chances (n,), numbers of steps (n,) by which so large a share of runs arrives, and their errors (n,).
    chances: Array
    steps: Array
    steps_error: Array
    #: Mean of ln |w|² at the arrival, less that at the start; 0 for a spherical neuron.
    log_growth: float

    def steps_quantile(self, quantile: float) -> float:
        """Return the number of steps by which a share of runs arrives, inf for a share that never does.

        Parameters
        ----------
        quantile : float
            The share, from 0.001 to 0.999.

        Raises
        ------
        ValueError
            If the share is not between 0.001 and 0.999.

        Examples
        --------
        >>> import dynamics
        >>> start = ([[0.3]], [[1.0]], [1.0])
        >>> problem = dynamics.Problem(
        ...     activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=32, student="spherical",
        ...     objective="correlation", initial_overlaps=start,
        ... )
        >>> law = dynamics.first_passage(problem, learning_rate=1e-3)
        >>> [law.steps_quantile(share) for share in (0.025, 0.5, 0.975)]
        [467.0, 1131.0, 2907.0]
        """
        return self._at(quantile, self.steps)

    def quantile_error(self, quantile: float) -> float:
        """Return the error of `steps_quantile`, the difference of two grids; NaN where both are infinite.

        `quantile` is the share of runs, from 0.001 to 0.999; ValueError is raised for another one.
        """
        return self._at(quantile, self.steps_error)

    def _at(self, quantile: float, values: Array) -> float:
        """Return one of `values` (n,), given at the chances, at the chance `quantile`, by its logarithm in between."""
        chance = checked_number(quantile, "quantile", positive=True)
        first, last = self.chances[[0, -1]]
        require(first <= chance <= last, f"Argument `quantile` must be from {first:g} to {last:g}, but is {chance:g}.")
        after = int(np.searchsorted(self.chances, chance))
        low, high = values[max(after - 1, 0)], values[after]
        if self.chances[after] == chance or not (low > 0.0 and math.isfinite(high)):
            return float(high)
        before = self.chances[after - 1]
        share = float((chance - before) / (self.chances[after] - before))
        return float(low ** (1.0 - share) * high**share)

    def __str__(self) -> str:
        low, high = self.steps_quantile(LOW), self.steps_quantile(HIGH)
        error = self.quantile_error(HIGH)
        ends = " to ".join("never" if math.isinf(end) else rounded(end, error)[0] for end in (low, high))
        line = f"C² ≥ {self.level:g} after {self._mean()} steps (95 % of runs: {ends}) at η = {self.learning_rate:.3g}"
        return "; ".join([line, *(f"{share} of runs {what}" for what, share in self._fates().items())])

    def _repr_html_(self) -> str:
        """Return mean, quantiles and fates as an HTML table, for notebooks."""
        rows = {"mean steps": self._mean()}
        rows |= {f"{100 * share:g} %": f"{self.steps_quantile(share):.6g}" for share in (LOW, 0.5, HIGH)}
        rows |= {clean(what): share for what, share in self._fates().items()}
        return table_of_pairs(f"<b>First passage</b>, C² ≥ {self.level:g}, η = {self.learning_rate:.3g}", rows)

    def _mean(self) -> str:
        """Return the mean with its error as text."""
        return "infinitely many" if math.isinf(self.mean_steps) else with_error(self.mean_steps, self.mean_error)

    def _fates(self) -> dict[str, str]:
        """Return the shares of runs that do not arrive at +θ, as text, by what they do."""
        fates = {"arrive at −θ": self.chance_other_side, "never arrive": self.chance_never}
        return {what: f"{100.0 * share:.3g} %" for what, share in fates.items() if share > 1e-6}


def first_passage(
    problem: Problem, *, learning_rate: float | str, level: float | None = None, start: str | None = None
) -> FirstPassage:
    r"""Return the law of the number of steps after which SGD brings one neuron to one direction, without a run.

    .. math:: (1 - P)\, T = 1, \qquad P f(C) = E f(C'), \qquad \Pr(n \text{ steps are enough}) = 1 - (P^n 1)(C)

    Here C' is the overlap one step after C, with the exact law of a step on one sample. A diffusion has the same mean
    and variance of a step, but not its rare large values, which carry the variance of a link such as h_4: it is wrong
    by a factor of two at learning rates that are in use.

    Parameters
    ----------
    problem : Problem
        One neuron and one direction on isotropic inputs, d ≥ 2, with any link and label noise. Spherical, with either
        objective, or homogeneous with a squared norm that is negligible until the arrival: at most a twentieth of the
        coefficient of the direction.
    learning_rate : float or str
        η > 0, dimensionless, for steps w ← w − η ∇ ½(f − f*)², or η y ∇f; text such as "0.1x" is that share of
        `learning_rate_limit`. The batch size is 1.
    level : float, optional
        Squared overlap C² that counts as arrival, above 0 and below 1, dimensionless; by default the problem's
        `emergence_level`. Where the sign of C matters (k odd) the neuron must have C > 0.
    start : {"uniform"}, optional
        By default the overlap at the start of the problem; "uniform" is the law over all starts on the sphere.

    Returns
    -------
    FirstPassage

    Raises
    ------
    TypeError, ValueError
        If the problem has more neurons or directions, inputs of a covariance or a norm that is not negligible, or if
        another argument is out of its range, or if noise keeps runs below the level for so long that the grid does not
        resolve the law.

    Notes
    -----
    The grid has 401 overlaps, denser about 0 and at the ends; means use Gauss rules for polynomials and a polar rule
    for other links, and cubic interpolation. Errors are differences from a grid of 201 with fewer nodes. At k odd a
    neuron below C = −0.95 counts as one at −0.95. Steps that scatter by 5 % or less have the log-normal law of leading
    order in η.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(
    ...     activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=32, student="spherical",
    ...     objective="correlation",
    ... )
    >>> print(dynamics.first_passage(problem, learning_rate=1.5e-4, level=0.49, start="uniform"))
    C² ≥ 0.49 after 80235.9 ± 2.7 steps (95 % of runs: 5353 to 307551) at η = 0.00015; 50 % of runs arrive at −θ
    """
    check_type("problem", problem, Problem, "a Problem")
    require(
        (is_homogeneous(problem) or is_spherical(problem)) and problem.width == 1 and problem.num_directions == 1,
        "Argument `problem` must have one homogeneous or spherical neuron and one direction, but has student "
        f"{shown(problem.student)} with {problem.width} neurons and {problem.num_directions} directions.",
    )
    require(problem.inputs is None, "Argument `problem` must have isotropic inputs, but has others.")
    require(problem.dimension >= 2, "Argument `problem` must have a dimension of at least 2, but has 1.")
    rate = resolved_rate(problem, learning_rate)
    if rate is None:
        refuse("Argument `learning_rate` must be a number or a share of the limit, but is None.", error=TypeError)
    goal = problem.emergence_level if level is None else checked_number(level, "level", positive=True)
    require(goal < 1.0, f"Argument `level` must be below 1, but is {goal:g}.")
    require(
        start is None or (isinstance(start, str) and start == UNIFORM),
        f"Argument `start` must be None or {UNIFORM!r}, but is {shown(start)}.",
    )
    overlaps = problem.start().teacher_overlap[0] if start is None else uniform_overlaps(problem.dimension)
    a = float(problem.teacher.coefficients[0])
    law = passage(Chain(problem, a, problem.label_noise), rate, goal, overlaps)
    if law is None:
        refuse(
            f"Arguments `level` and `learning_rate` must let a grid of {FINE.points} overlaps resolve the law of the "
            f"steps, but are {goal:g} and {rate:.3g}, where noise keeps runs below the level, or rounding hides a step."
        )
    norm = norm_at_arrival(problem, law.log_growth)
    require(
        norm <= LARGEST_NORM * a,
        f"Argument `problem` must have a squared norm of at most {LARGEST_NORM * a:.3g} at the arrival, {LARGEST_NORM} "
        f"of the coefficient of its direction, but has about {norm:.3g}.",
    )
    return law


def norm_at_arrival(problem: Problem, log_growth: float) -> float:
    """Return the squared norm that the first neuron of a problem has at the arrival, 0 for a spherical one.

    `log_growth` is the mean of ln |w|² there, less that at the start; an infinite one is left out.
    """
    if is_spherical(problem):
        return 0.0
    growth = math.exp(min(log_growth, 700.0)) if math.isfinite(log_growth) else 1.0
    return float(problem.start().squared_norm[0]) * growth


def uniform_overlaps(dimension: int) -> Array:
    """Return equally likely overlaps (400,) of a fixed direction and a neuron that is uniform on the sphere in R^d."""
    from scipy.special import betaincinv

    shape = 0.5 * (dimension - 1)
    return np.asarray(2.0 * betaincinv(shape, shape, (np.arange(STARTS) + 0.5) / STARTS) - 1.0)


# --- the chain --------------------------------------------------------------------------------------------------------


class Chain(NamedTuple):
    """The chain of the overlap of one neuron of a problem and a direction of coefficient a.

    `noise` is the standard deviation of what is added to the label a σ*(x_p), other directions included.
    """

    problem: Problem
    a: float
    noise: float

    @property
    def is_signed(self) -> bool:
        """Whether only positive overlaps count as arrival."""
        return bool(self.problem.information_exponent % 2)


def passage(chain: Chain, learning_rate: float, level: float, overlaps: Array) -> FirstPassage | None:
    """Return the law of the steps until C² ≥ `level`, from equally likely `overlaps` (n,), with its error.

    It is None where grids do not resolve the law: steps are lost in rounding, or arrivals are so rare that those by the
    errors of interpolation are as many.
    """
    if learning_rate < LEAST_RATE:
        return None
    fine, coarse = (_law(chain, learning_rate, level, overlaps, rule) for rule in (FINE, COARSE))
    if not (fine.is_sound and coarse.is_sound and fine.is_near(coarse)):
        return None
    with np.errstate(invalid="ignore"):  # inf − inf
        return fine.answer(learning_rate, level, abs(fine.mean - coarse.mean), np.abs(fine.steps - coarse.steps))


class _Law(NamedTuple):
    """Mean, deviation, chances of the other side and of never, quantiles (n,), and log growth, on one grid."""

    mean: float
    deviation: float
    other_side: float
    never: float
    steps: Array
    log_growth: float

    @property
    def is_sound(self) -> bool:
        """Whether the mean is 0 or more, and the chance of never is from 0 to 1 but for rounding."""
        return self.mean >= 0.0 and 0.0 <= self.never <= 1.0 + 1e-6

    def is_near(self, law: _Law) -> bool:
        """Whether the means of two laws are near each other, or both infinite."""
        return self.mean == law.mean or abs(self.mean - law.mean) <= LARGEST_ERROR * self.mean < math.inf

    def answer(self, learning_rate: float, level: float, mean_error: float, steps_error: Array) -> FirstPassage:
        """Return the law as an answer, with the errors of mean and quantiles."""
        return FirstPassage(
            learning_rate=learning_rate,
            level=level,
            mean_steps=self.mean,
            mean_error=mean_error,
            steps_deviation=self.deviation,
            chance_other_side=self.other_side,
            chance_never=self.never,
            chances=CHANCES,
            steps=self.steps,
            steps_error=steps_error,
            log_growth=self.log_growth,
        )


def _law(chain: Chain, learning_rate: float, level: float, overlaps: Array, rule: Rule) -> _Law:
    """Return the law of the steps until C² ≥ `level` on the grid of a rule, from equally likely `overlaps` (n,)."""
    from scipy.interpolate import CubicSpline
    from scipy.linalg import lu_factor, lu_solve

    stop_if_heard()
    last, signed = math.sqrt(level), chain.is_signed
    points = _grid(LOWEST if signed else -last, last, chain.problem.dimension, rule.points, both=not signed)
    spline = CubicSpline(points, np.eye(points.size))  # of all functions that are 1 at one point
    change, beyond, growth, moments = _operator(chain, learning_rate, points, rule)
    # Runs that are there at the start take no step.
    waits = overlaps[(overlaps if signed else np.abs(overlaps)) < last]
    weights = spline(np.maximum(waits, points[0])).sum(axis=0) / overlaps.size
    there_below = 0.0 if signed else float(np.mean(overlaps <= -last))
    factors = lu_factor(-change)
    time = lu_solve(factors, np.ones(points.size))
    square = lu_solve(factors, 2.0 * time - 1.0)
    below = 0.0 if signed else float(weights @ lu_solve(factors, beyond[:, 0]))
    steps, never = _quantiles(change, beyond.sum(axis=1), weights)
    if not never <= SOME:
        return _Law(math.inf, math.nan, below + there_below, never, steps, math.inf)
    mean = float(weights @ time)
    deviation = math.sqrt(max(float(weights @ square) - mean**2, 0.0))
    log_growth = float(weights @ lu_solve(factors, growth))
    if overlaps.size == waits.size == 1 and deviation <= NARROW * mean:
        first = float(overlaps[0] if signed else abs(overlaps[0]))
        deviation, steps = _narrow(points, moments, first, mean) or (deviation, steps)
    return _Law(mean, deviation, below + there_below, 0.0, steps, log_growth)


def _narrow(points: Array, moments: Array, first: float, mean: float) -> tuple[float, Array] | None:
    r"""Return the standard deviation of the steps from `first` to the last of `points` (count,), and quantiles (n,).

    `moments` (2, count) are the mean and the variance of the change of an overlap in a step, and `mean` is the mean
    number of steps. The law is the log-normal one of leading order in η, of the variance

    .. math:: \int \frac{\mathrm{Var}(C' - C)}{(E (C' - C))^3}\, dC.

    It is None where fewer than four points lie on the path, as at steps that are not small.
    """
    from scipy.interpolate import CubicSpline
    from scipy.special import ndtri

    drift, variance = moments
    last = points[-1]
    counts = (points < last - LEAVING * np.sqrt(np.maximum(variance, 0.0))) & (drift > 0.0) & (variance > 0.0)
    barred = np.flatnonzero(~counts & (points < first))
    path = np.flatnonzero(counts)
    path = path[path > barred[-1]] if barred.size else path
    if path.size < 4:
        return None
    x = np.linspace(first, last, PATH)
    values = np.exp(CubicSpline(points[path], np.log(variance[path] / drift[path] ** 3))(x))
    deviation = math.sqrt(float(np.trapezoid(values, x)))
    scatter = math.sqrt(math.log1p((deviation / mean) ** 2))
    return deviation, np.ceil(mean * np.exp(scatter * ndtri(CHANCES) - 0.5 * scatter**2))


def _grid(low: float, high: float, dimension: int, count: int, *, both: bool) -> Array:
    """Return increasing overlaps (count,) from `low` to `high`, denser about 0 and at `high`, and at `low` if `both`.

    Times jump at an end where runs leave, within the length of a step; about 0, where random starts are, they change
    over the length 1/√d.
    """
    x = np.linspace(low, high, 200 * count)
    width = END_PART * (high - low)
    density = 1.0 + END_DENSITY * np.exp((x - high) / width) + CENTRE_DENSITY / (np.abs(x) + dimension**-0.5)
    if both:
        density += END_DENSITY * np.exp((low - x) / width)
    total = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    points = np.interp(np.linspace(0.0, total[-1], count), total, x)
    points[[0, -1]] = low, high
    return np.asarray(points)


def _plane(rule: Rule, *, polynomial: bool) -> tuple[Array, Array, Array]:
    """Return nodes a and v and weights, (n,) each, of a rule for two normal numbers; a polar one if not `polynomial`.

    Kinks at 0 of σ(a) and of σ*(C a + s v) are lines through the origin, which cost a polar rule few digits.
    """
    if polynomial:
        nodes, weights = _normal_rule(rule.normal)
        return nodes.repeat(nodes.size), np.tile(nodes, nodes.size), np.outer(weights, weights).ravel()
    half_squares, weights = laggauss(rule.radii)
    radii, angles = np.sqrt(2.0 * half_squares), 2.0 * np.pi * (np.arange(rule.angles) + 0.5) / rule.angles
    shares = (weights / weights.sum() / rule.angles).repeat(rule.angles)
    return np.outer(radii, np.cos(angles)).ravel(), np.outer(radii, np.sin(angles)).ravel(), shares


def _normal_rule(count: int) -> tuple[Array, Array]:
    """Return nodes and weights (count,) of the Gauss rule of a normal number; weights have sum 1."""
    nodes, weights = hermegauss(count)
    return np.asarray(nodes), np.asarray(weights / weights.sum())


def _operator(chain: Chain, learning_rate: float, points: Array, rule: Rule) -> tuple[Array, Array, Array, Array]:
    """Return P − 1 (count, count), the mass that leaves below and above (count, 2), and means of one step.

    They are of a step from the overlaps `points` (count,). The means are that of ln |w'|²/|w|² (count,), 0 for a
    spherical neuron, and mean and variance (2, count) of C' − C, without the mass that leaves.
    """
    problem, noise = chain.problem, chain.noise
    link, teacher = problem.activation, problem.teacher_link
    polynomial = link.is_polynomial and teacher.is_polynomial
    a, v, weights = _plane(rule, polynomial=polynomial)
    lengths, shares = chi_square_rule(problem.dimension - 2, rule.lengths)
    output = link.value(a)
    slope = np.repeat(link.derivative(a)[:, None], lengths.size, axis=1)
    if problem.smoothing > 0.0:
        along, squares = np.broadcast_arrays(a[:, None], v[:, None] ** 2 + lengths)
        slope = polyval2d(along, squares, gradient_table(problem))
    across = np.sqrt((1.0 - points) * (1.0 + points))
    labels = chain.a * teacher.value(np.outer(points, a) + np.outer(across, v))
    if not (is_correlation(problem) or is_homogeneous(problem)):  # the error of the squared loss is f* − f
        labels -= output
    errors, error_shares = _normal_rule(rule.noise) if noise > 0.0 else (np.zeros(1), np.ones(1))
    (change, tilt), beyond = np.zeros((2, points.size, points.size)), np.zeros((points.size, 2))
    growth = np.zeros(points.size)
    # Cells in which the grid's equal parts begin.
    parts = 4 * points.size
    begins = np.linspace(points[0], points[-1], parts + 2)
    cells = np.clip(np.searchsorted(points, begins, side="right") - 1, 0, points.size - 2)
    sample = np.array([v, weights, output])
    rules = np.array([noise * errors, error_shares]), np.array([lengths, shares])
    flags = np.array([is_homogeneous(problem), not chain.is_signed], dtype=np.int64)
    write_steps(points, cells, sample, slope, labels, rules, learning_rate, flags, (change, tilt, beyond, growth))
    drift = change @ points - change.sum(axis=1) * points + tilt.sum(axis=1)
    gaps = points - points[:, None]
    variance = np.sum(gaps * (change * gaps + 2.0 * tilt), axis=1) - drift**2
    change[np.diag_indices(points.size)] = -change.sum(axis=1) - beyond.sum(axis=1)
    return change + tilt @ _slopes(points, drift), beyond, growth, np.array([drift, variance])


def _slopes(points: Array, drift: Array) -> Array:
    """Return the matrix (count, count) that takes values at `points` (count,) to slopes there, of third order.

    The slope is that of the cubic polynomial through four points, of which two lie in the direction of the `drift`
    (count,): slopes that look ahead keep powers of the operator bounded where the drift is all that steps do.
    """
    count = points.size
    first = np.clip(np.arange(count) - np.where(drift > 0.0, 1, 2), 0, count - 4)
    rows, slopes = np.arange(count), np.zeros((count, count))
    for i in range(4):
        column = first + i
        corners = [first + k for k in range(4) if k != i]
        gaps = np.prod([points[column] - points[corner] for corner in corners], axis=0)
        pairs = [(corners[k], corners[k - 1]) for k in range(3)]
        change = sum((points[rows] - points[left]) * (points[rows] - points[two]) for left, two in pairs)
        slopes[rows, column] = change / gaps
    return slopes


@kernel
def share_out(points: Vector, cell: int, moved: float, weight: float, values: Vector, slopes: Vector, j: int) -> None:
    """Add the weights of cubic interpolation at `moved` to `values` and `slopes` (count,), but not to the value at j.

    `cell` is a cell of the grid `points` (count,) near that of `moved`, and `weight` is what the weights are of.
    """
    while points[cell + 1] <= moved:
        cell += 1
    while points[cell] > moved:
        cell -= 1
    width = points[cell + 1] - points[cell]
    t, rest = (moved - points[cell]) / width, (points[cell + 1] - moved) / width
    if cell != j:
        values[cell] += weight * (1.0 + 2.0 * t) * rest * rest
    if cell + 1 != j:
        values[cell + 1] += weight * (1.0 + 2.0 * rest) * t * t
    slopes[cell] += weight * width * t * rest * rest
    slopes[cell + 1] -= weight * width * rest * t * t


@entry
def write_steps(
    points: Vector,
    cells: Integers,
    sample: Matrix,
    slope: Matrix,
    labels: Matrix,
    rules: tuple[Matrix, Matrix],
    learning_rate: float,
    flags: Integers,
    out: tuple[Matrix, Matrix, Matrix, Vector],
) -> None:
    """Add the laws of one step from each overlap of `points` (count,) to the arrays of `out`, zero at first.

    The mean of a function after the step is a sum over its values and its slopes at the points, by cubic interpolation
    in each cell. Arrays are the matrix (count, count) of values, with nothing on its diagonal, that of slopes, the mass
    (count, 2) that leaves below and above, and the mean (count,) of ln |w'|²/|w|². `cells` are the cells of the grid in
    which equal parts of its range begin. Nodes are the columns of `sample` (3, n), v, weight and σ(a), with the slopes
    `slope` (n, lengths), the labels `labels` (count, n), and the two `rules` of the noise and of q, each with nodes and
    weights as rows. `flags` say whether the neuron is homogeneous, and whether runs leave below.
    """
    errors, lengths = rules
    change, tilt, beyond, growth = out
    homogeneous, leaves_below = flags[0] == 1, flags[1] == 1
    count, parts = points.size, cells.size - 2
    low, high = points[0], points[count - 1]
    per_length = parts / (high - low)
    for j in range(count):
        C = points[j]
        s = np.sqrt((1.0 - C) * (1.0 + C))
        for n in range(sample.shape[1]):
            v, output = sample[0, n], sample[2, n]
            for i in range(errors.shape[1]):
                pull = learning_rate * (labels[j, n] + errors[0, i])
                for k in range(lengths.shape[1]):
                    g, weight = pull * slope[n, k], sample[1, n] * errors[1, i] * lengths[1, k]
                    across = g * g * (v * v + lengths[0, k])
                    if homogeneous:
                        along = 1.0 + 2.0 * pull * output  # of the neuron: u + g a
                        square = along * along + across
                        moved = (C * along + s * g * v) / np.sqrt(square)
                        growth[j] += weight * np.log(square)
                    else:
                        moved = (C + s * g * v) / np.sqrt(1.0 + across)
                    if moved >= high:
                        beyond[j, 1] += weight
                    elif moved > low:
                        cell = cells[int((moved - low) * per_length)]
                        share_out(points, cell, moved, weight, change[j], tilt[j], j)
                    elif leaves_below:
                        beyond[j, 0] += weight
                    elif j > 0:
                        change[j, 0] += weight


@np.errstate(over="ignore", invalid="ignore")  # of laws that grids do not resolve
def _quantiles(change: Array, leaving: Array, weights: Array) -> tuple[Array, float]:
    """Return the numbers of steps (n,) by which shares `CHANCES` of runs arrive, and the share that never does.

    `change` is P − 1, `leaving` (count,) the mass that leaves in a step, and `weights` (count,) that of the start.
    """
    powers = []
    missing = 1.0 - CHANCES
    for _ in range(MOST_DOUBLINGS + 1):
        stop_if_heard()
        powers.append(change)
        never = float(weights.sum() - weights @ leaving)
        if not -missing[-1] < never < math.inf:  # the grid does not resolve the law
            break
        if never < missing[-1]:
            never = 0.0
            break
        # P^2n − 1 = 2 (P^n − 1) + (P^n − 1)², and so for the mass that has left; rounding keeps no row from its sum.
        leaving = 2.0 * leaving + change @ leaving
        change = 2.0 * change + change @ change
        change[np.diag_indices(leaving.size)] -= change.sum(axis=1) + leaving
    rows, steps = np.tile(weights, (CHANCES.size, 1)), np.zeros(CHANCES.size)
    waits = rows.sum(axis=1) > missing
    for doubling in range(len(powers) - 1, -1, -1):
        later = rows + rows @ powers[doubling]
        stays = waits & (later.sum(axis=1) > missing)
        rows[stays] = later[stays]
        steps[stays] += 2.0**doubling
    return np.where(missing < never, np.inf, np.where(waits, steps + 1.0, 0.0)), never
