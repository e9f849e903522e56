r"""Theory of a step size that is tuned to the last wanted direction, from times that need no integration.

With η = c a_p̄ d^(−k/2) the noise of a step lets directions of weight a_p̄ and above escape and delays or traps weaker
ones: the times of all directions at such a step, and the samples to a given loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations import LARGEST_HISTORY, solve_pairs
from dynamics.theory import escape_bias, predict, target_losses, tuned_rates

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from dynamics.theory import EmergencePrediction
    from hermite.arrays import Array, Integers

# Times at which pairs are tabulated, and the last of them in units of the last learned time of the flow.
GRID, REACH = 800, 4.0


class Curve(NamedTuple):
    """Theory of one size: problem, targets p̄, and of each target what `theory_curve` returns."""

    problem: Problem
    targets: Integers
    needed: Array
    without_noise: Array
    delayed: Array

    @property
    def losses(self) -> Array:
        """Losses of the targets."""
        return target_losses(self.problem, self.targets)


def delayed_times(problem: Problem, prediction: EmergencePrediction, learning_rate: float) -> Array:
    """Return the learned times (P,) of the matched pairs, with the delay that noise adds; inf: trapped or unmatched.

    The delay is that of the mean trajectory (`dynamics.theory.step_noise.escape_bias`); the lag of the norm stays the
    flow's.
    """
    delay = escape_bias(problem, learning_rate, prediction).drift_bias
    emergence, learned = prediction.predicted_emergence_time, prediction.predicted_learned_time
    added = np.zeros_like(emergence)
    later = np.isfinite(emergence) & (emergence > 0.0)
    added[later] = emergence[later] * delay[later]
    return learned + added


def pair_losses(problem: Problem, prediction: EmergencePrediction, times: Array) -> Array:
    """Return what each direction adds to the loss in the flow, a² g(1) + n² g(1) − 2 n a g(C), shape (T, P)."""
    pairs = solve_pairs(problem, prediction, times)
    a, norm = problem.teacher.coefficients, float(np.sum(problem.activation.coefficients**2))
    if pairs.overlap is None or pairs.squared_norm is None:
        msg = f"Argument `problem` must have at most {LARGEST_HISTORY} directions, but has {a.size}."
        raise ValueError(msg)
    C, n = np.nan_to_num(pairs.overlap), np.nan_to_num(pairs.squared_norm)
    losses: Array = norm * (a**2 + n**2) - 2.0 * n * a * problem.activation.kernel(C)
    return losses


def samples_needed(times: Array, losses: Array, delays: Array, learning_rate: float, level: float) -> float:
    """Return n = t/η at the first t at which the loss of the delayed pairs is at most `level`; NaN if it never is.

    `losses` (T, P) at increasing flow times (T,) are those of `pair_losses`; `delays` (P,) are added to the times of
    each pair, inf: it never moves.
    """
    total = np.zeros_like(times)
    for delay, loss in zip(delays.tolist(), losses.T, strict=True):
        total += np.interp(times - delay, times, loss) if np.isfinite(delay) else loss[0]
    below = np.flatnonzero(total <= level)
    if below.size == 0 or below[0] == 0:
        return float("nan")
    at = int(below[0])
    part = (total[at - 1] - level) / (total[at - 1] - total[at])
    return float(times[at - 1] * (times[at] / times[at - 1]) ** part / learning_rate)


def theory_curve(problem: Problem, targets: Integers, rate: float) -> tuple[Array, Array, Array]:
    """Return what pairs alone say of each target p̄ at the rates of c: two numbers of samples, and learned times.

    The samples until the loss of the target is reached are (targets,), with the delays by noise and without, NaN if
    never; the learned times of all pairs, with the delays, are (targets, P), inf if trapped.
    """
    prediction = predict(problem)
    rates, levels = tuned_rates(problem, targets, rate), target_losses(problem, targets)
    flow = prediction.predicted_learned_time
    finite = flow[np.isfinite(flow)]
    times = np.geomspace(0.1 * finite.min(), REACH * finite.max(), GRID)
    losses = pair_losses(problem, prediction, times)
    needed, without, learned = [], [], []
    for eta, level in zip(rates.tolist(), levels.tolist(), strict=True):
        delayed = delayed_times(problem, prediction, eta)
        delays = np.where(np.isfinite(flow), delayed - np.where(np.isfinite(flow), flow, 0.0), np.inf)
        needed.append(samples_needed(times, losses, delays, eta, level))
        without.append(samples_needed(times, losses, np.zeros_like(delays), eta, level))
        learned.append(delayed)
    return np.array(needed), np.array(without), np.array(learned)
