"""The compiled passes over all neurons of a large flow, shared among threads, and the arrays they work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.compiler.workers import GRAIN, Workers
from dynamics.equations.pairs.unit_field import SingleUnitField, UnitField
from dynamics.equations.pairs.unit_vectors import teacher_rows
from dynamics.integrators.large_flow.passes import compile_moved, compile_passes, compile_single

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.integrators.large_flow.division import Division, State
    from dynamics.integrators.large_flow.rests import Extrapolation
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

#: Numbers in the state, and tolerance, from which on the full field is computed in single precision: it is wrong by
#: some 5e-7 of itself then, because products of neurons are by 1e-8, and those of unrelated neurons are 1/√d.
SINGLE_STATE, SINGLE_RTOL = 500_000, 1e-5
#: Neurons per direction up to which that is faster: those on one direction are near each other, and go pair by pair.
LARGEST_CROWD = 8
#: Fast sources from which on other rows read them in single precision too, if the field is computed in it.
FEWEST_ROUNDED = 12
#: Part of the neurons that may move without the whole field being computed anew, in double and in single precision, and
#: neurons below which it always is.
LARGEST_MOVE, FEWEST_FOLLOWED = (1.0 / 6.0, 1.0 / 12.0), 64
#: Numbers in the state from which on a second thread is worth waking for any pass, and for all stages of a step.
SMALLEST_PASS, SMALLEST_STAGES = 100_000, 30_000
_LAST_STAGE, _LAST_STAGE_OF_DENSE = 11, 15


@dataclass(frozen=True, slots=True)
class Step:
    """One step and everything it was made with."""

    time: float
    h: float
    begin: State
    reached: State  # where the stages end: kept for the rest of the field there
    end: State  # the same, corrected
    division: Division
    pace: Array  # θ of direction and norm, (clusters, 2)
    drift: Array  # mean velocities over the last step, (clusters, D + 1)
    rests: Extrapolation
    leading: Integers  # direction whose overlap counts for itself in the error of each row, −1 for none

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of what `LargeFlowStepper.restore` needs to put the step together again."""
        return {
            "begin_U": self.begin.U.copy(),
            "begin_log_norm": self.begin.log_norm.copy(),
            "last": np.array([self.time, self.h]),
            "last_slots": self.rests.slots.copy(),
            "fast": self.division.fast.copy(),
            "cluster": self.division.cluster.copy(),
            "sign": self.division.sign.copy(),
            "pace": self.pace.copy(),
            "drift": self.drift.copy(),
            "leading": self.leading.copy(),
        }


