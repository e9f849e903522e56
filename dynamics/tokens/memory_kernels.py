"""Compiled kernels of an associative memory with orthonormal embeddings: groups of items of one frequency.

State y = [δ (M) | Θ (M, M)]; parameters = [λ | sizes n (M) | frequencies π (M)]; sizes = [M, whether the optimizer is
spectral, stage]. The scratch holds the weight (M, M) that an item of group m, in row m, gives an output of group k, on
the diagonal one of its mates; P (M), that of its own; and room for two matrices (M, M).
"""

import numpy as np

from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel

# Rotations stop where columns are orthogonal to this; a dozen sweeps are plenty.
MOST_SWEEPS, ORTHOGONAL = 30, 1e-15


@kernel
def write_weights(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the weight of every output: those of other groups and of mates in rows, then P of the right ones."""
    M = sizes[0]
    for m in range(M):
        n = parameters[1 + m]
        mates = (y[M + m * M + m] - y[m]) / n
        own = mates + y[m]
        top = own
        for k in range(M):
            if k == m:
                work[m * M + k] = mates
            else:
                work[m * M + k] = y[M + k * M + m] / np.sqrt(parameters[1 + k] * n)
            top = max(top, work[m * M + k])
        total = np.exp(own - top)
        for k in range(M):
            work[m * M + k] = np.exp(work[m * M + k] - top)
            total += (parameters[1 + k] - (1.0 if k == m else 0.0)) * work[m * M + k]
        for k in range(M):
            work[m * M + k] /= total
        work[M * M + m] = np.exp(own - top) / total


@kernel
def turned(G: Vector, V: Vector, M: int, p: int, q: int) -> bool:
    """Turn columns p and q of G, and of V, until those of G are orthogonal; return whether they were not."""
    alpha, beta, gamma = 0.0, 0.0, 0.0
    for i in range(M):
        alpha += G[i * M + p] * G[i * M + p]
        beta += G[i * M + q] * G[i * M + q]
        gamma += G[i * M + p] * G[i * M + q]
    # Written so that not-a-number ends the rotations.
    if not abs(gamma) > ORTHOGONAL * np.sqrt(alpha) * np.sqrt(beta):
        return False
    zeta = (beta - alpha) / (2.0 * gamma)
    tangent = (1.0 if zeta >= 0.0 else -1.0) / (abs(zeta) + np.sqrt(1.0 + zeta * zeta))
    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
    sine = cosine * tangent
    for i in range(M):
        x, z = G[i * M + p], G[i * M + q]
        G[i * M + p], G[i * M + q] = cosine * x - sine * z, sine * x + cosine * z
        x, z = V[i * M + p], V[i * M + q]
        V[i * M + p], V[i * M + q] = cosine * x - sine * z, sine * x + cosine * z
    return True


@kernel
def smooth_signs(G: Vector, M: int, smoothing: float, V: Vector, scaled: Vector) -> None:
    """G ← h(G) = G V diag(1/√(s² + λ²)) Vᵀ, with V by one-sided Jacobi rotations.

    Columns of G are as different as the frequencies; these rotations give small singular values, too, to all digits.
    """
    for i in range(M * M):
        V[i] = 1.0 if i % (M + 1) == 0 else 0.0
    for _sweep in range(MOST_SWEEPS):
        turns = 0
        for p in range(M - 1):
            for q in range(p + 1, M):
                turns += turned(G, V, M, p, q)
        if turns == 0:
            break
    for k in range(M):
        square = smoothing * smoothing
        for i in range(M):
            square += G[i * M + k] * G[i * M + k]
        for i in range(M):
            scaled[i * M + k] = G[i * M + k] / np.sqrt(square)
    for i in range(M):
        for j in range(M):
            total = 0.0
            for k in range(M):
                total += scaled[i * M + k] * V[j * M + k]
            G[i * M + j] = total


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """δ_m' = h(g_m), Θ' = h(Γ) on singular values; Γ_km stands in row k and column m."""
    M, smoothing = sizes[0], parameters[0]
    write_weights(y, parameters, sizes, work)
    for m in range(M):
        n, pi, mates = parameters[1 + m], parameters[1 + M + m], work[m * M + m]
        # 1 − P − (n − 1) Q, as a sum in which nothing cancels however well a group is known.
        outside = 0.0
        for k in range(M):
            if k != m:
                outside += parameters[1 + k] * work[m * M + k]
                out[M + k * M + m] = -np.sqrt(parameters[1 + k] * n) * pi * work[m * M + k]
        out[M + m * M + m] = pi * outside
        # An item without mates has no difference to them; Θ alone carries it.
        g = pi * (outside + n * mates) if n > 1.0 else 0.0
        out[m] = g / np.sqrt(g * g + smoothing * smoothing) if sizes[1] == 1 else g
    if sizes[1] == 1:
        smooth_signs(out[M:], M, smoothing, work[M * M + M :], work[2 * M * M + M :])


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """P_m − ½ of every group."""
    write_weights(y, parameters, sizes, work)
    for m in range(sizes[0]):
        out[m] = work[sizes[0] * sizes[0] + m] - 0.5


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Leave the state as it is."""
