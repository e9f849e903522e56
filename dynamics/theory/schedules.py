r"""Learning-rate schedules from theory: the best one of a neuron that learns a direction, and descent on a quadratic.

The flow sees of a schedule the time Σ η alone. Steps of SGD also slow the mean, in the second order of η, and gradient
descent on a quadratic loss sees the product Π (1 − η_t λ) in each mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem import (
    Optimizer,
    Problem,
    check_problem,
    checked_integer,
    checked_number,
    checked_optimizer,
    is_correlation,
)
from dynamics.problem.checks import check_memory, check_that, check_type
from dynamics.problem.rates import MAKERS, Schedule, schedule_of
from dynamics.problem.student import SPHERICAL
from hermite.arrays import Array, real_column
from hermite.text.messages import refuse, require, shown

#: Least overlap of a start in units of 1/√d: nearer to 0 the noise of the best steps is of the size of the overlap.
LEAST_OVERLAP = 7.5
#: Panels in artanh C, of four Gauss points each.
PANELS = 2000
#: Above it, steps are no longer told apart as float64.
MOST_STEPS = 2.0**53


@dataclass(frozen=True, repr=False)
class BestSchedule(Schedule):
    """The schedule of fewest mean steps, `best_schedule`; after the last of them its rate stays the same.

    Attributes
    ----------
    steps : float
        n*, mean number of steps from the start to the final overlap.
    constant : float
        The best constant learning rate, dimensionless.
    gain : float
        Mean number of steps at that rate, over n*.
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
        A `Schedule`, whose `rate(step)` is η; with `steps`, n*; `constant`, the best constant rate; `gain`, its number
        of steps over n*.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

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
    way = _Way.of(problem, final_overlap, batch_size)
    pace = way.drag / way.drift**2
    edges, rates = way.edges, way.best_rates
    nodes = np.concatenate([[0.0], np.cumsum(2.0 * np.sum(way.weights * pace, axis=1))])
    steps = float(nodes[-1])
    most = f"take at most {MOST_STEPS:.0f} steps to it"
    check_that(steps <= MOST_STEPS, "final_overlap", most, f"takes {steps:.3g} to {way.last:g}")
    constant, constant_steps = way.best_constant()
    size = "" if way.batch_size == 1 else f", batch_size={way.batch_size}"
    name = f"best_schedule({abs(way.last)!r}{size})"
    found = partial(_between, nodes, rates[: edges.size])
    return BestSchedule(name, found, steps, constant, constant_steps / steps)


# At the top level of the module, so that a schedule can be sent to another process.
def _between(nodes: Array, rates: Array, steps: Array) -> Array:
    return np.asarray(np.interp(steps, nodes, rates))


@dataclass(frozen=True, eq=False)
class _Way:
    """The way from the start to the final overlap: drift |D| and C V, and quadrature in |C|, at panels (panel, 4)."""

    last: float
    batch_size: int
    #: |C| at the ends of panels, and η* there.
    edges: Array
    best_rates: Array
    #: Weights of |C|, |D| and |C| V at the points of a panel.
    weights: Array
    drift: Array
    drag: Array

    @classmethod
    def of(cls, problem: object, final_overlap: object, batch_size: object) -> _Way:
        from dynamics.equations.correlation import step_means
        from dynamics.theory.correlation import escape_of

        asked = _checked(problem)
        last = checked_number(final_overlap, "final_overlap", positive=True)
        size = checked_integer(batch_size, "batch_size", minimum=1)
        start = float(asked.start().teacher_overlap[0, 0])
        least = LEAST_OVERLAP / np.sqrt(asked.dimension)
        signed = asked.information_exponent % 2
        first = start if signed else abs(start)
        need = f"must start from {'an overlap C' if signed else '|C|'} of at least {LEAST_OVERLAP:g}/√d = {least:.4g}"
        reason = "nearer to 0 the noise of the best steps is of the size of C itself"
        require(first >= least, f"Argument `problem` {need}, but starts from {start:.4g}: {reason}.")
        need = f"be above the {first:.4g} of the start and below 1"
        check_that(first < last < 1.0, "final_overlap", need, f"is {last:g}")
        way, means = escape_of(asked), step_means(asked)
        side = 1.0 if start > 0.0 else -1.0
        ends = np.linspace(np.arctanh(first), np.arctanh(last), PANELS + 1)
        nodes, shares = np.polynomial.legendre.leggauss(4)
        half = 0.5 * (ends[1] - ends[0])
        x = 0.5 * (ends[:-1] + ends[1:])[:, None] + half * nodes
        C, edges = np.tanh(x), np.tanh(ends)

        def moments(C: Array) -> tuple[Array, Array]:
            """Return |D| and |C| V."""
            pull = side * way.pull(side * C)
            size_of_step = means.drag(side * C) / size + (1.0 - 1.0 / size) * pull**2 * (1.0 - C**2)
            return pull * (1.0 - C**2), C * size_of_step

        drift, drag = moments(C)
        at_edges = moments(edges)
        rises = bool((at_edges[0] > 0.0).all() and (drift > 0.0).all())
        check_that(
            rises, "final_overlap", "be where the flow leads from the start", f"is {last:g}, which it never nears"
        )
        weights = half * shares * (1.0 - C**2)
        return cls(last, size, edges, at_edges[0] / at_edges[1], weights, drift, drag)

    def best_constant(self) -> tuple[float, float]:
        """Return the best constant rate below its limit min 2D/(CV), and its mean number of steps."""
        from scipy.optimize import minimize_scalar

        limit = float(np.min(2.0 * self.drift / self.drag))

        def steps(share: float) -> float:
            rate = share * limit
            return float(np.sum(self.weights / (rate * self.drift - 0.5 * rate**2 * self.drag)))

        found = minimize_scalar(steps, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-8})
        return float(found.x * limit), float(found.fun)


