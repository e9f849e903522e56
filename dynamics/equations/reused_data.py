r"""A network on n = αd fixed samples, of which every step takes a part again: its mean motion as d → ∞, exactly.

W ← ρ W + e Σ_batch F(h) xᵀ/(bn), F_i = −(f − y) s v_i σ'(h_i + b_i), h = Wx, y = f*(z) + τξ, with batches of bn samples
in turn, z = x on the teacher's axes. Batches stay the same, or every epoch parts the samples anew: a sample's batch is
then a uniform number of its own in each epoch. In the limit a sample sees h^t = g^t + Σ_{s<t} r(t,s) F^s, where z and
(g^0, …, g^t) are Gaussian with E g^t zᵀ = M_t and E g^t g^sᵀ = C(t,s) = W^t W^sᵀ, and F^t is 0 outside of the sample's
batch, 1/b times as large in it. With e_t and ρ_t diagonal, and blocks of m × m,

.. math:: r(t,s) = R(t,s+1)\, e_s/\alpha, \quad K(t,s) = E\, dF^t/dg^s, \quad N(t,s) = E F^t F^{sT}/\alpha, \quad
   X(t,a) = \sum_{u<a} N(t,u)\, e_u R(a,u+1)^T,

   R(t+1,s) = \rho_t R(t,s) + e_t \sum_{u=s}^{t} K(t,u) R(u,s), \quad R(s,s) = 1, \qquad
   M_{t+1} = \rho_t M_t + e_t E[F^t z^T],

   C(t+1,a) = \rho_t C(t,a) + e_t \big(E[F^t g^{aT}] + X(t,a)\big),

a ≤ t first, then a = t + 1. Second layer and biases take steps along means over the batch, which are numbers. Nothing
is solved for: each step needs means of the steps before alone. They are taken over points of a scrambled Sobol
sequence, whose scatter is a tenth of that of independent draws and less.

No derivative of F is taken, so that σ may have kinks. By Stein's lemma E[F^t zᵀ] and E[F^t g^aᵀ] hold all of them, and
K is E[F^t (z, g)ᵀ] over the covariance of (z, g). Both from the same points makes a run that learns forget its errors,
which it does not with K from derivatives along the path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hermite.arrays import Array

#: Most coordinates that a Sobol sequence has.
MOST_COORDINATES = 21201
#: Half of the spacing of the points of a Sobol sequence, by which they are moved away from 0.
HALF_SPACING = 2.0**-31
#: Share of |w_i|² below which what is new in g_i^t is rounding and noise.
LEAST_NEW = 1e-10
#: |w_i|² beyond which a run is given up.
LARGEST_SQUARE = 1e12

Function = Callable[[Array], Array]


class ReusedData(NamedTuple):
    """What moves: links, samples and steps."""

    #: σ and σ', and f* as a function of z (r, points).
    value: Function
    slope: Function
    target: Function
    #: M (m, r), C (m, m), v and b (m,) at the start, and s.
    overlap: Array
    gram: Array
    second_layer: Array
    bias: Array
    scale: float
    #: τ, α, and the number 1/b of batches.
    label_noise: float
    ratio: float
    batches: int
    #: Whether every epoch parts the samples anew.
    reshuffle: bool
    #: η of every step (T,), ε_w, ε_v, ε_b, and κ_w, κ_v; whether the |w_i| are kept.
    rates: Array
    speeds: tuple[float, float, float]
    decay: tuple[float, float]
    on_sphere: bool

    @property
    def own_coordinates(self) -> int:
        """Coordinates of a point before those of z and g^0, …, g^T: its batch, in each epoch or in all, and ξ."""
        return 1 + (-(-self.rates.size // self.batches) if self.reshuffle else 1)


class Moments(NamedTuple):
    """What is known of each time; NaN from where it grows without bound."""

    #: M (T + 1, m, r) and C(t,t) (T + 1, m, m).
    overlap: Array
    gram: Array
    #: v and b, (T + 1, m).
    second_layer: Array
    bias: Array
    #: E (f(h^t) − y)², (T + 1,).
    train_loss: Array


class _Gradient(NamedTuple):
    """The mean gradient G of a step, (m, d), by its products."""

    #: G·θ (m, r), and G·w^a (m, (t + 1) m) without the noise u of G.
    with_teacher: Array
    with_weights: Array
    #: u·w^a, that is X (m, (t + 1) m), and G·G (m, m).
    noise: Array
    square: Array
    #: K (m, (t + 1) m).
    response: Array


def numbers_held(steps: int, size: int, width: int = 1, span: int = 1, partitions: int = 1) -> float:
    """Return how many numbers `moments` holds at once, for `size` points and so many partitions of the samples."""
    rows = width * (steps + 1.0)
    return size * (2.0 * rows + 10.0 * width + span + partitions + 9.0) + 4.0 * rows**2


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def moments(data: ReusedData, size: int, rng: np.random.Generator, give_way: Callable[[], object]) -> Moments:
    """Return the moments by means over `size` points, a power of 2; `give_way` is called before each step."""
    (m, r), steps = data.overlap.shape, data.rates.size
    uniform = data.own_coordinates - 1
    points = _points(uniform, 1 + r + (steps + 1) * m, size, rng)
    fresh = points[uniform + 1 :]  # z, and what is new in g^0, …, g^T
    y = data.target(fresh[:r]) + data.label_noise * points[uniform]
    M, v, b = np.full((steps + 1, m, r), np.nan), np.full((steps + 1, m), np.nan), np.full((steps + 1, m), np.nan)
    train, C = np.full(steps + 1, np.nan), np.full((steps + 1, m, steps + 1, m), np.nan)
    R, taken, forces = np.zeros_like(C), np.zeros((steps, m)), np.zeros((steps * m, size))
    factor = np.zeros((r + (steps + 1) * m,) * 2)
    factor[:r, :r], M[0], C[0, :, 0], R[0, :, 0] = np.eye(r), data.overlap, data.gram, np.eye(m)
    v[0], b[0] = data.second_layer, data.bias
    for t in range(steps + 1):
        give_way()
        if not (np.isfinite(M[t]).all() and np.abs(C[t, :, t]).max() <= LARGEST_SQUARE and np.isfinite(v[t]).all()):
            M[t], C[t, :, t], v[t], b[t] = np.nan, np.nan, np.nan, np.nan
            break
        end = r + (t + 1) * m
        _extend(factor, np.hstack([M[t], C[t, :, : t + 1].reshape(m, -1)]))
        h = factor[end - m : end, :end] @ fresh[:end]
        # R(·, u + 1) e_u for the steps u before.
        passed = (R[: t + 1, :, 1 : t + 1] * taken[:t]).reshape((t + 1) * m, t * m)
        h += passed[t * m :] @ forces[: t * m] / data.ratio
        h += b[t][:, None]
        value, weight = data.value(h), data.scale * v[t]
        error = weight @ value - y
        train[t] = np.mean(error**2)
        if t == steps:
            break
        if data.batches > 1:
            epoch, at = divmod(t, data.batches)
            error *= data.batches * (np.floor(data.batches * points[epoch * data.reshuffle]) == at)
        own = forces[t * m : (t + 1) * m]
        np.multiply(data.slope(h), -error, out=own)
        own *= weight[:, None]
        v[t + 1] = v[t] - data.rates[t] * (data.speeds[1] * data.scale * (value @ error) / size + data.decay[1] * v[t])
        b[t + 1] = b[t] + data.rates[t] * data.speeds[2] * own.mean(axis=1)
        squares = own @ forces[: (t + 1) * m].T / (size * data.ratio)
        along = own @ fresh[:end].T / size
        mean, K = along @ factor[:end, :end].T, _solved(factor[:end, :end], along)[:, r:]
        X = squares[:, : t * m] @ passed.T
        squared = along @ along.T + X @ K.T + K @ X.T + squares[:, t * m :]
        taken[t] = _take(data, t, _Gradient(mean[:, :r], mean[:, r:], X, squared, K), M, C, R)
    return Moments(M, np.einsum("titj->tij", C), v, b, train)


def _take(data: ReusedData, t: int, G: _Gradient, M: Array, C: Array, R: Array) -> Array:
    """Write M, C and R of step t + 1 and return e_t (m,): W' = ρ W + e G, its rows over their lengths on the sphere."""
    m, flat = len(data.overlap), (t + 1) * len(data.overlap)
    pull = G.with_weights + G.noise
    own = pull[:, t * m :]
    e = np.full(m, data.rates[t] * data.speeds[0])
    rho = 1.0 - (e * np.diag(own) / np.diag(C[t, :, t]) if data.on_sphere else data.rates[t] * data.decay[0])
    rho = np.broadcast_to(rho, (m,))
    cross = np.outer(e, rho) * own
    gram = np.outer(rho, rho) * C[t, :, t] + cross + cross.T + np.outer(e, e) * G.square
    if data.on_sphere:
        back = np.sqrt(np.diag(data.gram) / np.diag(gram))
        rho, e, gram = back * rho, back * e, np.outer(back, back) * gram
    M[t + 1] = rho[:, None] * M[t] + e[:, None] * G.with_teacher
    now = R[: t + 1, :, : t + 1].reshape(flat, flat)
    R[t + 1, :, : t + 1] = (rho[:, None] * now[t * m :] + e[:, None] * (G.response @ now)).reshape(m, t + 1, m)
    R[t + 1, :, t + 1] = np.eye(m)
    new = (rho[:, None] * C[t, :, : t + 1].reshape(m, flat) + e[:, None] * pull).reshape(m, t + 1, m)
    C[t + 1, :, : t + 1], C[: t + 1, :, t + 1], C[t + 1, :, t + 1] = new, new.transpose(1, 2, 0), gram
    return e


