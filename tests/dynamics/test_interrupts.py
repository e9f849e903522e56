"""Budgets and signals: heard in the middle of a step, at a cost that does not grow with what was not reached."""

from __future__ import annotations

import os
import signal
import threading
import time as clock

import numpy as np
import pytest
import xarray as xr

import dynamics
from dynamics.compiler import patience
from dynamics.compiler.workers import GRAIN, Workers
from dynamics.integrators import Status
from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.descent import stepper as descent
from dynamics.integrators.large_flow import LargeFlowStepper
from dynamics.integrators.particles import stepper as particle_stepper
from dynamics.runs import interrupts, run_file, storage, trackers, whole_files
from dynamics.runs import loop as run
from dynamics.runs.records import Records
from dynamics.runs.trackers import Callback, StopReason

AT = dynamics.SaveAt.geometric(0.5, 60.0, 40)
CHANGING = ("history", "date_created", "solve_seconds", "tracker_seconds", "compile_seconds")


def problem_of(**changes):
    given = {"activation": "he4", "teacher": dynamics.Teacher([1.0, 0.5, 0.4]), "width": 9, "dimension": 32}
    return dynamics.Problem(**given | changes)


def large_problem(directions, width, **options):
    return dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher.power_law(directions, 1.0), width=width, dimension=width, **options
    )


def assert_same(found, expected):
    for answer in (found, expected):
        for name in CHANGING:
            answer.attrs.pop(name, None)
    xr.testing.assert_identical(found, expected)


class Impatient:
    """Stops the run in the middle of a step, once that is after `time`."""

    def __init__(self, time):
        self.time = time

    def start(self, view):
        pass

    def check(self, view):
        return None

    def urgent(self, view):
        return StopReason.CALLBACK if view.time > self.time else None

    def finish(self, view):
        pass


class Endless:
    """A stepper whose second step does not end; `let_go` ends it."""

    def __init__(self):
        self.time, self.event_times = 0.0, np.empty(0)
        self.let_go, self.asked = threading.Event(), []

    def advance(self, target, max_steps):
        self.asked.append(max_steps)
        if len(self.asked) > 1:
            assert self.let_go.wait(60.0)
        self.time = 1.0
        return Status.REACHED if target <= self.time else Status.MAX_STEPS

    def interpolate(self, t, out=None):
        return np.array([t])

    def statistics(self):
        return {}


def send_soon(number):
    threading.Timer(0.1, lambda: signal.pthread_kill(threading.main_thread().ident, number)).start()


@pytest.mark.parametrize("ended_by", ["SIGINT", "SIGTERM", "SIGHUP", "budget"])
def test_a_step_that_does_not_end_is_given_up(ended_by, monkeypatch):
    monkeypatch.setattr(patience, "_left_behind", [])
    monkeypatch.setattr(run, "CHUNK_SECONDS", 0.0)  # no step is short
    stepper, watchers = Endless(), []
    if ended_by == "budget":
        watchers = [trackers.MaxRuntime(0.1)]
    else:
        send_soon(getattr(signal, ended_by))
    result = run.run(stepper, np.array([1.0, 2.0]), lambda y: {"y": y[0]}, trackers=watchers)
    assert not stepper.let_go.is_set()
    assert result.stop_reason is (StopReason.MAX_RUNTIME if ended_by == "budget" else StopReason.INTERRUPTED)
    assert [record["y"] for record in result.records] == [1.0]
    (left,) = patience._left_behind
    assert left.is_alive()
    stepper.let_go.set()
    left.join()


def test_a_run_begins_with_a_single_step_so_that_a_budget_is_heard_after_it():
    stepper = Endless()
    stepper.let_go.set()
    run.run(stepper, np.array([1.0]), lambda y: {"y": y[0]})
    assert stepper.asked == [1]


