"""The equation of a finite learning rate: exact moments, averaged SGD, its limits η → 0 and d → ∞, and its stability."""

import numpy as np
import pytest
import torch
from kernel_calls import Kernels
from torch.autograd.functional import jvp

import dynamics
import sgd_check
from dynamics import SolveError, StopReason, learning_rate_limit, moments_of_overlaps
from dynamics.equations.finite_step import FiniteStepSystem
from dynamics.equations.overlaps import OverlapSystem
from dynamics.integrators import stepper_of
from dynamics.runs.loop import run
from dynamics.solve.steps import StepSettings, checked_step, limit_of, step_notes, warn_limit
from dynamics.theory.learning_rates import descent_limit
from dynamics.theory.prediction import predict
from dynamics.theory.step_noise import escape_bias, means_of

kernels = pytest.mark.kernels

TILTED = dynamics.Teacher([1.0, 0.6], directions=[[1.0, 0.0], [0.6, 0.8]])
ORTHONORMAL = dynamics.Teacher([1.0, 0.6])
MIXED = {1: 0.3, 2: 0.6, 3: 0.3}


def problem_of(**settings):
    defaults = {"activation": MIXED, "teacher": TILTED, "width": 2, "dimension": 24, "initial_norm": 0.7, "seed": 3}
    return dynamics.Problem(**(defaults | settings))


def pair_of(link, overlap, squared_norm, dimension, *, label_noise=0.0):
    return dynamics.Problem(
        activation=link, teacher=dynamics.Teacher([1.0]), width=1, dimension=dimension,
        initial_overlaps=([[overlap]], [[1.0]], [squared_norm]), label_noise=label_noise,
    )  # fmt: skip


def integrated(system, times, method="explicit", rtol=1e-10):
    stepper = stepper_of(system, method, rtol=rtol, atol=0.01 * rtol)
    return run(stepper, np.asarray(times), system.observer("full"))


def state_at(system, time):
    columns = integrated(system, [time]).records.columns
    parts = (columns["teacher_overlap"][0], columns["student_overlap"][0], np.log(columns["squared_norm"][0]))
    return np.concatenate([np.ravel(part) for part in parts])


def coordinates(R, S):
    n = torch.diagonal(S)
    C, G = R / n.sqrt()[:, None], S / torch.outer(n, n).sqrt()
    return torch.cat([C.ravel(), G.ravel(), n.log()])


@pytest.mark.thorough
@kernels
@pytest.mark.parametrize("theory", ["finite-d", "infinite-d"])
@pytest.mark.parametrize(("teacher", "batch"), [(TILTED, 3), (ORTHONORMAL, 1)], ids=["tilted, B = 3", "orthonormal"])
def test_velocity_is_the_mean_step_in_the_coordinates_of_the_flow(theory, teacher, batch):
    """R' and S' of `one_step` (tested by quadrature), carried over by automatic differentiation. Measured 9e-16."""
    eta, problem = 0.05, problem_of(teacher=teacher, label_noise=0.4)
    system = FiniteStepSystem(problem, eta, theory, batch)
    C, G, n = system.unpack(system.initial_state)
    rho = np.sqrt(n)
    R, S = C * rho[:, None], G * np.outer(rho, rho)
    moments = moments_of_overlaps(problem, R, S, batch_size=batch)
    second = moments.student_second
    if theory == "infinite-d":
        second = problem.dimension * moments.student_second_per_dimension
    velocity = (moments.teacher_first, moments.student_first + eta * second)
    _, expected = jvp(coordinates, *(tuple(map(torch.tensor, pair)) for pair in ((R, S), velocity)))
    np.testing.assert_allclose(Kernels(system).rhs(), expected, rtol=0, atol=1e-12)


def averaged_sgd(problem, eta, steps, batch, runs):
    """R and S of independent runs of SGD."""
    found = sgd_check.simulate(
        problem, learning_rate=eta, steps=steps, batch_size=batch, seeds=runs, progress=False,
        save_at=dynamics.SaveAt.at([eta * steps]),
    ).isel(time=-1)  # fmt: skip
    rho = np.sqrt(found.squared_norm.values)[:, :, None]
    return rho * found.teacher_overlap.values, rho * found.student_overlap.values * rho.transpose(0, 2, 1)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("batch", "eta", "steps"), [(1, 0.002, 40), (3, 0.006, 12)])
