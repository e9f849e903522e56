"""Compiled kernels of factual recall: six numbers.

State y = [k_r, x, y, k_s, u, w]; parameters = [R | S | D]; sizes = [whether the relation is first, stage].
"""

import numpy as np

from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel


@kernel
def write_classes(y: Vector, parameters: Vector, work: Vector) -> float:
    """Write p_1 … p_4, of the right answer and of one of each of the three kinds of wrong ones; return −ln p_1."""
    R, D = parameters[0], parameters[2]
    for at in range(4):
        right_relation, right_subject = at < 2, at % 2 == 0
        work[at] = y[0] * (y[1] if right_relation else y[2]) + y[3] * (y[4] if right_subject else y[5])
    top = max(work[0], work[1], work[2], work[3])
    total = np.exp(work[0] - top)
    for at in range(1, 4):
        many = (R - 1.0 if at >= 2 else 1.0) * (D - 1.0 if at % 2 == 1 else 1.0)
        total += many * np.exp(work[at] - top)
    loss: float = np.log(total) + top - work[0]
    for at in range(4):
        work[at] = np.exp(work[at] - top) / total
    return loss


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Gradient descent of keys and values, of the relation and then of the subject."""
    R, S, D = parameters[0], parameters[1], parameters[2]
    A = R * D
    write_classes(y, parameters, work)
    wrong = (D - 1.0) * work[1] + (R - 1.0) * work[2] + (R - 1.0) * (D - 1.0) * work[3]
    gx = wrong / D - (1.0 - 1.0 / D) * work[1]
    gy = -work[2] / D - (1.0 - 1.0 / D) * work[3]
    gu = wrong / R - (1.0 - 1.0 / R) * work[2]
    gw = -work[1] / R - (1.0 - 1.0 / R) * work[3]
    out[0] = (D * y[1] * gx + (A - D) * y[2] * gy) / R
    out[1] = y[0] * gx / R
    out[2] = y[0] * gy / R
    out[3] = (R * y[4] * gu + (A - R) * y[5] * gw) / S
    out[4] = y[3] * gu / S
    out[5] = y[3] * gw / S


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Loss below halfway to the plateau, and below half of the plateau; in the order relation, subject."""
    A, left = parameters[0] * parameters[2], parameters[2] if sizes[0] == 1 else parameters[0]
    loss = write_classes(y, parameters, work)
    first, second = 0.5 * (np.log(A) + np.log(left)) - loss, 0.5 * np.log(left) - loss
    out[0], out[1] = (first, second) if sizes[0] == 1 else (second, first)


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Leave the state as it is."""
