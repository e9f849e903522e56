r"""The best step size of every width, read off losses at the end of runs, and whether it transfers between widths.

.. math:: \delta\ell(m) = \frac{L^*(m) - L^*(M)}{L^*(M)}, \qquad
   \delta\eta(m) = \left|\ln \frac{\eta^*(m)}{\eta^*(M)}\right|, \qquad \eta^*(m) = \arg\min_\eta L(m, \eta)

against the largest width M. A loss near its least value is quadratic in ln η, so that a step carried over from width m
costs ∝ δη². Transfer is fast if that is negligible beside what the width itself costs, that is, if the exponent of
the drift exceeds half that of the gap: δη² falls faster than δℓ.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from dynamics.theory.fits import widening
from dynamics.theory.slopes import fit_slope
from hermite.arrays import Array

RESAMPLES = 400
#: How many standard errors make a statement on exponents; rate at which widths without a drift seem to have one.
CLEAR, FALSE_ALARMS = 2.0, 0.05
FEWEST_WIDTHS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transfer:
    """How the best step moves with width, arrays over W widths; errors from a widened bootstrap over runs."""

    #: η* and L*, by a parabola in ln η through ln L at the best step of the grid and its neighbours.
    best_rate: Array
    best_loss: Array
    #: δℓ and δη; 0 for the largest width.
    loss_gap: Array
    rate_drift: Array
    #: L(m, η*(M)) / L(m, η*(m)) − 1, what the largest width's best step costs a narrower network; 0 for itself.
    transfer_cost: Array
    #: The error of η* is relative, the others are absolute.
    best_rate_error: Array
    loss_gap_error: Array
    rate_drift_error: Array
    transfer_cost_error: Array
    #: x of δℓ ∝ m^x, y of δη ∝ m^y, and y − x/2, negative where transfer is fast.
    gap_exponent: float
    drift_exponent: float
    excess: float
    gap_exponent_error: float
    drift_exponent_error: float
    excess_error: float
    #: "fast", "not fast", "undecided", or "no drift": none at any width that scatter does not explain, at a rate of
    #: false alarms of 5 % over all widths.
    verdict: str
    #: Upper bound, at 95 % over all widths, of `transfer_cost` in units of `loss_gap`: what the step costs beside what
    #: the width does, drift or not. Of widths whose gap is clear of scatter; NaN if none is.
    cost_share: float


def read_transfer(widths: ArrayLike, rates: ArrayLike, losses: ArrayLike, *, nothing: float = np.inf) -> Transfer:
    """Return the best step of every width, read off the losses at the end of runs, shape (W, E, R).

    There are W ≥ 4 widths, E step sizes, both increasing, and R runs of each. A loss is inf after a blow-up and NaN
    where it is not known; none counts above `nothing`, that of a student which has learned nothing. ln L is averaged
    over runs. A step size of which a run is not known is not the best. Runs are resampled with replacement 400 times,
    all step sizes of a width together: runs that share a start stay together.
    """
    m, eta = np.asarray(widths, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    L = np.asarray(losses, dtype=np.float64)
    if L.ndim != 3 or L.shape[:2] != (m.size, eta.size) or m.size < FEWEST_WIDTHS:
        msg = (
            f"Argument `losses` must have shape (widths, rates, runs) of at least {FEWEST_WIDTHS} widths, but has "
            f"shape {L.shape} for {m.size} widths and {eta.size} rates."
        )
        raise ValueError(msg)
    logs = np.log(np.where(np.isnan(L), np.inf, np.minimum(L, nothing)))
    found = _read(m, eta, logs.mean(axis=2))
    rng = np.random.default_rng(0)
    runs = L.shape[2]
    again = []
    for _ in range(RESAMPLES if runs > 1 else 0):
        chosen = rng.integers(runs, size=(m.size, 1, runs))
        again.append(_read(m, eta, np.take_along_axis(logs, np.broadcast_to(chosen, logs.shape), axis=2).mean(axis=2)))
    # A resampled mean varies (R − 1)/R times as much as the mean.
    widened = widening(runs) * np.sqrt(runs / (runs - 1.0)) if runs > 1 else 1.0
    errors = [widened * _spread([one[at] for one in again], found[at]) for at in range(len(found))]
    log_rate, log_loss, gap, drift, cost, x, y, excess = found
    return Transfer(
        best_rate=np.exp(log_rate),
        best_loss=np.exp(log_loss),
        loss_gap=gap,
        rate_drift=drift,
        transfer_cost=cost,
        best_rate_error=errors[0],
        loss_gap_error=errors[2],
        rate_drift_error=errors[3],
        transfer_cost_error=errors[4],
        gap_exponent=float(x),
        drift_exponent=float(y),
        excess=float(excess),
        gap_exponent_error=float(errors[5]),
        drift_exponent_error=float(errors[6]),
        excess_error=float(errors[7]),
        verdict=_verdict(drift, errors[3], float(excess), float(errors[7])),
        cost_share=_cost_share(cost[:-1], errors[4][:-1], gap[:-1], errors[2][:-1]),
    )


def _read(m: Array, eta: Array, logs: Array) -> tuple[Array, ...]:
    """Return ln η*, ln L*, gap, drift, cost, and the exponents of gap and drift with the excess, from ln L (W, E)."""
    best = np.array([_least(np.log(eta), row) for row in logs])
    log_rate, log_loss = best.T
    gap = np.expm1(log_loss - log_loss[-1])
    drift = np.abs(log_rate - log_rate[-1])
    slopes = [
        fit_slope(m[:-1], np.log(np.where(values[:-1] > 0.0, values[:-1], np.nan))).exponent for values in (gap, drift)
    ]
    x, y = map(np.asarray, slopes)
    # Both ends of the difference are read off the same chords, so that no drift means no cost.
    there, here = (
        np.array([np.interp(at, np.log(eta), row) for at, row in zip(rates, logs, strict=True)])
        for rates in (np.full_like(log_rate, log_rate[-1]), log_rate)
    )
    cost = np.expm1(np.maximum(there - here, 0.0))
    return log_rate, log_loss, gap, drift, cost, x, y, np.asarray(y - 0.5 * x)


def _least(log_rates: Array, logs: Array) -> tuple[float, float]:
    """Return where a curve is least, and its least value, by a parabola where both neighbours are known."""
    if not np.isfinite(logs).any():
        return float("nan"), float("nan")
    at = int(np.argmin(logs))
    near = slice(at - 1, at + 2)
    if at in (0, logs.size - 1) or not np.isfinite(logs[near]).all():
        return float(log_rates[at]), float(logs[at])
    bend, slope, height = np.polyfit(log_rates[near] - log_rates[at], logs[near], 2)
    if bend <= 0.0:
        return float(log_rates[at]), float(logs[at])
    return float(log_rates[at] - slope / (2.0 * bend)), float(height - slope**2 / (4.0 * bend))


def _spread(values: list[Array], like: Array) -> Array:
    """Return the standard deviation over resamples; NaN where fewer than half of them are known."""
    if not values:
        return np.full_like(like, np.nan)
    stacked = np.stack(values)
    known = np.isfinite(stacked)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, stacked, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (stacked - mean) ** 2, 0.0).sum(axis=0) / count)
    return np.where(known.mean(axis=0) > 0.5, spread, np.nan)


def _cost_share(cost: Array, cost_error: Array, gap: Array, gap_error: Array) -> float:
    """Return the largest upper bound of cost / gap, each bound shared among the widths."""
    far = NormalDist().inv_cdf(1.0 - 0.5 * FALSE_ALARMS / gap.size)
    least_gap = gap - far * gap_error
    clear = least_gap > 0.0
    if not clear.any():
        return float("nan")
    return float(((cost + far * cost_error)[clear] / least_gap[clear]).max())


def _verdict(drift: Array, error: Array, excess: float, excess_error: float) -> str:
    """Return "no drift", "fast", "not fast" or "undecided", see `Transfer`."""
    known = np.isfinite(drift[:-1]) & np.isfinite(error[:-1])
    clear = NormalDist().inv_cdf(1.0 - 0.5 * FALSE_ALARMS / max(int(np.count_nonzero(known)), 1))
    if known.any() and (drift[:-1][known] <= clear * error[:-1][known]).all():
        return "no drift"
    if not np.isfinite(excess_error) or abs(excess) <= CLEAR * excess_error:
        return "undecided"
    return "fast" if excess < 0.0 else "not fast"
