r"""Directions that theory puts beyond the end of the runs, or never: how many of the runs have them all the same.

A predicted time T beyond the end H allows a share q of the runs to be before H. Where theory knows the scatter s of
ln T, and e is the least mean of ln(T_SGD/T) that it allows, that is

.. math:: q = \min\Big(\frac12, \frac{1}{1 + x^2}\Big), \qquad x = \frac{e - \ln(H/T)}{s},

½ for a symmetric law about a place beyond H, the other for any law of this mean and scatter (Cantelli); at least 1 %,
since no law is known farther out. Where theory has no scatter, or no time at all, q is ½: most of the runs should not
have the direction. Of n runs the number that has it is tested by the tail of the binomial law.

A prediction that ended before the runs says nothing of later times, and is not tested.

*What noise can do.* Flow and finite-step equation leave the fluctuations of the steps out. In the time H they move an
overlap C by √(η D(C) H), D as of `dynamics.theory.escape_bias` with the directions that theory has learned taken away,
and at most by 1/√d, the overlaps of random directions. If that is as much as a free neuron lacks to the overlap from
which the flow alone would emerge within H, noise carries runs over, and the sentence of the verdict says so. Where ln T
scatters by more than 1 noise decides when a direction emerges, and the sentence says that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from sgd_check.verdicts.alignment import of_sound_runs
from sgd_check.verdicts.direction import FEWEST_RUNS, VISIBLE_ERROR
from sgd_check.verdicts.expectation import NOISE_DECIDES

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.verdicts.events import Event
    from sgd_check.verdicts.expectation import Expectation

#: Share of runs that any law may have far from its middle.
LEAST_SHARE = 0.01
#: How early the mean of ln T may be where theory does not say: an error that is to be seen.
LEAST_EDGE = float(np.log1p(VISIBLE_ERROR))
_OVERLAPS = 2001


class Absence(NamedTuple):
    """How many of the runs have a direction by their end that theory puts beyond it.

    `time` is the predicted one, inf for never, and NaN where the prediction ended before the runs: it is not tested
    then, and p is NaN. `share` is the largest share of runs that theory allows, and `told` whether theory has a scatter
    from which that follows. `moved` says by how much the noise of the steps moves an overlap until the end of the runs,
    `needed` how much it takes, and `scatter` is that of ln T; NaN where theory does not say, or the share has it.
    """

    direction: int
    event: Event
    time: float
    having: int
    runs: int
    share: float
    told: bool
    p: float
    moved: float = np.nan
    needed: float = np.nan
    scatter: float = np.nan

    @property
    def carried(self) -> bool:
        """Whether the noise of the steps, as theory knows it, carries runs over."""
        return self.moved >= self.needed > 0.0

    @property
    def open(self) -> bool:
        """Whether runs have the direction, too few to refute theory and too many to agree with it."""
        return self.having > 0 and not self.told

    def said(self) -> str:
        """Return how many runs have the direction, and what theory says."""
        when = "never" if np.isinf(self.time) else f"at {self.time:.3g}, after the end of the runs"
        return f"direction {self.direction + 1}, predicted {when}: {self.having} of {self.runs} runs {self.event.past}"

    def noise(self) -> str:
        """Return that the noise of the steps did it, empty where it did not or nothing is known."""
        if self.scatter > NOISE_DECIDES:
            return (
                f"The noise of the steps, which this theory leaves out, decides when it {self.event.present}, and "
                "scatters the logarithm of the time by more than 1."
            )
        if not self.carried:
            return ""
        return (
            "The noise of the steps, which this theory leaves out, carries runs over: until the end of the runs it "
            f"moves an overlap by {self.moved:.2g}, and {self.needed:.2g} is enough."
        )


def absences(
    problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset, event: Event, expected: Expectation, rate: float
) -> list[Absence | None]:
    """Return by direction what comes of it where theory puts it beyond the runs, None where it does not.

    Without runs enough there is nothing to say. `rate` is learning rate over batch size.
    """
    end = float(simulation.attrs["end_time"])
    measured = of_sound_runs(simulation, event.variable)
    runs, found = measured.shape[0], [None] * measured.shape[1]
    if runs < FEWEST_RUNS or not end > 0.0:
        return list(found)
    counts = np.count_nonzero(np.isfinite(measured), axis=0)
    times, edges = _times(prediction, event, end), np.where(np.isfinite(expected.low), expected.low, -LEAST_EDGE)
    with np.errstate(invalid="ignore"):
        due = ~(expected.time * np.exp(edges) <= end)
    due &= ~np.isnan(times) | _is_integrated(prediction)
    return [
        _absence(problem, p, event, times[p], expected, int(counts[p]), runs, end, rate) if due[p] else None
        for p in range(len(found))
    ]


def _times(prediction: xr.Dataset, event: Event, end: float) -> Array:
    """Return the predicted times (P,): inf for never, NaN where the prediction ended before the runs or has no formula.

    Where it ended with the runs or after them, what the pair alone has is taken, beyond the end.
    """
    time = np.asarray(prediction[event.variable].values, dtype=np.float64)
    pairs = prediction.get(f"predicted_{event.variable}")
    alone = np.full(time.size, np.inf) if pairs is None else np.asarray(pairs.values, dtype=np.float64)
    if _is_integrated(prediction):
        reached = prediction.attrs["stop_reason"] == "steady_state"
        if not reached and float(prediction.attrs["end_time"]) < end * (1.0 - 1e-9):
            return time
        alone = np.maximum(np.where(np.isnan(alone), np.inf, alone), end)
    return np.where(np.isnan(time), alone, time)


def _is_integrated(prediction: xr.Dataset) -> bool:
    """Return whether times are those of an integration up to an end, and not of a formula."""
    return "time" in prediction.coords and "stop_reason" in prediction.attrs


def _absence(
    problem: Problem,
    p: int,
    event: Event,
    time: float,
    expected: Expectation,
    having: int,
    runs: int,
    end: float,
    rate: float,
) -> Absence | None:
    """Return what comes of one direction that is predicted beyond the runs, or not at all; None if nothing does."""
    if np.isnan(time):
        return Absence(p, event, time, having, runs, np.nan, False, np.nan) if having else None
    low, scatter, share = float(expected.low[p]), float(expected.scatter[p]), 0.5
    told = bool(np.isfinite(time) and np.isfinite(low) and np.isfinite(scatter))
    if told:
        far = max(low - float(np.log(end / time)), 0.0) / max(scatter, 1e-12)
        share = float(np.clip(1.0 / (1.0 + far**2), LEAST_SHARE, 0.5))
    chance = float(special.bdtrc(having - 1, runs, share)) if having else 1.0
    moved, needed = (np.nan, np.nan) if told or having == 0 else what_noise_can_do(problem, rate, p, end)
    return Absence(p, event, time, having, runs, share, told, chance, moved, needed, np.nan if told else scatter)


def what_noise_can_do(problem: Problem, rate: float, p: int, end: float) -> tuple[float, float]:
    """Return by how much noise moves an overlap with direction p until `end`, and how much it takes; NaN if unknown.

    What it takes is the least distance of a neuron without a direction from the overlaps at which a pair alone emerges
    by then.
    """
    from dynamics import theory
    from dynamics.equations.transit.transit import transit_time
    from dynamics.theory.search_noise import SearchNoise

    unknown = (np.nan, np.nan)
    if problem.kind != "homogeneous" or problem.information_exponent <= 2:
        return unknown
    pairs = theory.predict(problem)
    if theory.escape_bias(problem, rate, pairs).notes:
        return unknown
    a, overlap = problem.teacher.coefficients, problem.start().teacher_overlap[:, p]
    taken = np.delete(pairs.matched_neuron, p)[np.isfinite(np.delete(pairs.predicted_emergence_time, p))]
    free = np.setdiff1d(np.arange(problem.width), taken)
    if free.size == 0:
        return unknown
    overlap = overlap[free] if problem.information_exponent % 2 else np.abs(overlap[free])
    grid = np.linspace(0.0, np.sqrt(0.5), _OVERLAPS)[1:]
    from_there = transit_time(problem.activation.coefficients, grid, np.sqrt(0.5)) / a[p]
    needed = float(np.min(grid[from_there <= end], initial=np.sqrt(0.5)) - overlap.max())
    learned = np.where(np.isfinite(pairs.predicted_learned_time), pairs.predicted_learned_time, end)
    left = np.minimum(learned / end, 1.0) * a**2
    left[p] = a[p] ** 2
    noise = replace(SearchNoise.of(problem), total=float(left.sum()))
    _, _, diffusion = noise(overlap.max(keepdims=True), a[p : p + 1])
    moved = min(float(np.sqrt(rate * diffusion[0] * end)), problem.dimension**-0.5)
    return moved, needed
