"""The figure of samples that are reused against online SGD: overlaps and recoveries over n/d, online n/d over ln d."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import BAND, PREDICTED, REFERENCE, finish_panel, formula, shades
from sgd_check.report.figures.style import SIMULATED, share_bars

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

#: Points of one ratio are so far from each other, as a part of the largest ratio.
APART = 0.012


def draw_full_batch(dataset: xr.Dataset, axes: Any) -> None:
    """Left: squared overlaps and exact recoveries against n/d. Right: samples of online SGD over d against d."""
    _draw_reused(dataset, axes[0])
    _draw_online(dataset, axes[1])


def _draw_reused(dataset: xr.Dataset, ax: Axes) -> None:
    ratio = dataset["ratio"].values
    law = dataset["predicted_overlap_squared"]
    ax.plot(law["law_ratio"], law, "-", color=PREDICTED, lw=1.8, label=r"law, $d\to\infty$")
    threshold = float(dataset.attrs["threshold_ratio"])
    ax.axvline(threshold, color=PREDICTED, ls="--", lw=1.0, label="its threshold")
    sizes = dataset["dimension"].values.tolist()
    for at, (d, colour) in enumerate(zip(sizes, shades(len(sizes), 0.85), strict=True)):
        # Overlaps and shares of all dimensions side by side.
        place, share_place = (ratio + APART * ratio[-1] * (2 * at + s - len(sizes) + 0.5) for s in (0, 1))
        runs = dataset["overlap_squared"].values[at]
        error = BAND * runs.std(axis=1, ddof=1) / np.sqrt(runs.shape[1])
        label = f"first eigenvector, $d = {d}$"
        ax.errorbar(place, runs.mean(axis=1), yerr=error, fmt="o", color=colour, ms=4, capsize=3, label=label)
        share = dataset["recovered_share"].values[at]
        bars = share_bars(share, runs.shape[1])
        style = {"fmt": "s--", "color": colour, "ms": 4, "lw": 0.9, "capsize": 2, "mfc": "none"}
        ax.errorbar(share_place, share, yerr=bars, **style, label=f"exact by descent, $d = {d}$")
    ax.set(xlim=(0.0, None), ylim=(-0.03, 1.05))
    cut = float(dataset.attrs["cut"])
    # The legend stands to the right of the threshold, above the law.
    beside = (min(threshold / ax.get_xlim()[1], 0.5), 1.0)
    title = rf"$y = \min(z^2, {cut:g})$, $n$ samples reused; bars: 95 %"
    finish_panel(ax, "$n/d$", "squared overlap, share of the runs", title, loc="upper left", bbox_to_anchor=beside)


def _draw_online(dataset: xr.Dataset, ax: Axes) -> None:
    d = dataset["online_dimension"].values.astype(float)
    needed = dataset["online_samples"].values / d[:, None]
    mean, error = needed.mean(axis=1), BAND * needed.std(axis=1, ddof=1) / np.sqrt(needed.shape[1])
    ax.plot(np.repeat(d, needed.shape[1]), needed.ravel(), ".", color=REFERENCE, ms=4, alpha=0.5, label="runs")
    ax.errorbar(d, mean, yerr=error, fmt="o", color=SIMULATED, ms=5, capsize=3, label="mean, twice the s.e.")
    known = np.isfinite(mean)
    if known.any():
        slope, middle = float(dataset.attrs["online_slope"]), np.log(d[known]).mean()
        line = mean[known].mean() + slope * (np.log(d) - middle)
        ax.plot(d, line, "-", color=PREDICTED, lw=1.6, label=rf"slope {formula(slope)} in $\ln d$, mean step")
    ax.set_xscale("log")
    title = r"online SGD from $C = 2/\sqrt{d}$"
    finish_panel(ax, "dimension $d$", "samples over $d$ until $C^2 = 1/4$", title, loc="upper left")
