"""The division of neurons for one step: fast sources, slowed clusters, and all others.

Neurons near a direction without a cluster are fast sources: their force on everybody changes within a step, which they
take in parts, before all others.

plan[0] (5, m)      ORDER      rows, in the order in which they are visited, the fast sources first
                    CLUSTER    number of the cluster of each row, no direction; −1 for none
                    POLE       +1 or −1: the pole of its direction at which a row of a cluster sits
                    PLACE      0 … m − 1: where the rows of a block are in its arrays
                    COUNT      rows of the cluster that begins at each place in ORDER, 0 inside one, 1 for a row of none
plan[1] (2, c + 1)  FIRST      place in ORDER at which each cluster begins, and at which the last one ends
                    DIRECTION  direction of each cluster; the last number means nothing
plan[2] (2, P)      ACTIVE     a_p of the directions without a cluster, 0 for the others
                    TEACHER    a_p of every direction
plan[LINK]                     data of g (`dynamics.equations.link`); g(0) = g'(0) = 0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dynamics.integrators import clusters
from dynamics.kernels.jit import entry
from hermite.arrays import Integers, Matrix, Switches, Vector

if TYPE_CHECKING:
    from hermite.arrays import Array


# Tables rather than arrays: for each array that a function is given the compiler carries seven numbers.
Plan = tuple[Integers, Integers, Matrix, Vector]
LINK: Final = 3
ORDER, CLUSTER, POLE, PLACE, COUNT = 0, 1, 2, 3, 4
FIRST, DIRECTION = 0, 1
ACTIVE, TEACHER = 0, 1


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
#: Products of numbers up to which OpenBLAS copies no factor where it has kernels of AVX-512; others copy all.
UNCOPIED = 1e6


@entry
def divide_rows(
    h: float,
    link: Vector,
    directions: tuple[Vector, bool],
    before: clusters.State,
    now: clusters.Whole,
    groups: clusters.Groups,
    cluster: Integers,
    drift: Matrix,
    fast: Switches,
    leading: Integers,
) -> int:
    """Find the clusters of the next step, and the neurons that are fast in it; return the number of clusters.

    `directions` is (a, both_poles): coefficients, and whether −θ is as good as θ. Clusters are written to `groups`,
    `cluster` and `drift` as by `clusters.find_clusters`. `fast` (m,) says which neurons were fast in the last step, and
    takes the new ones; `leading` (m,) takes the direction that each may be about to learn, −1 for none.
    """
    a, both_poles = directions
    count = clusters.find_clusters(h, SLOW, link, a, both_poles, before, now, groups, cluster, drift)
    active = a.copy()
    for c in range(count):
        active[groups[2][c]] = 0.0
    for i in range(cluster.size):
        p, overlap = clusters.nearest_direction(now[0][i], both_poles, active)
        square = overlap * overlap
        leading[i] = p if square > LEADS else -1
        fast[i] = cluster[i] < 0 and square > FAST * (0.5 if fast[i] else 1.0)
    return count


class State(NamedTuple):
    """A state of m neurons: unit vectors U (m, D) and ln n (m,), with field F (m, D) and growth (m,) where known."""

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
        return (*self,)


@dataclass(frozen=True, slots=True)
class Division:
    """A division of m neurons; `plan` is what compiled passes read (see the top of this module)."""

    fast: Switches
    cluster: Integers  # direction of the cluster of each neuron, −1 for none
    sources: Integers  # rows of the fast neurons
    plan: Plan
    #: Places in the order of visit at which blocks begin; the first block holds the sources, if there are any.
    cuts: Integers
    rates: Array  # of the direction and of the norm, (clusters, 2)
    directions: Integers  # that have a cluster, in the order of the plan


@dataclass
class Divider:
    """Divides neurons, step after step, with hysteresis.

    With `both_poles` a neuron at −θ_p is as good as one at θ_p, as it is for an even kernel.
    """

    link: Array  # data of g
    a: Array
    value: float  # g(1)
    slope: float  # g'(1)
    columns: int  # D
    both_poles: bool
    #: Of the last division: direction without a cluster that each neuron may be about to learn, −1 for none.
    leading: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        """Store the rates of direction and norm per coefficient."""
        #: Rates of direction and norm, per teacher coefficient.
        self._rates = np.array([self.slope, 4.0 * self.value])

    def divide(self, state: State, before: State, h: float, last: Division | None) -> tuple[Division, Array]:
        """Return the division at a state, and the drift of its clusters over the last step, shape (clusters, D + 1).

        `before` is the state one step, of length `h` and division `last`, earlier; the same at the start, without one.
        """
        m, P = len(state.U), self.a.size
        most = min(m, P)
        cluster, fast = np.full(m, -1), np.zeros(m, dtype=np.bool_)
        if last is not None:
            cluster, fast = last.cluster.copy(), last.fast.copy()
        pole, self.leading, drift = (
            np.ones(m, dtype=np.int64),
            np.empty(m, dtype=np.int64),
            np.empty((most, self.columns + 1)),
        )
        groups = np.empty(m, dtype=np.int64), np.empty(most + 1, dtype=np.int64), np.empty(most, dtype=np.int64), pole
        directions, states = (self.a, self.both_poles), (before.vectors, state.whole)
        count = divide_rows(h, self.link, directions, *states, groups, cluster, drift, fast, self.leading)
        if last is not None and np.array_equal(cluster, last.cluster) and np.array_equal(fast, last.fast):
            return last, drift[:count]
        return self.assemble(fast, cluster, pole), drift[:count]

    def assemble(self, fast: Switches, cluster: Integers, sign: Array | Integers) -> Division:
        """Return the division of the m neurons, with the plan that compiled passes read.

        `fast` (m,) marks the fast neurons; `cluster` (m,) is the direction of each neuron's cluster, −1 without one,
        and `sign` (m,) the sign of its overlap with that direction.
        """
        m = fast.size
        sources = np.flatnonzero(fast)
        inside = np.flatnonzero(cluster >= 0)
        inside = inside[np.argsort(cluster[inside], kind="stable")]
        directions, first = np.unique(cluster[inside], return_index=True)
        first = sources.size + np.append(first, inside.size).astype(np.int64)
        order = np.concatenate([sources, inside, np.flatnonzero(~fast & (cluster < 0))])
        number = np.full(m, -1, dtype=np.int64)
        number[inside] = np.searchsorted(directions, cluster[inside])
        count = np.ones(m, dtype=np.int64)
        count[sources.size : first[-1]] = 0
        count[first[:-1]] = np.diff(first)
        active = self.a.copy()
        active[directions] = 0.0
        of_rows = np.stack([order, number, sign.astype(np.int64), np.arange(m), count])
        clusters = np.stack([first, np.append(directions, -1)])
        work = BLOCK * sources.size * self.columns
        block = BLOCK if work <= UNCOPIED else BLOCK // 2 if work <= 2 * UNCOPIED else LONGEST_BLOCK
        return Division(
            fast=fast,
            cluster=cluster,
            sources=sources,
            plan=(of_rows, clusters, np.stack([active, self.a]), self.link),
            cuts=_cuts(sources.size, first, m, block),
            rates=self.a[directions, None] * self._rates,
            directions=directions,
        )


def _cuts(sources: int, first: Integers, m: int, block: int) -> Integers:
    """Return the places at which blocks begin, and the end, m: all sources, then clusters, then all other neurons.

    Blocks have about `block` neurons, but clusters are never cut; `first` are the places at which clusters begin.
    """
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
