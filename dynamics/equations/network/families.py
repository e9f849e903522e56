"""Families of links, the teacher of a network as its kernels read it, and the check for neurons that start alike."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hermite.text.messages import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.problem.teacher import Polynomial
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

#: Families by their number in the kernels.
RELU, SIGN, ERF, POLYNOMIAL, TABLE = range(5)

# Means over z ~ N(0, 1) by Gauss–Legendre on pieces that end where a link may have a kink, at 0. Pieces beside a kink
# grow with their distance to it, from the width over which the integrand bends.

#: Reach of the integrals, beyond which the density is 1e-37, nodes per piece, and width of the widest piece.
MEANS_REACH, MEANS_NODES, WIDEST = 13.0, 16, 1.2


@cache
def mean_of_product(
    first: HermiteExpansion, bias: float, second: HermiteExpansion, other_bias: float, overlap: float
) -> tuple[float, float]:
    """Return E σ_a(λ_a + β_a) σ_b(λ_b + β_b) and that of the slopes almost everywhere, to 1e-13 of the links' scale.

    λ_b = c λ_a + √(1 − c²) y, with a kink in y at −(β_b + c λ_a)/√(1 − c²), which leaves one in λ_a at −β_b/c.
    """
    c = float(np.sign(overlap)) if abs(overlap) > 1.0 - 1e-15 else overlap
    sine = math.sqrt((1.0 - c) * (1.0 + c))
    narrow = WIDEST if 0.0 in (c, sine) else min(WIDEST, sine / abs(c))
    x, density = (part[0] for part in _nodes(np.array([[-bias, -other_bias / c if c else 0.0]]), narrow))
    mean = c * x[:, None] + other_bias
    y, weight = _nodes(-mean / sine if sine else np.zeros_like(mean), WIDEST)
    inner = mean + sine * y
    value = density * first.value(x + bias) * np.sum(weight * second.value(inner), axis=1)
    slope = density * first.derivative(x + bias) * np.sum(weight * second.derivative(inner), axis=1)
    return float(value.sum()), float(slope.sum())


def hermite_coefficients(link: HermiteExpansion, lengths: Array, biases: Array) -> Array:
    """Return E σ(ρ z + b) h_j(z), j = 0, 1, 2, of units of lengths ρ and biases b, shape (units, 3)."""
    kink = np.divide(-biases, lengths, out=np.zeros_like(biases), where=lengths > 0.0)[:, None]
    z, density = _nodes(kink, WIDEST / max(float(lengths.max(initial=1.0)), 1.0))
    value = density * link.value(lengths[:, None] * z + biases[:, None])
    return np.stack([np.sum(value * h, axis=1) for h in (1.0, z, (z**2 - 1.0) / math.sqrt(2.0))], axis=1)


def _nodes(kinks: Array, narrow: float) -> tuple[Array, Array]:
    """Return nodes and weights of E over N(0, 1), a row per row of kinks; pieces next to kinks have width `narrow`."""
    steps = narrow * 2.0 ** np.arange(int(np.log2(WIDEST / narrow)) + 1)
    even = np.arange(-MEANS_REACH, MEANS_REACH, WIDEST) + np.zeros((len(kinks), 1))
    near = np.hstack([kinks + step for step in (0.0, *steps, *-steps)])
    edges = np.hstack([even, near, np.full((len(kinks), 1), MEANS_REACH)])
    return _rule(np.sort(np.clip(edges, -MEANS_REACH, MEANS_REACH), axis=1))


def _rule(edges: Array) -> tuple[Array, Array]:
    """Return the nodes of Gauss–Legendre between rows of edges, and weights with the normal density."""
    nodes, weights = np.polynomial.legendre.leggauss(MEANS_NODES)
    half = 0.5 * np.diff(edges)[..., None]
    x = (edges[:, :-1, None] + half * (1.0 + nodes)).reshape(len(edges), -1)
    density = (half * weights).reshape(len(edges), -1) * np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    return x, density


class NetworkTeacher(NamedTuple):
    """A teacher as the kernels see it; a sum of units has no components, a polynomial no units."""

    #: Laid out as at the top of `dynamics.equations.network.system`.
    parameters: Array
    sizes: Integers
    #: θ (units, r) of the units.
    theta: Array
    #: E f*², and E ∂_a f* ∂_b f*, (r, r), NaN where a unit jumps.
    square: float
    sensitivity: Array
    #: The distinct links of the units, and β (units,).
    links: tuple[HermiteExpansion, ...] = ()
    biases: Array = np.empty(0)
    #: The f*_α, and the largest order |α|.
    components: Array = np.empty(0)
    degree: int = 0

    @property
    def units(self) -> int:
        """Number of units."""
        return self.biases.size


def network_teacher(problem: Problem) -> NetworkTeacher:
    """Return the teacher of a network's problem, with its numbers laid out for kernels."""
    teacher = problem.teacher
    if not teacher.is_polynomial:
        return _unit_teacher(problem)
    orders = np.array([component.degrees for component in teacher.components], dtype=np.int64)
    values = np.array([component.value for component in teacher.components])
    roots = np.array([math.sqrt(math.prod(map(math.factorial, order))) for order in orders.tolist()])
    # ∂_a f* per axis: √α_a f*_α by α − e_a.
    slopes: list[dict[tuple[int, ...], float]] = [{} for _ in orders.T]
    for order, value in zip(orders.tolist(), values.tolist(), strict=True):
        for a in np.flatnonzero(order).tolist():
            slopes[a][*order[:a], order[a] - 1, *order[a + 1 :]] = math.sqrt(order[a]) * value
    sums = [[sum(x * column.get(key, 0.0) for key, x in row.items()) for column in slopes] for row in slopes]
    mean = cast("Polynomial", teacher.target).mean
    parameters = np.concatenate([[mean], values / roots, [0.0], 1.0 / (roots * values)])
    sizes = np.concatenate([np.zeros(teacher.span, dtype=np.int64), orders.ravel()])
    theta, square, degree = np.empty((0, teacher.span)), mean**2 + float(values @ values), int(orders.sum(axis=1).max())
    return NetworkTeacher(parameters, sizes, theta, square, np.array(sums), components=values, degree=degree)


