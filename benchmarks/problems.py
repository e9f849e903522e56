"""The standard problem of all benchmarks, how its solutions are compared, and the compiled form that libraries solve.

σ = h_4, a_p ∝ p^-1, m = P neurons, |w_i(0)|² = 1e-3, one random start; flow to t = 6 d P, where most directions that
have a neuron are learned. The rates of the Jacobian spread over P · d, which makes the problem stiff, and late
emergences depend on the whole history, which makes it sensitive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import dynamics

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIMENSION = 1024
#: Links by the name that tables and figures give them; of the second h_2 emerges first, so that k = 2.
H4, H2_H4 = "h_4", "0.3 h_2 + h_4"
LINKS: dict[str, str | dict[int, float]] = {H4: "he4", H2_H4: {2: 0.3, 4: 1.0}}
INITIAL_NORM = float(np.sqrt(1e-3))
NUM_TIMES = 300
SEED = 0


def standard_problem(size: int, dimension: int = DIMENSION, link: str = H4) -> dynamics.Problem:
    """Return the problem with m = P = `size` in `dimension` dimensions."""
    return dynamics.Problem(
        activation=LINKS[link],
        teacher=dynamics.Teacher.power_law(size, beta=1.0),
        width=size,
        dimension=dimension,
        initial_norm=INITIAL_NORM,
        seed=SEED,
    )


def horizon(size: int, dimension: int = DIMENSION, link: str = H4) -> float:
    """Return the end of the standard flow, t = 6 d P (dimensionless); with k = 2 all are learned in time, 100 P."""
    return (6.0 * dimension if link == H4 else 100.0) * size


def save_times(last: float) -> NDArray[np.float64]:
    """Return the log-spaced times at which losses are compared, from 1 to `last`."""
    return dynamics.SaveAt.geometric(1.0, last, NUM_TIMES).times


@dataclass(frozen=True)
class Outcome:
    """What one solve gives: loss at the saved times, emergence times (NaN: never), and what it cost.

    `evaluations` counts calls of the whole right-hand side; `notes` holds what else is worth keeping of the run.
    """

    loss: NDArray[np.float64]
    emergence_time: NDArray[np.float64]
    seconds: float
    evaluations: int
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Errors:
    """How far an outcome is from the reference.

    loss : max over the saved times of |L − L_ref|
    emergence_time : max over the directions that both see of |T_p − T_p,ref| / T_p,ref
    missed : number of directions that emerge in one of the two only
    """

    loss: float
    emergence_time: float
    missed: int


def errors(outcome: Outcome, reference: Outcome) -> Errors:
    """Measure `outcome` against `reference`."""
    seen, expected = np.isfinite(outcome.emergence_time), np.isfinite(reference.emergence_time)
    both = seen & expected
    relative = np.abs(outcome.emergence_time[both] / reference.emergence_time[both] - 1.0)
    return Errors(
        loss=float(np.max(np.abs(outcome.loss - reference.loss))),
        emergence_time=float(relative.max()) if both.any() else 0.0,
        missed=int(np.sum(seen != expected)),
    )
