"""The compiled passes over all neurons of a large flow, and the arrays they work on.

Passes are shared among threads. The rest of the field, without fast sources, active teachers and own clusters, is
extrapolated from its past values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations.field import SingleUnitField, UnitField
from dynamics.equations.link import link_data
from dynamics.equations.vectors import teacher_rows
from dynamics.integrators.explicit_kernels import DOP853_C
from dynamics.integrators.large_flow.division import POLE, State
from dynamics.integrators.large_flow.step_kernels import (
    END,
    LAST_STAGE,
    TOGETHER,
    add_moves,
    events_of_rows,
    partial_rows,
    place_sources,
    renew_rows,
    step_rows,
    step_sources,
)
from dynamics.threads import GRAIN, Workers
from hermite.arrays import Array, Integers, aligned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dynamics.integrators.large_flow.division import Division
    from dynamics.problem import Problem


#: Degree of the polynomial through past values.
DEGREE = 2
#: Gauss-Legendre points and weights of [0, 1]: exact to 1e-8 where a mode relaxes 20 times within a step.
_NODES, _WEIGHTS = 0.5 + 0.5 * np.polynomial.legendre.leggauss(12)[0], 0.5 * np.polynomial.legendre.leggauss(12)[1]


class Extrapolation(NamedTuple):
    """A polynomial for the rest of the field inside a step, through its past values.

    At the fraction x, from 0 to 1, of the step it is Σ_qs x^q powers[q, s] rest[slots_s], with `rest` (slots, m, D) and
    `growth` (slots, m) the past values, `slots` those that count and `powers` (slots, slots) the weights.
    """

    rest: Array
    growth: Array
    slots: Integers
    powers: Array

    @property
    def at_end(self) -> Array:
        """Weights (slots,) of the past values at the end of the step."""
        weights: Array = self.powers.sum(axis=0)
        return weights


class Rests:
    """The last states of m neurons, of shape (m, D), with their fields and the rests of the field, in four slots."""

    def __init__(self, m: int, D: int) -> None:
        """Allocate the slots, one more than the points of the polynomial in time; all are free."""
        slots = DEGREE + 2
        self.U, self.F, self.rest = (aligned(slots, m, D) for _ in range(3))
        self.log_norm, self.growth, self.rest_growth = (aligned(slots, m) for _ in range(3))
        self.times = np.full(slots, np.nan)
        #: Slots in use, at most as many as the polynomial needs.
        self.newest_first = np.empty(0, dtype=np.int64)

    def _kept(self) -> dict[str, Array]:
        """Return the arrays with a row per slot, by the names that checkpoints give them."""
        rests = {"U": self.U, "F": self.F, "rest": self.rest, "log_norm": self.log_norm}
        return rests | {"growth": self.growth, "rest_growth": self.rest_growth, "times": self.times}

    def arrays(self) -> dict[str, Array | Integers]:
        """Return the arrays in which past states are kept."""
        return {"newest_first": self.newest_first} | {f"past_{name}": array for name, array in self._kept().items()}

    def set_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Restore past states from the arrays that `arrays` returned."""
        for name, array in self._kept().items():
            array[...] = arrays[f"past_{name}"]
        self.newest_first = arrays["newest_first"].astype(np.int64)

    def keep(self, slot: int, time: float) -> None:
        """Make a slot the newest, with the time of its state."""
        self.times[slot] = time
        self.newest_first = np.array([slot, *self.newest_first.tolist()][: DEGREE + 1])

    def free_slot(self) -> int:
        """Return a slot that the polynomial does not need."""
        needed = self.newest_first.tolist()
        return next(s for s in range(self.times.size) if s not in needed)

    def state(self, slot: int) -> State:
        """Return the state of a slot with its field: views."""
        return State(self.U[slot], self.log_norm[slot], self.F[slot], self.growth[slot])

    def subtract(self, slot: int, partial: Callable[..., None]) -> None:
        """Set the rest of a slot to its field minus what `partial` computes."""
        partial(self.state(slot), self.rest[slot], self.rest_growth[slot], is_rest=True)

    def extrapolation(self, h: float, slots: Integers | None = None) -> Extrapolation:
        """Return the polynomial through the newest rests, or those in `slots`, for a step of length h."""
        slots = self.newest_first if slots is None else slots
        times = (self.times[slots] - self.times[slots[0]]) / h
        powers = np.linalg.inv(np.vander(times, increasing=True))
        return Extrapolation(self.rest, self.rest_growth, slots, powers)

    def correction(self, h: float, rates: Array) -> Array:
        """Return ∫_0^h e^(−λ(h − τ)) ω(τ) dτ / ω(h) for each rate λ of `rates`, in their shape; in units of time.

        ω(τ) is the product of the distances of τ from the times of past values. That is what an error at h of the
        extrapolated rest is worth over a step of length h where a mode relaxes at the rate λ: the polynomial through
        the rest at h too differs by the error times ω(τ)/ω(h).
        """
        omega, last = h * _NODES, h
        for past in (self.times[self.newest_first[1:]] - self.times[self.newest_first[0]]).tolist():
            omega = omega * (h * _NODES - past)
            last *= h - past
        integral: Array = np.exp(np.multiply.outer(-h * rates, 1.0 - _NODES)) @ (_WEIGHTS * omega) * (h / last)
        return integral


