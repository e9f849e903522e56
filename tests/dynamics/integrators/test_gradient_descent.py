"""Population gradient descent against autograd in weight space, its limit η → 0, and its edge of stability."""

import numpy as np
import pytest
import torch
from shared_links import MIXED
from weight_space import population_loss

import dynamics
import hermite
from dynamics import StopReason
from dynamics.equations.overlaps import OverlapSystem
from dynamics.integrators import Status
from dynamics.integrators.descent import DescentStepper
from dynamics.problem.start import overlaps_from_weights
from dynamics.runs.loop import run
from dynamics.theory.learning_rates import descent_limit

kernels = pytest.mark.kernels

TILTED = dynamics.Teacher([1.0, 0.7, 0.5], directions=[[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])
THREE = dynamics.Teacher([1.0, 0.7, 0.5])
RELU = hermite.expand("relu", order=8).truncated()
TANH = hermite.expand("tanh", order=9).truncated()

CASES = {
    "h4": {"activation": "he4"},
    "h3": {"activation": "he3"},
    "h3 and h4, no parity": {"activation": MIXED},
    "truncated relu, c_0 != 0": {"activation": RELU},
    "h4, tilted teacher": {"activation": "he4", "teacher": TILTED},
    "no parity, tilted teacher in a tight space": {"activation": MIXED, "teacher": TILTED, "dimension": 5},
    "h2, wider than the space": {"activation": "he2", "width": 9, "dimension": 4},
    "given weights in more axes than the overlaps need": {
        "width": 2,
        "initial_weights": 0.3 * np.random.default_rng(7).standard_normal((2, 9)),
        "initial_norm": 1e-2,
        "seed": 0,
    },
}
OF_OTHER_LINKS = ("h3", "truncated relu, c_0 != 0", "h2, wider than the space")


def problem_of(**settings):
    defaults = {"activation": "he4", "teacher": THREE, "width": 4, "dimension": 9, "initial_norm": 0.5, "seed": 3}
    return dynamics.Problem(**(defaults | settings))


def descent_by_autograd(problem, learning_rate, steps):
    """Return the weights in R^d after 0 … `steps` steps along the gradient of the closed-form loss."""
    weights = np.zeros((problem.width, problem.dimension))
    reduced = problem.reduced_weights()
    weights[:, : reduced.shape[1]] = reduced
    history = [weights]
    for _ in range(steps):
        w = torch.tensor(history[-1], requires_grad=True)
        (gradient,) = torch.autograd.grad(0.5 * population_loss(w, problem), w)
        history.append(history[-1] - learning_rate * gradient.numpy())
    return history


def state_of(weights, problem):
    C, G, n = overlaps_from_weights(weights, problem.teacher)
    return np.concatenate([C.ravel(), G.ravel(), np.log(n)])


def taken(problem, learning_rate, steps, **options):
    stepper = DescentStepper(problem, learning_rate, **options)
    while stepper.statistics()["steps_accepted"] < steps:
        stepper.advance(learning_rate * steps, steps)
    return stepper


@kernels
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow_to_compile] * (name in OF_OTHER_LINKS))
        for name, case in CASES.items()
    ],
)
def test_steps_are_those_of_gradient_descent_in_weight_space(case):
    """Measured: C, G and ln n differ by at most 2.5e-15 after 40 steps, the loss by 1.2e-15."""
    problem = problem_of(**case)
    history = descent_by_autograd(problem, 0.05, 40)
    stepper = DescentStepper(problem, 0.05)
    for step in (0, 1, 2, 40):
        stepper.advance(0.05 * step, 100)
        state = stepper.interpolate(stepper.time)
        np.testing.assert_allclose(state, state_of(history[step], problem), rtol=0, atol=1e-12)
    system = OverlapSystem(problem)
    loss = system.loss(*system.unpack(state))
    assert loss == pytest.approx(population_loss(torch.tensor(history[-1]), problem).item(), abs=1e-12)
    assert stepper.statistics() == {"steps_accepted": 40, "rhs_evaluations": 40}


@pytest.mark.parametrize("threads", [1, 2])
def test_more_rows_than_a_block_and_more_than_one_thread(threads):
    """Measured: 2.7e-15."""
    problem = problem_of(activation=MIXED, width=70, dimension=90, initial_norm=0.2)
    stepper = taken(problem, 0.1, 30, threads=threads)
    expected = state_of(descent_by_autograd(problem, 0.1, 30)[-1], problem)
    np.testing.assert_allclose(stepper.interpolate(stepper.time), expected, rtol=0, atol=1e-12)


