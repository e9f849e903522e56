"""Where the numbers of a network lie; executed before all other kernels of it.

sizes = [the ten below | whole numbers of the teacher], parameters = [the eight below | |w_i(0)|² (m) | those of the
teacher | those of the links]. `work` holds, one after another: the Gram matrix C (m + r, m + r); one row of tables
per neuron and per unit of the teacher; per neuron E σ_i f*, E σ'_i f*, E σ''_i f* and t_i (r); Ψ, Ψ1, Ψ2 (3, m);
A₀ (m, m); N and F (m, m + r); scratch of the teacher. What a product with the Jacobian needs, follows.
"""

from dynamics.compiler.arrays import Integers, Vector
from dynamics.compiler.compilation import kernel

WIDTH, AXES, SPHERE, THEORY, UNITS, COMPONENTS, DEGREE, ROW_SIZE, TEACHER_AT, NUMBERS_AT = range(10)
TEACHER_SIZES_AT = 10
RATE_W, RATE_V, RATE_B, DECAY_W, DECAY_V, SCALE, STEP, LEVEL = range(8)
SQUARES_AT = 8
# Of `sizes[THEORY]`; with the last `rhs` ends when the means are in `work`, and events are shares, without level ½.
FLOW, DESCENT, MEANS = 0, 1, 2
# Room for the moments E σ_a^(p) σ_b^(q), p, q ≤ 4.
MOMENTS = 25


@kernel
def needs_values(parameters: Vector, sizes: Integers) -> bool:
    """Return whether Ψ or Ψ1 matters: they move the second layer and the biases alone, and give the loss."""
    return bool(parameters[RATE_V] != 0.0 or parameters[RATE_B] != 0.0 or sizes[THEORY] == MEANS)


@kernel
def rows_at(sizes: Integers) -> int:
    """Return the place of the tables of all units."""
    return int((sizes[WIDTH] + sizes[AXES]) ** 2)


@kernel
def means_at(sizes: Integers) -> int:
    """Return the place of the means with the teacher."""
    return int(rows_at(sizes) + (sizes[WIDTH] + sizes[UNITS]) * sizes[ROW_SIZE])


@kernel
def pulls_at(sizes: Integers) -> int:
    """Return the place of Ψ, Ψ1, Ψ2."""
    return int(means_at(sizes) + sizes[WIDTH] * (sizes[AXES] + 3))


@kernel
def slopes_at(sizes: Integers) -> int:
    """Return the place of A₀."""
    return int(pulls_at(sizes) + 3 * sizes[WIDTH])


@kernel
def forces_at(sizes: Integers) -> int:
    """Return the place of N."""
    return int(slopes_at(sizes) + sizes[WIDTH] ** 2)


@kernel
def products_at(sizes: Integers) -> int:
    """Return the place of F."""
    return int(forces_at(sizes) + sizes[WIDTH] * (sizes[WIDTH] + sizes[AXES]))


@kernel
def teacher_scratch_at(sizes: Integers) -> int:
    """Return the place of the teacher's scratch: `MOMENTS` numbers, then D_j, j < degree + 5."""
    return int(products_at(sizes) + sizes[WIDTH] * (sizes[WIDTH] + sizes[AXES]))
