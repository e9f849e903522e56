r"""Whether the noise of SGD can change which neuron has a direction, and what that does to its time.

Greedy matching takes pairs by their rates ρ_ip = ln(a_p |C_ip|^(k−2)), ln T of a pair alone being const. − ρ. Noise
moves every overlap of a neuron by about as much as the one with its own direction, whose ln T scatters by s. So a pair
(i, p) may come second to one of overlap C_r and coefficient a_r if

.. math:: \frac{k-2}{|C_{ip}|} (C^* - C_r) < 3 s \sqrt{\frac{1 + (C^*/C_{ip})^2}{2}},
    \qquad C^* = |C_{ip}| \Big(\frac{a_p}{a_r}\Big)^{1/(k-2)},

C* the overlap at which both are equally fast; with a_r = a_p, `FAR_APART` · s in the logarithm of two near ones. A
choice is *settled* if no pair that shares its neuron or its direction is so near, but for those that a settled choice
before it has excluded: it takes its neuron, and its direction from the time at which that is learned. Until then the
direction still draws other neurons. Where a choice is not settled,

- another neuron may be first: the first of several times is earlier than each of them. With x_j the distance above,
  over s, the mean of ln T is less by at most

  .. math:: \sum_j E \max(0, N(-x_j s, 2 s^2));

- the neuron may take another direction: this one is later then, and waits for the neuron that is left.

`exchanged_times` draws what comes of both: it moves the overlaps at the start by noise, and matches pairs in the order
of the times that they then have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from dynamics.equations.transit.transit import transit_time
from dynamics.theory.search_noise import SearchNoise
from dynamics.theory.step_size import pair_delays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.theory.prediction import EmergencePrediction
    from hermite.arrays import Array

#: Distance of two times, in units of their scatter, at which they hardly ever change places.
FAR_APART = 3.0
#: Draws of the times of all pairs, the pairs at most, and the seed of the draws.
DRAWS, MOST_PAIRS, DRAW_SEED = 2_000, 1_024, 0
#: Noise of early steps weighs more in which way a neuron goes than in when it arrives (measured, k = 3 and 4).
EARLY_NOISE = 1.3
#: Relative delay of a pair beyond which its leading order means nothing.
LARGEST_DELAY = 0.6


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
    overlap, a, power = _sizes(problem), problem.teacher.coefficients, problem.information_exponent - 2
    P = problem.num_directions
    found = Rivals(np.zeros(P, dtype=bool), np.zeros(P), np.zeros(P, dtype=bool))
    with np.errstate(divide="ignore"):
        logs, closed = np.log(times_of_pairs(problem)), np.full(P, np.inf)
    neurons, learned = pairs.matched_neuron, pairs.predicted_learned_time
    free = np.ones(problem.width, dtype=bool)
    matched = np.flatnonzero((neurons >= 0) & np.isfinite(scatter))
    rates = a[matched] * np.abs(overlap[neurons[matched], matched]) ** power
    for p in matched[np.argsort(-rates, kind="stable")].tolist():
        i, s = int(neurons[p]), max(float(scatter[p]), 1e-12)
        own = max(float(overlap[i, p]), 1e-300)
        others = free.copy()
        others[i] = False
        behind = power * (1.0 - overlap[others, p] / own) / s
        even = (a[p] / a) ** (1.0 / power)
        ahead = power * (even - overlap[i] / own) / (s * np.sqrt(0.5 + 0.5 * even**2))
        draws = (ahead < FAR_APART) & (logs[i] < closed + FAR_APART * s) & np.isfinite(logs[i])
        found.elsewhere[p] = np.delete(draws, p).any()
        found.earlier[p] = s * np.sum(_mean_excess(behind))
        found.settled[p] = not found.elsewhere[p] and (behind >= FAR_APART).all()
        if found.settled[p]:
            free[i] = False
            closed[p] = np.log(learned[p]) if 0.0 < learned[p] < np.inf else np.inf
    return found


def times_of_pairs(problem: Problem) -> Array:
    """Return the times of emergence of every pair of a neuron and a direction alone, shape (m, P); inf for never."""
    return _alone(problem, problem.start().teacher_overlap)


def _alone(problem: Problem, overlap: Array) -> Array:
    """Return the times of emergence of pairs alone from overlaps (…, m, P)."""
    there = np.sqrt(0.5)
    goal = np.copysign(np.maximum(np.abs(overlap), there), overlap)
    times = transit_time(problem.activation.coefficients, overlap, goal) / problem.teacher.coefficients
    return np.asarray(np.where(np.abs(overlap) < there, times, 0.0))


def exchanged_times(problem: Problem, pairs: EmergencePrediction, direction: int, noise_rate: float) -> Array | None:
    """Return times of emergence of a direction, numbered from 0, over runs that noise may give another neuron.

    They are draws (DRAWS,), in flow time, inf where every neuron goes elsewhere; None if there are more than MOST_PAIRS
    pairs. `noise_rate` is the learning rate over the batch size. All overlaps C of neuron i with directions are moved
    by independent normal numbers of deviation 1.3 min_p s b T, s and b(C) the scatter of ln T and the speed of the pair
    alone, which gives ln T of its pairs at least that scatter at leading order (`dynamics.theory.escape_bias`); times
    have the delay of the pair. Of all directions that it can reach before they are learned a neuron takes the one to
    which it is pulled most at the start, a_p |C|^(k−2).
    """
    m, P = problem.width, problem.num_directions
    if m * P > MOST_PAIRS:
        return None
    link, overlap, times = problem.activation, problem.start().teacher_overlap, times_of_pairs(problem)
    a = np.broadcast_to(problem.teacher.coefficients, (m, P))
    waits = np.isfinite(times) & (times > 0.0)
    noisy, late = np.full((m, P), np.inf), np.zeros((m, P))
    drift, _, fluctuation, scatter, _ = pair_delays(
        problem, SearchNoise.of(problem), noise_rate, a[waits], overlap[waits]
    )
    speed = a[waits] * np.abs(link.kernel_derivative(overlap[waits])) * (1.0 - overlap[waits] ** 2)
    noisy[waits], late[waits] = scatter * speed * times[waits], drift + fluctuation
    least = EARLY_NOISE * noisy.min(axis=1, keepdims=True)
    noise = np.random.default_rng(DRAW_SEED).standard_normal((DRAWS, m, P))
    moved = np.clip(overlap + np.where(np.isfinite(least), least, 0.0) * noise, -1.0, 1.0)
    drawn = _alone(problem, moved) * (1.0 + np.clip(late, 0.0, LARGEST_DELAY))
    pull = np.where(np.isfinite(drawn), a * np.abs(moved) ** (problem.information_exponent - 2), 0.0)
    learned, known = pairs.predicted_learned_time, np.isfinite(pairs.predicted_learned_time)
    lag = np.full(P, np.inf)
    lag[known] = learned[known] - pairs.predicted_emergence_time[known]
    first, each = np.full((DRAWS, P), np.inf), np.arange(DRAWS)
    for _ in range(m):
        pull[drawn > (first + lag)[:, None, :]] = 0.0
        choice = pull.argmax(axis=2)
        reached = np.take_along_axis(np.where(pull > 0.0, drawn, np.inf), choice[:, :, None], axis=2)[:, :, 0]
        neuron = reached.argmin(axis=1)
        taken, time = choice[each, neuron], reached[each, neuron]
        first[each, taken] = np.minimum(first[each, taken], time)
        pull[each, neuron] = 0.0
    return first[:, direction]


def _sizes(problem: Problem) -> Array:
    """Return what counts of the overlaps (m, P): their size, or themselves for an odd exponent."""
    overlap = problem.start().teacher_overlap
    return overlap if problem.information_exponent % 2 else np.abs(overlap)


def _mean_excess(behind: Array) -> Array:
    """Return E max(0, N(−x, 2)) of every x."""
    x = behind[np.isfinite(behind)] / np.sqrt(2.0)
    return np.asarray(np.sqrt(2.0) * (np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi) - x * special.ndtr(-x)))
