"""Power laws read off recorded curves: fits with their windows and errors, and where a curve falls below a level."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem.checks import checked_real, float_array
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr
    from numpy.typing import ArrayLike

    from hermite.arrays import Array

FEWEST_POINTS = 6
FEWEST_DIRECTIONS = 4
BLOCKS = 8
WINDOW_POWER = 0.75

_UNIFORM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLawFit:
    """Fitted law y = prefactor · x^exponent."""

    exponent: float
    #: From a delete-one-block jackknife, or from the scatter over runs (`fit_runs`), widened (`widening`): ± 2 of it
    #: hold 95 %.
    standard_error: float
    prefactor: float
    #: Smallest and largest x that entered.
    window: tuple[float, float]
    #: Number of points that entered.
    count: int


@lru_cache
def widening(samples: int) -> float:
    """Return by what the standard error from so many samples is widened, so that ± 2 of it are Student's 95.4 %.

    Examples
    --------
    >>> round(widening(4), 3), round(widening(8), 3), round(widening(1000), 3)
    (1.653, 1.214, 1.001)
    """
    # By bisection, since scipy.special takes a tenth of a second to load where nothing else needs it.
    freedom, (low, high) = samples - 1, (0.0, math.pi / 2)
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if _share_within(middle, freedom) < math.erf(math.sqrt(2.0)) else (low, middle)
    return math.sqrt(freedom) * math.tan(low) / 2.0


def _share_within(angle: float, freedom: int) -> float:
    """Return the share of Student's t with |t| < √freedom tan(angle): Abramowitz & Stegun, 26.7.3 and 26.7.4."""
    odd, cosine = freedom % 2, math.cos(angle)
    power = np.arange(odd, freedom - 1, 2)
    factors = cosine**2 * (power[:-1] + 1) / (power[:-1] + 2)
    tail = math.sin(angle) * float(np.sum(np.cumprod(np.append(cosine**odd, factors)[: power.size])))
    return 2.0 / math.pi * (angle + tail) if odd else tail


