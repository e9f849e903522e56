"""Compiled passes of the large-flow solver over rows, one row per neuron; executed after `field_kernels` and the tableau.

Responsible for: the partial field (fast sources, active teachers, own clusters), one Runge-Kutta step of a block of
rows with everything it needs in cache.  Must not know how rows are divided, nor when a step is good enough.

A row i is a unit vector u_i in R^D and l_i = ln n_i.  Its field is F_i = Σ_p a_p g'(C_ip) e_p − Σ_{j≠i} n_j g'(G_ij) u_j
with the radial part left out of u' = F − (F·u)/(u·u) u, and its growth is l' = 4 [Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij)].
A neuron's force on itself is radial and therefore never computed.

Integers and numbers that a pass needs travel in `plan`, a tuple of arrays:

    order     (m,)    rows, in the order in which they are visited
    cluster   (m,)    cluster of each row, −1 for none
    source    (m,)    place of each row among the fast sources, −1 for none
    first     (c + 1,) place in `order` at which each cluster begins
    direction (c,)    direction of each cluster
    sign      (m,)    +1 or −1: the pole of its direction at which a row of a cluster sits
    active    (P,)    a_p of the directions without a cluster, 0 for the others
    coefficient (c,)  a_p of each cluster
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.integrators.dop853_tableau import DOP853_C, DOP853_WEIGHTS
    from dynamics.systems.field_kernels import FloatCube, FloatMatrix, FloatVector, IntVector, cube
    from dynamics.systems.link_kernels import g0, g1

# Integers, then numbers, as listed above.
Plan = tuple[
    "IntVector", "IntVector", "IntVector", "IntVector", "IntVector", "FloatVector", "FloatVector", "FloatVector"
]

END = 12  # row of the tableau that gives the step, and the stage at its end


@kernel
def add_cluster(
    rows: IntVector, u: FloatMatrix, l: FloatVector, F: FloatMatrix, growth: FloatVector, c: int, begin: int, plan: Plan
) -> None:
    """Add the forces inside a cluster, whose rows are consecutive from `begin` in the block: teacher and members."""
    first, direction, coefficient = plan[3], plan[4], plan[7]
    p, a = direction[c], coefficient[c]
    count = first[c + 1] - first[c]
    D = u.shape[1]
    for x in range(begin, begin + count):
        F[x, p] += a * g1(u[x, p])
        growth[x] += a * g0(u[x, p])
        for z in range(begin, begin + count):
            if z != x:
                s = 0.0
                for k in range(D):
                    s += u[x, k] * u[z, k]
                n = np.exp(l[z])
                growth[x] -= n * g0(s)
                w = n * g1(s)
                for k in range(D):
                    F[x, k] -= w * u[z, k]


@kernel
def partial_field(
    rows: IntVector,
    u: FloatMatrix,
    l: FloatVector,
    sources: FloatMatrix,
    mass: FloatVector,
    overlap: FloatMatrix,
    F: FloatMatrix,
    growth: FloatVector,
    plan: Plan,
) -> None:
    """Write the field that fast sources, active teachers and the own cluster exert on a block of rows.

    `growth` is Σ a g − Σ n g without the factor 4; a row's own −n_i g(1) is in it.
    """
    cluster, source, first, active = plan[1], plan[2], plan[3], plan[6]
    R, P, S = rows.size, active.size, mass.size
    own = g0(1.0)
    for x in range(R):
        growth[x] = -np.exp(l[x]) * own
    if S > 0:
        np.dot(u, sources.T, overlap)
        for x in range(R):
            skipped = source[rows[x]]
            total = 0.0
            for j in range(S):
                s = overlap[x, j]
                total += mass[j] * g0(s)
                overlap[x, j] = -mass[j] * g1(s)
            if skipped >= 0:
                s = 0.0
                for k in range(u.shape[1]):
                    s += u[x, k] * sources[skipped, k]
                total -= mass[skipped] * g0(s)
                overlap[x, skipped] = 0.0
            growth[x] -= total
        np.dot(overlap, sources, F)
    else:
        for x in range(R):
            for k in range(u.shape[1]):
                F[x, k] = 0.0
    for x in range(R):
        total = 0.0
        for p in range(P):
            s = u[x, p]
            F[x, p] += active[p] * g1(s)
            total += active[p] * g0(s)
        growth[x] += total
    x = 0
    while x < R:
        c = cluster[rows[x]]
        if c >= 0:
            add_cluster(rows, u, l, F, growth, c, x, plan)
            x += first[c + 1] - first[c]
        else:
            x += 1


@kernel
def along(u: FloatVector, v: FloatVector) -> float:
    """Return (u·v)/(u·u)."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * v[k]
        length += u[k] * u[k]
    return product / length


