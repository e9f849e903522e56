"""Findings of runs of SGD alone: emergence times by direction, losses, and what went wrong on the way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import Drawing, Findings, Table, end_of_run, one_panel
from sgd_check.report.figures.runs import plot_run_components, plot_run_losses, plot_run_times
from sgd_check.report.tokens import TOKENS, token_simulation_findings
from sgd_check.verdicts.alignment import event_of, with_emergence

if TYPE_CHECKING:
    import xarray as xr

    from hermite.arrays import Array

_COMPONENTS = "Components of the network over the teacher's: medians of the runs, with bands between the quartiles."
_RESUME = "python -m sgd_check.run PREDICTION --resume {file}"


def simulation_findings(dataset: xr.Dataset) -> Findings:
    """Return what the runs of `sgd_check.simulate` show by themselves."""
    if dataset.attrs.get("theory") == TOKENS:
        return token_simulation_findings(dataset)
    dataset = with_emergence(dataset)
    cautions = _cautions(dataset)
    tone, verdict = end_of_run(dataset, cautions)
    end, times = float(dataset.attrs["end_time"]), event_of(dataset).noun.capitalize()
    drawings = (
        (plot_run_losses, f"Loss of each run against flow time to t = {end:.4g}; the thick line is the median."),
        (plot_run_times, f"{times} times of the runs by direction; crosses mark the predicted time of the pair."),
        *([(plot_run_components, _COMPONENTS)] if "component" in dataset else []),
    )
    return Findings(
        tone=tone,
        verdict=verdict,
        cautions=cautions,
        tables=[_runs(dataset), *([_components(dataset)] if "component" in dataset else [])],
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
        found.append(
            f"{int(censored.sum())} of {censored.size} {event_of(dataset).noun}s were not seen by the end (censored)."
        )
    return found


def _runs(dataset: xr.Dataset) -> Table:
    """Return the quartiles of the emergence times; runs without count as later than all others."""
    directions, predicted = dataset["direction"].values, dataset.get("predicted_emergence_time")
    heads: list[dict[str, object]] = [{"p": int(p)} for p in directions]
    # Of a network the directions are the teacher's axes.
    if "teacher_coefficient" in dataset:
        for p, head in enumerate(heads):
            head["a_p"] = float(dataset["teacher_coefficient"].values[p])
            head["predicted, pair"] = None if predicted is None else float(predicted.values[p])
    times, event = dataset["emergence_time"].values, event_of(dataset)
    note = f"Over {len(times)} runs; those in which the direction did not {event.verb} count as latest."
    rows = _quartiles(times, heads, f"runs that {event.past}")
    return Table(
        caption=f"{event.noun.capitalize()} times of the runs", rows=rows, note=note, each="directions, spread over p"
    )


def _components(dataset: xr.Dataset) -> Table:
    """Return the quartiles of the times at which a network's components are learned."""
    names, values = dataset["component_name"].values.tolist(), dataset["teacher_component"].values.tolist()
    heads: list[dict[str, object]] = [
        {"component": name, "f*_α": value} for name, value in zip(names, values, strict=True)
    ]
    times = dataset["component_learned_time"].values
    note = f"Over {len(times)} runs; those in which f_α did not reach half of f*_α count as latest."
    rows = _quartiles(times, heads, "runs that learned it")
    return Table(
        caption="Times at which components are learned", rows=rows, note=note, each="components, in their order"
    )


def _quartiles(times: Array, heads: list[dict[str, object]], counted: str) -> list[dict[str, object]]:
    """Return rows with how many times (runs, rows) are known and their quartiles, beside what each begins with."""
    ordered = np.sort(np.where(np.isnan(times), np.inf, times), axis=0)
    shares = {"first quartile": 0.25, "median": 0.5, "third quartile": 0.75}
    return [
        head
        | {counted: int(np.isfinite(ordered[:, row]).sum())}
        | {name: float(ordered[round(share * (len(ordered) - 1)), row]) for name, share in shares.items()}
        for row, head in enumerate(heads)
    ]
