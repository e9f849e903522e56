"""Networks under any loss, labels that are classes and mixtures: means over points against quadrature in R^d.

Accepted numbers are of other programs: tensor quadrature of one unit, Gauss–Hermite 20⁴ of two.
"""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from gaussian_rules import gauss_grid
from kernel_calls import Kernels
from scipy.special import expit, log_softmax, ndtr, softmax

import dynamics
from dynamics.equations.network.points import BLOCKS, PointSystem
from dynamics.equations.network.steps import NetworkStepSystem
from dynamics.equations.network.system import NetworkSystem
from dynamics.solve import __main__ as solve

FAR = 10**6


def network(width=2, **changes):
    """Neurons with v_i = .8 cos(1 + 2i) and b_i = .3 sin(1 + i)."""
    i = np.arange(width)
    given = {"activation": "erf", "initial_second_layer": 0.8 * np.cos(1 + 2 * i), "biases": "trained"}
    return dynamics.Student(width=width, **(given | {"initial_biases": 0.3 * np.sin(1 + i)} | changes))


def problem_in(dimension, student, **changes):
    i, a = np.arange(student.width)[:, None], np.arange(min(dimension, 5))
    weights = 0.4 * np.cos(1 + 2 * i + 3 * a) + 0.3 * np.sin(1 + i**2 + 2 * i * a)
    return dynamics.Problem(student=student, dimension=dimension, initial_weights=weights, **changes)


def lone_unit(**changes):
    """A linear unit at M = 0, Q = 1, that learns the sign of z_1."""
    student = dynamics.Student(activation="he1", width=1, second_layer="fixed", initial_second_layer=[1.0])
    given = {"teacher": dynamics.Teacher([1.0], links=["he1"]), "objective": "logistic", "labels": "sign"}
    return dynamics.Problem(student=student, dimension=FAR, initial_weights=[[0.0, 1.0]], **(given | changes))


def at_times(problem, times, **arguments):
    return dynamics.solve_network(problem, save_at=dynamics.SaveAt.at(times), progress=False, **arguments)


def moments(answer, place, blocks=BLOCKS):
    """M and Q of an answer, from its overlaps and norms."""
    C, G, n = (answer[name].values[place] for name in ("teacher_overlap", "student_overlap", "squared_norm"))
    length = np.sqrt(n)
    return C * length[:, None], G * np.outer(length, length)


def test_a_logistic_unit_has_the_accepted_numbers():
    """c = 1: the step of 1/d as d grows."""
    answer = at_times(lone_unit(), [1.0, 5.0, 20.0], learning_rate=1.0 / FAR, step_theory="infinite-d", points=2**16)
    M = answer.teacher_overlap.values[:, 0, 0] * np.sqrt(answer.squared_norm.values[:, 0])
    np.testing.assert_allclose(M, [0.360338, 1.288398, 2.773392], rtol=0, atol=6e-5)
    np.testing.assert_allclose(answer.squared_norm.values[:, 0], [1.003417, 2.167433, 7.959607], rtol=0, atol=2e-4)
    np.testing.assert_allclose(answer.test_error.values, [0.382871, 0.160770, 0.058730], rtol=0, atol=1e-3)
    assert float(answer.loss_floor) == 0.0 == float(answer.bayes_error)
    assert 0.0 < float(answer.squared_norm_error[-1, 0]) < 3e-4


