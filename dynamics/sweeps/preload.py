"""Libraries and machine code of the workers of all sweeps, loaded once in the process from which they are forked.

A worker forked from it starts in milliseconds instead of seconds. Threads are not copied by a fork, so none may run
here: libraries are told to start none, and nothing is loaded that starts its own, such as torch.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress

from dynamics.cores import THREAD_VARIABLES, find_blas

os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))


def load_common() -> None:
    """Load flows and datasets, and compile or load the functions of a flow, which all workers then have in memory."""
    # A flow imports these when it is first solved.
    import netCDF4  # noqa: F401
    import xarray  # noqa: F401

    import dynamics.integrators.large_flow
    import dynamics.integrators.methods
    import dynamics.integrators.small_flow
    import dynamics.runs.loop
    import dynamics.solve.decoupled
    import dynamics.solve.overlaps  # noqa: F401
    from dynamics.equations.overlaps import OverlapSystem
    from dynamics.equations.vectors import VectorSystem
    from dynamics.integrators.system_calls import callbacks
    from dynamics.problem import Problem, Teacher

    problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=2)
    for system in (OverlapSystem(problem), VectorSystem(problem)):
        callbacks(system.functions, implicit=False)
    find_blas()


# An error, such as a cache that cannot be written, occurs again in a worker, which tells it.
with suppress(Exception):
    load_common()
gc.freeze()  # workers need not look for garbage among all that is loaded
