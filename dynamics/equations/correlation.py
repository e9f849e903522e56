r"""One spherical neuron that learns one direction by their correlation: its flow, and the mean motion under SGD.

.. math:: C' = a\, g_\lambda'(C)\, (1 - C^2)

is exact at every d. With steps w ← (w + η u)/|w + η u|, u the mean of y ψ x_⊥ over B samples, and in time η · step, the
mean of a step to second order in η adds −½ η C E|u|² (docs/smoothing.md).

State y = [x], x = artanh C, so that C' = (1 − C²) x' is not stiff as C comes to 1. parameters = `CorrelationNumbers`,
and sizes = [terms of a g_λ', terms of g_3, terms of N, whether the sign matters, numbers of the table of rates].
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev, hermite_e, polynomial

from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.losses import largest_overlaps, link_powers, squared_error
from dynamics.equations.mean_field import coordinate_moments
from dynamics.equations.rates import RateTable, rate_at
from dynamics.kernels.jit import kernel, vector
from dynamics.problem.checks import require
from dynamics.problem.emergence import LEARNED_SHARE
from dynamics.problem.optimizers import ZerothOrder
from hermite.arrays import Integers, Vector
from hermite.polynomials import trimmed
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from dynamics.problem import Optimizer, Problem
    from hermite.arrays import Array


@kernel
def horner(s: float, powers: Vector) -> float:
    """Return Σ_j powers_j s^j."""
    total = 0.0
    for j in range(powers.size - 1, -1, -1):
        total = total * s + powers[j]
    return float(total)


@kernel
def clenshaw(s: float, series: Vector) -> float:
    """Return Σ_j series_j T_j(s), with Chebyshev polynomials T_j."""
    last = now = 0.0
    for j in range(series.size - 1, 0, -1):
        now, last = 2.0 * s * now - last + series[j], now
    return float(s * now - last + series[0])


class CorrelationNumbers(NamedTuple):
    """Layout of `parameters`, with N and F of `step_means` and g_3 of `dynamics.problem.emergence`."""

    #: η/2B and η (1 − 1/B) F/2 for the learning rate η and B samples, with 1 for η where rates vary.
    of_drag: float
    of_drift: float
    #: The threshold of g_3 that counts as learned, and the overlap of emergence.
    threshold: float
    emergence: float
    #: Pull a g_λ' and learned kernel g_3 in powers of the overlap, and N in Chebyshev polynomials.
    slope: Vector
    learned: Vector
    drag: Vector
    #: The table of rates that vary, or none.
    rates: Vector


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> CorrelationNumbers:
    """Return weights of second-order terms, levels of events, polynomials and table of rates, from `parameters`."""
    slope, learned, drag, rates = sizes[0], sizes[1], sizes[2], sizes[4]
    return CorrelationNumbers(
        parameters[0], parameters[1], parameters[2], parameters[3], vector(parameters, 4, slope),
        vector(parameters, 4 + slope, learned), vector(parameters, 4 + slope + learned, drag),
        vector(parameters, 4 + slope + learned + drag, rates),
    )  # fmt: skip


@kernel
def sign_matters(sizes: Integers) -> bool:
    """Return whether the sign of the overlap matters."""
    return bool(sizes[3] == 1)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rate of x = artanh C, the overlap C of neuron and direction, in time η · step.

    x' = a g_λ' − C [η/2B N/(1 − C²) + η (1 − 1/B) F/2 (a g_λ')²], with η from the table if rates vary: g_λ is the
    smoothed correlation, B the samples of a batch, N and F the second-order means of `StepMeans`.
    """
    C, numbers, rate = np.tanh(y[0]), numbers_of(parameters, sizes), 1.0
    if numbers.rates.size > 0:
        rate = rate_at(t, numbers.rates)
    out[0] = pull = horner(C, numbers.slope)
    if numbers.of_drag != 0.0:
        drag = rate * numbers.of_drag * np.cosh(y[0]) ** 2 * clenshaw(C, numbers.drag)
        out[0] -= C * (drag + rate * numbers.of_drift * pull * pull)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write |C| minus the overlap of emergence (C, if the sign matters), then g_3(C) − `LEARNED_SHARE` g_3(1) a.

    C is the overlap of neuron and direction, a the direction's coefficient, and g_3 the part of the kernel that counts
    as learned.
    """
    C, numbers = np.tanh(y[0]), numbers_of(parameters, sizes)
    out[0] = (C if sign_matters(sizes) else abs(C)) - numbers.emergence
    out[1] = horner(C, numbers.learned) - numbers.threshold


#: |C| = 1 is at infinity; the largest C below it moves as little.
LARGEST_STATE = 18.0


class CorrelationSystem(FlowSystem):
    """The overlap under the flow, or under mean steps of B samples; ValueError if means are not known."""

    name = "correlation"
    functions = Functions(rhs, event_values)

    def __init__(
        self,
        problem: Problem,
        learning_rate: float = 0.0,
        batch_size: int = 1,
        optimizer: Optimizer | None = None,
        table: RateTable | None = None,
    ) -> None:
        """Prepare the flow at rate 0, else mean steps at `learning_rate` or at the rates of `table`.

        Mean steps are those of `batch_size` samples by plain SGD or, for a zeroth-order `optimizer`, along its random
        directions; ValueError is raised for others. The state is [artanh C], C the overlap at the start.
        """
        slope, squares = signal_slope(problem), problem.learned_part.coefficients**2
        drag, share = np.zeros(1), 1.0
        if learning_rate > 0.0:
            check_optimizer(optimizer)
            directions = optimizer.directions if isinstance(optimizer, ZerothOrder) else None
            means = step_means(problem, directions, batch_size)
            drag, share = np.asarray(means.drag.coef, dtype=np.float64), means.drift_share
        self.problem, self.batch_size = problem, batch_size
        C = float(problem.start().teacher_overlap[0, 0])
        with np.errstate(divide="ignore"):
            self.initial_state: Array = np.clip([np.arctanh(C)], -LARGEST_STATE, LARGEST_STATE)
        rate, rates = (learning_rate, np.empty(0)) if table is None else (1.0, table.nodes)
        step = 0.5 * rate * np.array([1.0 / batch_size, share * (1.0 - 1.0 / batch_size)])
        threshold = LEARNED_SHARE * squares.sum() * problem.teacher.coefficients[0]
        level = np.sqrt(problem.emergence_level)
        numbers = CorrelationNumbers(step[0], step[1], threshold, level, slope, squares, drag, rates)
        self.parameters: Array = np.concatenate([np.ravel(part) for part in numbers])
        counts = [slope.size, squares.size, drag.size, problem.information_exponent % 2, rates.size]
        self.sizes: Integers = np.array(counts, dtype=np.int64)
        self.num_events = 2

    def stiffness(self) -> float:
        """Return a bound on how fast x relaxes in the flow: the largest |d x'/dx| on a grid."""
        C = np.linspace(-1.0, 1.0, 201)
        bend = polynomial.polyder(signal_slope(self.problem))
        return float(np.max(np.abs(polynomial.polyval(C, bend) * (1.0 - C**2))))

    def unpack(self, state: Array) -> tuple[Array]:
        """Return the overlap C of neuron and direction, shape (1, 1), as a tuple of one array."""
        return (np.tanh(state).reshape(1, 1),)

    def loss(self, C: Array) -> float:
        """Return E(f − f*)² of f = σ(w·x) at the overlap C (1, 1); the flow descends the correlation instead."""
        return squared_error(self.problem, np.ones((1, 1)), C)

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, the overlap (C > 0 alone for odd k, else |C|) and the learned mass g_3(C)/g_3(1)."""
        (C,), part = self.unpack(state), self.problem.learned_part
        mass = part.kernel(C[0]) / part.kernel_at_one
        return {"loss": self.loss(C), "max_overlap": largest_overlaps(self.problem, C), "learned_mass": mass}

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return the observables of `summarise`, and the overlap C."""
        return self.summarise(state) | {"teacher_overlap": self.unpack(state)[0]}