def test_two_erf_units_have_the_accepted_numbers():
    M, Q = np.array([[0.3, 0.1], [0.05, 0.2]]), np.array([[0.5, 0.1], [0.1, 0.6]])
    weights = np.hstack([M, np.linalg.cholesky(Q - M @ M.T)])
    student = dynamics.Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0])
    problem = dynamics.Problem(
        student=student, teacher=dynamics.Teacher([2.0, 2.0]), dimension=FAR, initial_weights=weights,
        objective="logistic", labels="bernoulli",
    )  # fmt: skip
    given = {"learning_rate": 1.0 / FAR, "step_theory": "infinite-d", "points": 2**18}
    answer = at_times(problem, [10.0, 40.0], **given)
    early, late = moments(answer, 0), moments(answer, 1)
    np.testing.assert_allclose(early[0].ravel(), [0.7811, 0.5925, 0.5387, 0.7204], rtol=0, atol=3e-4)
    np.testing.assert_allclose(early[1][np.triu_indices(2)], [1.4049, 0.8819, 1.3100], rtol=0, atol=3e-4)
    np.testing.assert_allclose(late[0].ravel(), [1.2054, 0.9404, 0.9081, 1.1713], rtol=0, atol=6e-4)
    np.testing.assert_allclose(late[1][np.triu_indices(2)], [2.9282, 2.1779, 2.7923], rtol=0, atol=1.5e-3)
    np.testing.assert_allclose(answer.loss.values, [0.5592, 0.5385], rtol=0, atol=1e-4)
    assert abs(float(answer.loss_floor) - 0.50036) < 1e-4


@pytest.mark.parametrize(
    ("theory", "batch", "changes", "noise"),
    [
        ("finite-d", 1, {}, 0.5),
        ("infinite-d", 3, {"decay": (0.05, 0.02)}, 0.3),
        ("finite-d", 4, {"decay": (0.05, 0.02), "scale": "1/m"}, 0.0),
        (None, 1, {"first_layer": "sphere", "biases": "none", "initial_biases": 1.0}, 0.0),
        ("infinite-d", 1, {"first_layer": "sphere", "rates": (2.0, 0.5, 1.5)}, 0.2),
    ],
)
def test_the_squared_loss_by_points_is_the_system_with_closed_means(theory, batch, changes, noise):
    """Largest difference of y' at 2^16 points 1.1e-4, and of the loss 5e-5."""
    teacher = dynamics.Teacher([1.0, -0.7], links=["erf", "erf"], biases=[0.2, 0.0])
    problem = problem_in(30, network(3, **changes), teacher=teacher, label_noise=noise)
    rate = None if theory is None else 0.02
    closed = NetworkSystem(problem) if theory is None else NetworkStepSystem(problem, rate, theory, batch)
    points = PointSystem(problem, rate, theory, batch, points=2**16)
    expected, found = Kernels(closed).rhs(), Kernels(points).rhs().reshape(BLOCKS, -1).mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1.4e-4 * max(1.0, np.abs(expected).max()))
    assert abs(points.loss(points.initial_state) - closed.loss(closed.initial_state)) < 2e-4
    assert np.abs(expected).max() > 0.05


# --- one mean step by quadrature in R^3 -------------------------------------------------------------------------------


def logistic(f, y):
    return np.logaddexp(0.0, -y * f), -y * expit(-y * f)


def hinge(f, y):
    u = y * f
    return np.where(u > 1, 0.0, np.where(u > 0, 0.5 * (1 - u) ** 2, 0.5 - u)), -y * np.clip(1 - u, 0.0, 1.0)


def exponential(f, y):
    return np.exp(-y * f), -y * np.exp(-y * f)


def huber(f, y):
    e = f - y
    return np.where(np.abs(e) < 1, 0.5 * e**2, np.abs(e) - 0.5), np.clip(e, -1.0, 1.0)


def correlation(f, y):
    return -y * f, -y + 0.0 * f


def own(f, y):
    return np.log(np.cosh(f - y)), np.tanh(f - y)


def softmax_loss(f, label):
    slope = softmax(f, axis=0)
    slope[label] -= 1.0
    return -log_softmax(f, axis=0)[label], slope


def labelled(problem, x, cluster):
    """Values of the labels of points x (N, d) of one cluster, and their weights, each a list of (value, weights)."""
    teacher, flip = problem.teacher, problem.flip
    units = np.array(
        [
            a * np.vectorize(lambda z: 2 * ndtr(z) - 1)(x[:, : t.size] @ t)
            for a, _, t, _ in teacher.units(problem.teacher_link)
        ]
    )
    if problem.labels == "cluster":
        label = int(problem.mixture.labels[cluster])
        others = sorted(set(problem.mixture.labels.tolist()) - {label})
        return [(label, 1 - flip), *((other, flip / len(others)) for other in others)]
    if problem.labels == "softmax":
        law = softmax(units, axis=0)
        law = (1 - flip) * law + flip * (1 - law) / (len(law) - 1)
        return list(enumerate(law))
    if problem.labels == "value":
        nodes, weights = np.polynomial.hermite_e.hermegauss(24)
        return [
            (units.sum(axis=0) + problem.label_noise * z, w)
            for z, w in zip(nodes, weights / weights.sum(), strict=True)
        ]
    up = expit(units.sum(axis=0) - problem.threshold)
    up = (1 - flip) * up + flip * (1 - up)
    return [(1, up), (-1, 1 - up)]


