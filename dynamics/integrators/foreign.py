"""The common part of steppers around solvers of other libraries, which call the system and cannot be stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators.events import record_crossings
from dynamics.integrators.stepper import Status, check_inside
from dynamics.threads.stopping import give_way, whether_given_up

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


# scipy's solvers as steppers, to check the compiled methods against.
#
# They are slower by an order of magnitude, and keep neither the constraints of the state nor a checkpoint.


# scipy wants the end of the integration; one that no run reaches stands for none.
NEVER = 1e300


class ScipyStepper(ForeignStepper):
    """Takes the steps of one of the classes of `scipy.integrate`; a fixed step or order is refused."""

    refusal = "A scipy method cannot be continued from a checkpoint; use 'explicit' or 'bdf'."

    def __init__(
        self,
        name: str,
        y0: Vector,
        system: BoundSystem,
        *,
        tolerances: Tolerances,
        num_events: int,
        t0: float,
    ) -> None:
        from scipy import integrate

        super().__init__(f"scipy:{name}", system, tolerances, num_events)
        self._accepted = 0
        self._initial = (t0, y0.copy())
        self._dense: Any = None
        solver: Any = getattr(integrate, name)
        self._solver = solver(
            self._rhs,
            t0,
            y0,
            NEVER,
            rtol=tolerances.rtol,
            atol=tolerances.absolute(y0.size),
            max_step=tolerances.largest_step,
        )
        self._record_events()

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return float(self._solver.t)

    @property
    def start(self) -> float:
        """Start of the last accepted step, dimensionless."""
        return float(self._initial[0] if self._solver.t_old is None else self._solver.t_old)

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were taken, or no step succeeds."""
        taken = 0
        while self.time < target:
            if taken >= max_steps:
                return Status.MAX_STEPS
            if not self._last_finite:
                return Status.NOT_FINITE
            self._solver.step()
            if self._solver.status == "failed":
                return Status.STEP_TOO_SMALL if self._last_finite else Status.NOT_FINITE
            taken += 1
            self._accepted += 1
            self._dense = self._solver.dense_output()
            self._record_events()
        return Status.REACHED

    def interpolate(self, t: float, out: Vector | None = None) -> Vector:
        """Return the state at a time within the last step, shape (n,)."""
        check_inside(t, self.start, self.time)
        state = self._initial[1] if self._dense is None else self._dense(t)
        out = np.empty(state.size) if out is None else out
        out[:] = state
        return out

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations; scipy does not count rejected steps."""
        return {
            "steps_accepted": self._accepted,
            "rhs_evaluations": int(self._solver.nfev),
            "jacobian_evaluations": int(self._solver.njev),
            "factorisations": int(self._solver.nlu),
        }

    def _rhs(self, t: float, y: Vector) -> Vector:
        # A step may be as many evaluations as the state has components.
        give_way(whether_given_up())
        out = np.empty(y.size)
        self._system.rhs(t, np.ascontiguousarray(y), out)
        self._last_finite = bool(np.isfinite(out).all())
        return out

    def _event_values(self, t: float) -> Vector:
        # The end of a step itself, which its polynomial meets to rounding only.
        if t == self.time:
            values = np.empty(self._times.size)
            self._system.event_values(t, np.ascontiguousarray(self._solver.y), values)
            return values
        return super()._event_values(t)