def test_means_of_sgd_follow_the_equation_and_not_the_flow(batch, eta, steps):
    """Seven means per case within 4.5 standard errors: false-alarm rate 1e-4 for both. Tilted teacher, label noise.

    Measured: 0.97 and 0.80 standard errors with "finite-d", 4.5 and 3.6 with "infinite-d", 27 and 25 with the flow.
    """
    rng = np.random.default_rng(1)
    weights = 0.7 * rng.standard_normal((2, 24)) / np.sqrt(24)
    weights[0, 0] += 0.4
    problem = dynamics.Problem(
        activation=MIXED, teacher=TILTED, width=2, dimension=24, initial_weights=weights, label_noise=0.5
    )
    R, S = averaged_sgd(problem, eta, steps, batch, 12_000)
    found = np.concatenate([R.reshape(-1, 4), S.reshape(-1, 4)[:, [0, 1, 3]]], axis=1)

    def distances(system):
        C, G, n = system.unpack(state_at(system, eta * steps))
        rho = np.sqrt(n)
        products = [(C * rho[:, None]).ravel(), (G * np.outer(rho, rho)).ravel()[[0, 1, 3]]]
        return (found.mean(axis=0) - np.concatenate(products)) / (found.std(axis=0) / np.sqrt(len(found)))

    assert np.abs(distances(FiniteStepSystem(problem, eta, "finite-d", batch))).max() < 4.5
    assert np.abs(distances(OverlapSystem(problem))).max() > 10.0


@pytest.mark.parametrize("theory", ["finite-d", "infinite-d"])
def test_tends_to_the_flow_at_first_order(theory):
    """Measured orders 1.0015 and 1.0013."""
    problem = problem_of(label_noise=0.2)
    flow = state_at(OverlapSystem(problem), 2.0)
    rates = np.array([4e-5, 2e-5, 1e-5])
    errors = [np.abs(state_at(FiniteStepSystem(problem, eta, theory), 2.0) - flow).max() for eta in rates]
    assert np.polyfit(np.log(rates), np.log(errors), 1)[0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("link", "scale"),
    [
        ("he4", 0.98),
        ("he4", 1.02),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("he3", 0.98), ("he6", 1.02))),
    ],
)
def test_angle_of_a_converged_pair_shrinks_below_the_limit_and_grows_above(link, scale):
    """D = 1 − C² changes at the rate 2 g'(1) (c/c* − 1) of the linearised equation. Measured: 2e-5 of it."""
    d, start = 10**9, 1e-7
    problem = pair_of(link, np.sqrt(1.0 - start), 1.0, d)
    system = FiniteStepSystem(problem, scale * learning_rate_limit(problem), "infinite-d")
    C = state_at(system, 5.0)[0]
    rate = np.log((1.0 - C**2) / start) / 5.0
    slope = float(problem.activation.kernel_derivative(1.0))
    assert rate == pytest.approx(2.0 * slope * (scale - 1.0), rel=1e-3)


@pytest.mark.parametrize(
    ("k", "stable", "unstable", "method"),
    [
        (4, 0.0050, 0.0053, "explicit"),
        pytest.param(4, 0.0050, 0.0053, "bdf", marks=pytest.mark.long),
        pytest.param(3, 0.042, 0.044, "explicit", marks=pytest.mark.long),
        pytest.param(6, 6.8e-5, 7.2e-5, "explicit", marks=pytest.mark.long),
    ],
)
def test_search_blows_up_from_just_below_the_limit_on(k, stable, unstable, method):
    """Escape from C = 0.3 at η = c/d: c* is 0.0444, 0.00538, 7.2e-5, but excursions leave a little earlier."""
    d = 10**6
    problem = pair_of(f"he{k}", 0.3, 1e-4, d)
    assert stable < learning_rate_limit(problem) * d < 1.02 * unstable
    times = [0.0, 100.0]
    below = integrated(FiniteStepSystem(problem, stable / d, "infinite-d"), times, rtol=1e-8)
    assert below.stop_reason is StopReason.REACHED_END
    assert below.records.columns["loss"][-1] < 1e-9
    above = integrated(FiniteStepSystem(problem, unstable / d, "infinite-d"), times, method, rtol=1e-8)
    assert above.stop_reason is StopReason.NOT_FINITE
    assert 0.0 < above.end_time < 30.0


