r"""SGD of the spherical network in R^d in torch, with the seeds as a batch axis, on the processor or on a CUDA device.

Projected gradient descent on ½ (f − y)² with velocities scaled by the width, f(x) = (1/m) Σ_i σ(w_i·x), |w_i| = 1: one
step on a batch of B samples is

.. math:: v_i = \frac1B \sum_b e_b\, \sigma'(w_i\cdot x_b)\, x_b, \qquad e_b = f(x_b) - y_b, \qquad
   w_i \leftarrow \frac{w_i - \eta\,(v_i - (v_i\cdot w_i)\, w_i)}{|\cdot|},

the tangential part of m times the gradient and then back to the sphere, so that Σ η is the time of `solve_spherical`
and `solve_mean_field`. A committee that reuses its samples is stepped here too: f(x) = Σ_i σ(w_i·x), w_i ← w_i − η v_i.
Samples are those of `sgd_check.engines.torch.samples`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.torch.devices import DTYPES, check_runs_fit, checked_device
from sgd_check.engines.torch.grouped import GroupedEngine
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.samples import FixedSamples, FreshSamples, TorchTeacher, make_streams, steps_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dynamics.problem import Problem
    from hermite.arrays import Array
    from sgd_check.engines.torch.links import TorchLink
    from sgd_check.engines.torch.samples import Batch, Source

#: Numbers m·(samples) of one pass on the processor, which bounds the memory of a run; shorter passes cost more calls.
PASS_NUMBERS = 2**18


class SphericalEngine(GroupedEngine["Runs"]):
    """A batch of runs of the spherical network, or of a committee; see the module's docstring for the step."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        device, dtype = checked_device(options.device), DTYPES[options.dtype]
        d, batch, reused, seeds = problem.dimension, options.batch_size, options.training_samples, len(options.seeds)
        held = steps_ahead(d, batch) * batch if reused is None else 2 * reused
        check_runs_fit(d * seeds * (2 * problem.width + held), problem, seeds, dtype)
        rows = problem.teacher.directions
        self._rows = None if rows is None else torch.tensor(rows, dtype=torch.float64, device=device)
        self._span, self._free = problem.teacher.span, problem.kind == "committee"
        link, link_name = make_link(problem.activation, dtype, device)
        start = torch.tensor(_starts(problem, options), dtype=dtype, device=device)
        groups = [
            Runs(link, start[lanes.start : lanes.stop].clone(), source, options.batch_size, free=self._free)
            for lanes, source in _sources(problem, options, dtype, device)
        ]
        super().__init__(groups, options, link_name, problem.width * batch)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps, and the neurons if asked for, in float64."""
        weights = self._weights()
        squared_norm = torch.sum(weights * weights, dim=2)
        if self._free:
            weights = weights / torch.sqrt(squared_norm)[:, :, None]
        overlap = weights[:, :, : self._span]
        if self._rows is not None:
            overlap = overlap @ self._rows.T
        among = (weights @ weights.mT if self._free else weights).cpu().numpy() if student else None
        gram, vectors = (among, None) if self._free else (None, among)
        return Measurement(overlap.cpu().numpy(), gram, squared_norm.cpu().numpy(), vectors)


class Runs:
    """Runs side by side in one tensor: weights (lanes, m, d) that it moves, on batches of the source.

    They are unit vectors, unless `free`: then they are those of a committee.
    """

    def __init__(self, link: TorchLink, weights: torch.Tensor, source: Source, batch: int, *, free: bool) -> None:
        self.weights, self.source = weights, source
        self._link, self._free = link, free
        self._velocity = torch.empty_like(weights)
        lanes, width, _ = weights.shape
        # On a CUDA device one pass takes the whole batch: there is no cache to keep to, and a launch costs more.
        largest = max(PASS_NUMBERS // width, 1) if weights.device.type == "cpu" else batch
        self._passes = [slice(first, min(first + largest, batch)) for first in range(0, batch, largest)]
        self._rows = weights.new_empty(4 * lanes * width * min(largest, batch))

    def advance(self, rates: list[float]) -> None:
        """Take one step per learning rate η."""
        for rate in rates:
            self._step(rate, self.source.batch())

    def _step(self, rate: float, batch: Batch) -> None:
        """Add η v up pass by pass, then move, on the sphere or freely."""
        w, v = self.weights, self._velocity
        x, labels = batch
        v.zero_()
        for chosen in self._passes:
            self._add_velocity(x[:, chosen], labels[:, chosen], rate / x.shape[1])
        if self._free:
            w.sub_(v)
            return
        along = torch.sum(v * w, dim=2, keepdim=True)
        w.mul_(along.add_(1.0)).sub_(v)
        w.div_(torch.linalg.vector_norm(w, dim=2, keepdim=True))

    def _add_velocity(self, x: torch.Tensor, labels: torch.Tensor, factor: float) -> None:
        lanes, width, _ = self.weights.shape
        rows = self._rows[: 4 * lanes * width * x.shape[1]].view(4, lanes, width, x.shape[1])
        torch.bmm(self.weights, x.transpose(1, 2), out=rows[0])
        self._link.fill_ends(rows[0], rows[1:])
        output = torch.sum(rows[1], dim=1) if self._free else torch.mean(rows[1], dim=1)
        error = output.sub_(labels).mul_(factor)
        self._velocity.baddbmm_(rows[3].mul_(error[:, None]), x)


def _sources(
    problem: Problem, options: EngineOptions, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[range, Source]]:
    """Yield the lanes of every group of runs, and where their samples come from.

    On the processor every run has tensors of its own, so that its roundings do not depend on how many there are.
    """
    seeds, batch, reused = options.seeds, options.batch_size, options.training_samples
    teacher, streams = TorchTeacher.of(problem, dtype, device), make_streams(seeds, dtype, device)
    count = 1 if device.type == "cpu" else len(seeds)
    for first in range(0, len(seeds), count):
        lanes = range(first, min(first + count, len(seeds)))
        common = (teacher, streams, lanes, batch, problem.dimension)
        if reused is None:
            yield lanes, FreshSamples(*common)
        else:
            yield lanes, FixedSamples(*common, seeds=seeds[lanes.start : lanes.stop], count=reused)


def _starts(problem: Problem, options: EngineOptions) -> Array:
    """Return the neurons of all runs at the start, shape (seeds, m, d)."""
    from dynamics.solve import coupled_problem

    if options.starts is not None:
        chosen = [coupled_problem(problem, problem.width, seed).reduced_weights() for seed in options.starts]
    else:
        chosen = [problem.reduced_weights()] * len(options.seeds)
    start = np.zeros((len(chosen), problem.width, problem.dimension))
    start[:, :, : chosen[0].shape[1]] = chosen
    if problem.kind == "committee":
        return start
    start /= np.linalg.norm(start, axis=2, keepdims=True)
    return start
