"""The compiled functions of a system, called from Python as methods call them."""

from __future__ import annotations

import numpy as np

from dynamics.compiler.compilation import Piece, kernel_pieces, load
from dynamics.compiler.stopping import with_slot
from dynamics.integrators.methods import load_method
from dynamics.integrators.stepper import EVENT_VALUES, NORMALISE, RHS

#: The Jacobian's product and diagonal, called by address.
CALLS = """
from dynamics.compiler.compilation import entry

@entry("void(i8, f8[::1], f8[::1], f8[::1], Tuple((i8[::1], f8[::1], i8[::1], f8[::1])))")
def jacobian(which, y, v, out, system):
    if which == 0:
        jacobian_product(0.0, y, v, out, system)
    else:
        jacobian_diagonal(0.0, y, out, system)
"""


class Kernels:
    """The functions of one system; scratch holds nothing at first.

    They are compiled as for a method, so that tests of kernels and of answers share what is compiled: with a Jacobian
    for "bdf", without for "explicit".
    """

    def __init__(self, system, method="explicit"):
        self.system = system
        compiled = load_method(method, system.pieces)
        self._bound = (compiled.functions(), system.parameters, with_slot(system.sizes))
        here = "dynamics.integrators"
        names = (f"{here}.{name}" for name in ("slots", "system_calls", "evaluation_kernels"))
        calls = (*kernel_pieces(*names), Piece("calls", CALLS))
        self._names = load(calls).namespace
        self.state = system.initial_state

    def _with_scratch(self):
        return (*self._bound, np.full(self.system.work_size, np.nan))

    def evaluate(self, which, state=None, size=None):
        state = self.state if state is None else state
        out = np.full(state.size if size is None else size, np.nan)
        self._names.evaluate(which, 0.0, state, out, self._with_scratch())
        return out

    def rhs(self, state=None):
        return self.evaluate(RHS, state)

    def events(self, state=None):
        return self.evaluate(EVENT_VALUES, state, self.system.num_events)

    def normalised(self, state):
        out = state.copy()
        self._names.evaluate(NORMALISE, 0.0, state, out, self._with_scratch())
        return out

    def product(self, state, direction):
        return self._jacobian(0, state, direction)

    def diagonal(self, state=None):
        state = self.state if state is None else state
        return self._jacobian(1, state, state)

    def _jacobian(self, which, state, direction):
        out = np.full(state.size, np.nan)
        self._names.jacobian(which, state, direction, out, self._with_scratch())
        return out
