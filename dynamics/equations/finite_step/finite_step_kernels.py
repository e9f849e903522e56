"""Compiled functions of the finite-step equation.

State, events and constraint are those of `dynamics.equations.overlaps.overlaps_kernels`, whose Jacobian diagonal serves
as it is: it is dominant where the equation is stiff. parameters = [a (P) | T (P, P) | τ, three weights | numbers | data
of the link], sizes = [m, P, orthonormal, sign_matters, place of the link | layout]; `numbers` and `layout` are those of
`dynamics.equations.finite_step.step_moment_tables`.
"""

import numpy as np

from dynamics.equations.finite_step.step_moments_kernels import step_moments
from dynamics.equations.overlaps.overlaps_kernels import jacobian_product as flow_jacobian_product
from dynamics.equations.overlaps.overlaps_kernels import rhs as flow_rhs
from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.views import matrix, vector

#: Place of `layout` in `sizes`.
LAYOUT = 5
#: The relative moments do not change below n = 1e-200, but their parts would underflow.
SMALLEST_LOG_NORM = -460.0
#: A squared norm beyond this multiple of Σ a counts as infinite: from there on (ln n)' ~ η d n² diverges within a time
#: that float64 hardly resolves, and "the state is not finite" says more than "the step is too small".
LARGEST_NORM = 1e4
#: Step of the central difference, about the cube root of the spacing of float64.
DIFFERENCE = 6e-6


@kernel
def add_step_noise(y: Vector, scale: float, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add `scale` times the terms of order η: −½ C H_ii, H_ij − ½ G (H_ii + H_jj), H_ii."""
    m, P = sizes[0], sizes[1]
    mP, mm = m * P, m * m
    C, G = matrix(y, 0, m, P), matrix(y, mP, m, m)
    dC, dG, dl = matrix(out, 0, m, P), matrix(out, mP, m, m), vector(out, mP + mm, m)
    R, teacher_first = matrix(work, 0, m, P), matrix(work, mP, m, P)
    o = 2 * mP
    S, student_first, drift_gram = matrix(work, o, m, m), matrix(work, o + mm, m, m), matrix(work, o + 2 * mm, m, m)
    base, slope, rho = matrix(work, o + 3 * mm, m, m), matrix(work, o + 4 * mm, m, m), vector(work, o + 5 * mm, m)
    for i in range(m):
        rho[i] = np.exp(0.5 * max(y[mP + mm + i], SMALLEST_LOG_NORM))
        for p in range(P):
            R[i, p] = rho[i] * C[i, p]
        for j in range(i):
            S[i, j] = S[j, i] = rho[i] * rho[j] * G[i, j]
        S[i, i] = rho[i] * rho[i]
    at = P + P * P
    of_drift, of_base, of_slope = parameters[at + 1], parameters[at + 2], parameters[at + 3]
    teacher = (vector(parameters, 0, P), matrix(parameters, P, P, P), parameters[at])
    o += 5 * mm + m
    numbers = vector(parameters, at + 4, parameters.size - at - 4)
    tables = (numbers, vector(sizes, LAYOUT, sizes.size - LAYOUT), vector(work, o, work.size - o))
    step_moments((R, S), teacher, tables, (teacher_first, student_first, drift_gram, base, slope))
    H = S
    for i in range(m):
        for j in range(m):
            second = of_drift * drift_gram[i, j] + of_base * base[i, j] + of_slope * slope[i, j]
            H[i, j] = scale * second / (rho[i] * rho[j])
    for i in range(m):
        dl[i] += H[i, i]
        for p in range(P):
            dC[i, p] -= 0.5 * C[i, p] * H[i, i]
        for j in range(i):
            rate = H[i, j] - 0.5 * G[i, j] * (H[i, i] + H[j, j])
            dG[i, j] += rate
            dG[j, i] += rate


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Velocity of the flow and what finite steps add; not-a-number after a blow-up."""
    total = 0.0
    for p in range(sizes[1]):
        total += parameters[p]
    bound = np.log(LARGEST_NORM * total)
    for x in range(y.size - sizes[0], y.size):
        if y[x] > bound:
            for z in range(out.size):
                out[z] = np.nan
            return
    flow_rhs(t, y, out, parameters, sizes, work)
    add_step_noise(y, 1.0, out, parameters, sizes, work)


@kernel
def jacobian_product(
    t: float, y: Vector, v: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write the derivative of `rhs` along v: exact for the flow, a central difference for the terms of order η."""
    flow_jacobian_product(t, y, v, out, parameters, sizes, work)
    largest = 0.0
    for x in range(v.size):
        largest = max(largest, abs(v[x]))
    if largest == 0.0:
        return
    epsilon = DIFFERENCE / largest
    beside, rest = vector(work, 0, y.size), vector(work, y.size, work.size - y.size)
    for sign in (1.0, -1.0):
        for x in range(y.size):
            beside[x] = y[x] + sign * epsilon * v[x]
        add_step_noise(beside, sign * 0.5 / epsilon, out, parameters, sizes, rest)
