"""Learning from tokens: the times of all components, their closed forms, recovery after one step, and the figures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dynamics.report import figures
from dynamics.report.elements import PROGRESS, cell_text, history_chart
from dynamics.report.figures import MEASURED, PREDICTED, Arguments, finish_panel, new_panels, shades
from dynamics.report.findings import Drawing, Findings, Table, drawing_of, records, renamed, rows_of, run_findings
from dynamics.report.flows import RESUME_SOLVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Facts of a curve, and the marked one.
CLOSED = "closed form t ="
FACTS = {"component": "component", CLOSED: "closed", "learned at t =": "learned"}
#: Components that a legend names.
MOST_NAMES = 12
#: Width of a predicted curve, on which runs are drawn as thin black lines.
WIDE = 3.0
#: Columns of the legend of components.
LEGEND_COLUMNS = 3


def token_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `dynamics.tokens.solve`."""
    if "recovery" in dataset:
        return _recovery_findings(dataset)
    attrs, learned, closed = dataset.attrs, dataset["learned_time"].values, dataset["predicted_learned_time"].values
    with np.errstate(invalid="ignore", divide="ignore"):
        times = {"learned": learned, "closed": closed, "ratio": learned / closed}
    rows = records({"component": dataset["component"].values.astype(str), **times, "plateau": dataset["plateau"]})
    rate, notes = attrs.get("learning_rate"), str(attrs.get("notes", ""))
    motion = "the flow" if rate is None else f"gradient descent at learning rate {rate:g}"
    sentences = [f"{attrs['title']}, by {motion}; closed forms are of the flow."]
    sentences += _of_rewards(dataset)
    last = dataset.dropna("time", subset=["loss"]).isel(time=slice(-1, None))
    if "kappa_R" in last and last.sizes["time"]:
        moved, kappa_R = last["moved_attention"].values[0].mean(axis=0), float(last["kappa_R"][0])
        both = f"to the right key is {moved[0]:.3g} and to the place of training {moved[1]:.3g}"
        sentences.append(f"At the end κR is {kappa_R:.3g}, and mean attention with the first trigger shifted {both}.")
    if "length_at_half" in last and last.sizes["time"]:
        most = float(last["length_at_half"][0])
        sentences.append(f"At the end every head has half of its attention on wanted tokens up to {most:.4g} tokens.")
    if never := [row["component"] for row in rows if not np.isfinite(row["learned"])]:
        sentences.append(f"Not learned within the run: {', '.join(never)}.")
    drawings: list[Drawing] = []
    two: Arguments = {"size": (11.0, 4.2), "shape": (1, 2)}
    if "moved_attention" in dataset:
        moved = "Attention with the first trigger shifted, to the right key and to the place of training, and κR."
        drawings = [drawing_of(_plot_shortcut, dataset, caption=moved, **two)]
    elif "chain_error" in dataset:
        chain = "Weights of the attention, and the error of the model's own chain after 1, 2, 4, … steps."
        drawings = [drawing_of(_plot_chain, dataset, caption=chain, **two)]
    draw, caption = partial(progress_figure, dataset), "with its time in closed form as a tick, and the loss."
    alt = "Progress and loss over time. The times are in the table above."
    names = ("title", "learning_rate", "stop_reason", "end_time", "solve_seconds")
    return run_findings(
        dataset,
        sentences=sentences,
        tables=[Table(caption="When each component is learned", rows=rows, each="components")],
        drawings=[Drawing(draw, f"Progress of every component, {caption}", alt), *drawings],
        chart=history_chart(dataset, renamed(rows, FACTS), PROGRESS, CLOSED),
        remarks=[f"note: {notes}"] if notes else [],
        values={**{name: attrs.get(name) for name in names}, "components": rows, "notes": notes},
        overview=draw,
        go_on=RESUME_SOLVE,
    )


