r"""Linear regression with Gaussian inputs: SGD on fresh and on reused samples, descent, and weak teachers of students.

f = w·x is fitted to θ·x + τξ. With δ = w − θ, eigenvalues λ_l of the inputs' covariance and s_l = E δ_l² on its axes,
the risk is R = Σ λ_l s_l, the squared error without noise. Bad arguments raise TypeError or ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.kernels.jit import entry
from dynamics.problem import Optimizer, checked_integer, checked_number
from dynamics.problem.checks import check_memory, check_switch, checked_list, checked_real, require
from dynamics.problem.optimizers import SGD, ZerothOrder, checked_optimizer, keeps_average
from dynamics.problem.rates import Schedule
from hermite.arrays import Array, Matrix, Vector, real_column
from hermite.text.messages import refuse, shown

#: Least share of the limit at which the best learning rate is looked for, and its relative accuracy.
LEAST_SHARE, ACCURACY = 0.05, 1e-5
#: Steps that a search begins with, and most that it takes.
FIRST_STEPS, MOST_STEPS = 2**10, 2**24
#: Power iterations at most, and the relative distance of the two bounds on an eigenvalue at which they end.
ITERATIONS, TOLERANCE = 100_000, 1e-12
#: Nodes of the law of eigenvalues, fewest and most, and factors e at which g^N may be left out.
FEWEST_NODES, MOST_NODES, SMALL = 200, 500, 36.0
#: Share of the largest eigenvalue below which one is 0.
ROUNDING = 1e-12


def checked_column(values: ArrayLike, name: str, fewest: int = 1) -> Array:
    """Return a list as an array (N,); ValueError unless it has at least `fewest` finite numbers of at least 0."""
    column = real_column(values, name)
    holds = column.ndim == 1 and column.size >= fewest and np.isfinite(column).all() and column.min(initial=0.0) >= 0.0
    require(holds, f"Argument `{name}` must be a list of finite numbers of at least 0, but is {shown(values)}.")
    return column


def checked_axes(eigenvalues: ArrayLike, squares: ArrayLike) -> tuple[Array, Array]:
    """Return eigenvalues and squares on their axes as arrays of one length; ValueError for numbers below 0."""
    values, sizes = checked_column(eigenvalues, "eigenvalues"), checked_column(squares, "squares")
    require(
        values.size == sizes.size,
        f"Argument `squares` must have {values.size} entries, as `eigenvalues`, but has {sizes.size}.",
    )
    return values, sizes


# --- SGD on fresh samples, exactly ------------------------------------------------------------------------------------
#
# Second moments s = E δ², c = E δu, q = E u² of every axis, and x, y, z of the average (`docs/theory_equations.md`).


class RegressionRisk(NamedTuple):
    """Risk E((w − θ)·x)² before the first step and after each, shape (steps + 1,), and that of the average or None.

    Examples
    --------
    >>> from dynamics import SGD
    >>> averaged = SGD(average="polyak")
    >>> found = linear_regression_steps([1.0, 0.1], [1.0, 1.0], learning_rate=0.2, steps=2, optimizer=averaged)
    >>> found.risk.round(3).tolist(), found.average_risk.round(3).tolist()
    ([1.1, 0.821, 0.618], [1.1, 0.929, 0.795])
    """

    risk: Array
    average_risk: Array | None


class FastestRate(NamedTuple):
    """The fastest constant learning rate, in units of 1/λ, and its number of steps, interpolated between integers.

    Examples
    --------
    >>> found = fastest_linear_regression([1.0] * 30, [1.0] * 30)
    >>> round(found.learning_rate, 4), round(found.steps)
    (0.0312, 73)
    """

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

    A step takes a few operations for each distinct eigenvalue.

    .. math:: R = \sum_l \lambda_l\, E(w - \theta)_l^2, \qquad w \leftarrow w - \eta\, \nabla \tfrac12
       (w \cdot x - \theta \cdot x - \tau \xi)^2, \qquad x \sim N(0, \Sigma)

    Parameters
    ----------
    eigenvalues, squares : sequence of float, (d,)
        λ_l ≥ 0 of Σ, and (w − θ)_l² ≥ 0 of the start on its axes.
    learning_rate : float or Schedule
        η > 0, in units of 1/λ, or one for every step.
    steps : int
        Number of steps, at least 1.
    batch_size, label_noise : int and float, default 1 and 0
        B, fresh samples per step, and the standard deviation τ ≥ 0 of the noise of labels.
    optimizer : SGD or ZerothOrder, optional
        What a step does with the gradient; plain SGD by default. Smoothing has no effect on a squared error of w·x.

    Returns
    -------
    RegressionRisk
        Beyond the limit of stability arrays grow up to inf and NaN.

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
    return RegressionRisk(risk, average if keeps_average(chosen) else None)


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
    eigenvalue, n = values[kept], counts[kept]
    s = grown = n
    for _ in range(ITERATIONS):
        s = grown / grown.sum()
        of_sample = eigenvalue * n * (eigenvalue @ s) + 2.0 * eigenvalue**2 * s
        T = of_sample / size + (1.0 - 1.0 / size) * eigenvalue**2 * s
        T = n * T.sum() / K + (1.0 + 1.0 / K) * T if K else T
        grown = T / (2.0 * eigenvalue)
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
    require(0.0 < part < 1.0, f"Argument `share` must be above 0 and below 1, but is {shown(share)}.")
    require(float(values @ sums) > 0.0, "Argument `squares` must have a risk above 0, but has none.")
    # Along random directions the risk may fall this far at rates at which it rises again in the end.
    along = isinstance(chosen, ZerothOrder)
    largest = linear_regression_limit(eigenvalues, batch_size=size, optimizer=None if along else chosen)
    least = LEAST_SHARE * linear_regression_limit(eigenvalues, batch_size=size, optimizer=chosen)

    def steps_needed(logarithm: float) -> float:
        """Return the number of steps to the share of the risk at a learning rate, given by its logarithm."""
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
            require(
                count < MOST_STEPS,
                f"Argument `eigenvalues` must let the risk fall to {part:g} of its start within {MOST_STEPS:.2g} "
                f"steps, but it does not at the learning rate {rate:.3g}.",
            )
            count *= 4

    bounds = np.log(least), np.log(largest)
    minimum = minimize_scalar(steps_needed, bounds=bounds, method="bounded", options={"xatol": ACCURACY})
    return FastestRate(float(np.exp(minimum.x)), float(minimum.fun))


def _known(optimizer: object) -> Optimizer:
    """Return an optimizer; ValueError unless the second moments of its steps close."""
    chosen = checked_optimizer(optimizer)
    require(
        isinstance(chosen, (SGD, ZerothOrder)),
        "Argument `optimizer` must be SGD or ZerothOrder for linear regression, whose second moments close, but is "
        f"{chosen}.",
    )
    return chosen


def _classes(eigenvalues: ArrayLike, squares: ArrayLike) -> tuple[Array, Array, Array]:
    """Return distinct eigenvalues, the number of axes of each, and the sum of squares on these axes."""
    values, sizes = checked_axes(eigenvalues, squares)
    require(float(values.max()) > 0.0, "Argument `eigenvalues` must hold a number above 0, but holds none.")
    distinct, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return distinct, counts.astype(np.float64), np.bincount(place, weights=sizes).astype(np.float64)


def _iterated(
    values: Array, counts: Array, sums: Array, rates: Array, batch: int, optimizer: Optimizer, label_noise: float
) -> tuple[Array, Array]:
    """Return the risks of the weights and of their average, (steps + 1,) each; 0 for the average without one.

    `values`, `counts` and `sums` are distinct eigenvalues, their numbers of axes and the squared distances from the
    target on these, summed; `rates` (steps,) are learning rates, and `batch` the samples per step.
    """
    sgd = optimizer if isinstance(optimizer, SGD) else SGD()
    K = optimizer.directions if isinstance(optimizer, ZerothOrder) else 0
    of_gradient, of_buffer = (1.0, sgd.momentum) if sgd.nesterov else (0.0, 1.0)
    share = -1.0 if sgd.average == "polyak" else float(sgd.average or 0.0)
    settings = [label_noise**2, batch, K, sgd.momentum, 1.0 - sgd.dampening, of_gradient, of_buffer, share]
    # s, c and q of the weights, x, y and z of the average.
    state, out = np.zeros((6, values.size)), np.empty((2, rates.size + 1))
    state[[0, 3, 5]] = sums
    take_steps(state, values, counts, rates, np.array(settings, dtype=np.float64), out)
    return out[0], out[1]


@entry
def take_steps(state: Matrix, values: Vector, counts: Vector, rates: Vector, settings: Vector, out: Matrix) -> None:
    """Write the risks of weights and average before the first step and after each into `out`, (2, steps + 1).

    `state` (6, classes) holds second moments of each class of equal eigenvalues, and is carried on: E δ², E δ u and E
    u² of the distance δ from the target and of the momentum u, and E ζ δ, E ζ u and E ζ² with the distance ζ of the
    average. `values` and `counts` are the eigenvalues and numbers of axes of the classes, `rates` (steps,) the learning
    rates. `settings` are the variance of the label noise, the batch size, the number of random directions or 0, the
    momentum β, 1 − dampening, the shares of the gradient and of the momentum in a step, and the weight of the newest
    weights in the average: 0 for no average and −1 for that of Polyak.
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