def test_number_of_threads_changes_no_event():
    problem = problem_of(width=70, dimension=90, initial_norm=0.3)
    one, two = (taken(problem, 0.05, 1500, threads=threads) for threads in (1, 2))
    assert np.isfinite(one.event_times).sum() == 6
    np.testing.assert_allclose(two.event_times, one.event_times, rtol=1e-10)


@kernels
def test_time_is_learning_rate_times_step_and_a_target_is_passed_by_less_than_one_step():
    stepper = DescentStepper(problem_of(), 0.1)
    assert stepper.advance(0.25, 2) is Status.MAX_STEPS
    assert (stepper.start, stepper.time) == (0.1, 0.2)
    assert stepper.advance(0.25, 10) is Status.REACHED
    assert stepper.time == 0.1 * 3
    # 0.1 · 6 is above 0.6 in floating point and 0.6/0.1 below 6: neither may cost a step.
    for step in (3, 6, 7, 12):
        stepper.advance(0.1 * step, 100)
        assert stepper.statistics()["steps_accepted"] == step
    for target in (1.3, np.nextafter(0.1 * 67, np.inf)):
        stepper.advance(target, 100)
        assert stepper.start < target <= stepper.time


@kernels
def test_states_at_many_times_are_those_at_one_after_the_other():
    times = np.array([0.0, 0.04, 0.05, 0.3, 1.0])
    one, many = DescentStepper(problem_of(), 0.1), DescentStepper(problem_of(), 0.1)
    status, first = many.advance_through(times, 7)
    assert (status, len(first)) == (Status.MAX_STEPS, 4)
    status, last = many.advance_through(times[4:], 100)
    assert status is Status.REACHED
    for t, state in zip(times, [*first, *last], strict=True):
        one.advance(t, 100)
        np.testing.assert_array_equal(state, one.interpolate(t))


def flow_state(problem, time):
    flow = dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.at([time]), method="explicit", rtol=1e-11, atol=1e-13, progress=False
    )
    parts = (flow.teacher_overlap[0], flow.student_overlap[0], np.log(flow.squared_norm[0]))
    return np.concatenate([np.ravel(part) for part in parts]), flow


@pytest.mark.parametrize(
    "case", ["h4", pytest.param("truncated relu, c_0 != 0", marks=pytest.mark.long), "h4, tilted teacher"]
)
def test_approaches_the_flow_at_first_order(case):
    """Measured orders 1.006, 0.995 and 0.966."""
    problem = problem_of(**CASES[case])
    expected, _ = flow_state(problem, 2.0)
    counts = np.array([50, 100, 200, 400])
    errors = []
    for count in counts:
        stepper = taken(problem, 2.0 / count, count)
        errors.append(np.abs(stepper.interpolate(stepper.time) - expected).max())
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert order == pytest.approx(1.0, abs=0.1)


@kernels
def test_interpolates_linearly_in_the_overlaps_and_stays_realisable():
    problem = problem_of(teacher=TILTED, dimension=5)
    before, after = (state_of(weights, problem) for weights in descent_by_autograd(problem, 0.2, 8)[-2:])
    stepper = taken(problem, 0.2, 8)
    t = stepper.start + 0.3 * (stepper.time - stepper.start)
    out = np.empty(before.size)
    assert stepper.interpolate(t, out) is out
    np.testing.assert_allclose(out, 0.7 * before + 0.3 * after, rtol=0, atol=1e-12)
    np.testing.assert_allclose(stepper.derivative(t), (after - before) / 0.2, rtol=0, atol=1e-11)
    system = OverlapSystem(problem)
    _, G, _ = system.unpack(out)
    assert system.gram_margin(out) > -1e-14
    np.testing.assert_array_equal(np.diag(G), 1.0)
    np.testing.assert_allclose(stepper.interpolate(stepper.start), before, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="Argument `t` must be within the last step"):
        stepper.interpolate(stepper.time + 0.01)


