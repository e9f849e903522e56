"""Threads that share a pass: every row is done once, nobody who sleeps is waited for, and faults are told."""

import threading

import numpy as np
import pytest

from dynamics.cores import one_of_the_runs, runs_at_once
from dynamics.threads import Workers

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


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("first", [0, 1, 5, 6, 7])
def test_blocks_are_taken_once_and_the_first_by_thread_0(threads, first):
    work, last = Notes(), CUTS.size - 1
    Workers(ROWS, COLUMNS, threads).over_blocks(CUTS, first, work)
    work.assert_each_once(first, last)
    of_first = {(thread, ident) for begin, _, thread, ident in work.parts if begin == first}
    assert of_first == ({(0, threading.get_ident())} if first < last else set())


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
