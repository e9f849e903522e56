"""The trigger task: an induction head against a positional shortcut, in scores of keys (`docs/token_equations.md`).

State y = [a_t, a_o, b_t, b_o, b_start | β of the keys of gap 1 | of gap 2 | …], β = √κ B; parameters are
`TriggerNumbers`, sizes = [number of gaps | `TriggerKeys` | stage].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel, vector
from dynamics.tokens.problems import TriggerTask
from dynamics.tokens.system import TokenSystem, put_softmax
from hermite.arrays import Array, Integers, Vector

#: Number of scores of tokens, which come before those of positions, and their names.
NAMES = ["trigger", "other", "after trigger", "after other", "first"]
CONTENT = len(NAMES)


class TriggerNumbers(NamedTuple):
    """Number of symbols S, number of triggers κ, and probabilities P of gaps (gaps,).

    `outputs` is u of every key, the weight of the right output that attention to it gives, from 0 to 1.
    """

    symbols: float
    triggers: float
    weights: Vector
    outputs: Vector


class TriggerKeys(NamedTuple):
    """Layout of keys, one gap after the other: the end index of each gap, and per key the indices of its scores.

    `a` is the index in the state of the score of its token, `b` of that of the token before.
    """

    ends: Integers
    a: Integers
    b: Integers


@kernel
def numbers_of(parameters: Vector, sizes: Integers) -> TriggerNumbers:
    """Return symbols S, triggers κ, probabilities of gaps (gaps,) and outputs u of keys (keys,), from `parameters`."""
    gaps = sizes[0]
    weights, outputs = vector(parameters, 2, gaps), vector(parameters, 2 + gaps, parameters.size - 2 - gaps)
    return TriggerNumbers(parameters[0], parameters[1], weights, outputs)


@kernel
def keys_of(y: Vector, sizes: Integers) -> TriggerKeys:
    """Return the end index of each gap (gaps,), and the indices of the scores a and b of each key (keys,)."""
    gaps, keys = sizes[0], y.size - CONTENT
    return TriggerKeys(vector(sizes, 1, gaps), vector(sizes, 1 + gaps, keys), vector(sizes, 1 + gaps + keys, keys))


@kernel
def write_attention(y: Vector, sizes: Integers, work: Vector) -> Vector:
    """Write and return the attention to each key, one gap after the other; it has sum 1 in each gap."""
    ends, a, b = keys_of(y, sizes)
    shares, first = vector(work, 0, a.size), 0
    for row in range(ends.size):
        end = ends[row]
        for s in range(first, end):
            shares[s] = y[a[s]] + y[b[s]] + y[CONTENT + s]
        put_softmax(shares, first, end)
        first = end
    return shares


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates, under gradient descent, of the state [a_t, a_o, b_t, b_o, b_start | β of all keys] to `out`.

    The scores a are those of a key by its token, a trigger or another, b those by the token before, and β those by the
    place of the key, for each gap. The score of a key is a + b + β. With the probability P of a gap, the attention A to
    its keys and their outputs u, the gradient of a score is P A (u − A·u); β has it times the number of triggers, a_o
    and b_o over the number of symbols.
    """
    (ends, a, b), numbers, shares = keys_of(y, sizes), numbers_of(parameters, sizes), write_attention(y, sizes, work)
    u, first = numbers.outputs, 0
    out[:CONTENT] = 0.0
    for row in range(ends.size):
        end, F = ends[row], 0.0
        for s in range(first, end):
            F += shares[s] * u[s]
        for s in range(first, end):
            G = numbers.weights[row] * shares[s] * (u[s] - F)
            out[CONTENT + s] = numbers.triggers * G
            out[a[s]] += G
            out[b[s]] += G
        first = end
    out[1] /= numbers.symbols
    out[3] /= numbers.symbols


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write, for each gap, the attention to the right key minus its value at progress ½, (1 + 1/T)/2 of T keys.

    The right key is the middle one of all but the last.
    """
    ends, shares = keys_of(y, sizes).ends, write_attention(y, sizes, work)
    first = 0
    for row in range(ends.size):
        T = ends[row] - first
        out[row] = shares[first + T // 2] - 0.5 * (1.0 + 1.0 / T)
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
        """Prepare the equations of a trigger task, from zero scores."""
        self.task, self._gaps = problem, np.array(problem.gaps)
        self._lengths = 2 * self._gaps + 3
        keys = np.arange(self._lengths.max())
        self._exists = keys < self._lengths[:, None]
        self._places = np.zeros(self._exists.shape, dtype=np.int64)
        self._places[self._exists] = CONTENT + np.arange(self._exists.sum())
        a, b = self.scores()
        self._outputs = np.where(a == 0, 0.0, np.where(b == 2, 1.0, 1.0 / problem.symbols))
        self.components = [f"gap {gap}" for gap in problem.gaps]
        start = np.zeros(CONTENT + self._exists.sum())
        outputs, ends = self._outputs[self._exists], np.cumsum(self._lengths)
        numbers = TriggerNumbers(problem.symbols, problem.triggers, problem.weights, outputs)
        ordered = TriggerKeys(ends, a[self._exists], b[self._exists])
        self.hold(start, numbers, [len(self._gaps), *ordered], work_size=start.size)
        self.numbers = NAMES + [f"gap {gap}, key {s + 1}" for gap in problem.gaps for s in range(2 * gap + 3)]
        self.coords = {"gap": problem.gaps, "key": range(1, keys.size + 1), "moved_key": ["right", "shortcut"]}
        right = (self.attention(self.initial_state) * self._outputs).sum(axis=1)
        self._rates = problem.weights * (1.0 - right) / self._lengths
        self.time_scale = 1.0 / float((1.0 + problem.triggers) * self._rates.max())

    def scores(self, shift: int = 0) -> tuple[Integers, Integers]:
        """Return the indices in the state of the scores a and b of every key, shape (gaps, keys) each.

        The first trigger stands `shift` places earlier than in training.
        """
        keys, trigger = np.arange(self._lengths.max()), self._gaps[:, None] - shift
        a = np.where((keys == trigger) | (keys == self._lengths[:, None] - 1), 0, 1)
        return a, np.where(keys == 0, 4, np.where(keys == trigger + 1, 2, 3))

    def attention(self, state: Array, shift: int = 0) -> Array:
        """Return the attention to every key, shape (gaps, keys), 0 beyond the last one.

        The first trigger stands `shift` places earlier than in training.
        """
        a, b = self.scores(shift)
        scores = np.where(self._exists, state[a] + state[b] + state[self._places], -np.inf)
        return np.asarray(special.softmax(scores, axis=1))

    def right(self, attention: Array, shift: int = 0) -> Array:
        """Return the attention (gaps,) to the key after the first trigger, if that is earlier by `shift`."""
        return np.asarray(attention[np.arange(len(self._gaps)), self._gaps + 1 - shift])

    def progress(self, right: Array) -> Array:
        """Return progress: attention to the right keys (…, gaps), 0 at the start and 1 at full attention."""
        return np.asarray((self._lengths * right - 1.0) / (self._lengths - 1.0))

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss −Σ_l P_l F_l, F_l the weight of the right output at gap l, and the progress of gaps."""
        attention = self.attention(state)
        loss = -float(self.task.weights @ (attention * self._outputs).sum(axis=1))
        return loss, self.progress(self.right(attention))

    def summarise(self, state: Array) -> dict[str, object]:
        """Return loss, progress, κ R, and attention to the right key and to the shortcut out of distribution."""
        shortcut, shift = self.right(state[self._places]), self.task.shift
        advantage = shortcut if shortcut.any() else self._rates
        kappa_R = self.task.triggers * float(advantage.max() / advantage.sum())
        shifted_attention = self.attention(state, shift)
        moved_attention = np.stack([self.right(shifted_attention, shift), self.right(shifted_attention)], axis=1)
        values = super().summarise(state)
        if (length := self.task.test_length) is not None:  # its positions have no scores
            a_t, a_o, b_t, b_o, b_start = state[:CONTENT]
            scores, counts = np.array([a_o + b_t, a_o + b_start, a_o + b_o, a_t + b_o]), [1, 1, length - 4, 2]
            right, first, other_key, _ = special.softmax(scores + np.log(counts))
            values |= {"test_loss": -right - (first + other_key) / self.task.symbols, "test_attention": right}
        return values | {"kappa_R": kappa_R, "moved_attention": moved_attention}

    def observe(self, state: Array) -> dict[str, object]:
        """Return the values of `summarise`, the state, and the attention to all keys."""
        return super().observe(state) | {"attention": self.attention(state)}
