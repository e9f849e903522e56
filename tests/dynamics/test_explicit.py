"""The explicit stepper: order conditions, measured orders, events, statuses, checkpoints."""

import numpy as np
import pytest
from toy_systems import BLOW_UP, ESCAPES, ESCAPES_EVENTS, NOT_A_NUMBER, ROTATION, ROTATION_EVENTS, UNIT_CIRCLE, toy

from dynamics.integrators import METHODS, Status, check_method, make_stepper
from dynamics.integrators.explicit_kernels import DOP853_C, DOP853_WEIGHTS, largest_ratio

pytestmark = pytest.mark.kernels

SCRATCH = np.zeros(1)


def circle(t, speed=2.0):
    return np.array([np.cos(speed * t), np.sin(speed * t)])


def rotation(method="explicit", speed=2.0, **options):
    functions = toy(ROTATION, events=ROTATION_EVENTS)
    return make_stepper(method, functions, [1.0, 0.0], [speed], [0], SCRATCH, num_events=4, **options)


def escape_time(u, y, rate):
    return (1 / u - 1 / y + np.log(y / (1 - y)) - np.log(u / (1 - u))) / rate


def test_stages_are_consistent():
    np.testing.assert_allclose(DOP853_WEIGHTS[:16].sum(axis=1), DOP853_C, rtol=0, atol=2e-15)


@pytest.mark.parametrize("power", range(8))
def test_step_integrates_polynomials_to_degree_seven(power):
    weights = DOP853_WEIGHTS[12, :12]
    assert weights @ DOP853_C[:12] ** power == pytest.approx(1 / (power + 1), rel=1e-14)


def test_step_satisfies_nested_order_conditions():
    weights, nodes, stages = DOP853_WEIGHTS[12, :12], DOP853_C[:12], DOP853_WEIGHTS[:12, :12]
    # Σ b_i c_i^p (Σ_j a_ij c_j^q) = 1 / ((q+1)(p+q+2)) for every tree of this shape up to order 8.
    for p in range(7):
        for q in range(1, 7 - p):
            value = weights @ (nodes**p * (stages @ nodes**q))
            assert value == pytest.approx(1 / ((q + 1) * (p + q + 2)), rel=1e-12)


def test_error_estimates_vanish_on_low_degrees():
    for row, degree in ((16, 5), (17, 3)):
        for power in range(degree):
            assert abs(DOP853_WEIGHTS[row, :12] @ DOP853_C[:12] ** power) < 1e-14
        assert abs(DOP853_WEIGHTS[row, :12] @ DOP853_C[:12] ** degree) > 1e-6


def fixed_step_errors(counts, place):
    errors = []
    for count in counts:
        stepper = rotation(fixed_step=2.0 / count, rtol=1e-8, atol=1e-8)
        assert stepper.advance(1.0, 10**6) is Status.REACHED
        t = stepper.start + place * (stepper.time - stepper.start)
        errors.append(np.abs(stepper.interpolate(t) - circle(t)).max())
    return np.array(errors)


def slope(counts, errors):
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


def test_step_converges_with_order_eight():
    counts = np.array([6, 8, 12, 16])
    assert slope(counts, fixed_step_errors(counts, 1.0)) == pytest.approx(8, abs=0.2)


def next_factor(t, y, h, rtol, atol, speed=2.0):
    """The growth of a step by the rule of Hairer, Norsett and Wanner, II.4 and II.5, with the caution of ours."""
    stages = np.zeros((12, 2))
    for s in range(12):
        x, z = y + h * DOP853_WEIGHTS[s, :12] @ stages
        stages[s] = -speed * z, speed * x
    new = y + h * DOP853_WEIGHTS[12, :12] @ stages
    scale = atol + rtol * np.maximum(np.abs(y), np.abs(new))
    five, three = (20.0 * np.max(np.abs(h * DOP853_WEIGHTS[row, :12] @ stages) / scale) for row in (16, 17))
    error = five**2 / np.sqrt(five**2 + 0.01 * three**2)
    return min(6.0, max(1.0 / 3.0, 0.9 * error**-0.125)), error


def test_steps_grow_by_the_combined_estimate_of_both_embedded_formulas():
    """Every length follows from the step before; measured: 1.4e-9, of small differences of stages."""
    stepper, free = rotation(rtol=1e-6, atol=1e-9), 0
    for _ in range(30):
        stepper.advance(1e9, 1)
        h, y = stepper.time - stepper.start, stepper.interpolate(stepper.start)
        factor, error = next_factor(stepper.start, y, h, 1e-6, 1e-9)
        accepted = stepper.statistics()["steps_accepted"]
        stepper.advance(1e9, 1)
        assert error <= 1.0
        if stepper.statistics()["steps_accepted"] > accepted:
            assert stepper.time - stepper.start == pytest.approx(factor * h, rel=1e-8)
            free += 0.34 < factor < 6.0
    assert free >= 10


