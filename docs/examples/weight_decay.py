"""A system of equations added from outside: matched pairs of neuron and direction under weight decay.

With the penalty ½ λ Σ_i |w_i|² added to the loss ½ E(f − f*)² the weights obey w' = −∇ ½E(f − f*)² − λ w. Directions do
not feel it, norms do: for a pair that is alone,

    C' = a g'(C) (1 − C²),        (ln n)' = 4 (a g(C) − n g(1)) − 2 λ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.compilation import Piece
from dynamics.integrators import make_stepper
from dynamics.runs.dataset import make_dataset, prediction_values
from dynamics.runs.loop import run
from dynamics.runs.outcome import checked_outcome, run_attributes, stack_records
from dynamics.theory.prediction import predict

if TYPE_CHECKING:
    import xarray as xr

    from dynamics import Problem, SaveAt

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


def solve(problem: Problem, *, decay: float, save_at: SaveAt, rtol: float = 1e-8) -> xr.Dataset:
    """Integrate the matched pairs of a problem with weight decay λ; every direction must have a neuron."""
    prediction = predict(problem)
    if not np.isfinite(prediction.matched_overlap).all():
        msg = f"Argument `problem` must give every direction a neuron, but has width {problem.width}."
        raise ValueError(msg)
    a, square = problem.teacher.coefficients, problem.activation.coefficients**2
    start = np.concatenate([prediction.matched_overlap, np.log(prediction.matched_squared_norm)])
    odd = problem.information_exponent % 2

    stepper = make_stepper(
        "explicit",
        (Piece("matched pairs with weight decay", KERNELS),),
        start,
        parameters=np.concatenate([[decay], a, square]),
        sizes=np.array([a.size, odd]),
        work=np.empty(0),
        rtol=rtol,
        atol=1e-12,
        num_events=2 * a.size,
    )

    def observe(state: np.ndarray) -> dict[str, np.ndarray | float]:
        C, n = state[: a.size], np.exp(state[a.size :])
        powers = C[:, None] ** np.arange(square.size)
        loss = square.sum() * np.sum(a**2 + n**2) - 2 * np.sum(a * n * (powers @ square))
        return {"overlap": C, "matched_squared_norm": n, "loss": loss}

    result = run(stepper, save_at.times, observe)
    values = {
        **stack_records(result.records, len(save_at), lambda: observe(start)),
        **prediction_values(prediction),
        "emergence_time": result.event_times[: a.size],
        "learned_time": result.event_times[a.size :],
    }
    dataset = make_dataset(
        values,
        problem=problem,
        title="Matched pairs under weight decay",
        coords={"time": save_at.times},
        solver={"answer": "weight-decay", "decay": decay, "rtol": rtol},
        attributes={"answer": "weight-decay", "decay": decay, **run_attributes(result)},
    )
    return checked_outcome(dataset, result.stop_reason, "raise")
