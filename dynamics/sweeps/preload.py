"""What workers of every sweep have in common, loaded once in the process from which they are forked.

Importing this module is its whole use, and nothing imports it but that process: a worker forked from it starts in
milliseconds instead of seconds. Threads are not copied by a fork, so that none may run here: libraries are told to
start none before they are loaded, and nothing is loaded that starts its own, such as torch.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from importlib import import_module

from dynamics.threads.cores import THREAD_VARIABLES

os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))

#: What the flow imports when it is first asked, and its kernels when they are loaded.
OF_THE_FLOW = (
    "equations.overlaps.system",
    "integrators.flow_methods",
    "integrators.large_flow",
    "integrators.small_flow.stepper",
    "runs.loop",
    "solve.ensemble",
    "solve.overlaps",
    "solve.steps",
)


def load_common() -> None:
    """Load the flow, and compile or load its functions, which all workers then have in memory."""
    from dynamics.threads.cores import find_blas

    for name in OF_THE_FLOW:
        import_module(f"dynamics.{name}")
    from dynamics.equations.overlaps.system import OverlapSystem
    from dynamics.equations.pairs.vectors import VectorSystem
    from dynamics.integrators.system_calls import callbacks
    from dynamics.problem import Problem, Teacher

    problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=2)
    for system in (OverlapSystem(problem), VectorSystem(problem)):
        callbacks(system.functions, implicit=False)
    find_blas()


# What goes wrong here, such as a cache that cannot be written, goes wrong again in a worker, which says so.
with suppress(Exception):
    load_common()
gc.freeze()  # what is loaded stays, and workers need not look through it for garbage
