"""How much memory this machine has, and the refusal of what cannot fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermite.text.messages import shown

if TYPE_CHECKING:
    from dynamics.problem.problem import Problem

#: Where Linux says what the processes of a container may take together, "max" for no limit.
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
#: Assumed where the system does not say what it has.
UNKNOWN_MEMORY = 2**36
#: Numbers for which no machine is asked how much memory it has.
SURELY_FIT = 1 << 18
#: What a message tells apart from more.
MOST_NUMBERS = 1e300
#: Arrays of the size of the state that a method holds.
ARRAYS_OF_FLOW = 30


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
    """Raise ValueError if an argument asks for more numbers of eight bytes at once than the memory can hold.

    Examples
    --------
    >>> check_memory("width", 10**9, 1e30)
    Traceback (most recent call last):
    ...
    ValueError: Argument `width` must leave room in memory, but 1000000000 takes 8e+21 GB, more than there is.
    """
    if not numbers <= SURELY_FIT and not 8 * numbers <= machine_memory():
        gigabytes = 8e-9 * min(numbers, MOST_NUMBERS)
        msg = (
            f"Argument `{name}` must leave room in memory, but {shown(value)} takes {gigabytes:.3g} GB, "
            "more than there is."
        )
        raise ValueError(msg)


def flow_numbers(width: int, directions: int, *, full: bool, times: int) -> int:
    """Return about how many numbers the coupled flow holds: the method's arrays, and overlaps at every saved time.

    `full` says whether all overlaps are kept, or a summary.

    Examples
    --------
    >>> flow_numbers(2, 3, full=False, times=10)
    440
    """
    state = width * (directions + width + 1)
    return ARRAYS_OF_FLOW * state + times * (state if full else 2 * directions + width)


def check_flow_memory(problem: Problem, *, keep: str, times: int) -> None:
    """Raise ValueError if the coupled flow of a problem does not fit into memory, by its width."""
    numbers = flow_numbers(problem.width, problem.num_directions, full=keep == "full", times=times)
    check_memory("width", problem.width, numbers)
