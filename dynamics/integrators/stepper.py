"""The protocol of steppers, their tolerances, and the checks that they share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from hermite.arrays import Array

# Returned by a compiled method to have the time of an event found; never seen outside.
EVENT_PASSED = 4


class Status(IntEnum):
    """Why `Stepper.advance` returned."""

    REACHED = 0
    MAX_STEPS = 1
    STEP_TOO_SMALL = 2
    NOT_FINITE = 3


class Stepper(Protocol):
    """Takes steps of a system until a time is reached, and gives the state within the last step."""

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        ...

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        ...

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        ...

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step."""
        ...

    def derivative(self, t: float) -> Array:
        """Return y' at a time within the last step."""
        ...

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations."""
        ...

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit.

        While `advance` takes a single step in another thread, they are those before it.
        """
        ...

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays that `state` returned."""
        ...


class LeapingStepper(Stepper, Protocol):
    """A stepper that can go through many saved times in one call."""

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        ...


def leaping(stepper: Any) -> LeapingStepper | None:
    """Return a stepper that can do so now, as its attribute `leaps` says, None for any other."""
    return stepper if getattr(stepper, "leaps", False) else None


def end_threads(stepper: Any) -> None:
    """End the threads of a stepper, if it has any."""
    close = getattr(stepper, "close", None)
    if close is not None:
        close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """What controls the steps: tolerances per component, or a forced length (0: adaptive) and order (0: chosen)."""

    rtol: float
    atol: float | Array  # or one per component, (n,)
    fixed_step: float = 0.0
    largest_step: float = np.inf
    fixed_order: int = 0

    def __post_init__(self) -> None:
        for name in ("rtol", "largest_step"):
            value = getattr(self, name)
            if not value > 0.0:
                msg = f"Argument `{name}` must be positive, but is {value}."
                raise ValueError(msg)
        if not np.all(np.asarray(self.atol) > 0.0):
            msg = f"Argument `atol` must be positive, but has minimum {np.min(self.atol)}."
            raise ValueError(msg)
        if not self.fixed_step >= 0.0:
            msg = f"Argument `fixed_step` must be at least 0, but is {self.fixed_step}."
            raise ValueError(msg)
        if not 0 <= self.fixed_order <= 5:
            msg = f"Argument `fixed_order` must be between 0 and 5, but is {self.fixed_order}."
            raise ValueError(msg)

    def absolute(self, size: int) -> Array:
        """Return the absolute tolerance as one number per component."""
        atol = np.asarray(self.atol, dtype=np.float64)
        if atol.ndim > 0 and atol.shape != (size,):
            msg = f"Argument `atol` must be a number or have shape (n,) = ({size},), but has shape {atol.shape}."
            raise ValueError(msg)
        return np.ascontiguousarray(np.broadcast_to(atol, (size,))).copy()


def check_vector(values: ArrayLike, name: str, dtype: type[np.float64 | np.int64]) -> NDArray[np.generic]:
    """Return a contiguous one-dimensional copy, refusing other shapes."""
    array: NDArray[np.generic] = np.array(values, dtype=dtype, order="C")
    if array.ndim != 1:
        msg = f"Argument `{name}` must have one dimension, but has shape {array.shape}."
        raise ValueError(msg)
    return array


def check_inside(t: float, start: float, end: float) -> None:
    """Refuse a time outside the last step."""
    if not start <= t <= end:
        msg = f"Argument `t` must be within the last step [{start}, {end}], but is {t}."
        raise ValueError(msg)


def check_stored(state: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> None:
    """Refuse a stored state that lacks an array or holds one of another shape."""
    given = np.shape(state[name]) if name in state else None
    if given != shape:
        msg = f"Argument `state` must hold `{name}` of shape {shape}, but has {given}."
        raise ValueError(msg)