@kernels
@pytest.mark.parametrize(
    ("teacher", "link"),
    [
        pytest.param(THREE, "he4", id="orthonormal"),
        pytest.param(TILTED, "he4", id="tilted"),
        pytest.param(THREE, [0, 0, 0, 0.3, 0.4], id="g(1) = 1/4", marks=pytest.mark.slow_to_compile),
    ],
)
def test_events_are_crossings_of_the_interpolant(teacher, link):
    """Measured: 1.3e-13."""
    problem = problem_of(activation=link, teacher=teacher, width=6, initial_norm=0.6, seed=1)
    rate, link = 0.2, problem.activation
    stepper = DescentStepper(problem, rate)
    seen = 0
    for step in range(1, 120):
        passed = stepper.event_times
        stepper.advance(rate * step, 1)
        for event in np.flatnonzero(np.isnan(passed) & ~np.isnan(stepper.event_times)):
            assert stepper.start < stepper.event_times[event] <= stepper.time
            C, _, n = OverlapSystem(problem).unpack(stepper.interpolate(stepper.event_times[event]))
            p = event % 3
            values = [
                (C[:, p] ** 2).max() - 0.5,
                n @ link.kernel(C[:, p]) / link.kernel(1.0) - 0.5 * teacher.coefficients[p],
            ]
            assert values[event // 3] == pytest.approx(0.0, abs=1e-11)
            seen += 1
    assert seen == np.isfinite(stepper.event_times).sum() >= 4


@kernels
@pytest.mark.parametrize("threads", [1, 2])
def test_restored_run_continues_bit_for_bit(threads):
    problem = problem_of(teacher=TILTED, width=6, initial_norm=0.6, seed=1)
    straight = taken(problem, 0.1, 61, threads=threads)
    halfway = taken(problem, 0.1, 31, threads=threads).state()
    again = DescentStepper(problem, 0.1, threads=threads)
    again.advance(0.2, 100)
    again.restore(halfway)
    assert again.time == 0.1 * 31
    again.advance(0.1 * 61, 100)
    t = again.start + 0.04
    np.testing.assert_array_equal(again.interpolate(t), straight.interpolate(t))
    np.testing.assert_array_equal(again.event_times, straight.event_times)
    assert np.isfinite(straight.event_times).any()
    for name, array in straight.state().items():
        np.testing.assert_array_equal(again.state()[name], array)


LINKS = {"h1": "he1", "h2": "he2", "h2 + h4": {2: 1.0, 4: 0.5}, "h4": "he4", "relu": RELU, "tanh": TANH}


@pytest.mark.parametrize("teacher", [THREE, TILTED], ids=["orthonormal", "tilted"])
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
@pytest.mark.parametrize(("width", "dimension"), [(8, 3), (3, 5), (2, 5)])
def test_limit_is_two_over_the_largest_eigenvalue_of_the_hessian(link, teacher, width, dimension):
    """The Hessian by autograd, at the student that equals the teacher. Measured: 1e-15."""
    rows = np.eye(3) if teacher.directions is None else teacher.directions
    count = min(width, 3)
    part = dynamics.Teacher(teacher.coefficients[:count], directions=rows[:count])
    problem = dynamics.Problem(activation=link, teacher=part, width=count, dimension=dimension)
    weights = np.zeros((count, dimension))
    weights[:, :3] = np.sqrt(part.coefficients)[:, None] * rows[:count]
    hessian = torch.autograd.functional.hessian(
        lambda w: 0.5 * population_loss(w.reshape(weights.shape), problem), torch.tensor(weights.ravel())
    )
    expected = 2.0 / float(torch.linalg.eigvalsh(hessian)[-1])
    asked = dynamics.Problem(activation=link, teacher=teacher, width=width, dimension=dimension)
    assert descent_limit(asked) == pytest.approx(expected, rel=1e-9)


def test_run_that_blows_up_says_so_and_keeps_what_came_before():
    problem = problem_of(initial_norm=1.0)
    rate = 3.0 * descent_limit(problem)
    times = rate * np.arange(200.0)
    system = OverlapSystem(problem)
    result = run(DescentStepper(problem, rate), times, system.observe)
    assert result.stop_reason is StopReason.NOT_FINITE
    assert 0.0 < result.end_time < times[-1]
    loss = result.records.columns["loss"][: len(result.records)]
    assert loss.size == round(result.end_time / rate) + 1
    assert np.isfinite(loss).all()
    assert loss[-1] > 1e6