class Rows:
    """Passes over the neurons of one problem in D columns.

    `tolerance` holds the absolute and relative one of coordinates and the absolute one of ln n; `lag_tolerance` those
    of corrections at the end of a step, of coordinates and of ln n.
    """

    def __init__(
        self, problem: Problem, columns: int, tolerance: Array, lag_tolerance: Array, threads: int | None
    ) -> None:
        m = problem.width
        self.link = problem.activation
        self.value, self.slope = self.link.kernel_at_one, float(self.link.kernel_derivative(1.0))
        self.a = np.array(problem.teacher.coefficients, dtype=np.float64)
        self.teacher = teacher_rows(problem, columns)
        self.sign_matters = problem.information_exponent % 2 == 1
        self.tolerance, self.lag_tolerance = tolerance, lag_tolerance
        #: Whether products of neurons that are not near each other are rounded to single precision.
        large, loose = m * columns >= SINGLE_STATE, tolerance[1] >= SINGLE_RTOL
        self.single = bool(large and loose and m <= LARGEST_CROWD * self.a.size)
        passes = compile_passes(problem, rounds=self.single)
        self.kernels, self.compile_seconds = passes.namespace, passes.compile_seconds
        self.workers = Workers(m, columns, threads, smallest=SMALLEST_PASS, smallest_of_long=SMALLEST_STAGES)
        self._field: UnitField | SingleUnitField = UnitField(self.kernels, self.workers, self.a, self.teacher, m)
        if self.single:
            single = compile_single(problem)
            self.compile_seconds += single.compile_seconds
            self._round_rows = single.namespace.round_rows
            self._field = SingleUnitField(single.namespace, self.workers, self.a, m, columns)
        self._moved: Any = None
        if m >= FEWEST_FOLLOWED:
            moved = compile_moved(problem)
            self.compile_seconds += moved.compile_seconds
            self._moved = moved.namespace
        #: Error of each row in the last attempted step, in units of the tolerance.
        self.error = np.empty(m)
        #: Error of the dense output of each row, where it was computed, in units of rtol.
        self.error_within = np.empty(m)
        #: Error of the extrapolated rest of each row at the end of a step: largest component, and that of the growth.
        self.miss = np.empty((m, 2))
        #: Coefficients of the dense output; pages of memory that are never written cost nothing.
        self.dense = np.empty((7, m, columns)), np.empty((7, m))
        self.counts = {"rhs_evaluations": 0, "partial_evaluations": 0}

    def fit(self, division: Division) -> None:
        """Allocate what depends on the division: stages of the sources, work space of each thread."""
        D, sources = self.dense[0].shape[2], division.sources.size
        self._division = division
        #: Step of which the stages of the sources are held.
        self._staged: Step | None = None
        self.stage_sources, self.stage_mass = np.empty((16, sources, D)), np.empty((16, sources))
        rounds = self.single and sources >= FEWEST_ROUNDED
        self._rounded = np.empty((16, sources if rounds else 0, D), dtype=np.float32)
        self._unrounded = np.empty((16, 0, D), dtype=np.float32)
        sizes = np.diff(division.cuts)
        shared = sizes[1:] if sources and sizes.size > 1 else sizes
        rows = [int(sizes.max())] + [int(shared.max())] * (self.workers.count - 1)
        self._work = [np.empty(6 * D + R * (18 * D + sources + 18)) for R in rows]

    def run_stages(self, step: Step, *, sources_only: bool, dense: bool) -> None:
        """Run the fast sources, or all other rows, through the stages of a step."""
        blocks = 1 if step.division.sources.size > 0 else 0

        def part(first: int, last: int, thread: int) -> None:
            self._run(step, first, last, thread, sources_only=False, dense=dense, again=False)

        if sources_only:
            # With their dense output, without which no other row has one: two thirds of large steps have an event.
            self._staged = None
            self._run(step, 0, blocks, 0, sources_only=True, dense=True, again=False)
            self._round_sources()
            self._staged = step
        else:
            self.workers.over_blocks(step.division.cuts, blocks, part, is_long=True)
            self.counts["partial_evaluations"] += (_LAST_STAGE_OF_DENSE if dense else _LAST_STAGE) + 1

    def write_dense(self, step: Step, blocks: Integers) -> None:
        """Write the dense output of an accepted step for some blocks; that of the sources mostly is there."""

        def part(first: int, last: int, thread: int) -> None:
            self._run(step, first, last, thread, sources_only=False, dense=True, again=True)

        if step.division.sources.size > 0:
            if self._staged is not step:
                self._run(step, 0, 1, 0, sources_only=True, dense=True, again=True)
                self._round_sources()
            blocks = blocks[blocks > 0]
        self.workers.over_some(blocks, part)

    def _round_sources(self) -> None:
        """Round the stages of the sources to single precision, in which all other rows read them."""
        if self._rounded.size > 0:
            count, D = self.stage_sources[:, :, 0].size, self._rounded.shape[2]
            self._round_rows(0, count, self.stage_sources.reshape(count, D), self._rounded.reshape(count, D))

    def _run(
        self, step: Step, first: int, last: int, thread: int, *, sources_only: bool, dense: bool, again: bool
    ) -> None:
        self.kernels.step_rows(
            first, last, step.division.cuts, _LAST_STAGE_OF_DENSE if dense else _LAST_STAGE, sources_only, again,
            step.h, step.begin.U, step.begin.log_norm, *step.rests,
            self.stage_sources, self._unrounded if sources_only else self._rounded, self.stage_mass,
            step.pace, step.drift, step.reached.U, step.reached.log_norm,
            self.error, self.error_within, self.tolerance, step.leading, *self.dense,
            self._work[thread], step.division.plan,
        )  # fmt: skip

    def field(self, U: Array, log_norm: Array, F: Array, growth: Array) -> None:
        """Write the full field and growth of a state."""
        self.counts["rhs_evaluations"] += 1
        self._field.write(U, np.exp(log_norm), F, growth)

    def follow(self, state: State, moved: Integers, before: tuple[Array, Array]) -> None:
        """Bring the field of a state up to date after some rows, of vectors and masses `before`, have moved."""
        m = self.error.size
        if self._moved is None or moved.size > LARGEST_MOVE[self.single] * m:
            self.field(state.U, state.log_norm, state.F, state.growth)
            return
        n, has_moved = np.exp(state.log_norm), np.zeros(m, dtype=bool)
        has_moved[moved] = True
        vectors, mass = np.concatenate([state.U[moved], before[0]]), np.concatenate([n[moved], -before[1]])

        def pull(begin: int, end: int) -> None:
            self._moved.pull_rows(begin, end, state.U, has_moved, vectors, mass, state.F, state.growth)

        def renew(begin: int, end: int) -> None:
            self._moved.moved_field(begin, end, moved, state.U, n, self.a, state.F, state.growth)

        self.workers.over_rows(pull)
        self.workers.over_parts(-(-moved.size // self._moved.MOVED_BLOCK), renew)

    def partial(
        self, state: State, F: Array, growth: Array, blocks: Integers | None = None, *, is_rest: bool = False
    ) -> None:
        """Write what fast sources, active teachers and the own cluster exert, by the division that was fitted last.

        All rows are written, or those of some blocks alone; with `is_rest` what is left of the state's field.
        """
        division = self._division
        sources = np.ascontiguousarray(state.U[division.sources])
        rounded = np.empty((self._rounded.shape[1], sources.shape[1]), dtype=np.float32)
        if rounded.size > 0:
            self._round_rows(0, rounded.shape[0], sources, rounded)
        mass = np.exp(state.log_norm[division.sources])
        self.counts["partial_evaluations"] += 1

        def part(first: int, last: int, thread: int) -> None:
            self.kernels.partial_rows(
                first, last, division.cuts, state.U, state.log_norm, sources, rounded, mass,
                state.F, state.growth, is_rest, F, growth, self._work[thread], division.plan,
            )  # fmt: skip

        if blocks is None:
            self.workers.over_blocks(division.cuts, 0, part)
        else:
            self.workers.over_some(blocks, part)

    def products(self, U: Array, G: Array) -> None:
        """Write G = U Uᵀ: the blocks of rows b and B − 1 − b, of B, from the diagonal on, and their transpose."""
        count = -(-U.shape[0] // GRAIN)

        def part(begin: int, end: int) -> None:
            for b in {block for low in range(begin, end) for block in (low, count - 1 - low)}:
                own, later = slice(GRAIN * b, GRAIN * (b + 1)), slice(GRAIN * (b + 1), None)
                np.matmul(U[own], U[own].T, out=G[own, own])
                np.matmul(U[own], U[later].T, out=G[own, later])
                G[later, own] = G[own, later].T

        self.workers.over_parts((count + 1) // 2, part)

    def event_values(self, U: Array, log_norm: Array) -> Array:
        """Return max_i C_ip² − ½ of all directions, then Σ_i n_i g(C_ip)/g(1) − a_p/2."""
        values = np.empty(2 * self.a.size)
        self.kernels.events_of_rows(U, log_norm, self.a, self.sign_matters, values)
        return values
