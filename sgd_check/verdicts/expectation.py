r"""What theory says of every direction's emergence: a time, what the step size does to it, and the band to be tested.

The band is that of E ln(T_SGD/T), T the predicted time. Three cases, δ = δ_drift + φ the relative delay of the mean of
T_SGD, φ its part by fluctuations, and s the relative scatter, all at leading order in the learning rate:

- *flow*: [−s²/2, 2 ln(1 + δ)]. The flow itself and twice the leading-order delay are both allowed; the mean of a
  logarithm lies s²/2 below the logarithm of the mean.
- *finite step*: the predicted time carries the drift part of the delay already. The finite-step equation moves by the
  mean of a step, and the mean of a time is not the time of the mean: to second order E ln(T_SGD/T) = φ − s²/2. Each of
  the two terms may lie between nothing and twice its leading order: [−s² + min(2φ, 0), 2 max(φ, 0)].
- *finite step, φ and s unknown* (c_0 ≠ 0, oblique directions, no matched pair) or beyond leading order (s > ½), k ≥ 3:
  constant noise on the escape C' ~ C^(k−1) has φ = s² (3k − 4)/(4k − 8) ≤ 5 s²/4, so the band is [−s², 5 s²/2] with s
  the scatter of the runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Twice the largest φ/s² of an escape with k ≥ 3 and constant noise, which k = 3 has.
LARGEST_FLUCTUATION = 2.5
#: Expected scatter beyond which its leading order means nothing.
LARGEST_SCATTER = 0.5


class Expectation(NamedTuple):
    """What theory says of every direction: shape (P,) each, dimensionless.

    `delay` and `scatter` are relative to `time`: what the step size should add to it (inf: unknown) and cause around
    it (NaN: unknown). `low` and `high` bound the mean of ln(T_SGD/time); NaN where the scatter of the runs decides.
    """

    time: Array
    delay: Array
    scatter: Array
    low: Array
    high: Array
    notes: tuple[str, ...]


def expectation(problem: Problem, prediction: xr.Dataset, noise_rate: float) -> Expectation:
    """Return emergence times as predicted, and the band of the mean of their logarithm that theory allows SGD.

    Times that are not finite and positive are not compared. `noise_rate` is learning rate over batch size, which sets
    the noise of the steps. The delay is inf where theory gives none: lateness is then no evidence against it.
    """
    from dynamics import theory

    time = np.asarray(prediction["emergence_time"].values, dtype=np.float64)
    time = np.where(np.isfinite(time) & (time > 0), time, np.nan)
    stepped = has_step(prediction)
    if problem.kind != "homogeneous" or problem.information_exponent <= 2:
        why = "theory has it for single neurons of the homogeneous student at information exponents from 3 on"
        return _unknown(problem, time, why, stepped=stepped)
    bias = theory.escape_bias(problem, noise_rate, theory.predict(problem))
    if np.isnan(bias.bias).all() and bias.notes:
        return _unknown(problem, time, "; ".join(bias.notes), stepped=stepped)
    scatter = np.where(np.isfinite(bias.scatter), bias.scatter, np.nan)
    square = np.nan_to_num(scatter) ** 2
    if stepped:
        known = np.isfinite(bias.bias) & (np.nan_to_num(scatter, nan=np.inf) <= LARGEST_SCATTER)
        part = np.where(known, bias.bias - np.where(known, bias.drift_bias, 0.0), np.inf)
        low = np.where(known, np.minimum(2 * part, 0.0) - square, np.nan)
        return Expectation(time, part, scatter, low, np.where(known, 2 * np.maximum(part, 0.0), np.nan), ())
    # The leading order may come out negative by rounding of an expected delay near 0; theory never expects an advance.
    delay = np.where(np.isnan(bias.bias), np.inf, np.maximum(bias.bias, 0.0))
    return Expectation(time, delay, scatter, -0.5 * square, 2.0 * np.log1p(delay), ())


def has_step(prediction: xr.Dataset) -> bool:
    """Return whether a prediction carries the mean effect of steps of finite size."""
    return "step_theory" in prediction.attrs


def _unknown(problem: Problem, time: Array, why: str, *, stepped: bool) -> Expectation:
    """Return the expectation where theory gives neither delay nor scatter."""
    nothing = np.full(time.size, np.nan)
    unlimited = np.full(time.size, np.inf)
    note = f"The delay by the step size is unknown: {why.removesuffix('.')}."
    if stepped and problem.information_exponent > 2:
        note = f"Theory gives no scatter, so that of the runs was taken: {why.removesuffix('.')}."
        return Expectation(time, unlimited, nothing, nothing, nothing, (note,))
    return Expectation(time, unlimited, nothing, np.zeros(time.size), unlimited, (note,))


def band_by_scatter(scatter: float, *, complete: bool) -> tuple[float, float]:
    """Return the band of a finite-step prediction from the standard deviation of ln T over the runs.

    With runs that did not emerge the scatter is a lower bound, so nothing bounds the lateness.
    """
    return -(scatter**2), LARGEST_FLUCTUATION * scatter**2 if complete else np.inf
