"""What is timed of a direction, in words: a neuron finds it, neurons carry it, or the span of a frame has half."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import xarray as xr


class Event(NamedTuple):
    """What sentences and figures call the event, and the variable that has its time."""

    noun: str
    verb: str
    past: str
    present: str
    variable: str


EMERGENCE = Event("emergence", "emerge", "emerged", "emerges", "emergence_time")
ALIGNMENT = Event("alignment", "align", "aligned", "aligns", "emergence_time")
LEARNING = Event("learning", "be learned", "learned it", "is learned", "learned_time")


def event_of(dataset: xr.Dataset) -> Event:
    """Return what the times of a simulation or a prediction are of."""
    return ALIGNMENT if "alignment" in dataset else EMERGENCE
