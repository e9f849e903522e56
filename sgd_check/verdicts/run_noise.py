r"""The delay of a run by its samples: a control variate, drawn once more from the seed of the run.

To first order in the learning rate a pair escapes late by what the noise of its steps takes away from its overlap,
each step over the speed at which the overlap grows there,

.. math:: \frac{T - T_0}{T_0} &\simeq Z = -\frac{\eta}{T_0} \sum_t \frac{\xi_t}{b(C_t)}, \\
   \xi_t &= (f^*(x_t) + \tau\zeta_t)\, \sigma'(z_t)\, (x_{t,p} - C_t z_t)
      - \sum_q a_q g'(C_{t,q}) (\delta_{pq} - C_t C_{t,q}),

b = a_p g'(C)(1 − C²), summed along the *flow* of the pair from its start to C² = ½, not along the run. The samples are
those of the run: the projected engine draws from generators of the seed alone. The sum in ξ is the mean of the product
for Gaussian samples and orthonormal directions, so that E Z = 0 whatever the runs did with their samples: ln T − β Z
has the mean of ln T for every β, and the best one tends to 1 with the learning rate. Where delays follow their linear
law the regression of ln T on Z leaves a small part of the scatter: 0.06 of 0.20 for k = 3, d = 16 at a twentieth of the
limit of stability, 0.16 of 0.37 at three tenths.

The neuron turns towards p, with the rest of its start in proportion; a direction counts in f* until its pair has
learned it. Both choices change how much is explained, not the mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import EMERGENCE_LEVEL, decouples
from sgd_check.verdicts.alignment import sound_runs

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem import Problem
    from dynamics.theory.prediction import EmergencePrediction
    from hermite.arrays import Array

#: Numbers that are drawn once more at most: a few seconds.
MOST_NUMBERS = 2**28
_BLOCK = 2**13
_PATH_POINTS = 2001


def noise_of_runs(problem: Problem, simulation: xr.Dataset) -> Array:
    """Return Z of every sound run and direction, shape (runs, P); NaN where samples or theory are not at hand."""
    from dynamics import theory

    runs = np.flatnonzero(sound_runs(simulation))
    found = np.full((runs.size, problem.num_directions), np.nan)
    if runs.size == 0 or not _can_be_drawn(problem, simulation):
        return found
    prediction = theory.predict(problem)
    if prediction.notes:
        return found
    rate = float(simulation.attrs["learning_rate"])
    numbers = runs.size * (problem.width + problem.teacher.span)
    end = min(float(simulation.attrs["end_time"]), MOST_NUMBERS * rate / numbers)
    pairs = [
        _Pair(problem, prediction, p)
        for p in np.flatnonzero(prediction.predicted_emergence_time <= end).tolist()
        if prediction.predicted_emergence_time[p] > 0
    ]
    for row, seed in zip(found, simulation["seed"].values[runs].tolist(), strict=True):
        for pair, value in zip(pairs, _delays(problem, pairs, rate, int(seed)), strict=True):
            row[pair.direction] = value
    return found


def without_noise(values: Array, noise: Array) -> Array:
    """Return n − 1 values without the part that is linear in the noise, for n values with noise of mean 0.

    For values α + β Z + normal scatter they are independent, normal, of mean α, and their Student's t is that of the
    intercept of the regression: the part along Z is projected out, and the rest turned so that all share one mean.

    Examples
    --------
    >>> noise = np.array([-1.0, 0.5, 2.0, 0.25])
    >>> without_noise(3.0 + 5.0 * noise, noise).round(12).tolist()
    [3.0, 3.0, 3.0]
    """
    n = values.size
    basis = np.linalg.qr(np.column_stack([noise, np.eye(n)[:, : n - 1]])).Q[:, 1:]
    design = basis.sum(axis=0)
    size = float(np.linalg.norm(design))
    wanted = np.full(n - 1, size / np.sqrt(n - 1))
    mirror = design - wanted
    turned = basis.T @ values
    if mirror @ mirror > 0.0:
        turned = turned - mirror * (2.0 * (mirror @ turned) / (mirror @ mirror))
    return np.asarray(turned * np.sqrt(n - 1) / size)


class _Pair:
    """The flow of a direction and its neuron alone: overlap, and time until C² = ½, on a grid."""

    def __init__(self, problem: Problem, prediction: EmergencePrediction, direction: int) -> None:
        from sgd_check.engines.projected import reduced_factor

        link, a = problem.activation, problem.teacher.coefficients
        self.direction = direction
        neuron, first = int(prediction.matched_neuron[direction]), float(prediction.matched_overlap[direction])
        start = reduced_factor(problem.reduced_weights(), problem.teacher.span)[:, neuron]
        rest = start / np.linalg.norm(start)
        rest[direction] = 0.0
        self.rest = rest / np.linalg.norm(rest)
        self.overlap = np.sign(first) * np.linspace(abs(first), np.sqrt(EMERGENCE_LEVEL), _PATH_POINTS)
        pull = a[direction] * link.kernel_derivative(self.overlap) * (1.0 - self.overlap**2)
        slowness = 1.0 / pull
        steps = 0.5 * (slowness[1:] + slowness[:-1]) * np.diff(self.overlap)
        self.time = np.concatenate([[0.0], np.cumsum(steps)])
        self.learned = prediction.predicted_learned_time


def _delays(problem: Problem, pairs: list[_Pair], rate: float, seed: int) -> list[float]:
    """Return Z of the pairs for one seed, from its samples until the last pair is through."""
    from sgd_check.engines.seeded_runs import AXES, LABEL_NOISE, generators

    axes, labels = generators(seed, (AXES, LABEL_NOISE))
    counts = [int(pair.time[-1] / rate) for pair in pairs]
    totals = [0.0] * len(pairs)
    for begin in range(0, max(counts, default=0), _BLOCK):
        size = min(_BLOCK, max(counts) - begin)
        samples = axes.standard_normal((size, problem.teacher.span + problem.width))
        noise = problem.label_noise * labels.standard_normal(size) if problem.label_noise > 0 else np.zeros(size)
        teacher = problem.activation.value(samples[:, : problem.num_directions])
        for at, pair in enumerate(pairs):
            part = slice(0, max(counts[at] - begin, 0))
            times = rate * np.arange(begin, begin + size, dtype=np.float64)[part]
            totals[at] += _lost(problem, pair, times, samples[part], teacher[part], noise[part])
    return [-rate * total / float(pair.time[-1]) for total, pair in zip(totals, pairs, strict=True)]


def _lost(problem: Problem, pair: _Pair, times: Array, samples: Array, teacher: Array, noise: Array) -> float:
    """Return Σ ξ/b over steps at these times, given σ of the samples along the teacher's directions."""
    link, p, P = problem.activation, pair.direction, problem.num_directions
    C = np.interp(times, pair.time, pair.overlap)
    aside = np.sqrt(1.0 - C**2)
    z = C * samples[:, p] + aside * (samples @ pair.rest)
    weights = np.where(times[:, None] < pair.learned, problem.teacher.coefficients, 0.0)
    gained = (np.sum(weights * teacher, axis=1) + noise) * link.derivative(z) * (samples[:, p] - C * z)
    overlaps = aside[:, None] * pair.rest[:P]
    overlaps[:, p] = C
    turned = np.where(np.arange(P) == p, 1.0, 0.0) - C[:, None] * overlaps
    mean = np.sum(weights * link.kernel_derivative(overlaps) * turned, axis=1)
    pull = problem.teacher.coefficients[p] * link.kernel_derivative(C) * (1.0 - C**2)
    return float(np.sum((gained - mean) / pull))


def _can_be_drawn(problem: Problem, simulation: xr.Dataset) -> bool:
    """Return whether the samples are known from the seeds, and single pairs escape from noise of mean 0."""
    attrs = simulation.attrs
    return (
        decouples(problem)
        and problem.teacher.directions is None
        and attrs["engine"] == "projected"
        and int(attrs["batch_size"]) == 1
        and not isinstance(attrs["learning_rate"], str)
    )
