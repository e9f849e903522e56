"""One step of SGD: exact moments against quadrature over x and autograd, and refusals."""

from itertools import product

import numpy as np
import pytest
import torch
from gaussian_rules import gauss_grid
from weight_space import population_loss

from dynamics import Problem, Teacher, moments_of_overlaps, one_step_moments
from hermite import polynomials

MIXED = {0: 0.3, 2: 0.4, 3: 0.5, 4: -0.2, 5: 0.1}
LINKS = [{3: 1.0}, {4: 1.0}, {4: 0.8, 6: 0.6}, MIXED, {1: 1.0}, {2: 1.0}]


def some_problem(link, m, P, span, d, *, noise=0.0, seed=0):
    """A teacher of general Gram matrix and weights of different lengths, in d dimensions."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((P, span))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    teacher = Teacher(rng.uniform(0.5, 1.5, P), directions=rows)
    weights = rng.standard_normal((m, d)) * rng.uniform(0.3, 1.0, (m, 1))
    return Problem(
        activation=link, teacher=teacher, width=m, dimension=d, initial_weights=weights, label_noise=noise
    ), weights


def theta_of(problem):
    theta = np.zeros((problem.num_directions, problem.dimension))
    theta[:, : problem.teacher.span] = problem.teacher.directions
    return theta


def gradients(problem, weights, x):
    """Error ē and gradients ∇_i at each point, written in R^d."""
    c = problem.activation.coefficients
    rho = np.linalg.norm(weights, axis=1)
    unit = weights / rho[:, None]
    z = x @ unit.T
    value, slope = polynomials.series_value(c, z), polynomials.series_derivative(c, z)
    error = value @ rho**2 - polynomials.series_value(c, x @ theta_of(problem).T) @ problem.teacher.coefficients
    along = (2 * value - z * slope)[:, :, None] * unit + slope[:, :, None] * x[:, None, :]
    return error, rho[:, None] * along


def by_quadrature(problem, weights):
    """Exact for polynomials: Gauss-Hermite in every direction of R^d, with points for degree 4 K + 2."""
    x, measure = gauss_grid(2 * problem.activation.order + 2, problem.dimension)
    error, gradient = gradients(problem, weights, x)
    drift = np.einsum("x,x,xik->ik", measure, error, gradient)
    flat = gradient * np.sqrt(measure * (error**2 + problem.label_noise**2))[:, None, None]
    second = np.tensordot(flat, flat, ([0, 2], [0, 2]))
    first = drift @ weights.T
    return -drift @ theta_of(problem).T, -(first + first.T), second, drift @ drift.T


def assert_same(found, wanted, tolerance):
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


#: Links, and numbers of neurons, directions, axes that these span, and dimensions.
CASES = [
    *(
        pytest.param(link, shape, marks=pytest.mark.kernels)
        for shape, link in product([(1, 1, 1, 1), (1, 1, 1, 2), (2, 2, 2, 2), (3, 2, 1, 2)], LINKS)
    ),
    ({4: 1.0}, (6, 5, 3, 3)),
    ({2: 0.7, 3: 0.5}, (6, 5, 3, 3)),
]


@pytest.mark.parametrize(("link", "shape"), CASES, ids=str)
def test_moments_equal_quadrature_over_x(link, shape):
    problem, weights = some_problem(link, *shape, noise=0.7)
    teacher_first, student_first, second, _ = by_quadrature(problem, weights)
    moments = one_step_moments(problem, weights)
    # Measured: at most 4e-15.
    assert_same(moments.teacher_first, teacher_first, 5e-14)
    assert_same(moments.student_first, student_first, 5e-14)
    assert_same(moments.student_second, second, 5e-14)


def test_a_minibatch_equals_quadrature_over_two_samples():
    problem, weights = some_problem({2: 0.7, 3: 0.5}, 2, 1, 1, 1)
    x, measure = gauss_grid(8, 1)
    error, gradient = gradients(problem, weights, x)
    steps = error[:, None, None] * gradient
    mean = 0.5 * (steps[:, None] + steps[None])
    wanted = np.einsum("x,y,xyik,xyjk->ij", measure, measure, mean, mean)
    assert_same(one_step_moments(problem, weights, batch_size=2).student_second, wanted, 1e-13)


def test_label_noise_is_averaged_over_the_batch_and_drift_is_not():
    problem, weights = some_problem(MIXED, 3, 2, 2, 2, noise=0.7)
    _, _, second, drift = by_quadrature(problem, weights)
    for B in (1, 4, 10**6):
        moments = one_step_moments(problem, weights, batch_size=B)
        assert_same(moments.student_second, drift + (second - drift) / B, 5e-14)
        R, S = weights @ theta_of(problem).T, weights @ weights.T
        elsewhere = moments_of_overlaps(problem, R, S, dimension=1002, batch_size=B).student_second
        assert_same(moments.student_second + 1000 * moments.student_second_per_dimension, elsewhere, 1e-14)


@pytest.mark.parametrize("link", [{4: 1.0}, MIXED], ids=str)
def test_the_first_order_is_the_gradient_of_the_population_loss(link):
    problem, weights = some_problem(link, 5, 3, 4, 9)
    w = torch.tensor(weights, requires_grad=True)
    (gradient,) = torch.autograd.grad(0.5 * population_loss(w, problem), w)
    drift = gradient.numpy()
    moments = one_step_moments(problem, batch_size=3)
    first = drift @ weights.T
    assert_same(moments.teacher_first, -drift @ theta_of(problem).T, 1e-13)
    assert_same(moments.student_first, -(first + first.T), 1e-13)
    infinite_batch = one_step_moments(problem, batch_size=10**18)
    assert_same(infinite_batch.student_second, drift @ drift.T, 1e-13)


PROBLEM = Problem(activation="he3", teacher=Teacher([1.0, 0.5]), width=2, dimension=5)


def of_link(link, order=None):
    return one_step_moments(Problem(activation=link, teacher=Teacher([1.0]), width=1, dimension=9, order=order))


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: one_step_moments("he4"), TypeError, "`problem` must be a Problem"),
        (lambda: one_step_moments(PROBLEM, np.ones((3, 5))), ValueError, r"shape \(width, D\) = \(2, D\) with 2 ≤ D ≤ 5"),
        (lambda: one_step_moments(PROBLEM, np.ones((2, 6))), ValueError, r"has shape \(2, 6\)"),
        (lambda: one_step_moments(PROBLEM, np.zeros((2, 5))), ValueError, "rows of positive length"),
        (lambda: one_step_moments(PROBLEM, "weights"), TypeError, "`weights` must be an array"),
        (lambda: one_step_moments(PROBLEM, batch_size=0), ValueError, "`batch_size` must be at least 1"),
        (lambda: one_step_moments(PROBLEM, batch_size=1.5), TypeError, "`batch_size` must be an integer"),
        (lambda: moments_of_overlaps(PROBLEM, np.ones((2, 3)), np.eye(2)), ValueError, r"\(width, num_directions\) = \(2, 2\)"),
        (lambda: moments_of_overlaps(PROBLEM, np.ones((2, 2)), np.diag([1, np.nan])), ValueError, "must be finite"),
        (lambda: moments_of_overlaps(PROBLEM, np.ones((2, 2)), [[1, 1], [0, 1]]), ValueError, "must be symmetric"),
        (lambda: moments_of_overlaps(PROBLEM, np.ones((2, 2)), np.diag([1, -1])), ValueError, "positive diagonal"),
        (lambda: moments_of_overlaps(PROBLEM, np.ones((2, 2)), np.eye(2), dimension=0), ValueError, "`dimension` must"),
        (lambda: of_link("tanh(z)", 5), ValueError, "must have a polynomial link"),
        (lambda: of_link({4: 0.8, 6: 0.6}, 5), ValueError, "must have a polynomial link"),
        (lambda: of_link(dict.fromkeys(range(22), 1.0)), ValueError, "lower degree or of fewer terms"),
    ],
)  # fmt: skip
def test_impossible_questions_are_refused_in_one_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


def test_the_series_of_another_link_has_moments():
    problem = Problem(activation="tanh(z)", teacher=Teacher([1.0]), width=1, dimension=2, order=5)
    series = Problem(activation=problem.activation.truncated(), teacher=Teacher([1.0]), width=1, dimension=2)
    weights = np.array([[0.3, 0.8]])
    polynomial = {j: c for j, c in enumerate(series.activation.coefficients.tolist()) if c}
    same = Problem(
        activation=polynomial, teacher=Teacher([1.0], directions=[[1.0]]), width=1, dimension=2, initial_weights=weights
    )
    assert_same(one_step_moments(series, weights).student_second, by_quadrature(same, weights)[2], 1e-13)
