r"""A network on n = αd fixed samples, of which every step takes a part again: its mean motion as d → ∞, exactly.

W ← ρ W + e Σ_batch F(h) xᵀ/(bn), F_i = −(f − y) s v_i σ'(h_i + b_i), h = Wx, y = f*(z) + τξ, with batches of bn samples
in turn, z = x on the teacher's axes; F is 0 outside of the sample's batch, 1/b times as large in it. Batches stay the
same, or every epoch parts the samples anew: a sample's batch is then a uniform number of its own in each epoch.

Weights lie on orthonormal directions: the teacher's axes, those of W^0, and one for what each mean gradient has that is
new. In the limit a sample has on direction j the component

.. math:: x_j = \xi_j + c_j, \qquad \xi_j \sim N(0, 1), \qquad \alpha\, E\, c_j c_k = \delta_{jk}

(c = 0 on the first ones), where c is what the sample itself has brought into the direction. The mean gradient is
E[F x_j] on known directions, and what is new are the rests of F by Gram and Schmidt,

.. math:: G_j = E[F x_j], \qquad \ell\, c_{new} = F/\alpha - \sum_k E[F c_k]\, c_k, \qquad G_{new} = \ell,

with ξ_new independent of all before. These are the equations of dynamical mean-field theory: Σ_j W^t_j ξ_j are its
Gaussian fields and Σ_j W^t_j c_j its memory Σ_s r(t,s) F^s; E[F ξ_j] holds all derivatives of F by Stein's lemma, so
that σ may have kinks. Neurons that are alike or opposite share a direction. Second layer and biases take steps along
means over the batch. So each step needs means alone. They are taken over points of a scrambled Sobol sequence: their
scatter is at most a tenth of that of independent draws.
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
#: Share of |F_i|² below which its part outside earlier directions is rounding and noise.
LEAST_NEW = 1e-10
#: |w_i|² beyond which a run is given up.
LARGEST_SQUARE = 1e12
#: Parts in which points are drawn.
PARTS = 16

Function = Callable[[Array], Array]


class ReusedData(NamedTuple):
    """The inputs of `moments`, for m neurons, r axes of the teacher and T steps; the head of the module has symbols."""

    #: The link σ and its slope σ', and the target f* as a function of z (r, points).
    value: Function
    slope: Function
    target: Function
    #: Neurons on the teacher's axes M (m, r), their products C (m, m), second layer v and biases b (m,) at the start,
    #: and the output scale s.
    overlap: Array
    gram: Array
    second_layer: Array
    bias: Array
    scale: float
    #: Standard deviation τ of label noise, samples per dimension α, and the number 1/b of batches in an epoch.
    label_noise: float
    ratio: float
    batches: int
    #: Whether every epoch parts the samples anew.
    reshuffle: bool
    #: Learning rate η of every step (T,); its factors ε_w, ε_v, ε_b for first layer, second layer and biases; decay
    #: κ_w, κ_v of both layers; whether the lengths |w_i| are kept.
    rates: Array
    speeds: tuple[float, float, float]
    decay: tuple[float, float]
    on_sphere: bool


class Moments(NamedTuple):
    """Averages over samples at steps 0 … T, for m neurons and r axes; NaN from the step at which weights diverge."""

    #: Neurons on the teacher's axes M (T + 1, m, r), and their products C(t,t) (T + 1, m, m).
    overlap: Array
    gram: Array
    #: Second layer v and biases b, (T + 1, m) each.
    second_layer: Array
    bias: Array
    #: Mean square of the error on the samples, E (f(h^t) − y)², (T + 1,).
    train_loss: Array


def numbers_held(steps: int, size: int, width: int = 1, span: int = 1, partitions: int = 1) -> float:
    """Return how many numbers `moments` holds at once, for `size` points and so many partitions of the samples."""
    rows = width * (steps + 1.0)
    return size * (2.0 * rows + 10.0 * width + span + partitions + 9.0)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def moments(data: ReusedData, size: int, rng: np.random.Generator, give_way: Callable[[], object]) -> Moments:
    """Return the motion of overlaps, second layer, biases and training loss, from means over `size` points.

    `size` is a power of 2; `rng` scrambles the points.

    `give_way` is called before each of the `PARTS` in which points are drawn, and before each step and the end.
    """
    (m, r), steps = data.overlap.shape, data.rates.size
    # Rows of points: the batch, one of each epoch or one of all, then ξ of the label, then x.
    uniform = -(-steps // data.batches) if data.reshuffle else 1
    points = _points(uniform, 1 + r + (steps + 1) * m, size, rng, give_way)
    x = points[uniform + 1 :]  # on the teacher's axes, on those of W^0, and on directions that are new
    y = data.target(x[:r]) + data.label_noise * points[uniform]
    basis, new_count = np.zeros((steps * m, size)), 0
    M, v, b = np.full((steps + 1, m, r), np.nan), np.full((steps + 1, m), np.nan), np.full((steps + 1, m), np.nan)
    train, squares, W = np.full(steps + 1, np.nan), np.full((steps + 1, m, m), np.nan), np.zeros((m, len(x)))
    values, vectors = np.linalg.eigh(data.gram - data.overlap @ data.overlap.T)
    W[:, :r], W[:, r : r + m] = data.overlap, vectors * np.sqrt(np.maximum(values, 0.0))
    v[0], b[0] = data.second_layer, data.bias
    for t in range(steps + 1):
        give_way()
        if not (np.abs(W @ W.T).max() <= LARGEST_SQUARE and np.isfinite(v[t]).all()):
            v[t], b[t] = np.nan, np.nan
            break
        M[t], squares[t], end = W[:, :r], W @ W.T, r + m + new_count
        h = W[:, :end] @ x[:end] + b[t][:, None]
        value, weight = data.value(h), data.scale * v[t]
        error = weight @ value - y
        train[t] = np.mean(error**2)
        if t == steps:
            break
        if data.batches > 1:
            epoch, at = divmod(t, data.batches)
            error *= data.batches * (np.floor(data.batches * points[epoch * data.reshuffle]) == at)
        force = data.slope(h) * -error * weight[:, None]
        v[t + 1] = v[t] - data.rates[t] * (data.speeds[1] * data.scale * (value @ error) / size + data.decay[1] * v[t])
        b[t + 1] = b[t] + data.rates[t] * data.speeds[2] * force.mean(axis=1)
        G = np.zeros_like(W)
        G[:, :end] = force @ x[:end].T / size
        new_count = _add_new(force, data.ratio, basis, new_count, x[r + m :], G[:, r + m :])
        W = _stepped(data, t, W, G)
    return Moments(M, squares, v, b, train)


def _add_new(force: Array, ratio: float, basis: Array, count: int, x: Array, G: Array) -> int:
    """Add to `basis` those parts of the forces F (m, points) that its first `count` rows do not span.

    Returns the new number of rows. New rows are also added to x, and components of F along them written to G. `ratio`
    is α, the number of samples per dimension.

    Writes new directions to `basis`, adds them to x, and writes their components to G; returns the new count.
    """
    before = count
    remainders = _twice_projected(force / ratio, ratio, basis[:before])[0]
    for i in range(len(force)):
        remainder, G[i, before:count] = _twice_projected(remainders[i], ratio, basis[before:count])
        if (square := ratio * np.mean(remainder**2)) > LEAST_NEW * np.mean(force[i] ** 2) / ratio:
            G[i, count] = np.sqrt(square)
            basis[count] = remainder / G[i, count]
            x[count] += basis[count]
            count += 1
    return count


def _twice_projected(vectors: Array, ratio: float, c: Array) -> tuple[Array, Array]:
    """Return the parts of `vectors` (…, points) orthogonal to the rows of c, and their components (…, rows) along them.

    `ratio` is α, the number of samples per dimension.

    They are projected twice: rounding of a small orthogonal part would grow in every step otherwise.
    """
    along = np.zeros((*vectors.shape[:-1], len(c)))
    for _ in range(2):
        part = ratio / c.shape[1] * (vectors @ c.T)
        along, vectors = along + part, vectors - part @ c
    return vectors, along


def _stepped(data: ReusedData, t: int, W: Array, G: Array) -> Array:
    """Return the weights after step t along G; on the sphere the tangential part moves them, and lengths are kept.

    W and G have one row of components per neuron.
    """
    rate, decay = data.rates[t] * data.speeds[0], data.rates[t] * data.decay[0]
    if not data.on_sphere:
        return np.asarray((1.0 - decay) * W + rate * G)
    squared = np.diag(data.gram)[:, None]
    W = W + rate * (G - np.sum(G * W, axis=1, keepdims=True) / squared * W)
    return np.asarray(W * np.sqrt(squared) / np.linalg.norm(W, axis=1, keepdims=True))


def _points(uniform: int, normal: int, size: int, rng: np.random.Generator, give_way: Callable[[], object]) -> Array:
    """Return `size` points of a scrambled Sobol sequence, one per column, shape (uniform + normal, size).

    The first `uniform` rows are uniform in (0, 1), the other `normal` rows standard normal.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    sequence, points = qmc.Sobol(uniform + normal, seed=rng), np.empty((uniform + normal, size))
    part = max(size // PARTS, 1)
    for first in range(0, size, part):
        give_way()
        # A sequence gives the same points in parts as in one call.
        block = np.ascontiguousarray(sequence.random(part).T)
        block += HALF_SPACING
        ndtri(block[uniform:], out=block[uniform:])
        points[:, first : first + part] = block
    return points
