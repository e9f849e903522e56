"""Findings of a comparison of SGD with a flow, the finite-step equation or predicted runs: times by direction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import Drawing, Table, jsonable, new_panels, one_panel, renamed
from sgd_check.report.curves import by_curves, curve_rows
from sgd_check.report.figures.comparison import plot_times
from sgd_check.report.figures.learning import plot_learning
from sgd_check.report.figures.loss import plot_loss_band
from sgd_check.report.figures.runs import plot_overlaps, plot_survival
from sgd_check.verdicts.alignment import ALIGNMENT, event_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr
    from matplotlib.figure import Figure

    from hermite.arrays import Array
    from sgd_check.verdicts.alignment import Event

_GIVEN = {"overlaps": "flow", "decoupled": "decoupled", "prediction": "pairs"}
_MEANING = {
    "flow": "delay: expected of the mean time against the flow; z: distance of the mean of ln(ratio) from its band; "
    "seen from: the least error of a predicted time that this check sees with probability 0.8.",
    "finite step": "ratio: SGD over finite step; delay: expected of the mean time against the flow; z: distance of the "
    "mean of ln(ratio) from its band in standard errors; seen from: the least error of a predicted time that this "
    "check sees with probability 0.8.",
    "sample": "ratio: SGD over the predicted runs; z is the log-rank statistic, positive if SGD is late.",
}


def comparison_values(tree: xr.DataTree) -> dict[str, Any]:
    """Return the verdict and the numbers behind it as plain values."""
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    return {
        "p_value": float(comparison["p_value"].values),
        "loss": comparison.attrs["loss_statement"],
        "learning_rate": float(simulation.attrs["effective_learning_rate"]),
        "steps": int(simulation.attrs["steps"]),
        "stop_reason": simulation.attrs["stop_reason"],
        "directions": rows(tree),
        **({"curves": curve_rows(tree)} if by_curves(tree) else {}),
        **({"learned": learned_rows(tree)} if has_learned(tree) else {}),
    }


def median_over_runs(times: Array) -> Array:
    """Return the median over runs of times (runs, …), where runs without count as late; NaN without runs.

    So it stays a median of all runs.
    """
    late = np.where(np.isnan(times), np.inf, times)
    return np.asarray(np.median(late, axis=0)) if len(times) else np.full(times.shape[1:], np.nan)


def rows(tree: xr.DataTree) -> list[dict[str, Any]]:
    """Return one record per direction; numbers that do not exist are None."""
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    predicted, ratio = comparison["emergence_time"].values, comparison["emergence_ratio"].values
    mean, error = np.exp(comparison["mean_log_ratio"].values), comparison["standard_error"].values
    given = tree["given"].to_dataset()["emergence_time"].values if "given" in tree.children else predicted
    weights = comparison.get("teacher_coefficient")
    median = median_over_runs(ratio[simulation["blown_up"].values == 0])
    records = [
        {
            "direction": p + 1,
            "teacher_coefficient": None if weights is None else weights.values[p],
            "given": given[p],
            "predicted": predicted[p],
            "sgd_median": median[p] * predicted[p],
            "ratio": mean[p],
            "standard_error": mean[p] * error[p],
            "expected_delay": comparison["expected_delay"].values[p],
            "visible_error": comparison["visible_error"].values[p] if "visible_error" in comparison else None,
            "z": comparison["z_score"].values[p],
            "censored": int(comparison["censored_count"].values[p]),
        }
        for p in range(predicted.size)
    ]
    found: list[dict[str, Any]] = jsonable(records)
    return found


def times_table(tree: xr.DataTree) -> Table:
    """Return emergence times of SGD beside the tested ones, and those in the file where another theory is tested."""
    both = "given" in tree.children
    columns = {
        "p": "direction",
        "a_p": "teacher_coefficient",
        **({"in the file": "given"} if both else {}),
        "predicted": "predicted",
        "SGD, median": "sgd_median",
        "ratio": "ratio",
        "± s.e.": "standard_error",
        "delay, %": "delay",
        "seen from, %": "seen",
        "z": "z",
        "runs without": "censored",
    }
    records = [
        {**record, "delay": _percent(record["expected_delay"]), "seen": _percent(record["visible_error"])}
        for record in rows(tree)
    ]
    names = {"SGD, median": "SGD median", "seen from, %": "seen %", "runs without": "censored"}
    if both:
        names |= {
            "in the file": _GIVEN.get(str(tree["given"].attrs.get("answer")), "given"),
            "predicted": "finite step",
        }
    return Table(
        caption=f"{_event(tree).noun.capitalize()} times of SGD against prediction",
        rows=renamed(records, columns),
        note=_meaning(tree),
        errors={"ratio": "± s.e."},
        each="directions, spread over p",
        short={title: names.get(title, title) for title in columns},
    )


def has_learned(tree: xr.DataTree) -> bool:
    """Return whether learned times of any direction were tested."""
    comparison = tree["comparison"].to_dataset()
    return "learned_p_value" in comparison and bool(np.isfinite(comparison["learned_p_value"].values).any())


def learned_rows(tree: xr.DataTree) -> list[dict[str, Any]]:
    """Return one record on its learned times per direction; numbers that do not exist are None."""
    comparison, simulation = tree["comparison"].to_dataset(), tree["simulation"].to_dataset()
    predicted = tree["prediction"].to_dataset()["learned_time"].values
    measured = simulation["learned_time"].values[simulation["blown_up"].values == 0]
    names = ("z_score", "p_value", "visible_error")
    columns = {"predicted": predicted, "sgd_median": median_over_runs(measured)}
    columns |= {name: comparison[f"learned_{name}"].values for name in names}
    without = np.count_nonzero(np.isnan(measured), axis=0)
    records = [
        {"direction": p + 1, **{name: values[p] for name, values in columns.items()}, "censored": int(without[p])}
        for p in range(predicted.size)
    ]
    found: list[dict[str, Any]] = jsonable(records)
    return found


def learned_table(tree: xr.DataTree) -> Table:
    """Return learned times of SGD beside the tested ones."""
    columns = {
        "p": "direction",
        "predicted": "predicted",
        "SGD, median": "sgd_median",
        "seen from, %": "seen",
        "z": "z_score",
        "runs without": "censored",
    }
    records = [{**record, "seen": _percent(record["visible_error"])} for record in learned_rows(tree)]
    names = {"SGD, median": "SGD median", "seen from, %": "seen %", "runs without": "censored"}
    return Table(
        caption="Learned times of SGD against prediction",
        rows=renamed(records, columns),
        note="z: distance of the mean of ln(ratio) from its band in standard errors, without a number where no learned "
        "time is predicted within the runs.",
        each="directions, spread over p",
        short={title: names.get(title, title) for title in columns},
    )


def _event(tree: xr.DataTree) -> Event:
    """Return what the times are of."""
    return event_of(tree["simulation"].to_dataset())


def _meaning(tree: xr.DataTree) -> str:
    """Return what ratio and z of a time are."""
    if by_curves(tree):
        return (
            "ratio: SGD over theory, of directions that emerge in all runs. The curves decide; a time can only refute."
        )
    return _MEANING[tree["comparison"].attrs["theory"]]


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100.0 * share, 1)


def panel_drawings(tree: xr.DataTree) -> list[Drawing]:
    """Return the figures of a comparison one by one, each large enough to be read."""
    attrs, event = tree["comparison"].attrs, _event(tree)
    overlaps = "Alignments with the span" if event is ALIGNMENT else "Squared overlaps"
    more = f"{attrs['usable_runs']} runs; verdict: {attrs['verdict']}."
    shown = (
        (partial(one_panel, plot_times, tree), f"{event.noun.capitalize()} times of SGD against the predicted ones."),
        (partial(one_panel, plot_overlaps, tree), f"{overlaps} over time: thin lines runs, thick ones theory."),
        _learning(tree) if by_curves(tree) else _survival(tree),
        (partial(_loss, tree), "Mean loss of the runs with its band, the predicted loss, the residual below."),
    )
    return [Drawing(draw=draw, caption=caption, alt=f"{caption} {more}") for draw, caption in shown]


def _survival(tree: xr.DataTree) -> tuple[Callable[[], Figure], str]:
    caption = f"Share of the runs without {_event(tree).noun} over time, with theory."
    return partial(one_panel, plot_survival, tree), caption


def _learning(tree: xr.DataTree) -> tuple[Callable[[], Figure], str]:
    return partial(one_panel, plot_learning, tree), "What is learned over time, as a part of the teacher's."


def _loss(tree: xr.DataTree) -> Figure:
    figure, panels = new_panels((6.8, 5.4), 2, sharex=True, height_ratios=[2.4, 1])
    plot_loss_band(tree, tuple(panels))
    return figure
