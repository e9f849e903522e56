"""scipy's solvers behind the protocol of a stepper, to check the compiled methods against.

Responsible for: driving `scipy.integrate.OdeSolver` step by step.  Must not be used for production: it is slower by
an order of magnitude, and neither keeps the constraints of the state nor continues from a checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.compiler.patience import give_way, whether_given_up
from dynamics.integrators.events import record_crossings
from dynamics.integrators.stepper import EVENT_VALUES, RHS, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from numpy.typing import NDArray

    from dynamics.integrators.stepper import BoundSystem, Tolerances

__all__ = ["ScipyStepper"]

# scipy wants the end of the integration; one that no run reaches stands for none.
NEVER = 1e300


class ScipyStepper:
    """Drive one of scipy's solvers.

    Parameters
    ----------
    name : str
        Name of a class of `scipy.integrate`.
    namespace : module
        Namespace in which `system_calls` was executed.
    y0 : array of shape (n,)
        Initial state, dimensionless.
    system : tuple (functions, parameters, sizes, work)
        Addresses of the system's functions, and the arrays passed on to them.
    tolerances : Tolerances
        Error control; a fixed step or order is refused.
    num_events : int
        Number of events of the system.
    t0 : float
        Initial time, dimensionless.

    Raises
    ------
    ValueError
        If a fixed step or a fixed order is asked for.
    """

    def __init__(
        self,
        name: str,
        namespace: ModuleType,
        y0: NDArray[np.float64],
        system: BoundSystem,
        *,
        tolerances: Tolerances,
        num_events: int,
        t0: float,
    ) -> None:
        from scipy import integrate

        for option in ("fixed_step", "fixed_order"):
            if getattr(tolerances, option) != 0:
                msg = f"Argument `{option}` must be 0 for method 'scipy:{name}', but is {getattr(tolerances, option)}."
                raise ValueError(msg)
        self._namespace = namespace
        self._system = system
        self._last_finite = True
        self._accepted = 0
        self._initial = (t0, y0.copy())
        self._dense: Any = None
        self._times, self._now = np.full(num_events, np.nan), np.full(num_events, np.nan)
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
        self._record(self._values(t0, y0))

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return float(self._solver.t)

    @property
    def start(self) -> float:
        """Start of the last accepted step, dimensionless."""
        return float(self._initial[0] if self._solver.t_old is None else self._solver.t_old)

    @property
    def event_times(self) -> NDArray[np.float64]:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        return self._times.copy()

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
            self._record(self._values(self.time, self._solver.y))
        return Status.REACHED

    def interpolate(self, t: float, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the state at a time within the last step, both ends included.

        Raises
        ------
        ValueError
            If `t` is outside the last step.
        """
        if not self.start <= t <= self.time:
            msg = f"Argument `t` must be within the last step [{self.start}, {self.time}], but is {t}."
            raise ValueError(msg)
        state = self._initial[1] if self._dense is None else self._dense(t)
        out = np.empty(state.size) if out is None else out
        out[:] = state
        return out

    def derivative(self, t: float) -> NDArray[np.float64]:
        """Return y' at a time within the last step, shape (n,)."""
        return self._rhs(t, self.interpolate(t))

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations; scipy does not count rejected steps."""
        return {
            "steps_accepted": self._accepted,
            "rhs_evaluations": int(self._solver.nfev),
            "jacobian_evaluations": int(self._solver.njev),
            "factorisations": int(self._solver.nlu),
        }

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Refuse: scipy's solvers cannot be continued from arrays."""
        msg = "A scipy method cannot be continued from a checkpoint; use 'explicit' or 'bdf'."
        raise NotImplementedError(msg)

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Refuse: scipy's solvers cannot be continued from arrays."""
        del state
        self.state()

    def _rhs(self, t: float, y: NDArray[np.float64]) -> NDArray[np.float64]:
        # A step may be as many evaluations as the state has components.
        give_way(whether_given_up())
        out = np.empty(y.size)
        self._namespace.evaluate(RHS, float(t), np.ascontiguousarray(y), out, self._system)
        self._last_finite = bool(np.isfinite(out).all())
        return out

    def _values(self, t: float, y: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.empty(self._times.size)
        self._namespace.evaluate(EVENT_VALUES, t, np.ascontiguousarray(y), values, self._system)
        return values

    def _record(self, values: NDArray[np.float64]) -> None:
        before, self._now = self._now, values
        interval = (self.start, self.time)
        record_crossings(self._times, before, values, interval, lambda t: self._values(t, self._dense(t)))
