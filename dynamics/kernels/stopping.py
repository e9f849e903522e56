"""How compiled code learns between two evaluations that a step is given up: from a slot behind the sizes of a system.

Methods look before each call of a function of the system, and so do the few functions that take longer than seconds.
"""

from __future__ import annotations

import numpy as np

from dynamics.kernels.jit import kernel
from dynamics.threads import STOP
from hermite.arrays import Integers


def with_slot(sizes: Integers) -> Integers:
    """Return the sizes of a system with the slot behind them; it holds 0, and STOP once the step is given up."""
    return np.append(sizes, 0)


@kernel
def is_stopped(sizes: Integers) -> bool:
    """Return whether the step is given up, so that its results are not used; `sizes` are those of `with_slot`."""
    return bool(sizes[sizes.size - 1] == STOP)
