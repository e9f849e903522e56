r"""Pairs of a neuron and the direction that it learns, from information exponent 3 on: who they are, and their times.

Greedy matching decides by the start alone which neuron learns which direction. Where the matrix of overlaps is too
large, its outcome is drawn from its law.

An overlap with −θ is worth nothing for odd k and as much as one with θ for even links. A link with even k and odd
coefficients too draws a neuron of negative overlap to −θ, at a speed of its own, or to an overlap −s where a strong odd
part stops it. There the neuron reproduces the share r = g(−s)/g(1) of the direction alone: its mass is r² a, and
(1 − r²) a² g(1) of the loss stays, until a neuron of positive overlap arrives. It never emerges if s² is below the
problem's `emergence_level`.

On inputs of covariance Σ every weight off the axes of the direction follows one clock Φ, so that a pair alone is an
exact flow of few numbers (`docs/inputs.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dynamics.equations.transit import logit_of_square, transit_table
from dynamics.problem import LEARNED_SHARE, Axes, Problem
from dynamics.problem.matched_starts import draw_matched_overlaps, draw_on_both_sides
from dynamics.problem.start import OverlapStart
from dynamics.theory.shares import FOUND_LEVEL
from hermite import HermiteExpansion
from hermite.arrays import Array, Integers

#: Entries of the m×P overlap matrix above which matched overlaps are drawn from their distribution.
LARGEST_MATRIX = 1 << 24
#: ξ of the largest C below 1 that float64 tells from 1, and how far the other side's equivalent may lie below.
_LARGEST, _LOWER = 36.0, 20.0
#: The equivalent of an overlap that never emerges.
_NEVER = 1e-100
#: Times the interval of a time is halved: to rounding.
_HALVINGS = 53
#: How far a pair is followed: so many times the leading-order time to emerge, the time to grow to be learned.
EMERGENCE_FACTOR, LEARNING_FACTOR = 50.0, 20.0
RTOL, ATOL = 1e-11, 1e-13


def match_greedily(coefficients: ArrayLike, overlap: ArrayLike, information_exponent: int) -> Integers:
    """Return the neuron matched with each direction, shape (P,), −1 for none.

    `coefficients` (P,) are the weights a_p > 0 of the teacher's directions, `overlap` (m, P) the cosines C_ip of
    neurons and directions, and k is the information exponent of the link. The pair of largest score a_p |C_ip|^(k−2) is
    matched first; its neuron and its direction are struck out, and so on. For odd k only positive overlaps count. Of
    equal scores that of the smaller neuron number comes first, then that of the smaller direction number.
    """
    C = np.asarray(overlap, dtype=np.float64)
    strength, a = np.maximum(C, 0.0) if information_exponent % 2 else np.abs(C), np.asarray(coefficients, np.float64)
    return match_by_strength(a, strength, np.ones(C.shape, dtype=bool), information_exponent)[0]


def match_by_strength(
    a: Array, strength: Array, learns: NDArray[np.bool_], information_exponent: int
) -> tuple[Integers, Integers]:
    """Return two neurons for each direction, shape (P,) each: the first to arrive, and the one that learns it.

    Pairs are visited in the order of decreasing score a_p S_ip^(k−2), with coefficients a (P,), strengths S ≥ 0 (m, P)
    and the information exponent k; entries S_ip = 0 do not count. `learns` (m, P) says which neurons would learn which
    direction. The first neuron of a direction is the one of largest score among free neurons; where it does not learn
    the direction, the next free one that does is the second. A direction without such a neuron has −1.
    """
    # The logarithm keeps the order where the power would underflow.
    with np.errstate(divide="ignore"):
        score = (np.log(a) + (information_exponent - 2) * np.log(strength)).ravel()
    # Sorted once, and thinned as rows and columns are struck out.
    order = np.argsort(-score, kind="stable")[: np.count_nonzero(strength)]
    first, learning = np.full((2, a.size), -1, dtype=np.int64)
    neuron_free, direction_free = [True] * strength.shape[0], [True] * a.size
    while order.size:
        head = 4 * min(sum(neuron_free), sum(direction_free)) + 64
        for entry in order[:head].tolist():
            i, p = divmod(entry, a.size)
            if not (neuron_free[i] and direction_free[p]) or (first[p] >= 0 and not learns[i, p]):
                continue
            first[p] = i if first[p] < 0 else first[p]
            neuron_free[i] = False
            if learns[i, p]:
                learning[p], direction_free[p] = i, False
        order = order[head:]
        order = order[np.array(neuron_free)[order // a.size] & np.array(direction_free)[order % a.size]]
    return first, learning


@dataclass(frozen=True, slots=True)
class FarSide:
    """The side C < 0 of a link with even information exponent that has odd coefficients too.

    There a neuron with overlap C < 0 with a direction θ moves towards −θ. `coefficients` are those of the Hermite
    expansion of the link, from degree 0 on.
    """

    coefficients: Array
    #: ξ = ln(C² / (1 − C²)) at which a direction emerges.
    emergence: float

    @classmethod
    def of(cls, problem: Problem) -> FarSide | None:
        """Return the far side of a problem's link; None for links of a parity, for odd k and for k ≤ 2."""
        link = problem.activation
        mixed = link.parity == "none" and link.information_exponent in range(4, link.order, 2)
        return cls(link.coefficients, _emergence_logit(problem)) if mixed else None

    @property
    def share(self) -> float:
        """Share r = g(−s)/g(1) of the direction that a neuron reproduces at rest on this side, from 0 to 1.

        g is the kernel Σ c_k² C^k of the link, and −s the overlap at which the neuron rests.
        """
        table = transit_table(self.coefficients, -1, 0.0)
        return max(float(table.end_signal / table.norm), 0.0)

    @property
    def emerges(self) -> bool:
        """Whether a neuron on this side reaches the overlap of emergence."""
        return bool(transit_table(self.coefficients, -1, min(self.emergence, 0.0)).barrier > self.emergence)

    @property
    def learns(self) -> bool:
        """Whether a neuron on this side ends with half of the direction's weight, r² > ½."""
        return self.emerges and self.share**2 > LEARNED_SHARE

    def equivalent(self, overlap: Array) -> Array:
        """Return positive overlaps that emerge after the same time as the given ones, in the shape of `overlap`.

        `overlap` holds overlaps C of any sign with a direction θ at the start. Entries C ≥ 0 are returned as they are.
        Entries C < 0, whose neurons move towards −θ, become the overlap on the side of θ with the same time to emerge;
        those that start beyond their place of rest become |C|. If no neuron emerges on the side of −θ, they become
        about 1e-100 |C|, which keeps their order.
        """
        worth = np.maximum(overlap, 0.0)
        is_far = overlap < 0.0
        if not self.emerges:
            worth[is_far] = -_NEVER * overlap[is_far]
        elif is_far.any():
            xi = np.minimum(logit_of_square(overlap[is_far]), _LARGEST)
            lowest = min(float(xi.min()), self.emergence)
            far, near = (transit_table(self.coefficients, *at) for at in ((-1, lowest), (1, lowest - _LOWER)))
            end = np.array(self.emergence)
            logit = near.logit_at(near.remaining(end) + far.remaining(xi) - far.remaining(end))
            # From beyond the place of rest it returns to that, and has emerged all along.
            worth[is_far] = np.where(xi < far.barrier, np.exp(-0.5 * np.logaddexp(0.0, -logit)), -overlap[is_far])
        return worth

    def half_learned(self, overlap: Array, ratio: Array) -> Array:
        """Return times a t (n,), dimensionless, after which neurons of negative overlap have half of what they reach.

        The end value is the part r² a g(1) of the direction, r being `share`; its half is reached when n g(C) is that
        large, with the kernel g of the link and the squared norm n of the neuron. `overlap` (n,) are overlaps C < 0 at
        the start, and `ratio` (n,) the coefficient a of the direction over the squared norm at the start.
        """
        xi = np.minimum(logit_of_square(overlap), _LARGEST)
        table = transit_table(self.coefficients, -1, float(xi.min()))
        origin = table.remaining(xi)

        def has_half(tau: Array) -> NDArray[np.bool_]:
            """Return for each neuron whether it has half of its end value at the time of `tau`, boolean (n,).

            `tau` (n,) holds times a t, dimensionless. The half is reached when n g(C) ≥ ½ r² a g(1), with the squared
            norm n, the kernel g of the link, the coefficient a of the direction and the neuron's `share` r.
            """
            logit = table.logit_at(origin - tau)
            inverse = table.scaled_inverse_norm(xi, ratio, tau, logit)
            return table.signal(logit) >= LEARNED_SHARE * self.share**2 * table.norm * inverse

        low, high = np.zeros_like(xi), np.ones_like(xi)
        while not (is_half := has_half(high)).all():
            high = np.where(is_half, high, 2.0 * high)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            is_half = has_half(middle)
            low, high = np.where(is_half, low, middle), np.where(is_half, middle, high)
        return high


