"""The explicit stepper for so many particles that memory, not arithmetic, sets the cost of a step.

Particles know each other through the moments of their law alone. So one step of the pair of order 8(5,3) is found by
sweeps: guess the moments at its stages from the steps before, take every block of particles through all stages while it
stays in the fastest cache, and repeat with the moments that come out until they agree. The stages are explicit, so that
each sweep settles at least one more of them; two or three sweeps are enough in practice. The result is the step that
the compiled method takes, whose step control it shares, to a fraction of the tolerance. Threads share the blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations import mean_field_kernels as law
from dynamics.integrators import explicit_kernels as pair
from dynamics.integrators import step_kernels as slots
from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.explicit_kernels import ROW_END, ROW_NEW, ROW_STAGES, STABILITY_LIMITED, add_stages
from dynamics.integrators.methods import stepper_of
from dynamics.integrators.stepper import Status, Tolerances, check_stored
from dynamics.integrators.system_calls import BoundSystem
from dynamics.kernels.jit import entry
from dynamics.threads import GRAIN, SMALLEST_STATE, Workers
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dynamics.equations.mean_field import MeanFieldSystem
    from dynamics.integrators.stepper import Stepper
    from hermite.arrays import Array

# Particles whose stages stay in the fastest caches; scratch is made for all lanes.
SWEPT = 512
# Stages whose field is needed, and rows of sums: these and the end of the step.
STAGES, POINTS = 12, 13
# Rows of DOP853_WEIGHTS with the two error estimates.
ERRORS = 16


# State y and the state `new` at the end of the step, and `atol`, (n,) each.
Vectors = tuple[Vector, Vector, Vector]
# Sums (POINTS, M), the stages where they are kept, (STAGES, n) or (STAGES, 0), and both errors (2,).
Results = tuple[Matrix, Matrix, Vector]
# Parameters, sizes and scratch of a system.
Numbers = tuple[Vector, Integers, Vector]


@entry
def sweep_blocks(
    part: tuple[int, int], h: float, vectors: Vectors, rtol: float, slopes: Matrix, results: Results, numbers: Numbers
) -> None:
    """Take the particles from number part[0] to part[1] − 1 through one step of length h, with known moments.

    `slopes` (12, M) are the slopes at the 12 stages that follow from the moments guessed there. The sums over particles
    at the stages and at the end are added to `results[0]` (13, M), the stages are kept in `results[1]` where that has
    columns, and both errors of the step, in units of the tolerance, are raised in `results[2]` (2,). `vectors` are the
    state at the start, that at the end, which is written, and the absolute tolerance.
    """
    y, new, atol = vectors
    sums, stored_stages, errors = results
    parameters, sizes, work = numbers
    r, (begin, end) = law.counts_of(sizes).axes, part
    weights = law.numbers_of(parameters, sizes).masses
    block = min(law.lanes_of(sizes), SWEPT)
    stages, trial, zeros = np.zeros((STAGES, block * r)), np.zeros(block * r), np.zeros(block * r)
    for first in range(begin, end, block):
        count = min(block, end - first)
        size, place = count * r, first * r
        start, end_of, masses = y[place:], new[place:], weights[first:]
        for s in range(POINTS):
            # The state at a stage, or at the end of the step.
            at = start if s == 0 else (trial if s < STAGES else end_of)
            if s > 0:
                add_stages(start, stages, s, h, size, at, 0)
            if s == STAGES:
                law.block_normalise(at, count, sizes)
            law.block_sums(at, masses, count, parameters, sizes, sums[s], work)
            if s < STAGES:
                law.block_rates(at, stages[s], count, slopes[s], parameters, sizes, work)
        for e in range(2):
            add_stages(zeros, stages, ERRORS + e, h, size, trial, 0)
            errors[e] = max(errors[e], pair.largest_ratio(trial, start, end_of, atol[place:], rtol, size))
        if stored_stages.shape[1] > 0:
            for s in range(STAGES):
                for i in range(size):
                    stored_stages[s, place + i] = stages[s, i]


@entry
def write_fields(sums: Matrix, moments: Matrix, slopes: Matrix, numbers: Numbers) -> None:
    """Write the moments, and the slopes that follow from them, for every row of `sums`, all of shape (N, M)."""
    parameters, sizes, work = numbers
    for s in range(sums.shape[0]):
        law.moments_from_sums(sums[s], moments[s], parameters, sizes)
        law.write_slopes(moments[s], slopes[s], parameters, sizes, work)


#: Sweeps end when a change of the field would move particles by this fraction of `rtol` within the step.
AGREEMENT = 0.01
#: Ends of steps from which the field is extrapolated.
REMEMBERED = 4
#: Number of parts in which particles are summed; it is the same for any number of threads, so that no bit changes.
PARTS = 16
# The slot of a count that the compiled method has and sweeps have not.
_SWEEPS = STABILITY_LIMITED
_STATISTICS = {
    "steps_accepted": slots.ACCEPTED,
    "steps_rejected": slots.REJECTED,
    "rhs_evaluations": slots.EVALUATIONS,
    "sweeps": _SWEEPS,
}


def stepper_of_particles(system: MeanFieldSystem, method: str, *, rtol: float, atol: float) -> Stepper:
    """Return a stepper of particles, by sweeps where they have constant mass and their state leaves the caches."""
    if method == "explicit" and not system.grows and system.initial_state.size >= SMALLEST_STATE:
        return ParticleStepper(system, rtol=rtol, atol=system.absolute_tolerance(atol))
    return stepper_of(system, method, rtol=rtol, atol=atol)


class ParticleStepper(CompiledStepper):
    """Steps of order 8 by sweeps over blocks of particles, for the method "explicit"."""

    leaps = False

    def __init__(self, system: MeanFieldSystem, *, rtol: float, atol: Array) -> None:
        """Prepare sweeps over the particles of `system`, with relative tolerance `rtol` and absolute ones `atol` (n,).

        Slopes of the field are kept at the stages of the last step, (stages, moments), and at the ends of earlier ones,
        from which those of the next stages are extrapolated.
        """
        self._particles = system
        self._workers = Workers(system.weights.size, system.initial_state.size // system.weights.size)
        # Times and slopes at the ends of the last steps.
        self._past: list[tuple[float, Array]] = []
        # Slopes at the stages of the last step.
        self._field = np.zeros((STAGES, system.coefficients.size))
        super().__init__(
            pair.advance_through,
            replace(pair.LAYOUT, statistics=_STATISTICS),
            system.initial_state,
            BoundSystem(system),
            tolerances=Tolerances(rtol=rtol, atol=atol),
            num_events=system.num_events,
            t0=0.0,
        )

    def _advance(self, target: float, max_steps: int) -> Status:
        """Take at most `max_steps` steps until the time reaches `target`; return the status."""
        if self._counters[slots.READY] == 0:
            self._begin()
        for _ in range(max_steps):
            if self.time >= target:
                break
            status = self._try_step()
            if status is not None:
                return status
        return Status.REACHED if self.time >= target else Status.MAX_STEPS

    def close(self) -> None:
        """End the threads that share blocks of particles."""
        self._workers.close()

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of the arrays from which `restore` continues.

        Beyond those of the compiled method they are the times and slopes of the field at the ends of past steps,
        (steps,) and (steps, M), and its slopes at the stages of the last step, `field` (stages, M).
        """
        return super().state() | {
            "past_times": np.array([time for time, _ in self._past]),
            "past_slopes": np.array([slopes for _, slopes in self._past]),
            "field": self._field.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned; raise ValueError if they are of another system."""
        super().restore(state)
        check_stored(state, "field", self._field.shape)
        self._field = np.array(state["field"], dtype=np.float64)
        self._past = list(zip(np.asarray(state["past_times"]).tolist(), np.array(state["past_slopes"]), strict=True))

    def _begin(self) -> None:
        """Choose the first step as the compiled method does: one that changes the state by a hundredth."""
        y = self._vectors[slots.ROW_STATE]
        self._vectors[slots.ROW_START] = y
        moments, slopes, _ = self._sweep(0.0, np.zeros((STAGES, self._particles.coefficients.size)))
        rates = np.empty_like(y)
        self._system.rhs(self.time, y, rates)
        self._counters[slots.EVALUATIONS] += 1
        scale = self._atol + self._scalars[slots.RTOL] * np.abs(y)
        speed, size = np.max(np.abs(rates) / scale), np.max(np.abs(y) / scale)
        self._scalars[slots.STEP] = 0.01 * size / speed if size > 1e-5 and speed > 1e-5 else 1e-6
        self._counters[slots.READY] = 1
        self._arrive(moments[STAGES], slopes[STAGES])

    def _arrive(self, moments: Array, slopes: Array) -> None:
        """Store the field at the end of a step, and record the events that it passed."""
        self._past = [*self._past[1 - REMEMBERED :], (self.time, slopes)]
        times, now, before = self._events
        before[:] = now
        now[:] = self._particles.event_values(moments)
        self._record_events(times, before, now)

    def _try_step(self) -> Status | None:
        """Try one step, shortened if it fails; return None, or the status if no step can be taken."""
        h = float(self._scalars[slots.STEP])
        error, moments, slopes = self._settle(h)
        factor = pair.NOT_FINITE_FACTOR
        if error < np.inf:
            factor = min(pair.LARGEST_FACTOR, max(pair.SMALLEST_FACTOR, pair.SAFETY * (error + 1e-300) ** -0.125))
        if error <= 1.0:
            self._vectors[slots.ROW_START] = self._vectors[slots.ROW_STATE]
            self._vectors[slots.ROW_STATE] = self._vectors[ROW_NEW]
            self._scalars[slots.STEP] = h * (factor if self._counters[slots.FAILURES] == 0 else min(factor, 1.0))
            self._scalars[slots.TIME_START], self._scalars[slots.TIME] = self.time, self.time + h
            self._counters[slots.FAILURES] = self._counters[slots.DENSE_READY] = 0
            self._counters[slots.ACCEPTED] += 1
            self._arrive(moments, slopes)
            return None
        self._counters[slots.FAILURES] += 1
        self._counters[slots.REJECTED] += 1
        self._scalars[slots.STEP] = h * factor
        if h * factor > slots.SMALLEST_STEP * abs(self.time) + slots.SMALLEST_STEP_AT_ZERO:
            return None
        return Status.STEP_TOO_SMALL if error < np.inf else Status.NOT_FINITE

    def _settle(self, h: float) -> tuple[float, Array, Array]:
        """Repeat sweeps until the field converges; return the error of the step, and moments and slopes at its end."""
        guess = self._extrapolated(h)
        for _ in range(STAGES):
            self._field = guess
            moments, slopes, error = self._sweep(h, guess)
            change = h * self._particles.steepness * float(np.abs(slopes[:STAGES] - guess).sum(axis=1).max())
            guess = slopes[:STAGES]
            if error > 1.0 or change <= AGREEMENT * self._scalars[slots.RTOL]:
                break
        return error, moments[STAGES], slopes[STAGES]

    def _extrapolated(self, h: float) -> Array:
        """Return slopes at the stages of a step h, (STAGES, M), on the polynomial through the past ones."""
        past_times = (np.array([time for time, _ in self._past]) - self.time) / h
        powers = (
            np.vander(past_times, increasing=True),
            np.vander(pair.DOP853_C[:STAGES], past_times.size, increasing=True),
        )
        weights = np.linalg.solve(powers[0].T, powers[1].T)
        guess: Array = np.ascontiguousarray(weights.T @ np.array([slopes for _, slopes in self._past]))
        return guess

    def _sweep(self, h: float, slopes: Array, stages: Array | None = None) -> tuple[Array, Array, float]:
        """Take all particles through a step; return moments and slopes (POINTS, M) that follow, and the error.

        The stages are written to `stages` (STAGES, n) if it is given. The error is that of `explicit_kernels`.
        """
        start, new = self._vectors[slots.ROW_STATE if stages is None else slots.ROW_START], self._vectors[ROW_NEW]
        parameters, sizes, scratch = self._system.numbers
        stages = np.empty((STAGES, 0)) if stages is None else stages
        count, M = self._particles.weights.size, self._particles.coefficients.size
        sums, errors = np.zeros((PARTS, POINTS, M)), np.zeros((PARTS, 2))
        marks = GRAIN * np.linspace(0, -(-count // GRAIN), PARTS + 1).astype(int)
        vectors, rtol = (start, new, self._atol), float(self._scalars[slots.RTOL])

        def parts(first: int, last: int) -> None:
            """Sweep the parts `first` … `last` − 1."""
            numbers = (parameters, sizes, np.empty_like(scratch))
            for part in range(first, last):
                ends = int(marks[part]), min(int(marks[part + 1]), count)
                results = (sums[part], stages, errors[part])
                sweep_blocks(ends, h, vectors, rtol, slopes, results, numbers)

        self._workers.over_parts(PARTS, parts)
        self._counters[_SWEEPS] += 1
        self._counters[slots.EVALUATIONS] += STAGES
        moments, fields = np.empty((2, POINTS, M))
        write_fields(sums.sum(axis=0), moments, fields, self._system.numbers)
        five, three = pair.CAUTION * errors.max(axis=0)
        if five < 1e-100 or not five + three < np.inf:
            return moments, fields, float(five + three)
        return moments, fields, float(five * five / np.sqrt(five * five + 0.01 * three * three))

    def _write_inside(self, t: float, out: Array) -> None:
        """Recompute the stages of the last step, which sweeps do not keep; the dense output is made of them."""
        if self._counters[slots.DENSE_READY] == 0:
            self._sweep(self.time - self.start, self._field, self._vectors[ROW_STAGES:ROW_END])
            self._system.rhs(self.time, self._vectors[slots.ROW_STATE], self._vectors[ROW_END])
        super()._write_inside(t, out)