def closed_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `dynamics.tokens.predict`."""
    title, notes = dataset.attrs["title"], dataset.attrs["notes"]
    rows = rows_of(dataset, {"component": "component", "closed": "predicted_learned_time", "plateau": "plateau"})
    times = [f"{row['component']} {cell_text(row['closed'], 5)}" for row in rows if not np.isnan(row["closed"])]
    listed = [*times[:MOST_NAMES], *(["…"] if len(times) > MOST_NAMES else [])] or ["none"]
    sentences = [f"{title}, times of learning: {', '.join(listed)}."]
    if len(times) < len(rows):
        sentences.append("`dynamics.tokens.solve` finds the times that have no closed form.")
    return run_findings(
        dataset,
        sentences=sentences + _of_rewards(dataset),
        tables=[Table(caption="When each component is learned", rows=rows, each="components")],
        remarks=[f"note: {notes}"],
        values={"title": title, "components": rows, "notes": notes},
    )


def _of_rewards(dataset: xr.Dataset) -> list[str]:
    """Return a sentence on the variance of rewards, none for tasks without rewards."""
    attrs = dataset.attrs
    if "reward_variance" not in attrs:
        return []
    accuracy = f", accuracy {attrs['accuracy']:.3g}" if "accuracy" in attrs else ""
    return [f"Reward variance at the start {attrs['reward_variance']:.3g}{accuracy}."]


def _recovery_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on the share of items that one step recovers."""
    count, draw = float(dataset["recovered_count"]), partial(recovery_figure, dataset)
    rows = rows_of(dataset, {"rank": "rank", "items": "rank_count", "recovered": "recovery"})
    caption = "Share of items that are recovered after one step, by rank."
    return run_findings(
        dataset,
        sentences=[f"{dataset.attrs['title']}: {count:.4g} items are recovered."],
        tables=[Table(caption="Recovery by rank", rows=rows, each="ranks")],
        drawings=[Drawing(draw, caption, f"{caption} The numbers are in the table above.")],
        remarks=[f"note: {dataset.attrs['notes']}"],
        values={"title": dataset.attrs["title"], "recovered_count": count, "ranks": rows},
        overview=draw,
    )


