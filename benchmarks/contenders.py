"""Who takes part: the methods of this program, as its own table lists them, and the solvers of libraries.

Every contender solves the same problem from the same start at the same saved times; only `rtol` varies. Absolute
tolerances follow it, at the ratio that served each best.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dynamics
from benchmarks.diffrax_peers import solve_with_diffrax
from benchmarks.peers import solve_with_cvode, solve_with_scipy
from benchmarks.problems import Outcome
from dynamics.integrators import FLOW_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

#: atol of this program over rtol; it counts atol in units of 1/√d, so this is rtol / 3200 on overlaps at d = 1024.
OUR_ATOL_FACTOR = 1e-2


@dataclass(frozen=True)
class Contender:
    """One solver with its settings.

    tolerances : values of rtol, loosest first
    largest : largest m = P it is asked for
    own_threads : whether it decides itself how many threads it uses
    growth : factor by which its cost grows at least when m = P doubles, to foresee runs beyond the time limit
    any_link : whether it solves the problem with k = 2 too
    """

    name: str
    ours: bool
    solve: Callable[[dynamics.Problem, NDArray[Any], float], Outcome]
    tolerances: tuple[float, ...]
    settings: str
    largest: int = 128
    own_threads: bool = False
    growth: float = 6.0
    any_link: bool = True


def solve_with_ours(
    problem: dynamics.Problem, times: NDArray[Any], rtol: float, *, method: str, seconds: float | None = None
) -> Outcome:
    """Solve with the public `solve_overlaps`; the time is that of the whole call, dataset included."""
    began = time.perf_counter()
    dataset = dynamics.solve_overlaps(
        problem,
        save_at=dynamics.SaveAt.at(times),
        method=method,
        rtol=rtol,
        atol=OUR_ATOL_FACTOR * rtol,
        keep="summary",
        progress=False,
        max_runtime=seconds,
        error_estimate=False,
    )
    taken = time.perf_counter() - began
    evaluations = int(dataset.attrs.get("rhs_evaluations", 0))
    notes = {name: float(dataset.attrs[name]) for name in ("solve_seconds", "compile_seconds")}
    return Outcome(dataset["loss"].to_numpy(), dataset["emergence_time"].to_numpy(), taken, evaluations, notes)


OUR_METHODS = tuple(
    method
    for method in FLOW_METHODS
    if method not in {"auto", "gradient-descent", "map"} and not method.startswith("scipy:")
)
# An explicit method is held by stability, whatever its tolerance.
_TWO = (1e-6, 1e-9)
_OUR_TOLERANCES = {
    "explicit": _TWO,
    # At 1e-3 small flows may meet the targets by chance: errors fall steadily from 1e-4 on.
    "stiff": (1e-4, 3e-5, 1e-5),
    "bdf": (1e-5, 1e-6, 1e-7, 1e-8),
    "sundials": (1e-5, 1e-6, 1e-7, 1e-8),
}
_TOLERANCES = (1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
# One-step implicit methods achieve far more than they are asked for.
_LOOSE_TOLERANCES = (1e-4, 1e-5, 1e-6)
# m^6 for factorisations, softened because products and calls share the time at small m.
_DENSE_GROWTH = 30.0


def _ours(method: str) -> Contender:
    explicit = method == "explicit"
    return Contender(
        name=method,
        ours=True,
        solve=partial(solve_with_ours, method=method),
        tolerances=_OUR_TOLERANCES[method],
        settings="public call, keep='summary', no error estimate",
        largest=32 if explicit else 256,
        own_threads=True,
    )


def _scipy(name: str, tolerances: tuple[float, ...]) -> Contender:
    dense = name != "DOP853"
    return Contender(
        name=f"scipy {name}",
        ours=False,
        solve=partial(solve_with_scipy, name=name),
        tolerances=tolerances,
        settings="packed state, compiled right-hand side" + (", dense finite-difference Jacobian" if dense else ""),
        largest=64 if dense else 32,
        growth=_DENSE_GROWTH if dense else 6.0,
    )


def _cvode(name: str, *, preconditioned: bool) -> Contender:
    return Contender(
        name=name,
        ours=False,
        solve=partial(solve_with_cvode, preconditioned=preconditioned),
        tolerances=_TOLERANCES,
        largest=256,
        settings="packed state, compiled right-hand side, BDF, up to 20 Krylov vectors"
        + (", diagonal preconditioner" if preconditioned else ""),
    )


def _diffrax(name: str, tolerances: tuple[float, ...]) -> Contender:
    return Contender(
        name=f"diffrax {name}",
        ours=False,
        solve=partial(solve_with_diffrax, name=name),
        tolerances=tolerances,
        settings="packed state, native right-hand side in jit, float64"
        + (", dense Jacobian" if name == "Kvaerno5" else ""),
        largest=16,
        own_threads=True,
        any_link=False,
        growth=_DENSE_GROWTH if name == "Kvaerno5" else 6.0,
    )


CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        *(_ours(method) for method in OUR_METHODS),
        _cvode("CVODE GMRES", preconditioned=False),
        _cvode("CVODE GMRES, diagonal", preconditioned=True),
        _scipy("LSODA", _TOLERANCES),
        _scipy("BDF", _TOLERANCES),
        _scipy("Radau", _LOOSE_TOLERANCES),
        _scipy("DOP853", _TWO),
        _diffrax("Kvaerno5", _LOOSE_TOLERANCES),
        _diffrax("Dopri8", _TWO),
    )
}
