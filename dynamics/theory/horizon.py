"""The saved times of a problem when none are given: how far its flow must be followed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np

from dynamics.problem.schedule import DEFAULT_COUNT, SaveAt
from dynamics.theory.components import mean_derivatives_at
from dynamics.theory.whitened_pairs import direction_speeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dynamics.problem import Problem, Student
    from dynamics.theory.prediction import EmergencePrediction

#: The default schedule ends at this multiple of the last predicted learned time. Interactions delay the last direction:
#: by a factor of 1.02 to 1.69 in eight random starts of the main command.
LAST_LEARNED_FACTOR = 2.5
#: A committee of k > 2 is followed for so many times that which a neuron of length 1 needs alone. No theory says how
#: long it takes; in random starts of initial norm 1/2 at d = 32 and 1024 (h_3, h_4, 0.8 h_3 + 0.6 h_4, 0.8 h_4 + 0.6
#: h_6, 21 to 24 starts of each) the last direction took at most 45 of these, but for a tenth of the odd ones.
ALONE_FACTOR = 250.0
#: A network is followed for so many times the sum of those that a neuron alone needs for the parts of its teacher.
NETWORK_FACTOR = 20.0
#: Orders of a unit's link that are looked at, and the part of the largest rate below which a rate counts as none.
UNIT_ORDERS, NO_RATE = 6, 1e-9
#: An overlap below this part of 1/√d is not waited for.
SMALLEST_OVERLAP = 0.1


def default_schedule(problem: Problem, prediction: EmergencePrediction | None) -> SaveAt:
    """Return the schedule used when none is given; see `dynamics.solve_overlaps`."""
    if prediction is not None:
        learned = np.where(
            np.isfinite(prediction.predicted_learned_time),
            prediction.predicted_learned_time,
            prediction.predicted_emergence_time,
        )
        finite = np.isfinite(learned)
        if finite.any():
            emerged = float(prediction.predicted_emergence_time[finite].min())
            # What the start carries already counts as learned before it has emerged.
            last = LAST_LEARNED_FACTOR * max(float(learned[finite].max()), emerged)
            first = 0.1 * emerged
            return SaveAt.geometric(max(first, 1e-3 * last / DEFAULT_COUNT, 1e-12), max(last, 1e-9), DEFAULT_COUNT)
    a_min = float((problem.teacher.coefficients * direction_speeds(problem)).min())
    slope = float(problem.activation.kernel_derivative(1.0))
    growth = np.log(problem.dimension) + abs(np.log(float(np.min(problem.start().squared_norm))))
    last = 20.0 * max(growth, 1.0) / (a_min * slope)
    return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)


def default_committee_schedule(problem: Problem) -> SaveAt:
    """Return the schedule of a committee used when none is given; see `dynamics.solve_committee`.

    Up to k = 2 overlaps grow exponentially, as those of the homogeneous student. Beyond, one neuron of length 1 alone
    obeys C' = k a_p c_k² C^(k−1) near the equator and leaves it after C(0)^(2−k) / (k (k − 2) a_p c_k²).
    """
    k = problem.information_exponent
    if k <= 2:
        return default_schedule(problem, None)
    start = problem.start().teacher_overlap
    overlap = float((start if k % 2 else np.abs(start)).max(axis=0).min())
    overlap = max(overlap, SMALLEST_OVERLAP / np.sqrt(problem.dimension))
    strength = float(problem.activation.coefficients[k]) ** 2 * float(problem.teacher.coefficients.min())
    last = ALONE_FACTOR * overlap ** (2 - k) / (k * (k - 2) * strength)
    return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)


def default_network_schedule(problem: Problem) -> SaveAt:
    """Return the schedule of a network used when none is given; see `dynamics.solve_network`.

    Near M = 0 one neuron alone follows M' = ε_w s v g D_L M^(L−1), g = f*_α/√α! or a_p D*_L/(L−1)!, and leaves it after
    1, ln d or (√d)^(L−2) over the rate for L = 1, 2 or more.
    """
    v, b, weights = problem.network_start()
    student, root = cast("Student", problem.student), np.sqrt(problem.dimension)
    waits = {1: 1.0, 2: max(2.0 * np.log(root), 1.0)}
    most = max((component.degree for component in problem.teacher.components), default=UNIT_ORDERS)
    neurons = zip(np.sum(weights**2, axis=1), b, strict=True)
    D = np.array([mean_derivatives_at(problem.activation, most + 1, q, bias) for q, bias in neurons])
    size = np.maximum(np.abs(v), 1.0) if student.learning_rates[1] > 0.0 else np.abs(v)
    rates = student.learning_rates[0] * student.output_scale * np.abs(size[:, None] * D).max(axis=0)
    times = [
        waits.get(order, root ** (order - 2)) / (strength * rates[degree])
        for order, degree, strength in _parts(problem)
        if strength * rates[degree] > NO_RATE * rates.max()
    ]
    last = NETWORK_FACTOR * (sum(times) or 1.0 / (max(student.learning_rates) or 1.0))
    return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)


def _parts(problem: Problem) -> Iterator[tuple[int, int, float]]:
    """Yield order L on new axes, degree, and |g| of each component of a polynomial; of units, of their first order."""
    for component in problem.teacher.components:
        factorial = math.prod(map(math.factorial, component.degrees))
        yield max(component.cost, 1), component.degree, abs(component.value) / math.sqrt(factorial)
    for unit in problem.teacher.units(problem.teacher_link):
        D = np.abs(mean_derivatives_at(unit.link, UNIT_ORDERS + 1, 1.0, unit.bias))
        order = next((j for j in range(1, UNIT_ORDERS + 1) if D[j] > NO_RATE * D.max()), 1)
        yield order, order, abs(unit.coefficient) * D[order] / math.factorial(order - 1)
