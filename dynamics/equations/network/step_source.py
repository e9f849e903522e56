"""Which links have an exact mean step of finite size, and what its kernels take: E[(ē² + τ²) σ'_i σ'_j |x|²].

It closes for neurons with erf(z/√2) and teachers of erf, relu, step, sign and polynomial units, and for polynomial
neurons and units. A polynomial teacher of several variables is a sum of polynomials of one projection each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import comb, factorial, gcd, prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import hermite
from dynamics.equations.committee.links import LARGEST_STEP_DEGREE, diagram_size
from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU, SIGN, TABLE
from hermite.moments import mean_derivatives

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

#: The family of a link whose mean step is not known.
UNKNOWN = TABLE
_KINDS = {"relu": RELU, "sign": SIGN, "erf": ERF}
#: Numbers of a row of tables before D_0.
HEAD = 9


class StepLink(NamedTuple):
    """A link of the step: its kind, its degree if it is a polynomial, and its numbers."""

    name: str
    kind: int
    degree: int
    numbers: tuple[float, ...]


class StepUnit(NamedTuple):
    """A unit of the teacher, a σ(θ·x + β)."""

    coefficient: float
    link: StepLink
    direction: Array
    bias: float


@dataclass(frozen=True, slots=True)
class StepSource:
    """What the kernel `write_step_second` takes.

    It is that of `network_step_polynomial_kernels` where neurons are polynomials, else of `network_step_erf_kernels`.
    """

    is_polynomial: bool
    numbers: Array
    layout: Integers
    work_size: int


def step_link(link: HermiteExpansion) -> StepLink:
    """Return what the step knows of a link."""
    if link.is_polynomial:
        return _series(link.name, mean_derivatives(np.trim_zeros(link.link_coefficients(), "b")))
    if link.name in _KINDS and link == hermite.expand(link.name, order=link.order):
        return StepLink(link.name, _KINDS[link.name], 0, ())
    return StepLink(link.name, UNKNOWN, 0, ())


def _series(name: str, means: Sequence[float] | Array) -> StepLink:
    return StepLink(name, POLYNOMIAL, max(len(means) - 1, 0), tuple(float(mean) for mean in means) or (0.0,))


def step_units(problem: Problem) -> tuple[StepUnit, ...]:
    """Return the teacher's units: a polynomial is a sum of such, and a step is ½ + ½ sign."""
    target = problem.teacher.target
    if target is not None:
        return ridge_units(target.exponents.tolist(), target.powers.tolist())
    units, constant = [], 0.0
    for coefficient, link, direction, bias in problem.teacher.units(problem.teacher_link):
        if link.name == "step" and link == hermite.expand("step", order=link.order):
            constant += 0.5 * coefficient
            units.append(StepUnit(0.5 * coefficient, StepLink("sign", SIGN, 0, ()), direction, bias))
        else:
            units.append(StepUnit(coefficient, step_link(link), direction, bias))
    if constant != 0.0:
        units.append(StepUnit(constant, _series("constant", [1.0]), np.zeros(problem.teacher.span), 0.0))
    return tuple(units)


def step_source(student: HermiteExpansion, width: int, units: Sequence[StepUnit], *, biased: bool) -> StepSource:
    """Return what the kernel takes for neurons of one link, whether they are `biased`, and the teacher's units.

    Raises ValueError, which names `sgd_check.simulate`, where the mean step does not close.
    """
    own, links = step_link(student), [unit.link for unit in units]
    if own.kind not in (ERF, POLYNOMIAL):
        _refuse(f"neurons of {own.name}: it is known for 'erf' and polynomials")
    for link in links:
        if link.kind == UNKNOWN or (own.kind == POLYNOMIAL and link.kind != POLYNOMIAL):
            kinds = "polynomials" if own.kind == POLYNOMIAL else "'erf', 'relu', 'step', 'sign' and polynomials"
            _refuse(f"neurons of {own.name} and a teacher of {link.name}: it is known for a teacher of {kinds}")
    vectors = [own] * width + links
    places = dict.fromkeys(vectors)
    numbers: list[float] = []
    at = {}
    for link in places:
        at[link] = len(numbers)
        numbers += link.numbers
    top, M = max(link.degree for link in vectors), len(vectors)
    biased = biased or any(unit.bias for unit in units)
    if own.kind == POLYNOMIAL:
        if top > LARGEST_STEP_DEGREE:
            _refuse(f"polynomials of degree {top}: it is known up to {LARGEST_STEP_DEGREE}")
        lacking = 2 if biased else _lacking_parity(places)
        layout = [max(top, 1), lacking, *(x for v in vectors for x in (at[v], v.degree))]
        size = diagram_size(M, layout[0])
    else:
        layout = [top + 3, not biased, *(x for v in vectors for x in (v.kind, at[v], v.degree))]
        size = M * (HEAD + layout[0] + M + 3)
    return StepSource(own.kind == POLYNOMIAL, np.array(numbers), np.array(layout, dtype=np.int64), size)


