"""A budget or an interruption ends a run in the middle of a step, joins its thread, and costs little."""

import os
import signal
import sys
import threading
import time as clock

import numpy as np
import pytest
import xarray as xr
from processes import interrupt_run
from same_answers import AT, assert_same, problem_of

import dynamics
from dynamics import Callback, StopReason
from dynamics import threads as stopping
from dynamics.equations.interface import EquationSystem, Functions
from dynamics.integrators import Status, descent
from dynamics.integrators import particles as particle_stepper
from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.large_flow import LargeFlowStepper
from dynamics.kernels.jit import kernel
from dynamics.runs import loop as run
from dynamics.runs import run_file, storage, trackers
from dynamics.threads import GRAIN, GivenUp, StopFlag, Workers, give_way, whether_given_up


def large_problem(directions, width, **options):
    return dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher.power_law(directions, 1.0), width=width, dimension=width, **options
    )


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
    """A stepper whose second step ends when it is given up alone."""

    def __init__(self):
        self.time, self.event_times, self.asked = 0.0, np.empty(0), []

    def advance(self, target, max_steps):
        if target > self.time:
            self.asked.append(max_steps)
            if self.time > 0.0:
                wait_until_given_up()
            self.time = 1.0
        return Status.REACHED if target <= self.time else Status.MAX_STEPS

    def interpolate(self, t, out=None):
        return np.array([t])

    def statistics(self):
        return {}

    def state(self):
        return {"time": np.array(self.time)}


@kernel
def counted(t, y, out, parameters, sizes, work):
    work[0] += 1.0
    if work[0] == 3.0:
        sizes[sizes.size - 1] = stopping.STOP
    for i in range(y.size):
        out[i] = -y[i]


class Counted(EquationSystem):
    """A decay that counts its evaluations and gives the step up in the third."""

    functions, work_size, sizes = Functions(counted), 1, np.zeros(1, dtype=np.int64)
    initial_state, parameters = np.array([1.0, 2.0]), np.zeros(1)


def wait_until_given_up():
    given_up = whether_given_up()
    while True:
        give_way(given_up)
        clock.sleep(1e-3)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "worker"]


@pytest.mark.parametrize("ended_by", ["Ctrl-C", "budget"])
def test_a_step_that_does_not_end_is_given_up_and_its_thread_joined(ended_by, monkeypatch):
    monkeypatch.setattr(trackers, "CHUNK_SECONDS", 0.0)  # no step is short
    stepper, watchers = Endless(), []
    if ended_by == "budget":
        watchers = [trackers.MaxRuntime(0.1)]
    else:
        main = threading.main_thread().ident
        threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()

    def work():
        return run.run(stepper, np.array([1.0, 2.0]), lambda y: {"y": y[0]}, trackers=watchers)

    result = stopping.in_worker(work)
    assert result.stop_reason is (StopReason.MAX_RUNTIME if ended_by == "budget" else StopReason.INTERRUPTED)
    assert result.records.columns["y"][: len(result.records)].tolist() == [1.0]
    assert threads() == []


def test_a_snapshot_that_waits_for_a_long_step_comes_once_the_run_is_interrupted(monkeypatch):
    """A checkpoint waits for the looser run, whose step does not end by itself here."""
    monkeypatch.setattr(trackers, "CHUNK_SECONDS", 0.0)
    stepper = Endless()

    def work():
        with run.LooserRun(stepper, lambda y: y[0], np.array([1.0, 2.0])) as looser:
            while len(stepper.asked) < 2:
                clock.sleep(1e-3)
            interrupt_run()
            return looser.snapshot()

    snapshot = stopping.in_worker(work)
    assert (len(snapshot.result.records), snapshot.result.stop_reason) == (1, StopReason.CALLBACK)
    assert threads() == []


