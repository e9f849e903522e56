"""Compiled functions of the finite-step equation.

State, events and constraint are those of `dynamics.equations.overlaps_kernels`, whose Jacobian diagonal serves
as it is: it is dominant where the equation is stiff. parameters = [a (P) | T (P, P) | τ, three weights | numbers | data
of the link], sizes = [m, P, orthonormal, sign_matters, place of the link | layout]; `numbers` and `layout` are those of
`dynamics.equations.finite_step`.
"""

import numpy as np

from dynamics.equations.overlaps_kernels import jacobian_product as flow_jacobian_product
from dynamics.equations.overlaps_kernels import rhs as flow_rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.products import product
from dynamics.kernels.views import matrix, vector

#: Place of `layout` in `sizes`.
LAYOUT = 5
#: The relative moments do not change below n = 1e-200, but their parts would underflow.
SMALLEST_LOG_NORM = -460.0
#: A squared norm beyond this multiple of Σ a counts as infinite: from there on (ln n)' ~ η d n² diverges within a time
#: that float64 hardly resolves, and "the state is not finite" says more than "the step is too small".
LARGEST_NORM = 1e4
#: Step of the central difference, about the cube root of the spacing of float64.
DIFFERENCE = 6e-6


@kernel
def add_step_noise(y: Vector, scale: float, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add `scale` times the terms of order η: −½ C H_ii, H_ij − ½ G (H_ii + H_jj), H_ii."""
    m, P = sizes[0], sizes[1]
    mP, mm = m * P, m * m
    C, G = matrix(y, 0, m, P), matrix(y, mP, m, m)
    dC, dG, dl = matrix(out, 0, m, P), matrix(out, mP, m, m), vector(out, mP + mm, m)
    R, teacher_first = matrix(work, 0, m, P), matrix(work, mP, m, P)
    o = 2 * mP
    S, student_first, drift_gram = matrix(work, o, m, m), matrix(work, o + mm, m, m), matrix(work, o + 2 * mm, m, m)
    base, slope, rho = matrix(work, o + 3 * mm, m, m), matrix(work, o + 4 * mm, m, m), vector(work, o + 5 * mm, m)
    for i in range(m):
        rho[i] = np.exp(0.5 * max(y[mP + mm + i], SMALLEST_LOG_NORM))
        for p in range(P):
            R[i, p] = rho[i] * C[i, p]
        for j in range(i):
            S[i, j] = S[j, i] = rho[i] * rho[j] * G[i, j]
        S[i, i] = rho[i] * rho[i]
    at = P + P * P
    of_drift, of_base, of_slope = parameters[at + 1], parameters[at + 2], parameters[at + 3]
    teacher = (vector(parameters, 0, P), matrix(parameters, P, P, P), parameters[at])
    o += 5 * mm + m
    numbers = vector(parameters, at + 4, parameters.size - at - 4)
    tables = (numbers, vector(sizes, LAYOUT, sizes.size - LAYOUT), vector(work, o, work.size - o))
    step_moments((R, S), teacher, tables, (teacher_first, student_first, drift_gram, base, slope))
    H = S
    for i in range(m):
        for j in range(m):
            second = of_drift * drift_gram[i, j] + of_base * base[i, j] + of_slope * slope[i, j]
            H[i, j] = scale * second / (rho[i] * rho[j])
    for i in range(m):
        dl[i] += H[i, i]
        for p in range(P):
            dC[i, p] -= 0.5 * C[i, p] * H[i, i]
        for j in range(i):
            rate = H[i, j] - 0.5 * G[i, j] * (H[i, i] + H[j, j])
            dG[i, j] += rate
            dG[j, i] += rate


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Velocity of the flow and what finite steps add; not-a-number after a blow-up."""
    total = 0.0
    for p in range(sizes[1]):
        total += parameters[p]
    bound = np.log(LARGEST_NORM * total)
    for x in range(y.size - sizes[0], y.size):
        if y[x] > bound:
            for z in range(out.size):
                out[z] = np.nan
            return
    flow_rhs(t, y, out, parameters, sizes, work)
    add_step_noise(y, 1.0, out, parameters, sizes, work)


@kernel
def jacobian_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write the derivative of `rhs` along v: exact for the flow, a central difference for the terms of order η."""
    flow_jacobian_product(t, y, v, out, parameters, sizes, work)
    largest = 0.0
    for x in range(v.size):
        largest = max(largest, abs(v[x]))
    if largest == 0.0:
        return
    epsilon = DIFFERENCE / largest
    beside, rest = vector(work, 0, y.size), vector(work, y.size, work.size - y.size)
    for sign in (1.0, -1.0):
        for x in range(y.size):
            beside[x] = y[x] + sign * epsilon * v[x]
        add_step_noise(beside, sign * 0.5 / epsilon, out, parameters, sizes, rest)


# Compiled functions of the exact one-step moments, derived in `dynamics.equations.finite_step`.
#
# Vectors v_a are the m neurons and then the P directions, M = m + P in number, Q their Gram matrix, w = (n, −a) their
# weights in the error. A row of U, X or Y holds one number per vector a:
#
# U_r(i) = w Q_i^r,   X_rs(i, j) = w Q_i^r Q_j^s (r s > 0),   Y_e,r = Q^(∘e) U_r,   Y_e,rs = Q^(∘e) X_rs.
#
# All of them lie in `work`; a term is the product of two rows, whose places are affine in i, j and m − i. X and the Y
# made of it hold the rows j = i … m − 1 of one i at a time. What the tables `numbers` and `layout` hold, and in which
# place of `layout` each size or offset stands, is said in `dynamics.equations.finite_step`.


#: R (m, P) and S (m, m); a (P,), T (P, P) and τ; `numbers` and `layout` of the tables, and scratch.
State = tuple[Matrix, Matrix]
Teacher = tuple[Vector, Matrix, float]
Tables = tuple[Vector, Integers, Vector]
#: E[ΔR]/η, the part of E[ΔS] of first order, D, and second = base + d · slope.
Parts = tuple[Matrix, Matrix, Matrix, Matrix, Matrix]


@kernel
def write_powers(state: State, teacher: Teacher, layout: Integers, work: Vector, w: Vector, rho: Vector) -> None:
    """Weights w = (S_ii, −a), lengths ρ = √S_ii, and elementwise powers 0 … top of the Gram matrix of all vectors."""
    R, S = state
    a, T, _ = teacher
    m, P, top = layout[0], layout[1], layout[2]
    M = m + P
    power = layout[9]
    for i in range(m):
        w[i] = S[i, i]
        rho[i] = np.sqrt(S[i, i])
    for p in range(P):
        w[m + p] = -a[p]
    Q = matrix(work, power + M * M, M, M)
    for x in range(M * M):
        work[power + x] = 1.0
    for i in range(m):
        for j in range(i):
            Q[i, j] = Q[j, i] = S[i, j] / (rho[i] * rho[j])
        Q[i, i] = 1.0
        for p in range(P):
            Q[i, m + p] = Q[m + p, i] = R[i, p] / rho[i]
    for p in range(P):
        for q in range(P):
            Q[m + p, m + q] = T[p, q]
    for e in range(2, top + 1):
        for x in range(M * M):
            work[power + e * M * M + x] = work[power + (e - 1) * M * M + x] * work[power + M * M + x]


@kernel
def write_drift(tables: Tables, w: Vector, rho: Vector, parts: Parts) -> None:
    """E[e ∇_i] = ρ_i (κ_i u_i + Σ_b N_ib v_b), N = w g'(Q), κ_i = Σ_b (2 w_b g(Q_ib) − N_ib Q_ib), and its products."""
    numbers, layout, work = tables
    teacher_first, student_first, drift_gram, _, _ = parts
    m, P, degree = layout[0], layout[1], layout[3]
    M = m + P
    power, place = layout[9], layout[10]
    Q = matrix(work, power + M * M, M, M)
    N, F = matrix(work, place, m, M), matrix(work, place + m * M, m, M)
    kappa = vector(work, place + 2 * m * M, m)
    for i in range(m):
        kappa[i] = 0.0
        for b in range(M):
            q = Q[i, b]
            value = slope = 0.0
            for j in range(degree, 0, -1):
                value = value * q + numbers[j]
                slope = slope * q + j * numbers[j]
            value = value * q + numbers[0]
            N[i, b] = w[b] * slope
            kappa[i] += 2.0 * w[b] * value - w[b] * slope * q
    product(N, Q, F)
    for i in range(m):
        for b in range(M):
            F[i, b] = rho[i] * (F[i, b] + kappa[i] * Q[i, b])
    product(F, N.T, drift_gram)
    for i in range(m):
        for p in range(P):
            teacher_first[i, p] = -F[i, m + p]
        for j in range(i + 1):
            change = rho[j] * (drift_gram[i, j] + kappa[j] * F[i, j])
            drift_gram[i, j] = drift_gram[j, i] = change
            student_first[i, j] = student_first[j, i] = -(rho[j] * F[i, j] + rho[i] * F[j, i])


@kernel
def contract(e: int, X: Matrix, Q: Matrix, Y: Matrix) -> None:
    """Y = X Q^(∘e); for e = 0 that is the sum of each row, repeated."""
    if e > 0:
        product(X, Q, Y)
        return
    for x in range(X.shape[0]):
        total = 0.0
        for b in range(X.shape[1]):
            total += X[x, b]
        for b in range(X.shape[1]):
            Y[x, b] = total


@kernel
def write_singles(layout: Integers, work: Vector, w: Vector) -> None:
    """U_r(i) for every power, and Y_e,r(i) for the pairs (e, r) that terms use."""
    m, top, count = layout[0], layout[2], layout[4]
    M = m + layout[1]
    power, U, Y = layout[9], layout[11], layout[12]
    for r in range(top + 1):
        for i in range(m):
            row, source = U + (r * m + i) * M, power + (r * M + i) * M
            for b in range(M):
                work[row + b] = w[b] * work[source + b]
    place = layout[15]
    for x in range(count):
        e, r = layout[place + 2 * x], layout[place + 2 * x + 1]
        rows, Q = matrix(work, U + r * m * M, m, M), matrix(work, power + e * M * M, M, M)
        contract(e, rows, Q, matrix(work, Y + x * m * M, m, M))


@kernel
def write_mixed(i: int, layout: Integers, work: Vector) -> None:
    """X_rs(i, j) and Y_e,rs(i, j) for one i and all j ≥ i."""
    m, segments, mixed = layout[0], layout[5], layout[6]
    M = m + layout[1]
    power, U, X, Y = layout[9], layout[11], layout[13], layout[14]
    count = m - i
    place = layout[17]
    for x in range(mixed):
        first = U + (layout[place + 2 * x] * m + i) * M
        second = power + layout[place + 2 * x + 1] * M * M
        for j in range(i, m):
            row, other = X + (x * count + j - i) * M, second + j * M
            for b in range(M):
                work[row + b] = work[first + b] * work[other + b]
    place = layout[16]
    for x in range(segments):
        e, source, rows = layout[place + 4 * x], layout[place + 4 * x + 1], layout[place + 4 * x + 2] * count
        target = layout[place + 4 * x + 3]
        left = matrix(work, X + source * count * M, rows, M)
        Q = matrix(work, power + e * M * M, M, M)
        contract(e, left, Q, matrix(work, Y + target * count * M, rows, M))


@kernel
def pair_moments(i: int, j: int, noise: float, tables: Tables, s: float) -> tuple[float, float]:
    """Sum all terms of one pair: the part of `second` without d, and its slope in d, both divided by ρ_i ρ_j."""
    numbers, layout, work = tables
    m, groups = layout[0], layout[7]
    M = m + layout[1]
    degree = layout[3]
    place, powers, terms = layout[18], layout[19], layout[20]
    coefficients, weights = layout[21], layout[22]
    spans = layout[23]
    for t in range(1, degree + 3):
        work[spans + t] = work[spans + t - 1] * s
    base = slope = 0.0
    for x in range(groups):
        hb = hs = 0.0
        for c in range(layout[place + 2 * x + 1], layout[place + 2 * x + 3]):
            power = work[spans + layout[powers + c]]
            hb += numbers[coefficients + 2 * c] * power
            hs += numbers[coefficients + 2 * c + 1] * power
        alike = mixed = 0.0
        for y in range(layout[place + 2 * x], layout[place + 2 * x + 2]):
            t = terms + 8 * y
            left = layout[t] + (layout[t + 1] * i + layout[t + 2] * j + layout[t + 3] * (m - i)) * M
            right = layout[t + 4] + (layout[t + 5] * i + layout[t + 6] * j + layout[t + 7] * (m - i)) * M
            both = 0.0
            for b in range(M):
                both += work[left + b] * work[right + b]
            alike += numbers[weights + 2 * y] * both
            mixed += numbers[weights + 2 * y + 1] * both
        if x == 0:
            alike += noise * noise
        base += alike * hb + mixed * hs
        slope += alike * hs
    return base, slope


@kernel
def step_moments(state: State, teacher: Teacher, tables: Tables, parts: Parts) -> None:
    """Write E[ΔR]/η, the parts of E[ΔS] of first order, D, and second = base + d · slope, for one sample."""
    _, layout, work = tables
    m, M = layout[0], layout[0] + layout[1]
    w, rho = vector(work, 0, M), vector(work, M, m)
    write_powers(state, teacher, layout, work, w, rho)
    write_drift(tables, w, rho, parts)
    write_singles(layout, work, w)
    work[layout[23]] = 1.0
    Q = matrix(work, layout[9] + M * M, M, M)
    base, slope = parts[3], parts[4]
    for i in range(m):
        write_mixed(i, layout, work)
        for j in range(i, m):
            first, second = pair_moments(i, j, teacher[2], tables, Q[i, j])
            size = rho[i] * rho[j]
            base[i, j] = base[j, i] = size * first
            slope[i, j] = slope[j, i] = size * second


@entry
def write_step_moments(state: State, teacher: Teacher, tables: Tables, parts: Parts) -> None:
    """Write the moments of one state, called from Python; arguments as `step_moments`."""
    step_moments(state, teacher, tables, parts)