def _checked(problem: object) -> Problem:
    """Return a problem of one neuron, one direction and their correlation; refuse others."""
    check_problem(problem, SPHERICAL, fields=("objective", "smoothing"))
    asked = cast("Problem", problem)
    need = "Argument `problem` must have `objective` 'correlation' for the best schedule"
    require(is_correlation(asked), f"{need}, but has {asked.objective!r}.")
    return asked


def resolved_schedule(
    problem: Problem,
    learning_rate: object,
    batch_size: int = 1,
    optimizer: Optimizer | str | None = None,
    *,
    descends: bool = False,
) -> object:
    """Return what `learning_rate` means for a problem: text as a number or a `Schedule`, all else as it is.

    Text is a share of the optimizer's limit of stability such as "0.1x", or a call such as "cosine(0.01, 100000)"; in
    "best_schedule(0.9)" the problem and the batch size are those of the run.
    """
    from dynamics.theory.learning_rates import resolved_rate

    if not isinstance(learning_rate, str):
        return learning_rate
    if "(" not in learning_rate and learning_rate.strip() not in MAKERS:
        return resolved_rate(problem, learning_rate, batch_size, descends=descends, optimizer=optimizer)

    def best(final_overlap: float = 0.9, *, batch_size: int = batch_size) -> Schedule:
        need = f"Argument `optimizer` must be plain SGD for the best schedule, but is {optimizer}."
        require(checked_optimizer(optimizer).is_plain, need)
        return best_schedule(problem, final_overlap, batch_size=batch_size)

    return schedule_of(learning_rate, MAKERS | {"best_schedule": best})


def descent_loss(
    eigenvalues: ArrayLike, squares: ArrayLike, rates: ArrayLike | Schedule, steps: int | None = None
) -> Array:
    r"""Return the loss of gradient descent on a quadratic, before the first step and after each.

    .. math:: L_T = \sum_l \lambda_l\, c_l^2 \prod_{t < T} (1 - \eta_t \lambda_l)^2,

    with λ_l the eigenvalues of the Hessian H and c_l the distance from the minimum along its axes: this is
    (w − w*)·H(w − w*). It is convex, so that any schedule is allowed, `silver` too, whose T steps act as the flow of
    the time Σ η ~ T^1.2716 does. The loss of a student with neurons is not convex.

    Parameters
    ----------
    eigenvalues : sequence of float
        λ_l ≥ 0, in units of 1/η.
    squares : sequence of float
        c_l² ≥ 0, of the same length.
    rates : sequence of float or Schedule
        η_t > 0 of all steps, or a schedule with `steps`.
    steps : int, optional
        Number T of steps of a schedule.

    Returns
    -------
    ndarray
        L_0, …, L_T, in units of λ c².

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    References
    ----------
    Altschuler and Parrilo, arXiv:2309.07879.

    Examples
    --------
    >>> from dynamics import silver
    >>> descent_loss([1.0, 0.1], [1.0, 1.0], silver(1.0), 3).round(4).tolist()
    [1.1, 0.2453, 0.2188, 0.0642]
    """
    values, sizes = checked_axes(eigenvalues, squares)
    if isinstance(rates, Schedule):
        if steps is None:
            refuse(f"Argument `steps` must be given beside a schedule, but is None beside {rates!r}.", TypeError)
        count = checked_integer(steps, "steps", minimum=1)
        check_memory("steps", count, 2 * count)
        table = rates.table(count)
    else:
        check_type("steps", steps, type(None), "None beside a list of rates")
        table = real_column(rates, "rates")
    at = int(np.argmin(np.isfinite(table) & (table > 0.0))) if table.size else 0
    require(
        table.size > 0 and 0.0 < table[at] < np.inf,
        "Argument `rates` must be finite and positive at every step, but is "
        f"{f'{table[at]} at step {at}' if table.size else 'empty'}.",
    )
    left, losses = values * sizes, np.empty(table.size + 1)
    losses[0] = left.sum()
    for t, rate in enumerate(table.tolist()):
        left *= (1.0 - rate * values) ** 2
        losses[t + 1] = left.sum()
    return losses


def checked_axes(eigenvalues: ArrayLike, squares: ArrayLike) -> tuple[Array, Array]:
    """Return eigenvalues and squares on their axes, lists of one length of finite numbers that are at least 0."""
    values, sizes = (_column(each, name) for each, name in ((eigenvalues, "eigenvalues"), (squares, "squares")))
    check_that(
        values.size == sizes.size, "squares", f"have {values.size} entries, as `eigenvalues`", f"has {sizes.size}"
    )
    return values, sizes


def _column(values: ArrayLike, name: str) -> Array:
    """Return a list of finite numbers that are at least 0."""
    found = real_column(values, name)
    holds = found.size > 0 and bool(np.isfinite(found).all()) and float(found.min()) >= 0.0
    check_that(holds, name, "be a list of finite numbers of at least 0", f"is {shown(values)}")
    return found
