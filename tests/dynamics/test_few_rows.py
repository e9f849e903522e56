"""Products of a block of a few rows, by loops and by BLAS, against numpy's matrix products in double precision."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dynamics import cores
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


@pytest.mark.parametrize(
    ("kernels", "has_small"),
    [
        (["SkylakeX", "Cooperlake"], True),
        (["SapphireRapids"], True),
        (["SkylakeX", "Haswell"], False),
        (["Zen"], False),
        ([], False),
    ],
)
def test_only_avx512_kernels_of_blas_multiply_without_copies(kernels, has_small, monkeypatch):
    libraries = [{"internal_api": "openblas", "architecture": name} for name in kernels]
    libraries.append({"internal_api": "openmp"})
    monkeypatch.setattr(cores, "find_blas", lambda: SimpleNamespace(info=lambda: libraries))
    assert cores.has_kernels_for_small_matrices() == has_small


def test_blas_is_asked_for_its_kernels_not_the_processor():
    """OpenBLAS is told to use the kernels of AVX2, which every processor with AVX-512 can run as well."""
    script = "from dynamics.cores import has_kernels_for_small_matrices as has; print(has())"
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