#: Parts of a step at most. With 2, 3, 4 and 8 of them 256 directions take 721, 621, 608 and 607 steps, and 1067 with 1.
MOST_PARTS = 4
#: Products of numbers in the forces of the sources on each other from which on threads share each of their stages: a
#: call in two threads takes some 50 microseconds more.
SMALLEST_SHARED_STAGE = 400_000


class Sources:
    """States, stages and dense output of the fast sources of one division, in D columns.

    They take a step before any other row begins, on which nothing that they feel within it depends, in equal parts for
    them alone, each with the stages, error and dense output of a step: without parts steps would be half as long.
    """

    def __init__(self, workers: Workers, division: Division, columns: int) -> None:
        """Allocate states, stages and dense output of the S sources of a division, in D = `columns` columns each."""
        self._workers = workers
        self.rows = division.sources
        self._plan = division.plan
        S, D, stages = self.rows.size, columns, LAST_STAGE + 1
        #: States at the ends of parts, and the dense output of each.
        self.ends = aligned(MOST_PARTS + 1, S, D), aligned(MOST_PARTS + 1, S)
        self.dense = aligned(MOST_PARTS, 7, S, D), aligned(MOST_PARTS, 7, S)
        # Vectors and masses at the stages of one part, and the stages.
        self._at_stages = aligned(stages, S, D), aligned(stages, S)
        self._stages = aligned(stages, S, D), aligned(stages, S)
        #: Vectors and masses at the stages of the whole step.
        self.at_stages = aligned(stages, S, D), aligned(stages, S)

    def run(self, step: Step, tolerance: Array) -> tuple[Array, Array]:
        """Run the sources through the parts of a step; return its largest errors at ends and inside, in tolerances.

        After a part with too large an error the others are left out.
        """
        (vectors, mass), (ends, log_ends), (dense, growth_dense) = self._at_stages, self.ends, self.dense
        S, D = ends.shape[1:]
        groups, leading = -(-S // TOGETHER), step.leading[self.rows]
        path = vectors, mass, *self._stages
        error, error_within = np.zeros((step.parts, S)), np.zeros((step.parts, S))
        ends[0], log_ends[0] = step.begin.U[self.rows], step.begin.log_norm[self.rows]
        for part in range(step.parts):
            vectors[0], mass[0] = ends[part], np.exp(log_ends[part])

            def run(first: int, last: int, begin: int, end: int, part: int = part) -> None:
                """Take stages `first` … `last` of a part for the groups begin … end − 1."""
                reached = ends[part + 1], log_ends[part + 1], error[part], error_within[part], tolerance, leading
                step_sources(
                    (first, last, begin, end), (step.h / step.parts, part, step.parts), (ends[part], log_ends[part]),
                    (*step.rests,), path, reached, (dense[part], growth_dense[part]), self._plan,
                )  # fmt: skip

            if S * S * D < SMALLEST_SHARED_STAGE:
                run(0, LAST_STAGE, 0, groups)
            else:
                for stage in range(LAST_STAGE + 1):
                    self._workers.over_parts(groups, partial(run, stage, stage))
            if not error[part].max() <= 1.0:
                break
        return error.max(axis=0), error_within.max(axis=0)

    def place(self, parts: int) -> None:
        """Write where the fast sources are at the times of the stages of the whole step to `at_stages`.

        The sources went through the step in a number of `parts`; their unit vectors and squared norms at these times
        come from the dense output of the parts.
        """
        dense, growth_dense = self.dense

        def place(begin: int, end: int) -> None:
            """Write unit vectors and squared norms of the sources begin … end − 1."""
            place_sources(begin, end, DOP853_C, self.ends, (dense[:parts], growth_dense[:parts]), self.at_stages)

        self._workers.over_parts(self.rows.size, place)

    def end(self, parts: int) -> tuple[Array, Array]:
        """Return the unit vectors (S, D) and ln n (S,) at the end of a step of so many parts."""
        return self.ends[0][parts], self.ends[1][parts]


class SourcesInside:
    """The states of the sources within an accepted step, part by part.

    Their correction at the end of the step comes in as x² (3 − 2 x), at the ends of parts and within each.
    """

    def __init__(self, sources: Sources, step: Step) -> None:
        """Compute the states of the sources at the ends of all parts of a step, with its correction."""
        self._rows, self._parts, self._dense = sources.rows, step.parts, sources.dense
        x = np.arange(step.parts + 1) / step.parts
        late = x * x * (3.0 - 2.0 * x)
        U, log_norm = sources.end(step.parts)
        ends, log_ends = sources.ends
        self._ends = ends[: late.size] + late[:, None, None] * (step.end.U[self._rows] - U)
        self._log_ends = log_ends[: late.size] + late[:, None] * (step.end.log_norm[self._rows] - log_norm)

    def part_at(self, x: float) -> tuple[float, tuple[Array, Array], tuple[Array, Array], tuple[Array, Array]]:
        """Return four items for the fraction x, from 0 to 1, of the step.

        They are the fraction of its part at which x lies, the states (U, ln n) at the beginning and at the end of that
        part, and its dense output.
        """
        part = min(int(x * self._parts), self._parts - 1)
        begin, end = ((self._ends[at], self._log_ends[at]) for at in (part, part + 1))
        return x * self._parts - part, begin, end, (self._dense[0][part], self._dense[1][part])


#: Numbers in the state, and tolerance, from which on the full field is computed in single precision: it is wrong by
#: some 5e-7 of itself then, because products of neurons are by 1e-8, and those of unrelated neurons are 1/√d.
SINGLE_STATE, SINGLE_RTOL = 500_000, 1e-5
#: Neurons per direction up to which that is faster: those on one direction are near each other, and go pair by pair.
LARGEST_CROWD = 8
#: Part of the neurons that may move without the whole field being computed anew.
LARGEST_MOVE = 1.0 / 6.0
#: Numbers in the state from which on a second thread is worth waking for any pass, and for all stages of a step.
SMALLEST_PASS, SMALLEST_STAGES = 100_000, 30_000


@dataclass(frozen=True, slots=True)
class Step:
    """One step and the arrays from which it was computed."""

    time: float
    h: float
    begin: State
    reached: State  # where the stages end: kept for the rest of the field there
    end: State  # the corrected state
    division: Division
    pace: Array  # θ of direction and norm, (clusters, 2)
    drift: Array  # mean velocities over the last step, (clusters, D + 1)
    rests: Extrapolation
    parts: int  # in which the fast sources take the step
    leading: Integers  # direction whose overlap counts for itself in the error of each row, −1 for none

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of the arrays from which `LargeFlowStepper.restore` rebuilds the step."""
        return {
            "begin_U": self.begin.U.copy(),
            "begin_log_norm": self.begin.log_norm.copy(),
            "last": np.array([self.time, self.h, self.parts]),
            "last_slots": self.rests.slots.copy(),
            "fast": self.division.fast.copy(),
            "cluster": self.division.cluster.copy(),
            "sign": self.division.plan[0][POLE].astype(np.float64),
            "pace": self.pace.copy(),
            "drift": self.drift.copy(),
            "leading": self.leading.copy(),
        }


class StateRows:
    """Passes over the neurons of one problem in D columns.

    `tolerance` is the absolute and relative one of coordinates and the absolute one of ln n; `lag_tolerance` those of
    corrections of both at the end of a step.
    """

    def __init__(
        self, problem: Problem, columns: int, tolerance: Array, lag_tolerance: Array, threads: int | None
    ) -> None:
        """Allocate errors and dense output of m neurons in `columns` columns, and the threads that share them.

        `tolerance` (3,) is that of coordinates, absolute and relative, and of ln n; `lag_tolerance` (2,) that of
        corrections of coordinates and of ln n at the end of a step. `threads` is by default one per core where the
        state is large.
        """
        m = problem.width
        self.activation = activation = problem.activation
        #: Data of g.
        self.link = link_data(problem)
        self.value, self.slope = activation.kernel_at_one, float(activation.kernel_derivative(1.0))
        self.a = np.array(problem.teacher.coefficients, dtype=np.float64)
        self.teacher = teacher_rows(problem, columns)
        self.sign_matters = problem.information_exponent % 2 == 1
        self.tolerance, self.lag_tolerance = tolerance, lag_tolerance
        #: Whether products of neurons that are not near each other are rounded to single precision.
        large, loose = m * columns >= SINGLE_STATE, tolerance[1] >= SINGLE_RTOL
        self.single = bool(large and loose and m <= LARGEST_CROWD * self.a.size)
        self.workers = Workers(m, columns, threads, smallest=SMALLEST_PASS, smallest_of_long=SMALLEST_STAGES)
        self._field: UnitField | SingleUnitField = UnitField(self.link, self.workers, self.a, self.teacher, m)
        if self.single:
            self._field = SingleUnitField(self.link, self.workers, self.a, m, columns)
        #: Error of each row in the last attempted step, in units of the tolerance.
        self.error = np.empty(m)
        #: Error of the dense output of each row, where it was computed, in units of rtol.
        self.error_within = np.empty(m)
        #: Error at the end of a step by that of the extrapolated rest: of the velocity of each row outside clusters,
        #: its largest component, and of (ln n)'; 0 in clusters.
        self.miss = np.empty((m, 2))
        #: Coefficients of the dense output of rows that are no sources; pages of memory never written cost nothing.
        self.dense = np.zeros((7, m, columns)), np.zeros((7, m))
        self.counts = {"rhs_evaluations": 0, "partial_evaluations": 0}

    def fit(self, division: Division) -> None:
        """Allocate the arrays that depend on the division: states of the sources, work space of each thread."""
        D, sources = self.dense[0].shape[2], division.sources.size
        self._division = division
        #: Step of which the stages of the sources are held.
        self._staged: Step | None = None
        self.sources = Sources(self.workers, division, D)
        R = int(np.diff(division.cuts).max())
        self._work = [aligned(R * (17 * D + 18 + sources)) for _ in range(self.workers.count)]

    def run_sources(self, step: Step, *, again: bool = False) -> tuple[float, float]:
        """Run the fast sources through a step; return their largest errors, of ends of parts and inside, in tolerances.

        With `again` the end of the step is left alone. Unless the first error is too large, other rows can run then.
        """
        sources, rows = self.sources, self.sources.rows
        self._staged = None
        self.error[rows], self.error_within[rows] = errors = sources.run(step, self.tolerance)
        worst, worst_within = (float(error.max()) for error in errors)
        if worst <= 1.0:
            sources.place(step.parts)
            if not again:
                step.reached.U[rows], step.reached.log_norm[rows] = sources.end(step.parts)
            self._staged = step
        return worst, worst_within

    def run_others(self, step: Step, *, dense: bool) -> None:
        """Run all rows but the fast sources through the stages of a step."""
        first = 1 if step.division.sources.size > 0 else 0
        self.workers.over_blocks(
            step.division.cuts, first, partial(self._run, step, dense=dense, again=False), is_long=True
        )
        self.counts["partial_evaluations"] += LAST_STAGE + 1 if dense else END

    def write_dense(self, step: Step, blocks: Integers) -> None:
        """Write the dense output of an accepted step for some blocks, and for the sources unless it is known."""
        if step.division.sources.size > 0:
            if self._staged is not step:
                self.run_sources(step, again=True)
            blocks = blocks[blocks > 0]
        self.workers.over_some(blocks, partial(self._run, step, dense=True, again=True))

    def _run(self, step: Step, blocks: Integers, thread: int, *, dense: bool, again: bool) -> None:
        """Take blocks through the stages of a step, on the work space of a thread."""
        ends = *step.reached.vectors, self.error, self.error_within, self.tolerance, step.leading
        step_rows(
            (blocks, step.division.cuts), (again, dense, step.h), step.begin.vectors, (*step.rests,),
            self.sources.at_stages, (step.pace, step.drift), ends, self.dense, self._work[thread], step.division.plan,
        )  # fmt: skip

    def field(self, U: Array, log_norm: Array, F: Array, growth: Array) -> None:
        """Compute the full field of all m neurons, the sum over all sources, and write it to F (m, D) and growth (m,).

        U (m, D) are the unit vectors u of the neurons and `log_norm` (m,) their ln n, n = |w|²; they move by
        u' = F − (F·u) u and (ln n)' = 4 growth.
        """
        self.counts["rhs_evaluations"] += 1
        self._field.write(U, np.exp(log_norm), F, growth)

    def follow(self, state: State, moved: Integers, before: tuple[Array, Array]) -> None:
        """Update field and growth of a state after the neurons `moved` (K,) have moved.

        `before` holds their earlier unit vectors (K, D) and squared norms (K,).
        """
        if moved.size > LARGEST_MOVE * self.error.size:
            self.field(state.U, state.log_norm, state.F, state.growth)
            return
        mass, still, plan = np.exp(state.log_norm), np.ones(self.error.size, dtype=np.bool_), self._division.plan
        still[moved] = False
        moves = np.concatenate([state.U[moved], before[0]]), np.concatenate([mass[moved], -before[1]])
        self.workers.over_rows(lambda begin, end: add_moves(begin, end, moves, still, state.whole, plan))
        self.workers.over_parts(
            -(-moved.size // TOGETHER), lambda begin, end: renew_rows(begin, end, moved, mass, state.whole, plan)
        )

    def partial(
        self, state: State, F: Array, growth: Array, blocks: Integers | None = None, *, is_rest: bool = False
    ) -> None:
        """Write a part of the field of a state to F and `growth`, or the field minus this part if `is_rest`.

        The part is the force of fast sources, of directions without a cluster, and of a neuron's own cluster. All
        neurons are written, or those of some blocks.
        """
        division = self._division
        sources = np.ascontiguousarray(state.U[division.sources]), np.exp(state.log_norm[division.sources])
        self.counts["partial_evaluations"] += 1

        def part(some: Integers, thread: int) -> None:
            """Write the part of the field of some blocks, on the work space of a thread."""
            work, out = self._work[thread], (F, growth)
            partial_rows(some, division.cuts, state.whole, sources, is_rest, out, work, division.plan)

        if blocks is None:
            self.workers.over_blocks(division.cuts, 0, part)
        else:
            self.workers.over_some(blocks, part)

    def products(self, U: Array, G: Array) -> None:
        """Write G = U Uᵀ: the blocks of rows b and B − 1 − b, of B, from the diagonal on, and their transpose."""
        count = -(-U.shape[0] // GRAIN)

        def part(begin: int, end: int) -> None:
            """Write the blocks of rows begin … end − 1, and those that mirror them."""
            for b in {block for low in range(begin, end) for block in (low, count - 1 - low)}:
                rows, later_rows = slice(GRAIN * b, GRAIN * (b + 1)), slice(GRAIN * (b + 1), None)
                np.matmul(U[rows], U[rows].T, out=G[rows, rows])
                np.matmul(U[rows], U[later_rows].T, out=G[rows, later_rows])
                G[later_rows, rows] = G[rows, later_rows].T

        self.workers.over_parts((count + 1) // 2, part)

    def event_values(self, U: Array, log_norm: Array) -> Array:
        """Return the values (2 P,) of the events of all directions, positive once they have passed.

        The first P are max_i C_ip² − its level, with the overlaps C_ip; the others are Σ_i n_i g(C_ip)/g(1) − a_p/2,
        with squared norms n_i, the kernel g of the link and coefficients a_p.
        """
        values = np.empty(2 * self.a.size)
        events_of_rows(self.link, U, log_norm, self.a, self.sign_matters, values)
        return values
