"""The import of torch, which no other module of dynamics makes."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from hermite.text.messages import shown, suggestion

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def load_torch(device: str) -> Any:
    """Return the module torch, after making sure that it can use "cpu", "cuda" or "cuda:<number>".

    Raises ImportError if torch is not installed, ValueError if there is no such device.
    """
    if not isinstance(device, str) or _DEVICE.fullmatch(device) is None:
        msg = f"Argument `device` must be 'cpu', 'cuda' or 'cuda:<number>', but is {shown(device)}."
        raise ValueError(msg + suggestion(device, ("cpu", "cuda")))
    try:
        torch = import_module("torch")
    except ImportError as error:
        msg = f'Argument `device` = {device!r} needs an extra package: pip install "feature-emergence[torch]".'
        raise ImportError(msg) from error
    if device != "cpu":
        count, number = torch.cuda.device_count(), int(device.partition(":")[2] or 0)
        if number >= count:
            msg = (
                f"Argument `device` must name a device of this machine, but is {shown(device)} and torch finds {count} "
                'CUDA devices; pip install "feature-emergence[torch]" on a machine with one, or take "cpu".'
            )
            raise ValueError(msg)
    return torch
