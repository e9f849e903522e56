"""Kernels: their error by number of samples and by degree, and the same of drawn samples."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import figures
from dynamics.report.elements import cell_text
from dynamics.report.figures import MEASURED, PREDICTED, REFERENCE, finish_panel
from dynamics.report.findings import Findings, Table, drawing_of, records, rows_of, run_findings
from dynamics.solve.kernel import INPUTS_IN_WORDS

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

#: Curves of a flow that are drawn, one for each number of samples.
MOST_FLOWS = 6
#: Parts of the largest error below which curves are not drawn.
LEAST_DRAWN = 1e-4


def kernel_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `dynamics.predict_kernel` or `sgd_check.estimate_kernel`."""
    attrs, tables = dataset.attrs, list[Table]()
    is_drawn = "seed" in dataset.dims
    values: dict[str, Any] = {"answer": attrs["answer"], "title": attrs["title"], "kernel_link": attrs["kernel_link"]}
    names = ("kernel", "protocol", "inputs", "width", "ridge", "learning_rate", "kernel_trace", "lost_error")
    values |= {name: attrs.get(name) for name in (*names, "error_floor")}
    if "degree_samples" in dataset and np.isfinite(dataset["teacher_by_degree"]).any():
        columns = {"degree": "degree", "in teacher": "teacher_by_degree", "eigenvalue": "kernel_eigenvalue"}
        rows = rows_of(dataset, columns | {"half is left after": "degree_samples"})
        rows = [row for row in rows if row["in teacher"] > 0.0]
        note = "half is left after: samples until half of the degree's part of E f*² is left."
        tables.append(Table(caption="What the kernel learns by degree", rows=rows, note=note))
        values["degrees"] = rows
    if "samples_to_level" in dataset:
        values["levels"] = rows_of(dataset, {"level": "loss_level", "samples": "samples_to_level"})
    points = _points(dataset)
    tables.append(Table(caption="Error by number of samples", rows=points, each="points", errors={"error": "± s.e."}))
    values["points"] = points
    caption = "Error of the kernel on new inputs" + ("; dots are draws." if is_drawn else ", whole and by degree.")
    return run_findings(
        dataset,
        sentences=kernel_sentences(dataset),
        tables=tables,
        drawings=[drawing_of(plot_kernel, dataset, caption=caption)],
        values=values,
        overview=partial(figures.figure_of, plot_kernel, dataset),
    )


def kernel_sentences(dataset: xr.Dataset) -> list[str]:
    """Return sentences on the kernel and its inputs, on the samples to three levels, and on what is never learned."""
    attrs = dataset.attrs
    how = {
        "online": f"online steps at learning rate {attrs.get('learning_rate', math.nan):.3g}, one sample each",
        "ridge": f"ridge regression on n samples, ridge {attrs.get('ridge', math.nan):.3g}",
        "flow": "gradient flow on n samples",
    }[attrs["protocol"]]
    width = f", {attrs['width']} random features" if "width" in attrs else ""
    place = INPUTS_IN_WORDS[attrs["inputs"]]
    sentences = [f"Kernel '{attrs['kernel']}' of {attrs['kernel_link']}{width}, inputs {place}: {how}."]
    if "samples_to_level" in dataset:
        levels = zip(dataset["loss_level"].values.tolist(), dataset["samples_to_level"].values.tolist(), strict=True)
        told = "; ".join(f"{level:g}: {samples_text(count)}" for level, count in levels)
        sentences.append(f"Samples until a part of the error is left: {told}.")
    lost = float(attrs.get("lost_error", 0.0))
    if lost > 0.0:
        whole = float(dataset["teacher_by_degree"].sum()) if "teacher_by_degree" in dataset else math.nan
        sentences.append(f"The kernel does not see {lost:.3g} of E f*² = {whole:.4g}: this part is never learned.")
    return sentences


def samples_text(count: float) -> str:
    """Return a number of samples in words, "never" for infinitely many.

    >>> samples_text(16541543.7), samples_text(float("inf"))
    ('1.65e+07', 'never')
    """
    return "above 1e+18" if math.isnan(count) else "never" if math.isinf(count) else f"{count:.3g}"


