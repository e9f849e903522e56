"""Calls of compiled functions from Python: a kernel, which has no wrapper for Python, ends the process."""

import functools

import numba

from dynamics.kernels import units
from dynamics.kernels.cache import is_interpreted
from dynamics.kernels.options import OPTIONS


@functools.cache
def from_python(function, *choices):
    """Return a kernel or a unit as a function that Python calls; `choices` are the units that it chooses."""
    if is_interpreted():
        return function
    made = units.unit_of(function)
    source = function.py_func if made is None else made.function
    units.prepare(source)
    units.make_choices(choices)
    return numba.njit(**OPTIONS)(source)
