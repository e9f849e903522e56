"""Learning-rate schedules from theory: the best one of a neuron that learns a direction.

The flow sees of a schedule the time Σ η alone. Steps of SGD also slow the mean, in the second order of η. Bad
arguments raise TypeError or ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dynamics.problem import (
    Optimizer,
    Problem,
    check_problem,
    checked_integer,
    checked_number,
    checked_optimizer,
    is_correlation,
)
from dynamics.problem.checks import is_at_most, require
from dynamics.problem.rates import MAKERS, Schedule, schedule_of
from dynamics.problem.student import SPHERICAL
from hermite.arrays import Array

#: Least overlap of a start in units of 1/√d: nearer to 0 the noise of the best steps is of the size of the overlap.
LEAST_OVERLAP = 7.5
#: Panels in artanh C, of four Gauss points each.
PANELS = 2000
#: Above it, steps are no longer told apart as float64.
MOST_STEPS = 2.0**53


@dataclass(frozen=True, repr=False)
class BestSchedule(Schedule):
    """The schedule of fewest mean steps, as `best_schedule` returns it; after its last step the rate is constant.

    Attributes
    ----------
    steps, constant, gain : float
        n*, mean number of steps from the start to the final overlap; the best constant learning rate, dimensionless;
        mean number of steps at that rate, over n*.
    """

    steps: float
    constant: float
    gain: float


def best_schedule(problem: Problem, final_overlap: float = 0.9, *, batch_size: int = 1) -> BestSchedule:
    r"""Return the learning rate that brings one spherical neuron to an overlap in the fewest mean steps.

    A step of SGD on −E[y σ(w·x)] changes the mean of C by η D − η² C V/2, D and V = E|u|² as in
    `dynamics.solve_correlation`. The best rate at each overlap, and the way under it, are

    .. math:: \eta^*(C) = \frac{D}{C V}, \qquad \frac{dC}{dn} = \frac{D^2}{2 C V}, \qquad
       n^* = \int_{C_0}^{C_1} \frac{2 C V}{D^2}\, dC.

    η* ~ C^{k−2}/d rises in the search, for k > 2, and falls as 1 − C in the end: warm-up and decay in one formula. The
    schedule is open-loop, η*(C(n)) of the mean C; the rates of a run do not depend on its own overlap.

    Parameters
    ----------
    problem : Problem
        As for `dynamics.solve_correlation`, with polynomial links of degree at most 12, whose start has
        |C_0| ≥ 7.5/√d: nearer to 0 the noise of the best steps is of the size of C itself, and the mean tells nothing.
    final_overlap : float, default 0.9
        C_1, above |C_0| and below 1.
    batch_size : int, default 1
        B, samples per step, of which V = E[y² ψ² r²]/B + (1 − 1/B) D²/(1 − C²).

    Returns
    -------
    BestSchedule
        A `Schedule`, whose `rate(step)` is η, with `steps`, `constant` and `gain`.

    Examples
    --------
    >>> import dynamics
    >>> start = ([[0.35]], [[1.0]], [1.0])
    >>> problem = dynamics.Problem(
    ...     activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=1000, student="spherical",
    ...     objective="correlation", initial_overlaps=start,
    ... )
    >>> schedule = best_schedule(problem)
    >>> round(schedule.gain, 1), round(schedule(10**4) / schedule.constant, 1)
    (1.7, 4.6)
    """
    from scipy.optimize import minimize_scalar

    from dynamics.equations.correlation import step_means
    from dynamics.theory.correlation import escape_of, slowing

    check_problem(problem, SPHERICAL, fields=("objective", "smoothing"))
    require(
        is_correlation(problem),
        f"Argument `problem` must have `objective` 'correlation' for the best schedule, but has {problem.objective!r}.",
    )
    last = checked_number(final_overlap, "final_overlap", positive=True)
    size = checked_integer(batch_size, "batch_size", minimum=1)
    start = float(problem.start().teacher_overlap[0, 0])
    least = LEAST_OVERLAP / np.sqrt(problem.dimension)
    is_signed = bool(problem.information_exponent % 2)
    first = start if is_signed else abs(start)
    is_far = is_at_most(least, first)
    require(
        is_far or not is_signed,
        f"Argument `problem` must start from an overlap C of at least {LEAST_OVERLAP:g}/√d = {least:.4g}, but starts "
        f"from {start:.4g}: nearer to 0 the noise of the best steps is of the size of C itself.",
    )
    require(
        is_far,
        f"Argument `problem` must start from |C| of at least {LEAST_OVERLAP:g}/√d = {least:.4g}, but starts from "
        f"{start:.4g}: nearer to 0 the noise of the best steps is of the size of C itself.",
    )
    require(
        first < last < 1.0,
        f"Argument `final_overlap` must be above the {first:.4g} of the start and below 1, but is {last:g}.",
    )
    way, means, side = escape_of(problem), step_means(problem), 1.0 if start > 0.0 else -1.0

    def moments(C: Array) -> tuple[Array, Array]:
        """Return |D| and |C| V at overlaps |C|: mean change of the overlap, and its loss, per step."""
        pull = side * way.pull(side * C)
        return pull * (1.0 - C**2), side * slowing(means, side * C, pull, 2.0, size) * (1.0 - C**2)

    # Quadrature in |C|, at panels (panel, 4).
    ends = np.linspace(np.arctanh(first), np.arctanh(last), PANELS + 1)
    nodes, shares = np.polynomial.legendre.leggauss(4)
    half = 0.5 * (ends[1] - ends[0])
    C = np.tanh(0.5 * (ends[:-1] + ends[1:])[:, None] + half * nodes)
    weights = half * shares * (1.0 - C**2)
    drift, drag = moments(C)
    at_ends, drag_at_ends = moments(np.tanh(ends))
    rises = (at_ends > 0.0).all() and (drift > 0.0).all()
    require(
        rises,
        f"Argument `final_overlap` must be where the flow leads from the start, but is {last:g}, which it never nears.",
    )
    taken = np.concatenate([[0.0], np.cumsum(2.0 * np.sum(weights * (drag / drift**2), axis=1))])
    steps = float(taken[-1])
    require(
        steps <= MOST_STEPS,
        f"Argument `final_overlap` must take at most {MOST_STEPS:.0f} steps to it, but takes {steps:.3g} to {last:g}.",
    )
    limit = float(np.min(2.0 * drift / drag))

    def constant_steps(share: float) -> float:
        """Return the mean number of steps at a constant learning rate, given as a share of the largest."""
        rate = share * limit
        return float(np.sum(weights / (rate * drift - 0.5 * rate**2 * drag)))

    best = minimize_scalar(constant_steps, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-8})
    name = f"best_schedule({abs(last)!r}{'' if size == 1 else f', batch_size={size}'})"
    rates = partial(_between, taken, at_ends / drag_at_ends)
    return BestSchedule(name, rates, steps, float(best.x * limit), float(best.fun) / steps)


# At the top level of the module, so that a schedule can be sent to another process.
def _between(nodes: Array, rates: Array, steps: Array) -> Array:
    """Return learning rates at numbers of steps, interpolated linearly between `rates` at the steps `nodes`."""
    return np.asarray(np.interp(steps, nodes, rates))


def resolved_schedule(
    problem: Problem,
    learning_rate: object,
    batch_size: int = 1,
    optimizer: Optimizer | str | None = None,
    *,
    descends: bool = False,
) -> object:
    """Return a learning rate for a problem: text as a number or a `Schedule`, any other value as it is.

    Text is a share of the optimizer's limit of stability such as "0.1x", or a call such as "cosine(0.01, 100000)"; in
    "best_schedule(0.9)" the problem and the batch size are those of the run.
    """
    if not isinstance(learning_rate, str):
        return learning_rate
    if "(" not in learning_rate and learning_rate.strip() not in MAKERS:
        from dynamics.theory.learning_rates import resolved_rate

        return resolved_rate(problem, learning_rate, batch_size, descends=descends, optimizer=optimizer)

    def best(final_overlap: float = 0.9, *, batch_size: int = batch_size) -> Schedule:
        """Return the best schedule of the problem, for plain SGD alone."""
        is_plain = checked_optimizer(optimizer).is_plain
        require(is_plain, f"Argument `optimizer` must be plain SGD for the best schedule, but is {optimizer}.")
        return best_schedule(problem, final_overlap, batch_size=batch_size)

    return schedule_of(learning_rate, MAKERS | {"best_schedule": best})
