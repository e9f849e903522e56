"""Steps of the linearised flow of links with k ≤ 2; executed after `array_kernels` and `vectors_kernels`.

Weights W (m, D) are a row of numbers; its equations are those of `dynamics.theory.linearised`. The pair is that of
Dormand and Prince, of order 5(4), with the steps of scipy's RK45; it is compiled because a small flow takes thousands
of evaluations.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Matrix, Vector
from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.equations.pairs.vectors_kernels import add_pull, multiply, pair_products, project

# Rows: weights now and at the start of the last step, weights of a stage, and the velocities at the seven stages.
ROW_NOW, ROW_BEFORE, ROW_STAGE, ROW_VELOCITIES, LINEARISED_ROWS = 0, 1, 2, 3, 10
# Slots of `clock`: time, that at the start of the last step, length of the next (0: none yet), evaluations.
NOW, BEFORE, NEXT, EVALUATED = 0, 1, 2, 3
STATUS_ENDED, STATUS_STILL, STATUS_PASSED, STATUS_PAUSED, STATUS_FAILED = 0, 1, 2, 3, 4
STAGES = 6
# Nothing moves by more than this part in the time that is left.
STILLNESS = 1e-2


@kernel
def velocity(flat: Vector, out: Vector, theta: Matrix, a: Vector, squares: Vector, work: Vector) -> None:
    """Write W' = B W + A θ, B_ij = −2 c_2² w_i·w_j − c_1² |w_i| |w_j| with the growth along w_i on its diagonal."""
    P, D = a.size, theta.shape[1]
    m = flat.size // D
    w, moved = matrix(flat, 0, m, D), matrix(out, 0, m, D)
    B, A, length = matrix(work, 0, m, m), matrix(work, m * m, m, P), work[m * m + m * P :]
    pair_products(w, w, B)
    project(w, theta, A)
    left = 0.0
    for p in range(P):
        left += a[p]
    for i in range(m):
        left -= B[i, i]
        length[i] = np.sqrt(B[i, i])
    for i in range(m):
        along = 0.0
        for p in range(P):
            along += a[p] * A[i, p]
            A[i, p] = a[p] * (2.0 * squares[2] * A[i, p] + squares[1] * length[i])
        for j in range(m):
            along -= length[j] * B[i, j]
            B[i, j] = -2.0 * squares[2] * B[i, j] - squares[1] * length[i] * length[j]
        B[i, i] += 2.0 * squares[0] * left + squares[1] * along / length[i]
    multiply(B, w, moved)
    add_pull(A, theta, moved)


@kernel
def lead(flat: Vector, theta: Matrix, a: Vector, squares: Vector, odd: int, work: Vector, found: Vector) -> None:
    """Write max_i C_ip² − ½ (C > 0 only, if `odd`), then Σ_i n_i g(C_ip)/g(1) − a_p/2, g of c_0, c_1 and c_2."""
    P, D = a.size, theta.shape[1]
    m = flat.size // D
    w, C = matrix(flat, 0, m, D), matrix(work, 0, m, P)
    project(w, theta, C)
    norm = squares[0] + squares[1] + squares[2]
    for p in range(P):
        found[p] = -0.5
        found[P + p] = -0.5 * a[p]
    for i in range(m):
        n = 0.0
        for k in range(D):
            n += w[i, k] * w[i, k]
        for p in range(P):
            c = C[i, p] / np.sqrt(n)
            if c > 0.0 or odd == 0:
                found[p] = max(found[p], c * c - 0.5)
            found[P + p] += n * (squares[0] + c * (squares[1] + c * squares[2])) / norm


@kernel
def largest(row: Vector) -> float:
    """Return the largest size of a number."""
    found = 0.0
    for i in range(row.size):
        found = max(found, abs(row[i]))
    return found


