"""Threads that share a pass: every row is done once, nobody who sleeps is waited for, and faults are told."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dynamics.cores import one_of_the_runs, runs_at_once
from dynamics.threads import GRAIN, SMALLEST_STATE, Workers

ROWS, COLUMNS = 1000, 100
CUTS = np.array([0, 10, 300, 310, 555, 800, 990, ROWS])
PATIENCE = 30.0


class Notes:
    """Work that notes what it is given, and by which thread."""

    def __init__(self):
        self.times = np.zeros(ROWS, dtype=int)
        self.parts = []

    def __call__(self, begin, end, thread=0):
        self.parts.append((begin, end, thread, threading.get_ident()))
        self.times[begin:end] += 1  # parts share no row

    def assert_each_once(self, begin, end):
        assert np.all(self.times[begin:end] == 1)
        assert self.times.sum() == end - begin


class Meeting(Notes):
    """Work whose parts wait for each other, so that as many threads as parts must be at it at once."""

    def __init__(self, parts):
        super().__init__()
        self.barrier = threading.Barrier(parts)

    def __call__(self, begin, end, thread=0):
        super().__call__(begin, end, thread)
        self.barrier.wait(PATIENCE)


def occupy(workers):
    """Keep the other threads of a pass busy until the event that is returned is set."""
    begun, end = threading.Semaphore(0), threading.Event()

    def wait():
        begun.release()
        end.wait(PATIENCE)

    for _ in range(workers.count - 1):
        workers._pool.submit(wait)
    for _ in range(workers.count - 1):
        assert begun.acquire(timeout=PATIENCE)
    return end


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("first", [0, 1, 5, 6, 7])
def test_blocks_are_taken_once_and_the_first_by_thread_0(threads, first):
    work, last = Notes(), CUTS.size - 1
    Workers(ROWS, COLUMNS, threads).over_blocks(CUTS, first, work)
    work.assert_each_once(first, last)
    of_first = {(thread, ident) for begin, _, thread, ident in work.parts if begin == first}
    assert of_first == ({(0, threading.get_ident())} if first < last else set())


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("chosen", [[], [4], [1, 2, 6], list(range(40))])
def test_some_blocks_are_taken_once(threads, chosen):
    work = Notes()
    Workers(ROWS, COLUMNS, threads).over_some(np.array(chosen, dtype=int), work)
    assert np.flatnonzero(work.times).tolist() == chosen
    assert work.times.max() <= 1


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_rows_are_taken_once_in_whole_groups(threads):
    work = Notes()
    Workers(ROWS, COLUMNS, threads).over_rows(work)
    work.assert_each_once(0, ROWS)
    assert all(begin % GRAIN == 0 and (end % GRAIN == 0 or end == ROWS) for begin, end, *_ in work.parts)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_work_at_once_under_numbers_of_their_own(threads):
    work = Meeting(threads)
    Workers(ROWS, COLUMNS, threads).over_blocks(CUTS, 0, work)
    work.assert_each_once(0, CUTS.size - 1)
    numbers, idents = zip(*[(thread, ident) for _, _, thread, ident in work.parts], strict=True)
    assert sorted(numbers) == list(range(threads))
    assert len(set(idents)) == threads


def test_a_thread_that_has_not_begun_is_not_waited_for():
    """A core that another process keeps busy may let a thread sleep for longer than its part takes."""
    workers, work = Workers(ROWS, COLUMNS, 3), Notes()
    awake = occupy(workers)
    workers.over_blocks(CUTS, 0, work)
    assert not awake.is_set()
    awake.set()
    work.assert_each_once(0, CUTS.size - 1)
    assert {ident for *_, ident in work.parts} == {threading.get_ident()}
    again = Meeting(3)
    workers.over_blocks(CUTS, 0, again)  # all threads are there again, and none does what is left of the former pass
    again.assert_each_once(0, CUTS.size - 1)
    work.assert_each_once(0, CUTS.size - 1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_fault_in_any_thread_is_raised_when_all_have_ended(number):
    barrier, ended = threading.Barrier(2), []

    def work(_begin, _end, thread):
        barrier.wait(PATIENCE)
        if thread == number:
            raise ArithmeticError(thread)
        ended.append(thread)

    workers = Workers(ROWS, COLUMNS, 2)
    with pytest.raises(ArithmeticError, match=f"^{number}$"):
        workers.over_blocks(CUTS, 0, work)
    assert ended == [1 - number]
    after = Notes()
    workers.over_blocks(CUTS, 0, after)
    after.assert_each_once(0, CUTS.size - 1)


def test_runs_at_once_have_their_part_of_the_threads():
    workers = Workers(ROWS, COLUMNS, 4)
    for runs, parts in ((1, 4), (2, 2), (3, 1), (9, 1)):
        work = Notes()
        contexts = [one_of_the_runs() for _ in range(runs)]
        for each in contexts:
            each.__enter__()
        try:
            assert runs_at_once() == runs
            workers.over_blocks(CUTS, 0, work)
        finally:
            for each in contexts:
                each.__exit__(None, None, None)
        assert len(work.parts) == parts
    assert runs_at_once() == 1


@pytest.mark.parametrize(
    ("columns", "short", "long"), [(19, 1, 1), (20, 1, 3), (49, 1, 3), (50, 3, 3)], ids=["small", "20", "49", "large"]
)
def test_small_states_are_worth_one_thread_and_long_passes_more(monkeypatch, columns, short, long):
    monkeypatch.setattr("dynamics.threads.available_cores", lambda: 3)
    assert SMALLEST_STATE == 50 * ROWS
    workers = Workers(ROWS, columns, smallest_of_long=20 * ROWS)
    for is_long, parts in ((False, short), (True, long)):
        work = Notes()
        workers.over_blocks(CUTS, 0, work, is_long=is_long)
        assert len(work.parts) == parts
