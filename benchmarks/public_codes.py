"""The public codes of the field beside this program, on their own problems: CPU seconds of a trajectory at equal error.

`python -m benchmarks --only public-codes --peers DIR`, DIR with clones of any of the repositories below; what they need
to be built is in `docs/public_codes.md`. All take Euler steps:

* nn2pp (Goldt et al. 2019) and teacher_student_dynamics (Lee et al. 2021), C++: f = Σ_i v_i g(w_i·x), time in samples
  over d, rate η of both layers;
* DimensionlessDynamicsSGD (Arnaboldi et al. 2023) and batch-size-time-complexity-tradeoffs (Arnaboldi et al. 2024),
  Cython and Python: f = (1/p) Σ_i g(w_i·x), f* = (1/k) Σ_r g(θ_r·x), time in steps times γ/(p d).

Each takes its own step, and half of it, which shows that it converges to our reference, at rtol 1e-12. Ours is the
whole public call at the loosest tolerance whose error is no larger. Errors are the largest of the generalisation error,
as the code defines it, over the times that it saves.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.journal import machine
from benchmarks.public_code_cases import CASES, QUICK_CASES, our_loss
from benchmarks.public_code_drivers import DRIVERS, commit

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.journal import Journal
    from benchmarks.public_code_cases import Case

    Array = NDArray[np.float64]

RTOLS = tuple(10.0**-n for n in range(3, 12))
REFERENCE_RTOL = 1e-12
REPEATS = 5
#: CPU seconds to be spent on repeating a code.
PATIENCE = 60.0
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
        "rounds": [journal.measure(case.name, partial(duel, case, peers / case.code)) for case in cases],
    }


def duel(case: Case, clone: Path) -> dict[str, Any]:
    """Return errors, CPU seconds and steps of the code, and of ours at its error and at `FINE`."""
    drive = DRIVERS[case.code]
    half = drive(case, clone, case.step / 2, 1)
    theirs = drive(case, clone, case.step, int(np.clip(PATIENCE / half.seconds, 1, REPEATS)))
    exact = our_loss(case, theirs.times, REFERENCE_RTOL)[0]
    deviation = theirs.losses - exact
    finer = half.losses - our_loss(case, half.times, REFERENCE_RTOL)[0]
    error = float(np.abs(deviation).max())
    return {
        "code": case.code,
        "commit": commit(clone),
        "width": case.width,
        "directions": case.directions,
        "both_layers": case.both,
        "last": case.last,
        "theirs": {
            "step": case.step,
            "steps": theirs.steps,
            "seconds": theirs.seconds,
            "error": error,
            "error_of_half_the_step": float(np.abs(finer).max()),
            # Euler's error is first order in the step: what is left when two steps are extrapolated.
            "error_extrapolated": float(np.abs(2 * finer - np.interp(half.times, theirs.times, deviation)).max()),
            "seconds_expected": theirs.seconds * error / FINE,
        },
        "ours": ours_at(case, theirs.times, exact, error),
        "ours_fine": ours_at(case, theirs.times, exact, FINE),
    }


def ours_at(case: Case, times: Array, exact: Array, target: float) -> dict[str, Any]:
    """Return the loosest tolerance whose error is within the target, its fewest CPU seconds, and its steps."""
    for rtol in RTOLS:
        seconds = []
        for _ in range(REPEATS):
            began = time.process_time()
            losses, answer = our_loss(case, times, rtol)
            seconds.append(time.process_time() - began)
        error = float(np.abs(losses - exact).max())
        if error <= target:
            steps = int(answer.attrs["steps_accepted"] + answer.attrs["steps_rejected"])
            found = {"rtol": rtol, "error": error, "seconds": min(seconds), "method": answer.attrs["method"]}
            return found | {"steps": steps, "evaluations": int(answer.attrs["rhs_evaluations"])}
    msg = f"Tolerances down to {RTOLS[-1]:g} must reach the error {target:g} of {case.name}, but none does."
    raise RuntimeError(msg)
