"""Which method integrates an overlap flow, and the stepper it becomes.

Responsible for the menu of the coupled flow, the choice behind "auto", and what `rtol` means for each method.  Knows the
overlap system and the steppers; neither the run loop nor datasets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators import METHODS, load_method, make_stepper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.integrators import Stepper
    from dynamics.systems.overlaps import OverlapSystem

__all__ = ["FLOW_METHODS", "FlowMethod", "choose_method"]

FLOW_METHODS = ("auto", "explicit", "stiff", *METHODS[1:], "gradient-descent")
#: Number of stability-limited steps of the explicit pair above which "auto" takes the stiff method.
EXPLICIT_STEP_LIMIT = 3000.0
#: Tolerance per step of the methods of low order, in units of the tolerance asked for: their errors add up over many
#: steps, to 30 to 800 times the tolerance per step.
LOCAL_TOLERANCE = {"bdf": 0.03, "sundials": 0.03}
SMALLEST_LOCAL_RTOL = 1e-14
#: Largest step of the explicit pair times the fastest rate. At its limit of stability, 6.1, the error estimate misses the
#: stiff modes: up to 2000 rtol in losses of random problems, 0.2 rtol with this bound for a sixth more steps.
EXPLICIT_REACH = 5.0


def choose_method(system: OverlapSystem, last_time: float) -> str:
    """Return "explicit" or "stiff" by the number of steps that stability alone would force on the explicit pair.

    The explicit pair of order 8 is stable to a step of about 6 over the fastest rate; below ~3000 such steps it is fast
    as the stiff method, and its kernels compile in a third of the time.
    """
    stability_steps = system.stiffness() * last_time / 6.0
    return "explicit" if stability_steps < EXPLICIT_STEP_LIMIT else "stiff"


@dataclass
class FlowMethod:
    """A method chosen for a system: makes its steppers, and says what it did.

    Parameters
    ----------
    system : OverlapSystem
    name : str
        One of `FLOW_METHODS` except "auto".
    atol : float
        As in `OverlapSystem.absolute_tolerance`.
    learning_rate : float, optional
        Step of "gradient-descent".
    """

    system: OverlapSystem
    name: str
    atol: float
    learning_rate: float | None = None
    compile_seconds: float = field(default=0.0, init=False)
    note: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.name == "stiff":
            from dynamics.large_flow import reason_against

            self.note = reason_against(self.system.problem)
            if self.note is not None:
                self.name = "bdf"

    def stepper(self, rtol: float) -> Stepper:
        """Return a stepper at the start of the system."""
        if self.learning_rate is not None:
            from dynamics.descent import DescentStepper

            descent = DescentStepper(self.system.problem, self.learning_rate)
            self.compile_seconds = descent.compile_seconds
            return descent
        if self.name != "stiff":
            return self._generic(self.name, self.system.initial_state, 0.0, rtol)
        from dynamics.large_flow import FallingBack, LargeFlowStepper

        first = LargeFlowStepper(self.system.problem, rtol=rtol, atol=self.atol)
        self.compile_seconds = first.compile_seconds
        return FallingBack(first, lambda state, time: self._generic("bdf", state, time, rtol))

    def attributes(self, stepper: Stepper) -> dict[str, Any]:
        """Return what a dataset says about the method that ran."""
        reason, time = getattr(stepper, "fallback_reason", None), getattr(stepper, "fallback_time", None)
        fallback = None
        if self.note is not None:
            fallback = f"'bdf' instead of 'stiff': {self.note}"
        elif reason is not None:
            fallback = f"'bdf' instead of 'stiff' from t = {time:.6g} on: {reason}"
        return {"method": self.name, "fallback": fallback, "compile_seconds": self.compile_seconds}

    def _generic(self, name: str, state: NDArray[np.float64], time: float, rtol: float) -> Stepper:
        system = self.system
        factor = LOCAL_TOLERANCE.get(name, 1.0)
        compiled = load_method(name, system.pieces)
        self.compile_seconds += compiled.compile_seconds
        return make_stepper(
            name,
            compiled,
            state,
            system.parameters,
            system.sizes,
            np.empty(system.work_size),
            rtol=max(factor * rtol, SMALLEST_LOCAL_RTOL),
            atol=factor * system.absolute_tolerance(self.atol),
            num_events=system.num_events,
            t0=time,
            largest_step=EXPLICIT_REACH / system.stiffness() if name == "explicit" else np.inf,
        )
