"""Losses and labels of classes on tensors: slopes ∂ℓ/∂f, labels that are drawn, and samples of a mixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dynamics.problem import Problem
from dynamics.problem import losses as names
from dynamics.problem.losses import Objective, OwnLoss
from sgd_check.engines.torch.links import TableLink

Slope = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def slope_of_loss(objective: Objective, like: torch.Tensor) -> Slope:
    """Return the function of outputs (lanes, C, B) and labels (lanes, B) that returns ∂ℓ/∂f (lanes, C, B)."""
    if isinstance(objective, OwnLoss):
        return _of_table(objective, like)
    return _SLOPES[objective]


def _of_table(objective: OwnLoss, like: torch.Tensor) -> Slope:
    """Return the slope of a loss of one's own, which is tabulated for the labels −1 and 1."""
    below, above = (TableLink(torch.tensor(table, dtype=like.dtype, device=like.device)) for table in objective.table)

    def slope(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(y[:, None] > 0.0, above.both(f)[1], below.both(f)[1])

    return slope


def _softmax(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return p − 1_y, p = softmax(f)."""
    p = torch.softmax(f, dim=1)
    return p.scatter_add_(1, y[:, None].long(), -torch.ones_like(p[:, :1]))


_SLOPES: dict[str, Slope] = {
    names.SQUARED: lambda f, y: f - y[:, None],
    names.CORRELATION: lambda f, y: -y[:, None] * torch.ones_like(f),
    names.HUBER: lambda f, y: torch.clamp(f - y[:, None], -1.0, 1.0),
    names.LOGISTIC: lambda f, y: -y[:, None] * torch.sigmoid(-y[:, None] * f),
    names.HINGE: lambda f, y: -y[:, None] * torch.clamp(1.0 - y[:, None] * f, 0.0, 1.0),
    names.EXPONENTIAL: lambda f, y: -y[:, None] * torch.exp(-y[:, None] * f),
    names.SOFTMAX: _softmax,
}


class ClassLabels:
    """Labels that are classes, and samples of a mixture, each drawn from one standard normal number per sample.

    `values` maps coordinates (…, r) on the teacher's axes to f* (…,), or for labels "softmax" to the values of the
    teacher's units (…, C). `placement` are dtype and device of the tensors.
    """

    def __init__(
        self,
        problem: Problem,
        values: Callable[[torch.Tensor], torch.Tensor],
        placement: dict[str, Any],
    ) -> None:
        """Take kind, flips and threshold of the labels from a problem, and the means of its mixture, if it has one.

        `values` returns f* of coordinates, and `placement` holds the dtype and device of tensors.
        """
        self._kind, self._flip, self._threshold = problem.labels, problem.flip, problem.threshold
        self._values, mixture = values, problem.mixture
        self._means: torch.Tensor | None = None
        self._scale, self._classes = 1.0, problem.num_outputs
        if mixture is not None:
            self._means, self._scale = torch.tensor(mixture.means, **placement), mixture.snr**-0.5
            ends = np.cumsum(mixture.weights)
            ends[-1] = 1.0
            self._ends, self._weights = torch.tensor(ends, **placement), torch.tensor(mixture.weights, **placement)
            self._labels = None if mixture.labels is None else torch.tensor(mixture.labels, **placement)
            self._signed = mixture.has_signs

    @property
    def draws(self) -> bool:
        """Whether a label or a cluster is drawn."""
        return self._means is not None or self._flip > 0.0 or self._kind in (names.BERNOULLI, names.OF_SOFTMAX)

    def label(self, x: torch.Tensor, span: int, noise: torch.Tensor | None) -> torch.Tensor:
        """Return labels of samples x (…, d), which become those of the mixture in place, from normal numbers (…,)."""
        chance = None if noise is None else torch.special.ndtr(noise)
        cluster = None
        if self._means is not None and chance is not None:
            cluster = torch.searchsorted(self._ends, chance).clamp_(max=self._ends.numel() - 1)
            weight = self._weights[cluster]
            chance = (chance - (self._ends[cluster] - weight)) / weight
            x.mul_(self._scale)
            x[..., : self._means.shape[1]] += self._means[cluster]
        if self._kind == names.CLUSTER and cluster is not None and self._labels is not None and chance is not None:
            return self._of_clusters(self._labels[cluster], chance)
        values = self._values(x[..., :span])
        if self._kind == names.OF_SOFTMAX and chance is not None:
            return self._of_softmax(values, chance)
        if self._kind == names.VALUE:
            return values
        above = values - self._threshold
        if self._kind == names.BERNOULLI and chance is not None:
            up = torch.sigmoid(above)
            up = up * (1.0 - 2.0 * self._flip) + self._flip
            return torch.where(chance < up, 1.0, -1.0).to(above)
        signs = torch.where(above >= 0.0, 1.0, -1.0).to(above)
        return signs if chance is None or not self._flip else torch.where(chance < self._flip, -signs, signs)

    def _of_softmax(self, values: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
        """Return classes (…,) drawn by the softmax of values (…, C), and flipped."""
        law = torch.softmax(values, dim=-1)
        law = (1.0 - self._flip) * law + self._flip * (1.0 - law) / (law.shape[-1] - 1)
        below = torch.cumsum(law, dim=-1)[..., :-1] <= chance[..., None]
        return below.sum(dim=-1).to(values)

    def _of_clusters(self, labels: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
        """Return the labels of clusters, each replaced by another one with the probability of a flip."""
        if not self._flip:
            return labels
        if self._signed:
            return torch.where(chance < self._flip, -labels, labels)
        further = 1.0 + torch.floor(chance / self._flip * (self._classes - 1))
        flipped = torch.remainder(labels + further, self._classes)
        return torch.where(chance < self._flip, flipped, labels)
