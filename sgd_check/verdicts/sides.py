r"""One-sided tests whether a sample, some of it censored, lies beyond an edge: p-value and power, for `direction`.

The values are logarithms of times over their prediction; of a run without emergence it is known
that its value lies beyond the horizon h, and no more. The null hypothesis is a law symmetric about the edge e, or about
a place on its allowed side.

*Every run emerged*: Student's t, exact for normal values.

*Some runs did not*, early side: the values x are cut symmetrically about the edge,

.. math:: y = \max(-c, \min(x - e, c)), \qquad c = \min(h - e, \ln 2).

A censored run has y = c, so the cut sample is known completely, and its law is symmetric about 0 if that of x is
symmetric about e. Given the sizes of y the signs are then fair coins, and the chance of a sum as low as the measured
one is counted over all signs (Fisher's randomisation test). So the false alarms are at most the level for every
symmetric law, any number of runs and any share of censored ones.

They stay so for laws on the allowed side of e, and for runs that are censored for other reasons than the horizon,
because *raising a value never lowers the chance of a sum as low as the measured one*: raising y > 0 by u raises the
measured sum by u and no signed sum by more; raising y < 0 by u, which shrinks its size, does the same.

*Some runs did not*, late side: the mirror image, with y = min(x − e, c). Without the cut below, values are lower than
in the mirror image, so by the lemma the conclusion is safe for symmetric laws; and as the mean of y is at most that of
x − e, it is safe for many runs of any law. Earliness has no such second safety: the mean of a law whose late tail is
not seen can be anything, so there the symmetry is needed, as Student's t needs it for few runs.

ln 2 bounds what one run weighs: one that never emerges counts as one that is late by a factor of two, however far the
horizon is. Where the edge lies beyond the horizon, y has a sign alone, and the early side is the sign test. No chance
is below 2⁻ⁿ for n runs. Which of the two tests is made depends on the runs, so together they could alarm more often
than either; measured, they do not (`docs/experiments.md`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hermite.arrays import Array

#: Where some runs are censored, none counts as farther than this from the edge, in ln T.
LARGEST_DISTANCE = float(np.log(2.0))
#: Values are cut no nearer to the edge, in ln T: the horizon may lie on the edge.
SHORTEST_REACH = 1e-9
#: Far beyond this the non-central law of scipy is not a number.
LARGEST_T = 1e5
#: Sums of signed sizes are counted on so many points; rounding the sizes to them keeps the test exact.
SUM_POINTS = 8_000


class Side(NamedTuple):
    """One side of a test: its one-sided p-value, and the probability that the error asked for is seen."""

    p: float
    power: float


def early_side(values: Array, horizon: float, low: float, truth: float, level: float) -> Side | None:
    """Test whether values (runs,), NaN beyond the horizon, lie below an edge; None where no outcome could show it.

    `truth` is the middle of the values if the error that is to be seen is there; where it is not finite no power can be
    stated. `level` is that of the two-sided test of which this is one side. If half of the runs or more are censored
    the middle of their law is not observed, so nothing shows it to be early.
    """
    missing = np.isnan(values)
    if 2 * np.count_nonzero(missing) >= values.size or (missing.any() and not _enough_signs(values.size, level)):
        return None
    return _side(values, horizon, low, truth, level, sign=-1.0)


def late_side(values: Array, horizon: float, high: float, truth: float, level: float) -> Side | None:
    """Test whether values lie above an edge, parameters as of `early_side`; None where no outcome could show it.

    That is so if the edge is not before the horizon, or infinite.
    """
    if not high < horizon or (np.isnan(values).any() and not _enough_signs(values.size, level)):
        return None
    return _side(values, horizon, high, truth, level, sign=1.0)


def middle(values: Array) -> float:
    """Return the mean without the censored runs and as many of the earliest; NaN if half or more are censored."""
    censored = int(np.count_nonzero(np.isnan(values)))
    kept = np.sort(values)[censored : values.size - censored]
    return float(kept.mean()) if kept.size else np.nan


def scatter(values: Array, horizon: float) -> float:
    """Return the standard deviation of values; with censored ones that of the values cut about their middle."""
    centre = middle(values)
    if np.isnan(values).any() and np.isfinite(centre):
        return float(_cut(_distances(values, centre, -1.0), _reach(horizon, centre), -1.0).std(ddof=1))
    return float(np.where(np.isnan(values), horizon, values).std(ddof=1))


def _side(values: Array, horizon: float, edge: float, truth: float, level: float, sign: float) -> Side:
    distances, reach = _distances(values, edge, sign), _reach(horizon, edge)
    if np.isfinite(distances).all():
        p = float(special.stdtr(values.size - 1, -_t_of(distances)))
    else:
        p = _chance_over_signs(_cut(distances, reach, sign) / reach)
    centre = middle(values)
    if not np.isfinite(truth) or np.isnan(centre):
        return Side(p, 0.0)
    moved = np.where(np.isnan(values), np.inf, values - centre + truth)
    moved = np.where(moved > horizon, np.nan, moved)
    return Side(p, _power(_distances(moved, edge, sign), reach, level, sign))


def _power(distances: Array, reach: float, level: float, sign: float) -> float:
    """Return the power of the test for runs of a law of which these distances from the edge are a sample.

    Student's t of the cut distances is a function of their sum and their squares, and is taken to have the non-central
    law; the test over signs rejects from another value of t on.
    """
    freedom = distances.size - 1
    if np.isfinite(distances).all():
        critical = float(special.stdtrit(freedom, 1.0 - 0.5 * level))
    else:
        distances = _cut(distances, reach, sign)
        critical = _critical_t(distances / reach, level)
    if not np.isfinite(critical):
        return 0.0
    # SciPy gives not-a-number for some scores of 40 and more, where less than 1e-90 is missed.
    return float(1.0 - np.nan_to_num(special.nctdtr(freedom, _t_of(distances), critical), nan=0.0))


def _distances(values: Array, edge: float, sign: float) -> Array:
    """Return how far values lie beyond an edge, infinitely far above it where they are not known."""
    missing = np.isnan(values)
    return sign * np.where(missing, np.inf, np.where(missing, 0.0, values) - edge)


def _reach(horizon: float, edge: float) -> float:
    """Return how far from the edge values are cut: at the horizon, or ln 2 if that is nearer."""
    return min(max(abs(horizon - edge), SHORTEST_REACH), LARGEST_DISTANCE)


def _cut(distances: Array, reach: float, sign: float) -> Array:
    """Return distances cut at the reach; on the early side at its mirror image too.

    On the late side one early run is cut where it outweighs all others, since no sum is then positive.
    """
    return np.clip(distances, -reach if sign < 0 else -reach * distances.size, reach)


def _t_of(distances: Array) -> float:
    return _students_t(float(distances.sum()), float(distances @ distances), distances.size)


def _students_t(total: float, squares: float, count: int) -> float:
    """Return Student's t of numbers with this sum and sum of squares, kept within what scipy's laws take."""
    scatter = max(count * squares - total**2, 1e-12 * count * squares, 1e-300)
    return float(np.clip(total / np.sqrt(scatter / (count - 1)), -LARGEST_T, LARGEST_T))


def _sizes(distances: Array) -> NDArray[np.intp]:
    """Return the sizes of numbers of about 1 on a grid of whole numbers."""
    return np.asarray(np.rint(max(1, SUM_POINTS // distances.size) * np.abs(distances)), dtype=np.intp)


def _law_of_minus(sizes: NDArray[np.intp], length: int) -> Array:
    """Return the chances that the sizes with a minus sum to 0, 1, …, by adding one size of random sign at a time."""
    law = np.zeros(length)
    law[0] = 1.0
    for size in sizes.tolist():
        law[size:] += law[: max(length - size, 0)].copy()
        law *= 0.5
    return law


def _chance_over_signs(distances: Array) -> float:
    """Return the chance that numbers of these sizes and random signs have at least this sum; 1 if it is not positive.

    That is the chance that those with a minus sum to at most what they do.
    """
    sizes = _sizes(distances)
    minus, plus = (int(sizes[which].sum()) for which in (distances < 0, distances > 0))
    return float(_law_of_minus(sizes, minus + 1).sum()) if minus < plus else 1.0


def _critical_t(distances: Array, level: float) -> float:
    """Return Student's t from which on the test over signs rejects numbers of these sizes; inf if it never does."""
    sizes = _sizes(distances)
    whole = int(sizes.sum())
    law = _law_of_minus(sizes, min(whole // 2, SUM_POINTS) + 1)
    possible = np.flatnonzero(law)
    rejected = int(np.count_nonzero(np.cumsum(law[possible]) < 0.5 * level))
    if rejected in (0, possible.size):
        return np.inf if rejected == 0 else 0.0
    # The sum has gaps; halfway between the last that is rejected and the next.
    minus = 0.5 * float(possible[rejected - 1] + possible[rejected])
    return _students_t(whole - 2.0 * minus, float(np.sum(sizes.astype(np.float64) ** 2)), sizes.size)


def _enough_signs(runs: int, level: float) -> bool:
    """Return whether runs that are all on one side are beyond the level."""
    return bool(2.0 * 0.5**runs < level)
