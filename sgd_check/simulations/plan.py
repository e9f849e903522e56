"""The plan of a run: learning rate and time t = Σ η of every step, the recorded steps and the observed ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dynamics.problem import Optimizer, Problem, SaveAt, checked_integer, checked_number, is_spherical
from dynamics.problem.rates import Schedule, check_bearable, piecewise, power_law_decay
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse, require, shown

# The makers of schedules that `sgd_check` has always had are those of `dynamics`.
__all__ = ["LearningRate", "Plan", "Schedule", "make_plan", "piecewise", "power_law_decay", "stability_limit"]

LearningRate = float | Callable[[int], float]

RECORDS_PER_E_FOLD = 12
RECORDED_DECADES = 4
# Emergence is looked for at steps this far apart, relative to the step.
LOOK_RATIO = 1.02
# Above it, steps are no longer told apart as float64.
MOST_STEPS = 2**53
# A varying learning rate is tabulated: 8 GB at this many steps.
MOST_TABULATED_STEPS = 10**9


@dataclass(frozen=True)
class Plan:
    """Steps of one run: their learning rates (`table`), and in increasing order those recorded and those observed.

    `table` has one learning rate per step, or is one number. `observed` includes `recorded`, 0 and the last step.
    `schedule` is the name of the schedule, empty if it has none.
    """

    steps: int
    table: Array | float
    recorded: Integers
    observed: Integers
    schedule: str = ""

    def rates(self, first: int, last: int) -> Array:
        """Return the learning rates of steps first, …, last − 1."""
        return np.full(last - first, self.span(first, last))

    def span(self, first: int, last: int) -> Array | float:
        """Return the learning rates of steps first, …, last − 1, as one number if they are all the same."""
        return self.table if isinstance(self.table, float) else self.table[first:last]

    def times(self, steps: Integers) -> Array:
        """Return the flow times t = Σ η before the given steps, which increase."""
        if isinstance(self.table, float):
            return np.asarray(self.table * steps, dtype=np.float64)
        edges = np.union1d([0], steps)
        pieces = [float(np.sum(self.table[a:b])) for a, b in pairwise(edges.tolist())]
        return np.asarray(np.concatenate([[0.0], np.cumsum(pieces)])[np.searchsorted(edges, steps)])

    @property
    def peak_rate(self) -> float:
        """Largest learning rate."""
        return float(np.max(self.table))

    @property
    def effective_rate(self) -> float:
        """Learning rate averaged over flow time, Σ η²/Σ η: the one that sets the delay by the step size."""
        if isinstance(self.table, float):
            return self.table
        return float(np.dot(self.table, self.table) / np.sum(self.table))

    @cached_property
    def digest(self) -> str:
        """Hash of the learning rates of all steps, "" if they are one number."""
        return "" if isinstance(self.table, float) else hashlib.sha256(self.table.tobytes()).hexdigest()


def make_plan(learning_rate: object, steps: object, save_at: SaveAt | None) -> Plan:
    """Return the plan of a run; without `save_at` with step 0 and twelve records per e-fold over four decades."""
    count = checked_integer(steps, "steps", minimum=1)
    check_bearable(learning_rate)
    most = MOST_TABULATED_STEPS if callable(learning_rate) else MOST_STEPS
    kind = "varies" if callable(learning_rate) else "is constant"
    require(count <= most, f"Argument `steps` must be at most {most} where the learning rate {kind}, but is {count}.")
    table = _tabulated(learning_rate, count)
    looks = _geometric_steps(1, count, LOOK_RATIO)
    if save_at is None:
        first = max(1, count // 10**RECORDED_DECADES)
        recorded = np.union1d([0], _geometric_steps(first, count, float(np.exp(1 / RECORDS_PER_E_FOLD))))
    else:
        recorded = _steps_of(save_at, table, count)
    name = repr(learning_rate) if isinstance(learning_rate, Schedule) else ""
    return Plan(count, table, recorded, np.union1d(np.union1d(looks, recorded), [0, count]), name)


def stability_limit(problem: Problem, batch_size: int = 1, optimizer: Optimizer | None = None) -> float | None:
    """Return the limit of stability of η for steps of B samples, None if no formula gives it or there is no limit."""
    from dynamics.theory.learning_rates import quick_limit

    return None if is_spherical(problem) else quick_limit(problem, batch_size, optimizer)


def _tabulated(learning_rate: object, steps: int) -> Array | float:
    """Return the learning rates of all steps (steps,), or one number if they are constant; refuse other values."""
    if callable(learning_rate):
        try:
            if isinstance(learning_rate, Schedule):
                table = learning_rate.table(steps)
            else:
                table = np.fromiter((float(learning_rate(step)) for step in range(steps)), np.float64, steps)
        except (TypeError, ValueError):
            refuse("Argument `learning_rate` must return a number for every step, but does not.", error=TypeError)
        worst = int(np.argmin(np.isfinite(table) & (table > 0)))
        require(
            0.0 < table[worst] < np.inf,
            "Argument `learning_rate` must be finite and positive at every step, but is "
            f"{table[worst]} at step {worst}.",
        )
        return table
    is_number = isinstance(learning_rate, (int, float, np.integer, np.floating)) and not isinstance(learning_rate, bool)
    require(
        is_number,
        f"Argument `learning_rate` must be a number or a function of the step, but is {shown(learning_rate)}.",
        error=TypeError,
    )
    return checked_number(learning_rate, "learning_rate", positive=True)


def _geometric_steps(first: int, last: int, ratio: float) -> Integers:
    """Return whole steps from `first` to `last`, increasing, whose neighbours have at most about the ratio `ratio`."""
    count = int(np.ceil(np.log(last / first) / np.log(ratio))) + 2
    return np.unique(np.rint(np.geomspace(first, last, count)).astype(np.int64))


def _steps_of(save_at: object, table: Array | float, steps: int) -> Integers:
    """Return the steps nearest to the requested times."""
    if not isinstance(save_at, SaveAt):
        refuse(
            f"Argument `save_at` must be a SaveAt, such as SaveAt.at([...]), but is {shown(save_at)}.", error=TypeError
        )
    wanted = save_at.times
    if isinstance(table, float):
        end, nearest = table * steps, np.rint(wanted / table)
    else:
        edges = np.concatenate([[0.0], np.cumsum(table)])
        end, nearest = float(edges[-1]), np.rint(np.interp(wanted, edges, np.arange(steps + 1.0)))
    require(
        wanted[-1] <= end * (1 + 1e-9),
        f"Argument `save_at` must end by time {end:.6g}, where the last step ends, but ends at {wanted[-1]:.6g}.",
    )
    chosen = np.minimum(nearest, steps).astype(np.int64)
    require(
        (np.diff(chosen) > 0).all(),
        "Argument `save_at` must have times at least one step apart, but two of them fall on one step.",
    )
    return chosen
