r"""Times of escape for information exponents 1 and 2, where directions are not learned one by one.

What is linearised are the forces in the overlaps: of the link only c_0, c_1 and c_2 are kept, so that
g'(s) ≈ c_1² + 2 c_2² s between neurons and directions, and among neurons. All neurons and directions stay coupled and
norms grow as they do; with c_1 = c_0 = 0 this is the matrix Riccati flow W' = 2 c_2² (A − W Wᵀ) W of phase retrieval.
It is the flow itself until overlaps are so large that h_3, h_4, … pull too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.compiler.compilation import kernel_pieces, load
from dynamics.compiler.threads import blas_threads_for
from dynamics.equations.pairs.unit_vectors import teacher_rows

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array

KERNELS = tuple(f"dynamics.equations.pairs.{name}_kernels" for name in ("array", "vectors", "linearised"))
#: Rows and slots of the kernels' arrays and why they end, as in `linearised_kernels`, which would load Numba.
ROW_NOW, ROW_BEFORE, ROW_VELOCITIES, LINEARISED_ROWS, EVALUATED = 0, 1, 3, 10, 3
STATUS_ENDED, STATUS_STILL, STATUS_PASSED, STATUS_PAUSED = 0, 1, 2, 3
#: Relative accuracy of the integration, and of the times.
ACCURACY = 1e-6
#: It is given up after so many evaluations, or multiplications: seconds on one core.
MOST_EVALUATIONS = 6000
MOST_WORK = 1.5e10
#: Multiplications between two chances of Ctrl-C.
PIECE = 2e8


class LinearTimes(NamedTuple):
    """Times of the linearised flow per direction (P,), inf if never, NaN if that would take too long to find out."""

    emergence: Array
    learned: Array


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

    with A = Σ_p a_p θ_p θ_pᵀ and S = Σ_j w_j w_jᵀ. Emerged and learned are defined as for the flow, the learned mass
    with the kernel of c_0, c_1, c_2 alone. O(m² D) a step in D ≤ m + r coordinates.
    """
    weights = problem.reduced_weights()
    course = _Course(problem, weights)
    times = np.where(course.seen(weights.ravel()) >= 0.0, 0.0, np.inf)
    most = min(MOST_EVALUATIONS, MOST_WORK / (weights.shape[0] * weights.size))
    piece = max(PIECE / (weights.shape[0] * weights.size), 1.0)
    status = STATUS_PAUSED
    with blas_threads_for(problem.width):
        while status in (STATUS_PASSED, STATUS_PAUSED) and course.evaluations <= most and np.isinf(times).any():
            status = course.follow(last, min(course.evaluations + piece, most), times)
            crossed = np.isinf(times) & (course.found >= 0.0)
            times[crossed] = [course.crossing(int(event)) for event in np.flatnonzero(crossed)]
    if status not in (STATUS_ENDED, STATUS_STILL):
        times[np.isinf(times)] = np.nan
    return LinearTimes(*times.reshape(2, -1))


class _Course:
    """The linearised flow of a problem on its way."""

    def __init__(self, problem: Problem, weights: Array) -> None:
        from scipy.integrate import RK45

        (m, D), P = weights.shape, problem.num_directions
        self._compiled = load(kernel_pieces(*KERNELS)).namespace
        self._rows = np.zeros((LINEARISED_ROWS, weights.size))
        self._rows[ROW_NOW] = weights.ravel()
        self._clock = np.zeros(4)
        tableau = np.zeros((7, 7))
        tableau[:5, :5], tableau[5, :6], tableau[6] = RK45.A[1:], RK45.B, RK45.E
        teacher, squares = problem.teacher, np.zeros(3)
        kept = problem.activation.coefficients[:3]
        squares[: kept.size] = kept**2
        self._path = RK45.P
        self._size = ACCURACY * float(np.sqrt(np.mean(weights**2)))
        #: At least 0 once directions emerged, and once they are learned, shape (2 P,).
        self.found = np.empty(2 * P)
        self._constants = (
            tableau,
            teacher_rows(problem, D),
            teacher.coefficients.copy(),
            squares,
            problem.information_exponent % 2,
            np.empty(m * m + m * P + m),
        )

    @property
    def evaluations(self) -> float:
        """Number of evaluations so far."""
        return float(self._clock[EVALUATED])

    def follow(self, last: float, most: float, times: Array) -> int:
        """Take steps until an event is passed whose time is infinite, or after so many evaluations; return why."""
        call = (self._rows, self._clock, times, self.found, *self._constants)
        return int(self._compiled.follow(last, most, ACCURACY, self._size, *call))

    def seen(self, state: Array) -> Array:
        """Return `found` of weights."""
        found = np.empty_like(self.found)
        rows = np.array(state[None])
        self._compiled.follow(0.0, 0.0, ACCURACY, self._size, rows, np.zeros(4), found, found, *self._constants)
        return found

    def crossing(self, event: int) -> float:
        """Return the time at which an event passes 0 within the last step, on the polynomial of the step."""
        from scipy.optimize import brentq

        now, before = self._clock[:2]
        change = (now - before) * (self._path.T @ self._rows[ROW_VELOCITIES:])
        powers = np.arange(1, len(change) + 1)

        def value(t: float) -> float:
            x = (t - before) / (now - before)
            return float(self.seen(self._rows[ROW_BEFORE] + x**powers @ change)[event])

        # At the end of the step the polynomial may be below the state by rounding.
        return float(brentq(value, before, now, rtol=1e-9)) if value(now) > 0.0 else float(now)