def test_dense_output_converges_with_order_seven():
    counts = np.array([16, 24, 32, 48])
    local = []
    for count in counts:
        stepper = rotation(fixed_step=2.0 / count, rtol=1e-8, atol=1e-8)
        stepper.advance(1e-9, 1)
        times = np.linspace(0.05, 0.95, 19) * stepper.time
        local.append(max(np.abs(stepper.interpolate(t) - circle(t)).max() for t in times))
    # The local error of an interpolant of order 7 is of order 8.
    assert slope(counts, np.array(local)) == pytest.approx(8, abs=0.2)


@pytest.mark.parametrize("rtol", [1e-6, 1e-9, 1e-12])
def test_error_follows_the_tolerance(rtol):
    stepper = rotation(rtol=rtol, atol=rtol)
    assert stepper.advance(10.0, 10**6) is Status.REACHED
    assert np.abs(stepper.interpolate(10.0) - circle(10.0)).max() < 100 * rtol


def test_steps_are_not_limited_by_target_times():
    coarse, fine = rotation(rtol=1e-9), rotation(rtol=1e-9)
    coarse.advance(10.0, 10**6)
    for t in np.linspace(0.01, 10.0, 500):
        fine.advance(t, 10**6)
    assert fine.time == coarse.time
    assert fine.statistics()["steps_accepted"] == coarse.statistics()["steps_accepted"]


def test_initial_state_is_returned_at_the_initial_time():
    stepper = rotation(t0=3.0)
    np.testing.assert_array_equal(stepper.interpolate(3.0), [1.0, 0.0])
    assert stepper.time == 3.0


def test_interpolate_fills_the_given_array_and_is_exact_at_both_ends():
    stepper = rotation(fixed_step=0.1)
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


def test_times_outside_the_last_step_are_refused():
    stepper = rotation(fixed_step=0.1)
    stepper.advance(0.15, 10)
    with pytest.raises(ValueError, match=r"Argument `t` must be within the last step \[0.1, 0.2\], but is 0.05."):
        stepper.interpolate(0.05)


def test_events_are_located_at_their_first_rise():
    stepper = rotation(rtol=1e-12, atol=1e-12)
    stepper.advance(10.0, 10**6)
    expected = [np.pi / 12, 0.0, np.pi / 4, np.nan]
    np.testing.assert_allclose(stepper.event_times, expected, rtol=1e-11, atol=0)


def test_many_events_agree_with_exact_escape_times():
    rates = np.geomspace(1.0, 30.0, 12)
    starts = np.full(12, 0.02)
    functions = toy(ESCAPES, events=ESCAPES_EVENTS)
    stepper = make_stepper("explicit", functions, starts, rates, [0], SCRATCH, num_events=12, rtol=1e-10, atol=1e-12)
    stepper.advance(100.0, 10**6)
    np.testing.assert_allclose(stepper.event_times, escape_time(0.02, 0.5, rates), rtol=1e-8)


def test_stiffness_shows_in_the_statistics():
    rates, starts = np.array([1.0, 3000.0]), np.array([0.02, 0.99])
    stepper = make_stepper("explicit", toy(ESCAPES), starts, rates, [0], SCRATCH, rtol=1e-6)
    stepper.advance(10.0, 10**6)
    counts = stepper.statistics()
    assert counts["steps_limited_by_stability"] > 0.8 * counts["steps_accepted"] > 1000


def test_chunks_and_restored_state_continue_bit_for_bit():
    whole, parts = rotation(rtol=1e-9), rotation(rtol=1e-9)
    whole.advance(10.0, 10**6)
    while parts.advance(10.0, 3) is Status.MAX_STEPS:
        saved = parts.state()
        parts = rotation(rtol=1e-9)
        parts.restore(saved)
    np.testing.assert_array_equal(parts.interpolate(10.0), whole.interpolate(10.0))
    assert parts.statistics() == whole.statistics()
    np.testing.assert_array_equal(parts.event_times, whole.event_times)


def test_restoring_another_layout_is_refused():
    stepper = rotation()
    broken = {**stepper.state(), "vectors": np.zeros((1, 2))}
    with pytest.raises(ValueError, match=r"Argument `state` must hold `vectors` of shape .*, but has \(1, 2\)."):
        stepper.restore(broken)
    del broken["vectors"]
    with pytest.raises(ValueError, match=r"but has None."):
        stepper.restore(broken)


def test_accepted_states_are_normalised():
    functions = toy(ROTATION, constraint=UNIT_CIRCLE)
    stepper = make_stepper("explicit", functions, [1.0, 0.0], [2.0], [0], SCRATCH, rtol=1e-3, atol=1e-3)
    stepper.advance(50.0, 10**6)
    assert np.linalg.norm(stepper.interpolate(stepper.time)) == pytest.approx(1.0, abs=1e-15)
    assert np.linalg.norm(stepper.interpolate(50.0)) == pytest.approx(1.0, abs=1e-15)


