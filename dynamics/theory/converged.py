"""The gradients of a student that fits its teacher, as random functions whose second moments SGD moves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.problem.student import COMMITTEE, HOMOGENEOUS, NETWORK
from dynamics.theory.stability import Samples, Units, mean_square_limit

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from dynamics.theory.stability import Functions
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Classes of units with equal coefficients at most; neighbours are put together beyond, with their mean.
MOST_CLASSES = 96
#: Points of a product rule for two axes, per axis, and of a sample for more.
NODES, POINTS = 120, 2**14
#: Distance of Σ a_p from 1 within which it is 1.
WHOLE = 1e-9
#: Functions h at most; of more, those along the teacher's axes count as if they were outside of these.
MOST_INSIDE = 256
#: Links σ(2z) = 2^q σ(z), z > 0, and likewise for z < 0, are homogeneous; these are the points that are compared.
COMPARED = np.array([-1.7, -0.6, -0.1, 0.2, 0.9, 1.4])


class Fitted(NamedTuple):
    """Neurons that give f = f*: weights (n, r), and of each how many times its squared gradient counts, (n,)."""

    weights: Array
    shares: Array


def fitted_limit(problem: Problem, fitted: Fitted, batch_size: int) -> float:
    """Return the learning rate up to which SGD is stable in mean square where the student is the teacher."""
    gradients = _separate if problem.teacher.is_orthonormal else _together
    return mean_square_limit(*gradients(problem, fitted), batch_size)


def fitted_neurons(problem: Problem) -> Fitted | None:
    """Return a student that is its teacher where the width and the coefficients alone say which one, else None.

    These are the homogeneous student with m ≥ P, a committee with m = P and a link σ(tz) = t^q σ(z), or with
    m = Σ a_p of whole a_p, and the spherical student with m ≥ P and Σ a_p = 1.
    """
    teacher, link = problem.teacher, problem.activation
    a, directions = teacher.coefficients, np.eye(teacher.span) if teacher.directions is None else teacher.directions
    if problem.kind == NETWORK or problem.teacher_link != link:
        return None
    if problem.kind == COMMITTEE:
        degree = degree_of(link)
        if degree is not None and problem.width == a.size:
            return Fitted(a[:, None] ** (1.0 / degree) * directions, np.ones(a.size))
        is_whole = bool(np.all(a == np.rint(a))) and problem.width == round(float(a.sum()))
        return Fitted(directions, a) if is_whole else None
    if problem.width < a.size:
        return None
    if problem.kind == HOMOGENEOUS:
        return Fitted(np.sqrt(a)[:, None] * directions, np.ones(a.size))
    return Fitted(directions, a) if abs(float(a.sum()) - 1.0) <= WHOLE else None


def degree_of(link: HermiteExpansion) -> float | None:
    """Return the degree q ≥ 1 of a link with σ(tz) = t^q σ(z) for t > 0, None of any other.

    Examples
    --------
    >>> import hermite
    >>> degree_of(hermite.expand("relu")), degree_of(hermite.expand("erf"))
    (1.0, None)
    """
    once, twice = link.value(COMPARED), link.value(2.0 * COMPARED)
    place = int(np.argmax(np.abs(once)))
    if once[place] == 0.0 or twice[place] / once[place] < 1.0:
        return None
    degree = round(math.log2(twice[place] / once[place]), 9)
    is_power = np.allclose(twice, 2.0**degree * once, rtol=1e-12, atol=1e-14) and degree >= 1.0
    return degree if is_power else None


def _separate(problem: Problem, fitted: Fitted) -> tuple[Functions, float]:
    """Return the gradients of neurons on axes of their own, and the number of coordinates beside that axis."""
    link, lengths = problem.activation, np.linalg.norm(fitted.weights, axis=1)
    if problem.kind != COMMITTEE:
        unit = _unit(problem, 1.0)
        squares = lengths**2 if problem.kind == HOMOGENEOUS else fitted.shares
        return unit.scaled(*_classes(squares)), problem.dimension - 1.0
    if np.ptp(lengths) == 0.0 or (degree := degree_of(link)) is None:
        return _unit(problem, float(lengths[0])).scaled(*_classes(fitted.shares)), problem.dimension - 1.0
    # σ'(ρ z) = ρ^(q − 1) σ'(z).
    return _unit(problem, 1.0).scaled(*_classes(lengths ** (2.0 * (degree - 1.0)))), problem.dimension - 1.0


def _unit(problem: Problem, length: float) -> Units:
    """Return the gradient of one neuron: across its axis, and along it unless its length is kept."""
    link = problem.activation
    if problem.kind == HOMOGENEOUS:
        return Units.of([link.derivative, lambda z: 2.0 * link.value(z)], [True, False])
    if problem.kind == COMMITTEE:
        return Units.of(
            [lambda z: link.derivative(length * z), lambda z: link.derivative(length * z) * z], [True, False]
        )
    return Units.of([link.derivative], [True])


def _classes(squares: Array) -> tuple[Array, Array]:
    """Return the distinct values, at most `MOST_CLASSES` after neighbours were put together, and how often each is."""
    values, count = np.unique(squares, return_counts=True)
    if values.size <= MOST_CLASSES:
        return values, count.astype(np.float64)
    edges = np.geomspace(values[0], values[-1], MOST_CLASSES + 1)[1:-1]
    place = np.searchsorted(edges, squares)
    number = np.bincount(place, minlength=MOST_CLASSES).astype(np.float64)
    sums = np.bincount(place, weights=squares, minlength=MOST_CLASSES)
    return sums[number > 0] / number[number > 0], number[number > 0]


def _together(problem: Problem, fitted: Fitted) -> tuple[Functions, float]:
    """Return the gradients of neurons of any directions at points of the teacher's axes, and the number of others."""
    link, W = problem.activation, fitted.weights
    n, r = W.shape
    length = np.linalg.norm(W, axis=1)
    axes, (x, weights) = W / length[:, None], points(r, POINTS)
    z, root = x @ axes.T, np.sqrt(fitted.shares)
    if problem.kind == HOMOGENEOUS:
        outer, along = length * link.derivative(z), length * (2.0 * link.value(z) - z * link.derivative(z))
    else:
        outer = root * link.derivative(length * z)
        along = -outer * z if problem.kind != COMMITTEE else np.zeros_like(z)
    if n * r > MOST_INSIDE:
        return Samples(outer, weights, np.ones(n, dtype=bool)), float(problem.dimension)
    inside = outer[:, :, None] * x[:, None, :] + along[:, :, None] * axes
    values = np.hstack([outer, inside.reshape(-1, n * r)])
    return Samples(values, weights, np.arange(values.shape[1]) < n), float(problem.dimension - r)


def points(axes: int, count: int) -> tuple[Array, Array]:
    """Return points (N, axes) and weights (N,) of means over N(0, I): a product rule up to two axes, then a sample."""
    if axes <= 2:
        z, weight = np.polynomial.hermite_e.hermegauss(NODES)
        grid = np.stack(np.meshgrid(*[z] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
        product = np.prod(np.stack(np.meshgrid(*[weight] * axes, indexing="ij"), axis=-1).reshape(-1, axes), axis=1)
        return grid, product / product.sum()
    half = np.random.default_rng(0).standard_normal((count // 2, axes))
    return np.vstack([half, -half]), np.full(count, 1.0 / count)
