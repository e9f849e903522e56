"""The compiled passes over all neurons of a large flow, shared among threads, and the arrays they work on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.pairs.field_kernels import SCRATCH
from dynamics.equations.pairs.link import link_data
from dynamics.equations.pairs.unit_field import SingleUnitField, UnitField
from dynamics.equations.pairs.unit_vectors import teacher_rows
from dynamics.integrators.large_flow.event_kernels import events_of_rows
from dynamics.integrators.large_flow.moved_kernels import PULLED_BLOCK, pull_rows, renew_moved
from dynamics.integrators.large_flow.nodes import POWERS
from dynamics.integrators.large_flow.partial_rows_kernels import partial_rows
from dynamics.integrators.large_flow.sources import Sources
from dynamics.integrators.large_flow.step_kernels import step_rows
from dynamics.threads.cores import has_kernels_for_small_matrices
from dynamics.threads.workers import GRAIN, Workers

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
#: Part of the neurons that may move without the whole field being computed anew, in double and in single precision, and
#: neurons below which it always is.
LARGEST_MOVE, FEWEST_FOLLOWED = (1.0 / 6.0, 1.0 / 12.0), 64
#: Numbers in the state from which on a second thread is worth waking for any pass, and for all stages of a step.
SMALLEST_PASS, SMALLEST_STAGES = 100_000, 30_000
#: Last stage with the dense output, and without.
_LAST_STAGE, _LAST_OF_STEP = 15, 11


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
    parts: int  # in which the fast sources take the step
    leading: Integers  # direction whose overlap counts for itself in the error of each row, −1 for none

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of what `LargeFlowStepper.restore` needs to put the step together again."""
        return {
            "begin_U": self.begin.U.copy(),
            "begin_log_norm": self.begin.log_norm.copy(),
            "last": np.array([self.time, self.h, self.parts]),
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
        activation = problem.activation
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
        self._follows = m >= FEWEST_FOLLOWED
        #: Whether BLAS multiplies blocks of a few rows.
        self.by_blas = has_kernels_for_small_matrices()
        self.workers = Workers(m, columns, threads, smallest=SMALLEST_PASS, smallest_of_long=SMALLEST_STAGES)
        self._field: UnitField | SingleUnitField = UnitField(self.link, self.workers, self.a, self.teacher, m)
        if self.single:
            self._field = SingleUnitField(self.link, self.workers, self.a, m, columns)
        #: Error of each row in the last attempted step, in units of the tolerance.
        self.error = np.empty(m)
        #: Error of the dense output of each row, where it was computed, in units of rtol.
        self.error_within = np.empty(m)
        #: Error of the extrapolated rest of each row at the end of a step: largest component, and that of the growth.
        self.miss = np.empty((m, 2))
        #: Coefficients of the dense output of all rows but sources; pages of memory never written cost nothing.
        self.dense = np.zeros((7, m, columns)), np.zeros((7, m))
        #: Precision of products with sources that are not near.
        self._real = np.float32 if self.single else np.float64
        self._ahead = np.empty((m, columns), self._real), np.empty(m)
        self.counts = {"rhs_evaluations": 0, "partial_evaluations": 0}

    def fit(self, division: Division) -> None:
        """Allocate what depends on the division: states of the sources, work space of each thread."""
        (_, m, D), sources = self.dense[0].shape, division.sources.size
        self._division = division
        #: Step of which the stages of the sources are held.
        self._staged: Step | None = None
        self.sources = Sources(self.workers, division, D, self._real)
        count = self.sources.at_nodes[0].size
        self._node_powers = POWERS[:count, :count].copy()
        self._near = np.empty((m, sources), dtype=np.bool_)
        self.ahead = self._ahead[0][: m if count else 0], self._ahead[1]
        sizes, group = np.diff(division.cuts), division.largest_group
        # The first thread has the sources as well.
        blocks = [int(sizes.max())] + [int(sizes[1 if sources else 0 :].max(initial=1))] * (self.workers.count - 1)
        self._work = [
            np.empty(6 * D + max(group * (23 * D + 23), R * (2 * D + sources + 2)) + count * R + SCRATCH)
            for R in blocks
        ]
        self._room = [np.empty(R * ((count + 3) * D + sources), self._real) for R in blocks]

    def run_sources(self, step: Step, *, again: bool = False) -> tuple[float, float]:
        """Run the fast sources through a step, part by part; with `again` the end of the step is left alone.

        Returned are the largest errors of the ends of its parts and of their dense output, in units of tolerances.
        Unless the first is too large, other rows can run then.
        """
        sources, rows = self.sources, self.sources.rows
        self._staged = None
        self.error[rows], self.error_within[rows] = errors = sources.run(step, self.tolerance)
        worst, worst_within = (float(error.max()) for error in errors)
        if worst <= 1.0:
            sources.place(step.parts)
            if not again:
                step.reached.U[rows], step.reached.log_norm[rows] = sources.end(step.parts)
                for expected in self.ahead:  # they feel each other at every stage
                    expected[rows] = 0.0
            self._staged = step
        return worst, worst_within

    def run_others(self, step: Step, *, dense: bool) -> None:
        """Run all rows but the fast sources through the stages of a step."""
        first = 1 if step.division.sources.size > 0 else 0
        self.workers.over_blocks(
            step.division.cuts, first, partial(self._run, step, dense=dense, again=False), is_long=True
        )
        stages = (_LAST_STAGE if dense else _LAST_OF_STEP) + 1
        self.counts["partial_evaluations"] += self.sources.at_nodes[0].size or stages

    def write_dense(self, step: Step, blocks: Integers) -> None:
        """Write the dense output of an accepted step for some blocks; that of the sources mostly is there."""
        if step.division.sources.size > 0:
            if self._staged is not step:
                self.run_sources(step, again=True)
            blocks = blocks[blocks > 0]
        self.workers.over_some(blocks, partial(self._run, step, dense=True, again=True))

    def _run(self, step: Step, first: int, last: int, thread: int, *, dense: bool, again: bool) -> None:
        sources = (
            *self.sources.at_stages, self._near, *self.sources.at_nodes, self._node_powers, *self.ahead,
        )  # fmt: skip
        ends = *step.reached.vectors, self.error, self.error_within, self.tolerance, step.leading
        step_rows(
            (first, last, step.division.cuts), (again, dense, step.h), step.begin.whole[:3], step.rests.arrays(),
            sources, (step.pace, step.drift), ends, self.dense, (self._work[thread], self._room[thread]),
            step.division.plan,
        )  # fmt: skip

    def field(self, U: Array, log_norm: Array, F: Array, growth: Array) -> None:
        """Write the full field and growth of a state."""
        self.counts["rhs_evaluations"] += 1
        self._field.write(U, np.exp(log_norm), F, growth)

    def follow(self, state: State, moved: Integers, before: tuple[Array, Array]) -> None:
        """Bring the field of a state up to date after some rows, of vectors and masses `before`, have moved."""
        m = self.error.size
        if not self._follows or moved.size > LARGEST_MOVE[self.single] * m:
            self.field(state.U, state.log_norm, state.F, state.growth)
            return
        (K, D), blocks = before[0].shape, -(-m // PULLED_BLOCK)
        n, place = np.exp(state.log_norm), np.full(m, -1, dtype=np.int64)
        place[moved] = np.arange(K)
        both = np.concatenate([state.U[moved], before[0]]), np.concatenate([n[moved], -before[1]])
        whole, pulls = (state.U, n, state.F, state.growth), (np.empty((blocks, K, D)), np.empty((blocks, K)))

        def pull(begin: int, end: int) -> None:
            pull_rows(begin, end, self.link, whole, place, both, pulls)

        self.workers.over_rows(pull)
        renew_moved(self.link, moved, self.a, pulls, whole)

    def partial(
        self,
        state: State,
        F: Array,
        growth: Array,
        blocks: Integers | None = None,
        *,
        is_rest: bool = False,
        compares: bool = False,
    ) -> None:
        """Write what fast sources, active teachers and the own cluster exert, by the division that was fitted last.

        All rows are written, or those of some blocks alone; with `is_rest` what is left of the state's field. At the
        end of a step `compares` has `ahead` take the error of what was expected there.
        """
        division = self._division
        sources, mass = np.ascontiguousarray(state.U[division.sources]), np.exp(state.log_norm[division.sources])
        ahead = self.ahead if compares else (self._ahead[0][:0], self._ahead[1])
        all_sources = sources, sources.astype(self._real), mass, self._near, *ahead
        self.counts["partial_evaluations"] += 1

        def part(first: int, last: int, thread: int) -> None:
            work = self._work[thread], self._room[thread]
            partial_rows(
                first, last, division.cuts, state.whole, all_sources, is_rest, (F, growth), work, division.plan
            )

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
        events_of_rows(self.link, U, log_norm, self.a, self.sign_matters, values)
        return values
