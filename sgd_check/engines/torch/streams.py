"""Streams of standard normal numbers for the samples in R^d, one for each seed.

On the processor the numbers of a seed are its generator's, in the order of its steps: torch's generator in single
precision, numpy's SFC64 in double precision, where it takes less than half the time (7.5 against 17 ns a number on one
core). On a CUDA device with Triton they are a function of seed, sample and coordinate
(`sgd_check.engines.torch.fused_kernels`), the same ones whichever kernel takes the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sgd_check.engines.generators import SAMPLES, generators, set_words, words_of
from sgd_check.engines.torch.fused import fill_normals, triton_version


class Streams(Protocol):
    """Standard normal numbers of all seeds."""

    def fill(self, lanes: range, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
        """Draw the next numbers of some seeds: samples (lanes, rows, columns) and label noise (lanes, rows)."""

    def state(self) -> NDArray[np.generic]:
        """Return where all streams are, as integers."""

    def restore(self, state: NDArray[np.generic]) -> None:
        """Go on from where `state` says."""


class _TorchStreams:
    """Torch's own generator, one per seed."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self._generators = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]

    def fill(self, lanes: range, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
        for row, lane in enumerate(lanes):
            samples[row].normal_(generator=self._generators[lane])
            if noise is not None:
                noise[row].normal_(generator=self._generators[lane])

    def state(self) -> NDArray[np.generic]:
        """Return the bytes of each generator, shape (lanes, bytes)."""
        return np.stack([generator.get_state().numpy() for generator in self._generators])

    def restore(self, state: NDArray[np.generic]) -> None:
        for generator, stored in zip(self._generators, state, strict=True):
            generator.set_state(torch.from_numpy(np.array(stored, dtype=np.uint8)))


class _NumpyStreams:
    """SFC64 of numpy, one per seed, in double precision."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [generator for seed in seeds for generator in generators(seed, [SAMPLES])]

    def fill(self, lanes: range, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
        for row, lane in enumerate(lanes):
            self._generators[lane].standard_normal(out=samples[row].numpy())
            if noise is not None:
                self._generators[lane].standard_normal(out=noise[row].numpy())

    def state(self) -> NDArray[np.generic]:
        """Return the words of each generator, shape (lanes, 6)."""
        return np.array([words_of(generator) for generator in self._generators])

    def restore(self, state: NDArray[np.generic]) -> None:
        for generator, words in zip(self._generators, state, strict=True):
            set_words(generator, words)


class CounterStreams:
    """Numbers on a CUDA device as a function of seed, sample and coordinate."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self._seeds = torch.tensor(seeds, dtype=torch.int64, device=device)
        self._drawn = 0

    def fill(self, lanes: range, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
        """Draw the next numbers of all seeds at once."""
        fill_normals(self._seeds[lanes.start : lanes.stop], self._drawn, samples, noise)
        self._drawn += samples.shape[1]

    def state(self) -> NDArray[np.generic]:
        """Return how many samples each seed has drawn."""
        return np.array([self._drawn])

    def restore(self, state: NDArray[np.generic]) -> None:
        """Go on from where `state` says."""
        self._drawn = int(state[0])


def make_streams(seeds: Sequence[int], dtype: torch.dtype, device: torch.device) -> Streams:
    """Return the fastest streams that there are."""
    if device.type == "cpu":
        return _NumpyStreams(seeds) if dtype == torch.float64 else _TorchStreams(seeds, device)
    return _TorchStreams(seeds, device) if triton_version() is None else CounterStreams(seeds, device)