# --- SGD on n = d/g samples that are used again, as d → ∞ -------------------------------------------------------------
#
# Time is t = steps/d, at η = c/d; x are the eigenvalues of XᵀX/n, of the law of Marchenko and Pastur, P is the mean of
# (w·x − y)² over the samples, and δ the noise of single samples (`docs/theory_equations.md`).


class MultiPassRisk(NamedTuple):
    """The risk E((w − θ)·x)² on new samples without noise, and the mean (w·x − y)² over the samples, at each time.

    Their standard errors are those over drawn inputs, 0 where none are drawn.

    Examples
    --------
    >>> found = multi_pass_regression(2.0, learning_rate=0.6, times=[1, 4, 16], label_noise=0.5)
    >>> found.time.tolist(), found.train_loss.round(4).tolist(), found.risk_error.tolist()
    ([1.0, 4.0, 16.0], [0.5794, 0.2507, 0.1818], [0.0, 0.0, 0.0])
    """

    time: Array
    risk: Array
    train_loss: Array
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
    r"""Return the risk of SGD on linear regression that reuses n samples, one per step, as d → ∞.

    .. math:: w \leftarrow w - \frac{c}{d}\, (w \cdot x - y)\, x, \qquad y = \theta\cdot x + \tau\xi, \quad
       x \sim N(0, \Sigma)

    Parameters
    ----------
    ratio : float
        n/d > 0, samples per dimension; inf for a new sample at each step.
    learning_rate : float
        c = η d > 0, stable below 2 d/tr Σ.
    times : array_like, shape (k,)
        Steps over d; n/d of them are an epoch.
    label_noise, squared_distance : float, default 0 and 1
        τ ≥ 0, and |w − θ|² ≥ 0 at the start, where no `squares` are given.
    full_batch : bool, default False
        The flow of gradient descent on all samples instead, at the same mean speed c.
    eigenvalues, squares : array_like, shape (d,), optional
        λ_l ≥ 0 of Σ, by default all 1 and d → ∞; and (w − θ)_l² of the start on its axes, by default equal. The
        n = ratio · d inputs are then drawn, at this d.
    draws, seed : int, default 4 and 0
        Draws of the inputs that are averaged over, at least 2, and their seed.

    Returns
    -------
    MultiPassRisk
        Arrays (k,), which grow up to inf beyond the limit of stability (Paquette et al., arXiv:2102.04396).

    Examples
    --------
    >>> found = multi_pass_regression(2.0, learning_rate=0.6, times=[1, 4, 16], label_noise=0.5)
    >>> found.risk.round(4).tolist()
    [0.5599, 0.2829, 0.2642]
    """
    share = checked_real(ratio, "ratio")
    require(share > 0.0, f"Argument `ratio` must be above 0, but is {shown(ratio)}.")
    c = checked_number(learning_rate, "learning_rate", positive=True)
    s = checked_number(squared_distance, "squared_distance", positive=False)
    noise = checked_number(label_noise, "label_noise", positive=False) ** 2
    check_switch("full_batch", full_batch)
    t = checked_column(times, "times")
    if eigenvalues is not None:
        lambdas = real_column(eigenvalues, "eigenvalues")
        start = np.full(lambdas.shape, s / max(lambdas.size, 1)) if squares is None else squares
        lambdas, sizes = checked_axes(lambdas, start)
        d, count = lambdas.size, checked_integer(draws, "draws", minimum=2)
        n = int(np.rint(checked_number(share * d, "ratio", positive=True)))
        require(n >= 1, f"Argument `ratio` must leave a sample at the dimension {d}, but is {shown(ratio)}.")
        check_memory("eigenvalues", d, 6.0 * d * d + 2.0 * d * n)
        rng = np.random.default_rng(checked_integer(seed, "seed", minimum=0))
        losses = np.array([_of_drawn_inputs(lambdas, sizes, n, rng, c, t, noise, full_batch) for _ in range(count)])
        return MultiPassRisk(t, *losses.mean(axis=0), *(losses.std(axis=0, ddof=1) / np.sqrt(count)))
    require(squares is None, "Argument `squares` must be absent without `eigenvalues`, but is given.")
    g = 1.0 / share
    x, p = eigenvalue_law(g)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        fading = np.exp(-2.0 * c * np.outer(t, x))
        forces = p * (s * x + noise * g)
        # Axes that no sample has, for n < d, keep their distance.
        risk = s * (1.0 - p.sum()) + fading @ (s * p)
        risk += np.expm1(-c * np.outer(t, x)) ** 2 @ (p * noise * g / x)
        noise_outside = noise * max(1.0 - g, 0.0)
        train = noise_outside + fading @ forces
        if not full_batch:
            delta = _noise_of_samples(x, p, c, t, noise_outside, forces)
            risk, train = risk + delta @ p, train + delta @ (p * x)
    return MultiPassRisk(t, risk, train, np.zeros_like(t), np.zeros_like(t))


