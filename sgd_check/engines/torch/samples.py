"""Labelled samples in R^d for runs side by side: fresh ones for every step, or a sample of fixed size over and over.

A source serves some lanes (runs) and gives batches x (lanes, B, d) with labels y = f*(x) + τξ (lanes, B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from sgd_check.engines.generators import ORDER, generators
from sgd_check.engines.torch.links import make_link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.problem import Problem
    from sgd_check.engines.torch.links import TorchLink
    from sgd_check.engines.torch.streams import Streams

    Batch = tuple[torch.Tensor, torch.Tensor]

#: Numbers drawn per run at a time, where that is more than a batch.
DRAWN_NUMBERS = 2**16


@dataclass(frozen=True)
class TorchTeacher:
    """A teacher in tensors: link σ*, coefficients a_p (P,), directions θ_p (P, r) or None for the axes, noise τ."""

    link: TorchLink
    coefficients: torch.Tensor
    directions: torch.Tensor | None
    span: int
    noise: float

    @classmethod
    def of(cls, problem: Problem, dtype: torch.dtype, device: torch.device) -> TorchTeacher:
        """Return the teacher of a problem, whose link is the student's own but for the spherical student."""
        free = problem.kind == "spherical"
        link, _ = make_link(problem.teacher_link if free else problem.activation, dtype, device)
        teacher = problem.teacher
        rows = None if teacher.directions is None else torch.tensor(teacher.directions, dtype=dtype, device=device)
        coefficients = torch.tensor(teacher.coefficients, dtype=dtype, device=device)
        return cls(link, coefficients, rows, teacher.span, problem.label_noise)

    def label(self, x: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """Return Σ_p a_p σ*(θ_p·x) + τξ of samples x (…, d): elementwise, so none sees its neighbours' rounding."""
        axes = x[..., : self.span]
        if self.directions is None:
            labels = torch.sum(self.link.value(axes.contiguous()) * self.coefficients, dim=-1)
        else:
            labels = x.new_zeros(x.shape[:-1])
            for coefficient, direction in zip(self.coefficients, self.directions, strict=True):
                labels.addcmul_(coefficient, self.link.value(torch.sum(axes * direction, dim=-1)))
        return labels if noise is None else labels.add_(noise, alpha=self.noise)


class Source(Protocol):
    """Gives the batch of every step."""

    def batch(self) -> Batch:
        """Return x (lanes, B, d) and labels (lanes, B) of the next step."""


def steps_ahead(dimension: int, batch: int) -> int:
    """Return how many steps are drawn at a time: of d and B alone, so that no seed depends on what runs beside it."""
    return max(DRAWN_NUMBERS // (dimension * batch), 1)


class FreshSamples:
    """New samples for every step, for the seeds of some lanes."""

    def __init__(self, teacher: TorchTeacher, streams: Streams, lanes: range, batch: int, dimension: int) -> None:
        self._teacher, self._streams, self._lanes, self._size = teacher, streams, lanes, batch
        like = teacher.coefficients
        self._steps = self._step = steps_ahead(dimension, batch)
        self._x = like.new_empty(len(lanes), self._steps * batch, dimension)
        self._noise = like.new_empty(self._x.shape[:2]) if teacher.noise > 0 else None
        self._y = like.new_empty(0)

    def batch(self) -> Batch:
        """Return the next samples of the streams, drawn many steps ahead."""
        if self._step == self._steps:
            self._streams.fill(self._lanes, self._x, self._noise)
            self._y = self._teacher.label(self._x, self._noise)
            self._step = 0
        rows = slice(self._step * self._size, (self._step + 1) * self._size)
        self._step += 1
        return self._x[:, rows], self._y[:, rows]


class FixedSamples:
    """A sample of n, drawn once per seed; every epoch visits each of them once, in an order of its own.

    B divides n; with B = n every step takes the whole sample in one order. The `seeds` of the served lanes draw the
    orders.
    """

    def __init__(
        self,
        teacher: TorchTeacher,
        streams: Streams,
        lanes: range,
        batch: int,
        dimension: int,
        *,
        seeds: Sequence[int],
        count: int,
    ) -> None:
        every = FreshSamples(teacher, streams, lanes, count, dimension)
        self._all = tuple(part.clone() for part in every.batch())
        self._epoch = self._all
        self._size, self._count, self._next = batch, count, count
        self._orders = [generator for seed in seeds for generator in generators(seed, [ORDER])]

    def batch(self) -> Batch:
        """Return the next samples of the epoch."""
        if self._next == self._count:
            self._next = 0
            if self._size < self._count:
                self._shuffle()
        rows = slice(self._next, self._next + self._size)
        self._next += self._size
        x, y = self._epoch
        return x[:, rows], y[:, rows]

    def _shuffle(self) -> None:
        orders = np.array([generator.permutation(self._count) for generator in self._orders])
        chosen = torch.from_numpy(orders).to(self._all[0].device)
        x, y = self._all
        lanes = torch.arange(chosen.shape[0], device=chosen.device)[:, None]
        self._epoch = (x[lanes, chosen], y[lanes, chosen])
