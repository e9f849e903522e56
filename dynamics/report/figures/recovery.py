"""Figure of the law of an estimator of one direction: squared overlap against the number of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.report.figures.panels import finish_panel
from dynamics.report.figures.style import PREDICTED, REFERENCE, plain_text

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def plot_recovery(dataset: xr.Dataset, ax: Axes) -> Axes:
    """Draw the law at the numbers of samples that a prediction has, of single samples one dot each, and n_c."""
    samples, law = np.atleast_1d(dataset["samples"].values), dataset["predicted_overlap_squared"]
    order = np.argsort(samples)
    # Of a single number of samples the prediction has no dimension for it.
    rows = law.values.reshape(law.sizes.get("seed", 1), samples.size)[:, order]
    ax.plot(samples[order], rows.mean(axis=0), "o-", color=PREDICTED, ms=4, lw=1.6, label="law")
    if "seed" in law.dims:
        ax.plot(samples[order], rows.T, ".", color=PREDICTED, ms=4, alpha=0.4)
    threshold = dataset.attrs.get("threshold_samples")
    if threshold is not None and np.isfinite(threshold):
        ax.axvline(threshold, color=REFERENCE, ls="--", lw=1.0, label=f"threshold, $n = {threshold:.4g}$")
    ax.set(xscale="log", ylim=(-0.03, 1.03))
    degree, transform = dataset.attrs["degree"], dataset.attrs["transform"]
    finish_panel(ax, "samples $n$", "squared overlap", f"estimator of degree {degree}, $T$ = {plain_text(transform)}")
    return ax
