r"""Compiled mean and covariance of one step of SGD in the visible coordinates; the formulas are in `law`.

The rows of V (M, D) are the m unit neurons and the P directions, with weights w = (n_i, −a_p) and products Q = V Vᵀ.
`link` holds, for the Hermite coefficients c: c_j²; the table b_en = c_(e+n) sqrt(binom(e+n, e)), with two rows of zeros
below; √j; and the nodes (y_1, y_2, weight) of Gauss-Hermite rules in one and two dimensions.
"""

import numpy as np

from dynamics.kernels.arrays import Cube, Matrix, Vector
from dynamics.kernels.jit import kernel

Link = tuple[Vector, Matrix, Vector, Matrix, Matrix]
Vectors = tuple[Matrix, Vector, Vector, Matrix]
Bench = tuple[Matrix, Matrix, Cube, Cube, Matrix, Matrix, Matrix]

# Two neurons whose directions differ by less than this are one: their second axis would be rounding.
SAME_DIRECTION = 1e-9


@kernel
def make_vectors(teacher: Matrix, a: Vector, m: int) -> Vectors:
    """Return V, w, ρ and Q, with the teacher's part filled in."""
    P, r = teacher.shape
    V, w, Q = np.zeros((m + P, r + m)), np.zeros(m + P), np.zeros((m + P, m + P))
    for x in range(m + P):
        Q[x, x] = 1.0
    for p in range(P):
        w[m + p] = -a[p]
        for c in range(r):
            V[m + p, c] = teacher[p, c]
        for q in range(p):
            for c in range(r):
                Q[m + p, m + q] += teacher[p, c] * teacher[q, c]
            Q[m + q, m + p] = Q[m + p, m + q]
    return V, w, np.zeros(m), Q


@kernel
def make_bench(link: Link, M: int) -> Bench:
    """Return scratch: smoothed link, its neighbours, powers of the rest products, sums over nodes, and small ones."""
    rows = link[1].shape[0]
    return (
        np.zeros((rows, M)),
        np.zeros((4, M)),
        np.zeros((rows, M, M)),
        np.zeros((rows, M, M)),
        np.zeros((5, M)),
        np.zeros((M, M)),
        np.zeros((2, rows)),
    )


@kernel
def write_vectors(W: Matrix, vectors: Vectors) -> None:
    """Write u_i, n_i, ρ_i and Q at the weights W (m, D)."""
    V, w, rho, Q = vectors
    m, D = W.shape
    for i in range(m):
        square = 0.0
        for c in range(D):
            square += W[i, c] * W[i, c]
        w[i] = square
        rho[i] = np.sqrt(square)
        for c in range(D):
            V[i, c] = W[i, c] / rho[i]
    for x in range(V.shape[0]):
        for y in range(min(x, m)):
            product = 0.0
            for c in range(D):
                product += V[x, c] * V[y, c]
            Q[x, y] = Q[y, x] = min(max(product, -1.0), 1.0)


@kernel
def kernel_and_slopes(squares: Vector, q: float) -> tuple[float, float, float]:
    """g, g' and g'' at q, for g(s) = Σ_j c_j² s^j."""
    value = slope = bend = 0.0
    for j in range(squares.size - 1, -1, -1):
        bend = bend * q + 2.0 * slope
        slope = slope * q + value
        value = value * q + squares[j]
    return value, slope, bend


@kernel
def write_mean_gradient(vectors: Vectors, squares: Vector, G: Matrix) -> None:
    """E[e ∇_i] = ρ_i (κ_i u_i + Σ_b N_ib v_b), N_ib = w_b g'(Q_ib), κ_i = Σ_b [2 w_b g(Q_ib) − N_ib Q_ib]."""
    V, w, rho, Q = vectors
    m, D = G.shape
    for i in range(m):
        for c in range(D):
            G[i, c] = 0.0
        kappa = 0.0
        for b in range(V.shape[0]):
            value, slope, _ = kernel_and_slopes(squares, Q[i, b])
            kappa += w[b] * (2.0 * value - slope * Q[i, b])
            for c in range(D):
                G[i, c] += rho[i] * w[b] * slope * V[b, c]
        for c in range(D):
            G[i, c] += rho[i] * kappa * V[i, c]


@kernel
def write_smoothed(y1: float, y2: float, axes: Matrix, link: Link, s: Matrix, polynomials: Vector) -> None:
    """s_e(c) = E[σ^(e)(z_c) | y]/√e!, by h_(n+1) = (μ h_n − √n q² h_(n−1))/√(n+1) for E[h_n(z_c) | y]."""
    table, roots = link[1], link[2]
    K = table.shape[1] - 1
    for c in range(s.shape[1]):
        p1, p2 = axes[0, c], axes[1, c]
        mean, square = p1 * y1 + p2 * y2, p1 * p1 + p2 * p2
        polynomials[0] = 1.0
        polynomials[1] = mean
        for n in range(1, K):
            polynomials[n + 1] = (mean * polynomials[n] - roots[n] * square * polynomials[n - 1]) / roots[n + 1]
        for e in range(K + 1):
            total = 0.0
            for n in range(K + 1 - e):
                total += table[e, n] * polynomials[n]
            s[e, c] = total


