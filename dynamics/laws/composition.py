r"""Composition of k permutations by attention (arXiv:2505.23683): a construction, bounds on learning, and hop 1 by SGD.

The construction gives every right key of every layer one score B and all others 0. It is run on drawn permutations. The
bounds are numbers of samples or steps with constant 1; how many samples hop 1 takes is measured on its own row.
"""

from __future__ import annotations

from functools import partial
from math import lgamma, log
from typing import NamedTuple

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.laws.scaffold import Free, FreeStudy, under_way
from dynamics.problem.checks import check_memory, checked_integer, checked_number, require
from dynamics.runs.dataset import Values
from hermite.arrays import Array, Integers

#: Sizes (N, k, B) of the construction.
SIZES = ((6, 4, 5.0), (6, 8, 8.0), (8, 16, 6.0))
#: Sizes (N, k) at which hop 1 is measured: along N, then along k.
HOPS = ((4, 4), (8, 4), (16, 4), (32, 4), (64, 4), (8, 2), (8, 8), (8, 16))
#: Share of rows that must be right, learning rate in units of N k, and most samples.
RIGHT, RATE, MOST = 0.95, 4.0, 64
#: Arrays of the construction's scores, and of a row's scores and inputs, that are held at once.
ARRAYS, ARRAYS_OF_ROWS = 4, 7
#: Below the logarithm of the largest number of float64.
LOG_LARGEST = 709.0
TITLE = "Composition by attention: the construction, bounds, and samples of hop 1"


class Construction(NamedTuple):
    """Accuracy of the constructed transformer on drawn permutations, and its mean weight on the right symbol.

    Both are dimensionless, from 0 to 1.
    """

    accuracy: float
    weight: float


class CompositionBounds(NamedTuple):
    """Orders with constant 1: of descent on hop k alone, of any method by information, and of a kernel."""

    descent: float
    information: float
    kernel: float


def construct_composition(vocabulary: int, hops: int, score: float, *, draws: int = 32, seed: int = 0) -> Construction:
    r"""Run the transformer of log₂ k + 1 layers whose right keys have the score B and all others 0.

    .. math:: c^l = \mathrm{softmax}\Big(\sum_v c^{l-1}_{(i,j)}[v]\, W_l[(i,v), \cdot]\Big)\, c^{l-1}

    Layer 1 looks at σ_i(π_i(j)) with hidden permutations π_i, layer l at block i + 2^(l−2) and its own symbol.

    Parameters
    ----------
    vocabulary, hops : int, int
        Number N ≥ 2 of symbols, and number k ≥ 2 of permutations, a power of 2.
    score : float
        B > 0.
    draws, seed : int
        Number of inputs, each of k uniform permutations, and their seed, also of the hidden ones.

    Returns
    -------
    Construction
        Share of the k N positions of all inputs at which the largest weight is on hop k, and mean weight there.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> construct_composition(6, 4, 5.0).accuracy
    1.0
    """
    N, k = _checked_sizes(vocabulary, hops)
    B = checked_number(score, "score", positive=True)
    count = checked_integer(draws, "draws", minimum=1)
    check_memory("draws", count, ARRAYS * (1.0 + count) * float(N * k) ** 2)
    rng = np.random.default_rng(checked_integer(seed, "seed", minimum=0))
    hidden = _permutations(rng, 1, k, N)[0]
    sigma = _permutations(rng, count, k, N)
    content: Array = np.eye(N)[sigma].reshape(len(sigma), k * N, N)
    rows, block = np.arange(k * N), np.repeat(np.arange(k), N)
    scores = np.zeros((k * N, k * N))
    scores[rows, block * N + hidden.ravel()] = B
    content = _softmax(scores) @ content
    answer = np.take_along_axis(sigma, np.broadcast_to(hidden, sigma.shape), axis=2)
    for shift in (2**layer for layer in range(k.bit_length() - 1)):
        keys = np.zeros((len(sigma), k * N, k, N))
        keys[:, rows, (block + shift) % k] = B * content
        content = _softmax(keys.reshape(len(sigma), k * N, k * N)) @ content
        answer = np.take_along_axis(np.roll(answer, -shift, axis=1), answer, axis=2)
    right = answer.reshape(len(sigma), k * N)
    weight = np.take_along_axis(content, right[..., None], axis=2)
    return Construction(float(np.mean(content.argmax(axis=2) == right)), float(weight.mean()))


def composition_bounds(vocabulary: int, hops: int) -> CompositionBounds:
    r"""Return what learning a composition of k permutations of N symbols costs, to leading order with constant 1.

    .. math:: (N k)^{2k-1}, \qquad \frac{k \ln N!}{\ln N}, \qquad d^k \text{ with } d = k N^2

    They are the time of descent on hop k alone from small scores, the samples after which labels could tell k
    permutations, and the samples of a kernel on the k N² entries of the inputs. ValueError is raised for N < 2 or k
    that is no power of 2.

    Examples
    --------
    >>> [f"{bound:.3g}" for bound in composition_bounds(6, 4)]
    ['4.59e+09', '14.7', '4.3e+08']
    """
    N, k = _checked_sizes(vocabulary, hops)
    log_descent, log_kernel = (2 * k - 1) * log(N * k), k * log(k * N * N)
    require(
        max(log_descent, log_kernel) < LOG_LARGEST,
        f"Arguments `vocabulary` and `hops` must have bounds below 1e308, but are {N} and {k}.",
    )
    return CompositionBounds(float(N * k) ** (2 * k - 1), k * lgamma(N + 1.0) / log(N), float(k * N * N) ** k)


