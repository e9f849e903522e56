"""A system of equations added from outside: matched pairs of neuron and direction under weight decay.

With the penalty ½ λ Σ_i |w_i|² added to the loss ½ E(f − f*)² the weights obey w' = −∇ ½E(f − f*)² − λ w. Directions do
not feel it, norms do: for a pair that is alone,

    C' = a g'(C) (1 − C²),        (ln n)' = 4 (a g(C) − n g(1)) − 2 λ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.compilation import Piece
from dynamics.runs.dataset import prediction_values
from dynamics.solve.registry import Answer
from dynamics.solve.skeleton import Integration, PlainMethod, answered
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


def solve(problem: Problem, *, decay: float, save_at: SaveAt | None = None, rtol: float = 1e-8) -> xr.Dataset:
    """Integrate the matched pairs of a problem with weight decay λ; every direction must have a neuron."""
    return answered(ANSWER, build, problem, locals())


def build(asked: Asked, *, decay: float) -> Integration:
    """Return what is integrated, recorded and said."""
    prediction = predict(asked.problem)
    if not np.isfinite(prediction.matched_overlap).all():
        msg = f"Argument `problem` must give every direction a neuron, but has width {asked.problem.width}."
        raise ValueError(msg)
    pairs = DecayingPairs(asked.problem, decay, prediction.matched_overlap, prediction.matched_squared_norm)
    return Integration(
        title="Matched pairs under weight decay",
        schedule=asked.schedule(lambda: default_schedule(asked.problem, prediction)),
        method=PlainMethod(pairs, asked.method, asked.atol),
        observe=pairs.observe,
        start=pairs.initial_state,
        events={"emergence_time": pairs.a.size, "learned_time": pairs.a.size},
        constants=prediction_values(prediction),
        settings={"decay": decay},
        loss=lambda state: pairs.observe(state)["loss"],
    )


class DecayingPairs:
    """The state, the numbers that the kernels read, and what is recorded of a state."""

    pieces = (Piece("matched pairs with weight decay", KERNELS),)
    work_size = 0

    def __init__(self, problem: Problem, decay: float, overlap: np.ndarray, squared_norm: np.ndarray) -> None:
        self.a, self.square = problem.teacher.coefficients, problem.activation.coefficients**2
        self.initial_state = np.concatenate([overlap, np.log(squared_norm)])
        self.parameters = np.concatenate([[decay], self.a, self.square])
        self.sizes = np.array([self.a.size, problem.information_exponent % 2])
        self.num_events = 2 * self.a.size

    def absolute_tolerance(self, atol: float) -> np.ndarray:
        """Return `atol` for each component of the state."""
        return np.full(self.initial_state.size, atol)

    def observe(self, state: np.ndarray) -> dict:
        """Return C, n and the loss Σ_p [g(1) (a² + n²) − 2 a n g(C)]."""
        a, C, n = self.a, state[: self.a.size], np.exp(state[self.a.size :])
        g = (C[:, None] ** np.arange(self.square.size)) @ self.square
        return {
            "overlap": C,
            "matched_squared_norm": n,
            "loss": self.square.sum() * np.sum(a**2 + n**2) - 2 * a * n @ g,
        }
