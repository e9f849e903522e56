"""Policy gradient across a gate between two clusters, which starts flat, after Kim et al., arXiv:2502.01694.

A chain of thought moves in a cluster of n states. A step goes to a uniform one of them; from the gate, one of the n, it
crosses with chance p_c, stays with p_g, and goes to each other state with p_i, a softmax of three logits of
multiplicities 1, 1, n − 1. The reward is 1 if the chain crosses within H steps: all n + 1 logits are three numbers.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

import dynamics


@njit
def chances(y, n, H):
    """Return (p_c, p_g, p_i), the chance to cross from a uniform state, and its derivatives by p_c, p_g and p_i."""
    weights = np.exp(y - np.max(y))
    many = np.array([1.0, 1.0, n - 1.0])
    p = weights / np.sum(weights * many)
    gate, inside, by_gate, by_inside = 0.0, 0.0, np.zeros(3), np.zeros(3)  # from the gate, from another state
    for _step in range(H):
        ends = np.array([1.0, gate, inside]) * many
        slope = ends + p[1] * by_gate + (n - 1.0) * p[2] * by_inside
        inside, by_inside = (gate + (n - 1.0) * inside) / n, (by_gate + (n - 1.0) * by_inside) / n
        gate, by_gate = np.sum(p * ends), slope
    return p, (gate + (n - 1.0) * inside) / n, (by_gate + (n - 1.0) * by_inside) / n


@dataclass(frozen=True)
class Gate(dynamics.System):
    states: int  # of the cluster, n
    steps: int  # of a chain, H
    crossing: float  # p_c at the start; all others are alike

    title = "Policy gradient across the gate of a metastable chain"
    references = "arXiv:2502.01694"
    observables = {"crossing_probability": (), "reward": ()}
    event_times = {"crossing_time": ()}

    @njit
    def field(t, y, out, constants, sizes, work):  # y: logits of crossing, staying, and of each other state
        p, _, slope = chances(y, sizes[0], sizes[1])
        slope[2] /= sizes[0] - 1.0  # of one state alone
        out[:] = p * (slope - p[0] * slope[0] - p[1] * slope[1] - (1.0 - p[0] - p[1]) * slope[2])

    @njit
    def events(t, y, out, constants, sizes, work):
        out[0] = chances(y, sizes[0], sizes[1])[0][0] - 0.5

    def initial_state(self):
        return np.log([self.crossing, *[(1.0 - self.crossing) / self.states] * 2])

    def sizes(self):
        return self.states, self.steps

    def observe(self, state):
        p, reward, _ = chances(state, self.states, self.steps)
        return {"crossing_probability": p[0], "reward": reward}
