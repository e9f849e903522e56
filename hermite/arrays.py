"""Names for arrays of one type, of any shape, and what other libraries hold as arrays of numpy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def as_numpy(values: Any) -> Any:
    """Return a tensor of torch as numpy reads it, off its graph and its device; anything else as it is.

    Examples
    --------
    >>> as_numpy([1.0, 2.0])
    [1.0, 2.0]
    """
    detach = getattr(values, "detach", None)
    if not callable(detach):
        return values
    tensor = detach().cpu()
    # The one type of numbers that numpy lacks.
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def as_scalar(value: object) -> object:
    """Return the number of Python in one of numpy or in an array without dimensions; anything else as it is.

    Examples
    --------
    >>> as_scalar(np.array(0.5)), as_scalar("text")
    (0.5, 'text')
    """
    item = getattr(value, "item", None)
    return item() if getattr(value, "ndim", None) == 0 and callable(item) else value
