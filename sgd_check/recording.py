"""What is kept of a run: overlaps and loss at the recorded steps, emergence times, runs that blew up.

Knows when runs are measured and what counts as an emergence; nothing of sampling, files or verdicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sgd_check.crossings import CrossingTracker
from sgd_check.observables import observables_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from sgd_check.engines import Engine
    from sgd_check.plan import Plan

# A run has blown up when a squared norm exceeds this many times the weight of teacher and start together.
BLOW_UP_FACTOR = 1e3


class Recorder:
    """Collect records of all runs, and the times at which directions emerge.

    Attributes
    ----------
    blown_up : ndarray of bool, shape (seeds,)
    """

    WITH_SEED = ("teacher_overlap", "student_overlap", "squared_norm", "loss", "emergence_time", "learned_time")

    def __init__(self, problem: Problem, plan: Plan, seeds: int) -> None:
        self._problem = problem
        self._observables = observables_of(problem)
        m, directions, records = problem.width, problem.num_directions, plan.recorded.size
        self.blown_up: NDArray[np.bool_] = np.zeros(seeds, dtype=bool)
        self._overlap = np.full((seeds, records, m, directions), np.nan)
        self._gram = np.full((seeds, records, m, m), np.nan)
        self._norm = np.full((seeds, records, m), np.nan)
        self._loss = np.full((seeds, records), np.nan)
        a = problem.teacher.coefficients
        self._emergence = CrossingTracker(np.array(0.5), (seeds, directions))
        self._learned = CrossingTracker(a / 2, (seeds, directions))
        self._cap = BLOW_UP_FACTOR * (float(np.sum(a)) + float(np.sum(problem.start().squared_norm)))
        # For a tabulated learning rate the times are a running sum: taken once, not at every look.
        self._time_of = dict(zip(plan.looked_at.tolist(), plan.times(plan.looked_at).tolist(), strict=True))
        self._record_of = {step: index for index, step in enumerate(plan.recorded.tolist())}

    def look(self, step: int, engine: Engine) -> NDArray[np.bool_]:
        """Measure the runs after `step` steps; return which of them have just blown up."""
        index = self._record_of.get(step)
        overlap, gram, norm = engine.measure(student=index is not None)
        with np.errstate(invalid="ignore"):
            sound = np.isfinite(norm).all(axis=1) & (norm.sum(axis=1) <= self._cap) & ~self.blown_up
        fresh: NDArray[np.bool_] = ~sound & ~self.blown_up
        self.blown_up |= ~sound
        overlap[~sound], norm[~sound] = np.nan, np.nan
        self._look_for_emergence(self._time_of[step], overlap, norm, sound)
        if index is not None and gram is not None:
            gram[~sound] = np.nan
            self._overlap[:, index], self._gram[:, index], self._norm[:, index] = overlap, gram, norm
            for s in np.flatnonzero(sound):
                self._loss[s, index] = self._observables.loss(overlap[s], gram[s], norm[s])
        return fresh

    def _look_for_emergence(
        self, time: float, overlap: NDArray[np.float64], norm: NDArray[np.float64], sound: NDArray[np.bool_]
    ) -> None:
        seen = np.maximum(overlap, 0.0) if self._problem.information_exponent % 2 else overlap
        self._emergence.look(time, np.max(seen**2, axis=1))
        mass = np.full(self._learned.time.shape, np.nan)
        mass[sound] = self._observables.learned(overlap[sound], norm[sound])
        self._learned.look(time, mass)

    def values(self) -> dict[str, Any]:
        """Return the recorded variables by name."""
        return {
            "teacher_overlap": self._overlap,
            "student_overlap": self._gram,
            "squared_norm": self._norm,
            "loss": self._loss,
            "emergence_time": self._emergence.time,
            "learned_time": self._learned.time,
            "blown_up": self.blown_up.copy(),
            "censored": np.isnan(self._emergence.time),
        }
