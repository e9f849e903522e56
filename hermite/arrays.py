"""Names for arrays of numbers of one type, and numbers that arguments give as arrays, tensors or floats."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from types import NoneType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hermite.text.messages import refuse, require, shown

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
Real = TypeVar("Real", bound=np.floating)


#: Bytes of a line of the cache.
LINE = 64


def aligned(*shape: int, dtype: type[np.floating] = np.float64) -> NDArray[Any]:
    """Return an array of any numbers whose memory begins with a line of the cache.

    Where rows begin elsewhere, as those of numpy's arrays may, loops over them take up to a third longer.

    >>> aligned(2, 3).ctypes.data % 64
    0
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    whole = np.empty(size + LINE, np.uint8)
    address, _ = whole.__array_interface__["data"]
    return whole[-address % LINE :][:size].view(dtype).reshape(shape)


def masked_entries(values: object) -> int:
    """Return the number of masked entries of a masked array, 0 of anything else."""
    return int(np.count_nonzero(values.mask)) if isinstance(values, np.ma.MaskedArray) else 0


def as_numpy(values: Any) -> object:
    """Return a tensor of torch as an array, detached from its graph and its device; any other value as it is.

    ValueError is raised for a masked array of which an entry is masked: numpy would forget the mask.

    >>> as_numpy([1.0, 2.0])
    [1.0, 2.0]
    """
    if masked := masked_entries(values):
        refuse(f"An array must have no masked entries, but {masked} of {values.size} are masked.")
    detach = getattr(values, "detach", None)
    if not callable(detach):
        return values
    tensor = detach().cpu().resolve_neg()
    # The one type of numbers that numpy lacks.
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def real_array(values: object, name: str) -> Array:
    """Return an array, list, tensor or column that a user gives for an argument as float64, rounded to that at most.

    TypeError is raised for anything but real numbers, such as text, truth values, dates, complex numbers and None;
    ValueError for masked entries, units, and integers that float64 does not hold.

    >>> real_array([1, 2], "x")
    array([1., 2.])
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    masked = masked_entries(values)
    require(not masked, f"Argument `{name}` must have no masked entries, but {masked} are masked.")
    unit = _unit_of(values)
    has_none = unit is None or callable(unit) or str(unit) in ("", "1", "dimensionless")
    require(has_none, f"Argument `{name}` must be dimensionless, as all quantities here are, but has the unit {unit}.")
    try:
        array = np.asarray(as_numpy(values))
        # Of a list that mixes them with numbers, numpy makes numbers of truth values.
        objects = array.flat if array.dtype == object else values if isinstance(values, list | tuple) else ()
        no_numbers = (str, bytes, bool, np.bool_, NoneType)
        if array.dtype.kind in "bcmMSUV" or any(isinstance(entry, no_numbers) for entry in objects):
            raise TypeError
        numbers = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        refuse(f"Argument `{name}` must be an array of real numbers, but is {shown(values)}.", error=TypeError)
    large = array[np.abs(numbers) >= 2**53] if array.dtype.kind in "iu" else ()
    lost = next((integer for integer in large if int(float(integer)) != int(integer)), None)
    require(lost is None, f"Argument `{name}` must hold numbers that float64 holds, but has {lost}.")
    return numbers


def _unit_of(values: object) -> object:
    """Return the unit of an array of pint, astropy or xarray, None if it has none.

    Labels and columns called `unit` are attributes of what xarray and pandas make, whose units are in `attrs`.
    """
    attributes = getattr(values, "attrs", None)
    if isinstance(attributes, Mapping):
        return attributes.get("units", attributes.get("unit"))
    return getattr(values, "units", getattr(values, "unit", None))


def real_column(values: object, name: str) -> Array:
    """Return values as `real_array` does; a table of pandas with one column gives that column, shape (n,)."""
    column = real_array(values, name)
    return column[:, 0] if hasattr(values, "columns") and column.shape[1:] == (1,) else column


def as_scalar(value: object) -> object:
    """Return a number of numpy, or an array without dimensions, as a number of Python; any other value as it is.

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
