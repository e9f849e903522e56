"""A stepper of unit vectors [U | ln n], seen from outside as one of the overlaps [C | G | ln n]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.integrators.stepper import leaping

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from dynamics.equations.pairs.vectors import VectorSystem
    from dynamics.integrators import Status, Stepper
    from hermite.arrays import Array


class VectorStepper:
    """A stepper of the overlaps, made of one of `VectorSystem`, whose state is [U | ln n]."""

    def __init__(self, stepper: Stepper, system: VectorSystem) -> None:
        self._stepper = stepper
        self._system = system

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._stepper.time

    @property
    def event_times(self) -> Array:
        """Time at which each direction emerged, then was learned; not-a-number until then; the start if there."""
        return self._stepper.event_times

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        return self._stepper.advance(target, max_steps)

    @property
    def leaps(self) -> bool:
        """Whether there is `advance_through`."""
        return leaping(self._stepper) is not None

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        status, states = self.vectors_through(times, max_steps)
        return status, self.overlaps(states)

    def vectors_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Do the same, and return the states as [U | ln n], of which `overlaps` makes those of `advance_through`."""
        stepper = leaping(self._stepper)
        assert stepper is not None
        return stepper.advance_through(times, max_steps)

    def overlaps(self, states: Array) -> Array:
        """Return [C | G | ln n] of states [U | ln n], (count, n)."""
        return self._system.overlaps(states)

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state [C | G | ln n] at a time within the last step, both ends included."""
        return self._system.overlaps(self._stepper.interpolate(t), out)

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        return self._system.unpack(self._stepper.interpolate(t))

    def derivative(self, t: float) -> Array:
        """Return the rates of [C | G | ln n] at a time within the last step."""
        return self._system.overlap_rates(self._stepper.interpolate(t), self._stepper.derivative(t))

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        return self._stepper.statistics()

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""
        return self._stepper.state()

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        self._stepper.restore(state)