def _refuse(where: str) -> None:
    msg = (
        "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has "
        f"{where}; `sgd_check.simulate` takes such steps."
    )
    raise ValueError(msg)


def _lacking_parity(links: Mapping[StepLink, None]) -> int:
    """Return the parity, 0 or 1, of the degrees that all polynomials lack; 2 if there is none."""
    for parity in (0, 1):
        if not any(any(link.numbers[parity::2]) for link in links):
            return parity
    return 2


def ridge_units(exponents: Sequence[Sequence[int]], powers: Sequence[float]) -> tuple[StepUnit, ...]:
    r"""Return Σ_t powers_t Π_a x_a^exponents_ta as a sum of polynomials p(θ·x), by Kan's formula (2008).

    .. math:: \prod_a x_a^{e_a} = \frac1{n!} \sum_{0\le\nu\le e} (-1)^{|\nu|} \prod_a \binom{e_a}{\nu_a}
       \Big(\sum_a \big(\tfrac{e_a}2 - \nu_a\big) x_a\Big)^n, \qquad n = \sum_a e_a

    Examples
    --------
    >>> [unit.direction.round(3).tolist() for unit in ridge_units([[1, 1], [0, 1]], [1.0, 0.5])]
    [[0.707, 0.707], [0.707, -0.707], [0.0, 1.0]]
    """
    # direction as whole numbers -> degree n -> coefficient of (direction·x)^n
    forms: defaultdict[tuple[int, ...], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    constant = 0.0
    for exponent, power in zip(exponents, powers, strict=True):
        n = sum(exponent)
        if n == 0:
            constant += float(power)
        for form, share in _forms(tuple(int(e) for e in exponent)).items():
            forms[form][n] += float(share) * float(power)
    units = []
    for form, coefficients in forms.items():
        length = float(np.linalg.norm(form))
        weights = {n: value * length**n for n, value in coefficients.items()}
        link = _series("polynomial", _means_of_powers({0: constant} | weights))
        constant = 0.0
        units.append(StepUnit(1.0, link, np.array(form) / length, 0.0))
    return tuple(units)


def _forms(exponent: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
    """Return the linear forms of which a monomial of degree n is the sum of n-th powers, with their factors."""
    found: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    n = sum(exponent)
    if n == 0:
        return {}
    for nu in product(*(range(e + 1) for e in exponent)):
        twice = [e - 2 * k for e, k in zip(exponent, nu, strict=True)]
        common = gcd(*twice)
        if common == 0:
            continue
        sign = 1 if next(x for x in twice if x) > 0 else -1
        form = tuple(sign * x // common for x in twice)
        factor = (-1) ** sum(nu) * prod(comb(e, k) for e, k in zip(exponent, nu, strict=True))
        found[form] += Fraction(factor * (sign * common) ** n, factorial(n) * 2**n)
    return {form: factor for form, factor in found.items() if factor}


def _means_of_powers(weights: Mapping[int, float]) -> Array:
    """Return E p^(k)(z), p = Σ_n weights_n z^n, z ~ N(0, 1): E (z^n)^(k) = n!/(n − k)! (n − k − 1)!! for even n − k."""
    means = np.zeros(max(weights) + 1)
    for n, weight in weights.items():
        for k in range(n % 2, n + 1, 2):
            means[k] += weight * (factorial(n) // factorial(n - k)) * prod(range(n - k - 1, 0, -2))
    return means
