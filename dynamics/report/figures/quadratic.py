"""Figures of quadratic networks: losses and their power law, and times against predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.flows import headline
from dynamics.report.figures.panels import finish_panel, new_panels
from dynamics.report.figures.style import IDEAL, MEASURED, PREDICTED, REFERENCE, power

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Losses that are drawn beside that of the network.
SUMS = {
    "sigmoid_loss": ("every direction alone", {"color": PREDICTED, "lw": 1.0}),
    "fine_tuned_loss": ("second layer fitted on the span", {"color": IDEAL, "lw": 1.0, "ls": "-."}),
}
#: Axis of the losses: no smaller part of the first one is shown.
SMALLEST_PART = 1e-6


def quadratic_figure(dataset: xr.Dataset, laws: list[dict[str, Any]]) -> Figure:
    """Return one figure with losses, and aligned and learned times against predictions."""
    figure, panels = new_panels((11.0, 4.3), 1, 2)
    plot_quadratic_loss(dataset, laws, panels[0])
    plot_quadratic_times(dataset, panels[1])
    figure.suptitle(headline(dataset), fontsize="medium")
    return figure


def plot_quadratic_loss(dataset: xr.Dataset, laws: list[dict[str, Any]], ax: Axes) -> None:
    """Draw the loss beside Σ a_j² (1 − A_j), sums without interactions, the fitted law and the asymptotic slope."""
    squares = dataset["teacher_coefficient"].values ** 2
    shown = (dataset["time"].values > 0.0) & np.isfinite(dataset["loss"].values)
    time, loss = dataset["time"].values[shown], dataset["loss"].values[shown]
    unaligned = np.maximum(np.sum(squares) - dataset["alignment"].values @ squares, 1e-300)[shown]
    ax.loglog(time, np.maximum(loss, 1e-300), color=MEASURED, lw=1.8, label="loss")
    missed = r"$\Sigma_j\, a_j^2 (1 - A_j)$, what the span misses"
    ax.loglog(time, unaligned, color=MEASURED, lw=1.2, ls="--", label=missed)
    for name, (label, style) in SUMS.items():
        ax.loglog(time, np.maximum(dataset[name].values[shown], 1e-300), label=label, **style)
    for law in laws:
        _draw_law(law, ax)
    if loss.size:
        ax.set_ylim(max(0.5 * loss[loss > 0.0].min(initial=loss[0]), SMALLEST_PART * loss[0]), 2.0 * loss[0])
    finish_panel(ax, "flow time $t$", "loss $|Q - A|^2$")


def plot_quadratic_times(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the times at which directions are aligned and learned against predictions, with the line of equality."""
    for name, marker, colour in (("aligned_time", "o", MEASURED), ("learned_time", "s", PREDICTED)):
        measured, predicted = dataset[name].values, dataset[f"predicted_{name}"].values
        both = np.isfinite(measured) & np.isfinite(predicted) & (measured > 0.0) & (predicted > 0.0)
        label = name.replace("_time", "")
        ax.loglog(predicted[both], measured[both], marker, mfc="none", color=colour, ms=5, label=label)
    ends = np.array(ax.get_xlim())
    ax.loglog(ends, ends, "-", color=REFERENCE, lw=0.9, zorder=0)
    ax.set_xlim(*ends)
    finish_panel(ax, "predicted time", "exact time")


def _draw_law(law: Mapping[str, Any], ax: Axes) -> None:
    """Draw a fitted power law over its window, and the asymptotic slope beside it."""
    span = np.array(law["window"])
    label = f"fit: {power('t', law['fitted'], law['standard_error'])}"
    ax.loglog(span, law["prefactor"] * span ** law["fitted"], "k--", lw=1.2, label=label)
    if np.isfinite(law["asymptotic"]):
        middle = np.sqrt(span[0] * span[1])
        height = 2.5 * law["prefactor"] * middle ** law["fitted"]
        reference = f"asymptotic: {power('t', law['asymptotic'])}"
        ax.loglog(span, height * (span / middle) ** law["asymptotic"], ":", color=REFERENCE, lw=1.4, label=reference)
