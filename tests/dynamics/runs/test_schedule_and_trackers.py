"""Save schedules, trackers and the run loop that obeys them."""

import numpy as np
import pytest

import dynamics
from dynamics import StopReason
from dynamics.integrators import Status
from dynamics.runs import trackers
from dynamics.runs.loop import run
from dynamics.runs.trackers import Soundness


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: dynamics.SaveAt.at([]), "Argument `times` must be a non-empty list of times, but has shape (0,)."),
        (lambda: dynamics.SaveAt.at([-1.0, 2.0]), "Argument `times` must be finite and at least 0, but entry 1 of 2 is -1."),
        (lambda: dynamics.SaveAt.at([0.0, np.nan, 2.0]), "Argument `times` must be finite and at least 0, but entry 2 of 3 is nan."),
        (lambda: dynamics.SaveAt.at([1.0, 1.0]), "Argument `times` must increase, but goes from 1.0 to 1.0."),
        (lambda: dynamics.SaveAt.geometric(0.0, 1.0, 3), "Arguments `first` and `last` must satisfy 0 < `first` < `last`, but are 0.0 and 1.0."),
        (lambda: dynamics.SaveAt.linear(2.0, 1.0, 3), "Arguments `first` and `last` must satisfy 0 <= `first` < `last`, but are 2.0 and 1.0."),
        (lambda: dynamics.SaveAt.linear(0.0, 1.0, 1), "Argument `count` must be at least 2, but is 1."),
    ],
)  # fmt: skip
def test_bad_schedules_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        call()
    assert str(caught.value) == sentence


def test_schedules_are_exact_at_their_ends_and_equal_by_value():
    schedule = dynamics.SaveAt.geometric(0.3, 7.0, 11)
    assert (schedule.times[0], schedule.times[-1], len(schedule)) == (0.3, 7.0, 11)
    assert schedule == dynamics.SaveAt.geometric(0.3, 7.0, 11)
    assert hash(schedule) == hash(dynamics.SaveAt.geometric(0.3, 7.0, 11))
    assert schedule != dynamics.SaveAt.at([0.3])
    assert repr(schedule) == "SaveAt(11 times from 0.3 to 7)"


@pytest.fixture(scope="module")
def problem():
    return dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([1.0, 0.6]), width=3, dimension=32, initial_norm=0.1, seed=2
    )


def solve(problem, times=(1.0, 10.0, 400.0), **settings):
    return dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.at(times), progress=False, on_failure="return", **settings
    )


def test_saved_times_are_exactly_the_schedule(problem):
    flow = solve(problem, (0.0, 0.5, 3.0))
    assert flow.time.values.tolist() == [0.0, 0.5, 3.0]
    np.testing.assert_array_equal(flow.teacher_overlap[0], problem.start().teacher_overlap)


def test_a_callback_stops_the_run_and_later_times_hold_nan(problem):
    seen = []

    def stop_after_ten(time, state):
        seen.append((time, state.copy()))
        return time >= 10.0

    flow = solve(problem, trackers=[trackers.Callback(stop_after_ten)])
    assert flow.attrs["stop_reason"] == "callback"
    assert np.isfinite(flow.loss[:2]).all()
    assert np.isnan(flow.loss[2])
    assert np.isnan(flow.teacher_overlap[2]).all()
    assert seen[-1][1].size == 3 * 2 + 9 + 3


