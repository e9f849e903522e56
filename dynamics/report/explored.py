"""Overlaps over time as curves that the reader of a page explores: each says its direction and its times."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dynamics.report.chart import Chart, Curve
from dynamics.report.figures.flows import HISTORIES, squared_overlap
from dynamics.report.findings import spread_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr

#: Curves that a page has room for.
MOST_CURVES = 64
PREDICTED_TIME = "predicted T_p ="
#: What a curve says -> the name of its value in a record of a direction.
FACTS = {
    "direction": "direction",
    "a_p =": "teacher_coefficient",
    PREDICTED_TIME: "predicted_emergence_time",
    "emerged at t =": "emergence_time",
    "learned at t =": "learned_time",
}


def explored(
    dataset: xr.Dataset, records: Sequence[Mapping[str, Any]], facts: Mapping[str, str] = FACTS
) -> Callable[[], Chart] | None:
    """Return what gives the curves of `plot_emergence`, each with the facts of its record; None without a history.

    There is one record per direction; `facts` names what is said of it, its `PREDICTED_TIME` time, marked, among it.
    """
    has_history = any(name in dataset for name in HISTORIES) and (dataset["time"].values > 0).sum() > 1
    return partial(_chart, dataset, records, facts) if has_history else None


def _chart(dataset: xr.Dataset, records: Sequence[Mapping[str, Any]], facts: Mapping[str, str]) -> Chart:
    later = dataset["time"].values > 0
    squared, time = squared_overlap(dataset)[later], dataset["time"].values[later]
    curves = [
        Curve(
            values=squared[:, p],
            facts={word: records[p][name] for word, name in facts.items()},
            predicted=float(records[p][facts[PREDICTED_TIME]] or "nan"),
        )
        for p in spread_rows(len(records), MOST_CURVES)
    ]
    title = "Largest squared overlap of a neuron with each direction"
    return Chart(title=title, x="flow time t", y="squared overlap C²", time=time, limits=(-0.04, 1.04), curves=curves)
