"""Two-layer networks and quadratic networks: components, axes and alignments that are learned, and the loss."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.fits import FEWEST_POINTS, fit_power_law
from dynamics.problem import Problem
from dynamics.report import elements, figures, flows
from dynamics.report.classes import class_findings
from dynamics.report.elements import PREDICTED_AT
from dynamics.report.figures import IDEAL, MEASURED, PREDICTED, REFERENCE, finish_panel, row_of
from dynamics.report.findings import (
    Findings,
    Table,
    drawing_of,
    records,
    renamed,
    rows_of,
    run_findings,
    stored_parameters,
)
from dynamics.report.flows import RESUME_SOLVE, degree_rows, degree_table, draw_fit, finite_part, later_end, plot_loss
from dynamics.theory.components import blind_components
from dynamics.theory.quadratic import power_window, quadratic_exponents

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from dynamics.fits import PowerLawFit
    from hermite.arrays import Array

#: Columns of the table of quadratic networks -> variable, or ratio of two.
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
#: Titles in a terminal, where they differ.
SHORT = {"aligned, predicted": "predicted", "aligned / predicted": "ratio", "learned, predicted": "pred. learned"}
#: Further columns of frames under SGD.
STEPS = {"limit of the step": "rate_limit", "fewest steps": "fewest_steps"}


# --- two-layer networks -----------------------------------------------------------------------------------------------


def network_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `solve_network`."""
    if "loss_floor" in dataset:
        return class_findings(dataset, plot_axes)
    rows, axes = _components(dataset), rows_of(dataset, {"direction": "direction", "emergence_time": "emergence_time"})
    attrs = dataset.attrs
    parts, later = {"components": rows, "directions": axes}, later_end(dataset)
    values = flows.run_values(dataset, teacher_loss=float(attrs["teacher_loss"]), leap=attrs.get("leap"), **parts)
    values |= {"scaling_notes": "", "degrees": degree_rows(dataset)}
    values |= {"kernel": kernel} if (kernel := flows.kernel_rows(dataset)) else {}
    caption = "Components of the network over those of the teacher; dotted, the level at which they count as learned."
    plots: dict[Any, str] = {
        **({plot_components: caption} if rows else {}),
        plot_axes: "Largest squared overlap of a neuron with each axis of the teacher.",
        partial(plot_loss, fit=False): "Loss against flow time.",
    }
    table = Table(
        caption="Axes of the teacher",
        rows=renamed(axes, {"axis": "direction", "emerged": "emergence_time"}),
        note="emerged: a neuron first lies along the axis, or along the axes of a product of which it is one.",
        each="axes, spread over their number",
        digits=5,
    )
    if rows:
        predicted, times = "predicted_component_time", "component_learned_time"
        columns = {"component": "name", "f*": "teacher_component", "cost": "cost"}
        columns |= {"predicted": predicted, "learned": times, "f/f* at the end": "ratio"}
        missing = [row["name"] for row in rows if not np.isfinite(row[times])]
        blind = blind_components(Problem.from_dataset(dataset)) if missing else ()
        awaited = [name for name in missing if name not in blind]
        caution = (
            f"Not learned by the end: {', '.join(awaited)}. With a later `t_max`, such as {later:g}, they may be; "
            "their times are unknown (censored)."
        )
        outcome = f"learned: {len(rows) - len(missing)} of {len(rows)} components by t = {values['end_time']:.5g}"
        first = Table(
            caption="Components of the teacher in the order of learning",
            rows=renamed(rows, columns),
            note="cost: degree on axes new in this order. learned: half of the teacher's value f* is first reached.",
            digits=5,
        )
        tables = [first, table]
        names = {"component": "name", "f* =": "teacher_component", PREDICTED_AT: predicted, "learned at t =": times}
        facts, history = renamed(rows, names), elements.COMPONENTS
    else:
        times = "emergence_time"
        awaited = missing = [f"x{row['direction']}" for row in axes if not np.isfinite(row[times])]
        caution = (
            f"No neuron lies along {', '.join(missing)} by the end. With a later `t_max`, such as {later:g}, one may; "
            "their times are unknown (censored)."
        )
        outcome = f"emerged: {len(axes) - len(missing)} of {len(axes)} axes by t = {values['end_time']:.5g}"
        tables = [table, *degree_table(values)]
        facts, history = renamed(axes, {"axis": "direction", "emerged at t =": "emergence_time"}), elements.AXES
    student: Any = stored_parameters(dataset)["problem"].get("student")
    switch = student.get("layer_wise", math.inf) if isinstance(student, dict) else math.inf
    if values["end_time"] >= switch:
        caution = (
            f"Not found by the end: {', '.join(map(str, awaited))}. Neurons do not move after the switch, at "
            f"t = {switch:g}; with a later `layer_wise` they may find more."
        )
    if values["final_loss"] is not None:
        outcome += f"; loss at the end: {values['final_loss']:.4g}"
        scale = values["teacher_loss"]
        outcome += f" ({values['final_loss'] / scale:.2g} of E f*²)" if scale > 0 else ""
    return run_findings(
        dataset,
        cautions=[caution] if awaited else [],
        sentences=[
            outcome,
            *flows.optimizer_in_words(dataset),
            *flows.bands_in_words(dataset),
            *flows.numerical_errors(dataset, times),
            *flows.kernel_in_words(dataset),
        ],
        tables=[*tables, *flows.kernel_table(dataset)],
        drawings=[drawing_of(plot, dataset, caption=caption) for plot, caption in plots.items()],
        chart=elements.history_chart(dataset, facts, history, PREDICTED_AT),
        remarks=flows.remarks(values),
        values=values,
        overview=partial(row_of, dataset, list(plots), (4.4 * len(plots), 4.2)),
        go_on=RESUME_SOLVE,
    )


