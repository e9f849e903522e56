r"""SGD of a frame of orthogonal neurons in R^d in torch, with the seeds as a batch axis.

With U = W/σ0, z = Ux and the error e of the quadratic network, one step on a sample is

.. math:: U \leftarrow (Y Y^T)^{-1/2}\, Y, \qquad Y = U - \sqrt2\, \eta\, e\, z\, (x - U^T z)^T,

the step along the tangential part of the gradient of ½ e², and its polar factor by an eigendecomposition. The engine
"projected" has the same step in closed form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.seeded_runs import RunThreads
from sgd_check.engines.torch.devices import DTYPES, check_runs_fit, checked_device, device_name, shared_by
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.samples import FreshSamples, TorchTeacher, make_streams, steps_ahead

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array


class StiefelEngine:
    """A batch of runs of a frame; see the module's docstring for the step."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        device, dtype = checked_device(options.device), DTYPES[options.dtype]
        m, d, seeds = problem.width, problem.dimension, len(options.seeds)
        check_runs_fit(d * seeds * (3 * m + steps_ahead(d, 1)), problem, seeds, dtype)
        self._span, self._squared_norm = problem.teacher.span, float(problem.start().squared_norm[0])
        reduced = problem.reduced_weights()
        start = np.zeros((m, d))
        start[:, : reduced.shape[1]] = reduced / math.sqrt(self._squared_norm)
        self._frames = torch.tensor(start, dtype=dtype, device=device).repeat(seeds, 1, 1)
        teacher, streams = TorchTeacher.of(problem, dtype, device), make_streams(options.seeds, dtype, device)
        # On the processor every run has tensors of its own, so that its roundings do not depend on how many there are.
        count = 1 if device.type == "cpu" else seeds
        lanes = [range(first, min(first + count, seeds)) for first in range(0, seeds, count)]
        self._runs = [
            (self._frames[each.start : each.stop], FreshSamples(teacher, streams, each, 1, d)) for each in lanes
        ]
        self._threads = RunThreads(1)
        self.attributes: dict[str, str | int | float] = {
            "device": device_name(device),
            "dtype": options.dtype,
            "simulated_link": make_link(problem.activation, dtype, device)[1],
            "torch_version": str(torch.__version__),
            "step_kernel": "plain",
            "threads": self._threads.count,
        }

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which torch has one thread on the processor: the matrices are small."""
        return shared_by(self._threads, single=True)

    @torch.inference_mode()
    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        for frame, source in self._runs:
            for rate in rates.tolist():
                x, labels = source.batch()
                frame.copy_(self._stepped(frame, x[:, 0], labels[:, 0], rate))

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        frames = self._frames.to(torch.float64)
        gram = torch.bmm(frames, frames.transpose(1, 2)).cpu().numpy() if student else None
        norms = self._squared_norm * torch.sum(frames * frames, dim=2)
        return Measurement(frames[:, :, : self._span].cpu().numpy(), gram, norms.cpu().numpy())

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN; every operation keeps the runs apart, so the others do not notice."""
        self._frames[torch.from_numpy(np.flatnonzero(stopped)).to(self._frames.device)] = torch.nan

    def _stepped(self, U: torch.Tensor, x: torch.Tensor, labels: torch.Tensor, rate: float) -> torch.Tensor:
        """Return U (lanes, m, d) after a step on x (lanes, d)."""
        z = torch.bmm(U, x[:, :, None])
        square = torch.sum(z * z, dim=(1, 2))
        error = self._squared_norm / math.sqrt(2.0) * (square - U.shape[1]) - labels
        across = x[:, None] - torch.bmm(z.transpose(1, 2), U)
        moved = U - (math.sqrt(2.0) * rate * error)[:, None, None] * (z * across)
        values, vectors = torch.linalg.eigh(torch.nan_to_num(torch.bmm(moved, moved.transpose(1, 2))))
        root = (vectors / torch.sqrt(values)[:, None]) @ vectors.transpose(1, 2)
        return torch.bmm(root, moved)
