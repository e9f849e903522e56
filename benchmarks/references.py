"""Reference solutions: CVODE, and our own method against it, both at tolerances far below anything that is compared.

The difference of the two bounds the error of the reference, because they share neither state, nor link, nor stepper.
References depend on the problem alone and are kept in `.benchmarks/`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.contenders import OUR_METHODS
from benchmarks.journal import FOLDER
from benchmarks.problems import DIMENSION, H4, Outcome, errors
from benchmarks.worker import Task, Worker

RTOL = 1e-12
#: Enough where tighter would take a quarter of an hour.
LARGE_RTOLS = {128: 1e-11, 256: 1e-10}
REFEREE = "CVODE GMRES, diagonal"
#: The first of these that the program has; a backward differentiation method, whose error falls steadily with `rtol`.
SECONDS = ("bdf", "stiff")
LIMIT = 1800.0


def reference(size: int, dimension: int = DIMENSION, link: str = H4) -> tuple[Outcome, dict[str, Any]]:
    """Return the reference of the standard problem and what is known of its error, computing both if need be."""
    rtol = max((RTOL, *(loose for large, loose in LARGE_RTOLS.items() if size >= large)))
    named = "" if link == H4 else f"_{link.replace(' ', '')}"
    path = FOLDER / f"reference_m{size}_d{dimension}_rtol{rtol:g}{named}.npz"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        own = next(method for method in SECONDS if method in OUR_METHODS)
        task = Task(size, rtol, dimension=dimension, repeat=False, link=link)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda name: _solve(name, task), (REFEREE, own))
        np.savez(
            path,
            loss=first.loss,
            emergence_time=first.emergence_time,
            seconds=[first.seconds, second.seconds],
            **{f"error_{name}": value for name, value in asdict(errors(second, first)).items()},
        )
    with np.load(path) as kept:
        outcome = Outcome(kept["loss"], kept["emergence_time"], float(kept["seconds"][0]), 0)
        known = {
            "size": size,
            "rtol": rtol,
            "emerged": int(np.isfinite(outcome.emergence_time).sum()),
            "loss_error": float(kept["error_loss"]),
            "time_error": float(kept["error_emergence_time"]),
            "missed": int(kept["error_missed"]),
            "seconds": kept["seconds"].tolist(),
        }
    return outcome, known


def _solve(contender: str, task: Task) -> Outcome:
    with Worker(contender) as worker:
        return worker.solve(task, LIMIT)
