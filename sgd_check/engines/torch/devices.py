"""Devices and precisions of torch by their names, the limit of memory, and threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dynamics.problem import Problem
    from sgd_check.engines.seeded_runs import RunThreads

DTYPES = {"float32": torch.float32, "float64": torch.float64}
MEMORY_LIMIT = 16 * 2**30


def check_runs_fit(numbers: int, problem: Problem, seeds: int, dtype: torch.dtype) -> None:
    """Refuse runs that keep so many numbers of this type that they do not fit."""
    need = numbers * torch.empty(0, dtype=dtype).element_size()
    if need > MEMORY_LIMIT:
        msg = (
            f"Arguments `problem` and `seeds` must fit in {MEMORY_LIMIT / 2**30:.0f} GiB, but {seeds} seeds "
            f"of {problem.width} neurons in dimension {problem.dimension} need {need / 2**30:.1f} GiB."
        )
        raise ValueError(msg)


@contextmanager
def shared_by(threads: RunThreads, *, single: bool) -> Iterator[None]:
    """Return a context without autograd in which runs share threads, each with one of torch's own if `single`."""
    before = torch.get_num_threads()
    if single:
        torch.set_num_threads(1)
    try:
        with torch.inference_mode(), threads.running():
            yield
    finally:
        torch.set_num_threads(before)


def checked_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is CUDA where there is one."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        msg = "Argument `device` must be 'auto' or 'cpu' on this machine, but is 'cuda' and torch finds no CUDA device."
        raise ValueError(msg)
    return torch.device("cuda" if device != "cpu" and available else "cpu")


def device_name(device: torch.device) -> str:
    """Return what to write down about a device."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"
