r"""Online SGD as the diffusion it tends to for small steps: many steps at once, for runs of 10^9 and more.

`docs/engines.md` has the mean and the covariance of a step. Before each step of h steps of SGD, h is chosen from
the state: the drift may change by `DRIFT_TOLERANCE` of itself wherever drift and three standard deviations of noise may
lead, and noise may give a weight vector a relative variance of `NOISE_TOLERANCE`. Frames take steps of the midpoint
rule in the drift, with the noise of their start, and keep M within the unit ball.

*Kernels.* The rows of V (M, D) are the m unit neurons and the P directions, with weights w = (n_i, −a_p) and products
Q = V Vᵀ. `link` holds, for the Hermite coefficients c: c_j²; the table b_en = c_(e+n) sqrt(binom(e+n, e)), with two
rows of zeros below; √j; and the nodes (y_1, y_2, weight) of Gauss-Hermite rules in one and two dimensions. State of a
run: W (m, D), row i the coordinates of neuron i on the r axes of the teacher and on m that hold the rest of all
neurons. A diffusion step is half of the mean of h steps, noise with the exact covariance where that has led, and the
other half. One half of the mean is

    w ← w − ½ E_1 G(w − (¼ − 1/2h) E_1 G(w)),   G = E[e ∇],  E_1 = Σ η over the h steps.

Two halves agree with the h steps of w ← w − η G(w) to second order in E_1, for every h ≥ 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from dynamics.cores import one_blas_thread
from dynamics.kernels.jit import entry, kernel
from dynamics.problem import Problem, is_frame
from dynamics.theory import rate_limits
from hermite import HermiteExpansion, polynomials
from hermite.arrays import Array, Cube, Integers, Matrix, Vector
from hermite.text.messages import refuse, require
from sgd_check.engines.projected import reduced_factor
from sgd_check.engines.registry import EngineOptions, Measurement, SpanEngine, measured
from sgd_check.engines.seeded_runs import AXES, LENGTHS, SeededRuns

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
    """Return the inner product of row i of A and row j of B."""
    total = 0.0
    for c in range(A.shape[1]):
        total += A[i, c] * B[j, c]
    return total


@kernel
def kernel_and_slopes(squares: Vector, q: float) -> tuple[float, float, float]:
    """Return g(q), g'(q) and g''(q) of g(q) = Σ_j c_j² q^j, the mean of σ(x) σ(y) over normal x, y of correlation q.

    `squares` holds the squared Hermite coefficients c_j² of the link σ.
    """
    value = slope = bend = 0.0
    for j in range(squares.size - 1, -1, -1):
        bend = bend * q + 2.0 * slope
        slope = slope * q + value
        value = value * q + squares[j]
    return value, slope, bend


@kernel
def write_mean_gradient(W: Matrix, vectors: Vectors, squares: Vector, G: Matrix) -> None:
    """Write the mean gradient E[e ∇_i], (m, D), of the neurons at the weights W (m, D) to G.

    With lengths ρ_i = |W_i|, directions v_b of the m neurons and of the teacher, their weights w_b (ρ_b² of a neuron,
    minus the coefficient of a teacher's unit) and overlaps Q_ib = v_i·v_b, G_i = ρ_i (κ_i v_i + Σ_b N_ib v_b), where
    N_ib = w_b g'(Q_ib), κ_i = Σ_b [2 w_b g(Q_ib) − N_ib Q_ib], and g is `kernel_and_slopes`. The directions, weights,
    lengths and overlaps of the neurons in `vectors` are overwritten too.
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
    """Write s (rows, M), s_e(c) = E[σ^(e)(z_c) | y]/√e!, for every vector c and derivative e of the link σ.

    z_c is the projection of a sample on vector c, and y = (y1, y2) are two coordinates of the sample that are held, on
    which vector c has the parts `axes` (2, M). With z_c of mean μ and part q² of its variance known from y,
    E[h_n(z_c) | y] follows from h_(n+1) = (μ h_n − √n q² h_(n−1))/√(n+1). `polynomials` is scratch.
    """
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
    """Write the parts of all vectors on the plane of neurons i and j, and powers of their products outside it.

    Row 0 of `axes` (2, M) receives the parts on the direction of neuron i, row 1 those on the rest of neuron j
    orthogonal to it (0 if both directions are one); `powers[e]` (M, M) the e-th powers of the products of the vectors
    outside that plane. Return the length of the rest of neuron j, 0 if it counts as none.
    """
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
    """Return the mean E[e² | y] of the squared error without label noise, given two coordinates y of the sample.

    Write w_c E[e σ'(z_c) | y] and w_c E[e σ''(z_c) | y] of every vector c, whose weight in the error is w_c, to rows 2
    and 3 of the small arrays in `bench`; `write_smoothed` and `write_axes` have filled its other arrays.
    """
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
    """Return E[e² σ'_i σ'_j] for neurons i and j, and write the coefficients of E[e² ∇_i ∇_jᵀ] to `bench`.

    e is the error of one sample with label noise of standard deviation `noise`, σ'_i the slope of the link at the
    projection of the sample on neuron i, ∇_i the gradient of the output in the weights of neuron i, and ρ_i its length.
    The M vectors v_c are the unit vectors of the neurons, then the teacher's directions; `vectors` = (v (M, D), weights
    in the error (M,), lengths ρ, overlaps of the v (M, M)). Then

     E[e² ∇_i ∇_jᵀ]/(ρ_i ρ_j) = E[e² σ'_i σ'_j] I + Σ_cc' coefficients_cc' v_c v_c'ᵀ,

    with the coefficients (M, M) in the sixth array of `bench`; its other arrays are scratch. Means over the plane of
    both neurons are sums over the nodes (y_1, y_2, weight) of a Gauss rule, those outside it series in the `link`'s
    Hermite coefficients.
    """
    V, w, _, _ = vectors
    s, small, powers, sums, rows, coefficients, line = bench
    M, top = V.shape[0], s.shape[0] - 2
    axes = rows[3:5]
    length = write_axes(i, j, vectors, axes, powers)
    nodes = link[4] if length > 0.0 else link[3]
    sums[:, :, :] = 0.0
    rows[0, :] = 0.0
    coefficients[:, :] = 0.0
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
        coefficients[i, j] += weight * square * gamma_i * gamma_j
        coefficients[j, i] += weight * square * second_i * second_j
        coefficients[i, i] += weight * square * (first_i - zi * second_i + third_i) * first_j
        coefficients[j, j] += weight * square * first_i * (first_j - zj * second_j + third_j)
        for c in range(M):
            slope = 2.0 * weight * small[2, c]
            coefficients[i, c] += slope * gamma_i * first_j
            coefficients[c, i] += slope * second_i * first_j
            coefficients[j, c] += slope * first_i * second_j
            coefficients[c, j] += slope * first_i * gamma_j
            rows[0, c] += 2.0 * both * small[3, c]
        for e in range(top - 1):
            for c in range(M):
                left = 2.0 * both * (e + 1.0) * s[e + 1, c]
                for x in range(c + 1):
                    sums[e, c, x] += left * s[e + 1, x]
    for c in range(M):
        coefficients[c, c] += rows[0, c]
        for x in range(c + 1):
            total = 0.0
            for e in range(top - 1):
                total += powers[e, c, x] * sums[e, c, x]
            coefficients[c, x] += w[c] * w[x] * total
            if x < c:
                coefficients[x, c] += w[c] * w[x] * total
    return plain


@kernel
def write_covariance(law: Law, scratch: Scratch, levels: Matrix) -> None:
    """Write the covariance of the gradient of a batch, given the mean gradient G (m, D) in `scratch`.

    Its lower half on the D visible axes is (m D, m D), row i D + p for neuron i and axis p; `beyond` (m, m) is that of
    the neurons on each axis that is not visible. To row 0 of `levels` (2, m) goes, per η², the variance of w_i in one
    step over |w_i|², and to row 1 the largest share of it on one visible axis.
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
            coefficients = bench[5]
            size = rho[i] * rho[j]
            beyond[i, j] = beyond[j, i] = size * plain / batch
            for x in range(M):
                for b in range(D):
                    total = 0.0
                    for y in range(M):
                        total += coefficients[x, y] * V[y, b]
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
    """Return a bound on the rates, per unit of Σ η, at which the mean gradient G_i of neuron i changes along the flow.

    It holds while the overlaps Q_ib of neuron i stay within `reach`, from 0 to 1, of where they are.
    """
    _, w, _, Q = vectors
    value_at_one, _, _ = kernel_and_slopes(squares, 1.0)
    total = 6.0 * w[i] * value_at_one
    for b in range(w.size):
        if b != i:
            most, least = min(abs(Q[i, b]) + reach, 1.0), max(abs(Q[i, b]) - reach, 0.0)
            value, slope, bend = kernel_and_slopes(squares, most)
            total += abs(w[b]) * (4.0 * value + 2.0 * most * slope + (1.0 - least * least) * bend)
    return float(total)


@kernel
def step_ratio(rate: float, G: Matrix, levels: Matrix, vectors: Vectors, squares: Vector) -> float:
    """Return the largest relative change in one step of SGD at learning rate `rate`, over all neurons; dimensionless.

    It is the root mean square of |Δw_i|/|w_i|, or the relative change of the mean gradient if that is larger.
    """
    largest = 0.0
    for i in range(G.shape[0]):
        moved = np.sqrt(levels[0, i] + product(G, i, G, i) / vectors[1][i])
        largest = max(largest, rate * max(moved, fastest_rate(i, 0.0, vectors, squares)))
    return largest


@kernel
def choose_span(
    remaining: int, rate: float, settings: Settings, G: Matrix, levels: Matrix, vectors: Vectors,
    squares: Vector
) -> int:  # fmt: skip
    """Return how many steps of SGD, 1 to `remaining`, the next diffusion step takes.

    `rate` is the learning rate now, G (m, D) the mean gradient, `levels` (2, m) the noise of one step as
    `write_covariance` left it. The span keeps the relative variance that noise gives a neuron, and the relative change
    of its drift, below the two tolerances in `settings`.
    """
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
    """Take half of the mean movement of a span, w ← w − ½ E_1 G(w − share E_1 G(w)).

    E_1 = `total` is Σ η over the span.  G (m, D) is the mean gradient at W (m, D) before the call; both are
    overwritten, G by the one at the shifted weights.
    """
    write_mean_gradient(W - share * total * G, vectors, squares, G)
    W -= 0.5 * total * G


@kernel
def write_triangle(W: Matrix, rows: Matrix) -> None:
    """Write to the last m axes of W (m, D) the lower-triangular matrix that has the inner products of `rows` (m, axes).

    `rows` is overwritten.
    """
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
    """Add to W (m, D) noise of covariance E_2 C on the visible axes and E_2 K on each of the s other axes, E_2 = Σ η².

    `total` is E_2 over the span; C (m D, m D) and K (m, m) are covariances per η², and are overwritten by their
    Cholesky factors. The axes that are new are turned into the last m visible ones: the rows gain A T with A Aᵀ = E_2 K
    and T (m, min(m, s)) lower-trapezoidal, chi(s − j) numbers on its diagonal, from `gammas`, and N(0, 1) numbers below
    it, from `normals` behind the m D of the visible axes.
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
    """Return the sums of η and of η² over `count` steps of a span, from its step `first` on."""
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
    """Take one diffusion step of the run with number `seed`, and return how many steps of SGD it stands for.

    That number is chosen from the present mean gradient and noise (`choose_span`), and halved while learning rates in
    the span rise by more than `LARGEST_RISE`. Half of the mean motion comes first, then noise with the covariance
    there, and then the other half. Weights, levels and tallies of the run in `runs` change in place; `draws` holds its
    random numbers, `span` the learning rates.
    """
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
    """Take diffusion steps of the runs in `seeds` until their span or their block of random numbers ends.

    The arrays of `runs` are overwritten. A run whose squared norms exceed the cap in `law` gets weights NaN and stops.
    """
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


#: Links that are no polynomials are cut here at the latest: the tails of longer series are not theirs.
SERIES_DEGREE = 20
LARGEST_NOISE_RATIO = 1.5
# Trapezoid rule for averages over the link itself.
GRID_REACH, GRID_POINTS = 12.0, 6145


class StepLaws:
    """The laws of one step for one problem and batch size: `series` is simulated, `free_axes` are not visible."""

    def __init__(self, problem: Problem, batch_size: int) -> None:
        """Cut the link at a series, and read the numbers of the teacher, label noise and batch from a problem."""
        rows = problem.teacher.directions
        self.series: Series = series_of(problem.activation)
        self.link: Link = link_tables(self.series.coefficients)
        self.free_axes: int = problem.dimension - problem.teacher.span - problem.width
        self._teacher: Array = np.eye(problem.num_directions) if rows is None else np.array(rows)
        self._a, self._m = problem.teacher.coefficients, problem.width
        self._noise, self._batch = problem.label_noise, float(batch_size)

    def law(self, drift_tolerance: float, noise_tolerance: float, cap: float) -> Law:
        """Return the arguments that kernels take together; squared norms may grow to `cap`."""
        return self.link, (drift_tolerance, noise_tolerance, self._noise, self._batch, float(self.free_axes), cap)

    def scratch(self) -> Scratch:
        """Return the memory of a thread, with the teacher's part of all vectors filled in."""
        m, (P, r), rows = self._m, self._teacher.shape, self.link[1].shape[0]
        M, D = m + P, r + m
        V, w, Q = np.zeros((M, D)), np.zeros(M), np.eye(M)
        V[m:, :r], w[m:], Q[m:, m:] = self._teacher, -self._a, self._teacher @ self._teacher.T
        np.fill_diagonal(Q, 1.0)
        shapes = (rows, M), (4, M), (rows, M, M), (rows, M, M), (5, M), (M, M), (2, rows)
        bench: Any = tuple(np.zeros(shape) for shape in shapes)
        return (V, w, np.zeros(m), Q), bench, (np.empty((m, D)), np.zeros((m * D, m * D)), np.empty((m, m)))


class Series(NamedTuple):
    """Hermite coefficients that are simulated, a phrase that names the link, and their noise over that of the link."""

    coefficients: Array
    name: str
    noise_ratio: float


def series_of(expansion: HermiteExpansion) -> Series:
    """Return a polynomial unchanged, and for any other link the Hermite series whose noise is closest to the link's.

    The noise ratio is that of the moment E σ⁴, E σ'⁴, E σ²σ'² or E σ² E σ'² that differs most from that of the link.
    """
    if expansion.is_polynomial:
        return Series(np.array(expansion.link_coefficients()), f"{expansion.name} (polynomial)", 1.0)
    z = np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
    weight = np.exp(-0.5 * z**2)
    wanted = _noise(expansion.value(z), expansion.derivative(z), weight)
    best = None
    for order in range(1, min(expansion.order, SERIES_DEGREE) + 1):
        c = np.array(expansion.coefficients[: order + 1], dtype=np.float64)
        if not c[1:].any():
            continue
        ratios = _noise(polynomials.series_value(c, z), polynomials.series_derivative(c, z), weight) / wanted
        ratio = float(ratios[np.argmax(np.abs(np.log(ratios)))])
        if best is None or abs(np.log(ratio)) < abs(np.log(best.noise_ratio)):
            best = Series(c, f"{expansion.name} (Hermite series to order {order})", ratio)
    if best is None or not 1.0 / LARGEST_NOISE_RATIO < best.noise_ratio < LARGEST_NOISE_RATIO:
        ratio = 0.0 if best is None else best.noise_ratio
        refuse(
            f"Argument `engine` must be 'projected' for {expansion.name}, whose Hermite series have {ratio:.2g} times "
            "its noise at best, but is 'diffusion'."
        )
    return best


def _noise(value: Array, slope: Array, weight: Array) -> Array:
    """Return the moments E σ⁴, E σ'⁴, E σ²σ'² and E σ² E σ'², (4,), given values, slopes and weights of grid points."""
    total = weight.sum()
    means = [float(weight @ product) / total for product in (value**4, slope**4, (value * slope) ** 2)]
    return np.array([*means, float(weight @ value**2) * float(weight @ slope**2) / total**2])


def link_tables(coefficients: Array) -> Link:
    """Return what kernels need of a link with Hermite coefficients c_0 … c_K, as five arrays.

    They are c_j² (K + 1,); the table c_(e+n) sqrt(binom(e+n, e)), (K + 3, K + 1), row e and column n; √j for j up to K
    + 3; and the nodes (y_1, y_2, weight), one per row, of Gauss-Hermite rules in one dimension (y_2 = 0) and in two.
    """
    c = np.trim_zeros(coefficients, "b")
    K = c.size - 1
    table = np.zeros((K + 3, K + 1))
    for e in range(K + 1):
        binomial = 1.0
        for n in range(K + 1 - e):
            table[e, n] = c[e + n] * np.sqrt(binomial)
            binomial *= (e + n + 1) / (n + 1)
    y, weight = np.polynomial.hermite_e.hermegauss(2 * K + 2)
    weight /= weight.sum()
    single = np.stack([y, np.zeros_like(y), weight], axis=1)
    double = np.stack([np.repeat(y, y.size), np.tile(y, y.size), np.outer(weight, weight).ravel()], axis=1)
    if not c[::2].any() or not c[1::2].any():
        # All that is averaged is even in x then, so that half of the nodes will do.
        single, double = (nodes[nodes[:, 0] > 0] * [1.0, 1.0, 2.0] for nodes in (single, double))
    return c**2, table, np.sqrt(np.arange(K + 4.0)), np.ascontiguousarray(single), np.ascontiguousarray(double)


def excess_kurtosis(problem: Problem, batch_size: int) -> float:
    """Return the excess kurtosis of the noise of one step on one axis, while the student is orthogonal to the teacher.

    Error, neuron and axis are independent then: (3 E[e⁴] E[σ'⁴]/(E[e²] E[σ'²])² − 3)/B, for independent directions.
    """
    c = np.trim_zeros(series_of(problem.activation).coefficients, "b")
    y, weight = np.polynomial.hermite_e.hermegauss(2 * c.size)
    weight /= weight.sum()
    value, slope = polynomials.series_value(c, y), polynomials.series_derivative(c, y)
    second, third, fourth = (float(weight @ (value - c[0]) ** n) for n in (2, 3, 4))
    a = problem.teacher.coefficients
    mean, variance, noise = c[0] * float(a.sum()), second * float(np.sum(a**2)), problem.label_noise**2
    centred = (fourth - 3.0 * second**2) * float(np.sum(a**4)) + 3.0 * variance**2
    target = centred + 4.0 * mean * third * float(np.sum(a**3)) + 6.0 * mean**2 * variance + mean**4
    square = variance + mean**2
    error = (target + 6.0 * square * noise + 3.0 * noise**2) / (square + noise) ** 2
    return float(3.0 * error * (weight @ slope**4) / (weight @ slope**2) ** 2 - 3.0) / batch_size


DRIFT_TOLERANCE = 0.2
NOISE_TOLERANCE = 4e-3
SMALL_STEP = 0.02
TAIL_SHARE = 0.02
VISIBLE_NOISE = 0.1
MOST_NEURONS = 4
# Number of visible coordinates, m (r + m), up to which a diffusion step takes about two milliseconds.
MOST_COORDINATES = 128
# Random numbers are drawn for so many diffusion steps at a time.
BLOCK_STEPS = 128
# A run whose squared norms exceed this many times the weight of teacher and start is not followed any further.
BLOW_UP_FACTOR = 1e4


def make_engine(problem: Problem, options: EngineOptions) -> DiffusionEngine | FrameDiffusion:
    """Return the diffusion of a problem's student."""
    return (FrameDiffusion if is_frame(problem) else DiffusionEngine)(problem, options)


class DiffusionEngine(SeededRuns, SpanEngine):
    """A batch of diffusions, one per seed and its two generators."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        """Put the weights of all runs at their start, and allocate the random numbers of `BLOCK_STEPS` diffusion steps.

        Weights are (seeds, m, r + m), on the r axes of the teacher and on m that hold the rest of all neurons. Normal
        numbers are for the noise on these axes and for what the neurons share beyond them, gamma numbers for lengths
        there. `_left` counts the steps of SGD that are left of a span, `_used` the diffusion steps whose random numbers
        are spent, and `_levels` and `_tally` are what the runs record about their noise. ValueError is raised for
        problems that are too large.
        """
        _check_size(problem)
        m, span, count = problem.width, problem.teacher.span, len(options.seeds)
        self._span, self._directions = span, problem.teacher.directions
        self._laws = StepLaws(problem, options.batch_size)
        self._kurtosis = excess_kurtosis(problem, options.batch_size)
        start, series = np.ascontiguousarray(reduced_factor(problem.reduced_weights(), span).T), self._laws.series
        super().__init__(options.seeds, {"weights": start}, (AXES, LENGTHS), series.name)
        self._weights = self._state["weights"]
        weight = float(np.sum(problem.teacher.coefficients) + np.sum(start**2))
        self._law = self._laws.law(DRIFT_TOLERANCE, NOISE_TOLERANCE, BLOW_UP_FACTOR * weight)
        new_axes = min(m, self._laws.free_axes)
        # chi(s − b) is the root of twice a gamma variable of shape (s − b)/2.
        self._shapes = 0.5 * (self._laws.free_axes - np.arange(new_axes, dtype=np.float64))
        below = sum(min(b, new_axes) for b in range(m))
        self._normals = np.empty((count, BLOCK_STEPS, m * (span + m) + below))
        self._gammas = np.empty((count, BLOCK_STEPS, new_axes))
        self._left = np.zeros(count, dtype=np.int64)
        self._used = np.full(count, BLOCK_STEPS, dtype=np.int64)
        self._levels = np.full((count, 2, m), -1.0)
        self._tally = np.zeros((count, 2))
        self._steps, self._stopped = 0, False
        self._scratches = [self._laws.scratch() for _ in range(self._threads.count)]
        self.attributes |= {"link_noise_ratio": series.noise_ratio, "noise_kurtosis": self._kurtosis}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context in which the seeds share threads; they end with it, and `attributes` is complete."""
        self._stopped = False
        with self._threads.running():
            try:
                yield
            finally:
                self._stopped = True
                self._write_attributes()

    def caution(self, peak_rate: float, steps: int) -> str | None:
        """Return one sentence if runs at this learning rate differ from SGD, None if they do not.

        That is so if a step changes the start by more than `SMALL_STEP` of itself, if the steps are too few for the
        kurtosis of the noise to average out, or if the series that stands for the link has noise of another variance.
        """
        levels = np.empty_like(self._levels[0])
        ratio = peak_rate * float(write_step_law(self._weights[0], self._law, self._scratches[0], levels))
        if ratio > SMALL_STEP:
            return (
                f"A step at learning rate {peak_rate:.3g} changes the start by {ratio:.2g} of itself, more than the "
                f"{SMALL_STEP:g} up to which SGD is a diffusion, so use engine 'projected' or a smaller learning rate."
            )
        if self._kurtosis > TAIL_SHARE * steps:
            return (
                f"The noise of a step has kurtosis {self._kurtosis:.2g} here, so {steps} steps are fewer than the "
                f"{self._kurtosis / TAIL_SHARE:.2g} from which on SGD is a diffusion; the exact engine is 'projected'."
            )
        series = self._laws.series
        if abs(series.noise_ratio - 1.0) > VISIBLE_NOISE:
            return (
                f"What is simulated is {series.name}, some of whose noise has {series.noise_ratio:.2g} times the "
                "variance of the link's, so use engine 'projected' for the link itself."
            )
        return None

    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take all runs through `steps` steps of SGD; return False if they were stopped before the end.

        `rates` is one learning rate or an array (steps,); `given_up` is asked between steps whether to stop.
        """
        active = np.flatnonzero(self._running)
        self._left[active] = steps
        if isinstance(rates, float):
            span = (steps, rates, np.empty((2, 0)))
        else:
            span = (steps, 0.0, np.cumsum(np.pad([rates, rates**2], ((0, 0), (1, 0))), axis=1))
        count = self._threads.active_count
        shares = [(active[k::count].copy(), self._scratches[k]) for k in range(count)]
        ended = all(self._threads.map(lambda share: self._advance_seeds(*share, span, given_up), shares))
        self._steps += steps
        self._running[active] &= np.isfinite(self._weights[active, 0, 0])
        return ended

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps of all runs in float64; with `student` also those among the neurons."""
        return measured(self._weights, self._span, self._directions, student=student)

    def _advance_seeds(self, seeds: Integers, scratch: Scratch, span: Span, given_up: Callable[[], bool]) -> bool:
        """Take the runs `seeds` to the end of their span on one thread; return False if they were stopped before."""
        runs = (self._weights, self._left, self._used, self._levels, self._tally)
        pending = seeds
        while pending.size:
            if self._stopped or given_up():
                return False
            for seed in pending[self._used[pending] == BLOCK_STEPS].tolist():
                self._draw(seed)
            take_diffusion_steps(pending, runs, (self._normals, self._gammas), span, self._law, scratch)
            pending = pending[self._left[pending] > 0]
        return True

    def _draw(self, seed: int) -> None:
        """Draw the normal and gamma numbers of the next `BLOCK_STEPS` diffusion steps of one run."""
        axes, lengths = self._generators[seed]
        axes.standard_normal(out=self._normals[seed])
        if self._shapes.size:
            lengths.standard_gamma(self._shapes, out=self._gammas[seed])
        self._used[seed] = 0

    def _write_attributes(self) -> None:
        """Write to `attributes` the size of the largest step, whether steps were small, and their number."""
        ratios, tail = self._tally[:, 0], self._kurtosis / max(self._steps, 1)
        failed, changed = int(np.sum(ratios > SMALL_STEP)), "a step changed weights or gradients by over"
        reasons = [f"{changed} {SMALL_STEP:g} of themselves in {failed} runs"] if failed else []
        if tail > TAIL_SHARE:
            reasons.append(f"the noise of all steps together still has kurtosis {tail:.2g}")
        self.attributes["small_step_ratio"] = float(ratios.max())
        self.attributes["small_steps"] = f"fails: {' and '.join(reasons)}" if reasons else "holds"
        self.attributes["diffusion_steps"] = int(self._tally[:, 1].sum())


def _check_size(problem: Problem) -> None:
    """Refuse problems that the projected engine simulates faster, or that have too few dimensions."""
    m, d, axes = problem.width, problem.dimension, problem.teacher.span + problem.width
    require(
        m <= MOST_NEURONS,
        f"Argument `engine` must be 'projected' for more than {MOST_NEURONS} neurons, but is 'diffusion' with width "
        f"{m}.",
    )
    require(
        m * axes <= MOST_COORDINATES,
        f"Argument `engine` must be 'projected' where width · (width + teacher axes) exceeds {MOST_COORDINATES}, but "
        f"is 'diffusion' with {m * axes}.",
    )
    require(
        d >= axes,
        f"Argument `engine` must be 'torch' for a dimension below width + teacher axes = {axes}, but is 'diffusion' "
        f"with dimension {d}.",
    )


#: Largest 4 a_1 h of a step of the diffusion.
LARGEST_GROWTH = 0.04


class FrameDiffusion(SeededRuns, SpanEngine):
    """A batch of diffusions of a frame, one per seed and generator."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        """Put the overlaps (m, P) of all runs' orthonormal neurons with the directions at their start.

        The largest learning rate at which some direction aligns is kept as the limit.
        """
        self._a, self._noise, self._width = problem.teacher.coefficients, problem.label_noise, problem.width
        self._n, self._dimension = float(problem.start().squared_norm[0]), problem.dimension
        self._limit = float(rate_limits(problem).max())
        start = problem.reduced_weights()[:, : problem.num_directions] / np.sqrt(self._n)
        super().__init__(options.seeds, {"overlap": start}, (AXES,), problem.activation.name)
        self.attributes |= {"threads": 1, "diffusion_steps": 0}
        del self.attributes["numba_version"]

    def running(self) -> AbstractContextManager[None]:
        """Return a context that holds BLAS to one thread: the matrices are small."""
        return one_blas_thread()

    def caution(self, peak_rate: float, steps: int) -> str | None:  # noqa: ARG002
        """Raise ValueError for learning rates at which the frame does not diffuse; return None."""
        require(
            peak_rate < self._limit,
            f"Argument `learning_rate` must be below {self._limit:.4g}, above which noise keeps the neurons from every "
            f"direction and frames are no diffusion, but is {peak_rate:.4g}; use engine 'projected'.",
        )
        return None

    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take all runs through the time of `steps` steps of SGD; return False if they were stopped before the end.

        `rates` is one learning rate or an array (steps,), which is replaced by its mean over time, Σ η²/Σ η. `given_up`
        is asked between steps of the diffusion whether to stop.
        """
        if isinstance(rates, float):
            time, rate = steps * rates, rates
        else:
            time = float(np.sum(rates))
            rate = float(np.dot(rates, rates)) / time
        # Never finer than SGD itself.
        count = min(int(np.ceil(4.0 * self._a.max() * time / LARGEST_GROWTH)), steps)
        for _ in range(count):
            if given_up():
                return False
            self._step(time / count, rate)
        self.attributes["diffusion_steps"] = int(self.attributes["diffusion_steps"]) + count
        return True

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64; those among the neurons are given by the frame."""
        overlap = self._state["overlap"].copy()
        gram = np.repeat(np.eye(self._width)[None], len(overlap), axis=0) if student else None
        return Measurement(overlap, gram, np.where(np.isnan(overlap[:, :, 0]), np.nan, self._n))

    def _step(self, wait: float, rate: float) -> None:
        """Move the overlaps M (runs, m, P) of all runs by one step of the diffusion, in place.

        The step has length `wait` in the time t = Σ η, at the learning rate η = `rate`. The drift is that at the
        midpoint of the step, and the noise √(2 η t) D^½ Z (I − MᵀM)^½ that at its start, with Z (m, P) standard normal
        and D the matrix that `_drift_and_noise` returns. Singular values of M above 1 are then set to 1.
        """
        M = self._state["overlap"]
        drift, noise = self._drift_and_noise(M, rate)
        middle, _ = self._drift_and_noise(M + 0.5 * wait * drift, rate)
        values, vectors = np.linalg.eigh(noise)
        half = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None]) @ vectors.transpose(0, 2, 1)
        drawn = np.stack([stream.standard_normal(M.shape[1:]) for (stream,) in self._generators])
        M[:] = _bounded(M + wait * middle + np.sqrt(2.0 * rate * wait) * half @ _within(drawn, M))

    def _drift_and_noise(self, M: Array, rate: float) -> tuple[Array, Array]:
        """Return the drift (runs, m, P) of the overlaps M per unit of time, and the matrix D (runs, m, m) of the noise.

        Over a time t at η = `rate`, the noise has covariance 2 η t D between neurons and I − MᵀM between directions.
        """
        a, n, transposed = self._a, self._n, M.transpose(0, 2, 1)
        S, identity = (M * a) @ transposed, np.eye(self._width)
        square = n**2 * self._width - 2.0 * n * np.trace(S, axis1=1, axis2=2) + np.sum(a**2) + self._noise**2
        D = square[:, None, None] * identity + 4.0 * (n**2 * identity - 2.0 * n * S + (M * a**2) @ transposed)
        drift = 2.0 * (M * a - S @ M) - rate * (self._dimension - self._width) * D @ M
        return drift, D


def _within(drawn: Array, M: Array) -> Array:
    """Return drawn (I − MᵀM)^(1/2) for each run, by the eigenvalues of M Mᵀ; both arrays are (runs, m, P)."""
    values, vectors = np.linalg.eigh(M @ M.transpose(0, 2, 1))
    factor = -1.0 / (1.0 + np.sqrt(np.clip(1.0 - values, 0.0, None)))
    along = vectors.transpose(0, 2, 1) @ M
    return np.asarray(drawn + ((drawn @ along.transpose(0, 2, 1)) * factor[:, None]) @ along)


def _bounded(M: Array) -> Array:
    """Return M (runs, m, P) with singular values above 1 set to 1."""
    values, vectors = np.linalg.eigh(M @ M.transpose(0, 2, 1))
    scale = 1.0 / np.sqrt(np.maximum(values, 1.0))
    return np.asarray((vectors * scale[:, None]) @ (vectors.transpose(0, 2, 1) @ M))
