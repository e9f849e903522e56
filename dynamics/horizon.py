"""How long to run when nobody says: the default schedule of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.schedule import DEFAULT_COUNT, SaveAt

if TYPE_CHECKING:
    from dynamics.prediction import EmergencePrediction
    from dynamics.problem import Problem

__all__ = ["LAST_LEARNED_FACTOR", "default_schedule"]

#: The default schedule ends at this multiple of the last predicted learned time. Interactions delay the last direction:
#: by a factor of 1.02 to 1.69 in eight random starts of the main command.
LAST_LEARNED_FACTOR = 2.5


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
