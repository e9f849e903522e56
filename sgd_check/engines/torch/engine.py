r"""Online SGD in R^d in torch, with the seeds as a batch axis, on the processor or on a CUDA device.

One step on a batch of B fresh samples is

.. math:: w_i \leftarrow w_i - \frac{\eta}{B} \sum_b e_b\, \rho_i \left[(2\sigma_{ib} - z_{ib}\sigma'_{ib})\,u_i
   + \sigma'_{ib}\, x_b\right], \qquad e_b = f(x_b) - f^*(x_b) - \text{noise}_b,

with ρ_i = |w_i|, u_i = w_i/ρ_i, z_ib = u_i·x_b: the gradient of half the squared error in closed form, no autograd. For
a committee, f = Σ_i σ(w_i·x), it is w_i ← w_i − (η/B) Σ_b e_b σ'(w_i·x_b) x_b; networks are stepped by
`sgd_check.engines.torch.network`. Steps are taken by `sgd_check.engines.torch.blocks`, or on a CUDA device by one
Triton kernel, `sgd_check.engines.torch.fused`, where that can (`attributes["step_kernel"]`). The spherical student, and
a committee that reuses its samples, have an engine of their own, `sgd_check.engines.torch.spherical`, and so have
frames, `sgd_check.engines.torch.stiefel`, and inputs that are not isotropic, `sgd_check.engines.torch.covariant`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sgd_check.engines.network import network_of
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.torch.blocks import BlockStepper, Setting, drawn_steps
from sgd_check.engines.torch.covariant import CovariantEngine
from sgd_check.engines.torch.devices import DTYPES, check_runs_fit, checked_device, device_name
from sgd_check.engines.torch.fused import FusedStepper, fusible
from sgd_check.engines.torch.links import make_link, make_link_anywhere
from sgd_check.engines.torch.network import NetworkTeacher
from sgd_check.engines.torch.recursion import aligned
from sgd_check.engines.torch.samples import TorchTeacher
from sgd_check.engines.torch.spherical import SphericalEngine
from sgd_check.engines.torch.stiefel import StiefelEngine
from sgd_check.engines.torch.streams import make_streams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines.registry import Engine


def make_engine(problem: Problem, options: EngineOptions) -> Engine:
    """Return the engine that simulates the samples x in R^d themselves."""
    if problem.inputs is not None:
        return CovariantEngine(problem, options)
    if problem.kind == "stiefel":
        return StiefelEngine(problem, options)
    on_samples = problem.kind == "spherical" or options.training_samples is not None
    return SphericalEngine(problem, options) if on_samples else OnlineEngine(problem, options)


class OnlineEngine:
    """A batch of online SGD runs in R^d; see the module's docstring for the step."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        self._device = checked_device(options.device)
        self._dtype, self._batch = DTYPES[options.dtype], options.batch_size
        m, d, seeds = problem.width, problem.dimension, len(options.seeds)
        drawn = drawn_steps(m, d, self._batch, self._device) * self._batch
        check_runs_fit(d * seeds * (2 * m + drawn), problem, seeds, self._dtype)
        network, where = network_of(problem) if problem.kind == "network" else None, (self._dtype, self._device)
        self._teacher: TorchTeacher | NetworkTeacher = (NetworkTeacher if network else TorchTeacher).of(problem, *where)
        link, link_name = (make_link_anywhere if network else make_link)(problem.activation, *where)
        free = problem.kind == "committee"
        setting = Setting(link, self._teacher, problem.dimension, self._batch, free, network)
        self._stepper = self._make_stepper(problem, options, setting)
        self.attributes: dict[str, str | int | float] = {
            "device": device_name(self._device),
            "dtype": options.dtype,
            "simulated_link": link_name,
            "torch_version": str(torch.__version__),
            "step_kernel": self._stepper.kernel,
            "threads": self._stepper.threads,
        }

    def running(self) -> AbstractContextManager[None]:
        """Return a context without autograd, with the threads that suit the size; torch's own are put back."""
        return self._stepper.running()

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        self._stepper.advance(torch.from_numpy(rates / self._batch))

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        weights = self._stepper.current().to(torch.float64)
        squared_norm = torch.sum(weights * weights, dim=2)
        unit = weights / torch.sqrt(squared_norm)[:, :, None]
        overlap, directions = unit[:, :, : self._teacher.span], self._teacher.directions
        if directions is not None:
            overlap = overlap @ directions.to(torch.float64).T
        gram = torch.bmm(unit, unit.transpose(1, 2)).cpu().numpy() if student else None
        return Measurement(overlap.cpu().numpy(), gram, squared_norm.cpu().numpy())

    def layers(self) -> Array:
        """Return v and b of a network."""
        found: Array = self._resumable().layers().to("cpu", torch.float64, copy=True).numpy()
        return found

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN; every operation keeps the seeds apart, so the others do not notice."""
        for index in np.flatnonzero(stopped).tolist():
            self._stepper.freeze(index)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all that the further steps depend on; raise NotImplementedError for the fused kernel."""
        return self._resumable().state()

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from a state of an engine for the same problem and options, on the same device."""
        with torch.inference_mode():
            self._resumable().restore(state)

    def _resumable(self) -> BlockStepper:
        if not isinstance(self._stepper, BlockStepper):
            msg = "Steps that are taken by the fused kernel cannot be continued from a checkpoint."
            raise NotImplementedError(msg)
        return self._stepper

    def _make_stepper(self, problem: Problem, options: EngineOptions, setting: Setting) -> BlockStepper | FusedStepper:
        reduced = problem.reduced_weights() if setting.network is None else setting.network.weights
        start = np.zeros((problem.width, aligned(problem.dimension)))
        start[:, : reduced.shape[1]] = reduced
        weights = torch.tensor(start, dtype=self._dtype, device=self._device).repeat(len(options.seeds), 1, 1)
        fused = self._device.type == "cuda" and setting.network is None
        link = fusible(problem, self._batch, self._dtype) if fused else None
        if link is not None and isinstance(self._teacher, TorchTeacher):
            return FusedStepper(
                weights,
                self._teacher.coefficients,
                setting.dimension,
                options.seeds,
                link=link,
                noise=self._teacher.noise,
                free=setting.free,
            )
        return BlockStepper(setting, weights, make_streams(options.seeds, self._dtype, self._device))
