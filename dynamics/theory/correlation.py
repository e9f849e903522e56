r"""When one spherical neuron finds one direction by their correlation, and what steps of finite size do to that.

In x = artanh C the flow of `dynamics.equations.correlation` is x' = a g_λ'(C), so that its times are integrals,

.. math:: t = \int \frac{dC}{a\, g_\lambda'(C)\, (1 - C^2)},

for a start on the wrong side of 0 too, which a smoothed odd link leaves through 0. Steps of a learning rate η slow the
mean to C' = D − ½ η C E|u|², by which times are integrals as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import polynomial

from dynamics.equations.correlation import StepMeans, signal_slope, step_means
from dynamics.equations.losses import squared_error
from dynamics.problem import Problem
from dynamics.problem.checks import require
from dynamics.problem.emergence import LEARNED_SHARE
from hermite.arrays import Array

#: Points at which a velocity is looked at for a zero on the way.
GRID = 4001


@dataclass(frozen=True, slots=True, eq=False)
class Escape:
    """Path of the overlap C of one neuron: x = artanh C at its start and its end, and the pull a g_λ' in powers of C.

    a is the teacher's coefficient and g_λ the kernel of the link, smoothed by λ. Velocities vary over lengths in x from
    `scale` on, so that the coordinate u with x = scale · sinh u tells all of them apart.
    """

    first: float
    last: float
    slope: Array
    scale: float

    @property
    def ends(self) -> tuple[float, float]:
        """Values of the coordinate u = arsinh(x / scale) at the start and the end of the path."""
        return float(np.arcsinh(self.first / self.scale)), float(np.arcsinh(self.last / self.scale))

    def overlap(self, u: Array) -> Array:
        """Return the overlaps C = tanh(scale · sinh u) at coordinates u, in their shape."""
        return np.asarray(np.tanh(self.scale * np.sinh(u)))

    def grid(self) -> Array:
        """Return overlaps C along the path, with C = 0 if it passes there, since an odd link may have no pull at 0."""
        first, last = self.ends
        return self.overlap(np.append(np.linspace(first, last, GRID), 0.0 if first < 0.0 < last else first))

    def pull(self, C: Array) -> Array:
        """Return the speed x' = a g_λ'(C) of x = artanh C in the flow, in the shape of the overlaps C."""
        return np.asarray(polynomial.polyval(C, self.slope))


def escape_of(problem: Problem, level: float | None = None) -> Escape:
    """Return the path of the flow from the start to an overlap of size `level`, or to −`level` if it leads there.

    `level`, from 0 to 1, is by default the overlap at which the direction emerges. From a start beyond it the path is
    empty: its end is its start.
    """
    C, slope = float(problem.start().teacher_overlap[0, 0]), signal_slope(problem)
    level = math.sqrt(problem.emergence_level) if level is None else level
    signed = bool(problem.information_exponent % 2)
    size = C if signed else abs(C)
    side = -1.0 if polynomial.polyval(C, slope) < 0.0 and not signed else 1.0
    first = float(np.arctanh(np.clip(C, -1.0 + 1e-15, 1.0 - 1e-15)))
    # Beyond the start itself, velocities of a smoothed link vary from about λ/√d on.
    widest = (problem.smoothing or 1.0) / np.sqrt(problem.dimension)
    scale = float(min(abs(first) or widest, widest, 1.0))
    return Escape(first, first if size >= level else side * float(np.arctanh(level)), slope, scale)


def mean_time(
    problem: Problem,
    learning_rate: float = 0.0,
    batch_size: int = 1,
    *,
    level: float | None = None,
    directions: int | None = None,
) -> float:
    """Return the time η · step at which the mean path of steps, or the flow, reaches an overlap; inf if never.

    For `learning_rate` η = 0 it is the time of the flow. Each step averages over `batch_size` samples. `level` is the
    size of the overlap, by default that at which the direction emerges. With `directions`, a number K, steps are of
    zeroth order along K random directions. ValueError is raised where the means of a step are not known.
    """
    from scipy.integrate import quad

    way = escape_of(problem, level)
    means = step_means(problem, directions, batch_size) if learning_rate > 0.0 else None

    def velocity(C: Array) -> Array:
        """Return the mean speed of x = artanh C at overlaps C."""
        pull = way.pull(C)
        return pull if means is None else pull - slowing(means, C, pull, learning_rate, batch_size)

    if way.first == way.last:
        return 0.0
    if not (np.sign(way.last - way.first) * velocity(way.grid()) > 0.0).all():
        return float("inf")

    def pace(u: float) -> float:
        """Return the time that the path takes per unit of its coordinate u."""
        return float(way.scale * np.cosh(u) / velocity(way.overlap(np.asarray(u))))

    # With full output it warns of nothing: next to a zero of x' fewer digits are right.
    return float(quad(pace, *way.ends, epsabs=0.0, epsrel=1e-11, limit=500, full_output=True)[0])


def slowing(means: StepMeans, C: Array, pull: Array, learning_rate: float, batch_size: int) -> Array:
    """Return what steps of finite size take from the speed of x = artanh C, ½ η C E|u|²/(1 − C²), at overlaps C.

    E|u|² is the mean square of a step over η, from the means of a step for one sample, and `pull` the speed of x in the
    flow at the overlaps C; all have the shape of C. η is `learning_rate`.
    """
    size = means.drag(C) / (batch_size * (1.0 - C**2)) + (1.0 - 1.0 / batch_size) * means.drift_share * pull**2
    return np.asarray(0.5 * learning_rate * C * size)


def staircase(problem: Problem, emergence: float, times: Array) -> Array:
    """Return the loss E(f − f*)² at `times`, with one jump at the time `emergence`.

    Before it the neuron is that of the start, after it the neuron lies on the direction. f is the output of the
    student, f* that of the teacher.
    """
    way = escape_of(problem)
    C, end = float(problem.start().teacher_overlap[0, 0]), np.sign(way.last) or 1.0
    before, after = (squared_error(problem, np.ones((1, 1)), np.array([[overlap]])) for overlap in (C, end))
    return np.where(times < emergence, before, after)


def learned_level(problem: Problem) -> float:
    """Return the size of the overlap C at which the direction is learned: g_3(C)/g_3(1) = a/2 on the neuron's side.

    g_3 is the kernel Σ c_k² C^k of the link over degrees k ≥ 3 and a the coefficient of the direction. The level is inf
    if no overlap is enough, and NaN for a link without degrees ≥ 3.
    """
    from scipy.optimize import brentq

    part = problem.learned_part
    if not part.is_defined:
        return float("nan")
    kernel, side = part.kernel, float(np.sign(escape_of(problem).last) or 1.0)
    goal = LEARNED_SHARE * float(problem.teacher.coefficients[0]) * part.kernel_at_one
    if kernel(0.0) >= goal:
        return 0.0
    return float(brentq(lambda C: float(kernel(side * C)) - goal, 0.0, 1.0)) if kernel(side) > goal else float("inf")


def leading_time(problem: Problem) -> float:
    """Return the time of emergence by the lowest power of the link's kernel g alone; inf if it never emerges.

    It is NaN with smoothing, where several powers compete.
    """
    if problem.smoothing > 0.0:
        return float("nan")
    C, k, slope = float(problem.start().teacher_overlap[0, 0]), problem.information_exponent, signal_slope(problem)
    C, rate = abs(C) if k % 2 == 0 else C, float(slope[k - 1]) if slope.size >= k else 0.0
    if rate <= 0.0 or (C <= 0.0 and k > 1):
        return float("inf")
    alone = 1.0 - C if k == 1 else -np.log(C) if k == 2 else 1.0 / ((k - 2) * C ** (k - 2))
    return float(alone / rate)


def largest_rate(problem: Problem, batch_size: int = 1, *, directions: int | None = None) -> float:
    """Return the learning rate above which the mean step no longer leads from the start to emergence.

    Each step averages over `batch_size` samples; with K `directions` it is a step of zeroth order. ValueError is raised
    where the means of a step are not known, or where nothing emerges in the flow either.
    """
    way, means = escape_of(problem), step_means(problem, directions, batch_size)
    emerges = way.first != way.last and np.isfinite(mean_time(problem))
    require(emerges, "Argument `problem` must have a direction that is still to emerge in the flow, but has none.")
    C = way.grid()
    pull = way.pull(C)
    needed = slowing(means, C, pull, 1.0, batch_size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(needed * pull > 0.0, pull / needed, np.inf).min())
