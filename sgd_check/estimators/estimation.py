r"""`sgd_check.estimate_direction`: draw samples, estimate their direction, and label how well that went.

Estimators are first eigenvectors of matrices made of a sample x (n, d) and labels T (n,), which are never formed.

Products with a vector go through the sample. At degree 3, F = Σ T Mat_{d,d²} He₃(x) has d³ entries, but F Fᵀ v needs
the d × d matrix Fᵀ v alone, G = xᵀ diag(T x·v) x − v sᵀ − s vᵀ − (s·v) I with s = Σ T x, and

.. math:: F F^T v = \sum_i T_i\, x_i\, (x_i^T G x_i - \mathrm{tr}\, G) - 2 G s.

Its terms of one sample with itself, Σ T² [(q² − 6q + d + 6) x xᵀ + 2q I], carry no more than noise and are taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from dynamics.laws import under_way
from dynamics.problem import Problem, check_memory, check_switch, checked_integer, checked_seeds
from dynamics.runs import make_dataset, uninterrupted
from dynamics.solve import direction_attributes, single_direction
from dynamics.theory import ACROSS, first_coordinates, make_estimator, stream
from hermite.arrays import Array
from hermite.text.command_line import stop_if_heard

#: Arrays of the size of the sample that an estimator holds at once, with all that it makes of it.
ARRAYS_OF_SAMPLE = 3
#: Relative accuracy of eigenvalues.
TOLERANCE = 1e-8
#: Key of a seed's stream for the vector from which the search for an eigenvector starts.
START = 1103


def estimate_direction(
    problem: Problem,
    *,
    samples: int,
    seeds: int | Sequence[int],
    degree: int | str = "auto",
    transform: str | Callable[[Array], Array] = "labels",
    progress: bool | None = None,
) -> xr.Dataset:
    r"""Estimate the direction θ of y = σ(θ·x) + τξ from n samples at once, and measure the squared overlap with it.

    The estimators, of degree 1 to 4 in x, and their laws are those of `dynamics.predict_recovery`: Σ T x, or the first
    eigenvector of a matrix made of T(y) and x, found by Lanczos iterations whose products go through the sample, so
    that no matrix is formed.

    Parameters
    ----------
    problem : Problem
        One direction of coefficient 1; its link and label noise make the labels, its student and start count for
        nothing.
    samples : int
        Number n ≥ 2 of samples.
    seeds : int or sequence of int
        How many samples of size n (seeds 0, 1, …), or their seeds, distinct and below 2^32. Larger samples of a seed
        begin with smaller ones along θ; the same seeds in `predict_recovery` give the law of these very labels.
    degree, transform
        As for `predict_recovery`, the sign included, which the estimator is told: nothing else does it know of σ.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.

    Returns
    -------
    Dataset
        `overlap_squared(seed)`, (θ̂·θ)², and from degree 2 on `top_eigenvalue(seed)`, ± by `label_sign`, of the matrix
        in `predict_recovery`. Attributes: those of `predict_recovery`, `samples`, and `stop_reason`, "reached_end" or
        "interrupted"; seeds that were not reached are NaN, and those whose sample has equal labels alone.

    Raises
    ------
    SolveInterrupted
        A KeyboardInterrupt, after Ctrl-C; its `dataset` has the seeds that were reached.
    TypeError, ValueError
        One sentence, before any work: what must hold, what was given; among them that three times the n·d numbers of x
        must fit into memory.

    Notes
    -----
    A product costs O(n d) operations, O(n d²) at degree 3; some ten to hundred are needed, most near the threshold.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(
    ...     activation="min(z**2, 4)", teacher=dynamics.Teacher([1.0]), width=1, dimension=200, student="spherical"
    ... )
    >>> found = estimate_direction(problem, samples=1200, seeds=8, degree=2, progress=False)
    >>> law = dynamics.predict_recovery(problem, samples=1200, degree=2)
    >>> bool(abs(found.overlap_squared.mean() - law.predicted_overlap_squared) < 0.05)
    True
    """
    single_direction(problem)
    n = checked_integer(samples, "samples", minimum=2)
    chosen = checked_seeds(seeds)
    check_switch("progress", progress, optional=True)
    check_memory("samples", n, ARRAYS_OF_SAMPLE * n * problem.dimension)
    estimator = make_estimator(problem.teacher_link, problem.label_noise, degree, transform)
    found = np.full((len(chosen), 2), np.nan)
    with under_way(len(chosen), progress, unit="sample") as meter:
        for at, seed in enumerate(chosen):
            stop_if_heard()
            # The direction comes first; along it larger samples of a seed begin with smaller ones.
            z, y = first_coordinates(problem.teacher_link, problem.label_noise, n, seed)
            x = np.column_stack([z, stream(seed, ACROSS).standard_normal((n, problem.dimension - 1))])
            vector, eigenvalue = leading_vector(estimator.degree, x, estimator.transform(y), seed)
            found[at] = vector[0] ** 2, estimator.sign * eigenvalue
            meter.bar.update()
    values = {"overlap_squared": found[:, 0], **({"top_eigenvalue": found[:, 1]} if estimator.degree > 1 else {})}
    attributes = direction_attributes(estimator, problem.dimension, transform)
    estimates = make_dataset(
        values,
        problem=problem,
        title="Estimates of one direction from samples that are there at once",
        coords={"seed": np.array(chosen, dtype=np.int64)},
        solver={"answer": "direction-estimate", "samples": n, "seeds": list(chosen), "degree": estimator.degree}
        | {"transform": attributes["transform"]},
        attributes={
            **attributes,
            "answer": "direction-estimate",
            "samples": n,
            "stop_reason": meter.stop_reason,
            "wall_seconds": meter.seconds,
        },
        leading=("seed",),
        with_leading=tuple(values),
    )
    return uninterrupted(estimates)


def leading_vector(degree: int, x: Array, labels: Array, seed: int) -> tuple[Array, float]:
    """Return the unit vector that an estimator of degree 1 to 4 finds, and its eigenvalue; NaN at degree 1.

    Labels of degree 1, 3 and 4 are centred by their mean. Both are NaN where the sample tells nothing, since all its
    labels are equal, and where the iterations do not converge.
    """
    T = labels if degree == 2 else labels - labels.mean()
    d = x.shape[1]
    if not T.any():
        return np.full(d, np.nan), np.nan
    if degree == 1:
        mean = T @ x
        return mean / np.linalg.norm(mean), np.nan
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    matrix: Any = LinearOperator((d, d), matvec=PRODUCTS[degree](x, T), dtype=np.float64)
    start: Any = stream(seed, START).standard_normal(d)
    try:
        values, vectors = eigsh(matrix, k=1, which="LA", tol=TOLERANCE, v0=start, maxiter=100 * d)
    except ArpackNoConvergence:
        return np.full(d, np.nan), np.nan
    return vectors[:, 0], float(values[0])


def products_of_degree_three(x: Array, T: Array) -> Callable[[Array], Array]:
    """Return products with F Fᵀ without its diagonal terms."""
    d, q, s = x.shape[1], np.einsum("ia,ia->i", x, x), T @ x
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


def products_of_degree_four(x: Array, T: Array) -> Callable[[Array], Array]:
    """Return products with Σ T [(q − d − 4) x xᵀ − (q − d − 2) I]."""
    d, q = x.shape[1], np.einsum("ia,ia->i", x, x)
    return _weighted(x, T * (q - d - 4.0), -float(T @ (q - d - 2.0)))


def _weighted(x: Array, weights: Array, shift: float) -> Callable[[Array], Array]:
    """Return products with Σ_i w_i x_i x_iᵀ + shift I."""

    def product(v: Array) -> Array:
        v = v.ravel()
        found: Array = (weights * (x @ v)) @ x + shift * v
        return found

    return product


PRODUCTS = {2: lambda x, T: _weighted(x, T / T.size, 0.0), 3: products_of_degree_three, 4: products_of_degree_four}
