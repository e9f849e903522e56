"""Runs of SGD that end when their last direction has emerged, so that no step is spent on what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.problem import SaveAt
from sgd_check.engines import EngineOptions, engine_of, make_engine
from sgd_check.runs.plan import make_plan
from sgd_check.runs.recording import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

# Looks this far apart, relative to the time, and so many of them: an escape is a small part of the time before it.
LOOK_RATIO = 1.005
LOOKED_DECADES = 2


class Escapes(NamedTuple):
    """Flow time (runs, P) at which directions emerged, NaN where none did, and the runs (runs,) that blew up before."""

    time: Array
    blown_up: NDArray[np.bool_]


def escape_times(
    problem: Problem,
    *,
    learning_rate: float,
    steps: int,
    seeds: Sequence[int],
    report: Callable[[int], object] = int,
) -> Escapes:
    """Run SGD, one run per seed, each until all its directions have emerged, it blows up, or `steps` are over.

    `report` is told the number of steps of each stretch that all runs that still go on have taken.
    """
    end = learning_rate * steps
    first = max(10.0**-LOOKED_DECADES * end, learning_rate)
    count = max(2, round(np.log(end / first) / np.log(LOOK_RATIO)))
    times = np.unique(np.rint(np.geomspace(first, end, count) / learning_rate)) * learning_rate
    plan = make_plan(learning_rate, steps, SaveAt.at(times))
    engine = make_engine(engine_of(problem), problem, EngineOptions(seeds=tuple(seeds)))
    watch = Watch(problem, len(seeds))
    going, blown_up, step = np.ones(len(seeds), dtype=bool), np.zeros(len(seeds), dtype=bool), 0
    with engine.running():
        for look in plan.looked_at.tolist():
            if look > step:
                engine.advance(plan.rates(step, look))
                report((look - step) * int(np.count_nonzero(going)))
            step = look
            found = engine.measure(student=False)
            sound = watch.look(learning_rate * step, found.teacher_overlap, found.squared_norm)
            blown_up |= going & ~sound
            done = going & (~np.isnan(watch.emergence.time).any(axis=1) | ~sound)
            going &= ~done
            engine.freeze(done)
            if not going.any():
                break
    return Escapes(watch.emergence.time, blown_up)