@kernel
def write_axes(i: int, j: int, vectors: Vectors, axes: Matrix, powers: Cube) -> float:
    """Project all v on u_i and on the rest of u_j; write the powers of what is left of Q; return that rest's length."""
    V, _, _, Q = vectors
    M, D = V.shape
    square = 0.0
    if i != j:
        for c in range(D):
            square += (V[j, c] - Q[i, j] * V[i, c]) ** 2
    length = float(np.sqrt(square)) if square > SAME_DIRECTION**2 else 0.0
    for x in range(M):
        axes[0, x] = Q[i, x]
        axes[1, x] = 0.0
        if length > 0.0:
            for c in range(D):
                axes[1, x] += (V[j, c] - Q[i, j] * V[i, c]) * V[x, c] / length
    for x in range(M):
        for y in range(M):
            rest = Q[x, y] - axes[0, x] * axes[0, y] - axes[1, x] * axes[1, y]
            powers[0, x, y] = 1.0
            for e in range(1, powers.shape[0]):
                powers[e, x, y] = powers[e - 1, x, y] * rest
    return length


@kernel
def write_neighbours(w: Vector, link: Link, bench: Bench) -> float:
    """Return E[ē² | y]; write w_c E[ē σ'_c | y] and w_c E[ē σ''_c | y] to rows 2 and 3."""
    s, small, powers = bench[0], bench[1], bench[2]
    roots = link[2]
    M = w.size
    total = 0.0
    for c in range(M):
        small[2, c] = small[3, c] = 0.0
    for e in range(s.shape[0] - 2):
        for c in range(M):
            small[0, c] = w[c] * s[e, c]
        for c in range(M):
            rest = 0.0
            for x in range(M):
                rest += powers[e, c, x] * small[0, x]
            total += small[0, c] * rest
            small[2, c] += w[c] * roots[e + 1] * s[e + 1, c] * rest
            small[3, c] += w[c] * roots[e + 1] * roots[e + 2] * s[e + 2, c] * rest
    return total


@kernel
def sum_over_nodes(i: int, j: int, noise: float, vectors: Vectors, link: Link, bench: Bench) -> float:
    """Return E[e² σ'_i σ'_j], and write the coefficients of v_c ⊗ v_c' in E[e² ∇_i ∇_jᵀ]/(ρ_i ρ_j)."""
    V, w, _, _ = vectors
    s, small, powers, sums, rows, found, line = bench
    M, top = V.shape[0], s.shape[0] - 2
    axes = rows[3:5]
    length = write_axes(i, j, vectors, axes, powers)
    nodes = link[4] if length > 0.0 else link[3]
    sums[:, :, :] = 0.0
    rows[0, :] = 0.0
    found[:, :] = 0.0
    plain = 0.0
    for k in range(nodes.shape[0]):
        y1, y2, weight = nodes[k, 0], nodes[k, 1], nodes[k, 2]
        write_smoothed(y1, y2, axes, link, s, line[0])
        square = write_neighbours(w, link, bench) + noise * noise
        zi, zj = y1, axes[0, j] * y1 + axes[1, j] * y2
        first_i, second_i, third_i = s[1, i], np.sqrt(2.0) * s[2, i], np.sqrt(6.0) * s[3, i]
        first_j, second_j, third_j = s[1, j], np.sqrt(2.0) * s[2, j], np.sqrt(6.0) * s[3, j]
        gamma_i = 2.0 * s[0, i] - zi * first_i + second_i
        gamma_j = 2.0 * s[0, j] - zj * first_j + second_j
        both = weight * first_i * first_j
        plain += both * square
        found[i, j] += weight * square * gamma_i * gamma_j
        found[j, i] += weight * square * second_i * second_j
        found[i, i] += weight * square * (first_i - zi * second_i + third_i) * first_j
        found[j, j] += weight * square * first_i * (first_j - zj * second_j + third_j)
        for c in range(M):
            slope = 2.0 * weight * small[2, c]
            found[i, c] += slope * gamma_i * first_j
            found[c, i] += slope * second_i * first_j
            found[j, c] += slope * first_i * second_j
            found[c, j] += slope * first_i * gamma_j
            rows[0, c] += 2.0 * both * small[3, c]
        for e in range(top - 1):
            for c in range(M):
                left = 2.0 * both * (e + 1.0) * s[e + 1, c]
                for x in range(c + 1):
                    sums[e, c, x] += left * s[e + 1, x]
    for c in range(M):
        found[c, c] += rows[0, c]
        for x in range(c + 1):
            total = 0.0
            for e in range(top - 1):
                total += powers[e, c, x] * sums[e, c, x]
            found[c, x] += w[c] * w[x] * total
            if x < c:
                found[x, c] += w[c] * w[x] * total
    return plain


@kernel
def write_covariance(
    noise: float, batch: float, G: Matrix, vectors: Vectors, link: Link, bench: Bench,
    covariance: Matrix, beyond: Matrix
) -> None:  # fmt: skip
    """Lower half of Cov[Σ_b e ∇/B] in the D visible axes, (m D, m D), and per other axis ρ_iρ_j E[e² σ'_iσ'_j]/B."""
    V, _, rho, _ = vectors
    m, D = G.shape
    M = V.shape[0]
    half = np.empty((M, D))
    for i in range(m):
        for j in range(i, m):
            plain = sum_over_nodes(i, j, noise, vectors, link, bench)
            found = bench[5]
            size = rho[i] * rho[j]
            beyond[i, j] = beyond[j, i] = size * plain / batch
            for x in range(M):
                for b in range(D):
                    total = 0.0
                    for y in range(M):
                        total += found[x, y] * V[y, b]
                    half[x, b] = total
            for p in range(D):
                for q in range(D):
                    total = plain if p == q else 0.0
                    for x in range(M):
                        total += V[x, p] * half[x, q]
                    covariance[j * D + q, i * D + p] = (size * total - G[i, p] * G[j, q]) / batch
