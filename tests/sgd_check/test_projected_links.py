"""Rendered links against the expansion and numpy: every named link, formulas, low and high degrees."""

import numpy as np
import pytest
import sympy

import hermite
from dynamics.compiler.compilation import Piece, load
from hermite.activations import FORMULAS
from sgd_check.engines.projected.links import render

GRID = np.linspace(-5.1, 5.2, 41)

# What Python needs to call the compiled functions, which are made for other compiled functions.
TABLE = Piece(
    "table",
    """
from dynamics.compiler.compilation import entry

@entry("void(f8[::1], f8[:,::1])")
def fill(z, out):
    for i in range(z.size):
        out[0, i] = sigma(z[i])
        out[1, i], out[2, i] = sigma_and_slope(z[i])
""",
)


def compiled(expansion, points=GRID):
    """σ and σ' at the points by the compiled functions."""
    piece, _ = render(expansion)
    out = np.empty((3, points.size))
    load([piece, TABLE]).namespace.fill(points, out)
    # Two functions, which a compiler may round differently; sums of order 40 lose two digits.
    np.testing.assert_allclose(out[0], out[1], rtol=1e-12, atol=1e-12)
    return out[1:]


def interpreted(expansion, points=GRID):
    """σ and σ' at the points by the rendered text without the compiler."""
    piece, _ = render(expansion)
    namespace = {}
    exec(piece.text, namespace)
    function = namespace["sigma_and_slope"]
    return np.array([getattr(function, "py_func", function)(z) for z in points]).T


def check(expansion, found, points=GRID, digits=13):
    for values, wanted in zip(found, (expansion.value(points), expansion.derivative(points)), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=0, atol=10.0**-digits * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - {"step", "sign"}))
def test_named_links_are_sampled_as_their_formula(name):
    expansion = hermite.expand(name)
    check(expansion, interpreted(expansion))
    kind = "polynomial" if expansion.is_polynomial else "formula"
    assert render(expansion)[1] == f"{expansion.name} ({kind})"


z = sympy.Symbol("z")


@pytest.mark.parametrize(
    "formula",
    [
        sympy.Max(z, -z / 2, sympy.Rational(3, 10)),
        sympy.Min(z, 1),
        sympy.sin(2 * z) * sympy.cosh(z / 3) + sympy.cos(z) * sympy.sinh(z / 2),
        sympy.atan(z) + sympy.erfc(z),
        (1 + z**2) ** sympy.Rational(-1, 2),
        (2 + z**2) ** -3 + (1 + z**2) ** sympy.Rational(1, 3),
        sympy.pi * z * sympy.exp(-sympy.Abs(z)),
        2**z,
    ],
    ids=str,
)
def test_formulas_and_their_derivatives_are_those_of_numpy(formula):
    expansion = hermite.expand(formula)
    check(expansion, interpreted(expansion))


SERIES = [
    {0: 0.3},
    {3: 1.0},
    {4: 1.0},
    {1: 1.0},
    {0: 0.3, 2: 1.0},
    {1: 0.3, 4: 0.5},
    {12: 1.0},
    {13: 0.7, 2: 0.5},
    {40: 1.0, 7: 0.2},
]


@pytest.mark.parametrize("coefficients", SERIES, ids=str)
def test_polynomials_are_those_of_the_expansion(coefficients):
    """Horner's rule in powers of z loses up to 1e-13 of the largest value on |z| < 5.2, at degree 12."""
    expansion = hermite.expand(coefficients)
    check(expansion, interpreted(expansion), digits=12)
    assert render(expansion)[1] == f"{expansion.name} (polynomial)"


def test_a_polynomial_is_sampled_beyond_the_order_of_its_expansion():
    expansion = hermite.expand({4: 1.0, 6: 0.5}, order=5)
    check(expansion, interpreted(expansion), digits=12)


@pytest.mark.kernels
@pytest.mark.parametrize("link", ["relu", "gelu", "he4", "he40"])
def test_compiled_links_are_the_interpreted_ones(link):
    expansion = hermite.expand(link)
    found, wanted = compiled(expansion), interpreted(expansion)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.parametrize("jump", ["step", "sign", "sign(z)*z**2 + heaviside(z - 1)"])
def test_a_formula_with_a_jump_is_sampled_as_its_series(jump):
    """The derivative almost everywhere of a step is 0, and no gradient descent would follow it."""
    expansion = hermite.expand(jump, order=9)
    assert render(expansion)[1] == f"{expansion.name} (Hermite series to order 9)"
    check(expansion.truncated(), interpreted(expansion), digits=12)


def test_a_callable_is_sampled_as_its_series():
    expansion = hermite.expand(lambda z: np.cos(z) ** 3, order=12)
    assert render(expansion)[1].endswith(" (Hermite series to order 12)")
    check(expansion.truncated(), interpreted(expansion), digits=12)
