"""Compiled Euler steps of any system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.integrators.shared_kernels import STATUS_EVENT, STATUS_NOT_FINITE, STATUS_REACHED, events_passed
from dynamics.integrators.system_calls import System, normalise, rhs
from dynamics.kernels.arrays import Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel

if TYPE_CHECKING:
    from collections.abc import Callable

# Products of two such numbers, as a loss has them, are still numbers.
LARGEST_NUMBER = 1e150


@kernel
def take_step(step: int, eta: float, states: Matrix, system: System) -> int:
    """Write y + η f(y), back on its constraints, into the free slot; return whether that is not finite."""
    y, new = states[step % 3], states[(step + 1) % 3]
    rhs(eta * step, y, new, system)
    for i in range(y.size):
        new[i] = y[i] + eta * new[i]
    normalise(new, system)
    largest = 0.0
    for i in range(y.size):
        # Written so that not-a-number is kept.
        largest = largest if abs(new[i]) <= largest else abs(new[i])
    return STATUS_REACHED if largest < LARGEST_NUMBER else STATUS_NOT_FINITE


@kernel
def take_steps(count: int, step: Integers, eta: float, states: Matrix, events: Matrix, system: System) -> int:
    """Take `count` steps, fewer if one blows up, which is then not taken, or passes an event."""
    for _ in range(count):
        if take_step(step[0], eta, states, system) != STATUS_REACHED:
            return STATUS_NOT_FINITE
        step[0] += 1
        if events_passed(eta * step[0], states[step[0] % 3], events, system):
            return STATUS_EVENT
    return STATUS_REACHED


@entry
def write_next(
    step: int,
    eta: float,
    states: Matrix,
    numbers: tuple[Vector, Integers, Vector],
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
) -> int:
    """Write the state after the next step into the free slot; return whether that is not finite."""
    return take_step(step, eta, states, (numbers[0], numbers[1], numbers[2], rhs, event_values, normalise))


@entry
def descend(
    count: int,
    step: Integers,
    eta: float,
    states: Matrix,
    events: Matrix,
    numbers: tuple[Vector, Integers, Vector],
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
) -> int:
    """Take steps as `take_steps` does; return its status."""
    return take_steps(
        count, step, eta, states, events, (numbers[0], numbers[1], numbers[2], rhs, event_values, normalise)
    )