@pytest.mark.parametrize("signals", [1, 2], ids=["once", "again while the thread is joined"])
def test_an_interruption_that_the_work_does_not_see_is_raised_after_it(signals):
    """As during the last moments of a file: it is whole. CPython takes a thread for ended whose `join` was interrupted."""
    done = []

    def work():
        for _ in range(signals):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            clock.sleep(0.15)
        done.append("whole")

    with pytest.raises(KeyboardInterrupt):
        stopping.in_worker(work)
    assert (done, threads()) == (["whole"], [])


def test_work_is_asked_to_stop_again_where_a_signal_came_while_it_was_asked(monkeypatch):
    """Two signals at once: the second one raises before the flag of the first is set."""
    asked = []

    class Interrupted(stopping.StopFlag):
        def set(self):
            asked.append(len(asked))
            if len(asked) == 1:
                raise KeyboardInterrupt
            super().set()

    def work():
        is_interrupted = stopping.interruption()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        for _ in range(5000):
            if is_interrupted():
                return "stopped"
            clock.sleep(1e-3)
        return "never asked"

    monkeypatch.setattr(stopping, "StopFlag", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        stopping.in_worker(work)
    assert (len(asked), threads()) == (2, [])


def test_work_that_is_given_up_before_its_thread_begins_is_stopped(monkeypatch):
    """On a busy machine a thread may begin later than the first look for a reason."""
    begin, done = stopping._Worker.run, []

    def late(self):
        clock.sleep(0.1)
        begin(self)

    monkeypatch.setattr(stopping._Worker, "run", late)
    monkeypatch.setattr(stopping, "LOOK", 1e-3)
    with pytest.raises(stopping.Stopped) as stopped:
        stopping.beside(lambda: done.append(1), lambda: "budget")
    assert (stopped.value.reason, done) == ("budget", [])
    clock.sleep(0.2)
    assert (done, threads()) == ([], [])


def test_an_interrupt_between_any_two_instructions_is_survived(monkeypatch):
    """The handler of a signal may raise anywhere in Python code of the main thread, also where a lock was just taken."""
    monkeypatch.setattr(stopping, "WAIT", 0.002)

    def interrupted_after(count, seconds):
        """Interrupt the wait after `count` of its instructions, again `seconds` after that; return if it was so long."""
        seen, counted = [], None

        def work():
            is_interrupted, end = stopping.interruption(), clock.monotonic() + 20.0
            while not is_interrupted() and clock.monotonic() < end:
                clock.sleep(1e-4)
            clock.sleep(seconds)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            seen.append(clock.monotonic() < end)

        def trace(frame, event, _argument):
            nonlocal counted
            frame.f_trace_opcodes = True
            if counted is None and frame.f_code.co_name == "ended_within":
                counted = 0  # from here on: to start a thread is the standard library's, some microseconds
            if event == "opcode" and counted is not None:
                counted += 1
                if counted == count:
                    raise KeyboardInterrupt  # which ends the tracing
            return trace

        before = sys.gettrace()
        try:
            try:
                sys.settrace(trace)
                stopping.in_worker(work)
            finally:
                sys.settrace(before)
                clock.sleep(1e-3)  # the second interrupt may come as late as here
        except KeyboardInterrupt:
            pass
        assert (seen, threads()) == ([True], []), (count, seconds)
        return counted >= count

    # A round of the wait has some fifty instructions.
    assert all(interrupted_after(count, seconds) for count in range(1, 120) for seconds in (0.0, 2e-4, 1e-3))


@pytest.mark.parametrize("joined", [False, True], ids=["while it works", "while the thread is joined"])
def test_what_a_handler_of_the_host_raises_goes_on_after_the_work_was_stopped(joined):
    def handler(*_):
        raise TimeoutError

    def work():
        main, is_interrupted = threading.main_thread().ident, stopping.interruption()
        signal.pthread_kill(main, signal.SIGINT if joined else signal.SIGALRM)
        while not is_interrupted():
            clock.sleep(1e-3)
        if joined:
            clock.sleep(0.1)  # the main thread waits for the end of this one
            signal.pthread_kill(main, signal.SIGALRM)
            clock.sleep(0.2)
        done.append("stopped")

    done, before = [], signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimeoutError):
            stopping.in_worker(work)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (done, threads()) == (["stopped"], [])


