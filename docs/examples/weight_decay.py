"""Matched pairs of neuron and direction under weight decay: a system of one's own about a `dynamics.Problem`.

With the penalty ½ λ Σ_i |w_i|² added to the loss ½ E(f − f*)² the weights obey w' = −∇ ½E(f − f*)² − λ w. Directions do
not feel it, norms do: for a pair that is alone, C' = a g'(C) (1 − C²) and (ln n)' = 4 (a g(C) − n g(1)) − 2 λ.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

import dynamics


@njit
def kernel(constants, s):
    """Return g(s) = Σ_j c_j² s^j and g'(s); constants: λ, P, whether k is odd, a_p, c_j."""
    g = slope = 0.0
    for c in constants[3 + int(constants[1]) :][::-1]:
        g, slope = c**2 + s * g, g + s * slope
    return g, slope


@dataclass(frozen=True)
class MatchedPairs(dynamics.System):
    problem: dynamics.Problem
    decay: float

    observables = {"overlap": ("direction",), "matched_squared_norm": ("direction",), "loss": ()}
    event_times = {"emergence_time": ("direction",), "learned_time": ("direction",)}

    @njit
    def field(t, y, out, constants, sizes, work):  # y: C_p, then ln n_p
        for p in range(y.size // 2):
            a, C, n, (g, slope) = constants[3 + p], y[p], np.exp(y[y.size // 2 + p]), kernel(constants, y[p])
            out[p] = a * slope * (1.0 - C**2)
            out[y.size // 2 + p] = 4.0 * (a * g - n * kernel(constants, 1.0)[0]) - 2.0 * constants[0]

    @njit
    def events(t, y, out, constants, sizes, work):
        for p in range(y.size // 2):
            C, n = max(y[p], 0.0) if constants[2] else y[p], np.exp(y[y.size // 2 + p])
            out[p] = C**2 - 0.5
            out[y.size // 2 + p] = n * kernel(constants, C)[0] / kernel(constants, 1.0)[0] - 0.5 * constants[3 + p]

    def initial_state(self):
        start, neuron = self.problem.start(), dynamics.predict_emergence(self.problem).matched_neuron.values
        if (neuron < 0).any():
            raise ValueError(f"Every direction must have a neuron, but the width is {self.problem.width}.")
        return np.append(start.teacher_overlap[neuron, range(neuron.size)], np.log(start.squared_norm[neuron]))

    def constants(self):
        a, c = self.problem.teacher.coefficients, self.problem.activation.coefficients
        return np.concatenate([[self.decay, a.size, self.problem.information_exponent % 2], a, c])

    def observe(self, state):
        a, (C, ln_n), c = self.problem.teacher.coefficients, state.reshape(2, -1), self.problem.activation.coefficients
        n, g = np.exp(ln_n), np.polynomial.Polynomial(c**2)
        return {"overlap": C, "matched_squared_norm": n, "loss": np.sum(g(1) * (a**2 + n**2) - 2 * a * n * g(C))}
