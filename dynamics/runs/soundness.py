"""Checks of every recorded state while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.runs.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from dynamics.runs.result import Records
    from hermite.arrays import Array

#: Violations in units of `rtol` beyond which a run is wrong rather than inaccurate. Overlaps that are integrated drift
#: from those of vectors by far more than the error of a step, so the margin has more room.
TOLERATED, TOLERATED_MARGIN = 1e4, 1e6
OVERLAPS = ("teacher_overlap", "max_overlap", "alpha", "projection")
#: A series whose means may have a larger error than this stands for another link.
LARGEST_SERIES_ERROR = 1e-6
MASSES = ("squared_norm", "particle_mass")


@dataclass(frozen=True)
class Soundness:
    r"""What every record must satisfy; called, it says why a run must stop after a record, if it must.

    .. math:: |C_{ip}| \le 1, \quad n_i > 0, \quad G - C T^{-1} C^T \succeq 0, \quad
       E(f - f^*)^2 \text{ does not rise under a gradient flow}

    each up to a multiple of the tolerance; and a series that stands for a link must be accurate.
    """

    #: Accuracy that was asked for; 0 for a method without.
    rtol: float
    #: Size of a loss, such as E f*².
    scale: float
    #: Whether the loss may not rise: it may under steps of finite size.
    falls: bool
    #: Whether a squared norm may be 0: where n itself is integrated, not ln n, a neuron can shrink to nothing.
    dies: bool = False

    def __call__(self, records: Records, begin: int = -1) -> StopReason | None:
        """Check the records since number `begin`, by default the last; drop those that follow a wrong one."""
        begin, count = range(len(records))[begin], len(records)
        new = {name: column[begin:count] for name, column in records.columns.items()}
        rise = _rise(records.columns["loss"][max(begin - 1, 0) : count])[-len(new["loss"]) :] if self.falls else None
        wrong = [(int(np.argmax(found)), reason) for found, reason in self._found(new, rise) if found.any()]
        if not wrong:
            return None
        place, reason = min(wrong, key=lambda each: each[0])
        records.drop_after(begin + place + 1)
        return reason

    def holds(self, columns: Mapping[str, Array]) -> bool:
        """Return whether all records of a stack of runs are right, each observable of shape (runs, times, ...)."""
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in columns.items()}
        rise = _rise(columns["loss"]).ravel() if self.falls else None
        return not any(found.any() for found, _ in self._found(flat, rise))

    def _found(self, new: Mapping[str, Array], rise: Array | None) -> Iterator[tuple[NDArray[np.bool_], StopReason]]:
        """Yield for every reason which of the new records are wrong; the reason that says most comes first."""
        slack = TOLERATED * self.rtol + 1e-9
        for name in OVERLAPS:
            if name in new:
                yield _extreme(np.max, np.abs(new[name]), 0.0) > 1.0 + slack, StopReason.OVERLAP_ABOVE_ONE
        for name in MASSES:
            if name in new:
                least = _extreme(np.min, new[name], 1.0)
                yield (least < 0.0) | ((least == 0.0) & (not self.dies)), StopReason.NORM_NOT_POSITIVE
        if "gram_margin" in new:
            yield new["gram_margin"] < -TOLERATED_MARGIN * self.rtol - 1e-9, StopReason.NOT_REALISABLE
        if "series_error" in new:
            yield ~(new["series_error"] <= LARGEST_SERIES_ERROR), StopReason.SERIES_TOO_SHORT
        if rise is not None:
            yield rise > slack * self.scale, StopReason.LOSS_ROSE


def _rise(loss: Array) -> Array:
    """Return by how much the loss rose before each record of a run; before the first it did not."""
    rise = np.empty_like(loss)
    rise[..., 0] = -np.inf
    np.subtract(loss[..., 1:], loss[..., :-1], out=rise[..., 1:])
    return rise


def _extreme(of: Callable[..., Array], values: Array, initial: float) -> Array:
    """Return the largest or smallest number of every record."""
    return of(values.reshape(len(values), -1), axis=1, initial=initial)


def outgrown(series_error: float) -> StopReason | None:
    """Return why a run must stop whose means have this bound on their error, if it must."""
    return None if series_error <= LARGEST_SERIES_ERROR else StopReason.SERIES_TOO_SHORT