def mean_step(problem, loss, rate, batch, theory):
    """Means of (V, b, M, Q) after one step less before, over η, the mean loss, by quadrature over x in R^3."""
    grid, measure = gauss_grid(40, 3)
    student, r, mixture = problem.student, problem.teacher.span, problem.mixture
    V, b, W = problem.network_start()
    V, S = np.atleast_2d(V), student.output_scale
    means, shares, s = ([[0.0]], [1.0], 1.0) if mixture is None else (mixture.means, mixture.weights, mixture.snr)
    pulls = dict.fromkeys(("V", "b", "W", "WW", "loss"), 0.0)
    for cluster, (mean, share) in enumerate(zip(means, shares, strict=True)):
        x = grid / np.sqrt(s)
        x[:, : len(mean)] += mean
        h = x @ W.T + b
        value, slope = student.activation.value(h), student.activation.derivative(h)
        f = S * V @ value.T
        squares = np.sum(x**2, axis=1) if theory == "finite-d" else problem.dimension / s + 0.0 * x[:, 0]
        for label, weight in labelled(problem, x, cluster):
            told, g = loss(f if len(V) > 1 else f[0], label)
            g, w = np.atleast_2d(g), measure * weight * share
            q = S * (V.T @ g).T * slope
            pulls["loss"] += w @ told
            pulls["V"] += S * (w * g) @ value
            pulls["b"] += w @ q
            pulls["W"] += (w[:, None] * q).T @ x
            pulls["WW"] += (w[:, None] * q * squares[:, None]).T @ q
    rate_w, rate_v, rate_b = student.learning_rates
    decay_w, decay_v = student.decay
    pull, square = rate_w * pulls["W"], rate_w**2 * pulls["WW"]
    G = pull + decay_w * W
    dQ = -G @ W.T - W @ G.T
    if theory is not None:
        sample = square
        if theory == "finite-d":
            sample = square + decay_w * (pull @ W.T + W @ pull.T) + decay_w**2 * W @ W.T
        of_mean = G @ G.T if theory == "finite-d" else 0.0
        dQ = dQ + rate * (sample / batch + (1 - 1 / batch) * of_mean)
    dV, db = -rate_v * pulls["V"] - decay_v * V, -rate_b * pulls["b"]
    return np.concatenate([dV.ravel(), db, -G[:, :r].ravel(), dQ.ravel()]), pulls["loss"]


CLOUDS = dynamics.Mixture([[0.8, 0.1], [-0.6, 0.5]], labels=[1, -1], weights=[0.7, 0.3], snr=2.0)
THREE = dynamics.Mixture([[0.8, 0.1], [-0.6, 0.5], [0.0, -0.9]], labels=[0, 1, 2], snr=1.5)
UNITS = dynamics.Teacher([1.0, -0.8], links=["erf", "erf"])
THREE_UNITS = dynamics.Teacher([1.0, -0.8, 0.5], directions=[[1, 0], [0, 1], [0.6, 0.8]], links=["erf"] * 3)
ONES = np.array([[0.8, -0.5], [0.1, 0.6], [-0.4, 0.3]])


