"""A latent causal graph, learned row by row: W_t' = A_t ∘ (v_t − A_t·v_t), A = softmax(W) (`docs/token_equations.md`).

State y = scores of rows 3, 4, … n one after the other, of 2, 3, … n − 1 keys; parameters and sizes are `GraphNumbers`,
with n first and the stage last in sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel, vector
from dynamics.tokens.problems import CausalGraph
from dynamics.tokens.system import TokenSystem, put_softmax, share_time
from hermite.arrays import Array, Integers, Vector


class GraphNumbers(NamedTuple):
    """Fitness v of the keys; per row the share of the parent at which half is learned, 3 without a parent; parents.

    The parent of a row without one is −1.
    """

    fitness: Vector
    halves: Vector
    parents: Integers


@kernel
def numbers_of(y: Vector, parameters: Vector, sizes: Integers) -> GraphNumbers:
    """Return fitness of keys (shape of y), and per row the attention at half progress and the parent, (rows,) each."""
    rows = sizes[0] - 2
    return GraphNumbers(vector(parameters, 0, y.size), vector(parameters, y.size, rows), vector(sizes, 1, rows))


@kernel
def write_shares(y: Vector, rows: int, work: Vector) -> Vector:
    """Write and return the softmax of each row of scores, one row after the other, shape of `y`."""
    shares, first = vector(work, 0, y.size), 0
    for s in range(y.size):
        shares[s] = y[s]
    for keys in range(2, 2 + rows):
        put_softmax(shares, first, first + keys)
        first += keys
    return shares


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of all scores, row by row: W_t' = A_t ∘ (v_t − A_t·v_t).

    A_t is the softmax of the scores W_t of row t, and v_t the fitness of its keys, the gain of attention to each.
    """
    v, _, parents = numbers_of(y, parameters, sizes)
    shares, first = write_shares(y, parents.size, work), 0
    for keys in range(2, 2 + parents.size):
        mean = 0.0
        for s in range(first, first + keys):
            mean += shares[s] * v[s]
        for s in range(first, first + keys):
            out[s] = shares[s] * (v[s] - mean)
        first += keys


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write, for each row, the attention p to the parent minus its value at progress p − (1 − p)/(keys − 1) = ½.

    The value of a row without a parent is always negative.
    """
    _, halves, parents = numbers_of(y, parameters, sizes)
    shares, first = write_shares(y, parents.size, work), 0
    for row in range(parents.size):
        share = shares[first + parents[row]] if parents[row] >= 0 else -1.0
        out[row] = share - halves[row]
        first += row + 2


#: Added to f[y] in the logarithm of the paper's loss.
LOG_FLOOR = 0.05
#: Sequences of which the fitness of Dirichlet transitions is measured, and those drawn at once.
MEASURED, MEASURED_AT_ONCE = 1_000_000, 50_000


class CausalGraphSystem(TokenSystem):
    """State, kernels, observables and closed forms of a causal graph."""

    name = "causal graph"
    functions = Functions(rhs, event_values)
    references = "arXiv:2402.14735"

    def __init__(self, problem: CausalGraph) -> None:
        """Prepare the equations of a causal graph, from equal scores."""
        self.task = problem
        n = problem.length
        self._fitness, self._fixed = _fitness_of(problem)
        self._rows = [np.arange(t * (t - 1) // 2 - 1, t * (t - 1) // 2 - 1 + t) for t in range(2, n)]
        parents = [-1 if parent is None else parent for parent in problem.parents[2:]]
        keys = np.arange(2, n)
        half = np.where(np.array(parents) < 0, 3.0, (1.0 + 0.5 * (keys - 1)) / keys)
        self.components = [f"row {t + 1}" for t in range(2, n)]
        start, fitness = np.zeros(n * (n - 1) // 2 - 1), [self._fitness[t, :t] for t in range(2, n)]
        numbers = GraphNumbers(np.concatenate(fitness), half, np.array(parents))
        self.hold(start, [numbers.fitness, numbers.halves], [n, numbers.parents], work_size=start.size)
        self.numbers = [f"row {t + 1}, key {s + 1}" for t in range(2, n) for s in range(t)]
        self._tested = None if problem.test_length is None else CausalGraphSystem(problem.tested())
        closed = self.closed_times()
        self.time_scale = float(closed[np.isfinite(closed)].min(initial=1e6))
        self.notes = (
            "Exact for full gradient descent on a linear second layer"
            if problem.second_layer == "linear"
            else "To first order in beta: weights of the first layer are off by up to 0.022, 0.013, 0.007 and 0.003 at "
            "beta = 0.8, 0.4, 0.2 and 0.1 (S = 3, q = 0.8, n = 5)"
            if problem.transitions == "permutation"
            else "To first order in beta, fitness measured on a million sequences: runs take 1.11 to 1.16, 1.03 to "
            "1.07 and 1.00 to 1.04 times as long at beta = 0.6, 0.3 and 0.15 (a chain, S = 3, n = 8)",
            "closed times take all wrong keys for equal: up to 1.4 % early on a chain, a third on a tree",
        )

    def shares(self, state: Array) -> list[Array]:
        """Return the attention of each row, a list of arrays of 2, 3, … n − 1 keys."""
        return [special.softmax(state[row]) for row in self._rows]

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, and p − (1 − p)/(keys − 1) of each row, p the attention to its parent."""
        shares = self.shares(state)
        return self.loss(shares), self.progress(shares)

    def summarise(self, state: Array) -> dict[str, object]:
        """Return loss and progress, and the loss at the test length, where the further rows are uniform."""
        values = super().summarise(state)
        if self._tested is not None:
            length = self._tested.task.length
            new = [np.full(t, 1.0 / t) for t in range(self.task.length, length)]
            values["test_loss"] = self._tested.loss([*self.shares(state)[: length - 2], *new])
        return values

    def progress(self, shares: Sequence[Array]) -> Array:
        """Return p − (1 − p)/(keys − 1) of every row, p the share of the parent; 0 without a parent."""
        progress = np.zeros(len(shares))
        for row, (share, parent) in enumerate(zip(shares, self.task.parents[2:], strict=True)):
            if parent is not None:
                progress[row] = share[parent] - (1.0 - share[parent]) / (share.size - 1)
        return progress

    def loss(self, shares: Sequence[Array]) -> float:
        """Return the loss of the attention `shares` of rows 3 … n; of a softmax second layer to first order in β."""
        return self._fixed - float(sum(share @ self._fitness[t, :t] for t, share in enumerate(shares, start=2)))

    def closed_times(self) -> Array:
        """Return the time at which each row alone is half learned; inf for a row without a parent or advantage.

        The advantage is the fitness of the parent minus the mean of the other keys, and the time `share_time` over it.
        """
        times = np.full(self.task.length - 2, np.inf)
        for t, parent in enumerate(self.task.parents[2:], start=2):
            v = self._fitness[t, :t]
            if parent is not None and (advantage := v[parent] - np.delete(v, parent).mean()) > 0.0:
                times[t - 2] = share_time(t) / advantage
        return times

    def plateaus(self) -> Array:
        """Return, for every row, the loss with all rows of smaller learning times learned and the others uniform."""
        times, n = self.closed_times(), self.task.length
        losses = np.full(n - 2, np.nan)
        for learned_row in np.flatnonzero(np.isfinite(times)):
            shares = [np.full(t, 1.0 / t) for t in range(2, n)]
            for row in np.flatnonzero(times < times[learned_row]):
                shares[row] = np.eye(row + 2)[self.task.parents[row + 2]]  # type: ignore[call-overload]  # it has one
            losses[learned_row] = self.loss(shares)
        return losses


