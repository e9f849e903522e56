r"""A two-layer network under SGD of a finite learning rate η, in its order parameters.

A step on B samples changes the mean of v, b and M by η times the flow, that of Q also in the second order. In the time
η · step, with u_i = ε_w s v_i e σ'_i x, e = f − f* − noise, and ∇_i = ε_w ∇_{w_i} + κ_w w_i, whose first part is E u_i,

.. math:: Q_{ij}' = Q_{ij}'|_{\mathrm{flow}} + \eta\,
   \Big[\nabla_i\cdot\nabla_j + \tfrac1B \big(S_{ij} - E u_i\cdot E u_j\big)\Big], \qquad
   S_{ij} = \varepsilon_w^2 s^2 v_i v_j\, E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j\, |x|^2]

for "finite-d", exactly the mean of a step. In its limit d → ∞ at fixed η d, "infinite-d", η d S/(d B) is left, with d
for |x|² in S, and overlaps of a single run concentrate. On the sphere, where the step goes back to the neuron's length,

.. math:: M_i' = M_i'|_{\mathrm{flow}} - \frac{\eta}{2B} \frac{S_{ii}}{Q_{ii}} M_i, \qquad
   Q_{ij}' = Q_{ij}'|_{\mathrm{flow}} + \frac{\eta}{B}
   \Big[S_{ij} - \tfrac12 Q_{ij} \Big(\frac{S_{ii}}{Q_{ii}} + \frac{S_{jj}}{Q_{jj}}\Big)\Big]

in that limit; at finite d dividing by the length brings in means of all powers of η. S is known for erf(z/√2) and
polynomials: see `dynamics.equations.network.step_system`. The scatter of single runs about the mean is left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import comb, factorial, gcd, prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import hermite
from dynamics.equations.committee import LARGEST_STEP_DEGREE, diagram_size
from dynamics.equations.interface import Functions
from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU, SIGN, TABLE
from dynamics.equations.network.network_kernels import event_values, jacobian_diagonal, normalise
from dynamics.equations.network.step_kernels import erf_product, erf_rhs, polynomial_product, polynomial_rhs
from dynamics.equations.network.system import NetworkSystem
from hermite.moments import mean_derivatives
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers


_OF_ERF = Functions(erf_rhs, event_values, normalise, jacobian_diagonal, erf_product)
_OF_POLYNOMIALS = Functions(polynomial_rhs, event_values, normalise, jacobian_diagonal, polynomial_product)


class NetworkStepSystem(NetworkSystem):
    """The equation of SGD with a learning rate η and B samples per step, with state and observables of the flow.

    Raises ValueError if the mean step of the problem is not known exactly.
    """

    name = "network-step"
    falls = False

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        exact = step_theory == "finite-d"
        super().__init__(problem)
        if exact and self.student.first_layer == "sphere":
            msg = (
                "Argument `step_theory` must be 'infinite-d' for neurons on the sphere, whose mean step at finite d is "
                f"no finite sum because it divides by a length, but is {shown(step_theory)}."
            )
            raise ValueError(msg)
        units, m = step_units(problem), problem.width
        source = step_source(problem.activation, m, units, biased=self.student.has_biases)
        self.functions = _OF_POLYNOMIALS if source.is_polynomial else _OF_ERF
        step = [learning_rate, batch_size, problem.dimension, problem.label_noise**2]
        teacher = [[-unit.coefficient for unit in units], [unit.bias for unit in units]]
        directions = [unit.direction for unit in units]
        places = [len(units), self.sizes.size, self.parameters.size, self.work_size]
        self.parameters: Array = np.concatenate([self.parameters, step, *teacher, *directions, source.numbers])
        self.sizes: Integers = np.concatenate([self.sizes, source.layout, [exact, *places]])
        M = m + len(units)
        self.work_size += M * M + m * m + 2 * M + source.work_size + 2 * self.initial_state.size


# Which links have an exact mean step of finite size, and what its kernels take: E[(ē² + τ²) σ'_i σ'_j |x|²].
#
# It closes for neurons with erf(z/√2) and teachers of erf, relu, step, sign and polynomial units, and for polynomial
# neurons and units. A polynomial teacher of several variables is a sum of polynomials of one projection each.


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

    It is that of `write_polynomial_second` where neurons are polynomials, else of `write_erf_second`.
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
