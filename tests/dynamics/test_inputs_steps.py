"""Steps of finite size on inputs that are not isotropic: limits of stability, mean steps, gradient descent."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from weight_space import population_loss

import dynamics
import hermite
from dynamics.theory import learning_rate_limit
from dynamics.theory.descent_limit import descent_limit
from dynamics.theory.whitened_limit import Means, Squares, largest_growth

CLASSES = dynamics.Inputs([1.5, 0.5, 2.0], [1, 3, 5])


def problem(**given):
    return dynamics.Problem(
        **{"activation": "he3", "teacher": dynamics.Teacher([0.8, 0.6]), "width": 3, "dimension": 9, "inputs": CLASSES}
        | given
    )


def growth_of_mean_squares(link, a, s, batch):
    """Return the spectral radius of D -> E (1 − ηΣM) D (1 − ηMΣ) as a function of η, M the mean of ∇∇ᵀ over a batch.

    By a Gauss rule in all d coordinates, on all products of two deviations of the L neurons.
    """
    x, w = np.polynomial.hermite_e.hermegauss(12)
    g = np.stack(np.meshgrid(*[x] * s.size, indexing="ij")).reshape(s.size, -1)
    mass = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * s.size, indexing="ij")).reshape(s.size, -1), axis=0)
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
    limit = 1.0 / largest_growth(Squares(a, s, np.ones(s.size), Means.of(expansion)), batch)
    growth = growth_of_mean_squares(expansion, a, s, batch)
    assert growth(limit * (1.0 - missed)) < 1.0 < growth(limit * (1.0 + missed))


def test_the_limit_counts_axes_by_their_eigenvalues():
    """Class by class as axis by axis, by the matrix and without it; and c*/tr Σ where all eigenvalues are small."""
    many = problem(inputs=dynamics.Inputs([2.0, 0.5], [40, 960]), dimension=1000, width=2)
    apart = problem(inputs=dynamics.Inputs(np.repeat([2.0, 0.5], [40, 960])), dimension=1000, width=2)
    values = np.repeat([2.0, 0.5], [40, 960])
    alone = Squares(np.array([0.8, 0.6]), values, np.ones(1000), Means.of(many.activation))
    assert learning_rate_limit(many) == learning_rate_limit(apart)
    assert 1.0 / largest_growth(alone, 1) == pytest.approx(learning_rate_limit(many), rel=1e-9)
    huge = problem(inputs=dynamics.Inputs([2.0, 0.5], [10**8, 10**9]), dimension=11 * 10**8)
    isotropic = learning_rate_limit(problem(inputs=None, dimension=11 * 10**8))
    assert learning_rate_limit(huge, batch_size=4) == pytest.approx(4 * isotropic * 1.1 / 0.7, rel=1e-6)
    spread = problem(teacher=dynamics.Teacher([1.0], directions=[[0.6, 0.8]]))
    sentence = "Argument `problem` must have an orthonormal teacher for a learning-rate limit, but it has not."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        learning_rate_limit(spread)


@pytest.mark.parametrize("link", ["he4", {2: 0.5, 3: 0.6}])
@pytest.mark.parametrize("rows", [None, [[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]], [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0]]])
def test_descent_is_stable_up_to_the_largest_curvature(link, rows):
    """The Hessian in w of the loss, by automatic differentiation."""
    asked = problem(activation=link, teacher=dynamics.Teacher([0.8, 0.6], directions=rows))
    scale = torch.tensor(np.sqrt(asked.inputs.eigenvalues_of_axes(9)))
    directions = np.pad(np.eye(2) if rows is None else np.array(rows), ((0, 0), (0, 7 if rows is None else 6)))
    weights = torch.tensor(np.sqrt([[0.8], [0.6]]) * directions) / scale
    hessian = torch.autograd.functional.hessian(
        lambda flat: 0.5 * population_loss(flat.reshape(2, 9) * scale, asked), weights.ravel()
    )
    assert descent_limit(asked) == pytest.approx(2.0 / float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-6)
