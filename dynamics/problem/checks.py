"""Checks of single arguments: numbers, lists of them, choices, switches, and sizes that must fit into memory.

Each returns the value that was given, converted, or raises one sentence that names the argument.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hermite import HermiteExpansion, expand
from hermite.arrays import Array, as_integer, as_scalar, real_column
from hermite.text import messages
from hermite.text.messages import not_a_choice, refuse, renamed, shown

#: Condition, sentence and kind of an error, ValueError by default, which is raised unless the condition holds.
require = messages.require
#: Largest integer that arrays and files hold.
LARGEST_INTEGER = 2**63 - 1
#: More runs of one kind than a study could ever end.
MOST_RUNS = 10**6
#: Seeds of samples are words of four bytes.
LARGEST_SEED = 2**32 - 1
#: Relative tolerance below which rounding of float64 shows.
SMALLEST_RTOL = 1e-14
#: File in which Linux has the bytes that the processes of a container may take together, or "max".
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
#: Bytes of memory that are assumed if the system does not tell.
UNKNOWN_MEMORY = 2**36
#: Rounding of a computed number that a bound tolerates, in shares of the numbers that it is computed from.
ROUNDING = 8.0 * float(np.finfo(np.float64).eps)
#: Numbers for which no machine is asked how much memory it has.
SURELY_FIT = 1 << 18
#: Arrays of the size of the state that the method with the most, "explicit", holds.
ARRAYS_OF_FLOW = 60


def first_false(holds: NDArray[np.bool_]) -> int | None:
    """Return the place of the first False, None where there is none.

    >>> first_false(np.array([True, False])), first_false(np.array([True]))
    (1, None)
    """
    return None if holds.all() else int(np.argmin(holds))


def is_at_most(value: float, bound: float, scale: float = 0.0) -> bool:
    """Return whether a computed number is at most a bound, up to the rounding of float64.

    `scale` is the largest number that it is computed from, by default the bound.

    >>> is_at_most(0.1 + 0.2, 0.3), is_at_most((1.0 - (1.0 - 5e-6)) * 1e6, 5.0, 1e6), is_at_most(0.3001, 0.3)
    (True, True, False)
    """
    return bool(value <= bound + ROUNDING * max(abs(bound), scale))


def is_same(value: float, other: float) -> bool:
    """Return whether two computed numbers are equal up to the rounding of float64."""
    return is_at_most(value, other) and is_at_most(other, value)


def check_type(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Raise TypeError unless an argument is an instance of `kind`, which the message calls `what`."""
    require(isinstance(value, kind), f"Argument `{name}` must be {what}, but is {shown(value)}.", error=TypeError)


