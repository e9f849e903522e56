"""The limit of the learning rate under optimizers and along random directions, against maps and runs in R^d."""

import re

import numpy as np
import pytest
from scipy.linalg import solve_sylvester

import dynamics
import hermite
from dynamics import Problem, Teacher
from dynamics.equations.correlation import step_means
from dynamics.solve.steps import checked_step, limit_of
from dynamics.theory.learning_rates import quick_limit, resolved_rate, stable_rate
from dynamics.theory.stability import network_limit, reached_state
from dynamics.theory.step_noise import means_of


def linear(d):
    """Return linear regression in R^d: a committee of one neuron of the link z."""
    return Problem(activation={1: 1.0}, teacher=Teacher([1.0]), width=1, dimension=d, student="committee")


def spectral_radius(step):
    return np.abs(np.linalg.eigvals(step)).max()


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (7, 1), (7, 5), (3, 400)])
def test_linear_regression_along_random_directions(batch, count):
    """E|δ|² of means over B samples and K directions: all factors are known."""
    d = 30
    found = dynamics.learning_rate_limit(linear(d), batch_size=batch, optimizer=dynamics.ZerothOrder(directions=count))
    assert found == pytest.approx(2.0 * batch * count / ((d + 1 + batch) * (d + 1 + count)), rel=1e-12)
    assert dynamics.learning_rate_limit(linear(d)) == pytest.approx(2.0 / (d + 2), rel=1e-12)


def test_dampening_nesterov_and_averages():
    plain = dynamics.learning_rate_limit(linear(30))
    for optimizer, factor in (
        ("SGD(momentum=0.8, dampening=0.5)", 0.4),
        ("SGD(momentum=0.8, nesterov=True)", 0.2),
        ("SGD(average=0.1)", 1.0),
        ("SGD(momentum=0.8, average='polyak')", 0.2),
    ):
        found = dynamics.learning_rate_limit(linear(30), optimizer=optimizer)
        assert found == pytest.approx(factor * plain, rel=1e-14), optimizer


def limit_of_the_matrix(problem, batch, count):
    """Return the limit along `count` random directions by the matrix of squares D_i of neurons, in units of 1/a_i."""
    a, d, slope = problem.teacher.coefficients, problem.dimension, float(problem.activation.kernel_derivative(1.0))
    own = np.full((a.size, a.size), slope**2)
    np.fill_diagonal(own, means_of(problem.activation, [(0, 4, 0)]))
    noise = a[:, None] * (d * own / batch + (1.0 - 1.0 / batch) * slope**2 * np.eye(a.size))
    noise = d * np.ones(own.shape) @ noise / count + (1.0 + 1.0 / count) * noise
    return 1.0 / spectral_radius(noise / (2.0 * slope))


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (5, 1), (1, 2000), (100, 10), (5, 10**13)])
def test_decoupled_neurons_along_random_directions_are_those_of_the_whole_matrix(batch, count):
    """Squares of three neurons by the whole matrix as d → ∞, where all other moments are of order 1/d."""
    problem = Problem(activation="he4", teacher=Teacher([0.8, 0.6, 0.3]), width=3, dimension=2 * 10**9)
    optimizer = dynamics.ZerothOrder(directions=count)
    found = dynamics.learning_rate_limit(problem, batch_size=batch, optimizer=optimizer)
    assert found == pytest.approx(limit_of_the_matrix(problem, batch, count), rel=1e-7)
    if count == 10**13:
        assert found == pytest.approx(dynamics.learning_rate_limit(problem, batch_size=batch), rel=2e-3)


def test_inputs_along_random_directions_are_those_of_weights():
    """One direction on axis 1 of six, of other eigenvalues: squares E w_l² by draws of x; isotropic ones as without."""
    link, s = hermite.expand("he3"), np.array([1.5, 1.0, 1.0, 0.7, 0.5, 0.3])
    problem = Problem(
        activation="he3", teacher=Teacher([1.0]), width=1, dimension=6, inputs=dynamics.Inputs(s.tolist())
    )
    found = dynamics.learning_rate_limit(problem, optimizer=dynamics.ZerothOrder(directions=2))
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    weights = weights / weights.sum()
    value, slope = link.value(nodes), link.derivative(nodes)
    # ∂f/∂w_1 = 2σ(g) √s_1, ∂f/∂w_l = σ'(g) √s_l g_l: E of products of squares, g_l normal and independent of g.
    own = np.array([2.0 * value, *[slope] * 5]) ** 2
    normal = np.ones((6, 6)) + 2.0 * np.eye(6)
    normal[0], normal[:, 0] = 1.0, 1.0
    second = np.outer(s, s) * normal * (own * weights @ own.T)
    second = np.ones((6, 6)) @ second / 2.0 + 1.5 * second
    drift = 2.0 * s * (own @ weights)
    assert found == pytest.approx(1.0 / spectral_radius(second / drift[:, None]), rel=1e-8)


