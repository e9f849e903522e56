"""Links as the kernels of pairs know them: by family, with their numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from hermite.closed_forms import ClosedForm
from hermite.text.formulas import variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.problem.teacher import Polynomial
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers


#: Families by their number in the kernels.
RELU, SIGN, ERF, POLYNOMIAL, TABLE = range(5)
#: Largest degree of a polynomial, whose derivatives at 0 are float64.
LARGEST_DEGREE = 150
#: |h_j(x)| φ(x) <= CRAMER e^(-x²/4) (Cramér's inequality).
CRAMER = 1.0865 / math.sqrt(2.0 * math.pi)


class LinkTable(Protocol):
    """Tabulated means of a link, as `dynamics.equations.network.series` makes them."""

    @property
    def numbers(self) -> Array:
        """What the kernels read."""

    def covers(self, length: Array, bias: Array) -> Array:
        """Return which lengths and biases the table reaches."""

    def tails(self, length: Array, bias: Array) -> Array:
        """Return bounds on what the table leaves out of σ and of σ', shape (2, units)."""


@dataclass(frozen=True, eq=False)
class Link:
    """A link's family, and E_j of a polynomial at q = 1 and 0, its table, or κ, β and γ of a link κ f + βz + γ."""

    family: int
    coefficients: Array = field(default_factory=lambda: np.empty((2, 0)))
    table: LinkTable | None = None
    scale: float = 1.0
    slope: float = 0.0
    offset: float = 0.0

    @property
    def has_line(self) -> bool:
        """Whether it is more than f."""
        return (self.scale, self.slope, self.offset) != (1.0, 0.0, 0.0)

    @property
    def numbers(self) -> Array:
        """What the kernels read."""
        return self.coefficients.ravel() if self.table is None else self.table.numbers

    @property
    def terms(self) -> int:
        """The degree of a polynomial and one, 0 of other links."""
        return int(self.coefficients.shape[1])

    def tails(self, terms: int, q: Array, b: Array) -> Array:
        """Return bounds on what a series of so many terms leaves out of σ and of σ', shape (2, units).

        Terms of relu, erf and sign are bounded one by one. Those of the slope of sign do not fall: its row holds their
        bound. Infinity stands for what is outside the range of a table.
        """
        if self.family == POLYNOMIAL:
            return np.zeros((2, q.size))
        length = np.sqrt(q)
        if self.table is not None:
            bound: Array = np.where(self.table.covers(length, b), self.table.tails(length, b), np.inf)
            return bound
        T = q + 1.0 if self.family == ERF else q
        size = abs(self.scale) * CRAMER * np.exp(-0.25 * b * b / T)
        if self.family == RELU:
            return np.stack([length * size / math.sqrt(terms - 1.0), np.full_like(q, abs(self.scale))])
        if self.family == SIGN:
            return np.stack([np.full_like(q, abs(self.scale)), 2.0 * size / length])
        power = 2.0 * size * np.sqrt((q / T) ** terms * T)
        return np.stack([power / math.sqrt(terms), power / np.sqrt(T)])


def known_link(link: HermiteExpansion) -> Link | None:
    """Return a polynomial, or κ f + βz + γ with f one of relu, sign and erf(z/√2); None for any other link."""
    if link.is_polynomial:
        degree = len(link.link_coefficients()) - 1
        if degree > LARGEST_DEGREE:
            msg = (
                f"Argument `student` must have links of degree at most {LARGEST_DEGREE}, but one is of degree {degree}."
            )
            raise ValueError(msg)
        return Link(POLYNOMIAL, np.stack([link.link_coefficients(), _at_zero(link)]))
    if not isinstance(link.exact_source, ClosedForm):
        return None
    line = [0.0, 0.0]
    scales = dict.fromkeys((RELU, SIGN, ERF), 0.0)
    for term in link.exact_source.terms:
        size = float(term.coefficient)
        if term.kind == "one" and term.power <= 1:
            line[term.power] += size
        elif term.kind == "step" and term.power == 0 and term.parameters == (0,):
            scales[SIGN] += 0.5 * size
            line[0] += 0.5 * size
        elif term.kind == "step" and term.power == 1 and term.parameters == (0,):
            scales[RELU] += size
        elif term.kind == "erf" and term.power == 0 and 2 * term.parameters[0] ** 2 == 1 and term.parameters[1] == 0:
            scales[ERF] += size * (1.0 if term.parameters[0] > 0 else -1.0)
        else:
            return None
    found = [family for family, scale in scales.items() if scale != 0.0]
    return Link(found[0], scale=scales[found[0]], slope=line[1], offset=line[0]) if len(found) == 1 else None


