"""What a run leaves: its records, why it ended, what it cost, and the arrays from which it can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dynamics.runs.records import Records
from hermite.arrays import Array


class StopReason(StrEnum):
    """Why a run ended; every member carries one sentence of advice."""

    REACHED_END = "reached_end"
    STEADY_STATE = "steady_state"
    MAX_RUNTIME = "max_runtime"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    STEP_TOO_SMALL = "step_too_small"
    NOT_FINITE = "not_finite"
    OVERLAP_ABOVE_ONE = "overlap_above_one"
    NORM_NOT_POSITIVE = "norm_not_positive"
    NOT_REALISABLE = "not_realisable"
    LOSS_ROSE = "loss_rose"
    SERIES_TOO_SHORT = "series_too_short"
    UNFINISHED = "unfinished"

    @property
    def advice(self) -> str:
        """One sentence on what happened and what to try."""
        return _ADVICE[self]

    @property
    def failed(self) -> bool:
        """Whether the numerics failed, rather than somebody asking for an end."""
        return self in {
            StopReason.STEP_TOO_SMALL,
            StopReason.NOT_FINITE,
            StopReason.OVERLAP_ABOVE_ONE,
            StopReason.NORM_NOT_POSITIVE,
            StopReason.NOT_REALISABLE,
            StopReason.LOSS_ROSE,
            StopReason.SERIES_TOO_SHORT,
        }

    @property
    def resumable(self) -> bool:
        """Whether the run was ended from outside, or has not ended, and could go on."""
        return self in {StopReason.MAX_RUNTIME, StopReason.CALLBACK, StopReason.INTERRUPTED, StopReason.UNFINISHED}


_ADVICE = {
    StopReason.REACHED_END: "Every requested time was reached.",
    StopReason.STEADY_STATE: "The state stopped moving before the last requested time.",
    StopReason.MAX_RUNTIME: "The wall-clock budget ran out; raise `max_runtime` or save fewer, earlier times.",
    StopReason.CALLBACK: "A callback asked to stop.",
    StopReason.INTERRUPTED: "The run was interrupted; times up to the interruption were kept.",
    StopReason.STEP_TOO_SMALL: (
        "The step size fell to rounding: the tolerance may be below what float64 can give (raise `rtol`), "
        "or the solution may blow up."
    ),
    StopReason.NOT_FINITE: "The state stopped being finite: the start may be too large, or the solution blows up.",
    StopReason.OVERLAP_ABOVE_ONE: (
        "An overlap of unit vectors left [-1, 1]: the errors have grown too large; lower `rtol`."
    ),
    StopReason.NORM_NOT_POSITIVE: (
        "A squared norm is no longer positive: a neuron has shrunk below the smallest number; save earlier times."
    ),
    StopReason.NOT_REALISABLE: (
        "No vectors have the computed overlaps any more: the errors have grown too large; lower `rtol`."
    ),
    StopReason.LOSS_ROSE: "The loss rose, which a gradient flow excludes: the errors are too large; lower `rtol`.",
    StopReason.SERIES_TOO_SHORT: (
        "A neuron has a length or a bias at which the series of its link is not accurate: start with smaller ones, "
        "save earlier times, or take a link with closed means, such as 'erf', 'relu' or a polynomial."
    ),
    StopReason.UNFINISHED: "The run had not ended when this was written; times until then were kept.",
}


@dataclass
class RunResult:
    """What a run leaves: one record per saved time that was reached, why it ended, and what it cost.

    `intact` says whether the stepper stands at the end of a step, so that it can be continued.
    """

    records: Records = field(default_factory=lambda: Records(0))
    stop_reason: StopReason = StopReason.UNFINISHED
    end_time: float = 0.0
    event_times: Array = field(default_factory=lambda: np.empty(0))
    solve_seconds: float = 0.0
    tracker_seconds: float = 0.0
    statistics: dict[str, int] = field(default_factory=dict)
    intact: bool = True


@dataclass(frozen=True)
class Snapshot:
    """A run between two steps: what it has given so far, and the arrays from which its stepper goes on.

    `state` is None for a method that cannot be continued.
    """

    result: RunResult
    state: Mapping[str, NDArray[np.generic]] | None
