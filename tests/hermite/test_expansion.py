"""What follows from an expansion: kernel, derivative, norm, exponent, parity, truncation, printing."""

import copy
import dataclasses
import math

import mpmath
import numpy as np
import pytest
import scipy.special
import sympy

import hermite
from hermite.expansion import zero_tolerance

_SLOPE = hermite.expand(np.tanh, order=1).coefficients[1]
LINKS = ["he4", {4: 0.8, 6: 0.6}, {0: 0.3, 1: -0.5, 3: 2.0}, "erf", "gelu", "tanh(z)", "x^2 exp(-x^2)"]


def _plane():
    """Two independent standard normals on a grid, with the weights of the (spectrally accurate) trapezoidal rule."""
    line = np.linspace(-14.0, 14.0, 281)
    weight = np.exp(-0.5 * line**2) / math.sqrt(2 * math.pi) * (line[1] - line[0])
    return line[:, None], line[None, :], weight[:, None] * weight[None, :]


@pytest.mark.parametrize("given", LINKS)
@pytest.mark.parametrize("s", [-0.8, 0.0, 0.35, 0.9])
def test_kernel_and_its_slope_are_the_expectations_they_stand_for(given, s):
    link = hermite.expand(given)
    first, other, weight = _plane()
    second = s * first + math.sqrt(1 - s**2) * other
    by_definition = np.sum(weight * link.value(first) * link.value(second))
    assert link.kernel(s) == pytest.approx(by_definition, abs=1e-9)
    # g'(s) = E[σ'(u) σ'(v)] (Price's theorem)
    slope = np.sum(weight * link.derivative(first) * link.derivative(second))
    assert link.kernel_derivative(s) == pytest.approx(slope, abs=2e-8)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_higher_kernel_derivatives_follow_from_the_one_below(n):
    link = hermite.expand({1: 0.4, 3: -0.7, 8: 0.5})
    s, h = np.array([-0.6, 0.1, 0.8]), 1e-5
    difference = (link.kernel_derivative(s + h, n - 1) - link.kernel_derivative(s - h, n - 1)) / (2 * h)
    np.testing.assert_allclose(link.kernel_derivative(s, n), difference, rtol=1e-6)


@pytest.mark.parametrize(("n", "kind"), [(-1, ValueError), (1.5, TypeError)])
def test_number_of_derivatives_is_checked(n, kind):
    with pytest.raises(kind, match=r"^Argument `n` must be"):
        hermite.expand("he4").kernel_derivative(0.5, n)


@pytest.mark.parametrize(
    ("name", "norm_squared"),
    [
        ("relu", 0.5),
        ("erf", 1 / 3),
        ("sign", 1.0),
        ("exp", math.exp(2)),
        ("gaussian", 5**-0.5),
        ("sin", (1 - math.exp(-2)) / 2),
    ],
)
def test_norm_of_named_links(name, norm_squared):
    assert hermite.expand(name).norm_squared == pytest.approx(norm_squared, rel=1e-13)


def test_truncation_error_of_smooth_links_is_not_lost_in_rounding():
    # E erf(z/sqrt2)² = 1/3; the remainder 2.5e-11 is far below sqrt(eps) and needs the sum at 50 digits.
    link = hermite.expand("erf")
    with mpmath.workdps(50):
        kept = sum(mpmath.mpf(str(sympy.N(c, 50))) ** 2 for c in link.exact)
        assert link.truncation_error == pytest.approx(float(mpmath.sqrt(mpmath.mpf(1) / 3 - kept)), rel=1e-3)


def test_norm_that_nothing_can_compute_is_refused_but_the_link_prints():
    link = hermite.expand("exp(0.249*z**2) + sin(z)", order=2)
    with pytest.raises(
        ValueError, match=r"^The norm of .* must be computable, but neither quadrature nor a closed form"
    ):
        _ = link.norm_squared
    assert str(link).endswith("(order 2, truncation error unknown)")


@pytest.mark.parametrize(
    ("given", "exponent", "symmetry"),
    [
        ("he4", 4, "even"),
        ({0: 1.0, 3: 1.0}, 3, "none"),
        ({1: 1e-30, 3: 1.0}, 1, "odd"),
        ("relu", 1, "none"),
        ("erf", 1, "odd"),
        ("tanh", 1, "odd"),
        ("abs", 2, "even"),
        ("cos", 2, "even"),
        ("x^2 exp(-x^2)", 4, "even"),
        ("z**3 - 3*z", 3, "odd"),
        ("z**4 - 3*z**2", 2, "even"),
        ("sigmoid", 1, "none"),
        (np.abs, 2, "even"),
        (lambda z: z**2 * np.exp(-(z**2)), 4, "even"),
        (lambda z: np.tanh(z) - _SLOPE * z, 3, "odd"),
    ],
)
def test_information_exponent_and_parity_survive_truncation(given, exponent, symmetry):
    link = hermite.expand(given)
    assert (link.information_exponent, link.parity) == (exponent, symmetry)
    assert (link.truncated().information_exponent, link.truncated().parity) == (exponent, symmetry)


