"""The exponent inferred from curves: sentences, a table, and a figure of curves with their band and forecasts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import figures
from dynamics.report.figures import IDEAL, MEASURED, PREDICTED, REFERENCE, Study, finish_panel
from dynamics.report.findings import Findings, study_findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dynamics.report.figures import Found
    from hermite.arrays import Array

#: Most curves that are drawn.
MOST_CURVES = 6
QUANTITIES = {
    "beta": "beta",
    "unit": "unit of time",
    "directions": "directions P",
    "step_share": "step over its limit",
    "floor": "floor over plateau",
}
FORECASTS = {"draws": (PREDICTED, "-"), "power law": (IDEAL, "--"), "laws fit": (REFERENCE, ":")}


def inference_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an inference."""
    summary, sentences = _inference(dataset)
    return study_findings(dataset, summary, sentences, partial(plot_inference, dataset))


def plot_inference(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw curves with bands and forecasts, or times of skills, on `axes` or as a new figure in a `style`."""
    return figures.draw_study(dataset, STUDIES, axes, style)


def _inference(dataset: xr.Dataset) -> Found:
    """Return a row per quantity with its interval, and sentences on β, the forecasts and the limits."""
    points = [
        {"quantity": text, "value": float(dataset[name])}
        | {"from": float(dataset[f"{name}_low"]), "to": float(dataset[f"{name}_high"])}
        for name, text in QUANTITIES.items()
        if np.isfinite(float(dataset[name]))
    ]
    beta, low, high = (float(dataset[f"beta{end}"]) for end in ("", "_low", "_high"))
    percent = 100.0 * dataset.attrs["coverage"]
    sentences = [
        f"beta = {beta:.2f}, from {low:.2f} to {high:.2f} with coverage {percent:.4g} % of draws, at k = "
        f"{dataset.attrs['k']}.",
        "unit of time: flow time times d^(1-k/2) in one unit of the data's time.",
    ]
    if "forecast_error" in dataset:
        errors = dataset["forecast_error"].median("curve").values
        names = dataset["forecaster"].values.tolist()
        shown = ", ".join(f"{name} {error:.3g}" for name, error in zip(names, errors, strict=True))
        verdict = dataset.attrs["forecast_verdict"]
        better = "cannot tell which is better" if verdict == "cannot tell" else f"the forecast of {verdict!r} is better"
        sentences.append(
            f"Forecast of the last third, error of ln L (median over curves): {shown}: {better}."
            if np.isfinite(errors).all()
            else "The first two thirds reach too few levels for a forecast of the last third."
        )
    sentences += [dataset.attrs["notes"]] if dataset.attrs.get("notes") else []
    words = {name: dataset.attrs[name] for name in ("notes", "forecast_verdict") if dataset.attrs.get(name)}
    return {"points": points} | words, sentences


def _draw(dataset: xr.Dataset, axes: Array) -> None:
    """Draw every curve with its band and the forecasts of its last third, or the times of skills in their order."""
    if "skill" in dataset.dims:
        _draw_skills(dataset, axes[0])
        return
    for at, ax in enumerate(axes):
        curve = dataset.isel(curve=at)
        x = np.exp(curve["log_time"].values)
        used = np.isfinite(x)
        ax.fill_between(
            x[used], curve["band_low"].values[used], curve["band_high"].values[used], color=MEASURED, alpha=0.2, lw=0,
            label="similar draws, 90 %",
        )  # fmt: skip
        ax.loglog(x, curve["loss"].values, ".", color=MEASURED, ms=3, label="curve")
        for method, (colour, line) in FORECASTS.items():
            ax.loglog(x, curve["forecast"].sel(forecaster=method).values, line, color=colour, lw=1.4, label=method)
        ax.set_ylim(bottom=max(5e-3, 0.5 * float(np.nanmin(curve["loss"].values))))
        begun = np.flatnonzero(np.isfinite(curve["forecast"].sel(forecaster="draws").values))
        if begun.size:
            ax.axvline(x[begun[0]], color=REFERENCE, lw=0.6, alpha=0.6)
        name = f"curve {curve['curve'].values}: " if dataset.sizes["curve"] > 1 else ""
        finish_panel(ax, "time of the curve", "loss over its plateau", f"{name}{_interval(dataset)}", loc="lower left")


def _draw_skills(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the times of skills in their order, those not reached as open triangles, with the slope of β."""
    times, reached = dataset["skill_time"].values, dataset["skill_reached"].values > 0
    order = np.sort(times[reached])
    rank = np.arange(1, order.size + 1)
    ax.loglog(rank, order, "o", color=MEASURED, label="learned")
    if not reached.all():
        later = np.arange(order.size + 1, times.size + 1)
        ax.loglog(later, np.sort(times[~reached]), "^", mfc="none", color=REFERENCE, label="not learned by then")
    centre = np.exp(np.mean(np.log(order)) - float(dataset["beta"]) * np.mean(np.log(rank)))
    ax.loglog(rank, centre * rank ** float(dataset["beta"]), "-", color=PREDICTED, label=r"$\propto p^{\beta}$")
    finish_panel(ax, "place in the order of times", "time of the skill", _interval(dataset))


def _interval(dataset: xr.Dataset) -> str:
    """Return β with its interval, typeset."""
    beta, low, high = (float(dataset[f"beta{end}"]) for end in ("", "_low", "_high"))
    return rf"$\beta$ = {beta:.2f}, {low:.2f} to {high:.2f}"


def _panels(dataset: xr.Dataset) -> int:
    """Return the number of panels: one per curve up to the most, or one for skills."""
    return 1 if "skill" in dataset.dims else min(dataset.sizes["curve"], MOST_CURVES)


STUDIES = {"inference": Study(_inference, _draw, _panels, (6.2, 4.4), 2)}
