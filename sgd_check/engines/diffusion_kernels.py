r"""Compiled steps of the diffusion, and the mean and covariance of one step of SGD in the visible coordinates.

The formulas are in `docs/engines.md`. The rows of V (M, D) are the m unit neurons and the P directions,
with weights w = (n_i, −a_p) and products Q = V Vᵀ. `link` holds, for the Hermite coefficients c: c_j²; the table b_en =
c_(e+n) sqrt(binom(e+n, e)), with two rows of zeros below; √j; and the nodes (y_1, y_2, weight) of Gauss-Hermite rules
in one and two dimensions.

State of a run: W (m, D), row i the coordinates of neuron i on the r axes of the teacher and on m axes that hold the
rest of all neurons. A diffusion step stands for h steps of SGD: half of their mean, noise with the exact covariance
where that has led, the other half. One half of the mean is

    w ← w − ½ E_1 G(w − (¼ − 1/2h) E_1 G(w)),   G = E[e ∇],  E_1 = Σ η over the h steps,

so that two of them are the h steps of w ← w − η G(w) to second order in E_1, for every h ≥ 1.
"""

import numpy as np

from dynamics.kernels.jit import entry, kernel
from hermite.arrays import Cube, Integers, Matrix, Vector

Link = tuple[Vector, Matrix, Vector, Matrix, Matrix]
#: V, w, ρ and Q.
Vectors = tuple[Matrix, Vector, Vector, Matrix]
#: Smoothed link, its neighbours, powers of the rest products, sums over nodes, and three small ones.
Bench = tuple[Matrix, Matrix, Cube, Cube, Matrix, Matrix, Matrix]
#: Mean gradient G (m, D), lower half of its covariance on the visible axes (m D, m D), and that on each other (m, m).
Moments = tuple[Matrix, Matrix, Matrix]
Scratch = tuple[Vectors, Bench, Moments]
#: Tolerances of drift and noise, label noise, batch size, number of axes beyond the visible ones, largest Σ n_i.
Settings = tuple[float, float, float, float, float, float]
Law = tuple[Link, Settings]
#: Steps of a span, and their learning rate, or the sums of η and η² over the steps before each, (2, steps + 1).
Span = tuple[int, float, Matrix]
#: Weights, steps left, diffusion steps whose random numbers are spent, levels and tallies of all runs.
Runs = tuple[Cube, Integers, Integers, Cube, Matrix]
#: Normals and gammas (runs, steps, numbers).
Draws = tuple[Cube, Cube]

# Two neurons whose directions differ by less are one; a pivot below this share of its diagonal is 0, but for rounding.
SAME_DIRECTION, SMALLEST_PIVOT = 1e-9, 1e-13
# Steps shrink by a factor until the drift is resolved, where noise may carry an overlap so many standard deviations.
SHRINKING, REACH = 0.7, 3.0
# Learning rates may rise by this factor within a step.
LARGEST_RISE = 1.1


@kernel
def product(A: Matrix, i: int, B: Matrix, j: int) -> float:
    """Return the product of two rows."""
    total = 0.0
    for c in range(A.shape[1]):
        total += A[i, c] * B[j, c]
    return total


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
def write_mean_gradient(W: Matrix, vectors: Vectors, squares: Vector, G: Matrix) -> None:
    """Write u_i, n_i, ρ_i and Q at the weights W (m, D), and the mean gradient ρ_i (κ_i u_i + Σ_b N_ib v_b).

    N_ib = w_b g'(Q_ib), κ_i = Σ_b [2 w_b g(Q_ib) − N_ib Q_ib].
    """
    V, w, rho, Q = vectors
    m, D = W.shape
    for i in range(m):
        w[i] = product(W, i, W, i)
        rho[i] = np.sqrt(w[i])
        for c in range(D):
            V[i, c] = W[i, c] / rho[i]
    for x in range(V.shape[0]):
        for y in range(min(x, m)):
            Q[x, y] = Q[y, x] = min(max(product(V, x, V, y), -1.0), 1.0)
    G[:, :] = 0.0
    for i in range(m):
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
    """Project all v on u_i and on the rest of u_j; write the powers of the rest of Q; return that rest's length."""
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
def write_covariance(law: Law, scratch: Scratch, levels: Matrix) -> None:
    """Write the covariance of the mean gradient G of a batch, its lower half on the visible axes, and beyond.

    To `levels` go, per η², the relative variance of w_i in one step, and the largest of it on one visible axis.
    """
    link, settings = law
    vectors, bench, (G, covariance, beyond) = scratch
    V, w, rho, _ = vectors
    m, D = G.shape
    M, batch = V.shape[0], settings[3]
    half = np.empty((M, D))
    for i in range(m):
        for j in range(i, m):
            plain = sum_over_nodes(i, j, settings[2], vectors, link, bench)
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
    for i in range(m):
        trace, largest = settings[4] * beyond[i, i], 0.0
        for c in range(i * D, (i + 1) * D):
            trace += covariance[c, c]
            largest = max(largest, covariance[c, c])
        levels[0, i] = trace / w[i]
        levels[1, i] = largest / w[i]