def _points(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return rows of samples, time of a flow, and error; of drawn samples its mean and standard error over seeds."""
    error = _with_samples(dataset)["test_error"]
    dims = [name for name in ("samples", "time") if name in error.dims]
    places = np.meshgrid(*(error[name].values for name in dims), indexing="ij")
    columns: dict[str, object] = {name: place.ravel() for name, place in zip(dims, places, strict=True)}
    if "seed" not in error.dims:
        return records(columns | {"error": error.transpose(*dims).values.ravel()})
    runs = error.transpose("seed", *dims).values.reshape(error.sizes["seed"], -1)
    spread = np.nanstd(runs, axis=0, ddof=1) / len(runs) ** 0.5 if len(runs) > 1 else np.full(runs.shape[1], np.nan)
    return records(columns | {"error": np.nanmean(runs, axis=0), "± s.e.": spread})


def _with_samples(dataset: xr.Dataset) -> xr.Dataset:
    """Return a result whose errors have the dimension `samples`, also of a single number of samples."""
    if "samples" in dataset.dims:
        return dataset
    names = [name for name in ("test_error", "degree_error") if name in dataset]
    return dataset.drop_vars(names).assign({name: dataset[name].expand_dims("samples") for name in names})


def plot_kernel(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the error against the number of samples, or of a flow against time: whole, by degree, and of each draw."""
    is_flow, drawn = "time" in dataset["test_error"].dims, _with_samples(dataset)
    error, axis = drawn["test_error"], "time" if is_flow else "samples"
    x = drawn[axis].values
    order = np.argsort(x)
    if "seed" in error.dims:
        rows = error.transpose("seed", "samples", ...).values
        for place, n in enumerate(drawn["samples"].values.tolist()[:MOST_FLOWS] if is_flow else [None]):
            runs = rows[:, place] if is_flow else rows
            ax.plot(x[order], runs[:, order].T, ".", color=MEASURED, ms=4, alpha=0.3)
            label = "mean of the draws" if n is None else f"mean, $n = {n}$"
            ax.plot(x[order], np.nanmean(runs, axis=0)[order], "o-", color=MEASURED, lw=1.2, ms=4, label=label)
    elif is_flow:
        counts = drawn["samples"].values.tolist()
        chosen = figures.spread_rows(len(counts), MOST_FLOWS)
        for at, colour in zip(chosen, figures.shades(len(chosen), 0.8), strict=True):
            ax.plot(x, error.isel(samples=int(at)).values, color=colour, lw=1.8, label=f"$n = {counts[at]:,}$")
    else:
        ax.plot(x[order], error.values[order], "-o", color=PREDICTED, lw=2.0, ms=3, label="error")
        _draw_degrees(drawn, order, ax)
    ax.set(xscale="log", yscale="log")
    _fit_axis(ax, error.values)
    finish_panel(ax, axis, "new_error", f"{dataset.attrs['kernel']} of {dataset.attrs['kernel_link']}")


def _draw_degrees(dataset: xr.Dataset, order: Any, ax: Axes) -> None:
    """Draw the parts of the error of the degrees that the teacher has, and the levels as ticks below."""
    if "degree_error" in dataset:
        parts = dataset["teacher_by_degree"].values
        told = [ell for ell in range(parts.size) if parts[ell] > 0.01 * parts.sum()]
        for ell, colour in zip(told, figures.shades(len(told), 0.8), strict=True):
            part = dataset["degree_error"].transpose("samples", "degree").values[order, ell]
            ax.plot(dataset["samples"].values[order], part, color=colour, lw=1.1, ls="--", label=f"degree {ell}")
    levels = dataset["samples_to_level"].values
    for level, count in zip(dataset["loss_level"].values.tolist(), levels.tolist(), strict=True):
        if math.isfinite(count):
            ax.axvline(count, color=REFERENCE, lw=0.8, ls=":")
            ax.annotate(cell_text(level), (count, 0.02), xycoords=("data", "axes fraction"), fontsize="x-small")


def _fit_axis(ax: Axes, values: Any) -> None:
    """Set the range of the axis of errors: from a ten-thousandth of the largest one."""
    top = float(np.nanmax(values, initial=0.0))
    if top > 0.0:
        low = float(np.nanmin(values))
        ax.set_ylim(max(0.5 * low, LEAST_DRAWN * top), 2.0 * top)
