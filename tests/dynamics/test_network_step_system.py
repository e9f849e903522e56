"""Two-layer networks under SGD of a finite learning rate: one exact step by quadrature, sampled runs, refusals."""

import json
import math
import os

import numpy as np
import pytest
from gaussian_rules import broken, exact_to, grid_of, smooth
from kernel_calls import Kernels
from test_committee import order_parameters

import dynamics
import hermite
import sgd_check
from dynamics.equations.network.steps import NetworkStepSystem, ridge_units

STAIRS = dynamics.Teacher.polynomial("x1 + x1*x2 + x1*x2*x3")
UNITS = dynamics.Teacher([0.9, -0.7], directions=[[1.0, 0.0], [0.0, 1.0]], links=["relu", "sign"], biases=[0.3, -0.4])


FULL = "FULL_TESTS" in os.environ


def start(width=2, columns=3):
    """W_ij = .7 cos(1 + 2i + 3j), v_i = .8 cos(1 + 2i), b_i = .3 sin(1 + i)."""
    i = np.arange(width)
    W = 0.7 * np.cos(1 + 2 * i[:, None] + 3 * np.arange(columns))
    return W, 0.8 * np.cos(1 + 2 * i), 0.3 * np.sin(1 + i)


def question(teacher=STAIRS, dimension=3, columns=3, width=2, link="erf", label_noise=0.5, **changes):
    W, v, b = start(width, columns)
    given = {"activation": link, "width": width, "initial_second_layer": v, "biases": "trained", "initial_biases": b}
    student = dynamics.Student(**(given | changes))
    weights = np.pad(W, ((0, 0), (0, dimension - columns)))
    return dynamics.Problem(
        student=student, teacher=teacher, dimension=dimension, initial_weights=weights, label_noise=label_noise
    )


def target(teacher, x):
    if teacher.is_polynomial:
        return teacher.target.value(x[:, : teacher.span])
    units = teacher.units(hermite.expand("erf"))
    return sum(a * link.value(x[:, : theta.size] @ theta + beta) for a, link, theta, beta in units)


def mean_step(problem, rate, batch, grids, theory):
    """Means of (v, b, M, Q) after one step less before, over η, by quadrature over x in R^d."""
    x, measure = grid_of(grids)
    student, r = problem.student, problem.teacher.span
    v, b, W = problem.network_start()
    W = W[:, : problem.dimension]
    s, (rate_w, rate_v, rate_b), (decay_w, decay_v) = student.output_scale, student.learning_rates, student.decay
    at = x @ W.T + b
    value, slope = student.activation.value(at), student.activation.derivative(at)
    error = s * value @ v - target(problem.teacher, x)
    mean = rate_w * s * v[:, None] * ((measure * error * slope.T) @ x)
    square = np.sum(x**2, axis=1) if theory == "finite-d" else float(problem.dimension)
    noisy = measure * (error**2 + problem.label_noise**2) * square
    S = rate_w**2 * s**2 * np.outer(v, v) * ((noisy * slope.T) @ slope)
    dv = -rate_v * s * (measure * error) @ value - decay_v * v
    db = -rate_b * (student.biases == "trained") * s * v * ((measure * error) @ slope)
    if student.first_layer == "sphere":
        n = np.sum(W**2, axis=1)
        mean = mean - (np.sum(mean * W, axis=1) / n)[:, None] * W
        half = 0.5 * rate / batch * np.diag(S) / n
        dM = -mean - half[:, None] * W
        dQ = -mean @ W.T - W @ mean.T + rate / batch * S - (half[:, None] + half) * (W @ W.T)
    else:
        whole = mean + decay_w * W
        dM = -whole
        dQ = -whole @ W.T - W @ whole.T + rate * S / batch
        if theory == "finite-d":
            dQ += rate * (whole @ whole.T - mean @ mean.T / batch)
    return np.concatenate([dv, db, dM[:, :r].ravel(), dQ.ravel()])


POLYNOMIAL = {0: 0.2, 1: 0.5, 2: -0.3, 3: 0.4}
TILTED = [[1.0, 0.0], [0.6, 0.8]]
#: Neither the student nor the teacher has biases.
PLAIN = {"dimension": 2, "columns": 2, "biases": "none", "initial_biases": 1.0}


def units(links, directions, biases=None):
    teacher = dynamics.Teacher([0.9, -0.7, 0.5][: len(links)], directions=directions, links=links, biases=biases)
    return {"teacher": teacher, "dimension": 2, "columns": 2}


def text(target, link="erf"):
    return {"teacher": dynamics.Teacher.polynomial(target), "dimension": 2, "columns": 2, "link": link}


