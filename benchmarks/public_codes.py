"""The public codes of the field beside this program, on their own problems: CPU seconds of a trajectory at equal error.

`python -m benchmarks --only public-codes --peers DIR`, DIR with clones of any of the repositories below; what they need
to be built is in `docs/public_codes.md`. All take Euler steps:

* nn2pp (Goldt et al. 2019) and teacher_student_dynamics (Lee et al. 2021), C++: f = Σ_i v_i g(w_i·x), time in samples
  over d, rate η of both layers;
* DimensionlessDynamicsSGD (Arnaboldi et al. 2023) and batch-size-time-complexity-tradeoffs (Arnaboldi et al. 2024),
  Cython and Python: f = (1/p) Σ_i g(w_i·x), f* = (1/k) Σ_r g(θ_r·x), time in steps times γ/(p d).

Each takes its own step, and half of it at first, which shows that it converges to our reference, at rtol 1e-12. Ours is
the whole public call at the loosest tolerance whose error is no larger. Errors are the largest of the generalisation
error, as the code defines it, over the times that it saves.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.journal import machine
from benchmarks.public_code_cases import CASES, QUICK_CASES, our_loss, our_system
from benchmarks.public_code_drivers import DRIVERS, commit
from dynamics.integrators.system_calls import BoundSystem

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.journal import Journal
    from benchmarks.public_code_cases import Case

    Array = NDArray[np.float64]

RTOLS = tuple(10.0**-n for n in range(3, 12))
REFERENCE_RTOL = 1e-12
REPEATS, EVALUATIONS = 5, 1000
#: CPU seconds to be spent on repeating a code.
PATIENCE = 60.0
#: Part of the trajectory on which half the step is taken.
PART = 0.1
#: An error that both are asked for besides; of the codes' first order, the seconds for it are expected, not measured.
FINE = 1e-6


def check(peers: Path | None) -> None:
    """Raise unless `peers` is a folder with a clone of one of the codes at least.

    Raises
    ------
    ValueError
        One sentence: what must hold, what was given.
    """
    if peers is None or not any((peers / code).is_dir() for code in DRIVERS):
        given = "absent" if peers is None else repr(str(peers))
        msg = f"Option `--peers` must be a folder with a clone of one of {', '.join(DRIVERS)}, but is {given}."
        raise ValueError(msg)


def run(journal: Journal, peers: Path, *, quick: bool) -> dict[str, Any]:
    """Return what each code that has a clone in `peers` takes on its problems, and what we take."""
    cases = [case for case in (QUICK_CASES if quick else CASES) if (peers / case.code).is_dir()]
    return {
        "processor": machine()["processor"],
        "date": time.strftime("%Y-%m-%d"),
        "rounds": [journal.measure(case.name, partial(duel, case, peers / case.code)) for case in cases],
    }


def duel(case: Case, clone: Path) -> dict[str, Any]:
    """Return errors, CPU seconds and steps of the code, and of ours at its error and at `FINE`."""
    drive = DRIVERS[case.code]
    half = drive(replace(case, last=PART * case.last), clone, case.step / 2, 1)
    theirs = drive(case, clone, case.step, int(np.clip(PART * PATIENCE / half.seconds, 1, REPEATS)))
    exact = our_loss(case, theirs.times, REFERENCE_RTOL)[0]
    deviation = np.abs(theirs.losses - exact)
    finer = np.abs(half.losses - our_loss(case, half.times, REFERENCE_RTOL)[0])
    error = float(deviation.max())
    ours, fine = (ours_at(case, theirs.times, exact, target) for target in (error, FINE))
    return {
        "name": case.name,
        "code": case.code,
        "commit": commit(clone),
        "width": case.width,
        "directions": case.directions,
        "last": case.last,
        "theirs": {
            "step": case.step,
            "steps": theirs.steps,
            "seconds": theirs.seconds,
            "error": error,
            # 2 for a method of first order whose limit is the reference.
            "error_over_that_of_half_the_step": float(deviation[theirs.times <= PART * case.last].max() / finer.max()),
            "seconds_expected": theirs.seconds * error / FINE,
        },
        "ours": ours,
        "ours_fine": fine,
        "seconds_per_evaluation": evaluation_seconds(case),
    }


def ours_at(case: Case, times: Array, exact: Array, target: float) -> dict[str, Any]:
    """Return what the loosest tolerance takes whose error is within the target."""
    for rtol in RTOLS:
        losses, found = timed(case, times, rtol)
        error = float(np.abs(losses - exact).max())
        if error <= target:
            return {"rtol": rtol, "error": error} | found
    msg = f"Tolerances down to {RTOLS[-1]:g} must reach the error {target:g} of {case.name}, but none does."
    raise RuntimeError(msg)


def timed(case: Case, times: Array, rtol: float) -> tuple[Array, dict[str, Any]]:
    """Return the losses, and the fewest CPU seconds of a whole call, its steps and its evaluations."""
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        losses, answer = our_loss(case, times, rtol)
        seconds.append(time.process_time() - began)
    counts = answer.attrs
    return losses, {
        "method": counts["method"],
        "seconds": min(seconds),
        "steps": int(counts["steps_accepted"] + counts["steps_rejected"]),
        "evaluations": int(counts["rhs_evaluations"]),
    }


def evaluation_seconds(case: Case) -> float:
    """Return the CPU seconds of one evaluation of our right-hand side at the start, without the call around it."""
    system = our_system(case)
    bound = BoundSystem(system)
    y, out = system.initial_state, np.empty_like(system.initial_state)
    found = []
    for _ in range(REPEATS + 1):
        began = time.process_time()
        for _ in range(EVALUATIONS):
            bound.rhs(0.0, y, out)
        found.append((time.process_time() - began) / EVALUATIONS)
    return min(found)
