"""The solvers of scipy and SUNDIALS on the standard problem, each with the best settings found for it.

All integrate the packed state with the same compiled right-hand side, called from Python as these libraries demand
(about 1 µs a call), at atol = rtol / 1000. They report the loss at the saved times from their own dense output and
locate emergence on it.

* scipy: `OdeSolver.step` in a bare loop; events by the program's own search, since `solve_ivp` would call P Python
  functions per step. Implicit methods take the dense finite-difference Jacobian of scipy, which costs less here than
  its factorisation.
* CVODE by scikit-sundae: BDF, Newton–GMRES with difference-quotient products, up to `KRYLOV_DIMENSION` vectors;
  emergence by its own root finding. "preconditioned" divides by 1 − γ J_ii, with growing modes cut at γ J_ii = ½.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.packed import PackedFlow
from benchmarks.packed_kernels import precondition
from benchmarks.problems import Outcome
from dynamics.integrators.stepper import record_crossings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    import dynamics

ATOL_FACTOR = 1e-3
KRYLOV_DIMENSION = 20
UNLIMITED_STEPS = 10**9


def solve_with_scipy(problem: dynamics.Problem, times: NDArray[np.float64], rtol: float, *, name: str) -> Outcome:
    """Solve with `scipy.integrate.<name>`."""
    from scipy import integrate

    flow = PackedFlow(problem)
    out = np.empty_like(flow.initial_state)

    def function(_t: float, y: NDArray[np.float64]) -> NDArray[np.float64]:
        flow.rhs(np.ascontiguousarray(y), out)
        return out.copy()

    def events(y: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.empty(flow.num_directions)
        flow.event_values(np.ascontiguousarray(y), values)
        return values

    began = time.perf_counter()
    solver: Any = getattr(integrate, name)(
        function, 0.0, flow.initial_state, times[-1], rtol=rtol, atol=rtol * ATOL_FACTOR
    )
    emergence_time = np.full(flow.num_directions, np.nan)
    now = events(flow.initial_state)
    loss: list[float] = []
    while solver.status == "running":
        message = solver.step()
        if solver.status == "failed":
            raise RuntimeError(message)
        before, now = now, events(solver.y)
        saved = times[len(loss) : int(np.searchsorted(times, solver.t, side="right"))]
        emerged = bool(np.any(np.isnan(emergence_time) & (now >= 0.0)))
        if saved.size or emerged:
            dense = solver.dense_output()
            loss.extend(flow.loss(np.ascontiguousarray(dense(t))) for t in saved)
            if emerged:
                interval = (float(solver.t_old), float(solver.t))
                record_crossings(emergence_time, before, now, interval, _composed(events, dense))
    seconds = time.perf_counter() - began
    return Outcome(np.array(loss), emergence_time, seconds, flow.evaluations)


def _composed(outer: Callable[[Any], Any], inner: Callable[[float], Any]) -> Callable[[float], Any]:
    return lambda t: outer(inner(t))


def solve_with_cvode(
    problem: dynamics.Problem,
    times: NDArray[np.float64],
    rtol: float,
    *,
    preconditioned: bool,
    atol_factor: float = ATOL_FACTOR,
) -> Outcome:
    """Solve with SUNDIALS CVODE through scikit-sundae."""
    from sksundae.cvode import CVODE

    flow = PackedFlow(problem)

    def function(_t: float, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        flow.rhs(y, out)

    def events(_t: float, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        flow.event_values(y, out)

    events.terminal = [False] * flow.num_directions  # type: ignore[attr-defined]
    events.direction = [1] * flow.num_directions  # type: ignore[attr-defined]
    began = time.perf_counter()
    solver = CVODE(
        function,
        method="BDF",
        rtol=rtol,
        atol=rtol * atol_factor,
        linsolver="gmres",
        krylov_dim=KRYLOV_DIMENSION,
        max_num_steps=UNLIMITED_STEPS,
        eventsfn=events,
        num_events=flow.num_directions,
        precond=_diagonal_preconditioner(flow) if preconditioned else None,
    )
    solution = solver.solve(np.concatenate([[0.0], times]), flow.initial_state)
    if not solution.success:
        raise RuntimeError(solution.message)
    # The solution holds the states at the events among those at the saved times.
    wanted = np.isin(solution.t, times)
    loss = np.array([flow.loss(y) for y in solution.y[wanted]])
    seconds = time.perf_counter() - began
    return Outcome(loss, _first_rises(solution, flow.num_directions), seconds, flow.evaluations)


def _diagonal_preconditioner(flow: PackedFlow) -> Any:
    """Return the preconditioner 1 / (1 − γ J_ii), its diagonal renewed whenever CVODE asks for it."""
    from sksundae.cvode import CVODEPrecond

    diagonal = np.empty_like(flow.initial_state)

    def setup(_t: float, y: Any, _out: Any, jacobian_ok: bool, renewed: Any, _gamma: float) -> None:
        renewed[0] = 0 if jacobian_ok else 1
        if not jacobian_ok:
            flow.jacobian_diagonal(y, diagonal)

    def solve(_t: float, _y: Any, _out: Any, r: Any, z: Any, gamma: float, _delta: float, _side: int) -> None:
        precondition(r, diagonal, gamma, z)

    return CVODEPrecond(setup, solve, side="left")


def _first_rises(solution: Any, num_directions: int) -> NDArray[np.float64]:
    """Return the first time of each event that CVODE reports."""
    found = np.full(num_directions, np.nan)
    if solution.t_events is not None:
        for t, passed in zip(solution.t_events, solution.i_events, strict=True):
            for p in np.flatnonzero(np.asarray(passed) > 0):
                found[p] = t if np.isnan(found[p]) else found[p]
    return found
