"""Adaptive quadrature: the reported error covers the true one, kinks and jumps included."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from hermite.quadrature import integrate


def _relu_coefficients(order: int, place: float) -> np.ndarray:
    """Coefficients of max(z - place, 0) at 60 digits, from E[f He_j] = E[f^(j)]."""
    with mpmath.workdps(60):
        z = mpmath.mpf(place)
        density, upper = mpmath.npdf(z), mpmath.ncdf(-z)
        he = [mpmath.mpf(1), z]
        for j in range(1, order):
            he.append(z * he[j] - j * he[j - 1])
        moments = [density - z * upper, upper, *(density * he[j - 2] for j in range(2, order + 1))]
        return np.array([float(u / mpmath.sqrt(mpmath.factorial(j))) for j, u in enumerate(moments)])


@pytest.mark.parametrize("place", [0.0, 0.3, 1e-5, -2.5])
@pytest.mark.parametrize("order", [60, 300])
def test_error_estimate_covers_the_true_error_at_a_kink(order, place):
    exact = _relu_coefficients(order, place)
    result = integrate(lambda z: np.maximum(z - place, 0.0), order)
    error = np.max(np.abs(result.coefficients - exact))
    assert error <= result.coefficient_error <= 1e-12


def test_exponential_agrees_with_its_closed_form():
    # E[exp(2z) h_j] = 2^j e² / sqrt(j!)
    result = integrate(lambda z: np.exp(2.0 * z), 60)
    exact = np.array([2.0**j * math.exp(2.0) / math.sqrt(math.factorial(j)) for j in range(61)])
    assert np.max(np.abs(result.coefficients - exact)) <= result.coefficient_error <= 1e-11
    assert abs(result.norm_squared - math.exp(8.0)) <= result.norm_squared_error


def test_fast_oscillation_and_many_jumps_are_resolved():
    wave = integrate(lambda z: np.sin(1000.0 * z), 30)
    assert np.max(np.abs(wave.coefficients)) <= wave.coefficient_error <= 1e-12
    assert wave.norm_squared == pytest.approx(0.5, abs=1e-12)
    square = integrate(lambda z: np.sign(np.sin(20.0 * z)), 30)
    assert square.norm_squared == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("order", "rtol"), [(10, 1e-11), (60, 1e-9), (300, 1e-6)])
def test_remainder_equals_norm_minus_sum_where_that_is_well_conditioned(order, rtol):
    result = integrate(lambda z: np.maximum(z, 0.0), order)
    exact = _relu_coefficients(order, 0.0)
    with mpmath.workdps(40):
        remainder = mpmath.sqrt(mpmath.mpf("0.5") - sum(mpmath.mpf(float(c)) ** 2 for c in exact))
    assert result.residual_norm(exact) == pytest.approx(float(remainder), rel=rtol)


def test_remainder_of_a_resolved_function_is_rounding():
    result = integrate(np.exp, 60)
    assert result.residual_norm(result.coefficients) < 1e-13


def test_function_too_large_in_the_tails_is_refused():
    with pytest.raises(ValueError, match=r"^Argument `x` must have a finite second moment under N\(0, 1\), but σ"):
        integrate(lambda z: np.exp(z**2 / 4.0), 4)


def test_function_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match=r"^Argument `x` must be finite for every real z, but is nan near z = -0\.0"):
        integrate(np.log, 4)