class Pairs(NamedTuple):
    """A neuron for each direction (−1 for none), its overlap with it and its squared norm (NaN for none), (P,) each."""

    neuron: Integers
    overlap: Array
    squared_norm: Array

    @classmethod
    def of(cls, start: OverlapStart, neuron: Integers) -> Pairs:
        """Return the pairs that `neuron` (P,) forms with the directions, −1 for none, with their values at a start."""
        has_neuron, directions = neuron >= 0, np.arange(neuron.size)
        overlap = np.where(has_neuron, start.teacher_overlap[neuron, directions], np.nan)
        return cls(neuron, overlap, np.where(has_neuron, start.squared_norm[neuron], np.nan))


def matched_pairs(problem: Problem, side: FarSide | None) -> tuple[Pairs, Pairs, bool]:
    """Return the first pair of each direction, the pair that learns it, and whether they were drawn.

    The two differ only where a neuron on the side of negative overlaps, `side`, arrives first and does not learn the
    direction. They are drawn from the law of greedy matching, without the matrix of overlaps, where that is too large.
    """
    a, k = problem.teacher.coefficients, problem.information_exponent
    too_large = problem.width * a.size > LARGEST_MATRIX
    if too_large and problem.start_is_random and problem.teacher.is_orthonormal:
        m, d, seed = problem.width, problem.dimension, problem.seed
        if side is None:
            draws = [draw_matched_overlaps(a, m, d, k, seed)]
        else:
            draws = [*draw_on_both_sides(a, m, d, side.equivalent, side.learns, seed)]
        drawn = [Pairs(i, C, np.where(i >= 0, problem.initial_norm**2, np.nan)) for i, C in draws]
        return drawn[0], drawn[-1], True
    start = problem.start()
    C = start.teacher_overlap
    if side is None:
        matched = Pairs.of(start, match_greedily(a, C, k))
        return matched, matched, False
    first, learning = match_by_strength(a, side.equivalent(C), (C > 0.0) | side.learns, k)
    return Pairs.of(start, first), Pairs.of(start, np.where(learning >= 0, learning, first)), False


