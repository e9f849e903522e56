"""History of the stiff stepper: coefficients of backward differentiation with variable step and order.

It is kept as z_j = h^j y^(j)/j!.

The method keeps the leading coefficient of the formula with equal steps (fixed leading coefficient), so that a change
of step needs no interpolation.

References
----------
K. R. Jackson and R. Sacks-Davis, ACM Trans. Math. Software 6 (1980) 295.
P. N. Brown, G. D. Byrne and A. C. Hindmarsh, VODE, SIAM J. Sci. Stat. Comput. 10 (1989) 1038: coefficients, error
constants, and the choice of step and order.
"""

import numpy as np

from dynamics.integrators.shared_kernels import copy_row
from dynamics.integrators.slots import (
    ACCEPTED,
    CONSTANT,
    CONSTANT_DOWN,
    CONSTANT_SAVED,
    CONSTANT_UP,
    FIXED_ORDER,
    GROWTH,
    MAX_ORDER,
    NEXT_ORDER,
    ORDER,
    PAST_STEPS,
    POLYNOMIAL,
    ROW_CORRECTION,
    ROW_NORDSIECK,
    ROW_SAVED,
    ROW_TRIAL,
    ROW_WEIGHT,
    SAVED_CONSTANT,
    SCALE,
    STEP,
    WAIT,
)
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import vector

# Bias of the error estimates of lower or same and of higher order, and the bounds of a growth worth a change of step.
BIAS_SAME, BIAS_UP, SMALLEST_GROWTH, LARGEST_GROWTH = 6.0, 10.0, 1.5, 10.0


@kernel
def weighted_norm(v: Vector, weight: Vector) -> float:
    """Return the largest weight_i |v_i|, infinity if any is not finite.

    Four running maxima, because a single one waits for the comparison before; the sum catches not-a-number.
    """
    a = b = c = d = total = 0.0
    n = v.size - v.size % 4
    for i in range(0, n, 4):
        p, q = abs(v[i]) * weight[i], abs(v[i + 1]) * weight[i + 1]
        r, s = abs(v[i + 2]) * weight[i + 2], abs(v[i + 3]) * weight[i + 3]
        a, b, c, d = max(a, p), max(b, q), max(c, r), max(d, s)
        total += (p + q) + (r + s)
    for i in range(n, v.size):
        a = max(a, abs(v[i]) * weight[i])
        total += abs(v[i]) * weight[i]
    return max(a, b, c, d) if total < np.inf else np.inf


@kernel
def add_scaled(out: Vector, source: Vector, factor: float) -> None:
    """Add a multiple of one row to another; written on rows, since the compiler vectorises no loop on a matrix."""
    for i in range(out.size):
        out[i] += factor * source[i]


@kernel
def shift(vectors: Matrix, order: int, sign: float) -> None:
    """Move the Nordsieck array one step ahead by Pascal's triangle (sign 1), or back (sign −1)."""
    for k in range(1, order + 1):
        for j in range(order, k - 1, -1):
            add_scaled(vectors[ROW_NORDSIECK + j - 1], vectors[ROW_NORDSIECK + j], sign)


@kernel
def set_coefficients(scalars: Vector, h: float, order: int) -> None:
    """Compute the correction polynomial Λ(x) = Σ l_j x^j and the error constants.

    Λ(x) = Π_{i<q} (1 + x/ξ_i) (1 + x/ξ*_q) with ξ_i = (t_n − t_{n−i})/h, and ξ*_q from the fixed leading coefficient.
    """
    lam = vector(scalars, POLYNOMIAL, MAX_ORDER + 2)
    past = vector(scalars, PAST_STEPS, MAX_ORDER + 2)
    for i in range(lam.size):
        lam[i] = 1.0 if i < 2 else 0.0
    alpha, alpha_hat, xi, xi_star, total = -1.0, -1.0, 1.0, 1.0, h
    for j in range(2, order + 1):
        total += past[j - 1]
        xi = h / total
        alpha -= 1.0 / j
        factor = xi
        if j == order:
            factor = xi_star = -lam[1] - alpha
            alpha_hat = -lam[1] - xi
        for i in range(j, 0, -1):
            lam[i] += lam[i - 1] * factor
    a_1 = 1.0 - alpha_hat + alpha
    a_2 = 1.0 + order * a_1
    scalars[CONSTANT] = abs(a_1 / (alpha * a_2))
    scalars[CONSTANT_SAVED] = abs(a_2 * xi_star / (lam[order] * xi))
    scalars[CONSTANT_DOWN] = 1.0
    if order > 1:
        a_3, a_4 = alpha + 1.0 / order, alpha_hat + xi
        scalars[CONSTANT_DOWN] = abs(xi_star / lam[order] * (1.0 - a_4 + a_3) / a_3)
    xi = h / (total + past[order])
    a_5, a_6 = alpha - 1.0 / (order + 1), alpha_hat - xi
    scalars[CONSTANT_UP] = abs((1.0 - a_6 + a_5) / (a_2 * xi * (order + 2) * a_5))


