r"""Times of escape for information exponents 1 and 2, where directions are not learned one by one.

What is linearised are the forces in the overlaps: of the link only c_0, c_1 and c_2 are kept, so that
g'(s) ≈ c_1² + 2 c_2² s between neurons and directions, and among neurons. All neurons and directions stay coupled and
norms grow as they do; with c_1 = c_0 = 0 this is the matrix Riccati flow W' = 2 c_2² (A − W Wᵀ) W of phase retrieval.
It is the flow itself until overlaps are so large that h_3, h_4, … pull too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.cores import blas_threads_for
from dynamics.integrators.stepper import Status
from dynamics.problem.emergence import IDENTIFYING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.integrators import Stepper
    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Relative accuracy of the integration, and of the times.
ACCURACY = 1e-6
#: Nothing moves by more than this part in the time that is left.
STILLNESS = 1e-2
#: It is given up after so many evaluations, or multiplications: seconds on one core.
MOST_EVALUATIONS = 6000
MOST_WORK = 1.5e10
#: Evaluations, or multiplications, between two looks whether anything moves, and chances of Ctrl-C.
PIECE_EVALUATIONS = 192
PIECE = 2e8
#: Evaluations of a step of the explicit pair.
STEP_EVALUATIONS = 12


class LinearTimes(NamedTuple):
    """Times of the linearised flow per direction (P,), inf if never, NaN if that would take too long to find out."""

    emergence: Array
    #: NaN where this flow does not come to it: the degrees 3, 4, …, which turn neurons to directions, do not move it.
    learned: Array
    #: When half of the weight is carried, the degrees 0, 1 and 2 counted: then the loss has fallen.
    carried: Array


def leading_escape(problem: Problem) -> tuple[Array, Array]:
    r"""Return the overlap C_0 that is nearest to each direction at the start, and its time of escape, shape (P,) each.

    .. math:: T_p = \int_{C_0}^1 \frac{dC}{k c_k^2\, b_p\, C^{k-1}}, \qquad
        T_p = \frac{1 - C_0}{c_1^2 b_p} \;(k = 1), \quad T_p = \frac{\ln(1/C_0)}{2 c_2^2 b_p} \;(k = 2)

    with b_p = a_p for k = 2, and for k = 1, where a neuron feels the sum of all directions, b = T a.
    """
    k, a = problem.information_exponent, problem.teacher.coefficients
    overlap = problem.start().teacher_overlap
    size = np.abs(overlap) if k == 2 else overlap
    nearest = overlap[np.argmax(size, axis=0), np.arange(a.size)]
    strength = float(problem.activation.coefficients[k]) ** 2
    if k == 2:
        with np.errstate(divide="ignore"):
            return nearest, -np.log(np.abs(nearest)) / (2.0 * strength * a)
    pull = a if problem.teacher.is_orthonormal else problem.teacher.gram() @ a
    with np.errstate(divide="ignore"):
        return nearest, np.where(pull > 0.0, (1.0 - nearest) / (strength * pull), np.inf)


def linear_times(problem: Problem, last: float) -> LinearTimes:
    r"""Return when directions emerge and are learned in the linearised flow, followed up to time `last`.

    .. math:: w_i' = 2 c_0^2 \Big(\sum_p a_p - \sum_j n_j\Big) w_i + c_1^2 [(u_i\cdot v) w_i + |w_i| v]
        + 2 c_2^2 (A - S) w_i, \qquad v = \sum_p a_p \theta_p - \sum_j |w_j| w_j

    with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. Emerged and learned are defined as for the flow, and carried is
    Σ_i n_i g(C_ip)/g(1) ≥ a_p/2 with the kernel of c_0, c_1, c_2 alone. O(m² D) a step in D ≤ m + r coordinates.
    """
    # Imported here because compiled functions need Numba, which closed forms do not.
    from dynamics.equations.linearised import LinearisedSystem
    from dynamics.integrators import stepper_of

    system = LinearisedSystem(problem)
    work = problem.width * system.initial_state.size
    most, piece = min(MOST_EVALUATIONS, MOST_WORK / work), min(PIECE_EVALUATIONS, PIECE / work)
    with blas_threads_for(problem.width):
        stepper, _ = stepper_of(system, "explicit", rtol=ACCURACY, atol=ACCURACY)
        asked = np.ones((3, problem.num_directions), dtype=bool)
        asked[1] = problem.learned_part.is_defined
        known = _follow(stepper, last, most, piece, asked.ravel())
    times = stepper.event_times.reshape(asked.shape)
    # A step may go beyond the last time.
    times[~(times <= last)] = np.inf if known else np.nan
    if problem.learned_part.definition == IDENTIFYING:
        times[1, np.isinf(times[1])] = np.nan
    return LinearTimes(*times)


def _follow(stepper: Stepper, last: float, most: float, piece: float, asked: NDArray[np.bool_]) -> bool:
    """Take steps until it is known which events asked for pass up to time `last`; return whether that became known."""
    while np.isnan(stepper.event_times[asked]).any() and stepper.time < last:
        left = most - stepper.statistics()["rhs_evaluations"]
        if left < 0.0:
            return False
        status = stepper.advance(last, max(math.ceil(min(left, piece) / STEP_EVALUATIONS), 1))
        if status not in (Status.REACHED, Status.MAX_STEPS):
            return False
        now = stepper.time
        moved = np.max(np.abs(stepper.derivative(now))) * (last - now)
        if moved < STILLNESS * np.max(np.abs(stepper.interpolate(now))):
            break
    return True
