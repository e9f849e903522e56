"""Step sizes tuned to the last wanted direction, η = c a_p̄ d^(−k/2), and the loss that such a run is to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem.emergence import LEARNED_SHARE
from dynamics.theory.whitened_pairs import direction_speeds

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


def tuned_rates(problem: Problem, targets: Integers, rate: float) -> Array:
    """Return η = c a_p̄ d^(−k/2) of each target p̄, which counts directions from 1.

    With `inputs` it is c a s (s/tr Σ)^(k/2−1)/tr Σ² at p̄, s the eigenvalue along it:
    an overlap of square s/tr Σ grows at a rate a s C^(k−2), and noise takes from it at a rate η tr Σ².
    """
    k, d = problem.information_exponent, problem.dimension
    if (axes := problem.input_axes()) is not None:
        speed = direction_speeds(problem)[targets - 1]
        growth = problem.teacher.coefficients[targets - 1] * speed * (speed / axes.trace) ** (0.5 * k - 1.0)
        found: Array = rate * growth / float(axes.eigenvalue**2 @ axes.sizes)
        return found
    rates: Array = rate * problem.teacher.coefficients[targets - 1] * float(d) ** (-0.5 * k)
    return rates


def target_losses(problem: Problem, targets: Integers) -> Array:
    r"""Return the loss at which p̄ directions are learned, the last of them by half.

    .. math:: L_{\bar p} = g(1) \Big( \tfrac14 a_{\bar p}^2 + \sum_{p > \bar p} a_p^2 \Big)
    """
    a = problem.teacher.coefficients
    left = np.append(np.cumsum(a[::-1] ** 2)[::-1], 0.0)
    norm = float(np.sum(problem.activation.coefficients**2))
    losses: Array = norm * (left[targets] + ((1.0 - LEARNED_SHARE) * a[targets - 1]) ** 2)
    return losses