@np.errstate(over="ignore", invalid="ignore", under="ignore")
def _of_drawn_inputs(
    lambdas: Array, sizes: Array, n: int, rng: np.random.Generator, c: float, t: Array, noise: float, full_batch: bool
) -> tuple[Array, Array]:
    """Return the risk on new samples and the mean loss over the samples for one draw of n inputs, (k,) each.

    `lambdas` and `sizes` (d,) are the eigenvalues of the inputs and the squared distances from the target on their
    axes, c is the learning rate times d, `t` (k,) are steps over d, and `noise` is the variance of the label noise.
    """
    d = lambdas.size
    inputs = rng.standard_normal((n, d)) * np.sqrt(lambdas)
    x, V = np.linalg.eigh(inputs.T @ inputs / n)
    x = np.where(x > ROUNDING * x.max(), x, 0.0)
    # The signs of w − θ do not matter on average.
    start = V.T @ (np.sqrt(sizes) * rng.choice([-1.0, 1.0], d))
    sigma = V.T @ (lambdas[:, None] * V)
    fading, some = np.exp(-c * np.outer(t, x)), x > 0.0
    risk = np.einsum("kl,kl->k", fading * start @ sigma, fading * start)
    risk += (1.0 - fading[:, some]) ** 2 @ (np.diag(sigma)[some] * noise / (n * x[some]))
    forces, noise_outside = x * start**2 + np.where(some, noise / n, 0.0), noise * (1.0 - some.sum() / n)
    train = noise_outside + fading**2 @ forces
    if not full_batch:
        delta = _noise_of_samples(x, np.full(d, 1.0 / d), c, t, noise_outside, forces)
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


