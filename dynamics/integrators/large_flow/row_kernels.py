"""Compiled sums of the stages of one neuron in the large-flow solver, and the error of its step.

Executed after the tableau.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Matrix, Vector
from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from dynamics.integrators.explicit.dop853_tableau import DOP853_COUNTS, DOP853_PLACES, DOP853_WEIGHTS

END = 12  # row of the tableau that gives the step, and the stage at its end
ERRORS = 16  # rows of the tableau with the two error estimates


@kernel
def combine(base: Vector, stages: Cube, x: int, row: int, h: float, out: Vector) -> None:
    """Set out = base + h Σ_s w_s k_s for one neuron, with a row of the tableau: its stages are read from level 2."""
    places, count = DOP853_PLACES[row], DOP853_COUNTS[row]
    for k in range(out.size):
        out[k] = base[k]
    # Four stages at a time, so that `out` is read and written a quarter as often.
    j = 0
    while j + 4 <= count:
        a, b, c, d = places[j], places[j + 1], places[j + 2], places[j + 3]
        w_a, w_b = h * DOP853_WEIGHTS[row, a], h * DOP853_WEIGHTS[row, b]
        w_c, w_d = h * DOP853_WEIGHTS[row, c], h * DOP853_WEIGHTS[row, d]
        k_a, k_b, k_c, k_d = stages[a, x], stages[b, x], stages[c, x], stages[d, x]
        for k in range(out.size):
            out[k] += (w_a * k_a[k] + w_b * k_b[k]) + (w_c * k_c[k] + w_d * k_d[k])
        j += 4
    while j < count:
        a, b = places[j], places[min(j + 1, count - 1)]
        w_a, w_b = h * DOP853_WEIGHTS[row, a], h * DOP853_WEIGHTS[row, b] if j + 1 < count else 0.0
        k_a, k_b = stages[a, x], stages[b, x]
        for k in range(out.size):
            out[k] += w_a * k_a[k] + w_b * k_b[k]
        j += 2


@kernel
def end_sums(base: Vector, stages: Cube, x: int, h: float, new: Vector, e5: Vector, e3: Vector) -> None:
    """Write the state at the end of a step and both error estimates of one neuron, which have the same eight stages."""
    places = DOP853_PLACES[END]
    for k in range(new.size):
        new[k] = base[k]
        e5[k] = e3[k] = 0.0
    for j in range(0, DOP853_COUNTS[END], 2):
        a, b = places[j], places[j + 1]
        w_a, w_b = h * DOP853_WEIGHTS[END, a], h * DOP853_WEIGHTS[END, b]
        five_a, five_b = DOP853_WEIGHTS[ERRORS, a], DOP853_WEIGHTS[ERRORS, b]
        three_a, three_b = DOP853_WEIGHTS[ERRORS + 1, a], DOP853_WEIGHTS[ERRORS + 1, b]
        k_a, k_b = stages[a, x], stages[b, x]
        for k in range(new.size):
            new[k] += w_a * k_a[k] + w_b * k_b[k]
            e5[k] += five_a * k_a[k] + five_b * k_b[k]
            e3[k] += three_a * k_a[k] + three_b * k_b[k]


@kernel
def combine_number(stages: Matrix, x: int, weights: Vector, h: float) -> float:
    """Return h Σ_s w_s k_s for the number of one row."""
    total = 0.0
    for s in range(weights.size):
        if weights[s] != 0.0:
            total += weights[s] * stages[s, x]
    return h * total


@kernel
def row_error(
    y: Vector, new: Vector, growth_stages: Matrix, x: int, h: float, e5: Vector, e3: Vector, tolerance: Vector, p: int
) -> float:
    """Return the error of one row in units of the tolerance: root mean square over its D + 1 numbers, or its overlap p.

    The direction that a neuron is about to learn is one number among many, but decides when it escapes.
    """
    D = y.size
    atol, rtol, atol_norm = tolerance[0], tolerance[1], tolerance[2]
    q5 = (combine_number(growth_stages, x, DOP853_WEIGHTS[ERRORS, :END], 1.0) / atol_norm) ** 2
    q3 = (combine_number(growth_stages, x, DOP853_WEIGHTS[ERRORS + 1, :END], 1.0) / atol_norm) ** 2
    for k in range(D):
        scale = 1.0 / (atol + rtol * max(abs(y[k]), abs(new[k])))
        q5 += (e5[k] * scale) ** 2
        q3 += (e3[k] * scale) ** 2
    total = q5 + 0.01 * q3
    if not total < np.inf:
        return np.inf
    error = abs(h) * q5 / np.sqrt(total * (D + 1.0)) if total > 0.0 else 0.0
    if p >= 0:
        scale = 1.0 / (atol + rtol * max(abs(y[p]), abs(new[p])))
        q5 = (e5[p] * scale) ** 2
        total = q5 + 0.01 * (e3[p] * scale) ** 2
        if total > 0.0:
            error = max(error, abs(h) * q5 / np.sqrt(total))
    return error
