r"""The statistics of a comparison: log ratios of times in, z-scores, p-values and a verdict out.

Knows arrays alone. For every direction the null hypothesis is that the mean of ln(T_SGD/T_flow) lies in the band
[−s²/2, 2 ln(1 + δ)], where δ is the relative delay that the step size should cause in the mean of T_SGD, and s the
relative scatter that it should cause: the flow itself and twice the leading-order delay are both allowed, and the mean
of a logarithm lies s²/2 below the logarithm of the mean.

The distance of the sample mean from the band in standard errors is Student's t with n − 1 degrees of freedom at the
band's edge, so that the false-alarm rate per direction is at most the stated one for normal scatter of ln T. Directions
share their samples and are combined by Bonferroni, which needs no independence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_RUNS = 4
# "Agree" is said only where an error of this size in the predicted time would have been seen with this probability.
VISIBLE_ERROR = 0.3
POWER = 0.8


@dataclass(frozen=True)
class DirectionTest:
    """The test of one direction; all numbers dimensionless.

    Attributes
    ----------
    runs, censored : int
        Runs used, and how many of them entered at the horizon as lower bounds.
    mean, standard_error : float
        Of ln(T_SGD/T_flow) over the runs.
    band : float
        Upper edge 2 ln(1 + δ) of the band.
    z, p : float
        Signed distance from the band as a normal score, and its two-sided p-value.
    resolved : bool
        Whether an error of 30 % would have been seen.
    """

    runs: int
    censored: int
    mean: float
    standard_error: float
    band: float
    z: float
    p: float
    resolved: bool


def assess_direction(
    log_ratio: NDArray[np.float64], log_horizon: float, delay: float, scatter: float, level: float
) -> DirectionTest | None:
    """Test one direction, or return None with fewer than four runs.

    Parameters
    ----------
    log_ratio : ndarray, shape (runs,)
        ln(T_SGD/T_flow); NaN where the direction did not emerge within the run.
    log_horizon : float
        ln(H/T_flow), H the length of the runs.
    delay : float
        δ ≥ 0, expected relative delay; inf if unknown.
    scatter : float
        s ≥ 0, expected standard deviation of T over T_flow; only −s²/2 enters, as a correction of the band.
    level : float
        Level of the two-sided test of this one direction.

    Notes
    -----
    A run without emergence enters at the horizon. That can only lower the mean, so lateness stays a safe conclusion;
    earliness is concluded only when every run emerged.

    Examples
    --------
    >>> late = assess_direction(np.array([0.5, 0.52, 0.49, 0.51]), 1.0, 0.02, 0.0, 0.01)
    >>> late.p < 1e-4, late.z > 0
    (True, True)
    """
    missing = np.isnan(log_ratio)
    values = np.where(missing, log_horizon, log_ratio)
    n, censored = values.size, int(missing.sum())
    if n < FEWEST_RUNS:
        return None
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(n))
    band = 2.0 * float(np.log1p(delay))
    floor = -0.5 * scatter**2
    early = 0.0 if censored else min(mean - floor, 0.0)
    distance = max(mean - band, 0.0) + early
    score = _score(distance, error, n - 1)
    p = 1.0 if score == 0 else float(min(1.0, 2.0 * special.ndtr(-abs(score))))
    visible = float(np.log1p(VISIBLE_ERROR))
    reach = reach_factor(n, level) * error * np.sqrt(n)
    resolved = bool(band - floor + reach <= visible and log_horizon >= visible)
    return DirectionTest(n, censored, mean, error, band, score, p, resolved)


def reach_factor(runs: int, level: float) -> float:
    """Return the shift of the mean that a test at this level sees with probability 0.8, in units of the scatter."""
    quantiles = special.stdtrit(runs - 1, 1.0 - level / 2) + special.stdtrit(runs - 1, POWER)
    return float(quantiles / np.sqrt(runs))


def _score(distance: float, error: float, freedom: int) -> float:
    """Return the normal score with the tail probability of Student's t = distance/error."""
    if distance == 0.0:
        return 0.0
    if error == 0.0:
        return float(np.copysign(np.inf, distance))
    t = abs(distance) / error
    tail = special.stdtr(freedom, -t)
    return float(np.copysign(-special.ndtri(tail) if tail > 0 else np.inf, distance))


def combined_p_value(p_values: NDArray[np.float64]) -> float:
    """Return the global p-value of the tested directions (NaN: not tested) by Bonferroni; 1 if none was."""
    tested = p_values[np.isfinite(p_values)]
    return float(min(1.0, tested.size * tested.min())) if tested.size else 1.0
