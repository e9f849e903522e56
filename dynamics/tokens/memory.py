"""An associative memory, reduced to M + M² numbers for M groups of one frequency each (`docs/token_equations.md`).

State y = [δ (M) | Θ (M, M)]; parameters are `MemoryNumbers`; sizes = [M, whether the optimizer is spectral, stage]; the
scratch holds `MemoryWork`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel, matrix, vector
from dynamics.problem.checks import checked_integer
from dynamics.runs.dataset import make_dataset
from dynamics.tokens.problems import AssociativeMemory
from dynamics.tokens.system import TOKEN_VARIABLES, TokenSystem
from hermite.arrays import Array, Integers, Matrix, Vector


class MemoryNumbers(NamedTuple):
    """Smoothing λ of the spectral optimizer, and per group its number of items n and their frequency π, (M,) each."""

    smoothing: float
    counts: Vector
    frequencies: Vector


class MemoryWork(NamedTuple):
    """Weights and P of every group, and room for two matrices (M, M).

    An item of group m, in row m of the weights (M, M), gives an output of group k the weight in column k, on the
    diagonal that of one of its mates; P (M,) is the weight of its own output.
    """

    weights: Matrix
    right: Vector
    turns: Vector
    scaled: Vector


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> MemoryNumbers:
    """Return λ, and per group the number of items and the frequency of one, (M,) each, from `parameters`."""
    M = sizes[0]
    return MemoryNumbers(parameters[0], vector(parameters, 1, M), vector(parameters, 1 + M, M))


@kernel
def is_spectral(sizes: Integers) -> bool:
    """Return whether the optimizer is spectral."""
    return bool(sizes[1] == 1)


@kernel
def work_of(M: int, work: Vector) -> MemoryWork:
    """Return views of the scratch of M groups: weights (M, M), right outputs (M,) and two flat matrices (M²,)."""
    turns, scaled = vector(work, M * M + M, M * M), vector(work, 2 * M * M + M, M * M)
    return MemoryWork(matrix(work, 0, M, M), vector(work, M * M, M), turns, scaled)


@kernel
def write_weights(y: Vector, counts: Vector, W: Matrix, right: Vector) -> None:
    """Write the softmax weights of the outputs to W (M, M), and of the right outputs P to `right` (M,).

    Row m is for an item of group m. Column k is the weight of one output of group k; on the diagonal it is that of
    another item of the same group. `counts` (M,) are numbers of items.
    """
    M = counts.size
    for m in range(M):
        n = counts[m]
        mates = (y[M + m * M + m] - y[m]) / n
        logit = mates + y[m]
        top = logit
        for k in range(M):
            if k == m:
                W[m, k] = mates
            else:
                W[m, k] = y[M + k * M + m] / np.sqrt(counts[k] * n)
            top = max(top, W[m, k])
        total = np.exp(logit - top)
        for k in range(M):
            W[m, k] = np.exp(W[m, k] - top)
            total += (counts[k] - (1.0 if k == m else 0.0)) * W[m, k]
        for k in range(M):
            W[m, k] /= total
        right[m] = np.exp(logit - top) / total


@kernel
def turned(G: Vector, V: Vector, M: int, p: int, q: int) -> bool:
    """Rotate columns p and q of the matrices G and V (M², row by row), so that those of G become orthogonal.

    Returns False if they were so already, to rounding.
    """
    alpha, beta, gamma = 0.0, 0.0, 0.0
    for i in range(M):
        alpha += G[i * M + p] * G[i * M + p]
        beta += G[i * M + q] * G[i * M + q]
        gamma += G[i * M + p] * G[i * M + q]
    # Written so that not-a-number ends the rotations.
    if not abs(gamma) > 1e-15 * np.sqrt(alpha) * np.sqrt(beta):
        return False
    zeta = (beta - alpha) / (2.0 * gamma)
    tangent = (1.0 if zeta >= 0.0 else -1.0) / (abs(zeta) + np.sqrt(1.0 + zeta * zeta))
    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
    sine = cosine * tangent
    for i in range(M):
        x, z = G[i * M + p], G[i * M + q]
        G[i * M + p], G[i * M + q] = cosine * x - sine * z, sine * x + cosine * z
        x, z = V[i * M + p], V[i * M + q]
        V[i * M + p], V[i * M + q] = cosine * x - sine * z, sine * x + cosine * z
    return True


@kernel
def smooth_signs(G: Vector, M: int, smoothing: float, V: Vector, scaled: Vector) -> None:
    """Replace G (M², row by row) by G V diag(1/√(s² + λ²)) Vᵀ, s its singular values, λ = `smoothing`.

    V are the right singular vectors, found by one-sided Jacobi rotations, so that small singular values are exact too.
    V and `scaled`, (M²,) each, are scratch.
    """
    for i in range(M * M):
        V[i] = 1.0 if i % (M + 1) == 0 else 0.0
    for _sweep in range(30):  # a dozen sweeps are plenty
        turns = 0
        for p in range(M - 1):
            for q in range(p + 1, M):
                turns += turned(G, V, M, p, q)
        if turns == 0:
            break
    for k in range(M):
        square = smoothing * smoothing
        for i in range(M):
            square += G[i * M + k] * G[i * M + k]
        for i in range(M):
            scaled[i * M + k] = G[i * M + k] / np.sqrt(square)
    for i in range(M):
        for j in range(M):
            total = 0.0
            for k in range(M):
                total += scaled[i * M + k] * V[j * M + k]
            G[i * M + j] = total


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write δ' (M,) and Θ' (M, M) under gradient descent or the spectral optimizer.

    δ_m is the score of an item's own output minus that of a mate's, Θ holds the scores of groups against groups. Rates
    are the negative gradient g_m and Γ, or for the spectral optimizer their smoothed signs, g/√(g² + λ²) on singular
    values. Γ_km stands in row k and column m.
    """
    (smoothing, counts, frequencies), spectral = numbers_of(parameters, sizes), is_spectral(sizes)
    M = counts.size
    W, right, turns, scaled = work_of(M, work)
    write_weights(y, counts, W, right)
    for m in range(M):
        n, pi, mates = counts[m], frequencies[m], W[m, m]
        # 1 − P − (n − 1) Q, as a sum in which nothing cancels however well a group is known.
        outside = 0.0
        for k in range(M):
            if k != m:
                outside += counts[k] * W[m, k]
                out[M + k * M + m] = -np.sqrt(counts[k] * n) * pi * W[m, k]
        out[M + m * M + m] = pi * outside
        # An item without mates has no difference to them; Θ alone carries it.
        g = pi * (outside + n * mates) if n > 1.0 else 0.0
        out[m] = g / np.sqrt(g * g + smoothing * smoothing) if spectral else g
    if spectral:
        smooth_signs(vector(out, M, M * M), M, smoothing, turns, scaled)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write P_m − ½ of every group m, where P_m is the weight of the right output of one of its items."""
    counts = numbers_of(parameters, sizes).counts
    W, right, _, _ = work_of(counts.size, work)
    write_weights(y, counts, W, right)
    for m in range(counts.size):
        out[m] = right[m] - 0.5


class MemorySystem(TokenSystem):
    """State, kernels, observables and closed forms of an associative memory."""

    name = "associative memory"
    functions = Functions(rhs, event_values)
    references = "arXiv:2603.26554"
    notes = (
        "Exact for orthonormal embeddings and the whole population at every step; closed times take all rivals for "
        "equal, so that groups after the first are off by some percent",
        "plateaus take groups before each one as known by heart and ordered by frequency",
    )

    def __init__(self, problem: AssociativeMemory) -> None:
        """Prepare the equations of an associative memory, from zero scores."""
        self.task = problem
        M = len(problem.group_sizes)
        self._sizes, self._rates = np.array(problem.group_sizes, dtype=np.float64), problem.group_frequencies
        self.components = [f"group {m}" for m in range(1, M + 1)]
        numbers = MemoryNumbers(problem.smoothing or 0.0, self._sizes, self._rates)
        self.hold(np.zeros(M + M * M), numbers, [M, problem.optimizer == "spectral"], work_size=3 * M * M + M)
        pairs = [f"theta {i} {j}" for i in range(1, M + 1) for j in range(1, M + 1)]
        self.numbers = [*(f"delta {m}" for m in range(1, M + 1)), *pairs]
        closed = self.closed_times()
        self.time_scale, self.geometric = float(closed.min()), bool(closed.max() > 8.0 * closed.min())

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, and the probability P_m of the right output of an item of each group, (M,)."""
        M, n = self._sizes.size, self._sizes
        delta, theta = state[:M], state[M:].reshape(M, M)
        mates = (np.diag(theta) - delta) / n
        logits, counts = theta / np.sqrt(np.outer(n, n)), np.repeat(n[:, None], M, axis=1) - np.eye(M)
        np.fill_diagonal(logits, mates)
        right = mates + delta
        total = special.logsumexp(np.vstack([logits, right]), axis=0, b=np.vstack([counts, np.ones(M)]))
        logs = np.asarray(right - total)
        return float(-(n * self._rates) @ logs), np.exp(logs)

    def closed_times(self) -> Array:
        """Return the time at which each group alone is half learned, (M,).

        It is closed for gradient descent, and a quadrature for the spectral optimizer.
        """
        N, smoothing = float(self.task.count), self.task.smoothing
        if N == 2.0:
            return np.zeros(self._rates.size)
        if smoothing is None:
            return np.asarray((N - 2.0 + (N - 1.0) * np.log(N - 1.0)) / (self._rates * N))
        from scipy.integrate import quad

        def slowness(lead: float, rate: float) -> float:
            """Return the time per unit of `lead`, the score of the right output above others."""
            force = rate * N / (np.exp(lead) + N - 1.0)
            return float(np.hypot(force, smoothing) / force)

        return np.array([quad(slowness, 0.0, np.log(N - 1.0), (rate,), epsabs=0)[0] for rate in self._rates])

    def plateaus(self) -> Array:
        """Return, for every group, the loss with all groups before it memorised and the others at chance."""
        return np.asarray((self._sizes * self._rates)[::-1].cumsum()[::-1] * np.log(self.task.count))


