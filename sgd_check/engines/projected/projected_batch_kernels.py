"""Compiled minibatch steps of the projected engine; executed after `projected_kernels`.

With H the B×m matrix of the h_ib there, the new axes of the batch carry Hᵀ N, N a B×s matrix of N(0, 1) with s the
number of axes beyond r + m. Its Gram matrix is all that matters, and N is independent of H: for B ≤ m, N is replaced by
its Bartlett factor, B×min(B, s) lower-trapezoidal with chi(s − b) on the diagonal; for B > m, Hᵀ N has the law of Tᵀ N'
with T the triangular factor of H and N' of m rows, so that a step costs O(B m (m + r) + m³) operations.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.projected_kernels import give_up, lengths, residual

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@kernel
def triangular_factor(A: Matrix, products: Vector) -> None:
    """Overwrite the first m rows of A (at least m rows, m columns) by R of A = Q R, by Householder reflections.

    Entries below the diagonal are left as they fall; `products` holds m numbers.
    """
    rows, m = A.shape
    for j in range(m):
        square = 0.0
        for k in range(j, rows):
            square += A[k, j] * A[k, j]
        if square == 0.0:
            continue
        length = np.sqrt(square)
        diagonal = -length if A[j, j] > 0.0 else length
        A[j, j] -= diagonal
        scale = -1.0 / (diagonal * A[j, j])
        for i in range(j + 1, m):
            products[i] = 0.0
        for k in range(j, rows):
            v = A[k, j]
            for i in range(j + 1, m):
                products[i] += v * A[k, i]
        for k in range(j, rows):
            v = scale * A[k, j]
            for i in range(j + 1, m):
                A[k, i] -= v * products[i]
        A[j, j] = diagonal


@kernel
def clear_below(A: Matrix) -> None:
    """Set the entries below the diagonal to 0."""
    for j in range(A.shape[1]):
        for i in range(j):
            A[j, i] = 0.0


@kernel
def weigh_batch(
    W: Matrix, rate: float, a: Vector, directions: Matrix, sample: Vector, noise: Vector, H: Matrix, work: Matrix
) -> bool:
    """Write H and g for one batch; return whether every error is finite."""
    axes, m = W.shape
    z, rho, value, slope, g = work[0], work[1], work[2], work[3], work[4]
    lengths(W, work)
    for i in range(m):
        g[i] = 1.0
    for b in range(noise.size):
        step = rate * (residual(W, sample[b * axes : (b + 1) * axes], a, directions, work) - noise[b])
        if not abs(step) < np.inf:
            return False
        for i in range(m):
            g[i] -= step * (2.0 * value[i] - z[i] * slope[i])
            H[b, i] = step * rho[i] * slope[i]
    return True


@kernel
def fill_new_axes(H: Matrix, gammas: Vector, below: Vector, new: Matrix) -> None:
    """Write Nᵀ H to `new`, N lower-trapezoidal with √(2 gammas) on its diagonal and `below`, row by row, under it."""
    count, m = new.shape
    for q in range(count):
        for i in range(m):
            new[q, i] = 0.0
    at = 0
    for b in range(H.shape[0]):
        for q in range(min(b + 1, count)):
            if q == b:
                factor = np.sqrt(2.0 * gammas[b])
            else:
                factor = below[at]
                at += 1
            for i in range(m):
                new[q, i] += factor * H[b, i]


@entry("i8(f8[:,::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1])")
def take_batch_steps(
    W: Matrix,
    rates: Vector,
    a: Vector,
    directions: Matrix,
    samples: Matrix,
    gammas: Matrix,
    noise: Matrix,
    work: Matrix,
    H: Matrix,
    stack: Matrix,
) -> int:
    """Take one step per learning rate, on B samples each; return how many were taken before W was not finite.

    `rates` are η/B. A row of `samples` holds B samples of r + m numbers, then the entries of the Bartlett factor below
    its diagonal; `gammas` (steps, s') half the squares of that diagonal, `noise` (steps, B) the label noise. `H` is
    (B, m), `stack` (m + s', m).
    """
    axes, m = W.shape
    r, batch = axes - m, noise.shape[1]
    g = work[4]
    for t in range(rates.size):
        if not weigh_batch(W, rates[t], a, directions, samples[t], noise[t], H, work):
            give_up(W)
            return t
        for c in range(axes):
            for i in range(m):
                W[c, i] *= g[i]
            for b in range(batch):
                coordinate = samples[t, b * axes + c]
                for i in range(m):
                    W[c, i] -= coordinate * H[b, i]
        for j in range(m):
            for i in range(m):
                stack[j, i] = W[r + j, i]
        if stack.shape[0] > m:
            rows = batch
            if batch > m:
                triangular_factor(H, work[6])
                rows = m
                clear_below(H)
            fill_new_axes(H[:rows], gammas[t], samples[t, batch * axes :], stack[m:])
        triangular_factor(stack, work[6])
        for j in range(m):
            for i in range(m):
                W[r + j, i] = stack[j, i] if i >= j else 0.0
    return rates.size
