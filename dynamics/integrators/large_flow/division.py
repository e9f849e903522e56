"""The division of neurons for one step: fast sources, slowed clusters, and all others.

Neurons with C_ip² > 0.9 form the group of direction p.  It is accepted as a slowed cluster when it has learned the
direction: mass within 5 % of a_p, ‖Σ n σ(u·) − a σ(e·)‖² below 1e-3 a², and the mean velocity of its two stiff modes as
far from the drift of the last step as a displacement of `STILL` would make it, which says that they follow their slow
manifold.  Its rates are then a_p g'(1) for the direction and 4 a_p g(1) for the norm.  An accepted cluster is left when
it fails the tests by wide factors.

Neurons near a direction without a cluster are fast sources: their force on everybody changes within a step, which they
take in parts, before all others.

plan[0] (3, m)      ORDER      rows, in the order in which they are visited, the fast sources first
                    CLUSTER    number of the cluster of each row, no direction; −1 for none
                    POLE       +1 or −1: the pole of its direction at which a row of a cluster sits
plan[1] (2, c + 1)  FIRST      place in ORDER at which each cluster begins, and at which the last one ends
                    DIRECTION  direction of each cluster; the last number means nothing
plan[2] (2, P)      ACTIVE     a_p of the directions without a cluster, 0 for the others
                    TEACHER    a_p of every direction
plan[LINK]                     data of g (`dynamics.equations.link`); g(0) = g'(0) = 0
plan[BY_BLAS]                  whether BLAS multiplies blocks of a few rows, or loops (`dynamics.equations.field`)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from dynamics.equations.field import UNCOPIED
from dynamics.equations.link import g0
from dynamics.integrators.clusters import DISTANCE, GROUP, LEAVE_DISTANCE, LEAVE_STILL, MASS, STILL
from dynamics.kernels.jit import entry, kernel
from hermite.arrays import Cube, Integers, Matrix, Vector

if TYPE_CHECKING:
    from dynamics.threads import Workers
    from hermite.arrays import Array, Switches


# Tables rather than arrays: for each array that a function is given the compiler carries seven numbers.
Plan = tuple[Integers, Integers, Matrix, Vector, bool]
LINK: Final = 3
BY_BLAS: Final = 4
ORDER, CLUSTER, POLE = 0, 1, 2
FIRST, DIRECTION = 0, 1
ACTIVE, TEACHER = 0, 1


@entry
def nearest_directions(U: Matrix, both_poles: bool, active: Vector, nearest: Integers, overlap: Vector) -> None:
    """Write the active direction (active > 0) with which each row overlaps most, and the overlap; 0 and 0 for none."""
    for i in range(U.shape[0]):
        best = overlap[i] = 0.0
        nearest[i] = 0
        for p in range(active.size):
            c = U[i, p]
            size = abs(c) if both_poles else c
            if size > best and active[p] > 0.0:
                best, nearest[i], overlap[i] = size, p, c


@kernel
def along(u: Vector, v: Vector) -> float:
    """Return (u·v)/(u·u)."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * v[k]
        length += u[k] * u[k]
    return product / length


@kernel
def group_end(x: int, rows: Integers, of_rows: Integers, clusters: Integers) -> int:
    """Return where the cluster of row x of a block ends, x + 1 for a row of none, and x if the cluster began before.

    The tables are those of the plan, since an array that is taken from a tuple costs a count of references.
    """
    c = of_rows[CLUSTER, rows[x]]
    if c < 0:
        return x + 1
    if x > 0 and of_rows[CLUSTER, rows[x - 1]] == c:
        return x
    count: int = clusters[FIRST, c + 1] - clusters[FIRST, c]
    return x + count


@kernel
def add_rest(i: int, weights: Vector, slots: Integers, rest: Cube, out: Vector) -> None:
    """Add Σ_q weights_q rest[slots_q] of row i: a pass per value, since a loop over values inside is not vectorised."""
    for q in range(slots.size):
        w, slot = weights[q], slots[q]
        for k in range(out.size):
            out[k] += w * rest[slot, i, k]


@kernel
def rest_number(i: int, weights: Vector, slots: Integers, rest_growth: Matrix) -> float:
    """Return Σ_q weights_q rest_growth[slots_q] of row i."""
    total = 0.0
    for q in range(slots.size):
        total += weights[q] * rest_growth[slots[q], i]
    return total


