"""An interruption of a run, heard between two steps and in the middle of a long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.runs.result import StopReason
from dynamics.runs.trackers import Tracker
from dynamics.threads.stopping import is_interrupted

if TYPE_CHECKING:
    from dynamics.runs.trackers import RunView


class Interrupts(Tracker):
    """Stops a run whose caller was interrupted, or whose command is to end (`is_interrupted`)."""

    patient = True

    def check(self, view: RunView) -> StopReason | None:  # noqa: ARG002
        """Stop if the run is to end."""
        return StopReason.INTERRUPTED if is_interrupted() else None

    urgent = check