@kernel
def slow_clusters(
    rows: IntVector,
    u: FloatMatrix,
    l: FloatVector,
    du: FloatMatrix,
    dl: FloatVector,
    mean: FloatVector,
    shift: FloatVector,
    pace: FloatMatrix,
    drift: FloatMatrix,
    plan: Plan,
) -> None:
    """Replace the mean velocity of every cluster by θ · mean + (1 − θ) · drift: its only stiff modes.

    `pace` (c, 2) holds θ of the direction and of the norm, `drift` (c, D + 1) the mean velocity over the last step.
    Every row moves tangentially, by T_i x with T_i = 1 − u_i u_iᵀ: with the same shift b for all of them members a
    distance Δ apart would get radial parts of order hλΔ, and at hλΔ ~ 1 direction and norm excite each other. The x
    whose mean Σ n T x / Σ n is b is b + Σ n u (u·b) / Σ n up to fourth order in Δ.
    """
    cluster, first, sign = plan[1], plan[3], plan[5]
    D = du.shape[1]
    x = 0
    while x < rows.size:
        c = cluster[rows[x]]
        if c < 0:
            x += 1
            continue
        end = x + first[c + 1] - first[c]
        held, held_norm = 1.0 - pace[c, 0], 1.0 - pace[c, 1]
        if held <= 0.0 and held_norm <= 0.0:
            x = end
            continue
        total = mean_growth = 0.0
        for k in range(D):
            mean[k] = 0.0
        for z in range(x, end):
            n = np.exp(l[z])
            total += n
            mean_growth += n * dl[z]
            w = n * sign[rows[z]]
            for k in range(D):
                mean[k] += w * du[z, k]
        for k in range(D):
            mean[k] = held * (mean[k] / total - drift[c, k])
            shift[k] = mean[k]
        if end - x > 1:
            for z in range(x, end):
                w = np.exp(l[z]) / total * along(u[z], mean)
                for k in range(D):
                    shift[k] += w * u[z, k]
        for z in range(x, end):
            dl[z] -= held_norm * (mean_growth / total - drift[c, D])
            w = along(u[z], shift)
            for k in range(D):
                du[z, k] -= sign[rows[z]] * (shift[k] - w * u[z, k])
        x = end


@kernel
def combine(base: FloatVector, stages: FloatCube, x: int, weights: FloatVector, h: float, out: FloatVector) -> None:
    """Set out = base + h Σ_s w_s k_s for one row."""
    D = out.size
    for k in range(D):
        out[k] = base[k]
    for s in range(weights.size):
        w = h * weights[s]
        if w != 0.0:
            for k in range(D):
                out[k] += w * stages[s, x, k]


@kernel
def combine_number(stages: FloatMatrix, x: int, weights: FloatVector, h: float) -> float:
    """Return h Σ_s w_s k_s for the number of one row."""
    total = 0.0
    for s in range(weights.size):
        if weights[s] != 0.0:
            total += weights[s] * stages[s, x]
    return h * total


@kernel
def row_error(
    y: FloatVector,
    new: FloatVector,
    stages: FloatCube,
    growth_stages: FloatMatrix,
    x: int,
    h: float,
    e5: FloatVector,
    e3: FloatVector,
    tolerance: FloatVector,
) -> float:
    """Return the error of one row in units of the tolerance: root mean square over its D + 1 numbers."""
    D = y.size
    for k in range(D):
        e5[k] = 0.0
        e3[k] = 0.0
    for s in range(END):
        w5, w3 = DOP853_WEIGHTS[16, s], DOP853_WEIGHTS[17, s]
        if w5 != 0.0 or w3 != 0.0:
            for k in range(D):
                e5[k] += w5 * stages[s, x, k]
                e3[k] += w3 * stages[s, x, k]
    atol, rtol, atol_norm = tolerance[0], tolerance[1], tolerance[2]
    q5 = (combine_number(growth_stages, x, DOP853_WEIGHTS[16, :END], 1.0) / atol_norm) ** 2
    q3 = (combine_number(growth_stages, x, DOP853_WEIGHTS[17, :END], 1.0) / atol_norm) ** 2
    for k in range(D):
        scale = 1.0 / (atol + rtol * max(abs(y[k]), abs(new[k])))
        q5 += (e5[k] * scale) ** 2
        q3 += (e3[k] * scale) ** 2
    total = q5 + 0.01 * q3
    if not total < np.inf:
        return np.inf
    return abs(h) * q5 / np.sqrt(total * (D + 1.0)) if total > 0.0 else 0.0


