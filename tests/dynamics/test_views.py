"""Views of flat arrays, and products of matrices, in compiled functions."""

import sys

import numpy as np
import pytest

from dynamics.kernels.cache import is_interpreted
from dynamics.kernels.jit import cube, entry, matrix, row_part, vector
from dynamics.kernels.products import product, product_until
from dynamics.threads import STOP

pytestmark = pytest.mark.kernels


@entry
def number_parts(flat, whole, times):
    for _ in range(times):
        part, block, row, layers = (
            vector(flat, 2, 3),
            matrix(flat, 6, 2, 3),
            row_part(whole, 1, 1, 2),
            cube(flat, 12, 2, 1, 2),
        )
        for k in range(part.size):
            part[k] = k
        for k in range(row.size):
            row[k] = 5 + k
        for i in range(2):
            for j in range(block.shape[1]):
                block[i, j] = 10 * i + j
            for j in range(layers.shape[2]):
                layers[i, 0, j] = 20 + 2 * i + j


@pytest.mark.parametrize("kind", ["f8", "f4", "i8"])
def test_views_are_those_of_numpy_and_keep_no_reference(kind):
    flat, whole = np.full(16, -1, dtype=kind), np.full((3, 4), -1, dtype=kind)
    before = sys.getrefcount(flat), sys.getrefcount(whole)
    number_parts(flat, whole, 1 if is_interpreted() else 1000)
    assert (sys.getrefcount(flat), sys.getrefcount(whole)) == before
    np.testing.assert_array_equal(flat, [-1, -1, 0, 1, 2, -1, 0, 1, 2, 10, 11, 12, 20, 21, 22, 23])
    np.testing.assert_array_equal(whole, [[-1] * 4, [-1, 5, 6, -1], [-1] * 4])


@entry
def multiply(left, right, out, sizes):
    product_until(left, right, out, sizes)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (3, 4, 5), (7, 2, 9), (0, 3, 2), (3, 0, 2)])
def test_products_are_those_of_numpy(rng, m, k, n, dtype):
    left, right = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
    out = np.full((m, n), np.nan, dtype=dtype)
    product(left, right.T, out)
    np.testing.assert_allclose(out, left @ right.T, rtol=1e-5 if dtype == np.float32 else 1e-13)


def test_products_stop_where_the_step_is_given_up():
    left, right = np.ones((3, 40_000)), np.ones((40_000, 1))
    whole, sizes = np.full((3, 1), np.nan), np.array([1, STOP])
    # A single call of BLAS is short and not cut.
    multiply(left, right, whole, sizes)
    np.testing.assert_array_equal(whole, 40_000.0)
    left, right, out = np.ones((30, 6000)), np.ones((6000, 6000)), np.full((30, 6000), np.nan)
    multiply(left, right, out, sizes)
    assert np.isnan(out).all()
