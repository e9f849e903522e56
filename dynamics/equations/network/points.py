r"""A two-layer network under any loss and labels, on Gaussian inputs or a mixture, by means over Sobol points.

Symbols: m neurons, r axes of teacher and mixture, C outputs; w_i (d) and b_i are the first layer and biases, V (C, m)
the second layer, S the output scale. Inputs are x = μ_κ + z/√s, z standard normal, of a cluster κ with weight p_κ, mean
μ_κ and precision s; without a mixture μ = 0 and s = 1. All are dimensionless. With h_i = w_i·x + b_i, outputs
f_k = S Σ_i V_ki σ(h_i), slopes g_k = ∂ℓ/∂f_k of the loss and q_i = S Σ_k g_k V_ki σ'(h_i), the mean gradients are
E q_i x of w_i, S E g_k σ_i of V_ki and E q_i of b_i; the products of those of one sample are E q_i q_j |x|². Where a
point has labels y_l with weights π_l, its means are sums over l.

State: one block [V (C, m) | b (m) | M (m, r) | Q (m, m)] per scramble of the points, M the projections of the neurons
on the axes and Q = (w_i·w_j). A block moves by its own scramble alone. The answer is the mean of all blocks, its
error `ERRORS` standard errors of this mean.

Points have few coordinates, since h depends on x along axes and neurons alone. Let W = [M | L], LLᵀ = Q − MMᵀ, with
k = min(m, d − r) columns of L. A point is X = (x on the axes, G/√s) with k standard normal numbers G, and h = W X + b.
So P = E q Xᵀ holds the mean gradients, F = P Wᵀ their products with neurons, P Pᵀ those among each other, and |x|² is
|X|² + (d − r − k)/s.

`sizes` holds `PointLayout`, `work` holds `Parts`, and `parameters` is [`PointRates` | |w_i(0)|² (m) | `marks_of` |
numbers of the link | pieces of a loss that a user wrote | tiles of points, as `tile_of` reads them].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numba import types

from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.network import labels as of_labels
from dynamics.equations.network.families import check_no_ties, normalised_overlaps
from dynamics.equations.network.normal_kernels import mirror
from dynamics.kernels.jit import callback, entry, inlined_kernel, kernel, matrix, pasted_kernel, vector
from dynamics.kernels.stopping import with_slot
from dynamics.kernels.units import unit
from dynamics.problem import losses
from dynamics.problem.checks import check_memory, checked_integer, require
from dynamics.problem.losses import OBJECTIVES, VALUE, OwnLoss
from hermite.arrays import Integers, Matrix, Vector
from hermite.piecewise import PIECE_WIDTH, TABLE_END, has_kink, pieces_of
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem, Student
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Scrambles of the points, each with its own trajectory, and the standard errors of their mean that bound 95 %.
BLOCKS, ERRORS = 4, 3.18
#: Points in a tile, whose numbers stay in the fastest cache; points by default, and the fewest and most.
TILE, POINTS, FEWEST, MOST = 64, 2**14, 2**10, 2**24
#: Most coordinates of a point.
MOST_COORDINATES = 16
#: Smallest rtol and atol where σ' or ℓ' jumps, at `POINTS` points: a point that passes a kink moves y' by its weight.
#: Networks of relu differ by 2e-4 from those at a tenth, less than a fiftieth of the error by points.
KINKED_TOLERANCE, LEAST_KINKED = 1e-3, 1e-5
#: Least size of a start in which atol is then told; the error of smaller starts is larger.
LEAST_SIZE = 0.1
#: Smallest rtol and atol where ℓ'' jumps.
BENT_TOLERANCE = 1e-6
#: Largest degree of a link that is a polynomial in powers of z, for which Horner's rule loses few digits.
HORNER_DEGREE = 12
#: Share of Q_ii below which a pivot of Q − MMᵀ is rounding.
ROUNDING = 1e-14
#: Tells points from other draws.
POINTS_DRAWN = 76
#: Of `theory`: the flow, population gradient descent, and SGD as d → ∞ and at finite d.
FLOW, DESCENT, INFINITE, FINITE = range(4)
#: Kinds of links in `parameters`.
TABLE, POWERS = 0, 1
#: Codes of losses, in the order of `OBJECTIVES`.
OF_SQUARES, OF_CORRELATION, OF_LOGISTIC, OF_HINGE, OF_HUBER, OF_EXPONENTIAL, OF_SOFTMAX, OF_OWN = range(8)
#: Nodes of the mean squares in `stiffness`.
NODES = 200
#: Bound on ℓ'', by code.
CURVATURE = {OF_CORRELATION: 0.0, OF_LOGISTIC: 0.25, OF_SOFTMAX: 0.5}


class PointLayout(NamedTuple):
    """First entries of `sizes`: numbers of a network and of its points, and places in `parameters`."""

    #: Neurons m, axes r, further coordinates k, outputs C, labels L of a point; 1 for neurons on the sphere, else 0.
    width: int
    axes: int
    hidden: int
    outputs: int
    labels: int
    sphere: int
    #: `FLOW`, `DESCENT`, `INFINITE` or `FINITE`.
    theory: int
    #: Code of the loss, and 1 where labels have a test error.
    loss: int
    has_error: int
    #: Numbers of a block of the state, tiles of a block, and numbers of a tile.
    state: int
    tiles: int
    tile_size: int
    #: Places in `parameters`.
    marks_at: int
    link_at: int
    own_at: int
    points_at: int


class PointRates(NamedTuple):
    """First entries of `parameters`, dimensionless.

    Rates ε_w, ε_v, ε_b and decays κ_w, κ_v of the layers, output scale S, step η, batch size B, the squared overlap at
    which a direction emerges, and the powers in a piece of a loss that a user wrote, 0 for a named loss.
    """

    rate_w: float
    rate_v: float
    rate_b: float
    decay_w: float
    decay_v: float
    scale: float
    step: float
    batch: float
    level: float
    powers: float


#: Place in `parameters` of the squared lengths at the start.
SQUARES_AT = len(PointRates._fields)


class Parts(NamedTuple):
    """Layout of `work`, D = r + k."""

    #: W and P (m, D).
    weights: Matrix
    gradient: Matrix
    #: E q_i q_j |x|², later the second-order term of a mean step, and F, both (m, m).
    products: Matrix
    forces: Matrix
    #: Mean gradients of V, then of b (C + 1, m).
    layers: Matrix
    #: h, σ and σ' (3 m, TILE); f, g and probabilities (3 C, TILE); further rows (4, TILE).
    link: Matrix
    outputs: Matrix
    rows: Matrix
    #: Mean loss and test error.
    totals: Vector


class Tile(NamedTuple):
    """`TILE` points with the same share of the mean."""

    #: Share of the mean over a block of one point.
    weight: float
    #: Coordinates (r + k, TILE), and |x|² (TILE,).
    X: Matrix
    squares: Vector
    #: Values y_l and weights π_l of labels (L, TILE).
    labels: Matrix
    shares: Matrix


@kernel
def layout_of(sizes: Integers) -> PointLayout:
    """Return the numbers and places of a network."""
    return PointLayout(
        sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8], sizes[9], sizes[10],
        sizes[11], sizes[12], sizes[13], sizes[14], sizes[15],
    )  # fmt: skip


@kernel
def rates_of(parameters: Vector) -> PointRates:
    """Return the rates of a network."""
    return PointRates(
        parameters[0], parameters[1], parameters[2], parameters[3], parameters[4], parameters[5], parameters[6],
        parameters[7], parameters[8], parameters[9],
    )  # fmt: skip


@kernel
def initial_squares(parameters: Vector, sizes: Integers) -> Vector:
    """Return the squared lengths of the neurons at the start, |w_i(0)|² (m,), a view."""
    return vector(parameters, SQUARES_AT, layout_of(sizes).width)


@kernel
def marks_of(parameters: Vector, sizes: Integers) -> Matrix:
    """Return the mean loss and test error of each block whose passing is an event, (BLOCKS, 2), a view; NaN: none."""
    return matrix(parameters, layout_of(sizes).marks_at, BLOCKS, 2)


@kernel
def tile_of(parameters: Vector, sizes: Integers, block: int, tile: int) -> Tile:
    """Return tile number `tile` of the points of block number `block`, as views of `parameters`."""
    layout = layout_of(sizes)
    D, L = layout.axes + layout.hidden, layout.labels
    at = layout.points_at + (block * layout.tiles + tile) * layout.tile_size
    squares = at + 1 + D * TILE
    return Tile(
        parameters[at], matrix(parameters, at + 1, D, TILE), vector(parameters, squares, TILE),
        matrix(parameters, squares + TILE, L, TILE), matrix(parameters, squares + (1 + L) * TILE, L, TILE),
    )  # fmt: skip


@pasted_kernel
def parts_of(sizes: Integers, work: Vector) -> Parts:
    """Return the named parts of the scratch `work`, as views of the shapes that `Parts` lists."""
    layout = layout_of(sizes)
    m, C, D = layout.width, layout.outputs, layout.axes + layout.hidden
    P, S = m * D, 2 * m * D
    F, layers = S + m * m, S + 2 * m * m
    link = layers + (C + 1) * m
    outputs = link + 3 * m * TILE
    rows = outputs + 3 * C * TILE
    return Parts(
        matrix(work, 0, m, D), matrix(work, P, m, D), matrix(work, S, m, m), matrix(work, F, m, m),
        matrix(work, layers, C + 1, m), matrix(work, link, 3 * m, TILE), matrix(work, outputs, 3 * C, TILE),
        matrix(work, rows, 4, TILE), vector(work, rows + 4 * TILE, 2),
    )  # fmt: skip


@kernel
def write_weights(M: Matrix, Q: Matrix, W: Matrix) -> None:
    """Write the weights W = [M | L] (m, r + k) of M (m, r) and Q (m, m): L is a Cholesky factor, LLᵀ = Q − MMᵀ.

    Pivots below rounding, also negative ones, count as 0, and so does their column of L.
    """
    m, r = M.shape
    for i in range(m):
        for a in range(W.shape[1]):
            W[i, a] = M[i, a] if a < r else 0.0
    for j in range(W.shape[1] - r):
        root = 0.0
        for i in range(j, m):
            left = Q[i, j]
            for a in range(r + j):
                left -= W[i, a] * W[j, a]
            if i == j:
                root = math.sqrt(left) if left > ROUNDING * Q[j, j] else 0.0
                W[j, r + j] = root
            elif root > 0.0:
                W[i, r + j] = left / root


@inlined_kernel
def piece_at(numbers: Vector, at: int, terms: int, z: float) -> tuple[float, float]:
    """Return a tabulated function and its slope at z, see `hermite.piecewise.value_and_slope`."""
    inside = min(max(z, -TABLE_END), TABLE_END)
    scaled = (inside + TABLE_END) * (1.0 / PIECE_WIDTH)
    piece = min(int(scaled), int(2.0 * TABLE_END / PIECE_WIDTH) - 1)
    first = at + terms * piece
    u = 2.0 * (scaled - piece) - 1.0
    value, slope = numbers[first + terms - 1], 0.0
    for power in range(terms - 2, -1, -1):
        slope = slope * u + value
        value = value * u + numbers[first + power]
    slope *= 2.0 / PIECE_WIDTH
    return value + slope * (z - inside), slope


@unit()
def write_link(numbers: Vector, at: int, z: Vector, value: Vector, slope: Vector) -> None:
    """Write σ and σ' at z (n,) to `value` and `slope`, for the link that `numbers` describes from place `at` on.

    Its description is [kind, terms, coefficients]: those of one polynomial, or of every piece of a table.
    """
    kind, terms = int(numbers[at]), int(numbers[at + 1])
    if kind == POWERS:
        for j in range(z.size):
            value[j], slope[j] = numbers[at + 1 + terms], 0.0
        for power in range(terms - 2, -1, -1):
            number = numbers[at + 2 + power]
            for j in range(z.size):
                slope[j] = slope[j] * z[j] + value[j]
                value[j] = value[j] * z[j] + number
    else:
        for j in range(z.size):
            value[j], slope[j] = piece_at(numbers, at + 2, terms, z[j])


@kernel
def loss_at(code: int, f: float, y: float, numbers: Vector, at: int, terms: int) -> tuple[float, float]:  # noqa: PLR0911
    """Return ℓ(f, y) and ∂ℓ/∂f for an output f and a label y, of the loss with this `code`.

    A loss that the user wrote is tabulated in `numbers` from place `at` on, in pieces of `terms` coefficients: first
    ℓ(·, −1), then ℓ(·, 1).
    """
    error, u = f - y, f * y
    if code == OF_LOGISTIC:
        small = math.exp(-abs(u))
        return max(-u, 0.0) + math.log1p(small), -y * (small if u > 0.0 else 1.0) / (1.0 + small)
    if code == OF_SQUARES:
        return 0.5 * error * error, error
    if code == OF_CORRELATION:
        return -u, -y
    if code == OF_HUBER:
        size = abs(error)
        return 0.5 * error * error if size <= 1.0 else size - 0.5, min(max(error, -1.0), 1.0)
    if code == OF_EXPONENTIAL:
        value = math.exp(-u)
        return value, -y * value
    if code == OF_HINGE:
        inside = min(max(1.0 - u, 0.0), 1.0)
        return 0.5 * inside * inside if u >= 0.0 else 0.5 - u, -y * inside
    pieces = int(2.0 * TABLE_END / PIECE_WIDTH)
    return piece_at(numbers, at + (terms * pieces if y > 0.0 else 0), terms, f)


@unit()
def write_losses(
    weight: float, labels: Matrix, shares: Matrix, outputs: Matrix, rows: Matrix, totals: Vector, parameters: Vector,
    sizes: Integers,
) -> None:  # fmt: skip
    """Write the slopes of a tile and add its losses and errors to `totals`.

    `outputs` has f in its first C rows. The next C get Σ_l π_l ∂ℓ/∂f times the weight of a point, the last C, of
    softmax, its probabilities. Of one output the first of `rows` gets Σ_l π_l (∂ℓ/∂f)², times that weight.
    """
    layout, powers = layout_of(sizes), int(rates_of(parameters).powers)
    C, code, loss, wrong = layout.outputs, layout.loss, 0.0, 0.0
    if code == OF_SOFTMAX:
        for t in range(TILE):
            top, best = outputs[0, t], 0
            for k in range(1, C):
                if outputs[k, t] > top:
                    top, best = outputs[k, t], k
            total = 0.0
            for k in range(C):
                outputs[2 * C + k, t] = math.exp(outputs[k, t] - top)
                total += outputs[2 * C + k, t]
            for k in range(C):
                p, share = outputs[2 * C + k, t] / total, shares[k, t]
                outputs[2 * C + k, t], outputs[C + k, t] = p, weight * (p - share)
                loss += share * (top + math.log(total) - outputs[k, t])
            wrong += 1.0 - shares[best, t]
    else:
        for t in range(TILE):
            f, slope, square = outputs[0, t], 0.0, 0.0
            for k in range(layout.labels):
                y, share = labels[k, t], shares[k, t]
                value, first = loss_at(code, f, y, parameters, layout.own_at, powers)
                loss += share * value
                slope += share * first
                square += share * first * first
                if y * f <= 0.0:
                    wrong += share if y * f < 0.0 else 0.5 * share
            outputs[C, t], rows[0, t] = weight * slope, weight * square
    totals[0] += weight * loss
    totals[1] += weight * wrong if layout.has_error == 1 else math.nan


@unit()
def add_squares(
    weight: float, V: Matrix, shares: Matrix, squares: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Add the part of one tile to the means S_ij = E q_i q_j |x|² (m, m), on and below the diagonal.

    `write_losses` must have been called for the tile, whose points have this `weight`, |x|² = `squares` and, for the
    softmax loss, `shares` of the labels; V (C, m) is the second layer.
    """
    layout, scale, parts = layout_of(sizes), rates_of(parameters).scale, parts_of(sizes, work)
    m, C, S, rows, outputs, link = layout.width, layout.outputs, parts.products, parts.rows, parts.outputs, parts.link
    for label in range(C if layout.loss == OF_SOFTMAX else 1):
        for t in range(TILE):
            mean = rows[0, t] if layout.loss != OF_SOFTMAX else weight * shares[label, t]
            rows[1, t] = mean * squares[t]
        for i in range(m):
            for t in range(TILE):
                total = V[0, i]
                if layout.loss == OF_SOFTMAX:
                    total = -V[label, i]
                    for k in range(C):
                        total += V[k, i] * outputs[2 * C + k, t]
                link[i, t] = scale * total * link[2 * m + i, t]
        for i in range(m):
            for t in range(TILE):
                rows[2, t] = rows[1, t] * link[i, t]
            for j in range(i + 1):
                total = 0.0
                for t in range(TILE):
                    total += rows[2, t] * link[j, t]
                S[i, j] += total


