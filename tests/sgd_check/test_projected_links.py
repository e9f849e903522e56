"""Sampled links against the expansion and numpy: every named link, formulas, low and high degrees."""

import numpy as np
import pytest
import sympy

import hermite
from hermite.text.formulas import FORMULAS
from sgd_check.engines.programs import OPERATIONS, REGISTERS, polynomial_program, run_program
from sgd_check.engines.sampled_links import (
    BENT,
    BENT_LINKS,
    FAMILY,
    SMOOTH_LINKS,
    both_at,
    sampled_link,
    sampled_link_anywhere,
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


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - {"step", "sign"}))
def test_named_links_are_sampled_as_their_formula(name):
    expansion = hermite.expand(name)
    check(expansion, sampled(sampled_link(expansion)[0]))
    kind = "polynomial" if expansion.is_polynomial else "formula"
    assert sampled_link(expansion)[1] == f"{expansion.name} ({kind})"


@pytest.mark.parametrize("name", [*BENT_LINKS, *SMOOTH_LINKS])
def test_common_links_have_functions_of_their_own(name):
    assert sampled_link(hermite.expand(name))[0][FAMILY] == SMOOTH_LINKS.get(name, BENT)


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
    check(expansion, sampled(sampled_link(expansion)[0]), digits=12)
    assert sampled_link(expansion)[1] == f"{expansion.name} (polynomial)"


def test_a_polynomial_is_sampled_beyond_the_order_of_its_expansion():
    expansion = hermite.expand({4: 1.0, 6: 0.5}, order=5)
    check(expansion, sampled(sampled_link(expansion)[0]), digits=12)


@pytest.mark.kernels
@pytest.mark.parametrize("link", ["relu", "gelu", "he4", "he40"])
def test_many_numbers_are_evaluated_by_blocks(link):
    """Of 1001 numbers several blocks and a part of one; largest error 2e-13 of the largest value."""
    expansion, points = hermite.expand(link), np.linspace(-3.0, 3.0, 1001)
    check(expansion, sampled(sampled_link(expansion)[0], points), points, digits=12)


@pytest.mark.parametrize("jump", ["step", "sign", "sign(z)*z**2 + heaviside(z - 1)"])
def test_a_formula_with_a_jump_is_sampled_as_its_series(jump):
    """The derivative almost everywhere of a step is 0, and no gradient descent would follow it."""
    expansion = hermite.expand(jump, order=9)
    assert sampled_link(expansion)[1] == f"{expansion.name} (Hermite series to order 9)"
    check(expansion.truncated(), sampled(sampled_link(expansion)[0]), digits=12)


def test_a_callable_is_sampled_as_its_series():
    expansion = hermite.expand(lambda z: np.cos(z) ** 3, order=12)
    assert sampled_link(expansion)[1].endswith(" (Hermite series to order 12)")
    check(expansion.truncated(), sampled(sampled_link(expansion)[0]), digits=12)


def test_a_jump_has_a_value_without_its_slope():
    link, name = sampled_link_anywhere(hermite.expand("sign"), slope=False)
    values = np.empty(GRID.size)
    write_values(link, GRID, values, np.empty(scratch_size(link, GRID.size)))
    np.testing.assert_array_equal(values, np.sign(GRID))
    assert name == "sign (formula)"


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


@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_a_constant_is_a_program(constant):
    program = np.array(polynomial_program(np.zeros((1, 2), dtype=np.int64), np.array([constant])))
    registers = np.ones(int(program[REGISTERS]) * 4)
    run_program(program, 0, registers, 4)
    np.testing.assert_array_equal(registers.reshape(-1, 4)[int(program[2])], constant)
