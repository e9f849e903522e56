r"""SGD on linear regression that draws its samples again and again, and descent on all of them, as d → ∞.

f = w·x is fitted to n = d/g samples y = θ·x + τξ, x ~ N(0, 1), by SGD at η = c/d with samples drawn with replacement;
time is t = steps/d. With eigenvalues x of XᵀX/n, whose law μ is that of Marchenko and Pastur, and s = |w(0) − θ|²,

.. math:: |w - \theta|^2 = \int \Big[s\, e^{-2cxt} + \frac{\tau^2 g}{x} \big(1 - e^{-cxt}\big)^2
   + \delta(x, t)\Big] d\mu, \qquad \delta' = -2cx\, \delta + c^2 x P,

.. math::
   P = \tau^2 (1-g)_+ + \int \big[(sx + \tau^2 g)\, e^{-2cxt} + x\, \delta\big] d\mu .

P is the mean of (w·x − y)² over the samples, δ the noise of single samples, which descent on all samples lacks. On N
nodes of μ with weights p, y = √p δ obeys y' = (−2cX + c² v vᵀ) y + c² v P_0, v = √p x, P_0 = P without δ: a symmetric
matrix of eigenvalues Λ, so that y is a sum of (e^{Λt} − e^{−2cxt})/(Λ + 2cx), exact at every time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem import checked_number
from dynamics.problem.checks import check_switch, check_that, checked_real
from hermite.arrays import Array, real_column
from hermite.text.messages import shown

#: Nodes of the law of eigenvalues, fewest and most, and factors e at which g^N may be left out.
FEWEST_NODES, MOST_NODES, SMALL = 200, 500, 36.0


class MultiPassRisk(NamedTuple):
    """|w − θ|², the risk on new samples without noise, and the mean (w·x − y)² over the samples, at each time."""

    time: Array
    risk: Array
    train_loss: Array


def multi_pass_regression(
    ratio: float,
    *,
    learning_rate: float,
    times: ArrayLike,
    label_noise: float = 0.0,
    squared_distance: float = 1.0,
    full_batch: bool = False,
) -> MultiPassRisk:
    r"""Return the risk of linear regression on n samples of which SGD takes one again and again, as d → ∞.

    .. math:: w \leftarrow w - \frac{c}{d}\, (w \cdot x - y)\, x, \qquad y = \theta\cdot x + \tau\xi, \quad
       x \sim N(0, I_d)

    Parameters
    ----------
    ratio : float
        n/d > 0, samples per dimension; inf for a new sample at each step.
    learning_rate : float
        c = η d > 0, stable below 2.
    times : array_like, shape (k,)
        Steps over d, at least 0; n/d of them are an epoch.
    label_noise : float, default 0
        τ ≥ 0.
    squared_distance : float, default 1
        |w − θ|² ≥ 0 at the start.
    full_batch : bool, default False
        The flow of gradient descent on all samples instead, at the same mean speed c.

    Returns
    -------
    MultiPassRisk
        Named tuple of `time`, `risk` and `train_loss`, (k,) each. Beyond the limit of stability they grow up to inf.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    References
    ----------
    Paquette, Lee, Pedregosa and Paquette, arXiv:2102.04396.

    Examples
    --------
    >>> found = multi_pass_regression(2.0, learning_rate=0.6, times=[1, 4, 16], label_noise=0.5)
    >>> found.risk.round(4).tolist()
    [0.5599, 0.2829, 0.2642]
    """
    share = checked_real(ratio, "ratio")
    check_that(share > 0.0, "ratio", "be above 0", f"is {shown(ratio)}")
    c, s = (
        checked_number(learning_rate, "learning_rate", positive=True),
        checked_number(squared_distance, "squared_distance", positive=False),
    )
    noise = checked_number(label_noise, "label_noise", positive=False) ** 2
    check_switch("full_batch", full_batch)
    t = real_column(times, "times")
    holds = t.ndim == 1 and t.size > 0 and bool(np.isfinite(t).all()) and float(t.min()) >= 0.0
    check_that(holds, "times", "be a list of finite numbers of at least 0", f"is {shown(times)}")
    g = 1.0 / share
    x, p = eigenvalue_law(g)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        fading = np.exp(-2.0 * c * np.outer(t, x))
        forces = p * (s * x + noise * g)
        # Axes that no sample has, for n < d, keep their distance.
        risk = s * (1.0 - p.sum()) + fading @ (s * p)
        risk += np.expm1(-c * np.outer(t, x)) ** 2 @ (p * noise * g / x)
        rest = noise * max(1.0 - g, 0.0)
        train = rest + fading @ forces
        if not full_batch:
            delta = _noise_of_samples(x, p, c, t, rest, forces)
            risk, train = risk + delta @ p, train + delta @ (p * x)
    return MultiPassRisk(t, risk, train)


def eigenvalue_law(g: float) -> tuple[Array, Array]:
    """Return nodes x > 0 and weights of the law of Marchenko and Pastur of ratio g = d/n; the rest to 1 is at x = 0."""
    if g == 0.0:
        return np.ones(1), np.ones(1)
    far = abs(np.log(g))
    count = int(np.clip(np.ceil(SMALL / far), FEWEST_NODES, MOST_NODES)) if far > 0.0 else FEWEST_NODES
    angle = np.pi * (np.arange(count) + 0.5) / count
    # (1 − √g)² + 4 √g sin²(φ/2) has no cancellation at the lower end.
    x = (1.0 - np.sqrt(g)) ** 2 + 4.0 * np.sqrt(g) * np.sin(0.5 * angle) ** 2
    return x, 2.0 / count * np.sin(angle) ** 2 / x


def _noise_of_samples(x: Array, p: Array, c: float, t: Array, rest: float, forces: Array) -> Array:
    """Return δ at times and nodes, (k, N), driven by P_0 = rest + Σ forces e^{−2cxt}."""
    v = np.sqrt(p) * x
    values, vectors = np.linalg.eigh(np.diag(-2.0 * c * x) + c**2 * np.outer(v, v))
    speeds, sizes = np.append(0.0, 2.0 * c * x), np.append(rest, forces)
    apart = values[:, None] + speeds
    along = c**2 * (vectors.T @ v)
    found = np.empty((t.size, x.size))
    for k, time in enumerate(t):
        # (e^{Λt} − e^{−at})/(Λ + a), t e^{−at} where both are one.
        grown = np.where(apart == 0.0, time, np.expm1(apart * time) / np.where(apart == 0.0, 1.0, apart))
        found[k] = vectors @ (along * (grown * np.exp(-speeds * time) @ sizes))
    return found / np.sqrt(p)
