"""First upward crossings of quantities that are seen one instant at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hermite.arrays import Array


class CrossingTracker:
    """Remember, for every entry of an array, when it first reached its threshold.

    Between two looks the quantity is taken as linear in log time (in time from a look at time 0). An entry that is past
    its threshold at the first look crossed at that look's time. NaN never crosses. Thresholds broadcast with values of
    the shape; `time` is that of the first crossing, NaN where there was none.

    Examples
    --------
    >>> tracker = CrossingTracker(np.array(0.5), (1,))
    >>> for t, value in [(1.0, 0.0), (100.0, 1.0)]:
    ...     tracker.look(t, np.array([value]))
    >>> tracker.time.round(6).tolist()
    [10.0]
    """

    def __init__(self, threshold: Array, shape: tuple[int, ...]) -> None:
        self.time: Array = np.full(shape, np.nan)
        self._threshold = np.broadcast_to(threshold, shape)
        self._last: tuple[float, Array] | None = None

    def look(self, time: float, values: Array) -> None:
        """Take the values at a later time than the last look."""
        new = np.isnan(self.time) & (values >= self._threshold)
        if new.any() and self._last is None:
            self.time[new] = time
        elif new.any() and self._last is not None:
            before, old = self._last
            fraction = (self._threshold[new] - old[new]) / (values[new] - old[new])
            self.time[new] = before * (time / before) ** fraction if before > 0 else fraction * time
        self._last = (time, values.copy())

    def state(self) -> dict[str, Array]:
        """Return all that later looks depend on."""
        before, values = (np.nan, np.full(self.time.shape, np.nan)) if self._last is None else self._last
        return {"time": self.time.copy(), "last_time": np.array(before), "last_values": values.copy()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from arrays that `state` returned."""
        self.time[...] = state["time"]
        before, values = float(state["last_time"]), np.array(state["last_values"], dtype=np.float64)
        self._last = None if np.isnan(before) else (before, values)