@entry
def weigh_groups(
    begin: int,
    end: int,
    h: float,
    link: Vector,
    groups: tuple[Integers, Integers, Integers],
    a: Vector,
    sign: Vector,
    before: tuple[Matrix, Vector],
    now: tuple[Matrix, Vector, Matrix, Vector],
    out: tuple[Matrix, Matrix],
) -> None:
    """Weigh groups begin … end − 1 of rows: group c holds order[first[c]:first[c + 1]], all near direction[c].

    `groups` is (order, first, direction), `before` (U, ln n) at the beginning of the last step, of length h, `now` the
    same with F and growth at its end. `out` is (drift, result): the mean velocity of direction and norm over that step
    (groups, D + 1); mass, squared distance ‖Σ n σ(u·) − a σ(e·)‖², and how far the mean velocities of the direction and
    of the norm are now from their drift (groups, 4).
    """
    (order, first, direction), (U_before, log_before), (U, log_n, F, growth) = groups, before, now
    drift, result = out
    whole = g0(link, 1.0)
    D = U.shape[1]
    mean = np.empty(D)
    for c in range(begin, end):
        p = direction[c]
        mass = rise = 0.0
        distance = a[p] * a[p] * whole
        for k in range(D):
            mean[k] = drift[c, k] = 0.0
        drift[c, D] = 0.0
        for x in range(first[c], first[c + 1]):
            i = order[x]
            n = np.exp(log_n[i])
            mass += n
            rise += n * 4.0 * growth[i]
            distance += n * n * whole - 2.0 * a[p] * n * g0(link, U[i, p])
            for z in range(first[c], x):
                j = order[z]
                s = 0.0
                for k in range(D):
                    s += U[i, k] * U[j, k]
                distance += 2.0 * n * np.exp(log_n[j]) * g0(link, s)
            w, radial = n * sign[i], along(U[i], F[i])
            for k in range(D):
                mean[k] += w * (F[i, k] - radial * U[i, k])
                drift[c, k] += w * (U[i, k] - U_before[i, k])
            drift[c, D] += n * (log_n[i] - log_before[i])
        square = 0.0
        for k in range(D + 1):
            drift[c, k] /= mass * h
        for k in range(D):
            square += (mean[k] / mass - drift[c, k]) ** 2
        result[c, 0], result[c, 1] = mass, distance
        result[c, 2], result[c, 3] = np.sqrt(square), abs(rise / mass - drift[c, D])


#: Squared overlap with an unlearned direction above which a neuron is fast; half of it once it is.
FAST = 0.15
#: Squared overlap with an unlearned direction above which its error counts for itself.
LEADS = 0.01
#: Relaxations per step below which a mode is not slowed at all; its force on others is then smooth enough to be
#: extrapolated, with an error of fourth order, while it still moves. At 0 the standard problem has a third more
#: sources; at 2.5 the most ill-conditioned time of 128 directions was twice as wrong, at 4 steps were a twentieth more.
SLOW = 1.5
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

    fast: Switches
    cluster: Integers  # direction of the cluster of each neuron, −1 for none
    sources: Integers  # rows of the fast neurons
    plan: Plan
    #: Places in the order of visit at which blocks begin; the first block holds the sources, if there are any.
    cuts: Integers
    rates: Array  # of the direction and of the norm, (clusters, 2)
    order: Integers  # rows in the order in which they are visited
    #: Places in that order at which each cluster begins, and at which the last one ends.
    first: Integers
    directions: Integers  # that have a cluster, in the order of the plan
    active: Array  # coefficients of the directions without a cluster, 0 for the others


