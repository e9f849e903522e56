r"""Learning rates that vary, in the mean equations of SGD: η as a function of the time t = Σ η.

Step s has η_s from Σ_{u<s} η_u on. Where a rate is much that of the step before, η(t) is linear between the middles of
the two, and of these nodes those are left out that the others tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.kernels.jit import kernel
from dynamics.problem.checks import check_memory, require
from hermite.arrays import Array, Vector

if TYPE_CHECKING:
    from dynamics.problem.rates import Schedule

#: Relative error of η between the nodes that are kept, and most of these.
TOLERANCE, MOST_NODES = 1e-6, 10**5
#: Relative difference of the rates of two steps from which η(t) jumps between them.
JUMP = 0.01
#: Most steps of a run whose rates vary.
MOST_STEPS = 10**8
#: Points of an interval that are looked at before all are.
PROBES = 64


@kernel
def rate_at(t: float, table: Vector) -> float:
    """Return the learning rate η(t) at a time t, linear between nodes and constant outside of them.

    `table` (2 n,) has the times of n nodes, two alike at a jump, and then their rates.
    """
    count = table.size // 2
    if t <= table[0] or count == 1:
        return float(table[count])
    low, high = 0, count - 1
    if t >= table[high]:
        return float(table[count + high])
    while high - low > 1:
        middle = (low + high) // 2
        if table[middle] <= t:
            low = middle
        else:
            high = middle
    share = (t - table[low]) / (table[high] - table[low])
    return float(table[count + low] + share * (table[count + high] - table[count + low]))


@dataclass(frozen=True, eq=False)
class RateTable:
    """The rates of a run: `edges` are the times before each step and after the last, `nodes` the table of `rate_at`."""

    edges: Array
    nodes: Array

    @classmethod
    def until(cls, schedule: Schedule, last: float) -> RateTable:
        """Return the rates of a schedule until `last`; ValueError where it ends before or has too many steps."""
        first, count = schedule(0), 1024
        if 0.0 < first < np.inf:
            count = int(min(max(1.1 * last / first, count), MOST_STEPS))
        while True:
            check_memory("learning_rate", schedule, 6 * count)
            rates = schedule.table(count)
            sound = np.isfinite(rates) & (rates > 0.0)
            num_positive = rates.size if sound.all() else int(np.argmin(sound))
            edges = np.concatenate([[0.0], np.cumsum(rates[:num_positive])])
            if edges[-1] >= last * (1.0 - 1e-12):
                step_count = max(int(np.searchsorted(edges, last * (1.0 - 1e-12))), 1)
                return cls(edges[: step_count + 1], _nodes(edges[: step_count + 1], rates[:step_count]))
            require(
                num_positive == count,
                f"Argument `save_at` must end by the time {edges[-1]:.6g}, Σ η of the {num_positive} steps of "
                f"{schedule!r} with a positive rate, but ends at {last:.6g}.",
            )
            require(
                count < MOST_STEPS,
                f"Argument `save_at` must end by the time {edges[-1]:.6g}, Σ η of the first {count:.0e} steps of "
                f"{schedule!r}, but ends at {last:.6g}.",
            )
            count = min(2 * count, MOST_STEPS)

    @property
    def peak(self) -> float:
        """Largest learning rate of a step."""
        return float(np.diff(self.edges).max())

    @property
    def effective(self) -> float:
        """Rate averaged over time, Σ η²/Σ η."""
        rates = np.diff(self.edges)
        return float(np.dot(rates, rates) / np.sum(rates))

    def steps(self, times: Array) -> Array:
        """Return the number of steps taken at `times`, of their shape; fractions within a step."""
        return np.interp(times, self.edges, np.arange(self.edges.size, dtype=np.float64))


def _nodes(edges: Array, rates: Array) -> Array:
    """Return [times | rates] of few nodes, one flat array; straight lines between them give the rate of every step.

    Nodes are middles of steps, and both ends of each stretch without jumps.
    """
    jumps = np.flatnonzero(np.abs(np.diff(rates)) > JUMP * rates[:-1])
    steps, starts, ends = np.arange(rates.size), np.append(0, jumps + 1), np.append(jumps, rates.size - 1)
    order = np.argsort(np.concatenate([steps, starts - 0.25, ends + 0.25]), kind="stable")
    times = np.concatenate([edges[:-1] + 0.5 * rates, edges[starts], edges[ends + 1]])[order]
    rates = np.concatenate([rates, rates[starts], rates[ends]])[order]
    places = (starts + 2 * np.arange(starts.size)).tolist()
    stretches = list(zip(places, (ends + 2 * np.arange(1, ends.size + 1)).tolist(), strict=True))
    while stretches:
        a, b = stretches.pop()
        if b - a > 1:
            slope = (rates[b] - rates[a]) / (times[b] - times[a])
            probes = np.arange(a, b, max((b - a) // PROBES, 1))
            if all(
                np.all(np.abs(rates[a] + slope * (times[rows] - times[a]) - rates[rows]) <= TOLERANCE * rates[rows])
                for rows in (probes, slice(a, b))
            ):
                places.append(b)
                continue
            stretches += [((a + b) // 2, b), (a, (a + b) // 2)]
        elif b > a:
            places.append(b)
        require(
            len(places) <= MOST_NODES,
            f"Argument `learning_rate` must have a rate that {MOST_NODES:.0e} straight lines tell to {TOLERANCE:g}, "
            "but has one that varies faster.",
        )
    places.sort()
    return np.concatenate([times[places], rates[places]])
