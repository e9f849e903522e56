"""Write a file of every kind to a folder, or compile a function; print the numbers, the names, and what was warned of.

`python all_writers.py FOLDER files` or `… FOLDER kernel`.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

import dynamics
from dynamics import Callback
from dynamics.kernels.jit import entry

AT = dynamics.SaveAt.geometric(0.5, 30.0, 6)


@entry
def twice(x):
    return 2.0 * x


def written(folder):
    """Return numbers of an interrupted and resumed run, a plain one, a sweep by two workers, and write a page."""
    asked = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=3, dimension=16)
    settings = {"save_at": AT, "method": "explicit", "progress": False}
    stop = [Callback(lambda time, _: time > 3.0)]
    dynamics.solve_overlaps(asked, checkpoint=folder / "resumed.nc", trackers=stop, **settings)
    dynamics.resume(folder / "resumed.nc", progress=False)
    file = dynamics.RunFile(folder / "plain.nc", every=1e-3)
    dynamics.solve_overlaps(asked, checkpoint=file, **settings)
    grid = {"seed": [0, 1]}
    dynamics.sweep(asked, grid, study="prediction", workers=2, output=folder / "sweep.nc", progress=False).close()
    dynamics.write_report(dynamics.load(folder / "plain.nc"), folder / "page.html")
    dynamics.save(dynamics.load(folder / "plain.nc"), folder / "plain.nc", overwrite=True)
    losses = [dynamics.load(folder / f"{name}.nc")["loss"].to_numpy().ravel() for name in ("resumed", "plain", "sweep")]
    return np.concatenate(losses).tolist()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with warnings.catch_warnings(record=True, action="always") as caught:
        numbers = written(place) if sys.argv[2] == "files" else [twice(21.0)]
    names = sorted(path.name for path in place.iterdir() if path.name != "cache")
    told = [str(entry.message) for entry in caught]
    print(json.dumps({"numbers": numbers, "names": names, "told": told}))