def hop_samples(vocabulary: int, hops: int, *, rows: int = 2000, seed: int = 0) -> int:
    r"""Return after how many samples SGD has hop 1 right in 95 % of rows, one sample a step.

    .. math:: w \leftarrow w + \eta\, p \circ (z - p \cdot z), \qquad p = \mathrm{softmax}(w), \quad
        z_q = 1\{\sigma(q) = y\}

    Each of `rows` runs has one row w of N k scores from 0, inputs and labels y of its own, and η = 4 N k; its
    right key has to have the largest score. Wrong keys of another block live on with chance 1/N a sample, so that
    1 + ln((k − 1)/0.05)/ln N samples are enough: a logarithm, and no power of N or k. ValueError is raised for N < 2, k
    that is no power of 2, or a measurement that takes more than 64 samples.

    Examples
    --------
    >>> [hop_samples(N, 4) for N in (4, 64)]
    [4, 2]
    """
    N, k = _checked_sizes(vocabulary, hops)
    count = checked_integer(rows, "rows", minimum=1)
    check_memory("rows", count, ARRAYS_OF_ROWS * float(count) * N * k)
    rng = np.random.default_rng(checked_integer(seed, "seed", minimum=0))
    w, right, samples = np.zeros((count, k * N)), 0.0, 0
    while right < RIGHT:
        samples += 1
        require(
            samples <= MOST,
            f"Arguments `vocabulary` and `hops` must have hop 1 right within {MOST} samples, but are {N} and {k}.",
        )
        sigma = _permutations(rng, count, k, N).reshape(count, -1)
        hit = sigma == sigma[:, :1]  # the right key is the first one, by symmetry
        p = _softmax(w)
        w += RATE * k * N * p * (hit - np.sum(p * hit, axis=1, keepdims=True))
        right = float(np.mean(w[:, 0] > w[:, 1:].max(axis=1)))
    return samples


def _checked_sizes(vocabulary: object, hops: object) -> tuple[int, int]:
    """Return N ≥ 2 and k ≥ 2, a power of 2."""
    N, k = checked_integer(vocabulary, "vocabulary", minimum=2), checked_integer(hops, "hops", minimum=2)
    require(not k & (k - 1), f"Argument `hops` must be a power of 2, but is {k}.")
    return N, k


def _permutations(rng: np.random.Generator, count: int, k: int, N: int) -> Integers:
    """Return uniform permutations of 0 to N − 1, shape (count, k, N)."""
    return np.asarray(rng.random((count, k, N)).argsort(axis=2))


def _softmax(scores: Array) -> Array:
    """Return the softmax over the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _composition(study: FreeStudy, seed: int) -> xr.Dataset:
    """Run the constructions and measure hop 1; KeyboardInterrupt if it was interrupted."""
    built, bounds, samples = [], [], []
    with under_way(len(SIZES) + len(HOPS), study.progress, unit="size") as meter:
        for N, k, score in SIZES:
            built.append(construct_composition(N, k, score, seed=seed))
            bounds.append(composition_bounds(N, k))
            meter.add(1)
        for N, k in HOPS:
            samples.append(hop_samples(N, k, seed=seed))
            meter.add(1)
    if meter.stop_reason == "interrupted":
        raise KeyboardInterrupt
    accuracy, weight = np.array(built).T
    descent, information, kernel = np.array(bounds).T
    N, k = np.array(HOPS, dtype=np.float64).T
    values: Values = {
        "accuracy": ((), accuracy),
        "right_weight": ((), weight),
        "descent_bound": ((), descent),
        "information_bound": ((), information),
        "kernel_bound": ((), kernel),
        "vocabulary": ((), N),
        "hops": ((), k),
        "hop_samples": ((), np.array(samples, dtype=np.float64)),
        "hop_law": ((), 1.0 + np.log((k - 1.0) / (1.0 - RIGHT)) / np.log(N)),
        "hop_bound": ((), k**4 * N**6),
    }
    coords = {
        "size": np.array([f"N = {N}, k = {k}, B = {B:g}" for N, k, B in SIZES]),
        "hop_size": np.array([f"N = {N}, k = {k}" for N, k in HOPS]),
    }
    return study.dataset(meter, values, coords)


@study_function  # returns what `run` of the prepared study returns, a dataset
def composition(
    *,
    seed: int = 0,
    progress: bool | None = None,
) -> FreeStudy:
    r"""Return the accuracy of constructed transformers that compose permutations, bounds, and samples of hop 1.

    Parameters
    ----------
    seed : int
        Seed of permutations and inputs.

    Returns
    -------
    Dataset
        By size, (N, k, B) = (6, 4, 5), (6, 8, 8) and (8, 16, 6): `accuracy` and `right_weight` of
        `construct_composition`, and the `descent_bound`, `information_bound` and `kernel_bound` of
        `composition_bounds`. By hop_size, N = 4 to 64 at k = 4 and k = 2 to 16 at N = 8: `hop_samples`, the measured
        number, `hop_law`, its law 1 + ln((k − 1)/0.05)/ln N, and `hop_bound`, k⁴ N⁶.

    References
    ----------
    Wang, Nichani, Bietti, Damian, Hsu, Lee, Wu, arXiv:2505.23683.

    Examples
    --------
    >>> found = composition(progress=False)
    >>> found.accuracy.values.tolist(), found.hop_samples.values.tolist()
    ([1.0, 1.0, 1.0], [4.0, 3.0, 3.0, 3.0, 2.0, 3.0, 4.0, 4.0])
    """
    first = checked_integer(seed, "seed", minimum=0)
    work = f"{len(SIZES)} constructions on drawn permutations, and {len(HOPS)} measurements of hop 1: seconds."
    solve = partial(_composition, seed=first)
    answer = "composition-bounds"
    return FreeStudy(answer, TITLE, {"seed": first}, Free(answer), progress, solve, work)
