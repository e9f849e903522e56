"""Steppers around solvers of other libraries, scipy and SUNDIALS, which call the system and cannot be stored."""

from __future__ import annotations

import os
import sys
import threading
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

import numpy as np

from dynamics.integrators.stepper import Status, SystemStepper
from dynamics.threads import give_way, stopping_at, whether_given_up
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import NoReturn

    from numpy.typing import NDArray

    from dynamics.integrators.stepper import Tolerances
    from dynamics.integrators.system_calls import BoundSystem
    from hermite.arrays import Array


class ForeignStepper(SystemStepper):
    """A stepper around a solver of another library: it finds the events, and a subclass takes the steps."""

    #: Why `state` is refused.
    refusal: str
    #: Start and end of the last accepted step.
    start: float = 0.0
    time: float = 0.0

    def __init__(
        self, method: str, y0: Array, system: BoundSystem, tolerances: Tolerances, num_events: int, t0: float
    ) -> None:
        """Begin at the state y0 (n,) and time t0 of a system with `num_events` events.

        ValueError, which names `method`, is raised if the tolerances ask for a fixed step or order.
        """
        for option, value in (("fixed_step", tolerances.fixed_step), ("fixed_order", tolerances.fixed_order)):
            if value != 0:
                refuse(f"Argument `{option}` must be 0 for method '{method}', but is {value}.")
        self._system = system
        self._last_finite = True
        self.start = self.time = float(t0)
        self._start_state = self._state = y0.copy()
        self._accepted = 0
        self._times, self._now = np.full(num_events, np.nan), np.full(num_events, np.nan)

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; NaN until then."""
        return self._times.copy()

    def state(self) -> NoReturn:
        """Refuse: the history inside the library is out of reach."""
        raise NotImplementedError(self.refusal)

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Refuse: the history inside the library is out of reach."""
        del state
        self.state()

    @abstractmethod
    def _step(self, target: float) -> bool:
        """Take one step towards `target`, and `_arrive` at its end; return whether it succeeded."""

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were taken, or no step succeeds."""
        last = self._accepted + max_steps
        with silence, stopping_at(self._system.slot):
            while self.time < target:
                if self._accepted >= last:
                    return Status.MAX_STEPS
                if not self._step(float(target)):
                    return Status.STEP_TOO_SMALL if self._last_finite else Status.NOT_FINITE
        return Status.REACHED

    def _evaluate(self, t: float, y: Array, out: Array) -> None:
        """Write the right-hand side, and note whether it is finite."""
        self._system.rhs(t, y, out)
        self._last_finite = bool(np.isfinite(out).all())

    def _arrive(self, time: float, state: Array) -> None:
        """Accept a step and record the events that it passed."""
        # Evaluations since then have undefined values.
        give_way(whether_given_up())
        self.start, self._start_state, self.time, self._state = self.time, self._state, float(time), state
        self._accepted += 1
        self._look_at_events()

    def _look_at_events(self) -> None:
        """Record the events that are passed now."""
        before, self._now = self._now, np.empty_like(self._now)
        self._system.event_values(self.time, self._state.copy(), self._now)
        times = self._times.copy()
        self._record_events(times, before, self._now)
        give_way(whether_given_up())
        self._times = times

    def _end(self, *, last: bool) -> Array:
        return self._state if last else self._start_state


# scipy wants the end of the integration; one that no run reaches stands for none.
NEVER = 1e300


class ScipyStepper(ForeignStepper):
    """Takes the steps of one of the classes of `scipy.integrate`, a referee; a fixed step or order is refused.

    They are slower than the compiled methods by an order of magnitude, and keep neither the constraints of the state
    nor a checkpoint.
    """

    refusal = "A scipy method cannot be continued from a checkpoint; use 'explicit' or 'bdf'."

    def __init__(
        self, method: str, y0: Array, system: BoundSystem, *, tolerances: Tolerances, num_events: int, t0: float
    ) -> None:
        """Make the scipy solver that `method`, "scipy:NAME", names; begin at y0 (n,) and t0, and look at the events."""
        from scipy import integrate

        super().__init__(method, y0, system, tolerances, num_events, t0)
        solver: Any = getattr(integrate, method.removeprefix("scipy:"))
        limits = {"atol": tolerances.atol, "max_step": tolerances.largest_step}
        self._solver = solver(self._rhs, t0, y0, NEVER, rtol=tolerances.rtol, **limits)
        self._look_at_events()

    def _step(self, target: float) -> bool:
        """Take one step of scipy; return whether it succeeded. The target has no effect."""
        del target
        if not self._last_finite:
            return False
        self._solver.step()
        if self._solver.status == "failed":
            return False
        self._dense = self._solver.dense_output()
        self._arrive(self._solver.t, self._solver.y.copy())
        return True

    def _write_inside(self, t: float, out: Array) -> None:
        out[:] = self._dense(t)

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations; scipy does not count rejected steps."""
        return {
            "steps_accepted": self._accepted,
            "rhs_evaluations": int(self._solver.nfev),
            "jacobian_evaluations": int(self._solver.njev),
            "factorisations": int(self._solver.nlu),
        }

    def _rhs(self, t: float, y: Array) -> Array:
        """Return y' at a time and state, as scipy asks for it."""
        # A step may be as many evaluations as the state has components.
        give_way(whether_given_up())
        out = np.empty(y.size)
        self._evaluate(t, np.ascontiguousarray(y), out)
        return out


