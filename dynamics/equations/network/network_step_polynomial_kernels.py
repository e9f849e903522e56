"""The noise of a step of polynomial neurons; executed after `step_diagram_kernels` and `network_series_kernels`.

`layout` = [K, parity of the degrees that all links lack, or 2 | place, degree of every vector]; `numbers` at the place
of a vector: E p^(j)(z), z ~ N(0, 1), j up to its degree.
"""

from typing import TYPE_CHECKING

from dynamics.compiler.arrays import Integers, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.equations.committee.step_diagram_kernels import *
    from dynamics.equations.network.network_series_kernels import write_series_means


@kernel
def write_step_second(
    C: Matrix, bias: Vector, weight: Vector, noise: float, d: float, exact: bool, m: int,
    numbers: Vector, layout: Integers, work: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Write E[(ē² + τ²) σ'_i σ'_j |x|²] of the first m vectors, its part of order d unless it is to be exact."""
    M, K, absent = weight.size, layout[0], layout[1]
    weights = diagram_size(M, K) - M
    for a in range(M):
        work[weights + a] = weight[a]
        for b in range(M):
            work[a * M + b] = C[a, b]
        D = work[M * M + a * (K + 4) : M * M + (a + 1) * (K + 4)]
        place, degree = layout[2 + 2 * a], layout[3 + 2 * a]
        write_series_means(C[a, a], bias[a], numbers[place : place + degree + 1], D)
    write_diagram_tables(M, K, work)
    for i in range(m):
        for j in range(i + 1):
            out[i, j] = out[j, i] = diagram_second(i, j, noise, d, exact, absent, M, K, work)
