r"""Online SGD in R^d on inputs of covariance Σ, in whitened weights ŵ = Σ^½ w: one product by the eigenvalues a step.

With x = Σ^½ g, g ~ N(0, I), a step of w is

.. math:: \hat w_i \leftarrow \hat w_i - \frac{\eta}{B}\, \Sigma \sum_b e_b\, \rho_i \left[(2\sigma_{ib} -
   z_{ib}\sigma'_{ib})\,u_i + \sigma'_{ib}\, g_b\right],

Σ times that of isotropic inputs (`sgd_check.engines.torch.engine`), ρ_i = |ŵ_i|, u_i = ŵ_i/ρ_i, z_ib = u_i·g_b. Seeds
are stepped one by one on the processor, so that none sees another's rounding, and together on a CUDA device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.torch.devices import DTYPES, check_runs_fit, checked_device
from sgd_check.engines.torch.grouped import GroupedEngine
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.samples import FreshSamples, TorchTeacher, make_streams, steps_ahead

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from sgd_check.engines.torch.links import TorchLink


class CovariantEngine(GroupedEngine["CovariantRuns"]):
    """A batch of runs on inputs that are not isotropic; see the module's docstring for the step."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        axes = problem.input_axes()
        if axes is None or problem.inputs is None:
            msg = "Argument `problem` must have `inputs`, but has none."
            raise ValueError(msg)
        device, dtype, seeds = checked_device(options.device), DTYPES[options.dtype], len(options.seeds)
        m, d, batch = problem.width, problem.dimension, options.batch_size
        check_runs_fit(d * seeds * (2 * m + steps_ahead(d, batch) * batch), problem, seeds, dtype)
        start = np.zeros((m, d))
        start[:, axes.places] = problem.reduced_weights()
        link, link_name = make_link(problem.activation, dtype, device)
        self._teacher = TorchTeacher.of(problem, dtype, device)
        streams = make_streams(options.seeds, dtype, device)
        eigenvalues = torch.tensor(problem.inputs.eigenvalues_of_axes(d), dtype=dtype, device=device)
        weights = torch.tensor(start, dtype=dtype, device=device).repeat(seeds, 1, 1)
        size = 1 if device.type == "cpu" else seeds
        groups = [
            CovariantRuns(
                link,
                weights[first : first + size].clone(),
                FreshSamples(self._teacher, streams, range(first, first + size), batch, d),
                eigenvalues / batch,
            )
            for first in range(0, seeds, size)
        ]
        super().__init__(groups, options, link_name, m * d)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        weights = self._weights()
        squared_norm = torch.sum(weights * weights, dim=2)
        unit = weights / torch.sqrt(squared_norm)[:, :, None]
        overlap, rows = unit[:, :, : self._teacher.span], self._teacher.directions
        if rows is not None:
            overlap = overlap @ rows.to(torch.float64).T
        gram = torch.bmm(unit, unit.transpose(1, 2)).cpu().numpy() if student else None
        return Measurement(overlap.cpu().numpy(), gram, squared_norm.cpu().numpy())


class CovariantRuns:
    """Runs side by side: whitened weights (lanes, m, d), moved on samples of a source; `eigenvalues` are s_l/B."""

    def __init__(self, link: TorchLink, weights: torch.Tensor, source: FreshSamples, eigenvalues: torch.Tensor) -> None:
        self.weights = weights
        self._link, self._source, self._eigenvalues = link, source, eigenvalues

    def advance(self, rates: list[float]) -> None:
        """Take one step per learning rate η."""
        for rate in rates:
            self._step(rate)

    def _step(self, rate: float) -> None:
        w = self.weights
        g, labels = self._source.batch()
        rho = torch.linalg.vector_norm(w, dim=2, keepdim=True)
        z = torch.bmm(w, g.transpose(1, 2)) / rho
        parts = z.new_empty(3, *z.shape)
        self._link.fill(z, parts)
        value, along, slope = parts
        error = (torch.sum(rho * rho * value, dim=1) - labels)[:, None]
        gradient = torch.sum(error * along, dim=2, keepdim=True) * w + torch.bmm(error * rho * slope, g)
        w.sub_(gradient * self._eigenvalues, alpha=rate)
