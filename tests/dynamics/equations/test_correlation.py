"""One neuron, one direction, the correlation: against numbers of the page, quadrature, and differences in weight space."""

import re

import numpy as np
import pytest
from gaussian_rules import gauss_rule
from scipy import special

import dynamics
from dynamics.equations.correlation import chi_square_rule, gradient_table, signal_slope, step_means
from dynamics.problem.question import KINDS
from dynamics.solve.registry import ANSWERS
from dynamics.theory.correlation import largest_rate, mean_time
from dynamics.theory.prediction import predict
from dynamics.theory.step_noise import correlation_bias, escape_bias

TEACHER = dynamics.Teacher([1.0])


def problem(k=3, smoothing=0.0, d=64, C=None, **given):
    overlap = d**-0.5 if C is None else C
    return dynamics.Problem(
        **{"activation": f"he{k}", "teacher": TEACHER} | given, width=1, dimension=d, student="spherical",
        objective="correlation", smoothing=smoothing, initial_overlaps=([[overlap]], [[1.0]], [1.0]),
    )  # fmt: skip


def mean_step(asked, C):
    return np.polynomial.polynomial.polyval(C, signal_slope(asked)) * (1.0 - C**2)


@pytest.mark.parametrize(
    ("k", "smoothing", "d", "C", "drift", "drag"),
    [(3, 2.0, 20, 0.3, 0.059502475008, 1.908900761), (4, 1.5, 20, 0.4, 0.0470295359701, 9.822707117)],
)
def test_means_of_a_step_are_those_of_the_page(k, smoothing, d, C, drift, drag):
    asked = problem(k, smoothing, d)
    means = step_means(asked)
    assert mean_step(asked, C) == pytest.approx(drift, rel=1e-11)
    assert means.drag(C) == pytest.approx(drag, rel=1e-9)


@pytest.mark.parametrize(
    ("given", "smoothing", "d"),
    [
        ({"k": 3}, 2.0, 20),
        ({"k": 4}, 1.5, 20),
        ({"activation": {2: 1.0, 5: 1.0}, "teacher_activation": {2: 0.5, 4: -1.0}, "teacher": dynamics.Teacher([0.7])}, 0.8, 10**6),
        ({"k": 3}, 0.0, 2),
    ],
)  # fmt: skip
def test_the_closed_drift_is_the_mean_of_the_gradient(given, smoothing, d):
    """The kernel g_λ and the table ψ are derived apart; Gauss' rules join them, in whichever basis y is written."""
    asked = problem(smoothing=smoothing, d=d, label_noise=0.3, **given)
    table, means, a = gradient_table(asked), step_means(asked), asked.teacher.coefficients[0]
    nodes, weights = gauss_rule(16)
    squares, shares = chi_square_rule(d - 2, 12)
    z, v, chi = np.meshgrid(nodes, nodes, squares, indexing="ij")
    mass = weights[:, None, None] * weights[:, None] * shares
    r2 = v**2 + chi
    psi = np.polynomial.polynomial.polyval2d(z, r2, table)
    for C in (-0.9, 0.05, 0.6):
        s = np.sqrt(1.0 - C * C)
        y = a * asked.teacher_link.value(C * z + s * v)
        scale = np.sqrt(np.sum(mass * y**2) * np.sum(mass * psi**2))
        assert mean_step(asked, C) == pytest.approx(np.sum(mass * y * psi * s * v), abs=1e-12 * scale)
        square = (y**2 + 0.09) * psi**2
        assert means.drag(C) == pytest.approx(np.sum(mass * square * r2), rel=1e-12)
        assert means.spread(C) == pytest.approx(np.sum(mass * square * v**2), rel=1e-12)


