"""Chain of thought: linear attention that takes steps of descent, reduced to a, b and c (`docs/token_equations.md`).

State y = [a, b, c]; parameters are `ChainNumbers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dynamics.equations.interface import Functions
from dynamics.kernels.jit import kernel
from dynamics.tokens.problems import ChainOfThought
from dynamics.tokens.system import TokenSystem
from hermite.arrays import Array, Integers, Vector


class ChainNumbers(NamedTuple):
    """Means t_1, t_2 and t_3 over data, of which the loss is made; the rate η of the steps, and the dimension d."""

    t1: float
    t2: float
    t3: float
    eta: float
    d: float


@kernel
def numbers_of(parameters: Vector) -> ChainNumbers:
    """Return the means t_1, t_2 and t_3, the rate η and the dimension d, from `parameters`."""
    return ChainNumbers(parameters[0], parameters[1], parameters[2], parameters[3], parameters[4])


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of a, b and c under gradient descent of the loss ½ (p² t_1 + 2 p q t_2 + q² t_3) to `out`.

    Here p = a b + η and q = a c − η, for the rate η of the steps of descent that attention takes, and t_1, t_2 and t_3
    are means over data; `parameters` are `ChainNumbers`.
    """
    t1, t2, t3, eta, d = numbers_of(parameters)
    p, q = y[0] * y[1] + eta, y[0] * y[2] - eta
    gp = p * t1 + q * t2
    gq = p * t2 + q * t3
    out[0] = -(gp * y[1] + gq * y[2]) / d
    out[1] = -gp * y[0] / d
    out[2] = -gq * y[0]


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write a c − half of its value after one step is learned, and −a b − η/2, its value after the chain is learned."""
    _, t2, t3, eta, _ = numbers_of(parameters)
    out[0] = y[0] * y[2] - 0.5 * eta * (1.0 - t2 / t3)
    out[1] = -y[0] * y[1] - 0.5 * eta


#: Numbers of drawn matrices, by their size, and the seed that draws them; most nodes of their quadrature.
FEWEST, MOST, NUMBERS, SEED, NODES = 200, 10_000, 1_000_000, 12345, 80


class ChainSystem(TokenSystem):
    """State, kernels, observables and closed forms of the chain of thought."""

    name = "chain of thought"
    functions = Functions(rhs, event_values)
    references = "arXiv:2502.21212"
    notes = (
        "Exact for full gradient descent from multiples of the identity, but for means over matrices of Gaussian "
        "examples, whose standard errors are some 1e-4",
        "the closed time of one step takes the weight of the chain for 0 until then",
    )

    def __init__(self, problem: ChainOfThought) -> None:
        """Prepare the equations of a chain of thought, from a = b = c = the initial scale."""
        self.task, d, eta = problem, problem.dimension, problem.rate
        self.components, self.numbers = ["one step", "chain"], ["a", "b", "c"]
        self.nodes, self.node_weights = spectrum(d, problem.examples, min(2 * problem.steps + 1, NODES))
        #: P_k at the nodes, for k < K.
        self._solved = 1.0 - (1.0 - eta * self.nodes) ** np.arange(problem.steps)[:, None]
        powers = np.stack([self._solved**2, self._solved, np.ones_like(self._solved)])
        t = ((powers * self.nodes**2) @ self.node_weights).sum(axis=1)
        self.hold(np.full(3, problem.initial_scale), ChainNumbers(t[0], t[1], t[2], eta, d), [])
        self.coords = {"weight_name": self.numbers, "steps": range(1, 2 * problem.steps + 1)}
        self.time_scale = float(d / (eta * (t[2] - t[1])))

    def progress(self, state: Array) -> Array:
        """Return progress (…, 2) of states (…, 3): ac and −ab over their values after learning, clipped to [0, 1]."""
        _, t2, t3, eta, _ = self.parameters
        products = state[..., :1] * state[..., [2, 1]] / [eta * (1.0 - t2 / t3), -eta]
        return np.asarray(products.clip(0.0, 1.0))

    def learning(self, state: Array) -> tuple[float, Array]:
        """Return the loss, and the progress (2,) of one step and of the chain, from 0 to 1."""
        (t1, t2, t3, eta, _), (a, b, c) = self.parameters, state
        p, q = a * b + eta, a * c - eta
        return float(p * p * t1 + 2.0 * p * q * t2 + q * q * t3) / 2.0, self.progress(state)

    def summarise(self, state: Array) -> dict[str, object]:
        """Return a dict: loss, progress (2,), weights (3,), error of the model's own chain and curvature.

        "chain_error" has one entry per step, twice as many as were trained; "sharpness" is the largest curvature of the
        loss.
        """
        a, b, c = state
        errors, prediction = np.empty(2 * self.task.steps), np.zeros_like(self.nodes)
        for step in range(errors.size):
            prediction = prediction + self.nodes * (a * b * prediction + a * c)
            errors[step] = self.node_weights @ (prediction - 1.0) ** 2
        # Of the weights on the labels, which stay 0: E (w*·M w*)² = E (tr M)² + 2 E tr M², M = S (b P_k + c); tr M has
        # the relative variance of tr S.
        d, M = self.task.dimension, self.nodes * (b * self._solved + c)
        squares = (d + 2.0 / self.task.examples) * (M @ self.node_weights) ** 2
        sharpness = (squares + 2.0 * (M**2 @ self.node_weights)).sum()
        return super().summarise(state) | {"weights": state, "chain_error": errors, "sharpness": float(sharpness)}

    def rate_limit(self, values: Mapping[str, Any]) -> float:
        """Return 2 over the largest curvature along the run."""
        return 2.0 / float(np.nanmax(values["sharpness"], initial=1e-300))

    def closed_times(self) -> Array:
        """Return the time at which ac is half of the best single step, by quadrature with b = 0; NaN for the chain."""
        from scipy.integrate import quad

        _, t2, t3, eta, d = self.parameters
        # a = A cosh θ and c = A √d sinh θ, from a = c = s; half of it may be there at the start.
        scale = self.task.initial_scale**2 * (1.0 - 1.0 / d) * np.sqrt(d) / 2.0
        first = np.arctanh(1.0 / np.sqrt(d))
        last = max(first, 0.5 * np.arcsinh(0.5 * eta * (1.0 - t2 / t3) / scale))
        integral = quad(lambda theta: 1.0 / (eta * (t3 - t2) - t3 * scale * np.sinh(2.0 * theta)), first, last)[0]
        return np.array([integral * np.sqrt(d), np.nan])

    def plateaus(self) -> Array:
        """Return the loss without a step, and the loss of the best single step, (2,)."""
        t1, t2, t3, eta, _ = self.parameters
        return np.asarray(np.array([t1 - 2.0 * t2 + t3, t1 - t2**2 / t3]) * eta**2 / 2.0)


@lru_cache(maxsize=8)
def spectrum(d: int, n: int, count: int) -> tuple[Array, Array]:
    """Return nodes and weights, at most `count` each, of a quadrature for E tr f(XᵀX/n)/d.

    X (n, d) is standard Gaussian. The rule is made of draws that are weighted to have exact moments 1 to 4.
    """
    r, rng = min(d, n), np.random.default_rng(SEED)
    draws = int(np.clip(NUMBERS // r**2, FEWEST, MOST))
    # The singular values of X are those of a bidiagonal matrix of chi variables (Dumitriu and Edelman 2002).
    X, i = np.zeros((draws, r, r)), np.arange(r)
    X[:, i, i] = np.sqrt(rng.chisquare(max(d, n) - i, (draws, r)))
    X[:, i[1:], i[:-1]] = np.sqrt(rng.chisquare(r - i[1:], (draws, r - 1)))
    eigenvalues = np.zeros((draws, d))
    eigenvalues[:, :r] = np.linalg.svd(X, compute_uv=False) ** 2 / n
    exact = np.array([
        1.0, (n + d + 1) / n, (n**2 + 3 * n * d + d**2 + 3 * (n + d) + 4) / n**2,
        (n**3 + 6 * n * d * (n + d) + d**3 + 6 * (n**2 + d**2) + 17 * n * d + 21 * (n + d) + 20) / n**3,
    ])  # fmt: skip
    moments = np.stack([(eigenvalues**power).mean(axis=1) for power in (1, 2, 3, 4)], axis=1)
    off = moments - moments.mean(axis=0)
    weights = 1.0 + off @ np.linalg.lstsq(off.T @ off / draws, exact - moments.mean(axis=0), rcond=None)[0]
    return _gauss(eigenvalues.ravel(), np.repeat(np.maximum(weights, 0.1) / (d * draws), d), count)


def _gauss(x: Array, weights: Array, count: int) -> tuple[Array, Array]:
    """Return the nodes and weights, at most `count` each, of the Gauss quadrature of a discrete measure.

    The measure has `weights` at the points x; the Lanczos iteration is used.
    """
    basis, diagonal, off_diagonal, v = np.zeros((count, x.size)), np.zeros(count), np.zeros(count), np.sqrt(weights)
    mass, size = weights.sum(), 0
    while size < count and (norm := float(np.linalg.norm(v))) > 1e-9:
        off_diagonal[size], basis[size] = norm, v / norm
        v = x * basis[size]
        diagonal[size] = v @ basis[size]
        size += 1
        for _ in range(2):
            v = v - basis[:size].T @ (basis[:size] @ v)
    nodes, vectors = np.linalg.eigh(np.diag(diagonal[:size]) + np.diag(off_diagonal[1:size], -1))
    return nodes, np.asarray(mass * vectors[0] ** 2)
