"""Tables of the one-step moments: from Hermite coefficients to the arrays that the kernels walk through.

The mathematics is in `dynamics.equations.finite_step.step_moments`, the general part of it in `hermite.moments`; names
of rows are those of `dynamics.equations.finite_step.step_moments_kernels`.

`numbers`: c_j² for j = 0 … K | per group the coefficients (of base, of slope) of each power of G_ij | per term its two
weights. `layout`: the header below | singles (e, r) | segments (e, first mixed, count, first row) | mixed (r, s) | per
group the first term and the first coefficient, with the end | powers of the coefficients | per term, for its Y row and
its X or U row: start, and the multiples of i, j and m − i, in rows, that are added to it.

| places of the header | what |
|---|---|
| 0–3 | m, P, largest power of Q, degree K |
| 4–8 | numbers of singles, segments, mixed, groups, terms |
| 9–14 | starts in `work` of powers of Q, drift, U, Y of singles, X, Y of mixed |
| 15–20 | starts in `layout` of singles, segments, mixed, groups, powers, terms |
| 21–22 | starts in `numbers` of coefficients, weights |
| 23 | start in `work` of the powers of G_ij |
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hermite.arrays import Array, Integers
from hermite.moments import contracted_pair, count_diagrams, diagrams, mean_derivatives

#: The list takes half a second there. All links up to degree 20 pass, and pure h_k up to k = 70.
MOST_DIAGRAMS = 260_000
HEADER = 24


class MomentTables(NamedTuple):
    """Weights and coefficients, sizes and places, and the size of the scratch, which `step_moments` takes."""

    numbers: Array
    layout: Integers
    work_size: int


class _Link(NamedTuple):
    """What depends on the link alone; rows of `edges` and `weights` are sorted by `group`."""

    squares: Array
    edges: Integers
    weights: Array
    group: Integers
    factors: list[Array]


class _Rows(NamedTuple):
    """Which rows are made: (r, s) of X, (e, r) of Y from U, (e, first of X, count, first row) of Y from X."""

    mixed: list[tuple[int, int]]
    singles: list[tuple[int, int]]
    segments: list[tuple[int, int, int, int]]

    @property
    def segment_rows(self) -> int:
        return sum(count for _, _, count, _ in self.segments)


def moment_tables(coefficients: Array, width: int, num_directions: int, *, slope_only: bool = False) -> MomentTables:
    """Return the tables for a link Σ_k c_k h_k, m neurons and P directions.

    `slope_only` leaves out what does not grow with d. Raises ValueError if the link has more than MOST_DIAGRAMS
    diagrams.
    """
    link = _link(tuple(np.trim_zeros(coefficients, "b").tolist()), slope_only)
    rows = _rows(link.edges)
    m, M = width, width + num_directions
    # Every row is U, X or Y of at most max(1, K) legs.
    top = max(1, link.squares.size - 1)
    sizes = {
        "lengths": M + m,
        "powers": (top + 1) * M * M,
        "drift": 2 * m * M + m,
        "U": (top + 1) * m * M,
        "single": len(rows.singles) * m * M,
        "X": len(rows.mixed) * m * M,
        "Y": rows.segment_rows * m * M,
        "s": link.squares.size + 3,
    }
    ends = np.cumsum(list(sizes.values())).tolist()
    at = {name: end - size for (name, size), end in zip(sizes.items(), ends, strict=True)}
    terms = _operands(link.edges, rows, at, m * M)

    occurring = [np.flatnonzero(factor.any(axis=0)) for factor in link.factors]
    factors = [factor[:, powers].T.ravel() for factor, powers in zip(link.factors, occurring, strict=True)]
    count = len(link.factors)
    first_term = np.searchsorted(link.group, np.arange(count + 1))
    first_coefficient = np.cumsum([0, *(powers.size for powers in occurring)])
    groups = np.stack([first_term, first_coefficient], axis=1)

    lists = (rows.singles, rows.segments, rows.mixed, groups, np.concatenate(occurring), terms)
    parts = [np.array(part, dtype=np.int64).ravel() for part in lists]
    starts = np.cumsum([HEADER, *(part.size for part in parts)]).tolist()
    coefficients_at = link.squares.size
    weights_at = coefficients_at + 2 * int(first_coefficient[-1])
    header = [m, num_directions, top, link.squares.size - 1]
    header += [len(rows.singles), len(rows.segments), len(rows.mixed), count, terms.shape[0]]
    header += [at[name] for name in ("powers", "drift", "U", "single", "X", "Y")]
    header += [*starts[:-1], coefficients_at, weights_at, at["s"]]
    layout = np.concatenate([np.array(header, dtype=np.int64), *parts])
    numbers = np.concatenate([link.squares, *factors, link.weights.ravel()])
    return MomentTables(numbers, layout, ends[-1])


def _rows(edges: Integers) -> _Rows:
    """Return the rows that the diagrams need, X sorted by r + s so that a segment of it is one matrix."""
    halves = [(r, s) for row in edges.tolist() for r, s in (row[1:3], row[3:5])]
    mixed = sorted({pair for pair in halves if min(pair) > 0}, key=lambda pair: (sum(pair), pair))
    left = edges[:, :3].tolist()
    segments: list[tuple[int, int, int, int]] = []
    for e, legs in sorted({(e, r + s) for e, r, s in left if r * s > 0}):
        members = [x for x, pair in enumerate(mixed) if sum(pair) == legs]
        first_row = sum(count for _, _, count, _ in segments)
        segments.append((e, members[0], len(members), first_row))
    return _Rows(mixed, sorted({(e, r + s) for e, r, s in left if r * s == 0}), segments)


def _operands(edges: Integers, rows: _Rows, at: dict[str, int], matrix_size: int) -> Integers:
    """Return where the two rows of each diagram lie, shape (D, 8); the left one is Q^(∘e) times what it is made of."""
    shift = {(e, sum(rows.mixed[x])): row - x for e, x, _, row in rows.segments}
    mixed = {pair: x for x, pair in enumerate(rows.mixed)}
    singles = {pair: x for x, pair in enumerate(rows.singles)}
    terms = np.empty((edges.shape[0], 8), dtype=np.int64)
    for term, (e, r, s, r2, s2) in zip(terms, edges.tolist(), strict=True):
        if r * s > 0:
            term[:4] = at["Y"], -1, 1, mixed[r, s] + shift[e, r + s]
        else:
            term[:4] = at["single"] + singles[e, r + s] * matrix_size, s == 0, s > 0, 0
        if r2 * s2 > 0:
            term[4:] = at["X"], -1, 1, mixed[r2, s2]
        else:
            term[4:] = at["U"] + (r2 + s2) * matrix_size, s2 == 0, s2 > 0, 0
    return terms


@lru_cache(maxsize=32)
def _link(coefficients: tuple[float, ...], slope_only: bool) -> _Link:
    """Return the diagrams of a link, grouped by (r + r', s + s'), with the factors of each group in powers of G_ij."""
    hat = mean_derivatives(coefficients or (0.0,))
    k, size = np.arange(hat.size + 1.0), hat.size + 1
    padded = np.concatenate([np.zeros(1), hat, np.zeros(4)])
    below, here, above, next_above = (padded[shift : shift + size] for shift in range(4))
    euler = k * here + next_above
    count = count_diagrams(hat, euler)
    if count > MOST_DIAGRAMS:
        msg = (
            "Argument `problem` must have a link of lower degree or of fewer terms for exact one-step moments, but "
            f"degree {hat.size - 1} with {np.count_nonzero(hat)} terms gives up to {count} diagrams, "
            f"more than {MOST_DIAGRAMS}."
        )
        raise ValueError(msg)
    slope = contracted_pair(above, above, size)
    base = np.zeros_like(slope)
    if not slope_only:
        alpha = (2.0 - k) * here - next_above
        beta = (1.0 - k) * above + k * (3.0 - k) * below
        base[:, :, 1:] = contracted_pair(alpha, alpha, size)[:, :, :-1]
        base += contracted_pair(beta, above, size) + contracted_pair(above, beta, size)
    has_slope: NDArray[np.bool_] = np.any(slope, axis=2)
    table = diagrams(hat, euler, np.logical_or(has_slope, np.any(base, axis=2)))
    legs = table.edges[:, 1:3] + table.edges[:, 3:5]
    weights = table.weights * [1.0, 0.0 if slope_only else 2.0]
    weights[~has_slope[legs[:, 0], legs[:, 1]], 1] = 0.0
    used = weights.any(axis=1)
    # Group 0 is [0, 0] whether or not a diagram is in it: it multiplies the variance of the label noise.
    code = (legs[:, 0] * size + legs[:, 1])[used]
    codes, group = np.unique(np.append(code, 0), return_inverse=True)
    group = group[:-1]
    order = np.argsort(group, kind="stable")
    factors = [np.stack([base[c // size, c % size], slope[c // size, c % size]]) for c in codes.tolist()]
    return _Link(
        squares=np.square(coefficients or (0.0,)),
        edges=table.edges[used][order],
        weights=weights[used][order],
        group=group[order],
        factors=factors,
    )
