"""The common part of steppers around solvers of other libraries, which call the system and cannot be stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.events import record_crossings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from numpy.typing import NDArray

    from dynamics.integrators.stepper import Tolerances
    from dynamics.integrators.system_calls import BoundSystem
    from hermite.arrays import Array

    Vector = Array


class ForeignStepper:
    """A stepper around a solver of another library: it finds the events, and a subclass takes the steps."""

    #: Why `state` is refused.
    refusal: str

    def __init__(self, method: str, system: BoundSystem, tolerances: Tolerances, num_events: int) -> None:
        for option in ("fixed_step", "fixed_order"):
            if getattr(tolerances, option) != 0:
                msg = f"Argument `{option}` must be 0 for method '{method}', but is {getattr(tolerances, option)}."
                raise ValueError(msg)
        self._system = system
        self._last_finite = True
        self._times, self._now = np.full(num_events, np.nan), np.full(num_events, np.nan)

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        raise NotImplementedError

    @property
    def start(self) -> float:
        """Start of the last accepted step, dimensionless."""
        raise NotImplementedError

    @property
    def event_times(self) -> Vector:
        """Time at which each event was passed; NaN until then."""
        return self._times.copy()

    def interpolate(self, t: float, out: Vector | None = None) -> Vector:
        """Return the state at a time within the last step, shape (n,)."""
        raise NotImplementedError

    def derivative(self, t: float) -> Vector:
        """Return y' at a time within the last step, shape (n,)."""
        y = self.interpolate(t)
        out = np.empty_like(y)
        self._system.rhs(t, y, out)
        return out

    def state(self) -> NoReturn:
        """Refuse: the history inside the library is out of reach."""
        raise NotImplementedError(self.refusal)

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Refuse: the history inside the library is out of reach."""
        del state
        self.state()

    def _record_events(self) -> None:
        """Record the events that the last step passed."""
        before, self._now = self._now, self._event_values(self.time)
        record_crossings(self._times, before, self._now, (self.start, self.time), self._event_values)

    def _event_values(self, t: float) -> Vector:
        values = np.empty(self._times.size)
        self._system.event_values(t, self.interpolate(t), values)
        return values
