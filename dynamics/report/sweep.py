"""Sweeps: the end of each point, losses, and emergence along the first axis that is a number."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures import finish_panel, shades, spread_rows
from dynamics.report.findings import Drawing, Findings, Table, Tone, drawing_of
from dynamics.runs.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes

    from hermite.arrays import Array

#: Points that are listed, curves that are drawn, and failures and values of an axis that a terminal shows.
MOST_POINTS, MOST_CURVES, MOST_FAILURES, MOST_VALUES = 48, 12, 10, 8


def sweep_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on a sweep over a grid."""
    settings = json.loads(dataset.attrs["sweep"])
    labels: dict[str, list[object]] = settings["axes"]
    axes, reasons = list(labels), dataset["failure"].transpose(*labels).values
    count = reasons.size

    def place(at: int) -> dict[str, int]:
        return dict(zip(axes, map(int, np.unravel_index(at, reasons.shape)), strict=True))

    def words(at: int) -> str:
        return ", ".join(f"{name}={labels[name][k]}" for name, k in place(at).items())

    failed_at = np.flatnonzero(reasons.ravel() != "").tolist()
    failures = [{"point": words(at), "reason": str(reasons.flat[at])} for at in failed_at]
    variables = {str(name): list(map(str, array.dims[len(axes) :])) for name, array in dataset.data_vars.items()}
    # Point by point, so that nothing is read but the shown points.
    points = [dataset.isel(place(at)) for at in spread_rows(count, MOST_POINTS)]
    failed = [f"failed: {row['point']}: {row['reason']}" for row in failures[:MOST_FAILURES]]
    if len(failures) > MOST_FAILURES:
        failed.append(f"failed: {len(failures) - MOST_FAILURES} more; see the variable `failure`")
    early, unfinished = _early(dataset)
    ended = f"{count - len(failures)} of {count} points were answered."
    ended += f" {len(failures)} failed." if failures else ""
    note = f"Shown: {len(points)} of {count} points." if len(points) < count else ""
    drawn = [points[at] for at in spread_rows(len(points), MOST_CURVES)]
    caption = f"Loss against flow time at {len(drawn)} points of the grid."
    losses = []
    if _has_curve(points[0]):
        more = "The last losses are in the table above."
        losses = [drawing_of(_plot_losses, drawn, axes, caption=caption, more=more)]
    over = ", ".join(f"{name}({', '.join(dims)})" for name, dims in variables.items() if dims)
    return Findings(
        tone=Tone.CAUTION if failures or early else Tone.GOOD,
        verdict=f"Unfinished: {ended}" if unfinished else ended,
        cautions=early,
        tables=[
            Table(caption="Points", rows=[_row(point, axes) for point in points], note=note, in_words=failed),
            Table(caption="Grid", rows=[{"key": name, "values": _values(labels[name])} for name in axes]),
        ],
        drawings=[*losses, *_emergence(dataset, axes)],
        remarks=[f"study: {settings.get('study')}", f"variables, each over {', '.join(axes)}: {over}"],
        values={**settings, "points": count, "variables": variables, "failures": failures},
    )


def _values(labels: Sequence[object]) -> str:
    """Return the values of an axis, the first and the last of many."""
    shown = [f"{label:.6g}" if isinstance(label, float) else str(label) for label in labels]
    return ", ".join(shown if len(shown) <= MOST_VALUES else [*shown[:3], "...", f"{shown[-1]} ({len(shown)})"])


def _early(dataset: xr.Dataset) -> tuple[list[str], bool]:
    """Return sentences on the number of points that did not reach their end, and whether some can go on."""
    if "stop_reason" not in dataset:
        return [], False
    reasons, counts = np.unique(dataset["stop_reason"].values.astype(str), return_counts=True)
    sentences = [
        f"{count} points ended early ({reason.replace('_', ' ')})."
        for reason, count in zip(reasons.tolist(), counts.tolist(), strict=True)
        if reason not in ("", StopReason.REACHED_END, StopReason.STEADY_STATE)
    ]
    return sentences, any(reason in reasons for reason in StopReason if reason.resumable)


