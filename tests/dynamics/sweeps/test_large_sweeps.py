"""A sweep of ten thousand points on two workers that is killed twice: nothing that was answered is lost or asked again."""

import os
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
import sweep_toys
from processes import ROOT

import dynamics
from dynamics.sweeps.points import answered_points

POINTS, WORKERS = 10_000, 2
#: Answered points after which the process is killed.
KILLS = (1000, 6000)
#: Points that each kill may find between their answer and their file: those that were submitted.
MOST_LOST = WORKERS + 1
PROBLEM = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=2, dimension=16)


def go_on(output, journal):
    options = {"journal": journal}
    dynamics.sweep(
        PROBLEM, {"seed": range(POINTS)}, study=sweep_toys.recorded, options=options, output=output, workers=WORKERS,
        progress=False,
    ).close()  # fmt: skip


def begin(*paths):
    """Begin, or go on with, the sweep in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    return subprocess.Popen([sys.executable, __file__, *map(str, paths)], env=environment, stderr=subprocess.DEVNULL)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_large_sweep_that_is_killed_twice_loses_nothing(tmp_path):
    output, journal, folder, kept = tmp_path / "sweep.nc", tmp_path / "journal", tmp_path / "sweep.nc.points", []
    for wanted in KILLS:
        with begin(output, journal) as process:
            deadline = time.monotonic() + 300.0
            while not folder.is_dir() or len(list(folder.glob("*.point"))) < wanted:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.kill()
        assert process.returncode == -9
        assert not output.exists()
        kept.append({number: (folder / f"{number:06d}.point").stat().st_mtime_ns for number in answered_points(folder)})
        assert wanted <= len(kept[-1]) < POINTS
        # Files of the first process are those that the second one left.
        assert kept[0].items() <= kept[-1].items()
    with begin(output, journal) as process:
        assert process.wait(timeout=300.0) == 0
    assert sorted(tmp_path.iterdir()) == [journal, output]
    with dynamics.load(output) as found:
        np.testing.assert_array_equal(found["square"], np.arange(POINTS) ** 2.0)
        assert (found["failure"] == "").all()
    calls = Counter(map(int, journal.read_text().split()))
    assert set(calls) == set(range(POINTS))
    assert max(calls.values()) <= 1 + len(KILLS)
    again = calls.total() - POINTS
    assert 0 <= again <= len(KILLS) * MOST_LOST
    print({"answered at the kills": [len(files) for files in kept], "asked again": again})


if __name__ == "__main__":
    go_on(*sys.argv[1:])