def _noise_of_samples(x: Array, p: Array, c: float, t: Array, noise_outside: float, forces: Array) -> Array:
    """Return the noise δ that single samples add to squared distances, at times t (k,) and nodes (N,): (k, N).

    Nodes are eigenvalues x of the samples' covariance with weights p, and c is the learning rate times d. The noise is
    driven by the mean loss P over the samples, which starts as P_0 = `noise_outside` + Σ forces e^{−2cxt} without it.
    """
    v = np.sqrt(p) * x
    values, vectors = np.linalg.eigh(np.diag(-2.0 * c * x) + c**2 * np.outer(v, v))
    speeds, sizes = np.append(0.0, 2.0 * c * x), np.append(noise_outside, forces)
    apart = values[:, None] + speeds
    along = c**2 * (vectors.T @ v)
    delta = np.empty((t.size, x.size))
    for k, time in enumerate(t):
        # (e^{Λt} − e^{−at})/(Λ + a), t e^{−at} where both are one.
        grown = np.where(apart == 0.0, time, np.expm1(apart * time) / np.where(apart == 0.0, 1.0, apart))
        delta[k] = vectors @ (along * (grown * np.exp(-speeds * time) @ sizes))
    return delta / np.sqrt(p)


# --- weak-to-strong generalisation ------------------------------------------------------------------------------------
#
# Means of least-squares fits, and along the student's flow over the law of its eigenvalues
# (`docs/theory_equations.md`).


