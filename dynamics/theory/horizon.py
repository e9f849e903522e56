"""The saved times of a problem when none are given: how far its flow must be followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem.schedule import DEFAULT_COUNT, SaveAt

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from dynamics.theory.prediction import EmergencePrediction

#: The default schedule ends at this multiple of the last predicted learned time. Interactions delay the last direction:
#: by a factor of 1.02 to 1.69 in eight random starts of the main command.
LAST_LEARNED_FACTOR = 2.5
#: A committee of k > 2 is followed for so many times that which a neuron of length 1 needs alone. No theory says how
#: long it takes; in random starts of initial norm 1/2 at d = 32 and 1024 (h_3, h_4, 0.8 h_3 + 0.6 h_4, 0.8 h_4 + 0.6
#: h_6, 21 to 24 starts of each) the last direction took at most 45 of these, but for a tenth of the odd ones.
ALONE_FACTOR = 250.0
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
            last = LAST_LEARNED_FACTOR * float(learned[finite].max())
            first = 0.1 * float(prediction.predicted_emergence_time[finite].min())
            return SaveAt.geometric(max(first, 1e-3 * last / DEFAULT_COUNT, 1e-12), max(last, 1e-9), DEFAULT_COUNT)
    a_min = float(problem.teacher.coefficients.min())
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