def test_the_handlers_of_the_host_run_and_stay(monkeypatch):
    """A host that only takes note of SIGTERM goes on, and so does the run."""
    heard, sent = [], []

    def send(_time, _state):
        if not sent:
            sent.append(1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

    handler = lambda number, _frame: heard.append(number)  # noqa: E731 (its identity is looked at)
    before = signal.signal(signal.SIGTERM, handler)
    try:
        found = dynamics.solve_overlaps(problem_of(), save_at=AT, progress=False, trackers=[Callback(send)])
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (found.attrs["stop_reason"], heard) == ("reached_end", [signal.SIGTERM])


@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_a_compiled_step_that_is_given_up_leaves_the_stepper_as_it_was(method):
    """The flag is set before the step begins: the functions of the system return at once, whatever they wrote."""
    from dynamics.equations.overlaps import OverlapSystem
    from dynamics.integrators import stepper_of

    steppers = [stepper_of(OverlapSystem(problem_of()), method, rtol=1e-6, atol=1e-8) for _ in range(2)]
    for stepper in steppers:
        stepper.advance(3.0, 1000)
    given_up = StopFlag()
    given_up.set()
    token = stopping._given_up.set(given_up)
    try:
        with pytest.raises(GivenUp):
            steppers[0].advance(6.0, 1)
    finally:
        stopping._given_up.reset(token)
    for stepper in steppers:
        stepper.advance(6.0, 1000)
    mine, other = (stepper.state() for stepper in steppers)
    for name, array in mine.items():
        np.testing.assert_array_equal(array, other[name])


@pytest.mark.kernels
@pytest.mark.parametrize("method", ["explicit", "bdf", "sundials", "steps"])
def test_no_evaluation_begins_once_a_step_is_given_up(method):
    """The third evaluation, which is not the last of a step of any method but one, writes what the flag would."""
    from dynamics.integrators import stepper_of

    if method == "sundials":
        pytest.importorskip("sksundae")
    if method == "steps":
        stepper = descent.EulerStepper(Counted(), 0.1)
    else:
        stepper = stepper_of(Counted(), method, rtol=1e-8, atol=np.full(2, 1e-10))
        stepper.advance(0.0, 2)
    numbers = stepper._system.numbers
    numbers[2][0] = 0.0
    for _ in range(4):
        stepper.advance(1.0, 1)
    assert numbers[2][0] == 3.0


@pytest.mark.slow_to_compile
def test_events_of_a_step_that_is_given_up_are_not_located():
    """A location may take 200 trials, and numbers that were left stale make false ones."""
    from dynamics.integrators import step_kernels as slots
    from dynamics.kernels.jit import kernel

    @kernel
    def advance(target, max_steps, arrays, system):
        if max_steps == 0:
            return slots.STATUS_MAX_STEPS
        counters = arrays[2]
        counters[slots.ACCEPTED] += 1
        scalars, events, sizes = arrays[1], arrays[4], system[1]
        scalars[slots.TIME], events[slots.EVENT_BEFORE, 0], events[slots.EVENT_NOW, 0] = target, -1.0, 1.0
        sizes[0] = stopping.STOP
        return slots.STATUS_EVENT

    @kernel
    def interpolate(_t, _out, _vectors, _scalars, counters, _system):
        counters[slots.EVALUATIONS] += 1

    @kernel
    def values(_t, _y, _out, _parameters, _sizes, _work):
        pass

    counters = np.zeros(6, dtype=np.int64)
    arrays = np.zeros((3, 1)), np.zeros(6), counters, np.ones(1), np.full((3, 1), np.nan)
    system = np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1), values, values
    code = slots.saving_steps(advance, interpolate, slots.event_recorder(interpolate))(
        np.array([1.0]), 1, np.empty((0, 0)), arrays, system
    )
    assert (code, counters[slots.EVALUATIONS]) == (slots.STATUS_MAX_STEPS, 0)