@kernel
def add_lag(i: int, tau: float, lag: FloatCube, out: FloatVector) -> None:
    """Add Σ_q lag_q τ^q of row i: one pass per power, since a loop over powers inside would not be vectorised."""
    power = 1.0
    for q in range(lag.shape[0]):
        for k in range(out.size):
            out[k] += power * lag[q, i, k]
        power *= tau


@kernel
def lag_number(i: int, tau: float, lag_growth: FloatMatrix) -> float:
    """Return Σ_q lag_q τ^q of the growth of row i."""
    total = 0.0
    power = 1.0
    for q in range(lag_growth.shape[0]):
        total += power * lag_growth[q, i]
        power *= tau
    return total


@kernel
def project(force: FloatVector, u: FloatVector, velocity: FloatVector) -> None:
    """Write u' = F − (F·u)/(u·u) u."""
    radial = length = 0.0
    for k in range(u.size):
        radial += force[k] * u[k]
        length += u[k] * u[k]
    radial /= length
    for k in range(u.size):
        velocity[k] = force[k] - radial * u[k]


@kernel
def step_block(
    rows: IntVector,
    last_stage: int,
    is_source: bool,
    h: float,
    U: FloatMatrix,
    l: FloatVector,
    lag: FloatCube,
    lag_growth: FloatMatrix,
    sources: FloatCube,
    mass: FloatMatrix,
    pace: FloatMatrix,
    drift: FloatMatrix,
    stages: FloatCube,
    growth_stages: FloatMatrix,
    work: FloatVector,
    plan: Plan,
) -> None:
    """Fill the stages of a block of rows."""
    R, D, S = rows.size, U.shape[1], mass.shape[1]
    u, F, overlap = cube(work, 0, 1, R, D)[0], cube(work, R * D, 1, R, D)[0], cube(work, 2 * R * D, 1, R, S)[0]
    o = 2 * R * D + R * S
    mean, shift = work[o : o + D], work[o + D : o + 2 * D]
    o += 2 * D
    logs, growth = work[o : o + R], work[o + R : o + 2 * R]
    for s in range(last_stage + 1):
        for x in range(R):
            i = rows[x]
            combine(U[i], stages, x, DOP853_WEIGHTS[s, :s], h, u[x])
            logs[x] = l[i] + combine_number(growth_stages, x, DOP853_WEIGHTS[s, :s], h)
        if is_source:
            for x in range(R):
                mass[s, x] = np.exp(logs[x])
                for k in range(D):
                    sources[s, x, k] = u[x, k]
        partial_field(rows, u, logs, sources[s], mass[s], overlap, F, growth, plan)
        for x in range(R):
            add_lag(rows[x], h * DOP853_C[s], lag, F[x])
            project(F[x], u[x], stages[s, x])
            growth_stages[s, x] = 4.0 * (growth[x] + lag_number(rows[x], h * DOP853_C[s], lag_growth))
        slow_clusters(rows, u, logs, stages[s], growth_stages[s], mean, shift, pace, drift, plan)


@kernel
def write_dense(
    i: int,
    x: int,
    h: float,
    rise: FloatVector,
    growth_rise: float,
    stages: FloatCube,
    growth_stages: FloatMatrix,
    zero: FloatVector,
    dense: FloatCube,
    dense_growth: FloatMatrix,
) -> None:
    """Write the seven coefficients of the dense output of one row, given how far the step took it."""
    for k in range(rise.size):
        dense[0, i, k] = rise[k]
        dense[1, i, k] = h * stages[0, x, k] - rise[k]
        dense[2, i, k] = 2.0 * rise[k] - h * (stages[END, x, k] + stages[0, x, k])
    dense_growth[0, i] = growth_rise
    dense_growth[1, i] = h * growth_stages[0, x] - growth_rise
    dense_growth[2, i] = 2.0 * growth_rise - h * (growth_stages[END, x] + growth_stages[0, x])
    for q in range(4):
        combine(zero, stages, x, DOP853_WEIGHTS[18 + q], h, dense[3 + q, i])
        dense_growth[3 + q, i] = combine_number(growth_stages, x, DOP853_WEIGHTS[18 + q], h)


