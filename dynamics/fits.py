"""Power laws read off recorded curves: fits with windows and errors, levels, and the transfer of the best step size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import checked_real, require
from hermite.arrays import Array, real_column
from hermite.text.messages import refuse, shown

if TYPE_CHECKING:
    import xarray as xr


FEWEST_POINTS, FEWEST_DIRECTIONS, FEWEST_WIDTHS = 6, 4, 4
BLOCKS, RESAMPLES = 8, 400
#: How many standard errors make a statement on exponents; rate at which widths without a drift seem to have one.
CLEAR, FALSE_ALARMS = 2.0, 0.05
WINDOW_POWER = 0.75


@dataclass(frozen=True, slots=True)
class PowerLawFit:
    """A fitted law y = prefactor · x^exponent; the exponent ± 2 standard errors holds the true one in 95 % of cases.

    It was fitted to the `count` points whose x lies in `window`, (lowest, highest).
    """

    exponent: float
    standard_error: float
    prefactor: float
    window: tuple[float, float]
    count: int


def widening(samples: int) -> float:
    """Return the factor by which a standard error from `samples` values grows, so that ± 2 of it hold 95.4 %.

    With few values Student's distribution is wider than the normal one.
    """
    from scipy.special import stdtrit

    return float(stdtrit(samples - 1, 0.5 + 0.5 * math.erf(math.sqrt(2.0)))) / 2.0


def _increasing(values: ArrayLike, name: str) -> Array:
    """Return numbers as an array (N,); ValueError unless they increase and none is NaN."""
    column = real_column(values, name)
    require(column.ndim == 1, f"Argument `{name}` must have one dimension, but has shape {column.shape}.")
    require(not np.isnan(column).any(), f"Argument `{name}` must hold numbers alone, but has NaN.")
    for at in np.flatnonzero(~(np.diff(column) > 0.0))[:1]:
        refuse(f"Argument `{name}` must increase, but goes from {column[at]:g} to {column[at + 1]:g}.")
    return column


def fit_power_law(x: ArrayLike, y: ArrayLike, *, window: tuple[float, float] | None = None) -> PowerLawFit:
    r"""Fit y = b x^s by least squares in log–log, every part of log x with equal weight.

    .. math:: \min_{s, b} \int (\ln y - \ln b - s \ln x)^2 \, d\ln x

    Points that are not uniform in log x are first interpolated, linearly in log–log, to as many that are.

    Parameters
    ----------
    x, y : array_like, shape (N,)
        Increasing positive x, and y positive inside the window.
    window : tuple (low, high), optional
        Part of x that enters, ends included; everything by default.

    Raises
    ------
    ValueError
        If x does not increase, a value in the window is not positive and finite, or fewer than 6 points are in it.

    Notes
    -----
    Residuals of a staircase are correlated over whole steps, so the usual error of least squares is far too small. The
    standard error is that of a delete-one-block jackknife over B = 8 contiguous blocks of log x (fewer when there are
    fewer than 16 points, at least 3): se² = w² (B − 1)/B Σ_b (s_b − s̄)², w = `widening(B)`. It is honest while a block
    is longer than the correlation, too small for a curve whose deviations accumulate like a random walk, and says
    nothing of one that bends.

    Examples
    --------
    >>> x = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    >>> fit = fit_power_law(x, [3.0 / v for v in x])
    >>> round(fit.exponent, 12), round(fit.prefactor, 12)
    (-1.0, 3.0)
    """
    px, py = real_column(x, "x"), real_column(y, "y")
    require(
        px.ndim == 1 and px.shape == py.shape,
        f"Arguments `x` and `y` must have one shape (N,), but have shapes {px.shape} and {py.shape}.",
    )
    px = _increasing(px, "x")
    limits: object = (-np.inf, np.inf) if window is None else window
    if not isinstance(limits, (tuple, list)) or len(limits) != 2:
        refuse(f"Argument `window` must be a pair (low, high), but is {shown(window)}.", TypeError)
    low, high = (checked_real(end, "window") for end in limits)
    inside = (px >= low) & (px <= high)
    px, py, count = px[inside], py[inside], int(np.count_nonzero(inside))
    require(
        count >= FEWEST_POINTS,
        f"Argument `window` must hold at least {FEWEST_POINTS} points, but [{low:g}, {high:g}] holds {count}.",
    )
    holds = all((column > 0.0).all() and np.isfinite(column).all() for column in (px, py))
    require(holds, "Arguments `x` and `y` must be positive and finite inside the window, but are not.")
    log_x = np.log(px)
    grid = np.linspace(log_x[0], log_x[-1], count)
    log_y = np.interp(grid, log_x, np.log(py))
    exponent, intercept = np.polyfit(grid, log_y, 1)
    blocks = np.array_split(np.arange(count), min(BLOCKS, count // 2))
    slopes = np.array([np.polyfit(np.delete(grid, block), np.delete(log_y, block), 1)[0] for block in blocks])
    spread = (len(blocks) - 1) / len(blocks) * float(np.sum((slopes - slopes.mean()) ** 2))
    error = float(np.sqrt(spread)) * widening(len(blocks))
    return PowerLawFit(float(exponent), error, float(np.exp(intercept)), (float(px[0]), float(px[-1])), count)


def fit_runs(x: ArrayLike, y: ArrayLike, *, window: tuple[float, float] | None = None) -> PowerLawFit:
    r"""Return the power law of the geometric mean of runs y (R, N) over x (N,); the error is that of their scatter.

    .. math:: \delta s^2 = \frac{w^2}{R (R-1)} \sum_r (s_r - s)^2, \qquad w = \mathrm{widening}(R)

    With one run it is the jackknife of `fit_power_law`. Points that are not positive and finite in every run are left
    out; all is NaN if fewer than 6 are left. ValueError is raised if x does not increase.
    """
    px, runs = _increasing(x, "x"), np.asarray(y, dtype=np.float64)
    fits = runs.ndim == 2 and runs.shape[1:] == px.shape
    require(fits, f"Argument `y` must have shape (runs, {px.size}), but has shape {runs.shape}.")
    low, high = (-np.inf, np.inf) if window is None else window
    usable = (np.isfinite(runs) & (runs > 0.0)).all(axis=0) & (px >= low) & (px <= high)
    if (count := int(np.count_nonzero(usable))) < FEWEST_POINTS:
        return PowerLawFit(np.nan, np.nan, np.nan, (low, high), count)
    fit = fit_power_law(px[usable], np.exp(np.log(runs[:, usable]).mean(axis=0)))
    if len(runs) == 1:
        return fit
    slopes = np.array([fit_power_law(px[usable], run[usable]).exponent for run in runs])
    return replace(fit, standard_error=float(slopes.std(ddof=1) / np.sqrt(len(runs))) * widening(len(runs)))


class Slope(NamedTuple):
    """Exponent of y = b x^s and its standard error; NaN with too few points."""

    exponent: float
    standard_error: float


def fit_slope(x: ArrayLike, log_y: ArrayLike, errors: ArrayLike | None = None) -> Slope:
    r"""Fit log y = log b + s log x by plain least squares and pass the errors of the points on to s.

    .. math:: s = \sum_i w_i \ln y_i, \quad w_i = \frac{\ln x_i - \overline{\ln x}}{\sum_j (\ln x_j -
       \overline{\ln x})^2}, \qquad \delta s^2 = \sum_i w_i^2\, \delta_i^2

    Points where ln y or its error δ_i is not finite are left out. Equal weights fit a curve that bends the same for
    points of any error, so that SGD and the equation it is held against are fitted alike. ValueError is raised unless x
    is positive and finite.
    """
    values, px = np.asarray(log_y, dtype=np.float64), np.asarray(x, dtype=np.float64)
    require((np.isfinite(px) & (px > 0.0)).all(), "Argument `x` must be positive and finite, but is not.")
    spread = np.asarray(0.0 * values if errors is None else errors, dtype=np.float64)
    kept = np.isfinite(values) & np.isfinite(spread)
    if np.count_nonzero(kept) < 2:
        return Slope(np.nan, np.nan)
    log_x: Array = np.log(px[kept])
    centre = log_x - log_x.mean()
    weights = centre / np.sum(centre**2)
    return Slope(float(weights @ values[kept]), float(np.sqrt(weights**2 @ spread[kept] ** 2)))


def inverse_fit(losses: Array, needed: Array) -> PowerLawFit:
    """Return the law L ∝ n^x of losses over numbers of samples, fitted as n against L and then inverted.

    `losses` (N,) fall and are exact; `needed` (R, N) are the numbers of samples that each of R runs needs to get there.
    The window is in n.
    """
    fit, mean = fit_runs(losses[::-1], needed[:, ::-1]), np.exp(np.log(needed).mean(axis=0))
    usable, exponent = mean[np.isfinite(mean)], 1.0 / fit.exponent
    window = (float(usable[0]), float(usable[-1])) if usable.size else (np.nan, np.nan)
    error = fit.standard_error * exponent**2
    return replace(fit, exponent=exponent, standard_error=error, prefactor=fit.prefactor**-exponent, window=window)


def first_crossing(x: ArrayLike, y: ArrayLike, level: float, *, linear: bool = False) -> float:
    """Return the first x at which a curve is at most `level`, interpolated in log–log; NaN if never or from the start.

    `x` (N,) must increase, or ValueError is raised. Not-a-number in `y` (N,) counts as above the level. With `linear`
    the curve is taken as linear in ln x between points, so that y may be negative.
    """
    px, py = _increasing(x, "x"), np.asarray(y, dtype=np.float64)
    below = np.flatnonzero(py <= level)
    if below.size == 0 or below[0] == 0:
        return float("nan")
    at = int(below[0])
    if not ((linear or py[at] > 0.0) and np.isfinite(py[at - 1])):
        return float(px[at])
    before, after, goal = (py[at - 1], py[at], level) if linear else np.log([py[at - 1], py[at], level])
    return float(px[at - 1] * (px[at] / px[at - 1]) ** ((before - goal) / (before - after)))


def default_window(dataset: xr.Dataset | Mapping[str, ArrayLike]) -> tuple[float, float] | None:
    """Return the times between which the loss of an answer can be expected to follow a power law.

    From the first learned time to the one of rank N^0.75 among the N directions that are learned within the record,
    since the sum over the last ones is far from its limit; by emergence times where none are learned. None if fewer
    than 4 directions are learned, or fewer than 6 recorded times with a positive loss lie between.
    """
    time, loss = np.asarray(dataset["time"], dtype=np.float64), np.asarray(dataset["loss"], dtype=np.float64)
    for name in ("learned_time", "emergence_time"):
        reached = np.sort(np.asarray(dataset.get(name, ()), dtype=np.float64).ravel())
        reached = reached[(reached > 0.0) & (reached <= time[-1])]
        if reached.size:
            low, high = float(reached[0]), float(reached[round(reached.size**WINDOW_POWER) - 1])
            inside = (time >= low) & (time <= high) & np.isfinite(loss)
            enough = reached.size >= FEWEST_DIRECTIONS and np.count_nonzero(inside) >= FEWEST_POINTS
            return (low, high) if enough and bool((loss[inside] > 0.0).all()) else None
    return None


def read_transfer(widths: ArrayLike, rates: ArrayLike, losses: ArrayLike, *, nothing: float = np.inf) -> dict[str, Any]:
    r"""Return the best step of every width, read off the losses at the end of runs, shape (W, E, R), by name.

    .. math:: \delta\ell(m) = \frac{L^*(m) - L^*(M)}{L^*(M)}, \qquad
       \delta\eta(m) = \left|\ln \frac{\eta^*(m)}{\eta^*(M)}\right|, \qquad \eta^*(m) = \arg\min_\eta L(m, \eta)

    against the largest width M. A loss near its least value is quadratic in ln η, so that a step carried over from
    width m costs ∝ δη². Transfer is fast if that falls faster than δℓ, what the width itself costs.

    A loss is inf after a blow-up and NaN where it is not known; none counts above `nothing`, that of a student which
    has learned nothing. ln L is averaged over runs. A step size of which a run is not known is not the best.

    Over widths, (W,): `best_rate` η* and `best_loss` L*, by a parabola in ln η through ln L at the best step of the
    grid and its neighbours; `loss_gap` δℓ and `rate_drift` δη; `transfer_cost` L(m, η*(M))/L(m, η*(m)) − 1, the cost of
    the largest width's best step to a narrower network. Of all: `gap_exponent` x of δℓ ∝ m^x, `drift_exponent` y of
    δη ∝ m^y, and their `excess` y − x/2, negative where transfer is fast. All but L* have an error, `…_error`, relative
    for η*, by resampling the runs, all step sizes of a width together, so that runs that share a start stay together.

    `verdict` is "fast", "not fast", "undecided", or "no drift": none at any width that scatter does not explain, at a
    rate of false alarms of 5 % over all widths. `cost_share` is an upper bound, at 95 % over all widths, of the cost of
    the step over that of the width, of widths whose gap is clear of scatter; NaN if none is. ValueError is raised
    unless widths and rates increase.
    """
    m, eta = _increasing(widths, "widths"), _increasing(rates, "rates")
    L = np.asarray(losses, dtype=np.float64)
    fits = L.ndim == 3 and L.shape[:2] == (m.size, eta.size) and m.size >= FEWEST_WIDTHS
    require(
        fits,
        f"Argument `losses` must have shape (widths, rates, runs) of at least {FEWEST_WIDTHS} widths, but has shape "
        f"{L.shape} for {m.size} widths and {eta.size} rates.",
    )
    logs, runs = np.log(np.where(np.isnan(L), np.inf, np.minimum(L, nothing))), L.shape[2]
    readings, rng, resamples = _read(m, eta, logs.mean(axis=2)), np.random.default_rng(0), []
    for _ in range(RESAMPLES if runs > 1 else 1):
        chosen = np.broadcast_to(rng.integers(runs, size=(m.size, 1, runs)), logs.shape)
        resamples.append(_read(m, eta, np.take_along_axis(logs, chosen, axis=2).mean(axis=2)))
    # A resampled mean varies (R − 1)/R times as much as the mean.
    widened = widening(runs) * np.sqrt(runs / (runs - 1.0)) if runs > 1 else np.nan
    names = [name for name in readings if name != "best_loss"]
    error = {name: widened * _spread(np.array([resample[name] for resample in resamples])) for name in names}
    gap, cost = readings["loss_gap"][:-1], readings["transfer_cost"][:-1]
    far = _far(gap.size)
    least_gap, largest_cost = gap - far * error["loss_gap"][:-1], cost + far * error["transfer_cost"][:-1]
    clear = least_gap > 0.0
    return {
        **readings,
        **{name: np.exp(readings[name]) for name in ("best_rate", "best_loss")},
        **{f"{name}_error": value for name, value in error.items()},
        "verdict": _verdict(readings["rate_drift"], error["rate_drift"], readings["excess"], error["excess"]),
        "cost_share": float((largest_cost[clear] / least_gap[clear]).max()) if clear.any() else float("nan"),
    }


def _read(m: Array, eta: Array, logs: Array) -> dict[str, Any]:
    """Return a dictionary of the readings of `read_transfer` from ln L, shape (widths, learning rates).

    `m` are the widths and `eta` the learning rates. The logarithms of the best rate and of the best loss are returned,
    not their values.
    """
    log_rate, log_loss = np.array([_least(np.log(eta), row) for row in logs]).T
    gap, drift = np.expm1(log_loss - log_loss[-1]), np.abs(log_rate - log_rate[-1])
    x, y = (
        fit_slope(m[:-1], np.log(np.where(values[:-1] > 0.0, values[:-1], np.nan))).exponent for values in (gap, drift)
    )
    # Both ends of the difference are read off the same chords, so that no drift means no cost.
    at_widest, at_best = (
        np.array([np.interp(at, np.log(eta), row) for at, row in zip(rates, logs, strict=True)])
        for rates in (np.full_like(log_rate, log_rate[-1]), log_rate)
    )
    cost = np.expm1(np.maximum(at_widest - at_best, 0.0))
    of_widths = {"best_rate": log_rate, "best_loss": log_loss, "loss_gap": gap, "rate_drift": drift}
    return {**of_widths, "transfer_cost": cost, "gap_exponent": x, "drift_exponent": y, "excess": y - 0.5 * x}


def _least(log_rates: Array, logs: Array) -> tuple[float, float]:
    """Return ln η at the minimum of a curve of log losses (E,) over log rates (E,), and the log loss there.

    A parabola is fitted where both neighbours are finite; both numbers are NaN where all losses are infinite.
    """
    at = int(np.argmin(logs))
    near, rate, loss = slice(at - 1, at + 2), float(log_rates[at]), float(logs[at])
    if 0 < at < logs.size - 1 and np.isfinite(logs[near]).all():
        bend, slope, height = np.polyfit(log_rates[near] - rate, logs[near], 2)
        if bend > 0.0:
            return float(rate - slope / (2.0 * bend)), float(height - slope**2 / (4.0 * bend))
    return (rate, loss) if loss < np.inf else (np.nan, np.nan)


def _spread(values: Array) -> Any:
    """Return the standard deviations over resamples, the first axis; NaN unless more than half are finite."""
    is_number = np.isfinite(values)
    deviation = np.ma.masked_array(values, ~is_number).std(axis=0)
    deviations = np.where(is_number.mean(axis=0) > 0.5, np.ma.filled(deviation, np.nan), np.nan)
    return deviations if deviations.ndim else float(deviations)


def _verdict(drift: Array, error: Array, excess: float, excess_error: float) -> str:
    """Return "no drift", "fast", "not fast" or "undecided" on the transfer of the best learning rate over widths.

    `drift` (W,) are drifts |ln η*(m)/η*(M)| of the best rate from the largest width, with standard errors `error`;
    `excess` is the exponent by which the drift falls slower than fast transfer allows, with its standard error.
    """
    is_number = np.isfinite(drift[:-1]) & np.isfinite(error[:-1])
    bound = _far(max(int(np.count_nonzero(is_number)), 1)) * error[:-1][is_number]
    if is_number.any() and (drift[:-1][is_number] <= bound).all():
        return "no drift"
    if not np.isfinite(excess_error) or abs(excess) <= CLEAR * excess_error:
        return "undecided"
    return "fast" if excess < 0.0 else "not fast"


def _far(tests: int) -> float:
    """Return the number of standard errors that none of `tests` tests exceeds, but for 5 % false alarms over all."""
    return NormalDist().inv_cdf(1.0 - 0.5 * FALSE_ALARMS / tests)
