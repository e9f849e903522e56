"""What is timed of a direction, in words: that a neuron finds it, or that the span of a frame has half of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import xarray as xr


class Event(NamedTuple):
    """What sentences and figures call the event."""

    noun: str
    verb: str
    past: str


EMERGENCE, ALIGNMENT = Event("emergence", "emerge", "emerged"), Event("alignment", "align", "aligned")


def event_of(dataset: xr.Dataset) -> Event:
    """Return what the times of a simulation or a prediction are of."""
    return ALIGNMENT if "alignment" in dataset else EMERGENCE