@pytest.mark.parametrize(
    ("count", "dimension", "inputs"), [(500, 10**9, None), (300, 10**9, dynamics.Inputs([1.0], [10**9]))]
)
def test_limits_along_random_directions_of_coefficients_of_very_unlike_sizes(count, dimension, inputs):
    """The squares of weak neurons are 10^151 times those of strong ones."""
    teacher = Teacher.geometric(count, 0.5)
    problem = Problem(activation="he4", teacher=teacher, width=count, dimension=dimension, inputs=inputs)
    found = dynamics.learning_rate_limit(problem, optimizer=dynamics.ZerothOrder(directions=2))
    assert found == pytest.approx(limit_of_the_matrix(problem, 1, 2), rel=1e-6)


RATES = dynamics.Student(activation="erf", width=3, biases="trained", rates=(0.02, 0.5, 1.0))


def test_layers_with_rates_of_their_own_have_isotropic_noise_in_their_own_units():
    """Of a network: the map of deviations in R^(m (d + 2)) from 20 000 fixed draws, whose means are good to 2 %."""
    teacher, d = Teacher([0.8, 0.5], links=["erf"] * 2), 24
    problem = Problem(student=RATES, teacher=teacher, dimension=d)
    limit, _ = network_limit(problem, 1, 1)
    v, b, M, Q = reached_state(problem)
    rest, axes = np.linalg.eigh(Q - M @ M.T)
    weights = np.zeros((3, d))
    weights[:, :2], weights[:, 2:5] = M, axes * np.sqrt(np.maximum(rest, 0.0))
    x = np.random.default_rng(5).standard_normal((20_000, d))
    z = x @ weights.T + b
    slope = v * RATES.activation.derivative(z)
    psi = np.hstack([(slope[:, :, None] * x[:, None]).reshape(len(x), -1), RATES.activation.value(z), slope])
    rates = np.repeat(RATES.learning_rates, [3 * d, 3, 3])
    # A step is δ ← δ − η Λ z (z·ψ) (ψ·δ): the power iteration takes δ through L⁻¹T, and (ψ·δ)² grows.
    drift, X = rates[:, None] * (psi.T @ psi) / len(x), np.eye(rates.size)
    for _ in range(4):
        squares = np.sum((psi @ X) * psi, axis=1)
        squares = squares / squares.mean()
        gradients = psi.T @ (squares[:, None] * psi) / len(x)
        second = np.trace(gradients) * np.diag(rates**2) + 2.0 * rates[:, None] * gradients * rates
        X = solve_sylvester(drift, drift.T, second)
    growth = np.mean(np.sum((psi @ X) * psi, axis=1))
    assert limit == pytest.approx(1.0 / growth, rel=0.03)


def stays(link, rate, smoothing, runs=20, d=16, steps=6000):
    """Return how many runs of zeroth order in R^d, from a student that is its teacher, end near it: m = P = 2."""
    a, rng, link = np.array([0.857, 0.515]), np.random.default_rng(3), hermite.expand(link)
    teacher, eps = np.eye(2, d), smoothing / np.sqrt(d)
    w = np.repeat((np.sqrt(a)[:, None] * teacher)[None], runs, axis=0)

    def output(w, x):
        lengths = np.linalg.norm(w, axis=2)
        return np.sum(lengths**2 * link.value(np.einsum("rmd,rd->rm", w, x) / lengths), axis=1)

    x = rng.standard_normal((2000, d))
    with np.errstate(all="ignore"):
        for _ in range(steps):
            batch, z = rng.standard_normal((runs, d)), rng.standard_normal(w.shape)
            labels = link.value(batch @ teacher.T) @ a + 0.05 * rng.standard_normal(runs)
            losses = [0.5 * (output(w + side * eps * z, batch) - labels) ** 2 for side in (1.0, -1.0)]
            w = w - rate * ((losses[0] - losses[1]) / (2.0 * eps))[:, None, None] * z
        goal = link.value(x @ teacher.T) @ a
        errors = [np.mean((output(np.repeat(each[None], len(x), 0), x) - goal) ** 2) for each in w]
    return int(np.sum(np.array(errors) < 0.1 * np.mean(goal**2)))