# The correlation of a neuron and one direction, averaged over (w + λz)/√(1 + λ²), z uniform on the unit sphere
# orthogonal to w. A sample x enters through a_0 = w·x and r² = |x|² − a_0² alone, and the gradient in w is ψ x_⊥,
#
# .. math:: \varphi(a_0, r^2) = E_\zeta\, \sigma\Big(\frac{a_0 + \lambda r \zeta}{\sqrt{1+\lambda^2}}\Big), \qquad
# \psi = \frac{\partial\varphi}{\partial a_0} - 2 a_0 \frac{\partial\varphi}{\partial r^2}, \qquad
# g_\lambda(C) = \sum_k c_k c^*_k (1+\lambda^2)^{-k/2} \sum_j \binom{k}{2j} C^{k-2j} \lambda^{2j} (1-C^2)^j \mu_j,
#
# ζ one coordinate of z, μ_j = E ζ^(2j). (Damian, Nichani, Ge and Lee, arXiv:2305.10633.)

#: Largest degree of a link that is smoothed, or whose steps have exact means: sums in powers lose digits beyond.
LARGEST_DEGREE = 12


def signal_powers(problem: Problem) -> Array:
    """Return the coefficients of the smoothed correlation g_λ in powers of the overlap C, lowest first.

    ValueError where a link beyond `LARGEST_DEGREE` is smoothed.
    """
    student, teacher = link_powers(problem)
    products, smoothing = student * teacher, problem.smoothing
    if smoothing == 0.0:
        return products
    check_degree("smoothed", problem)
    moments = coordinate_moments(problem.dimension - 1, products.size // 2 + 1)
    across = [polynomial.polypow([1.0, 0.0, -1.0], j) * smoothing ** (2 * j) * mu for j, mu in enumerate(moments)]
    total = np.zeros(1)
    for k in np.flatnonzero(products):
        scale = products[k] * (1.0 + smoothing**2) ** (-0.5 * k)
        for j in range(k // 2 + 1):
            term = scale * comb(k, 2 * j) * across[j]
            total = polynomial.polyadd(total, np.concatenate([np.zeros(k - 2 * j), term]))
    return total


def gradient_table(problem: Problem) -> Array:
    """Return the coefficients of ψ, shape (i, j) for a_0^i r^(2j): a sample x has the gradient ψ x_⊥ in w.

    w is the unit vector of the neuron, a_0 = w·x, x_⊥ the part of x orthogonal to w and r its length. The gradient is
    that of the neuron's output, tangent to the sphere; with a smoothing λ of the problem the output is its mean over
    random shifts of w by the length λ in the tangent space. Rows and columns of zeros at the ends are left out.
    ValueError is raised for links beyond the degree `LARGEST_DEGREE`.
    """
    check_degree("differentiated as a polynomial", problem)
    c = np.array(trimmed(problem.activation.coefficients))
    powers = hermite_e.herme2poly(c / np.sqrt(np.cumprod(np.maximum(np.arange(c.size), 1.0))))
    smoothing, degree = problem.smoothing, powers.size - 1
    moments = coordinate_moments(problem.dimension - 1, degree // 2 + 1)
    value = np.zeros((degree + 1, degree // 2 + 1))
    for p, power in enumerate(powers):
        for j in range(p // 2 + 1):
            spread = comb(p, 2 * j) * smoothing ** (2 * j) * moments[j]
            value[p - 2 * j, j] += power * (1.0 + smoothing**2) ** (-0.5 * p) * spread
    gradient = np.zeros_like(value)
    gradient[:-1] += np.arange(1.0, degree + 1)[:, None] * value[1:]
    gradient[1:, :-1] -= 2.0 * np.arange(1.0, value.shape[1])[None] * value[:-1, 1:]
    used_rows, used_columns = (np.flatnonzero(gradient.any(axis=axis)) for axis in (1, 0))
    return np.ascontiguousarray(gradient[: used_rows.max(initial=0) + 1, : used_columns.max(initial=0) + 1])


def check_degree(done: str, problem: Problem) -> None:
    """Raise ValueError for links beyond `LARGEST_DEGREE`; `done`, such as "smoothed", is for the message."""
    for name, link in (("activation", problem.activation), ("teacher_activation", problem.teacher_link)):
        degree = int(np.flatnonzero(link.coefficients).max(initial=0))
        require(
            degree <= LARGEST_DEGREE,
            f"Argument `{name}` must have a degree of at most {LARGEST_DEGREE} to be {done}, but has {degree}; "
            f"`order={LARGEST_DEGREE}` cuts its series there.",
        )


# Exact means of one step of SGD on the correlation, as functions of the overlap C.
#
# With x_⊥ = v e + the rest, e the direction of θ orthogonal to w, s = √(1 − C²) and y = a σ*(C a_0 + s v) + noise of
# variance τ², a step changes C by η D − ½ η² C N to second order, with variance η² V (1 − C²), where
#
# .. math:: D = E[y\, \psi\, s v] = a\, g_\lambda'(C) (1 - C^2), \; N = E[y^2 \psi^2 r^2], \; V = E[y^2 \psi^2 v^2].
#
# N and V are polynomials in C, found by Gauss rules in a_0, v and χ² = r² − v².
#
# With M = E[y² ψ² |x|²] and R = E[y ψ a_0], the mean of G along w, zeroth-order SGD has the same D and
#
# .. math:: N = \frac{d-1}{K} [M + (B-1) R^2] + \Big(1 + \frac1K\Big) N_{SGD}, \qquad
#    V = \frac1K \Big[M + (B-1) \Big(R^2 + \frac{2 D^2}{1-C^2}\Big)\Big] + \Big(1 + \frac1K\Big) V_{SGD}.


class StepMeans(NamedTuple):
    """Second-order means of a step, functions of the overlap C: `drag` N and `spread` V, and the number F.

    E|u|² of the mean gradient u of B samples is N/B + (1 − 1/B) F D²/(1 − C²), F = `drift_share`, D its mean along the
    direction.
    """

    drag: chebyshev.Chebyshev
    spread: chebyshev.Chebyshev
    drift_share: float = 1.0


def signal_slope(problem: Problem) -> Array:
    """Return a g_λ' in powers of the overlap C, lowest first: the pull on the neuron."""
    return np.asarray(polynomial.polyder(signal_powers(problem)) * problem.teacher.coefficients[0])


def step_means(problem: Problem, directions: int | None = None, batch_size: int = 1) -> StepMeans:
    """Return N and V of polynomial or truncated links; ValueError for others, and beyond degree 12.

    They are those of SGD, or of steps of zeroth order along K directions, which no landscape smooths.
    """
    require(
        directions is None or problem.smoothing == 0.0,
        f"Argument `smoothing` must be 0 for steps of zeroth order on the correlation, but is {problem.smoothing:g}.",
    )
    for name, link in (("activation", problem.activation), ("teacher_activation", problem.teacher_link)):
        require(
            link.is_polynomial,
            f"Argument `{name}` must be a polynomial for exact means of a step, but is {link.name}; a truncated series "
            "is one as a dict of its coefficients.",
        )
    check_degree("averaged exactly", problem)
    table, teacher = gradient_table(problem), problem.teacher_link
    degree = int(np.flatnonzero(teacher.coefficients).max(initial=0))
    # ψ² r² has degree 2(i + 2j) + 2 in all, y² has 2 degree.
    count = degree + sum(table.shape) + table.shape[1] + 2
    nodes, weights = hermite_e.hermegauss(count)
    weights = weights / weights.sum()
    squares, shares = chi_square_rule(problem.dimension - 2, 2 * table.shape[1])
    a, v = nodes[:, None], nodes[None, :]
    r2 = np.broadcast_to(v[..., None] ** 2 + squares, (count, count, squares.size))
    square = polynomial.polyval2d(np.broadcast_to(a[..., None], r2.shape), r2, table) ** 2
    pair_weights = np.outer(weights, weights)
    drag, spread = pair_weights * ((square * r2) @ shares), pair_weights * v**2 * (square @ shares)
    total = drag + pair_weights * a**2 * (square @ shares)
    overlaps = chebyshev.chebpts1(2 * degree + 1)
    projections = overlaps[:, None, None] * a + np.sqrt(1.0 - overlaps**2)[:, None, None] * v
    labels = (problem.teacher.coefficients[0] * teacher.value(projections)) ** 2 + problem.label_noise**2
    into = np.linalg.inv(chebyshev.chebvander(overlaps, 2 * degree))

    def mean(part: Array) -> chebyshev.Chebyshev:
        """Return the mean of `part` times the squared label over nodes, a Chebyshev series in the overlap C."""
        return chebyshev.Chebyshev(into @ np.sum(labels * part, axis=(1, 2)))

    plain = StepMeans(mean(drag), mean(spread))
    if directions is None:
        return plain
    along, pull, across = (
        polynomial.Polynomial(part).convert(kind=chebyshev.Chebyshev)
        for part in (radial_powers(problem), signal_slope(problem), [1.0, 0.0, -1.0])
    )
    share, plain_factor = (problem.dimension - 1) / directions, 1.0 + 1.0 / directions
    batch = mean(total) + (batch_size - 1) * along**2
    spread_sum = (batch + 2 * (batch_size - 1) * pull**2 * across) / directions
    return StepMeans(
        share * batch + plain_factor * plain.drag, spread_sum + plain_factor * plain.spread, share + plain_factor
    )


def radial_powers(problem: Problem) -> Array:
    """Return E[y z σ'(z)], y the label and z = w·x, as coefficients of powers of the overlap C, lowest first."""
    student, teacher = link_powers(problem)
    k = np.arange(float(student.size))
    product = k * student
    product[:-2] += np.sqrt(k[2:] * (k[2:] - 1.0)) * student[2:]
    return np.asarray(problem.teacher.coefficients[0] * product * teacher)


def check_optimizer(optimizer: Optimizer | None) -> None:
    """Refuse optimizers under which the mean of a step is not known, with the reason."""
    if optimizer is None or optimizer.is_plain:
        return
    if not isinstance(optimizer, ZerothOrder):
        refuse(
            "Argument `optimizer` must be plain SGD or ZerothOrder for the objective 'correlation', as buffers do not "
            f"stay on the sphere, and signs and mean squares see the axes, but is {optimizer}."
        )
    require(
        optimizer.smoothing == 0.0,
        "Argument `optimizer` must have `smoothing` 0 for the objective 'correlation', whose steps are along slopes, "
        f"but is {optimizer}.",
    )


def chi_square_rule(freedom: int, count: int) -> tuple[Array, Array]:
    """Return nodes and weights, (count,) each, of the Gauss rule of χ² with `freedom` ≥ 0 degrees of freedom.

    Weights have sum 1; for 0 there is one node, 0.
    """
    from scipy.linalg import eigh_tridiagonal

    if freedom == 0:
        return np.zeros(1), np.ones(1)
    n = np.arange(count, dtype=np.float64)
    shape = 0.5 * freedom
    nodes, vectors = eigh_tridiagonal(2.0 * n + shape, np.sqrt(n[1:] * (n[1:] + shape - 1.0)))
    return np.asarray(2.0 * nodes), np.asarray(vectors[0] ** 2)
