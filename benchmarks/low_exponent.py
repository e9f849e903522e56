"""The coupled flow of links with information exponent 1 and 2, where directions do not decouple: the method "auto".

m = P neurons, a_p ∝ p^-1, d = 256, the default start and the default horizon, rtol 1e-6. Timed is the whole call of
`solve_overlaps` with its error estimate, a second solution in a second thread; processor seconds are those of both
together. The error at the smallest size is measured against the explicit pair at a tight tolerance.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import dynamics
from benchmarks.problems import Outcome, errors

if TYPE_CHECKING:
    import xarray as xr

    from benchmarks.journal import Journal

#: A link and the order of its series: the largest that is timed in the issues, and None for a polynomial.
LINKS: tuple[tuple[str, int | None], ...] = (("relu", 40), ("0.3*h2(z)+h4(z)", None))
SIZES, CHECKED_SIZE, QUICK_SIZES, QUICK_CHECKED_SIZE = (48, 64, 128), 32, (16,), 8
DIMENSION, RTOL, REFEREE_RTOL, REFEREE_ATOL = 256, 1e-6, 1e-10, 1e-13


def run(journal: Journal, *, quick: bool) -> dict[str, Any]:
    """Return seconds, steps and evaluations by link and size, and the errors at one size."""
    sizes, checked = (QUICK_SIZES, QUICK_CHECKED_SIZE) if quick else (SIZES, CHECKED_SIZE)
    return {
        "dimension": DIMENSION,
        "rtol": RTOL,
        "links": [
            {
                "link": link,
                "order": order,
                "checked_size": checked,
                "errors": journal.measure(
                    f"low exponent: {link}, errors", partial(checked_errors, link, order, checked)
                ),
                "runs": [
                    journal.measure(f"low exponent: {link}, m = P = {size}", partial(timed, link, order, size))
                    for size in sizes
                ],
            }
            for link, order in LINKS
        ],
    }


def timed(link: str, order: int | None, size: int) -> dict[str, Any]:
    """Return what one solve costs, once its kernels are compiled."""
    solve(link, order, 2, method="bdf")
    began, used = time.perf_counter(), time.process_time()
    flow = solve(link, order, size)
    return {
        "size": size,
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - used,
        **{name: flow.attrs[name] for name in ("method", "steps_accepted", "rhs_evaluations") if name in flow.attrs},
        "estimated_loss_error": float(flow.loss_error.max()),
    }


def checked_errors(link: str, order: int | None, size: int) -> dict[str, Any]:
    """Return the errors of loss and emergence times of one solve."""
    found = outcome(solve(link, order, size))
    exact = solve(link, order, size, method="explicit", rtol=REFEREE_RTOL, atol=REFEREE_ATOL, error_estimate=False)
    return asdict(errors(found, outcome(exact)))


def solve(link: str, order: int | None, size: int, **options: Any) -> xr.Dataset:
    """Return the flow of the benchmark's problem at a size."""
    teacher = dynamics.Teacher.power_law(size, beta=1.0)
    series = {} if order is None else {"order": order}
    problem = dynamics.Problem(activation=link, teacher=teacher, width=size, dimension=DIMENSION, **series)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The flow sees")
        return dynamics.solve_overlaps(problem, **{"rtol": RTOL, "progress": False, **options})


def outcome(flow: xr.Dataset) -> Outcome:
    """Return loss and emergence times of a flow."""
    return Outcome(flow.loss.to_numpy(), flow.emergence_time.to_numpy(), 0.0, int(flow.attrs["rhs_evaluations"]))
