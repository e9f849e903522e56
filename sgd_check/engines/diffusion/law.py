r"""Exact mean and covariance of one step of online SGD, in the coordinates that a student sees.

A sample moves w_i by −η e ∇_i, ∇_i = ρ_i [α_i u_i + σ'_i x], α = 2σ − zσ', e = ē − noise, ē = Σ_b w_b σ(v_b·x), where
the vectors v are the m unit neurons u_i, with weights n_i, and the P directions, with weights −a_p. On the D = r + m
axes that hold all v, the *visible* ones, the mean E[ē ∇_i] is that of `dynamics.equations.finite_step.step_moments`. On
every other axis x is independent of e and σ', so there the mean is 0, the covariance is ρ_i ρ_j E[e² σ'_i σ'_j], and
nothing is correlated with the visible axes.

*Covariance.* Integrating x by parts, E[F x xᵀ] = E[F] I + E[∂∂ᵀF], leaves products of links and derivatives alone:

.. math:: \frac{E[e^2 \nabla_i \nabla_j^T]}{\rho_i \rho_j} = E[e^2 \sigma'_i \sigma'_j]\, I
   + \sum_{cc'} q_{cc'} v_c v_{c'}^T

with γ = α + σ'' and γ' = σ' − zσ'' + σ''', where q is the sum of

    v_c ⊗ v_c' : 2 w_c w_c' E[σ'_c σ'_c' σ'_i σ'_j]          v_c ⊗ v_c : 2 w_c E[ē σ''_c σ'_i σ'_j]
    u_i ⊗ v_c : 2 w_c E[ē σ'_c γ_i σ'_j]                     v_c ⊗ u_j : 2 w_c E[ē σ'_c σ'_i γ_j]
    v_c ⊗ u_i : 2 w_c E[ē σ'_c σ''_i σ'_j]                   u_j ⊗ v_c : 2 w_c E[ē σ'_c σ'_i σ''_j]
    u_i ⊗ u_j : E[e² γ_i γ_j]                                u_j ⊗ u_i : E[e² σ''_i σ''_j]
    u_i ⊗ u_i : E[e² γ'_i σ'_j]                              u_j ⊗ u_j : E[e² σ'_i γ'_j].

*Four links.* Given y, the projections of x on u_i and on the rest of u_j, the projections z_c and z_c' of the others
are Gaussian with covariance κ = Q_cc' − the part in y, and by Mehler's formula

.. math:: E[f(z_c) g(z_{c'}) | y] = \sum_e \frac{\kappa^e}{e!} E[f^{(e)}(z_c) | y]\, E[g^{(e)}(z_{c'}) | y].

Each factor is a polynomial in y: for h_n it is q^n h_n(μ/q), μ the mean of z_c and q² the variance of μ, and its
recurrence never divides by q. Gauss-Hermite rules of 2K + 2 points in y, one axis for i = j and two otherwise, are
exact for a link of degree K. All weights are positive, so that rounding stays small at every degree, and neurons that
coincide are no special case but for the missing axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hermite import polynomials
from sgd_check.engines.diffusion.diffusion_kernels import Settings, write_step_law

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array

    Link = tuple[Array, Array, Array, Array, Array]

#: Links that are no polynomials are cut here at the latest: the tails of longer series are not theirs.
SERIES_DEGREE = 20
LARGEST_NOISE_RATIO = 1.5
# Trapezoid rule for averages over the link itself.
GRID_REACH, GRID_POINTS = 12.0, 6145


class StepLaw(NamedTuple):
    """Mean and covariance of the mean gradient Σ_b e_b ∇_b/B of a batch, dimensionless; a step is −η times it.

    On the visible axes the mean E[e ∇_i] is (m, D) and the covariance (m, D, m, D); on each other axis the mean is 0
    and the covariance `beyond` (m, m). `ratio` is the largest relative change of a weight vector (root mean square) or
    of a mean gradient in one step, per η.
    """

    mean: Array
    covariance: Array
    beyond: Array
    ratio: float


class StepLaws:
    """The laws of one step of SGD for one problem and batch size, at any weights.

    The kernels take `teacher` θ_p (P, r), `coefficients` a (P,), and as `link` the tables of `diffusion_law_kernels`
    for `series`, the link that is simulated. `free_axes` is d − D, the number of axes beyond the visible ones.
    """

    def __init__(self, problem: Problem, batch_size: int) -> None:
        rows = problem.teacher.directions
        self.teacher: Array = np.eye(problem.num_directions) if rows is None else np.array(rows)
        self.coefficients: Array = np.array(problem.teacher.coefficients)
        self.series: Series = series_of(problem.activation)
        self.link: Link = link_tables(self.series.coefficients)
        self.free_axes: int = problem.dimension - problem.teacher.span - problem.width
        self._noise, self._batch = problem.label_noise, float(batch_size)

    def law(
        self, drift_tolerance: float = 0.0, noise_tolerance: float = 0.0, cap: float = 0.0
    ) -> tuple[Array, Array, Link, Settings]:
        """Return what the kernels take together; squared norms may grow to `cap`."""
        settings = (drift_tolerance, noise_tolerance, self._noise, self._batch, float(self.free_axes), cap)
        return self.teacher, self.coefficients, self.link, settings

    def at(self, weights: Array) -> StepLaw:
        """Return the law at weights (m, D) whose first coordinates are on the teacher's axes."""
        m, D = weights.shape
        mean, lower = np.empty((m, D)), np.zeros((m * D, m * D))
        beyond, ratio = np.empty((m, m)), np.empty(1)
        write_step_law(np.ascontiguousarray(weights, dtype=np.float64), self.law(), mean, lower, beyond, ratio)
        full = np.tril(lower) + np.tril(lower, -1).T
        return StepLaw(mean, full.reshape(m, D, m, D), beyond, float(ratio[0]))


