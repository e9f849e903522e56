"""Prepared starts: neuron p leans on direction p alone, C² = s/d, and is orthogonal to all other neurons.

A random start has squared overlaps of order 1/d; prepared ones take that scatter out of a study of the step size.
"""

from __future__ import annotations

import numpy as np

from dynamics.problem import Problem, Teacher, checked_integer, checked_number, checked_real

DEFAULT_START = 4.0
DEFAULT_NORM = 1e-2


def prepared_pairs(
    information_exponent: int,
    dimension: int,
    *,
    teacher: Teacher | None = None,
    start: float = DEFAULT_START,
    initial_norm: float = DEFAULT_NORM,
) -> Problem:
    """Return the problem of as many neurons as directions, each neuron of length σ0 at C² = s/d from its direction.

    The link is h_k, k ≥ 3; d ≥ 2 P; the teacher is orthonormal, by default one direction of weight 1; s/d < ½, and
    σ0 > 0 is `initial_norm`.
    """
    k = checked_integer(information_exponent, "information_exponent", minimum=3)
    d = checked_integer(dimension, "dimension", minimum=1)
    goal = Teacher([1.0]) if teacher is None else teacher
    count = goal.num_directions
    if d < 2 * count:
        msg = f"Argument `dimension` must be at least twice the number of directions, {2 * count}, but is {d}."
        raise ValueError(msg)
    lead = checked_real(start, "start")
    if not 0.0 < lead < 0.5 * d:
        msg = f"Argument `start` must be positive and below half the dimension {d}, but is {lead}."
        raise ValueError(msg)
    norm = checked_number(initial_norm, "initial_norm", positive=True)
    overlaps = (np.sqrt(lead / d) * np.eye(count), np.eye(count), np.full(count, norm * norm))
    return Problem(activation=f"he{k}", teacher=goal, width=count, dimension=d, initial_overlaps=overlaps)
