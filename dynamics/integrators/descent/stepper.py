r"""Population gradient descent with a fixed step: the discrete dynamics of which the overlap flow is the limit η → 0.

.. math:: w_i \leftarrow w_i - \eta\, \nabla_{w_i} \tfrac12 E(f - f^*)^2
          = |w_i| \big[ u_i + \eta (F_i - (F_i \cdot u_i) u_i + 2\,\mathrm{growth}_i\, u_i) \big]

with u_i = w_i/|w_i|, F and growth of `dynamics.equations.pairs.field_kernels`.  The weights themselves are carried, as
unit vectors and squared norms in the D = min(d, r + m) coordinates that a gradient never leaves: the overlaps W Θᵀ and
W Wᵀ are exact for every d ≥ r, and vectors that have them exist at every step, because they are at hand.
"""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.overlaps.system import events_of_directions
from dynamics.equations.pairs.link import link_data
from dynamics.equations.pairs.unit_field import UnitField
from dynamics.equations.pairs.unit_vectors import overlap_state, teacher_rows, unit_vectors
from dynamics.integrators.descent import descent_kernels
from dynamics.integrators.descent.fixed_steps import FixedSteps
from dynamics.integrators.events import record_crossings
from dynamics.integrators.stepper import EVENT_PASSED, Status
from dynamics.threads.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Operations in one call of `advance` with several threads, less than a tenth of a second: a chunk of the run loop
#: should not take longer, but its first one has 64 steps.
OPERATIONS_PER_CALL = 3e9


class DescentStepper(FixedSteps):
    """Steps of population gradient descent with η > 0, for any information exponent and any teacher.

    Between two steps C, G and ln n are interpolated linearly, since realisability is convex in (C, G).

    One step costs 4 m² D operations, in parallel over rows: hold BLAS to one thread. Memory is 4 m D + m P numbers. A
    step after which an n would exceed 1e150, or be zero, counts as not finite and is not taken.
    """

    def __init__(self, problem: Problem, learning_rate: float, *, threads: int | None = None) -> None:
        a = np.array(problem.teacher.coefficients, dtype=np.float64)
        super().__init__(learning_rate, 2 * a.size)
        self._link = link_data(problem)
        self._part = problem.learned_part
        self._a = a
        self._sign_matters = problem.information_exponent % 2 == 1
        U, log_norm = unit_vectors(problem)
        m, D = U.shape
        self._teacher = teacher_rows(problem, D)
        self._units, self._norms = np.zeros((3, m, D)), np.zeros((3, m))
        self._units[0], self._norms[0] = U, np.exp(log_norm)
        self._F, self._growth = np.empty((m, D)), np.empty(m)
        self._C = np.empty((m, self._a.size))
        self._workers = Workers(m, D, threads)
        self._unit_field = UnitField(self._link, self._workers, self._a, self._teacher, m)
        self._work = np.empty(self._unit_field.work_size)
        if self._workers.count > 1:
            self._most_steps = max(1, int(OPERATIONS_PER_CALL / (4 * m * m * D)))
        began = clock.perf_counter()
        descent_kernels.watch(
            self._link, self._units[0], self._norms[0], (self._a, self._teacher), self._sign_matters,
            (self._events, self._C),
        )  # fmt: skip
        self._take(0)
        #: Wall-clock seconds of the first calls of compiled code, which is compiled or loaded there.
        self.compile_seconds = clock.perf_counter() - began
        times, now, _ = self._events
        record_crossings(times, now, now, (0.0, 0.0), lambda _: now)

    def close(self) -> None:
        """End the threads that share rows."""
        self._workers.close()

    # --- steps ----------------------------------------------------------------------------------------------

    def _take(self, count: int) -> int:
        move = (
            self._eta, self._link, (self._units, self._norms), (self._F, self._growth), (self._a, self._teacher),
            self._sign_matters, (self._events, self._C),
        )  # fmt: skip
        if self._workers.count == 1:
            scratch = self._unit_field.pairs, self._work
            return int(descent_kernels.descend(count, self._step, *move, scratch))
        for _ in range(count):
            self._field()
            status = int(descent_kernels.finish_step(int(self._step[0]), *move))
            if status == Status.NOT_FINITE:
                return status
            self._step[0] += 1
            if status == EVENT_PASSED:
                return status
        return 0

    def _look_ahead(self) -> None:
        self._field()
        descent_kernels.move_rows(0, self._eta, (self._units, self._norms), (self._F, self._growth))

    def _field(self) -> None:
        U, n = self._units[self._step[0] % 3], self._norms[self._step[0] % 3]
        self._unit_field.write(U, n, self._F, self._growth)

    # --- between steps --------------------------------------------------------------------------------------

    def _state_after(self, step: int, out: Array | None = None) -> Array:
        slot = step % 3
        return overlap_state(self._units[slot], np.log(self._norms[slot]), self._teacher, self._a.size, out)

    def _record_events(self) -> None:
        """Locate the events that the last step passed, on the interpolated columns of their directions alone."""
        times, now, before = self._events
        P = self._a.size
        passed = np.flatnonzero(np.isnan(times) & (now >= 0.0))
        directions = np.unique(passed % P)
        slots = [(int(self._step[0]) - 1) % 3, int(self._step[0]) % 3]
        columns = [self._columns(self._units[slot], directions) for slot in slots]
        logs = [np.log(self._norms[slot]) for slot in slots]

        def values_at(t: float) -> Array:
            share = self._share(t)
            C = (1.0 - share) * columns[0] + share * columns[1]
            n = np.exp((1.0 - share) * logs[0] + share * logs[1])
            values = np.full(2 * P, np.nan)
            values[directions], values[P + directions] = events_of_directions(
                self._part, self._a[directions], C, n, sign_matters=self._sign_matters
            )
            return values

        record_crossings(times, before, now, (self.start, self.time), values_at)

    def _columns(self, U: Array, directions: NDArray[np.intp]) -> Array:
        columns: Array = U @ self._teacher[directions].T if self._teacher.shape[0] > 0 else U[:, directions]
        return columns

    def _states(self) -> dict[str, NDArray[np.generic]]:
        return {"unit_vectors": self._units, "squared_norms": self._norms}
