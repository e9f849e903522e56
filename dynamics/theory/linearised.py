r"""Times of escape for information exponents 1 and 2, where directions are not learned one by one.

What is linearised are the forces in the overlaps: of the link only c_0, c_1 and c_2 are kept, so that
g'(s) ≈ c_1² + 2 c_2² s between neurons and directions, and among neurons. All neurons and directions stay coupled and
norms grow as they do; with c_1 = c_0 = 0 this is the matrix Riccati flow W' = 2 c_2² (A − W Wᵀ) W of phase retrieval.
It is the flow itself until overlaps are so large that h_3, h_4, … pull too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynamics.compiler.threads import blas_threads_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Relative accuracy of the integration, and of the times.
ACCURACY = 1e-6
#: The flow is followed until nothing would move by more than this part in the time that is left.
STILLNESS = 1e-2
#: It is given up after so many evaluations, or multiplications: seconds on one core.
MOST_EVALUATIONS = 6000
MOST_WORK = 1.5e10


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
    from scipy.integrate import RK45

    weights = problem.reduced_weights()
    force, seen = _force(problem, weights.shape), _seen(problem, weights.shape)
    size = float(np.sqrt(np.mean(weights**2)))
    times = np.where(seen(weights.ravel()) >= 0.0, 0.0, np.inf)
    most = min(MOST_EVALUATIONS, MOST_WORK / (weights.shape[0] * weights.size))
    with blas_threads_for(problem.width):
        solver = RK45(lambda _, y: force(y), 0.0, weights.ravel(), last, rtol=ACCURACY, atol=ACCURACY * size)
        while solver.status == "running" and solver.nfev <= most and np.isinf(times).any():
            solver.step()
            crossed = np.isinf(times) & (seen(solver.y) >= 0.0)
            if crossed.any():
                times[crossed] = _crossings(solver.dense_output(), seen, crossed)
            if np.abs(solver.f).max() * (last - solver.t) < STILLNESS * np.abs(solver.y).max():
                return LinearTimes(*times)
    if solver.status != "finished":
        times[np.isinf(times)] = np.nan
    return LinearTimes(*times)


def _force(problem: Problem, shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Return the function of flattened weights that is their velocity."""
    c0, c1, c2 = _squares(problem)
    theta, a = _directions(problem, shape[1]), problem.teacher.coefficients
    target = a @ theta

    def force(flat: Array) -> Array:
        w = flat.reshape(shape)
        norm = np.sqrt(np.sum(w**2, axis=1, keepdims=True))
        velocity = 2.0 * c2 * (((w @ theta.T) * a) @ theta - (w @ w.T) @ w)
        if c0:
            velocity += 2.0 * c0 * (a.sum() - np.sum(norm**2)) * w
        if c1:
            v = target - norm[:, 0] @ w
            velocity += c1 * ((w @ v / norm[:, 0])[:, None] * w + norm * v)
        return np.asarray(velocity.ravel())

    return force


def _seen(problem: Problem, shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Return the function of flat weights with two rows (2, P), at least 0 once directions emerged, are learned."""
    squares = np.array(_squares(problem))
    theta, a = _directions(problem, shape[1]), problem.teacher.coefficients
    odd = problem.information_exponent % 2

    def seen(flat: Array) -> Array:
        w = flat.reshape(shape)
        n = np.sum(w**2, axis=1)
        C = w @ theta.T / np.sqrt(n)[:, None]
        largest = np.max((np.maximum(C, 0.0) if odd else C) ** 2, axis=0)
        mass = n @ np.polynomial.polynomial.polyval(C, squares) / squares.sum()
        return np.array([largest - 0.5, mass - 0.5 * a])

    return seen


def _crossings(path: Any, seen: Callable[[Array], Array], crossed: NDArray[np.bool_]) -> list[float]:
    """Return the times at which quantities pass 0 within a step, of which `path` is the state at any time."""
    from scipy.optimize import brentq

    found = []
    for at in map(tuple, np.argwhere(crossed).tolist()):

        def value(t: float, at: tuple[int, ...] = at) -> float:
            return float(seen(path(t))[at])

        # At the end of the step the path may be below the state by rounding.
        found.append(brentq(value, path.t_old, path.t, rtol=1e-9) if value(path.t) > 0.0 else path.t)
    return found


def _squares(problem: Problem) -> tuple[float, float, float]:
    """Return c_0², c_1², c_2²."""
    first = np.zeros(3)
    kept = problem.activation.coefficients[:3]
    first[: kept.size] = kept**2
    return float(first[0]), float(first[1]), float(first[2])


def _directions(problem: Problem, size: int) -> Array:
    """Return the teacher's directions (P, D) on the axes of the weights."""
    teacher = problem.teacher
    found = np.zeros((teacher.num_directions, size))
    found[:, : teacher.span] = np.eye(teacher.span) if teacher.directions is None else teacher.directions
    return found
