"""The compiled functions of a system, called from Python as methods call them."""

import numpy as np

from dynamics.integrators.system_calls import BoundSystem


class Kernels:
    """The functions of one system; scratch holds nothing at first."""

    def __init__(self, system, method="explicit"):
        self.system, self._implicit = system, method == "bdf"
        self.state = system.initial_state

    def _bound(self):
        return BoundSystem(self.system, np.full(self.system.work_size, np.nan), implicit=self._implicit)

    def rhs(self, state=None):
        state = self.state if state is None else state
        out = np.full(state.size, np.nan)
        self._bound().rhs(0.0, state, out)
        return out

    def events(self, state=None):
        out = np.full(self.system.num_events, np.nan)
        self._bound().event_values(0.0, self.state if state is None else state, out)
        return out

    def normalised(self, state):
        out = state.copy()
        self._bound().normalise(out)
        return out

    def product(self, state, direction):
        out = np.full(state.size, np.nan)
        self._bound().jacobian_product(0.0, state, direction, out)
        return out

    def diagonal(self, state=None):
        state = self.state if state is None else state
        out = np.full(state.size, np.nan)
        self._bound().jacobian_diagonal(0.0, state, out)
        return out