@pytest.mark.parametrize("method", ["scipy:DOP853", "sundials"])
def test_events_that_a_step_of_another_library_passes_wait_once_it_is_given_up(method, monkeypatch):
    """The flag is set during the last evaluation of a step."""
    from dynamics.equations.overlaps import OverlapSystem
    from dynamics.integrators import foreign, stepper_of

    if method == "sundials":
        pytest.importorskip("sksundae")
    stepper = stepper_of(OverlapSystem(problem_of()), method, rtol=1e-6, atol=1e-8)
    given_up, arrive, before = StopFlag(), foreign.ForeignStepper._arrive, []

    def late(self, time, state):
        if time > 2.0:
            given_up.set()
            before.append(stepper.event_times)
            state = np.ones_like(state)  # every event is passed
        arrive(self, time, state)

    monkeypatch.setattr(foreign.ForeignStepper, "_arrive", late)
    token = stopping._given_up.set(given_up)
    try:
        with pytest.raises(GivenUp):
            stepper.advance(60.0, 1000)
    finally:
        stopping._given_up.reset(token)
    assert stepper.time <= 2.0
    np.testing.assert_array_equal(stepper.event_times, before[0])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("solve", "settings", "owner", "part"),
    [
        (dynamics.solve_overlaps, {"method": "explicit"}, CompiledStepper, "_advance"),
        (dynamics.solve_overlaps, {"method": "bdf", "rtol": 1e-6}, CompiledStepper, "_advance"),
        (dynamics.solve_overlaps, {"method": "stiff"}, LargeFlowStepper, "_settle"),
        (dynamics.solve_overlaps, {"method": "gradient-descent", "learning_rate": 0.02}, descent.DescentStepper, "_advance"),
        (dynamics.solve_mean_field, {"particles": 60_000, "keep": "summary", "save_at": dynamics.SaveAt.geometric(0.3, 6.0, 8)}, particle_stepper.ParticleStepper, "_advance"),
    ],
    ids=["explicit", "bdf", "stiff", "gradient-descent", "particles"],
)  # fmt: skip
def test_a_run_goes_on_bit_for_bit_from_before_a_step_that_was_given_up(
    solve, settings, owner, part, tmp_path, monkeypatch
):
    """The step waits after it has changed its arrays; so does that of the looser run beside it."""
    asked = problem_of()
    if solve is dynamics.solve_mean_field:
        asked = problem_of(teacher=dynamics.Teacher([1.0]), width=1, student="spherical")
    given = {"save_at": AT, "progress": False, **settings}
    whole, path, original = solve(asked, **given), tmp_path / "run.nc", getattr(owner, part)

    def waits(self, *arguments):
        found = original(self, *arguments)
        if self.time > 3.0:
            wait_until_given_up()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, part, waits)
        patch.setattr(trackers, "LARGEST_CHUNK_STEPS", 1)
        stopped = solve(asked, **given, trackers=[Impatient(3.0)], checkpoint=path)
        assert stopped.attrs["stop_reason"] == "callback"
        assert threads() == []
    assert 0 < np.isfinite(stopped.loss).sum() < whole.loss.size
    assert_same(dynamics.resume(path, progress=False), whole)


def test_work_shared_among_threads_ends_between_two_passes():
    workers, begun, passes = Workers(40 * GRAIN, 10_000, threads=2), threading.Event(), []

    def work(_begin, _end):
        begun.set()
        clock.sleep(0.2)

    def endless():
        while True:
            passes.append(1)
            workers.over_rows(work)

    with pytest.raises(stopping.Stopped):
        stopping.beside(endless, lambda: StopReason.CALLBACK if begun.is_set() else None)
    assert len(passes) <= 3
    workers.close()


