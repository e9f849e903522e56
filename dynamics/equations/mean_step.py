r"""The mean step of SGD and of every optimizer, from the moments of the gradient of a batch.

The weights move by w_i ← w_i − η g_i, so that M = WΘᵀ and Q = WWᵀ change on average, in the time η · step, by

.. math:: M'_{ia} = -E\,g_i\cdot\theta_a, \qquad Q'_{ij} = -E\,g_i\cdot w_j - E\,g_j\cdot w_i + \eta\, S_{ij},
   \qquad S_{ij} = E\,g_i\cdot g_j.

Let N hold the mean gradient, E g_i = Σ_b N_ib v_b of the vectors v = (w_1 … w_m, directions), and C the Gram matrix of
these. Then F = N C are the products above, and D = F Nᵀ are those of mean gradients. With S¹ for one sample, S is
D + (S¹ − D)/B for B samples, and S¹/B in the limit d → ∞ at fixed η d ("infinite-d"), where D is of order 1 and S¹ of
order d. Vectors of kept length, and overlaps of vectors over their lengths, lose what the step adds along them,

.. math:: M'_{ia} \mathrel{+}= r_i M_{ia}, \qquad Q'_{ij} \mathrel{+}= (r_i + r_j)\, Q_{ij}, \qquad
   r_i = (F_{ii} - \tfrac12 \eta S_{ii})/Q_{ii}.

Networks, committees, homogeneous and spherical neurons give N, F and S; inputs of several variances
(`dynamics.equations.classes`) move each class of axes by the same weights of a batch. The optimizers are below, and
docs/optimizers.md has their equations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from dynamics.equations.network.normal_kernels import TILE, mirror
from dynamics.equations.rates import rate_at
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, pasted_kernel, vector
from dynamics.kernels.options import BARE
from dynamics.kernels.units import MATRIX, choice, tuple_of
from hermite.arrays import Integers, Matrix, Vector


@register_jitable(**BARE)
def weights_of_batch(rate: float, batch: float, exact: bool) -> tuple[float, float]:
    """Return the weights of D and of S¹ in η S, where η is `rate` and `batch` the number of samples B.

    D are the products of mean gradients, S¹ the mean products of gradients of one sample. They are η (1 − 1/B) and η/B;
    without `exact`, in the limit d → ∞, the first is 0.
    """
    share = rate / batch
    return (rate - share if exact else 0.0), share


@pasted_kernel
def write_descent(F: Matrix, dM: Matrix, dQ: Matrix) -> None:
    """Write dM = −F_P (m, P) and dQ = −F_m − F_mᵀ (m, m), where F = [F_m (m, m) | F_P (m, P) | …].

    F holds the products of mean gradients with neurons and directions. It is done tile by tile, since columns are far
    apart in memory.
    """
    m = dM.shape[0]
    for i in range(m):
        for a in range(dM.shape[1]):
            dM[i, a] = -F[i, m + a]
    for first in range(0, m, TILE):
        for second in range(0, first + 1, TILE):
            for i in range(first, min(first + TILE, m)):
                for j in range(second, min(second + TILE, i + 1)):
                    dQ[i, j] = dQ[j, i] = -F[i, j] - F[j, i]


@pasted_kernel
def average_batch(
    S: Matrix, C: Matrix, N: Matrix, F: Matrix, weight: Vector, batch: float, exact: bool, rate: float, decay: float
) -> None:
    """Turn S, E[(ē² + τ²) σ'_i σ'_j |x|²] of one sample, into E g_i·g_j of a batch, on and below the diagonal.

    The gradient of a sample is ε_w weight_i ē σ'_i x: `rate` is ε_w, ē the error without noise, τ² its variance. N and
    F, the mean gradient and its products with all vectors, have the decay κ_w w_i too, which no sample has (`decay` is
    κ_w). C is the Gram matrix of all vectors, `batch` the number of samples, and `exact` says that d is finite.
    """
    of_mean, of_sample = weights_of_batch(1.0, batch, exact)
    for i in range(S.shape[0]):
        for j in range(i + 1):
            S[i, j] *= of_sample * rate**2 * weight[i] * weight[j]
            if exact:
                mean = 0.0
                for b in range(N.shape[1]):
                    mean += F[i, b] * N[j, b]
                S[i, j] += of_mean * mean + of_sample * decay * (F[i, j] + F[j, i] - decay * C[i, j])


@pasted_kernel
def add_noise(rate: float, S: Matrix, dQ: Matrix) -> None:
    """Add η S to dQ (m, m), where η is `rate` and S (m, m) the mean products of gradients of a batch.

    Only entries on and below the diagonal are read; all of dQ is written.
    """
    for i in range(dQ.shape[0]):
        for j in range(i + 1):
            dQ[i, j] += rate * S[i, j]
    mirror(dQ)


@pasted_kernel
def keep_lengths(rate: float, F: Matrix, S: Matrix, C: Matrix, dM: Matrix, dQ: Matrix) -> None:
    """Remove the parts of dM (m, P) and dQ (m, m) that change the lengths of neurons; call it after `add_noise`.

    F are products of mean gradients and vectors, S (m, m) mean products of gradients of a batch, and C the Gram matrix
    of vectors, neurons first, then directions; `rate` is η.
    """
    m = dM.shape[0]
    for i in range(m):
        r = (F[i, i] - 0.5 * rate * S[i, i]) / C[i, i]
        for a in range(dM.shape[1]):
            dM[i, a] += r * C[i, m + a]
        for j in range(m):
            dQ[i, j] += r * C[i, j]
            dQ[j, i] += r * C[i, j]
    for i in range(m):
        dQ[i, i] = 0.0


# Optimizers: the layout of the arrays of the system of `dynamics.equations.optimizers`.

MAP, ZEROTH_ORDER, ADAPTIVE, SIGN, PLAIN = range(5)


class OptimizerCounts(NamedTuple):
    """First entries of `sizes`."""

    #: Neurons m, axes P of the teacher, the rule, and 1 where there is an average of weights.
    width: int
    axes: int
    rule: int
    averages: int
    #: Sizes of the optimizer's own parameters, of the student's scratch and of a state of the weights.
    own: int
    scratch: int
    state: int
    #: Number of nodes of means, of their axes, and size of the table of links.
    nodes: int
    node_axes: int
    table: int
    #: Numbers of the table of rates, and steps of a map that each of its right-hand sides takes.
    rates: int
    steps: int


class OptimizerNumbers(NamedTuple):
    """First entries of `parameters`, in the symbols of docs/optimizers.md.

    Learning rate η, momentum β, 1 − dampening, the weights of buffer and gradient in a step, the share α of averages (0
    for those of Polyak), the dimension d, the number K of directions and the smoothing λ of zeroth order, 1 − β2.
    """

    rate: float
    momentum: float
    kept: float
    of_buffer: float
    of_gradient: float
    share: float
    dimension: float
    directions: float
    smoothing: float
    forgotten: float


#: Numbers of own sizes and parameters that every rule has.
HEADER, NUMBERS = len(OptimizerCounts._fields), len(OptimizerNumbers._fields)


@kernel
def counts_of(sizes: Integers) -> OptimizerCounts:
    """Return sizes of student, optimizer, nodes and tables, the first entries of `sizes`, see `OptimizerCounts`."""
    return OptimizerCounts(
        sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8], sizes[9], sizes[10],
        sizes[11],
    )  # fmt: skip


@kernel
def numbers_of(parameters: Vector) -> OptimizerNumbers:
    """Return rate, momentum and the other settings of the optimizer from `parameters`, see `OptimizerNumbers`."""
    return OptimizerNumbers(
        parameters[0], parameters[1], parameters[2], parameters[3], parameters[4], parameters[5], parameters[6],
        parameters[7], parameters[8], parameters[9],
    )  # fmt: skip


@kernel
def table_of_rates(parameters: Vector, sizes: Integers) -> Vector:
    """Return the table of rates that vary, as `rate_at` takes it, or an empty array."""
    counts = counts_of(sizes)
    return vector(parameters, counts.own - counts.rates, counts.rates)


#: N (m, m + P), C (m + P, m + P) and S (m, m).
Moments = tuple[Matrix, Matrix, Matrix]
MOMENTS = tuple_of(MATRIX, MATRIX, MATRIX)


@inlined_kernel
def write_products(N: Matrix, C: Matrix, X: Matrix, M: Matrix, out: Matrix) -> None:
    """Write E g_i·x_j to the first m columns of `out`, and E g_i·θ_a to the others, as many as there are.

    g_i are gradients with coefficients N (m, m + P) of neurons and directions, X_ij = w_i·x_j, M_ja = x_j·θ_a, and C is
    the Gram matrix of neurons w and directions θ.
    """
    m = X.shape[0]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(m):
                total += N[i, k] * X[k, j]
            for p in range(M.shape[1]):
                total += N[i, m + p] * M[j, p]
            out[i, j] = total
        for column in range(m, out.shape[1]):
            total = 0.0
            for k in range(N.shape[1]):
                total += N[i, k] * C[k, column]
            out[i, column] = total


@choice(Moments=MOMENTS)
def write_flow(
    t: float, y: Vector, out: Vector, moments: Moments, spread: float, parameters: Vector, sizes: Integers, own: Vector
) -> None:
    """Write the rates of the state under plain SGD, zeroth order, Adam or RMSprop; those of v and b are there already.

    `moments` are N, C and S: mean gradients, the Gram matrix, and mean products of gradients. `own` is scratch.

    `spread` is d² E(ℓ₊ − ℓ₋)²/(4λ²) for λ > 0, and not used otherwise.
    """
    counts, numbers, (N, C, S) = counts_of(sizes), numbers_of(parameters), moments
    m, P, rate, d, lag = counts.width, counts.axes, numbers.rate, numbers.dimension, numbers.forgotten
    if counts.rates > 0:
        rate = rate_at(t, table_of_rates(parameters, sizes))
    F, M, Q = matrix(own, 0, m, m + P), matrix(y, 2 * m, m, P), matrix(y, 2 * m + m * P, m, m)
    write_products(N, C, Q, M, F)
    if counts.rule == ADAPTIVE:
        squares, rates_of_squares = vector(y, y.size - m, m), vector(out, out.size - m, m)
        for i in range(m):
            # At the start v vanishes with t, and v̂ is the mean square itself.
            square, bias_correction = S[i, i] / d, -math.expm1(-lag * t / rate)
            rates_of_squares[i] = lag / rate * (square - squares[i])
            scale = 1.0 / math.sqrt(
                squares[i] / bias_correction if bias_correction > 0.0 and squares[i] > 0.0 else square
            )
            for b in range(m + P):
                F[i, b] *= scale
            for j in range(m):
                S[max(i, j), min(i, j)] *= scale if i != j else scale * scale
    if counts.rule == ZEROTH_ORDER:
        K, total = numbers.directions, 0.0
        for i in range(m):
            total += S[i, i]
        for i in range(m):
            for j in range(i + 1):
                S[i, j] = (1.0 + 1.0 / K) * S[i, j] + (d / K * total if i == j else 0.0)
                if numbers.smoothing > 0.0:
                    S[i, j] = spread if i == j else 0.0
    dQ = matrix(out, 2 * m + m * P, m, m)
    write_descent(F, matrix(out, 2 * m, m, P), dQ)
    add_noise(rate, S, dQ)


@inlined_kernel
def entry_of(A: Matrix, B: Matrix, r: int, s: int) -> float:
    """Return entry (r, s) of A B for small matrices, for which a call of BLAS takes longer than the sum."""
    total = 0.0
    for k in range(A.shape[1]):
        total += A[r, k] * B[k, s]
    return total


@choice(Moments=MOMENTS)
def write_map(
    t: float, y: Vector, out: Vector, moments: Moments, parameters: Vector, sizes: Integers, own: Vector
) -> None:
    """Write (F(y) − y)/η to `out`, where F is the map of one step with momentum and averages, and η the rate.

    `out` holds −E ∂_v and −E ∂_b of second layer and biases before. `moments` are N, C and S: mean gradients, the Gram
    matrix, and mean products of gradients.

    Of (w, u, a, g), g the gradient of a batch, F adds η D to (w, u, a), and η (D X + X Dᵀ + η D X Dᵀ) to products X.
    """
    counts, numbers, (N, C, S) = counts_of(sizes), numbers_of(parameters), moments
    m, P, rate, size = counts.width, counts.axes, numbers.rate, counts.state
    count, n, mm, vectors = 2 + counts.averages, m + P, m * m, 2 * m + m * P
    beta, gradient_share = (numbers.momentum, numbers.kept) if t > 0.5 * rate else (0.0, 1.0)
    alpha = numbers.share if numbers.share > 0.0 else 1.0 / (t / rate + 2.0)
    D = np.zeros((3, 4))
    D[0, 1] = -numbers.of_buffer * beta
    D[0, 3] = -numbers.of_buffer * gradient_share - numbers.of_gradient
    D[1, 1], D[1, 3] = (beta - 1.0) / rate, gradient_share / rate
    D[2, 0], D[2, 1], D[2, 2], D[2, 3] = alpha / rate, alpha * D[0, 1], -alpha / rate, alpha * D[0, 3]
    # Places of w, u and a, and of their products.
    at = 0, size, size + vectors + 2 * mm
    ww, wu, uu, aa = vectors, at[1] + vectors, at[1] + vectors + mm, at[2] + vectors
    places = ww, wu, aa + mm, wu, uu, aa + 2 * mm, aa + mm, aa + 2 * mm, aa
    transposed, z, X, V = np.ascontiguousarray(D.T), np.zeros((4, 1)), np.zeros((4, 4)), np.zeros((3, 4))
    for r in range(count):
        products = matrix(own, r * m * n, m, n)
        write_products(N, C, matrix(y, places[r], m, m), matrix(y, at[r] + 2 * m, m, P), products)
    for x in range(vectors):
        z[3, 0] = -out[x] if x < 2 * m else own[(x - 2 * m) // P * n + m + (x - 2 * m) % P]
        for r in range(count):
            z[r, 0] = y[at[r] + x]
        for r in range(count):
            out[at[r] + x] = entry_of(D, z, r, 0)
    for i in range(m):
        for j in range(m):
            X[3, 3] = S[max(i, j), min(i, j)]
            for r in range(count):
                X[3, r], X[r, 3] = own[(r * m + i) * n + j], own[(r * m + j) * n + i]
                for s in range(count):
                    X[r, s] = y[places[3 * r + s] + (i * m + j if r <= s else j * m + i)]
            for r in range(count):
                for s in range(4):
                    V[r, s] = entry_of(D, X, r, s)
            for r in range(count):
                for s in range(r, count):
                    change = entry_of(X, transposed, r, s) + rate * entry_of(V, transposed, r, s)
                    out[places[3 * r + s] + i * m + j] = V[r, s] + change


@kernel
def add_share(k: int, y: Vector, out: Vector, rate: float, total: Vector, steps_of: int) -> None:
    """Add the share of step k, k = 0 … steps_of − 1, to the rates `total` of the flow that a map follows.

    y moves by the step, of which `out` has the change over η = `rate`.

    That flow is y' = (Δ − Δ²/2 + Δ³/3 − …)/η, Δ the forward difference of steps; `out` has Δ/η of step k.
    """
    share, chosen = 0.0, 1.0
    for j in range(k + 1, steps_of + 1):
        # `chosen` is j − 1 over k.
        share += chosen / j
        chosen *= j / (j - k)
    share *= 1.0 - 2.0 * (k % 2)
    for x in range(y.size):
        total[x] = share * out[x] + (total[x] if k > 0 else 0.0)
        y[x] += rate * out[x]


@kernel
def decay_of_map(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write an approximate diagonal of the Jacobian of the flow through a map, decay of buffers and averages alone.

    `out` has the layout of the state: overlaps of weights, of which the diagonal is 0, then those of the buffer, which
    one step multiplies by the momentum or its square, and those of averages, by 1 − α, its square, or its product with
    the momentum. For such a factor f the entry is ln f over η, to the order of the flow's series.
    """
    counts, numbers = counts_of(sizes), numbers_of(parameters)
    m, P, rate, beta, vectors = counts.width, counts.axes, numbers.rate, numbers.momentum, counts.state
    alpha = numbers.share if numbers.share > 0.0 else 1.0 / (t / rate + 2.0)
    mm, short = m * m, 2 * m + m * P
    for x in range(out.size):
        factor = 1.0
        if x >= vectors + short + 2 * mm:
            at = x - vectors - short - 2 * mm
            factor = 1.0 - alpha
            if at >= short:
                factor *= factor if at < short + mm else 1.0 if at < short + 2 * mm else beta
        elif x >= vectors:
            factor = beta * beta if x >= vectors + short + mm else beta
        total, power = 0.0, 1.0
        for j in range(1, counts.steps + 1):
            power *= 1.0 - factor
            total -= power / j
        out[x] = total / rate
