"""The stiff stepper: measured orders, stiff problems with exact or tight references, events, checkpoints."""

import math

import numpy as np
import pytest
from toy_systems import PROTHERO_ROBINSON, VAN_DER_POL, circle, make_stepper, rotating, toy

from dynamics.integrators import Status, bdf_kernels
from dynamics.kernels.jit import kernel

pytestmark = pytest.mark.kernels


# y_i' = −λ (y_i − mean) − ε mean: differences decay at the rate λ, the mean at ε, and every component is a sum of both.
@kernel
def fast_differences(t, y, out, parameters, sizes, work):
    mean = 0.0
    for i in range(y.size):
        mean += y[i] / y.size
    for i in range(y.size):
        out[i] = -parameters[0] * (y[i] - mean) - parameters[1] * mean


@kernel
def fast_differences_diagonal(t, y, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = -parameters[0]


@kernel
def fast_differences_product(t, y, v, out, parameters, sizes, work):
    fast_differences(t, v, out, parameters, sizes, work)


def with_exact_history(order, h):
    """A stepper of fixed order and step whose history is the Taylor series of the circle."""
    stepper = rotating("bdf", fixed_step=h, fixed_order=order, rtol=1e-13, atol=1e-13)
    stepper.advance(0.0, 1)  # evaluates the start
    state = stepper.state()
    first = stepper._layout.kept.index(bdf_kernels.ROW_NORDSIECK)
    derivative = np.array([1.0, 0.0])
    for j in range(order + 1):
        state["vectors"][first + j] = h**j / math.factorial(j) * derivative
        derivative = 2.0 * np.array([-derivative[1], derivative[0]])
    state["counters"][[bdf_kernels.ORDER, bdf_kernels.NEXT_ORDER, bdf_kernels.WAIT]] = order, order, 2
    state["scalars"][bdf_kernels.PAST_STEPS : bdf_kernels.POLYNOMIAL] = h
    stepper.restore(state)
    return stepper


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_each_order_converges_at_its_rate(order):
    counts = np.array([50, 70, 100, 140])
    at_end, inside = [], []
    for count in counts:
        stepper = with_exact_history(order, 1.0 / count)
        assert stepper.advance(1.0 - 1e-9, 10**5) is Status.REACHED
        assert stepper.statistics()["order"] == order
        at_end.append(np.abs(stepper.interpolate(stepper.time) - circle(stepper.time)).max())
        middle = 0.5 * (stepper.start + stepper.time)
        inside.append(np.abs(stepper.interpolate(middle) - circle(middle)).max())
    for errors in (at_end, inside):
        slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
        assert slope == pytest.approx(order, abs=0.15)


def test_error_falls_with_the_tolerance_as_order_five_predicts():
    tolerances, errors = np.array([1e-6, 1e-7, 1e-8, 1e-9, 1e-10]), []
    for rtol in tolerances:
        stepper = rotating("bdf", rtol=rtol, atol=rtol)
        assert stepper.advance(10.0, 10**6) is Status.REACHED
        errors.append(np.abs(stepper.interpolate(10.0) - circle(10.0)).max())
    # A local error of order 6 held at rtol gives a global error proportional to rtol^(5/6).
    assert np.polyfit(np.log(tolerances), np.log(errors), 1)[0] == pytest.approx(5 / 6, abs=0.1)
    assert errors[0] < 3e-4


@pytest.mark.parametrize("rtol", [1e-6, 1e-9])
@pytest.mark.parametrize("stiffness", [1e2, 1e6, 1e10])
def test_prothero_robinson(rtol, stiffness):
    stepper = make_stepper("bdf", toy(PROTHERO_ROBINSON), [1.0], [stiffness], rtol=rtol, atol=rtol)
    assert stepper.advance(10.0, 10**5) is Status.REACHED
    assert abs(stepper.interpolate(10.0)[0] - np.cos(10.0)) < 20 * rtol
    # Work is set by the solution, not by the stiffness.
    assert stepper.statistics()["steps_accepted"] < (3000 if rtol == 1e-9 else 600)


@pytest.mark.parametrize(("rtol", "bound"), [(1e-6, 2e-4), (1e-9, 2e-7)])
def test_van_der_pol_against_the_published_solution(rtol, bound):
    # F. Mazzia and C. Magherini, Test Set for Initial Value Problem Solvers (2008), problem VDPOL at its end, with
    # time in units of mu.
    mu = 1000.0
    reference = np.array([1.706167732170483, -0.8928097010247975 / mu])
    stepper = make_stepper("bdf", toy(VAN_DER_POL), [2.0, 0.0], [mu], rtol=rtol, atol=1e-3 * rtol)
    assert stepper.advance(2.0 * mu, 10**6) is Status.REACHED
    np.testing.assert_allclose(stepper.interpolate(2.0 * mu), reference, rtol=bound)


def test_dense_output_meets_the_state_at_both_ends():
    stepper = rotating("bdf", rtol=1e-8, atol=1e-8)
    stepper.advance(3.0, 10**5)
    eps = 1e-12 * stepper.time
    for t, inward in ((stepper.start, eps), (stepper.time, -eps)):
        np.testing.assert_allclose(stepper.interpolate(t + inward), stepper.interpolate(t), atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize(("rtol", "fewer", "most_steps"), [(1e-6, 0.99, 300), (1e-9, 0.5, 900)])
def test_slow_motion_of_sums_of_fast_components(rtol, fewer, most_steps):
    """With steps 1e9 times the fastest relaxation products come from the system, which costs no evaluations."""
    start = 1.0 + np.array([0.3, -0.1, 0.2, -0.4])
    functions = fast_differences, fast_differences_diagonal
    for text, fewest, most in ((functions, 1.0, 1.0), ((*functions, fast_differences_product), 0.0, fewer)):
        stepper = make_stepper("bdf", toy(text), start, [1.0, 1e-9], rtol=rtol, atol=1e-3 * rtol)
        assert stepper.advance(1e10, 10**4) is Status.REACHED
        np.testing.assert_allclose(stepper.interpolate(1e10), np.exp(-10.0), rtol=1e3 * rtol)
        count = stepper.statistics()
        differences = count["rhs_evaluations"] - 1 - count["nonlinear_iterations"]
        assert fewest * count["linear_iterations"] <= differences <= most * count["linear_iterations"]
    # With the product; measured 203 to 218 and 590 to 623, and 203 to 218 and 1645 to 1751 without it.
    assert count["steps_accepted"] < most_steps
