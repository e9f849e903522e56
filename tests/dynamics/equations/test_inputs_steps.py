"""Steps of finite size on inputs that are not isotropic: limits of stability, mean steps, gradient descent."""

import re

import numpy as np
import pytest
import torch
from gaussian_rules import gauss_grid
from weight_space import population_loss, theta_of

import dynamics
import hermite
from dynamics import learning_rate_limit
from dynamics.integrators import stepper_of
from dynamics.solve.steps import StepSettings, make_system
from dynamics.theory.axis_squares import Squares, largest_growth, means_of_squares
from dynamics.theory.learning_rates import descent_limit

CLASSES = dynamics.Inputs([1.5, 0.5, 2.0], [1, 3, 5])
#: Every kind of mean that a step has, with both parities.
LINK = {0: 0.1, 1: 0.3, 2: 0.4, 4: 0.5}


def problem(**given):
    return dynamics.Problem(
        **{"activation": "he3", "teacher": dynamics.Teacher([0.8, 0.6]), "width": 3, "dimension": 9, "inputs": CLASSES}
        | given
    )


def growth_of_mean_squares(link, a, s, batch):
    """Return the spectral radius of D -> E (1 − ηΣM) D (1 − ηMΣ) as a function of η, M the mean of ∇∇ᵀ over a batch.

    By a Gauss rule in all d coordinates, on all products of two deviations of the L neurons.
    """
    g, mass = gauss_grid(12, s.size)
    g = g.T
    gradient = np.array([np.sqrt(c) * link.derivative(g[p]) * g for p, c in enumerate(a)])
    for p, c in enumerate(a):
        gradient[p, p] = 2.0 * np.sqrt(c) * link.value(g[p])
    G, S = gradient.reshape(-1, g.shape[1]), np.tile(s, a.size)[:, None]
    H, pairs = S * ((G * mass) @ G.T), np.einsum("an,bn->abn", G, G).reshape(-1, g.shape[1])
    one, size = np.eye(S.size), S.size**2
    four = ((pairs * mass) @ pairs.T).reshape((S.size,) * 4).transpose(0, 2, 1, 3) * (S * S.T)[:, :, None, None]
    first = (np.einsum("ac,bd->abcd", H, one) + np.einsum("bd,ac->abcd", H, one)).reshape(size, size)
    second = (four / batch + (1.0 - 1.0 / batch) * np.einsum("ac,bd->abcd", H, H)).reshape(size, size)
    return lambda eta: np.abs(np.linalg.eigvals(np.eye(size) - eta * first + eta**2 * second)).max()


@pytest.mark.parametrize(
    ("link", "a", "s", "batch", "missed"),
    [
        ({3: 0.8, 4: 0.6}, [1.0], [1.5, 0.5, 0.7], 1, 1e-7),
        ("he4", [1.0], [1.5, 0.5, 0.7], 2, 1e-7),
        ("he5", [1.0, 0.8], [2.0, 0.4], 3, 1e-7),
        ("he3", [0.8, 0.6], [1.5, 1.0, 0.3], 3, 5e-3),
        ("he4", [0.8, 0.6], [1.5, 1.0, 0.3], 1, 5e-3),
    ],
)
def test_the_limit_is_that_of_the_mean_square(link, a, s, batch, missed):
    """Exactly for one direction and for k ≥ 5; of two the products that are left out are worth some tenths of a per cent."""
    expansion, a, s = hermite.expand(link), np.array(a), np.array(s)
    limit = 1.0 / largest_growth(Squares(a, s, np.ones(s.size), means_of_squares(expansion)), batch)
    growth = growth_of_mean_squares(expansion, a, s, batch)
    assert growth(limit * (1.0 - missed)) < 1.0 < growth(limit * (1.0 + missed))


def test_the_limit_counts_axes_by_their_eigenvalues():
    """Class by class as axis by axis, by the matrix and without it; and c*/tr Σ where all eigenvalues are small."""
    many = problem(inputs=dynamics.Inputs([2.0, 0.5], [40, 960]), dimension=1000, width=2)
    apart = problem(inputs=dynamics.Inputs(np.repeat([2.0, 0.5], [40, 960])), dimension=1000, width=2)
    values = np.repeat([2.0, 0.5], [40, 960])
    alone = Squares(np.array([0.8, 0.6]), values, np.ones(1000), means_of_squares(many.activation))
    assert learning_rate_limit(many) == learning_rate_limit(apart)
    assert largest_growth(alone, 1) == pytest.approx(largest_growth(Squares.of(many), 1), rel=1e-9)
    huge = problem(inputs=dynamics.Inputs([2.0, 0.5], [10**8, 10**9]), dimension=11 * 10**8)
    isotropic = learning_rate_limit(problem(inputs=None, dimension=11 * 10**8))
    assert learning_rate_limit(huge, batch_size=4) == pytest.approx(4 * isotropic * 1.1 / 0.7, rel=1e-6)
    spread = problem(teacher=dynamics.Teacher([1.0], directions=[[0.6, 0.8]]))
    sentence = (
        "Argument `problem` must have an orthonormal teacher, and at least as many neurons as directions or a link with "
        "c_1 = 0, for a learning-rate limit with `inputs`, but has not."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        learning_rate_limit(spread)


@pytest.mark.parametrize("link", ["he4", {2: 0.5, 3: 0.6}])
@pytest.mark.parametrize("rows", [None, [[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]], [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0]]])
def test_descent_is_stable_up_to_the_largest_curvature(link, rows):
    """The Hessian in w of the loss, by automatic differentiation."""
    asked = problem(activation=link, teacher=dynamics.Teacher([0.8, 0.6], directions=rows))
    scale = torch.tensor(np.sqrt(asked.inputs.eigenvalues_of_axes(9)))
    weights = torch.tensor(np.sqrt([[0.8], [0.6]]) * theta_of(asked)) / scale
    hessian = torch.autograd.functional.hessian(
        lambda flat: 0.5 * population_loss(flat.reshape(2, 9) * scale, asked), weights.ravel()
    )
    assert descent_limit(asked) == pytest.approx(2.0 / float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-6)