@kernel
def write_factor(A: Matrix) -> None:
    """Replace the lower half of a positive semidefinite matrix by its Cholesky factor; zero pivots are allowed."""
    for i in range(A.shape[0]):
        diagonal = A[i, i]
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            if j < i:
                A[i, j] = total / A[j, j] if A[j, j] > 0.0 else 0.0
            else:
                A[i, i] = np.sqrt(total) if total > SMALLEST_PIVOT * diagonal else 0.0


@kernel
def fastest_rate(i: int, reach: float, vectors: Vectors, squares: Vector) -> float:
    """Bound the rates at which G_i changes along the flow while overlaps stay within `reach` of where they are."""
    _, w, _, Q = vectors
    own, _, _ = kernel_and_slopes(squares, 1.0)
    total = 6.0 * w[i] * own
    for b in range(w.size):
        if b != i:
            most, least = min(abs(Q[i, b]) + reach, 1.0), max(abs(Q[i, b]) - reach, 0.0)
            value, slope, bend = kernel_and_slopes(squares, most)
            total += abs(w[b]) * (4.0 * value + 2.0 * most * slope + (1.0 - least * least) * bend)
    return float(total)


@kernel
def step_ratio(rate: float, G: Matrix, levels: Matrix, vectors: Vectors, squares: Vector) -> float:
    """Largest root mean square of |Δw_i|/|w_i| in one step of SGD, or relative change of a mean gradient."""
    found = 0.0
    for i in range(G.shape[0]):
        moved = np.sqrt(levels[0, i] + product(G, i, G, i) / vectors[1][i])
        found = max(found, rate * max(moved, fastest_rate(i, 0.0, vectors, squares)))
    return found


@kernel
def choose_span(
    remaining: int, rate: float, settings: Settings, G: Matrix, levels: Matrix, vectors: Vectors,
    squares: Vector
) -> int:  # fmt: skip
    """Return how many steps of SGD the next diffusion step takes, from the state and the noise levels last seen."""
    drift_tolerance, noise_tolerance = settings[0], settings[1]
    m, span = G.shape[0], float(remaining)
    for i in range(m):
        span = min(span, noise_tolerance / max(rate * rate * levels[0, i], 1e-300))
    # First without motion, which is a lower bound of the rates, and then as far as drift and noise may lead.
    moving = 0.0
    while span > 1.0:
        fastest = 0.0
        for i in range(m):
            drift, noise = span * np.sqrt(product(G, i, G, i)) / vectors[2][i], np.sqrt(span * levels[1, i])
            reach = moving * rate * (drift + REACH * noise)
            fastest = max(fastest, fastest_rate(i, reach, vectors, squares))
        resolved = drift_tolerance / max(rate * fastest, 1e-300)
        if moving == 0.0:
            span = min(span, resolved)
            moving = 1.0
        elif span <= resolved:
            break
        else:
            span *= SHRINKING
    taken = max(int(span), 1)
    # The last step before a look is as long as the others.
    pieces = (remaining + taken - 1) // taken
    return (remaining + pieces - 1) // pieces


@kernel
def move_by_mean(W: Matrix, total: float, share: float, vectors: Vectors, squares: Vector, G: Matrix) -> None:
    """Take half the mean of a span: w ← w − ½ E_1 G(w − share E_1 G(w)), where G(w) is known."""
    m, D = W.shape
    ahead = np.empty((m, D))
    for i in range(m):
        for c in range(D):
            ahead[i, c] = W[i, c] - share * total * G[i, c]
    write_mean_gradient(ahead, vectors, squares, G)
    for i in range(m):
        for c in range(D):
            W[i, c] -= 0.5 * total * G[i, c]


