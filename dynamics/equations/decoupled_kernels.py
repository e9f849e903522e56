"""Compiled sum of the losses of many isolated pairs, all read from one table of the universal trajectory.

Its cells hold g(1) − g, e^(−4Γ) and X as functions of R, the time to wait, negative once it has passed.
"""

import numpy as np

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import entry, kernel

_OCTAVE_BITS = 8
_SHIFT = 52 - _OCTAVE_BITS
_FIRST = 1023 << _OCTAVE_BITS
_MASK = (1 << _SHIFT) - 1
_UNIT = 2.0**-_SHIFT


def octave_edges(octaves: int) -> Vector:
    """Return the edges y − 1 of cells that split every octave of y = 1 … 2^octaves into 256 equal parts."""
    count = 1 << _OCTAVE_BITS
    within = 1.0 + np.arange(count) / count
    return np.append((2.0 ** np.arange(octaves)[:, None] * within).ravel(), 2.0**octaves) - 1.0


@entry
def add_pair_losses(
    loss: Vector,
    times: Vector,
    coefficient: Vector,
    remaining: Vector,
    ratio: Vector,
    cells: Matrix,
    offset: int,
    places: Vector,
    norm: float,
    end: Vector,
) -> None:
    """Add Σ_p a_p² ℓ(t) to `loss`, ℓ = g(1) (1 − 1/v)² + 2 (g(1) − g) / v.

    Row i of `cells` holds four powers of the place within the cell for each of the three functions.  Rows from `offset`
    on are for R ≥ 0, in octaves of 1 + places[0] R.  Those before are for R < 0, in octaves of 1 − places[1] R, or in
    equal cells of 1 / places[1] if places[2] is 0.  `end` holds R, the signal g and g(1) − g beyond the table.  Times
    increase.
    """
    last_remaining, last_signal, last_gap = end[0], end[1], end[2]
    final = norm / last_signal if last_signal > 0.0 else 0.0
    values = np.empty(3)
    _look_up(cells, offset, last_remaining, places, values)
    end_shrink, end_excess = values[1], values[2]
    for p in range(coefficient.size):
        a, start = coefficient[p], remaining[p]
        _look_up(cells, offset, max(start, last_remaining), places, values)
        excess = values[2]
        weight = ratio[p] / values[1]
        # What the pair has become at the end of the table, from where it relaxes exponentially.
        whole = max(start - last_remaining, 0.0) + excess - end_excess
        at_end = end_shrink * (weight + 4.0 * norm * whole)
        for i in range(times.size):
            now = start - a * times[i]
            if now > last_remaining:
                _look_up(cells, offset, now, places, values)
                v = values[1] * (weight + 4.0 * norm * (a * times[i] + excess - values[2]))
                gap = values[0]
            else:
                v = final + (at_end - final) * np.exp(4.0 * last_signal * (now - min(last_remaining, start)))
                gap = last_gap
                if last_gap == 0.0 and final == 1.0 and abs(v - 1.0) < 1e-12:
                    break
            inverse = 1.0 / v
            rest = 1.0 - inverse
            loss[i] += a * a * (norm * rest * rest + 2.0 * gap * inverse)


@kernel
def _look_up(cells: Matrix, offset: int, remaining: float, places: Vector, values: Vector) -> None:
    """Fill `values` with the three functions at R by the cubic of its cell."""
    if remaining < 0.0 and places[2] == 0.0:
        place = -remaining * places[1]
        row = min(int(place), offset - 1)
        theta = place - row
    else:
        passed = remaining < 0.0
        # The leading bits of a number are its octave and its cell, the others its place within.
        bits = np.float64(1.0 + (-remaining * places[1] if passed else remaining * places[0])).view(np.int64)
        row = int((bits >> _SHIFT) - _FIRST)
        theta = (bits & _MASK) * _UNIT
        limit = offset if passed else cells.shape[0] - offset
        if row >= limit:
            row, theta = limit - 1, 1.0
        if not passed:
            row += offset
    for j in range(3):
        c = 4 * j
        values[j] = cells[row, c] + theta * (
            cells[row, c + 1] + theta * (cells[row, c + 2] + theta * cells[row, c + 3])
        )
