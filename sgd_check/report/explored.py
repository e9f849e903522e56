"""Curves of theory that the reader of a page explores, each with the times of theory and of the runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dynamics.report import AXES, COMPONENTS, MASSES, PREDICTED_TIME, PROGRESS, explored, renamed
from hermite.text.messages import with_error
from sgd_check.report.comparison import median_over_runs, rows
from sgd_check.verdicts.alignment import of_sound_runs, tell_alike
from sgd_check.verdicts.mean_field import THEORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import xarray as xr

    from dynamics.report import Chart
    from hermite.arrays import Array

_PREDICTED, _MEASURED = "predicted at t =", "SGD, median t ="
#: What a curve of overlaps says -> the name of its value in a record of a direction.
_FACTS = {
    "direction": "direction",
    "a_p =": "teacher_coefficient",
    PREDICTED_TIME: "predicted",
    _MEASURED: "sgd_median",
    "ratio": "ratio",
}
#: The same of an axis of a network's teacher.
_OF_AXES = {"axis": "direction", _PREDICTED: "predicted", _MEASURED: "sgd_median", "ratio": "ratio"}


def explored_check(tree: xr.DataTree) -> Callable[[], Chart] | None:
    """Return what gives the curves that theory expects of SGD, with the times of both; None without."""
    prediction, comparison = tree["prediction"].to_dataset(), tree["comparison"].to_dataset()
    if "component" in prediction:
        runs = of_sound_runs(tree["simulation"].to_dataset(), "component_learned_time")
        names = {"component": "component_name", "f* =": "teacher_component", _PREDICTED: "component_learned_time"}
        told = _told(prediction, names, {_MEASURED: median_over_runs(runs)})
        return explored(prediction, told, COMPONENTS, _PREDICTED)
    if comparison.attrs["theory"] == THEORY:
        wide = list(tree["simulation"].children.values())[-1].to_dataset()
        measured = {}
        if tell_alike("learned_time", (prediction, wide)):
            times = median_over_runs(of_sound_runs(wide, "learned_time"))
            measured[f"SGD of width {wide.sizes['neuron']}, median t ="] = times
        names = {"direction": "direction", "a_p =": "teacher_coefficient", _PREDICTED: "learned_time"}
        return explored(prediction, _told(prediction, names, measured), MASSES, _PREDICTED)
    if "emergence_ratio" not in comparison or "seed" in prediction.dims:
        return None
    records = [{**row, "ratio": _ratio(row)} for row in rows(tree)]
    if "teacher_coefficient" not in comparison:
        return explored(prediction, renamed(records, _OF_AXES), AXES, _PREDICTED)
    return explored(prediction, renamed(records, _FACTS))


def explored_tokens(prediction: xr.Dataset, simulation: xr.Dataset) -> Callable[[], Chart] | None:
    """Return what gives the predicted progress of every component, with the times of prediction and of runs."""
    names = {"component": "component", _PREDICTED: "learned_time"}
    measured = {"runs, median t =": median_over_runs(simulation["learned_time"].values)}
    return explored(prediction, _told(prediction, names, measured), PROGRESS, _PREDICTED)


def _told(dataset: xr.Dataset, names: Mapping[str, str], measured: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Return what is said of every curve: variables of theory under the words for them, and measured times."""
    columns = {word: dataset[name].values for word, name in names.items()} | dict(measured)
    return [
        dict(zip(columns, row, strict=True)) for row in zip(*(each.tolist() for each in columns.values()), strict=True)
    ]


def _ratio(row: Mapping[str, Any]) -> str:
    """Return the ratio of the times of SGD to those of theory, with its error."""
    return with_error(*(math.nan if row[name] is None else row[name] for name in ("ratio", "standard_error")))
