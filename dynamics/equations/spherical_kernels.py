"""Compiled kernels of the finite spherical network.

State y = W (m, D), rows of length 1; sizes = [m, P, D, r, J, n, sign_matters, place of the link] for m neurons, P
directions in the first r of D axes, J coefficients of the teacher's kernel g*(s) = Σ_j c_j c*_j s^j and n levels of the
loss; parameters = [a (P) | θ (P, r) | c c* (J) | levels (n) | E f*² | link], the link as in
`dynamics.equations.pairs.link`. The Gram matrix is made in strips of `STRIP` rows, which stay in the cache; one
right-hand side costs 4 m² D operations in BLAS products and m² values of g'. Scratch: a strip (STRIP, m), and `BLOCK`
values of the link.
"""

import numpy as np

from dynamics.equations.pairs.link import BLOCK, learned_kernel, write_g0, write_g1
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import kernel
from dynamics.kernels.products import is_stopped, product
from dynamics.kernels.views import matrix, vector

# Rows of the Gram matrix treated at a time.
STRIP = 32


@kernel
def strip_of_gram(y: Vector, first: int, count: int, sizes: Integers, work: Vector) -> Matrix:
    """Write w_i·w_j of `count` neurons from `first` on with all to the strip."""
    m, D = sizes[0], sizes[2]
    products = matrix(work, 0, count, m)
    product(matrix(y, first * D, count, D), matrix(y, 0, m, D).T, products)
    return products


@kernel
def link_of(parameters: Vector, sizes: Integers) -> Vector:
    """Return the data of the link."""
    return vector(parameters, sizes[7], parameters.size - sizes[7])


@kernel
def overlap(y: Vector, i: int, p: int, parameters: Vector, sizes: Integers) -> float:
    """w_i·θ_p."""
    P, D, r = sizes[1], sizes[2], sizes[3]
    total = 0.0
    for k in range(r):
        total += y[i * D + k] * parameters[P + p * r + k]
    return total


@kernel
def pull(s: float, first: int, parameters: Vector, sizes: Integers) -> tuple[float, float]:
    """Return g*(s) and g*'(s), by Horner's rule; the coefficients start at `first`."""
    value = slope = 0.0
    for j in range(sizes[4] - 1, -1, -1):
        slope = slope * s + value
        value = value * s + parameters[first + j]
    return value, slope


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write w' = F − (F·w) w, F_i = Σ_p a_p g*'(w_i·θ_p) θ_p − (1/m) Σ_{j≠i} g'(w_i·w_j) w_j."""
    m, P, D, r = sizes[0], sizes[1], sizes[2], sizes[3]
    W, link, values = matrix(y, 0, m, D), link_of(parameters, sizes), vector(work, STRIP * m, BLOCK)
    for first in range(0, m, STRIP):
        if is_stopped(sizes):
            return
        count = min(STRIP, m - first)
        forces = strip_of_gram(y, first, count, sizes, work)
        for begin in range(0, count * m, BLOCK):
            part = vector(work, begin, min(BLOCK, count * m - begin))
            write_g1(link, part, values)
            for k in range(part.size):
                part[k] = values[k]
        for i in range(count):
            # The force of a neuron on itself is radial.
            forces[i, first + i] = 0.0
        product(forces, W, matrix(out, first * D, count, D))
    teacher = P + P * r
    for i in range(m):
        for k in range(D):
            out[i * D + k] *= -1.0 / m
        for p in range(P):
            _, slope = pull(overlap(y, i, p, parameters, sizes), teacher, parameters, sizes)
            for k in range(r):
                out[i * D + k] += parameters[p] * slope * parameters[P + p * r + k]
        radial = 0.0
        for k in range(D):
            radial += out[i * D + k] * y[i * D + k]
        for k in range(D):
            out[i * D + k] -= radial * y[i * D + k]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Level − loss per level; max_i C_ip² − ½ (C > 0 only, if the sign matters); Σ_i g_3(C_ip)/(m g_3(1)) − a_p/2."""
    m, P, J, levels = sizes[0], sizes[1], sizes[4], sizes[5]
    teacher, link, values = P + P * sizes[3], link_of(parameters, sizes), vector(work, STRIP * m, BLOCK)
    loss = 0.0
    for first in range(0, m, STRIP):
        count = min(STRIP, m - first)
        strip_of_gram(y, first, count, sizes, work)
        for begin in range(0, count * m, BLOCK):
            size = min(BLOCK, count * m - begin)
            write_g0(link, vector(work, begin, size), values)
            for k in range(size):
                loss += values[k]
    loss = loss / m / m + parameters[teacher + J + levels]
    for p in range(P):
        largest = mass = attraction = 0.0
        for i in range(m):
            c = overlap(y, i, p, parameters, sizes)
            value, _ = pull(c, teacher, parameters, sizes)
            attraction += value
            mass += learned_kernel(link, c)
            if c > 0.0 or sizes[6] == 0:
                largest = max(largest, c * c)
        loss -= 2.0 * parameters[p] * attraction / m
        out[levels + p] = largest - 0.5
        out[levels + P + p] = mass / m / learned_kernel(link, 1.0) - 0.5 * parameters[p]
    for n in range(levels):
        out[n] = parameters[teacher + J + n] - loss


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Scale every w_i to length 1."""
    m, D = sizes[0], sizes[2]
    for i in range(m):
        total = 0.0
        for k in range(D):
            total += y[i * D + k] * y[i * D + k]
        scale = 1.0 / np.sqrt(total)
        for k in range(D):
            y[i * D + k] *= scale