def test_a_large_flow_and_a_bar_leave_no_thread():
    """The monitor of tqdm would stay until the process ends."""
    import sgd_check

    before = threading.active_count()
    asked, given = large_problem(60, 300), {"save_at": dynamics.SaveAt.at([0.1]), "progress": False, "rtol": 1e-4}
    for method in ("stiff", "bdf"):
        dynamics.solve_overlaps(asked, method=method, max_runtime=0.5, on_failure="return", **given)
    dynamics.solve_overlaps(problem_of(), save_at=AT, progress=True)
    sgd_check.simulate(problem_of(), learning_rate=1e-4, steps=10, seeds=1, progress=True)
    assert threading.active_count() == before


def test_an_interruption_is_heard_among_saved_times_within_one_step():
    class Leaping(Endless):
        def advance(self, target, _max_steps):
            self.time = max(2.0, target)
            return Status.REACHED

    def observe(y):
        if y[0] > 1.5:
            interrupt_run()
        return {"y": y[0]}

    times = np.linspace(1.0, 2.0, 1001)
    result = stopping.in_worker(lambda: run.run(Leaping(), times, observe))
    assert result.stop_reason is StopReason.INTERRUPTED
    assert len(result.records) <= np.flatnonzero(times > 1.5)[0] + 2


@pytest.mark.parametrize("method", ["explicit", "bdf", "stiff"])
def test_a_budget_that_is_spent_ends_the_run_after_its_first_step(method):
    """The first chunk was of 64 steps, half a minute where a step takes half a second."""
    given = {"save_at": dynamics.SaveAt.at([50.0]), "method": method, "keep": "summary", "progress": False}
    found = dynamics.solve_overlaps(large_problem(20, 60), **given, error_estimate=False, max_runtime=1e-9)
    assert found.attrs["stop_reason"] == "max_runtime"
    assert found.attrs["steps_accepted"] + found.attrs["steps_rejected"] <= 1


@pytest.mark.parametrize("calls", [1, 2])
def test_ctrl_c_while_a_file_is_written_tears_nothing(calls, tmp_path, monkeypatch):
    """KeyboardInterrupt comes in the main thread alone: no lock of a library stays taken, no file is half written."""
    path, fill, sent = tmp_path / "run.nc", storage._fill, []

    def disturbed(temporary, write):
        if not sent:
            sent.append(temporary)
            for _ in range(calls):
                interrupt_run()
        fill(temporary, write)

    given = {"save_at": AT, "progress": False, "method": "explicit"}
    whole = dynamics.solve_overlaps(problem_of(), **given)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_fill", disturbed)
        with pytest.raises(dynamics.SolveInterrupted):
            dynamics.solve_overlaps(problem_of(), **given, checkpoint=dynamics.RunFile(path, every=1e-9))
    assert_same(dynamics.resume(path, progress=False), whole)


def test_ctrl_c_while_an_answer_is_stored_is_raised_after_it(tmp_path, monkeypatch):
    """Of a finished run, and by `save`."""
    found, fill = dynamics.predict_emergence(problem_of()), storage._fill

    def disturbed(temporary, write):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        clock.sleep(0.1)
        fill(temporary, write)

    monkeypatch.setattr(storage, "_fill", disturbed)
    with pytest.raises(KeyboardInterrupt):
        dynamics.solve_overlaps(problem_of(), save_at=AT, progress=False, checkpoint=tmp_path / "run.nc")
    assert dynamics.load(tmp_path / "run.nc").attrs["stop_reason"] == "reached_end"
    with pytest.raises(KeyboardInterrupt):
        dynamics.save(found, tmp_path / "p.nc")
    assert dynamics.load(tmp_path / "p.nc").identical(found)


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
            interrupt_run()

    at = dynamics.SaveAt.geometric(10.0, 1e4, 300)
    given = {"save_at": at, "method": "stiff", "error_estimate": False, "progress": False, "on_failure": "return"}
    asked = large_problem(130, 400)
    found = dynamics.solve_overlaps(asked, **given, trackers=[Callback(send)], checkpoint=path)
    assert clock.process_time() - began[0] < 1.5
    assert found.student_overlap.shape == (300, 400, 400)
    with xr.open_dataset(path) as kept:
        assert kept.attrs["stop_reason"] == "interrupted"


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
