"""`sgd_check.estimate_direction`: draw samples, estimate their direction, and label how well that went."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import check_memory, check_switch, checked_integer, checked_seeds
from dynamics.runs import bar_settings, open_bar
from dynamics.solve import direction_attributes, single_direction
from dynamics.theory import ACROSS, first_coordinates, make_estimator, stream
from hermite.text.signals import stop_if_heard
from sgd_check.estimators.spectral import leading_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Arrays of the size of the sample that an estimator holds at once, with all that it makes of it.
ARRAYS_OF_SAMPLE = 3


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
    degree : {"auto", 1, 2, 3, 4}
        As for `predict_recovery`.
    transform : {"labels", "optimal"} or callable
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
        One sentence: what must hold, what was given; among them, before any work, that x has n·d numbers, and three
        times as many must fit into memory.

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
    from dynamics.runs import make_dataset, uninterrupted

    single_direction(problem)
    n = checked_integer(samples, "samples", minimum=2)
    chosen = checked_seeds(seeds)
    check_switch("progress", progress, optional=True)
    check_memory("samples", n, ARRAYS_OF_SAMPLE * n * problem.dimension)
    estimator = make_estimator(problem.teacher_link, problem.label_noise, degree, transform)

    def estimated(seed: int) -> tuple[float, float]:
        x, y = drawn_sample(problem, n, seed)
        vector, eigenvalue = leading_vector(estimator.degree, x, estimator.transform(y), seed)
        return float(vector[0] ** 2), estimator.sign * eigenvalue

    started = clock.perf_counter()
    found, reason = _each(estimated, chosen, progress)
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
            "stop_reason": reason,
            "wall_seconds": clock.perf_counter() - started,
        },
        leading=("seed",),
        with_leading=tuple(values),
    )
    return uninterrupted(estimates)


def drawn_sample(problem: Problem, samples: int, seed: int) -> tuple[Array, Array]:
    """Return x (n, d), the direction first, and labels y (n,) of a seed."""
    z, y = first_coordinates(problem.teacher_link, problem.label_noise, samples, seed)
    x = np.empty((samples, problem.dimension))
    x[:, 0] = z
    x[:, 1:] = stream(seed, ACROSS).standard_normal((samples, problem.dimension - 1))
    return x, y


def _each(work: Callable[[int], tuple[float, float]], seeds: Sequence[int], progress: bool | None) -> tuple[Array, str]:
    """Return what work finds for every seed, NaN where Ctrl-C came before, and why it ended."""
    found = np.full((len(seeds), 2), np.nan)
    with open_bar(bar_settings(progress), total=len(seeds), unit="sample") as bar:
        try:
            for at, seed in enumerate(seeds):
                stop_if_heard()
                found[at] = work(seed)
                bar.update()
        except KeyboardInterrupt:
            return found, "interrupted"
    return found, "reached_end"
