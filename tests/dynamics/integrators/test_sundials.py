"""CVODE behind the protocol of a stepper: exact solutions, dense output, events, chunks, failures, the missing extra."""

import sys

import numpy as np
import pytest
from processes import interrupt_run
from shared_links import MIXED
from toy_systems import BLOW_UP, ESCAPES, NOT_A_NUMBER, circle, escape_time, make_stepper, rotating, toy

import dynamics
from dynamics import Callback
from dynamics.integrators import Status, check_method
from dynamics.kernels.jit import kernel


@kernel
def rotation_product(t, y, v, out, parameters, sizes, work):
    out[0] = -parameters[0] * v[1]
    out[1] = parameters[0] * v[0]


@kernel
def escapes_product(t, y, v, out, parameters, sizes, work):
    for i in range(y.size):
        out[i] = parameters[i] * y[i] * (2.0 - 3.0 * y[i]) * v[i]


# Not a number after t = 0: every Newton iteration fails, which CVODE reports by printing.
@kernel
def ends_at_once(t, y, out, parameters, sizes, work):
    out[0] = 1.0 if t <= 0.0 else np.nan


@kernel
def ends_at_once_diagonal(t, y, out, parameters, sizes, work):
    out[0] = 0.0


ROTATION_PRODUCT, ESCAPES_PRODUCT = (rotation_product,), (escapes_product,)
ENDS_AT_ONCE = ends_at_once, ends_at_once_diagonal


@pytest.mark.kernels
@pytest.mark.parametrize("product", [ROTATION_PRODUCT, ()], ids=["product", "differences"])
def test_circle_with_and_without_a_product(product):
    stepper = rotating("sundials", product, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(stepper.interpolate(0.0), [1.0, 0.0])
    assert stepper.advance(5.0, 10**5) is Status.REACHED
    assert stepper.start <= 5.0 <= stepper.time
    # Measured 1.7e-7 either way.
    np.testing.assert_allclose(stepper.interpolate(5.0), circle(5.0), atol=4e-7)
    counts = stepper.statistics()
    assert (counts["jacobian_products"] > 0) == bool(product)
    assert counts["rhs_evaluations"] > counts["steps_accepted"] > 100


def test_dense_output_inside_a_step_is_as_good_as_its_ends():
    stepper = rotating("sundials", ROTATION_PRODUCT, rtol=1e-8, atol=1e-8)
    worst_inside = worst_at_end = 0.0
    while stepper.advance(10.0, 1) is Status.MAX_STEPS:
        for share in (0.1, 0.5, 0.9):
            t = stepper.start + share * (stepper.time - stepper.start)
            worst_inside = max(worst_inside, np.abs(stepper.interpolate(t) - circle(t)).max())
        worst_at_end = max(worst_at_end, np.abs(stepper.interpolate(stepper.time) - circle(stepper.time)).max())
    # Measured 8.753e-7 and 8.749e-7; a straight line between the ends would be off by (2 h)²/8 = 3e-4.
    assert worst_inside < 1.05 * worst_at_end


def test_tolerance_bounds_each_component_however_many_there_are():
    """Of n components one moves: CVODE's own root mean square would let its error grow as √n, here √10^4 = 100."""
    errors = []
    for n in (1, 10**4):
        start, rates = np.ones(n), np.ones(n)
        start[0] = 0.01
        stepper = make_stepper("sundials", toy(ESCAPES + ESCAPES_PRODUCT), start, rates, rtol=1e-6, atol=1e-8)
        exact = escape_time(0.01, 0.5, 1.0)
        stepper.advance(exact, 10**5)
        errors.append(abs(stepper.interpolate(exact)[0] - 0.5))
    # Measured 5.0e-4 both; the tolerance is held per step, and an error grows by f(½)/f(0.01) = 1263.
    assert 0.5 < errors[1] / errors[0] < 2.0


@pytest.mark.parametrize(
    "toy_source", [BLOW_UP, NOT_A_NUMBER, ENDS_AT_ONCE], ids=["blow-up", "not a number", "no step"]
)
def test_failures_are_reported_in_bounded_time_and_print_nothing(toy_source, capfd):
    stepper = make_stepper("sundials", toy(toy_source), [1.0], [0.0], rtol=1e-8, atol=1e-8)
    assert stepper.advance(5.0, 10**5) in (Status.STEP_TOO_SMALL, Status.NOT_FINITE)
    assert stepper.time < 2.0
    assert np.isfinite(stepper.interpolate(stepper.time)).all()
    assert np.isfinite(stepper.interpolate(0.5 * (stepper.start + stepper.time))).all()
    assert capfd.readouterr().out == ""


def flow_problem(link="he4", teacher=None):
    teacher = teacher or dynamics.Teacher.power_law(3, 1.0)
    return dynamics.Problem(activation=link, teacher=teacher, width=5, dimension=32, initial_norm=0.1, seed=3)


TILTED = dynamics.Teacher([1.0, 0.5, 0.3], directions=[[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])


@pytest.mark.parametrize(
    "problem", [flow_problem(), flow_problem(MIXED, TILTED)], ids=["h4, orthonormal", "mixed, tilted"]
)
def test_overlap_flow_agrees_with_the_other_methods(problem):
    options = {"rtol": 1e-10, "atol": 1e-12, "progress": False}
    mine = dynamics.solve_overlaps(problem, method="sundials", **options)
    assert mine.attrs["stop_reason"] == "reached_end"
    assert mine.attrs["method"] == "sundials"
    for method in ("explicit", "bdf"):
        other = dynamics.solve_overlaps(problem, method=method, save_at=dynamics.SaveAt.at(mine.time), **options)
        # Measured 1.9e-9 in overlaps and loss, 6.2e-9 in the times.
        for name in ("teacher_overlap", "student_overlap", "squared_norm", "loss"):
            np.testing.assert_allclose(mine[name], other[name], rtol=0, atol=1e-8)
        for name in ("emergence_time", "learned_time"):
            np.testing.assert_allclose(mine[name], other[name], rtol=2e-8)


def test_a_run_that_is_stopped_keeps_what_it_has():
    problem = flow_problem()
    whole = dynamics.solve_overlaps(problem, method="sundials", progress=False)
    limit = float(whole.time[100])

    def interrupt(time, state):
        if time > limit:
            interrupt_run()

    for tracker, reason in ((Callback(lambda t, y: t > limit), "callback"), (Callback(interrupt), "interrupted")):
        part = dynamics.solve_overlaps(
            problem, method="sundials", trackers=[tracker], progress=False, on_failure="return"
        )
        assert part.attrs["stop_reason"] == reason
        reached = np.isfinite(part.loss)
        assert 50 < reached.sum() < 150
        np.testing.assert_array_equal(part.loss[reached], whole.loss[reached])


def test_missing_extra_is_named_before_any_work(monkeypatch):
    def work(*arguments):
        pytest.fail("work was done")

    monkeypatch.setitem(sys.modules, "sksundae.cvode", None)
    monkeypatch.setattr("dynamics.equations.overlaps.OverlapSystem.__init__", work)
    monkeypatch.setattr("dynamics.solve.overlaps.predict", work)
    sentence = r"^Method 'sundials' needs an extra package: pip install \"feature-emergence\[sundials\]\"\.$"
    for call in (
        lambda: check_method("sundials"),
        lambda: rotating("sundials"),
        lambda: dynamics.solve_overlaps(flow_problem(), method="sundials"),
    ):
        with pytest.raises(ImportError, match=sentence):
            call()
    assert check_method("bdf") == "bdf"