def sampled_times(problem: AssociativeMemory, batch_size: int) -> Array:
    r"""Return the times of the groups under Muon, λ → 0, on batches of B ≥ 1 items, in closed form.

    .. math:: T_m \approx \frac{\ln(N-1)}{1 - (1 - \pi_m)^B}

    An item moves only in the steps that see it, so that 1/π_m is its critical batch.

    Examples
    --------
    >>> from dynamics.tokens import AssociativeMemory
    >>> problem = AssociativeMemory(group_sizes=[2, 4], frequency_exponent=1.5)
    >>> sampled_times(problem, batch_size=4).round(2).tolist()
    [1.93, 6.43]
    """
    size = checked_integer(batch_size, "batch_size", minimum=1)
    return np.asarray(-np.log(problem.count - 1.0) / np.expm1(size * np.log1p(-problem.group_frequencies)))


#: Number of first ranks that stand for one item each.
SINGLE_RANKS = 100
#: Points, a power of 2, of the mean over overlaps of the first ranks.
DRAWS = 128


def recovered(problem: AssociativeMemory, name: str) -> xr.Dataset:
    """Return the answer `name` to a memory with Gaussian embeddings: the recovery of every rank after one step."""
    ranks, counts = rank_bins(problem.count)
    p, dimension = frequencies_of(problem, ranks, counts), problem.dimension or 0
    if problem.smoothing is None:
        recovery = gradient_recovery(p, counts, dimension)
    else:
        recovery = spectral_recovery(p, counts, dimension, problem.smoothing)
    return make_dataset(
        {"recovery": recovery, "rank_count": counts, "recovered_count": counts @ recovery},
        problem=problem,
        title="Associative memory with Gaussian embeddings after one step",
        coords={"rank": ranks},
        solver={"answer": name},
        attributes={
            "answer": name,
            "references": "arXiv:2603.26554",
            "notes": "counts within 6 % of draws for the spectral optimizer from d = 48 on; local exponents in d are "
            "not their limits",
        },
        variables=TOKEN_VARIABLES,
    )


