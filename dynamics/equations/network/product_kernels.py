"""The product of the network's Jacobian with a vector.

Every mean is E σ_i^(p) σ_j^(q) =: E_pq of a pair, and dE_pq = E_(p+1)(q+1) dC_ij + E_(p+2)q dC_ii/2 + E_p(q+2) dC_jj/2
+ E_(p+1)q db_i + E_p(q+1) db_j; for a neuron with itself `own_slopes` gives the derivatives in Q_ii and b_i.
"""

from dynamics.equations.network.layout_kernels import (
    AXES,
    DECAY_V,
    DEGREE,
    FORCES_AT,
    FURTHER,
    MEANS_AT,
    MOMENTS,
    PULLS_AT,
    RATE_B,
    RATE_V,
    RATE_W,
    ROW_SIZE,
    ROWS_AT,
    SCALE,
    SCRATCH_AT,
    SPHERE,
    UNITS,
    WIDTH,
    numbers_of_links,
)
from dynamics.equations.network.list_kernels import HEADS
from dynamics.equations.network.network_kernels import rhs, write_gram, write_symmetric
from dynamics.equations.network.pair_kernels import own_slopes, own_values, write_moments
from dynamics.equations.network.teacher_kernels import write_polynomial_changes, write_unit_changes
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import is_stopped, product_until
from dynamics.kernels.views import matrix


@kernel
def write_mean_changes(
    y: Vector, v: Vector, dC: Matrix, dmeans: Matrix, dpulls: Matrix, dA: Matrix,
    parameters: Vector, sizes: Integers, work: Vector,
) -> None:  # fmt: skip
    """Write how the means that `rhs` leaves in `work` change along v."""
    m, r, scale = sizes[WIDTH], sizes[AXES], parameters[SCALE]
    numbers = numbers_of_links(parameters, sizes)
    head = int(numbers[HEADS])
    C = matrix(work, 0, m + r, m + r)
    rows = matrix(work, sizes[ROWS_AT], m + sizes[UNITS], sizes[ROW_SIZE])
    E, slopes = matrix(work, sizes[SCRATCH_AT], 5, 5), matrix(work, sizes[SCRATCH_AT], 4, 2)
    for i in range(m):
        if sizes[UNITS] > 0:
            write_unit_changes(i, v[m + i], C[i], dC[i], rows, parameters, sizes, work, dmeans[i])
        else:
            write_polynomial_changes(i, y[m + i], v[m + i], C[i], dC[i], parameters, sizes, work, dmeans[i])
        weight, dweight, db, dq = scale * y[i], scale * v[i], v[m + i], dC[i, i]
        value, first, square, second = own_values(rows[i], numbers)
        own_slopes(rows[i], numbers, slopes)
        dpulls[0, i] = dweight * value + weight * (slopes[0, 0] * dq + slopes[0, 1] * db) - dmeans[i, 0]
        dpulls[1, i] = dweight * first + weight * (slopes[1, 0] * dq + slopes[1, 1] * db) - dmeans[i, 1]
        dpulls[2, i] = dweight * second + weight * (slopes[3, 0] * dq + slopes[3, 1] * db) - dmeans[i, 2]
        dA[i, i] = 2.0 * weight * dweight * square + weight**2 * (slopes[2, 0] * dq + slopes[2, 1] * db)
    for i in range(m):
        if is_stopped(sizes):
            return
        weight, dweight, db, half = scale * y[i], scale * v[i], v[m + i], 0.5 * dC[i, i]
        for j in range(i):
            other, dother, dbj, halfj, dc = scale * y[j], scale * v[j], v[m + j], 0.5 * dC[j, j], dC[i, j]
            write_moments(head, C[i, j], rows[i], rows[j], numbers, E)
            for k in range(3):
                change = E[k + 1, 1] * dc + E[k + 2, 0] * half + E[k, 2] * halfj + E[k + 1, 0] * db + E[k, 1] * dbj
                dpulls[k, i] += dother * E[k, 0] + other * change
                change = E[1, k + 1] * dc + E[0, k + 2] * halfj + E[2, k] * half + E[0, k + 1] * dbj + E[1, k] * db
                dpulls[k, j] += dweight * E[0, k] + weight * change
            change = E[2, 2] * dc + E[3, 1] * half + E[1, 3] * halfj + E[2, 1] * db + E[1, 2] * dbj
            dA[i, j] = dA[j, i] = (dweight * other + weight * dother) * E[1, 1] + weight * other * change


@kernel
def jacobian_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write the derivative of `rhs` of the flow along v: dF = dN C + N dC."""
    m, r, scale, rate = sizes[WIDTH], sizes[AXES], parameters[SCALE], parameters[RATE_W]
    n, first = m + r, 2 * m + m * r
    place = sizes[SCRATCH_AT] + MOMENTS + sizes[DEGREE] + FURTHER
    dC, dmeans = matrix(work, place, n, n), matrix(work, place + n * n, m, r + 3)
    place += n * n + m * (r + 3)
    dpulls, dA = matrix(work, place, 3, m), matrix(work, place + 3 * m, m, m)
    place += 3 * m + m * m
    dN, dF, turned = matrix(work, place, m, n), matrix(work, place + m * n, m, n), matrix(work, place + 2 * m * n, m, n)
    C, N = matrix(work, 0, n, n), matrix(work, sizes[FORCES_AT], m, n)
    means, pulls = matrix(work, sizes[MEANS_AT], m, r + 3), matrix(work, sizes[PULLS_AT], 3, m)
    rhs(t, y, out, parameters, sizes, work)
    write_gram(v, sizes, dC)
    for a in range(r):
        dC[m + a, m + a] = 0.0
    write_mean_changes(y, v, dC, dmeans, dpulls, dA, parameters, sizes, work)
    for i in range(m):
        weight, dweight = rate * scale * y[i], rate * scale * v[i]
        for j in range(m):
            dN[i, j] = rate * dA[i, j]
        for a in range(r):
            dN[i, m + a] = -dweight * means[i, 3 + a] - weight * dmeans[i, 3 + a]
        if sizes[SPHERE] == 0:
            dN[i, i] += dweight * pulls[2, i] + weight * dpulls[2, i]
    product_until(dN, C, dF, sizes)
    product_until(N, dC, turned, sizes)
    for i in range(m):
        for j in range(n):
            dF[i, j] += turned[i, j]
    if sizes[SPHERE] == 1:
        for i in range(m):
            # N holds −turn already, whose F_ii is 0.
            dturn = dF[i, i] / C[i, i]
            for j in range(n):
                dF[i, j] -= dturn * C[i, j]
            dF[i, i] = 0.0
    for i in range(m):
        dloss = -parameters[RATE_V] * scale * dpulls[0, i]
        out[i] = dloss - parameters[DECAY_V] * v[i]
        out[m + i] = -parameters[RATE_B] * scale * (v[i] * pulls[1, i] + y[i] * dpulls[1, i])
        for a in range(r):
            out[2 * m + i * r + a] = -dF[i, m + a]
    write_symmetric(dF, m, first, out)