def _fitness_of(problem: CausalGraph) -> tuple[Array, float]:
    """Return the fitness of keys (n, n), rows first, and the part of the loss that rows 3 and on do not change."""
    n, S, q = problem.length, problem.vocabulary, problem.persistence
    scale = (1.0 if problem.beta is None else problem.beta) / n
    if problem.transitions == "dirichlet":
        v, start = _measured(problem)
    else:
        v, start, lines = np.zeros((n, n)), -1.0 / S, list[list[int]]()
        for t, parent in enumerate(problem.parents):
            lines.append([t, *(lines[parent] if parent is not None else [])])
        for t, s in np.ndindex(n, n):
            if (common := next((token for token in lines[s] if token in lines[t]), None)) is not None:
                up, down = lines[s].index(common), lines[t].index(common)
                power = abs(down - up - 1)
                # The mean number of fixed points of Π^power: the divisors of the power up to S, and S of the identity.
                fixed = sum(power % divisor == 0 for divisor in range(1, min(power, S) + 1)) if power else S
                v[t, s] = q ** (1 + up + down) * (fixed - 1) / S**2
        if problem.second_layer == "softmax":
            v -= v.mean(axis=0)
    # The first token keeps itself, the second has one key.
    held = scale * (v[0, 0] + v[1, 0])
    return scale * v, (-1.0 / S**2 if problem.second_layer == "linear" else start) - held


@lru_cache(maxsize=8)
def _measured(problem: CausalGraph) -> tuple[Array, float]:
    """Return (v, loss) on a million drawn sequences with uniform attention.

    v (n, n), times β/n, is the fitness of key s for row t, and the loss the mean of −ln(f[y] + 0.05), where f[y] is the
    share of the right token y in a sequence.
    """
    n, rng = problem.length, np.random.default_rng(12345)
    v, loss = np.zeros((n, n)), 0.0
    for _ in range(MEASURED // MEASURED_AT_ONCE):
        x, query, y = _drawn(problem, MEASURED_AT_ONCE, rng)
        is_query, is_answer = (x == query[:, None]).astype(np.float64), (x == y[:, None]).astype(np.float64)
        f = is_answer.mean(axis=1) + LOG_FLOOR
        loss -= float(np.log(f).sum())
        v += ((is_answer - is_answer.mean(axis=1, keepdims=True)) / f[:, None]).T @ is_query
    return v / MEASURED, loss / MEASURED


def _drawn(problem: CausalGraph, count: int, rng: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """Return tokens (count, n) of sequences with Dirichlet transitions, their queries and successors, (count,) each.

    Tokens are integers from 0 to S − 1.
    """
    S, q = problem.vocabulary, problem.persistence
    below = np.cumsum(q * rng.dirichlet(np.ones(S), (count, S)) + (1.0 - q) / S, axis=2)
    rows = np.arange(count)

    def successor(of: Integers) -> Integers:
        """Return a successor of one token per sequence, (count,), drawn from its transitions."""
        tokens: Integers = np.minimum((below[rows, of] < rng.random(count)[:, None]).sum(axis=1), S - 1)
        return tokens

    x = np.empty((count, problem.length), dtype=np.int64)
    for t, parent in enumerate(problem.parents):
        x[:, t] = rng.integers(S, size=count) if parent is None else successor(x[:, parent])
    query = rng.integers(S, size=count)
    return x, query, successor(query)
