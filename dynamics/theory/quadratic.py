r"""Quadratic networks of any width: when directions are aligned and learned, the losses, and the limit of the step.

From the alignment A_j(0) of the start, about m/d, alone. Directions j beyond the m strongest are never learned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from dynamics.problem import LEARNED_SHARE, Problem, Teacher, check_problem, checked_number, is_frame
from dynamics.problem.checks import require
from dynamics.problem.student import FRAME, HOMOGENEOUS
from hermite.arrays import Array

#: Quantiles for means over the noise of a start.
_SHARES = (np.arange(256) + 0.5) / 256
#: The power law of the loss is looked for from the time of this direction to that of the m-th over it.
FIRST_RANK = 3
#: Iterations of Newton's method, which are enough for rounding.
ITERATIONS = 60


class QuadraticPrediction(NamedTuple):
    """When each of P directions is aligned and learned, shape (P,), in flow time; inf beyond the m strongest.

    With the alignment A_j(0) of the start, the coefficient a_j and the mean squared norm n of the neurons, direction j
    is aligned at t_j = ln((1 − A_j(0))/A_j(0))/(4 a_j) for the level ½. It is learned at the fixed point t of 4 a_j t =
    ln[(a_j/n)(1 + 4nt)/A_j(0)], or for a frame when n A_j = a_j/2. Times are 0 if it is so at the start.
    """

    aligned_time: Array
    learned_time: Array


def predict_quadratic(problem: Problem, initial_alignment: Array) -> QuadraticPrediction:
    """Return the predicted times of a quadratic network from the alignments A_j(0), (P,), of its start."""
    a, A, n = problem.teacher.coefficients, initial_alignment, float(problem.start().squared_norm.mean())
    learned = _wait(a, A, LEARNED_SHARE * a / n) if is_frame(problem) else _growth_time(a, n, A)
    times = (_wait(a, A, problem.emergence_level), learned)
    return QuadraticPrediction(*np.where(strongest(a, problem.width), times, np.inf))


def check_quadratic(problem: Problem) -> None:
    """Raise ValueError unless the problem has the link h_2, a tied second layer and orthonormal directions."""
    check_problem(problem, FRAME if is_frame(problem) else HOMOGENEOUS)
    link = problem.activation.coefficients
    is_he2 = link.size > 2 and link[2] == 1.0 and np.count_nonzero(link) == 1
    require(
        is_he2, f"Argument `problem` must have the link he2 for a quadratic network, but has {problem.activation.name}."
    )
    require(
        problem.teacher.is_orthonormal,
        "Argument `problem` must have an orthonormal teacher for a quadratic network, but it has not.",
    )


def strongest(coefficients: Array, width: int) -> NDArray[np.bool_]:
    """Return whether each direction is among the m strongest, shape (P,); of equal ones the first count."""
    among = np.zeros(coefficients.size, dtype=bool)
    among[np.argsort(-coefficients, kind="stable")[:width]] = True
    return among


def sigmoid_loss(coefficients: Array, width: int, initial_alignment: Array, times: Array) -> Array:
    """Return the losses Σ a_j² (1 − A_j(t)) at times (T,), with each of the m strongest directions growing alone.

    Alignments follow A_j/(1 − A_j) ∝ e^{4 a_j t} from `initial_alignment` (P,); a_j are the coefficients (P,), and the
    others keep A_j = 0. `width` is m.
    """
    among = strongest(coefficients, width)
    a, start = coefficients[among], scipy.special.logit(initial_alignment[among])
    remaining = np.array([np.sum(a**2 * scipy.special.expit(-(start + 4.0 * a * t))) for t in times])
    return np.asarray(remaining + np.sum(coefficients[~among] ** 2))


def staircase_loss(coefficients: Array, aligned_time: Array, times: Array) -> Array:
    """Return the losses Σ a_j² 1{t < t_j} at times (T,), with coefficients a_j and aligned times t_j, (P,) each."""
    order = np.argsort(aligned_time, kind="stable")
    remaining = np.append(np.cumsum((coefficients[order] ** 2)[::-1])[::-1], 0.0)
    return np.asarray(remaining[np.searchsorted(aligned_time[order], times, side="right")])


class QuadraticExponents(NamedTuple):
    """Exponents of L ∝ t^x, n^x and m^x for a_j ∝ j^(−α), and the law in words, or why there is none.

    n counts samples of SGD on frames, at the step that is best for each number of them.
    """

    loss_time: float
    loss_samples: float
    loss_width: float
    note: str


def quadratic_exponents(alpha: float | None) -> QuadraticExponents:
    """Return the exponents of L ~ t^{(1−2α)/α} + m^{1−2α}; NaN, with a note, where no power law holds.

    L is the loss, t the flow time, m the width, and `alpha` the decay of coefficients a_j ∝ j^(−α), None for others.
    Source: Ben Arous, Erdogdu, Vural, Wu, arXiv:2508.03688.
    """
    if alpha is not None and alpha > 0.5:
        time, width = (1 - 2 * alpha) / alpha, 1 - 2 * alpha
        note = f"asymptotically the loss is t^{time:.3g} + m^{width:.3g}, of directions that align one after the other"
        return QuadraticExponents(time, 0.5 * time, width, note)
    note = "no exponents of the loss: the teacher's coefficients follow no declared power law"
    if alpha is not None:
        note = (
            "no exponents of the loss: they need alpha > 1/2; below, the loss is a staircase that ends at "
            "1 - (m/r)^(1-2 alpha), the share of the directions beyond the m strongest"
        )
    return QuadraticExponents(np.nan, np.nan, np.nan, note)


def power_window(teacher: Teacher, width: int, dimension: int) -> tuple[float, float]:
    """Return the two times between which there may be a power law of the loss; NaN if there is no such window.

    They are the times ln(d/m)/(4 a_j) of the 3rd strongest direction and of the one of rank min(m, r)/3, with r
    directions, m = `width` and d = `dimension`.
    """
    a = np.sort(teacher.coefficients)[::-1]
    last = min(width, a.size) // FIRST_RANK
    if last <= FIRST_RANK or dimension <= width:
        return np.nan, np.nan
    wait = np.log(dimension / width) / 4.0
    return float(wait / a[FIRST_RANK - 1]), float(wait / a[last - 1])


# --- SGD on frames ----------------------------------------------------------------------------------------------------


def rate_limits(problem: Problem) -> Array:
    r"""Return the learning rate above which noise keeps a frame from each direction, shape (P,), dimensionless.

    .. math:: \eta^*_j = \frac{2 a_j}{d\,(n^2 m + \sum_l a_l^2 + \tau^2 + 4 n^2)}, \qquad n = \sigma_0^2

    One sample a step drags M = UΘᵀ by η (d − m) D M, D = (|Q − A|² + τ²) I + 4U(Q − A)²Uᵀ, of which near M = 0 the
    square of the loss, n²m + Σa², and (Q − A)² = n² on the frame are left.
    """
    a, n = problem.teacher.coefficients, float(problem.start().squared_norm[0])
    noise = n**2 * problem.width + np.sum(a**2) + problem.label_noise**2 + 4.0 * n**2
    return np.asarray(2.0 * a / (problem.dimension * noise))


def steps_to_align(problem: Problem, learning_rate: float | None = None) -> Array:
    r"""Return the number of samples in which each direction aligns, at a learning rate or at the best one.

    .. math:: \frac{\ln(d/m)}{4 a_j\, \eta\, (1 - \eta/\eta^*_j)}, \qquad \text{fewest at } \eta = \eta^*_j/2

    Shape (P,); inf where η ≥ η*_j and beyond the m strongest.
    """
    a, limits = problem.teacher.coefficients, rate_limits(problem)
    rate = limits / 2.0 if learning_rate is None else checked_number(learning_rate, "learning_rate", positive=True)
    slowdown = 1.0 - rate / limits
    wait = np.log(problem.dimension / problem.width) / (4.0 * a * rate)
    learns = strongest(a, problem.width) & (slowdown > 0.0)
    return np.asarray(np.divide(wait, slowdown, out=np.full_like(a, np.inf), where=learns))


def frame_escape(problem: Problem, learning_rate: float) -> tuple[Array, Array, Array]:
    r"""Return drag, advance and scatter of the times of alignment of a frame under SGD, each (P,), at leading order.

    .. math:: T = \frac{\ln(1/|M_j + \xi|^2)}{4 a_j (1 - \rho)}, \quad \rho = \eta/\eta^*_j, \qquad
       \xi \sim N\Big(0, \frac{\rho}{d (1 - \rho)} I_m\Big)

    Near M = 0 the column M_j of M = UΘᵀ is an Ornstein–Uhlenbeck process of growth 2a_j(1 − ρ) and noise 2ηD, ηD =
    2a_jρ/d: it grows from the start with all its noise, whose square is noncentral χ². The logarithm of the time gains
    the drag, ln(1/(1 − ρ)), inf where ρ ≥ 1, and the advance, below 0; the scatter is relative to the mean.
    """
    a, start = problem.teacher.coefficients, problem.start()
    share = checked_number(learning_rate, "learning_rate", positive=True) / rate_limits(problem)
    alignment = np.sum(start.teacher_overlap**2, axis=0)
    drag, advance, scatter = np.full(a.size, np.inf), np.zeros(a.size), np.full(a.size, np.nan)
    for j in np.flatnonzero((share < 1.0) & (alignment < problem.emergence_level) & (alignment > 0.0)):
        noise = share[j] / (1.0 - share[j]) / problem.dimension
        sizes = noise * scipy.special.chndtrix(_SHARES, problem.width, alignment[j] / noise)
        log_growth = np.maximum(-np.log(sizes), 0.0)
        drag[j] = -np.log1p(-share[j])
        advance[j] = np.log(log_growth.mean() / -np.log(alignment[j]))
        scatter[j] = log_growth.std() / log_growth.mean()
    return drag, advance, scatter


def frame_rivals(problem: Problem) -> tuple[Array, Array]:
    r"""Return a factor on the scatter of each direction's time for a frame, and its aligned time alone, (P,) each.

    .. math:: \sqrt2\, \frac{a_p}{a_p - a_q}, \qquad T_p \approx \frac{\ln(A_q/A_p)}{4 (a_p - a_q)}

    A frame is a student of orthogonal neurons of equal length; A_p, from 0 to 1, is the squared length of the
    projection of direction p on their span, at the start, a_p its coefficient, and q the next weaker direction.
    Direction p emerges at about T_p if it first has to overtake q, so that the scatter of the logarithms of both
    alignments enters; hence the factor, √2 for the weakest direction and inf for equal coefficients. The second array
    has the flow times at which directions would align without rivals (`predict_quadratic`).
    """
    a = problem.teacher.coefficients
    order = np.argsort(-a, kind="stable")
    weaker = np.empty_like(a)
    weaker[order] = np.append(a[order][1:], 0.0)
    with np.errstate(divide="ignore"):
        amplified: Array = np.sqrt(2.0) * a / (a - weaker)
    start = np.sum(problem.start().teacher_overlap ** 2, axis=0)
    return amplified, predict_quadratic(problem, start).aligned_time


def _wait(rates: Array, alignment: Array, level: Array | float) -> Array:
    """Return the times at which alignments that grow logistically at rates 4 a reach a level; inf for levels ≥ 1.

    `rates` are the coefficients a (P,), `alignment` (P,) that of the start, and `level` from 0 to 1. Times are 0 where
    the level is reached at the start.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = (scipy.special.logit(level) - scipy.special.logit(alignment)) / (4.0 * rates)
    return np.asarray(np.where(alignment >= level, 0.0, np.where(np.asarray(level) < 1.0, wait, np.inf)))


def _growth_time(a: Array, n: float, alignment: Array) -> Array:
    """Return the times t (P,) at which directions are learned: the largest roots of 4 a t = ln c + ln(1 + 4nt).

    Here c = a/(n A), with coefficients a (P,), the squared norm n of a neuron and alignments A (P,) at the start. The
    time is 0 if n A ≥ a/2, and inf if A = 0.
    """
    times = np.where(n * alignment >= LEARNED_SHARE * a, 0.0, np.inf)
    grows = (times > 0.0) & (alignment > 0.0)
    a, log = a[grows], np.log(a[grows] / n) - np.log(alignment[grows])
    # The right side is concave in t: its tangent of slope 2a meets the line beyond the root, from where Newton's
    # method goes down to it.
    t = (log + np.log(np.maximum(2.0 * n / a, 1.0))) / (2.0 * a)
    for _ in range(ITERATIONS):
        t -= (4.0 * a * t - log - np.log1p(4.0 * n * t)) / (4.0 * a - 4.0 * n / (1.0 + 4.0 * n * t))
    times[grows] = t
    return times