def test_the_gradient_is_that_of_the_smoothed_neuron_in_weight_space(rng):
    d, smoothing = 5, 1.3
    asked = problem(4, smoothing, d)
    # ζ, a coordinate of the sphere in R^4, has density ∝ (1 − ζ²)^½.
    zeta, share = special.roots_gegenbauer(6, 1.0)
    share = share / share.sum()

    def value(w, x):
        z = w @ x
        beside = np.sqrt(x @ x - z * z)
        return share @ asked.activation.value((z + smoothing * beside * zeta) / np.sqrt(1.0 + smoothing**2))

    w, x = rng.standard_normal((2, d))
    w /= np.linalg.norm(w)
    turn = rng.standard_normal(d)
    turn -= (turn @ w) * w
    turn /= np.linalg.norm(turn)
    step = 1e-5
    ends = [value(w * np.cos(angle) + turn * np.sin(angle), x) for angle in (step, -step)]
    z = w @ x
    psi = np.polynomial.polynomial.polyval2d(z, x @ x - z * z, gradient_table(asked))
    assert psi * (turn @ x) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-7)


@pytest.mark.parametrize(("k", "smoothing", "time"), [(3, 0.0, 2.1412163), (4, 64**0.25, 85.9678485)])
def test_flow_times_are_those_of_the_page(k, smoothing, time):
    assert mean_time(problem(k, smoothing), level=0.5) == pytest.approx(time, rel=1e-7)


