"""Runs in groups that are stepped apart, so that none sees the rounding of another, and may share threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
import torch

from sgd_check.engines.seeded_runs import RunThreads
from sgd_check.engines.torch.devices import device_name, shared_by

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from hermite.arrays import Array
    from sgd_check.engines.registry import EngineOptions

#: Below this many numbers in a step of one run, threads cost more than they bring.
THREADED_NUMBERS = 2**18


class Group(Protocol):
    """Runs side by side in one tensor."""

    @property
    def weights(self) -> torch.Tensor:
        """Weights of shape (lanes, m, d)."""
        ...

    def advance(self, rates: list[float]) -> None:
        """Take one step per learning rate η."""
        ...


AnyGroup = TypeVar("AnyGroup", bound=Group)


class GroupedEngine(Generic[AnyGroup]):
    """What engines whose runs stand in groups have in common; `numbers` are those of a step of one run."""

    def __init__(self, groups: Sequence[AnyGroup], options: EngineOptions, link_name: str, numbers: int) -> None:
        self._groups, device = groups, groups[0].weights.device
        many = device.type == "cpu" and numbers >= THREADED_NUMBERS
        self._threads = RunThreads(min(torch.get_num_threads(), len(groups)) if many else 1)
        self.attributes: dict[str, str | int | float] = {
            "device": device_name(device),
            "dtype": options.dtype,
            "simulated_link": link_name,
            "torch_version": str(torch.__version__),
            "step_kernel": "plain",
            "threads": self._threads.count,
        }

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which runs share threads."""
        return shared_by(self._threads, single=True)

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        steps = rates.tolist()
        self._threads.each(torch.inference_mode()(lambda runs: runs.advance(steps)), self._groups)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN; every operation keeps the runs apart, so the others do not notice."""
        lanes = [(runs, lane) for runs in self._groups for lane in range(runs.weights.shape[0])]
        for index in np.flatnonzero(stopped).tolist():
            runs, lane = lanes[index]
            runs.weights[lane] = torch.nan

    def _weights(self) -> torch.Tensor:
        """Return the weights of all runs in float64."""
        return torch.cat([runs.weights for runs in self._groups]).to(torch.float64)
