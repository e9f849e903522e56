"""Labels ±1 of runs whose steps need projections alone."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, ndtr

from dynamics.problem import Problem, needs_points
from dynamics.problem.losses import BERNOULLI, SOFTMAX, VALUE
from hermite.arrays import Array


def draws_labels(problem: Problem) -> bool:
    """Return whether a label is drawn, given the input: by a sigmoid, or because it may be flipped."""
    return problem.labels == BERNOULLI or problem.flip > 0.0


def is_projected(problem: Problem) -> bool:
    """Return whether projections on teacher and neurons give the steps: one output, a named loss, isotropic inputs."""
    has_name = isinstance(problem.objective, str) and problem.objective != SOFTMAX
    return not needs_points(problem) or (has_name and problem.mixture is None)


def write_classes(problem: Problem, values: Array, normals: Array) -> None:
    """Replace values f* of samples, an array of any shape, by their labels ±1, in place; keep labels "value".

    `normals`, of the same shape, are independent standard normal numbers from which labels and flips are drawn.
    """
    if problem.labels == VALUE:
        return
    above = values - problem.threshold
    up = expit(above) if problem.labels == BERNOULLI else np.where(above >= 0.0, 1.0, 0.0)
    up = up * (1.0 - 2.0 * problem.flip) + problem.flip
    values[...] = np.where(ndtr(normals) < up, 1.0, -1.0)