def fit_power_law(x: ArrayLike, y: ArrayLike, *, window: tuple[float, float] | None = None) -> PowerLawFit:
    r"""Fit y = b x^s by least squares in log–log, every part of log x with equal weight.

    .. math:: \min_{s, b} \int (\ln y - \ln b - s \ln x)^2 \, d\ln x

    Parameters
    ----------
    x, y : array_like, shape (N,)
        Increasing positive x, and y positive inside the window.
    window : tuple (low, high), optional
        Part of x that enters, ends included; everything by default.

    Returns
    -------
    PowerLawFit

    Raises
    ------
    ValueError
        If x does not increase, a value in the window is not positive and finite, or fewer than 6 points are in it.

    Notes
    -----
    Points that are not uniform in log x are first interpolated, linearly in log–log, to as many that are. Residuals of
    a staircase are correlated over whole steps, so the usual error of least squares is far too small. The standard
    error is that of a delete-one-block jackknife over B = 8 contiguous blocks of log x (fewer when there are fewer than
    16 points, at least 3): se² = w² (B − 1)/B Σ_b (s_b − s̄)², w = `widening(B)`. It is honest while a block is longer
    than the correlation.
    It is too small for a curve whose deviations accumulate like a random walk, and it says nothing of one that bends.

    Examples
    --------
    >>> x = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    >>> fit = fit_power_law(x, [3.0 / v for v in x])
    >>> round(fit.exponent, 12), round(fit.prefactor, 12)
    (-1.0, 3.0)
    """
    log_x, log_y, used = _window_logs(x, y, window)
    count = log_x.size
    grid = np.linspace(log_x[0], log_x[-1], count)
    if np.max(np.abs(grid - log_x)) > _UNIFORM_TOLERANCE * (grid[1] - grid[0]):
        log_y = np.interp(grid, log_x, log_y)
    exponent, intercept = _line(grid, log_y)
    blocks = np.array_split(np.arange(count), min(BLOCKS, count // 2))
    slopes = np.array([_line(np.delete(grid, block), np.delete(log_y, block))[0] for block in blocks])
    spread = (len(blocks) - 1) / len(blocks) * float(np.sum((slopes - slopes.mean()) ** 2))
    return PowerLawFit(
        exponent=exponent,
        standard_error=float(np.sqrt(spread)) * widening(len(blocks)),
        prefactor=float(np.exp(intercept)),
        window=used,
        count=count,
    )


def fit_runs(x: ArrayLike, y: ArrayLike, *, window: tuple[float, float] | None = None) -> PowerLawFit:
    r"""Fit the geometric mean over runs by a power law; the error is that of the scatter over runs.

    .. math:: s = \frac1R \sum_r s_r, \qquad \delta s^2 = \frac{w^2}{R (R-1)} \sum_r (s_r - s)^2

    w = `widening(R)`. `y` has one row per run, shape (R, N); points that are not positive and finite in every run are
    left out. Exponent, error and prefactor are NaN if fewer than 6 points are left. With one run the error is the
    jackknife of `fit_power_law`.

    The slope of least squares is linear in ln y: that of the mean of ln y is the mean of the slopes s_r of the runs,
    and a bootstrap over runs, with infinitely many resamples and made unbiased, has the error above, but for w. The
    window is taken as given; where it depends on the runs, `dynamics.laws.laws_of_a_problem.over_starts` says more.

    Examples
    --------
    >>> x = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    >>> fit = fit_runs(x, [[v**0.9 for v in x], [v**1.1 for v in x]])
    >>> round(fit.exponent, 12), round(fit.standard_error, 12)
    (1.0, 0.698386509962)
    """
    px, runs = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if runs.ndim != 2 or runs.shape[1:] != px.shape:
        msg = f"Argument `y` must have shape (runs, {px.size}), but has shape {runs.shape}."
        raise ValueError(msg)
    low, high = (-np.inf, np.inf) if window is None else window
    known = (np.isfinite(runs) & (runs > 0.0)).all(axis=0) & (px >= low) & (px <= high)
    if np.count_nonzero(known) < FEWEST_POINTS:
        nan = float("nan")
        return PowerLawFit(exponent=nan, standard_error=nan, prefactor=nan, window=(low, high), count=int(known.sum()))
    fit = fit_power_law(px[known], np.exp(np.log(runs[:, known]).mean(axis=0)))
    if len(runs) == 1:
        return fit
    slopes = np.array([fit_power_law(px[known], run[known]).exponent for run in runs])
    return replace(fit, standard_error=float(slopes.std(ddof=1) / np.sqrt(len(runs))) * widening(len(runs)))


def first_crossing(x: ArrayLike, y: ArrayLike, level: float) -> float:
    """Return the first x at which a curve is at most `level`, interpolated in log–log; NaN if never or from the start.

    x increases and is positive, as is the level; not-a-number in y counts as above.

    Examples
    --------
    >>> round(first_crossing([1.0, 100.0], [1.0, 0.01], 0.1), 6)
    10.0
    """
    px, py = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    below = np.flatnonzero(py <= level)
    if below.size == 0 or below[0] == 0:
        return float("nan")
    at = int(below[0])
    if not (py[at] > 0.0 and np.isfinite(py[at - 1])):
        return float(px[at])
    share = np.log(py[at - 1] / level) / np.log(py[at - 1] / py[at])
    return float(px[at - 1] * (px[at] / px[at - 1]) ** share)


def default_window(dataset: xr.Dataset | Mapping[str, ArrayLike]) -> tuple[float, float] | None:
    """Return the times (low, high) between which the loss of an answer can be expected to follow a power law.

    The rule: from the first learned time to the one of rank N^0.75 among the N directions that are learned within the
    record. The last directions are left out because the sum over those still to come is then far from its limit.
    Learned times count where there are any, emergence times else. None is returned if fewer than 4 directions are
    learned, or fewer than 6 recorded times with a positive loss lie between: a step or two make no power law.

    Examples
    --------
    >>> import numpy as np
    >>> curve = {"time": np.geomspace(1, 100, 50), "loss": np.ones(50), "learned_time": np.array([2.0, 4.0, 8.0, 99.0])}
    >>> default_window(curve)
    (2.0, 8.0)
    """
    time, loss = np.asarray(dataset["time"], dtype=np.float64), np.asarray(dataset["loss"], dtype=np.float64)
    for name in ("learned_time", "emergence_time"):
        if name not in dataset:
            continue
        reached = np.sort(np.asarray(dataset[name], dtype=np.float64).ravel())
        reached = reached[np.isfinite(reached) & (reached > 0.0) & (reached <= time[-1])]
        if 0 < reached.size < FEWEST_DIRECTIONS:
            return None
        if reached.size:
            low = float(reached[0])
            high = float(reached[round(reached.size**WINDOW_POWER) - 1])
            inside = (time >= low) & (time <= high) & np.isfinite(loss)
            usable = np.count_nonzero(inside) >= FEWEST_POINTS and bool((loss[inside] > 0.0).all())
            return (low, high) if usable else None
    return None


def _window_logs(
    x: ArrayLike, y: ArrayLike, window: tuple[float, float] | None
) -> tuple[Array, Array, tuple[float, float]]:
    """Return ln x and ln y inside the window, checked, and the smallest and largest x there."""
    px, py = float_array(x, "x"), float_array(y, "y")
    if px.ndim != 1 or px.shape != py.shape:
        msg = f"Arguments `x` and `y` must have one shape (N,), but have shapes {px.shape} and {py.shape}."
        raise ValueError(msg)
    if (np.diff(px) <= 0.0).any():
        msg = "Argument `x` must increase, but does not."
        raise ValueError(msg)
    low, high = _checked_window(window)
    inside = (px >= low) & (px <= high)
    if np.count_nonzero(inside) < FEWEST_POINTS:
        msg = (
            f"Argument `window` must hold at least {FEWEST_POINTS} points, but [{low:g}, {high:g}] holds "
            f"{np.count_nonzero(inside)}."
        )
        raise ValueError(msg)
    px, py = px[inside], py[inside]
    if not ((px > 0.0).all() and (py > 0.0).all() and np.isfinite(px).all() and np.isfinite(py).all()):
        msg = "Arguments `x` and `y` must be positive and finite inside the window, but are not."
        raise ValueError(msg)
    return np.log(px), np.log(py), (float(px[0]), float(px[-1]))


def _checked_window(window: object) -> tuple[float, float]:
    """Return a window as floats; without one, everything is inside."""
    if window is None:
        return -np.inf, np.inf
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        msg = f"Argument `window` must be a pair (low, high), but is {shown(window)}."
        raise TypeError(msg)
    return checked_real(window[0], "window"), checked_real(window[1], "window")


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Return slope and intercept of the least-squares line."""
    centre = x - x.mean()
    slope = float(np.sum(centre * y) / np.sum(centre**2))
    return slope, float(y.mean() - slope * x.mean())
