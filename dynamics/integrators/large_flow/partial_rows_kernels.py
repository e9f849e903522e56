"""Compiled pass of the large flow that writes the partial field, or the rest; executed after `partial_kernels`."""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Integers, Matrix, SingleMatrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.pairs.array_kernels import matrix
    from dynamics.integrators.large_flow.partial_kernels import partial_field
    from dynamics.integrators.large_flow.plan_kernels import Plan


@entry(
    "void(i8, i8, i8[::1], f8[:,::1], f8[::1], f8[:,::1], f4[:,::1], f8[::1], f8[:,::1], f8[::1], b1,"
    " f8[:,::1], f8[::1], f8[::1],"
    " Tuple((i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1])))"
)
def partial_rows(
    first_block: int,
    last_block: int,
    cuts: Integers,
    U: Matrix,
    log_n: Vector,
    sources: Matrix,
    rounded: SingleMatrix,
    mass: Vector,
    field: Matrix,
    field_growth: Vector,
    is_rest: bool,
    out: Matrix,
    out_growth: Vector,
    work: Vector,
    plan: Plan,
) -> None:
    """Write the partial field at one state for the blocks order[cuts[b]:cuts[b + 1]], or what it leaves of the field.

    All blocks but the first, that of the sources, read these from `rounded`, if it has rows.
    """
    D, S = U.shape[1], mass.size
    none = np.empty((0, D), dtype=np.float32)
    for b in range(first_block, last_block):
        rows = plan[0][cuts[b] : cuts[b + 1]]
        R = rows.size
        o = 2 * R * D + R * S
        u, force, overlap = matrix(work, 0, R, D), matrix(work, R * D, R, D), matrix(work, 2 * R * D, R, S)
        logs, total = work[o : o + R], work[o + R : o + 2 * R]
        for x in range(R):
            logs[x] = log_n[rows[x]]
            for k in range(D):
                u[x, k] = U[rows[x], k]
        partial_field(rows, u, logs, sources, none if b == 0 else rounded, mass, overlap, force, total, plan)
        for x in range(R):
            i = rows[x]
            if is_rest:
                out_growth[i] = field_growth[i] - total[x]
                for k in range(D):
                    out[i, k] = field[i, k] - force[x, k]
            else:
                out_growth[i] = total[x]
                for k in range(D):
                    out[i, k] = force[x, k]
