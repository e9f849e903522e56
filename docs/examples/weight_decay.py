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
from dynamics.equations.pairs.link_kernels import render
from dynamics.runs.dataset import prediction_values
from dynamics.solve.registry import Answer
from dynamics.solve.skeleton import Integration, answered
from dynamics.theory.horizon import default_schedule
from dynamics.theory.prediction import predict

if TYPE_CHECKING:
    import xarray as xr

    from dynamics import Problem, SaveAt
    from dynamics.solve.skeleton import Asked
    from dynamics.theory.prediction import EmergencePrediction

# State: C_p, then ln n_p. Parameters: λ, a_p. Sizes: P, whether k is odd. g0 and g1 are g and g' of the link, rendered.
KERNELS = """
import numpy as np

from dynamics.compiler.compilation import kernel

@kernel
def rhs(t, y, out, parameters, sizes, work):
    P, decay = sizes[0], parameters[0]
    for p in range(P):
        a, C = parameters[1 + p], y[p]
        out[p] = a * g1(C) * (1.0 - C * C)
        out[P + p] = 4.0 * (a * g0(C) - np.exp(y[P + p]) * g0(1.0)) - 2.0 * decay

@kernel
def event_values(t, y, out, parameters, sizes, work):
    P, odd = sizes[0], sizes[1]
    for p in range(P):
        C = max(y[p], 0.0) if odd else y[p]
        out[p] = C * C - 0.5
        out[P + p] = np.exp(y[P + p]) * g0(C) / g0(1.0) - 0.5 * parameters[1 + p]

@kernel
def normalise(y, parameters, sizes):
    pass
"""
ANSWER = Answer(name="weight-decay", function="weight_decay:solve", methods=("explicit",))


class MatchedPairs(System):
    """The pairs of a problem in which every direction has a neuron, under weight decay λ."""

    def __init__(self, problem: Problem, decay: float, prediction: EmergencePrediction) -> None:
        self.problem, self.a, link = problem, problem.teacher.coefficients, problem.activation
        self.pieces = (render(link.coefficients), Piece("matched pairs with weight decay", KERNELS))
        self.initial_state = np.concatenate([prediction.matched_overlap, np.log(prediction.matched_squared_norm)])
        self.parameters = np.concatenate([[decay], self.a])
        self.sizes = np.array([self.a.size, problem.information_exponent % 2])
        self.num_events = 2 * self.a.size

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray | float]:
        """Return C, n and E(f − f*)²."""
        a, C, n, g = self.a, state[: self.a.size], np.exp(state[self.a.size :]), self.problem.activation.kernel
        return {"overlap": C, "matched_squared_norm": n, "loss": np.sum(g(1.0) * (a**2 + n**2) - 2 * a * n * g(C))}


def solve(
    problem: Problem, *, decay: float, save_at: SaveAt | None = None, rtol: float = 1e-8, atol: float = 1e-12
) -> xr.Dataset:
    """Integrate the matched pairs of a problem with weight decay λ; every direction must have a neuron."""
    return answered(ANSWER, build, problem, locals())


def build(asked: Asked, *, decay: float) -> Integration:
    """Return what is integrated, recorded and said."""
    prediction = predict(asked.problem)
    if not np.isfinite(prediction.matched_overlap).all():
        msg = f"Argument `problem` must give every direction a neuron, but has width {asked.problem.width}."
        raise ValueError(msg)
    return Integration.of(
        MatchedPairs(asked.problem, decay, prediction),
        asked,
        title="Matched pairs under weight decay",
        schedule=asked.schedule(lambda: default_schedule(asked.problem, prediction)),
        constants=prediction_values(prediction),
        settings={"decay": decay},
    )
