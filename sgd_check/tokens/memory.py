r"""The full model of an associative memory: one matrix between random orthonormal embeddings of d dimensions.

.. math:: \mathrm{logit}_j = u_j \cdot W e_i
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sgd_check.tokens.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence


class MemoryModel(Model):
    """The matrix W (d, d) from zero; every seed has embeddings of its own."""

    default_batch = None

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        self._groups = torch.repeat_interleave(torch.tensor(problem.group_sizes))
        self._sizes = torch.tensor(problem.group_sizes, dtype=torch.float64, device=device)
        self._frequency = torch.as_tensor(problem.group_frequencies)[self._groups]
        super().__init__(problem, seeds, device)
        d = problem.dimension or problem.count
        self.matrix = self.add(d, d)
        drawn = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._inputs, self._outputs = (
            torch.stack([_orthonormal(generator, problem.count, d) for generator in drawn]).to(device) for _ in range(2)
        )

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return items (count,) by their frequencies."""
        return [torch.multinomial(self._frequency, count, replacement=True, generator=generator)]

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:  # noqa: ARG002
        """Return −ln p of the right outputs."""
        items = batch[0].to(self._inputs.device)[..., None]
        return -torch.gather(self.log_weights(items), 2, items)[..., 0]

    def log_weights(self, items: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the weights of all outputs for items (seeds, count, 1), (seeds, count, N)."""
        inputs = torch.gather(self._inputs, 1, items.expand(len(self._inputs), -1, self._inputs.shape[2]))
        return torch.log_softmax(inputs @ self.matrix.transpose(1, 2) @ self._outputs.transpose(1, 2), dim=2)

    def all_losses(self) -> torch.Tensor:
        """Return −ln p of all items, (seeds, N)."""
        every = torch.arange(self.problem.count).expand(self.seeds, -1)
        return self.sample_losses([every], 0.0)

    def population_loss(self, time: float) -> torch.Tensor:  # noqa: ARG002
        """Return the loss over all items by their frequencies."""
        return self.all_losses() @ self._frequency.to(self._inputs.device)

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient, or h of its singular values."""
        if self.problem.smoothing is None:
            return gradient
        left, values, right = torch.linalg.svd(gradient)
        signs = values / torch.hypot(values, torch.full_like(values, self.problem.smoothing))
        return torch.matmul(left * signs[:, None], right)

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss over all items, and the mean weight of the right output in every group."""
        losses = self.all_losses()
        sums = torch.zeros(self.seeds, len(self._sizes), dtype=torch.float64, device=losses.device)
        groups = self._groups.to(losses.device).expand(self.seeds, -1)
        return losses @ self._frequency.to(losses.device), sums.scatter_add(1, groups, torch.exp(-losses)) / self._sizes


def _orthonormal(generator: torch.Generator, count: int, dimension: int) -> torch.Tensor:
    """Return orthonormal rows (count, dimension), as random as their generator."""
    drawn = torch.randn(dimension, count, generator=generator, dtype=torch.float64)
    return torch.as_tensor(np.linalg.qr(drawn.numpy())[0].T.copy())
