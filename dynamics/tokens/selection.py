"""Selection of q tokens by H heads, reduced to U (q, H) and score differences δ (H, q) (`docs/token_equations.md`).

State y = [U (q, H) | δ (H, q)]; parameters = [N]; sizes = [q | H | stage]. The scratch holds A (H, q) with o as
one more column, and E (q, q) with w as one more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel
from dynamics.runs.variables import Variable
from dynamics.tokens.problems import Selection
from dynamics.tokens.system import TOKEN_VARIABLES, TokenSystem, put_softmax
from hermite.arrays import Array, Integers, Vector


@kernel
def write_attention(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write A, and o in its last column."""
    q, H = sizes[0], sizes[1]
    for h in range(H):
        first = h * (q + 1)
        work[first : first + q] = y[H * q + h * q : H * q + h * q + q]
        work[first + q] = np.log(parameters[0] - q)
        put_softmax(work, first, first + q + 1)
        work[first + q] /= parameters[0] - q


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Gradient descent of the read-out U and of the score differences δ."""
    q, H, N = sizes[0], sizes[1], parameters[0]
    write_attention(y, parameters, sizes, work)
    for r in range(q):
        E = (H + r) * (q + 1)
        for s in range(q + 1):
            work[E + s] = -1.0 if r == s else 0.0
            for h in range(H):
                work[E + s] += y[r * H + h] * work[h * (q + 1) + s]
    for h in range(H):
        A, delta, mean = h * (q + 1), H * q + h * q, 0.0
        for r in range(q):
            E = (H + r) * (q + 1)
            back = (N - q) * work[A + q] * work[E + q]
            mean += y[r * H + h] * back
            for s in range(q):
                back += work[E + s] * work[A + s]
            out[r * H + h] = -back
        for s in range(q):
            gain = 0.0
            for r in range(q):
                gain += y[r * H + h] * work[(H + r) * (q + 1) + s]
            out[delta + s] = gain
            mean += work[A + s] * gain
        for s in range(q):
            out[delta + s] = -work[A + s] * (out[delta + s] - mean) / (N - 1.0)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Attention of every head on the wanted tokens, less half."""
    q, H = sizes[0], sizes[1]
    write_attention(y, parameters, sizes, work)
    for h in range(H):
        out[h] = -0.5
        for r in range(q):
            out[h] += work[h * (q + 1) + r]


class SelectionSystem(TokenSystem):
    """State, kernels, observables and closed forms of selection."""

    name = "selection"
    functions = Functions(rhs, event_values)
    references = "arXiv:2503.11272, arXiv:2510.27015"
    geometric = True
    beyond = 5.0
    variables = TOKEN_VARIABLES | {
        name: Variable(("time", "head", "token"), f"attention of the head on a wanted token{where}", symbol)
        for name, where, symbol in (("attention", "", "A_{hr}"), ("test_attention", " at the test length", "A'_{hr}"))
    }

    def __init__(self, problem: Selection) -> None:
        self.asked = problem
        N, q, H = problem.tokens, problem.selected, problem.heads
        heads, wanted = range(1, H + 1), range(1, q + 1)
        self.components = [f"head {h}" for h in heads]
        start = np.concatenate([part.ravel() for part in problem.start()])
        self.hold(start, [N], [q, H], work_size=(H + q) * (q + 1))
        self.numbers = [
            *(f"U {r},{h}" for r in wanted for h in heads),
            *(f"delta {h},{r}" for h in heads for r in wanted),
        ]
        self.coords = {"head": list(heads), "token": list(wanted)}
        # More heads than slots cancel one another on all other tokens, and need not attend.
        self.all_are_learned = q >= H
        self.time_scale = max(self._settled_time(), float(N))
        closed = "the closed time takes U for settled: 9, 4, 2 and 1 % early at N = 16, 64, 256 and 1024"
        self.notes = (
            "Exact for full gradient descent over all prompts, from scores of two values",
            *([closed] if np.isfinite(self.closed_times()).all() else []),
            *([f"with fewer heads than selected tokens the loss ends at {(q - H) / 2:g}"] if q > H else []),
        )

    def parts(self, state: Array) -> tuple[Array, Array]:
        """Return U (q, H) and δ (H, q)."""
        q, H = self.asked.selected, self.asked.heads
        return state[: H * q].reshape(q, H), state[H * q :].reshape(H, q)

    def attention(self, state: Array, length: int) -> tuple[Array, Array]:
        """Return A (H, q) and o (H,) at a number of tokens."""
        delta = self.parts(state)[1]
        top = delta.max(axis=1, initial=0.0, keepdims=True)
        weights, rest = np.exp(delta - top), np.exp(-top[:, 0])
        total = weights.sum(axis=1) + (length - self.asked.selected) * rest
        return weights / total[:, None], rest / total

    def loss(self, state: Array, length: int) -> float:
        """Return ½(|E|² + (N − q)|w|²) at a number of tokens."""
        U, q = self.parts(state)[0], self.asked.selected
        A, o = self.attention(state, length)
        return float(0.5 * (((U @ A - np.eye(q)) ** 2).sum() + (length - q) * ((U @ o) ** 2).sum()))

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, and the attention of every head on the wanted tokens."""
        N = self.asked.tokens
        return self.loss(state, N), self.attention(state, N)[0].sum(axis=1)

    def summarise(self, state: Array) -> dict[str, Any]:
        """Return loss, progress, and what there is at other lengths."""
        with np.errstate(over="ignore"):
            half = self.asked.selected + np.exp(self.parts(state)[1]).sum(axis=1).min()
        values = super().summarise(state) | {
            "attention": self.attention(state, self.asked.tokens)[0], "length_at_half": half,
        }  # fmt: skip
        if (length := self.asked.test_length) is not None:
            values |= {"test_loss": self.loss(state, length), "test_attention": self.attention(state, length)[0]}
        return values

    def closed_times(self) -> Array:
        """Return the time of one head that starts at 0, with its value settled; NaN for other starts."""
        is_known = self.asked.heads == 1 and self.asked.initial_scale == 0.0
        return np.full(self.asked.heads, self._settled_time() if is_known else np.nan)

    def _settled_time(self) -> float:
        """Return q (N − 1) (m² − 1 + 2m ln m)/m; 0 where half of the tokens are wanted ones."""
        N, q = self.asked.tokens, self.asked.selected
        m = (N - q) / q
        return max(q * (N - 1.0) * (m - 1.0 / m + 2.0 * float(np.log(m))), 0.0)

    def plateaus(self) -> Array:
        """Return the loss at uniform attention with the best U."""
        return np.full(self.asked.heads, 0.5 * self.asked.selected * (1.0 - 1.0 / self.asked.tokens))
