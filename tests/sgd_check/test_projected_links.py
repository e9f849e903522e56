"""Sampled links against the expansion and numpy: every named link, formulas, low and high degrees."""

import numpy as np
import pytest
import sympy

import hermite
from sgd_check.engines.programs import OPERATIONS, REGISTERS, polynomial_program
from sgd_check.engines.sampled_links import (
    both_at,
    run_program,
    sampled_link,
    scratch_size,
    value_at,
    write_both,
    write_values,
)

GRID = np.linspace(-5.1, 5.2, 41)


def sampled(link, points=GRID):
    """σ and σ' of many numbers at once; the same one by one, and σ alone."""
    value, slope, alone = (np.empty(points.size) for _ in range(3))
    scratch = np.empty(scratch_size(link, points.size))
    write_both(link, points, value, slope, scratch)
    write_values(link, points, alone, scratch)
    some = points[:: max(points.size // 20, 1)]
    single = np.array([(*both_at(link, z, scratch), value_at(link, z, scratch)) for z in some]).T
    several = np.array([value, slope, alone])[:, :: max(points.size // 20, 1)]
    # Sums of order 40 lose two digits.
    np.testing.assert_allclose(single, several, rtol=1e-12, atol=1e-12 * max(1.0, np.abs(several).max()))
    np.testing.assert_allclose(alone, value, rtol=1e-12, atol=1e-12 * max(1.0, np.abs(value).max()))
    return value, slope


def check(expansion, found, points=GRID, digits=13):
    for values, wanted in zip(found, (expansion.value(points), expansion.derivative(points)), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=0, atol=10.0**-digits * max(1.0, np.abs(wanted).max()))


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
    check(expansion, sampled(sampled_link(expansion)[0]))


@pytest.mark.parametrize("jump", ["step", "sign", "sign(z)*z**2 + heaviside(z - 1)"])
def test_a_formula_with_a_jump_is_sampled_as_its_series(jump):
    """The derivative almost everywhere of a step is 0, and no gradient descent would follow it."""
    expansion = hermite.expand(jump, order=9)
    assert sampled_link(expansion)[1] == f"{expansion.name} (Hermite series to order 9)"
    check(expansion.truncated(), sampled(sampled_link(expansion)[0]), digits=12)


def test_a_polynomial_in_several_variables_is_summed_by_horners_rule():
    """At fewer operations than the products of its monomials have, in few registers."""
    exponents = np.array([[6, 0, 2], [4, 1, 0], [4, 0, 0], [2, 3, 1], [1, 1, 1], [0, 5, 0], [0, 0, 3], [0, 0, 0]])
    coefficients = np.random.default_rng(3).standard_normal(8)
    x = np.random.default_rng(2).standard_normal((3, 40))
    program = np.array(polynomial_program(exponents, coefficients))
    assert program[OPERATIONS] < exponents.sum()
    assert program[REGISTERS] < 10
    registers = np.empty((int(program[REGISTERS]), 40))
    registers[:3] = x
    run_program(program, 0, registers.ravel(), 40)
    expected = coefficients @ np.prod(x[None] ** exponents[:, :, None], axis=1)
    np.testing.assert_allclose(registers[int(program[2])], expected, rtol=1e-12, atol=1e-12)
