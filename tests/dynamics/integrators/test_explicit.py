"""The explicit pair and the solvers of scipy on systems with known solutions."""

import numpy as np
import pytest
from toy_systems import (
    BLOW_UP,
    ESCAPES,
    ESCAPES_EVENTS,
    EVENT_TIMES,
    circle,
    escape_time,
    make_stepper,
    rotating,
    toy,
)

from dynamics.integrators import Status

pytestmark = pytest.mark.kernels


def fixed_step_errors(counts, place):
    errors = []
    for count in counts:
        stepper = rotating("explicit", fixed_step=2.0 / count, rtol=1e-8, atol=1e-8)
        assert stepper.advance(1.0, 10**6) is Status.REACHED
        t = stepper.start + place * (stepper.time - stepper.start)
        errors.append(np.abs(stepper.interpolate(t) - circle(t)).max())
    return np.array(errors)


def slope(counts, errors):
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


def test_step_converges_with_order_eight():
    counts = np.array([6, 8, 12, 16])
    assert slope(counts, fixed_step_errors(counts, 1.0)) == pytest.approx(8, abs=0.2)


def test_dense_output_converges_with_order_seven():
    counts = np.array([16, 24, 32, 48])
    local = []
    for count in counts:
        stepper = rotating("explicit", fixed_step=2.0 / count, rtol=1e-8, atol=1e-8)
        stepper.advance(1e-9, 1)
        times = np.linspace(0.05, 0.95, 19) * stepper.time
        local.append(max(np.abs(stepper.interpolate(t) - circle(t)).max() for t in times))
    # The local error of an interpolant of order 7 is of order 8.
    assert slope(counts, np.array(local)) == pytest.approx(8, abs=0.2)


@pytest.mark.parametrize("rtol", [1e-6, 1e-9, 1e-12])
def test_error_follows_the_tolerance(rtol):
    stepper = rotating("explicit", rtol=rtol, atol=rtol)
    assert stepper.advance(10.0, 10**6) is Status.REACHED
    assert np.abs(stepper.interpolate(10.0) - circle(10.0)).max() < 100 * rtol


def test_steps_are_not_limited_by_target_times():
    coarse, fine = rotating("explicit", rtol=1e-9), rotating("explicit", rtol=1e-9)
    coarse.advance(10.0, 10**6)
    for t in np.linspace(0.01, 10.0, 500):
        fine.advance(t, 10**6)
    assert fine.time == coarse.time
    assert fine.statistics()["steps_accepted"] == coarse.statistics()["steps_accepted"]


def test_interpolate_fills_the_given_array_and_is_exact_at_both_ends():
    stepper = rotating("explicit", fixed_step=0.1)
    stepper.advance(0.05, 10)
    out = np.empty(2)
    assert stepper.interpolate(stepper.start, out) is out
    np.testing.assert_array_equal(out, [1.0, 0.0])
    evaluations = stepper.statistics()["rhs_evaluations"]
    stepper.interpolate(stepper.time)
    assert stepper.statistics()["rhs_evaluations"] == evaluations
    stepper.interpolate(0.05)
    stepper.interpolate(0.06)
    assert stepper.statistics()["rhs_evaluations"] == evaluations + 3


@pytest.mark.parametrize(
    ("method", "tolerance", "bound"),
    [("explicit", 1e-12, 1e-11), ("bdf", 1e-11, 2e-9), ("sundials", 1e-11, 2e-9)],  # sundials: measured 1.8e-10
)
def test_events_are_located_at_their_first_rise(method, tolerance, bound):
    stepper = rotating(method, rtol=tolerance, atol=tolerance)
    stepper.advance(10.0, 10**6)
    np.testing.assert_allclose(stepper.event_times, EVENT_TIMES, rtol=bound, atol=0)


