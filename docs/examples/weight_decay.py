"""A system of equations added from outside: matched pairs of neuron and direction under weight decay.

With the penalty ½ λ Σ_i |w_i|² added to the loss ½ E(f − f*)² the weights obey w' = −∇ ½E(f − f*)² − λ w. Directions do
not feel it, norms do: for a pair that is alone,

    C' = a g'(C) (1 − C²),        (ln n)' = 4 (a g(C) − n g(1)) − 2 λ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler import Piece
from dynamics.equations import System
from dynamics.runs.dataset import prediction_values
from dynamics.solve.registry import Answer
from dynamics.solve.skeleton import Integration, answered
from dynamics.theory.horizon import default_schedule
from dynamics.theory.prediction import predict

if TYPE_CHECKING:
    import xarray as xr

    from dynamics import Problem, SaveAt
    from dynamics.solve.skeleton import Asked

# State: C_p, then ln n_p. Parameters: λ, a_p, c_j². Sizes: P, whether k is odd.
KERNELS = '''
import numpy as np

from dynamics.compiler.compilation import kernel

@kernel
def link_kernel(parameters, P, s):
    """g(s) and g'(s) by Horner's rule."""
    value = slope = 0.0
    for at in range(parameters.size - 1, P, -1):
        slope = slope * s + value
        value = value * s + parameters[at]
    return value, slope

@kernel
def rhs(t, y, out, parameters, sizes, work):
    P, decay = sizes[0], parameters[0]
    norm, _ = link_kernel(parameters, P, 1.0)
    for p in range(P):
        a, C = parameters[1 + p], y[p]
        g, slope = link_kernel(parameters, P, C)
        out[p] = a * slope * (1.0 - C * C)
        out[P + p] = 4.0 * (a * g - np.exp(y[P + p]) * norm) - 2.0 * decay

@kernel
def event_values(t, y, out, parameters, sizes, work):
    P, odd = sizes[0], sizes[1]
    norm, _ = link_kernel(parameters, P, 1.0)
    for p in range(P):
        C = max(y[p], 0.0) if odd else y[p]
        out[p] = C * C - 0.5
        out[P + p] = np.exp(y[P + p]) * link_kernel(parameters, P, C)[0] / norm - 0.5 * parameters[1 + p]

@kernel
def normalise(y, parameters, sizes):
    pass
'''
ANSWER = Answer(name="weight-decay", function="weight_decay:solve", methods=("explicit",))


class MatchedPairs(System):
    """The pairs of a problem in which every direction has a neuron, under weight decay λ."""

    name = "weight-decay"
    pieces = (Piece("matched pairs with weight decay", KERNELS),)

    def __init__(self, problem: Problem, decay: float) -> None:
        self.problem = problem
        self.prediction = predict(problem)
        if not np.isfinite(self.prediction.matched_overlap).all():
            msg = f"Argument `problem` must give every direction a neuron, but has width {problem.width}."
            raise ValueError(msg)
        self.a, self.square = problem.teacher.coefficients, problem.activation.coefficients**2
        start = self.prediction
        self.initial_state = np.concatenate([start.matched_overlap, np.log(start.matched_squared_norm)])
        self.parameters = np.concatenate([[decay], self.a, self.square])
        self.sizes = np.array([self.a.size, problem.information_exponent % 2])
        self.num_events = 2 * self.a.size

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray | float]:
        """Return C, n and E(f − f*)²."""
        a, square = self.a, self.square
        C, n = state[: a.size], np.exp(state[a.size :])
        powers = C[:, None] ** np.arange(square.size)
        loss = square.sum() * np.sum(a**2 + n**2) - 2 * np.sum(a * n * (powers @ square))
        return {"overlap": C, "matched_squared_norm": n, "loss": loss}


def solve(problem: Problem, *, decay: float, save_at: SaveAt | None = None, rtol: float = 1e-8) -> xr.Dataset:
    """Integrate the matched pairs of a problem with weight decay λ; every direction must have a neuron."""
    return answered(ANSWER, build, problem, locals())


def build(asked: Asked, *, decay: float) -> Integration:
    """Return what is integrated, recorded and said."""
    pairs = MatchedPairs(asked.problem, decay)
    return Integration.of(
        pairs,
        asked,
        title="Matched pairs under weight decay",
        schedule=asked.schedule(lambda: default_schedule(asked.problem, pairs.prediction)),
        events={"emergence_time": pairs.a.size, "learned_time": pairs.a.size},
        constants=prediction_values(pairs.prediction),
        settings={"decay": decay},
        loss=lambda state: pairs.observe(state)["loss"],
    )
