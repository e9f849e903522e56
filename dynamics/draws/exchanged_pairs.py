"""Times at which a direction emerges where the noise of steps of SGD may change which neuron learns it, by draws."""

from __future__ import annotations

import numpy as np

from dynamics.problem import Problem
from dynamics.theory.prediction import EmergencePrediction
from dynamics.theory.step_noise import SearchNoise, pair_delays, times_of_pairs
from hermite.arrays import Array

#: Draws of the times of all pairs, most pairs, and seed.
DRAWS, MOST_PAIRS, DRAW_SEED = 2_000, 1_024, 0
#: Noise of early steps weighs more in which way a neuron goes than in when it arrives (measured, k = 3 and 4).
EARLY_NOISE = 1.3
#: Relative delay of a pair beyond which its leading order means nothing.
LARGEST_DELAY = 0.6


def exchanged_times(problem: Problem, pairs: EmergencePrediction, direction: int, noise_rate: float) -> Array | None:
    """Return draws (DRAWS,) of the flow time at which a direction emerges if noise exchanges neurons.

    `direction` counts from 0, `noise_rate` is the learning rate over the batch size; None is returned for more than
    1024 pairs. All overlaps C of neuron i are moved by independent normal numbers of standard deviation 1.3 times the
    smallest s b T over its directions: s is the scatter of ln T, b the speed of C and T the time, for the pair alone.
    Times have the mean delay of the pair. Of all directions that it can reach before they are learned a neuron takes
    the one to which it is pulled most at the start, of largest a_p |C|^(k−2) with the information exponent k.
    """
    m, P = problem.width, problem.num_directions
    if m * P > MOST_PAIRS:
        return None
    link, overlap, times = problem.activation, problem.start().teacher_overlap, times_of_pairs(problem)
    a = np.broadcast_to(problem.teacher.coefficients, (m, P))
    waits = np.isfinite(times) & (times > 0.0)
    noisy, delay = np.full((m, P), np.inf), np.zeros((m, P))
    drift, _, fluctuation, scatter = pair_delays(problem, SearchNoise(problem), noise_rate, a[waits], overlap[waits])
    speed = a[waits] * np.abs(link.kernel_derivative(overlap[waits])) * (1.0 - overlap[waits] ** 2)
    noisy[waits], delay[waits] = scatter * speed * times[waits], drift + fluctuation
    least = EARLY_NOISE * noisy.min(axis=1, keepdims=True)
    noise = np.random.default_rng(DRAW_SEED).standard_normal((DRAWS, m, P))
    moved = np.clip(overlap + np.where(np.isfinite(least), least, 0.0) * noise, -1.0, 1.0)
    drawn = times_of_pairs(problem, moved) * (1.0 + np.clip(delay, 0.0, LARGEST_DELAY))
    pull = np.where(np.isfinite(drawn), a * np.abs(moved) ** (problem.information_exponent - 2), 0.0)
    is_learned = np.isfinite(pairs.predicted_learned_time)
    lag = np.where(is_learned, pairs.predicted_learned_time, np.inf) - np.where(
        is_learned, pairs.predicted_emergence_time, 0.0
    )
    first, draw = np.full((DRAWS, P), np.inf), np.arange(DRAWS)
    for _ in range(m):
        pull[drawn > (first + lag)[:, None, :]] = 0.0
        choice = pull.argmax(axis=2)
        reached = np.take_along_axis(np.where(pull > 0.0, drawn, np.inf), choice[:, :, None], axis=2)[:, :, 0]
        neuron = reached.argmin(axis=1)
        taken, time = choice[draw, neuron], reached[draw, neuron]
        first[draw, taken] = np.minimum(first[draw, taken], time)
        pull[draw, neuron] = 0.0
    return first[:, direction]