def test_many_events_agree_with_exact_escape_times():
    rates = np.geomspace(1.0, 30.0, 12)
    starts = np.full(12, 0.02)
    functions = toy(ESCAPES, events=ESCAPES_EVENTS)
    stepper = make_stepper("explicit", functions, starts, rates, num_events=12, rtol=1e-10, atol=1e-12)
    stepper.advance(100.0, 10**6)
    np.testing.assert_allclose(stepper.event_times, escape_time(0.02, 0.5, rates), rtol=1e-8)


def test_stiffness_shows_in_the_statistics():
    rates, starts = np.array([1.0, 3000.0]), np.array([0.02, 0.99])
    stepper = make_stepper("explicit", toy(ESCAPES), starts, rates, rtol=1e-6)
    stepper.advance(10.0, 10**6)
    counts = stepper.statistics()
    assert counts["steps_limited_by_stability"] > 0.8 * counts["steps_accepted"] > 1000


@pytest.mark.parametrize(("method", "rtol", "steps"), [("explicit", 1e-9, 3), ("bdf", 1e-7, 7)])
def test_chunks_and_restored_state_continue_bit_for_bit(method, rtol, steps):
    whole, parts = rotating(method, rtol=rtol), rotating(method, rtol=rtol)
    whole.advance(10.0, 10**6)
    while parts.advance(10.0, steps) is Status.MAX_STEPS:
        saved = parts.state()
        parts = rotating(method, rtol=rtol)
        parts.restore(saved)
    np.testing.assert_array_equal(parts.interpolate(10.0), whole.interpolate(10.0))
    assert parts.statistics() == whole.statistics()
    np.testing.assert_array_equal(parts.event_times, whole.event_times)


@pytest.mark.parametrize("method", ["explicit", "bdf", "scipy:RK45"])
def test_blow_up_is_reported_in_bounded_time(method):
    stepper = make_stepper(method, toy(BLOW_UP), [1.0], [0.0], rtol=1e-8, atol=1e-8)
    # Compiled code does not trap an overflow; with the compiler off numpy would.
    with np.errstate(over="ignore", invalid="ignore"):
        assert stepper.advance(2.0, 10**5) in (Status.STEP_TOO_SMALL, Status.NOT_FINITE)
    assert stepper.time == pytest.approx(1.0, abs=1e-6)


NAMES = ["RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"]


@pytest.mark.parametrize("name", NAMES)
def test_every_solver_follows_the_circle(name):
    stepper = rotating(f"scipy:{name}", rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(stepper.interpolate(0.0), [1.0, 0.0])
    assert stepper.advance(2.0, 3) is Status.MAX_STEPS
    assert stepper.advance(2.0, 10**5) is Status.REACHED
    assert stepper.start <= 2.0 <= stepper.time
    np.testing.assert_allclose(stepper.interpolate(2.0), [np.cos(4.0), np.sin(4.0)], atol=2e-5)
    np.testing.assert_allclose(stepper.event_times, EVENT_TIMES, rtol=1e-5, atol=0)
    counts = stepper.statistics()
    assert counts["rhs_evaluations"] > counts["steps_accepted"] > 3


def test_interpolate_fills_the_given_array_and_refuses_other_times():
    stepper = rotating("scipy:RK45")
    stepper.advance(1.0, 10**5)
    out = np.empty(2)
    assert stepper.interpolate(stepper.time, out) is out
    with pytest.raises(ValueError, match="Argument `t` must be within the last step"):
        stepper.interpolate(stepper.time + 1.0)


@pytest.mark.parametrize("method", ["scipy:RK45", "sundials"])
def test_forced_steps_and_checkpoints_are_refused(method):
    for option in ("fixed_step", "fixed_order"):
        with pytest.raises(ValueError, match=f"Argument `{option}` must be 0 for method '{method}', but is 1."):
            rotating(method, **{option: 1})
    stepper = rotating(method)
    for call in (stepper.state, lambda: stepper.restore({})):
        with pytest.raises(NotImplementedError, match="cannot be continued from a checkpoint"):
            call()
