"""What a full model of tokens is, and the model of a problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.tokens import TokenProblem

#: Kind of a problem -> its full model.
MODELS = {
    "composition": "sgd_check.tokens.composition:CompositionModel",
    "recall": "sgd_check.tokens.recall:RecallModel",
    "causal-graph": "sgd_check.tokens.causal_graph:CausalGraphModel",
    "memory": "sgd_check.tokens.memory:MemoryModel",
}
#: Inputs on which loss and progress are measured.
TEST_INPUTS = 64


class Model(ABC):
    """A model with one set of parameters per seed, trained by autograd; sets have the seed as their first axis.

    Parameters
    ----------
    problem : TokenProblem
    seeds : sequence of int
        Seeds of the sets.
    device : torch.device
    """

    #: Samples of a step by default; None for the whole population.
    default_batch: int | None = 4

    def __init__(self, problem: Any, seeds: Sequence[int], device: torch.device) -> None:
        self.problem = problem
        self.seeds = len(seeds)
        self.options: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.parameters: list[torch.Tensor] = []
        #: Inputs that all sets are measured on.
        self.test = [part[None] for part in self.draw(torch.Generator().manual_seed(2**31), TEST_INPUTS)]

    def add(self, *shape: int, value: float = 0.0) -> torch.Tensor:
        """Return new parameters of equal entries, one array of this shape for every seed."""
        self.parameters.append(torch.full((self.seeds, *shape), value, **self.options, requires_grad=True))
        return self.parameters[-1]

    @abstractmethod
    def draw(self, generator: torch.Generator, count: int) -> list[torch.Tensor]:
        """Return so many inputs with their answers, on the CPU."""

    @abstractmethod
    def sample_losses(self, batch: Sequence[torch.Tensor], time: float) -> torch.Tensor:
        """Return the loss at a time of every set on each of its own inputs, (seeds, count)."""

    @abstractmethod
    def measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss (seeds,) and progress (seeds, components)."""

    def population_loss(self, time: float) -> torch.Tensor:  # noqa: ARG002
        """Return the loss at a time over all inputs, (seeds,); refuse where these are too many."""
        msg = f"Argument `batch_size` must be given for the problem {self.problem.kind!r}, but is None."
        raise ValueError(msg)

    def step(self, batch: Sequence[torch.Tensor] | None, time: float, learning_rate: float) -> None:
        """Take one step of gradient descent on a batch (seeds, count, …), None for the population."""
        losses = self.population_loss(time) if batch is None else self.sample_losses(batch, time).mean(dim=1)
        total = losses.sum()
        found = torch.autograd.grad(total, self.parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, found, strict=True):
                if gradient is not None:
                    parameter.sub_(learning_rate * self.direction(gradient))

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return what a step subtracts for a gradient, per learning rate."""
        return gradient


def model_class(problem: TokenProblem) -> type[Model]:
    """Return the class of the full model of a problem."""
    found: type[Model] = resolve_name(MODELS[problem.kind])
    return found


def model_of(problem: TokenProblem, seeds: Sequence[int], device: torch.device) -> Model:
    """Return the full model of a problem."""
    return model_class(problem)(problem, seeds, device)
