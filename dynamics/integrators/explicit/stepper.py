"""Dense output of the explicit stepper: the polynomial of order 7 inside the last step.

It is asked for at save times and events only, so it is array arithmetic in Python: compiling it would take longer than
every use of it in a run.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, section II.6.
"""

from __future__ import annotations

import numpy as np

from dynamics.integrators import slots
from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.explicit.dop853_tableau import DOP853_C, DOP853_WEIGHTS
from dynamics.integrators.stepper import NORMALISE, RHS, Status
from hermite.arrays import Array

_STAGES, _DENSE = slice(slots.ROW_STAGES, slots.ROW_DENSE), slice(slots.ROW_DENSE, slots.ROW_ZERO)


class ExplicitStepper(CompiledStepper):
    """Compiled steps of order 8, with an interpolant of order 7."""

    leaps = True

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        states = np.empty((times.size, self._vectors.shape[1]))
        last = self._tried() + max_steps
        for passed, t in enumerate(times.tolist()):
            status = Status.REACHED if t <= self.time else self.advance(t, last - self._tried())
            if status != Status.REACHED:
                return status, states[:passed]
            self.interpolate(t, states[passed])
        return Status.REACHED, states

    def _interpolate_inside(self, t: float, out: Array) -> None:
        """Write the state at a time strictly within the last step.

        With Δ = y_1 − y_0 it is y_0 + x (Δ + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …)))), x = (t − t_0)/h.
        """
        if self._counters[slots.DENSE_READY] == 0:
            self._prepare()
            self._counters[slots.DENSE_READY] = 1
            self._counters[slots.EVALUATIONS] += 3
        x = (t - self.start) / (self.time - self.start)
        dense = self._vectors[_DENSE]
        np.copyto(out, dense[6])
        for row in range(5, -1, -1):
            out *= x if row % 2 == 1 else 1.0 - x
            out += dense[row]
        out *= x
        out += self._vectors[slots.ROW_START]
        self._namespace.evaluate(NORMALISE, t, out, out, self._system)

    def _prepare(self) -> None:
        """Compute the coefficients for the last step, with three more evaluations."""
        y, y_start, trial = (
            self._vectors[slots.ROW_STATE],
            self._vectors[slots.ROW_START],
            self._vectors[slots.ROW_TRIAL],
        )
        stages, dense = self._vectors[_STAGES], self._vectors[_DENSE]
        h = self.time - self.start
        for s in range(13, 16):
            trial[:] = y_start + h * (DOP853_WEIGHTS[s, :s] @ stages[:s])
            self._namespace.evaluate(RHS, self.start + DOP853_C[s] * h, trial, stages[s], self._system)
        dense[0] = y - y_start
        dense[1] = h * stages[0] - dense[0]
        dense[2] = 2.0 * dense[0] - h * (stages[12] + stages[0])
        dense[3:] = h * (DOP853_WEIGHTS[18:22] @ stages)