def checked_real(value: object, name: str) -> float:
    """Return a real number as a float, infinite beyond the largest float."""
    value = as_scalar(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        refuse(f"Argument `{name}` must be a real number, but is {shown(value)}.", error=TypeError)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def share_of_limit(text: str) -> float | None:
    """Return the share of the limit of stability that text such as "0.1x" is, None for any other text."""
    try:
        share = float(text[:-1]) if text.endswith("x") else 0.0
    except ValueError:
        return None
    return share if 0.0 < share < math.inf else None


def checked_number(value: object, name: str, *, positive: bool, maximum: float = math.inf) -> float:
    """Return `value` as a finite float, positive or at least 0, and at most `maximum`, which rounding may pass."""
    number = checked_real(value, name)
    if not 0 <= number < math.inf or (positive and number == 0):
        text = shown(value) if isinstance(value, int) else str(number)  # the float of a large int is infinite
        if positive:
            refuse(f"Argument `{name}` must be finite and positive, but is {text}.")
        refuse(f"Argument `{name}` must be finite and at least 0, but is {text}.")
    require(is_at_most(number, maximum), f"Argument `{name}` must be at most {maximum:g}, but is {number}.")
    return min(number, maximum)


def checked_tolerances(rtol: object, atol: object) -> tuple[float, float]:
    """Return the tolerances of a solver as floats that float64 can honour."""
    relative, absolute = checked_number(rtol, "rtol", positive=True), checked_number(atol, "atol", positive=True)
    require(
        SMALLEST_RTOL <= relative < 1,
        f"Argument `rtol` must be at least {SMALLEST_RTOL:g} and below 1, but is {relative}.",
    )
    return relative, absolute


def checked_integer(value: object, name: str, *, minimum: int, maximum: int = LARGEST_INTEGER) -> int:
    """Return `value` as an int within bounds; accept numpy integers and floats like 1e6, refuse bool and fractions."""
    number = as_integer(value)
    if number is None:
        refuse(f"Argument `{name}` must be an integer, but is {shown(value)}.", error=TypeError)
    if number < minimum:
        refuse(f"Argument `{name}` must be at least {minimum}, but is {shown(number)}.")
    if number > maximum:
        refuse(f"Argument `{name}` must be at most {maximum}, but is {shown(number)}.")
    return number


def checked_list(values: object, name: str) -> list[object]:
    """Return a list, tuple, range, column or other array as a list; refuse single values and unordered ones."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping, Set)):
        refuse(f"Argument `{name}` must be a list of numbers, but is {shown(values)}.", error=TypeError)
    if not hasattr(values, "shape"):
        return list(values)
    column = real_column(values, name)  # a table of one column would give its name
    require(column.ndim == 1, f"Argument `{name}` must be a list of numbers, but has shape {column.shape}.")
    return list(column.tolist())


def checked_increasing(values: object, name: str, *, minimum: int, fewest: int = 2) -> list[int]:
    """Return a list of increasing integers, of which there must be at least `fewest`."""
    numbers = [checked_integer(value, name, minimum=minimum) for value in checked_list(values, name)]
    if len(numbers) >= fewest and all(a < b for a, b in pairwise(numbers)):
        return numbers
    if fewest > 1:
        refuse(f"Argument `{name}` must hold at least {fewest} increasing integers, but is {shown(numbers)}.")
    return refuse(f"Argument `{name}` must hold increasing integers, but is {shown(numbers)}.")


def checked_integers(values: Any, name: str, wanted: str) -> tuple[int, ...]:
    """Return integers of at least 0 as a tuple; TypeError for any other value says that it must be `wanted`."""
    try:
        return tuple(checked_integer(value, name, minimum=0) for value in values)
    except TypeError:
        refuse(f"Argument `{name}` must be {wanted}, but is {shown(values)}.", error=TypeError)


def checked_seeds(seeds: object) -> tuple[int, ...]:
    """Return the seeds 0 to n − 1 for a number n of runs, or a given sequence of distinct seeds."""
    if isinstance(seeds, bool) or as_integer(seeds) is not None:
        return tuple(range(checked_integer(seeds, "seeds", minimum=1, maximum=MOST_RUNS)))
    chosen = checked_integers(seeds, "seeds", "a number of runs or a sequence of integers")
    require(chosen, "Argument `seeds` must name at least one seed, but is empty.")
    require(
        len(set(chosen)) == len(chosen),
        "Argument `seeds` must be distinct, since equal seeds give equal runs, but has repetitions.",
    )
    require(max(chosen) <= LARGEST_SEED, f"Argument `seeds` must stay below 2^32, but has {max(chosen)}.")
    return chosen


def float_vector(values: ArrayLike, name: str, count: int, what: str) -> Array:
    """Return a read-only array of `count` finite numbers, one for each neuron, unit or group as `what` names them."""
    vector = real_column(values, name)
    if vector.shape != (count,) or not np.isfinite(vector).all():
        refuse(f"Argument `{name}` must hold one finite number for each of {count} {what}, but is {shown(values)}.")
    return read_only(vector)


def read_only(values: ArrayLike) -> Array:
    """Return a read-only float64 copy, so that frozen values really are frozen."""
    array: Array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def checked_link(value: object, name: str, order: int | None = None) -> HermiteExpansion:
    """Return the expansion of a link; an error of `hermite.expand` is raised under the name of the argument."""
    try:
        return expand(value, order=order)
    except (TypeError, ValueError) as error:
        refuse(renamed(str(error), {"x": f"`{name}`"}), type(error))


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ValueError, which lists the choices, unless `value` is one of them."""
    if not isinstance(value, str) or value not in choices:
        refuse(not_a_choice(f"Argument `{name}`", value, choices))


def check_switch(name: str, value: object, *, optional: bool = False) -> None:
    """Raise TypeError unless `value` is True or False, or None where this is allowed."""
    if isinstance(value, (bool, np.bool_)) or (optional and value is None):
        return
    if optional:
        refuse(f"Argument `{name}` must be True, False or None, but is {shown(value)}.", error=TypeError)
    refuse(f"Argument `{name}` must be True or False, but is {shown(value)}.", error=TypeError)


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container that this process runs in."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # sysconf is of POSIX, and may not know the name
        physical = UNKNOWN_MEMORY
    try:
        return min(physical, int(CONTAINER_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return physical


def check_memory(name: str, value: object, numbers: float) -> None:
    """Raise ValueError if an argument asks for more numbers of eight bytes at once than the memory can hold."""
    if not numbers <= SURELY_FIT and not 8 * numbers <= machine_memory():
        size = f"{8e-9 * min(numbers, 1e300):.3g} GB"
        refuse(f"Argument `{name}` must leave room in memory, but {shown(value)} takes {size}, more than there is.")


def flow_numbers(width: int, directions: int, *, full: bool, times: int, axes: int | None = None) -> int:
    """Return an estimate of the count of numbers that the coupled flow holds: arrays of the method, and saved records.

    With `full` each of the saved `times` keeps all overlaps, otherwise a summary. `axes` is the number of axes of
    inputs that are not isotropic, whose flow moves the components of neurons on them.
    """
    overlaps = width * (directions + width + 1)
    state = overlaps if axes is None else width * (axes + 1)
    return ARRAYS_OF_FLOW * state + times * (overlaps if full else 2 * directions + width)


#: An object of JSON as a file holds it; who reads one knows its shape.
JsonObject: TypeAlias = dict[str, Any]


def field_values(value: object) -> dict[str, Any]:
    """Return the values of the fields of a dataclass by name, not copied, as `dataclasses.asdict` would."""
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]  # a dataclass


class Frozen:
    """A value with slots that are set once, by `_set`; a subclass names them in `__slots__`."""

    __slots__: tuple[str, ...] = ()

    def _set(self, **values: object) -> None:
        """Set every slot, to None where no value is passed."""
        for name in self.__slots__:
            object.__setattr__(self, name, values.get(name))

    def __setattr__(self, name: str, value: object) -> None:
        refuse(f"{type(self).__name__} is frozen: make a new one instead of setting `{name}`.", error=AttributeError)

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: dict[str, object]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        self._set(**state)