CASES = {
    "staircase": ({}, [smooth()] * 3, "finite-d"),
    "staircase, infinite-d": ({}, [smooth()] * 3, "infinite-d"),
    "units": ({"teacher": UNITS, "dimension": 2, "columns": 2}, [broken(-0.3), broken(0.4)], "finite-d"),
    "sphere": ({"first_layer": "sphere"}, [smooth()] * 3, "infinite-d"),
    "polynomial": ({"link": {1: 0.5, 2: -0.3, 3: 0.4}}, [exact_to(22)] * 3, "finite-d"),
    "relus on one axis": (units(["relu"] * 2, [[1.0, 0.0], [-1.0, 0.0]], [0.3, 0.5]), [broken(-0.3, 0.5), broken()], "finite-d"),
    "steps": (units(["step", "sign", "relu"], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0.3, -0.4, 0.3]), [broken(-0.3), broken(0.4)], "finite-d"),
    "sign, relu and polynomial": (units(["sign", "relu", {2: 0.5, 3: 0.4}], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0.0, 0.4, -0.3]), [broken(0.0), broken(-0.4)], "finite-d"),
    "no biases": (units(["relu", "sign", "erf"], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]) | PLAIN, [broken(0.0), broken(0.0)], "infinite-d"),
    "erf learns degree 6": (text("x1**4*x2**2"), [smooth()] * 2, "finite-d"),
    "erf learns degree 3": (text("h3(x1) - 0.3*h2(x1)*x2 + 1"), [smooth()] * 2, "infinite-d"),
    "polynomials": (text("x1 + x1*x2", POLYNOMIAL), [exact_to(20)] * 2, "finite-d"),
    "polynomials, units": (units(["he3", {1: 0.5, 2: 0.3}], TILTED, [0.2, 0.0]) | {"link": POLYNOMIAL}, [exact_to(20)] * 2, "finite-d"),
    "he3 learns he4": (units(["he4"], [[0.6, 0.8]]) | PLAIN | {"link": "he3"}, [exact_to(20)] * 2, "finite-d"),
    "he3, a bias": (units(["he3"], [[0.6, 0.8]], [0.4]) | {"link": "he3"}, [exact_to(20)] * 2, "infinite-d"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "grids", "theory"),
    [
        pytest.param(
            *case, id=name, marks=[pytest.mark.slow_to_compile] * (not name.startswith(("staircase", "sphere")))
        )
        for name, case in CASES.items()
    ],
)
@pytest.mark.parametrize("batch", [1, 3])
def test_velocity_is_the_mean_of_a_step(changes, grids, theory, batch):
    decay = (0.0, 0.2) if "first_layer" in changes else (0.1, 0.2)
    problem = question(scale=0.8, rates=(1.3, 0.5, 0.25), decay=decay, **changes)
    wanted = mean_step(problem, 0.2, batch, grids, theory)
    system = NetworkStepSystem(problem, learning_rate=0.2, step_theory=theory, batch_size=batch)
    found = Kernels(system).rhs()
    # Measured: 3e-15.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-14 * np.abs(wanted).max())
    assert np.abs(found - mean_step(problem, 0.0, batch, grids, theory)).max() > 0.01


def sampled(problem, rate, steps, runs, batch=1):
    """(v, b, M, Q) of runs of SGD from one start, shape (runs, N)."""
    found = sgd_check.simulate(
        problem, learning_rate=rate, steps=steps, batch_size=batch, seeds=runs, progress=False,
        save_at=dynamics.SaveAt.at([rate * steps]),
    ).isel(time=-1)  # fmt: skip
    M, Q = (part.reshape(runs, -1) for part in order_parameters(found))
    return np.concatenate([found.second_layer, found.bias, M, Q], axis=1)


def deviations(dimension, end, runs, batch=1, **changes):
    """Means of runs at η = 2/d less those of the equation and of the flow, and their standard errors."""
    problem = question(dynamics.Teacher.polynomial("x1 + x1*x2"), dimension, 4, label_noise=0.3, **changes)
    rate = 2.0 / dimension
    found = sampled(problem, rate, round(end / rate), runs, batch)
    options = {"save_at": dynamics.SaveAt.at([end]), "progress": False}

    def theory(**step):
        answer = dynamics.solve_network(problem, **options, **step)
        R, Q = (part.ravel() for part in order_parameters(answer))
        return np.concatenate([answer.second_layer.values[0], answer.bias.values[0], R, Q])

    mean = found.mean(axis=0)
    steps = theory(learning_rate=rate, batch_size=batch)
    return mean - steps, mean - theory(), found.std(axis=0, ddof=1) / np.sqrt(runs)


@pytest.mark.statistical
def test_means_of_sgd_approach_the_equation_like_one_over_d():
    """Fixed seeds; eleven means within 4.5 standard errors: false alarms 8e-5. Label noise 0.3."""
    near, _, first = deviations(100, 4.0, 800)
    far, flow, second = deviations(1000, 4.0, 24)
    assert np.abs(near).max() < 0.04
    assert np.abs((far - 0.1 * near) / np.hypot(second, 0.1 * first)).max() < 4.5
    assert np.abs(flow).max() > 1.0
    assert np.abs(far).max() < 0.1 * np.abs(flow).max()