def test_label_noise_holds_a_converged_pair_at_its_floor():
    """Linearised at f = f*: 0 = −2 g' D + c (E σ'⁴ D + τ² g'), D = 1 − C². Measured 7e-8 of it at τ = 5e-3."""
    c, noise, d = 0.002, 5e-3, 10**9
    problem = pair_of("he4", np.sqrt(1.0 - 1e-7), 1.0, d, label_noise=noise)
    C = state_at(FiniteStepSystem(problem, c / d, "infinite-d"), 12.0)[0]
    floor = 4.0 * c * noise**2 / (8.0 - c * means_of(problem.activation, [(0, 4, 0)])[0])
    assert pytest.approx(floor, rel=1e-3) == 1.0 - C**2


def delay(problem, eta, theory):
    """Relative delay of emergence beside the flow, and that of the drift by quadrature."""
    prediction = predict(problem)
    times = [2.0 * prediction.predicted_emergence_time[0]]
    finite, flow = (
        integrated(system, times).event_times[0]
        for system in (FiniteStepSystem(problem, eta, theory), OverlapSystem(problem))
    )
    return finite / flow - 1.0, escape_bias(problem, eta, prediction).drift_bias[0]


@pytest.mark.parametrize("theory", ["finite-d", "infinite-d"])
def test_delay_is_that_of_the_drift_in_high_dimension(theory):
    """C' = b(C) − η B(C) by quadrature. At d = 16384 the ratio of the two delays is 0.9993 and 0.9989."""
    found, expected = delay(pair_of("he4", 0.25, 1e-8, 16384), 5e-4 / 16384, theory)
    assert found == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(("scaled", "least", "most"), [(0.03, 0.015, 0.024), (0.1, 0.055, 0.085)])
def test_delay_at_dimension_64_is_the_part_of_the_mean_in_that_of_sgd(scaled, least, most):
    """η d² = 0.03 and 0.1, h_4, C = 1/√d: 1.8 % and 6.4 %; with the covariance of R and S the drift has 2.4 and 8.4 %."""
    found, expected = delay(pair_of("he4", 0.125, 1e-4, 64), scaled / 64**2, "finite-d")
    assert least < found < expected < 1.35 * found
    assert expected < most


SCHEDULE = dynamics.SaveAt.linear(0.0, 6.0, 13)


@pytest.mark.parametrize("method", [pytest.param("bdf", marks=pytest.mark.long), "scipy:LSODA"])
def test_methods_agree(method):
    """Measured: 1.2e-10 with "bdf", 2.8e-9 with LSODA."""
    problem = problem_of(label_noise=0.3, width=3)
    solve = {"save_at": SCHEDULE, "progress": False, "learning_rate": 0.005, "batch_size": 2}
    one = dynamics.solve_overlaps(problem, method="explicit", **solve)
    other = dynamics.solve_overlaps(problem, method=method, **solve)
    assert other.attrs["method"] == method
    for name in ("teacher_overlap", "student_overlap", "squared_norm", "loss"):
        np.testing.assert_allclose(other[name], one[name], rtol=0, atol=3e-8)
    assert float(one.gram_margin.min()) > -1e-9
    np.testing.assert_array_equal(np.diagonal(one.student_overlap, axis1=1, axis2=2), 1.0)
    flow = dynamics.solve_overlaps(problem, method="explicit", save_at=SCHEDULE, progress=False)
    assert np.abs(flow.loss - one.loss).max() > 0.01
    np.testing.assert_array_equal(flow.predicted_loss, one.predicted_loss)


