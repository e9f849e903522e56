"""Tests of the recording of device operations, with a recorder whose calls are written down for CUDA."""

import contextlib
import threading
import time
from types import SimpleNamespace

import torch

from dynamics.integrators.device import Replay


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
        device=lambda _: contextlib.nullcontext(),
        Stream=lambda: Stream(calls),
        current_stream=lambda: Stream(calls),
        stream=lambda _: noted("stream"),
        CUDAGraph=lambda: SimpleNamespace(replay=replayed),
        graph=lambda _, capture_error_mode: noted(capture_error_mode),
    )
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