def _components(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return one row per component of the teacher, in the order of learning: name, cost, value, times, and final ratio.

    The ratio is the component of the network over that of the teacher at the last saved time. The list is empty if the
    teacher has no components.
    """
    if "component" not in dataset:
        return []
    costs = {component.name: component.cost for component in Problem.from_dataset(dataset).teacher.components}
    saved = np.flatnonzero(np.isfinite(dataset["loss"].values))
    names, ratio = dataset["component_name"].values.tolist(), elements.component_ratio(dataset)
    columns = ("teacher_component", "predicted_component_time", "component_learned_time")
    return records(
        {"name": names, "cost": [costs[name] for name in names]}
        | {name: dataset[name] for name in columns}
        | {"ratio": ratio[saved[-1]] if saved.size else np.full(len(names), np.nan)}
    )


def plot_components(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw each component f_α of a network over that of its teacher, f*_α, against time.

    Ticks below mark the predicted times where there are such. The answer is of `solve_network` about a polynomial
    teacher, or ValueError is raised. `ax` are the axes, by default new ones in a `style` (see `figure_style`); they
    are returned.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Student, Teacher, solve_network
    >>> teacher = Teacher.polynomial("x1 + x1*x2*x3")
    >>> problem = Problem(student=Student(activation="erf", width=3), teacher=teacher, dimension=16)
    >>> ax = plot_components(solve_network(problem, save_at=SaveAt.geometric(1.0, 100.0, 20), progress=False))
    >>> ax.get_xlabel(), len(ax.get_legend().get_texts())  # a curve for each of x1 and x1*x2*x3, and the level
    ('flow time $t$', 3)
    """
    needs = {"component": ("time", "component_name"), "teacher_component": ("component_name",)}
    ax, predicted = figures.axes_for(dataset, ax, style, **needs), dataset["predicted_component_time"].values
    names = [figures.component_formula(name) for name in dataset["component_name"].values.tolist()]
    figures.draw_histories(ax, dataset["time"].values, elements.component_ratio(dataset), ("", names), predicted)
    ax.axhline(1.0, color=REFERENCE, lw=0.8)
    figures.draw_threshold(ax, 0.5, "learned")
    time = "predicted_ticks" if np.isfinite(predicted).any() else "time"
    finish_panel(ax, time, "component_share", loc="center left")
    return ax


def plot_axes(dataset: xr.Dataset, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the largest squared overlap of a neuron with each axis of the teacher against time.

    The answer is of `solve_network`, or ValueError is raised.
    `ax` are the axes, by default new ones in a `style` (see `figure_style`); they are returned.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Student, Teacher, solve_network
    >>> problem = Problem(student=Student(activation="erf", width=3), teacher=Teacher([1.0]), dimension=16)
    >>> ax = plot_axes(solve_network(problem, save_at=SaveAt.geometric(1.0, 100.0, 20), progress=False))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('flow time $t$', 'largest squared overlap with an axis')
    """
    ax = figures.axes_for(dataset, ax, style, emergence_time=("direction",))
    names = [f"$x_{{{a}}}$" for a in dataset["direction"].values.tolist()]
    ax.set_ylim(-0.05, 1.05)
    curves, runs = elements.squared_overlap(dataset), flows.bands_of_overlaps(dataset)
    figures.draw_histories(ax, dataset["time"].values, curves, ("", names), runs=runs)
    figures.draw_threshold(ax, Problem.from_dataset(dataset).emergence_level, "emerged")
    finish_panel(ax, "time", "axis_overlap", loc="center left")
    return ax


# --- samples that are used again --------------------------------------------------------------------------------------

#: Title of a column -> variable, its entry of largest size at the end; errors have the same name with "_error".
REUSED = {"test loss": "loss", "train loss": "train_loss", "overlap": "teacher_overlap", "|w|²": "squared_norm"}
#: Standard error of overlaps that is good enough for a comparison with runs.
WANTED_ERROR = 1e-3


def reused_data_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `solve_reused_data`."""
    attrs, columns = dataset.attrs, {"step": dataset["step"].values}
    parts = attrs["batches_per_epoch"]
    columns["epoch"] = columns["step"] / parts
    last_saved = np.flatnonzero(np.isfinite(dataset["loss"].values))[-1]
    for title, name in REUSED.items():
        values_of = [dataset[variable].values for variable in (name, f"{name}_error")]
        value, error = (values.reshape(len(columns["step"]), -1) for values in values_of)
        largest = int(np.argmax(np.abs(value[last_saved])))
        columns |= {title: value[:, largest], f"{title} ±": error[:, largest]}
    rows = [row for row in records(columns) if math.isfinite(row["test loss"])]
    best, last = min(rows, key=lambda row: row["test loss"]), rows[-1]
    course = (
        f"{attrs['samples_over_dimension']:g} samples per dimension, {attrs['epochs']:g} epochs of {parts} "
        f"batch{'' if parts == 1 else 'es'}: least test loss {best['test loss']:.4g} after step {best['step']}, at the "
        f"end {last['test loss']:.4g}; train loss {last['train loss']:.4g}; overlap {last['overlap']:.4g}"
    )
    worst = float(np.nanmax(dataset["teacher_overlap_error"].values))
    accuracy = f"Largest standard error of an overlap: {worst:.2g}, with {attrs['draws']:.2g} points"
    if worst > WANTED_ERROR:
        accuracy += f"; {attrs['draws'] * (worst / WANTED_ERROR) ** 2:.2g} points bring it to {WANTED_ERROR:g}"
    values = flows.run_values(
        dataset, best_step=best["step"], best_loss=best["test loss"], train_loss=last["train loss"], curve=rows
    )
    table = Table(
        caption="Losses and overlap by steps",
        rows=rows,
        note="Overlap and |w|²: the largest of any neuron at the end. ±: standard errors of means over points.",
        each="steps, spread over their number",
        errors={title: f"{title} ±" for title in REUSED},
    )
    return run_findings(
        dataset,
        sentences=[course, f"{accuracy}."],
        tables=[table],
        drawings=[drawing_of(plot, dataset, caption=caption) for plot, caption in REUSED_PLOTS.items()],
        remarks=flows.remarks(values),
        values=values,
        overview=partial(row_of, dataset, list(REUSED_PLOTS), (11.0, 4.2)),
    )


def _plot_reused_losses(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the loss on new samples and on the training samples against epochs."""
    for name, label, colour in (("loss", "new samples", MEASURED), ("train_loss", "training samples", PREDICTED)):
        _draw_with_band(dataset, ax, name, slice(None), colour, label)
    ax.set_ylim(bottom=0.0)
    finish_panel(ax, "epochs", "loss")


def _plot_reused_overlaps(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the largest final overlap of a neuron with each axis over epochs, with bands, into `ax`."""
    last = dataset["teacher_overlap"].values[np.flatnonzero(np.isfinite(dataset["loss"].values))[-1]]
    for axis, colour in enumerate(figures.shades(last.shape[1], 0.85)):
        best = int(np.argmax(np.abs(last[:, axis])))
        _draw_with_band(dataset, ax, "teacher_overlap", (slice(None), best, axis), colour, f"axis {axis + 1}")
    finish_panel(ax, "epochs", "teacher_overlap")


def _draw_with_band(
    dataset: xr.Dataset, ax: Axes, name: str, at: slice | tuple[slice | int, ...], colour: object, label: str
) -> None:
    """Draw the part `at` of a variable against epochs, with a band of two standard errors."""
    value, error = dataset[name].values[at], figures.BAND * dataset[f"{name}_error"].values[at]
    epochs = dataset["step"].values / dataset.attrs["batches_per_epoch"]
    figures.draw_band(ax, epochs, (value, value - error, value + error), colour, 0.25, label=label)


#: Figures -> captions.
REUSED_PLOTS = {
    _plot_reused_losses: "Loss on new samples without noise, and on the samples of training with it, against epochs.",
    _plot_reused_overlaps: "Overlap of each axis of the teacher with the neuron that has most of it, against epochs.",
}


# --- quadratic networks -----------------------------------------------------------------------------------------------


def quadratic_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `solve_quadratic`."""
    values = _quadratic_values(dataset)
    laws, rows, limit = values["exponents"], values["directions"], values["learning_rate_limit"]
    aligned = sum(math.isfinite(row["aligned_time"]) for row in rows)
    outcome = (
        f"aligned: {aligned} of {len(rows)} directions by t = {values['end_time']:.5g}; loss at the end: "
        f"{values['final_loss']:.4g}, with the second layer fitted on the span {values['final_fine_tuned_loss']:.4g}; "
        f"of the directions beyond the m strongest: {values['unlearned_loss']:.4g}"
    )
    steps = f"Limit of the learning rate of SGD: {limit:.4g}, above which the learned network loses stability."
    if "rate_limit" in rows[0]:
        steps = (
            f"Limit of the learning rate of SGD: {limit:.4g}, above which noise keeps the neurons from every "
            f"direction; of direction 1 {rows[0]['rate_limit']:.4g}, which takes the fewest steps at half of it, "
            f"{rows[0]['fewest_steps']:.4g}."
        )
    alone = "; every direction alone {sigmoid_sum:.3f}, staircase {staircase:.3f}"
    in_words = [f"{law['what']}: {flows.law_in_words(law, alone.format(**law))}" for law in laws]
    note = "The fit runs from the time of direction 3 to that of direction m/3; the asymptotic exponent is no part of "
    of_loss = "Loss, what the span of the neurons misses, and the sum over directions that grow alone."
    of_times = "Exact against predicted times; the line is equality."
    expected = {"x, directions alone": "sigmoid_sum", "x, staircase": "staircase"}
    plots = _plot_quadratic_loss, _plot_quadratic_times
    loss = _reached(dataset["loss"].values)
    width = json.loads(dataset.attrs["parameters"])["problem"]["width"]
    facts = {PREDICTED_AT: "predicted_aligned_time", "aligned at t =": "aligned_time", "learned at t =": "learned_time"}
    facts_of_rows = renamed(rows, elements.DIRECTION_FACTS | facts)
    strongest = [row for row in rows if math.isfinite(row["predicted_aligned_time"])]
    columns = TIMES | (STEPS if "rate_limit" in dataset else {})
    times = Table(
        caption="Times against prediction",
        rows=renamed(strongest or rows, columns),
        note=f"Aligned: {flows.emergence_level(dataset, 'half')} of the direction is in the span of the neurons. "
        "Learned: Q has half of a_p.",
        each="directions, spread over p",
        short={title: SHORT.get(title, title) for title in columns if title != "learned / predicted"},
    )
    return run_findings(
        dataset,
        sentences=[outcome, steps],
        tables=[times, *flows.exponent_table(laws, in_words, expected, f"{note}it.")],
        drawings=[
            drawing_of(plots[0], dataset, caption=of_loss, more=f"The loss goes from {loss[0]:.3g} to {loss[-1]:.3g}."),
            drawing_of(plots[1], dataset, caption=of_times, more=f"Predicted are the {width} strongest directions."),
        ],
        chart=elements.history_chart(dataset, facts_of_rows, elements.ALIGNMENTS, PREDICTED_AT),
        remarks=[f"note: {values['notes']}", f"scaling laws: {values['scaling_notes']}"],
        values=values,
        overview=partial(row_of, dataset, plots, (11.0, 4.3)),
    )


def _quadratic_values(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the result as plain values: times per direction, exponents, last losses."""
    rows = rows_of(dataset, {name: name for name in (*TIMES.values(), *STEPS.values()) if name in dataset.variables})
    for row in rows:
        for kind in ("aligned", "learned"):
            predicted = row[f"predicted_{kind}_time"]
            row[f"{kind}_ratio"] = row[f"{kind}_time"] / predicted if 0.0 < predicted < math.inf else math.nan
    attrs, fits = dataset.attrs, _fits(dataset)
    laws = []
    if "loss" in fits:
        fit, beta = fits["loss"], Problem.from_dataset(dataset).teacher.beta
        law = flows.fitted_law("loss ~ t^x", fit, quadratic_exponents(beta).loss_time) | {"prefactor": fit.prefactor}
        sums = {"sigmoid_sum": "sigmoid_loss", "staircase": "staircase_loss"}
        laws = [law | {key: fits[name].exponent if name in fits else math.nan for key, name in sums.items()}]
    return {
        "title": attrs["title"],
        "end_time": float(attrs.get("end_time", dataset["time"].values[-1])),
        **{f"final_{name}": float(_reached(dataset[name].values)[-1]) for name in ("loss", "fine_tuned_loss")},
        **{name: float(attrs[name]) for name in ("unlearned_loss", "learning_rate_limit")},
        "directions": rows,
        "exponents": laws,
        "notes": attrs["notes"],
        "scaling_notes": attrs["scaling_notes"],
    }


def _reached(history: Array) -> Array:
    """Return the values that were saved before the run ended; NaN alone if none were."""
    saved = finite_part(history)
    return saved if saved.size else np.array([np.nan])


def _fits(dataset: xr.Dataset) -> dict[str, PowerLawFit]:
    """Return the fitted power laws in time of the loss and of the sums over directions, by name of the variable.

    Losses that are not positive in the window are left out; the dict is empty with too few points in it.
    """
    problem = Problem.from_dataset(dataset)
    window = power_window(problem.teacher, problem.width, problem.dimension)
    time = dataset["time"].values
    inside = (time >= window[0]) & (time <= window[1])
    if np.count_nonzero(inside) < FEWEST_POINTS:
        return {}
    losses = {name: dataset[name].values for name in ("loss", "sigmoid_loss", "staircase_loss")}
    positive = {name: loss for name, loss in losses.items() if (loss[inside] > 0.0).all()}
    return {name: fit_power_law(time, loss, window=window) for name, loss in positive.items()}


def _plot_quadratic_loss(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the loss, Σ a_j² (1 − A_j), sums without interactions, the fitted law and the asymptotic slope."""
    squares = dataset["teacher_coefficient"].values ** 2
    shown = (dataset["time"].values > 0.0) & np.isfinite(dataset["loss"].values)
    time, loss = dataset["time"].values[shown], dataset["loss"].values[shown]
    unaligned = np.maximum(np.sum(squares) - dataset["alignment"].values @ squares, 1e-300)[shown]
    ax.loglog(time, np.maximum(loss, 1e-300), color=MEASURED, lw=1.8, label="loss")
    missed = r"$\Sigma_j\, a_j^2 (1 - A_j)$, what the span misses"
    ax.loglog(time, unaligned, color=MEASURED, lw=1.2, ls="--", label=missed)
    for name, label, colour, style in (
        ("sigmoid_loss", "every direction alone", PREDICTED, "-"),
        ("fine_tuned_loss", "second layer fitted on the span", IDEAL, "-."),
    ):
        ax.loglog(time, np.maximum(dataset[name].values[shown], 1e-300), style, color=colour, lw=1.0, label=label)
    if fit := _fits(dataset).get("loss"):
        asymptotic = quadratic_exponents(Problem.from_dataset(dataset).teacher.beta).loss_time
        draw_fit(ax, fit, asymptotic, "asymptotic")
    if loss.size:
        ax.set_ylim(max(0.5 * loss[loss > 0.0].min(initial=loss[0]), 1e-6 * loss[0]), 2.0 * loss[0])
    finish_panel(ax, "time", "quadratic_loss")


def _plot_quadratic_times(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw exact against predicted times of alignment and learning, with the line of equality."""
    for name, marker, colour in (("aligned_time", "o", MEASURED), ("learned_time", "s", PREDICTED)):
        measured, predicted = dataset[name].values, dataset[f"predicted_{name}"].values
        both = np.isfinite(measured) & np.isfinite(predicted) & (measured > 0.0) & (predicted > 0.0)
        label = name.replace("_time", "")
        ax.loglog(predicted[both], measured[both], marker, mfc="none", color=colour, ms=5, label=label)
    ends = ax.get_xlim()
    ax.plot(ends, ends, "-", color=REFERENCE, lw=0.8, zorder=0)
    ax.set_xlim(*ends)
    finish_panel(ax, "predicted_time", "exact_time")