def test_largest_step_is_respected():
    stepper = rotation(largest_step=0.01)
    stepper.advance(1.0, 10**6)
    assert stepper.statistics()["steps_accepted"] >= 99


@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_blow_up_is_reported_in_bounded_time(method):
    stepper = make_stepper(method, toy(BLOW_UP), [1.0], [0.0], [0], SCRATCH, rtol=1e-8, atol=1e-8)
    # Compiled code does not trap an overflow; with the compiler off numpy would.
    with np.errstate(over="ignore", invalid="ignore"):
        assert stepper.advance(2.0, 10**5) in (Status.STEP_TOO_SMALL, Status.NOT_FINITE)
    assert stepper.time == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_not_a_number_is_reported_in_bounded_time(method):
    stepper = make_stepper(method, toy(NOT_A_NUMBER), [1.0], [0.0], [0], SCRATCH, rtol=1e-8, atol=1e-8)
    assert stepper.advance(5.0, 10**5) in (Status.STEP_TOO_SMALL, Status.NOT_FINITE)
    assert stepper.time < 2.0
    assert np.isfinite(stepper.interpolate(stepper.time)).all()


@pytest.mark.parametrize("method", ["explicit", "bdf", "scipy:RK45"])
def test_infinite_start_is_reported(method):
    stepper = make_stepper(method, toy(NOT_A_NUMBER), [-1.0], [0.0], [0], SCRATCH)
    assert stepper.advance(1.0, 100) is Status.NOT_FINITE
    assert stepper.time == 0.0


@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_blow_up_at_a_fixed_step_is_reported(method):
    stepper = make_stepper(method, toy(NOT_A_NUMBER), [1.0], [0.0], [0], SCRATCH, fixed_step=0.5)
    assert stepper.advance(5.0, 10**5) in (Status.STEP_TOO_SMALL, Status.NOT_FINITE)


def test_zero_steps_report_the_limit_and_change_nothing():
    stepper = rotation()
    assert stepper.advance(1.0, 0) is Status.MAX_STEPS
    assert stepper.time == 0.0


def test_constant_solution_needs_few_steps():
    stepper = make_stepper("explicit", toy(ROTATION), [0.0, 0.0], [1.0], [0], SCRATCH)
    assert stepper.advance(1e5, 40) is Status.REACHED


def test_unknown_method_is_refused_with_the_menu():
    with pytest.raises(
        ValueError, match=r"Argument `method` must be one of 'explicit', 'bdf', .*, but is 'bdff'."
    ) as e:
        check_method("bdff")
    assert str(e.value).endswith("Did you mean 'bdf'?")
    with pytest.raises(ValueError, match=r"but is 'zzz'.$"):
        check_method("zzz")
    with pytest.raises(TypeError, match=r"Argument `method` must be a string, but is 3."):
        check_method(3)
    assert {"explicit", "bdf", "scipy:LSODA"} <= set(METHODS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": 0.0}, "Argument `rtol` must be positive, but is 0.0."),
        ({"atol": -1.0}, "Argument `atol` must be positive, but has minimum -1.0."),
        (
            {"atol": np.ones(3)},
            r"Argument `atol` must be a number or have shape \(n,\) = \(2,\), but has shape \(3,\).",
        ),
        ({"largest_step": 0.0}, "Argument `largest_step` must be positive, but is 0.0."),
        ({"fixed_step": -1.0}, "Argument `fixed_step` must be at least 0, but is -1.0."),
        ({"fixed_order": 3}, "Argument `fixed_order` must be 0 for method 'explicit', but is 3."),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rotation(**options)


def test_wrong_arrays_are_refused():
    with pytest.raises(ValueError, match=r"Argument `y0` must have one dimension, but has shape \(1, 2\)."):
        make_stepper("explicit", toy(ROTATION), [[1.0, 0.0]], [2.0], [0], SCRATCH)


@pytest.mark.parametrize("method", ["explicit", "bdf", "scipy:DOP853"])
def test_derivative_is_the_right_hand_side_on_the_dense_output(method):
    stepper = rotation(method, rtol=1e-10, atol=1e-10)
    stepper.advance(1.0, 10**5)
    x, y = circle(1.0)
    np.testing.assert_allclose(stepper.derivative(1.0), [-2 * y, 2 * x], atol=1e-7)


@pytest.mark.kernels
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_the_error_norm_is_infinite_where_anything_is_not_finite(bad):
    v, y, atol = np.linspace(-2.0, 1.0, 37), np.full(37, 3.0), np.full(37, 0.1)
    assert largest_ratio(v, y, y, atol, 1e-3, v.size) == pytest.approx(2.0 / 0.103, rel=1e-14)
    with np.errstate(invalid="ignore"):
        for state in (3.0, bad):
            v[5], y[5] = bad, state
            assert largest_ratio(v, y, y, atol, 1e-3, v.size) == np.inf