def _at_zero(link: HermiteExpansion) -> list[float]:
    """Return σ^(j)(0)/√j! of a polynomial, from exact coefficients where they are known."""
    count = len(link.link_coefficients())
    if link.exact_source is None:
        given = [c * math.sqrt(math.factorial(k)) for k, c in enumerate(link.link_coefficients())]
        heat = [(-0.5) ** n / math.factorial(n) for n in range(count)]
        derivatives = [math.fsum(h * d for h, d in zip(heat, given[j::2], strict=False)) for j in range(count)]
    else:
        import sympy

        powers = sympy.Poly(link.expression, variable()).all_coeffs()[::-1]
        derivatives = [float(power * math.factorial(j)) for j, power in enumerate(powers)]
    return [derivative / math.sqrt(math.factorial(j)) for j, derivative in enumerate(derivatives)]


# E σ_a σ_b and E σ'_a σ'_b of two units of variance 1, by quadrature: the teacher's own square, once per problem.
#
# With x = λ_a and λ_b = c x + √(1 − c²) y both integrals are over pieces that begin and end where a link may have a
# kink, at 0: y at −(β_b + c x)/√(1 − c²), x at −β_a, and at −β_b/c, around which pieces grow from the width √(1 −
# c²)/|c| of what the inner integral leaves of the kink.


#: Reach of the integrals, beyond which the density is 1e-37, nodes per piece, and width of the widest piece.
MEANS_REACH, MEANS_NODES, WIDEST = 13.0, 16, 1.2
#: Pieces of the inner integral on each side of the kink.
SIDES = 8


@cache
def mean_of_product(
    first: HermiteExpansion, bias: float, second: HermiteExpansion, other_bias: float, overlap: float
) -> tuple[float, float]:
    """Return E σ_a(λ_a + β_a) σ_b(λ_b + β_b) and the same of the slopes, for standard normals of a covariance.

    Accurate to 1e-13 of the links' scale; slopes are those almost everywhere, without a delta at a jump.
    """
    if abs(overlap) > 1.0 - 1e-15:
        x, density = _nodes(np.array([-bias, -other_bias * np.sign(overlap)]), WIDEST)
        values = second.value(np.sign(overlap) * x + other_bias), second.derivative(np.sign(overlap) * x + other_bias)
    elif overlap == 0.0:
        x, density = _nodes(np.array([-bias]), WIDEST)
        y, other = _nodes(np.array([-other_bias]), WIDEST)
        values = other @ second.value(y + other_bias), other @ second.derivative(y + other_bias)
    else:
        rest = np.sqrt((1.0 - overlap) * (1.0 + overlap))
        x, density = _nodes(np.array([-bias, -other_bias / overlap]), min(WIDEST, rest / abs(overlap)))
        kink = np.clip(-(other_bias + overlap * x) / rest, -MEANS_REACH, MEANS_REACH)[:, None]
        low, high = np.linspace(0.0, 1.0, SIDES + 1), np.linspace(0.0, 1.0, SIDES + 1)
        edges = np.hstack([kink + (-MEANS_REACH - kink) * low[::-1], (kink + (MEANS_REACH - kink) * high)[:, 1:]])
        y, other = _rule(edges)
        inner = overlap * x[:, None] + rest * y + other_bias
        values = np.sum(other * second.value(inner), axis=1), np.sum(other * second.derivative(inner), axis=1)
    return (
        float(np.sum(density * first.value(x + bias) * values[0])),
        float(np.sum(density * first.derivative(x + bias) * values[1])),
    )