@pytest.mark.parametrize(("k", "slopes"), [(3, (2.0065, 1.7591, 1.5299)), (4, (2.9998, 2.5271, 2.0702))])
def test_flow_slopes_are_those_of_the_page(k, slopes):
    d = np.array([1e3, 1e4, 1e5, 1e6])
    for exponent, expected in zip((0.0, 0.125, 0.25), slopes, strict=True):
        smoothing = d**exponent if exponent else 0.0 * d
        times = [mean_time(problem(k, lam, int(n)), level=0.5) for lam, n in zip(smoothing, d, strict=True)]
        samples = np.array(times) * d ** (k / 2 + exponent * (2 - 2 * k))
        assert np.polyfit(np.log(d), np.log(samples), 1)[0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.thorough
@pytest.mark.kernels
def test_integrated_and_predicted_times_are_one():
    asked = problem(3, 2.0, C=-0.1)  # through 0, where a smoothed odd link still pulls
    flow = dynamics.solve_problem(asked, progress=False)
    assert flow.attrs["answer"] == "correlation"
    predicted = dynamics.predict_emergence(asked)
    for name in ("emergence_time", "learned_time"):
        np.testing.assert_allclose(flow[name], predicted[f"predicted_{name}"], rtol=1e-7)
        np.testing.assert_array_equal(flow[f"predicted_{name}"], predicted[name])
    assert abs(flow.emergence_time - flow.predicted_emergence_time) <= 10 * flow.emergence_time_error
    np.testing.assert_allclose(predicted.loss[[0, -1]], [2.0 + 2e-3, 0.0], atol=1e-12)
    stepped = dynamics.solve_problem(asked, learning_rate=4e-3, batch_size=2, progress=False, method="bdf")
    assert float(stepped.emergence_time[0]) == pytest.approx(mean_time(asked, 4e-3, 2), rel=1e-6)
    assert stepped.emergence_time > 1.02 * flow.emergence_time
    # At rest the drift and the drag of the steps are equal.
    C = float(stepped.teacher_overlap[-1, 0, 0])
    means = step_means(asked)
    drift = mean_step(asked, C)
    drag = means.drag(C) / 2 + drift**2 / (1 - C * C) / 2
    assert drift == pytest.approx(2e-3 * C * drag, rel=1e-5)


@pytest.mark.kernels
def test_without_smoothing_the_flow_is_that_of_a_pair():
    """The norm of a light homogeneous neuron does not act on its direction."""
    pair = dynamics.Problem(
        activation="he4", teacher=TEACHER, width=1, dimension=64, initial_overlaps=([[-0.2]], [[1.0]], [1e-12])
    )
    other = predict(problem(4, C=-0.2))
    np.testing.assert_allclose(other.predicted_emergence_time, predict(pair).predicted_emergence_time, rtol=1e-9)
    np.testing.assert_allclose(other.leading_order_time, predict(pair).leading_order_time, rtol=1e-12)
    assert np.isinf(predict(problem(3, C=-0.2)).predicted_emergence_time[0])
    assert predict(problem(3, C=0.8)).predicted_emergence_time[0] == 0.0


def test_delay_and_scatter_at_leading_order():
    asked = problem(3, 64**0.25)
    time = mean_time(asked)
    bias = escape_bias(asked, 1e-6, predict(asked))
    assert bias.drift_bias[0] == pytest.approx(mean_time(asked, 1e-6) / time - 1.0, rel=1e-5)
    limit = largest_rate(asked)
    assert np.isfinite(mean_time(asked, 0.99 * limit))
    assert np.isinf(mean_time(asked, 1.01 * limit))
    assert correlation_bias(asked, 1.01 * limit, time).trapped[0]
    assert correlation_bias(problem(activation="tanh"), 1e-3, 1.0).notes


def test_other_answers_refuse_the_objective_by_name():
    asked = problem(3, 2.0)
    sentence = (
        "Argument `problem` must have `objective` 'squared' here, but has 'correlation', which is not known there."
    )
    gaussian = [answer for answer in ANSWERS if answer.students[0] not in KINDS]
    others = [answer for answer in gaussian if "objective" not in answer.fields]
    assert len(others) == len(gaussian) - 3
    reused = {"samples": 8, "learning_rate": 0.1, "steps": 1}
    needed = {"chaos": {"widths": [2, 4]}, "reused-data": reused}
    for answer in others:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            answer.solve()(asked, **needed.get(answer.name, {}))
    with pytest.raises(ValueError, match=r"^Argument `problem` must have `objective` 'squared' here"):
        dynamics.learning_rate_limit(asked)
    plain = dynamics.Problem(activation="he3", teacher=TEACHER, width=1, dimension=8, student="spherical")
    with pytest.raises(ValueError, match=r"^Argument `problem` must have `objective` 'correlation' here, but has 'squ"):
        dynamics.solve_correlation(plain)


BASE = {"activation": "he3", "teacher": TEACHER, "width": 1, "dimension": 8, "student": "spherical"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"smoothing": -1.0}, "Argument `smoothing` must be finite and at least 0, but is -1.0."),
        ({"smoothing": 2.0}, "Argument `smoothing` must be 0 for the objective 'squared', but is 2.0."),
        ({"objective": "hinge"}, "Argument `objective` must be 'squared' or 'correlation' for the spherical student, but is 'hinge'."),
        ({"objective": "correlation", "width": 2}, "Argument `width` must be 1 for the objective 'correlation', but is 2."),
        ({"objective": "correlation", "student": "homogeneous"}, "Argument `objective` must be 'squared' for the homogeneous student, but is 'correlation'."),
        ({"objective": "correlation", "teacher": dynamics.Teacher([0.5, 0.5])}, "Argument `teacher` must have one direction for the objective 'correlation', but has 2."),
        ({"objective": "correlation", "dimension": 1}, "Argument `dimension` must be at least 2 for the objective 'correlation', but is 1."),
    ],
)  # fmt: skip
def test_bad_fields_are_refused_in_a_sentence(given, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        dynamics.Problem(**{**BASE, **given})


@pytest.mark.parametrize(
    ("given", "arguments", "start"),
    [
        ({"activation": "he13", "smoothing": 1.0}, {}, "Argument `activation` must have a degree of at most 12 to be smoo"),
        ({"activation": "tanh"}, {"learning_rate": 1e-3}, "Argument `activation` must be a polynomial for exact means"),
        ({}, {"step_theory": "infinite-d"}, "Argument `step_theory` must be 'finite-d' for the objective 'correlation'"),
    ],
)  # fmt: skip
def test_what_cannot_be_solved_is_refused_before_any_work(given, arguments, start):
    with pytest.raises(ValueError, match=f"^{start}"):
        dynamics.solve_problem(problem(**given), progress=False, **arguments)


# --- zeroth order -----------------------------------------------------------------------------------------------------

ZEROTH = [
    (problem(2, d=9, label_noise=0.4), 0.4, 1, 1),
    (problem(activation={1: 0.6, 2: 1.0}, teacher_activation={1: 1.0, 2: 0.5, 3: 0.1}, d=7), -0.3, 3, 4),
]


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("asked", "C", "directions", "batch"), ZEROTH)
def test_means_of_zeroth_order_are_those_of_draws(asked, C, directions, batch):
    """E|u|² and the mean and the variance of u along θ_⊥, of 4e5 draws; |z| < 4.5 is a false-alarm rate below 3e-5."""
    rng, d, runs = np.random.default_rng(6), asked.dimension, 400_000
    x = rng.standard_normal((runs, batch, d))  # w is the first axis, θ_⊥ the second
    y = asked.teacher_link.value(C * x[..., 0] + np.sqrt(1 - C * C) * x[..., 1])
    y += asked.label_noise * rng.standard_normal(y.shape)
    gradient = np.einsum("nb,nbd->nd", y * asked.activation.derivative(x[..., 0]), x) / batch
    step = np.zeros((runs, d))
    for _ in range(directions):
        z = rng.standard_normal((runs, d))
        step += np.sum(gradient * z, axis=1, keepdims=True) * z / directions
    means, pull = step_means(asked, directions, batch), mean_step(asked, C) / (1 - C * C)
    size = means.drag(C) / batch + (1 - 1 / batch) * means.drift_share * pull**2 * (1 - C * C)
    drift = pull * np.sqrt(1 - C * C)
    square = (means.spread(C) - drift**2) / batch + drift**2
    for found, expected in ((np.sum(step[:, 1:] ** 2, axis=1), size), (step[:, 1], drift), (step[:, 1] ** 2, square)):
        assert found.mean() == pytest.approx(expected, abs=4.5 * found.std() / np.sqrt(runs))
        assert abs(expected) > 10 * found.std() / np.sqrt(runs)


