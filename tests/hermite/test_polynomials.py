"""Polynomials at high degree, the quadrature of coefficients, and moments of products, against exact numbers."""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest

from hermite import polynomials
from hermite.polynomials import contracted_pair, diagrams, mean_derivatives
from hermite.quadrature import integrate


def _exact(degree, z):
    """h_k(z) from the recurrence of He_k at 120 digits."""
    with mpmath.workdps(120):
        before, now = mpmath.mpf(0), mpmath.mpf(1)
        for j in range(degree):
            before, now = now, mpmath.mpf(z) * now - j * before
        return now / mpmath.sqrt(mpmath.factorial(degree))


def _trapezoid():
    """Equidistant nodes on |z| <= 36 and weights of N(0, 1): spectrally accurate, relatively so in the tails."""
    nodes = np.linspace(-36.0, 36.0, 3601)
    return nodes, np.exp(-0.5 * nodes**2) / math.sqrt(2.0 * math.pi) * (nodes[1] - nodes[0])


def test_polynomials_are_orthonormal_to_degree_100():
    nodes, weights = _trapezoid()
    table = polynomials.evaluate(100, nodes)
    np.testing.assert_allclose((table * weights) @ table.T, np.eye(101), atol=1e-12)


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
    with pytest.raises(ValueError, match="`n` must be at least 0, but is -1"):
        polynomials.kernel_value(coefficients, s, -1)


def _relu_coefficients(order, place):
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


# Unit vectors with rational coordinates: a, b run over all four; i, j are the last two.
VECTORS = [[Fraction(n, 21) for n in row] for row in ([21, 0, 0], [7, 14, 14], [6, 9, 18], [-14, 7, 14])]
GRAM = [[sum(x * y for x, y in zip(u, v, strict=True)) for v in VECTORS] for u in VECTORS]
MASS = [Fraction(2), Fraction(-1, 2), Fraction(1), Fraction(-3, 4)]

# Polynomials as rational coefficients of He_k, which are f̂_k / k!.
SERIES = {
    "single": [[0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 1], [0, 0, 1]],
    "one parity": [[0, 1, 0, 2], [0, 3], [1, 0, -1], [0, 0, 2]],
    "both parities": [[1, -1, 2, 1], [0, 2, -1], [1, 2, 0, 1], [3, -1, 1]],
    "second of higher degree": [[0, 1, 1], [1, 0, 1, 2], [0, 1], [0, 0, 1]],
    "constants": [[2], [3], [1], [-1]],
}


@cache
def isserlis(exponents):
    """E[Π z_v^n_v]: the first factor is joined to each of the others in turn."""
    first = next((v for v, n in enumerate(exponents) if n), None)
    if first is None:
        return Fraction(1)
    rest = [n - (v == first) for v, n in enumerate(exponents)]
    total = Fraction(0)
    for v, n in enumerate(rest):
        if n:
            total += n * GRAM[first][v] * isserlis(tuple(n2 - (v2 == v) for v2, n2 in enumerate(rest)))
    return total


def powers_of_z(series):
    """Coefficients of z^n of Σ_k s_k He_k, from He_(k+1) = z He_k − k He_(k−1)."""
    basis = [[Fraction(1)], [Fraction(0), Fraction(1)]]
    for k in range(1, len(series)):
        shifted = [Fraction(0), *basis[k]]
        basis.append([s - k * (basis[k - 1][n] if n < k else 0) for n, s in enumerate(shifted)])
    total = [Fraction(0)] * len(series)
    for weight, row in zip(series, basis, strict=False):
        for n, x in enumerate(row):
            total[n] += weight * x
    return total


def expectation(vectors, series):
    """E[Π_v s_v(z_v)], term by term in powers of z."""
    total = Fraction(0)
    for terms in product(*(list(enumerate(powers_of_z(s))) for s in series)):
        weight = math.prod(x for _, x in terms)
        if weight:
            exponents = [0] * len(VECTORS)
            for v, (n, _) in zip(vectors, terms, strict=True):
                exponents[v] += n
            total += weight * isserlis(tuple(exponents))
    return total


def hats(series):
    return np.array([float(s) * math.factorial(k) for k, s in enumerate(series)])


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("pair", [(2, 3), (3, 3), (0, 2)])
def test_diagrams_sum_to_isserlis(name, pair):
    f, g, phi, psi = SERIES[name]
    i, j = pair
    wanted = [
        sum(
            MASS[a] * MASS[b] * expectation((a, b, i, j), (f, second, phi, psi))
            for a in range(len(VECTORS))
            for b in range(len(VECTORS))
        )
        for second in (f, g)
    ]
    Q, w = np.array(GRAM, dtype=float), np.array(MASS, dtype=float)
    factor = contracted_pair(hats(phi), hats(psi), 5)
    table = diagrams(hats(f), hats(g), np.any(factor, axis=2))
    found = np.zeros(2)
    for (e, r, s, r2, s2), weights in zip(table.edges.tolist(), table.weights, strict=True):
        form = (w * Q[i] ** r * Q[j] ** s) @ Q**e @ (w * Q[i] ** r2 * Q[j] ** s2)
        found += weights * form * (factor[r + r2, s + s2] @ Q[i, j] ** np.arange(5))
    # Measured: 4e-15 relative to the larger of the two.
    np.testing.assert_allclose(
        found, np.array(wanted, dtype=float), rtol=0, atol=2e-14 * max(map(abs, wanted), default=1)
    )


def test_mean_derivatives_are_means_of_derivatives():
    c = np.array([0.3, -1.0, 0.5, 0.25, 2.0])
    z, weights = np.polynomial.hermite_e.hermegauss(8)
    series = c
    for mean in mean_derivatives(c):
        assert weights @ polynomials.series_value(series, z) / math.sqrt(2 * math.pi) == pytest.approx(mean, abs=1e-14)
        series = polynomials.differentiate(series)
