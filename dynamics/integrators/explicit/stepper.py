"""The explicit stepper, which goes from save time to save time in Python."""

from __future__ import annotations

import numpy as np

from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.explicit import explicit_kernels
from dynamics.integrators.stepper import Status
from hermite.arrays import Array


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

    def _one_call(self, target: float, max_steps: int) -> int:
        return int(explicit_kernels.advance(target, max_steps, *self._of_steps()))

    def _interpolate_inside(self, t: float, out: Array) -> None:
        explicit_kernels.interpolate(t, out, *self._of_steps())
