r"""An associative memory with orthonormal embeddings, reduced to M + M² numbers for M groups of one frequency each.

Permutations inside groups commute with every h of singular values. Logits of an item of group m are a_m for its own
output, b_m for its mates' and c_lm for those of group l, with weights P_m, Q_m and P_lm; with δ = a − b,
Θ_mm = a_m + (n_m − 1) b_m and Θ_lm = √(n_l n_m) c_lm,

.. math:: \delta_m' = h\big(\pi_m (1 - P_m + Q_m)\big), \qquad \Theta' = h(\Gamma), \qquad
   \Gamma_{mm} = \pi_m \big(1 - P_m - (n_m - 1) Q_m\big), \quad \Gamma_{lm} = -\sqrt{n_l n_m}\, \pi_m P_{lm}.

A group alone, among N − 1 equal rivals, is learned at T_m = ∫_0^{ln(N−1)} dΔ / h(π_m N/(e^Δ + N − 1)): a staircase by
frequency for gradient descent, and all groups at once for λ far below π ln(N − 1) (arXiv:2603.26554).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.tokens.memory_kernels import event_values, normalise, rhs
from dynamics.tokens.system import TokenSystem

if TYPE_CHECKING:
    from dynamics.equations.interface import Observables
    from dynamics.tokens.problems import AssociativeMemory
    from hermite.arrays import Array


class MemorySystem(TokenSystem):
    """State, kernels, observables and closed forms of an associative memory."""

    name = "associative memory"
    functions = Functions(rhs, event_values, normalise)
    references = "arXiv:2603.26554"

    def __init__(self, problem: AssociativeMemory) -> None:
        self.asked = problem
        M = len(problem.group_sizes)
        self._sizes, self._rates = np.array(problem.group_sizes, dtype=np.float64), problem.group_frequencies
        self.initial_state = np.zeros(M + M * M)
        self.parameters = np.concatenate([[problem.smoothing or 0.0], self._sizes, self._rates])
        self.sizes = np.array([M, problem.optimizer == "spectral", -1], dtype=np.int64)
        self.work_size, self.num_events = 3 * M * M + M, M
        self.components = [f"group {m}" for m in range(1, M + 1)]
        pairs = [f"theta {i} {j}" for i in range(1, M + 1) for j in range(1, M + 1)]
        self.numbers = [*(f"delta {m}" for m in range(1, M + 1)), *pairs]
        closed = self.closed_times()
        self.time_scale, self.geometric = float(closed.min()), bool(closed.max() > 8.0 * closed.min())

    def log_shares(self, state: Array) -> Array:
        """Return ln P_m of all groups."""
        M, n = self._sizes.size, self._sizes
        delta, theta = state[:M], state[M:].reshape(M, M)
        mates = (np.diag(theta) - delta) / n
        logits = theta / np.sqrt(np.outer(n, n))
        counts = np.repeat(n[:, None], M, axis=1)
        logits[np.diag_indices(M)], counts[np.diag_indices(M)] = mates, n - 1.0
        own = mates + delta
        top = np.maximum(logits.max(axis=0), own)
        total = np.exp(own - top) + (counts * np.exp(logits - top)).sum(axis=0)
        return np.asarray(own - top - np.log(total))

    def observe(self, state: Array) -> Observables:
        """Return loss, progress and state."""
        shares = self.log_shares(state)
        return {"loss": float(-(self._sizes * self._rates) @ shares), "progress": np.exp(shares), "state": state}

    def closed_times(self) -> Array:
        """Return T_m of every group alone: closed for gradient descent, a quadrature for the spectral optimizer."""
        N = float(self.asked.count)
        if N == 2.0:
            return np.zeros(self._rates.size)
        gradient = (N - 2.0 + (N - 1.0) * np.log(N - 1.0)) / (self._rates * N)
        if self.asked.smoothing is None:
            return np.asarray(gradient)
        from scipy.integrate import quad

        def slowness(ahead: float, rate: float) -> float:
            force = rate * N / (np.exp(ahead) + N - 1.0)
            return float(np.hypot(force, self.asked.smoothing or 0.0) / force)

        return np.array([quad(slowness, 0.0, np.log(N - 1.0), (rate,), epsabs=0)[0] for rate in self._rates])

    def plateaus(self) -> Array:
        """Return the loss with all groups before each one known by heart, and the others at chance."""
        left = (self._sizes * self._rates)[::-1].cumsum()[::-1]
        return np.asarray(left * np.log(self.asked.count))

    def notes(self) -> list[str]:
        """Return the errors of the reduction."""
        return [
            "Exact for orthonormal embeddings and the whole population at every step; closed times take all rivals for "
            "equal, so that groups after the first are off by some percent",
            "plateaus take groups before each one as known by heart and ordered by frequency",
        ]


def sampled_times(problem: AssociativeMemory, batch_size: int) -> Array:
    r"""Return the times of the groups under Muon, λ → 0, on batches of B items, in closed form.

    .. math:: T_m \approx \frac{\ln(N-1)}{1 - (1 - \pi_m)^B}

    An item moves only in the steps that see it, so that 1/π_m is its critical batch.

    Parameters
    ----------
    problem : AssociativeMemory
    batch_size : int
        B ≥ 1.

    Raises
    ------
    ValueError
        For bad arguments.
    """
    from dynamics.problem.checks import checked_integer

    size = checked_integer(batch_size, "batch_size", minimum=1)
    seen = -np.expm1(size * np.log1p(-problem.group_frequencies))
    return np.asarray(np.log(problem.count - 1.0) / seen)
