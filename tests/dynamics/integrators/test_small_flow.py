"""The compiled loop of small flows: the same answers as other methods, in pieces and in one, and its choice."""

from itertools import pairwise

import numpy as np
import pytest

import dynamics
from dynamics import Problem, SaveAt, Teacher
from dynamics.equations.overlaps import OverlapSystem
from dynamics.integrators import Status
from dynamics.integrators.large_flow import FallingBack, LargeFlowStepper
from dynamics.integrators.methods import FlowMethod


def problem(activation="he4", P=3, m=5, d=16, *, initial_norm=0.5, seed=1):
    teacher = Teacher.power_law(P, beta=1.0)
    return Problem(activation=activation, teacher=teacher, width=m, dimension=d, initial_norm=initial_norm, seed=seed)


def standard(size):
    asked = problem("he4", P=size, m=size, d=1024, initial_norm=float(np.sqrt(1e-3)), seed=0)
    return asked, SaveAt.geometric(1.0, 6.0 * 1024 * size, 100)


def worst_of_loss(flow, exact):
    return float(np.abs(flow["loss"] - exact["loss"]).max())


@pytest.mark.parametrize("size", [8, 16])
def test_errors_fall_steadily_with_the_tolerance(size):
    asked, times = standard(size)
    options = {"save_at": times, "keep": "summary", "error_estimate": False, "progress": False}
    exact = dynamics.solve_overlaps(asked, method="bdf", rtol=1e-10, **options)
    flows = [dynamics.solve_overlaps(asked, method="stiff", rtol=rtol, **options) for rtol in (1e-4, 1e-5, 1e-6)]
    errors = [worst_of_loss(flow, exact) for flow in flows]
    assert errors[0] < 1e-4
    assert all(tight < 0.2 * loose for loose, tight in pairwise(errors))
    times_of = [np.nanmax(np.abs(flow["emergence_time"] / exact["emergence_time"] - 1.0)) for flow in flows]
    assert np.all(np.array(times_of) < [1e-5, 1e-6, 1e-7])
    assert all(flow.attrs["method"] == "stiff" and "fallback" not in flow.attrs for flow in flows)


@pytest.mark.parametrize(
    "asked",
    [
        problem(P=2, m=7, d=4, initial_norm=0.05, seed=2),
        problem("he3", P=4, m=3, d=64, initial_norm=0.1, seed=4),
        problem({3: 0.7, 4: 0.7}, P=3, m=6, d=32, initial_norm=0.1, seed=3),
    ],
    ids=["duplicates that lean both ways", "more directions than neurons, odd", "no parity"],
)
def test_the_answers_are_those_of_bdf(asked):
    options = {"save_at": SaveAt.geometric(0.1, 3e4, 60), "error_estimate": False, "progress": False}
    exact = dynamics.solve_overlaps(asked, method="bdf", rtol=1e-9, **options)
    flow = dynamics.solve_overlaps(asked, method="stiff", rtol=1e-7, **options)
    assert np.isfinite(exact["learned_time"]).sum() >= 2
    assert worst_of_loss(flow, exact) < 1e-6
    for name in ("emergence_time", "learned_time"):
        np.testing.assert_allclose(flow[name], exact[name], rtol=1e-6)
    np.testing.assert_allclose(flow["teacher_overlap"], exact["teacher_overlap"], rtol=0, atol=1e-5)
    # Learned directions relax some 1e5 times: an explicit method without clusters would need as many steps.
    assert flow.attrs["steps_accepted"] < 2000


@pytest.mark.parametrize("method", ["stiff", "bdf"])
def test_many_times_at_once_are_the_same_steps_and_the_same_states(method):
    asked = problem()
    times = np.concatenate([[0.0], np.geomspace(0.1, 3e3, 40)])
    new = FlowMethod(OverlapSystem(asked), method, 1e-8, last_time=3e3)
    one, many, torn = (new.stepper(1e-6) for _ in range(3))
    states = []
    for time in times:
        assert one.advance(time, 10**6) is Status.REACHED
        states.append(one.interpolate(time))
    status, found = many.advance_through(times, 10**6)
    assert status is Status.REACHED
    np.testing.assert_array_equal(found, states)
    assert many.statistics() == one.statistics()
    np.testing.assert_array_equal(many.event_times, one.event_times)
    assert np.isfinite(one.event_times).any()
    # In chunks, each taken by a stepper that was restored from the one before.
    parts = []
    while sum(map(len, parts)) < times.size:
        status, part = torn.advance_through(times[sum(map(len, parts)) :], 7)
        parts.append(part)
        following = new.stepper(1e-6)
        following.restore(torn.state())
        torn = following
    np.testing.assert_array_equal(np.concatenate(parts), states)
    np.testing.assert_array_equal(torn.event_times, one.event_times)


def test_files_of_the_large_flow_solver_go_on_with_it():
    asked = problem()
    small = FlowMethod(OverlapSystem(asked), "stiff", 1e-8, last_time=3e3)
    large = FallingBack(LargeFlowStepper(asked, rtol=1e-6, atol=1e-8), None, 3e3)
    large.advance(10.0, 10**6)
    goes_on = small.stepper(1e-6)
    goes_on.restore(large.state())
    for each in (large, goes_on):
        each.advance(100.0, 10**6)
    np.testing.assert_array_equal(goes_on.interpolate(100.0), large.interpolate(100.0))