def test_steady_state_ends_a_run_that_has_settled_but_not_one_that_waits():
    """Two neurons, each near its own direction, settle exponentially; one that starts at C = 0.01 waits until t ~ 1250."""
    near = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([1.0, 0.6]), width=2, dimension=32,
        initial_overlaps=(0.8 * np.eye(2), np.eye(2), [0.1, 0.1]),
    )  # fmt: skip
    settled = solve(near, np.geomspace(1.0, 1e4, 60), trackers=[trackers.SteadyState(1e-3)])
    assert settled.attrs["stop_reason"] == "steady_state"
    assert settled.attrs["end_time"] < 1e3
    assert np.isfinite(settled.emergence_time).all()
    far = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=32,
        initial_overlaps=([[0.01]], [[1.0]], [1e-4]),
    )  # fmt: skip
    waiting = solve(far, (1.0, 1500.0), trackers=[trackers.SteadyState(1e-3)], method="explicit")
    assert waiting.attrs["end_time"] > 1250
    assert 1200 < float(waiting.emergence_time[0]) < 1300


def test_an_interrupt_keeps_what_was_computed(problem):
    def interrupt(time, _state):
        if time > 2.0:
            raise KeyboardInterrupt

    flow = solve(problem, trackers=[trackers.Callback(interrupt)])
    assert flow.attrs["stop_reason"] == "interrupted"
    assert np.isfinite(flow.loss[0])
    with pytest.raises(dynamics.SolveInterrupted) as caught:
        dynamics.solve_overlaps(
            problem, save_at=dynamics.SaveAt.at([1.0, 400.0]), progress=False, trackers=[trackers.Callback(interrupt)]
        )
    assert isinstance(caught.value, KeyboardInterrupt)
    assert np.isfinite(caught.value.dataset.loss[0])


def test_progress_writes_to_stderr_only_when_asked(problem, capsys):
    solve(problem, trackers=[trackers.Progress(force=True)])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "t = " in captured.err
    dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([1.0]))
    assert capsys.readouterr().err == ""


def test_every_stop_reason_gives_advice():
    assert all(reason.advice.endswith(".") for reason in StopReason)
    assert [reason for reason in StopReason if reason.failed] == (
        "step_too_small not_finite overlap_above_one norm_not_positive not_realisable loss_rose series_too_short too_noisy"
    ).split()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: trackers.MaxRuntime(0), "Argument `max_runtime` must be finite and positive, but is 0."),
        (lambda: trackers.SteadyState(-1), "Argument `tolerance` must be finite and positive, but is -1."),
    ],
)
def test_bad_tracker_settings_get_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        call()
    assert str(caught.value) == sentence


class Walking:
    """A stepper that reaches whatever is asked for."""

    event_times = np.empty(0)

    def __init__(self):
        self.time = 0.0

    def advance(self, target, _max_steps):
        self.time = target
        return Status.REACHED

    def interpolate(self, t, out=None):
        return np.array([t])

    def statistics(self):
        return {}


GOOD = {"teacher_overlap": np.array([[1.0]]), "squared_norm": np.array([0.5]), "loss": 0.3, "gram_margin": -1e-9}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, StopReason.REACHED_END),
        ({"gram_margin": np.nan, "loss": 0.3 + 1e-5}, StopReason.REACHED_END),
        ({"teacher_overlap": np.array([[-1.001]])}, StopReason.OVERLAP_ABOVE_ONE),
        ({"squared_norm": np.array([0.0])}, StopReason.NORM_NOT_POSITIVE),
        ({"gram_margin": -0.1}, StopReason.NOT_REALISABLE),
        ({"loss": 0.302}, StopReason.LOSS_ROSE),
    ],
)
def test_a_state_that_cannot_be_stops_the_run_and_says_why(change, reason):
    def observe(y):
        return GOOD | (change if y[0] == 2.0 else {})

    result = run(Walking(), np.array([1.0, 2.0, 3.0]), observe, sound=Soundness(1e-8, 1.0, falls=True))
    assert result.stop_reason is reason
    assert len(result.records) == (3 if reason is StopReason.REACHED_END else 2)
    assert reason.failed == (reason is not StopReason.REACHED_END)
    risen = run(Walking(), np.array([1.0, 2.0]), lambda y: {"loss": y[0]}, sound=Soundness(1e-8, 1.0, falls=False))
    assert risen.stop_reason is StopReason.REACHED_END
