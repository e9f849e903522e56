"""Noise of a step while the student's output is negligible: drift and diffusion of an overlap, and E σ'⁴."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial.polynomial import polyval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array


def fourth_moment_of_derivative(activation: HermiteExpansion) -> float:
    """Return E σ'(z)⁴, to rounding for polynomials and smooth links.

    Examples
    --------
    >>> import hermite
    >>> round(fourth_moment_of_derivative(hermite.expand("he3")), 9)
    135.0
    """
    return means_of(activation, [(0, 4, 0)])[0]


def means_of(activation: HermiteExpansion, powers: Iterable[tuple[int, int, int]]) -> list[float]:
    """Return E[σ(z)^i σ'(z)^j z^q] of every (i, j, q), i + j ≤ 4, to rounding.

    Examples
    --------
    >>> import hermite
    >>> [round(mean, 9) for mean in means_of(hermite.expand("he3"), [(2, 0, 0), (0, 2, 2)])]
    [1.0, 15.0]
    """
    z, step = _grid(activation)
    # A quarter of the Gaussian with each factor keeps high degrees within float64.
    share = np.exp(-0.125 * z**2)
    value, slope = activation.value(z) * share, activation.derivative(z) * share
    scale = step / math.sqrt(2.0 * math.pi)
    return [float(np.sum(value**i * slope**j * share ** (4 - i - j) * z**q)) * scale for i, j, q in powers]


def _grid(activation: HermiteExpansion) -> tuple[Array, float]:
    """Return trapezoid points, exponentially accurate for Gaussian averages of smooth functions."""
    reach = 60.0 if activation.is_polynomial and activation.order > 60 else 40.0
    step = 1.0 / 256.0
    return np.arange(-reach, reach + step, step), step


@dataclass(frozen=True, slots=True, eq=False)
class SearchNoise:
    """V, B and D of `dynamics.theory.step_size.escape_bias` as functions of C, from Hermite series.

    `unseen` is the part of B that the finite-step equation leaves out.
    """

    dimension: int
    rate: Array
    stretch: Array
    cross: Array
    pull: Array
    output: Array
    variance: float
    surplus: float
    slope: float
    label_noise: float
    total: float

    @classmethod
    def of(cls, problem: Problem) -> SearchNoise:
        """Project σ², x σ², x² σ² against σ'², z σ'², z² σ'², σ σ' and z σ σ'."""
        from hermite import polynomials

        link = problem.activation
        z, step = _grid(link)
        root = np.exp(-0.25 * z**2) * (2.0 * np.pi) ** -0.25
        basis = polynomials.evaluate_functions(min(2 * link.order + 2, polynomials.MAX_DEGREE), z)
        value, derivative = link.value(z), link.derivative(z)

        def project(function: Array) -> Array:
            coefficients: Array = basis @ (function * root) * step
            return coefficients

        teacher = [project(z**i * value**2) for i in range(3)]
        student = [project(z**i * derivative**2) for i in range(3)]
        mixed = [project(z**i * value * derivative) for i in range(2)]
        return cls(
            dimension=problem.dimension,
            rate=teacher[0] * student[0],
            # (x − C z)² and x − C z, multiplied out in powers of C.
            stretch=_in_powers(teacher[2] * student[0], -2.0 * teacher[1] * student[1], teacher[0] * student[2]),
            cross=teacher[1] * mixed[0],
            pull=teacher[0] * mixed[1],
            output=teacher[0] ** 2,
            variance=float(teacher[0][0]),
            surplus=float(teacher[2][0] - teacher[0][0]),
            slope=float(student[0][0]),
            label_noise=problem.label_noise,
            total=float(np.sum(problem.teacher.coefficients**2)),
        )

    def __call__(self, C: Array, a: Array) -> tuple[Array, Array, Array]:
        """Return V, B and D at overlaps C for a direction of coefficient a."""
        others = self.total - a**2
        rest = self.slope * (self.label_noise**2 + self.variance * others)
        own = a**2 * polyval(C, self.rate)
        moved = a**2 * polyval(C, self.stretch)
        tilt = self._tilt(C, a)
        length = (self.dimension - 2) * own + moved / (1.0 - C**2)
        length = length + (self.dimension - 1) * rest + self.slope * self.surplus * others
        return own + rest, 0.5 * C * length + tilt, moved + rest * (1.0 - C**2)

    def unseen(self, C: Array, a: Array) -> Array:
        r"""Return what B has beyond the finite-step equation, E[f*² (2σσ'(x_p − C z) − 2 C σ²)].

        That equation moves C by −½ C H of the relative mean square H of a step, E[f*² (4σ² + |x_⊥|² σ'²)] here, since
        the overlap it has is the ratio of the mean products; B is the mean change of the overlap itself.
        """
        others = self.label_noise**2 + self.variance * (self.total - a**2)
        return self._tilt(C, a) - 2.0 * C * (a**2 * polyval(C, self.output) + self.variance * others)

    def _tilt(self, C: Array, a: Array) -> Array:
        """Return E[f*² 2σσ'(x_p − C z)]; directions other than p have none."""
        return np.asarray(2.0 * a**2 * (polyval(C, self.cross) - C * polyval(C, self.pull)))


def _in_powers(*shifted: Array) -> Array:
    """Return the sum of series, each multiplied by one more power of C than the one before."""
    total = np.zeros(shifted[0].size + len(shifted) - 1)
    for shift, coefficients in enumerate(shifted):
        total[shift : shift + coefficients.size] += coefficients
    return total
