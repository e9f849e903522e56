"""When each direction emerges and is learned, and the loss that follows, from the start alone.

From information exponent 3 on each teacher direction is learned by the neuron that greedy matching gives it, as if the
two were alone: the pair obeys C' = a g'(C)(1 − C²) and (ln n)' = 4 (a g(C) − n g(1)). Below, neurons do not choose
directions one by one, and the times are those of the linearised flow of all of them (`dynamics.theory.linearised`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dynamics.equations.transit.transit import logit_of_square, transit_table
from dynamics.problem import check_problem, is_correlation
from dynamics.problem.checks import check_choice
from dynamics.theory.linearised import leading_escape, linear_times
from dynamics.theory.matching import draw_matched_overlaps, draw_on_both_sides, match_by_strength, match_greedily
from dynamics.theory.sides import FarSide

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

#: Entries of the m×P overlap matrix above which matched overlaps are drawn from their distribution.
LARGEST_MATRIX = 1 << 24

NOTE_DRAWN = (
    "matched overlaps are drawn from the law of a random start, direction by direction in order of decreasing "
    "coefficient, because the matrix of overlaps is too large; matched_neuron is the rank of the direction"
)
NOTE_CONSTANT = (
    "the link has c_0 != 0, so norms grow from the start: emergence times stand, learned times and loss are NaN"
)
NOTE_DIRECTIONS = (
    "the teacher's directions are not orthonormal: matching uses the overlaps as they are, interactions between "
    "directions are not modelled, and the loss is NaN"
)

NOTE_LINEAR = (
    "k <= 2: directions do not decouple; predicted times are those of the flow with forces linear in the overlaps "
    "(c_0, c_1, c_2 of the link alone), neurons and norms coupled, and leading-order times those of the nearest neuron"
)
NOTE_TOO_LONG = "the linearised flow takes too long to be followed to its end, so that times it did not reach are NaN"
#: What predicted times are of: matched pairs from k = 3 on, below the linearised flow of all neurons.
PAIRS, LINEARISED = "matched pairs", "linearised flow"

_CHUNK = 1 << 17
#: Directions that a note lists.
_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmergencePrediction:
    """The neuron that learns each of P directions, and when, shape (P,); times are flow times, dimensionless.

    For k ≤ 2 no neuron is matched, C_0 is the overlap nearest to the direction, and the times are those of the
    linearised flow of all neurons together; `theory` says which of the two.
    """

    #: Neuron that greedy matching gives to the direction; −1 for none.
    matched_neuron: Integers
    #: C_0, its overlap at the start, with its sign; NaN for none.
    matched_overlap: Array
    #: n_0 = |w|² of that neuron at the start; NaN for none.
    matched_squared_norm: Array
    #: T_p = 1 / (k (k − 2) c_k² a_p s_p |C_0|^(k−2)), s_p = 1 for isotropic inputs; inf for none. For k ≤ 2 as
    #: `linearised.leading_escape`.
    leading_order_time: Array
    #: Exact transit of the isolated pair to C² = ½; 0 if there already, inf if never.
    predicted_emergence_time: Array
    #: First time with n g(C) / g(1) = a_p / 2 in the pair that learns, alone; inf if never, NaN where no formula holds.
    predicted_learned_time: Array
    #: The pair that learns the direction, with its overlap and squared norm: the matched one, but where that starts on
    #: the side of −θ and cannot (`dynamics.theory.sides`) the next one on the side of θ, if there is one.
    learning_neuron: Integers
    learning_overlap: Array
    learning_squared_norm: Array
    #: r of `dynamics.theory.sides`: what a neuron at −θ has of a direction; None where it has all or nothing.
    far_side_share: float | None = None
    #: What the numbers do not model.
    notes: tuple[str, ...] = ()
    #: "matched pairs" (k ≥ 3) or "linearised flow" (k ≤ 2).
    theory: str = PAIRS


def predict(problem: Problem) -> EmergencePrediction:
    """Return which neuron learns each direction and when, from the start alone.

    For k ≤ 2 the times are those of the linearised flow; for the objective "correlation" they are those of its one
    neuron, for any k. For k ≥ 3 O(m P log(m P)) for the matching. Above 2^24 entries
    of the overlap matrix a random start is not drawn; the matched overlaps are, from their distribution
    (`dynamics.theory.matching.draw_matched_overlaps`), at O(P).

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> overlaps = ([[0.5, 0.0]], [[1.0]], [1e-4])
    >>> problem = Problem(
    ...     activation="he4", teacher=Teacher([1.0, 0.5]), width=1, dimension=8, initial_overlaps=overlaps
    ... )
    >>> predict(problem).predicted_emergence_time.round(6).tolist()
    [0.387327, inf]
    """
    if is_correlation(problem):
        from dynamics.theory.correlation import predict_correlation

        return predict_correlation(problem)
    if problem.inputs is not None:
        from dynamics.theory.whitened_prediction import predict_whitened

        return predict_whitened(problem)
    check_problem(problem)
    if problem.information_exponent < 3:
        return _predict_linearised(problem)
    notes: list[str] = []
    side = FarSide.of(problem)
    first, learning, drawn = _matched(problem, side)
    if drawn:
        notes.append(NOTE_DRAWN)
    a = problem.teacher.coefficients
    emergence, learned = np.full(a.size, np.inf), np.full(a.size, np.inf)
    for begin in range(0, a.size, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        emergence[part], learned[part] = _times(problem, a[part], first, part)
        if learning is not first:
            learned[part] = _times(problem, a[part], learning, part)[1]
    if side is not None:
        notes += _side_notes(side, first, learning)
    if problem.activation.coefficients[0] != 0.0:
        learned = np.full(a.size, np.nan)
        notes.append(NOTE_CONSTANT)
    if not problem.teacher.is_orthonormal:
        notes.append(NOTE_DIRECTIONS)
    return EmergencePrediction(
        matched_neuron=first.neuron,
        matched_overlap=first.overlap,
        matched_squared_norm=first.squared_norm,
        leading_order_time=_leading_order(problem, first.overlap),
        predicted_emergence_time=emergence,
        predicted_learned_time=learned,
        learning_neuron=learning.neuron,
        learning_overlap=learning.overlap,
        learning_squared_norm=learning.squared_norm,
        far_side_share=None if side is None else side.share,
        notes=tuple(notes),
    )


def _predict_linearised(problem: Problem) -> EmergencePrediction:
    """Return the times of the linearised flow, for k ≤ 2."""
    from dynamics.theory.horizon import default_schedule

    overlap, leading = leading_escape(problem)
    times = linear_times(problem, float(default_schedule(problem, None).times[-1]))
    start = problem.start()
    nearest = np.argmax(start.teacher_overlap == overlap, axis=0)
    none, squared_norm = np.full(overlap.size, -1, dtype=np.int64), start.squared_norm[nearest]
    return EmergencePrediction(
        matched_neuron=none,
        matched_overlap=overlap,
        matched_squared_norm=squared_norm,
        learning_neuron=none,
        learning_overlap=overlap,
        learning_squared_norm=squared_norm,
        leading_order_time=leading,
        predicted_emergence_time=times.emergence,
        predicted_learned_time=times.learned,
        notes=(NOTE_LINEAR, *([NOTE_TOO_LONG] if np.isnan(times).any() else [])),
        theory=LINEARISED,
    )


def sum_formula_loss(
    problem: Problem,
    prediction: EmergencePrediction,
    times: ArrayLike,
    *,
    step: Literal["learned", "emergence"] = "learned",
) -> Array:
    r"""Return the loss at given flow times as a staircase, one step per direction.

    .. math:: L(t) = g(1) \sum_p a_p^2\, 1\{t < T_p\}

    for an orthonormal teacher and c_0 = 0, else NaN. It is the mean squared error without ½. With `step` "learned" T_p
    is the predicted learned time, so that the lag of the norm behind the direction is included; with "emergence" it is
    the predicted emergence time. A neuron at −θ with the share r of a direction (`dynamics.theory.sides`) takes
    r² g(1) a_p² away, with "learned" when it has half of that; the rest goes with the neuron that learns the direction
    from the side of θ, if there is one. Of the objective "correlation", where no norm grows, it is the loss of the
    start until then, and that of C = 1 afterwards.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> overlaps = ([[0.5, 0.0]], [[1.0]], [1e-4])
    >>> problem = Problem(
    ...     activation="he4", teacher=Teacher([1.0, 0.5]), width=1, dimension=8, initial_overlaps=overlaps
    ... )
    >>> sum_formula_loss(problem, predict(problem), [0.0, 1e3]).tolist()
    [1.25, 0.25]
    """
    check_choice("step", step, ("learned", "emergence"))
    t = np.asarray(times, dtype=np.float64)
    if is_correlation(problem):
        from dynamics.theory.correlation import staircase

        return staircase(problem, float(prediction.predicted_emergence_time[0]), t)
    if problem.activation.coefficients[0] != 0.0 or not problem.teacher.is_orthonormal:
        return np.full(t.shape, np.nan)
    when, left = sorted_stairs(problem, prediction, step)
    loss: Array = left[np.searchsorted(when, t, side="right")]
    return loss


def sorted_stairs(problem: Problem, prediction: EmergencePrediction, step: str = "learned") -> tuple[Array, Array]:
    """Return the increasing times of the steps of the sum formula, and the loss before each and after the last."""
    when, height = _stairs(problem, prediction, step)
    order = np.argsort(when, kind="stable")
    norm = float(np.sum(problem.activation.coefficients**2))
    # Summed from the last step to the first, so that a small loss keeps its relative precision.
    return when[order], norm * np.append(np.cumsum(height[order][::-1])[::-1], 0.0)


def _stairs(problem: Problem, prediction: EmergencePrediction, step: str) -> tuple[Array, Array]:
    """Return the times of the steps of the sum formula, inf for never, and their heights in units of g(1)."""
    when = prediction.predicted_learned_time if step == "learned" else prediction.predicted_emergence_time
    height, side = problem.teacher.coefficients**2, FarSide.of(problem)
    there = np.flatnonzero(prediction.matched_overlap < 0.0)
    if side is None or there.size == 0 or side.share == 0.0:
        return when, height
    a, share = problem.teacher.coefficients[there], side.share**2
    own = when[there]
    if step == "learned" and not side.learns:
        ratio = a / prediction.matched_squared_norm[there]
        own = side.half_learned(prediction.matched_overlap[there], ratio) / a
    # The rest goes with the neuron on the side of θ that learns the direction.
    rest = np.where(prediction.learning_overlap[there] > 0.0, prediction.predicted_learned_time[there], np.inf)
    when, height = when.copy(), height.copy()
    when[there], height[there] = np.minimum(own, rest), share * a**2
    return np.append(when, rest), np.append(height, (1.0 - share) * a**2)


def check_decouples(problem: Problem) -> None:
    """Raise ValueError unless directions are learned one by one, that is k ≥ 3."""
    k = problem.information_exponent
    if k < 3:
        msg = (
            "Argument `problem` must have a link of information exponent at least 3, because directions do not "
            f"decouple for k <= 2, but {problem.activation.name} has k = {k}."
        )
        raise ValueError(msg)


class _Pairs(NamedTuple):
    """A neuron per direction (−1 for none), its overlap and its squared norm (NaN for none)."""

    neuron: Integers
    overlap: Array
    squared_norm: Array


def _matched(problem: Problem, side: FarSide | None) -> tuple[_Pairs, _Pairs, bool]:
    """Return the pairs that come first, those that learn, and whether they were drawn from their distribution."""
    a, k = problem.teacher.coefficients, problem.information_exponent
    too_large = problem.width * a.size > LARGEST_MATRIX
    if too_large and problem.start_is_random and problem.teacher.is_orthonormal:
        m, d, seed = problem.width, problem.dimension, problem.seed
        if side is None:
            found = [draw_matched_overlaps(a, m, d, k, seed)]
        else:
            found = list(draw_on_both_sides(a, m, d, side.equivalent, side.learns, seed))
        drawn = [_Pairs(i, C, np.where(i >= 0, problem.initial_norm**2, np.nan)) for i, C in found]
        return drawn[0], drawn[-1], True
    C, squared_norm = problem.start().teacher_overlap, problem.start().squared_norm

    def pairs(neuron: Integers) -> _Pairs:
        found = neuron >= 0
        overlap = np.where(found, C[neuron, np.arange(a.size)], np.nan)
        return _Pairs(neuron, overlap, np.where(found, squared_norm[neuron], np.nan))

    if side is None:
        matched = pairs(match_greedily(a, C, k))
        return matched, matched, False
    first, learning = match_by_strength(a, side.equivalent(C), (C > 0.0) | side.learns, k)
    return pairs(first), pairs(np.where(learning >= 0, learning, first)), False


def _side_notes(side: FarSide, first: _Pairs, learning: _Pairs) -> list[str]:
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


def _leading_order(problem: Problem, overlap: Array) -> Array:
    """Return the leading-order times T_p; inf where there is no pair."""
    k = problem.information_exponent
    scale = k * (k - 2) * problem.activation.coefficients[k] ** 2 * problem.teacher.coefficients
    with np.errstate(over="ignore"):
        time = 1.0 / scale * np.abs(overlap) ** -float(k - 2)
    return np.where(np.isnan(time), np.inf, time)


def _times(problem: Problem, a: Array, pairs: _Pairs, part: slice) -> tuple[Array, Array]:
    """Return emergence and learned times of a part of the pairs; inf where there is no pair."""
    overlap, squared_norm = pairs.overlap[part], pairs.squared_norm[part]
    emergence, learned = np.full(a.size, np.inf), np.full(a.size, np.inf)
    # The branches of an even link are alike, and small problems pay by the call.
    branch = np.sign(np.abs(overlap) if problem.activation.parity == "even" else overlap)
    for sign in (1, -1):
        here = np.flatnonzero(branch == sign)
        if here.size == 0:
            continue
        xi = logit_of_square(overlap[here])
        table = transit_table(problem.activation.coefficients, sign, float(xi.min()))
        wait = np.where(xi >= 0.0, 0.0, table.passage(xi, np.zeros_like(xi)))
        emergence[here] = wait / a[here]
        learned[here] = table.learned_after(xi, a[here] / squared_norm[here]) / a[here]
    return emergence, learned