@kernel
def link_place(sizes: Integers) -> int:
    """Return the place of the rows of the link in `work`."""
    layout = layout_of(sizes)
    m, D = layout.width, layout.axes + layout.hidden
    return 2 * m * D + 2 * m * m + (layout.outputs + 1) * m


@inlined_kernel
def write_outputs(y: Vector, X: Matrix, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write h = W X + b, σ(h) and σ'(h) of all neurons and the outputs f at the points X (r + k, TILE) of a tile.

    y is the state of one block; the results go to `link` and to the first C rows of `outputs`, parts of `work`.
    """
    layout, parts, at = layout_of(sizes), parts_of(sizes, work), link_place(sizes)
    m, r, C, D = layout.width, layout.axes, layout.outputs, layout.axes + layout.hidden
    scale, link, outputs, V = rates_of(parameters).scale, parts.link, parts.outputs, matrix(y, 0, C, m)
    for i in range(m):
        for t in range(TILE):
            link[i, t] = y[C * m + i]
        for a in range(min(D, r + i + 1)):
            factor = parts.weights[i, a]
            for t in range(TILE):
                link[i, t] += factor * X[a, t]
    size = m * TILE
    z, value, slope = vector(work, at, size), vector(work, at + size, size), vector(work, at + 2 * size, size)
    write_link(parameters, layout.link_at, z, value, slope)
    for k in range(C):
        for t in range(TILE):
            outputs[k, t] = 0.0
        for i in range(m):
            factor = scale * V[k, i]
            for t in range(TILE):
                outputs[k, t] += factor * link[m + i, t]


@inlined_kernel
def add_gradients(y: Vector, X: Matrix, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Add the part of one tile to the mean gradients: P (m, r + k), and those of V and b, `layers` (C + 1, m).

    `write_losses` must have been called for the tile, whose points are X (r + k, TILE); y is the state of one block.
    """
    layout, parts, scale = layout_of(sizes), parts_of(sizes, work), rates_of(parameters).scale
    m, C, D, link = layout.width, layout.outputs, layout.axes + layout.hidden, parts.link
    outputs, rows, V = parts.outputs, parts.rows, matrix(y, 0, C, m)
    for i in range(m):
        for t in range(TILE):
            rows[3, t] = 0.0
        for k in range(C):
            factor, total = scale * V[k, i], 0.0
            for t in range(TILE):
                rows[3, t] += factor * outputs[C + k, t]
                total += outputs[C + k, t] * link[m + i, t]
            parts.layers[k, i] += scale * total
        total = 0.0
        for t in range(TILE):
            rows[3, t] *= link[2 * m + i, t]
            total += rows[3, t]
        parts.layers[C, i] += total
        for a in range(D):
            total = 0.0
            for t in range(TILE):
                total += rows[3, t] * X[a, t]
            parts.gradient[i, a] += total


@unit()
def write_means(y: Vector, block: int, values: bool, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the means of a block over all its points to `work`: mean loss and test error, and all mean gradients.

    y is the state of the block with number `block`. If `values`, only W and the first two are computed; otherwise also
    P, the means `layers` of V and b, and E q_i q_j |x|² where steps of SGD need it.
    """
    layout, parts = layout_of(sizes), parts_of(sizes, work)
    m, r, C, D = layout.width, layout.axes, layout.outputs, layout.axes + layout.hidden
    V, M, Q = matrix(y, 0, C, m), matrix(y, (C + 1) * m, m, r), matrix(y, (C + 1 + r) * m, m, m)
    write_weights(M, Q, parts.weights)
    means = vector(work, m * D, link_place(sizes) - m * D)
    for x in range(means.size):
        means[x] = 0.0
    parts.totals[0] = parts.totals[1] = 0.0
    for number in range(layout.tiles):
        tile = tile_of(parameters, sizes, block, number)
        write_outputs(y, tile.X, parameters, sizes, work)
        write_losses(tile.weight, tile.labels, tile.shares, parts.outputs, parts.rows, parts.totals, parameters, sizes)
        if values:
            continue
        add_gradients(y, tile.X, parameters, sizes, work)
        if layout.theory >= INFINITE:
            add_squares(tile.weight, V, tile.shares, tile.squares, parameters, sizes, work)


@kernel
def keep_lengths(step: float, M: Matrix, Q: Matrix, S: Matrix, dM: Matrix, dQ: Matrix) -> None:
    """Remove from dM (m, r) and dQ (m, m) the growth of neurons by the second-order term step · S (m, m).

    Each neuron then keeps its length to this order: the change along it is subtracted, and dQ_ii is set to 0. Mean
    gradients have no part along neurons already.
    """
    for i in range(len(M)):
        turn = -0.5 * step * S[i, i] / Q[i, i]
        for a in range(M.shape[1]):
            dM[i, a] += turn * M[i, a]
        for j in range(len(M)):
            dQ[i, j] += turn * Q[i, j]
            dQ[j, i] += turn * Q[i, j]
    for i in range(len(M)):
        dQ[i, i] = 0.0


@kernel
def write_forces(Q: Matrix, rates: PointRates, parts: Parts, sphere: bool) -> None:
    """Turn P = E q Xᵀ (m, r + k) into the negative velocities of neurons, in place, and write F = P Wᵀ (m, m).

    P is multiplied by the rate ε_w. On the sphere the part along each neuron is then removed; otherwise the decay
    κ_w W is added.
    """
    P, W, F = parts.gradient, parts.weights, parts.forces
    m, D = P.shape
    for i in range(m):
        along = 0.0
        for a in range(D):
            P[i, a] *= rates.rate_w
            along += P[i, a] * W[i, a]
        factor = -along / Q[i, i] if sphere else rates.decay_w
        for a in range(D):
            P[i, a] += factor * W[i, a]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for a in range(D):
                total += P[i, a] * W[j, a]
            F[i, j] = total


@pasted_kernel
def write_block(y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write dV/dt, db/dt, dM/dt and dQ/dt of a block to `out`, from the means that `write_means` left in `work`."""
    layout, rates, parts = layout_of(sizes), rates_of(parameters), parts_of(sizes, work)
    m, r, C, D = layout.width, layout.axes, layout.outputs, layout.axes + layout.hidden
    P, S, F, layers = parts.gradient, parts.products, parts.forces, parts.layers
    Q, dM, dQ = matrix(y, (C + 1 + r) * m, m, m), matrix(out, (C + 1) * m, m, r), matrix(out, (C + 1 + r) * m, m, m)
    for x in range((C + 1) * m):
        rate, decay = (rates.rate_v, rates.decay_v) if x < C * m else (rates.rate_b, 0.0)
        out[x] = -rate * layers[x // m, x % m] - decay * y[x]
    write_forces(Q, rates, parts, layout.sphere == 1)
    for i in range(m):
        for a in range(r):
            dM[i, a] = -P[i, a]
    exact = layout.theory != INFINITE
    for i in range(m):
        for j in range(i + 1):
            dQ[i, j] = -F[i, j] - F[j, i]
            if layout.theory != FLOW:
                mean = 0.0
                for a in range(D if exact else 0):
                    mean += P[i, a] * P[j, a]
                if layout.theory != DESCENT:
                    sample = rates.rate_w**2 * S[i, j]
                    if exact:
                        sample += rates.decay_w * (F[i, j] + F[j, i] - rates.decay_w * Q[i, j])
                    mean += (sample - mean) / rates.batch
                S[i, j] = mean
                dQ[i, j] += rates.step * mean
    mirror(dQ)
    if layout.sphere == 1:
        keep_lengths(rates.step if layout.theory != FLOW else 0.0, matrix(y, (C + 1) * m, m, r), Q, S, dM, dQ)


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the time derivatives of the states of all blocks."""
    size = layout_of(sizes).state
    for block in range(BLOCKS):
        part = vector(y, block * size, size)
        write_means(part, block, False, parameters, sizes, work)
        write_block(part, vector(out, block * size, size), parameters, sizes, work)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the event values of all blocks to `out`, r + 2 per block; an event happens where a value passes 0 upwards.

    For each axis a this is max_i M_ia²/Q_ii − level, the largest squared overlap of a neuron less that of emergence;
    then come mark − mean loss and mark − test error, −1 where there is no mark.
    """
    layout, rates = layout_of(sizes), rates_of(parameters)
    m, r, C, size = layout.width, layout.axes, layout.outputs, layout.state
    for block in range(BLOCKS):
        part = vector(y, block * size, size)
        M, Q = matrix(part, (C + 1) * m, m, r), matrix(part, (C + 1 + r) * m, m, m)
        at = block * (r + 2)
        for a in range(r):
            out[at + a] = -rates.level
            for i in range(m):
                if Q[i, i] > 0.0:
                    out[at + a] = max(out[at + a], M[i, a] ** 2 / Q[i, i] - rates.level)
        totals = parts_of(sizes, work).totals
        write_means(part, block, True, parameters, sizes, work)
        for k in range(2):
            mark = marks_of(parameters, sizes)[block, k]
            out[at + r + k] = mark - totals[k] if not math.isnan(mark) else -1.0


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Make Q symmetric in every block, by copying one half over the other, in place.

    Neurons on the sphere are also scaled, in M and Q, to the lengths that they started with.
    """
    layout = layout_of(sizes)
    m, r, C, size = layout.width, layout.axes, layout.outputs, layout.state
    for block in range(BLOCKS):
        at = block * size + (C + 1) * m
        M, Q = matrix(y, at, m, r), matrix(y, at + m * r, m, m)
        mirror(Q)
        for i in range(m if layout.sphere == 1 else 0):
            start = initial_squares(parameters, sizes)[i]
            factor = math.sqrt(start / Q[i, i])
            for a in range(r):
                M[i, a] *= factor
            for j in range(m):
                Q[i, j] *= factor
                Q[j, i] *= factor
            Q[i, i] = start


@kernel
def write_totals(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the mean loss and the test error of every block of the state `y` to `out`, as a flat (blocks, 2).

    A block is one of the `BLOCKS` states that `y` holds in turn. The test error is NaN if the loss has none. The
    signature is that of the kernels that `evaluate` calls: the time t is not used, and `work` is scratch.
    """
    size = layout_of(sizes).state
    for block in range(BLOCKS):
        write_means(vector(y, block * size, size), block, True, parameters, sizes, work)
        for k in range(2):
            out[2 * block + k] = parts_of(sizes, work).totals[k]


@kernel
def mean_rates(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of one state y of a network, by means over the points of all blocks, and its mean loss to `out`.

    `work` ends with place for the rates of one block.
    """
    size = layout_of(sizes).state
    rates = vector(work, work.size - size, size)
    for x in range(size + 1):
        out[x] = 0.0
    for block in range(BLOCKS):
        write_means(y, block, False, parameters, sizes, work)
        write_block(y, rates, parameters, sizes, work)
        for x in range(size):
            out[x] += rates[x] / BLOCKS
        out[size] += parts_of(sizes, work).totals[0] / BLOCKS


@entry
def evaluate(function: Callable[..., None], y: Vector, out: Vector, numbers: tuple[Vector, Integers, Vector]) -> None:
    """Call a function of a state from Python."""
    function(0.0, y, out, numbers[0], numbers[1], numbers[2])


_EVALUATION = types.void(types.float64, *[types.float64[::1]] * 3, types.int64[::1], types.float64[::1])


class PointSystem(FlowSystem):
    """State layout, points and observables of a network whose means are taken over points.

    Without a `learning_rate` the system is the gradient flow. With one, η, it is the mean step of SGD with batches of
    `batch_size` as `step_theory` says, "infinite-d" or "finite-d", and that of population gradient descent for None.
    `points` is the number of points of all scrambles together, a power of two. ValueError is raised for too many
    coordinates or a link that jumps where its argument is trained, and if two neurons start alike.
    """

    name = "points"
    functions = Functions(rhs, event_values, normalise, choices=())
    falls = False

    def __init__(
        self, problem: Problem, learning_rate: float | None = None, step_theory: str | None = None,
        batch_size: int = 1, points: object = POINTS,
    ) -> None:  # fmt: skip
        self.problem, self.student = problem, cast("Student", problem.student)
        student, start = self.student, problem.network_start()
        m, r, C = problem.width, problem.teacher.span, problem.num_outputs
        hidden = min(m, problem.dimension - r)
        require(
            m + r <= MOST_COORDINATES,
            f"Argument `problem` must have at most {MOST_COORDINATES} neurons and axes together, whose means are taken "
            f"over points, but has {m} and {r}.",
        )
        count = checked_points(points)
        if learning_rate is None:
            theory = FLOW
        else:
            theory = {None: DESCENT, "infinite-d": INFINITE, "finite-d": FINITE}[step_theory]
        require(
            theory != FINITE or student.first_layer != "sphere",
            "Argument `step_theory` must be 'infinite-d' for neurons on the sphere, whose mean step at finite d is no "
            "finite sum because it divides by a length, but is 'finite-d'.",
        )
        if student.learning_rates[0] > 0.0 or student.learning_rates[2] > 0.0:
            check_no_jump(problem)
        M, Q = start.weights[:, :r], start.weights @ start.weights.T
        V = np.atleast_2d(start.second_layer)
        check_no_ties(start.second_layer if C == 1 else V.T @ np.arange(1.0, C + 1.0), start.bias, M, Q)
        state = np.concatenate([V.ravel(), start.bias, M.ravel(), Q.ravel()])
        self.initial_state = np.tile(state, BLOCKS)
        link, self.kinked = link_numbers(problem.activation)
        pieces = problem.objective.table if isinstance(problem.objective, OwnLoss) else np.zeros((2, 1, 0))
        self.kinked = self.kinked or (isinstance(problem.objective, OwnLoss) and problem.objective.kinks)
        rates = PointRates(
            *student.learning_rates, *student.decay, student.output_scale, learning_rate or 0.0, batch_size,
            problem.emergence_level, pieces.shape[2],
        )  # fmt: skip
        D, L = r + hidden, of_labels.labels_per_point(problem)
        clusters, per_cluster = points_by_cluster(problem, count)
        self.points = BLOCKS * clusters * per_cluster
        check_memory("points", points, self.points * (D + 2 * L + 1) + BLOCKS * state.size)
        #: Least rtol and atol that steps can follow.
        self.least_tolerance = BENT_TOLERANCE if problem.objective in (losses.HINGE, losses.HUBER) else 0.0
        if self.kinked:
            self.least_tolerance = max(KINKED_TOLERANCE * math.sqrt(POINTS / self.points), LEAST_KINKED)
        self.notes = [
            f"Means are over {BLOCKS} scrambles of points; errors are {ERRORS} standard errors of their mean",
        ] + [
            f"rtol is at least {self.least_tolerance:.2g}, since the slope of the link or of the loss jumps; "
            "starts much smaller than 0.1 are less accurate"
        ] * self.kinked
        tiles = points_of(problem, per_cluster, exact=theory == FINITE)
        places = np.cumsum([len(rates) + m, 2 * BLOCKS, link.size, pieces.size]).tolist()
        code = OF_OWN if isinstance(problem.objective, OwnLoss) else OBJECTIVES.index(problem.objective)
        self.layout = PointLayout(
            m, r, hidden, C, L, int(student.first_layer == "sphere"), theory, code, int(problem.labels != VALUE),
            state.size, tiles.numbers.shape[1], tiles.numbers.shape[2], *places,
        )  # fmt: skip
        marks = np.full((BLOCKS, 2), np.nan)
        numbers = [np.array(rates), np.diag(Q), marks.ravel(), link, pieces.ravel(), tiles.numbers.ravel()]
        self.parameters: Array = np.concatenate(numbers)
        self.sizes: Integers = np.array(self.layout, dtype=np.int64)
        self.work_size = 2 * m * D + 2 * m * m + (C + 1) * m + (3 * m + 3 * C + 4) * TILE + 2
        self.num_events = BLOCKS * (r + 2)
        #: E min_f ℓ and the error of Bayes by block, in the units of the kernels, and the loss that is told: a ℓ + b.
        self._floor, self._bayes = tiles.floor, tiles.bayes
        self._factor, self._shift = (2.0, 0.0) if code == OF_SQUARES else (1.0, 0.0)
        if code == OF_SQUARES and problem.labels == VALUE:
            self._shift = -(problem.label_noise**2)
        exact = of_labels.exact_bayes_error(problem)
        if exact is not None:
            self._bayes = np.full(BLOCKS, exact)

    def set_half_levels(self) -> None:
        """Set the levels of the events "half-way": means of the start's loss and error and of their least values.

        An integration calls it once; a check of a problem does not, because it compiles a kernel.
        """
        levels = 0.5 * (self.totals(self.initial_state) + np.stack([self._floor, self._bayes], axis=1))
        at = self.layout.marks_at
        self.parameters[at : at + levels.size] = levels.ravel()

    def mean_rates(self) -> Callable[[Array], tuple[Array, float]]:
        """Return the function of the state of one block that returns its rates over all points, and its loss."""
        size = self.layout.state
        function, out = callback(mean_rates, _EVALUATION), np.empty(size + 1)
        numbers = self.parameters, with_slot(self.sizes), np.empty(self.work_size + size)

        def mean(y: Array) -> tuple[Array, float]:
            """Return the rates of a state, (numbers,), and its loss as it is told."""
            evaluate(function, np.ascontiguousarray(y), out, numbers)
            return out[:size].copy(), float(self.told(out[size:])[0])

        return mean

    # --- states ---------------------------------------------------------------------------------------------

    def pack(self, V: Array, b: Array, M: Array, Q: Array) -> Array:
        """Return the state whose blocks all have V (C, m) or v (m,), b (m,), M (m, r) and Q (m, m)."""
        return np.tile(np.concatenate([V.ravel(), b, M.ravel(), Q.ravel()]), BLOCKS)

    def unpack(self, state: Array) -> tuple[Array, Array, Array, Array]:
        """Return V (blocks, C, m), b (blocks, m), M (blocks, m, r) and Q (blocks, m, m) of a state."""
        m, r, C = self.layout.width, self.layout.axes, self.layout.outputs
        V, b, M, Q = np.split(state.reshape(BLOCKS, -1), [C * m, (C + 1) * m, (C + 1 + r) * m], axis=1)
        return V.reshape(BLOCKS, C, m), b, M.reshape(BLOCKS, m, r), Q.reshape(BLOCKS, m, m)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` for V and b, which are not small where d is large, and in units of 1/√d for M and Q.

        It is at least `least_tolerance` in units of the layers and lengths at the start, or of `LEAST_SIZE`.
        """
        tolerance = super().absolute_tolerance(atol).reshape(BLOCKS, -1)
        tolerance[:, : (self.layout.outputs + 1) * self.layout.width] = atol
        V, b, M, Q = (part[0] for part in self.unpack(self.initial_state))
        layer, length = max(np.abs(V).max(), np.abs(b).max()), math.sqrt(np.diag(Q).max())
        sizes = max(layer, LEAST_SIZE), max(length, LEAST_SIZE), max(length, LEAST_SIZE) ** 2
        least = self.least_tolerance * np.repeat(sizes, [V.size + b.size, M.size, Q.size])
        return np.maximum(tolerance, least).ravel()

    def stiffness(self) -> float:
        r"""Return a bound on the rates of the flow at the start: max ℓ'' times that of squares, and the decay."""
        student = self.student
        V, b, _, Q = (part[0] for part in self.unpack(self.initial_state))
        nodes, measure = np.polynomial.hermite_e.hermegauss(NODES)
        measure = measure / measure.sum()
        mixture = self.problem.mixture
        spread = 1.0 if mixture is None else 1.0 / mixture.snr + float(np.sum(mixture.means**2, axis=1).max())
        projections = np.sqrt(spread * np.diag(Q))[:, None] * nodes + b[:, None]
        link, (rate_w, rate_v, rate_b) = self.problem.activation, student.learning_rates
        value, slope = link.value(projections) ** 2 @ measure, link.derivative(projections) ** 2
        steep = rate_b * slope @ measure + rate_w * spread * slope @ (measure * (1.0 + nodes**2))
        square = float(np.sum(self.layout.outputs * rate_v * value + np.sum(V**2, axis=0) * steep))
        bound = 2.0 * student.output_scale**2 * CURVATURE.get(self.layout.loss, 1.0) * square
        return max(bound + max(student.decay), 1e-3 * max(rate_w, rate_v, rate_b, 1e-6))

    # --- observables ----------------------------------------------------------------------------------------

    def totals(self, state: Array) -> Array:
        """Return mean loss and test error of every block, in the units of the kernels, shape (blocks, 2)."""
        out, y = np.empty(2 * BLOCKS), np.ascontiguousarray(state)
        numbers = self.parameters, with_slot(self.sizes), np.empty(self.work_size)
        evaluate(callback(write_totals, _EVALUATION), y, out, numbers)
        return out.reshape(BLOCKS, 2)

    def told(self, loss: Array) -> Array:
        """Return losses as they are told: E(f − y)² without ½, and without the noise of labels that are values."""
        return np.asarray(self._factor * loss + self._shift)

    def losses(self, state: Array) -> tuple[float, float]:
        """Return mean loss and test error of a state, means over all blocks."""
        loss, error = self.totals(state).mean(axis=0)
        return float(self.told(loss)), float(error)

    def loss(self, state: Array) -> float:
        """Return E ℓ(f, y), of the squared loss E(f − y)²."""
        return self.losses(state)[0]

    def observe(self, state: Array) -> dict[str, Array]:
        """Return all observables, means over the scrambles, and beside each its error under `_error`."""
        return self._record(state, full=True)

    def summarise(self, state: Array) -> dict[str, Array]:
        """Return the observables whose size does not grow as the square of the neurons."""
        return self._record(state, full=False)

    def _record(self, state: Array, *, full: bool) -> dict[str, Array]:
        V, b, M, Q = self.unpack(state)
        totals = self.totals(state)
        overlaps = [normalised_overlaps(*pair) for pair in zip(M, Q, strict=True)]
        C, G, n = (np.array(part) for part in zip(*overlaps, strict=True))
        C = np.clip(C, -1.0, 1.0)  # M² and Q are each known to the rounding of the steps
        values: dict[str, Array] = {"loss": self.told(totals[:, 0])}
        values |= {"test_error": totals[:, 1]} if self.layout.has_error else {}
        values |= {"second_layer": V[:, 0]} if self.layout.loss != OF_SOFTMAX else {"output_layer": V}
        values |= {"bias": b, "squared_norm": n}
        values |= {"teacher_overlap": C, "student_overlap": G} if full else {"max_overlap": np.abs(C).max(axis=1)}
        return with_errors(values)

    def constants(self) -> dict[str, float]:
        """Return the floor of the loss, NaN where it has none, and with labels that are classes the error of Bayes."""
        floor = {"loss_floor": float(self.told(self._floor.mean()))}
        return floor | ({"bayes_error": float(self._bayes.mean())} if self.layout.has_error else {})

    def times(self, event_times: Array) -> dict[str, Array]:
        """Return the times of events, means over blocks, and their errors; NaN where some block has none."""
        times = event_times.reshape(BLOCKS, -1)
        values: dict[str, Array] = {"emergence_time": times[:, :-2], "half_loss_time": times[:, -2]}
        values |= {"half_error_time": times[:, -1]} if self.layout.has_error else {}
        return with_errors(values)


def with_errors(values: dict[str, Array]) -> dict[str, Array]:
    """Return means over blocks, the first axis, and 3.18 standard errors of them under the same names with `_error`."""
    means = {name: value.mean(axis=0) for name, value in values.items()}
    errors = {f"{name}_error": ERRORS * value.std(axis=0, ddof=1) / math.sqrt(BLOCKS) for name, value in values.items()}
    return means | errors


def checked_points(points: object) -> int:
    """Return the number of points of one block; ValueError unless all of them are a power of two in range."""
    count = checked_integer(points, "points", minimum=FEWEST, maximum=MOST)
    require(count & (count - 1) == 0, f"Argument `points` must be a power of two, but is {count}.")
    return count // BLOCKS


def check_no_jump(problem: Problem) -> None:
    """Raise ValueError if the link of the problem has jumps: no sample has a gradient there.

    It is called for problems that train the argument of the link, and looks at the ends of its tabulated pieces.
    """
    link = problem.activation
    if link.is_polynomial:
        return
    table = pieces_of(link.value)
    ends = table[:-1].sum(axis=1) - table[1:] @ (-1.0) ** np.arange(table.shape[1])
    require(
        np.abs(ends).max() <= 1e-6 * max(np.abs(table[:, 0]).max(), 1.0),
        "Argument `problem` must have a link without jumps where its argument is trained, since a sample has no "
        f"gradient at a jump, but has {link.name}.",
    )


def link_numbers(link: HermiteExpansion) -> tuple[Array, bool]:
    """Return the description [kind, terms, coefficients] of a link that `write_link` reads, and whether it has kinks.

    It is one polynomial at low degree, else a table of pieces on [−32, 32]. ValueError is raised unless the link is
    finite there.
    """
    if link.is_polynomial and len(link.link_coefficients()) <= HORNER_DEGREE + 1:
        c = np.array(link.link_coefficients())
        powers = np.polynomial.hermite_e.herme2poly(c / np.sqrt([math.factorial(k) for k in range(c.size)]))
        return np.concatenate([[POWERS, powers.size], powers]), False
    table = pieces_of(link.value)
    if not np.isfinite(table).all():
        refuse(f"Argument `problem` must have a link that is finite on [−32, 32], but {link.name} is not.")
    return np.concatenate([[TABLE, table.shape[1]], table.ravel()]), not link.is_polynomial and has_kink(
        link.value, table
    )


class Tiles(NamedTuple):
    """Points as tiles (blocks, tiles, numbers), and E min_f ℓ and error of Bayes by block."""

    numbers: Array
    floor: Array
    bayes: Array


def points_by_cluster(problem: Problem, count: int) -> tuple[int, int]:
    """Return the number of clusters, and of points of each in a block: about an equal part of `count`, a power of two.

    It is at least a tile. Inputs that are no mixture are one cluster.
    """
    clusters = 1 if problem.mixture is None else len(problem.mixture.means)
    halvings = (clusters - 1).bit_length()
    return clusters, max(count >> halvings, TILE)


def points_of(problem: Problem, per_cluster: int, *, exact: bool) -> Tiles:
    """Return the points of all blocks in tiles, with the least loss and the Bayes error of each block.

    Each cluster of each block has `per_cluster` points with coordinates (r + k), |x|², labels and their weights. |x|²
    is that of the point if `exact`, and else d/s with the precision s of the cluster.
    """
    r, d = problem.teacher.span, problem.dimension
    hidden = min(problem.width, d - r)
    shares, s = shares_of_clusters(problem)
    blocks, floors, errors = [], [], []
    for block in range(BLOCKS):
        tiles, floor, bayes = [], 0.0, 0.0
        for cluster, share in enumerate(shares.tolist()):
            X, _ = drawn_points(problem, per_cluster, block, cluster)
            labels = of_labels.labels_of(problem, X[:r], np.full(per_cluster, cluster))
            floor += share * float(of_labels.least_loss(problem, labels).mean())
            bayes += share * float(of_labels.bayes_error(problem, labels).mean())
            squares = np.sum(X**2, axis=0) + (d - r - hidden) / s if exact else np.full(per_cluster, d / s)
            rows = np.concatenate([X, squares[None], labels.values, labels.weights])
            parts = rows.reshape(len(rows), -1, TILE).transpose(1, 0, 2).reshape(per_cluster // TILE, -1)
            tiles.append(np.hstack([np.full((len(parts), 1), share / per_cluster), parts]))
        blocks.append(np.concatenate(tiles))
        floors.append(floor)
        errors.append(bayes)
    return Tiles(np.array(blocks), np.array(floors), np.array(errors))


def shares_of_clusters(problem: Problem) -> tuple[Array, float]:
    """Return the weights p_κ of the clusters, one for inputs that are no mixture, and their precision s."""
    return (np.ones(1), 1.0) if problem.mixture is None else (problem.mixture.weights, problem.mixture.snr)


def drawn_points(problem: Problem, count: int, block: int, cluster: int, spread: float = 1.0) -> tuple[Array, Array]:
    """Return coordinates (r + k, count) of points of a cluster of the block with number `block`, and their weights.

    Points may lie `spread` times as far from the mean as inputs do; their weights (count,) make up for that.
    """
    mixture, r = problem.mixture, problem.teacher.span
    hidden, (_, s) = min(problem.width, problem.dimension - r), shares_of_clusters(problem)
    z = normal_points(r + hidden, count, [POINTS_DRAWN, block, cluster])
    weights = spread ** len(z) * np.exp(0.5 * (1.0 - spread**2) * np.sum(z**2, axis=0))
    X = z * (spread / math.sqrt(s))
    X[:r] = _turn(problem) @ X[:r]
    if mixture is not None:
        X[: mixture.span] += mixture.means[cluster][:, None]
    return X, weights


def normal_points(dims: int, count: int, seed: list[int]) -> Array:
    """Return points of a scrambled Sobol sequence that stand for standard normal numbers, shape (dims, count)."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(dims, seed=np.random.default_rng(seed)).random(count)
    return np.ascontiguousarray(ndtri(np.clip(uniform, 2.0**-54, 1.0 - 2.0**-54)).T)


def _turn(problem: Problem) -> Array:
    """Return a rotation (r, r) that has the first unit's direction as its first axis, where its labels may jump.

    The middle of that axis is an edge of the Sobol sequence, so that a threshold there costs no accuracy.
    """
    r = problem.teacher.span
    units = problem.teacher.units(problem.teacher_link)
    if problem.labels == losses.CLUSTER or not units:
        return np.eye(r)
    first = units[0].direction
    frame = np.linalg.qr(np.column_stack([first, np.eye(r)])).Q
    return np.asarray(frame * np.sign(frame[:, 0] @ first))