def side_notes(side: FarSide, first: Pairs, learning: Pairs) -> list[str]:
    """Return a list of one note on directions whose matched neuron starts on the side of −θ, empty without such ones.

    `first` pairs each direction with its matched neuron, and `learning` with the neuron that learns it.
    """
    directions = np.flatnonzero(first.overlap < 0.0)
    if directions.size == 0:
        return []
    unlearned = int(np.count_nonzero(learning.overlap[directions] < 0.0))
    listed = ", ".join(str(p + 1) for p in directions[:5]) + (", ..." if directions.size > 5 else "")
    place, fate = ("at -theta", "emerges there") if side.emerges else ("on the side of -theta", "never emerges")
    note = (
        f"the link has no parity: a neuron {place} has {side.share:.2g} of a direction and leaves "
        f"{1.0 - side.share**2:.2g} of its loss; the matched neuron starts on that side and {fate} for "
        f"{directions.size} of {first.overlap.size} directions (p = {listed})"
    )
    if not side.learns:
        count = directions.size - unlearned
        note += f", of which {count} are learned by another neuron, at times predicted as if it were alone"
        note += f", and {unlearned} never" if unlearned else ""
    return [note]


def leading_order(link: HermiteExpansion, strength: Array | float, overlap: Array) -> Array:
    """Return T_p = 1 / (k (k − 2) c_k² a_p s_p |C_0|^(k−2)), the time of emergence by the lowest power alone.

    k ≥ 3 is the information exponent of the link, c_k its Hermite coefficient, `strength` the product of the
    coefficient a_p and the speed s_p of a direction (1 for isotropic inputs), and `overlap` the overlap C_0 at the
    start. The shape is that of `overlap`; NaN overlaps, of directions without a neuron, have an infinite time.
    """
    k = link.information_exponent
    scale = k * (k - 2) * link.coefficients[k] ** 2 * strength
    with np.errstate(over="ignore"):
        time = 1.0 / scale * np.abs(overlap) ** -float(k - 2)
    return np.where(np.isnan(time), np.inf, time)