@kernel
def write_triangle(W: Matrix, rows: Matrix) -> None:
    """Write to the last m axes of W the lower-triangular matrix with the products of `rows`, which is spent."""
    m, axes = rows.shape
    r = W.shape[1] - m
    for j in range(m):
        length = np.sqrt(product(rows, j, rows, j))
        inverse = 1.0 / length if length > 0.0 else 0.0
        for i in range(j):
            W[i, r + j] = 0.0
        W[j, r + j] = length
        for i in range(j + 1, m):
            along = inverse * product(rows, i, rows, j)
            W[i, r + j] = along
            for x in range(axes):
                rows[i, x] -= along * rows[j, x] * inverse


@kernel
def move_by_noise(W: Matrix, total: float, C: Matrix, K: Matrix, normals: Vector, gammas: Vector) -> None:
    """Add noise of covariance E_2 C on the visible axes and E_2 K on the s others, and turn these into the former.

    The rows gain A T, A Aᵀ = E_2 K, with T (m, min(m, s)) lower-trapezoidal, chi(s − j) on the diagonal, N(0, 1) below.
    """
    m, D = W.shape
    r, new = D - m, gammas.size
    size = np.sqrt(total)
    write_factor(C)
    for x in range(m * D):
        moved = 0.0
        for y in range(x + 1):
            moved += C[x, y] * normals[y]
        W[x // D, x % D] += size * moved
    write_factor(K)
    rows = np.zeros((m, m + new))
    rows[:, :m] = W[:, r:]
    place = m * D
    for k in range(m):
        for j in range(min(k + 1, new)):
            if j < k:
                entry_of_T = normals[place]
                place += 1
            else:
                entry_of_T = np.sqrt(2.0 * gammas[j])
            for i in range(k, m):
                rows[i, m + j] += size * K[i, k] * entry_of_T
    write_triangle(W, rows)


@kernel
def sums_of_rates(first: int, count: int, span: Span) -> tuple[float, float]:
    """Σ η and Σ η² over `count` steps from `first` on."""
    _, rate, sums = span
    if sums.shape[1] == 0:
        return rate * count, rate * rate * count
    return sums[0, first + count] - sums[0, first], sums[1, first + count] - sums[1, first]


@entry
def write_step_law(W: Matrix, law: Law, scratch: Scratch, levels: Matrix) -> float:
    """Write the moments of one step to `scratch` and the `levels` of its noise; return `step_ratio` at η = 1."""
    vectors, _, (G, _, _) = scratch
    write_mean_gradient(W, vectors, law[0][0], G)
    write_covariance(law, scratch, levels)
    return step_ratio(1.0, G, levels, vectors, law[0][0])


@kernel
def take_step(seed: int, runs: Runs, draws: Draws, span: Span, law: Law, scratch: Scratch) -> int:
    """Take one diffusion step of a run and return how many steps of SGD it stands for."""
    vectors, _, (G, C, K) = scratch
    W, remaining, used, levels, tally = runs[0][seed], runs[1][seed], runs[2][seed], runs[3][seed], runs[4][seed]
    first, squares = span[0] - remaining, law[0][0]
    write_mean_gradient(W, vectors, squares, G)
    if levels[0, 0] < 0.0:
        write_covariance(law, scratch, levels)
    now, _ = sums_of_rates(first, 1, span)
    taken = choose_span(remaining, now, law[1], G, levels, vectors, squares)
    total, square = sums_of_rates(first, taken, span)
    while taken > 1 and total > LARGEST_RISE * now * taken:
        taken = (taken + 1) // 2
        total, square = sums_of_rates(first, taken, span)
    share = 0.25 - 0.5 / taken
    move_by_mean(W, total, share, vectors, squares, G)
    write_mean_gradient(W, vectors, squares, G)
    write_covariance(law, scratch, levels)
    tally[0] = max(tally[0], step_ratio(total / taken, G, levels, vectors, squares))
    tally[1] += 1.0
    move_by_noise(W, square, C, K, draws[0][seed, used], draws[1][seed, used])
    write_mean_gradient(W, vectors, squares, G)
    move_by_mean(W, total, share, vectors, squares, G)
    return taken


@entry
def take_diffusion_steps(seeds: Integers, runs: Runs, draws: Draws, span: Span, law: Law, scratch: Scratch) -> None:
    """Bring every run named in `seeds` to the end of its span, of its random numbers, or to NaN beyond the cap."""
    weights, left, used, _, _ = runs
    for seed in seeds:
        while left[seed] > 0 and used[seed] < draws[0].shape[1]:
            left[seed] -= take_step(seed, runs, draws, span, law, scratch)
            used[seed] += 1
            square = 0.0
            for i in range(weights.shape[1]):
                square += product(weights[seed], i, weights[seed], i)
            if not square <= law[1][5]:
                weights[seed, :, :] = np.nan
                left[seed] = 0
