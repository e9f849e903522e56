"""Errors and warnings of SUNDIALS, kept off the standard output, which carries results.

The status of a step tells of them as well.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

import numpy as np

from dynamics.integrators.foreign import ForeignStepper
from dynamics.integrators.stepper import Status, check_inside
from dynamics.threads.stopping import stopping_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dynamics.integrators.stepper import Tolerances
    from dynamics.integrators.system_calls import BoundSystem
    from hermite.arrays import Array

    Vector = Array


# Read by SUNDIALS when it makes a context: the file that its warnings go to.
WARNINGS = "SUNLOGGER_WARNING_FILENAME"


class SilentThreads:
    """Stand in for the standard output, which carries results, while CVODE prints its errors there.

    Only what the entered threads write is dropped; what others write passes. Steppers on several threads share it.
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


# CVODE of SUNDIALS as a stepper: matrix-free backward differentiation of variable order; needs an extra.
#
# A Newton step solves (1 − γ J) x = b by GMRES, preconditioned from the left by 1 − min(γ D, ½) with D = diag J, with
# compiled products J v where the system has them and CVODE's own differences of the right-hand side where not. For the
# overlap flow a product costs two evaluations and a difference one; both take the same steps and much the same time.
#
# References
# ----------
# A. C. Hindmarsh et al., SUNDIALS: suite of nonlinear and differential/algebraic equation solvers, ACM Trans. Math.
# Softw. 31 (2005) 363; D. J. Gardner et al., Enabling new flexibility in the SUNDIALS suite, ibid. (2022),
# doi:10.1145/3539801.


# Krylov vectors of one linear solve; the overlap flow takes two on average, and 5 vectors cost it the same work.
KRYLOV_DIMENSION = 10
# A growing component would make 1 − γ D vanish or change sign; the divisor is kept above one half.
LARGEST_PRODUCT = 0.5


def check_installed() -> None:
    """Raise ImportError without the package that wraps CVODE."""
    try:
        import sksundae.cvode  # noqa: F401
    except ImportError as error:
        msg = "Method 'sundials' needs an extra package: pip install \"feature-emergence[sundials]\"."
        raise ImportError(msg) from error


class SundialsStepper(ForeignStepper):
    """Takes the internal steps of CVODE, one at a time; a fixed step or order is refused.

    The tolerances bound the error of each component, as everywhere here; CVODE's own bound their root mean square only.
    Inside the last step the state is CVODE's own polynomial, of the order of the step; both ends are returned exactly.
    The length of the first step depends on the first target. The constraints of the state are not restored.
    """

    refusal = "Method 'sundials' cannot be continued from a checkpoint; use 'explicit' or 'bdf'."

    def __init__(
        self,
        y0: Vector,
        system: BoundSystem,
        *,
        tolerances: Tolerances,
        num_events: int,
        t0: float,
    ) -> None:
        super().__init__("sundials", system, tolerances, num_events)
        self._start = self._time = float(t0)
        self._start_state = self._state = y0.copy()
        # CVODE lends read-only views of its vectors, which compiled functions do not take.
        self._point, self._vector, self._result = np.empty((3, y0.size))
        self._diagonal, self._inverse = np.empty((2, y0.size))
        self._gamma = np.nan
        self._counts = dict.fromkeys(
            ("steps_accepted", "rhs_evaluations", "jacobian_products", "preconditioner_solves", "diagonal_evaluations"),
            0,
        )
        self._solver = self._made_solver(tolerances, y0.size)
        with warnings_off():
            self._solver.init_step(self._time, y0)
        self._record_events()

    def _made_solver(self, tolerances: Tolerances, size: int) -> Any:
        from sksundae.cvode import CVODE, CVODEJacTimes, CVODEPrecond

        # CVODE holds the root mean square of the weighted errors below 1, every other method the largest of them.
        share = 1.0 / np.sqrt(size)
        return CVODE(
            self._rhs,
            method="BDF",
            rtol=share * tolerances.rtol,
            atol=share * tolerances.absolute(size),
            max_step=tolerances.largest_step if np.isfinite(tolerances.largest_step) else 0.0,
            linsolver="gmres",
            krylov_dim=KRYLOV_DIMENSION,
            precond=CVODEPrecond(self._prepare, self._precondition),
            jactimes=CVODEJacTimes(None, self._multiply) if self._system.has_product else None,
        )

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._time

    @property
    def start(self) -> float:
        """Start of the last accepted step, dimensionless."""
        return self._start

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were taken, or no step succeeds."""
        with silence, stopping_at(self._system.slot):
            for _ in range(max_steps):
                if self._time >= target:
                    return Status.REACHED
                if not self._step(float(target)):
                    return Status.STEP_TOO_SMALL if self._last_finite else Status.NOT_FINITE
        return Status.REACHED if self._time >= target else Status.MAX_STEPS

    def _step(self, target: float) -> bool:
        """Take one step towards `target`; return whether it succeeded."""
        if self._counts["steps_accepted"] == 0:
            self._rhs(self._time, self._state, self._result)
            if not self._last_finite:
                return False
        result = self._solver.step(target, "onestep")
        if result.success and result.t == self._time:
            # After an interpolation CVODE first returns to the end of its step.
            result = self._solver.step(target, "onestep")
        if not result.success or result.t == self._time:
            return False
        self._start, self._start_state = self._time, self._state
        self._time, self._state = float(result.t), result.y
        self._counts["steps_accepted"] += 1
        self._record_events()
        return True

    def interpolate(self, t: float, out: Vector | None = None) -> Vector:
        """Return the state at a time within the last step, shape (n,)."""
        check_inside(t, self._start, self._time)
        out = np.empty(self._state.size) if out is None else out
        if t == self._time:
            out[:] = self._state
        elif t == self._start:
            out[:] = self._start_state
        else:
            # Looking back, CVODE evaluates its polynomial and takes no step.
            out[:] = self._solver.step(float(t), "normal").y
        return out

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations; evaluations include those of differences for J v."""
        return dict(self._counts)

    def _rhs(self, t: float, y: Vector, out: Vector) -> None:
        self._point[:] = y
        self._system.rhs(t, self._point, out)
        self._last_finite = bool(np.isfinite(out).all())
        self._counts["rhs_evaluations"] += 1

    def _multiply(self, t: float, y: Vector, slope: Vector, v: Vector, out: Vector) -> None:
        del slope
        self._point[:] = y
        self._vector[:] = v
        self._system.jacobian_product(t, self._point, self._vector, out)
        self._counts["jacobian_products"] += 1

    def _prepare(
        self, t: float, y: Vector, slope: Vector, jacobian_is_good: int, renewed: list[int], gamma: float
    ) -> None:
        """Renew the diagonal unless CVODE finds the old one good enough."""
        del slope
        renewed[0] = 0 if jacobian_is_good else 1
        if not jacobian_is_good:
            self._point[:] = y
            self._system.jacobian_diagonal(t, self._point, self._diagonal)
            self._counts["diagonal_evaluations"] += 1
        self._invert(gamma)

    def _precondition(
        self, t: float, y: Vector, slope: Vector, r: Vector, z: Vector, gamma: float, delta: float, side: int
    ) -> None:
        del t, y, slope, delta, side
        if gamma != self._gamma:
            self._invert(gamma)
        np.multiply(r, self._inverse, out=z)
        self._counts["preconditioner_solves"] += 1

    def _invert(self, gamma: float) -> None:
        self._gamma = gamma
        self._inverse[:] = 1.0 / (1.0 - np.minimum(gamma * self._diagonal, LARGEST_PRODUCT))
