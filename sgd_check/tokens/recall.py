r"""The full model of factual recall: linear attention over the tokens of a sequence, values V and keys K per token.

.. math:: \mathrm{logit}_a = \sum_{z \in \mathrm{tokens}} V_{az} K_z
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamics.tokens import system_of
from sgd_check.tokens.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence


class RecallModel(Model):
    """Values (A, tokens) and keys (tokens,); tokens are subjects, relations, and noise."""

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        R, S, D = problem.relations, problem.subjects, problem.answers
        super().__init__(problem, seeds, device)
        self._system: Any = system_of(problem)
        # Loss and progress are measured on every pair of a subject and a relation.
        s, r = torch.arange(S).repeat_interleave(R), torch.arange(R).repeat(S)
        self.test = [part[None] for part in self.sequences(s, r, torch.Generator().manual_seed(2**31))]
        tokens = S + R + problem.noise_tokens
        self.values = self.add(R * D, tokens, value=problem.initial_scale)
        self.keys = self.add(tokens, value=problem.initial_scale * np.sqrt(R * D + 1.0))

    def sequences(self, s: torch.Tensor, r: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the tokens of sequences with these subjects and relations, and their answers."""
        R, S, D = self.problem.relations, self.problem.subjects, self.problem.answers
        more = self.problem.sequence_length - 2
        noise = torch.randint(max(self.problem.noise_tokens, 1), (len(s), more), generator=generator)
        return [torch.cat([s[:, None], S + r[:, None], S + R + noise], dim=1), r * D + (s + r) % D]

    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return tokens (count, length) and answers (count,) of uniform subjects and relations."""
        s = torch.randint(self.problem.subjects, (count,), generator=generator)
        r = torch.randint(self.problem.relations, (count,), generator=generator)
        return self.sequences(s, r, generator)

    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:  # noqa: ARG002
        """Return −ln p of the right answers."""
        tokens, answers = (part.to(self.options["device"]) for part in batch)
        counts = torch.nn.functional.one_hot(tokens, self.keys.shape[1]).sum(dim=2).to(torch.float64)
        logits = counts @ (self.values * self.keys[:, None]).transpose(1, 2)
        right = torch.gather(logits, 2, answers[..., None].expand(len(logits), -1, 1))[..., 0]
        return torch.logsumexp(logits, dim=2) - right

    @torch.no_grad()
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss over all pairs, and how far it has come to the plateau and from there."""
        loss = self.sample_losses(self.test, 0.0).mean(dim=1)
        return loss, torch.as_tensor(self._system.progress(loss.cpu().numpy()))
