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

Inputs of a covariance Σ = diag(λ) are drawn: then x and V are of their own XᵀX/n, p = 1/d, and the risk of a matrix
E δδᵀ = V D Vᵀ is Σ_l D_ll (VᵀΣV)_ll. Means over w(0), ξ and the order of the samples are exact for these inputs as
d → ∞, and inputs scatter little.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem import checked_integer, checked_number
from dynamics.problem.checks import check_memory, check_switch, check_that, checked_real
from dynamics.theory.schedules import checked_axes
from hermite.arrays import Array, real_column
from hermite.text.messages import shown

#: Nodes of the law of eigenvalues, fewest and most, and factors e at which g^N may be left out.
FEWEST_NODES, MOST_NODES, SMALL = 200, 500, 36.0
#: Share of the largest eigenvalue below which one is 0.
ROUNDING = 1e-12


class MultiPassRisk(NamedTuple):
    """The risk E((w − θ)·x)² on new samples without noise, and the mean (w·x − y)² over the samples, at each time."""

    time: Array
    risk: Array
    train_loss: Array
    #: Standard errors of both over drawn inputs, 0 where none are drawn.
    risk_error: Array
    train_loss_error: Array


def multi_pass_regression(
    ratio: float,
    *,
    learning_rate: float,
    times: ArrayLike,
    label_noise: float = 0.0,
    squared_distance: float = 1.0,
    full_batch: bool = False,
    eigenvalues: ArrayLike | None = None,
    squares: ArrayLike | None = None,
    draws: int = 4,
    seed: int = 0,
) -> MultiPassRisk:
    r"""Return the risk of linear regression on n samples of which SGD takes one again and again, as d → ∞.

    .. math:: w \leftarrow w - \frac{c}{d}\, (w \cdot x - y)\, x, \qquad y = \theta\cdot x + \tau\xi, \quad
       x \sim N(0, \Sigma)

    Parameters
    ----------
    ratio : float
        n/d > 0, samples per dimension; inf for a new sample at each step.
    learning_rate : float
        c = η d > 0, stable below 2 d/tr Σ.
    times : array_like, shape (k,)
        Steps over d, at least 0; n/d of them are an epoch.
    label_noise : float, default 0
        τ ≥ 0.
    squared_distance : float, default 1
        |w − θ|² ≥ 0 at the start, where no `squares` are given.
    full_batch : bool, default False
        The flow of gradient descent on all samples instead, at the same mean speed c.
    eigenvalues : array_like, shape (d,), optional
        λ_l ≥ 0 of Σ, by default all 1 and d → ∞. The n = ratio · d inputs are then drawn, at this d.
    squares : array_like, shape (d,), optional
        (w − θ)_l² of the start on the axes of Σ, by default equal.
    draws : int, default 4
        Draws of the inputs that are averaged over, at least 2.
    seed : int, default 0
        Draws the inputs.

    Returns
    -------
    MultiPassRisk
        Named tuple of `time`, `risk`, `train_loss`, `risk_error` and `train_loss_error`, (k,) each; the last two are
        standard errors over drawn inputs. Beyond the limit of stability they grow up to inf.

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
    if eigenvalues is not None:
        lambdas = real_column(eigenvalues, "eigenvalues")
        start = np.full(lambdas.shape, s / max(lambdas.size, 1)) if squares is None else squares
        lambdas, sizes = checked_axes(lambdas, start)
        d, times_drawn = lambdas.size, checked_integer(draws, "draws", minimum=2)
        n = int(np.rint(checked_number(share * d, "ratio", positive=True)))
        check_that(n >= 1, "ratio", f"leave a sample at the dimension {d}", f"is {shown(ratio)}")
        check_memory("eigenvalues", d, 6.0 * d * d + 2.0 * d * n)
        rng = np.random.default_rng(checked_integer(seed, "seed", minimum=0))
        found = np.array(
            [_of_drawn_inputs(lambdas, sizes, n, rng, c, t, noise, full_batch) for _ in range(times_drawn)]
        )
        error = found.std(axis=0, ddof=1) / np.sqrt(times_drawn)
        return MultiPassRisk(t, *found.mean(axis=0), *error)
    check_that(squares is None, "squares", "be absent without `eigenvalues`", "is given")
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
    return MultiPassRisk(t, risk, train, np.zeros_like(t), np.zeros_like(t))


@np.errstate(over="ignore", invalid="ignore", under="ignore")
def _of_drawn_inputs(
    lambdas: Array, sizes: Array, n: int, rng: np.random.Generator, c: float, t: Array, noise: float, full_batch: bool
) -> tuple[Array, Array]:
    """Return the risk and the mean loss over the samples for one draw of n inputs, (k,) each."""
    d = lambdas.size
    inputs = rng.standard_normal((n, d)) * np.sqrt(lambdas)
    x, V = np.linalg.eigh(inputs.T @ inputs / n)
    x = np.where(x > ROUNDING * x.max(), x, 0.0)
    # The signs of w − θ do not matter on average.
    start = V.T @ (np.sqrt(sizes) * rng.choice([-1.0, 1.0], d))
    sigma = V.T @ (lambdas[:, None] * V)
    left, some = np.exp(-c * np.outer(t, x)), x > 0.0
    risk = np.einsum("kl,kl->k", left * start @ sigma, left * start)
    risk += (1.0 - left[:, some]) ** 2 @ (np.diag(sigma)[some] * noise / (n * x[some]))
    forces, rest = x * start**2 + np.where(some, noise / n, 0.0), noise * (1.0 - some.sum() / n)
    train = rest + left**2 @ forces
    if not full_batch:
        delta = _noise_of_samples(x, np.full(d, 1.0 / d), c, t, rest, forces)
        risk, train = risk + delta @ np.diag(sigma) / d, train + delta @ x / d
    return risk, train


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