@pytest.mark.parametrize("theory", [None, "finite-d", "infinite-d"])
@pytest.mark.parametrize(
    ("objective", "loss", "changes"),
    [
        ("logistic", logistic, {"teacher": UNITS, "labels": "bernoulli", "flip": 0.1, "threshold": 0.3}),
        ("hinge", hinge, {"teacher": UNITS, "labels": "bernoulli"}),
        ("exponential", exponential, {"teacher": UNITS, "labels": "bernoulli"}),
        ("huber", huber, {"teacher": UNITS, "label_noise": 0.4}),
        ("correlation", correlation, {"teacher": UNITS, "labels": "bernoulli"}),
        (lambda f, y: own(f, y)[0], own, {"teacher": UNITS, "labels": "bernoulli"}),
        ("softmax", softmax_loss, {"teacher": THREE_UNITS, "labels": "softmax", "flip": 0.2}),
        ("logistic", logistic, {"inputs": CLOUDS, "flip": 0.05}),
        (
            "logistic",
            logistic,
            {"inputs": dynamics.Mixture(CLOUDS.means, snr=2.0), "teacher": UNITS, "labels": "bernoulli"},
        ),
        ("softmax", softmax_loss, {"inputs": THREE, "flip": 0.1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rates_are_one_mean_step_by_quadrature(objective, loss, changes, theory):
    """Quadrature is exact to 1e-6 but for the bends of hinge and Huber, 1e-4; 2^16 points to 3e-4."""
    student = network(
        2,
        decay=(0.05, 0.02),
        rates=(1.2, 0.7, 0.9),
        initial_second_layer=ONES if objective == "softmax" else [0.9, -0.6],
    )
    problem = problem_in(3, student, objective=objective, **changes)
    rate = None if theory is None else 0.3
    expected, mean_loss = mean_step(problem, loss, rate, 3, theory)
    system = PointSystem(problem, rate, theory, 3, points=2**16)
    found = Kernels(system).rhs().reshape(BLOCKS, -1).mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-4)
    assert abs(system.loss(system.initial_state) - mean_loss) < 3e-4
    assert np.abs(expected).max() > 0.04


def test_events_and_lengths_are_those_of_the_state():
    problem = problem_in(6, network(2, first_layer="sphere"), teacher=UNITS, objective="logistic", labels="sign")
    system = PointSystem(problem, points=2**10)
    system.set_half_levels()
    kernels = Kernels(system)
    rates = kernels.rhs().reshape(BLOCKS, -1)
    Q = rates[:, -4:].reshape(BLOCKS, 2, 2)
    np.testing.assert_allclose(Q[:, [0, 1], [0, 1]], 0.0, atol=1e-15)
    events = kernels.events().reshape(BLOCKS, 4)
    _, _, M, Q = (part[0] for part in system.unpack(system.initial_state))
    expected = (M**2 / np.diag(Q)[:, None]).max(axis=0) - 0.5
    np.testing.assert_allclose(events[:, :2], np.tile(expected, (BLOCKS, 1)), atol=1e-14)
    loss, error = system.totals(system.initial_state).T
    np.testing.assert_allclose(events[:, 2:].T, [-0.5 * loss, -0.5 * error], atol=1e-14)
    state = system.initial_state * 1.1
    np.testing.assert_allclose(
        system.unpack(kernels.normalised(state))[3][:, [0, 1], [0, 1]], np.tile(np.diag(Q), (BLOCKS, 1))
    )


# --- floors, errors of Bayes, and what is learned ---------------------------------------------------------------------


def test_errors_of_bayes_are_those_in_closed_form():
    q = ndtr(-np.sqrt(4.0 / 2))
    student = dynamics.Student(activation="relu", width=4)
    xor = dynamics.Problem(student=student, dimension=20, objective="logistic", inputs=dynamics.Mixture.xor(4.0))
    assert abs(PointSystem(xor).constants()["bayes_error"] - 2 * q * (1 - q)) < 2e-4
    two = replace(xor, inputs=dynamics.Mixture([[1.0], [-1.0]], [1, -1], [0.7, 0.3], 2.0), teacher=None, flip=0.1)
    log_odds = np.log(0.7 / 0.3)
    error = sum(
        share * ndtr(-(2 * 2.0 + sign * log_odds) / (2 * np.sqrt(2.0))) for share, sign in ((0.7, 1.0), (0.3, -1.0))
    )
    system = PointSystem(two)
    assert abs(system.constants()["bayes_error"] - (0.1 + 0.8 * error)) < 1e-12
    x = np.random.default_rng(1).standard_normal((2 * 10**6, 1)) / np.sqrt(2.0)
    labels = np.where(np.arange(x.size) < 0.7 * x.size, 1.0, -1.0)
    wrong = np.mean(np.sign(4.0 * (x[:, 0] + labels) + log_odds) != labels)
    assert abs(wrong - error) < 5 * np.sqrt(error / x.size)


@pytest.mark.parametrize(
    ("objective", "floor"), [("logistic", None), ("squared", None), ("hinge", None), ("exponential", None)]
)
def test_the_floor_is_the_least_mean_loss_of_any_output(objective, floor):
    """Per point by a grid of outputs of step 1/500."""
    problem = lone_unit(labels="bernoulli", objective=objective, flip=0.1)
    z, measure = gauss_grid(60, 1)
    up = 0.1 + 0.8 * expit(z[:, 0])
    f = np.linspace(-6.0, 6.0, 6001)[:, None]
    losses = {
        "logistic": logistic,
        "hinge": hinge,
        "exponential": exponential,
        "squared": lambda f, y: ((f - y) ** 2, 0),
    }
    least = (up * losses[objective](f, 1)[0] + (1 - up) * losses[objective](f, -1)[0]).min(axis=0)
    assert abs(PointSystem(problem).constants()["loss_floor"] - measure @ least) < 3e-5


def test_two_clusters_are_learned_to_twice_their_means_and_the_log_odds():
    """The best output is 2 s μ·x + ln(p_+/p_−): w = 4, b = .8473 for s = 2 and p = .7."""
    student = dynamics.Student(
        activation="he1", width=1, second_layer="fixed", initial_second_layer=[1.0], biases="trained",
        initial_biases=[0.0],
    )  # fmt: skip
    clouds = dynamics.Mixture([[1.0], [-1.0]], labels=[1, -1], weights=[0.7, 0.3], snr=2.0)
    problem = dynamics.Problem(student=student, dimension=20, objective="logistic", inputs=clouds, seed=1)
    answer = at_times(problem, [0.0, 2000.0])
    last = answer.isel(time=-1)
    length = np.sqrt(float(last.squared_norm[0]))
    assert 0.0 < float(last.squared_norm_error[0]) < 0.15
    assert abs(float(last.teacher_overlap[0, 0]) * length - 4.0) < 2e-3 + float(last.squared_norm_error[0]) / length
    assert abs(float(last.bias[0]) - 0.8473) < 2e-3 + 2.0 * float(last.bias_error[0])
    assert abs(float(last.loss) - float(answer.loss_floor)) < 3e-4
    assert abs(float(last.test_error) - float(answer.bayes_error)) < 1e-3
    assert 0.0 < float(answer.half_error_time) < float(answer.half_loss_time) < 2000.0


def test_tight_clusters_of_xor_are_classified_where_neurons_cover_all_of_them():
    """Neurons of sign ±1 turn to the nearest mean of their label: all are right if the four means are all taken.

    Their starts are small and balanced, |w| = |v|, so that signs stay. So the share of starts that classify all is that of maps of K neurons onto 4 means, 4!/4^4 = .094 for K = 4.
    """
    rng, clouds, outcomes = np.random.default_rng(5), dynamics.Mixture.xor(snr=100.0), []
    for covers in (True, False, True, False):
        for _ in itertools.count():
            signs, W = rng.choice([-1.0, 1.0], 4), rng.standard_normal((4, 2))
            axis = np.where(signs > 0, 0, 1)
            taken = {(a, np.sign(W[i, a])) for i, a in enumerate(axis)}
            if (len(taken) == 4) == covers:
                break
        student = dynamics.Student(activation="relu", width=4, initial_second_layer=signs * 0.1, decay=(0.05, 0.05))
        weights = np.pad(0.1 * W / np.linalg.norm(W, axis=1, keepdims=True), ((0, 0), (0, 1)))
        problem = dynamics.Problem(
            student=student, dimension=3, objective="logistic", inputs=clouds, initial_weights=weights
        )
        answer = at_times(problem, [0.0, 100.0], points=2**10, rtol=1e-2, atol=1e-2)
        outcomes.append(float(answer.test_error[-1]) < 0.01)
    assert outcomes == [True, False, True, False]


# --- answers ----------------------------------------------------------------------------------------------------------


def test_errors_of_points_are_of_the_size_of_the_differences_between_scrambles_and_many_points():
    problem = problem_in(30, network(2), teacher=UNITS, objective="logistic", labels="sign")
    few, many = (at_times(problem, [0.0, 4.0], points=count) for count in (2**12, 2**18))
    for name in ("loss", "squared_norm", "teacher_overlap", "second_layer", "bias"):
        difference = np.abs(few[name].values[-1] - many[name].values[-1])
        error = few[f"{name}_error"].values[-1]
        assert (difference <= 3.0 * error).all()
        assert (error < 0.05).all()
    assert "3.18 standard errors" in few.loss_error.attrs["long_name"]


def test_steps_follow_kinks_loosely_and_say_so():
    problem = problem_in(30, network(2, activation="relu"), teacher=UNITS, objective="logistic", labels="sign")
    answer = at_times(problem, [0.0, 2.0])
    assert "rtol is at least 0.001" in answer.attrs["notes"]
    assert answer.attrs["rhs_evaluations"] < 2000
    closer = at_times(problem, [0.0, 2.0], points=2**18)
    assert abs(float(answer.loss[-1] - closer.loss[-1])) < 3.0 * float(answer.loss_error[-1])


@pytest.mark.parametrize(
    "changes",
    [
        {"teacher": UNITS, "objective": "logistic", "labels": "sign", "flip": 0.1, "threshold": 0.2},
        {"inputs": CLOUDS, "objective": "hinge"},
        {"teacher": UNITS, "objective": lambda f, y: own(f, y)[0], "labels": "sign"},
        {"teacher": THREE_UNITS, "objective": "softmax", "labels": "softmax"},
    ],
)
def test_a_problem_comes_back_from_its_file_and_a_run_goes_on(changes, tmp_path):
    layer = ONES if changes["objective"] == "softmax" else [0.9, -0.6]
    problem = problem_in(6, network(2, initial_second_layer=layer), **changes)
    given = {"save_at": dynamics.SaveAt.linear(0.0, 3.0, 7), "progress": False, "points": 2**10}
    whole = dynamics.solve_problem(problem, **given)
    stop = dynamics.Callback(lambda time, state: time > 1.0)
    begun = dynamics.solve_problem(problem, trackers=[stop], checkpoint=tmp_path / "run.nc", **given)
    assert begun.attrs["stop_reason"] == "callback"
    resumed = dynamics.resume(tmp_path / "run.nc", progress=False)
    assert resumed.loss.equals(whole.loss)
    assert dynamics.Problem.from_dataset(dynamics.load(tmp_path / "run.nc")) == problem
    assert resumed.attrs["answer"] == "network"
    name = "output_layer" if changes["objective"] == "softmax" else "second_layer"
    assert np.isfinite(resumed[name].values).all()


def test_a_sweep_varies_flips():
    problem = problem_in(6, network(2), teacher=UNITS, objective="logistic", labels="sign")
    options = {"save_at": dynamics.SaveAt.linear(0.0, 2.0, 3), "points": 2**10}
    swept = dynamics.sweep(problem, {"flip": [0.0, 0.2]}, study="network", options=options, workers=0, progress=False)
    assert swept.bayes_error.values.tolist() == [0.0, 0.2]
    assert dynamics.Problem.from_dataset(swept.sel(flip=0.2)) == replace(problem, flip=0.2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "logistic"}, "Argument `labels` must be ±1 for the objective 'logistic', 'sign', 'bernoulli' or those of clusters, but is 'value'."),
        ({"objective": "softmax", "labels": "sign"}, "Argument `labels` must be classes 0 to C − 1 for the objective 'softmax', but 'sign' are −1 and 1 here."),
        ({"labels": "cluster"}, "Argument `labels` must be those of clusters only where `inputs` is a Mixture with labels, but is 'cluster'."),
        ({"labels": "sign", "label_noise": 0.1}, "Argument `label_noise` must be 0 for labels 'sign', but is 0.1; `flip` is noise of classes."),
        ({"labels": "sign", "flip": 0.7}, "Argument `flip` must be at most 0.5, but is 0.7."),
        ({"flip": 0.1}, "Argument `flip` must be 0 for labels 'value', but is 0.1."),
        ({"threshold": 0.1}, "Argument `threshold` must be 0 for labels 'value', but is 0.1."),
        ({"objective": "logistik"}, "Argument `objective` must be one of 'squared', 'correlation', 'logistic', 'hinge', 'huber', 'exponential', 'softmax', but is 'logistik'. Did you mean 'logistic'?"),
        ({"objective": own}, "Argument `objective` must return one number for each output, but 'own' returns shape (2, 256, 12) for shape (256, 12)."),
        ({"objective": "softmax", "labels": "softmax", "teacher": dynamics.Teacher([1.0] * 11)}, "Argument `labels` must have 2 to 10 classes for the objective 'softmax', but has 11."),
        ({"inputs": dynamics.Mixture([[1.0, 0.0, 0.0]]), "objective": "logistic", "labels": "sign"}, "Argument `inputs` must have means on the 2 axes of the teacher, whose `directions` may have further columns, but has 3."),
    ],
)  # fmt: skip
def test_a_problem_whose_parts_do_not_fit_is_refused(changes, message):
    with pytest.raises((TypeError, ValueError)) as refused:
        dynamics.Problem(
            **({"student": dynamics.Student(activation="erf", width=2), "teacher": UNITS, "dimension": 16} | changes)
        )
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"student": dynamics.Student(activation="erf", width=15)}, {}, "Argument `problem` must have at most 16 neurons and axes together, whose means are taken over points, but has 15 and 2."),
        ({}, {"points": 1000}, "Argument `points` must be at least 1024, but is 1000."),
        ({}, {"points": 1025}, "Argument `points` must be a power of two, but is 1025."),
        ({}, {"learning_rate": 0.1, "optimizer": "adam"}, "Argument `optimizer` must be plain SGD for means over points, but is Adam(); `sgd_check.simulate` takes such steps."),
        ({}, {"learning_rate": dynamics.cosine(0.1, 100)}, "Argument `learning_rate` must be one number for means over points, but is cosine(0.1, 100)."),
        ({}, {"error_estimate": True}, "Argument `error_estimate` must be None or False for means over points, whose scrambles give the errors, but is True."),
        ({"student": dynamics.Student(activation="sign", width=2)}, {}, "Argument `problem` must have a link without jumps where its argument is trained, since a sample has no gradient at a jump, but has sign."),
        ({"student": dynamics.Student(activation="erf", width=2, layer_wise=2.0), "objective": "squared", "labels": "value"}, {"points": 1024}, "Argument `points` must be None for a student that is trained layer by layer, whose means have closed forms, but is 1024."),
    ],
)  # fmt: skip
def test_what_points_do_not_know_is_refused(changes, arguments, message):
    given = {"student": dynamics.Student(activation="erf", width=2), "teacher": UNITS, "dimension": 32}
    problem = dynamics.Problem(**(given | {"objective": "logistic", "labels": "sign"} | changes))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dynamics.solve_network(problem, progress=False, **arguments)