def _row(point: xr.Dataset, axes: Sequence[str]) -> dict[str, object]:
    """Return the row of a point: its axes, outcome, last loss, and number of emerged directions."""
    row = {name.replace("_", " "): point[name].values.item() for name in axes}
    ended = str(point["stop_reason"].values) if "stop_reason" in point else "answered"
    row["outcome"] = str(point["failure"].values) or ended.replace("_", " ")
    if _has_curve(point):
        _, loss = _curve(point)
        row["last loss"] = float(loss[-1]) if loss.size else None
    if "emergence_time" in point:
        times = point["emergence_time"].values
        row["emerged"] = f"{int(np.isfinite(times).sum())} of {times.size}"
    return row


def _has_curve(point: xr.Dataset) -> bool:
    """Return whether a point has a loss over its times; a study of the user's own may lack it."""
    has_both = "loss" in point and "time" in point and point["time"].ndim == 1
    return has_both and point["time"].dims[0] in point["loss"].dims


def _curve(point: xr.Dataset) -> tuple[Array, Array]:
    """Return the saved times and losses of a point, the median over runs if there are several."""
    time = point["time"].values.astype(np.float64)
    loss = point["loss"].transpose(..., *point["time"].dims).values.astype(np.float64).reshape(-1, time.size)
    is_saved = np.isfinite(time) & np.isfinite(loss).any(axis=0)
    # Losses below zero are rounding: a loss is a mean square.
    return time[is_saved], np.maximum(np.nanmedian(loss[:, is_saved], axis=0), 0.0)


def _plot_losses(points: Sequence[xr.Dataset], axes: Sequence[str], ax: Axes) -> None:
    """Draw the loss of every point against time."""
    varied = [name for name in axes if len({str(point[name].values) for point in points}) > 1]
    for point, colour in zip(points, shades(len(points), 0.9), strict=True):
        time, loss = _curve(point)
        shown = (time > 0) & (loss > 0)
        ax.loglog(time[shown], loss[shown], color=colour, lw=1.3, label=_label(point, varied))
    finish_panel(ax, "time", "loss")


def _emergence(dataset: xr.Dataset, axes: Sequence[str]) -> list[Drawing]:
    """Draw the time of the first direction along the first axis of several numbers, one line per other choice."""
    along = [name for name in axes if dataset.sizes[name] > 1 and np.issubdtype(dataset[name].dtype, np.number)]
    has_times = "emergence_time" in dataset and "direction" in dataset["emergence_time"].dims
    if not along or not has_times or "direction" in axes:
        return []
    name, rest = along[0], [axis for axis in axes if axis != along[0]]
    first = dataset["emergence_time"].isel(direction=0).transpose(*axes, ...)
    # One number per point: the median over its runs, among which those without emergence are the latest.
    first = first.fillna(np.inf).median([dim for dim in first.dims if dim not in axes])
    first = first.where(np.isfinite(first))
    if first.isnull().all():
        return []
    lines = first.stack(line=rest, create_index=False) if rest else first.expand_dims("line")
    shown = lines.isel(line=spread_rows(lines.sizes["line"], MOST_CURVES))
    caption = f"Emergence time of direction 1 along {name.replace('_', ' ')}, by the rest of the grid."
    varied = [axis for axis in rest if dataset.sizes[axis] > 1]
    more = f"Lines: {shown.sizes['line']}."
    return [drawing_of(_plot_emergence, shown, name, varied, caption=caption, more=more)]


def _plot_emergence(lines: xr.DataArray, name: str, varied: Sequence[str], ax: Axes) -> None:
    """Draw the first emergence time along one axis, one line for each choice of the others."""
    from matplotlib.ticker import MaxNLocator

    for line, colour in zip(lines.transpose("line", ...), shades(lines.sizes["line"], 0.9), strict=True):
        ax.plot(line[name].values, line.values, "o-", color=colour, ms=4, lw=1.0, label=_label(line, varied))
    ax.set_yscale("log")
    values = lines[name].values
    if values.min() > 0 and values.max() >= 10.0 * values.min():
        ax.set_xscale("log")
    elif np.issubdtype(values.dtype, np.integer):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish_panel(ax, "", "first_emergence_time")
    ax.set_xlabel(name.replace("_", " "))


def _label(place: xr.Dataset | xr.DataArray, names: Sequence[str]) -> str:
    """Return the coordinates `names` of a point of a sweep as text, such as "beta = 1, seed = 0"."""
    values = ((name, place[name].values.item()) for name in names)
    return ", ".join(f"{name} = {f'{value:.4g}' if isinstance(value, float) else value}" for name, value in values)
