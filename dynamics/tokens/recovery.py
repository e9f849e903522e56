r"""One step of the optimizer with Gaussian embeddings: how often each item is recovered, by its rank.

Inputs and outputs are Gaussian, of mean square length 1 in d dimensions, and W = h(Σ p_i (u_i − ū) e_iᵀ). Item i is
recovered if u_i·W e_i is the largest of all N scores. For the spectral optimizer α(z) solves
α = 1/(z + (1/d) Σ_k p_k² α/(1 + p_k² α²)); with A = α(λ) and q_j = λA/(1 + p_j² A²),

.. math:: f_i = \frac2\pi \int_0^\infty \frac{p_i \alpha^2\, ds}{1 + p_i^2 \alpha^2}
   \Big|_{\alpha(\sqrt{\lambda^2+s^2})}, \qquad s_{ij}^2 = \frac{1 - q_j + \lambda A - q_i}{d}, \qquad
   r_i^2 = \frac{1 - \lambda A}{d} + \frac{2.5 f_i^2}{d},

.. math:: P(i) = E_z \prod_{j \ne i} \Phi\Big(\frac{f_i + r_i z}{s_{ij}}\Big).

For gradient descent, W itself, the items of the first ranks make the noise, and P is averaged over their overlaps
z_k = √d e_k·e_i, by Sobol points, since one draw scatters by half of the count: rival k has mean p_k z_k/√d and
variance (V + p_i²)/d, V = Σ p_k² z_k²/d, and item i has mean p_i and variance (2.5 p_i² + V)/d (arXiv:2603.26554).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from dynamics.runs.dataset import make_dataset
from dynamics.tokens.system import TOKEN_VARIABLES

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.tokens.problems import AssociativeMemory
    from hermite.arrays import Array

#: Nodes over s and z; bisections of α; ranks that stand for themselves, and bins of the others per factor e.
S_NODES, Z_NODES, BISECTIONS = 400, 40, 80
SINGLE_RANKS, BINS_PER_E = 100, 16
#: First ranks whose overlaps are averaged over, the points of that (a power of 2), and the seed of their scrambling.
DRAWN_RANKS, DRAWS, SEED = 60, 128, 1
#: Ends of the integral over s, beyond the smallest and the largest of λ and p_1.
FAR = 1e4


def recovered(problem: AssociativeMemory, name: str) -> xr.Dataset:
    """Return the answer `name` to a memory with Gaussian embeddings: the recovery of every rank after one step."""
    ranks, counts = rank_bins(problem.count)
    p, dimension = frequencies_of(problem, ranks, counts), problem.dimension or 0
    if problem.smoothing is None:
        found = gradient_recovery(p, counts, dimension)
    else:
        found = spectral_recovery(p, counts, dimension, problem.smoothing)
    return make_dataset(
        {"recovery": found, "rank_count": counts, "recovered_count": counts @ found},
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
    """Return the frequencies p ∝ rank^(−a) of ranks that stand for so many items each, of sum 1."""
    weights = ranks ** -(problem.frequency_exponent or 0.0)
    return np.asarray(weights / (weights @ counts))


def rank_bins(items: int) -> tuple[Array, Array]:
    """Return ranks that stand for all, and how many each stands for: the first for themselves."""
    single = np.arange(1.0, min(items, SINGLE_RANKS) + 1.0)
    if items <= SINGLE_RANKS:
        return single, np.ones_like(single)
    count = int(np.ceil(BINS_PER_E * np.log(items / SINGLE_RANKS)))
    edges = np.unique(np.geomspace(SINGLE_RANKS, items, count + 1).round())
    middles = np.sqrt((edges[:-1] + 1.0) * edges[1:])
    return np.concatenate([single, middles]), np.concatenate([np.ones_like(single), np.diff(edges)])


def spectral_recovery(p: Array, counts: Array, dimension: int, smoothing: float) -> Array:
    """Return P of items of frequencies p, each of which stands for so many, under the spectral optimizer."""
    d = float(dimension)
    # Far above p_1 the integrand falls like 1/s², and below λ it is constant.
    grid = np.geomspace(smoothing / FAR, FAR * max(float(p.max()), smoothing), S_NODES)
    alpha = _alpha(np.hypot(smoothing, grid), p, counts, d)
    square = (p[:, None] * alpha) ** 2
    parts = p[:, None] * alpha**2 / (1.0 + square)
    ends = parts[:, 0] * grid[0] + parts[:, -1] * grid[-1]
    signal = 2.0 / np.pi * (np.trapezoid(parts * grid, np.log(grid), axis=1) + ends)
    A = float(_alpha(np.array([smoothing]), p, counts, d)[0])
    q = smoothing * A / (1.0 + p**2 * A**2)
    own = np.sqrt((1.0 - smoothing * A) / d + 2.5 * signal**2 / d)
    noise = np.sqrt((1.0 - q[None, :] + smoothing * A - q[:, None]) / d)
    z, weights = _normal_nodes()
    found = np.zeros(p.size)
    for node, weight in zip(z, weights, strict=True):
        logs = special.log_ndtr((signal + own * node)[:, None] / noise)
        found += weight * np.exp(logs @ counts - np.diag(logs))
    return found


def gradient_recovery(p: Array, counts: Array, dimension: int) -> Array:
    """Return P of items of frequencies p, each of which stands for so many, under gradient descent."""
    d, drawn = float(dimension), min(DRAWN_RANKS, p.size)
    z, weights = _normal_nodes()
    points, found = stats.qmc.Sobol(drawn, seed=SEED).random(DRAWS), np.zeros(p.size)
    rest = float((counts[drawn:] * p[drawn:] ** 2).sum()) / d
    for overlaps in special.ndtri(points):
        parts = p[:drawn] ** 2 * overlaps**2 / d
        V = parts.sum() + rest - np.concatenate([parts, np.zeros(p.size - drawn)])
        noise, own = np.sqrt((V + p**2) / d), np.sqrt((2.5 * p**2 + V) / d)
        score = p[:, None] + own[:, None] * z
        means = p[:drawn] * overlaps / np.sqrt(d)
        near = special.log_ndtr((score[:, :, None] - means) / noise[:, None, None])
        logs = near.sum(axis=2)
        logs[:drawn] -= near[np.arange(drawn), :, np.arange(drawn)]
        others = counts[drawn:].sum() - np.concatenate([np.zeros(drawn), np.ones(p.size - drawn)])
        logs += others[:, None] * special.log_ndtr(score / noise[:, None])
        found += np.exp(logs) @ weights / DRAWS
    return found


def _alpha(z: Array, p: Array, counts: Array, d: float) -> Array:
    """Return α(z) by bisection of its logarithm: α z + (1/d) Σ p² α²/(1 + p² α²) rises through 1 below 1/z."""
    low, high = np.full_like(z, -np.log(z.max()) - 60.0), -np.log(z)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        square = np.exp(2.0 * (np.log(p)[:, None] + middle))
        above = np.exp(middle) * z + counts @ (square / (1.0 + square)) / d > 1.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.exp(high)


def _normal_nodes() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(Z_NODES)
    return nodes, weights / weights.sum()
