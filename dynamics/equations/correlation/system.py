r"""One spherical neuron that learns one direction by their correlation: its flow, and the mean motion under SGD.

The flow of −E[y σ(w·x)], averaged over the neurons of `dynamics.equations.correlation.smoothing`, is

.. math:: C' = a\, g_\lambda'(C)\, (1 - C^2),

exact at every d. With steps w ← (w + η u)/|w + η u|, u the mean of y ψ x_⊥ over B samples, and in time η · step, the
mean of a step to second order in η adds

.. math:: -\frac{\eta}{2} C\, E|u|^2, \qquad
   E|u|^2 = \frac{1}{B} E[y^2 \psi^2 r^2] + \Big(1 - \frac1B\Big) a^2 g_\lambda'(C)^2 (1 - C^2).

Integrated is x = artanh C. Dimensionless throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.correlation.correlation_kernels import event_values, jacobian_diagonal, normalise, rhs
from dynamics.equations.correlation.step_means import signal_slope, step_means
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.spherical.system import squared_error

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

#: |C| = 1 is at infinity; the largest C below it moves as little.
LARGEST_STATE = 18.0


class CorrelationSystem(FlowSystem):
    """State, kernels and observables of the overlap under the flow, or under mean steps of B samples.

    Raises ValueError if the means of the links are not known.
    """

    name = "correlation"
    functions = Functions(rhs, event_values, normalise, jacobian_diagonal)

    def __init__(self, problem: Problem, learning_rate: float = 0.0, batch_size: int = 1) -> None:
        slope = signal_slope(problem)
        drag = step_means(problem).drag if learning_rate > 0.0 else np.zeros(1)
        own = problem.learned_part.coefficients**2
        self.problem, self.batch_size = problem, batch_size
        C = float(problem.start().teacher_overlap[0, 0])
        with np.errstate(divide="ignore"):
            self.initial_state: Array = np.clip([np.arctanh(C)], -LARGEST_STATE, LARGEST_STATE)
        step = 0.5 * learning_rate * np.array([1.0 / batch_size, 1.0 - 1.0 / batch_size])
        threshold = 0.5 * own.sum() * problem.teacher.coefficients[0]
        self.parameters: Array = np.concatenate([step, [threshold], slope, own, drag])
        counts = [slope.size, own.size, drag.size, problem.information_exponent % 2]
        self.sizes: Integers = np.array(counts, dtype=np.int64)
        self.num_events = 2

    def stiffness(self) -> float:
        """Return a bound on how fast x relaxes in the flow: the largest |d x'/dx| on a grid."""
        C = np.linspace(-1.0, 1.0, 201)
        bend = np.polynomial.polynomial.polyder(signal_slope(self.problem))
        return float(np.max(np.abs(np.polynomial.polynomial.polyval(C, bend) * (1.0 - C**2))))

    def unpack(self, state: Array) -> tuple[Array]:
        """Return C, shape (1, 1)."""
        return (np.tanh(state).reshape(1, 1),)

    def loss(self, C: Array) -> float:
        """Return E(f − f*)² of f = σ(w·x), which is not what is descended."""
        return squared_error(self.problem, np.ones((1, 1)), C)

    def summarise(self, state: Array) -> dict[str, Array | float]:
        """Return loss, the overlap (C > 0 alone for odd k, else |C|) and the learned mass g_3(C)/g_3(1)."""
        (C,), part = self.unpack(state), self.problem.learned_part
        size = np.maximum(C, 0.0) if self.problem.information_exponent % 2 else np.abs(C)
        mass = part.kernel(C[0]) / part.kernel_at_one
        return {"loss": self.loss(C), "max_overlap": size[0], "learned_mass": mass}

    def observe(self, state: Array) -> dict[str, Array | float]:
        """Return what `summarise` does, and the overlap C."""
        return {**self.summarise(state), "teacher_overlap": self.unpack(state)[0]}