@kernel
def change_order(vectors: Matrix, scalars: Vector, order: int, new_order: int) -> None:
    """Lower or raise the degree of the Nordsieck array by one, keeping its values at the past points."""
    past = vector(scalars, PAST_STEPS, MAX_ORDER + 2)
    lam = vector(scalars, POLYNOMIAL, MAX_ORDER + 2)
    for i in range(lam.size):
        lam[i] = 1.0 if i == 2 else 0.0
    raising = new_order > order
    alpha_0, alpha_1, product, previous = -1.0, 1.0, 1.0, 1.0
    total = scalars[SCALE] if raising else 0.0
    for j in range(1, order if raising else order - 1):
        total += past[j + 1] if raising else past[j]
        xi = total / scalars[SCALE]
        product *= xi
        alpha_0 -= 1.0 / (j + 1)
        alpha_1 += 1.0 / xi
        for i in range(j + 2, 1, -1):
            lam[i] = lam[i] * (previous if raising else xi) + lam[i - 1]
        previous = xi
    source = ROW_NORDSIECK + order
    factor = -1.0
    if raising:
        source = ROW_NORDSIECK + new_order
        factor = 1.0
        for i in range(vectors.shape[1]):
            vectors[source, i] = -(alpha_0 + alpha_1) / product * vectors[ROW_SAVED, i]
    for j in range(2, order + 1 if raising else order):
        add_scaled(vectors[ROW_NORDSIECK + j], vectors[source], factor * lam[j])


@kernel
def predict(vectors: Matrix, scalars: Vector, counters: Integers, h: float) -> None:
    """Apply the chosen order and step length to the history, and move it to the end of the step."""
    q = counters[ORDER]
    if counters[NEXT_ORDER] != q:
        change_order(vectors, scalars, q, counters[NEXT_ORDER])
        q = counters[NEXT_ORDER]
        counters[ORDER] = q
        counters[WAIT] = q + 1
    ratio = h / scalars[SCALE]
    if ratio != 1.0:
        power = 1.0
        for j in range(1, q + 1):
            power *= ratio
            for i in range(vectors.shape[1]):
                vectors[ROW_NORDSIECK + j, i] *= power
    scalars[SCALE] = h
    shift(vectors, q, 1.0)
    set_coefficients(scalars, h, q)


@kernel
def choose_next(vectors: Matrix, scalars: Vector, counters: Integers, error: float) -> None:
    """Choose order and growth of the next step from the error estimates of three orders."""
    n, q, weight = vectors.shape[1], counters[ORDER], vectors[ROW_WEIGHT]
    if scalars[GROWTH] <= 1.0:
        # The step before was rejected: try the same length once more.
        counters[WAIT] = max(counters[WAIT], 2)
    best, order = 1.0 / ((BIAS_SAME * error) ** (1.0 / (q + 1)) + 1e-6), q
    if counters[WAIT] <= 0 and counters[FIXED_ORDER] == 0:
        counters[WAIT] = 2
        if q > 1:
            down = weighted_norm(vectors[ROW_NORDSIECK + q], weight) * scalars[CONSTANT_DOWN]
            growth = 1.0 / ((BIAS_SAME * down) ** (1.0 / q) + 1e-6)
            if growth > best:
                best, order = growth, q - 1
        if q < MAX_ORDER and counters[ACCEPTED] > q:
            quotient = scalars[CONSTANT_SAVED] / scalars[SAVED_CONSTANT]
            quotient *= (scalars[SCALE] / scalars[PAST_STEPS + 2]) ** (q + 1.0)
            trial = vectors[ROW_TRIAL]
            for i in range(n):
                trial[i] = vectors[ROW_CORRECTION, i] - quotient * vectors[ROW_SAVED, i]
            up = weighted_norm(trial, weight) * scalars[CONSTANT_UP]
            growth = 1.0 / ((BIAS_UP * up) ** (1.0 / (q + 2)) + 1e-6)
            if growth > best:
                best, order = growth, q + 1
    if best < SMALLEST_GROWTH:
        best, order = 1.0, q
    if counters[WAIT] <= 0 and q < counters[FIXED_ORDER]:
        order = q + 1
    if order > q or counters[WAIT] == 1:
        copy_row(vectors[ROW_SAVED], vectors[ROW_CORRECTION])
        scalars[SAVED_CONSTANT] = scalars[CONSTANT_SAVED]
    counters[NEXT_ORDER] = order
    scalars[STEP] = scalars[SCALE] * min(best, scalars[GROWTH])
    scalars[GROWTH] = LARGEST_GROWTH