def test_one_of_very_many_directions_is_sgd():
    asked, C = problem(3, d=20, label_noise=0.2), 0.3
    plain, many = step_means(asked), step_means(asked, 10**9, 1)
    assert many.drag(C) == pytest.approx(plain.drag(C), rel=1e-6)
    assert many.spread(C) == pytest.approx(plain.spread(C), rel=1e-6)
    assert largest_rate(asked, directions=10**9) == pytest.approx(largest_rate(asked), rel=1e-6)
    assert largest_rate(asked, directions=1) < largest_rate(asked) / 15


@pytest.mark.kernels
@pytest.mark.parametrize("batch", [1, 3])
def test_mean_steps_of_zeroth_order_are_integrated(batch):
    asked, rate = problem(3, d=32, C=0.35), 5e-5 * batch
    found = dynamics.solve_correlation(
        asked, learning_rate=rate, batch_size=batch, optimizer=dynamics.ZerothOrder(directions=2), progress=False
    )
    time = mean_time(asked, rate, batch, directions=2)
    assert float(found.emergence_time[0]) == pytest.approx(time, rel=1e-6)
    assert time > 1.05 * mean_time(asked, rate, batch)
    np.testing.assert_allclose(found.step, found.time / rate)
    assert found.attrs["optimizer"] == "ZerothOrder(directions=2)"


@pytest.mark.parametrize(
    ("given", "optimizer", "start"),
    [
        ({}, "adam", "Argument `optimizer` must be plain SGD or ZerothOrder for the objective 'correlation', as buffers"),
        ({}, dynamics.SGD(momentum=0.5), "Argument `optimizer` must be plain SGD or ZerothOrder for the objective"),
        ({}, dynamics.ZerothOrder(smoothing=0.1), "Argument `optimizer` must have `smoothing` 0 for the objective"),
        ({"smoothing": 2.0}, "zeroth-order", "Argument `smoothing` must be 0 for steps of zeroth order on the correlation"),
    ],
)  # fmt: skip
def test_other_optimizers_are_refused_with_the_reason(given, optimizer, start):
    with pytest.raises(ValueError, match=f"^{re.escape(start)}"):
        dynamics.solve_correlation(problem(**given), learning_rate=1e-3, optimizer=optimizer, progress=False)
