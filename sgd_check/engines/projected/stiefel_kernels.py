"""Compiled steps of a frame of orthogonal neurons, on one sample each.

With U = W/σ0, z = Ux, x_∥ = Uᵀz and x_⊥ = x − x_∥ the step along the tangential part of the gradient and the polar
factor of what it leads to are one matrix of rank one,

    (I + f zzᵀ)(U − b z x_⊥ᵀ) = U + z (f x_∥ − β x_⊥)ᵀ,   b = √2 η e,   β = b (1 + b² |x_⊥|² |z|²)^(−1/2),

f = (β/b − 1)/|z|², so that two sweeps of Givens rotations put W back to its form: O(m² + m r) operations.
"""

import numpy as np

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import entry
from dynamics.kernels.views import row_part
from sgd_check.engines.projected.projected_kernels import Buffers, Draws, give_up
from sgd_check.engines.projected.turning_kernels import turn_back


@entry
def take_frame_steps(W: Matrix, rates: Vector, constants: tuple[Vector, Vector], draws: Draws, buffers: Buffers) -> int:
    """Take one step per learning rate, on one sample each; return how many were taken before W was not finite.

    `constants` are the coefficients a and σ0, alone in an array; label noise takes the place of labels in `draws`, and
    the rest is as in `projected_single_kernels.take_single_steps`. Samples are overwritten.
    """
    a, radius = constants
    samples, gammas, noise = draws
    work = buffers[0]
    m = W.shape[1]
    r = W.shape[0] - m
    sigma = radius[0]
    z, keep, carry = row_part(work, 0, 0, m), row_part(work, 4, 0, m), row_part(work, 5, 0, m)
    for t in range(rates.size):
        x = row_part(samples, t, 0, r + m)
        new = 2.0 * gammas[t, 0] if gammas.shape[1] > 0 else 0.0
        for i in range(m):
            z[i] = 0.0
        square = new
        for c in range(r + m):
            coordinate = x[c]
            square += coordinate * coordinate
            for i in range(m):
                z[i] += W[c, i] * coordinate
        inside = 0.0
        for i in range(m):
            z[i] /= sigma
            inside += z[i] * z[i]
        error = sigma * sigma * (inside - m)
        for p in range(a.size):
            error -= a[p] * (x[p] * x[p] - 1.0)
        b = rates[t] * (error - np.sqrt(2.0) * noise[t, 0])
        outside = max(square - inside, 0.0)
        growth = b * b * outside * inside
        if not growth < np.inf:
            give_up(W)
            return t
        root = np.sqrt(1.0 + growth)
        beta = b / root
        along = beta - b * b * outside / (root * (1.0 + root))
        for c in range(r + m):
            on_span = 0.0
            for i in range(m):
                on_span += W[c, i] * z[i]
            x[c] = along * on_span / sigma - beta * x[c]
        for i in range(m):
            keep[i], carry[i] = 1.0, -sigma * z[i]
        for c in range(r):
            coordinate = x[c]
            for i in range(m):
                W[c, i] -= carry[i] * coordinate
        # The sign of the new axis is free.
        turn_back(W, r, samples, t, abs(beta) * np.sqrt(new), work)
    return rates.size
