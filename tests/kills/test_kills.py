"""Processes killed by SIGKILL in the middle of their work: every file is whole, and the end is bit for bit the same."""

import multiprocessing
import os
import time
from contextlib import suppress
from typing import NamedTuple

import killed
import numpy as np
import pytest
from same_answers import assert_same

import dynamics
from dynamics.sweeps.points import answered_points, read_point

#: Kind -> kills in the gate, and with FULL_TESTS: 20 of solves, 20 of simulations, 10 of sweeps.
KILLS = {
    "explicit": (1, 6),
    "stiff": (0, 5),
    "bdf": (0, 4),
    "mean field": (1, 5),
    "projected": (1, 10),
    "minibatches": (0, 5),
    "torch": (0, 5),
    "sweep": (0, 5),
    "sweep of processes": (0, 5),
}
MARKS = pytest.mark.long, pytest.mark.longer
#: A process is killed after it has written so many files, at most, and a random part of about one more.
MOST_WRITES, LONGEST_WRITE = 4, 0.05
#: Seconds between two files of a run that will be killed, and of one that will not.
OFTEN, SELDOM = 1e-9, 30.0
#: Processes per kill after which the runs are said to be too short.
MOST_PROCESSES = 3
#: Nothing of a passing test waits for this; it ends one that hangs.
PATIENCE = 120.0


class Tally(NamedTuple):
    """What came of the kills of one kind."""

    kind: str
    kills: int
    resumed: int
    unreadable: int


@pytest.fixture(scope="module")
def processes():
    """Processes that are forked, as the workers of a sweep are, from one that has loaded what takes longest."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dynamics.sweeps.preload"])
    return context


def written(path):
    """Return what changes with every file that a run writes."""
    points = path.with_name(f"{path.name}.points")
    # The process that is watched removes and replaces files meanwhile.
    found = ()
    with suppress(FileNotFoundError):
        found = tuple(answered_points(points)) if points.is_dir() else ()
    with suppress(FileNotFoundError):
        status = path.stat()
        found += status.st_ino, status.st_mtime_ns
    return found


def kill_in_the_middle(process, path, rng):
    """Kill a process some time after it has written its first file; return whether it had not ended before."""
    last, count, deadline = written(path), 0, time.monotonic() + PATIENCE
    wanted = int(rng.integers(1, MOST_WRITES + 1))
    while count < wanted and process.is_alive():
        assert time.monotonic() < deadline
        now = written(path)
        count, last = count + (now != last), now
        time.sleep(0.001)
    process.join(LONGEST_WRITE * rng.random())
    process.kill()
    process.join()
    return process.exitcode == -9


def unreadable(folder):
    """Return how many files under their own names cannot be read."""
    count = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file() and path.suffix == ".nc":
                dynamics.load(path)
            elif path.suffix == ".point":
                assert read_point(path).variables
        except (dynamics.StorageError, AssertionError, ValueError, OSError):
            count += 1
    return count


def killed_and_resumed(kind, count, path, context, whole):
    """Kill a run so many times, anew if it ends before, and let it end: every end must be `whole`."""
    rng, kills, resumed, broken, after_kill = np.random.default_rng(list(kind.encode())), 0, 0, 0, False
    for _ in range(MOST_PROCESSES * (count + 1)):
        resumed += after_kill and bool(written(path))
        every = OFTEN if kills < count else SELDOM
        process = context.Process(target=killed.go_on, args=(kind, str(path), every))
        process.start()
        if kills < count:
            # A sweep that leaves its file alone had ended, but for its process.
            is_whole = kind.startswith("sweep") and [path]
            after_kill = kill_in_the_middle(process, path, rng) and list(path.parent.iterdir()) != is_whole
            kills += after_kill
        else:
            process.join()
            after_kill = False
        broken += unreadable(path.parent)
        if not after_kill:
            assert process.exitcode == 0 or kind.startswith("sweep")
            assert_same(dynamics.load(path), whole)
            assert list(path.parent.iterdir()) == [path]
            if kills == count:
                return Tally(kind, kills, resumed, broken)
            path.unlink()
    pytest.fail("runs must be long enough to be killed in the middle, but end before")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS[quick > 0]) for kind, (quick, _) in KILLS.items()])
def test_killed_processes_leave_whole_files_and_go_on_to_the_same_end(processes, tmp_path, kind):
    count = KILLS[kind]["FULL_TESTS" in os.environ]
    if kind == "torch":
        pytest.importorskip("torch")
    begin = killed.RUNS[kind.split()[0] if kind.startswith("sweep") else kind]
    whole = begin(workers=0) if kind.startswith("sweep") else begin()
    tally = killed_and_resumed(kind, count, tmp_path / "run.nc", processes, whole)
    print(tally)
    assert tally == Tally(kind, kills=count, resumed=count, unreadable=0)
