"""What is learned over time as curves that the reader of a page explores: each says what it is and its times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.chart import Chart, Curve
from dynamics.report.figures.flows import HISTORIES, squared_overlap
from dynamics.report.figures.networks import component_ratio, squared_axis_overlap
from dynamics.report.findings import spread_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr

    from hermite.arrays import Array

#: Curves that a page has room for, and what is left free above and below them, as a part of their range.
MOST_CURVES, ROOM = 64, 0.04
#: What a curve calls the time that is marked.
PREDICTED_TIME = "predicted T_p ="


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What curves show of a family of answers."""

    title: str
    y: str
    #: One of these variables must be there.
    variables: tuple[str, ...]
    #: (dataset) -> values (time, curve), 1 where all is learned.
    values: Callable[[xr.Dataset], Array]
    x: str = "flow time t"


OVERLAPS = History(
    title="Largest squared overlap of a neuron with each direction",
    y="squared overlap C²",
    variables=HISTORIES,
    values=squared_overlap,
)
AXES = History(
    title="Largest squared overlap of a neuron with each axis of the teacher",
    y="squared overlap C²",
    variables=("max_overlap", "teacher_overlap"),
    values=squared_axis_overlap,
)
COMPONENTS = History(
    title="Components of the network over those of the teacher",
    y="component over the teacher's",
    variables=("component",),
    values=component_ratio,
)
ALIGNMENTS = History(
    title="Alignment of the span of the neurons with each direction",
    y="alignment",
    variables=("alignment",),
    values=lambda dataset: np.asarray(dataset["alignment"].values),
)
MASSES = History(
    title="Weight that the neurons carry of each direction",
    y="learned mass over a_p",
    variables=("learned_mass",),
    values=lambda dataset: np.asarray(dataset["learned_mass"].values / dataset["teacher_coefficient"].values),
)
PROGRESS = History(
    title="Progress of each component",
    y="progress",
    variables=("progress",),
    values=lambda dataset: np.asarray(dataset["progress"].values),
    x="time, η × steps",
)


def explored(
    dataset: xr.Dataset,
    told: Sequence[Mapping[str, Any]],
    history: History = OVERLAPS,
    marked: str = PREDICTED_TIME,
) -> Callable[[], Chart] | None:
    """Return what gives the curves of a history, each with what is `told` of it; None where a dataset has none.

    There are as many mappings in `told` as curves; each may hold the time to be marked below its curve, as `marked`.
    """
    told_of = [name for name in history.variables if name in dataset and "undefined" not in dataset[name].attrs]
    has_history = bool(told_of) and (dataset["time"].values > 0).sum() > 1
    return partial(_chart, dataset, told, history, marked) if has_history else None


def _chart(dataset: xr.Dataset, told: Sequence[Mapping[str, Any]], history: History, marked: str) -> Chart:
    later = dataset["time"].values > 0
    chosen = spread_rows(len(told), MOST_CURVES)
    shown = history.values(dataset)[later][:, chosen]
    curves = [
        Curve(values=shown[:, at], facts=told[p], predicted=float(told[p].get(marked) or "nan"))
        for at, p in enumerate(chosen)
    ]
    known = shown[np.isfinite(shown)]
    low, high = float(known.min(initial=0.0)), float(known.max(initial=1.0))
    room = ROOM * (high - low)
    return Chart(
        title=history.title,
        x=history.x,
        y=history.y,
        time=dataset["time"].values[later],
        limits=(low - room, high + room),
        curves=curves,
    )
