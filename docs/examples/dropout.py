"""A linear network with dropout, of Mianjy, Arora and Vidal, "On the implicit bias of dropout", arXiv:1806.09777.

The network U diag(b) Vᵀ x / q learns A x, x ~ N(0, 1), while each hidden neuron is kept (b_i = 1) with probability q.
Averaged over x and b, ½ |U diag(b) Vᵀ / q − A|² is ½ |U Vᵀ − A|² + ½ ρ Σ_i |u_i|² |v_i|², ρ = (1 − q)/q, and this is
descended:  U' = (A − U Vᵀ) V − ρ U diag|v_i|²,  V' = (A − U Vᵀ)ᵀ U − ρ V diag|u_i|²,  with A diagonal in its own basis.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

import dynamics


@dataclass(frozen=True)
class Dropout(dynamics.System):
    strengths: tuple  # singular values of A
    width: int  # number of hidden neurons, m
    keep: float  # q
    scale: float = 1e-2  # of the weights at the start
    seed: int = 0

    title = "Linear network with dropout"
    references = "Mianjy, Arora and Vidal, arXiv:1806.09777"
    observables = {"learned_strength": ("mode",), "neuron_norm": ("neuron",), "loss": (), "dropout_loss": ()}
    event_times = {"half_time": ("mode",)}

    @njit
    def field(t, y, out, constants, sizes, work):  # y: U (P, m), then V (P, m); constants: ρ, singular values
        P, m, rho = sizes[0], sizes[1], constants[0]
        U, V = y[: P * m].reshape(P, m), y[P * m :].reshape(P, m)
        missing = np.diag(constants[1:]) - U @ V.T
        out[: P * m] = (missing @ V - rho * U * np.sum(V**2, axis=0)).ravel()
        out[P * m :] = (missing.T @ U - rho * V * np.sum(U**2, axis=0)).ravel()

    @njit
    def events(t, y, out, constants, sizes, work):
        P, m = sizes[0], sizes[1]
        out[:] = np.sum((y[: P * m] * y[P * m :]).reshape(P, m), axis=1) - 0.5 * constants[1:]

    def initial_state(self):
        return self.scale * np.random.default_rng(self.seed).standard_normal(2 * len(self.strengths) * self.width)

    def constants(self):
        return [(1.0 - self.keep) / self.keep, *self.strengths]

    def sizes(self):
        return len(self.strengths), self.width

    def observe(self, state):
        U, V = state.reshape(2, len(self.strengths), self.width)
        norms, loss = (
            np.linalg.norm(U, axis=0) * np.linalg.norm(V, axis=0),
            np.sum((U @ V.T - np.diag(self.strengths)) ** 2),
        )
        full = loss + (1.0 - self.keep) / self.keep * np.sum(norms**2)
        return {"learned_strength": np.sum(U * V, axis=1), "neuron_norm": norms, "loss": loss, "dropout_loss": full}
