"""What SGD shows: a comparison with theory, or runs alone, for pages on results.

The functions are entry points of the group `feature_emergence.findings`, declared in `pyproject.toml`: `dynamics` finds
them by the answer of a result without knowing this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import (
    Drawing,
    Findings,
    Table,
    Tone,
    drawing_of,
    end_of_run,
    new_axes,
    spread_rows,
    study_findings,
)
from sgd_check.report import study_figures, study_tables, table, table_chaos
from sgd_check.report.figures import plot_comparison, plot_loss_band, plot_overlaps, plot_survival, plot_times
from sgd_check.report.figures_simulation import plot_run_losses, plot_run_times
from sgd_check.verdicts.mean_field import THEORY

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["comparison_findings", "sgd_study_findings", "simulation_findings"]

#: Directions or times that a page lists.
MOST_ROWS = 48
_TONES = {"agree": Tone.GOOD, "disagree": Tone.BAD, "undecided": Tone.CAUTION}
_WORDS = {"agree": "Theory and SGD agree.", "disagree": "Theory and SGD disagree.", "undecided": "Undecided."}
_RESUME = "python -m sgd_check.run PREDICTION --resume {file}"


def sgd_study_findings(dataset: xr.Dataset) -> Findings:
    """Return what a study of `python -m sgd_check.study` shows."""
    return study_findings(dataset, study_tables, study_figures)


# --- comparison -------------------------------------------------------------------------------------------------------


def comparison_findings(tree: xr.DataTree) -> Findings:
    """Return what `sgd_check.compare` says, with its numbers and figures."""
    attrs = tree["comparison"].attrs
    verdict = str(attrs["verdict"])
    blown, runs = int(attrs["blown_up_count"]), int(attrs["usable_runs"])
    cautions = [f"{blown} of {blown + runs} runs blew up and are left out."] if blown else []
    mean_field = attrs["theory"] == THEORY
    rate = f"A true theory is called wrong at a rate of {float(attrs['false_alarm_rate']):g}; {runs} runs were used."
    return Findings(
        tone=_TONES[verdict],
        verdict=f"{_WORDS[verdict]} {attrs['reasons']}",
        cautions=cautions,
        sentences=[rate, *([str(attrs["loss_statement"])] if "loss_statement" in attrs else [])],
        tables=[_exponents_over_time(tree) if mean_field else _times(tree)],
        drawings=[_widths(tree)] if mean_field else _panels(tree),
    )


def _times(tree: xr.DataTree) -> Table:
    records = table.rows(tree)
    chosen = spread_rows(len(records), MOST_ROWS)
    rows = [
        {
            "p": record["direction"],
            "a_p": record["teacher_coefficient"],
            **({"in the file": record["given"]} if "given" in tree.children else {}),
            "predicted": record["predicted"],
            "SGD, median": record["sgd_median"],
            "ratio": record["ratio"],
            "± s.e.": record["standard_error"],
            "expected delay": record["expected_delay"],
            "z": record["z"],
            "runs without": record["censored"],
        }
        for record in (records[at] for at in chosen)
    ]
    note = table.MEANING[tree["comparison"].attrs["theory"]]
    if len(chosen) < len(records):
        note += f" Shown: {len(chosen)} of {len(records)} directions."
    return Table(caption="Emergence times of SGD against prediction", rows=rows, note=note)


def _exponents_over_time(tree: xr.DataTree) -> Table:
    rows = [
        {
            "t": record["time"],
            "loss": record["mean_field_loss"],
            **{f"D, m = {m}": gap for m, gap in record["function_gap"].items()},
            "x": record["function_gap_exponent"],
            "± s.e. of x": record["function_gap_exponent_error"],
            "y": record["coupling_exponent"],
            "± s.e. of y": record["coupling_exponent_error"],
        }
        for record in table_chaos.shown_rows(table_chaos.rows(tree))
    ]
    return Table(caption="Distances from the mean field over time", rows=rows, note=table_chaos.MEANING)


def _widths(tree: xr.DataTree) -> Drawing:
    caption = "Losses of all widths, scaled distances from the mean field, and their exponents in the width."
    alt = f"{caption} The tested exponent is {float(tree['comparison']['mean_gap_exponent']):.3g}; theory says −1."
    return Drawing(figure=plot_comparison(tree), caption=caption, alt=alt)


def _panels(tree: xr.DataTree) -> list[Drawing]:
    """Return the figures of a comparison one by one, each large enough to be read."""
    from matplotlib.figure import Figure

    loss: Any = Figure(figsize=(6.8, 5.4), layout="constrained").subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
    shown = (
        (plot_times(tree, new_axes()), "Emergence times of SGD against the predicted ones."),
        (plot_overlaps(tree, new_axes()), "Squared overlaps over time: thin lines runs, thick ones theory."),
        (plot_survival(tree, new_axes()), "Share of the runs without emergence over time, with theory."),
        (plot_loss_band(tree, loss)[0], "Mean loss of the runs with its band, the predicted loss, the residual below."),
    )
    attrs = tree["comparison"].attrs
    more = f"{attrs['usable_runs']} runs; verdict: {attrs['verdict']}."
    return [drawing_of(ax, caption, more) for ax, caption in shown]


# --- runs alone -------------------------------------------------------------------------------------------------------


def simulation_findings(dataset: xr.Dataset) -> Findings:
    """Return what the runs of `sgd_check.simulate` show by themselves."""
    tone, verdict = end_of_run(dataset)
    cautions = _cautions(dataset)
    end = float(dataset.attrs["end_time"])
    losses = f"Loss of each run against flow time to t = {end:.4g}; the thick line is the median."
    times = "Emergence times of the runs by direction; crosses mark the predicted time of the pair."
    return Findings(
        tone=Tone.CAUTION if cautions and tone is Tone.GOOD else tone,
        verdict=verdict,
        cautions=cautions,
        tables=[_runs(dataset)],
        drawings=[
            drawing_of(plot_run_losses(dataset, new_axes()), losses),
            drawing_of(plot_run_times(dataset, new_axes()), times),
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
        for p in spread_rows(times.shape[1], MOST_ROWS)
    ]
    note = f"Over {len(times)} runs; those in which the direction did not emerge count as latest."
    return Table(caption="Emergence times of the runs", rows=rows, note=note)
