r"""Exponents of the scaling laws in the limit of many directions and large dimension, and of idealised finite sums.

The idealised scaling laws: coefficients p^(−β), times exactly ∝ p^β, one direction after the other.

.. math:: L(r) = \frac{\sum_{p > r} p^{-2\beta}}{\sum_p p^{-2\beta}}, \qquad t = r^\beta,\; m = r,\;
   n_{tuned} = r^{2\beta},\; m t = r^{1+\beta}

after r directions are learned. Random starts, the lag of the norms and interactions are left out, so that what is left
of a difference to the asymptotic exponents is the finite number P of directions and the steps of the staircase alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dynamics.problem import Problem
from dynamics.problem.checks import checked_integer, checked_number, require
from dynamics.theory.fits import WINDOW_POWER, PowerLawFit, fit_power_law
from hermite.arrays import Array

#: Law -> from the power β of the times in the number r of learned directions, that of its x.
IDEAL_LAWS: dict[str, Callable[[float], float]] = {
    "loss-time": lambda beta: beta,
    "loss-samples": lambda beta: beta,
    "loss-samples-tuned": lambda beta: 2.0 * beta,
    "loss-width": lambda _: 1.0,
    "loss-compute": lambda beta: 1.0 + beta,
}
#: Points of a curve, equally spaced in ln r.
POINTS = 400
FEWEST_DIRECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AsymptoticExponents:
    """Exponents of the scaling laws for a_p ∝ p^(−β), β > ½, or a_p ∝ r^p, k ≥ 3; NaN where no law holds.

    τ = β + αk/2 for inputs with eigenvalues l^(−α), β for isotropic ones.
    """

    #: L ∝ t^((1−2β)/τ).
    loss_time: float
    #: L ∝ m^(1−2β).
    loss_width: float
    #: L ∝ n^((1−2β)/(2τ)) with a step size tuned to the last wanted direction.
    loss_samples: float
    #: L ∝ (m t)^((1−2β)/(1+τ)).
    loss_compute: float
    #: Best width m ∝ (m t)^(1/(1+τ)).
    width_compute: float
    #: T_p ∝ p^τ (tr Σ)^(k/2−1), tr Σ ∝ d^(1−α) for α < 1.
    emergence_time_direction: float
    emergence_time_dimension: float
    #: Samples ∝ d^(k−1) at η ∝ d^(−k/2), for isotropic inputs.
    emergence_samples_dimension: float
    #: Why an exponent is NaN.
    notes: tuple[str, ...] = ()


def asymptotic_exponents(
    information_exponent: int, beta: float | None, *, ratio: float | None = None, alpha: float | None = 0.0
) -> AsymptoticExponents:
    r"""Return the exponents of the scaling laws for a power law of decay β, or for geometric coefficients of a ratio r.

    On inputs with eigenvalues l^(−α) times grow as p^τ, τ = β + αk/2; α is None for others, without laws.

    .. math:: a_p \propto p^{-\beta}: \quad L \propto t^{(1-2\beta)/\beta},\; m^{1-2\beta},\; n^{(1-2\beta)/(2\beta)},\;
       (mt)^{(1-2\beta)/(1+\beta)} \qquad a_p \propto r^p: \quad L \propto t^{-2},\; r^{2m},\; n^{-1}

    Entries are NaN, with a note, for information exponents k < 3, β ≤ ½ or no declared law (neither β nor r).
    Source: Ren, Nichani, Wu, Lee, arXiv 2504.19983. For geometric coefficients the same sum: the tail Σ_{q>p} a_q² is
    ∝ a_p² ∝ T_p^(−2).

    Examples
    --------
    >>> asymptotic_exponents(4, 1.0).loss_time, asymptotic_exponents(4, None, ratio=0.8).loss_samples
    (-1.0, -1.0)
    """
    decouples, given = information_exponent >= 3, np.nan if beta is None else beta
    geometric, decay = beta is None and ratio is not None, np.nan if alpha is None else alpha
    none, need = "no exponents of the loss: ", "they need beta > 1/2; "
    growth = (1.0 - 2.0 * given) / given if given else np.nan
    reasons = {
        "no exponents: below information exponent 3 directions do not decouple": not decouples,
        "geometric coefficients: the loss falls as t^-2 and, with a tuned step, as samples^-1; no power law in the "
        "width, where it falls as ratio^(2m), nor in p": geometric,
        f"{none}the teacher's coefficients follow no declared power law": beta is None and not geometric,
        f"{none}equal coefficients emerge on one time scale, apart by their starts alone": given == 0.0,
        f"{none}{need}below, the weak directions hold the loss, and its learned share grows as t^{growth:.3g} until "
        "the last of them": 0.0 < given < 0.5,
        f"{none}{need}at 1/2 every octave of p holds the same share of the loss": given == 0.5,
        "no exponents: eigenvalues of the inputs along the directions follow no declared power law": alpha is None,
        "eigenvalues l^-alpha of the inputs: exponents hold for s_1/tr Sigma of at most about 0.01 and many more "
        "neurons than directions; beyond, those of the sums do": alpha not in (None, 0.0),
    }
    k, power = (float(information_exponent), given) if decouples else (np.nan, np.nan)
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
        emergence_samples_dimension=k - 1 if alpha == 0.0 else np.nan,
        notes=tuple(reason for reason, holds in reasons.items() if holds),
    )


def spectral_decay(problem: Problem) -> float | None:
    """Return the decay α of the eigenvalues of the inputs along the directions; None where they have no power law."""
    if problem.inputs is None:
        return 0.0
    return problem.inputs.alpha if problem.teacher.directions is None else None


def ideal_curve(
    num_directions: int, beta: float, *, ranks: tuple[float, float] | None = None, points: int = POINTS
) -> tuple[Array, Array]:
    """Return r and the idealised loss L(r) in units of E f*², a staircase seen at points equal in ln r.

    P ≥ 16, β > 0. `ranks` are the smallest and largest r, from 1 and below P; by default 1 and P^0.75, the window of
    `dynamics.theory.fits.default_window`.
    """
    count = checked_integer(num_directions, "num_directions", minimum=FEWEST_DIRECTIONS)
    power = checked_number(beta, "beta", positive=True)
    tail = np.append(np.cumsum((np.arange(1, count + 1.0) ** (-2.0 * power))[::-1])[::-1], 0.0)
    low, high = (1.0, float(round(count**WINDOW_POWER))) if ranks is None else ranks
    require(
        1.0 <= low < high < count, f"Argument `ranks` must increase from at least 1 to below {count}, but is {ranks}."
    )
    learned = np.geomspace(low, high, points)
    # Rounding must not leave the last direction of a whole number out.
    return learned, tail[np.floor(learned * (1.0 + 1e-12)).astype(np.int64)] / tail[0]


def ideal_exponent(
    num_directions: int,
    beta: float,
    law: str,
    *,
    ranks: tuple[float, float] | None = None,
    time_power: float | None = None,
) -> PowerLawFit:
    """Fit the law of a name in `IDEAL_LAWS` at a finite number of directions, with arguments as of `ideal_curve`.

    Times grow as p to the power `time_power`, by default β; β + αk/2 for inputs with eigenvalues l^(−α).
    The window of the fit is that of x. Over one window of ranks the relative error against the asymptotic exponent is
    the same for all laws, because they are one curve L(r) against powers of r.

    Examples
    --------
    >>> round(ideal_exponent(1024, 1.0, "loss-time").exponent, 2)
    -1.01
    """
    learned, loss = ideal_curve(num_directions, beta, ranks=ranks)
    return fit_power_law(learned ** IDEAL_LAWS[law](beta if time_power is None else time_power), loss)
