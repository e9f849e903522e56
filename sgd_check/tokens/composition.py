r"""The full model of composition: log₂ k + 1 layers of attention over k N positions.

.. math:: c^0 = \mathrm{onehot}\, \sigma_i(j), \qquad c^1 = \mathrm{softmax}(W_1)\, c^0, \qquad
   c^l = \mathrm{softmax}\Big(\sum_v c^{l-1}_{(i,j)}[v]\, W_l[(i,v), \cdot]\Big)\, c^{l-1}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamics.tokens import system_of
from sgd_check.tokens.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence


class CompositionModel(Model):
    """Attention matrices W_1 … W_L, of k N rows and columns each, from zero or from scores on the right keys."""

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        N, k = problem.vocabulary, problem.hops
        # The hidden permutations are part of the problem, the same for all seeds.
        self.hidden = permutations(torch.Generator().manual_seed(0), 1, k, N)[0]
        super().__init__(problem, seeds, device)
        rows = torch.arange(k * N)
        i, v = rows // N, rows % N
        for layer in range(problem.layers):
            W = self.add(k * N, k * N)
            right = i * N + self.hidden[i, v] if layer == 0 else ((i + 2 ** (layer - 1)) % k) * N + v
            with torch.no_grad():
                W[:, rows, right] = problem.initial_score
        system = system_of(problem)
        self._weights = torch.as_tensor(problem.stage_weights, **self.options)
        self._ends = system.stage_ends

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return permutations σ (count, k, N) and the hops (layers, k, N) of each."""
        sigma = permutations(generator, count, self.problem.hops, self.problem.vocabulary)
        hops = [torch.gather(sigma, 2, self.hidden.expand_as(sigma))]
        for layer in range(1, self.problem.layers):
            hops.append(torch.gather(hops[-1].roll(-(2 ** (layer - 1)), dims=1), 2, hops[-1]))
        return [sigma, torch.stack(hops, dim=1)]

    def right_weights(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return c^l[y] of all layers and positions, (layers, seeds, count, k N)."""
        N, k = self.problem.vocabulary, self.problem.hops
        sigma, hops = (part.to(self.options["device"]) for part in batch)
        c = torch.nn.functional.one_hot(sigma, N).to(torch.float64).flatten(2, 3)
        found = []
        for layer, W in enumerate(self.parameters):
            if layer == 0:
                scores = W[:, None]
            else:
                content = c.reshape(*c.shape[:2], k, N, N)
                scores = torch.einsum("sbijv,sivq->sbijq", content, W.reshape(-1, k, N, k * N)).flatten(2, 3)
            c = torch.softmax(scores, dim=-1) @ c
            answers = hops[:, :, layer].flatten(2, 3)[..., None].expand(c.shape[0], -1, -1, 1)
            found.append(torch.gather(c, 3, answers)[..., 0])
        return torch.stack(found)

    def layer_losses(self, right: torch.Tensor) -> torch.Tensor:
        """Return the loss of every layer, summed over positions, (seeds, count, layers)."""
        cross = self.problem.loss == "cross-entropy"
        losses = -torch.log(right) if cross else 1.0 / self.problem.vocabulary - right
        return losses.sum(dim=3).movedim(0, -1)

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:
        """Return the loss of the stage at a time."""
        stage = sum(time >= end * (1.0 - 1e-9) for end in self._ends)
        return self.layer_losses(self.right_weights(batch)) @ self._weights[stage]

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of all stages together, and s_l by the weight on the right symbol."""
        right = self.right_weights(self.test)
        N = self.problem.vocabulary
        progress = (right.mean(dim=(2, 3)).T - 1.0 / N) / (1.0 - 1.0 / N)
        return (self.layer_losses(right) @ self._weights.sum(dim=0)).mean(dim=1), progress


def permutations(generator: torch.Generator, count: int, k: int, N: int) -> torch.Tensor:
    """Return uniform permutations (count, k, N)."""
    return torch.rand(count, k, N, generator=generator, dtype=torch.float32).argsort(dim=2)
