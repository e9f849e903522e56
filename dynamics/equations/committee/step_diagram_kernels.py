"""Gaussian means of a finite step for polynomial links, by Wick's theorem.

Vectors a = 0 … M − 1 have covariances C, weights w_a in the error ē = Σ_a w_a σ_a, and mean derivatives F_ak of their
functions at their variances and biases. Products of four series are sums over diagrams as in `hermite.moments`,
covariances in place of cosines:

    Σ_ab w_a w_b E[σ_a f_b φ_i ψ_j] = Σ Σ_ab H_rs(a) C_ab^e/e! H'_r's'(b) Z[r+r', s+s'],
    H_rs(a) = w_a F_a,e+r+s C_ai^r C_aj^s / (r! s!),   Z[R, S] = Σ_t φ_i,R+t ψ_j,S+t C_ij^t / t!,

with e, r, s, r', s' ≥ 0 legs between a and b, a and i, and so on; H' has the mean derivatives of f. For links of degree
up to K, `work` begins with C (M, M) and F (M, K + 4), F = 0 beyond K, and ends with w (M); in between are the same of
λσ'(λ) (M, K + 4), λ without its mean, Z and Z' (K, K), then, one row of M numbers per (r, s), H, H' and
Y = H C^(∘e)/e!, and C^(∘e)/e! for e = 0 … K.
"""

from dynamics.kernels.arrays import Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import product
from dynamics.kernels.views import matrix, vector


@kernel
def diagram_size(M: int, K: int) -> int:
    """Return the length of `work`."""
    rows = (K + 1) * (K + 2) // 2
    return int(M * M + 2 * M * (K + 4) + 2 * K * K + 3 * rows * M + (K + 1) * M * M + M)


@kernel
def write_diagram_tables(M: int, K: int, work: Vector) -> None:
    """Mean derivatives of λσ'(λ), k F_k + v F_(k+2) because E[λ f] = v E f', and the powers of C, after C and F."""
    own, euler = M * M, M * M + M * (K + 4)
    for a in range(M):
        v = work[a * M + a]
        for k in range(K + 4):
            later = work[own + a * (K + 4) + k + 2] if k < K + 2 else 0.0
            work[euler + a * (K + 4) + k] = k * work[own + a * (K + 4) + k] + v * later
    powers = diagram_size(M, K) - M - (K + 1) * M * M
    for x in range(M * M):
        power = 1.0
        for e in range(K + 1):
            work[powers + e * M * M + x] = power
            power *= work[x] / (e + 1)


@kernel
def write_contractions(i: int, j: int, M: int, K: int, work: Vector) -> None:
    """Z of the pair σ'_i σ'_j, and Z' of λσ''_i σ'_j + σ'_i λσ''_j."""
    c, v, u = work[i * M + j], work[i * M + i], work[j * M + j]
    F, G = vector(work, M * M + i * (K + 4), K + 4), vector(work, M * M + j * (K + 4), K + 4)
    Z = M * M + 2 * M * (K + 4)
    for R in range(K):
        for S in range(K):
            plain = mixed = 0.0
            for t in range(K - 1 - max(R, S), -1, -1):
                x, y = R + t, S + t
                left, right = x * F[x + 1] + v * F[x + 3], y * G[y + 1] + u * G[y + 3]
                plain = F[x + 1] * G[y + 1] + plain * c / (t + 1)
                mixed = left * G[y + 1] + F[x + 1] * right + mixed * c / (t + 1)
            work[Z + R * K + S] = plain
            work[Z + K * K + R * K + S] = mixed


@kernel
def write_half_diagrams(
    e: int, i: int, j: int, absent: int, table: int, target: int, M: int, K: int, work: Vector
) -> int:
    """H_rs(a) for r + s ≤ K − e, made of the mean derivatives at `table`; return how many do not vanish by parity."""
    weights = diagram_size(M, K) - M
    row = 0
    for a in range(M):
        toward_i, toward_j = work[a * M + i], work[a * M + j]
        row = 0
        power = work[weights + a]
        for r in range(K - e + 1):
            term = power
            for s in range(K - e + 1 - r):
                if (e + r + s) % 2 != absent:
                    work[target + row * M + a] = term * work[table + a * (K + 4) + e + r + s]
                    row += 1
                term *= toward_j / (s + 1)
            power *= toward_i / (r + 1)
    return row


@kernel
def contract_rows(rows: int, source: int, power: int, target: int, M: int, work: Vector) -> None:
    """Y = H C^(∘e)/e!."""
    product(matrix(work, source, rows, M), matrix(work, power, M, M), matrix(work, target, rows, M))


@kernel
def row_product(first: int, second: int, count: int, work: Vector) -> float:
    """Inner product of two rows of `work`."""
    total = 0.0
    for b in range(count):
        total += work[first + b] * work[second + b]
    return total


@kernel
def diagram_second(
    i: int, j: int, noise: float, d: float, exact: bool, absent: int, M: int, K: int, work: Vector
) -> float:
    """Return E[(ē² + τ²) σ'_i σ'_j |x|²], its part of order d unless it is to be exact; `noise` is τ².

    E[F |x|²] = d E F + E[x·∂F], x·∂F = 2 ē ε σ'_i σ'_j + (ē² + τ²)(λσ''_i σ'_j + σ'_i λσ''_j), ε = Σ_a w_a λ_a σ'_a.
    """
    write_contractions(i, j, M, K, work)
    own = M * M
    Z = own + 2 * M * (K + 4)
    H = Z + 2 * K * K
    size = (K + 1) * (K + 2) // 2 * M
    E, Y, powers = H + size, H + 2 * size, H + 3 * size
    slope = noise * work[Z]
    base = noise * work[Z + K * K] if exact else 0.0
    for e in range(K + 1):
        legs = K - e + 1
        rows = write_half_diagrams(e, i, j, absent, own, H, M, K, work)
        contract_rows(rows, H, powers + e * M * M, Y, M, work)
        if exact:
            write_half_diagrams(e, i, j, absent, own + M * (K + 4), E, M, K, work)
        x = -1
        for r in range(legs):
            for s in range(legs - r):
                if (e + r + s) % 2 == absent:
                    continue
                x += 1
                y = -1
                for r2 in range(legs):
                    for s2 in range(legs - r2):
                        if (e + r2 + s2) % 2 == absent:
                            continue
                        y += 1
                        if r + r2 < K and s + s2 < K:
                            place = Z + (r + r2) * K + s + s2
                            alike = row_product(Y + x * M, H + y * M, M, work)
                            slope += alike * work[place]
                            if exact:
                                mixed = row_product(Y + x * M, E + y * M, M, work)
                                base += alike * work[place + K * K] + 2.0 * mixed * work[place]
    return float(d * slope + base)
