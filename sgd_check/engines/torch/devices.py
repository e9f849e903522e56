"""What the torch engines take as device and precision, and how much memory.

Knows torch and one sentence for each mistake; nothing of samples or neurons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hermite.text.messages import shown

if TYPE_CHECKING:
    from dynamics.problem import Problem

DTYPES = {"float32": torch.float32, "float64": torch.float64}
DEVICES = ("auto", "cpu", "cuda")
MEMORY_LIMIT = 16 * 2**30


def check_memory(numbers: int, problem: Problem, seeds: int, dtype: torch.dtype) -> None:
    """Refuse runs that keep so many numbers of this type that they do not fit."""
    need = numbers * torch.empty(0, dtype=dtype).element_size()
    if need > MEMORY_LIMIT:
        msg = (
            f"Arguments `problem` and `seeds` must fit in {MEMORY_LIMIT / 2**30:.0f} GiB, but {seeds} seeds "
            f"of {problem.width} neurons in dimension {problem.dimension} need {need / 2**30:.1f} GiB."
        )
        raise ValueError(msg)


def checked_dtype(dtype: str) -> torch.dtype:
    """Return the precision of a name."""
    if dtype not in DTYPES:
        msg = f"Argument `dtype` must be one of {', '.join(map(repr, DTYPES))}, but is {shown(dtype)}."
        raise ValueError(msg)
    return DTYPES[dtype]


def checked_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is CUDA where there is one."""
    if device not in DEVICES:
        msg = f"Argument `device` must be one of {', '.join(map(repr, DEVICES))}, but is {shown(device)}."
        raise ValueError(msg)
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        msg = "Argument `device` must be 'auto' or 'cpu' on this machine, but is 'cuda' and torch finds no CUDA device."
        raise ValueError(msg)
    return torch.device("cuda" if device != "cpu" and available else "cpu")


def device_name(device: torch.device) -> str:
    """Return what to write down about a device."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"