def frequencies_of(problem: AssociativeMemory, ranks: Array, counts: Array) -> Array:
    """Return frequencies p ∝ rank^(−a) of ranks that stand for `counts` items each; the sum over items is 1.

    a is the frequency exponent of the problem; the result has the shape of `ranks`.
    """
    weights = ranks ** -(problem.frequency_exponent or 0.0)
    return np.asarray(weights / (weights @ counts))


def rank_bins(items: int) -> tuple[Array, Array]:
    """Return representative ranks, and the number of items that each stands for: 1 for the first hundred.

    Examples
    --------
    >>> ranks, counts = rank_bins(10**6)
    >>> ranks[:3].tolist(), counts[:3].tolist(), round(float(counts.sum()))
    ([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], 1000000)
    """
    single = np.arange(1.0, min(items, SINGLE_RANKS) + 1.0)
    if items <= SINGLE_RANKS:
        return single, np.ones_like(single)
    count = int(np.ceil(16 * np.log(items / SINGLE_RANKS)))  # bins per factor e
    edges = np.unique(np.geomspace(SINGLE_RANKS, items, count + 1).round())
    middles = np.sqrt((edges[:-1] + 1.0) * edges[1:])
    return np.concatenate([single, middles]), np.concatenate([np.ones_like(single), np.diff(edges)])