def test_constant_link_has_no_information_exponent():
    with pytest.raises(ValueError, match=r"^The information exponent must be the degree of a nonzero coefficient, but"):
        _ = hermite.expand({0: 2.0}, order=3).information_exponent
    assert hermite.expand({0: 2.0}).parity == "even"


def test_rule_for_zero():
    assert zero_tolerance(4.0, 0.0) == 2e-10
    assert zero_tolerance(1.0, 1e-3) == 1e-2
    link = hermite.expand({0: 1e-12, 1: 1e-12, 3: 1.0})
    rounded = dataclasses.replace(link, tolerance=1e-10)
    assert (link.information_exponent, rounded.information_exponent) == (1, 3)
    assert (link.parity, rounded.parity) == ("none", "odd")


def test_truncated_is_the_polynomial():
    link = hermite.expand("relu", order=10)
    series = link.truncated()
    assert series.is_polynomial
    assert not link.is_polynomial
    assert series.truncation_error == 0.0
    assert series.norm_squared == pytest.approx(np.sum(link.coefficients**2))
    assert series.exact == link.exact
    z = np.linspace(-2, 2, 5)
    classical = link.coefficients / np.sqrt(scipy.special.factorial(np.arange(11)))
    np.testing.assert_allclose(series.value(z), np.polynomial.hermite_e.hermeval(z, classical))
    assert series.truncated() is series
    assert hermite.expand(series.text) == series
    assert series.name == "relu truncated at order 10"


@pytest.mark.parametrize(
    "given", [*LINKS, "relu(z - 0.3)", "elu", "log(1 + z**2)", "abs(z)*exp(-z)", "sqrt(1 + z**2)", np.tanh]
)
def test_derivative_is_the_slope_of_the_value(given):
    link = hermite.expand(given)
    z, h = np.array([-2.2, -0.7, 0.55, 1.9]), 1e-5
    np.testing.assert_allclose(link.derivative(z), (link.value(z + h) - link.value(z - h)) / (2 * h), atol=1e-7)


def test_derivative_at_kinks_and_jumps_is_that_of_almost_everywhere():
    assert hermite.expand("relu").derivative([-1.0, 0.0, 1.0]).tolist() == [0.0, 0.5, 1.0]
    assert hermite.expand("step").derivative([-1.0, 0.0, 1.0]).tolist() == [0.0, 0.0, 0.0]
    assert hermite.expand("step").value([-1.0, 0.0, 1.0]).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("given", ["he5", {1: 0.5, 4: 0.25}, "relu", "tanh(z)", "z**3 - 3*z"])
def test_expression_is_the_function(given):
    link = hermite.expand(given)
    (z,) = link.expression.free_symbols
    for point in (-1.3, 0.4, 2.0):
        assert float(link.expression.subs(z, point)) == pytest.approx(float(link.value(point)), rel=1e-12)


def test_equality_is_of_function_and_coefficients():
    assert hermite.expand("relu") == hermite.expand("max(0, z)")
    assert hermite.expand("relu") != hermite.expand("relu", order=5)
    assert hermite.expand("relu") != hermite.expand("relu").truncated()
    assert hermite.expand("he4") != "he4"
    assert len({hermite.expand("he4"), hermite.expand({4: 1.0})}) == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("he4", "h4"),
        ({4: 0.8, 6: 0.6}, "0.8 h4 + 0.6 h6"),
        ({0: 1.0, 2: -0.123456}, "1 - 0.1235 h2"),
        ("relu", "relu(z) = 0.3989 + 0.5 h1 + 0.2821 h2 - 0.08143 h4 + … (order 60, truncation error 0.0095)"),
        ("erf", "erf(sqrt(2)*z/2) = 0.5642 h1 - 0.1152 h3 + 0.03863 h5 - 0.0149 h7 + … (order 60, truncation error 2.5e-11)"),
        (np.tanh, "tanh(z) = 0.6057 h1 - 0.1484 h3 + 0.06255 h5 - 0.03145 h7 + … (order 60, truncation error 1.1e-05)"),
    ],
)  # fmt: skip
def test_printing_shows_mathematics(given, text):
    assert str(hermite.expand(given)) == repr(hermite.expand(given)) == text


def test_an_expansion_of_a_function_without_a_name_can_be_copied():
    link = hermite.expand(lambda z: z**3 - 3.0 * z)
    assert copy.deepcopy(link) == copy.copy(link) == link
