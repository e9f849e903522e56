"""Links on tensors against numpy, for formulas, low and high degrees."""

from types import SimpleNamespace

import numpy as np
import pytest
import sympy
import torch

from sgd_check.engines.torch.links import FormulaLink, make_link

z = sympy.Symbol("z")
GRID = np.linspace(-3.1, 3.2, 40)
FORMULAS = [
    sympy.Abs(z),
    sympy.Max(z, -z / 2, sympy.Rational(3, 10)),
    sympy.Min(z, 1),
    sympy.log(1 + sympy.exp(z)),
    z / (1 + sympy.exp(-z)),
    z**2 * sympy.exp(-(z**2)) - sympy.sqrt(3) / 9,
    sympy.sin(2 * z) * sympy.cosh(z / 3) + sympy.cos(z) * sympy.sinh(z / 2),
    sympy.atan(z) + sympy.erfc(z) * sympy.tan(z / 4),
    (1 + z**2) ** sympy.Rational(-1, 2),
    sympy.pi * z,
]


def filled(link):
    out = torch.empty(3, 1, 1, GRID.size, dtype=torch.float64)
    link.fill(torch.tensor(GRID).reshape(1, 1, -1), out)
    return out[:, 0, 0].numpy()


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_formulas_and_their_derivatives_are_those_of_numpy(formula):
    link = FormulaLink(formula)
    sigma = sympy.lambdify(z, formula, "scipy")
    value, double, slope = filled(link)
    np.testing.assert_allclose(value, sigma(GRID), atol=1e-13)
    np.testing.assert_array_equal(link.value(torch.tensor(GRID)).numpy(), value)
    step = 1e-6
    np.testing.assert_allclose(slope, (sigma(GRID + step) - sigma(GRID - step)) / (2 * step), atol=2e-8)
    np.testing.assert_allclose(double, 2 * value - GRID * slope, atol=1e-13)


def test_a_function_that_torch_lacks_falls_back_on_the_series():
    with pytest.raises(NotImplementedError, match="no compiled form of airyai"):
        FormulaLink(sympy.airyai(z))
    stub = SimpleNamespace(
        is_polynomial=False, expression=sympy.airyai(z), coefficients=np.array([0.0, 1.0, 0.5]), name="airy", order=2
    )
    link, name = make_link(stub, torch.float64, torch.device("cpu"))
    assert name == "airy (Hermite series to order 2)"
    np.testing.assert_allclose(filled(link)[0], GRID + 0.5 * (GRID**2 - 1) / np.sqrt(2), atol=1e-13)
