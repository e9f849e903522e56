"""Checks of every recorded state while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.runs.result import StopReason

if TYPE_CHECKING:
    from dynamics.runs.records import Records

#: Violations in units of `rtol` beyond which a run is wrong rather than inaccurate. Overlaps that are integrated drift
#: from those of vectors by far more than the error of a step, so the margin has more room.
TOLERATED, TOLERATED_MARGIN = 1e4, 1e6
OVERLAPS = ("teacher_overlap", "max_overlap", "alpha", "projection")
#: Bound on the error of the means from which on a series stands for another link.
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

    def __call__(self, records: Records) -> StopReason | None:
        """Check the last record, beside the one before, in those of the quantities that it holds."""
        record, slack = records[-1], TOLERATED * self.rtol + 1e-9
        if any(np.max(np.abs(record[name]), initial=0.0) > 1.0 + slack for name in OVERLAPS if name in record):
            return StopReason.OVERLAP_ABOVE_ONE
        smallest = min((float(np.min(record[name], initial=1.0)) for name in MASSES if name in record), default=1.0)
        if smallest < 0.0 or (smallest == 0.0 and not self.dies):
            return StopReason.NORM_NOT_POSITIVE
        if record.get("gram_margin", 0.0) < -TOLERATED_MARGIN * self.rtol - 1e-9:
            return StopReason.NOT_REALISABLE
        if reason := outgrown(record.get("series_error", 0.0)):
            return reason
        if self.falls and len(records) > 1 and record["loss"] - records[-2]["loss"] > slack * self.scale:
            return StopReason.LOSS_ROSE
        return None


def outgrown(series_error: float) -> StopReason | None:
    """Return why a run must stop whose means have this bound on their error, if it must."""
    return None if series_error <= LARGEST_SERIES_ERROR else StopReason.SERIES_TOO_SHORT
