"""Studies for sweeps that count, wait, fail or kill their worker; at the top of a module, where workers find them."""

import os
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

import dynamics


def counted(problem, *, folder, gate=None):
    """The prediction; leaves one file per call, named by point and process."""
    (Path(folder) / f"{problem.width}-{problem.seed}-{os.getpid()}-{time.monotonic_ns()}").touch()
    while gate is not None and problem.seed > 0 and not Path(gate).exists():
        time.sleep(0.01)
    return dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0, 2.0]))


def calls(folder):
    """How often each point was asked."""
    found = {}
    for path in Path(folder).iterdir():
        width, seed, *_ = path.name.split("-")
        found[int(width), int(seed)] = found.get((int(width), int(seed)), 0) + 1
    return found


def processes(folder):
    return {int(path.name.split("-")[2]) for path in Path(folder).iterdir()}


def deadly(problem, *, folder, always=None):
    """The prediction, but the first to ask seed 3 is killed, and whoever asks seed `always`."""
    marker = Path(folder) / "killed"
    first = problem.seed == 3 and not marker.exists()
    if first or problem.seed == always:
        if first:
            marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return dynamics.predict_emergence(problem)


def shapes(problem, *, folder=None, scale=1.0, good=None):
    """One variable of every kind, with dims that depend on the point; fails for odd seeds without the file `good`."""
    if problem.seed % 2 and good is not None and not Path(good).exists():
        message = f"seed {problem.seed} is odd"
        raise ValueError(message)
    if problem.width > 2:
        warnings.warn("wide", UserWarning, stacklevel=2)
    count, times = problem.width, np.linspace(0.0, problem.width, 3)
    return xr.Dataset(
        {
            "level": ((), scale * problem.width),
            "rank": ("neuron", np.arange(count)),
            "word": ("neuron", np.array([f"n{i}" for i in range(count)], dtype=object)),
            "name": ((), f"width {count}"),
            "history": (("time", "neuron"), scale * np.outer(times, np.arange(count))),
            "seed": ("run", np.arange(2)),
        },
        coords={
            "time": times,
            "neuron": np.arange(count),
            "step": ("time", 10.0 * times),
            "origin": ((), 7.0),
            "place": ("time", [1.0, 2.0, 3.0]),
        },
        attrs={"stop_reason": "reached_end" if count < 3 else "steady_state", "cost": count, "scale": scale},
    )


def broken_run(problem):
    """Fails with what was computed before inside, as a solver does."""
    message = "stopped at t = 1"
    raise dynamics.SolveError(message, xr.Dataset({"loss": ("time", [1.0, 0.5])}))


def wrong_answer(problem):
    return 3.0


def unstorable(problem):
    return xr.Dataset(attrs={"setting": None})


def dated(problem):
    return xr.Dataset({"loss": ((), 1.0)}, attrs={"odd": "text" if problem.seed else 2.0})


def recorded(problem, *, journal):
    """A number that depends on the seed; adds the seed to a file of all calls."""
    with open(journal, "ab", buffering=0) as file:  # noqa: PTH123 (one write of one line, whole among those of others)
        file.write(b"%d\n" % problem.seed)
    return xr.Dataset({"square": ((), float(problem.seed**2))})
