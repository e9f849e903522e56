r"""The full model of a latent causal graph: two layers of attention over sequences of tokens.

.. math:: s_t = \sum_{s<t} A_{ts} 1\{x_s = \mathrm{query}\}, \qquad f = \sum_t \rho_t\, \mathrm{onehot}(x_t)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamics.tokens import LOG_FLOOR, system_of
from sgd_check.tokens.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence


class CausalGraphModel(Model):
    """Scores W (n, n) of the first layer, of which those of earlier tokens count; the first token keeps itself."""

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        super().__init__(problem, seeds, device)
        self._system: Any = system_of(problem)
        n = problem.length
        self.scores = self.add(n, n)
        self._hidden = torch.ones(n, n, dtype=torch.bool, device=device).triu()
        self._hidden[0, 0] = False

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return tokens (count, n), queries and their successors (count,)."""
        S, q = self.problem.vocabulary, self.problem.persistence
        chain = torch.rand(count, S, S, generator=generator, dtype=torch.float64)
        if self.problem.transitions == "permutation":
            chain = torch.nn.functional.one_hot(chain[:, 0].argsort(dim=1), S).to(torch.float64)
        else:  # uniform on the simplex
            chain = -torch.log1p(-chain)
            chain /= chain.sum(dim=2, keepdim=True)
        below = (q * chain + (1.0 - q) / S).cumsum(dim=2)
        rows = torch.arange(count)

        def successor(of: torch.Tensor) -> torch.Tensor:
            drawn = torch.rand(count, 1, generator=generator, dtype=torch.float64)
            found: torch.Tensor = (below[rows, of] < drawn).sum(dim=1).clamp(max=S - 1)
            return found

        tokens: list[torch.Tensor] = []
        for parent in self.problem.parents:
            root = parent is None
            tokens.append(torch.randint(S, (count,), generator=generator) if root else successor(tokens[parent]))
        query = torch.randint(S, (count,), generator=generator)
        return [torch.stack(tokens, dim=1), query, successor(query)]

    def weights(self) -> torch.Tensor:
        """Return A (seeds, n, n)."""
        return torch.softmax(self.scores.masked_fill(self._hidden, -torch.inf), dim=2)

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:  # noqa: ARG002
        """Return −f[y], or −ln(f[y] + 0.05) of Dirichlet transitions."""
        x, query, y = (part.to(self.options["device"]) for part in batch)
        asked, right = ((x == each[..., None]).to(torch.float64) for each in (query, y))
        scores = asked @ self.weights().transpose(1, 2)
        if self.problem.second_layer == "linear":
            f = (scores * right).mean(dim=2)
        else:
            f = (torch.softmax(self.problem.beta * scores, dim=2) * right).sum(dim=2)
        return -torch.log(f + LOG_FLOOR) if self.problem.transitions == "dirichlet" else -f

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss on the test sequences, and the progress of every row by its weights."""
        loss = self.sample_losses(self.test, 0.0).mean(dim=1)
        rows = self.weights().cpu().numpy()
        n = self.problem.length
        progress = [self._system.progress([one[t, :t] for t in range(2, n)]) for one in rows]
        return loss, torch.as_tensor(np.array(progress))
