"""`sgd_check.estimate_hierarchy`: the first stage of a hierarchical target on drawn samples, and a best second one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynamics.problem import check_memory, checked_seeds
from dynamics.theory import HierarchyRecovery, checked_hierarchy
from hermite.arrays import Array
from hermite.text.command_line import stop_if_heard

#: Fresh inputs on which a second stage is measured, in groups of like p̂ of this size.
TESTED, GROUP = 20_000, 20


def estimate_hierarchy(
    link: object, *, dimension: int, samples: Sequence[int], seeds: int | Sequence[int]
) -> list[HierarchyRecovery]:
    r"""Estimate a quadratic form from labels g(p(x)) by the mean of y (xxᵀ − 1), and measure how much of it is found.

    .. math:: \hat A = \frac1{n\sqrt2} \sum_i y_i (x_i x_i^T - 1)

    The error of the second stage is the variance of y among fresh inputs of like p̂, 20 at a time, of which no function
    of p̂ knows more.

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

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> import dynamics
    >>> (drawn,) = estimate_hierarchy("sign(z)", dimension=20, samples=[1600], seeds=1)
    >>> law = dynamics.predict_hierarchy("sign(z)", dimension=20, samples=[1600])
    >>> bool(abs(drawn.overlap_squared - law.overlap_squared)[0] < 0.1)
    True
    """
    g, d, counts = checked_hierarchy(link, dimension, samples)
    chosen = checked_seeds(seeds)
    most = max(counts)
    check_memory("samples", most, 2 * max(most, TESTED) * d)
    signs = np.repeat([1.0, -1.0], d // 2)
    found = []
    for seed in chosen:
        stop_if_heard()
        test, train = (np.random.default_rng([seed, key]) for key in (0, 1))
        x, fresh = train.standard_normal((most, d)), test.standard_normal((TESTED, d))
        y, wanted = (g.value(z**2 @ signs / np.sqrt(2.0 * d)) for z in (x, fresh))
        overlap, left = np.empty((2, len(counts)))
        for at, n in enumerate(counts):
            A = (x[:n].T * y[:n]) @ x[:n] - y[:n].sum() * np.eye(d)
            overlap[at] = (np.diag(A) @ signs) ** 2 / d / (A**2).sum()
            left[at] = _variance(np.einsum("ni,ni->n", fresh @ A, fresh), wanted)
        found.append(HierarchyRecovery(np.array(counts, dtype=np.float64), overlap, left))
    return found


def _variance(guess: Array, labels: Array) -> float:
    """Return the mean variance of labels in groups of like guesses."""
    return float(labels[np.argsort(guess)].reshape(-1, GROUP).var(axis=1, ddof=1).mean())