class WeakToStrongRisk(NamedTuple):
    """Risks E(f − f*)²: of teacher, student, one that has the teacher's n labels, and of the student at each time.

    Examples
    --------
    >>> pair = WeakToStrong(
    ...     correlations=[1.0] * 5, weak_features=30, strong_features=20, samples=60, pseudo_labels=200
    ... )
    >>> found = predict_weak_to_strong(pair)
    >>> found.weak_to_strong < found.strong < found.weak
    True
    """

    weak: float
    weak_to_strong: float
    strong: float
    time: Array
    risk: Array


@dataclass(frozen=True, kw_only=True)
class WeakToStrong:
    """A linear student that learns from the labels of a weaker linear teacher.

    The target f* = θ·u lies in Gaussian features that both share. The teacher is the least-squares fit of n labels
    f* + σξ, the student that of the teacher's labels of N fresh inputs.

    Parameters
    ----------
    correlations : sequence of float
        Canonical correlations c_i between the two sets of features, above 0 and at most 1; all others are 0. The target
        lies in the features of c_i = 1.
    weak_features, strong_features, samples, pseudo_labels : int
        d_w and d_s, at least as many as correlations; n ≥ d_w + 2 and d_s + 2; N ≥ d_s + 2.
    label_noise, target_norm : float, default 1
        σ ≥ 0, and |θ| ≥ 0, in equal parts on all shared features; 0 if there is none.

    Examples
    --------
    >>> WeakToStrong(correlations=[1.0, 0.5], weak_features=4, strong_features=3, samples=9, pseudo_labels=20).overlap
    1.25
    """

    correlations: Sequence[float]
    weak_features: int
    strong_features: int
    samples: int
    pseudo_labels: int
    label_noise: float = 1.0
    target_norm: float = 1.0

    def __post_init__(self) -> None:
        numbers = checked_list(self.correlations, "correlations")
        correlations = tuple(checked_number(c, "correlations", positive=True, maximum=1.0) for c in numbers)
        object.__setattr__(self, "correlations", correlations)
        for name, count in (("weak_features", self.weak_features), ("strong_features", self.strong_features)):
            size = checked_integer(count, name, minimum=1)
            require(
                size >= len(correlations),
                f"Argument `{name}` must be at least {len(correlations)}, the number of correlations, but is {size}.",
            )
            object.__setattr__(self, name, size)
        for name, count, features in (
            ("samples", self.samples, max(self.weak_features, self.strong_features)),
            ("pseudo_labels", self.pseudo_labels, self.strong_features),
        ):
            size = checked_integer(count, name, minimum=1)
            require(
                size >= features + 2,
                f"Argument `{name}` must be at least {features + 2}, two more than the features, because the mean is "
                f"infinite below, but is {size}.",
            )
            object.__setattr__(self, name, size)
        for name, value in (("label_noise", self.label_noise), ("target_norm", self.target_norm)):
            object.__setattr__(self, name, checked_number(value, name, positive=False))
        is_held = self.target_norm == 0.0 or 1.0 in correlations
        require(
            is_held,
            "Argument `target_norm` must be 0 without a shared feature of correlation 1, in which the target lies, "
            f"but is {self.target_norm}.",
        )

    @property
    def overlap(self) -> float:
        """Dimension s = Σ c_i² in which both sets of features overlap."""
        return float(np.sum(np.square(self.correlations)))