def _emergence_logit(problem: Problem) -> float:
    """Return ξ = ln(C² / (1 − C²)) at which a direction emerges; 0 at C² = ½."""
    return math.log(problem.emergence_level / (1.0 - problem.emergence_level))


def pair_times(problem: Problem, pairs: Pairs) -> Array:
    """Return the times at which C² is first `FOUND_LEVEL`, of emergence, and of learning, (3, P), of pairs alone.

    Times are those of the flow, dimensionless, and inf without a pair. Inputs are isotropic.
    """
    times, a = np.full((3, pairs.overlap.size), np.inf), problem.teacher.coefficients
    # The branches of an even link are alike, and small problems pay by the call.
    branch = np.sign(np.abs(pairs.overlap) if problem.activation.parity == "even" else pairs.overlap)
    for sign in (1, -1):
        on_branch = np.flatnonzero(branch == sign)
        if not on_branch.size:
            continue
        xi, ratio = logit_of_square(pairs.overlap[on_branch]), a[on_branch] / pairs.squared_norm[on_branch]
        table = transit_table(problem.activation.coefficients, sign, float(xi.min()))
        reached = [table.reached_after(xi, level) for level in (FOUND_LEVEL, problem.emergence_level)]
        times[:, on_branch] = np.array([*reached, table.learned_after(xi, ratio)]) / a[on_branch]
    return times


