"""The solvers of diffrax on the standard problem: a native float64 right-hand side, compiled by XLA as one program.

Kvaerno5 solves its stages with the dense Jacobian, as diffrax does by default; Dopri8 is explicit. diffrax stops at
events but does not record them, so the largest squared overlaps are saved at `FINE_TIMES` log-spaced times of its dense
output, and emergence is found between them by cubic interpolation in ln t. Fewer times would show in the errors: 16384
limit them to 2e-5 at m = P = 16. XLA chooses its own number of threads.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.packed import PackedFlow
from benchmarks.peers import ATOL_FACTOR
from benchmarks.problems import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import dynamics

FINE_TIMES = 65536


def solve_with_diffrax(problem: dynamics.Problem, times: NDArray[np.float64], rtol: float, *, name: str) -> Outcome:
    """Solve with `diffrax.<name>`; the first call for a size compiles."""
    flow = PackedFlow(problem)
    fine = np.geomspace(times[0], times[-1], FINE_TIMES)
    fine[0], fine[-1] = times[0], times[-1]
    saved = np.union1d(fine, times)
    program = _program(name, problem.width, problem.num_directions)
    began = time.perf_counter()
    loss, squares, evaluated = program(flow.initial_state, flow.coefficients, saved, rtol)
    loss, squares = np.asarray(loss), np.asarray(squares)
    seconds = time.perf_counter() - began
    emergence = _first_rises(np.log(saved), squares - 0.5)
    return Outcome(loss[np.isin(saved, times)], emergence, seconds, int(evaluated))


@lru_cache
def _program(name: str, m: int, P: int) -> Any:
    """Return the compiled solve (initial state, coefficients, saved times, rtol) -> (loss, max_i C_ip², steps)."""
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call]
    rows, columns = np.triu_indices(m, 1)

    def parts(y: Any) -> tuple[Any, Any, Any]:
        G = jnp.zeros((m, m)).at[rows, columns].set(y[m * P : -m])
        return y[: m * P].reshape(m, P), G + G.T + jnp.eye(m), jnp.exp(y[-m:])

    def rhs(_t: Any, y: Any, a: Any) -> Any:
        C, G, n = parts(y)
        C3, G3 = a * C**3, n * G**3
        A, B = 4.0 * C3, 4.0 * G3
        X = A @ C.T - B @ G
        r = jnp.diag(X)
        dC = A - B @ C - r[:, None] * C
        dG = X + X.T - (r[:, None] + r) * G
        force = jnp.sum(C3 * C, axis=1) - jnp.sum(G3 * G, axis=1)
        return jnp.concatenate([dC.ravel(), dG[rows, columns], 4.0 * force])

    def observe(_t: Any, y: Any, a: Any) -> tuple[Any, Any]:
        C, G, n = parts(y)
        loss = jnp.sum(a**2) - 2.0 * n @ (C**4 @ a) + n @ (G**4 @ n)
        return loss, jnp.max(C**2, axis=0)

    @jax.jit
    def solve(initial: Any, a: Any, saved: Any, rtol: Any) -> tuple[Any, Any, Any]:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(rhs),
            getattr(diffrax, name)(),
            t0=0.0,
            t1=saved[-1],
            dt0=None,
            y0=initial,
            args=a,
            saveat=diffrax.SaveAt(ts=saved, fn=observe),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * ATOL_FACTOR),
            max_steps=None,
        )
        loss, squares = solution.ys
        return loss, squares, solution.stats["num_steps"]

    return solve


def _first_rises(x: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp of the first x at which each column rises through 0, by the cubic through four points."""
    from scipy.interpolate import BarycentricInterpolator
    from scipy.optimize import brentq

    found = np.full(values.shape[1], np.nan)
    for p, column in enumerate(values.T):
        above = np.flatnonzero(column >= 0.0)
        if above.size and above[0] > 0:
            at = int(np.clip(above[0], 2, x.size - 2))
            cubic = BarycentricInterpolator(x[at - 2 : at + 2], column[at - 2 : at + 2])
            found[p] = np.exp(
                brentq(lambda at, curve=cubic: float(curve(at)), x[above[0] - 1], x[above[0]], xtol=1e-15)
            )
    return found