@pytest.mark.parametrize(
    ("link", "excess", "limit"),
    [("he4", 3.0, "5.061e-05"), pytest.param("he3", 1.5, "0.0004164", marks=pytest.mark.long)],
)
def test_run_above_the_limit_warns_before_and_is_reported_after(link, excess, limit):
    problem = pair_of(link, 0.5, 0.5, 100)
    solve = {"save_at": SCHEDULE, "progress": False, "step_theory": "infinite-d"}
    rate = excess * learning_rate_limit(problem)
    with (
        pytest.warns(RuntimeWarning, match=f"loses stability from learning rate {limit} on"),
        pytest.raises(SolveError, match=r"stopped at t = .* \(not_finite\)") as caught,
    ):
        dynamics.solve_overlaps(problem, learning_rate=rate, **solve)
    partial = caught.value.dataset
    assert partial.attrs["stop_reason"] == "not_finite"
    assert 0 < np.isfinite(partial.loss).sum() < len(SCHEDULE)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None, "auto", "finite-d"), ValueError, "Argument `step_theory` must be None unless `learning_rate` is given"),
        ((0.1, "gradient-descent", "finite-d"), ValueError, "Argument `step_theory` must be None unless"),
        ((0.1, "auto", "exact"), ValueError, "Argument `step_theory` must be one of .* but is 'exact'"),
        ((None, "auto", None, 2), ValueError, "Argument `batch_size` must be 1 unless .* but is 2"),
        ((0.1, "auto", None, 0), ValueError, "Argument `batch_size` must be at least 1"),
        ((0.1, "auto", None, 1.5), TypeError, "Argument `batch_size` must be an integer"),
        ((-0.1, "auto"), ValueError, "Argument `learning_rate` must be finite and positive"),
        (("fast", "auto"), TypeError, "Argument `learning_rate` must be a real number"),
    ],
)
def test_settings_without_effect_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        checked_step(*arguments)


def test_links_without_exact_moments_are_refused():
    with pytest.raises(ValueError, match=r"Argument `problem` must have a polynomial link .* but has relu"):
        FiniteStepSystem(problem_of(activation="relu"), 0.1, "finite-d")


def test_limit_lies_between_that_of_single_samples_and_that_of_descent():
    problem = problem_of(activation="he4", teacher=ORTHONORMAL, dimension=100)
    single = learning_rate_limit(problem)
    assert limit_of(problem, StepSettings()) is None
    assert limit_of(problem, StepSettings(0.1)) == descent_limit(problem)
    assert limit_of(problem, StepSettings(0.1, "finite-d")) == single
    assert limit_of(problem, StepSettings(0.1, "infinite-d", 8)) == learning_rate_limit(problem, batch_size=8)
    assert limit_of(problem, StepSettings(0.1, "finite-d", 8)) == learning_rate_limit(problem, batch_size=8)
    assert single < learning_rate_limit(problem, batch_size=8) < 8 * single
    assert limit_of(problem, StepSettings(0.1, "finite-d", 10**9)) == pytest.approx(descent_limit(problem), rel=1e-4)
    oblique = problem_of(activation="he4")
    unknown = StepSettings(0.1, "finite-d")
    assert limit_of(oblique, unknown) == learning_rate_limit(oblique)
    warn_limit(unknown, None)
    assert "no limit is known" in step_notes(oblique, unknown, None, None)[0]
    with pytest.warns(RuntimeWarning, match="Gradient descent loses stability"):
        warn_limit(StepSettings(0.5), 0.5)


def test_notes_tell_of_trapped_directions():
    """At η d² = 20 the noise of h_4 outweighs the drift at 1/√d: B/b = η d V C/(2 a g' (1 − C²)) > 1."""
    problem = pair_of("he4", 0.125, 1e-4, 64)
    settings = StepSettings(20.0 / 64**2, "finite-d")
    assert any(
        "keep 1 directions from emerging" in note for note in step_notes(problem, settings, 1.0, predict(problem))
    )


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan])
def test_the_delay_by_a_step_needs_a_positive_one(rate):
    problem = pair_of("he4", 0.25, 1e-8, 64)
    with pytest.raises(ValueError, match="`learning_rate` must be"):
        escape_bias(problem, rate, predict(problem))