@dataclass(frozen=True)
class WhitenedPair:
    """A neuron and a direction of coefficient a on inputs of any covariance Σ, as an exact flow of few numbers.

    Its state is (Φ, ŵ): a clock Φ, from which all weights off the axes of the direction follow, and the weights ŵ on
    them. All is dimensionless.
    """

    link: HermiteExpansion
    coefficient: float
    #: s_l, θ̂_l and ŵ_l on the axes of the direction, (r,).
    eigenvalue: Array
    direction: Array
    weight: Array
    #: s_c and N_c of all others, (classes,).
    around: Array
    square: Array
    #: C² at which the direction emerges.
    level: float

    def times(self) -> tuple[float, float]:
        """Return the times of the flow at which the direction emerges and is learned; inf if never.

        It emerges when the squared overlap C² reaches `level`, at 0 if it does at the start, and is learned when n
        g(C)/g(1) reaches half of the coefficient, n being the squared norm of the neuron and g the kernel of the link.
        """
        start, a, whole = np.append(0.0, self.weight), self.coefficient, self.link.kernel_at_one

        def emerged(state: Array) -> float:
            """Return C² minus the level of emergence."""
            return self.overlap(state)[0] ** 2 - self.level

        def mass(state: Array) -> float:
            """Return n g(C)/g(1) minus half of the coefficient."""
            C, n = self.overlap(state)
            return n * float(np.polyval(self._polynomials[0], C)) / whole - LEARNED_SHARE * a

        begun = self._first(emerged, 0.0, start, EMERGENCE_FACTOR * self.leading_order())
        if begun is None:
            return np.inf, np.inf
        grown = LEARNING_FACTOR * (1.0 + max(np.log(a / self.overlap(start)[1]), 0.0)) / (a * self.speed * whole)
        learned = self._first(mass, *begun, begun[0] + grown)
        return begun[0], np.inf if learned is None else learned[0]

    @cached_property
    def _polynomials(self) -> tuple[Array, Array]:
        """Coefficients of g and g', highest power first: `polyval` is faster for one number than `kernel`."""
        kernel = np.square(self.link.coefficients[::-1])
        return kernel, np.asarray(np.polyder(kernel), dtype=np.float64)

    @property
    def speed(self) -> float:
        """Speed s_p = θ̂ᵀ Σ θ̂ of the direction θ̂, with the covariance Σ of the inputs: an eigenvalue on an axis."""
        return float(self.eigenvalue @ self.direction**2)

    def leading_order(self) -> float:
        """Return the time of emergence by the lowest power of the link's kernel g alone."""
        overlap, _ = self.overlap(np.append(0.0, self.weight))
        return float(leading_order(self.link, self.coefficient * self.speed, np.asarray(overlap)))

    def overlap(self, state: Array) -> tuple[float, float]:
        """Return the overlap C and the squared norm n of the neuron in a state (Φ, ŵ), shape (1 + r,)."""
        n = float(state[1:] @ state[1:] + self.square @ np.exp(2.0 * state[0] * self.around))
        return float(self.direction @ state[1:]) / np.sqrt(n), n

    def rates(self, _time: float, state: Array) -> Array:
        """Return the time derivatives of a state (Φ, ŵ), shape (1 + r,); the time does not enter."""
        C, n = self.overlap(state)
        value, pull = (self.coefficient * float(np.polyval(polynomial, C)) for polynomial in self._polynomials)
        E = 2.0 * (value - n * self.link.kernel_at_one) - C * pull
        return np.append(E, self.eigenvalue * (E * state[1:] + np.sqrt(n) * pull * self.direction))

    def _first(
        self, event: Callable[[Array], float], time: float, state: Array, last: float
    ) -> tuple[float, Array] | None:
        """Return the time at which `event` first is ≥ 0, and the state there; None if it is not before `last`.

        The flow starts at `time` in `state`.
        """
        from scipy.integrate import solve_ivp

        if event(state) >= 0.0:
            return time, state

        def stops(_time: float, y: Array) -> float:
            return event(y)

        stops.terminal = True  # type: ignore[attr-defined]
        size = ATOL * np.append(1.0, np.full(state.size - 1, np.sqrt(self.overlap(state)[1])))
        # A step that is tried and refused may go to Φ > 0, where weights of large eigenvalues overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            solution: Any = solve_ivp(
                self.rates, (time, last), state, method="DOP853", rtol=RTOL, atol=size, events=stops
            )
        return (float(solution.t_events[0][0]), solution.y_events[0][0]) if solution.t_events[0].size else None


def whitened_pair(problem: Problem, axes: Axes, weights: Array, neuron: int, direction: int) -> WhitenedPair:
    """Return the pair of a neuron and a direction on the axes of `inputs`.

    `weights` (m, D) are all neurons in coordinates in which the inputs have covariance 1, reduced to the axes `axes`.
    """
    teacher, row, w = problem.teacher, np.zeros(axes.places.size), weights[neuron]
    rows = np.eye(teacher.span) if teacher.directions is None else teacher.directions
    row[: teacher.span] = rows[direction]
    on = row != 0.0
    square = np.zeros(axes.eigenvalue.size)
    np.add.at(square, axes.kind[~on], w[~on] ** 2)
    a = float(teacher.coefficients[direction])
    level = problem.emergence_level
    return WhitenedPair(problem.activation, a, axes.eigenvalues[on], row[on], w[on], axes.eigenvalue, square, level)


def direction_speeds(problem: Problem) -> Array:
    """Return the speeds s_p = θ̂_pᵀ Σ θ̂_p of the unit directions θ̂_p, shape (P,), Σ being the input covariance.

    They are 1 for a problem without `inputs`.
    """
    axes, teacher = problem.input_axes(), problem.teacher
    if axes is None:
        return np.ones(teacher.num_directions)
    values = axes.eigenvalues[: teacher.span]
    return np.asarray(values if teacher.directions is None else teacher.directions**2 @ values)


def first_learned(problem: Problem) -> Integers:
    """Return the numbers of the min(m, P) directions that are learned first, in increasing order.

    They are those of largest a_p s_p^(k/2), to which the times of pairs are inverse: a_p is the coefficient, s_p the
    speed of `direction_speeds` and k the information exponent.
    """
    order = problem.teacher.coefficients * direction_speeds(problem) ** (0.5 * problem.information_exponent)
    return np.asarray(np.sort(np.argsort(-order, kind="stable")[: problem.width]))
