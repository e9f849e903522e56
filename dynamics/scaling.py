"""Exponents of the scaling laws in the limit of many directions and large dimension.

Responsible for the asymptotic numbers alone; knows no problem, so that nobody takes them for the prediction of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["AsymptoticExponents", "asymptotic_exponents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsymptoticExponents:
    """Hold the exponents of the scaling laws for a_p ∝ p^(−β), β > ½, k ≥ 3; NaN where no law holds.

    Parameters
    ----------
    loss_time, loss_width, loss_samples, loss_compute : float
        L ∝ t^((1−2β)/β), m^(1−2β), n^((1−2β)/(2β)) with a step size tuned to the last wanted direction, and
        (m t)^((1−2β)/(1+β)).
    width_compute : float
        Best width m ∝ (m t)^(1/(1+β)).
    emergence_time_direction, emergence_time_dimension : float
        T_p ∝ p^β d^(k/2−1).
    emergence_samples_dimension : float
        Samples ∝ d^(k−1) at η ∝ d^(−k/2).
    notes : tuple of str
        Why an exponent is NaN.
    """

    loss_time: float
    loss_width: float
    loss_samples: float
    loss_compute: float
    width_compute: float
    emergence_time_direction: float
    emergence_time_dimension: float
    emergence_samples_dimension: float
    notes: tuple[str, ...] = ()


def asymptotic_exponents(information_exponent: int, beta: float | None) -> AsymptoticExponents:
    """Return the exponents of the scaling laws.

    Parameters
    ----------
    information_exponent : int
        k of the link.
    beta : float or None
        Decay β of the teacher's coefficients; None if they follow no power law.

    Returns
    -------
    AsymptoticExponents
        NaN entries, with a note, for k < 3, β ≤ ½ or β None.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.

    Examples
    --------
    >>> asymptotic_exponents(4, 1.0).loss_time
    -1.0
    """
    notes: list[str] = []
    if information_exponent < 3:
        notes.append("no exponents: below information exponent 3 directions do not decouple")
    if beta is None:
        notes.append("no exponents of the loss: the teacher's coefficients follow no declared power law")
    elif beta <= 0.5:
        notes.append("no exponents of the loss: they need beta > 1/2")
    power = beta if beta is not None and information_exponent >= 3 else np.nan
    b = power if power > 0.5 else np.nan
    k = float(information_exponent) if information_exponent >= 3 else np.nan
    return AsymptoticExponents(
        loss_time=(1 - 2 * b) / b,
        loss_width=1 - 2 * b,
        loss_samples=(1 - 2 * b) / (2 * b),
        loss_compute=(1 - 2 * b) / (1 + b),
        width_compute=1 / (1 + b),
        emergence_time_direction=power,
        emergence_time_dimension=k / 2 - 1,
        emergence_samples_dimension=k - 1,
        notes=tuple(notes),
    )
