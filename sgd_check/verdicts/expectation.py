"""The prediction of every direction's emergence: a time, the effect of the step size on it, and the band to be tested.

The band is that of E ln(T_SGD/T); `docs/verdict_tests.md` has it for flow, finite step, frames and learned times. δ is
the relative delay of the mean of T_SGD against the flow, s the relative scatter, both at leading order in the learning
rate, and φ, the lateness, that part of δ that the predicted time T lacks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from dynamics import theory
from dynamics.problem import Problem, decouples, is_correlation, is_frame
from hermite.arrays import Array, Switches
from sgd_check.verdicts.verdict import has_step

#: Twice the largest φ/s² of an escape with k ≥ 3 and constant noise, which k = 3 has.
LARGEST_FLUCTUATION = 2.5
#: Expected scatter beyond which its leading order means nothing.
LARGEST_SCATTER = 0.6
#: Expected scatter beyond which noise decides when a direction emerges, and the flow no longer.
NOISE_DECIDES = 1.0
#: Half of the band's width: a part of the time that is no error of the theory, and the next order in squares of s².
TOLERANCE, NEXT_ORDER = 0.02, 0.5
#: A direction of a frame whose time is longer than alone by this factor waits for others (measured over six starts
#: of three directions and two neurons: the scatter then is 0.3 to 1.2 times what `frame_rivals` says).
CROWDED = 1.05
#: Relative error of the leading order of a frame's first direction: it grows as 1/ln(d/m).
FRAME_SHARE = 1.0 / 3.0


class Expectation(NamedTuple):
    """The prediction of every direction: shape (P,) each, dimensionless.

    `delay` is the relative delay of the mean time against the flow by the step size (inf: unknown), `lateness` that
    against `time`, and `scatter` the standard deviation of ln T (NaN: unknown). `low` and `high` bound the mean of
    ln(T_SGD/time), NaN where the scatter of the runs decides.
    """

    time: Array
    delay: Array
    scatter: Array
    low: Array
    high: Array
    notes: tuple[str, ...]
    lateness: Array
    isolated: Switches

    @classmethod
    def uniform(
        cls,
        time: Array,
        *,
        delay: float = np.inf,
        scatter: Array | float = np.nan,
        low: float = np.nan,
        high: float = np.nan,
        notes: tuple[str, ...] = (),
    ) -> Expectation:
        """Return an expectation with the same numbers for all directions."""
        delays, scatters, lows, highs = (np.broadcast_to(value, time.shape) for value in (delay, scatter, low, high))
        return cls(time, delays, scatters, lows, highs, notes, delays, np.zeros(time.size, dtype=bool))


def predicted_times(prediction: xr.Dataset, name: str) -> Array:
    """Return predicted times (P,), NaN where they are not finite and positive."""
    time = np.asarray(prediction[name].values, dtype=np.float64)
    return np.where(np.isfinite(time) & (time > 0), time, np.nan)


def expectation(problem: Problem, prediction: xr.Dataset, noise_rate: float) -> Expectation:
    """Return the predicted times of emergence, and the band in which the mean of their logarithm may lie for SGD.

    Times that are not finite and positive are NaN and not compared. `noise_rate` is learning rate over batch size.
    """
    time, stepped = predicted_times(prediction, "emergence_time"), has_step(prediction)
    if is_frame(problem):
        return _of_frames(problem, time, noise_rate)
    if not is_correlation(problem) and not decouples(problem):
        cause = "theory has it for single neurons of the homogeneous student at information exponents from 3 on"
        return _unknown(problem, time, cause, stepped=stepped)
    pairs = theory.predict(problem)
    bias = theory.escape_bias(problem, noise_rate, pairs)
    if np.isnan(bias.bias).all() and bias.notes:
        return _unknown(problem, time, "; ".join(bias.notes), stepped=stepped)
    scatter = np.where(np.isfinite(bias.scatter), bias.scatter, np.nan)
    # The leading order may come out negative by rounding of an expected delay near 0; theory never expects an advance.
    delay = np.where(np.isnan(bias.bias), np.inf, np.maximum(bias.bias, 0.0))
    has_law = np.isfinite(delay) & (np.nan_to_num(scatter, nan=np.inf) <= LARGEST_SCATTER)
    lateness = np.where(has_law, bias.bias - np.where(has_law, bias.step_bias, 0.0), np.inf) if stepped else delay
    rivals = theory.rivals_of_pairs(problem, pairs, scatter)
    first = pairs.predicted_emergence_time <= np.nanmin(pairs.predicted_learned_time, initial=np.inf)
    # The laws of a run's samples, path and learned time are known for isotropic inputs alone.
    isolated = has_law & rivals.settled & first & (problem.inputs is None)
    wide = _wide_band(
        lateness, scatter, has_law, rivals, np.log(time / pairs.predicted_emergence_time), stepped=stepped
    )
    low, high = _band(wide, isolated, lateness, scatter, scatter)
    return Expectation(time, delay, scatter, low, high, (), lateness, isolated)


def learned_expectation(
    problem: Problem, prediction: xr.Dataset, noise_rate: float, emergence: Expectation, end: float
) -> Expectation:
    """Return the predicted learned times (P,), with the bands in which the mean of their logarithms may lie.

    `noise_rate` is learning rate over batch size, `emergence` the expectation of times of emergence, and `end` the
    length of the runs. A band is (−inf, inf) without a scatter of theory, and where the emergence is predicted after
    `end`.
    """
    time = predicted_times(prediction, "learned_time")
    delay, scatter, stepped = np.full((3, time.size), np.nan)
    has_law = (emergence.scatter <= LARGEST_SCATTER) & (problem.inputs is None)
    if has_law.any():
        pairs = theory.predict(problem)
        bias = theory.escape_bias(problem, noise_rate, pairs)
        for p in np.flatnonzero(has_law & (emergence.time <= end)).tolist():
            learned = theory.learned_bias(problem, noise_rate, pairs, bias, p)
            delay[p], stepped[p], scatter[p] = learned.bias, learned.step_bias, learned.scatter
    has_law = np.isfinite(delay) & (np.nan_to_num(scatter, nan=np.inf) <= LARGEST_SCATTER)
    has_law &= np.isfinite(emergence.low)
    in_time = np.nan_to_num(stepped) if has_step(prediction) else 0.0
    lateness, isolated = (
        np.where(has_law, np.where(has_law, delay, 0.0) - in_time, np.inf),
        has_law & emergence.isolated,
    )
    low, high = np.full((2, time.size), [[-np.inf], [np.inf]])
    if has_law.any():
        search, later = emergence.scatter, np.log(time / pairs.predicted_learned_time)
        rivals = theory.rivals_of_pairs(problem, pairs, search)
        wide = _wide_band(lateness, search, has_law, rivals, later, stepped=has_step(prediction))
        low, high = np.where(has_law, _band(wide, isolated, lateness, scatter, search), [low, high])
    return Expectation(time, delay, np.where(has_law, scatter, np.nan), low, high, (), lateness, isolated)


def _of_frames(problem: Problem, time: Array, rate: float) -> Expectation:
    """Return the expected times of alignment (P,) of a frame of orthogonal neurons, with their bands.

    `time` (P,) are the predictions of the flow, `rate` is learning rate over batch size.
    """
    drag, advance, scatter = theory.frame_escape(problem, rate)
    first = time == np.nanmin(time, initial=np.inf)
    rivals, alone = theory.frame_rivals(problem)
    crowded = ~first & (time > CROWDED * alone)
    scatter = np.where(crowded, rivals * scatter, scatter)
    has_law = np.isfinite(drag) & (np.nan_to_num(scatter, nan=np.inf) <= LARGEST_SCATTER)
    square = np.where(has_law, scatter, 0.0) ** 2
    delay = np.where(has_law, np.expm1(np.where(has_law, drag + advance, 0.0)), np.inf)
    fluctuation = np.where(crowded, LARGEST_FLUCTUATION * square, 0.0)
    low = np.where(has_law, 2.0 * np.minimum(advance, 0.0) - square - TOLERANCE, -np.inf)
    high = np.where(has_law, 2.0 * drag + 2.0 * np.maximum(advance, 0.0) + TOLERANCE + fluctuation, np.inf)
    first &= has_law
    centre = np.where(first, drag + advance, 0.0) - 0.5 * square
    width = TOLERANCE + NEXT_ORDER * square**2 + np.where(first, FRAME_SHARE * (drag - advance), 0.0)
    low, high = np.where(first, centre - width, low), np.where(first, centre + width, high)
    return Expectation(time, delay, scatter, low, high, (), delay, np.zeros(time.size, dtype=bool))


def _wide_band(
    lateness: Array, scatter: Array, has_law: Switches, rivals: theory.Rivals, later: Array, *, stepped: bool
) -> tuple[Array, Array]:
    """Return the lower and upper end (P,) of the band of ln(T_SGD/T) for directions that others may influence.

    `lateness` and `scatter` (P,) are the expected delay, relative, and the standard deviation of ln T; `has_law` marks
    where both are known, `rivals` tells which directions other neurons may reach first, and `later` (P,) is ln of the
    predicted time over that of the pair alone. `stepped` says that the prediction has the mean effect of steps.
    """
    square = np.nan_to_num(scatter) ** 2
    low, high = -0.5 * square, 2.0 * np.log1p(lateness)
    if stepped:
        part = np.where(has_law, lateness, 0.0)
        low = np.where(has_law, np.minimum(2 * part, 0.0) - square, np.nan)
        high = np.where(has_law, 2 * np.maximum(part, 0.0), np.nan)
    unknown = (np.isnan(low) & ~rivals.settled) | (np.nan_to_num(scatter) > NOISE_DECIDES)
    shift = rivals.earlier + np.where(rivals.elsewhere, np.maximum(np.nan_to_num(later), 0.0), 0.0)
    return np.where(unknown, -np.inf, low - shift), np.where(unknown | rivals.elsewhere, np.inf, high)


def _band(
    wide: tuple[Array, Array], isolated: Switches, lateness: Array, scatter: Array, of_search: Array
) -> tuple[Array, Array]:
    """Return the lower and upper ends (P,) of the band: about a centre for isolated directions, else `wide`.

    The centre is ln(1 + lateness) − scatter²/2; the width grows as `of_search`⁴, a scatter of ln T.
    """
    centre = np.log1p(np.where(isolated, lateness, 0.0)) - 0.5 * np.nan_to_num(scatter) ** 2
    width = TOLERANCE + NEXT_ORDER * np.nan_to_num(of_search) ** 4
    return np.where(isolated, centre - width, wide[0]), np.where(isolated, centre + width, wide[1])


def _unknown(problem: Problem, time: Array, cause: str, *, stepped: bool) -> Expectation:
    """Return predicted times without a band of theory, with a note on the `cause`, a phrase that ends the sentence."""
    if stepped and problem.information_exponent > 2:
        note = f"Theory gives no scatter, so that of the runs was taken: {cause.removesuffix('.')}."
        return Expectation.uniform(time, notes=(note,))
    note = f"The delay by the step size is unknown: {cause.removesuffix('.')}."
    return Expectation.uniform(time, low=0.0, high=np.inf, notes=(note,))
