"""Emergence times by the finite-step equation, for studies that ask for them many times."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import SaveAt
from dynamics.solve import solve_overlaps

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array


def finite_step_times(problem: Problem, learning_rate: float, last: float) -> Array:
    """Return the emergence times (P,) of the equation that is exact in d; NaN where nothing emerges by time `last`.

    Above the limit of stability the overlaps may blow up; what emerged before counts.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        found = solve_overlaps(
            problem,
            learning_rate=learning_rate,
            step_theory="finite-d",
            save_at=SaveAt.at([last]),
            keep="summary",
            progress=False,
            on_failure="return",
            error_estimate=False,
        )
    times: Array = found["emergence_time"].values
    return times
