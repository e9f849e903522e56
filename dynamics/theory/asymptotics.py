r"""Exponents of the scaling laws in the limit of many directions and large dimension, and of idealised finite sums.

Idealised: coefficients p^(−β), times exactly ∝ p^β, one direction after the other,

.. math:: L(r) = \frac{\sum_{p > r} p^{-2\beta}}{\sum_p p^{-2\beta}}, \qquad t = r^\beta,\; m = r,\;
   n_{tuned} = r^{2\beta},\; m t = r^{1+\beta}

after r directions are learned. Random starts, the lag of the norms and interactions are left out, so that only the
finite number P of directions and the steps of the staircase make a difference to the asymptotic exponents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynamics.fits import WINDOW_POWER, PowerLawFit, fit_power_law
from dynamics.problem import Problem
from hermite.arrays import Array

#: Law -> the powers p and q of its x = t^p r^q, in times and in the number r of learned directions.
IDEAL_LAWS = {
    "loss-time": (1, 0),
    "loss-samples": (1, 0),
    "loss-samples-tuned": (2, 0),
    "loss-width": (0, 1),
    "loss-compute": (1, 1),
}
#: Points of a curve, equally spaced in ln r.
POINTS = 400
FEWEST_DIRECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AsymptoticExponents:
    """Exponents x of scaling laws of the loss L and of times T_p; NaN where no law holds, as `notes` say.

    Coefficients of the directions are a_p ∝ p^(−β), β > ½, or geometric, and the information exponent k is at least 3.
    With τ = β + αk/2 for inputs with eigenvalues l^(−α) of the covariance Σ, β for isotropic ones, L ∝ t^((1−2β)/τ) in
    the flow time t, m^(1−2β) in the width m, n^((1−2β)/(2τ)) in samples n at a step size tuned to the last wanted
    direction, and (m t)^((1−2β)/(1+τ)) in compute m t, at the best width m ∝ (m t)^(1/(1+τ)). Directions emerge at
    times T_p ∝ p^τ (tr Σ)^(k/2−1), with tr Σ ∝ d^(1−α) for α < 1 in dimension d.
    """

    loss_time: float
    loss_width: float
    loss_samples: float
    loss_compute: float
    width_compute: float
    emergence_time_direction: float
    emergence_time_dimension: float
    notes: tuple[str, ...] = ()


def asymptotic_exponents(
    information_exponent: int, beta: float | None, *, ratio: float | None = None, alpha: float | None = 0.0
) -> AsymptoticExponents:
    """Return the exponents of the scaling laws for coefficients p^(−β), or for geometric ones r^p.

    `information_exponent` is k; `beta` is β, or None together with the `ratio` r of geometric coefficients, or with no
    ratio if the coefficients follow neither law. `alpha` is the decay of the eigenvalues l^(−α) of the inputs'
    covariance, 0 for isotropic inputs, None for a spectrum that follows no power law.

    Each exponent that does not exist is NaN, and `notes` says why: all of them for k < 3 or α None, those of the loss
    for β ≤ ½ or undeclared coefficients. For geometric coefficients only the loss over time, L ∝ t^(−2), and over
    samples, n^(−1), are numbers, since the tail Σ_{q>p} a_q² is ∝ T_p^(−2) with the time T_p at which direction p
    emerges; over the width L falls as r^(2m), no power. Source: Ren, Nichani, Wu, Lee, arXiv 2504.19983.
    """
    decouples, beta_or_nan = information_exponent >= 3, np.nan if beta is None else beta
    geometric, decay = beta is None and ratio is not None, np.nan if alpha is None else alpha
    growth = (1.0 - 2.0 * beta_or_nan) / beta_or_nan if beta_or_nan else np.nan
    is_undeclared, is_flat = beta is None and not geometric, beta == 0.0
    reasons = {
        "no exponents: below information exponent 3 directions do not decouple": not decouples,
        "geometric coefficients: the loss falls as t^-2 and, with a tuned step, as samples^-1; no power law in the "
        "width, where it falls as ratio^(2m), nor in p": geometric,
        "no exponents of the loss: the teacher's coefficients follow no declared power law": is_undeclared,
        "no exponents of the loss: equal coefficients emerge on one time scale, apart by their starts alone": is_flat,
        "no exponents of the loss: they need beta > 1/2; below, the weak directions hold the loss, and its learned "
        f"share grows as t^{growth:.3g} until the last of them": 0.0 < beta_or_nan < 0.5,
        "no exponents of the loss: they need beta > 1/2; at 1/2 every octave of p holds the same share of the "
        "loss": beta == 0.5,
        "no exponents: eigenvalues of the inputs along the directions follow no declared power law": alpha is None,
        "eigenvalues l^-alpha of the inputs: exponents hold for s_1/tr Sigma of at most about 0.01 and many more "
        "neurons than directions; beyond, those of the sums do": alpha not in (None, 0.0),
    }
    k, power = (float(information_exponent), beta_or_nan) if decouples else (np.nan, np.nan)
    b, later = power if power > 0.5 else np.nan, 0.5 * decay * k
    is_geometric = geometric and decouples and alpha is not None
    return AsymptoticExponents(
        loss_time=-2.0 if is_geometric else (1 - 2 * b) / (b + later),
        loss_width=1 - 2 * b,
        loss_samples=-1.0 if is_geometric else (1 - 2 * b) / (2 * (b + later)),
        loss_compute=(1 - 2 * b) / (1 + b + later),
        width_compute=1 / (1 + b + later),
        emergence_time_direction=power + later,
        emergence_time_dimension=max(1.0 - decay, 0.0) * (k / 2 - 1),
        notes=tuple(reason for reason, holds in reasons.items() if holds),
    )


def spectral_decay(problem: Problem) -> float | None:
    """Return the decay α of the eigenvalues of the inputs along the directions, 0 for isotropic inputs.

    It is None where they follow no power law.
    """
    if problem.covariance is None:
        return 0.0
    return problem.covariance.alpha if problem.teacher.directions is None else None


def ideal_curve(count: int, beta: float, ranks: tuple[float, float] | None = None) -> tuple[Array, Array]:
    """Return numbers r of learned directions (400,), equally spaced in ln r, and the idealised loss L(r) there.

    L is in units of its start and a staircase: `count` is the number P of directions, with coefficients p^(−β). `ranks`
    are the smallest and largest r, by default 1 and P^0.75.
    """
    tail = np.append(np.cumsum((np.arange(1, count + 1.0) ** (-2.0 * beta))[::-1])[::-1], 0.0)
    low, high = (1.0, float(round(count**WINDOW_POWER))) if ranks is None else ranks
    learned = np.geomspace(low, high, POINTS)
    # Rounding must not leave the last direction of a whole number out.
    return learned, tail[np.floor(learned * (1.0 + 1e-12)).astype(np.int64)] / tail[0]


def ideal_exponent(
    count: int, beta: float, law: str, *, ranks: tuple[float, float] | None = None, time_power: float | None = None
) -> PowerLawFit:
    """Fit a law of `IDEAL_LAWS` to the curve of P ≥ 16 directions; times grow as p to `time_power`, by default β > 0.

    The window of the fit is that of x. Over one window of ranks the relative error against the asymptotic exponent is
    the same for all laws, because they are one curve L(r) against powers of r.
    """
    (learned, loss), (of_time, of_rank) = ideal_curve(count, beta, ranks), IDEAL_LAWS[law]
    return fit_power_law(learned ** (of_time * (beta if time_power is None else time_power) + of_rank), loss)
