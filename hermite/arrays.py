"""Names for arrays of numbers of one type, and numbers that arguments give as arrays, tensors or floats."""

from __future__ import annotations

import operator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Of any shape.
Array = NDArray[np.float64]
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Cube = NDArray[np.float64]
Integers = NDArray[np.int64]
Switches = NDArray[np.bool_]
SingleVector = NDArray[np.float32]
SingleMatrix = NDArray[np.float32]
#: Of kernels that are compiled for both precisions.
Real = TypeVar("Real", bound=np.floating[Any])


def masked_entries(values: object) -> int:
    """Return the number of masked entries of a masked array, 0 of anything else."""
    return int(np.count_nonzero(values.mask)) if isinstance(values, np.ma.MaskedArray) else 0


def as_numpy(values: Any) -> Any:
    """Return a tensor of torch as numpy reads it, off its graph and its device; anything else as it is.

    ValueError is raised for a masked array of which an entry is masked: numpy would forget the mask.

    >>> as_numpy([1.0, 2.0])
    [1.0, 2.0]
    """
    if masked := masked_entries(values):
        msg = f"An array must have no masked entries, but {masked} of {values.size} are masked."
        raise ValueError(msg)
    detach = getattr(values, "detach", None)
    if not callable(detach):
        return values
    tensor = detach().cpu()
    # The one type of numbers that numpy lacks.
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def as_scalar(value: object) -> object:
    """Return the number of Python in one of numpy or in an array without dimensions; anything else as it is.

    >>> as_scalar(np.array(0.5)), as_scalar("text")
    (0.5, 'text')
    """
    item = getattr(value, "item", None)
    return item() if getattr(value, "ndim", None) == 0 and callable(item) else value


def as_integer(value: object) -> int | None:
    """Return an integer, or a float without a fraction, as an int; None for anything else, True and False included.

    >>> as_integer(1e6), as_integer(2.5), as_integer(True)
    (1000000, None, None)
    """
    value = as_scalar(value)
    # A tensor with one entry would pass for its entry.
    if isinstance(value, bool | np.bool_) or getattr(value, "ndim", False):
        return None
    if isinstance(value, float | np.floating):
        return int(value) if float(value).is_integer() else None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
