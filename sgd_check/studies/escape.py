"""Runs of SGD that end when their last direction has emerged, so that no step is spent on what is known.

Knows engines, plans and crossings; nothing of fits, files or what the times are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import SaveAt
from sgd_check.engines.registry import DEFAULT_ENGINE, EngineOptions, make_engine
from sgd_check.runs.crossings import CrossingTracker
from sgd_check.runs.plan import make_plan
from sgd_check.runs.recording import BLOW_UP_FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from sgd_check.engines.registry import Engine

# Looks this far apart, relative to the time, and so many of them: an escape is a small part of the time before it.
LOOK_RATIO = 1.005
LOOKED_DECADES = 2


@dataclass(frozen=True)
class Escapes:
    """When the directions of each run emerged.

    Attributes
    ----------
    time : ndarray, shape (runs, P)
        Flow time of emergence; NaN where there was none.
    blown_up : ndarray of bool, shape (runs,)
        Runs whose norms left every bound before all their directions had emerged.
    """

    time: NDArray[np.float64]
    blown_up: NDArray[np.bool_]


def escape_times(
    problem: Problem,
    *,
    learning_rate: float,
    steps: int,
    seeds: Sequence[int],
    report: Callable[[int], None] | None = None,
) -> Escapes:
    """Run SGD, one run per seed, each until all its directions have emerged, it blows up, or `steps` are over.

    Parameters
    ----------
    problem : Problem
        Its start is the start of every run.
    learning_rate : float
        η > 0, dimensionless.
    steps : int
        Largest number of steps of a run.
    seeds : sequence of int
        Seeds of the samples.
    report : callable, optional
        Is told the number of steps of each stretch that every run that still goes on has taken.

    Returns
    -------
    Escapes
    """
    end = learning_rate * steps
    first = max(10.0**-LOOKED_DECADES * end, learning_rate)
    count = max(2, round(np.log(end / first) / np.log(LOOK_RATIO)))
    times = np.unique(np.rint(np.geomspace(first, end, count) / learning_rate)) * learning_rate
    plan = make_plan(learning_rate, steps, SaveAt.at(times))
    engine = make_engine(DEFAULT_ENGINE, problem, EngineOptions(seeds=tuple(seeds)))
    watch = _Watch(problem, len(seeds))
    step = 0
    with engine.running():
        for look in plan.looked_at.tolist():
            if look > step:
                engine.advance(plan.rates(step, look))
                if report is not None:
                    report((look - step) * int(np.count_nonzero(watch.going)))
            step = look
            engine.freeze(watch.look(learning_rate * step, engine))
            if not watch.going.any():
                break
    return Escapes(watch.crossing.time, watch.blown_up)


class _Watch:
    """Tell, look by look, which runs are over."""

    def __init__(self, problem: Problem, runs: int) -> None:
        self._odd = bool(problem.information_exponent % 2)
        weight = float(np.sum(problem.teacher.coefficients)) + float(np.sum(problem.start().squared_norm))
        self._cap = BLOW_UP_FACTOR * weight
        self.crossing = CrossingTracker(np.array(0.5), (runs, problem.num_directions))
        self.going: NDArray[np.bool_] = np.ones(runs, dtype=bool)
        self.blown_up: NDArray[np.bool_] = np.zeros(runs, dtype=bool)

    def look(self, time: float, engine: Engine) -> NDArray[np.bool_]:
        """Return the runs that have just ended, by emergence or by blowing up."""
        found = engine.measure(student=False)
        overlap, norm = found.teacher_overlap, found.squared_norm
        with np.errstate(invalid="ignore"):
            sound: NDArray[np.bool_] = np.isfinite(norm).all(axis=1) & (norm.sum(axis=1) <= self._cap)
            seen = np.maximum(overlap, 0.0) if self._odd else overlap
            self.crossing.look(time, np.where(sound[:, None], np.max(seen**2, axis=1), np.nan))
        self.blown_up |= self.going & ~sound
        done: NDArray[np.bool_] = self.going & (~np.isnan(self.crossing.time).any(axis=1) | ~sound)
        self.going &= ~done
        return done
