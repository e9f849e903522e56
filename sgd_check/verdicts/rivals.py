r"""Whether the noise of SGD can change which neuron has a direction, and what that does to its time.

Greedy matching takes pairs by their rates ρ_ip = ln(a_p |C_ip|^(k−2)), ln T of a pair alone being const. − ρ. In a run
every ln T scatters by s, so that a pair ahead of another by less than `FAR_APART` · s may come second. A choice is
*settled* if it is that far ahead of all pairs that share its neuron or its direction, but for those that a settled
choice before it has excluded. Where it is not,

- another neuron may be first: the first of several times is earlier than each of them. For independent normal times
  the mean of ln T is less by at most

  .. math:: \sum_j E \max(0, N(\rho_{jp} - \rho_{ip}, 2 s^2));

- the neuron may take another direction: this one is later then, by nobody knows how much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.theory.prediction import EmergencePrediction
    from hermite.arrays import Array

#: Distance of two logarithms of times, in units of their scatter, at which they hardly ever change places.
FAR_APART = 3.0


class Rivals(NamedTuple):
    """What rivals of its pair mean for every direction, shape (P,).

    `settled`: there are none. `earlier`: what they take from the mean of ln T at most. `elsewhere`: whether the neuron
    may take another direction.
    """

    settled: NDArray[np.bool_]
    earlier: Array
    elsewhere: NDArray[np.bool_]


def rivals_of_pairs(problem: Problem, pairs: EmergencePrediction, scatter: Array) -> Rivals:
    """Return the rivals of matched pairs whose ln T scatters by `scatter` (P,); none for directions without a pair.

    O(P (m + P)).
    """
    overlap, k = problem.start().teacher_overlap, problem.information_exponent
    with np.errstate(divide="ignore"):
        strength = np.log(np.maximum(overlap, 0.0) if k % 2 else np.abs(overlap))
        rates = np.log(problem.teacher.coefficients) + (k - 2) * strength
    P = problem.num_directions
    found = Rivals(np.zeros(P, dtype=bool), np.zeros(P), np.zeros(P, dtype=bool))
    neurons = pairs.matched_neuron
    matched = np.flatnonzero((neurons >= 0) & np.isfinite(scatter))
    for p in matched[np.argsort(-rates[neurons[matched], matched], kind="stable")].tolist():
        i, s = int(neurons[p]), max(float(scatter[p]), 1e-12)
        behind = (rates[i, p] - np.delete(rates[:, p], i)) / s
        found.elsewhere[p] = (rates[i, p] - np.delete(rates[i], p) < FAR_APART * s).any()
        found.earlier[p] = s * np.sum(_mean_excess(behind))
        found.settled[p] = not found.elsewhere[p] and (behind >= FAR_APART).all()
        if found.settled[p]:
            rates[i], rates[:, p] = -np.inf, -np.inf
    return found


def _mean_excess(behind: Array) -> Array:
    """Return E max(0, N(−x, 2)) of every x."""
    x = behind[np.isfinite(behind)] / np.sqrt(2.0)
    return np.asarray(np.sqrt(2.0) * (np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi) - x * special.ndtr(-x)))
