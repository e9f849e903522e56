"""The division of neurons for one step: fast sources, slowed clusters, and all others.

Neurons with C_ip² > 0.9 form the group of direction p.  It is accepted as a slowed cluster when it has learned the
direction: mass within 5 % of a_p, ‖Σ n σ(u·) − a σ(e·)‖² below 1e-3 a², and the mean velocity of its two stiff modes as
far from the drift of the last step as a displacement of `STILL` would make it, which says that they follow their slow
manifold.  Its rates are then a_p g'(1) for the direction and 4 a_p g(1) for the norm.  An accepted cluster is left when
it fails the tests by wide factors.

Neurons near a direction without a cluster are fast sources: their force on everybody changes within a step, which they
take in parts, before all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.field import UNCOPIED
from dynamics.integrators.clusters import DISTANCE, GROUP, LEAVE_DISTANCE, LEAVE_STILL, MASS, STILL
from dynamics.integrators.large_flow.division_kernels import (
    ACTIVE,
    DIRECTION,
    FIRST,
    ORDER,
    POLE,
    assign_rows,
    group_rows,
    judge_groups,
    nearest_directions,
    weigh_groups,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.integrators.large_flow.division_kernels import Plan
    from dynamics.threads.workers import Workers
    from hermite.arrays import Array, Integers

#: Squared overlap with an unlearned direction above which a neuron is fast; half of it once it is.
FAST = 0.15
#: Squared overlap with an unlearned direction above which its error counts for itself.
LEADS = 0.01
#: Relaxations per step below which a mode is not slowed at all; its force on others is then smooth enough to be
#: extrapolated, with an error of fourth order, while it still moves. At 0 the standard problem has a third more
#: sources; at 2.5 the most ill-conditioned time of 128 directions was twice as wrong, at 4 steps were a twentieth more.
SLOW = 1.5
_TESTS = np.array([MASS, DISTANCE, STILL, SLOW, LEAVE_DISTANCE, LEAVE_STILL])
#: Rows that are multiplied with all sources at once, half of them where that keeps the product from copying its
#: factors, and as many as this where not.
BLOCK, LONGEST_BLOCK = 8, 64


@dataclass(frozen=True, slots=True)
class State:
    """Unit vectors and ln n, with their field and growth where known."""

    U: Array
    log_norm: Array
    F: Array
    growth: Array

    @property
    def vectors(self) -> tuple[Array, Array]:
        """Unit vectors and ln n, as kernels take them."""
        return self.U, self.log_norm

    @property
    def whole(self) -> tuple[Array, Array, Array, Array]:
        """The state with its field and growth, as kernels take it."""
        return self.U, self.log_norm, self.F, self.growth


@dataclass(frozen=True, slots=True)
class Division:
    """A division of m neurons; `plan` is what compiled passes read (see the module `plan`)."""

    fast: NDArray[np.bool_]
    cluster: Integers  # direction of the cluster of each neuron, −1 for none
    sources: Integers  # rows of the fast neurons
    plan: Plan
    #: Places in the order of visit at which blocks begin; the first block holds the sources, if there are any.
    cuts: Integers
    rates: Array  # of the direction and of the norm, (clusters, 2)

    @property
    def largest_group(self) -> int:
        """Number of rows that go through a step together: of the largest cluster, or one."""
        return int(np.diff(self.first).max(initial=1))

    @property
    def order(self) -> Integers:
        """Rows in the order in which they are visited."""
        order: Integers = self.plan[0][ORDER]
        return order

    @property
    def first(self) -> Integers:
        """Places in that order at which each cluster begins, and at which the last one ends."""
        places: Integers = self.plan[1][FIRST]
        return places

    @property
    def directions(self) -> Integers:
        """Directions that have a cluster, in the order of the plan."""
        directions: Integers = self.plan[1][DIRECTION, :-1]
        return directions

    @property
    def active(self) -> Array:
        """Coefficients of the directions without a cluster, 0 for the others."""
        coefficients: Array = self.plan[2][ACTIVE]
        return coefficients

    @property
    def sign(self) -> Array:
        """Pole of its direction at which each neuron of a cluster sits, +1 or −1."""
        signs: Array = self.plan[0][POLE].astype(np.float64)
        return signs


class Divider:
    """Divides neurons, step after step, with hysteresis.

    `link` is the data of g, `value` and `slope` are g(1) and g'(1), `columns` is D. With `both_poles` a neuron at −θ_p
    is as good as one at θ_p, as it is for an even kernel; `by_blas` says how blocks of a few rows are multiplied.
    """

    def __init__(
        self,
        link: Array,
        workers: Workers,
        a: Array,
        value: float,
        slope: float,
        columns: int,
        *,
        both_poles: bool,
        by_blas: bool,
    ) -> None:
        self._link, self._workers = link, workers
        self._by_blas = by_blas
        self._a = a
        self._value = value
        #: Rates of direction and norm, per teacher coefficient.
        self._rates = np.array([slope, 4.0 * value])
        self._columns = columns
        self._both_poles = both_poles
        #: Of the last division: direction without a cluster that each neuron may be about to learn, −1 for none.
        self.leading: Integers = np.empty(0, dtype=np.int64)

    def divide(self, state: State, before: State, h: float, last: Division | None) -> tuple[Division, Array]:
        """Return the division at a state, and the drift of its clusters over the last step, shape (clusters, D + 1).

        `before` is the state one step, of length `h` and division `last`, earlier; the same at the start, with no
        division.
        """
        m, D = state.U.shape
        active = self._a if last is None else last.active
        nearest, overlap = self._nearest(state, active)
        members, directions, first = self._groups(nearest[0], overlap[0])
        sign = np.where(overlap[0] < 0.0, -1.0, 1.0)
        drift, result = np.empty((directions.size, D + 1)), np.empty((directions.size, 4))

        def weigh(begin: int, end: int) -> None:
            groups = members, first, directions
            weigh_groups(begin, end, h, self._link, groups, self._a, sign, before.vectors, state.whole, (drift, result))

        self._workers.over_parts(directions.size, weigh)
        passed, left = np.empty(directions.size, dtype=np.bool_), np.empty(self._a.size)
        if judge_groups(h, self._value, self._rates, _TESTS, directions, self._a, active, result, passed, left):
            nearest, overlap = self._nearest(state, left)
        # Before the first step no neuron is in a cluster, nor in none.
        was = (np.zeros(m, dtype=np.bool_), np.full(m, -2)) if last is None else (last.fast, last.cluster)
        fast, cluster, self.leading = (
            np.empty(m, dtype=np.bool_),
            np.empty(m, dtype=np.int64),
            np.empty(m, dtype=np.int64),
        )
        groups = members, directions, first, passed
        now = fast, cluster, self.leading
        unchanged = assign_rows(FAST, LEADS, groups, (nearest[1], overlap[1]), was, now, drift)
        kept = drift[: np.count_nonzero(passed)]
        return (last if last is not None and unchanged else self.assemble(fast, cluster, sign)), kept

    def assemble(self, fast: NDArray[np.bool_], cluster: Integers, sign: Array) -> Division:
        """Return the division in which these neurons are fast and these in clusters, with the plan that follows."""
        m = fast.size
        sources = np.flatnonzero(fast)
        inside = np.flatnonzero(cluster >= 0)
        inside = inside[np.argsort(cluster[inside], kind="stable")]
        directions, first = np.unique(cluster[inside], return_index=True)
        first = sources.size + np.append(first, inside.size).astype(np.int64)
        order = np.concatenate([sources, inside, np.flatnonzero(~fast & (cluster < 0))])
        number = np.full(m, -1, dtype=np.int64)
        number[inside] = np.searchsorted(directions, cluster[inside])
        active = self._a.copy()
        active[directions] = 0.0
        of_rows = np.stack([order, number, sign.astype(np.int64)])
        clusters = np.stack([first, np.append(directions, -1)])
        return Division(
            fast=fast,
            cluster=cluster,
            sources=sources,
            plan=(of_rows, clusters, np.stack([active, self._a]), self._link, self._by_blas),
            cuts=_cuts(sources.size, first, m, self._block_length(sources.size)),
            rates=self._a[directions, None] * self._rates,
        )

    def _block_length(self, sources: int) -> int:
        """Return how many rows a block should have."""
        work, most = BLOCK * sources * self._columns, UNCOPIED if self._by_blas else np.inf
        return BLOCK if work <= most else BLOCK // 2 if work <= 2 * most else LONGEST_BLOCK

    def _nearest(self, state: State, active: Array) -> tuple[Integers, Array]:
        """Return the nearest direction of each neuron, then that among the active ones, and the overlaps: (2, m)."""
        m = state.U.shape[0]
        nearest, overlap = np.empty((2, m), dtype=np.int64), np.empty((2, m))

        def part(begin: int, end: int) -> None:
            nearest_directions(
                state.U[begin:end], self._both_poles, active, nearest[0, begin:end], overlap[0, begin:end],
                nearest[1, begin:end], overlap[1, begin:end],
            )  # fmt: skip

        self._workers.over_rows(part)
        return nearest, overlap

    def _groups(self, nearest: Integers, overlap: Array) -> tuple[Integers, Integers, Integers]:
        """Return the neurons near a direction, direction by direction, the directions, and where each begins."""
        members, directions, first = (
            np.empty(size, dtype=np.int64) for size in (nearest.size, self._a.size, self._a.size + 1)
        )
        count = group_rows(nearest, overlap, GROUP, members, directions, first)
        return members[: first[count]], directions[:count], first[: count + 1]


def _cuts(sources: int, first: Integers, m: int, block: int) -> Integers:
    """Return where blocks begin: all sources, then clusters that are never cut, then slow rows."""
    cuts = [0] + ([sources] if sources else [])
    for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        if end - cuts[-1] > block and begin > cuts[-1]:
            cuts.append(begin)
    inner = int(first[-1])
    if inner > cuts[-1]:
        cuts.append(inner)
    cuts += range(inner + block, m, block)
    if cuts[-1] < m:
        cuts.append(m)
    return np.array(cuts, dtype=np.int64)
