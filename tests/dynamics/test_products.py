"""What compiled code does in place of numpy's and Python's own: products, parts of rows, the larger of two numbers."""

import numpy as np
import pytest

from dynamics.compiler.compilation import Piece, load

SOURCE = """
from dynamics.compiler.compilation import entry
from dynamics.compiler.numbers import larger, smaller
from dynamics.compiler.products import product
from dynamics.compiler.views import row_part

@entry("void(f8[:, ::1], f8[:, ::1], f8[:, ::1], f8[:, ::1])")
def multiply(left, right, plain, turned):
    product(left, right, plain)
    product(left[:1], right, plain[:1])
    product(right.T, left.T, turned)

@entry("void(f8[:, ::1], i8, i8, i8)")
def fill(whole, row, start, count):
    part = row_part(whole, row, start, count)
    for i in range(part.size):
        part[i] += 1.0

@entry("void(f8, f8, i8, f8[::1], i8[::1])")
def compare(a, b, count, numbers, integers):
    numbers[0] = larger(a, b)
    numbers[1] = smaller(a, b)
    numbers[2] = larger(count, a)
    integers[0] = larger(2, count)
    integers[1] = smaller(count - 5, count)
"""


@pytest.fixture(scope="module")
def compiled():
    return load([Piece("numbers", SOURCE)]).namespace


@pytest.mark.parametrize(("m", "k", "n"), [(3, 4, 5), (1, 4, 1), (2, 1, 3), (3, 0, 2), (0, 2, 3), (2, 3, 0)])
def test_products_are_those_of_numpy(compiled, m, k, n):
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    plain, turned = np.full((m, n), np.nan), np.full((n, m), np.nan)
    compiled.multiply(left, right, plain, turned)
    np.testing.assert_allclose(plain, left @ right, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(turned, (left @ right).T, rtol=1e-13, atol=1e-14)


def test_a_part_of_a_row_is_that_part_alone(compiled):
    whole = np.zeros((3, 5))
    compiled.fill(whole, 1, 2, 2)
    expected = np.zeros((3, 5))
    expected[1, 2:4] = 1.0
    np.testing.assert_array_equal(whole, expected)


@pytest.mark.parametrize(("a", "b"), [(1.0, 2.0), (2.0, 1.0), (np.nan, 1.0), (1.0, np.nan), (-np.inf, np.inf)])
def test_the_larger_and_the_smaller_are_those_of_python(compiled, a, b):
    numbers, integers = np.empty(3), np.empty(2, dtype=np.int64)
    compiled.compare(a, b, 7, numbers, integers)
    np.testing.assert_array_equal(numbers, [max(a, b), min(a, b), max(7, a)])
    np.testing.assert_array_equal(integers, [7, 2])
