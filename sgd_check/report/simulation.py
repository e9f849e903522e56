"""Findings of runs of SGD alone: emergence times by direction, losses, and what went wrong on the way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import Drawing, Findings, Table, end_of_run, one_panel
from sgd_check.report.figures.runs import plot_run_losses, plot_run_times

if TYPE_CHECKING:
    import xarray as xr

_RESUME = "python -m sgd_check.run PREDICTION --resume {file}"


def simulation_findings(dataset: xr.Dataset) -> Findings:
    """Return what the runs of `sgd_check.simulate` show by themselves."""
    cautions = _cautions(dataset)
    tone, verdict = end_of_run(dataset, cautions)
    end = float(dataset.attrs["end_time"])
    drawings = (
        (plot_run_losses, f"Loss of each run against flow time to t = {end:.4g}; the thick line is the median."),
        (plot_run_times, "Emergence times of the runs by direction; crosses mark the predicted time of the pair."),
    )
    return Findings(
        tone=tone,
        verdict=verdict,
        cautions=cautions,
        tables=[_runs(dataset)],
        drawings=[
            Drawing(draw=partial(one_panel, plot, dataset), caption=caption, alt=caption) for plot, caption in drawings
        ],
        go_on=_RESUME,
    )


def _cautions(dataset: xr.Dataset) -> list[str]:
    attrs, runs, found = dataset.attrs, dataset.sizes["seed"], []
    blown = int((dataset["blown_up"].values != 0).sum())
    if blown:
        found.append(f"{blown} of {runs} runs blew up.")
    if attrs.get("above_limit"):
        rate, limit = float(attrs["effective_learning_rate"]), float(attrs["learning_rate_limit"])
        found.append(f"The learning rate {rate:.3g} exceeds {limit:.3g}, the limit of stability.")
    censored = dataset["censored"].values != 0
    if censored.any():
        found.append(f"{int(censored.sum())} of {censored.size} emergences were not seen by the end (censored).")
    return found


def _runs(dataset: xr.Dataset) -> Table:
    """Return the quartiles of the emergence times; runs without count as later than all others."""
    times = np.sort(
        np.where(np.isnan(dataset["emergence_time"].values), np.inf, dataset["emergence_time"].values), axis=0
    )
    quartiles = [times[round(share * (len(times) - 1))] for share in (0.25, 0.5, 0.75)]
    predicted = dataset.get("predicted_emergence_time")
    rows = [
        {
            "p": int(dataset["direction"].values[p]),
            "a_p": float(dataset["teacher_coefficient"].values[p]),
            "predicted, pair": None if predicted is None else float(predicted.values[p]),
            "runs that emerged": int(np.isfinite(times[:, p]).sum()),
            "first quartile": float(quartiles[0][p]),
            "median": float(quartiles[1][p]),
            "third quartile": float(quartiles[2][p]),
        }
        for p in range(times.shape[1])
    ]
    note = f"Over {len(times)} runs; those in which the direction did not emerge count as latest."
    return Table(caption="Emergence times of the runs", rows=rows, note=note, each="directions, spread over p")
