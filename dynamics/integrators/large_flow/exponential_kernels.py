"""Compiled exponential steps of clusters that hardly move: a tenth of the work of the stages.

Late in a large flow most neurons are alone on their direction and follow their slow manifold. But for its own motion
such a neuron feels a force that is a polynomial in the fraction x of the step, and its slowed velocity v obeys

    h v(x) = h v(0) + θ h Σ_q f_q x^q − κ Δ(x),   Δ' = h v,   κ = θ h λ,   q = 1, 2, 3,

λ being the rate of its mode. It has moved by Δ(1) = h (w_0 v(0) + θ Σ_q w_q f_q) at the end of the step, with
w_q = ∫ e^(−κ (1 − x)) x^q dx = q! φ_(q+1)(−κ), so w_0 = (1 − e^−κ)/κ and w_q = (1 − q w_(q−1))/κ. That holds for the
direction and for ln n. Left out are squares of Δ, and what the rate λ of a neuron that leans from its direction differs
by. Where these could matter, the neuron goes through the stages.

References
----------
M. Hochbruck and A. Ostermann, Exponential integrators, Acta Numerica 19 (2010), section 2.
"""

from __future__ import annotations

import numpy as np

from dynamics.equations.pairs.link import g0, g1
from dynamics.integrators.large_flow.row_kernels import END, Dense, Ends, Stages, State, write_cubic
from dynamics.kernels.arrays import Cube, Matrix, Vector
from dynamics.kernels.jit import kernel

# Part by which the rate of a mode may be wrong. Of 400 such steps of 128 and 512 neurons half were wrong by less than a
# hundredth of the estimate that follows, the worst by 1.4 times it.
LEAN = 0.1
# Largest error of an exponential step in units of the tolerance. It controls no step, since stages take over beyond it.
LARGEST_ERROR = 0.01
# Error of the dense output in units of h times the change of the velocity: 0.029 for four relaxations.
CUBIC = 0.03


@kernel
def relaxed_weights(relaxations: float) -> tuple[float, float, float, float]:
    """Return w_0 to w_3 of κ relaxations."""
    zero = (1.0 - np.exp(-relaxations)) / relaxations
    one = (1.0 - zero) / relaxations
    two = (1.0 - 2.0 * one) / relaxations
    return zero, one, two, (1.0 - 3.0 * two) / relaxations


@kernel
def move_number(link: Vector, h: float, a: float, share: float, powers: Vector, stages: Matrix) -> float:
    """Replace stages 1 and 12 of ln n by its change and by its rate at the end; return h times what it turned by."""
    relaxations = share * h * 4.0 * a * g0(link, 1.0)
    zero, one, two, three = relaxed_weights(relaxations)
    force = 4.0 * share * (one * powers[1] + two * powers[2] + three * powers[3])
    stages[1, 0] = h * (zero * stages[0, 0] + force)
    turn = 4.0 * share * (powers[1] + powers[2] + powers[3]) - relaxations / h * stages[1, 0]
    stages[END, 0] = stages[0, 0] + turn
    turned: float = abs(h * turn)
    return turned


@kernel
def move(
    link: Vector, h: float, a: float, share: float, u: Vector, powers: Matrix, stages: Cube
) -> tuple[float, float]:
    """Replace stages 1 and 12 of one neuron, at u, by its move and its velocity at the end.

    Returned are the squares of the move and of h times what the velocity turned by.
    """
    relaxations = share * h * a * g1(link, 1.0)
    zero, one, two, three = relaxed_weights(relaxations)
    begin, rise, end = stages[0, 0], stages[1, 0], stages[END, 0]
    b, c, d = powers[1], powers[2], powers[3]
    radial = radial_end = length = 0.0
    for k in range(u.size):
        rise[k] = one * b[k] + two * c[k] + three * d[k]
        end[k] = b[k] + c[k] + d[k]
        radial += u[k] * rise[k]
        radial_end += u[k] * end[k]
        length += u[k] * u[k]
    radial /= length
    radial_end /= length
    moved = turned = 0.0
    for k in range(u.size):
        rise[k] = h * (zero * begin[k] + share * (rise[k] - radial * u[k]))
        turn = share * (end[k] - radial_end * u[k]) - relaxations / h * rise[k]
        end[k] = begin[k] + turn
        moved += rise[k] * rise[k]
        turned += turn * turn
    # A straight move leaves the sphere.
    factor = 1.0 / np.sqrt(1.0 + moved / length)
    for k in range(u.size):
        rise[k] = factor * rise[k] + (factor - 1.0) * u[k]
    return moved, h * h * turned


@kernel
def exponential_step(
    i: int,
    how: tuple[bool, bool, float],
    link: Vector,
    a: float,
    share: Vector,
    start: State,
    powers: tuple[Matrix, Vector],
    all_stages: Stages,
    ends: Ends,
    polynomials: Dense,
) -> float:
    """Write where row i is moved, and its dense output, a cubic, as `finish_row` does; return the error in tolerances.

    `how` says whether the step has been accepted, whether it has a dense output, and its length.
    Stage 0 is its slowed velocity at the beginning; a is the coefficient of its direction in the teacher, and `share`
    holds θ of the direction and of ln n.
    """
    (again, has_dense, h), (U, log_n), (stages, growth_stages) = how, start, all_stages
    (U_new, log_new, error, error_within, tolerance, _), (dense, dense_growth) = ends, polynomials
    D = U.shape[1]
    moved, turned = move(link, h, a, share[0], U[i], powers[0], stages)
    turned_growth = move_number(link, h, a, share[1], powers[1], growth_stages)
    rise, growth_rise = stages[1, 0], growth_stages[1, 0]
    if not again:
        for k in range(D):
            U_new[i, k] = U[i, k] + rise[k]
        log_new[i] = log_n[i] + growth_rise
        error[i] = 0.0
    if has_dense:
        write_cubic(i, 0, h, rise, growth_rise, all_stages, polynomials)
        for q in range(3, dense.shape[0]):
            dense_growth[q, i] = 0.0
            for k in range(D):
                dense[q, i, k] = 0.0
        error_within[i] = CUBIC * (np.sqrt(turned) + turned_growth) / tolerance[1]
    off = (LEAN * np.sqrt(turned) + moved) / tolerance[0]
    off_growth = LEAN * (turned_growth + 4.0 * np.sqrt(moved)) / tolerance[2]
    total: float = (off + off_growth) / np.sqrt(D + 1.0)
    return total
