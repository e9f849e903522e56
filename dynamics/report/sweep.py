"""What a sweep shows: how its points ended, their losses, and emergence along the first axis that is a number.

Knows the layout of a merged sweep; nothing of what its study computes beyond `time`, `loss` and `emergence_time`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import COLOURS, plain_log_ticks
from dynamics.report.findings import Drawing, Findings, Table, Tone, drawing_of, new_axes
from dynamics.report.tables import spread_rows

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["sweep_findings"]

#: Factor spanned by the values of an axis beyond which it is logarithmic.
LONG = 10.0
#: Points that are listed, and curves that are drawn.
MOST_POINTS, MOST_CURVES = 48, 12


def sweep_findings(dataset: xr.Dataset) -> Findings:
    """Return what a sweep over a grid shows."""
    axes: list[str] = list(json.loads(dataset.attrs["sweep"])["axes"])
    grid = dataset.stack(point=axes, create_index=False)
    count = grid.sizes["point"]
    failed, early = int((grid["failure"].values != "").sum()), _early(grid)
    shown = spread_rows(count, MOST_POINTS)
    points = [grid.isel(point=at) for at in shown]
    note = f"Shown: {len(shown)} of {count} points." if len(shown) < count else ""
    return Findings(
        tone=Tone.CAUTION if failed or early else Tone.GOOD,
        verdict=f"{count - failed} of {count} points were answered." + (f" {failed} failed." if failed else ""),
        cautions=early,
        tables=[Table(caption="Points", rows=[_row(point, axes) for point in points], note=note)],
        drawings=[*_losses(points, axes), *_emergence(dataset, axes)],
    )


def _early(grid: xr.Dataset) -> list[str]:
    """Say how many points did not reach their end."""
    if "stop_reason" not in grid:
        return []
    reasons, counts = np.unique(grid["stop_reason"].values.astype(str), return_counts=True)
    return [
        f"{count} points ended early ({reason.replace('_', ' ')})."
        for reason, count in zip(reasons.tolist(), counts.tolist(), strict=True)
        if reason not in ("", "reached_end", "steady_state")
    ]


def _row(point: xr.Dataset, axes: list[str]) -> dict[str, Any]:
    row = {name.replace("_", " "): point[name].values.item() for name in axes}
    ended = str(point["stop_reason"].values) if "stop_reason" in point else "answered"
    row["outcome"] = str(point["failure"].values) or ended.replace("_", " ")
    if "loss" in point:
        _, loss = _curve(point)
        row["last loss"] = float(loss[-1]) if loss.size else None
    if "emergence_time" in point:
        times = point["emergence_time"].values
        row["emerged"] = f"{int(np.isfinite(times).sum())} of {times.size}"
    return row


def _curve(point: xr.Dataset) -> tuple[Array, Array]:
    """Return time and loss of a point where both are known, the median over runs if there are several."""
    time = point["time"].values.astype(np.float64)
    loss = point["loss"].transpose(..., *point["time"].dims).values.astype(np.float64).reshape(-1, time.size)
    known = np.isfinite(time) & np.isfinite(loss).any(axis=0)
    return time[known], np.nanmedian(loss[:, known], axis=0)


def _losses(points: list[xr.Dataset], axes: list[str]) -> list[Drawing]:
    from matplotlib import colormaps

    if "loss" not in points[0] or points[0]["time"].ndim != 1:
        return []
    drawn = [points[at] for at in spread_rows(len(points), MOST_CURVES)]
    ax = new_axes()
    varied = [name for name in axes if len({str(point[name].values) for point in drawn}) > 1]
    for point, colour in zip(drawn, colormaps[COLOURS](np.linspace(0.0, 0.9, len(drawn))), strict=True):
        time, loss = _curve(point)
        shown = (time > 0) & (loss > 0)
        ax.loglog(time[shown], loss[shown], color=colour, lw=1.3, label=_label(point, varied))
    ax.set_xlabel("flow time t")
    ax.set_ylabel("loss E(f − f*)²")
    plain_log_ticks(ax)
    ax.legend(frameon=False, fontsize="x-small")
    caption = f"Loss against flow time at {len(drawn)} points of the grid."
    return [drawing_of(ax, caption, "The last losses are in the table above.")]


def _emergence(dataset: xr.Dataset, axes: list[str]) -> list[Drawing]:
    """Draw the time of the first direction along the first axis of several numbers, one line per other choice."""
    along = [name for name in axes if dataset.sizes[name] > 1 and np.issubdtype(dataset[name].dtype, np.number)]
    if not along or "emergence_time" not in dataset or "direction" not in dataset["emergence_time"].dims:
        return []
    name = along[0]
    rest = [other for other in axes if other != name]
    first = dataset["emergence_time"].isel(direction=0).transpose(*axes, ...)
    # One number per point: the median over its runs, of which those without emergence are the latest.
    runs = [dim for dim in first.dims if dim not in axes]
    first = first.fillna(np.inf).median(runs)
    first = first.where(np.isfinite(first))
    if first.isnull().all():
        return []
    lines = first.stack(line=rest, create_index=False) if rest else first.expand_dims("line")
    varied = [other for other in rest if dataset.sizes[other] > 1]
    chosen = spread_rows(lines.sizes["line"], MOST_CURVES)
    ax = new_axes()
    for at in chosen:
        line = lines.isel(line=at)
        ax.plot(line[name].values, line.values, "o-", ms=4, lw=1.0, label=_label(line, varied))
    ax.set_yscale("log")
    _scale(ax, dataset[name].values)
    ax.set_xlabel(name.replace("_", " "))
    ax.set_ylabel("emergence time of direction 1")
    plain_log_ticks(ax)
    if varied:
        ax.legend(frameon=False, fontsize="x-small")
    caption = f"Emergence time of direction 1 along {name.replace('_', ' ')}, by the rest of the grid."
    return [drawing_of(ax, caption, f"Lines: {len(chosen)}.")]


def _scale(ax: Axes, values: Array) -> None:
    """Give an axis over values of the grid the scale and the ticks that fit them."""
    from matplotlib.ticker import MaxNLocator

    if values.min() > 0 and values.max() >= LONG * values.min():
        ax.set_xscale("log")
    elif np.issubdtype(values.dtype, np.integer):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _label(place: xr.Dataset | xr.DataArray, names: list[str]) -> str:
    """Return where in the grid a curve belongs."""
    values = {name: place[name].values.item() for name in names}
    return ", ".join(
        f"{name} = {f'{value:.4g}' if isinstance(value, float) else value}" for name, value in values.items()
    )
