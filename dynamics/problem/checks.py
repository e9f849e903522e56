"""Checks of single arguments: numbers, lists of them, choices, switches, and sizes that must fit into memory.

Each returns the value that was given, converted, or raises one sentence that names the argument.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Set
from itertools import pairwise
from pathlib import Path
from typing import Any

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


def check_that(holds: object, name: str, need: str, but: str) -> None:
    """Raise ValueError about an argument, its requirement and its value, unless a condition holds."""
    require(holds, f"Argument `{name}` must {need}, but {but}.")


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
    """Raise TypeError unless an argument is of a kind, in words `what`."""
    require(isinstance(value, kind), f"Argument `{name}` must be {what}, but is {shown(value)}.", TypeError)


def checked_real(value: object, name: str) -> float:
    """Return a real number as a float, infinite beyond the largest float."""
    value = as_scalar(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        refuse(f"Argument `{name}` must be a real number, but is {shown(value)}.", TypeError)
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
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        need, given = "positive" if positive else "at least 0", shown(value) if isinstance(value, int) else number
        refuse(f"Argument `{name}` must be finite and {need}, but is {given}.")
    require(is_at_most(number, maximum), f"Argument `{name}` must be at most {maximum:g}, but is {number}.")
    return min(number, maximum)


def checked_tolerances(rtol: object, atol: object) -> tuple[float, float]:
    """Return the tolerances of a solver as floats that float64 can honour."""
    relative, absolute = checked_number(rtol, "rtol", positive=True), checked_number(atol, "atol", positive=True)
    check_that(SMALLEST_RTOL <= relative < 1, "rtol", f"be at least {SMALLEST_RTOL:g} and below 1", f"is {relative}")
    return relative, absolute


def checked_integer(value: object, name: str, *, minimum: int, maximum: int = LARGEST_INTEGER) -> int:
    """Return `value` as an int within bounds; accept numpy integers and floats like 1e6, refuse bool and fractions."""
    number = as_integer(value)
    if number is None:
        refuse(f"Argument `{name}` must be an integer, but is {shown(value)}.", TypeError)
    if not minimum <= number <= maximum:
        bound = f"at least {minimum}" if number < minimum else f"at most {maximum}"
        refuse(f"Argument `{name}` must be {bound}, but is {shown(number)}.")
    return number


def checked_list(values: object, name: str) -> list[object]:
    """Return a list, tuple, range, column or other array as a list; refuse single values and unordered ones."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping, Set)):
        refuse(f"Argument `{name}` must be a list of numbers, but is {shown(values)}.", TypeError)
    if not hasattr(values, "shape"):
        return list(values)
    found = real_column(values, name)  # a table of one column would give its name
    require(found.ndim == 1, f"Argument `{name}` must be a list of numbers, but has shape {found.shape}.")
    return list(found.tolist())


def checked_increasing(values: object, name: str, *, minimum: int, fewest: int = 2) -> list[int]:
    """Return a list of increasing integers, of which there must be at least `fewest`."""
    numbers = [checked_integer(value, name, minimum=minimum) for value in checked_list(values, name)]
    if len(numbers) < fewest or any(b <= a for a, b in pairwise(numbers)):
        many = f"at least {fewest} " if fewest > 1 else ""
        refuse(f"Argument `{name}` must hold {many}increasing integers, but is {shown(numbers)}.")
    return numbers


def checked_integers(values: Any, name: str, wanted: str) -> tuple[int, ...]:
    """Return a sequence of integers of at least 0; the sentence of refusal names `wanted`."""
    try:
        return tuple(checked_integer(value, name, minimum=0) for value in values)
    except TypeError:
        refuse(f"Argument `{name}` must be {wanted}, but is {shown(values)}.", TypeError)


def checked_seeds(seeds: object) -> tuple[int, ...]:
    """Return the seeds of a number of runs, or those given."""
    if isinstance(seeds, bool) or as_integer(seeds) is not None:
        return tuple(range(checked_integer(seeds, "seeds", minimum=1, maximum=MOST_RUNS)))
    chosen = checked_integers(seeds, "seeds", "a number of runs or a sequence of integers")
    require(chosen, "Argument `seeds` must name at least one seed, but is empty.")
    is_distinct = len(set(chosen)) == len(chosen)
    check_that(is_distinct, "seeds", "be distinct, since equal seeds give equal runs", "has repetitions")
    check_that(max(chosen) <= LARGEST_SEED, "seeds", "stay below 2^32", f"has {max(chosen)}")
    return chosen


def check_entries(
    name: str, values: Array, good: NDArray[np.bool_], need: str, but: str = "entry {} of {} is {:g}"
) -> None:
    """Raise ValueError by the first of the entries that is not good: its number, that of all, and its value."""
    if not good.all():
        at = int(np.argmin(good))
        refuse(f"Argument `{name}` must {need}, but {but.format(at + 1, good.size, values[at])}.")


def float_vector(values: ArrayLike, name: str, count: int, what: str) -> Array:
    """Return one finite number for each of `count` things, in words `what`; read-only."""
    found = real_column(values, name)
    if found.shape != (count,) or not np.isfinite(found).all():
        refuse(f"Argument `{name}` must hold one finite number for each of {count} {what}, but is {shown(values)}.")
    return read_only(found)


def read_only(values: ArrayLike) -> Array:
    """Return a read-only float64 copy, so that frozen values really are frozen."""
    array: Array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def checked_link(value: object, name: str, order: int | None = None) -> HermiteExpansion:
    """Return the expansion of a link, or raise what `hermite.expand` has against it under the argument's own name."""
    try:
        return expand(value, order=order)
    except (TypeError, ValueError) as error:
        refuse(renamed(str(error), {"x": f"`{name}`"}), type(error))


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise one sentence with the menu unless `value` is on it."""
    if not isinstance(value, str) or value not in choices:
        refuse(not_a_choice(f"Argument `{name}`", value, choices))


def check_switch(name: str, value: object, *, optional: bool = False) -> None:
    """Raise one sentence unless `value` is True or False, or None where this is allowed."""
    if not (isinstance(value, (bool, np.bool_)) or (optional and value is None)):
        menu = "True, False or None" if optional else "True or False"
        refuse(f"Argument `{name}` must be {menu}, but is {shown(value)}.", TypeError)


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
    """Return about how many numbers the coupled flow holds: the method's arrays, and the records of each saved time.

    `full` says whether that are all overlaps, or a summary; a flow on inputs that are not isotropic moves the
    components on so many `axes`.
    """
    overlaps = width * (directions + width + 1)
    state = overlaps if axes is None else width * (axes + 1)
    return ARRAYS_OF_FLOW * state + times * (overlaps if full else 2 * directions + width)


class Frozen:
    """A value whose slots are set once, by `_set`; a subclass names them in `__slots__`."""

    __slots__: tuple[str, ...] = ()

    def _set(self, **values: Any) -> None:
        """Set the slots, those that are not named to None."""
        for name in self.__slots__:
            object.__setattr__(self, name, values.get(name))

    def __setattr__(self, name: str, value: object) -> None:
        refuse(f"{type(self).__name__} is frozen: make a new one instead of setting `{name}`.", AttributeError)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        self._set(**state)
