r"""Means of sign SGD over Gaussian inputs: X_i = E[erf(e/(τ√2)) sign(∂e/∂h_i) x] and E sign(∂e/∂h_i) sign(∂e/∂h_j).

Of x only its projections count, on the P axes of the teacher and on the m that the neurons add one by one by a
triangular factor. Means are sums over a lattice in a ball, which converge exponentially for smooth e: two cubic
lattices, at (k ± ¼) h on every axis, one of which is enough where e is odd or even. A node of all axes but the last one
knows all neurons but the last one, so that the sum along the last axis evaluates that alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations.mean_step import add_noise, write_descent
from dynamics.equations.network import normal_kernels as normal
from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU, SIGN
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, vector
from dynamics.problem.checks import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.equations.network.steps import StepLink
    from hermite.arrays import Integers, Matrix, Vector

#: −a (U), β (U) and θ (U, P) of the teacher's units.
Units = tuple["Vector", "Vector", "Matrix"]
#: Kinds, places and degrees of the links of neurons and units, and the mean derivatives of those that are polynomials.
Links = tuple["Integers", "Vector"]

#: c of the spacing √2 c τ of a lattice, Gaussian weight beyond its ball, and about the error of rates, finest first: of
#: links that are smooth and bounded, and of others, whose errors are steep, bend or jump, as signs of slopes do.
SMOOTH = ((1.0, 1e-11, 3e-8), (1.25, 1e-10, 1e-5), (1.5, 1e-7, 1e-4), (1.75, 1e-5, 3e-4), (2.25, 1.5e-4, 1e-3))
ROUGH = ((0.35, 1e-10, 3e-3), (0.5, 1e-8, 5e-3), (0.75, 1e-7, 1e-2), (1.25, 1e-6, 2e-2), (2.25, 1.5e-4, 5e-2))
#: Label noise τ, in units of the largest weight of a neuron or unit, above which lattices are no wider.
WIDEST = 0.3
#: Nodes of the lattice that is taken, a coarser one if there are more; most nodes at all, and seconds of one.
FINE_NODES, MOST_NODES, SECONDS_OF_NODE = 2e5, 6e6, 3e-8


class Lattice(NamedTuple):
    """A lattice of nodes: spacing and radius, 1 or 2 cubic lattices, seconds of one evaluation and error of rates."""

    spacing: float
    reach: float
    cosets: int
    seconds: float
    error: float


def lattice(axes: int, label_noise: float, largest: float, *, symmetric: bool, rough: bool = False) -> Lattice:
    """Return the finest lattice of at most `FINE_NODES` nodes, else the coarsest; ValueError above `MOST_NODES`.

    `axes` is the number of its dimensions, `label_noise` the standard deviation τ, and `largest` the largest weight of
    a neuron or unit. `symmetric` says that the error is odd or even, so that one cubic lattice is enough, `rough` that
    links are steep, bend or jump.
    """
    from scipy.special import gammainccinv

    ball, nodes, chosen = math.pi ** (axes / 2.0) / math.gamma(axes / 2.0 + 1.0), math.inf, None
    for c, beyond, error in ROUGH if rough else SMOOTH:
        spacing = math.sqrt(2.0) * c * min(label_noise / max(largest, 1.0), WIDEST)
        reach = math.sqrt(2.0 * float(gammainccinv(axes / 2.0, beyond)))
        cosets = 1 if symmetric else 2
        nodes = cosets * ball * (reach / spacing) ** axes
        chosen = Lattice(spacing, reach, cosets, nodes * SECONDS_OF_NODE, error)
        if nodes <= FINE_NODES:
            break
    assert chosen is not None
    require(
        nodes <= MOST_NODES,
        f"Argument `problem` must have fewer neurons and directions, or more label noise, for SignSGD: with label "
        f"noise {label_noise:g} each rate on {axes} axes is a sum over {nodes:.1e} nodes, which takes "
        f"{chosen.seconds:.1g} s some thousand times, and at most {MOST_NODES:.0e} are taken.",
    )
    return chosen


def is_rough(link: StepLink) -> bool:
    """Return whether a link is neither `erf` nor linear, so that lattices must be finer."""
    return link.kind != ERF and (link.kind != POLYNOMIAL or link.degree > 1)


def is_symmetric(links: Sequence[StepLink], *, biased: bool) -> bool:
    """Return whether the error is even or odd in x, e(−x) = ±e(x), for these links of neurons and units."""
    even = odd = True
    for link in links:
        even = even and link.kind == POLYNOMIAL and not any(link.numbers[1::2])
        odd = odd and (link.kind in (ERF, SIGN) or (link.kind == POLYNOMIAL and not any(link.numbers[::2])))
    return (even or odd) and not biased


@kernel
def write_factor(Q: Matrix, M: Matrix, L: Matrix) -> None:
    """Write the Cholesky factor of Q − M Mᵀ to L (m, m), with 0 for a pivot below rounding.

    Q (m, m) are products of neurons and M (m, P) those with the teacher's axes.
    """
    m, P = M.shape
    L.fill(0.0)
    for i in range(m):
        for j in range(i + 1):
            total = Q[i, j]
            for p in range(P):
                total -= M[i, p] * M[j, p]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                L[i, i] = math.sqrt(max(total, 0.0))
            else:
                L[i, j] = total / L[j, j] if L[j, j] > 0.0 else 0.0


@kernel
def value_and_slope(kind: int, z: float, means: Vector) -> tuple[float, float]:
    """Return σ(z) and σ'(z) of a link of one `kind`.

    `means` are the mean derivatives E p^(j) at variance 1 of a polynomial p, and not used for other kinds.
    """
    if kind == ERF:
        bell, odd = normal.bell_and_odd(z)
        return odd, math.sqrt(2.0 / math.pi) * bell
    if kind == RELU:
        return max(z, 0.0), 1.0 if z > 0.0 else 0.0
    if kind != POLYNOMIAL:
        return math.copysign(1.0, z), 0.0
    value, slope, lower, hermite, share = means[0], 0.0, 0.0, 1.0, 1.0
    for j in range(1, means.size):
        # He_(j−1), of which j times is the derivative of He_j, then He_j itself.
        share /= j
        slope += means[j] * share * j * hermite
        lower, hermite = hermite, z * hermite - (j - 1.0) * lower
        value += means[j] * share * hermite
    return value, slope


@inlined_kernel
def sign_of(x: float) -> float:
    """Return the sign of a number, 0 of 0."""
    return 0.0 if x == 0.0 else math.copysign(1.0, x)


@kernel
def sum_line(
    kind: int, weight: float, z: float, deep: float, error: float, inverse: float, points: Vector, weights: Vector,
    begin: int, end: int, means: Vector,
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """Return Σ w, Σ w s, Σ w f, Σ w f x, Σ w f s and Σ w f s x over nodes x along the last axis, weights w.

    s is the sign of the derivative of the error e by the input of the last neuron, and f = erf(e/(τ√2)) ; `error` is e
    without that neuron, `inverse` 1/τ.
    """
    weight_sum = signs = total = first = of_sign = first_of_sign = 0.0
    if kind == ERF:
        s = sign_of(weight)
        for k in range(begin, end):
            total_error = error + weight * normal.bell_and_odd(z + deep * points[k])[1]
            f = weights[k] * normal.bell_and_odd(total_error * inverse)[1]
            weight_sum += weights[k]
            total += f
            first += f * points[k]
        return weight_sum, s * weight_sum, total, first, s * total, s * first
    for k in range(begin, end):
        value, slope = value_and_slope(kind, z + deep * points[k], means)
        f = weights[k] * normal.bell_and_odd((error + weight * value) * inverse)[1]
        s = sign_of(weight * slope)
        weight_sum += weights[k]
        signs += weights[k] * s
        total += f
        first += f * points[k]
        of_sign += f * s
        first_of_sign += f * s * points[k]
    return weight_sum, signs, total, first, of_sign, first_of_sign


@kernel
def sum_lattice(
    spacing: float, reach: float, shift: float, inverse: float, weight: Vector, bias: Vector, factor: Matrix,
    units: Units, links: Links, X: Matrix, like: Matrix,
) -> float:  # fmt: skip
    """Add the sums over a lattice at (k + shift) h to X (m, P + m) and `like` (m, m); return that of all weights.

    X_i sums f sign(∂e/∂h_i) x, f = erf(e/(τ√2)), and `like` products of two signs: e is the error, h_i the input of
    neuron i. h = `spacing`, `reach` is the radius of the ball and `inverse` 1/τ.

    Neurons have `weight` and `bias` (m,), and `factor` (m, P + m) are their components on the axes.
    """
    (m, D), (amplitudes, offsets, theta), (table, means) = factor.shape, units, links
    U, P, half = amplitudes.size, D - m, int(reach / spacing) + 2
    points, weights = np.empty(2 * half + 1), np.empty(2 * half + 1)
    for k in range(2 * half + 1):
        points[k] = (k - half + shift) * spacing
        weights[k] = spacing * math.exp(-0.5 * points[k] ** 2) / math.sqrt(2.0 * math.pi)
    # For the nodes on the first axes: projections, error, weight, the remainder of reach², and places.
    z, error, w, remaining = np.zeros((D, m + U)), np.zeros(D), np.ones(D), np.full(D, reach * reach)
    at, last = np.zeros(D, dtype=np.int64), np.zeros(D, dtype=np.int64)
    x, s, pull = np.empty(D), np.zeros(m), np.empty(m)
    last_neuron, weight_sum, a = m - 1, 0.0, 0
    of_last = vector(means, table[3 * last_neuron + 1], table[3 * last_neuron + 2] + 1)
    at[0], last[0] = math.ceil(half - shift - reach / spacing) - 1, math.floor(half - shift + reach / spacing)
    while a >= 0:
        at[a] += 1
        if at[a] > last[a]:
            a -= 1
            continue
        x[a] = points[at[a]]
        remaining_square, deeper, node_error = remaining[a] - x[a] * x[a], a + 1, error[a]
        w[deeper] = w[a] * weights[at[a]]
        for i in range(max(a - P, 0), m):
            z[deeper, i] = z[a, i] + factor[i, a] * x[a]
        for u in range(m, m + U if a < P else m):
            z[deeper, u] = z[a, u] + theta[u - m, a] * x[a]
            if a == P - 1:
                numbers = vector(means, table[3 * u + 1], table[3 * u + 2] + 1)
                node_error += (
                    amplitudes[u - m] * value_and_slope(table[3 * u], z[deeper, u] + offsets[u - m], numbers)[0]
                )
        if a >= P:
            i = a - P
            numbers = vector(means, table[3 * i + 1], table[3 * i + 2] + 1)
            value, slope = value_and_slope(table[3 * i], z[deeper, i] + bias[i], numbers)
            node_error += weight[i] * value
            s[i] = sign_of(weight[i] * slope)
        half_width = math.sqrt(max(remaining_square, 0.0)) / spacing
        begin, end = math.ceil(half - shift - half_width), math.floor(half - shift + half_width)
        if a < D - 2:
            a = deeper
            error[a], remaining[a], at[a], last[a] = node_error, remaining_square, begin - 1, end
            continue
        sums = sum_line(
            table[3 * last_neuron], weight[last_neuron], z[deeper, last_neuron] + bias[last_neuron],
            factor[last_neuron, D - 1], node_error, inverse, points, weights, begin, end + 1, of_last,
        )  # fmt: skip
        weight_sum += w[deeper] * sums[0]
        for i in range(m):
            is_before_last = i < last_neuron
            pull[i] = w[deeper] * (s[i] * sums[2] if is_before_last else sums[4])
            X[i, D - 1] += w[deeper] * (s[i] * sums[3] if is_before_last else sums[5])
            for k in range(D - 1):
                X[i, k] += pull[i] * x[k]
            for j in range(i + 1):
                sign_product = (
                    s[i] * s[j] * sums[0]
                    if is_before_last
                    else (s[j] * sums[1] if j < last_neuron else sums[0] * abs(sign_of(weight[last_neuron])))
                )
                like[i, j] += w[deeper] * sign_product
    return weight_sum


@kernel
def write_sign_rates(
    numbers: Vector, rate: float, d: float, y: Vector, scale: float, noise: float, units: Units, links: Links,
    L: Matrix, out: Vector,
) -> None:  # fmt: skip
    """Write the rates of the state [v | b | M | Q] under sign SGD at learning rate `rate`, in dimension d.

    `numbers` are the entries of a `Lattice`, `scale` the output scale of the network, `noise` the variance τ² of
    labels, and L the factor of `write_factor`.
    """
    m, P = L.shape[0], units[2].shape[1]
    M, dM, dQ = matrix(y, 2 * m, m, P), matrix(out, 2 * m, m, P), matrix(out, 2 * m + m * P, m, m)
    weight, bias, factor, D = np.empty(m), np.empty(m), np.zeros((m, P + m)), P + m
    for i in range(m):
        weight[i], bias[i] = scale * y[i], y[m + i]
        for p in range(P):
            factor[i, p] = M[i, p]
        for k in range(i + 1):
            factor[i, P + k] = L[i, k]
    X, sign_products, total = np.zeros((m, D)), np.zeros((m, m)), 0.0
    for coset in range(int(numbers[2])):
        shift = 0.25 if coset == 0 else -0.25
        inverse = 1.0 / math.sqrt(noise)
        total += sum_lattice(
            numbers[0], numbers[1], shift, inverse, weight, bias, factor, units, links, X, sign_products
        )
    out.fill(0.0)
    c = math.sqrt(2.0 / math.pi) / total
    F = np.zeros((m, D))
    for i in range(m):
        for p in range(P):
            F[i, m + p] = c * X[i, p]
        for j in range(m):
            for a in range(D):
                F[i, j] += c * factor[j, a] * X[i, a]
    write_descent(F, dM, dQ)
    add_noise(rate * d / total, sign_products, dQ)
