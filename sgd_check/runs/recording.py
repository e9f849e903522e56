"""What is kept of the runs: overlaps and loss at the recorded steps, emergence times, which runs blew up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sgd_check.runs.crossings import CrossingTracker
from sgd_check.runs.observables import observables_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines import Engine
    from sgd_check.runs.plan import Plan

# A run has blown up when a squared norm exceeds this many times the weight of teacher and start together.
BLOW_UP_FACTOR = 1e3


class Watch:
    """Says which runs are sound, and when (runs, P) directions emerge: at max_i C_ip² = ½, and for odd k with C > 0."""

    def __init__(self, problem: Problem, runs: int) -> None:
        self._odd = bool(problem.information_exponent % 2)
        weight = float(np.sum(problem.teacher.coefficients)) + float(np.sum(problem.start().squared_norm))
        self._cap = BLOW_UP_FACTOR * weight
        self.emergence = CrossingTracker(np.array(0.5), (runs, problem.num_directions))

    def look(self, time: float, overlap: Array, norm: Array) -> NDArray[np.bool_]:
        """Take C (runs, m, P) and n (runs, m) at a time; return which runs have not blown up, shape (runs,)."""
        with np.errstate(invalid="ignore"):
            sound: NDArray[np.bool_] = np.isfinite(norm).all(axis=1) & (norm.sum(axis=1) <= self._cap)
            seen = np.maximum(overlap, 0.0) if self._odd else overlap
            self.emergence.look(time, np.where(sound[:, None], np.max(seen**2, axis=1), np.nan))
        return sound


class Recorder:
    """Collect records of all runs, the times at which directions emerge, and which runs (seeds,) have blown up."""

    WITH_SEED = (
        "teacher_overlap",
        "student_overlap",
        "neuron_vector",
        "squared_norm",
        "loss",
        "emergence_time",
        "learned_time",
    )

    def __init__(self, problem: Problem, plan: Plan, seeds: int) -> None:
        self._observables = observables_of(problem)
        m, directions, records = problem.width, problem.num_directions, plan.recorded.size
        self.blown_up: NDArray[np.bool_] = np.zeros(seeds, dtype=bool)
        self._overlap = np.full((seeds, records, m, directions), np.nan)
        # What tells the loss beside C and n: overlaps among neurons, or the neurons of the spherical student.
        self._spherical = problem.kind == "spherical"
        self._among = np.full((seeds, records, m, problem.dimension if self._spherical else m), np.nan)
        self._norm = np.full((seeds, records, m), np.nan)
        self._loss = np.full((seeds, records), np.nan)
        self._watch = Watch(problem, seeds)
        self._learned = CrossingTracker(problem.teacher.coefficients / 2, (seeds, directions))
        # For a tabulated learning rate the times are a running sum: taken once, not at every look.
        self._time_of = dict(zip(plan.looked_at.tolist(), plan.times(plan.looked_at).tolist(), strict=True))
        self._record_of = {step: index for index, step in enumerate(plan.recorded.tolist())}

    def look(self, step: int, engine: Engine) -> NDArray[np.bool_]:
        """Measure the runs after `step` steps; return which of them have just blown up."""
        index = self._record_of.get(step)
        overlap, gram, norm, vectors = engine.measure(student=index is not None)
        among = vectors if self._spherical else gram
        overlap[self.blown_up], norm[self.blown_up] = np.nan, np.nan
        sound = self._watch.look(self._time_of[step], overlap, norm)
        fresh: NDArray[np.bool_] = ~sound & ~self.blown_up
        self.blown_up |= ~sound
        overlap[~sound], norm[~sound] = np.nan, np.nan
        mass = np.full(self._learned.time.shape, np.nan)
        mass[sound] = self._observables.learned(overlap[sound], norm[sound])
        self._learned.look(self._time_of[step], mass)
        if index is not None and among is not None:
            among[~sound] = np.nan
            self._overlap[:, index], self._among[:, index], self._norm[:, index] = overlap, among, norm
            for s in np.flatnonzero(sound):
                self._loss[s, index] = self._observables.loss(overlap[s], among[s], norm[s])
        return fresh

    def values(self) -> dict[str, Any]:
        """Return the recorded variables by name."""
        return {
            **self._records(),
            "emergence_time": self._watch.emergence.time,
            "learned_time": self._learned.time,
            "blown_up": self.blown_up.copy(),
            "censored": np.isnan(self._watch.emergence.time),
        }

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return what `look` goes on from, beside the records."""
        states = {prefix + name: array for prefix, one in self._trackers() for name, array in one.state().items()}
        return {"blown_up": self.blown_up.copy(), **states}

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, Any]) -> None:
        """Go on from what `state` and `values` returned."""
        self.blown_up[:] = state["blown_up"]
        for prefix, tracker in self._trackers():
            own = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
            tracker.restore(own)
        for name, array in self._records().items():
            array[...] = records[name]

    def _trackers(self) -> list[tuple[str, CrossingTracker]]:
        return [("emergence_", self._watch.emergence), ("learned_", self._learned)]

    def _records(self) -> dict[str, Array]:
        return {
            "teacher_overlap": self._overlap,
            "neuron_vector" if self._spherical else "student_overlap": self._among,
            "squared_norm": self._norm,
            "loss": self._loss,
        }
