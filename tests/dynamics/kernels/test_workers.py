"""What steps share: threads, views of arrays, products of a few rows, recorded operations."""

import contextlib
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from from_python import from_python

from dynamics.cores import one_of_the_runs, runs_at_once
from dynamics.integrators.device import Replay
from dynamics.kernels.cache import is_interpreted
from dynamics.kernels.jit import cube, entry, matrix, row_part, vector
from dynamics.kernels.products import product, write_gram_matrix
from dynamics.threads import Workers

ROWS, COLUMNS = 1000, 100
CUTS = np.array([0, 10, 300, 310, 555, 800, 990, ROWS])
PATIENCE = 30.0


class Notes:
    """Work that notes what it is given, and by which thread."""

    def __init__(self):
        self.times = np.zeros(ROWS, dtype=int)
        self.parts = []

    def __call__(self, blocks, thread):
        self.parts.append((blocks[0], thread, threading.get_ident()))
        self.times[blocks] += 1  # parts share no row

    def assert_each_once(self, begin, end):
        assert np.all(self.times[begin:end] == 1)
        assert self.times.sum() == end - begin


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("first", [0, 1, 5, 6, 7])
def test_blocks_are_taken_once_and_the_first_by_thread_0(threads, first):
    work, last = Notes(), CUTS.size - 1
    Workers(ROWS, COLUMNS, threads).over_blocks(CUTS, first, work)
    work.assert_each_once(first, last)
    of_first = {(thread, ident) for begin, thread, ident in work.parts if begin == first}
    assert of_first == ({(0, threading.get_ident())} if first < last else set())


@pytest.mark.parametrize("number", [0, 1])
def test_a_fault_in_any_thread_is_raised_when_all_have_ended(number):
    barrier, ended = threading.Barrier(2), []

    def work(_blocks, thread):
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


@entry
def number_parts(flat, whole, times):
    for _ in range(times):
        part, block, row, layers = (
            vector(flat, 2, 3),
            matrix(flat, 6, 2, 3),
            row_part(whole, 1, 1, 2),
            cube(flat, 12, 2, 1, 2),
        )
        for k in range(part.size):
            part[k] = k
        for k in range(row.size):
            row[k] = 5 + k
        for i in range(2):
            for j in range(block.shape[1]):
                block[i, j] = 10 * i + j
            for j in range(layers.shape[2]):
                layers[i, 0, j] = 20 + 2 * i + j


@pytest.mark.thorough
@pytest.mark.kernels
@pytest.mark.parametrize("kind", ["f8", "f4", "i8"])
def test_views_are_those_of_numpy_and_keep_no_reference(kind):
    flat, whole = np.full(16, -1, dtype=kind), np.full((3, 4), -1, dtype=kind)
    before = sys.getrefcount(flat), sys.getrefcount(whole)
    number_parts(flat, whole, 1 if is_interpreted() else 1000)
    assert (sys.getrefcount(flat), sys.getrefcount(whole)) == before
    np.testing.assert_array_equal(flat, [-1, -1, 0, 1, 2, -1, 0, 1, 2, 10, 11, 12, 20, 21, 22, 23])
    np.testing.assert_array_equal(whole, [[-1] * 4, [-1, 5, 6, -1], [-1] * 4])


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (3, 4, 5), (7, 2, 9), (0, 3, 2), (3, 0, 2)])
def test_products_are_those_of_numpy(rng, m, k, n, dtype):
    left, right = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
    out = np.full((m, n), np.nan, dtype=dtype)
    from_python(product)(left, right.T, out)
    np.testing.assert_allclose(out, left @ right.T, rtol=1e-5 if dtype == np.float32 else 1e-13)


@entry
def multiply_itself(U, out, scratch):
    write_gram_matrix(U, out, scratch)


@pytest.mark.thorough
@pytest.mark.kernels
@pytest.mark.parametrize("rows", [5, 128, 150])
def test_products_of_rows_with_each_other_are_those_of_numpy(rng, rows):
    U, out = rng.standard_normal((rows, 6)), np.full((rows, rows), np.nan)
    multiply_itself(U, out, np.empty(rows * rows))
    np.testing.assert_allclose(out, U @ U.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(out, out.T)


class Stream:
    """A stream that can be waited for."""

    def __init__(self, calls=None):
        self.calls = [] if calls is None else calls

    def wait_stream(self, other):
        assert other is not self
        self.calls.append("wait")


def recorder(calls, work):
    """Return what stands for torch: work is written down, and run unless it is recorded; a replay runs it."""
    recording = threading.local()

    @contextlib.contextmanager
    def noted(name):
        calls.append(f"enter {name}")
        recording.now = name == "thread_local"
        yield
        recording.now = False
        calls.append(f"leave {name}")

    def worked():
        calls.append("work")
        if not recording.now:
            work()

    def replayed():
        calls.append("replay")
        work()

    cuda = SimpleNamespace(
        device=lambda _: contextlib.nullcontext(), Stream=lambda: Stream(calls), current_stream=lambda: Stream(calls),
        stream=lambda _: noted("stream"), CUDAGraph=lambda: SimpleNamespace(replay=replayed),
        graph=lambda _, capture_error_mode: noted(capture_error_mode),
    )  # fmt: skip
    return SimpleNamespace(cuda=cuda), worked


def test_operations_are_run_once_and_recorded_once_before_they_are_replayed():
    calls = []
    replay = Replay(*_arguments(calls, lambda: None))
    replay()
    replay()
    warm_up = ["wait", "enter stream", "work", "leave stream", "wait"]
    assert calls == [*warm_up, "enter thread_local", "work", "leave thread_local", "replay", "replay"]


def test_the_run_before_the_recording_leaves_no_trace_in_what_is_kept():
    weights, layers = torch.zeros(2), torch.ones(3)

    def work():
        weights.add_(1.0)
        layers.mul_(2.0)

    replay = Replay(*_arguments([], work), [weights, layers])
    for count in (1, 2):
        replay()
        assert weights.tolist() == [count] * 2
        assert layers.tolist() == [2.0**count] * 3


def test_one_thread_records_at_a_time():
    working, start = [], threading.Barrier(2)

    def begin():
        replay = Replay(module, "cuda", slow)
        start.wait()
        replay()

    def slow():
        working.append(threading.get_ident())
        time.sleep(0.05)
        worked()

    module, worked = recorder([], lambda: None)
    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second, third, fourth = working
    assert first == second != third == fourth


def _arguments(calls, work):
    module, worked = recorder(calls, work)
    return module, "cuda", worked