def hermite_coefficients(link: HermiteExpansion, lengths: Array, biases: Array) -> Array:
    """Return E σ(ρ z + b) h_j(z), j = 0, 1, 2, of units of lengths ρ and biases b, shape (units, 3).

    By quadrature over pieces that begin and end where a link may have a kink, at 0, and grow from WIDEST/ρ there.
    """
    narrow = WIDEST / max(float(lengths.max(initial=1.0)), 1.0)
    steps = narrow * 2.0 ** np.arange(int(np.log2(2.0 * MEANS_REACH / narrow)) + 1)
    kink = np.divide(-biases, lengths, out=np.zeros_like(biases), where=lengths > 0.0)[:, None]
    even = np.arange(-MEANS_REACH, MEANS_REACH, WIDEST) + np.zeros_like(kink)
    edges = np.hstack([even, kink - steps, kink, kink + steps, np.full_like(kink, MEANS_REACH)])
    z, density = _rule(np.sort(np.clip(edges, -MEANS_REACH, MEANS_REACH), axis=1))
    value = density * link.value(lengths[:, None] * z + biases[:, None])
    return np.stack([np.sum(value * h, axis=1) for h in (1.0, z, (z**2 - 1.0) / math.sqrt(2.0))], axis=1)


def _nodes(kinks: Array, narrow: float) -> tuple[Array, Array]:
    """Return nodes and weights of E over a standard normal, in pieces that grow from `narrow` with their distance."""
    steps = narrow * 2.0 ** np.arange(int(np.log2(WIDEST / narrow)) + 1)
    even = np.arange(-MEANS_REACH, MEANS_REACH, WIDEST)
    edges = np.concatenate([even, [MEANS_REACH], *(kinks + sign * step for step in (0.0, *steps) for sign in (-1, 1))])
    x, density = _rule(np.unique(np.clip(edges, -MEANS_REACH, MEANS_REACH))[None, :])
    return x[0], density[0]


def _rule(edges: Array) -> tuple[Array, Array]:
    """Return the nodes of Gauss–Legendre between rows of edges, and weights with the normal density."""
    nodes, weights = np.polynomial.legendre.leggauss(MEANS_NODES)
    half = 0.5 * np.diff(edges)[..., None]
    x = (edges[:, :-1, None] + half * (1.0 + nodes)).reshape(len(edges), -1)
    density = (half * weights).reshape(len(edges), -1) * np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    return x, density


# What the kernels of a network take of its teacher: numbers, sizes, the constant E f*² and the sensitivity.


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
        As `network_kernels` says.
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


# The refusal of starts at which two neurons are alike, so that no flow would ever tell them apart.


#: Rounding of overlaps in units of their size.
ROUNDING = 1e-14


def check_no_ties(v: Array, b: Array, M: Array, Q: Array) -> None:
    """Raise ValueError if exchanging two neurons changes nothing: they stay alike under the flow, not under SGD."""
    own = np.column_stack([v, b, M, np.diag(Q)])
    for i in range(1, len(v)):
        for j in np.flatnonzero(_alike(own[:i], own[i])).tolist():
            others = np.delete(Q, (i, j), axis=1)
            if _alike(others[[j]], others[i])[0]:
                msg = (
                    "Argument `problem` must start every two neurons apart, in second layer, bias, or overlaps with "
                    f"the teacher and the other neurons, but neurons {j} and {i} start alike: the flow would keep "
                    "them so for ever, which SGD does not."
                )
                raise ValueError(msg)


def _alike(rows: Array, row: Array) -> NDArray[np.bool_]:
    """Return per row whether it equals `row` up to rounding."""
    distance = np.abs(rows - row).max(axis=1, initial=0.0)
    alike: NDArray[np.bool_] = distance <= ROUNDING * np.abs(row).max(initial=0.0)
    return alike