class Series(NamedTuple):
    """Hermite coefficients that are simulated, a phrase saying what link they are, and their noise over the link's."""

    coefficients: Array
    name: str
    noise_ratio: float


def series_of(expansion: HermiteExpansion) -> Series:
    """Return a polynomial as it is, and of any other link the Hermite series whose noise is most like the link's.

    Series of growing order come closer to σ in the mean square, but E σ⁴, E σ'⁴ and E σ²σ'², which the noise of a step
    is made of, leave it beyond some order and then grow without bound. Of the three and of E σ² E σ'², the one that is
    furthest off is the noise ratio.

    Examples
    --------
    >>> import hermite
    >>> series = series_of(hermite.expand("erf"))
    >>> series.name, round(series.noise_ratio, 2)
    ('erf (Hermite series to order 7)', 1.08)
    """
    if expansion.is_polynomial:
        return Series(np.array(expansion.link_coefficients()), f"{expansion.name} (polynomial)", 1.0)
    z = np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
    weight = np.exp(-0.5 * z**2)
    wanted = _noise(expansion.value(z), expansion.derivative(z), weight)
    best = None
    for order in range(1, min(expansion.order, SERIES_DEGREE) + 1):
        c = np.array(expansion.coefficients[: order + 1], dtype=np.float64)
        if not c[1:].any():
            continue
        ratios = _noise(polynomials.series_value(c, z), polynomials.series_derivative(c, z), weight) / wanted
        ratio = float(ratios[np.argmax(np.abs(np.log(ratios)))])
        if best is None or abs(np.log(ratio)) < abs(np.log(best.noise_ratio)):
            best = Series(c, f"{expansion.name} (Hermite series to order {order})", ratio)
    if best is None or not 1.0 / LARGEST_NOISE_RATIO < best.noise_ratio < LARGEST_NOISE_RATIO:
        ratio = 0.0 if best is None else best.noise_ratio
        msg = (
            f"Argument `engine` must be 'projected' for {expansion.name}, whose Hermite series have {ratio:.2g} times "
            "its noise at best, but is 'diffusion'."
        )
        raise ValueError(msg)
    return best


def _noise(value: Array, slope: Array, weight: Array) -> Array:
    total = weight.sum()
    means = [float(weight @ product) / total for product in (value**4, slope**4, (value * slope) ** 2)]
    return np.array([*means, float(weight @ value**2) * float(weight @ slope**2) / total**2])


def link_tables(coefficients: Array) -> Link:
    """Return c_j², the table c_(e+n) sqrt(binom(e+n, e)), √j, and the nodes (y_1, y_2, weight) of both rules."""
    c = np.trim_zeros(coefficients, "b")
    K = c.size - 1
    table = np.zeros((K + 3, K + 1))
    for e in range(K + 1):
        binomial = 1.0
        for n in range(K + 1 - e):
            table[e, n] = c[e + n] * np.sqrt(binomial)
            binomial *= (e + n + 1) / (n + 1)
    y, weight = np.polynomial.hermite_e.hermegauss(2 * K + 2)
    weight /= weight.sum()
    single = np.stack([y, np.zeros_like(y), weight], axis=1)
    double = np.stack([np.repeat(y, y.size), np.tile(y, y.size), np.outer(weight, weight).ravel()], axis=1)
    if not c[::2].any() or not c[1::2].any():
        # All that is averaged is even in x then, so that half of the nodes will do.
        single, double = (nodes[nodes[:, 0] > 0] * [1.0, 1.0, 2.0] for nodes in (single, double))
    return c**2, table, np.sqrt(np.arange(K + 4.0)), np.ascontiguousarray(single), np.ascontiguousarray(double)


def excess_kurtosis(problem: Problem, batch_size: int) -> float:
    r"""Return the excess kurtosis of the noise of one step on one axis, while the student has found nothing.

    Error, neuron and axis are independent then: it is 3 E[e⁴] E[σ'⁴]/(E[e²] E[σ'²])² − 3, divided by B, for a teacher
    with independent directions. The sum of N steps has an N-th of it.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> round(excess_kurtosis(Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=32), 1))
    4182
    """
    c = np.trim_zeros(series_of(problem.activation).coefficients, "b")
    y, weight = np.polynomial.hermite_e.hermegauss(2 * c.size)
    weight /= weight.sum()
    value, slope = polynomials.series_value(c, y), polynomials.series_derivative(c, y)
    second, third, fourth = (float(weight @ (value - c[0]) ** n) for n in (2, 3, 4))
    a = problem.teacher.coefficients
    mean, variance, noise = c[0] * float(a.sum()), second * float(np.sum(a**2)), problem.label_noise**2
    centred = (fourth - 3.0 * second**2) * float(np.sum(a**4)) + 3.0 * variance**2
    target = centred + 4.0 * mean * third * float(np.sum(a**3)) + 6.0 * mean**2 * variance + mean**4
    square = variance + mean**2
    error = (target + 6.0 * square * noise + 3.0 * noise**2) / (square + noise) ** 2
    return float(3.0 * error * (weight @ slope**4) / (weight @ slope**2) ** 2 - 3.0) / batch_size
