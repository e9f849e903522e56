"""The noise of a step of polynomial neurons.

`layout` = [K, parity of the degrees that all links lack, or 2 | place, degree of every vector]; `numbers` at the place
of a vector: E p^(j)(z), z ~ N(0, 1), j up to its degree.
"""

from dynamics.equations.committee.step_diagram_kernels import diagram_second, diagram_size, write_diagram_tables
from dynamics.equations.network.network_series_kernels import write_series_means
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import vector


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
        D = vector(work, M * M + a * (K + 4), K + 4)
        place, degree = layout[2 + 2 * a], layout[3 + 2 * a]
        write_series_means(C[a, a], bias[a], vector(numbers, place, degree + 1), D)
    write_diagram_tables(M, K, work)
    for i in range(m):
        for j in range(i + 1):
            out[i, j] = out[j, i] = diagram_second(i, j, noise, d, exact, absent, M, K, work)