@dataclass
class Divider:
    """Divides neurons, step after step, with hysteresis.

    With `both_poles` a neuron at −θ_p is as good as one at θ_p, as it is for an even kernel; `by_blas` says how blocks
    of a few rows are multiplied.
    """

    link: Array  # data of g
    workers: Workers
    a: Array
    value: float  # g(1)
    slope: float  # g'(1)
    columns: int  # D
    both_poles: bool
    by_blas: bool
    #: Of the last division: direction without a cluster that each neuron may be about to learn, −1 for none.
    leading: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        #: Rates of direction and norm, per teacher coefficient.
        self._rates = np.array([self.slope, 4.0 * self.value])

    def divide(self, state: State, before: State, h: float, last: Division | None) -> tuple[Division, Array]:
        """Return the division at a state, and the drift of its clusters over the last step, shape (clusters, D + 1).

        `before` is the state one step, of length `h` and division `last`, earlier; the same at the start, with no
        division.
        """
        was_fast: Switches | bool = False
        was_cluster, active = np.full(state.U.shape[0], -2), self.a
        if last is not None:
            was_fast, was_cluster, active = last.fast, last.cluster, last.active
        nearest, overlap = self._nearest(state, self.a)
        sign = np.where(overlap < 0.0, -1.0, 1.0)
        members = np.flatnonzero(overlap**2 > GROUP)
        members = members[np.argsort(nearest[members], kind="stable")]
        near = nearest[members]
        first = np.flatnonzero(np.diff(near, prepend=-1, append=self.a.size))
        directions = near[first[:-1]]
        drift, result = np.empty((directions.size, self.columns + 1)), np.empty((directions.size, 4))

        def weigh(begin: int, end: int) -> None:
            groups = members, first, directions
            weigh_groups(begin, end, h, self.link, groups, self.a, sign, before.vectors, state.whole, (drift, result))

        self.workers.over_parts(directions.size, weigh)
        passed = self._passed(h, directions, result, active[directions] == 0.0)
        inside, learned = members[np.repeat(passed, np.diff(first))], directions[passed]
        cluster = np.full(nearest.size, -1)
        cluster[inside] = nearest[inside]
        left = self.a.copy()
        left[learned] = 0.0
        leads, overlap = self._nearest(state, left)
        square = overlap**2
        self.leading = np.where(square > LEADS, leads, -1)
        fast = (cluster < 0) & (square > FAST * np.where(was_fast, 0.5, 1.0))
        moved, kept = cluster != was_cluster, drift[passed]
        if last is not None and not moved.any() and np.array_equal(fast, last.fast):
            return last, kept
        # A mean velocity over a step is one of the members it had then. Clusters −1 and −2 have the last two places.
        changed = np.zeros(self.a.size + 2, dtype=np.bool_)
        changed[cluster[moved]] = changed[was_cluster[moved]] = True
        kept[changed[learned]] = 0.0
        return self.assemble(fast, cluster, sign), kept

    def _nearest(self, state: State, active: Array) -> tuple[Integers, Array]:
        """Return the active direction with which each neuron overlaps most, and the overlap."""
        nearest, overlap = np.empty(len(state.U), dtype=np.int64), np.empty(len(state.U))
        nearest_directions(state.U, self.both_poles, active, nearest, overlap)
        return nearest, overlap

    def _passed(self, h: float, directions: Integers, result: Array, was: Switches) -> Switches:
        """Return which groups pass as clusters, given what `weigh_groups` wrote and which of them `was` one."""
        a, mass, distance, off = self.a[directions], result[:, 0], result[:, 1], result[:, 2:]
        rates = a[:, None] * self._rates
        reach = DISTANCE * self.value * np.where(was, LEAVE_DISTANCE, 1.0) * a**2
        patience = STILL * np.where(was, LEAVE_STILL, 1.0)[:, None] * rates * np.maximum(1.0, SLOW / (h * rates)) ** 4
        passed: Switches = (np.abs(mass - a) <= MASS * a) & (distance <= reach) & (off <= patience).all(axis=1)
        return passed

    def assemble(self, fast: Switches, cluster: Integers, sign: Array) -> Division:
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
        active = self.a.copy()
        active[directions] = 0.0
        of_rows = np.stack([order, number, sign.astype(np.int64)])
        clusters = np.stack([first, np.append(directions, -1)])
        work, most = BLOCK * sources.size * self.columns, UNCOPIED if self.by_blas else np.inf
        block = BLOCK if work <= most else BLOCK // 2 if work <= 2 * most else LONGEST_BLOCK
        return Division(
            fast=fast,
            cluster=cluster,
            sources=sources,
            plan=(of_rows, clusters, np.stack([active, self.a]), self.link, self.by_blas),
            cuts=_cuts(sources.size, first, m, block),
            rates=self.a[directions, None] * self._rates,
            order=order,
            first=first,
            directions=directions,
            active=active,
        )


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