def moments_of_a_step(asked, weights, batch):
    """Return E ΔŴ/η, and E ΔŴ_l ΔŴ_lᵀ/η² of every axis, by a Gauss rule in R^d; weights (m, d) are whitened."""
    link, d = asked.activation, asked.dimension
    s = asked.inputs.eigenvalues_of_axes(d)
    g, mass = gauss_grid(2 * link.order + 2, d)
    g = g.T
    rho = np.linalg.norm(weights, axis=1)[:, None]
    z, labels = weights @ g / rho, asked.teacher.coefficients @ link.value(theta_of(asked) @ g)
    error = np.sum(rho**2 * link.value(z), axis=0) - labels
    along = 2.0 * link.value(z) - z * link.derivative(z)
    gradient = s[:, None] * (along[:, None] * weights[:, :, None] + (rho * link.derivative(z))[:, None] * g)
    mean = (gradient * error * mass).sum(axis=2)
    square = np.einsum("iln,jln,n->lij", gradient, gradient, mass * (error**2 + asked.label_noise**2))
    drift = np.einsum("il,jl->lij", mean, mean)
    return -mean, drift + (square - drift) / batch


@pytest.mark.parametrize(("rows", "batch"), [(None, 1), ([[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]], 3)])
@pytest.mark.kernels
def test_the_mean_step_is_that_of_a_gauss_rule(rows, batch):
    """Two classes of one and two axes: rates of Ŵ on the teacher's axes and of Q_c, to 1e-10 of the largest."""
    weights = np.random.default_rng(4).standard_normal((2, 3))
    asked = problem(
        activation=LINK, teacher=dynamics.Teacher([0.8, 0.6], directions=rows), width=2, dimension=3,
        inputs=dynamics.Inputs([1.5, 0.5], [1, 2]), initial_weights=weights, label_noise=0.3,
    )  # fmt: skip
    s = asked.inputs.eigenvalues_of_axes(3)
    whitened, rate = weights * np.sqrt(s), 0.05
    first, second = moments_of_a_step(asked, whitened, batch)
    # A class of more than m axes beyond the teacher's is turned; here all axes are kept as they are.
    np.testing.assert_allclose(asked.reduced_weights(), whitened, atol=1e-15)
    system = make_system(asked, StepSettings(rate, "finite-d", batch))
    found = stepper_of(system, "explicit", rtol=1e-8, atol=1e-10).derivative(0.0)
    classes, m, r = 2, 2, asked.teacher.span
    rho, growth = np.linalg.norm(whitened, axis=1), found[-m:]
    changes = first[:, :, None] * whitened.T + (first[:, :, None] * whitened.T).transpose(2, 1, 0)
    expected = changes.transpose(1, 0, 2) + rate * second
    kinds = np.array([1, 0, 0])  # eigenvalues in increasing order
    Q = np.array([expected[kinds == kind].sum(axis=0) for kind in range(2)])
    K = system.initial_state[m * r : -m].reshape(classes, m, m)
    moved = (found[m * r : -m].reshape(K.shape) + 0.5 * (growth[:, None] + growth) * K) * np.outer(rho, rho)
    np.testing.assert_allclose(moved, Q, rtol=0, atol=1e-10 * np.abs(Q).max())
    np.testing.assert_allclose(growth, np.diagonal(Q.sum(axis=0)) / rho**2, rtol=1e-9)
    U = system.initial_state[: m * r].reshape(m, r)
    moved = (found[: m * r].reshape(m, r) + 0.5 * growth[:, None] * U) * rho[:, None]
    np.testing.assert_allclose(moved, first[:, :r], rtol=0, atol=1e-10 * np.abs(first).max())


@pytest.mark.slow_to_compile
@pytest.mark.parametrize("rows", [None, [[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]]])
@pytest.mark.kernels
def test_descent_takes_the_steps_of_autograd(rows):
    """Sixty steps in w by automatic differentiation: overlaps, norms and loss to 1e-12."""
    weights = 0.3 * np.random.default_rng(2).standard_normal((3, 9))
    asked = problem(
        activation=LINK, teacher=dynamics.Teacher([0.8, 0.6], directions=rows), initial_weights=weights
    )  # fmt: skip
    rate, scale = 0.05, torch.tensor(np.sqrt(asked.inputs.eigenvalues_of_axes(9)))
    w, losses = torch.tensor(weights, requires_grad=True), []
    for _ in range(61):
        loss = population_loss(w * scale, asked)
        losses.append(loss.item())
        last = (w * scale).detach().numpy()
        (gradient,) = torch.autograd.grad(0.5 * loss, w)
        w = (w - rate * gradient).detach().requires_grad_()
    flow = dynamics.solve_overlaps(
        asked, method="gradient-descent", learning_rate=rate, save_at=dynamics.SaveAt.at(rate * np.arange(61.0)),
        progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(flow.loss, losses, rtol=0, atol=1e-12)
    n = np.sum(last**2, axis=1)
    np.testing.assert_allclose(flow.squared_norm[-1], n, rtol=1e-12)
    overlaps = last @ theta_of(asked).T / np.sqrt(n)[:, None]
    np.testing.assert_allclose(flow.teacher_overlap[-1], overlaps, rtol=0, atol=1e-12)
    assert losses[-1] < 0.9 * losses[0]
    assert flow.attrs["learning_rate_limit"] == descent_limit(asked)