def _points(uniform: int, normal: int, size: int, rng: np.random.Generator) -> Array:
    """Return points of a Sobol sequence, (uniform + normal, size), standard normal after so many uniform ones."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    points = qmc.Sobol(uniform + normal, seed=rng).random_base2(size.bit_length() - 1)
    found: Array = np.ascontiguousarray(points.T)
    found += HALF_SPACING
    ndtri(found[uniform:], out=found[uniform:])
    return found


def _extend(factor: Array, covariances: Array) -> None:
    """Write the rows of g^t of the factor of the covariance of (z, g^0, …); `covariances` are those with all until g^t.

    Where nothing is new in a row, its entry on the diagonal is 0.
    """
    from scipy.linalg import solve_triangular

    m, end = covariances.shape
    for i, at in enumerate(range(end - m, end)):
        kept = np.flatnonzero(np.diag(factor)[:at])
        row = solve_triangular(factor[np.ix_(kept, kept)], covariances[i, kept], lower=True)
        new = covariances[i, at] - row @ row
        factor[at, kept] = row
        factor[at, at] = np.sqrt(new) if new > LEAST_NEW * covariances[i, at] else 0.0


def _solved(factor: Array, along: Array) -> Array:
    """Return x of x L = a for rows a, 0 where nothing is new."""
    from scipy.linalg import solve_triangular

    kept = np.flatnonzero(np.diag(factor))
    found = np.zeros_like(along)
    found[:, kept] = solve_triangular(factor[np.ix_(kept, kept)], along[:, kept].T, lower=True, trans="T").T
    return found
