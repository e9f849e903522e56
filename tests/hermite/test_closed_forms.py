"""Closed forms against the definition c_j = E[σ(z) h_j(z)], integrated at 20 digits."""

import functools
import time

import mpmath
import numpy as np
import pytest
import sympy

from hermite.closed_forms import closed_form
from hermite.text.formulas import parse, variable

z = variable()
DEGREES = (0, 1, 4, 11)

FORMULAS = {
    "relu(z)": 0,
    "relu(z - 0.3)": 0.3,
    "relu(0.3 - 2*z)": 0.15,
    "abs(z)": 0,
    "abs(z)**3": 0,
    "relu(z)**2": 0,
    "max(z, 2*z - 1)": 1,
    "min(z, 1)": 1,
    "sign(z)*z**3": 0,
    "h3(z)*Heaviside(z - 1/2)": 0.5,
    "erf(z/sqrt(2))": None,
    "erf(z/3 - 1)": None,
    "z**2*erfc(z)": None,
    "gelu(z)": None,
    "sin(z)": None,
    "sin(2*z + 1)": None,
    "z**2*cos(z/2)": None,
    "exp(z/2 + 1)": None,
    "exp(z)*exp(1 - z)*z": None,
    "2**z": None,
    "sinh(z) + cosh(z/2)": None,
    "exp(-z**2)": None,
    "z**2*exp(-z**2) - sqrt(3)/9": None,
    "z*exp(-z**2/3 + z/2)": None,
    "exp(z**2/10)": None,
    "z**3 - 3*z + sqrt(2)": None,
    "h4(z) + 0.5*h6(z)": None,
}


def _by_definition(expression, kink):
    function = sympy.lambdify(z, expression, "mpmath")
    cuts = sorted({-14, -5, 0, 5, 14, *([] if kink is None else [kink])})

    @functools.cache
    def weighted(t):
        return function(t) * mpmath.npdf(t)

    def integrand(degree, t):
        before, now = mpmath.mpf(0), mpmath.mpf(1)
        for j in range(degree):
            before, now = now, (t * now - mpmath.sqrt(j) * before) / mpmath.sqrt(j + 1)
        return weighted(t) * now

    with mpmath.workdps(20):
        pieces = [mpmath.mpf(cut) for cut in cuts]
        return [mpmath.quad(functools.partial(integrand, degree), pieces) for degree in DEGREES]


@pytest.mark.parametrize("text", FORMULAS)
def test_floats_agree_with_the_definition(text):
    expression = parse(text)
    floats = closed_form(expression).floats(11)
    for degree, by_definition in zip(DEGREES, _by_definition(expression, FORMULAS[text]), strict=True):
        assert floats[degree] == pytest.approx(float(by_definition), rel=1e-15, abs=1e-18)


@pytest.mark.parametrize("text", FORMULAS)
def test_exact_numbers_and_floats_agree_to_the_last_digit(text):
    form = closed_form(parse(text))
    floats = form.floats(24)
    exact = form.exact(24)
    np.testing.assert_allclose([float(sympy.N(value, 25)) for value in exact], floats, rtol=2.3e-16, atol=0)
    assert [value == 0 for value in exact] == [value == 0.0 for value in floats]


@pytest.mark.parametrize("text", ["erf(z)", "relu(z - 0.3)"])
def test_floats_hold_at_order_300(text):
    form = closed_form(parse(text))
    floats, exact = form.floats(300), form.exact(300)
    for degree in (100, 199, 298, 299, 300):
        assert floats[degree] == pytest.approx(float(sympy.N(exact[degree], 30)), rel=4e-16, abs=0)


def test_cancellation_in_high_polynomials_does_not_reach_the_floats():
    # h_120 in monomials: coefficients of size 1e60 cancel in every c_j below the last.
    form = closed_form(parse("h120(z)"))
    assert form.degree == 120
    assert form.floats(120).tolist() == [0.0] * 120 + [1.0]


@pytest.mark.parametrize(
    "text",
    [
        "tanh(z)", "abs(z**2 - 1)", "max(0, z, z**2)", "erf(z)**2", "erf(z**2)", "sin(z)*exp(-z**2)", "exp(-z**4)",
        "1/(1 + z**2)", "sqrt(abs(z))", "Heaviside(z)/z", "atan(z)", "(sin(z) + cos(z) + exp(z) + erf(z))**60",
    ],
)  # fmt: skip
def test_other_formulas_have_no_closed_form(text):
    start = time.process_time()
    assert closed_form(parse(text)) is None
    assert time.process_time() - start < 5.0


def test_gaussian_of_infinite_second_moment_is_refused():
    with pytest.raises(
        ValueError, match=r"^Argument `x` must have a finite second moment under N\(0, 1\), but contains"
    ):
        closed_form(parse("exp(z**2/4)"))
