r"""Times of events in drawn runs of SGD, for links such as relu and erf, and where noise scatters times widely.

In a flow time h of many steps the weights move by −h E[ē ∇], known from the overlaps, and by noise that is drawn over
M samples with random signs: the Euler–Maruyama method (`docs/step_equations.md`). The time of an event over that in
a run without noise is free of most of what the size h changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynamics.problem import LEARNED_SHARE, Problem, decouples
from dynamics.signals import stop_if_heard
from dynamics.theory.learning_rates import descent_limit
from hermite.arrays import Array

#: Numbers of drawn runs, the first that is affordable, fewest of an interval of 95 %, most, and the seed of the draws.
DRAWS, FEWEST_DRAWS, MOST_DRAWS, DRAWN_SEED = (128, 79, 39), 39, 4096, 0
#: Operations of drawn runs that take about a minute of one core (measured).
MOST_OPERATIONS = 6e10
#: Steps until the event at least, and the largest step over the shortest time scale of the converged flow.
FEWEST_STEPS, LARGEST_STEP = 400, 0.4
#: Samples of a step at most, and room for new axes, in steps.
MOST_SAMPLES, ROOM = 8, 4
#: Runs are given up at this multiple of the time of the flow, at k >= 3 of a flow that noise may delay much longer, or
#: when squared norms are this multiple of Σ a.
LONGEST, LONGEST_ALONE, DIVERGED = 8.0, 40.0, 1e3
#: Intervals of the table of g and g' over the angle.
INTERVALS = 8192


class RunPlan(NamedTuple):
    """Sizes of a simulation: its runs, the flow time of a step, and further limits.

    `steps` is the largest number of steps of a run, `samples` the number drawn for each step of each run, `axes` the
    number of coordinates that are kept, and `time` the flow time of the event without noise.
    """

    draws: int
    step: float
    steps: int
    samples: int
    axes: int
    time: float

    @classmethod
    def of(cls, problem: Problem, noise_rate: float, time: float, draws: int | None = None) -> RunPlan | None:
        """Return the plan for an event at a flow time, with as many runs as fit into a minute, or with `draws` runs.

        `noise_rate` is the learning rate over the batch size, to which the variance of the noise is proportional. None
        is returned where fewer runs fit than an interval of 95 % needs.
        """
        plan = cls._of_draws(problem, noise_rate, time, draws or DRAWS[0])
        if draws is not None:
            return plan
        whole = plan.minutes(problem)
        affordable = [count for count in DRAWS if count / DRAWS[0] * whole <= 1.0]
        return plan._replace(draws=affordable[0]) if affordable else None

    @classmethod
    def _of_draws(cls, problem: Problem, noise_rate: float, time: float, draws: int) -> RunPlan:
        """Return the plan for a number of runs, whatever they cost."""
        step = min(LARGEST_STEP * descent_limit(problem) / 2.0, time / FEWEST_STEPS)
        samples = int(np.clip(round(step / noise_rate), 1, MOST_SAMPLES))
        axes = min(problem.dimension, problem.teacher.span + problem.width + ROOM * samples)
        longest = LONGEST_ALONE if decouples(problem) else LONGEST
        return cls(draws, step, math.ceil(longest * time / step), samples, axes, time)

    def minutes(self, problem: Problem) -> float:
        """Return an estimate of the minutes of one core that all runs take until the time of the flow."""
        m, units = problem.width, problem.width + problem.num_directions
        # Products of matrices and entries of the table.
        of_one = m * units * (4 * self.axes + 100) + self.samples * (4 * units * self.axes + 60 * units)
        return self.draws * self.time / self.step * of_one / MOST_OPERATIONS

    @property
    def longest(self) -> float:
        """Multiple of the time of the flow at which runs are given up."""
        return self.steps * self.step / self.time


def drawn_times(problem: Problem, plan: RunPlan, direction: int, event: str, noise_rate: float) -> tuple[Array, float]:
    """Return the flow times (draws,) of an event in runs with noise, and that of the run without noise.

    The `event` is "emergence" or "learned", of the direction of that number from 0, and must not hold at the start.
    Times are inf where the event does not come within the plan's steps. `noise_rate` is the learning rate over the
    batch size.
    """
    times, alive, runs = np.full(plan.draws + 1, np.inf), np.arange(plan.draws + 1), _Runs(problem, plan, noise_rate)
    before = runs.reached(direction, event)
    for number in range(plan.steps):
        stop_if_heard()
        sound, after = runs.advance(), runs.reached(direction, event)
        passed = sound & (after >= 0.0)
        times[alive[passed]] = plan.step * (number + before[passed] / (before[passed] - after[passed]))
        stay = sound & ~passed
        if not stay.all():
            runs.keep(stay)
        alive, before = alive[stay], after[stay]
        if not alive.size:
            break
    return times[1:], float(times[0])


class _Runs:
    """State of all runs that go on: weights (runs, m, axes) of m neurons, first those of the run without noise."""

    def __init__(self, problem: Problem, plan: RunPlan, noise_rate: float) -> None:
        """Start all runs at the problem's weights, and tabulate the kernel g of the link and its derivative."""
        start = problem.reduced_weights()
        m, r, d = problem.width, problem.teacher.span, problem.dimension
        self._problem, self._plan, self._span = problem, plan, r
        self._a = problem.teacher.coefficients
        self._theta = np.eye(r) if problem.teacher.directions is None else problem.teacher.directions
        self._whole = plan.axes == d
        #: Axes in use; those beyond are empty.
        self._used = d if self._whole else start.shape[1]
        self._W = np.zeros((plan.draws + 1, m, plan.axes))
        self._W[:, :, : start.shape[1]] = start
        self._size = np.full((plan.draws + 1, 1), math.sqrt(plan.step * noise_rate / plan.samples))
        self._size[0] = 0.0
        self._rng = np.random.default_rng(DRAWN_SEED)
        nodes = np.cos(np.linspace(np.pi, 0.0, INTERVALS + 1))
        link = problem.activation
        self._table = [(column, np.diff(column)) for column in (link.kernel(nodes), link.kernel_derivative(nodes))]
        self._look()

    def keep(self, stay: NDArray[np.bool_]) -> None:
        """Keep the runs that the flags `stay` (runs,) select, and drop all others."""
        self._W, self._size = self._W[stay], self._size[stay]
        self._look()

    def _look(self) -> None:
        """Store norms, unit vectors, and overlaps of the neurons with neurons and directions, (runs, m, m + P)."""
        W, r = self._W[:, :, : self._used], self._span
        self._norm = np.sqrt(np.sum(W**2, axis=2))
        self._U = W / np.maximum(self._norm, 1e-300)[:, :, None]
        to_teacher = self._U[:, :, :r] @ self._theta.T
        self._Q = np.concatenate([self._U @ np.swapaxes(self._U, 1, 2), to_teacher], axis=2)

    def reached(self, direction: int, event: str) -> Array:
        """Return numbers (runs,) that are negative before the event of a direction holds, and 0 or positive after.

        For "emergence" that is the largest squared overlap minus its level, for "learned" the weight of all neurons in
        the direction minus half of the teacher's.
        """
        C, problem = self._Q[:, :, self._W.shape[1] + direction], self._problem
        if event == "emergence":
            size = np.maximum(C, 0.0) if problem.information_exponent % 2 else C
            return np.asarray(np.max(size**2, axis=1) - problem.emergence_level)
        part = problem.learned_part
        mass = np.sum(self._norm**2 * part.kernel(C), axis=1) / part.kernel_at_one
        return np.asarray(mass - LEARNED_SHARE * self._a[direction])

    def advance(self) -> NDArray[np.bool_]:
        """Move all runs by one step, and return whether each has not diverged, shape (runs,).

        A step is one of the flow, of length `plan.step`, plus noise: `plan.samples` samples stand for the many of SGD
        in that time. The gradient of each has a random sign, which takes its mean away and keeps its mean square, and
        the size that gives the noise of SGD, 0 in the first run. Samples have coordinates on the axes in use; beyond,
        their parts are new axes, on which they form a triangular matrix, and which weights use from then on. When these
        run out, the axes beyond the teacher's are turned so that the first m of them hold all neurons again.
        """
        problem, plan, r, m = self._problem, self._plan, self._span, self._W.shape[1]
        U, n, theta = self._U, self._norm**2, self._theta
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.concatenate([n, np.broadcast_to(-self._a, (len(n), self._a.size))], axis=1)[:, None, :]
            # g and g' of all overlaps, from the table.
            place = INTERVALS * (1.0 - np.arccos(np.clip(self._Q, -1.0, 1.0)) / np.pi)
            at = np.minimum(place.astype(np.int64), INTERVALS - 1)
            value, slope = (column[at] + (place - at) * rise[at] for column, rise in self._table)
            slope *= weights
            along = plan.step * np.sum(2.0 * weights * value - slope * self._Q, axis=2)
            moved = plan.step * (slope[:, :, :m] @ U)
            moved[:, :, :r] += plan.step * (slope[:, :, m:] @ theta)
            # Samples on the axes in use, (runs, M, used). On the others M samples are a triangular matrix (Bartlett).
            x = self._rng.standard_normal((len(n), plan.samples, self._used))
            new = None
            if not self._whole:
                new = np.tril(self._rng.standard_normal((len(n), plan.samples, plan.samples)), -1)
                left = problem.dimension - self._used - np.arange(plan.samples)
                np.einsum("rii->ri", new)[...] = np.sqrt(self._rng.chisquare(left, (len(n), plan.samples)))
            z, y = (units @ np.swapaxes(x[:, :, : units.shape[-1]], 1, 2) for units in (U, theta))
            output, gain = problem.activation.value(z), problem.activation.derivative(z)
            error = np.sum(n[:, :, None] * output, axis=1) - self._a @ problem.activation.value(y)
            error += problem.label_noise * self._rng.standard_normal(error.shape)
            error *= self._size * self._rng.choice((-1.0, 1.0), error.shape)
            along += np.sum(error[:, None, :] * (2.0 * output - z * gain), axis=2)
            gain *= error[:, None, :]
            moved += along[:, :, None] * U + gain @ x
            self._W[:, :, : self._used] -= self._norm[:, :, None] * moved
            if new is not None:
                self._W[:, :, self._used : self._used + plan.samples] = -self._norm[:, :, None] * (gain @ new)
                self._used += plan.samples
            norm = np.sum(self._W**2, axis=2).max(axis=1)
        sound: NDArray[np.bool_] = norm <= DIVERGED * self._a.sum()
        if new is not None and self._used + plan.samples > plan.axes:
            # The axes beyond the teacher's are turned, so that the first m of them hold all that neurons have there.
            self._W[~sound] = 0.0
            rest = np.linalg.qr(np.swapaxes(self._W[:, :, r:], 1, 2), mode="r")
            self._W[:, :, r:] = 0.0
            self._W[:, :, r : r + m] = np.swapaxes(rest, 1, 2)
            self._used = r + m
        self._look()
        return sound