@pytest.mark.parametrize(
    ("solve", "settings", "owner", "part"),
    [
        (dynamics.solve_overlaps, {"method": "explicit"}, CompiledStepper, "_advance"),
        (dynamics.solve_overlaps, {"method": "bdf", "rtol": 1e-6}, CompiledStepper, "_advance"),
        (dynamics.solve_overlaps, {"method": "stiff"}, LargeFlowStepper, "_settle"),
        (
            dynamics.solve_overlaps,
            {"method": "gradient-descent", "learning_rate": 0.02},
            descent.DescentStepper,
            "_advance",
        ),
        (
            dynamics.solve_mean_field,
            {"particles": 60_000, "keep": "summary", "save_at": dynamics.SaveAt.geometric(0.3, 6.0, 8)},
            particle_stepper.ParticleStepper,
            "_advance",
        ),
    ],
    ids=["explicit", "bdf", "stiff", "gradient-descent", "particles"],
)
def test_a_run_goes_on_bit_for_bit_from_before_a_step_that_was_given_up(
    solve, settings, owner, part, tmp_path, monkeypatch
):
    """The step hangs after it has changed its arrays; the looser run beside it hangs too."""
    asked = problem_of()
    if solve is dynamics.solve_mean_field:
        asked = problem_of(teacher=dynamics.Teacher([1.0]), width=1, student="spherical")
    given = {"save_at": AT, "progress": False, **settings}
    whole, path, original, let_go = solve(asked, **given), tmp_path / "run.nc", getattr(owner, part), threading.Event()

    def hangs(self, *arguments):
        found = original(self, *arguments)
        if self.time > 3.0:
            let_go.wait(60.0)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, part, hangs)
        patch.setattr(run, "LARGEST_CHUNK_STEPS", 1)
        patch.setattr(patience, "_left_behind", [])
        stopped = solve(asked, **given, trackers=[Impatient(3.0)], checkpoint=path)
        assert stopped.attrs["stop_reason"] == "callback"
        let_go.set()
        for thread in patience._left_behind:
            thread.join()
    assert 0 < np.isfinite(stopped.loss).sum() < whole.loss.size
    assert_same(dynamics.resume(path, progress=False), whole)


def test_work_shared_among_threads_ends_between_two_pieces():
    rows, done, given_up = 40 * GRAIN, [], threading.Event()
    workers = Workers(rows, 10_000, threads=2)

    def work(begin, end):
        assert end - begin == GRAIN
        done.append(begin)
        given_up.set()
        assert stopping.wait(60.0)

    stopping = threading.Event()

    def reason():
        stopping.set()
        return StopReason.CALLBACK if given_up.is_set() else None

    with pytest.raises(patience.Stopped):
        patience.beside(lambda: workers.over_rows(work), reason)
    assert len(done) <= 4


def test_how_a_pass_is_cut_changes_no_bit(monkeypatch):
    asked, given = large_problem(60, 300), {"save_at": dynamics.SaveAt.at([1.0, 4.0]), "progress": False}
    whole = dynamics.solve_overlaps(asked, method="stiff", error_estimate=False, **given)
    monkeypatch.setattr("dynamics.compiler.workers.PIECE", 1.0)
    assert_same(dynamics.solve_overlaps(asked, method="stiff", error_estimate=False, **given), whole)


def test_a_signal_is_heard_among_saved_times_within_one_step():
    class Leaping(Endless):
        def advance(self, target, _max_steps):
            self.time = 2.0
            return Status.REACHED

    def observe(y):
        if y[0] > 1.5:
            signal.raise_signal(signal.SIGTERM)
        return {"y": y[0]}

    times = np.linspace(1.0, 2.0, 1001)
    result = run.run(Leaping(), times, observe)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert len(result.records) <= np.flatnonzero(times > 1.5)[0] + 2


@pytest.mark.parametrize("method", ["explicit", "bdf", "stiff"])
def test_a_budget_that_is_spent_ends_the_run_after_its_first_step(method):
    """The first chunk was of 64 steps, half a minute where a step takes half a second."""
    given = {"save_at": dynamics.SaveAt.at([50.0]), "method": method, "keep": "summary", "progress": False}
    found = dynamics.solve_overlaps(large_problem(20, 60), **given, error_estimate=False, max_runtime=1e-9)
    assert found.attrs["stop_reason"] == "max_runtime"
    assert found.attrs["steps_accepted"] + found.attrs["steps_rejected"] <= 1


def test_signals_while_a_file_is_written_leave_no_lock_taken(tmp_path, monkeypatch):
    """Two in short order, between a library's taking a lock and its promise to give it back."""
    path, lock, fill, sent = tmp_path / "run.nc", threading.Lock(), whole_files._fill, []

    def fill_under_lock(temporary, write):
        assert lock.acquire(blocking=False)
        if not sent:
            sent.append(temporary)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        lock.release()
        fill(temporary, write)

    given = {"save_at": AT, "progress": False, "method": "explicit"}
    whole = dynamics.solve_overlaps(problem_of(), **given)
    with monkeypatch.context() as patch:
        patch.setattr(whole_files, "_fill", fill_under_lock)
        patch.setattr(interrupts, "IMPATIENCE", 0.0)
        with pytest.raises(dynamics.SolveInterrupted):
            dynamics.solve_overlaps(problem_of(), **given, checkpoint=dynamics.RunFile(path, every=1e-9))
    assert_same(dynamics.resume(path, progress=False), whole)