def predict_weak_to_strong(problem: WeakToStrong, times: ArrayLike = ()) -> WeakToStrongRisk:
    r"""Return the mean risks of a weak teacher, of the student that learns from it, and along the student's training.

    .. math:: \frac{\sigma^2 d_w}{n-d_w-1}, \qquad
       \frac{\sigma^2}{n-d_w-1}\Big[s + \frac{(d_w-s)\, d_s}{N-d_s-1}\Big], \qquad s = \sum_i c_i^2

    The means of the three least-squares fits are exact (arXiv:2502.05075). The curve takes the law of eigenvalues as
    d_s → ∞, and is off by about 1 % at d_s = 20; early stopping can beat its end.

    `times` (k,) are those of the student's gradient flow on half of the mean squared error over its N inputs, from 0.

    Examples
    --------
    >>> pair = WeakToStrong(
    ...     correlations=[1.0] * 5, weak_features=30, strong_features=20, samples=60, pseudo_labels=200
    ... )
    >>> found = predict_weak_to_strong(pair, times=[2.0, 8.0])
    >>> round(found.weak, 4), round(found.weak_to_strong, 4), round(found.strong, 4), found.risk.round(4).tolist()
    (1.0345, 0.2687, 0.5128, [0.2205, 0.2667])
    """
    if not isinstance(problem, WeakToStrong):
        refuse(f"Argument `problem` must be a WeakToStrong, but is {shown(problem)}.", TypeError)
    t, s = checked_column(times, "times", fewest=0), problem.overlap
    weak, strong, n, N = problem.weak_features, problem.strong_features, problem.samples, problem.pseudo_labels
    variance = problem.label_noise**2 / (n - weak - 1.0)
    x, weights = eigenvalue_law(strong / N)
    fading = np.exp(-np.outer(t, x))
    apart = (weak - s) * variance * strong / N / x
    risk = (problem.target_norm**2 * fading**2 + (1.0 - fading) ** 2 * (s * variance + apart)) @ weights
    student = variance * (s + (weak - s) * strong / (N - strong - 1.0))
    return WeakToStrongRisk(weak * variance, student, problem.label_noise**2 * strong / (n - strong - 1.0), t, risk)


# --- descent on a quadratic -------------------------------------------------------------------------------------------


def descent_loss(
    eigenvalues: ArrayLike, squares: ArrayLike, rates: ArrayLike | Schedule, steps: int | None = None
) -> Array:
    r"""Return the loss of gradient descent on a quadratic, before the first step and after each.

    .. math:: L_T = \sum_l \lambda_l\, c_l^2 \prod_{t < T} (1 - \eta_t \lambda_l)^2,

    with λ_l the eigenvalues of the Hessian H and c_l the distance from the minimum along its axes: this is
    (w − w*)·H(w − w*). It is convex, so that any schedule is allowed, `silver` too, whose T steps act as the flow of
    the time Σ η ~ T^1.2716 does (Altschuler and Parrilo, arXiv:2309.07879). That of a student with neurons is not.

    Parameters
    ----------
    eigenvalues, squares : sequence of float
        λ_l ≥ 0, in units of 1/η, and c_l² ≥ 0, as many.
    rates : sequence of float or Schedule
        η_t > 0 of all steps, or a schedule with `steps`, its number T of steps.

    Returns
    -------
    ndarray
        L_0, …, L_T, in units of λ c².

    Examples
    --------
    >>> from dynamics import silver
    >>> descent_loss([1.0, 0.1], [1.0, 1.0], silver(1.0), 3).round(4).tolist()
    [1.1, 0.2453, 0.2188, 0.0642]
    """
    values, sizes = checked_axes(eigenvalues, squares)
    if isinstance(rates, Schedule):
        if steps is None:
            refuse(f"Argument `steps` must be given beside a schedule, but is None beside {rates!r}.", TypeError)
        count = checked_integer(steps, "steps", minimum=1)
        check_memory("steps", count, 2 * count)
        table = rates.table(count)
    else:
        require(
            steps is None, f"Argument `steps` must be None beside a list of rates, but is {shown(steps)}.", TypeError
        )
        table = real_column(rates, "rates")
    require(table.size, "Argument `rates` must be finite and positive at every step, but is empty.")
    at = int(np.argmin(np.isfinite(table) & (table > 0.0)))
    require(
        0.0 < table[at] < np.inf,
        f"Argument `rates` must be finite and positive at every step, but is {table[at]} at step {at}.",
    )
    terms, losses = values * sizes, np.empty(table.size + 1)
    losses[0] = terms.sum()
    for t, rate in enumerate(table.tolist()):
        terms *= (1.0 - rate * values) ** 2
        losses[t + 1] = terms.sum()
    return losses
