"""Runs of full models as the loop over steps takes them: what draws batches, steps, and goes on from a file."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from sgd_check.engines.seeded_runs import check_shapes
from sgd_check.tokens.model import model_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.tokens import TokenProblem
    from hermite.arrays import Array
    from sgd_check.tokens.model import Model

#: Numbers of inputs that are drawn at once.
DRAWN_AT_ONCE = 4096


class Part(NamedTuple):
    """Seeds of one batch size; without batches every step takes the whole population."""

    model: Model
    draws: Draws | None


class TokenRuns:
    """Runs of one problem, in parts of one batch size each; a seed's bits depend on nothing beside it.

    Parameters
    ----------
    problem : TokenProblem
    parts : sequence of (seeds, batch size)
        None for the whole population.
    device : torch.device
    """

    def __init__(
        self, problem: TokenProblem, parts: Sequence[tuple[Sequence[int], int | None]], device: torch.device
    ) -> None:
        self._parts: list[Part] = []
        for seeds, batch in parts:
            model = model_of(problem, seeds, device)
            self._parts.append(Part(model, None if batch is None else Draws(model, seeds, batch)))
        self._step = 0

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which nothing needs to be held."""
        return nullcontext()

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        for rate in rates.tolist():
            for model, draws in self._parts:
                model.step(None if draws is None else draws.next(), rate * self._step, rate)
            self._step += 1

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Do nothing: runs that are not finite stay so, and cost no more than others."""

    def measured(self) -> tuple[Array, Array]:
        """Return loss (seeds,) and progress (seeds, components) of all runs."""
        found = [model.measured() for model, _ in self._parts]
        loss, progress = (torch.cat([part.cpu() for part in parts]).numpy() for parts in zip(*found, strict=True))
        return loss, progress

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return step, parameters and the state of the generators."""
        found: dict[str, NDArray[np.generic]] = {"step": np.array(self._step)}
        for at, (model, draws) in enumerate(self._parts):
            for number, parameter in enumerate(model.parameters):
                found[f"parameter_{at}_{number}"] = parameter.detach().cpu().numpy().copy()
            if draws is not None:
                found |= {f"{name}_{at}": array for name, array in draws.state().items()}
        return found

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `state` returned; raise KeyError or ValueError for another problem's."""
        check_shapes(state, self.state())
        self._step = int(state["step"])
        for at, (model, draws) in enumerate(self._parts):
            with torch.no_grad():
                for number, parameter in enumerate(model.parameters):
                    parameter.copy_(torch.as_tensor(state[f"parameter_{at}_{number}"]))
            if draws is not None:
                draws.restore(state[f"generators_{at}"], int(state[f"used_{at}"]))


class Draws:
    """Batches of all seeds, each from a generator of its own, drawn many at once."""

    def __init__(self, model: Model, seeds: Sequence[int], batch: int) -> None:
        self._model, self._batch = model, batch
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._steps = max(1, DRAWN_AT_ONCE // batch)
        self._used, self._before = 0, self._words()
        self._parts: list[torch.Tensor] = []

    def next(self) -> list[torch.Tensor]:
        """Return the next batch, (seeds, count, …) of each part."""
        if not self._parts or self._used == self._steps:
            self._draw()
        here = slice(self._used * self._batch, (self._used + 1) * self._batch)
        self._used += 1
        return [part[:, here] for part in self._parts]

    def _draw(self) -> None:
        self._before = self._words()
        drawn = [self._model.draw(generator, self._steps * self._batch) for generator in self._generators]
        self._parts = [torch.stack(parts) for parts in zip(*drawn, strict=True)]
        self._used = 0

    def _words(self) -> NDArray[np.uint8]:
        return np.stack([generator.get_state().numpy() for generator in self._generators])

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the generators before the inputs at hand, and how many batches of these are used."""
        return {"generators": self._before.copy(), "used": np.array(self._used)}

    def restore(self, generators: NDArray[Any], used: int) -> None:
        """Draw the inputs at hand again, and go on."""
        for generator, words in zip(self._generators, generators.astype(np.uint8), strict=True):
            generator.set_state(torch.as_tensor(words))
        self._draw()
        self._used = used


class Records:
    """Loss and progress of all runs at every look, and which of them are not finite any more."""

    def __init__(self, runs: int, looks: Sequence[int], components: int) -> None:
        self.blown_up: NDArray[np.bool_] = np.zeros(runs, dtype=bool)
        self.loss, self.progress = np.full((runs, len(looks)), np.nan), np.full((runs, len(looks), components), np.nan)
        self._place = {step: at for at, step in enumerate(looks)}

    def look(self, step: int, runs: TokenRuns) -> NDArray[np.bool_]:
        """Measure the runs; return which of them have just left the finite numbers."""
        at = self._place[step]
        self.loss[:, at], self.progress[:, at] = runs.measured()
        fresh: NDArray[np.bool_] = ~np.isfinite(self.loss[:, at]) & ~self.blown_up
        self.blown_up |= fresh
        return fresh

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return what `look` goes on from, beside the records."""
        return {"blown_up": self.blown_up.copy()}

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, and from loss and progress."""
        self.blown_up[:] = state["blown_up"]
        self.loss[...], self.progress[...] = records["loss"], records["progress"]
