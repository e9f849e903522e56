r"""Estimates from drawn samples: one direction, a hierarchical target, and weak-to-strong generalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.draws import ACROSS, first_coordinates, stream
from dynamics.laws.scaffold import under_way
from dynamics.linear_regression import WeakToStrong, WeakToStrongRisk, checked_column
from dynamics.problem import Problem, check_memory, check_switch, checked_integer, checked_seeds
from dynamics.problem.checks import check_type
from dynamics.runs import make_dataset, uninterrupted
from dynamics.signals import stop_if_heard
from dynamics.solve import direction_attributes, single_direction
from dynamics.theory import HierarchyRecovery, checked_hierarchy, make_estimator
from hermite.arrays import Array

#: Key of a seed's stream for the vector from which the search for an eigenvector starts.
START = 1103
#: Fresh inputs on which a second stage is measured, in groups of like p̂ of this size.
TESTED, GROUP = 20_000, 20


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
    eigenvector of a matrix made of T(y) and x, found by Lanczos iterations that form no matrix: O(n d) operations each,
    O(n d²) at degree 3.

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
        One sentence, before any work; among others three times the n·d numbers of x must fit into memory.

    Examples
    --------
    >>> import dynamics
    >>> problem = dynamics.Problem(
    ...     activation="min(z**2, 4)", teacher=dynamics.Teacher([1.0]), width=1, dimension=200, student="spherical"
    ... )
    >>> estimates = estimate_direction(problem, samples=1200, seeds=8, degree=2, progress=False)
    >>> law = dynamics.predict_recovery(problem, samples=1200, degree=2)
    >>> bool(abs(estimates.overlap_squared.mean() - law.predicted_overlap_squared) < 0.05)
    True
    """
    single_direction(problem)
    n = checked_integer(samples, "samples", minimum=2)
    seed_list = checked_seeds(seeds)
    check_switch("progress", progress, optional=True)
    check_memory("samples", n, 3 * n * problem.dimension)  # x, and two arrays of its size that an estimator makes
    estimator = make_estimator(problem.teacher_link, problem.label_noise, degree, transform)
    estimated = np.full((len(seed_list), 2), np.nan)
    with under_way(len(seed_list), progress, unit="sample") as meter:
        for row, seed in enumerate(seed_list):
            stop_if_heard()
            # The direction comes first; along it larger samples of a seed begin with smaller ones.
            z, y = first_coordinates(problem.teacher_link, problem.label_noise, n, seed)
            x = np.column_stack([z, stream(seed, ACROSS).standard_normal((n, problem.dimension - 1))])
            vector, eigenvalue = leading_vector(estimator.degree, x, estimator.transform(y), seed)
            estimated[row] = vector[0] ** 2, estimator.sign * eigenvalue
            meter.bar.update()
    values = {
        "overlap_squared": estimated[:, 0],
        **({"top_eigenvalue": estimated[:, 1]} if estimator.degree > 1 else {}),
    }
    attributes = direction_attributes(estimator, problem.dimension, transform)
    answer, ended = {"answer": "direction-estimate", "samples": n}, meter.stop_reason
    settings = {"seeds": list(seed_list), "degree": estimator.degree, "transform": attributes["transform"]}
    estimates = make_dataset(
        values,
        problem=problem,
        title="Estimates of one direction from samples that are there at once",
        coords={"seed": np.array(seed_list, dtype=np.int64)},
        solver=answer | settings,
        attributes=attributes | answer | {"stop_reason": ended, "wall_seconds": meter.seconds},
        leading=("seed",),
        with_leading=tuple(values),
    )
    return uninterrupted(estimates)


