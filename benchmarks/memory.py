"""Peak memory of a solve: `python -m benchmarks.memory CONTENDER SIZE` prints the bytes that it adds to a process.

A fresh process first solves m = P = 2, so that libraries, kernels and caches are in place, and before larger sizes also
m = P = 64, for which "stiff" has other kernels. Counted is from what is resident then to the peak while the size asked
for is solved (VmRSS and VmHWM of /proc). scikit-sundae keeps the whole state at every saved time, which is most of what
CVODE is seen to take.
"""

from __future__ import annotations

import ctypes
import gc
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
#: Solved before larger sizes.
WARM = 64
#: Dense Jacobians are measured at the first size only.
SIZES = (32, 128, 256)
QUICK_SIZES = (16,)


def state_bytes(size: int) -> int:
    """Return the bytes of one state [C | G | ln n] of the program."""
    return 8 * (2 * size * size + size)


def resident_bytes(which: str) -> int:
    """Return what is resident of this process, now ("VmRSS") or at its peak since `forget_peak` ("VmHWM")."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{which}:"):
            return 1024 * int(line.split()[1])
    msg = "The peak memory of a process is read from /proc, which this system does not have."
    raise RuntimeError(msg)


def forget_peak() -> None:
    """Give back to the system what is free, and count the peak from now on."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


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
        if size > WARM:
            solve(standard_problem(WARM), save_times(PART * horizon(WARM)), RTOL)
        forget_peak()
        before = resident_bytes("VmRSS")
        solve(standard_problem(size), save_times(PART * horizon(size)), RTOL)
    print(resident_bytes("VmHWM") - before)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
