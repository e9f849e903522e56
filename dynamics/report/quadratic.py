"""Findings of a quadratic network: times against predictions, the power law of the loss, the limit of the step."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem import Problem
from dynamics.report.explored import ALIGNMENTS, explored
from dynamics.report.exponents import exponent_table
from dynamics.report.figures.panels import one_panel
from dynamics.report.figures.quadratic import plot_quadratic_loss, plot_quadratic_times, quadratic_figure
from dynamics.report.findings import Drawing, Findings, Table, end_of_run, renamed
from dynamics.theory.fits import FEWEST_POINTS, fit_power_law
from dynamics.theory.quadratic import power_window, quadratic_exponents
from hermite.text.messages import with_error

if TYPE_CHECKING:
    import xarray as xr

    from hermite.arrays import Array

#: Columns of the table of times -> variable, or ratio of two.
TIMES = {
    "p": "direction",
    "a_p": "teacher_coefficient",
    "aligned, predicted": "predicted_aligned_time",
    "aligned": "aligned_time",
    "aligned / predicted": "aligned_ratio",
    "learned, predicted": "predicted_learned_time",
    "learned": "learned_time",
    "learned / predicted": "learned_ratio",
}
#: What a curve says, and the time that is marked.
PREDICTED = "predicted at t ="
EXPLORED = {
    "direction": "direction",
    "a_p =": "teacher_coefficient",
    PREDICTED: "predicted_aligned_time",
    "aligned at t =": "aligned_time",
    "learned at t =": "learned_time",
}
#: The same of frames under SGD.
STEPS = {"limit of the step": "rate_limit", "fewest steps": "fewest_steps"}
#: Curves whose power laws stand beside that of the loss.
SUMS = {"sigmoid_sum": "sigmoid_loss", "staircase": "staircase_loss"}


def quadratic_findings(dataset: xr.Dataset) -> Findings:
    """Return what an answer of `solve_quadratic` shows."""
    values = quadratic_values(dataset)
    laws = values["exponents"]
    tone, verdict = end_of_run(dataset)
    return Findings(
        tone=tone,
        verdict=verdict,
        sentences=[_outcome(values), _limit(values)],
        tables=[_times(dataset, values), *_exponent_table(laws)],
        drawings=_drawings(dataset, laws),
        chart=explored(dataset, renamed(values["directions"], EXPLORED), ALIGNMENTS, PREDICTED),
        remarks=[f"note: {values['notes']}", f"scaling laws: {values['scaling_notes']}"],
        values=values,
        overview=partial(quadratic_figure, dataset, laws),
    )


def quadratic_values(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the result as plain values: times per direction, exponents, losses at the end."""
    names = [name for name in (*TIMES.values(), *STEPS.values()) if name in dataset.variables]
    columns = {name: dataset[name].values.tolist() for name in names}
    rows: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for row in rows:
        for kind in ("aligned", "learned"):
            predicted = row[f"predicted_{kind}_time"]
            row[f"{kind}_ratio"] = row[f"{kind}_time"] / predicted if 0.0 < predicted < math.inf else math.nan
    attrs = dataset.attrs
    return {
        "title": attrs["title"],
        "end_time": float(attrs.get("end_time", dataset["time"].values[-1])),
        "final_loss": float(_reached(dataset["loss"].values)[-1]),
        "final_fine_tuned_loss": float(_reached(dataset["fine_tuned_loss"].values)[-1]),
        "unlearned_loss": float(attrs["unlearned_loss"]),
        "learning_rate_limit": float(attrs["learning_rate_limit"]),
        "directions": rows,
        "exponents": _exponents(dataset),
        "notes": attrs["notes"],
        "scaling_notes": attrs["scaling_notes"],
    }


def _reached(history: Array) -> Array:
    """Return what was saved before the run ended; NaN alone if nothing was."""
    saved: Array = history[np.isfinite(history)]
    return saved if saved.size else np.array([np.nan])


def _outcome(values: dict[str, Any]) -> str:
    """Return how many directions were aligned, and the last losses, in a sentence."""
    rows = values["directions"]
    aligned = sum(math.isfinite(row["aligned_time"]) for row in rows)
    return (
        f"aligned: {aligned} of {len(rows)} directions by t = {values['end_time']:.5g}; loss at the end: "
        f"{values['final_loss']:.4g}, with the second layer fitted on the span {values['final_fine_tuned_loss']:.4g}; "
        f"of the directions beyond the m strongest: {values['unlearned_loss']:.4g}"
    )


