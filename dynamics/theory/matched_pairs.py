"""Pairs of a neuron and the direction that it learns, from information exponent 3 on: who they are, and their times.

What is computed for many problems at once has the same last bits as for each alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations.transit.transit import logit_of_square, transit_table
from dynamics.theory.matching import draw_matched_overlaps, draw_on_both_sides, match_by_strength, match_greedily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.equations.transit.transit import TransitTable
    from dynamics.problem import Problem
    from dynamics.theory.sides import FarSide
    from hermite.arrays import Array, Integers

#: Entries of the m×P overlap matrix above which matched overlaps are drawn from their distribution.
LARGEST_MATRIX = 1 << 24

_CHUNK = 1 << 17
#: Directions that a note lists.
_LISTED = 5


class Pairs(NamedTuple):
    """A neuron per direction (−1 for none), its overlap and its squared norm (NaN for none)."""

    neuron: Integers
    overlap: Array
    squared_norm: Array


def matched_pairs(problem: Problem, side: FarSide | None) -> tuple[Pairs, Pairs, bool]:
    """Return the pairs that come first, those that learn, and whether they were drawn from their distribution."""
    a, k = problem.teacher.coefficients, problem.information_exponent
    too_large = problem.width * a.size > LARGEST_MATRIX
    if too_large and problem.start_is_random and problem.teacher.is_orthonormal:
        m, d, seed = problem.width, problem.dimension, problem.seed
        if side is None:
            found = [draw_matched_overlaps(a, m, d, k, seed)]
        else:
            found = list(draw_on_both_sides(a, m, d, side.equivalent, side.learns, seed))
        drawn = [Pairs(i, C, np.where(i >= 0, problem.initial_norm**2, np.nan)) for i, C in found]
        return drawn[0], drawn[-1], True
    start = problem.start()
    C, squared_norm = start.teacher_overlap, start.squared_norm

    def pairs(neuron: Integers) -> Pairs:
        found = neuron >= 0
        overlap = np.where(found, C[neuron, np.arange(a.size)], np.nan)
        return Pairs(neuron, overlap, np.where(found, squared_norm[neuron], np.nan))

    if side is None:
        matched = pairs(match_greedily(a, C, k))
        return matched, matched, False
    first, learning = match_by_strength(a, side.equivalent(C), (C > 0.0) | side.learns, k)
    return pairs(first), pairs(np.where(learning >= 0, learning, first)), False


def side_notes(side: FarSide, first: Pairs, learning: Pairs) -> list[str]:
    """Say which directions are matched with a neuron on the side of −θ, and what that means."""
    there = np.flatnonzero(first.overlap < 0.0)
    if there.size == 0:
        return []
    left = int(np.count_nonzero(learning.overlap[there] < 0.0))
    listed = ", ".join(str(p + 1) for p in there[:_LISTED]) + (", ..." if there.size > _LISTED else "")
    where, does = ("at -theta", "emerges there") if side.emerges else ("on the side of -theta", "never emerges")
    note = (
        f"the link has no parity: a neuron {where} has {side.share:.2g} of a direction and leaves "
        f"{1.0 - side.share**2:.2g} of its loss; the matched neuron starts on that side and {does} for {there.size} of "
        f"{first.overlap.size} directions (p = {listed})"
    )
    if not side.learns:
        note += f", of which {there.size - left} are learned by another neuron, at times predicted as if it were alone"
        note += f", and {left} never" if left else ""
    return [note]


def leading_order(problem: Problem, overlap: Array) -> Array:
    """Return the leading-order times T_p; inf where there is no pair."""
    k = problem.information_exponent
    scale = k * (k - 2) * problem.activation.coefficients[k] ** 2 * problem.teacher.coefficients
    with np.errstate(over="ignore"):
        time = 1.0 / scale * np.abs(overlap) ** -float(k - 2)
    return np.where(np.isnan(time), np.inf, time)


class _Asked(NamedTuple):
    """Pairs of one problem whose times one table tells."""

    #: Number of the problem, and the directions.
    which: int
    here: Integers
    #: ξ at the start, a, and a / n_0.
    xi: Array
    a: Array
    ratio: Array


def pair_times(asked: Sequence[tuple[Problem, Pairs]]) -> list[tuple[Array, Array]]:
    """Return emergence and learned times of the pairs of each problem; inf where there is no pair."""
    found = [(np.full(pairs.overlap.size, np.inf), np.full(pairs.overlap.size, np.inf)) for _, pairs in asked]
    by_table: dict[TransitTable, list[_Asked]] = {}
    for which, (problem, pairs) in enumerate(asked):
        a = problem.teacher.coefficients
        # The branches of an even link are alike, and small problems pay by the call.
        branch = np.sign(np.abs(pairs.overlap) if problem.activation.parity == "even" else pairs.overlap)
        for sign in (1, -1):
            here = np.flatnonzero(branch == sign)
            if here.size == 0:
                continue
            xi = logit_of_square(pairs.overlap[here])
            table = transit_table(problem.activation.coefficients, sign, float(xi.min()))
            own = _Asked(which, here, xi, a[here], a[here] / pairs.squared_norm[here])
            by_table.setdefault(table, []).append(own)
    for table, parts in by_table.items():
        xi, ratio = (np.concatenate(same) for same in ([part.xi for part in parts], [part.ratio for part in parts]))
        wait, after = np.empty_like(xi), np.empty_like(xi)
        for begin in range(0, xi.size, _CHUNK):
            some = slice(begin, begin + _CHUNK)
            wait[some] = np.where(xi[some] >= 0.0, 0.0, table.passage(xi[some], np.zeros_like(xi[some])))
            after[some] = table.learned_after(xi[some], ratio[some])
        ends = np.cumsum([part.xi.size for part in parts])
        for part, end in zip(parts, ends.tolist(), strict=True):
            own_times = slice(end - part.xi.size, end)
            emergence, learned = found[part.which]
            emergence[part.here] = wait[own_times] / part.a
            learned[part.here] = after[own_times] / part.a
    return found
