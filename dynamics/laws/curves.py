"""Curves of a loss over time as somebody saved them: thinned, over their plateau, and the times at which they fall."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from dynamics.runs.storage import load_answer
from hermite.arrays import Array
from hermite.text.messages import refuse, require, shown

#: Shares of the plateau at which times are read.
LEVELS = np.array(
    [0.85, 0.78, 0.71, 0.64, 0.57, 0.5, 0.44, 0.38, 0.33, 0.28, 0.23, 0.19, 0.15, 0.115, 0.085, 0.055, 0.03]
)
FEWEST_LEVELS = 6
#: Points of a thinned curve, and how much earlier than the first level they begin, as a factor.
MOST_POINTS, EARLIER = 160, 30.0
#: Fewest points of the plateau, which ends at this part of the time of the first level.
FEWEST_PLATEAU, PLATEAU_END = 3, 0.5
#: A level is reached if the curve ends at this part of it or below.
REACHED = 0.95
#: Part of the plateau after which a curve is left out.
DEEPEST = 0.01
#: Losses below this part of the largest are none.
LEAST_LOSS = 1e-12
#: Factor by which times are continued beyond the last, for curves that fall later.
BEYOND = 30.0


class LossCurve(NamedTuple):
    """A loss (T,) at increasing times (T,), in units of the user, with width and dimension, NaN if not known."""

    name: str
    time: Array
    loss: Array
    width: float
    dimension: float
    #: Name of its start, which other curves may share.
    start: str


class Reading(NamedTuple):
    """A thinned curve: ln t and ln of the loss over its plateau (N,), plateau, noise, ln t at the levels reached."""

    log_time: Array
    log_loss: Array
    plateau: float
    #: Standard deviation of ln L around a smooth curve.
    noise: float
    #: Number of points before the end of the plateau.
    flat: int
    #: The loss over the plateau at the end of the whole curve, of which points after `DEEPEST` are left out.
    lowest: float
    #: ln t at the first levels (R,).
    crossing: Array

    @property
    def middle(self) -> float:
        """The logarithm of the time at the middle level."""
        return float(self.crossing[reference(self.crossing.size)])


def read_curve(curve: LossCurve) -> Reading:
    """Return the reading of a curve; raise ValueError without a plateau at the start or with too few levels."""
    name, time, loss = curve.name, curve.time, curve.loss
    top = float(np.median(loss[:FEWEST_PLATEAU]))
    for _ in range(2):
        first = np.flatnonzero(fallen(np.log(loss)) <= np.log(LEVELS[0] * top))
        require(
            first.size,
            f"Curve {name} must fall below {LEVELS[0]:g} of its plateau, {top:.3g}, but ends at {loss[-1] / top:.3g} "
            "of it.",
        )
        end = PLATEAU_END * time[first[0]]
        flat = int(np.count_nonzero(time <= end))
        require(
            flat >= FEWEST_PLATEAU and end > 0.0,
            f"Curve {name} must begin with a plateau, {FEWEST_PLATEAU} times or more up to half the time at which it "
            f"has fallen to {LEVELS[0]:g} of it, but has {flat}.",
        )
        top = float(np.median(loss[:flat]))
    logs = np.log(loss / top)
    lowest = float(np.exp(fallen(logs)[-1]))
    used = np.append(True, fallen(logs)[:-1] > np.log(DEEPEST))
    x, y = _thinned(np.log(np.maximum(time, 2.0 * end / EARLIER))[used], logs[used])
    flat = int(np.count_nonzero(x <= np.log(end)))
    require(
        flat >= FEWEST_PLATEAU,
        f"Curve {name} must begin with a plateau, {FEWEST_PLATEAU} times or more between 1/{EARLIER:g} and half of the "
        f"time at which it has fallen to {LEVELS[0]:g} of it, but has {flat}.",
    )
    bends = y[:-2] - 2.0 * y[1:-1] + y[2:]
    noise = float(np.median(np.abs(bends)) / 0.6745 / np.sqrt(6.0)) if bends.size else 0.0
    y -= np.median(y[:flat])
    reached = int(np.count_nonzero(np.exp(fallen(y)[-1]) <= REACHED * LEVELS))
    require(
        reached >= FEWEST_LEVELS,
        f"Curve {name} must fall to {LEVELS[FEWEST_LEVELS - 1]:g} of its plateau, so that {FEWEST_LEVELS} levels are "
        f"reached, but reaches {reached}: it ends at {np.exp(fallen(y)[-1]):.3g} of it.",
    )
    return Reading(x, y, top, noise, flat, lowest, crossings(x, y, reached))


def fallen(y: Array) -> Array:
    """Return the non-increasing curve (N,) nearest to y (N,) by least squares."""
    from scipy.optimize import isotonic_regression

    if np.all(y[1:] <= y[:-1]):
        return y
    return np.asarray(isotonic_regression(y, increasing=False).x)


def crossings(x: Array, y: Array, count: int) -> Array:
    """Return x at which y, ln of a loss over its plateau, has fallen to the first `count` levels, shape (count,)."""
    return np.asarray(np.interp(-np.log(LEVELS[:count]), -fallen(y), x))


def _thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """Return means of x and y over equal intervals of x, of which empty ones are left out."""
    width = max(float(x[-1] - x[0]), 1e-9) / MOST_POINTS
    place = np.minimum(((x - x[0]) / width).astype(int), MOST_POINTS - 1)
    count = np.bincount(place)
    used = count > 0
    return np.bincount(place, x)[used] / count[used], np.bincount(place, y)[used] / count[used]


def as_saved(reading: Reading, log_time: Array, log_loss: Array, rng: np.random.Generator) -> Reading:
    """Return the reading of another curve, saved and disturbed as that of `reading` was.

    `log_time` and `log_loss` (T,) are ln t and ln of the loss over its plateau. The curve is shifted in ln t so that
    both are at the middle level at one time, and then read with the same noise, at the same times and at later ones.
    """
    count = reading.crossing.size
    middle = reference(count)
    shift = float(crossings(log_time, log_loss, middle + 1)[-1] - reading.crossing[middle])
    x = reading.log_time
    step = max(float(x[-1] - x[0]) / x.size, np.log(BEYOND) / MOST_POINTS)
    later = np.append(x, x[-1] + np.arange(step, np.log(BEYOND), step))
    y = np.interp(later + shift, log_time, log_loss) + reading.noise * rng.standard_normal(later.size)
    y -= np.median(y[: reading.flat])
    end = float(np.exp(fallen(y[: x.size])[-1]))
    return Reading(x + shift, y[: x.size], 1.0, reading.noise, reading.flat, end, crossings(later + shift, y, count))


def reference(count: int) -> int:
    """Return the place of the middle one of `count` levels, by which curves are laid on each other."""
    return count // 2


def shortened(reading: Reading, cut: float) -> Reading | None:
    """Return the reading of a curve up to ln t = `cut`, None if that reaches too few levels."""
    x, y = reading.log_time, reading.log_loss
    kept = x <= cut
    count = int(np.count_nonzero(np.exp(fallen(y[kept])[-1]) <= REACHED * LEVELS))
    if count < FEWEST_LEVELS:
        return None
    lowest = float(np.exp(fallen(y[kept])[-1]))
    crossing = crossings(x[kept], y[kept], count)
    return reading._replace(log_time=x[kept], log_loss=y[kept], lowest=lowest, crossing=crossing)


class Skills(NamedTuple):
    """Times of skills (P,): when each is half learned, or when the first of those that are not was last seen."""

    name: Array
    time: Array
    reached: Array


def read_table(table: Any, dimension: float) -> list[LossCurve] | Skills:
    """Return the curves, or the times of skills, of a table; raise ValueError for another one."""
    columns = _columns(table)
    require(
        all(np.size(column) for column in columns.values()),
        f"Argument `curves` must have rows, but has columns {', '.join(columns)} alone.",
    )
    if "skill" in columns:
        return _skills(columns)
    require(
        "loss" in columns and ("time" in columns or "step" in columns),
        f"Argument `curves` must have columns loss and time (or step), but has {', '.join(columns) or 'none'}.",
    )
    loss, time = _numbers(columns, "loss"), _numbers(columns, "time" if "time" in columns else "step")
    width, d = (
        _numbers(columns, name) if name in columns else np.full(loss.size, default)
        for name, default in (("width", np.nan), ("dimension", dimension))
    )
    require(
        "dimension" not in columns or not dimension > 0.0,
        "Argument `dimension` must be absent where the table has a column dimension, but is given.",
    )
    for name, column, least in (("width", width, 1.0), ("dimension", d, 2.0)):
        require(
            not (column < least).any() and not np.isinf(column).any(),
            f"Column {name} of argument `curves` must hold finite numbers from {least:g} on, or none where it is not "
            f"known, but holds {np.nanmin(column) if (column < least).any() else np.inf:g}.",
        )
    rate = _numbers(columns, "learning_rate") if "learning_rate" in columns and "time" not in columns else None
    require(
        rate is None or bool((np.isfinite(rate) & (rate >= 0.0)).all()),
        "Column learning_rate of argument `curves` must hold finite numbers of 0 or more, but does not.",
    )
    names = [str(name) for name in columns["curve"]] if "curve" in columns else [""] * loss.size
    starts = [str(name) for name in columns["start"]] if "start" in columns else [""] * loss.size
    labels = list(zip(names, width.tolist(), d.tolist(), starts, strict=True))
    keys = list(dict.fromkeys(map(str, labels)))
    place = np.array([keys.index(str(label)) for label in labels])
    curves = []
    for at in range(len(keys)):
        rows = np.flatnonzero((place == at) & np.isfinite(time) & np.isfinite(loss))
        rows = rows[np.argsort(time[rows], kind="stable")]
        name, m, of_d, start = labels[np.flatnonzero(place == at)[0]]
        name = name or str(at + 1)
        times = time[rows] if rate is None else _summed(time[rows], rate[rows])
        require(rows.size, f"Curve {name} must have finite losses at finite times, but has none.")
        least = float(loss[rows].min())
        require(least >= 0.0, f"Curve {name} must have losses of 0 or more, but its least loss is {least:g}.")
        require(times[0] >= 0.0, f"Curve {name} must have times of 0 or later, but begins at {times[0]:g}.")
        require(times[-1] > 0.0, f"Curve {name} must have times after 0, but has none.")
        curves.append(
            LossCurve(name, times, np.maximum(loss[rows], LEAST_LOSS * loss[rows].max()), m, of_d, start or name)
        )
    return curves


def _summed(step: Array, rate: Array) -> Array:
    """Return the sum of learning rates (T,) up to every step (T,), by trapezoids between saved steps."""
    pieces = 0.5 * (rate[1:] + rate[:-1]) * np.diff(step)
    return np.append(rate[0] * step[0], rate[0] * step[0] + np.cumsum(pieces))


def _skills(columns: dict[str, Any]) -> Skills:
    """Return times of skills from columns skill and time, with reached, loss or accuracy."""
    require("time" in columns, "Argument `curves` must have a column time beside skill, but has none.")
    time = _numbers(columns, "time")
    labels = np.array([str(name) for name in columns["skill"]])
    names = np.array(list(dict.fromkeys(labels.tolist())))
    kind = next((name for name in ("loss", "accuracy") if name in columns), "")
    times, reached = np.zeros(names.size), np.zeros(names.size, dtype=bool)
    values = _numbers(columns, kind) if kind else np.ones(time.size)
    done = _numbers(columns, "reached") > 0.0 if "reached" in columns else np.ones(time.size, dtype=bool)
    for column, numbers in (("time", time), (kind, values)):
        require(
            bool(np.isfinite(numbers).all()),
            f"Column {column} of argument `curves` must hold finite numbers beside skill, but does not.",
        )
    most = 1.0 if kind == "accuracy" else np.inf
    require(
        not kind or bool(((values >= 0.0) & (values <= most)).all()),
        f"Column {kind} of argument `curves` must hold numbers from 0 to {most:g}, but holds "
        f"{values.min():g} to {values.max():g}.",
    )
    for at, name in enumerate(names):
        rows = np.flatnonzero(labels == name)
        rows = rows[np.argsort(time[rows], kind="stable")]
        if not kind:
            require(rows.size == 1, f"Skill {name} must have one time without loss or accuracy, but has {rows.size}.")
            times[at], reached[at] = time[rows[0]], done[rows[0]]
            continue
        share = _progress(values[rows], rising=kind == "accuracy")
        after = np.flatnonzero(share >= 0.5)
        reached[at] = bool(after.size and after[0] > 0)
        times[at] = np.interp(0.5, share, time[rows]) if reached[at] else time[rows[-1]]
    require((times > 0.0).all(), f"Times of skills must be positive, but the least is {times.min():g}.")
    end = times[~reached].min(initial=np.inf)
    return Skills(names, np.minimum(times, end), reached & (times < end))


def _progress(value: Array, *, rising: bool) -> Array:
    """Return how far a skill is learned at every time: 0 at the first value, 1 at full accuracy or no loss."""
    smooth = -fallen(-value) if rising else fallen(value)
    first, last = float(smooth[0]), 1.0 if rising else 0.0
    return (smooth - first) / (last - first) if first != last else np.zeros_like(smooth)


def _columns(table: Any) -> dict[str, Any]:
    """Return the columns of a table by name: of a file, of a dataset with a loss, or of a mapping."""
    if isinstance(table, str | PathLike):
        path = Path(table)
        require(path.is_file(), f"Argument `curves` must name a file, but is {shown(str(path))}.")
        return _columns(load_answer(path)) if path.suffix == ".nc" else _columns_of_csv(path)
    if isinstance(table, xr.Dataset):
        return _columns_of_dataset(table)
    require(
        isinstance(table, Mapping),
        f"Argument `curves` must be a dataset, columns or a path, but is of type {type(table).__name__}.",
        TypeError,
    )
    columns = {str(name): np.atleast_1d(np.asarray(column)) for name, column in table.items()}
    sizes = {column.shape for column in columns.values()}
    require(len(sizes) <= 1, f"Columns of argument `curves` must have one length, but have shapes {sizes}.")
    return columns


def _columns_of_csv(path: Path) -> dict[str, Any]:
    """Return the columns of a CSV by the names in its first line."""
    import pandas as pd

    try:
        rows = pd.read_csv(path, skipinitialspace=True)
    except ValueError as error:  # those of pandas, and of text that is not in UTF-8, are such too
        reason = " ".join(str(error).split())
        refuse(
            f"Argument `curves` must name a CSV with columns below their names, but {shown(str(path))} is none "
            f"({reason})."
        )
    return {str(name).strip(): rows[name].to_numpy() for name in rows}


def _columns_of_dataset(dataset: xr.Dataset) -> dict[str, Any]:
    """Return a row for each entry of a loss over time or step; other dims than width and dimension name the curve."""
    require("loss" in dataset, "Argument `curves` must have a variable `loss`, but the dataset has none.")
    axis = "time" if "time" in dataset.coords or "time" in dataset else "step"
    loss = dataset["loss"]
    require(axis in dataset.variables, "Argument `curves` must have a loss over time or step, but has neither.")
    parameters = json.loads(dataset.attrs.get("parameters", "{}"))
    problem = parameters.get("problem", {})
    columns: dict[str, Any] = {"loss": loss, axis: dataset[axis]}
    extra = [str(dim) for dim in loss.dims if dim not in (axis, "time", "step", "time_index", "width", "dimension")]
    for name in ("width", "dimension"):
        value = dataset[name] if name in dataset.variables else problem.get(name)
        if value is not None:
            columns[name] = xr.DataArray(value)
    broadcast = dict(zip(columns, xr.broadcast(*columns.values()), strict=True))
    table = {name: column.values.ravel() for name, column in broadcast.items()}
    # Seeds of samples share the start; those of the problem, in a sweep, are starts.
    solver = parameters.get("solver", {})
    share_start = solver.get("answer") == "simulation" and solver.get("starts") is None
    of_samples = ("point_seed", "seed") if share_start else ("point_seed",)
    for name, dims in (("curve", extra), ("start", [dim for dim in extra if dim not in of_samples])):
        shape = broadcast["loss"]
        labels = [xr.broadcast(dataset[dim], shape)[0].transpose(*shape.dims).values.ravel() for dim in dims]
        if labels:
            table[name] = np.array([" ".join(map(str, label)) for label in zip(*labels, strict=True)])
        elif extra:
            table[name] = np.full(shape.size, "1")
    return table


def _numbers(columns: dict[str, Any], name: str) -> Array:
    """Return a column of numbers."""
    try:
        return np.asarray(columns[name], dtype=np.float64)
    except (TypeError, ValueError):
        refuse(f"Column {name} of argument `curves` must hold numbers, but holds {shown(columns[name][:3])}.")
