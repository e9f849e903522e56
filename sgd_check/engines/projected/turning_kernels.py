"""Compiled turns of the axes after a step, so that those new in its samples are empty again.

A step leaves the neurons with entries on axes new in its samples; a rotation of all axes beyond the teacher's brings
the factor of the neurons back to lower-triangular form. One sample takes two sweeps of Givens rotations, O(m²)
operations.

With H the B×m matrix of the h_ib of `projected_kernels`, the new axes of a batch carry Hᵀ N, N a B×s matrix of N(0, 1)
with s the number of axes beyond r + m. Its Gram matrix is all that matters, and N is independent of H: for B ≤ m, N is
replaced by its Bartlett factor, B×min(B, s) lower-trapezoidal with chi(s − b) on the diagonal; for B > m, Hᵀ N has the
law of Tᵀ N' with T the triangular factor of H and N' of m rows. Householder reflections bring it to the triangular
form; a step costs O(B m (m + r) + m³) operations.
"""

import numpy as np

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import kernel


@kernel
def turn_back(W: Matrix, first: int, samples: Matrix, t: int, new: float, work: Matrix) -> None:
    """Bring the factor of [g L − h (x | new)] back to lower-triangular form by two sweeps of Givens rotations.

    L begins in row `first` of W, and x in that column of row t of `samples`. The first sweep turns (x | new) into a
    multiple of the first axis, from the last axis on, which leaves one entry above the diagonal of L per row; the
    second removes it. The column that both rotations share is carried along. g, h and that column are the last three
    rows of `work`.
    """
    m = W.shape[1]
    for i in range(m):
        work[6, i] = 0.0
    square = new * new
    before = abs(new)
    beyond = 0.0
    for j in range(m - 1, -1, -1):
        k = first + j
        y = samples[t, k]
        square += y * y
        length = np.sqrt(square)
        cos, sin = (y / length, before / length) if length > 0.0 else (1.0, 0.0)
        if j == m - 1:
            entry_of_last = work[4, j] * W[k, j]
            beyond = -sin * entry_of_last
            work[6, j] = cos * entry_of_last
        else:
            for i in range(j, m):
                ours = work[4, i] * W[k, i]
                theirs = work[6, i]
                work[6, i] = cos * ours + sin * theirs
                W[k + 1, i] = cos * theirs - sin * ours
        before = length
    for i in range(m):
        work[6, i] -= work[5, i] * before
    for j in range(m - 1):
        k = first + j
        ours, theirs = work[6, j], W[k + 1, j]
        length = np.sqrt(ours * ours + theirs * theirs)
        cos, sin = (ours / length, theirs / length) if length > 0.0 else (1.0, 0.0)
        W[k, j] = length
        W[k + 1, j] = 0.0
        for i in range(j + 1, m):
            ours, theirs = work[6, i], W[k + 1, i]
            W[k, i] = cos * ours + sin * theirs
            work[6, i] = cos * theirs - sin * ours
    W[first + m - 1, m - 1] = np.sqrt(work[6, m - 1] * work[6, m - 1] + beyond * beyond)


@kernel
def triangular_factor(A: Matrix, rows: int, products: Vector) -> None:
    """Overwrite the first m of some rows of A, at least m, by R of A = Q R, by Householder reflections.

    Entries below the diagonal are left as they fall; `products` holds m numbers.
    """
    m = A.shape[1]
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
def fill_new_axes(H: Matrix, rows: int, gammas: Vector, below: Vector, stack: Matrix) -> None:
    """Write Nᵀ H, of the first rows of H, to the rows of `stack` from row m on.

    N is lower-trapezoidal with √(2 gammas) on its diagonal and `below`, row by row, under it.
    """
    count, m = gammas.size, H.shape[1]
    for q in range(count):
        for i in range(m):
            stack[m + q, i] = 0.0
    at = 0
    for b in range(rows):
        for q in range(min(b + 1, count)):
            if q == b:
                factor = np.sqrt(2.0 * gammas[b])
            else:
                factor = below[at]
                at += 1
            for i in range(m):
                stack[m + q, i] += factor * H[b, i]


@kernel
def turn_batch(
    W: Matrix, first: int, H: Matrix, gammas: Vector, below: Vector, stack: Matrix, products: Vector
) -> None:
    """Turn away the new axes of a batch, on which the neurons have Hᵀ N, H (B, m); H is overwritten.

    The factor begins in row `first` of W. `stack` has at least m + s' rows with s' the entries of `gammas`; `below` and
    `gammas` as in `fill_new_axes`.
    """
    batch, m = H.shape
    for j in range(m):
        for i in range(m):
            stack[j, i] = W[first + j, i]
    if gammas.size > 0:
        if batch > m:
            triangular_factor(H, batch, products)
            clear_below(H)
        fill_new_axes(H, min(batch, m), gammas, below, stack)
    triangular_factor(stack, m + gammas.size, products)
    for j in range(m):
        for i in range(m):
            W[first + j, i] = stack[j, i] if i >= j else 0.0
