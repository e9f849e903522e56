"""Every matched pair of neuron and direction alone: the exact solution, without time stepping.

The loss of a pair is a² ℓ, with v = a / n and g the signal,

    a² g(1) − 2 n a g + n² g(1) = a² [g(1) (1 − 1/v)² + 2 (g(1) − g) / v],

free of cancellation when the pair has converged. Unmatched directions keep their a_p² g(1). Cells of the loss hold
g(1) − g, e^(−4Γ) and X as functions of R, the time to wait, negative once it has passed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from dynamics.cores import available_cores
from dynamics.equations.transit import logit_of_square, polynomial, transit_table
from dynamics.kernels.jit import entry, kernel
from dynamics.signals import stop_if_heard
from hermite.arrays import Matrix, Vector

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from dynamics.equations.transit import TransitTable
    from dynamics.problem import Problem
    from dynamics.theory.prediction import EmergencePrediction
    from hermite.arrays import Array, Integers

#: Bits of a double below those of its octave and of the 256 cells in it, and the value of the higher bits at 1.
_SHIFT, _FIRST = 44, 1023 << 8


def octave_edges(octaves: int) -> Vector:
    """Return the edges of cells in y − 1, y = 1 … 2^octaves, 256 equal ones per octave, shape (256 octaves + 1,)."""
    within = 1.0 + np.arange(256) / 256
    return np.append((2.0 ** np.arange(octaves)[:, None] * within).ravel(), 2.0**octaves) - 1.0


@entry
def add_pair_losses(
    loss: Vector, times: Vector, coefficient: Vector, remaining: Vector, ratio: Vector, cells: Matrix, offset: int,
    places: Vector, norm: float, end: Vector,
) -> None:  # fmt: skip
    """Add Σ_p a_p² ℓ_p(t) to `loss` (T,) at increasing times t; a_p² ℓ_p is the loss of pair p.

    ℓ = g(1) (1 − 1/v)² + 2 (g(1) − g)/v with v = a/n, n the squared norm of the neuron, g the signal. Of pairs (P,),
    `coefficient` is a, `remaining` R at the start and `ratio` a/n at the start; `norm` is g(1).

    Row i of `cells` holds four powers of the place within the cell for each of the three functions. Rows from `offset`
    on are for R ≥ 0, in octaves of 1 + places[0] R. Those before are for R < 0, in octaves of 1 − places[1] R, or in
    equal cells of 1 / places[1] if places[2] is 0. `end` holds R, the signal g and g(1) − g beyond the table.
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
        # The pair at the end of the table; it relaxes exponentially from there.
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
            deficit = 1.0 - inverse
            loss[i] += a * a * (norm * deficit * deficit + 2.0 * gap * inverse)


@kernel
def _look_up(cells: Matrix, offset: int, remaining: float, places: Vector, values: Vector) -> None:
    """Write g(1) − g, e^(−4Γ) and X at the time to wait R = `remaining` to `values` (3,), by the cubic of its cell."""
    if remaining < 0.0 and places[2] == 0.0:
        place = -remaining * places[1]
        row = min(int(place), offset - 1)
        theta = place - row
    else:
        passed = remaining < 0.0
        # The leading bits of a number are its octave and its cell, the others its place within.
        bits = np.float64(1.0 + (-remaining * places[1] if passed else remaining * places[0])).view(np.int64)
        row = int((bits >> _SHIFT) - _FIRST)
        theta = (bits & ((1 << _SHIFT) - 1)) * 2.0**-_SHIFT
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


#: ξ of the largest C below 1 that float64 tells from 1.
LARGEST_LOGIT = 36.0
#: Number of directions above which histories are not kept.
LARGEST_HISTORY = 10_000

NOTE_CONSTANT = "the link has c_0 != 0: norms and loss are NaN, because neurons grow from the start"
NOTE_DIRECTIONS = "the teacher's directions are not orthonormal: the loss is NaN, because directions share it"
NOTE_BEYOND = (
    "some pairs start where their own pull is adverse and are not followed: their overlaps and the loss are NaN"
)
NOTE_LEFTOVER = "neurons matched with no direction are ignored"

_HISTORY_CHUNK = 1 << 18
_SUM_CHUNK = 1 << 16
_PASSED_CELLS = 512.0
_MOST_THREADS = 8


@dataclass(frozen=True, slots=True, eq=False)
class DecoupledSolution:
    """Overlaps, squared norms and loss of all pairs at T times, dimensionless."""

    #: C and n of the matched neuron, (T, P), NaN for directions without one; None above P = 10^4.
    overlap: Array | None
    squared_norm: Array | None
    #: Mean squared error without ½, NaN where no formula holds.
    loss: Array
    #: Effects that the numbers leave out.
    notes: tuple[str, ...] = ()


