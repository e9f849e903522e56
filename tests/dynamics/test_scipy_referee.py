"""scipy's solvers behind the same protocol."""

import numpy as np
import pytest
from toy_systems import EVENT_TIMES, ROTATION, rotating, toy

from dynamics.integrators import Status, make_stepper

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


def test_agrees_with_the_explicit_stepper():
    mine = make_stepper("explicit", toy(ROTATION), [1.0, 0.0], [2.0], [0], np.zeros(1), rtol=1e-12, atol=1e-13)
    mine.advance(5.0, 10**5)
    referee = rotating("scipy:DOP853", rtol=1e-12, atol=1e-13)
    referee.advance(5.0, 10**5)
    np.testing.assert_allclose(mine.interpolate(5.0), referee.interpolate(5.0), atol=1e-10)


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


def test_blow_up_is_reported():
    from toy_systems import BLOW_UP

    stepper = make_stepper("scipy:RK45", toy(BLOW_UP), [1.0], [0.0], [0], np.zeros(1), rtol=1e-6)
    assert stepper.advance(2.0, 10**5) in (Status.STEP_TOO_SMALL, Status.NOT_FINITE)
