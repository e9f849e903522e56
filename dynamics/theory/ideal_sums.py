r"""The idealised scaling laws: coefficients p^(−β), times exactly ∝ p^β, one direction after the other.

.. math:: L(r) = \frac{\sum_{p > r} p^{-2\beta}}{\sum_p p^{-2\beta}}, \qquad t = r^\beta,\; m = r,\;
   n_{tuned} = r^{2\beta},\; m t = r^{1+\beta}

after r directions are learned. Random starts, the lag of the norms and interactions are left out, so that what is left
of a difference to the asymptotic exponents is the finite number P of directions and the steps of the staircase alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynamics.problem.checks import checked_integer, checked_number
from dynamics.theory.fits import WINDOW_POWER, PowerLawFit, fit_power_law
from hermite.arrays import Array

#: What each law takes for x: the power of the number r of learned directions, from that of the times, β.
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


def ideal_curve(
    num_directions: int, beta: float, *, ranks: tuple[float, float] | None = None, points: int = POINTS
) -> tuple[Array, Array]:
    """Return r and the idealised loss L(r) in units of E f*², a staircase seen at points equal in ln r.

    P is at least 16 and β > 0. The ranks are the smallest and largest r, within 1 and P; by default 1 and P^0.75, the
    window of `dynamics.theory.fits.default_window`.
    """
    count = checked_integer(num_directions, "num_directions", minimum=FEWEST_DIRECTIONS)
    power = checked_number(beta, "beta", positive=True)
    tail = np.append(np.cumsum((np.arange(1, count + 1.0) ** (-2.0 * power))[::-1])[::-1], 0.0)
    low, high = (1.0, float(round(count**WINDOW_POWER))) if ranks is None else ranks
    if not 1.0 <= low < high < count:
        msg = f"Argument `ranks` must increase from at least 1 to below {count}, but is {ranks}."
        raise ValueError(msg)
    learned = np.geomspace(low, high, points)
    # Rounding must not leave the last direction of a whole number out.
    loss: Array = tail[np.floor(learned * (1.0 + 1e-12)).astype(np.int64)] / tail[0]
    return learned, loss


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
