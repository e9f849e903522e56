"""When each direction emerges and is learned, and the loss that follows, from the start alone.

From information exponent 3 on each teacher direction is learned by the neuron that greedy matching gives it, as if the
two were alone: the pair obeys C' = a g'(C)(1 − C²) and (ln n)' = 4 (a g(C) − n g(1)).

Below, the flow is linearised: of the link only c_0, c_1 and c_2 are kept, so that the forces are linear in the
overlaps. It is the flow itself until overlaps are so large that h_3, h_4, … pull too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from dynamics.cores import blas_threads_for
from dynamics.integrators.stepper import Status
from dynamics.problem import Axes, Problem, check_problem, is_correlation
from dynamics.problem.checks import require
from dynamics.problem.emergence import IDENTIFYING
from dynamics.problem.saved_times import DEFAULT_COUNT, SaveAt
from dynamics.theory.pairs import (
    FarSide,
    Pairs,
    direction_speeds,
    leading_order,
    match_greedily,
    matched_pairs,
    pair_times,
    side_notes,
    whitened_pair,
)
from dynamics.theory.shares import LearningShares, shares_of_times
from hermite.arrays import Array, Integers

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
    "k <= 2: directions do not decouple; predicted times are those of the flow linearised at its start, learned "
    "ones where its overlaps give the degrees from 3 on half of the weight"
)
NOTE_TOO_LONG = "the linearised flow takes too long to be followed to its end, so that times it did not reach are NaN"
NOTE_PAIRS = (
    "times are those of matched pairs alone on inputs of covariance Sigma; matching takes overlaps of both signs as "
    "alike for even k"
)
NOTE_NO_TIMES = "k <= 2 with inputs that are not isotropic: no theory predicts the times, which are NaN"
NOTE_LEADING = "the leading order of the time is known without smoothing alone"
#: Sources of predicted times: matched pairs from k = 3 on, below the linearised flow of all neurons.
PAIRS, LINEARISED = "matched pairs", "linearised flow"
#: The default saved times end at this multiple of the last predicted learned time, which interactions delay (by up to
#: 1.69, measured).
LAST_LEARNED_FACTOR = 2.5
#: A committee of k > 2 is followed for so many times that which a neuron of length 1 needs alone: measured, the last
#: direction took at most 45 of these, but for a tenth of the odd links. Overlaps below a part of 1/√d do not count.
ALONE_FACTOR, SMALLEST_OVERLAP = 250.0, 0.1
#: Relative accuracy of the linearised flow and its times, and the relative change to the end below which it is still.
ACCURACY, STILLNESS = 1e-6, 1e-2
#: It is given up after so many evaluations, or multiplications: seconds on one core.
MOST_EVALUATIONS, MOST_WORK = 6000, 1.5e10
#: The same between two looks whether anything moves, which are chances of Ctrl-C.
PIECE_EVALUATIONS, PIECE = 192, 2e8
#: Evaluations of a step, and the tolerance in units of `ACCURACY`. Times of 30 random problems were wrong by up to 3e-6
#: with "explicit" and 1e-7 with "bdf", which takes up to three times as many evaluations, or half where it is stiff.
STEP_EVALUATIONS, SHARPNESS = {"explicit": 12, "bdf": 3}, {"explicit": 1.0, "bdf": 1e-3}


@dataclass(frozen=True, slots=True, eq=False)
class EmergencePrediction:
    """The neuron that learns each of P directions, and when, shape (P,); times are flow times, dimensionless.

    Matched are the neuron that greedy matching gives to the direction, −1 for none, its overlap C_0, with its sign, and
    n_0 = |w|² at the start, NaN for none. The pair that learns it is the matched one, but where that starts on the side
    of −θ and cannot (`dynamics.theory.pairs`) the next one on the side of θ, if there is one.

    * `leading_order_time` is 1 / (k (k − 2) c_k² a_p s_p |C_0|^(k−2)), s_p = 1 for isotropic inputs; inf for none.
    * `predicted_emergence_time` is the exact transit of the isolated pair to emergence: 0 if there, inf if never.
    * `predicted_learned_time` is the first time with n g_3(C) / g_3(1) = a_p / 2, g_3(s) = Σ_{j≥3} c_j² s^j, in the
      pair that learns, alone: inf if never, NaN where neither a formula nor the linearised flow gives it, or where the
      link has no degree from 3 on.

    `far_side_share` is r of `dynamics.theory.pairs`, None for all or nothing; `notes` are effects that the numbers do
    not model. `theory` is "matched pairs", or "linearised flow" for k ≤ 2. There no neuron is matched, C_0 is the
    overlap nearest to the direction, and times are those of the linearised flow of all neurons and `leading_escape`.
    `carried_time`, the steps of the sum formula, are then the times at which half of the weight is carried, the degrees
    0, 1 and 2 of the link counted. `shares` are those of search, descent and learning in the learned time, NaN where
    the matched neuron does not learn the direction; None for links with c_0 ≠ 0 and where pairs have no such times.
    """

    matched_neuron: Integers
    matched_overlap: Array
    matched_squared_norm: Array
    learning_neuron: Integers
    learning_overlap: Array
    learning_squared_norm: Array
    leading_order_time: Array
    predicted_emergence_time: Array
    predicted_learned_time: Array
    _: KW_ONLY
    far_side_share: float | None = None
    carried_time: Array | None = None
    notes: tuple[str, ...] = ()
    theory: str = PAIRS
    shares: LearningShares | None = None


def predict(problem: Problem, method: str = "explicit") -> EmergencePrediction:
    """Return the neuron that learns each direction and its times, from the start, in O(m P log(m P)) for k ≥ 3.

    For the objective "correlation" the times are those of its one neuron, for any k. The `method` of the linearised
    flow is "explicit" or "bdf": a flow that needs one of them compiles no other.
    """
    if is_correlation(problem):
        return _predict_correlation(problem)
    if problem.inputs is not None:
        return _predict_whitened(problem)
    check_problem(problem)
    if problem.information_exponent < 3:
        return _predict_linearised(problem, method)
    side = FarSide.of(problem)
    first, learning, drawn = matched_pairs(problem, side)
    reached, *times = pair_times(problem, first)
    if learning is not first:
        times[1] = pair_times(problem, learning)[2]
    is_same = first.neuron == learning.neuron
    shares = shares_of_times(reached, times[0], np.where(is_same, times[1], np.nan))
    notes = [NOTE_DRAWN] if drawn else []
    notes += [] if side is None else side_notes(side, first, learning)
    leading = leading_order(problem.activation, problem.teacher.coefficients, first.overlap)
    share = None if side is None else side.share
    return _of_pairs(problem, first, learning, [leading, *times], notes, far_side_share=share, shares=shares)


def _of_pairs(
    problem: Problem, first: Pairs, learning: Pairs, times: Sequence[Array], notes: list[str], **fields: Any
) -> EmergencePrediction:
    """Return a prediction from the first pairs, the pairs that learn, and three arrays of times (P,).

    `times` are those at leading order, of emergence and of learning; `notes` are its notes, to which others are added,
    and `fields` further fields of the prediction.
    """
    leading, emergence, learned = times
    if problem.activation.coefficients[0] != 0.0:
        learned, notes = np.full(learned.size, np.nan), [*notes, NOTE_CONSTANT]
        fields |= {"shares": None}
    if not problem.teacher.is_orthonormal:
        notes = [*notes, NOTE_DIRECTIONS]
    return EmergencePrediction(*first, *learning, leading, emergence, learned, notes=tuple(notes), **fields)


def _predict_whitened(problem: Problem) -> EmergencePrediction:
    """Return the prediction for inputs of any covariance Σ; times are NaN for information exponents k ≤ 2.

    Neurons and directions are matched by a_p s_p |C_0|^(k−2), with the coefficient a_p, the speed s_p = θ̂_pᵀΣθ̂_p of
    the direction and the overlap C_0 at the start.
    """
    check_problem(problem, fields=("inputs",))
    a, k, start = problem.teacher.coefficients, problem.information_exponent, problem.start()
    neuron = np.full(a.size, -1, dtype=np.int64)
    if k > 2:
        neuron = match_greedily(a * direction_speeds(problem), start.teacher_overlap, k)
    times = np.full((3, a.size), np.inf if k > 2 else np.nan)
    weights, axes = problem.reduced_weights(), cast("Axes", problem.input_axes())
    for p in np.flatnonzero(neuron >= 0).tolist():
        pair = whitened_pair(problem, axes, weights, int(neuron[p]), p)
        times[:, p] = pair.leading_order(), *pair.times()
    pairs, (note, theory) = Pairs.of(start, neuron), (NOTE_PAIRS, PAIRS) if k > 2 else (NOTE_NO_TIMES, LINEARISED)
    return _of_pairs(problem, pairs, pairs, list(times), [note], theory=theory)


def _predict_linearised(problem: Problem, method: str) -> EmergencePrediction:
    """Return the prediction by the linearised flow of all neurons, for information exponents k ≤ 2.

    `method` is "explicit" or "bdf".
    """
    overlap, leading = leading_escape(problem)
    emergence, learned, carried = linear_times(problem, float(default_times(problem, None).times[-1]), method)
    start = problem.start()
    nearest = np.argmax(start.teacher_overlap == overlap, axis=0)
    pairs = Pairs(np.full(overlap.size, -1, dtype=np.int64), overlap, start.squared_norm[nearest])
    notes = (NOTE_LINEAR, NOTE_TOO_LONG) if np.isnan([emergence, carried]).any() else (NOTE_LINEAR,)
    times = (leading, emergence, learned)
    return EmergencePrediction(*pairs, *pairs, *times, carried_time=carried, notes=notes, theory=LINEARISED)


def _predict_correlation(problem: Problem) -> EmergencePrediction:
    """Return the prediction for the one neuron of the objective "correlation", with arrays of one entry.

    It emerges when C² reaches its level, and is learned when g_3(C)/g_3(1) reaches a/2: C is the overlap, a the
    coefficient, and g_3 the kernel Σ c_j² C^j of the link over degrees j ≥ 3.
    """
    from dynamics.theory.correlation import leading_time, learned_level, mean_time

    level, leading = learned_level(problem), leading_time(problem)
    # Infinite where no overlap has that mass, NaN where the link has no learned mass.
    learned = mean_time(problem, level=level) if level < 1.0 else level
    only = Pairs(np.zeros(1, dtype=np.int64), problem.start().teacher_overlap[0].copy(), np.ones(1))
    times = np.array([[leading], [mean_time(problem)], [learned]])
    return EmergencePrediction(*only, *only, *times, notes=(NOTE_LEADING,) if np.isnan(leading) else ())


def sum_formula_loss(problem: Problem, prediction: EmergencePrediction, times: ArrayLike) -> Array:
    r"""Return the loss at given flow times as a staircase, one step per direction.

    .. math:: L(t) = g(1) \sum_p a_p^2\, 1\{t < T_p\}

    for an orthonormal teacher and c_0 = 0, else NaN. T_p is the predicted learned time, for k ≤ 2 the carried time. A
    neuron at −θ with the share r of a direction (`dynamics.theory.pairs`) takes r² g(1) a_p² away when it has half of
    that; the rest goes with the neuron that learns the direction from the side of θ, if there is one. Of the objective
    "correlation", where no norm grows, it is the loss of the start until the emergence, and that of C = 1 afterwards.
    """
    t = np.asarray(times, dtype=np.float64)
    if is_correlation(problem):
        from dynamics.theory.correlation import staircase

        return staircase(problem, float(prediction.predicted_emergence_time[0]), t)
    if problem.activation.coefficients[0] != 0.0 or not problem.teacher.is_orthonormal:
        return np.full(t.shape, np.nan)
    when, remaining = sorted_stairs(problem, prediction)
    return np.asarray(remaining[np.searchsorted(when, t, side="right")])


def sorted_stairs(problem: Problem, prediction: EmergencePrediction) -> tuple[Array, Array]:
    """Return the times of the steps of the sum formula, increasing and inf for never, (N,), and the losses, (N + 1,).

    The losses are those before the first step, between two, and after the last.
    """
    learned, a, side = prediction.predicted_learned_time, problem.teacher.coefficients, FarSide.of(problem)
    when, height = learned if prediction.carried_time is None else prediction.carried_time, a**2
    far = np.flatnonzero(prediction.matched_overlap < 0.0)
    if side is not None and far.size and side.share > 0.0:
        a, share, first_time = a[far], side.share**2, when[far]
        if not side.learns:
            ratio = a / prediction.matched_squared_norm[far]
            first_time = side.half_learned(prediction.matched_overlap[far], ratio) / a
        # The rest goes with the neuron on the side of θ that learns the direction.
        second_time = np.where(prediction.learning_overlap[far] > 0.0, learned[far], np.inf)
        when, height = np.append(when, second_time), np.append(height, (1.0 - share) * a**2)
        when[far], height[far] = np.minimum(first_time, second_time), share * a**2
    order = np.argsort(when, kind="stable")
    norm = float(np.sum(problem.activation.coefficients**2))
    # Summed from the last step to the first, so that a small loss keeps its relative precision.
    return when[order], norm * np.append(np.cumsum(height[order][::-1])[::-1], 0.0)


def check_decouples(problem: Problem) -> None:
    """Raise ValueError unless the information exponent k is at least 3: then directions are learned one by one."""
    k = problem.information_exponent
    require(
        k >= 3,
        "Argument `problem` must have a link of information exponent at least 3, because directions do not decouple "
        f"for k <= 2, but {problem.activation.name} has k = {k}.",
    )


def default_times(problem: Problem, prediction: EmergencePrediction | None) -> SaveAt:
    """Return the times at which a flow is saved when none are given, equally spaced in ln t.

    They reach to a multiple of the last learned time of `prediction`. Without one, or without such a time, the end
    follows from the slowest relaxation of a direction.
    """
    if prediction is not None:
        learned, emergence = prediction.predicted_learned_time, prediction.predicted_emergence_time
        learned = np.where(np.isfinite(learned), learned, emergence)
        if (finite := np.isfinite(learned)).any():
            emerged = float(emergence[finite].min())
            # Weight that the start carries counts as learned before the direction has emerged.
            last = LAST_LEARNED_FACTOR * max(float(learned[finite].max()), emerged)
            first = max(0.1 * emerged, 1e-3 * last / DEFAULT_COUNT, 1e-12)
            return SaveAt.geometric(first, max(last, 1e-9), DEFAULT_COUNT)
    a_min = float((problem.teacher.coefficients * direction_speeds(problem)).min())
    slope = float(problem.activation.kernel_derivative(1.0))
    growth = np.log(problem.dimension) + abs(np.log(float(np.min(problem.start().squared_norm))))
    last = 20.0 * max(growth, 1.0) / (a_min * slope)
    return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)


def default_committee_times(problem: Problem) -> SaveAt:
    """Return the times at which a committee is saved when none are given, equally spaced in ln t.

    Above k = 2, the information exponent, one neuron of length 1 alone obeys C' = k a_p c_k² C^(k−1) for small overlaps
    C and leaves them after C(0)^(2−k) / (k (k − 2) a_p c_k²), with the coefficient a_p of a direction and c_k of the
    link. The end is a multiple of the longest such time.
    """
    k = problem.information_exponent
    if k <= 2:
        return default_times(problem, None)
    start = problem.start().teacher_overlap
    overlap = float((start if k % 2 else np.abs(start)).max(axis=0).min())
    overlap = max(overlap, SMALLEST_OVERLAP / np.sqrt(problem.dimension))
    strength = float(problem.activation.coefficients[k]) ** 2 * float(problem.teacher.coefficients.min())
    last = ALONE_FACTOR * overlap ** (2 - k) / (k * (k - 2) * strength)
    return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)


def leading_escape(problem: Problem) -> tuple[Array, Array]:
    r"""Return the overlap C_0 that is nearest to each direction at the start, and its time of escape, shape (P,) each.

    .. math:: T_p = \frac{1 - C_0}{c_1^2 b_p} \;(k = 1), \qquad T_p = \frac{\ln(1/C_0)}{2 c_2^2 b_p} \;(k = 2)

    with b_p = a_p for k = 2, and for k = 1, where a neuron feels the sum of all directions, b = T a.
    """
    k, a = problem.information_exponent, problem.teacher.coefficients
    overlap = problem.start().teacher_overlap
    size = np.abs(overlap) if k == 2 else overlap
    nearest = overlap[np.argmax(size, axis=0), np.arange(a.size)]
    strength = float(problem.activation.coefficients[k]) ** 2
    with np.errstate(divide="ignore"):
        if k == 2:
            return nearest, -np.log(np.abs(nearest)) / (2.0 * strength * a)
        pull = a if problem.teacher.is_orthonormal else problem.teacher.gram() @ a
        return nearest, np.where(pull > 0.0, (1.0 - nearest) / (strength * pull), np.inf)


def linear_times(problem: Problem, last: float, method: str = "explicit") -> Array:
    r"""Return when directions emerge, are learned, and are carried in the linearised flow, followed up to time `last`.

    .. math:: w_i' = 2 c_0^2 \Big(\sum_p a_p - \sum_j n_j\Big) w_i + c_1^2 [(u_i\cdot v) w_i + |w_i| v]
        + 2 c_2^2 (A - S) w_i, \qquad v = \sum_p a_p \theta_p - \sum_j |w_j| w_j

    with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. Emerged and learned are defined as for the flow, and carried is
    Σ_i n_i g(C_ip)/g(1) ≥ a_p/2 with the kernel of c_0, c_1, c_2 alone: then the loss has fallen. Times (3, P) are inf
    if never and NaN if that would take too long to find out, or if this flow does not come to it. Large problems take
    the method "explicit", others `method`, which is that or "bdf".
    """
    # Compiled functions need Numba, which closed forms do not.
    from dynamics.equations.vectors import LinearisedSystem
    from dynamics.integrators import stepper_of

    system = LinearisedSystem(problem)
    work = problem.width * system.initial_state.size
    most, piece = min(MOST_EVALUATIONS, MOST_WORK / work), min(PIECE_EVALUATIONS, PIECE / work)
    if most < MOST_EVALUATIONS:
        method = "explicit"
    tolerance = SHARPNESS[method] * ACCURACY
    with blas_threads_for(problem.width):
        stepper = stepper_of(system, method, rtol=tolerance, atol=tolerance)
        is_open = np.ones((3, problem.num_directions), dtype=bool)
        is_open[1] = problem.learned_part.is_defined
        # Until it is known which of the events pass.
        can_decide = True
        while np.isnan(stepper.event_times[is_open.ravel()]).any() and stepper.time < last:
            evaluations_left = most - stepper.statistics()["rhs_evaluations"]
            steps = max(math.ceil(min(evaluations_left, piece) / STEP_EVALUATIONS[method]), 1)
            can_decide = evaluations_left >= 0.0 and stepper.advance(last, steps) in (Status.REACHED, Status.MAX_STEPS)
            if not can_decide:
                break
            now = stepper.time
            moved = np.max(np.abs(stepper.derivative(now))) * (last - now)
            if moved < STILLNESS * np.max(np.abs(stepper.interpolate(now))):
                break
    times: Array = stepper.event_times.reshape(is_open.shape)
    # A step may go beyond the last time.
    times[~(times <= last)] = np.inf if can_decide else np.nan
    if problem.learned_part.definition == IDENTIFYING:
        times[1, np.isinf(times[1])] = np.nan
    return times
