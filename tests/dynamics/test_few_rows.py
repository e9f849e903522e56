"""Products of a block of a few rows, by loops and by BLAS, against numpy's matrix products in double precision."""

import numpy as np
import pytest

from dynamics.equations.field import overlaps_of_rows, sums_of_others

#: Rows, others and columns: pairs and fours that are whole or not, parts of 512 columns that are whole or not.
SHAPES = [(1, 1, 1), (1, 4, 7), (2, 3, 16), (3, 5, 31), (4, 8, 512), (5, 2, 513), (8, 13, 600), (7, 6, 1030)]


@pytest.mark.kernels
@pytest.mark.parametrize("shape", SHAPES, ids="{0[0]} rows, {0[1]} others, {0[2]} columns".format)
@pytest.mark.parametrize("by_blas", [False, True], ids=["loops", "BLAS"])
@pytest.mark.parametrize("precision", [np.float64, np.float32], ids=["double", "single"])
def test_products_of_a_few_rows(shape, precision, by_blas, rng):
    count, number, columns = shape
    rows, others, weights = (
        rng.standard_normal(size).astype(precision) for size in ((count, columns), (number, columns), (count, number))
    )
    overlap, force = np.full((count, number), np.nan, precision), np.full((count, columns), np.nan, precision)
    overlaps_of_rows(by_blas, rows, others, overlap)
    sums_of_others(by_blas, weights, others, force)
    check(overlap, rows, others.T)
    check(force, weights, others)


def check(found, left, right):
    """A sum of N products is wrong by at most N roundings of the sum of their magnitudes."""
    exact, magnitude = left.astype(np.float64), np.abs(left).astype(np.float64)
    bound = left.shape[1] * np.finfo(found.dtype).eps * (magnitude @ np.abs(right))
    assert (np.abs(found - exact @ right) <= bound).all()
