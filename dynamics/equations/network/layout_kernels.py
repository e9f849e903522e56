"""Where the numbers of a network lie.

sizes = [the eighteen below | whole numbers of the teacher], parameters = [the eight below | |w_i(0)|² (m) | those of
the teacher | those of the links]. `work` holds, one after another: the Gram matrix C (m + r, m + r); one row of tables
per neuron and per unit of the teacher; per neuron E σ_i f*, E σ'_i f*, E σ''_i f* and t_i (r); Ψ, Ψ1, Ψ2 (3, m);
A₀ (m, m); N and F (m, m + r); scratch of the teacher: `MOMENTS` numbers, then D_j, j < degree + `FURTHER`. What a
product with the Jacobian needs, follows.
"""

from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import vector

WIDTH, AXES, SPHERE, THEORY, UNITS, COMPONENTS, DEGREE, ROW_SIZE, TEACHER_AT, NUMBERS_AT, PAIRING = range(11)
# Places in `work`.
ROWS_AT, MEANS_AT, PULLS_AT, SLOPES_AT, FORCES_AT, PRODUCTS_AT, SCRATCH_AT = range(11, 18)
TEACHER_SIZES_AT = 18
RATE_W, RATE_V, RATE_B, DECAY_W, DECAY_V, SCALE, STEP, LEVEL = range(8)
SQUARES_AT = 8
# Of `sizes[THEORY]`; with the last `rhs` ends when the means are in `work`, and events are shares, without level ½.
FLOW, DESCENT, MEANS = 0, 1, 2
# Of `sizes[PAIRING]`, how the means of all pairs of neurons are found: one by one for a link κ f + βz + γ, several at
# once for relu and erf, without biases and with them, and as sums over lists for any other link.
ONE_BY_ONE, CENTRAL_RELU, CENTRAL_ERF, BIASED_RELU, BIASED_ERF, LISTS = range(6)
# Room for the moments E σ_a^(p) σ_b^(q), p, q ≤ 4, and mean derivatives beyond the teacher's degree.
MOMENTS, FURTHER = 25, 5


@kernel
def numbers_of_links(parameters: Vector, sizes: Integers) -> Vector:
    """Return what the kernels of pairs take as `numbers`."""
    return vector(parameters, sizes[NUMBERS_AT], parameters.size - sizes[NUMBERS_AT])
