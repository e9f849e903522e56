r"""SGD on linear regression with Gaussian inputs of any covariance: the risk of every step, exactly.

f = w·x is fitted to θ·x + τξ. With δ = w − θ, eigenvalues λ_l of the inputs' covariance and s_l = E δ_l² on its axes,
the risk is R = Σ λ_l s_l, the squared error without noise. A gradient of B samples has the mean λ_l δ_l and the square

.. math:: T_l = \frac1B \big[(R + \tau^2) \lambda_l + 2 \lambda_l^2 s_l\big] + \Big(1 - \frac1B\Big) \lambda_l^2 s_l .

Along K random directions (`ZerothOrder`, whose difference of two losses is exact here, at any smoothing) it is

.. math:: T_l \leftarrow \frac1K \sum_j T_j + \Big(1 + \frac1K\Big) T_l ,

where for a small effective rank Σ λ_l/λ_1 the sum is far less than d times T_1. Steps of `SGD`, u ← βu + κg and
w ← w − η (p g + r u), with κ = 1 − δ or 1 in the first step, and p = 0, r = 1, or p = 1, r = β for Nesterov, close in
s = E δ², c = E δu and q = E u² of every axis:

.. math:: q' = \beta^2 q + 2 \beta \kappa \lambda c + \kappa^2 T, \qquad e = E\,\delta u' = \beta c + \kappa \lambda s,
   \qquad f = E\,g u' = \beta \lambda c + \kappa T,

   s' = s - 2\eta (p \lambda s + r e) + \eta^2 (p^2 T + 2 p r f + r^2 q'), \qquad c' = e - \eta (p f + r q') .

With δ_a of the average a there are also x = E δ_a δ, y = E δ_a u and z = E δ_a²,

.. math:: y' = \beta y + \kappa \lambda x, \quad x' = x - \eta (p \lambda x + r y'), \quad
   z \leftarrow (1 - \alpha)^2 z + 2 \alpha (1 - \alpha) x' + \alpha^2 s', \quad
   (x, y) \leftarrow (1 - \alpha) (x', y') + \alpha (s', c') .
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.kernels.jit import entry
from dynamics.problem import Optimizer, checked_integer, checked_number
from dynamics.problem.checks import check_memory, check_that, checked_real
from dynamics.problem.optimizers import SGD, ZerothOrder, checked_optimizer
from dynamics.problem.rates import Schedule
from dynamics.theory.schedules import checked_axes
from hermite.arrays import Array, Matrix, Vector
from hermite.text.messages import require, shown

#: Least share of the limit at which the best learning rate is looked for, and its relative accuracy.
LEAST_SHARE, ACCURACY = 0.05, 1e-5
#: Steps that a search begins with, and most that it takes.
FIRST_STEPS, MOST_STEPS = 2**10, 2**24
#: Power iterations at most, and the relative distance of the two bounds on an eigenvalue at which they end.
ITERATIONS, TOLERANCE = 100_000, 1e-12


class RegressionRisk(NamedTuple):
    """Risk E((w − θ)·x)² before the first step and after each, shape (steps + 1,), and that of the average or None."""

    risk: Array
    average_risk: Array | None


class FastestRate(NamedTuple):
    """The constant learning rate that is fastest, and its number of steps, interpolated between whole ones."""

    learning_rate: float
    steps: float


def linear_regression_steps(
    eigenvalues: ArrayLike,
    squares: ArrayLike,
    *,
    learning_rate: float | Schedule,
    steps: int,
    batch_size: int = 1,
    optimizer: Optimizer | str | None = None,
    label_noise: float = 0.0,
) -> RegressionRisk:
    r"""Return the mean risk of linear regression after each step of SGD, exactly at every d and learning rate.

    .. math:: R = \sum_l \lambda_l\, E(w - \theta)_l^2, \qquad w \leftarrow w - \eta\, \nabla \tfrac12
       (w \cdot x - \theta \cdot x - \tau \xi)^2, \qquad x \sim N(0, \Sigma)

    Parameters
    ----------
    eigenvalues : sequence of float
        λ_l ≥ 0 of Σ, (d,).
    squares : sequence of float
        (w − θ)_l² ≥ 0 of the start on the axes of Σ, (d,).
    learning_rate : float or Schedule
        η > 0, in units of 1/λ, or one for every step.
    steps : int
        Number of steps.
    batch_size : int, default 1
        B, fresh samples per step.
    optimizer : SGD or ZerothOrder, optional
        What a step does with the gradient; plain SGD by default. Smoothing has no effect on a squared error of w·x.
    label_noise : float, default 0
        τ ≥ 0.

    Returns
    -------
    RegressionRisk
        Named tuple of arrays (steps + 1,): `risk`, and `average_risk` of the average of the weights, None without one.
        Beyond the limit of stability they grow up to inf and NaN.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Notes
    -----
    A step takes a few operations for each distinct eigenvalue, at any d.

    Examples
    --------
    >>> found = linear_regression_steps([1.0, 0.1], [1.0, 1.0], learning_rate=0.2, steps=2)
    >>> found.risk.round(6).tolist()
    [1.1, 0.82052, 0.618205]
    """
    values, counts, sums = _classes(eigenvalues, squares)
    count, size = checked_integer(steps, "steps", minimum=1), checked_integer(batch_size, "batch_size", minimum=1)
    check_memory("steps", count, 3 * count)
    if isinstance(learning_rate, Schedule):
        rates = np.ascontiguousarray(learning_rate.table(count), dtype=np.float64)
    else:
        rates = np.full(count, checked_number(learning_rate, "learning_rate", positive=True))
    noise = checked_number(label_noise, "label_noise", positive=False)
    chosen = _known(optimizer)
    risk, average = _iterated(values, counts, sums, rates, size, chosen, noise)
    return RegressionRisk(risk, average if getattr(chosen, "average", None) is not None else None)


def linear_regression_limit(
    eigenvalues: ArrayLike, *, batch_size: int = 1, optimizer: Optimizer | str | None = None
) -> float:
    """Return the learning rate at which SGD on linear regression loses stability in mean square, in units of 1/λ.

    It is exact but for momentum, which is taken to multiply it by (1 − β)/(1 − δ). For d equal eigenvalues that is too
    little by a share of up to 1/(d + 1).

    Examples
    --------
    >>> round(linear_regression_limit([1.0] * 8), 12)
    0.2
    >>> round(linear_regression_limit([1.0] * 8, optimizer="zeroth-order"), 12)
    0.02
    """
    values, counts, _ = _classes(eigenvalues, np.ones(np.size(eigenvalues)))
    chosen, size = _known(optimizer), checked_integer(batch_size, "batch_size", minimum=1)
    K = chosen.directions if isinstance(chosen, ZerothOrder) else 0
    kept = values > 0.0
    # Axes without inputs take noise too, which no loss sees.
    own, n = values[kept], counts[kept]
    s = grown = n
    for _ in range(ITERATIONS):
        s = grown / grown.sum()
        T = (own * n * (own @ s) + 2.0 * own**2 * s) / size + (1.0 - 1.0 / size) * own**2 * s
        T = n * T.sum() / K + (1.0 + 1.0 / K) * T if K else T
        grown = T / (2.0 * own)
        ratio = grown / s
        if ratio.max() - ratio.min() <= TOLERANCE * ratio.max():
            break
    amplification = chosen.amplification if isinstance(chosen, SGD) else 1.0
    return 1.0 / float(grown.sum() * amplification)


def fastest_linear_regression(
    eigenvalues: ArrayLike,
    squares: ArrayLike,
    *,
    optimizer: Optimizer | str | None = None,
    batch_size: int = 1,
    share: float = 0.1,
) -> FastestRate:
    """Return the constant learning rate at which the risk, without noise, first falls to a share of that of the start.

    The ratio of the steps of `ZerothOrder()` to those of SGD is an effective rank: about d for isotropic inputs, and a
    few for eigenvalues that fall fast.

    Parameters
    ----------
    eigenvalues, squares, optimizer, batch_size
        As of `linear_regression_steps`.
    share : float, default 0.1
        Above 0 and below 1.

    Returns
    -------
    FastestRate
        Named tuple of `learning_rate`, in units of 1/λ, and `steps`.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> along = fastest_linear_regression([1.0] * 30, [1.0] * 30, optimizer="zeroth-order")
    >>> round(along.steps / fastest_linear_regression([1.0] * 30, [1.0] * 30).steps, 1)
    32.5
    """
    from scipy.optimize import minimize_scalar

    values, counts, sums = _classes(eigenvalues, squares)
    chosen, size = _known(optimizer), checked_integer(batch_size, "batch_size", minimum=1)
    part = checked_real(share, "share")
    check_that(0.0 < part < 1.0, "share", "be above 0 and below 1", f"is {shown(share)}")
    check_that(float(values @ sums) > 0.0, "squares", "have a risk above 0", "has none")
    # Along random directions the risk may fall this far at rates at which it rises again in the end.
    along = isinstance(chosen, ZerothOrder)
    largest = linear_regression_limit(eigenvalues, batch_size=size, optimizer=None if along else chosen)
    least = LEAST_SHARE * linear_regression_limit(eigenvalues, batch_size=size, optimizer=chosen)

    def needed(logarithm: float) -> float:
        rate, count = float(np.exp(logarithm)), FIRST_STEPS
        while True:
            risk = _iterated(values, counts, sums, np.full(count, rate), size, chosen, 0.0)[0]
            below = np.flatnonzero(risk <= part * risk[0])
            if below.size:
                n = int(below[0])
                before, after = np.log(risk[n - 1 : n + 1] / (part * risk[0]))
                return float(n - 1 + before / (before - after))
            if not risk[count // 2 :].max() < risk[count // 4 : count // 2].max():
                return 2.0 * MOST_STEPS  # never: a number, of which the search makes parabolas
            need = (
                f"Argument `eigenvalues` must let the risk fall to {part:g} of its start within {MOST_STEPS:.2g} steps"
            )
            require(count < MOST_STEPS, f"{need}, but it does not at the learning rate {rate:.3g}.")
            count *= 4

    bounds = np.log(least), np.log(largest)
    found = minimize_scalar(needed, bounds=bounds, method="bounded", options={"xatol": ACCURACY})
    return FastestRate(float(np.exp(found.x)), float(found.fun))


def _known(optimizer: object) -> Optimizer:
    """Return an optimizer of which second moments close."""
    chosen = checked_optimizer(optimizer)
    need = "Argument `optimizer` must be SGD or ZerothOrder for linear regression, whose second moments close"
    require(isinstance(chosen, (SGD, ZerothOrder)), f"{need}, but is {chosen}.")
    return chosen


def _classes(eigenvalues: ArrayLike, squares: ArrayLike) -> tuple[Array, Array, Array]:
    """Return distinct eigenvalues, how many axes have each, and the sums of their squares."""
    values, sizes = checked_axes(eigenvalues, squares)
    check_that(float(values.max()) > 0.0, "eigenvalues", "hold a number above 0", "holds none")
    found, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return found, counts.astype(np.float64), np.bincount(place, weights=sizes).astype(np.float64)


def _iterated(
    values: Array, counts: Array, sums: Array, rates: Array, batch: int, optimizer: Optimizer, label_noise: float
) -> tuple[Array, Array]:
    """Return the risks of weights and average, (steps + 1,) each; of the average 0 without one."""
    own = optimizer if isinstance(optimizer, SGD) else SGD()
    K = optimizer.directions if isinstance(optimizer, ZerothOrder) else 0
    of_gradient, of_buffer = (1.0, own.momentum) if own.nesterov else (0.0, 1.0)
    share = -1.0 if own.average == "polyak" else float(own.average or 0.0)
    settings = [label_noise**2, batch, K, own.momentum, 1.0 - own.dampening, of_gradient, of_buffer, share]
    # s, c and q of the weights, x, y and z of the average.
    state, out = np.zeros((6, values.size)), np.empty((2, rates.size + 1))
    state[[0, 3, 5]] = sums
    take_steps(state, values, counts, rates, np.array(settings, dtype=np.float64), out)
    return out[0], out[1]


@entry
def take_steps(state: Matrix, values: Vector, counts: Vector, rates: Vector, settings: Vector, out: Matrix) -> None:
    """Write the risks of weights and average before the first step and after each, (2, steps + 1); carry the state on.

    `settings` are τ², B, K or 0, β, 1 − δ, p, r, and α, 0 for no average and −1 for that of Polyak.
    """
    noise, batch, K, beta, kept, p, r, alpha = settings
    moments = np.empty(values.size)
    only_gradients = beta == 0.0 and kept == 1.0 and p == 0.0 and alpha == 0.0
    for t in range(rates.size + 1):
        risk, average = 0.0, 0.0
        for at in range(values.size):
            risk += values[at] * state[0, at]
            average += values[at] * state[5, at]
        out[0, t], out[1, t] = risk, average
        if t == rates.size:
            break
        total = 0.0
        for at in range(values.size):
            square = values[at] * values[at] * state[0, at]
            moments[at] = ((risk + noise) * values[at] * counts[at] + 2.0 * square) / batch + (
                1.0 - 1.0 / batch
            ) * square
            total += moments[at]
        if K > 0.0:
            for at in range(values.size):
                moments[at] = counts[at] * total / K + (1.0 + 1.0 / K) * moments[at]
        eta, kappa = rates[t], 1.0 if t == 0 else kept
        if only_gradients:
            for at in range(values.size):
                state[0, at] += eta * eta * moments[at] - 2.0 * eta * values[at] * state[0, at]
            continue
        share = 1.0 / (t + 2.0) if alpha < 0.0 else alpha
        for at in range(values.size):
            s, c, q, x, y, z = state[0, at], state[1, at], state[2, at], state[3, at], state[4, at], state[5, at]
            T, pull = moments[at], values[at] * s
            q = beta * beta * q + 2.0 * beta * kappa * values[at] * c + kappa * kappa * T
            e, f = beta * c + kappa * pull, beta * values[at] * c + kappa * T
            s += eta * eta * (p * p * T + 2.0 * p * r * f + r * r * q) - 2.0 * eta * (p * pull + r * e)
            c = e - eta * (p * f + r * q)
            y = beta * y + kappa * values[at] * x
            x -= eta * (p * values[at] * x + r * y)
            z = (1.0 - share) ** 2 * z + 2.0 * share * (1.0 - share) * x + share * share * s
            state[0, at], state[1, at], state[2, at] = s, c, q
            state[3, at], state[4, at] = (1.0 - share) * x + share * s, (1.0 - share) * y + share * c
            state[5, at] = z
