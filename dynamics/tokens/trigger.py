"""The trigger task: an induction head against a positional shortcut, in scores of keys (`docs/token_equations.md`).

State y = [a_t, a_o, b_t, b_o, b_start | β of the keys of gap 1 | of gap 2 | …], β = √κ B; parameters = [S | κ | P | u
of every key]; sizes = [number of gaps | ends of their keys | index of a for every key | of b | stage].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel
from dynamics.tokens.problems import TriggerTask
from dynamics.tokens.system import TokenSystem, put_softmax
from hermite.arrays import Array, Integers, Vector

#: Number of scores of tokens, which come before those of positions, and their names.
NAMES = ["trigger", "other", "after trigger", "after other", "first"]
CONTENT = len(NAMES)


@kernel
def write_attention(y: Vector, sizes: Integers, work: Vector) -> None:
    """Write the softmax over the keys of every gap."""
    a, first = 1 + sizes[0], 0
    b = a + y.size - CONTENT
    for row in range(sizes[0]):
        end = sizes[1 + row]
        for s in range(first, end):
            work[s] = y[sizes[a + s]] + y[sizes[b + s]] + y[CONTENT + s]
        put_softmax(work, first, end)
        first = end


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Gradient descent of the scores, gap by gap."""
    write_attention(y, sizes, work)
    a, u, first = 1 + sizes[0], 2 + sizes[0], 0
    b = a + y.size - CONTENT
    out[:CONTENT] = 0.0
    for row in range(sizes[0]):
        end, F = sizes[1 + row], 0.0
        for s in range(first, end):
            F += work[s] * parameters[u + s]
        for s in range(first, end):
            G = parameters[2 + row] * work[s] * (parameters[u + s] - F)
            out[CONTENT + s] = parameters[1] * G
            out[sizes[a + s]] += G
            out[sizes[b + s]] += G
        first = end
    out[1] /= parameters[0]
    out[3] /= parameters[0]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Attention to the right key of every gap, in the middle of all but the last, less that at which progress is ½."""
    write_attention(y, sizes, work)
    first = 0
    for row in range(sizes[0]):
        T = sizes[1 + row] - first
        out[row] = work[first + T // 2] - 0.5 * (1.0 + 1.0 / T)
        first += T


class TriggerSystem(TokenSystem):
    """State, kernels and observables of the trigger task; it has neither closed times nor plateaus."""

    name = "trigger task"
    functions = Functions(rhs, event_values)
    references = "arXiv:2512.18634"
    notes = (
        "Exact for full gradient descent on the scores of tokens, of tokens before and of positions from zero",
        "times have no closed form",
    )

    def __init__(self, problem: TriggerTask) -> None:
        self.asked, self._gaps = problem, np.array(problem.gaps)
        self._lengths = 2 * self._gaps + 3
        keys = np.arange(self._lengths.max())
        self._exists = keys < self._lengths[:, None]
        self._places = np.zeros(self._exists.shape, dtype=np.int64)
        self._places[self._exists] = CONTENT + np.arange(self._exists.sum())
        a, b = self.scores()
        self._outputs = np.where(a == 0, 0.0, np.where(b == 2, 1.0, 1.0 / problem.symbols))
        self.components = [f"gap {gap}" for gap in problem.gaps]
        start = np.zeros(CONTENT + self._exists.sum())
        parameters = [problem.symbols, problem.triggers, problem.weights, self._outputs[self._exists]]
        sizes = [len(self._gaps), np.cumsum(self._lengths), a[self._exists], b[self._exists]]
        self.hold(start, parameters, sizes, work_size=start.size)
        self.numbers = NAMES + [f"gap {gap}, key {s + 1}" for gap in problem.gaps for s in range(2 * gap + 3)]
        self.coords = {"gap": problem.gaps, "key": range(1, keys.size + 1), "moved_key": ["right", "shortcut"]}
        right = (self.attention(self.initial_state) * self._outputs).sum(axis=1)
        self._rates = problem.weights * (1.0 - right) / self._lengths
        self.time_scale = 1.0 / float((1.0 + problem.triggers) * self._rates.max())

    def scores(self, shift: int = 0) -> tuple[Integers, Integers]:
        """Return which a and which b every key (gaps, keys) has, with the first trigger earlier by `shift`."""
        keys, trigger = np.arange(self._lengths.max()), self._gaps[:, None] - shift
        a = np.where((keys == trigger) | (keys == self._lengths[:, None] - 1), 0, 1)
        return a, np.where(keys == 0, 4, np.where(keys == trigger + 1, 2, 3))

    def attention(self, state: Array, shift: int = 0) -> Array:
        """Return the softmax over all keys (gaps, keys), with the first trigger earlier by `shift`."""
        a, b = self.scores(shift)
        scores = np.where(self._exists, state[a] + state[b] + state[self._places], -np.inf)
        return np.asarray(special.softmax(scores, axis=1))

    def right(self, attention: Array, shift: int = 0) -> Array:
        """Return the attention (gaps,) to the key after the first trigger, if that is earlier by `shift`."""
        return np.asarray(attention[np.arange(len(self._gaps)), self._gaps + 1 - shift])

    def progress(self, right: Array) -> Array:
        """Return how far attention to the right keys, (…, gaps), has come from that at the start."""
        return np.asarray((self._lengths * right - 1.0) / (self._lengths - 1.0))

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return −Σ P_l F_l, and progress."""
        attention = self.attention(state)
        loss = -float(self.asked.weights @ (attention * self._outputs).sum(axis=1))
        return loss, self.progress(self.right(attention))

    def summarise(self, state: Array) -> dict[str, Any]:
        """Return loss, progress, κ R, and attention to the right key and to the shortcut out of distribution."""
        shortcut, shift = self.right(state[self._places]), self.asked.shift
        advantage = shortcut if shortcut.any() else self._rates
        kappa_R, moved = self.asked.triggers * float(advantage.max() / advantage.sum()), self.attention(state, shift)
        both = np.stack([self.right(moved, shift), self.right(moved)], axis=1)
        values = super().summarise(state)
        if (length := self.asked.test_length) is not None:  # its positions have no scores
            a_t, a_o, b_t, b_o, b_start = state[:CONTENT]
            scores, counts = np.array([a_o + b_t, a_o + b_start, a_o + b_o, a_t + b_o]), [1, 1, length - 4, 2]
            right, first, other_key, _ = special.softmax(scores + np.log(counts))
            values |= {"test_loss": -right - (first + other_key) / self.asked.symbols, "test_attention": right}
        return values | {"kappa_R": kappa_R, "moved_attention": both}

    def observe(self, state: Array) -> dict[str, Any]:
        """Return all of it, and the attention to all keys."""
        return super().observe(state) | {"attention": self.attention(state)}
