r"""SGD of a frame of orthogonal neurons as the diffusion it tends to in large dimensions, in M = UΘᵀ alone.

.. math:: dM = [2 (M\Lambda - M\Lambda M^T M) - \eta (d - m)\, D M]\, dt
   + \sqrt{2\eta}\, D^{1/2}\, dB\, (I - M^T M)^{1/2}, \qquad D = (|Q - A|^2 + \tau^2) I + 4\, U (Q - A)^2 U^T,

with Λ = diag(a), U(Q − A)²Uᵀ = n²I − 2nMΛMᵀ + MΛ²Mᵀ and |Q − A|² = n²m − 2n tr MΛMᵀ + Σa². The drag is what polar
factors take off at second order in η, the noise has the covariance of one step. It holds below η*_1 alone: above, the
drag is larger than the drift, and steps are too large for a second order. Steps are those of the midpoint rule in the
drift, with the noise of their start, and keep M within the unit ball.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.theory import rate_limits
from dynamics.threads.cores import one_blas_thread
from sgd_check.engines.generators import AXES, generators
from sgd_check.engines.registry import EngineOptions, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Largest 4 a_1 h of a step of the diffusion.
LARGEST_GROWTH = 0.04


class FrameDiffusion:
    """A batch of diffusions of a frame, one per seed, each with a generator of its own; see the module's docstring."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        self._a, self._noise, self._width = problem.teacher.coefficients, problem.label_noise, problem.width
        self._n, self._dimension = float(problem.start().squared_norm[0]), problem.dimension
        self._limit = float(rate_limits(problem).max())
        start = problem.reduced_weights()[:, : problem.num_directions] / np.sqrt(self._n)
        self._M = np.repeat(start[None], len(options.seeds), axis=0)
        self._generators = [generators(seed, (AXES,))[0] for seed in options.seeds]
        self.attributes: dict[str, str | int | float] = {
            "device": "cpu",
            "dtype": "float64",
            "simulated_link": problem.activation.name,
            "random_numbers": f"SFC64 of numpy {np.__version__}",
            "threads": 1,
            "diffusion_steps": 0,
        }

    def running(self) -> AbstractContextManager[None]:
        """Return a context that holds BLAS to one thread: the matrices are small."""
        return one_blas_thread()

    def caution(self, peak_rate: float, steps: int) -> str | None:  # noqa: ARG002
        """Refuse learning rates at which there is no diffusion."""
        if peak_rate >= self._limit:
            msg = (
                f"Argument `learning_rate` must be below {self._limit:.4g}, above which noise keeps the neurons from "
                f"every direction and frames are no diffusion, but is {peak_rate:.4g}; use engine 'projected'."
            )
            raise ValueError(msg)
        return None

    def advance(self, rates: Array) -> None:
        """Take one step of SGD per learning rate."""
        self.advance_span(rates.size, rates, lambda: False)

    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take `steps` steps at one rate, or at rates whose mean over time is taken; return whether to the end."""
        if isinstance(rates, float):
            time, rate = steps * rates, rates
        else:
            time = float(np.sum(rates))
            rate = float(np.dot(rates, rates)) / time
        # Never finer than SGD itself.
        count = min(int(np.ceil(4.0 * self._a.max() * time / LARGEST_GROWTH)), steps)
        for _ in range(count):
            if given_up():
                return False
            self._step(time / count, rate)
        self.attributes["diffusion_steps"] = int(self.attributes["diffusion_steps"]) + count
        return True

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64, those among the neurons being known."""
        runs, m, _ = self._M.shape
        gram = np.repeat(np.eye(m)[None], runs, axis=0) if student else None
        norms = np.where(np.isnan(self._M[:, :, 0]), np.nan, self._n)
        return Measurement(self._M.copy(), gram, norms)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN."""
        self._M[stopped] = np.nan

    def _step(self, wait: float, rate: float) -> None:
        """Take one step of the diffusion."""
        M = self._M
        drift, noise = self._drift_and_noise(M, rate)
        middle, _ = self._drift_and_noise(M + 0.5 * wait * drift, rate)
        values, vectors = np.linalg.eigh(noise)
        half = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None]) @ vectors.transpose(0, 2, 1)
        drawn = np.stack([stream.standard_normal(M.shape[1:]) for stream in self._generators])
        moved = M + wait * middle + np.sqrt(2.0 * rate * wait) * half @ _within(drawn, M)
        self._M = _bounded(moved)

    def _drift_and_noise(self, M: Array, rate: float) -> tuple[Array, Array]:
        """Return the drift and D."""
        a, n, turned = self._a, self._n, M.transpose(0, 2, 1)
        S, identity = (M * a) @ turned, np.eye(self._width)
        square = n**2 * self._width - 2.0 * n * np.trace(S, axis1=1, axis2=2) + np.sum(a**2) + self._noise**2
        D = square[:, None, None] * identity + 4.0 * (n**2 * identity - 2.0 * n * S + (M * a**2) @ turned)
        drift = 2.0 * (M * a - S @ M) - rate * (self._dimension - self._width) * D @ M
        return drift, D


def _within(drawn: Array, M: Array) -> Array:
    """Return drawn (I − MᵀM)^(1/2), by the eigenvalues of M Mᵀ."""
    values, vectors = np.linalg.eigh(M @ M.transpose(0, 2, 1))
    factor = -1.0 / (1.0 + np.sqrt(np.clip(1.0 - values, 0.0, None)))
    along = vectors.transpose(0, 2, 1) @ M
    taken: Array = drawn + ((drawn @ along.transpose(0, 2, 1)) * factor[:, None]) @ along
    return taken


def _bounded(M: Array) -> Array:
    """Return M with singular values of at most 1."""
    values, vectors = np.linalg.eigh(M @ M.transpose(0, 2, 1))
    scale = 1.0 / np.sqrt(np.maximum(values, 1.0))
    bounded: Array = (vectors * scale[:, None]) @ (vectors.transpose(0, 2, 1) @ M)
    return bounded
