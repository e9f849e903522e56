"""Recurrences and kernels against exact arithmetic and quadrature."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from hermite import polynomials


def _exact(degree: int, z: float) -> mpmath.mpf:
    """h_k(z) from the recurrence of He_k at 120 digits."""
    with mpmath.workdps(120):
        before, now = mpmath.mpf(0), mpmath.mpf(1)
        for j in range(degree):
            before, now = now, mpmath.mpf(z) * now - j * before
        return now / mpmath.sqrt(mpmath.factorial(degree))


def _trapezoid() -> tuple[np.ndarray, np.ndarray]:
    """Equidistant nodes on |z| <= 36 and weights of N(0, 1): spectrally accurate, relatively so in the tails."""
    nodes = np.linspace(-36.0, 36.0, 3601)
    return nodes, np.exp(-0.5 * nodes**2) / math.sqrt(2.0 * math.pi) * (nodes[1] - nodes[0])


def test_polynomials_are_orthonormal_to_degree_100():
    nodes, weights = _trapezoid()
    table = polynomials.evaluate(100, nodes)
    np.testing.assert_allclose((table * weights) @ table.T, np.eye(101), atol=1e-12)


def test_parseval_holds_at_degree_100(rng):
    nodes, weights = _trapezoid()
    coefficients = rng.normal(size=101)
    values = polynomials.series_value(coefficients, nodes)
    assert weights @ values**2 == pytest.approx(np.sum(coefficients**2), rel=1e-12)
    slopes = polynomials.series_derivative(coefficients, nodes)
    assert weights @ slopes**2 == pytest.approx(np.arange(101) @ coefficients**2, rel=1e-12)


def test_hermite_functions_are_orthonormal_on_the_line_to_degree_300():
    # The trapezoidal rule converges faster than any power for functions that decay like Gaussians.
    nodes = np.linspace(-50.0, 50.0, 4001)
    table = polynomials.evaluate_functions(300, nodes)
    np.testing.assert_allclose((table * (nodes[1] - nodes[0])) @ table.T, np.eye(301), atol=1e-12)
    assert np.abs(table).max() < 0.7


@pytest.mark.parametrize("z", [0.0, 0.3, -2.7, 11.0, 17.3, 34.0, -40.0])
def test_degree_300_agrees_with_120_digits(z):
    for degree in (299, 300):
        exact = _exact(degree, z)
        # In the oscillating region the error is relative to the envelope, not to a value near a zero.
        scale = float(abs(exact) + mpmath.exp(mpmath.mpf(z) ** 2 / 4) * mpmath.mpf(degree) ** (-0.25))
        assert abs(float(polynomials.evaluate(300, z)[degree] - exact)) <= 2e-13 * scale
        unit = np.zeros(301)
        unit[degree] = 1.0
        assert abs(float(polynomials.series_value(unit, z) - exact)) <= 2e-13 * scale


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_overflows_is_infinite_with_the_sign_of_the_highest_degree(sign):
    """h_150(10³) is about 10^450/√(150!) = 10^318; He_150(z) and He_151(z) are even and odd."""
    even, odd = np.append(np.zeros(150), sign), np.append(np.zeros(151), sign)
    assert polynomials.series_value(even, [1e3, -1e3, 1.0])[:2].tolist() == [sign * np.inf, sign * np.inf]
    assert polynomials.series_value(odd, [1e3, -1e3]).tolist() == [sign * np.inf, -sign * np.inf]
    assert np.isnan(polynomials.series_value(even, np.nan))
    assert np.isfinite(polynomials.series_value(even, 30.0))


def test_series_of_low_degree_does_not_overflow_at_huge_points():
    padded = np.zeros(301)
    padded[2] = math.sqrt(2.0)
    assert polynomials.series_value(padded, 1e100) == pytest.approx(1e200)


def test_series_derivative_matches_the_derivative_of_explicit_polynomials():
    z = np.linspace(-3.0, 3.0, 11)
    np.testing.assert_allclose(polynomials.series_derivative([1.0, 2.0, 0.0, math.sqrt(6.0)], z), 2 + 3 * z**2 - 3)
    assert polynomials.series_derivative([4.0], z).tolist() == [0.0] * 11


@pytest.mark.parametrize("n", [0, 1, 2, 5, 301])
def test_kernel_derivatives_agree_with_numpy_polynomials(rng, n):
    coefficients = rng.normal(size=301) / np.arange(1.0, 302.0) ** 2
    s = np.array([-1.0, -0.4, 0.0, 0.7, 1.0])
    expected = np.polynomial.Polynomial(coefficients**2).deriv(n)(s) if n < 301 else np.zeros(5)
    np.testing.assert_allclose(polynomials.kernel_value(coefficients, s, n), expected, rtol=1e-11, atol=1e-300)