def solve_pairs(problem: Problem, prediction: EmergencePrediction, times: ArrayLike) -> DecoupledSolution:
    """Solve every matched pair alone, at increasing flow times t ≥ 0 (T,), for an information exponent of at least 3.

    Histories are accurate to about 1e-12; the loss above P = 10^4, read from a coarser table, to about 1e-9 relative
    down to 1e-14.
    """
    t = np.asarray(times, dtype=np.float64)
    c, a = problem.activation.coefficients, problem.teacher.coefficients
    notes = [NOTE_LEFTOVER] if problem.width > np.count_nonzero(prediction.learning_neuron >= 0) else []
    histories = np.full((2, t.size, a.size), np.nan) if a.size <= LARGEST_HISTORY else None
    unmatched = ~(np.abs(prediction.learning_overlap) > 0.0)
    loss = np.full(t.size, float(np.sum(c[1:] ** 2)) * float(np.sum(a[unmatched] ** 2)))
    for sign in (1, -1):
        pairs = np.flatnonzero(np.sign(prediction.learning_overlap) == sign)
        if pairs.size > 0:
            part, beyond = _branch_loss(problem, prediction, t, pairs, sign, histories)
            loss += part
            notes += [NOTE_BEYOND] if beyond else []
    overlap, squared_norm = (None, None) if histories is None else histories
    if c[0] != 0.0:
        notes.append(NOTE_CONSTANT)
        squared_norm = None if squared_norm is None else np.full_like(squared_norm, np.nan)
    if not problem.teacher.is_orthonormal:
        notes.append(NOTE_DIRECTIONS)
    if {NOTE_BEYOND, NOTE_CONSTANT, NOTE_DIRECTIONS}.intersection(notes):
        loss[:] = np.nan
    return DecoupledSolution(overlap, squared_norm, loss, tuple(notes))


def _branch_loss(
    problem: Problem, prediction: EmergencePrediction, times: Array, pairs: Integers, sign: int, histories: Array | None
) -> tuple[Array, bool]:
    """Return the loss (T,) of the pairs whose overlap has one sign, and whether some start beyond the barrier.

    `histories` (2, T, P), overlaps and squared norms, are filled for these pairs unless they are None.
    """
    a, C = problem.teacher.coefficients, prediction.learning_overlap[pairs]
    # |C| = 1 is at infinity; the largest C below it moves as little.
    xi = np.minimum(logit_of_square(C), LARGEST_LOGIT)
    table = transit_table(problem.activation.coefficients, sign, float(xi.min()))
    below_barrier = xi < table.barrier
    pairs, xi = pairs[below_barrier], xi[below_barrier]
    ratio = a[pairs] / prediction.learning_squared_norm[pairs]
    if histories is None:
        return _summed_loss(table, times, a[pairs], xi, ratio), not below_barrier.all()
    return _histories(table, times, a, pairs, xi, ratio, sign, histories), not below_barrier.all()