@pytest.mark.statistical
def test_means_of_minibatches_follow_the_equation():
    """Fixed seeds; eleven means within 4.5 standard errors: false alarms 8e-5. One sample per step is rejected."""
    found, flow, error = deviations(60, 0.4, 1500, batch=3)
    assert np.abs(found / error).max() < 4.5
    assert np.abs(flow / error).max() > 15.0


AT = dynamics.SaveAt.at([0.0, 1.0, 2.0])


def solve(problem, **options):
    return dynamics.solve_network(problem, **({"save_at": AT, "progress": False} | options))


@pytest.mark.longer
def test_methods_agree_and_the_dataset_says_what_was_solved():
    problem = question(decay=(0.05, 0.02))
    step = {"learning_rate": 0.1, "batch_size": 2}
    found = solve(problem, method="explicit", **step)
    for method in ("bdf", "scipy:DOP853") if FULL else ("scipy:DOP853",):
        np.testing.assert_allclose(solve(problem, method=method, **step).loss, found.loss, rtol=0, atol=1e-6)
    assert (found.attrs["learning_rate"], found.attrs["step_theory"], found.attrs["batch_size"]) == (0.1, "finite-d", 2)
    stored = json.loads(found.attrs["parameters"])["solver"]
    assert (stored["learning_rate"], stored["step_theory"], stored["batch_size"]) == (0.1, "finite-d", 2)
    assert float(found.gram_margin.min()) > -1e-9
    assert abs(float(found.loss[-1] - solve(problem).loss[-1])) > 0.01


def test_neurons_on_the_sphere_keep_their_length():
    problem = question(first_layer="sphere")
    found = solve(problem, learning_rate=0.1)
    assert found.attrs["step_theory"] == "infinite-d"
    np.testing.assert_allclose(found.squared_norm, np.sum(start()[0] ** 2, axis=1)[None].repeat(3, axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"first_layer": "sphere"}, {"learning_rate": 0.1, "step_theory": "finite-d"}, "Argument `step_theory` must be 'infinite-d' for neurons on the sphere, whose mean step at finite d is no finite sum because it divides by a length, but is 'finite-d'."),
        ({"link": "relu"}, {"learning_rate": 0.1}, "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has neurons of relu: it is known for 'erf' and polynomials; `sgd_check.simulate` takes such steps."),
        ({}, {"batch_size": 2}, "Argument `batch_size` must be 1 unless `learning_rate` is given with a method other than 'gradient-descent', but is 2."),
        ({}, {"learning_rate": 0.0}, "Argument `learning_rate` must be finite and positive, but is 0.0."),
        ({}, {"step_theory": "finite-d"}, "Argument `step_theory` must be None unless `learning_rate` is given with a method other than 'gradient-descent', but is 'finite-d'."),
        ({}, {"method": "gradient-descent"}, "Argument `learning_rate` must be given for method='gradient-descent', but is None."),
        ({}, {"method": "gradient-descent", "learning_rate": 0.1, "error_estimate": True}, "Argument `error_estimate` must not be True for method 'gradient-descent', which has no tolerance."),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(changes, options, sentence):
    with pytest.raises(ValueError, match="Argument") as caught:
        solve(question(**changes), **options)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "text", ["x1", "2 + x1**2*x3 - 3*x2*x3", "x1*x2*x3*x4", "h4(x1)*h3(x2) + x1**7", "(x1 + x2)**4"]
)
def test_a_polynomial_is_the_sum_of_its_ridges(text):
    teacher = dynamics.Teacher.polynomial(text)
    x = np.random.default_rng(0).standard_normal((50, teacher.span))
    total = np.zeros(50)
    for coefficient, link, direction, bias in ridge_units(teacher.target.exponents, teacher.target.powers):
        assert (coefficient, bias) == (1.0, 0.0)
        assert np.linalg.norm(direction) == pytest.approx(1.0, abs=1e-15)
        means = np.array(link.numbers)
        series = means / np.sqrt([float(math.factorial(k)) for k in range(means.size)])
        total += hermite.expand(dict(enumerate(series))).value(x @ direction)
    np.testing.assert_allclose(total, teacher.target.value(x), rtol=1e-12, atol=1e-11)


REFUSED = {
    "teacher": ("erf", ["gelu"], "neurons of erf and a teacher of gelu: it is known for a teacher of 'erf', 'relu', 'step', 'sign' and polynomials"),
    "mixed": ("he3", ["erf"], "neurons of he3 and a teacher of erf: it is known for a teacher of polynomials"),
    "degree": ("he13", ["he2"], "polynomials of degree 13: it is known up to 12"),
}  # fmt: skip


@pytest.mark.parametrize(("link", "links", "words"), REFUSED.values(), ids=REFUSED)
def test_other_links_are_refused_by_name(link, links, words):
    with pytest.raises(ValueError, match="Argument `problem`") as caught:
        solve(question(link=link, **units(links, [[0.6, 0.8]])), learning_rate=0.1)
    assert str(caught.value) == (
        "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has "
        f"{words}; `sgd_check.simulate` takes such steps."
    )