def spectral_recovery(p: Array, counts: Array, dimension: int, smoothing: float) -> Array:
    """Return the probability that an item is recovered after one step of the spectral optimizer, shape of `p`.

    p are frequencies, `counts` the number of items of each, `dimension` that of the Gaussian embeddings, and
    `smoothing` λ.
    """
    d = float(dimension)
    # Far above p_1 the integrand falls like 1/s², and below λ it is constant.
    grid = np.geomspace(smoothing / 1e4, 1e4 * max(float(p.max()), smoothing), 400)
    alpha = _alpha(np.hypot(smoothing, grid), p, counts, d)
    square = (p[:, None] * alpha) ** 2
    parts = p[:, None] * alpha**2 / (1.0 + square)
    ends = parts[:, 0] * grid[0] + parts[:, -1] * grid[-1]
    signal = 2.0 / np.pi * (np.trapezoid(parts * grid, np.log(grid), axis=1) + ends)
    A = float(_alpha(np.array([smoothing]), p, counts, d)[0])
    q = smoothing * A / (1.0 + p**2 * A**2)
    deviation = np.sqrt((1.0 - smoothing * A) / d + 2.5 * signal**2 / d)
    noise = np.sqrt((1.0 - q[None, :] + smoothing * A - q[:, None]) / d)
    recovery = np.zeros(p.size)
    for node, weight in zip(*_normal_nodes(), strict=True):
        logs = special.log_ndtr((signal + deviation * node)[:, None] / noise)
        recovery += weight * np.exp(logs @ counts - np.diag(logs))
    return recovery


def gradient_recovery(p: Array, counts: Array, dimension: int) -> Array:
    """Return the probability that an item is recovered after one step of gradient descent, shape of `p`.

    p are frequencies, `counts` the number of items of each, `dimension` that of the Gaussian embeddings.
    """
    from scipy.stats import qmc

    d, num_drawn = float(dimension), min(60, p.size)
    z, weights = _normal_nodes()
    is_drawn, recovery = np.arange(p.size) < num_drawn, np.zeros(p.size)
    rest_variance = float((counts[num_drawn:] * p[num_drawn:] ** 2).sum()) / d
    rivals = counts[num_drawn:].sum() - ~is_drawn
    for overlaps in special.ndtri(qmc.Sobol(num_drawn, seed=1).random(DRAWS)):
        parts = p[:num_drawn] ** 2 * overlaps**2 / d
        V = parts.sum() + rest_variance - np.pad(parts, (0, p.size - num_drawn))
        noise, deviation = np.sqrt((V + p**2) / d), np.sqrt((2.5 * p**2 + V) / d)
        score = p[:, None] + deviation[:, None] * z
        means = p[:num_drawn] * overlaps / np.sqrt(d)
        near = special.log_ndtr((score[:, :, None] - means) / noise[:, None, None])
        logs = near.sum(axis=2)
        logs[:num_drawn] -= near[np.arange(num_drawn), :, np.arange(num_drawn)]
        logs += rivals[:, None] * special.log_ndtr(score / noise[:, None])
        recovery += np.exp(logs) @ weights / DRAWS
    return recovery


def _alpha(z: Array, p: Array, counts: Array, d: float) -> Array:
    """Return the root α of α z + (1/d) Σ p² α²/(1 + p² α²) = 1 for each z > 0, by bisection of ln α; shape of `z`.

    p are frequencies, of which the sum takes each `counts` times, and d is the dimension of embeddings.
    """
    low, high = np.full_like(z, -np.log(z.max()) - 60.0), -np.log(z)
    for _ in range(80):
        middle = 0.5 * (low + high)
        square = np.exp(2.0 * (np.log(p)[:, None] + middle))
        above = np.exp(middle) * z + counts @ (square / (1.0 + square)) / d > 1.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.exp(high)


def _normal_nodes() -> tuple[Array, Array]:
    """Return nodes and weights of a Gauss rule for a standard normal variable, (40,) each."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    return nodes, weights / weights.sum()
