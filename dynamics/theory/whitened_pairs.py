r"""One neuron and one direction alone on inputs of covariance Σ: an exact flow of few numbers, and its times.

Off the axes of the direction every weight follows one clock Φ, ŵ_l(t) = ŵ_l(0) exp(s_l Φ), so that

.. math::
   \Phi' = E = 2\,[a\, g(C) - n\, g(1)] - C\, a\, g'(C), \qquad
   \hat w_l' = s_l\, [E\, \hat w_l + \sqrt n\, a\, g'(C)\, \hat\theta_l], \qquad
   n = \sum_{l:\, \hat\theta_l \ne 0} \hat w_l^2 + \sum_c N_c\, e^{2 s_c \Phi}

with N_c = Σ ŵ_l(0)² over the other axes of class c: two numbers, Φ and ŵ_p, for a direction on an axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.emergence import EMERGENCE_LEVEL, LEARNED_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

#: How far a pair is followed: so many times the leading-order time to emerge, the time to grow to be learned.
EMERGENCE_FACTOR, LEARNING_FACTOR = 50.0, 20.0
RTOL, ATOL = 1e-11, 1e-13


@dataclass(frozen=True, slots=True)
class WhitenedPair:
    """A neuron and a direction of coefficient a; dimensionless.

    `eigenvalue`, `direction` and `weight`, shape (r,), are s_l, θ̂_l and ŵ_l on the axes of the direction, `around` and
    `square`, shape (classes,), s_c and N_c of all others.
    """

    link: HermiteExpansion
    coefficient: float
    eigenvalue: Array
    direction: Array
    weight: Array
    around: Array
    square: Array

    def times(self, rtol: float = RTOL) -> tuple[float, float]:
        """Return the times of C² = ½, 0 if there already, and of n g(C)/g(1) = a/2; inf if never."""
        state = np.append(0.0, self.weight)
        n = self.overlap(state)[1]
        rate = self.coefficient * self.speed * self.link.kernel_at_one
        begun = self._first(
            lambda y: self.overlap(y)[0] ** 2 - EMERGENCE_LEVEL,
            *(0.0, state, EMERGENCE_FACTOR * self.leading_order(), rtol),
        )
        if begun is None:
            return np.inf, np.inf
        grown = LEARNING_FACTOR * (1.0 + max(np.log(self.coefficient / n), 0.0)) / rate
        learned = self._first(self._learned, *begun, begun[0] + grown, rtol)
        return begun[0], np.inf if learned is None else learned[0]

    @property
    def speed(self) -> float:
        """s_p = θ̂ᵀ Σ θ̂, the eigenvalue of a direction on an axis."""
        return float(self.eigenvalue @ self.direction**2)

    def leading_order(self) -> float:
        """Return 1/(k (k − 2) c_k² a s_p |C_0|^(k−2))."""
        k, overlap = self.link.information_exponent, abs(self.overlap(np.append(0.0, self.weight))[0])
        scale = k * (k - 2) * float(self.link.coefficients[k]) ** 2 * self.coefficient * self.speed
        return 1.0 / (scale * overlap ** (k - 2))

    def overlap(self, state: Array) -> tuple[float, float]:
        """Return C and n of a state (Φ, ŵ on the axes of the direction)."""
        n = float(state[1:] @ state[1:] + self.square @ np.exp(2.0 * state[0] * self.around))
        return float(self.direction @ state[1:]) / np.sqrt(n), n

    def rates(self, _time: float, state: Array) -> Array:
        """Return the rates of a state."""
        C, n = self.overlap(state)
        value, pull = (self.coefficient * float(each(C)) for each in (self.link.kernel, self.link.kernel_derivative))
        E = 2.0 * (value - n * self.link.kernel_at_one) - C * pull
        return np.append(E, self.eigenvalue * (E * state[1:] + np.sqrt(n) * pull * self.direction))

    def _learned(self, state: Array) -> float:
        C, n = self.overlap(state)
        return n * float(self.link.kernel(C)) / self.link.kernel_at_one - LEARNED_SHARE * self.coefficient

    def _first(
        self, event: Callable[[Array], float], time: float, state: Array, last: float, rtol: float
    ) -> tuple[float, Array] | None:
        """Return when an event first holds, and the state then; None if not until the last time."""
        from scipy.integrate import solve_ivp

        if event(state) >= 0.0:
            return time, state

        def passed(_time: float, y: Array) -> float:
            return event(y)

        stops: Any = passed
        stops.terminal = True
        size = ATOL * np.append(1.0, np.full(state.size - 1, np.sqrt(self.overlap(state)[1])))
        # A step that is tried and refused may go to Φ > 0, where weights of large eigenvalues overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            found: Any = solve_ivp(self.rates, (time, last), state, method="DOP853", rtol=rtol, atol=size, events=stops)
        return (float(found.t_events[0][0]), found.y_events[0][0]) if found.t_events[0].size else None


def whitened_pair(problem: Problem, weights: Array, neuron: int, direction: int) -> WhitenedPair:
    """Return a pair of a problem that has `inputs`, of its reduced weights Ŵ (m, D)."""
    axes, teacher = problem.input_axes(), problem.teacher
    if axes is None:
        msg = "Argument `problem` must have `inputs`, but has none."
        raise ValueError(msg)
    row = np.zeros(axes.places.size)
    row[: teacher.span] = (
        np.eye(teacher.span)[direction] if teacher.directions is None else teacher.directions[direction]
    )
    on = row != 0.0
    square = np.zeros(axes.eigenvalue.size)
    np.add.at(square, axes.kind[~on], weights[neuron, ~on] ** 2)
    return WhitenedPair(
        problem.activation,
        float(teacher.coefficients[direction]),
        axes.eigenvalues[on],
        row[on],
        weights[neuron, on],
        axes.eigenvalue,
        square,
    )


def direction_speeds(problem: Problem) -> Array:
    """Return s_p = θ̂_pᵀ Σ θ̂_p per direction, shape (P,), of a problem that has `inputs`; ones without."""
    axes, teacher = problem.input_axes(), problem.teacher
    if axes is None:
        return np.ones(teacher.num_directions)
    values = axes.eigenvalues[: teacher.span]
    found: Array = values if teacher.directions is None else teacher.directions**2 @ values
    return found


def first_learned(problem: Problem) -> Integers:
    """Return the min(m, P) directions that are learned first, of largest a_p s_p^(k/2) as times of pairs go."""
    order = problem.teacher.coefficients * direction_speeds(problem) ** (0.5 * problem.information_exponent)
    found: Integers = np.sort(np.argsort(-order, kind="stable")[: problem.width])
    return found