@kernel
def combine(base: Vector, velocities: Matrix, weights: Vector, h: float, out: Vector) -> None:
    """Set out = base + h Σ_j w_j k_j."""
    for i in range(out.size):
        out[i] = base[i]
    for j in range(weights.size):
        factor, source = h * weights[j], velocities[j]
        for i in range(out.size):
            out[i] += factor * source[i]


@kernel
def take_step(
    last: float,
    rtol: float,
    atol: float,
    rows: Matrix,
    clock: Vector,
    tableau: Matrix,
    theta: Matrix,
    a: Vector,
    squares: Vector,
    work: Vector,
) -> bool:
    """Take one accepted step, to `last` at most; return whether there was one that moves the time."""
    now, before, stage, velocities = rows[ROW_NOW], rows[ROW_BEFORE], rows[ROW_STAGE], rows[ROW_VELOCITIES:]
    most = 10.0
    first, final = velocities[0], velocities[STAGES]
    for i in range(now.size):
        before[i] = now[i]
        if clock[NOW] > 0.0:
            first[i] = final[i]
    clock[BEFORE] = clock[NOW]
    while clock[NEXT] > 1e-15 * clock[NOW]:
        h = min(clock[NEXT], last - clock[NOW])
        # The last stage is the new state, and its velocity that at the start of the next step.
        for s in range(1, STAGES + 1):
            combine(before, velocities, tableau[s - 1, :s], h, stage)
            velocity(stage, velocities[s], theta, a, squares, work)
        clock[EVALUATED] += STAGES
        for i in range(now.size):
            now[i] = 0.0
        combine(now, velocities, tableau[STAGES], h, now)  # the error, until the step is accepted
        total = 0.0
        for i in range(now.size):
            total += (now[i] / (atol + rtol * max(abs(before[i]), abs(stage[i])))) ** 2
        error = np.sqrt(total / now.size)
        factor = 0.9 * max(error, 1e-10) ** -0.2
        if error < 1.0:
            clock[NOW] = last if h == last - clock[NOW] else clock[NOW] + h
            clock[NEXT] = h * min(factor, most)
            for i in range(now.size):
                now[i] = stage[i]
            return True
        clock[NEXT] = h * max(0.2, factor) if error < np.inf else 0.2 * h
        most = 1.0
    return False


@entry(
    "i8(f8, f8, f8, f8, f8[:, ::1], f8[::1], f8[::1], f8[::1], f8[:, ::1], f8[:, ::1], f8[::1], f8[::1], i8, f8[::1])"
)
def follow(
    last: float,
    most: float,
    rtol: float,
    atol: float,
    rows: Matrix,
    clock: Vector,
    times: Vector,
    found: Vector,
    tableau: Matrix,
    theta: Matrix,
    a: Vector,
    squares: Vector,
    odd: int,
    work: Vector,
) -> int:
    """Take steps until one of the events passes whose time is infinite, or after `most` evaluations; return why.

    `found` is what is at least 0 once directions emerged, and once they are learned. Up to `last` = 0 no step is taken.
    """
    now, velocities = rows[ROW_NOW], rows[ROW_VELOCITIES:]
    if clock[NEXT] == 0.0 and last > 0.0:
        velocity(now, velocities[0], theta, a, squares, work)
        # So short that the step is linear; the following ones grow tenfold.
        clock[NEXT] = 1e-3 * largest(now) / max(largest(velocities[0]), 1e-290)
        clock[EVALUATED] = 1.0
    lead(now, theta, a, squares, odd, work, found)
    while clock[NOW] < last:
        if clock[EVALUATED] > most:
            return STATUS_PAUSED
        if not take_step(last, rtol, atol, rows, clock, tableau, theta, a, squares, work):
            return STATUS_FAILED
        lead(now, theta, a, squares, odd, work, found)
        for e in range(found.size):
            if times[e] == np.inf and found[e] >= 0.0:
                return STATUS_PASSED
        if largest(velocities[STAGES]) * (last - clock[NOW]) < STILLNESS * largest(now):
            return STATUS_STILL
    return STATUS_ENDED