# Read by SUNDIALS when it makes a context: the file that its warnings go to.
WARNINGS = "SUNLOGGER_WARNING_FILENAME"


class SilentThreads:
    """A substitute for the standard output that keeps messages of CVODE out of the results printed there.

    It drops the text that entered threads write and passes on that of other threads. Steppers on several threads share
    it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[int] = []
        self._output: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._output, sys.stdout = sys.stdout, cast("TextIO", self)
            self._threads.append(threading.get_ident())

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._threads.remove(threading.get_ident())
            if not self._threads:
                sys.stdout = self._output

    def write(self, text: str) -> int:
        """Pass `text` on unless the writing thread is silent."""
        return len(text) if threading.get_ident() in self._threads else int(self._output.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


silence = SilentThreads()


@contextmanager
def warnings_off() -> Iterator[None]:
    """Keep a context of SUNDIALS that is made in the body from writing warnings to the standard output of the process.

    It warns of steps below rounding, which end a run here anyway. A file that the user chose for warnings is kept.
    """
    if WARNINGS in os.environ:
        yield
        return
    os.environ[WARNINGS] = os.devnull
    try:
        yield
    finally:
        os.environ.pop(WARNINGS, None)


# Krylov vectors of one linear solve; the overlap flow takes two on average, and 5 vectors cost the same.
KRYLOV_DIMENSION = 10
# A growing component would make 1 − γ D vanish or change sign; the divisor is kept above one half.
LARGEST_PRODUCT = 0.5


def check_installed() -> None:
    """Raise ImportError without the package that wraps CVODE."""
    try:
        import sksundae.cvode  # noqa: F401
    except ImportError:
        refuse(
            "Method 'sundials' needs an extra package: pip install \"feature-emergence[sundials]\".", error=ImportError
        )


class SundialsStepper(ForeignStepper):
    """Takes the internal steps of CVODE, one at a time; a fixed step or order is refused.

    CVODE is matrix-free backward differentiation of variable order. A Newton step solves (1 − γ J) x = b by GMRES,
    preconditioned from the left by 1 − min(γ D, ½) with D = diag J, with compiled products J v where the system has
    them and CVODE's own differences of the right-hand side where not.

    The tolerances bound the error of each component, as everywhere here; CVODE's own bound their root mean square only.
    Inside the last step the state is CVODE's own polynomial, of the order of the step. The length of the first step
    depends on the first target. The constraints of the state are not restored.

    References
    ----------
    A. C. Hindmarsh et al., SUNDIALS: suite of nonlinear and differential/algebraic equation solvers, ACM Trans. Math.
    Softw. 31 (2005) 363; D. J. Gardner et al., Enabling new flexibility in the SUNDIALS suite, ibid. (2022),
    doi:10.1145/3539801.
    """

    refusal = "Method 'sundials' cannot be continued from a checkpoint; use 'explicit' or 'bdf'."

    def __init__(
        self, method: str, y0: Array, system: BoundSystem, *, tolerances: Tolerances, num_events: int, t0: float
    ) -> None:
        """Make CVODE's solver for a system, begin at y0 (n,) and t0, and look at the events there.

        Tolerances are multiplied by 1/√n, since CVODE bounds the root mean square of weighted errors and every other
        method the largest of them.
        """
        from sksundae.cvode import CVODE, CVODEJacTimes, CVODEPrecond

        super().__init__(method, y0, system, tolerances, num_events, t0)
        # CVODE lends read-only views of its vectors, which compiled functions do not take.
        self._point, self._vector, self._result, self._diagonal, self._inverse = np.empty((5, y0.size))
        self._gamma = np.nan
        counted = "rhs_evaluations", "jacobian_products", "preconditioner_solves", "diagonal_evaluations"
        self._counts = dict.fromkeys(counted, 0)
        # CVODE holds the root mean square of the weighted errors below 1, every other method the largest of them.
        share = 1.0 / np.sqrt(y0.size)
        self._solver = CVODE(
            self._rhs,
            method="BDF",
            rtol=share * tolerances.rtol,
            atol=share * tolerances.atol,
            max_step=tolerances.largest_step if np.isfinite(tolerances.largest_step) else 0.0,
            linsolver="gmres",
            krylov_dim=KRYLOV_DIMENSION,
            precond=CVODEPrecond(self._prepare, self._precondition),
            jactimes=CVODEJacTimes(None, self._multiply) if system.has_product else None,
        )
        with warnings_off():
            self._solver.init_step(self.time, y0)
        self._look_at_events()

    def _step(self, target: float) -> bool:
        """Take one internal step of CVODE towards a target; return whether it succeeded."""
        if self._accepted == 0:
            self._rhs(self.time, self._state, self._result)
            if not self._last_finite:
                return False
        result = self._solver.step(target, "onestep")
        if result.success and result.t == self.time:
            # After an interpolation CVODE first returns to the end of its step.
            result = self._solver.step(target, "onestep")
        if not result.success or result.t == self.time:
            return False
        self._arrive(result.t, result.y)
        return True

    def _write_inside(self, t: float, out: Array) -> None:
        # Looking back, CVODE evaluates its polynomial and takes no step.
        out[:] = self._solver.step(t, "normal").y

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations; evaluations include those of differences for J v."""
        return {"steps_accepted": self._accepted, **self._counts}

    def _rhs(self, t: float, y: Array, out: Array) -> None:
        """Write y' at a time and state, as CVODE asks for it, and count the evaluation."""
        self._point[:] = y
        self._evaluate(t, self._point, out)
        self._counts["rhs_evaluations"] += 1

    def _multiply(self, t: float, y: Array, _slope: Array, v: Array, out: Array) -> None:
        """Write the product of the Jacobian with v, as CVODE asks for it."""
        self._point[:] = y
        self._vector[:] = v
        self._system.jacobian_product(t, self._point, self._vector, out)
        self._counts["jacobian_products"] += 1

    def _prepare(
        self, t: float, y: Array, _slope: Array, jacobian_is_good: int, renewed: list[int], gamma: float
    ) -> None:
        """Renew the diagonal unless CVODE finds the old one good enough."""
        renewed[0] = 0 if jacobian_is_good else 1
        if not jacobian_is_good:
            self._point[:] = y
            self._system.jacobian_diagonal(t, self._point, self._diagonal)
            self._counts["diagonal_evaluations"] += 1
        self._invert(gamma)

    def _precondition(
        self, _t: float, _y: Array, _slope: Array, r: Array, z: Array, gamma: float, _delta: float, _side: int
    ) -> None:
        """Write to z the residual r divided by the preconditioner 1 − min(γ D, ½), D the diagonal of the Jacobian."""
        if gamma != self._gamma:
            self._invert(gamma)
        np.multiply(r, self._inverse, out=z)
        self._counts["preconditioner_solves"] += 1

    def _invert(self, gamma: float) -> None:
        """Renew the inverse of the preconditioner for a number γ."""
        self._gamma = gamma
        self._inverse[:] = 1.0 / (1.0 - np.minimum(gamma * self._diagonal, LARGEST_PRODUCT))
