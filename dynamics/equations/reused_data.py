r"""One neuron on n = αd fixed samples, of which every step takes a part again: its mean motion as d → ∞, exactly.

w ← ρ w + e Σ_batch F(h) x/(bn), F = −(f(h) − y) f'(h), h = w·x, y = f*(θ·x) + τξ, with batches of bn samples in turn.
In the limit a sample sees h^t = g^t + Σ_{s<t} r(t,s) F^s, where z = θ·x and (g^0, …, g^t) are Gaussian with
E z g^t = M_t and E g^t g^s = C(t,s) = w^t·w^s, F^t is 0 outside of the sample's batch, 1/b times as large in it, and

.. math:: r(t,s) = \frac{e_s}{\alpha} R(t,s+1), \qquad K(t,s) = E\, dF^t/dg^s, \qquad N(t,s) = E F^t F^s/\alpha,

   R(t+1,s) = \rho_t R(t,s) + e_t \sum_{u=s}^{t} K(t,u) R(u,s), \quad R(s,s) = 1, \qquad
   M_{t+1} = \rho_t M_t + e_t E[F^t z],

   C(t+1,a) = \rho_t C(t,a) + e_t \Big(E[F^t g^a] + \sum_{u<a} e_u R(a,u+1) N(t,u)\Big),

a ≤ t first, then a = t + 1. Nothing is solved for: each step needs means of the steps before alone. They are taken over
points of a scrambled Sobol sequence, whose scatter is a tenth of that of independent draws and less.

No derivative of F is taken, so that f may have kinks. By Stein's lemma E[F^t z] and E[F^t g^a] hold all of them, and
K is E[F^t (z, g)] over the covariance of (z, g). Both from the same points makes a run that learns forget its errors,
which it does not with K from derivatives along the path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hermite.arrays import Array

#: Coordinates of a point beside those of g^0, …, g^T: z, ξ and the batch.
OWN_COORDINATES = 3
#: Half of the spacing of the points of a Sobol sequence, by which they are moved away from 0.
HALF_SPACING = 2.0**-31
#: Share of |w|² below which what is new in g^t is rounding and noise.
LEAST_NEW = 1e-10
#: |w|² beyond which a run is given up.
LARGEST_SQUARE = 1e12

Function = Callable[[Array], Array]


class ReusedData(NamedTuple):
    """What moves: links, samples and steps."""

    #: f and f' of the student, and f* as a function of θ·x.
    value: Function
    slope: Function
    target: Function
    #: w·θ and |w|² at the start.
    overlap: float
    square: float
    #: τ, α, and the number 1/b of batches.
    label_noise: float
    ratio: float
    batches: int
    #: η of every step (T,), ε_w in e = η ε_w, κ in ρ = 1 − ηκ, and whether |w| is kept.
    rates: Array
    speed: float
    decay: float
    on_sphere: bool


class Moments(NamedTuple):
    """M_t, C(t,t) and E(f(h^t) − y)², each (T + 1,); NaN from where they grow without bound."""

    overlap: Array
    square: Array
    train_loss: Array


def numbers_held(steps: int, size: int) -> float:
    """Return how many numbers `moments` holds at once, for `size` points."""
    return float(size) * (2.0 * steps + 20.0)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def moments(data: ReusedData, size: int, rng: np.random.Generator, give_way: Callable[[], object]) -> Moments:
    """Return the moments by means over `size` points, a power of 2; `give_way` is called before each step."""
    steps = data.rates.size
    drawn = _points(OWN_COORDINATES + steps + 1, size, rng)
    y = data.target(drawn[1]) + data.label_noise * drawn[2]
    batch = np.floor(data.batches * drawn[0]).astype(np.int64)
    # z, and what is new in g^0, …, g^T.
    drawn = drawn[[1, *range(OWN_COORDINATES, OWN_COORDINATES + steps + 1)]]
    forces = np.zeros((steps, size))
    M, train = np.full(steps + 1, np.nan), np.full(steps + 1, np.nan)
    C, R, memory, N = (np.zeros((steps + 1, steps + 1)) for _ in range(4))
    factor = np.zeros((steps + 2, steps + 2))
    M[0], C[0, 0], R[0, 0], factor[0, 0] = data.overlap, data.square, 1.0, 1.0
    taken = np.zeros(steps)
    for t in range(steps + 1):
        give_way()
        if not np.isfinite(M[t]) or not 0.0 <= C[t, t] <= LARGEST_SQUARE:
            M[t:], train[t:] = np.nan, np.nan
            np.fill_diagonal(C[t:, t:], np.nan)
            break
        _extend(factor, t, np.append(M[t], C[t, : t + 1]))
        memory[t, :t] = taken[:t] / data.ratio * R[t, 1 : t + 1]
        h = factor[t + 1, : t + 2] @ drawn[: t + 2] + memory[t, :t] @ forces[:t]
        error = data.value(h) - y
        train[t] = np.mean(error**2)
        if t == steps:
            break
        share = data.batches * (batch == t % data.batches) if data.batches > 1 else 1.0
        forces[t] = -share * error * data.slope(h)
        N[t, : t + 1] = forces[: t + 1] @ forces[t] / (size * data.ratio)
        along = drawn[: t + 2] @ forces[t] / size
        mean = factor[: t + 2, : t + 2] @ along  # E F z, then E F g^a
        K = _solved(factor[: t + 2, : t + 2], along)[1:]
        step = _Step(mean, along, K, noise=R[: t + 1, 1 : t + 1] @ (taken[:t] * N[t, :t]), square=N[t, t])
        taken[t] = _take(data, t, step, M, C, R)
    return Moments(M, np.diag(C).copy(), train)


class _Step(NamedTuple):
    """The mean gradient G of a step, by what its products are made of."""

    #: E F z and E F g^a, and the same with what is new in z, g^0, …, g^t.
    mean: Array
    along: Array
    K: Array
    #: X(t,a) = u·w^a of the noise u of the gradient, and u·u.
    noise: Array
    square: float


def _take(data: ReusedData, t: int, step: _Step, M: Array, C: Array, R: Array) -> float:
    """Write M, C and R of step t + 1 and return e_t: w' = ρ w + e G, all of it over |w'| on the sphere."""
    e, now, pull = float(data.rates[t]) * data.speed, slice(0, t + 1), step.mean[1:] + step.noise
    rho = 1.0 - (e * pull[t] / C[t, t] if data.on_sphere else data.rates[t] * data.decay)
    G_squared = step.along @ step.along + 2.0 * step.K @ step.noise + step.square
    square = rho**2 * C[t, t] + 2.0 * rho * e * pull[t] + e**2 * G_squared
    if data.on_sphere:
        back = np.sqrt(data.square / square)
        rho, e, square = back * rho, back * e, data.square
    M[t + 1] = rho * M[t] + e * step.mean[0]
    R[t + 1, now] = rho * R[t, now] + e * (step.K @ R[now, now])
    R[t + 1, t + 1] = 1.0
    C[t + 1, now] = C[now, t + 1] = rho * C[t, now] + e * pull
    C[t + 1, t + 1] = square
    return e


def _points(count: int, size: int, rng: np.random.Generator) -> Array:
    """Return points of a Sobol sequence, (count, size): the first coordinate uniform, the others standard normal."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    points = qmc.Sobol(count, seed=rng).random_base2(size.bit_length() - 1)
    found: Array = np.ascontiguousarray(points.T)
    found += HALF_SPACING
    ndtri(found[1:], out=found[1:])
    return found


def _extend(factor: Array, t: int, covariances: Array) -> None:
    """Write the row of g^t of the factor of the covariance of (z, g^0, …); its last entry is 0 if nothing is new."""
    from scipy.linalg import solve_triangular

    kept = np.flatnonzero(np.diag(factor)[: t + 1])
    row = solve_triangular(factor[np.ix_(kept, kept)], covariances[kept], lower=True)
    new = covariances[-1] - row @ row
    factor[t + 1, kept] = row
    factor[t + 1, t + 1] = np.sqrt(new) if new > LEAST_NEW * covariances[-1] else 0.0


def _solved(factor: Array, along: Array) -> Array:
    """Return x of Lᵀ x = a, 0 where nothing is new."""
    from scipy.linalg import solve_triangular

    kept = np.flatnonzero(np.diag(factor))
    found = np.zeros(along.size)
    found[kept] = solve_triangular(factor[np.ix_(kept, kept)], along[kept], lower=True, trans="T")
    return found