@pytest.mark.parametrize("solve", [dynamics.solve_reused_data, dynamics.learning_rate_limit])
def test_other_theories_refuse_classes_by_name(solve):
    problem = problem_in(6, network(2), teacher=UNITS, objective="logistic", labels="sign")
    with pytest.raises(ValueError, match="must have `objective` 'squared' here, but has 'logistic'"):
        solve(
            problem,
            **({"learning_rate": 0.1, "samples": 10, "steps": 2} if solve is dynamics.solve_reused_data else {}),
        )


def test_steps_of_the_exponential_loss_warn_of_their_long_tails():
    problem = problem_in(6, network(2), teacher=UNITS, objective="exponential", labels="sign")
    with pytest.warns(UserWarning, match="steps of the exponential loss have long tails above 0.5"):
        at_times(problem, [0.0, 0.1], learning_rate=0.01, points=2**10)
    at_times(problem, [0.0, 0.1], points=2**10)  # a flow has no steps


# --- commands and pages -----------------------------------------------------------------------------------------------

SHORT = ["--width", "2", "--points", "1024", "--t-max", "2", "--save", "linear:5", "--no-progress"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--objective", "logistic", "--labels", "sign", "--flip", ".1", "--activation", "erf"], ["mean loss", "test error", "best 0.1"]),
        (["--mixture", "xor", "--snr", "4", "--objective", "hinge", "--activation", "erf"], ["of 2 axes", "best 0.14"]),
        (["--objective", "huber", "--activation", "erf", "--label-noise", ".1"], ["mean loss"]),
        (["--objective", "softmax", "--labels", "softmax", "--activation", "erf", "--directions", "3"], ["of 3 axes"]),
    ],
)  # fmt: skip
def test_a_command_solves_tells_and_draws(options, words, tmp_path, capsys):
    assert solve.main([*options, *SHORT, "--output", str(tmp_path / "run.nc")]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.nc", "run.png"]
    answer = dynamics.load(tmp_path / "run.nc")
    assert answer.attrs["points"] == 1024
    assert "mean loss" in str(dynamics.summary(answer))
    dynamics.write_report(answer, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What is learned" in page
    assert "half-way" in page
    assert "emergence_time_error" in dynamics.to_table(answer).columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--snr", "4"], "Option --snr must be absent without --mixture, but is 4.0."),
        (["--mixture", "xor", "--directions", "2"], "Option --directions must be absent where labels are those of clusters, but is 2."),
        (["--mixture", "xor", "--objective", "softmax"], "Option --labels must be classes 0 to C − 1 for the objective 'softmax', but 'cluster' are −1 and 1 here."),
        (["--objective", "logistic", "--activation", "erf"], "Option --labels must be ±1 for the objective 'logistic', 'sign', 'bernoulli' or those of clusters, but is 'value'."),
        (["--objective", "logistic", "--labels", "sign", "--optimizer", "adam", "--learning-rate", ".1"], "Option --optimizer must be plain SGD for means over points, but is Adam(); `sgd_check.simulate` takes such steps."),
    ],
)  # fmt: skip
def test_a_command_refuses_in_a_sentence(options, message, tmp_path, capsys):
    assert solve.main([*options, "--output", str(tmp_path / "run.nc")]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("loss", "end"),
    [
        (lambda f, y: 1 / 0, "failed: division by zero"),
        (lambda f: f, "failed: <lambda>() takes 1 positional argument but 2 were given"),
        (lambda f, y: "a", "must be an array of real numbers, but is 'a'."),
        (lambda f, y: 1j * f, "must be an array of real numbers, but is array"),
    ],
)
def test_a_loss_that_fails_or_is_no_real_number_is_refused_in_a_sentence(loss, end):
    with pytest.raises(TypeError, match=r"^Argument `objective` must take arrays of outputs and of labels") as caught:
        dynamics.Problem(
            student=dynamics.Student(activation="erf", width=2), teacher=dynamics.Teacher([1.0]), dimension=9,
            objective=loss, labels="sign",
        )  # fmt: skip
    assert end in str(caught.value)


def test_labels_of_a_teacher_need_one_beside_clusters():
    student = dynamics.Student(activation="erf", width=2)
    with pytest.raises(TypeError, match=r"^Argument `teacher` must be a Teacher, but is None\.$"):
        dynamics.Problem(
            student=student, dimension=20, inputs=dynamics.Mixture.xor(), objective="logistic", labels="sign"
        )


def test_the_stored_number_of_points_is_the_number_used():
    """Each of 5 clusters takes an eighth of a block's points, and at least a tile."""
    means = np.eye(5)
    mixture = dynamics.Mixture(means, [1, -1, 1, -1, 1])
    student = dynamics.Student(activation="erf", width=2)
    problem = dynamics.Problem(student=student, dimension=20, inputs=mixture, objective="logistic")
    answer = dynamics.solve_network(problem, points=2**14, t_max=0.1, progress=False)
    assert answer.attrs["points"] == 5 * 2**11
