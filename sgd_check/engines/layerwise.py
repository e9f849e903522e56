"""Layer-wise training by any engine, which at the switch enters the problem of the second phase."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from dynamics.problem import Problem
from hermite.arrays import Array
from sgd_check.engines.registry import Engine, Measurement

#: Name in a state of the number of the phase and the flow time so far.
PLACE = "phase_and_time"


class LayerwiseEngine(Engine):
    """Runs of `engine`, which was made for the first phase, that go on with the problem `second` at a switch.

    The flow time of a step is the sum of the learning rates η before it. A step belongs to the second phase if its
    middle, that sum plus η/2, is at or after the flow time `switch`, dimensionless; so rounding of the sum does not
    move the switch.
    """

    def __init__(self, engine: Engine, second: Problem, switch: float) -> None:
        self._engine, self._second, self._switch, self._phase, self._time = engine, second, switch, 0, 0.0
        self.attributes = engine.attributes

    @property
    def resumable(self) -> bool:
        """Whether runs can go on from a state."""
        return self._engine.resumable

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which steps are taken and runs measured."""
        return self._engine.running()

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate, those whose middle is before the switch in the first phase."""
        # Added one by one, so that the switch does not depend on how the steps are cut.
        times = np.cumsum(np.append(self._time, rates))
        first = int(np.count_nonzero(times[:-1] + 0.5 * rates < self._switch)) if self._phase == 0 else 0
        self._time = float(times[-1])
        for phase, part in enumerate((rates[:first], rates[first:])):
            if part.size > 0:
                self._enter(phase)
                self._engine.advance(part)

    def _enter(self, phase: int) -> None:
        """Enter the second phase, if it is that and not yet entered."""
        if phase > self._phase:
            self._engine.enter(self._second)
            self._phase = phase

    def measure(self, *, student: bool) -> Measurement:
        """Return the overlaps of all runs in float64."""
        return self._engine.measure(student=student)

    def layers(self) -> Array:
        """Return second layer v and biases b of every run, shape (seeds, 2, neurons)."""
        return self._engine.layers()

    def train_loss(self) -> Array:
        """Return the mean of (f − y)² over the samples that are used again, of every run, shape (seeds,)."""
        return self._engine.train_loss()

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN for good."""
        self._engine.freeze(stopped)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all that the later steps depend on, bit for bit."""
        return {**self._engine.state(), PLACE: np.array([self._phase, self._time])}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from a state of the same problem and options."""
        phase, self._time = np.asarray(state[PLACE]).tolist()
        self._enter(int(phase))
        self._engine.restore({name: array for name, array in state.items() if name != PLACE})
