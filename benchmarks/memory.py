"""Peak memory of a solve: `python -m benchmarks.memory CONTENDER SIZE` prints bytes above those of a tiny solve.

A fresh process first solves m = P = 2, so that libraries, kernels and caches are in place, and then the size asked for.
The peak is VmHWM of /proc, which unlike `ru_maxrss` is not inherited from the process that started it. scikit-sundae
keeps the whole state at every saved time, which is most of what CVODE is seen to take.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.journal import ROOT
from benchmarks.problems import horizon, save_times, standard_problem

if TYPE_CHECKING:
    from benchmarks.journal import Journal

#: Every method allocates all it needs in its first steps; only this part of the flow is run.
PART = 1e-3
RTOL = 1e-6
#: Dense Jacobians are measured at the first size only.
SIZES = (32, 128, 256)
QUICK_SIZES = (16,)


def state_bytes(size: int) -> int:
    """Return the bytes of one state [C | G | ln n] of the program."""
    return 8 * (2 * size * size + size)


def peak_bytes() -> int:
    """Return the largest resident size of this process so far."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    msg = "The peak memory of a process is read from /proc, which this system does not have."
    raise RuntimeError(msg)


def run(journal: Journal, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Measure every method that is not bound to tiny sizes."""
    from benchmarks.contenders import CONTENDERS

    cases = [
        (contender.name, size)
        for contender in CONTENDERS.values()
        if not contender.name.startswith("diffrax")
        for size in (sizes[:1] if contender.name.startswith("scipy") else sizes)
    ]
    return [journal.measure(f"memory: {name}, m = P = {size}", partial(_fresh, name, size)) for name, size in cases]


def _fresh(contender: str, size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", contender, str(size)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    state = state_bytes(size)
    peak = int(done.stdout)
    return {"contender": contender, "size": size, "peak_bytes": peak, "state_bytes": state, "states": peak / state}


def main(contender: str, size: int) -> None:
    """Print the bytes by which solving this size raises the peak."""
    from threadpoolctl import threadpool_limits

    from benchmarks.contenders import CONTENDERS

    solve = CONTENDERS[contender].solve
    with threadpool_limits(limits=1, user_api="blas"):
        solve(standard_problem(2), save_times(2.0), RTOL)
        before = peak_bytes()
        solve(standard_problem(size), save_times(PART * horizon(size)), RTOL)
    print(peak_bytes() - before)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