@np.errstate(under="ignore")
def _histories(
    table: TransitTable, times: Array, a: Array, pairs: Integers, xi: Array, ratio: Array, sign: int, histories: Array
) -> Array:
    """Write overlaps and squared norms of pairs to their columns of `histories` (2, T, P); return their loss (T,).

    `xi` and `ratio` are ξ = ln(C²/(1 − C²)) and a/n of the pairs at the start.
    """
    (overlap, squared_norm), loss = histories, np.zeros_like(times)
    chunk = max(_HISTORY_CHUNK // times.size, 1)
    for begin in range(0, pairs.size, chunk):
        part = slice(begin, begin + chunk)
        columns, start = pairs[part], xi[part]
        elapsed = times[:, None] * a[columns]
        waiting = table.remaining(start)
        logit = table.logit_at(waiting - elapsed)
        # At the start itself the inverse would return ξ_0 up to rounding.
        logit = np.where(elapsed == 0.0, start, np.maximum(logit, start))
        v = table.scaled_inverse_norm(start, ratio[part], elapsed, logit)
        overlap[:, columns] = sign * np.sqrt(scipy.special.expit(logit))
        squared_norm[:, columns] = a[columns] / v
        loss += (table.norm * (1.0 - 1.0 / v) ** 2 + 2.0 * table.gap(logit) / v) @ a[columns] ** 2
    return loss


def _summed_loss(table: TransitTable, times: Array, a: Array, xi: Array, ratio: Array) -> Array:
    """Return the loss (T,) of many pairs by the compiled sum, in chunks of pairs.

    a are their coefficients, `xi` and `ratio` ξ = ln(C²/(1 − C²)) and a/n at the start.
    """
    total = np.zeros_like(times)
    if a.size == 0:
        return total
    pairs = PairLosses.of(table, float(xi.min()))

    def chunk_loss(begin: int) -> Array:
        """Return the loss (T,) of the pairs from index `begin` on, one chunk."""
        part = slice(begin, begin + _SUM_CHUNK)
        return pairs.loss(times, a[part], xi[part], ratio[part])

    # Chunks are summed in order, not as threads finish, so that every machine gives the same bits.
    with ThreadPoolExecutor(min(available_cores(), _MOST_THREADS)) as pool:
        try:
            for loss in pool.map(chunk_loss, range(0, a.size, _SUM_CHUNK)):
                total += loss
                stop_if_heard()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return total


class PairLosses(NamedTuple):
    """The compiled sum over pairs with its table, which serves all pairs of one link and one sign of overlaps."""

    table: TransitTable
    cells: Array
    offset: int
    places: Array
    #: R, the signal g and g(1) − g beyond the table.
    end: Array

    @classmethod
    def of(cls, table: TransitTable, lowest: float) -> PairLosses:
        """Return the sum over pairs that start at ξ = ln(C²/(1 − C²)) ≥ `lowest`."""
        cells, offset, places = _layout(table, float(table.remaining(np.array([lowest]))[0]))
        return cls(table, cells, offset, places, np.array([-table.waiting[-1], table.end_signal, table.end_gap]))

    def loss(self, times: Array, a: Array, xi: Array, ratio: Array) -> Array:
        """Return the loss of pairs (P,) at increasing flow times (T,), Σ_p [a² g(1) − 2 n a g + n² g(1)], shape (T,).

        a are the coefficients, `xi` and `ratio` ξ = ln(C²/(1 − C²)) and a/n at the start; all is dimensionless.
        """
        loss, times = np.zeros_like(times), times.copy()  # compiled code takes no read-only arrays
        waiting = self.table.remaining(xi)
        add_pair_losses(loss, times, a, waiting, ratio, self.cells, self.offset, self.places, self.table.norm, self.end)
        return loss


def _layout(table: TransitTable, largest: float) -> tuple[Array, int, Array]:
    """Return the cells (rows, 12), the row at which R ≥ 0 begins, and three numbers that lead from R to a cell.

    R is the time to wait, and `largest` the largest one.
    """
    fastest = float(np.sum(np.arange(table.powers.size) * np.abs(table.powers)))
    octaves = int(np.ceil(np.log2(1.0 + max(largest * fastest, 1.0))))
    positive_edges = octave_edges(octaves) / fastest
    # The last cell ends at the last knot itself, where the exponential relaxation takes over.
    last, trapped = float(table.waiting[-1]), bool(np.isfinite(table.barrier))
    if trapped:
        octaves = int(np.ceil(np.log2(1.0 + last * fastest)))
        factor = (2.0**octaves - 1.0) / last
        negative_edges = -octave_edges(octaves) / factor
    else:
        count = int(np.ceil(last * fastest * _PASSED_CELLS))
        factor = count / last
        negative_edges = -np.arange(count + 1.0) / factor
    cells = np.concatenate([_cells(table, negative_edges), _cells(table, positive_edges)])
    return cells, negative_edges.size - 1, np.array([fastest, factor, float(trapped)])


def _cells(table: TransitTable, edges: Array) -> Array:
    """Return cubics that interpolate three functions of the time to wait R between `edges`, shape (cells, 12).

    The functions are g(1) − g, with the signal g; e^(−4Γ), with the growth Γ; and the excess X, dX/dR = e^(4Γ) − 1.
    Each takes four columns: the coefficients of 1, s, s² and s³, where s runs from 0 to 1 within a cell. A cubic has
    the value and the slope of the function at both edges.
    """
    xi = table.logit_at(edges)
    slope = polynomial(np.arange(1, table.powers.size) * table.powers[1:], np.sqrt(scipy.special.expit(xi)))
    growth = 4.0 * table.growth(xi)
    width = np.diff(edges)
    columns: list[Array] = []
    # d/dR = −d/dτ.
    for value, rate in (
        (table.gap(xi), slope**2 * scipy.special.expit(-xi)),
        (np.exp(-growth), 4.0 * table.signal(xi) * np.exp(-growth)),
        (table.excess(xi), np.expm1(growth)),
    ):
        begin_slope, end_slope, rise = width * rate[:-1], width * rate[1:], np.diff(value)
        columns += [
            value[:-1],
            begin_slope,
            3.0 * rise - 2.0 * begin_slope - end_slope,
            begin_slope + end_slope - 2.0 * rise,
        ]
    return np.ascontiguousarray(np.stack(columns, axis=1))