def leading_vector(degree: int, x: Array, labels: Array, seed: int) -> tuple[Array, float]:
    """Return the unit vector (d,) that an estimator of degree 1 to 4 finds, and its eigenvalue, NaN at degree 1.

    x (n, d) are the samples, `labels` (n,) theirs after the transform, and `seed` that of the start of the iterations.
    Both results are NaN if all labels are equal, so that the sample tells nothing, and if the iterations do not
    converge.
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
        values, vectors = eigsh(matrix, k=1, which="LA", tol=1e-8, v0=start, maxiter=100 * d)
    except ArpackNoConvergence:
        return np.full(d, np.nan), np.nan
    return vectors[:, 0], float(values[0])


def products_of_degree_three(x: Array, T: Array) -> Callable[[Array], Array]:
    r"""Return products with F Fᵀ, F = Σ T Mat_{d,d²} He₃(x); of its d³ entries the matrix G = Fᵀ v alone is formed.

    .. math:: F F^T v = \sum_i T_i\, x_i\, (x_i^T G x_i - \mathrm{tr}\, G) - 2 G s, \qquad s = \sum_i T_i x_i

    Terms of one sample with itself, Σ T² [(q² − 6q + d + 6) x xᵀ + 2q I], are taken away: they are noise.
    """
    d, q, s = x.shape[1], np.einsum("ia,ia->i", x, x), T @ x
    diagonal = _weighted(x, T**2 * (q**2 - 6.0 * q + d + 6.0), 2.0 * float(T**2 @ q))

    def product(v: Array) -> Array:
        """Return the matrix times v, (d,)."""
        v = v.ravel()
        outer = np.outer(v, s)
        G = x.T @ ((T * (x @ v))[:, None] * x) - outer - outer.T
        G.flat[:: d + 1] -= s @ v
        forms = np.einsum("ia,ia->i", x @ G, x)
        image: Array = (T * (forms - np.trace(G))) @ x - 2.0 * (G @ s) - diagonal(v)
        return image

    return product


def products_of_degree_four(x: Array, T: Array) -> Callable[[Array], Array]:
    """Return the function v -> A v for A = Σ_i T_i [(q_i − d − 4) x_i x_iᵀ − (q_i − d − 2) I], q_i = |x_i|².

    x (n, d) are the samples, T (n,) the transformed labels.
    """
    d, q = x.shape[1], np.einsum("ia,ia->i", x, x)
    return _weighted(x, T * (q - d - 4.0), -float(T @ (q - d - 2.0)))


def _weighted(x: Array, weights: Array, shift: float) -> Callable[[Array], Array]:
    """Return the function v -> A v for A = Σ_i w_i x_i x_iᵀ + shift I.

    x (n, d) are the samples, `weights` w (n,), and v has d numbers.
    """

    def product(v: Array) -> Array:
        """Return the matrix times v, (d,)."""
        v = v.ravel()
        image: Array = (weights * (x @ v)) @ x + shift * v
        return image

    return product


PRODUCTS = {2: lambda x, T: _weighted(x, T / T.size, 0.0), 3: products_of_degree_three, 4: products_of_degree_four}


def estimate_hierarchy(
    link: object, *, dimension: int, samples: Sequence[int], seeds: int | Sequence[int]
) -> list[HierarchyRecovery]:
    r"""Estimate a quadratic form from labels g(p(x)) by the mean of y (xxᵀ − 1), and measure how much of it is found.

    .. math:: \hat A = \frac1{n\sqrt2} \sum_i y_i (x_i x_i^T - 1)

    The error of the second stage is the variance of y among fresh inputs of like p̂, 20 at a time, of which no function
    of p̂ knows more. TypeError or ValueError is raised for bad arguments, in one sentence.

    Parameters
    ----------
    link, dimension, samples
        As for `dynamics.predict_hierarchy`.
    seeds : int or sequence of int
        How many draws (seeds 0, 1, …), or their seeds; larger samples of a seed begin with smaller ones.

    Returns
    -------
    list of dynamics.HierarchyRecovery
        One per seed, with the fields of the prediction; the second stage is measured for every link.

    Examples
    --------
    >>> import dynamics
    >>> (drawn,) = estimate_hierarchy("sign(z)", dimension=20, samples=[1600], seeds=1)
    >>> law = dynamics.predict_hierarchy("sign(z)", dimension=20, samples=[1600])
    >>> bool(abs(drawn.overlap_squared - law.overlap_squared)[0] < 0.1)
    True
    """
    g, d, counts = checked_hierarchy(link, dimension, samples)
    seed_list = checked_seeds(seeds)
    most = max(counts)
    check_memory("samples", most, 2 * max(most, TESTED) * d)
    signs = np.repeat([1.0, -1.0], d // 2)
    estimates = []
    for seed in seed_list:
        stop_if_heard()
        test, train = (np.random.default_rng([seed, key]) for key in (0, 1))
        x, fresh = train.standard_normal((most, d)), test.standard_normal((TESTED, d))
        y, test_labels = (g.value(z**2 @ signs / np.sqrt(2.0 * d)) for z in (x, fresh))
        overlap, variance = np.empty((2, len(counts)))
        for index, n in enumerate(counts):
            A = (x[:n].T * y[:n]) @ x[:n] - y[:n].sum() * np.eye(d)
            overlap[index] = (np.diag(A) @ signs) ** 2 / d / (A**2).sum()
            order = np.argsort(np.einsum("ni,ni->n", fresh @ A, fresh))
            variance[index] = test_labels[order].reshape(-1, GROUP).var(axis=1, ddof=1).mean()
        estimates.append(HierarchyRecovery(np.array(counts, dtype=np.float64), overlap, variance))
    return estimates


def draw_weak_to_strong(
    problem: WeakToStrong, *, draws: int, times: ArrayLike = (), seed: int = 0
) -> list[WeakToStrongRisk]:
    r"""Fit teachers to noisy labels, students to the labels of the teachers, and return the risks of every draw.

    .. math:: \hat w = \arg\min \sum_{i=1}^n (w \cdot u_i - f^*_i - \sigma\xi_i)^2, \qquad
       \hat\beta = \arg\min \sum_{j=1}^N (\beta \cdot z_j - \hat w \cdot u_j)^2

    Nothing of the law is used. Risks are means over all inputs, not over a sample. TypeError or ValueError is raised
    for bad arguments, in one sentence.

    Parameters
    ----------
    problem : dynamics.WeakToStrong
    draws : int
        Number of independent draws, at least 1.
    times : array_like, shape (k,), optional
        As for `dynamics.predict_weak_to_strong`.
    seed : int, default 0

    Returns
    -------
    list of dynamics.WeakToStrongRisk
        One per draw, with the fields of the prediction.

    Examples
    --------
    >>> import dynamics, numpy as np
    >>> pair = dynamics.WeakToStrong(
    ...     correlations=[1.0] * 5, weak_features=30, strong_features=20, samples=60, pseudo_labels=200
    ... )
    >>> drawn = draw_weak_to_strong(pair, draws=400)
    >>> bool(abs(np.mean([risk.weak_to_strong for risk in drawn]) - 0.2687) < 0.04)
    True
    """
    check_type("problem", problem, WeakToStrong, "a WeakToStrong")
    count, t = checked_integer(draws, "draws", minimum=1), checked_column(times, "times", fewest=0)
    rng = np.random.default_rng(checked_integer(seed, "seed", minimum=0))
    c, risks = np.array(problem.correlations), list[WeakToStrongRisk]()
    weak, strong, shared = problem.weak_features, problem.strong_features, np.flatnonzero(c == 1.0)
    target = np.zeros(max(weak, strong))
    target[shared] = problem.target_norm / max(shared.size, 1) ** 0.5

    def features(samples: int) -> tuple[Array, Array]:
        """Return features u (samples, weak) and z (samples, strong), correlated by c in the shared columns."""
        u, z = rng.standard_normal((samples, weak)), rng.standard_normal((samples, strong))
        z[:, : c.size] = c * u[:, : c.size] + np.sqrt(1.0 - c**2) * z[:, : c.size]
        return u, z

    for _ in range(count):
        stop_if_heard()
        u, z = features(problem.samples)
        labels = u @ target[:weak] + problem.label_noise * rng.standard_normal(problem.samples)
        teacher, labelled = (np.linalg.lstsq(x, labels, rcond=None)[0] for x in (u, z))
        u, z = features(problem.pseudo_labels)
        x, V = np.linalg.eigh(z.T @ z / problem.pseudo_labels)
        end = V.T @ np.linalg.lstsq(z, u @ teacher, rcond=None)[0]
        # The target has no other features than shared ones, so that risks are distances of the weights.
        path = (1.0 - np.exp(-np.outer(t, x))) * end
        first, last, supervised = (float(np.sum((w - target[: w.size]) ** 2)) for w in (teacher, V @ end, labelled))
        risks.append(WeakToStrongRisk(first, last, supervised, t, np.sum((path @ V.T - target[:strong]) ** 2, axis=1)))
    return risks
