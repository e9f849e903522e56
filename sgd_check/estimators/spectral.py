r"""First eigenvectors of matrices made of a sample x (n, d) and labels T (n,), which are never formed.

Products with a vector go through the sample. At degree 3, F = Σ T Mat_{d,d²} He₃(x) has d³ entries, but F Fᵀ v needs
the d × d matrix Fᵀ v alone, G = xᵀ diag(T x·v) x − v sᵀ − s vᵀ − (s·v) I with s = Σ T x, and

.. math:: F F^T v = \sum_i T_i\, x_i\, (x_i^T G x_i - \mathrm{tr}\, G) - 2 G s.

Its terms of one sample with itself, Σ T² [(q² − 6q + d + 6) x xᵀ + 2q I], carry no more than noise and are taken away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.theory import stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermite.arrays import Array

#: Relative accuracy of eigenvalues.
TOLERANCE = 1e-8
#: Key of a seed's stream for the vector from which the search for an eigenvector starts.
START = 1103


def leading_vector(degree: int, x: Array, labels: Array, seed: int) -> tuple[Array, float]:
    """Return the unit vector that an estimator of degree 1 to 4 finds, and its eigenvalue; NaN at degree 1.

    Labels of degree 1, 3 and 4 are centred by their mean.
    """
    T = labels if degree == 2 else labels - labels.mean()
    if degree == 1:
        mean = T @ x
        return mean / np.linalg.norm(mean), np.nan
    from scipy.sparse.linalg import LinearOperator, eigsh

    d = x.shape[1]
    matrix: Any = LinearOperator((d, d), matvec=_PRODUCTS[degree](x, T), dtype=np.float64)
    start: Any = stream(seed, START).standard_normal(d)
    values, vectors = eigsh(matrix, k=1, which="LA", tol=TOLERANCE, v0=start, maxiter=100 * d)
    return vectors[:, 0], float(values[0])


def _degree_two(x: Array, T: Array) -> Callable[[Array], Array]:
    """Return products with (1/n) Σ T x xᵀ."""
    return _weighted(x, T / T.size, 0.0)


def _degree_three(x: Array, T: Array) -> Callable[[Array], Array]:
    """Return products with F Fᵀ without its diagonal terms."""
    d, q, s = x.shape[1], _squared_lengths(x), T @ x
    diagonal = _weighted(x, T**2 * (q**2 - 6.0 * q + d + 6.0), 2.0 * float(T**2 @ q))

    def product(v: Array) -> Array:
        v = v.ravel()
        outer = np.outer(v, s)
        G = x.T @ ((T * (x @ v))[:, None] * x) - outer - outer.T
        G.flat[:: d + 1] -= s @ v
        forms = np.einsum("ia,ia->i", x @ G, x)
        found: Array = (T * (forms - np.trace(G))) @ x - 2.0 * (G @ s) - diagonal(v)
        return found

    return product


def _degree_four(x: Array, T: Array) -> Callable[[Array], Array]:
    """Return products with Σ T [(q − d − 4) x xᵀ − (q − d − 2) I]."""
    d, q = x.shape[1], _squared_lengths(x)
    return _weighted(x, T * (q - d - 4.0), -float(T @ (q - d - 2.0)))


def _weighted(x: Array, weights: Array, shift: float) -> Callable[[Array], Array]:
    """Return products with Σ_i w_i x_i x_iᵀ + shift I."""

    def product(v: Array) -> Array:
        v = v.ravel()
        found: Array = (weights * (x @ v)) @ x + shift * v
        return found

    return product


def _squared_lengths(x: Array) -> Array:
    found: Array = np.einsum("ia,ia->i", x, x)
    return found


_PRODUCTS = {2: _degree_two, 3: _degree_three, 4: _degree_four}
