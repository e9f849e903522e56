"""Corrections at the end of a step, where the full field is known: of rows for the lag, of clusters for slowing.

Within a step the stiff means of a cluster move as they did in the last one, so that they end a distance b from their
slow manifold, of the order h² of its curvature. Other neurons would feel a cluster in the wrong place: one that has
little mass, at rest beside learned directions, sums that up over its whole life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators.clusters import NOTICED
from dynamics.integrators.large_flow.event_kernels import curvatures
from dynamics.integrators.large_flow.landing_kernels import largest_overlaps, shift_clusters, weigh_shifts
from dynamics.integrators.large_flow.settle_kernels import settle_rows

if TYPE_CHECKING:
    from dynamics.integrators.large_flow.rests import Rests
    from dynamics.integrators.large_flow.rows import Rows, Step
    from hermite.arrays import Array

#: Part of a step that an error of what distant sources were expected to exert at its end is worth: rows leave an even
#: motion like the square of the time.
SHARE_AHEAD = 1.0 / 3.0
#: Part of that from which on clusters move too when another is noticed: a few of hundreds, late in a large flow.
MOVED = 0.1


def settle(rows: Rows, rests: Rests, step: Step, h_last: float | None, kappa: float) -> float:
    """Evaluate the full field at the end of a step, correct the step by it; return the error of lag and clusters.

    The error is in units of the lag's tolerance. The free slot of `rests` takes the end of the step. `h_last` is the
    length of the step before, None at the first, and modes are slowed to κ relaxations per step.
    """
    h, correction, slot, state = step.h, rests.correction(step.h), rests.free_slot(), step.reached
    rows.field(state.U, state.log_norm, state.F, state.growth)
    rows.partial(state, rests.rest[slot], rests.rest_growth[slot], compares=True)
    lag = (*step.rests[:3], step.rests.at_end, rests.rest[slot], rests.rest_growth[slot], *rows.ahead)
    displaced = _land(rows, rests, step, lag, correction, slot, h_last, kappa)

    def part(begin: int, end: int) -> None:
        shares = correction, h * SHARE_AHEAD
        settle_rows(begin, end, *shares, step.division.cluster, state.whole, lag, step.end.vectors, rows.miss)

    rows.workers.over_rows(part)
    share = h / (rests.newest_first.size + 1.0)
    off = np.maximum(share * rows.miss.max(axis=0) * (1.0, 4.0), displaced)
    excess = float((off / rows.lag_tolerance).max())
    return excess if np.isfinite(excess) else np.inf


def _land(
    rows: Rows,
    rests: Rests,
    step: Step,
    lag: tuple[Any, ...],
    correction: float,
    slot: int,
    h_last: float | None,
    kappa: float,
) -> Array:
    """Move the clusters where a step ends to where they belong, if others notice it; return how far that is.

    Slot `slot` holds the state where the stages end, its field, and its partial field as the rest, and `lag` is what
    kernels are told of that. What is moved is moved there, other rows by `correction` times the error of the rest; the
    fields follow. Returned are the largest distances of a mean direction and of a mean ln n from where they belong.
    """
    division, h, state = step.division, step.h, step.reached
    count = division.directions.size
    if count == 0:
        return np.zeros(2)
    # Modes that relax less than κ within a step are not slowed.
    follows = -np.expm1(-np.maximum(h * division.rates - kappa, 0.0))
    shift, size = np.empty((2, *step.drift.shape)), np.empty((count, 3))
    overlaps, curvature = np.empty(rows.a.size), np.empty(rows.a.size)
    largest_overlaps(state.U, division.cluster, overlaps)
    curvatures(rows.link, overlaps, curvature)
    ratio = 0.0 if h_last is None else h / (h + h_last)
    modes = division.rates, follows, rests.relaxed_correction(h, division.rates), step.drift
    out = curvature, shift, size

    def weigh(begin: int, end: int) -> None:
        weigh_shifts(begin, end, h, ratio, modes, step.begin.vectors, state.whole, lag, out, division.plan)

    rows.workers.over_parts(count, weigh)
    noticed = h * size[:, 2] / (NOTICED * rows.lag_tolerance[0])
    if not noticed.max() <= 1.0:
        order, first = division.order, division.first
        moves = ~(noticed <= MOVED)
        chosen, moved = np.flatnonzero(moves), order[first[0] : first[-1]][np.repeat(moves, np.diff(first))]
        before = state.U[moved], np.exp(state.log_norm[moved])
        shift_clusters(chosen, correction, state.whole, lag, shift, division.plan)
        rows.follow(state, moved, before)
        blocks = np.unique(np.searchsorted(division.cuts, first[chosen], side="right") - 1)
        rows.partial(state, rests.rest[slot], rests.rest_growth[slot], blocks)
    largest: Array = size[:, :2].max(axis=0)
    return largest
