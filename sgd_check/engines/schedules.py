"""Learning rates that change with the step, as values with a name.

Any function of the step will do in their place; these are tabulated at once and say what they are in the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from dynamics.problem import checked_integer, checked_number
from hermite.arrays import Array, Integers
from hermite.text.messages import shown


@dataclass(frozen=True)
class Schedule:
    """Learning rate η of every step; made by `power_law_decay` and `piecewise`. Steps and rates are dimensionless.

    `name` is the call that makes it; `rates` turns steps as a float64 array to learning rates.
    """

    name: str
    rates: Callable[[Array], Array]

    def table(self, steps: int) -> Array:
        """Return η of the steps 0, …, steps − 1."""
        return self.rates(np.arange(steps, dtype=np.float64))

    def __call__(self, step: int) -> float:
        """Return η of one step."""
        return float(self.rates(np.array([step], dtype=np.float64))[0])

    def __repr__(self) -> str:
        return self.name


def power_law_decay(initial: float, exponent: float, *, onset: float = 1.0) -> Schedule:
    r"""Return the learning rate that is constant at first and then decays as a power of the step.

    .. math:: \eta_s = \eta_0\, (1 + s/s_0)^{-\gamma}

    Parameters
    ----------
    initial : float
        η_0 > 0, dimensionless.
    exponent : float
        γ ≥ 0.
    onset : float, default 1
        s_0 > 0, the step around which the decay sets in.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If one of them is no number, or out of range.

    Examples
    --------
    >>> power_law_decay(0.1, 0.5, onset=100)(300)
    0.05
    """
    start = checked_number(initial, "initial", positive=True)
    power = checked_number(exponent, "exponent", positive=False)
    after = checked_number(onset, "onset", positive=True)
    name = f"power_law_decay({start!r}, {power!r}, onset={after!r})"
    return Schedule(name, partial(_decayed, start, power, after))


def piecewise(rates: Sequence[float], boundaries: Sequence[int]) -> Schedule:
    """Return the learning rate that changes at given steps and is constant between them.

    Parameters
    ----------
    rates : sequence of float
        η_0, η_1, … > 0, dimensionless.
    boundaries : sequence of int
        Positive increasing steps, one fewer than rates: from boundaries[j] on the rate is rates[j + 1].

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If a rate is no positive number, or the boundaries do not increase or are not one fewer than the rates.

    Examples
    --------
    >>> piecewise([0.1, 0.01], [50]).table(100)[[49, 50]].tolist()
    [0.1, 0.01]
    """
    for name, given in (("rates", rates), ("boundaries", boundaries)):
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
            msg = f"Argument `{name}` must be a sequence of numbers, but is {shown(given)}."
            raise TypeError(msg)
    values = [checked_number(rate, "rates", positive=True) for rate in rates]
    edges = [checked_integer(edge, "boundaries", minimum=1) for edge in boundaries]
    if len(edges) != len(values) - 1:
        msg = f"Argument `boundaries` must have one entry fewer than the {len(values)} rates, but has {len(edges)}."
        raise ValueError(msg)
    if any(b <= a for a, b in pairwise(edges)):
        msg = f"Argument `boundaries` must increase, but is {edges}."
        raise ValueError(msg)
    return Schedule(f"piecewise({values}, {edges})", partial(_looked_up, np.array(values), np.array(edges)))


# Functions at the top level of a module, so that a schedule can be sent to another process.
def _decayed(initial: float, exponent: float, onset: float, steps: Array) -> Array:
    rates: Array = initial * (1.0 + steps / onset) ** -exponent
    return rates


def _looked_up(rates: Array, boundaries: Integers, steps: Array) -> Array:
    return rates[np.searchsorted(boundaries, steps, side="right")]