def _limit(values: dict[str, Any]) -> str:
    """Return the limit of the learning rate of SGD in a sentence."""
    row, limit = values["directions"][0], values["learning_rate_limit"]
    if "rate_limit" not in row:
        return f"Limit of the learning rate of SGD: {limit:.4g}, above which the learned network loses stability."
    return (
        f"Limit of the learning rate of SGD: {limit:.4g}, above which noise keeps the neurons from every direction; of "
        f"direction 1 {row['rate_limit']:.4g}, which takes the fewest steps at half of it, {row['fewest_steps']:.4g}."
    )


def _times(dataset: xr.Dataset, values: dict[str, Any]) -> Table:
    """Return aligned and learned times against predictions, of the m strongest directions."""
    rows = [row for row in values["directions"] if math.isfinite(row["predicted_aligned_time"])]
    columns = TIMES | (STEPS if "rate_limit" in dataset else {})
    return Table(
        caption="Times against prediction",
        rows=renamed(rows or values["directions"], columns),
        note="Aligned: half of the direction is in the span of the neurons. Learned: Q has half of a_p.",
        each="directions, spread over p",
        short={"p": "p", "a_p": "a_p", "aligned, predicted": "predicted", "aligned": "aligned"}
        | {"aligned / predicted": "ratio", "learned, predicted": "pred. learned", "learned": "learned"}
        | {title: title for title in columns if title in STEPS},
    )


def _exponents(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return the fitted exponent of the loss beside those of the sums and the asymptotic one, or nothing."""
    problem = Problem.from_dataset(dataset)
    window = power_window(problem.teacher, problem.width, problem.dimension)
    time, loss = dataset["time"].values, dataset["loss"].values
    inside = (time >= window[0]) & (time <= window[1])
    if np.count_nonzero(inside) < FEWEST_POINTS or not (loss[inside] > 0.0).all():
        return []
    fit = fit_power_law(time, loss, window=window)
    sums = {name: _exponent(time, dataset[variable].values, window) for name, variable in SUMS.items()}
    asymptotic = quadratic_exponents(problem.teacher.beta).loss_time
    law = {
        "what": "loss ~ t^x",
        "fitted": fit.exponent,
        "standard_error": fit.standard_error,
        "prefactor": fit.prefactor,
        "window": list(fit.window),
        "asymptotic": asymptotic,
        **sums,
    }
    return [law]


def _exponent(time: Array, loss: Array, window: tuple[float, float]) -> float:
    """Return the exponent of a sum over the window, NaN where it ends within it."""
    inside = (time >= window[0]) & (time <= window[1])
    return fit_power_law(time, loss, window=window).exponent if (loss[inside] > 0.0).all() else math.nan


def _exponent_table(laws: list[dict[str, Any]]) -> list[Table]:
    in_words = [
        f"{law['what']}: x = {with_error(law['fitted'], law['standard_error'])} on [{law['window'][0]:.3g}, "
        f"{law['window'][1]:.3g}]; every direction alone {law['sigmoid_sum']:.3f}, staircase {law['staircase']:.3f}; "
        + (f"asymptotic {law['asymptotic']:.3f}" if math.isfinite(law["asymptotic"]) else "no asymptotic law")
        for law in laws
    ]
    note = (
        "The fit runs from the time of direction 3 to that of direction m/3; the asymptotic exponent is no part of it."
    )
    return exponent_table(laws, in_words, {"x, directions alone": "sigmoid_sum", "x, staircase": "staircase"}, note)


def _drawings(dataset: xr.Dataset, laws: list[dict[str, Any]]) -> list[Drawing]:
    loss = _reached(dataset["loss"].values)
    width = json.loads(dataset.attrs["parameters"])["problem"]["width"]
    caption = "Loss, what the span of the neurons misses, and the sum over directions that grow alone."
    times = "Exact against predicted times; the line is equality."
    return [
        Drawing(
            draw=partial(one_panel, plot_quadratic_loss, dataset, laws),
            caption=caption,
            alt=f"{caption} The loss goes from {loss[0]:.3g} to {loss[-1]:.3g}.",
        ),
        Drawing(
            draw=partial(one_panel, plot_quadratic_times, dataset),
            caption=times,
            alt=f"{times} Predicted are the {width} strongest directions.",
        ),
    ]
