"""What the kernels of a network take of its teacher: numbers, sizes, the constant E f*² and the sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from dynamics.equations.network.unit_means import mean_of_product

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from dynamics.problem.teacher import Polynomial
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

#: What is looked at on both sides of 0, and the difference that is a jump.
NEAR, JUMP = 1e-12, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTeacher:
    """A teacher as the kernels see it.

    Parameters
    ----------
    links : tuple of HermiteExpansion
        The distinct links of its units.
    parameters, sizes : ndarray
        As `teacher_kernels` says.
    degree : int
        Largest order of a component.
    biases, theta : ndarray
        Biases (units,) and directions (units, r) of the units.
    components : ndarray
        The f*_α of a polynomial, (components,).
    square : float
        E f*².
    sensitivity : ndarray
        E ∂_a f* ∂_b f*, (r, r); NaN where a unit jumps.
    """

    links: tuple[HermiteExpansion, ...]
    parameters: Array
    sizes: Integers
    degree: int
    biases: Array
    theta: Array
    components: Array
    square: float
    sensitivity: Array

    @property
    def units(self) -> int:
        """Number of units."""
        return self.biases.size

    def biases_by_link(self) -> list[list[float]]:
        """Return the biases of the units of each link."""
        links = self.sizes[: self.units]
        return [self.biases[links == 1 + n].tolist() for n in range(len(self.links))]


def network_teacher(problem: Problem) -> NetworkTeacher:
    """Return the teacher of a network's problem."""
    return _polynomial_teacher(problem) if problem.teacher.is_polynomial else _unit_teacher(problem)


def _polynomial_teacher(problem: Problem) -> NetworkTeacher:
    teacher, target = problem.teacher, cast("Polynomial", problem.teacher.target)
    orders = np.array([component.degrees for component in teacher.components], dtype=np.int64)
    values = np.array([component.value for component in teacher.components])
    roots = np.array([math.sqrt(math.prod(map(math.factorial, order))) for order in orders.tolist()])
    inverse = 1.0 / (roots * values)
    mean = target.mean
    return NetworkTeacher(
        links=(),
        parameters=np.concatenate([[mean], values / roots, [0.0], inverse]),
        sizes=np.concatenate([np.zeros(teacher.span, dtype=np.int64), orders.ravel()]),
        biases=np.empty(0),
        theta=np.empty((0, teacher.span)),
        degree=int(orders.sum(axis=1).max()),
        components=values,
        square=mean**2 + float(values @ values),
        sensitivity=_polynomial_sensitivity(orders, values),
    )


def _polynomial_sensitivity(orders: Integers, values: Array) -> Array:
    """Return Σ √(α_a β_b) f*_α f*_β over the pairs with α − e_a = β − e_b."""
    r = orders.shape[1]
    slopes: list[dict[tuple[int, ...], float]] = [{} for _ in range(r)]
    for order, value in zip(orders.tolist(), values.tolist(), strict=True):
        for a in range(r):
            if order[a] > 0:
                lower = (*order[:a], order[a] - 1, *order[a + 1 :])
                slopes[a][lower] = math.sqrt(order[a]) * value
    return np.array([[sum(x * right.get(key, 0.0) for key, x in left.items()) for right in slopes] for left in slopes])


def _unit_teacher(problem: Problem) -> NetworkTeacher:
    units = problem.teacher.units(problem.teacher_link)
    links = tuple(dict.fromkeys(unit.link for unit in units))
    weights, biases = np.array([(unit.coefficient, unit.bias) for unit in units]).T
    theta = np.array([unit.direction for unit in units])
    means = np.empty((2, len(units), len(units)))
    for p, first in enumerate(units):
        for q, second in enumerate(units[: p + 1]):
            pair = mean_of_product(first.link, first.bias, second.link, second.bias, float(theta[p] @ theta[q]))
            means[:, p, q] = means[:, q, p] = pair
    square, slopes = np.outer(weights, weights) * means
    return NetworkTeacher(
        links=links,
        parameters=np.concatenate([weights, biases, theta.ravel()]),
        sizes=np.array([1 + links.index(unit.link) for unit in units], dtype=np.int64),
        biases=biases,
        theta=theta,
        degree=0,
        components=np.empty(0),
        square=float(square.sum()),
        sensitivity=theta.T @ slopes @ theta * (np.nan if any(map(_jumps, links)) else 1.0),
    )


def _jumps(link: HermiteExpansion) -> bool:
    """Return whether a link has a jump at 0, the one place where those with a name may have one."""
    left, right = link.value(np.array([-NEAR, NEAR]))
    return bool(abs(right - left) > JUMP)
