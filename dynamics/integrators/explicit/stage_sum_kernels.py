"""Compiled sums of the stages of the pair of order 8(5,3), and the norm of its errors."""

import numpy as np

from dynamics.integrators.explicit.dop853_tableau import DOP853_COUNTS, DOP853_PLACES, DOP853_WEIGHTS
from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import row_part, vector

# Columns summed at a time, so that the target of a sum stays in the fastest cache.
COLUMN_BLOCK = 512


@kernel
def add_stages(base: Vector, stages: Matrix, row: int, h: float, size: int, out: Vector) -> None:
    """Set out = base + h Σ_j w_j k_j with the given row of weights, four stages in a pass, then two.

    Loops run over slices from 0 on: an index that might be negative keeps them out of vector instructions.
    """
    places, count = DOP853_PLACES[row], DOP853_COUNTS[row]
    for start in range(0, size, COLUMN_BLOCK):
        stop = min(start + COLUMN_BLOCK, size)
        part, whole = vector(out, start, stop - start), vector(base, start, stop - start)
        for i in range(part.size):
            part[i] = whole[i]
        j = 0
        while j + 4 <= count:
            a, b, c, d = places[j], places[j + 1], places[j + 2], places[j + 3]
            v, w = h * DOP853_WEIGHTS[row, a], h * DOP853_WEIGHTS[row, b]
            x, y = h * DOP853_WEIGHTS[row, c], h * DOP853_WEIGHTS[row, d]
            k_a, k_b = row_part(stages, a, start, part.size), row_part(stages, b, start, part.size)
            k_c, k_d = row_part(stages, c, start, part.size), row_part(stages, d, start, part.size)
            for i in range(part.size):
                part[i] += (v * k_a[i] + w * k_b[i]) + (x * k_c[i] + y * k_d[i])
            j += 4
        while j < count:
            a, b = places[j], places[min(j + 1, count - 1)]
            v, w = h * DOP853_WEIGHTS[row, a], h * DOP853_WEIGHTS[row, b] if j + 1 < count else 0.0
            k_a, k_b = row_part(stages, a, start, part.size), row_part(stages, b, start, part.size)
            for i in range(part.size):
                part[i] += v * k_a[i] + w * k_b[i]
            j += 2


@kernel
def bits_of(number: float) -> int:
    """Return the bits of a number that is not negative: they are ordered as such numbers are, not-a-number on top."""
    return int(np.float64(number).view(np.int64))


@kernel
def number_of(bits: int) -> float:
    """Return the number with these bits."""
    return float(np.int64(bits).view(np.float64))


@kernel
def largest_ratio(v: Vector, before: Vector, after: Vector, atol: Vector, rtol: float, size: int) -> float:
    """Return max_i |v_i| / (atol_i + rtol max(|before_i|, |after_i|)), or infinity if any v_i is not finite.

    The maximum of their bits is found in vector instructions; that of the ratios is not, because every comparison with
    not-a-number fails.
    """
    worst = 0
    for i in range(size):
        worst = max(worst, bits_of(abs(v[i] / (atol[i] + rtol * max(abs(before[i]), abs(after[i]))))))
    return number_of(worst) if worst < bits_of(np.inf) else np.inf