def plot_progress(
    prediction: xr.Dataset, simulation: xr.Dataset | None = None, ax: Axes | None = None, *, style: str | None = None
) -> Axes:
    """Draw the progress of every component over time.

    Lines are the prediction, of `dynamics.tokens.solve`, or TypeError or ValueError is raised; thin black ones runs, of
    `sgd_check.tokens.simulate`; orange ticks at ½ the times in closed form, where there are any.
    `ax` are the axes, by default new ones in a `style` (see `figure_style`); they are returned.

    Examples
    --------
    >>> from dynamics import tokens
    >>> ax = plot_progress(tokens.solve(tokens.Composition(vocabulary=6, hops=4), progress=False))
    >>> ax.get_ylabel(), [text.get_text() for text in ax.get_legend().get_texts()]
    ('progress', ['hop 1', 'hop 2', 'hop 4', 'learned, closed form'])
    """
    ax = figures.axes_for(prediction, ax, style, progress=("time", "component"))
    names = prediction["component"].values.tolist()
    for at, colour in enumerate(shades(len(names), 0.85)):
        label = str(names[at]) if len(names) <= MOST_NAMES or at in (0, len(names) - 1) else None
        ax.plot(prediction["time"].values, prediction["progress"].values[:, at], color=colour, lw=WIDE, label=label)
        if simulation is not None:
            for run in simulation["progress"].values[:, :, at]:
                ax.plot(simulation["time"].values, run, color="k", lw=0.6, alpha=0.7)
    closed = prediction["predicted_learned_time"].values
    if (finite := closed[np.isfinite(closed)]).size:
        tick: Arguments = {"marker": "|", "ls": "", "ms": 20, "mew": 1.6, "color": PREDICTED, "zorder": 5}
        ax.plot(finite, np.full(finite.size, 0.5), **tick, label="learned, closed form")
    rows = -(-len(ax.get_legend_handles_labels()[1]) // LEGEND_COLUMNS)
    ax.set_ylim(-0.03, 1.06 + 0.08 * rows)  # room for the legend above the curves
    _use_log_axis(prediction, ax)
    finish_panel(ax, "step_time", "progress", loc="upper left", ncols=LEGEND_COLUMNS)
    return ax


def progress_figure(prediction: xr.Dataset, simulation: xr.Dataset | None = None) -> Figure:
    """Return the figure of progress and of the loss with its plateaus."""
    figure, (left, right) = new_panels((11.0, 4.2), 1, 2)
    plot_progress(prediction, simulation, left)
    if simulation is not None:
        right.plot(simulation["time"].values, simulation["loss"].values.T, color="k", lw=0.6, alpha=0.7)
    right.plot(prediction["time"].values, prediction["loss"].values, color="0.6", lw=WIDE, zorder=1.5)
    for level in np.unique(prediction["plateau"].values[np.isfinite(prediction["plateau"].values)])[-MOST_NAMES:]:
        right.axhline(level, color="0.75", lw=0.8, ls=":", zorder=0)
    _use_log_axis(prediction, right)
    finish_panel(right, "step_time", "plateau_loss")
    return figure


def _plot_shortcut(dataset: xr.Dataset, panels: Sequence[Axes]) -> None:
    """Draw attention out of distribution, a line per gap, and κR, where the shortcut wins above 1."""
    (left, right), time, moved = panels, dataset["time"].values, dataset["moved_attention"].values
    for at, (name, colour) in enumerate((("right key", PREDICTED), ("place of training", MEASURED))):
        lines = left.plot(time, moved[:, :, at], color=colour, lw=WIDE / 2)
        lines[0].set_label(name)
    right.plot(time, dataset["kappa_R"].values, color="0.3", lw=WIDE / 2)
    right.axhline(1.0, color="0.75", lw=0.8, ls=":")
    for ax, label in ((left, "moved_attention"), (right, "kappa_R")):
        _use_log_axis(dataset, ax)
        finish_panel(ax, "step_time", label)


def _plot_chain(dataset: xr.Dataset, panels: Sequence[Axes]) -> None:
    """Draw the weights of a chain of thought, and the error after 1, 2, 4, … steps that the model takes alone."""
    (left, right), time, count = panels, dataset["time"].values, dataset.sizes["steps"]
    for at, name in enumerate(dataset["weight_name"].values.tolist()):
        left.plot(time, dataset["weights"].values[:, at], lw=WIDE / 2, label=name)
    chosen = [2**power for power in range(count.bit_length())]
    for steps, colour in zip(chosen, shades(len(chosen), 0.85), strict=True):
        right.plot(time, dataset["chain_error"].values[:, steps - 1], color=colour, lw=WIDE / 2, label=f"{steps}")
    right.set_yscale("log")
    finish_panel(left, "step_time", "chain_weights")
    finish_panel(right, "step_time", "chain_error", title="steps")


def recovery_figure(prediction: xr.Dataset, simulation: xr.Dataset | None = None) -> Figure:
    """Return the figure of the share of items that are recovered after one step against their rank."""
    figure, ax = new_panels(figures.ONE_PANEL)
    if simulation is not None:
        mean, error = figures.mean_band(simulation["recovery"].transpose("seed", ...).values)
        bars: dict[str, object] = {"fmt": "o", "color": MEASURED, "ms": 3, "capsize": 2}
        several = error if simulation.sizes["seed"] > 1 else None
        ax.errorbar(simulation["rank"], mean, yerr=several, **bars, label="mean over draws, two s.e.")
    ax.semilogx(prediction["rank"], prediction["recovery"], color=PREDICTED, lw=WIDE / 2, label="closed form")
    finish_panel(ax, "rank", "recovery")
    return figure


def _use_log_axis(prediction: xr.Dataset, ax: Axes) -> None:
    """Show time as it was saved, geometrically or linearly, from shortly before the first component is learned."""
    time, learned = prediction["time"].values, prediction["learned_time"].values
    positive = learned[np.isfinite(learned) & (learned > 0)]
    if positive.size and time.size > 2 and time[-1] - time[-2] > 2.0 * (time[1] - time[0]):
        ax.set_xscale("log")
        # Before the first component is learned there is room for the legend, a third of the axis.
        first, last = float(positive.min()), float(time[-1])
        ax.set_xlim(min(0.02 * first, first * (first / last) ** 0.5), last)
