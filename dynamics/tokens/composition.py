"""Composition by attention, reduced to three scores per layer (`docs/token_equations.md`).

State y = [w_1, w_2, w_3 of layer 1 | … of layer L]: right key, the other N − 1 of its block, the other blocks; sizes
are `CompositionCounts`, parameters `CompositionNumbers`, and the scratch has a row of five numbers per layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel, matrix
from dynamics.tokens.problems import Composition
from dynamics.tokens.system import TokenSystem, share_time
from hermite.arrays import Array, Integers, Matrix, Vector


class CompositionCounts(NamedTuple):
    """Number of layers L, 1 for cross-entropy (else 0), number of stages, and the stage, −1 if the time tells it."""

    layers: int
    cross_entropy: int
    stages: int
    stage: int


class CompositionNumbers(NamedTuple):
    """Vocabulary size N, number of hops k, duration of a stage, and the weight ω of every layer in every stage."""

    vocabulary: float
    hops: float
    stage_time: float
    weights: Matrix


@kernel
def counts_of(sizes: Integers) -> CompositionCounts:
    """Return L layers, whether the loss is cross-entropy (1 or 0), the number of stages and the stage, from `sizes`."""
    return CompositionCounts(sizes[0], sizes[1], sizes[2], sizes[3])


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> CompositionNumbers:
    """Return vocabulary size N, hops k, duration of a stage and weights (stages, L) of layers, from `parameters`."""
    counts = counts_of(sizes)
    weights = matrix(parameters, 3, counts.stages, counts.layers)
    return CompositionNumbers(parameters[0], parameters[1], parameters[2], weights)


@kernel
def layers_of(sizes: Integers, work: Vector) -> Matrix:
    """Return the scratch as a view (L, 5): five numbers per layer, which `write_layers` writes."""
    return matrix(work, 0, counts_of(sizes).layers, 5)


@kernel
def write_layers(y: Vector, N: float, k: float, layers: Matrix) -> float:
    """Write five numbers of every layer to its row of `layers` (L, 5); return the signal s of the last layer.

    They are the signal s that enters the layer, from 0 (chance) to 1; u, the attention to the right key minus that to
    another key of its block; and the derivatives of u by the scores of the right key, of the other N − 1 keys of its
    block and of all other blocks. The signal that leaves is s u. N is the vocabulary size, k the number of hops.
    """
    s = 1.0
    for layer in range(layers.shape[0]):
        w1, w2, w3 = y[3 * layer], y[3 * layer + 1], y[3 * layer + 2]
        m = (w1 + (N - 1.0) * w2) / N
        a, b = s * w1 + (1.0 - s) * m, s * w2 + (1.0 - s) * m
        top = max(a, b, w3)
        ea, eb, ec = np.exp(a - top), np.exp(b - top), np.exp(w3 - top)
        Z = ea + (N - 1.0) * eb + N * (k - 1.0) * ec
        u = (ea - eb) / Z
        row = layers[layer]
        row[0], row[1], row[2] = s, u, ea / Z * (1.0 - u)
        row[3], row[4] = -eb / Z * (1.0 + (N - 1.0) * u), -N * (k - 1.0) * ec / Z * u
        s *= u
    return s


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of the three scores of every layer under gradient descent.

    w_c' = (1 − 1/N) λ_l s (∂u/∂w_c)/μ_c for score c of layer l: s is the signal that enters the layer, u its attention
    to the right key over another of the block, μ_c the number of keys with that score, and λ_l the force on the signal,
    which is carried down from the last layer.
    """
    (L, cross_entropy, stages, stage), (N, k, stage_time, weights) = counts_of(sizes), numbers_of(parameters, sizes)
    if stage < 0:
        # A step that begins at the end of a stage belongs to the next, however its time was rounded.
        stage = min(int(t / stage_time + 1e-9), stages - 1)
    layers = layers_of(sizes, work)
    s_next, slope, force = write_layers(y, N, k, layers), 0.0, 0.0
    for layer in range(L - 1, -1, -1):
        w1, w2, row = y[3 * layer], y[3 * layer + 1], layers[layer]
        s, u, ua, ub, u3 = row[0], row[1], row[2], row[3], row[4]
        weight = weights[stage, layer]
        if cross_entropy == 1:
            weight /= s_next + (1.0 - s_next) / N
        force = weight + force * slope
        rate, far = (1.0 - 1.0 / N) * force * s, (1.0 - s) / N
        out[3 * layer] = rate * (ua * (s + far) + ub * far)
        out[3 * layer + 1] = rate * (ua * far * (N - 1.0) + ub * (s + far * (N - 1.0))) / (N - 1.0)
        out[3 * layer + 2] = rate * u3 / (N * (k - 1.0))
        m = (w1 + (N - 1.0) * w2) / N
        slope = u + s * (ua * (w1 - m) + ub * (w2 - m))
        s_next = s


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write s_l − ½ of every layer l, where s_l is the signal that leaves it, from 0 to 1."""
    numbers, layers = numbers_of(parameters, sizes), layers_of(sizes, work)
    L, last = layers.shape[0], write_layers(y, numbers.vocabulary, numbers.hops, layers)
    for layer in range(L):
        out[layer] = (layers[layer + 1, 0] if layer + 1 < L else last) - 0.5


class CompositionSystem(TokenSystem):
    """State, kernels, observables and closed forms of composition."""

    name = "composition"
    functions = Functions(rhs, event_values)
    references = "arXiv:2505.23683"
    notes = (
        "Exact for full gradient descent from equal scores; from random scores of standard deviation 0.3 times are "
        "0.97 to 1.13 of these (N = 6, k = 4)",
        "noise of minibatches enters through wrong blocks alone: at learning rate 0.25 and batches of 1, 4 and 32 "
        "times are within 0.03 of the map's (N = 6, k = 4)",
    )

    def __init__(self, problem: Composition) -> None:
        """Prepare the equations of a composition, from equal scores."""
        self.task = problem
        N, k, L = problem.vocabulary, problem.hops, problem.layers
        self._weights = problem.stage_weights
        stages = self._weights.shape[0]
        n = float(N) * k
        #: Time of hop 1 at weight 1, by correlation.
        self._first = share_time(n) * (n - 1.0) / (n - k)
        stage = problem.stage_time or 12.0 * self._first
        if stages > 1:
            self.stage_ends, self.last_time = tuple(stage * np.arange(1.0, stages)), stage * stages
        self.time_scale = self._first / float(self._weights.max())
        self.components = [f"hop {2**layer}" for layer in range(L)]
        #: Time of a stage of a curriculum.
        self._stage_time = stage
        start, numbers = np.tile([problem.initial_score, 0.0, 0.0], L), CompositionNumbers(N, k, stage, self._weights)
        counts = CompositionCounts(L, int(problem.loss == "cross-entropy"), stages, -1)
        self.hold(start, [np.ravel(part) for part in numbers], counts[:-1], work_size=5 * L)
        self.numbers = [f"{key} of layer {layer}" for layer in range(1, L + 1) for key in ("right", "block", "others")]

    def shares(self, state: Array) -> Array:
        """Return the signal s_l that leaves each layer, shape (L,): 0 at chance, 1 once the hop is learned."""
        N, k, s = self.task.vocabulary, self.task.hops, 1.0
        shares = np.empty(self.task.layers)
        for layer, (w1, w2, w3) in enumerate(state.reshape(-1, 3)):
            m = (w1 + (N - 1) * w2) / N
            scores = np.array([s * w1 + (1 - s) * m, s * w2 + (1 - s) * m, w3])
            weights = np.exp(scores - scores.max())
            s *= (weights[0] - weights[1]) / (weights @ [1, N - 1, N * (k - 1)])
            shares[layer] = s
        return shares

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, of a curriculum summed over its stages, and the signal s_l of each layer, (L,)."""
        s = self.shares(state)
        return float(self._weights.sum(axis=0) @ self._losses(s)), s

    def _losses(self, s: Array) -> Array:
        """Return the loss at signals s, of their shape, summed over the N k positions, for weight 1."""
        N, k = self.task.vocabulary, self.task.hops
        right = s + (1.0 - s) / N
        return N * k * (-np.log(right) if self.task.loss == "cross-entropy" else 1.0 / N - right)

    def closed_times(self) -> Array:
        """Return the learning time of each hop (L,) in closed form: inf for never, NaN where none is known.

        It is known for hop 1, for every stage of a curriculum, and for hop k alone from small scores.
        """
        times, k, score = np.full(self.task.layers, np.nan), self.task.hops, self.task.initial_score
        if self.task.data == "hardest" and score == 0.0:
            times[:] = np.inf
        elif self.task.loss != "correlation":
            return times
        elif self.task.data == "hardest":
            # Hop k alone escapes from small scores ε at c_k n^(2k−1)/ε^(2k−3), where c_k is known.
            constants = {2: np.log(1.0 + np.sqrt(2.0)) / np.sqrt(2.0), 4: 0.06949, 8: 0.01396}
            if k in constants:
                times[-1] = constants[k] * (float(k) * self.task.vocabulary) ** (2 * k - 1) / score ** (2 * k - 3)
        elif score == 0.0:
            times[0] = self._first / self._weights[0, 0]
            if self.stage_ends:
                duration = self._first if self._first < self._stage_time else np.nan
                times[:] = duration + np.array([0.0, *self.stage_ends])
        return times

    def plateaus(self) -> Array:
        """Return, for each hop, the loss with all hops before it learned and the others at chance, (L,)."""
        before = np.tril(np.ones((self.task.layers,) * 2), -1)
        return np.array([self._weights.sum(axis=0) @ self._losses(s) for s in before])