@entry(
    "void(i8, i8, i8[::1], i8, b1, b1, f8, f8[:,::1], f8[::1], f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1],"
    " f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[::1], f8[:,:,::1], f8[:,::1], f8[::1],"
    " Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1])))"
)
def step_rows(
    first_block: int,
    last_block: int,
    cuts: IntVector,
    last_stage: int,
    is_source: bool,
    again: bool,
    h: float,
    U: FloatMatrix,
    l: FloatVector,
    lag: FloatCube,
    lag_growth: FloatMatrix,
    sources: FloatCube,
    mass: FloatMatrix,
    pace: FloatMatrix,
    drift: FloatMatrix,
    U_new: FloatMatrix,
    l_new: FloatVector,
    error: FloatVector,
    tolerance: FloatVector,
    dense: FloatCube,
    dense_growth: FloatMatrix,
    work: FloatVector,
    plan: Plan,
) -> None:
    """Take one step of the blocks order[cuts[b]:cuts[b + 1]]; with last_stage = 15 write its dense output as well.

    With `again` the step has been accepted, and its end is left alone.
    With `is_source` the rows are the fast sources themselves and leave their stages in `sources` for all others.
    `lag` (q, m, D) and `lag_growth` (q, m) are the coefficients of the rest of the field as a polynomial in the time
    since the start of the step.
    """
    D = U.shape[1]
    zero, rise, e5, e3 = work[:D], work[D : 2 * D], work[2 * D : 3 * D], work[3 * D : 4 * D]
    for k in range(D):
        zero[k] = 0.0
    for b in range(first_block, last_block):
        rows = plan[0][cuts[b] : cuts[b + 1]]
        R = rows.size
        o = 4 * D + 16 * R * D
        stages, growth_stages = cube(work, 4 * D, 16, R, D), cube(work, o, 1, 16, R)[0]
        step_block(
            rows, last_stage, is_source, h, U, l, lag, lag_growth, sources, mass, pace, drift,
            stages, growth_stages, work[o + 16 * R :], plan,
        )  # fmt: skip
        for x in range(R):
            i = rows[x]
            combine(U[i], stages, x, DOP853_WEIGHTS[END, :END], h, rise)
            growth_rise = combine_number(growth_stages, x, DOP853_WEIGHTS[END, :END], h)
            if not again:
                for k in range(D):
                    U_new[i, k] = rise[k]
                l_new[i] = l[i] + growth_rise
                error[i] = row_error(U[i], rise, stages, growth_stages, x, h, e5, e3, tolerance)
            if last_stage > END:
                for k in range(D):
                    rise[k] -= U[i, k]
                write_dense(i, x, h, rise, growth_rise, stages, growth_stages, zero, dense, dense_growth)


@entry(
    "void(i8, i8, i8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1],"
    " Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1])))"
)
def partial_rows(
    first_block: int,
    last_block: int,
    cuts: IntVector,
    U: FloatMatrix,
    l: FloatVector,
    sources: FloatMatrix,
    mass: FloatVector,
    F: FloatMatrix,
    growth: FloatVector,
    work: FloatVector,
    plan: Plan,
) -> None:
    """Write the partial field at one state for the blocks order[cuts[b]:cuts[b + 1]]."""
    D, S = U.shape[1], mass.size
    for b in range(first_block, last_block):
        rows = plan[0][cuts[b] : cuts[b + 1]]
        R = rows.size
        o = 2 * R * D + R * S
        u, force, overlap = cube(work, 0, 1, R, D)[0], cube(work, R * D, 1, R, D)[0], cube(work, 2 * R * D, 1, R, S)[0]
        logs, total = work[o : o + R], work[o + R : o + 2 * R]
        for x in range(R):
            logs[x] = l[rows[x]]
            for k in range(D):
                u[x, k] = U[rows[x], k]
        partial_field(rows, u, logs, sources, mass, overlap, force, total, plan)
        for x in range(R):
            growth[rows[x]] = total[x]
            for k in range(D):
                F[rows[x], k] = force[x, k]