def test_a_second_signal_while_the_end_is_prepared_does_not_lose_it(tmp_path, monkeypatch):
    path, given = tmp_path / "run.nc", {"save_at": AT, "progress": False, "method": "explicit"}
    whole, digest = dynamics.solve_overlaps(problem_of(), **given), run_file._digest

    def first(time, _state):
        if time > 3.0:
            signal.raise_signal(signal.SIGTERM)

    def disturbed(*arguments):
        signal.raise_signal(signal.SIGTERM)
        return digest(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(run_file, "_digest", disturbed)
        with pytest.raises(dynamics.SolveInterrupted):
            dynamics.solve_overlaps(problem_of(), **given, checkpoint=path, trackers=[Callback(first)])
    assert_same(dynamics.resume(path, progress=False), whole)


def test_a_signal_while_a_finished_run_is_stored_is_passed_on(tmp_path, monkeypatch):
    path, fill = tmp_path / "run.nc", whole_files._fill

    def disturbed(temporary, write):
        signal.raise_signal(signal.SIGTERM)
        fill(temporary, write)

    with monkeypatch.context() as patch:
        patch.setattr(whole_files, "_fill", disturbed)
        with pytest.raises(KeyboardInterrupt):
            dynamics.solve_overlaps(problem_of(), save_at=AT, progress=False, checkpoint=path)
    assert dynamics.load(path).attrs["stop_reason"] == "reached_end"


def test_who_hears_no_first_signal_is_torn_by_another_one_later(monkeypatch):
    with interrupts.Interrupts() as heard:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert heard.heard
        monkeypatch.setattr(interrupts, "IMPATIENCE", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_signal_that_was_held_back_is_passed_on():
    def sheltered():
        with interrupts.sheltered():
            signal.raise_signal(signal.SIGINT)
            done.append("the body")

    done = []
    with pytest.raises(KeyboardInterrupt):
        sheltered()
    assert done


@pytest.mark.parametrize("compress", [True, False])
def test_times_that_were_not_reached_take_no_place_in_a_file(compress, tmp_path):
    rows = np.full((100, 200, 200), np.nan)
    rows[:2] = np.random.default_rng(0).normal(size=(2, 200, 200))
    whole = dynamics.solve_overlaps(problem_of(width=200), save_at=dynamics.SaveAt.at([0.0]), progress=False)
    early = whole.isel(time=[0] * 100).assign(student_overlap=(("time", "neuron", "neuron_2"), rows, {"units": "1"}))
    tree = xr.DataTree.from_dict({"/": early, "/checkpoint/part": xr.Dataset({"x": ("x_0", [1.0])})})
    for result in (early, tree):
        path = storage.save(result, tmp_path / "early.nc", overwrite=True, compress=compress)
        assert path.stat().st_size < 3e6
        xr.testing.assert_identical(dynamics.runs.storage.load_tree(path, checkpoint=False).to_dataset(), early)


def test_an_interrupted_run_spends_no_time_on_what_it_did_not_reach(tmp_path):
    """Filling, stacking and compressing 300 times 400² overlaps took four seconds."""
    path, began = tmp_path / "run.nc", []

    def send(_time, _state):
        if not began:
            began.append(clock.process_time())
            signal.raise_signal(signal.SIGINT)

    at = dynamics.SaveAt.geometric(10.0, 1e4, 300)
    given = {"save_at": at, "method": "stiff", "error_estimate": False, "progress": False, "on_failure": "return"}
    asked = large_problem(130, 400)
    found = dynamics.solve_overlaps(asked, **given, trackers=[Callback(send)], checkpoint=path)
    assert clock.process_time() - began[0] < 1.5
    assert found.student_overlap.shape == (300, 400, 400)
    with xr.open_dataset(path) as kept:
        assert kept.attrs["stop_reason"] == "interrupted"


def test_records_know_how_many_they_are_and_share_their_arrays():
    records = Records(3)
    records.append({"x": 1.0, "y": np.array([1.0, 2.0])})
    before = records.so_far()
    records.append({"x": 2.0, "y": np.array([3.0, 4.0])})
    assert (len(before), len(records), records[-1]["x"], before[-1]["x"]) == (1, 2, 2.0, 1.0)
    assert before.columns["y"] is records.columns["y"]
    np.testing.assert_array_equal(records.columns["x"], [1.0, 2.0, np.nan])
    longer = Records(5, before)
    longer.append({"x": 7.0, "y": np.zeros(2)})
    np.testing.assert_array_equal(longer.columns["x"], [1.0, 7.0, np.nan, np.nan, np.nan])
    with pytest.raises(IndexError):
        before[1]


def test_what_a_killed_first_write_left_goes_with_the_next_run_of_that_name(tmp_path):
    """Not so what may be written still, nor what belongs to another name."""
    left, fresh, other = (tmp_path / name for name in (".run.nc.a.partial", ".run.nc.b.partial", ".runs.nc.a.partial"))
    for path in (left, fresh, other):
        path.write_bytes(b"torn")
    long_ago = clock.time() - 2.0 * run_file.IDLE_SECONDS
    for path in (left, other):
        os.utime(path, (long_ago, long_ago))
    dynamics.RunFile(tmp_path / "run.nc")
    assert {path for path in (left, fresh, other) if path.exists()} == {fresh, other}
