"""What the steps of the stiff stepper and its linear solver share.

Executed before the other kernels of the method.
"""

import numpy as np

from dynamics.compiler.arrays import Vector
from dynamics.compiler.compilation import kernel
from dynamics.compiler.numbers import larger

# Place of the address of `krylov_kernels.solve_linear`: the last.
SOLVE_LINEAR = -1


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
        a, b, c, d = larger(a, p), larger(b, q), larger(c, r), larger(d, s)
        total += (p + q) + (r + s)
    for i in range(n, v.size):
        a = larger(a, abs(v[i]) * weight[i])
        total += abs(v[i]) * weight[i]
    return larger(larger(a, b), larger(c, d)) if total < np.inf else np.inf
