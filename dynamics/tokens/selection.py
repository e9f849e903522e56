"""Selection of q tokens by H heads, reduced to U (q, H) and score differences δ (H, q) (`docs/token_equations.md`).

State y = [U (q, H) | δ (H, q)]; parameters = [N]; sizes = [q | H | stage]; the scratch holds `SelectionWork`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel, matrix, row_part
from dynamics.runs.variables import Variable
from dynamics.tokens.problems import Selection
from dynamics.tokens.system import TOKEN_VARIABLES, TokenSystem, put_softmax
from hermite.arrays import Array, Integers, Matrix, Vector


class SelectionWork(NamedTuple):
    """Parts of the scratch, for H heads and q wanted tokens.

    `attention` (H, q + 1): attention A of each head to each wanted token, then o, that to one other token. `error` (q,
    q + 1): read-out error E = U A − I on wanted tokens, then w = U o.
    """

    attention: Matrix
    error: Matrix


@kernel
def counts_of(parameters: Vector, sizes: Integers) -> tuple[int, int, float]:
    """Return the number of wanted tokens q, of heads H, and of all tokens N."""
    return sizes[0], sizes[1], parameters[0]


@kernel
def work_of(q: int, H: int, work: Vector) -> SelectionWork:
    """Return views of the scratch: attention (H, q + 1) of heads to tokens, and read-out error (q, q + 1)."""
    return SelectionWork(matrix(work, 0, H, q + 1), matrix(work, H * (q + 1), q, q + 1))


@kernel
def write_attention(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> SelectionWork:
    """Write the attention of each head, (H, q + 1), to the wanted tokens and to one other token; return the scratch.

    It is the softmax of the score differences δ (H, q), the scores of wanted tokens minus that of all others, N − q in
    number.
    """
    q, H, N = counts_of(parameters, sizes)
    parts = work_of(q, H, work)
    for h in range(H):
        row = row_part(parts.attention, h, 0, q + 1)
        for r in range(q):
            row[r] = y[H * q + h * q + r]
        row[q] = np.log(N - q)
        put_softmax(row, 0, q + 1)
        row[q] /= N - q
    return parts


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates, under gradient descent, of the state [U (q, H) | δ (H, q)] to `out`.

    U is the read-out of q wanted tokens from H heads, and δ the score of each wanted token in each head, minus that of
    the others. Attention A (H, q + 1) and error E (q, q + 1) of the read-out are left in `work`.
    """
    q, H, N = counts_of(parameters, sizes)
    A, E = write_attention(y, parameters, sizes, work)
    for r in range(q):
        for s in range(q + 1):
            E[r, s] = -1.0 if r == s else 0.0
            for h in range(H):
                E[r, s] += y[r * H + h] * A[h, s]
    for h in range(H):
        delta, mean = H * q + h * q, 0.0
        for r in range(q):
            back = (N - q) * A[h, q] * E[r, q]
            mean += y[r * H + h] * back
            for s in range(q):
                back += E[r, s] * A[h, s]
            out[r * H + h] = -back
        for s in range(q):
            gain = 0.0
            for r in range(q):
                gain += y[r * H + h] * E[r, s]
            out[delta + s] = gain
            mean += A[h, s] * gain
        for s in range(q):
            out[delta + s] = -A[h, s] * (out[delta + s] - mean) / (N - 1.0)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write, for each head, its whole attention on the wanted tokens, minus ½."""
    A = write_attention(y, parameters, sizes, work).attention
    for h in range(A.shape[0]):
        out[h] = -0.5
        for r in range(A.shape[1] - 1):
            out[h] += A[h, r]


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
        """Prepare the equations of a selection, from the start of the problem."""
        self.task = problem
        N, q, H = problem.tokens, problem.selected, problem.heads
        heads, slots = range(1, H + 1), range(1, q + 1)
        self.components = [f"head {h}" for h in heads]
        start = np.concatenate([part.ravel() for part in problem.start()])
        self.hold(start, [N], [q, H], work_size=(H + q) * (q + 1))
        self.numbers = [
            *(f"U {r},{h}" for r in slots for h in heads),
            *(f"delta {h},{r}" for h in heads for r in slots),
        ]
        self.coords = {"head": list(heads), "token": list(slots)}
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
        """Return views of a state: the read-out U (q, H), and score differences δ (H, q) of wanted tokens to others."""
        q, H = self.task.selected, self.task.heads
        return state[: H * q].reshape(q, H), state[H * q :].reshape(H, q)

    def attention(self, state: Array, length: int) -> tuple[Array, Array]:
        """Return the attention of heads to wanted tokens (H, q) and to one other token (H,), among `length` tokens."""
        delta = self.parts(state)[1]
        top = delta.max(axis=1, initial=0.0, keepdims=True)
        weights, rest_weight = np.exp(delta - top), np.exp(-top[:, 0])
        total = weights.sum(axis=1) + (length - self.task.selected) * rest_weight
        return weights / total[:, None], rest_weight / total

    def loss(self, state: Array, length: int) -> float:
        """Return ½(|U A − I|² + (N − q)|U o|²) with N = `length` tokens.

        U is the read-out, A (H, q) the attention to wanted tokens and o (H,) that to one other token.
        """
        U, q = self.parts(state)[0], self.task.selected
        A, o = self.attention(state, length)
        return float(0.5 * (((U @ A - np.eye(q)) ** 2).sum() + (length - q) * ((U @ o) ** 2).sum()))

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, and the whole attention of each head on the wanted tokens, (H,)."""
        N = self.task.tokens
        return self.loss(state, N), self.attention(state, N)[0].sum(axis=1)

    def summarise(self, state: Array) -> dict[str, object]:
        """Return loss, progress, attention, the length at which it is ½, and loss and attention at the test length."""
        with np.errstate(over="ignore"):
            half = self.task.selected + np.exp(self.parts(state)[1]).sum(axis=1).min()
        values = super().summarise(state) | {
            "attention": self.attention(state, self.task.tokens)[0], "length_at_half": half,
        }  # fmt: skip
        if (length := self.task.test_length) is not None:
            values |= {"test_loss": self.loss(state, length), "test_attention": self.attention(state, length)[0]}
        return values

    def closed_times(self) -> Array:
        """Return the time at which one head is half learned, from 0 and with its value settled; else NaN, (H,)."""
        is_known = self.task.heads == 1 and self.task.initial_scale == 0.0
        return np.full(self.task.heads, self._settled_time() if is_known else np.nan)

    def _settled_time(self) -> float:
        """Return q (N − 1) (m² − 1 + 2m ln m)/m, the time of one head; 0 where half of the tokens are wanted ones.

        N is the number of tokens, q that of wanted ones, and m = (N − q)/q.
        """
        N, q = self.task.tokens, self.task.selected
        m = (N - q) / q
        return max(q * (N - 1.0) * (m - 1.0 / m + 2.0 * float(np.log(m))), 0.0)

    def plateaus(self) -> Array:
        """Return the loss at uniform attention with the best read-out U, the same for each head, (H,)."""
        return np.full(self.task.heads, 0.5 * self.task.selected * (1.0 - 1.0 / self.task.tokens))