def _unit_teacher(problem: Problem) -> NetworkTeacher:
    """Return the teacher of a problem whose teacher is a sum of units."""
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
    # At 0, the one place where links with a name may jump.
    jumps = any(np.ptp(link.value(np.array([-1e-12, 1e-12]))) > 1e-6 for link in links)
    sensitivity = theta.T @ slopes @ theta * (np.nan if jumps else 1.0)
    parameters = np.concatenate([weights, biases, theta.ravel()])
    sizes = np.array([1 + links.index(unit.link) for unit in units], dtype=np.int64)
    return NetworkTeacher(parameters, sizes, theta, float(square.sum()), sensitivity, links, biases)


#: Rounding of overlaps in units of their size.
ROUNDING = 1e-14


def check_no_ties(v: Array, b: Array, M: Array, Q: Array) -> None:
    """Raise ValueError if exchanging two neurons changes nothing: they stay alike under the flow, not under SGD.

    M has what tells neurons apart beside v, b and Q: overlaps with the teacher, and with `inputs` squares by class.
    """
    traits = np.column_stack([v, b, M, np.diag(Q)])
    for i in range(1, len(v)):
        for j in np.flatnonzero(_alike(traits[:i], traits[i])).tolist():
            overlaps = np.delete(Q, (i, j), axis=1)
            require(
                not _alike(overlaps[[j]], overlaps[i])[0],
                "Argument `problem` must start every two neurons apart, in second layer, bias, or overlaps with the "
                f"teacher and the other neurons, but neurons {j} and {i} start alike: the flow would keep them so for "
                "ever, which SGD does not.",
            )


def _alike(rows: Array, row: Array) -> NDArray[np.bool_]:
    """Return per row whether it equals `row` up to rounding."""
    distance = np.abs(rows - row).max(axis=1, initial=0.0)
    return np.asarray(distance <= ROUNDING * np.abs(row).max(initial=0.0))


def normalised_overlaps(M: Array, Q: Array) -> tuple[Array, Array, Array]:
    """Return C = M_ia/√Q_ii, G = Q_ij/√(Q_ii Q_jj), zeros for a neuron of length 0, and n = Q_ii."""
    n = np.maximum(np.diag(Q), 0.0)
    length = np.sqrt(n)
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0.0)
    return M * inverse[:, None], Q * np.outer(inverse, inverse), n
