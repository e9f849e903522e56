"""Euler steps of a fixed length, of systems for which one of them is exactly a step of population gradient descent."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.descent import euler_kernels
from dynamics.integrators.descent.fixed_steps import FixedSteps
from dynamics.integrators.events import record_crossings
from dynamics.integrators.system_calls import bound_system

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.equations.interface import System
    from hermite.arrays import Array


class EulerStepper(FixedSteps):
    """Steps y ← y + η f(y) of a system, put back on its constraints; a component above 1e150 counts as not finite."""

    def __init__(self, system: System, learning_rate: float) -> None:
        super().__init__(learning_rate, system.num_events)
        began = clock.perf_counter()
        self._system = bound_system(system, np.empty(system.work_size))
        #: Wall-clock seconds spent compiling or loading the functions of the system.
        self.compile_seconds = clock.perf_counter() - began
        self._slot = self._system.slot
        self._arguments = self._system.numbers, *self._system.functions
        self._ring = np.zeros((3, system.initial_state.size))
        self._ring[0] = system.initial_state
        times, now, _ = self._events
        now[:] = self._event_values(0.0)
        record_crossings(times, now, now, (0.0, 0.0), lambda _: now)

    def _take(self, count: int) -> int:
        return int(euler_kernels.descend(count, self._step, self._eta, self._ring, self._events, *self._arguments))

    def _look_ahead(self) -> None:
        euler_kernels.write_next(0, self._eta, self._ring, *self._arguments)

    def _state_after(self, step: int, out: Array | None = None) -> Array:
        out = np.empty(self._ring.shape[1]) if out is None else out
        out[:] = self._ring[step % 3]
        return out

    def _record_events(self) -> None:
        times, now, before = self._events
        record_crossings(times, before, now, (self.start, self.time), self._event_values)

    def _event_values(self, t: float) -> Array:
        values = np.empty(self._events.shape[1])
        self._system.event_values(t, self.interpolate(t), values)
        return values

    def _states(self) -> dict[str, NDArray[np.generic]]:
        return {"states": self._ring}