@pytest.mark.thorough
@pytest.mark.parametrize(("link", "smoothing"), [("relu", 1e-3), ("erf", 1e-3), ("relu", 0.3)])
def test_runs_along_random_directions_stay_below_the_limit_and_not_above(link, smoothing):
    """Losses at w ± εz in numpy, seeds fixed: of 20 runs all stay at 0.7 times the limit and none at 1.5 times.

    So they do at λ = ε√d = 0.3, beside |w|² of 0.5 and 0.9; at 0.6 the student leaves its teacher at any rate.
    """
    problem = Problem(activation=link, teacher=Teacher([0.857, 0.515]), width=2, dimension=16)
    limit = dynamics.learning_rate_limit(problem, optimizer="zeroth-order")
    assert stays(link, 0.7 * limit, smoothing) == 20
    assert stays(link, 1.5 * limit, smoothing) <= 1


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "ratio"), [(32, 1.24), (128, 1.05), (512, 1.01)])
def test_one_direction_by_correlation_has_a_step_that_is_d_times_longer(d, ratio):
    """E|u|² of zeroth order over that of SGD at C = 2/√d, link h3; draws in R^d. False-alarm rate 1e-3 with the seed."""
    C = 2.0 / np.sqrt(d)
    given = {"student": "spherical", "objective": "correlation", "initial_overlaps": ([[C]], [[1.0]], [1.0])}
    problem = Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=d, **given)
    plain, along, three = (step_means(problem, count) for count in (None, 1, 3))
    assert along.drag(C) / plain.drag(C) == pytest.approx(ratio * d, rel=5e-3)
    # The limit is that of the overlap where drag over drift is largest, here beyond the start.
    largest = stable_rate(problem, 1) / stable_rate(problem, 1, "zeroth-order")
    assert along.drag(C) / plain.drag(C) < largest < 1.1 * along.drag(C) / plain.drag(C)
    assert stable_rate(problem, 1, "SGD(momentum=0.5)") == 0.5 * stable_rate(problem, 1)
    # The two coordinates that labels see by a Gauss rule, all others and z by 64 draws for each of its points.
    rng, link, count = np.random.default_rng(d), problem.activation, 64
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    seen, probability = np.stack(np.meshgrid(nodes, nodes), axis=-1), np.outer(weights, weights) / weights.sum() ** 2
    y = link.value(seen @ [C, np.sqrt(1.0 - C**2)])
    size = probability * (y * link.derivative(seen[:, :, 0])) ** 2
    x, z = rng.standard_normal((10, 10, count, d)), rng.standard_normal((10, 10, count, 3, d))
    x[:, :, :, :2] = seen[:, :, None]
    for means, used in ((along, z[:, :, :, :1]), (three, z)):
        step = np.mean(np.einsum("abnkd,abnd->abnk", used, x)[..., None] * used, axis=3)[..., 1:]
        for exact, drawn in ((means.drag(C), np.sum(step**2, axis=3)), (means.spread(C), step[..., 0] ** 2)):
            found, error = np.sum(size * drawn.mean(axis=2)), np.sqrt(np.sum(size**2 * drawn.var(axis=2)) / count)
            assert abs(found - exact) < 3.9 * error


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "sign"])
def test_steps_that_do_not_shrink_have_no_limit(optimizer):
    problem = Problem(activation="erf", teacher=Teacher([1.0]), width=1, dimension=30)
    why = "its steps do not shrink with the gradient, so that there is no limit of stability."
    with pytest.raises(ValueError, match=f"^Argument `optimizer` must be SGD or Zeroth.*{re.escape(why)}$"):
        dynamics.learning_rate_limit(problem, optimizer=optimizer)
    with pytest.raises(ValueError, match=f"^Argument `learning_rate` must be a number for .*{re.escape(why)}$"):
        resolved_rate(problem, "0.1x", optimizer=optimizer)
    assert quick_limit(problem, 1, optimizer) is None
    assert resolved_rate(problem, 0.1, optimizer=optimizer) == 0.1


def test_limits_that_are_not_known_are_refused():
    frame = Problem(activation="he2", teacher=Teacher([1.0]), width=1, dimension=12, student="stiefel")
    with pytest.raises(ValueError, match="must be SGD for a learning-rate limit of the stiefel student"):
        dynamics.learning_rate_limit(frame, optimizer="zeroth-order")
    half = dynamics.learning_rate_limit(frame, optimizer="SGD(momentum=0.5)")
    assert half == 0.5 * dynamics.learning_rate_limit(frame)


def test_a_share_is_one_of_the_limit_of_the_optimizer():
    problem = Problem(activation="he3", teacher=Teacher([0.8, 0.6]), width=2, dimension=12, seed=3)
    for batch in (1, 4):
        settings = checked_step("0.2x", "auto", None, batch, "zeroth-order", problem=problem)
        assert settings.learning_rate == 0.2 * dynamics.learning_rate_limit(
            problem, batch_size=batch, optimizer="zeroth-order"
        )
        # The drift of batches is in the limit itself.
        assert limit_of(problem, settings) == pytest.approx(settings.learning_rate / 0.2, rel=1e-14)
        plain, momentum = (
            checked_step("0.2x", "auto", None, batch, each, problem=problem) for each in (None, "SGD(momentum=0.75)")
        )
        assert momentum.learning_rate == 0.25 * plain.learning_rate
        assert limit_of(problem, momentum) == pytest.approx(0.25 * limit_of(problem, plain), rel=1e-14)
