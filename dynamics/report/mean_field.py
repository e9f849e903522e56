"""Mean fields: the law of the neurons' overlaps, and the distance of finite networks from it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import figures
from dynamics.report.elements import DIRECTION_FACTS, MASSES, history_chart
from dynamics.report.figures import (
    BAND,
    MEASURED,
    PREDICTED,
    REFERENCE,
    Arguments,
    finish_panel,
    shades,
    small,
    spread_times,
)
from dynamics.report.findings import Findings, Table, drawing_of, renamed, rows_of, run_findings, study_findings
from dynamics.report.flows import RESUME_SOLVE, finite_part, flow_values, level_table, outcome, remarks, told_directions
from dynamics.runs.variables import axis_label
from hermite.text.messages import require
from hermite.text.messages import shown as as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Directions whose law is drawn, and saved times in the tables of distances and of exponents.
MOST_DRAWN, MOST_ROWS, MOST_POINTS = 4, 12, 8
#: Facts of a curve.
FACTS = DIRECTION_FACTS | {"learned at t =": "learned_time"}
DISTANCES = ("linear_error", "linear_error_bound", "noise_size")
EXPONENTS = ("function_gap_exponent", "function_gap_exponent_error", "coupling_exponent", "coupling_exponent_error")
#: Densities below this fraction of the largest are drawn as none.
FAINTEST = 1e-4
#: Heights of the panels for density and loss.
HEIGHTS = (2.2, 1.0)
#: Size of the figure of distances.
CHAOS_SIZE = (13.0, 4.0)


def mean_field_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `solve_mean_field`."""
    rise, monotone = dataset.attrs["largest_loss_rise"], dataset.attrs["loss_is_monotone"]
    rose = f"The loss rose by {rise:.2g}, which a gradient flow excludes: the run left its tolerance."
    values = flow_values(dataset)
    directions = told_directions(values)
    rows = renamed(directions, {"p": "direction", "a_p": "teacher_coefficient", "learned": "learned_time"})
    drawings = []
    for p in dataset["direction"].values[:MOST_DRAWN].tolist():
        caption = f"Density of the neurons' overlaps with direction {p} over log time; below, the loss."
        median = finite_part(dataset["overlap_quantile"].sel(direction=p, share=0.5).values)
        more = f"The median goes from {median[0]:.3g} to {median[-1]:.3g}." if median.size else ""
        plot = partial(plot_particles, direction=p)
        drawings.append(drawing_of(plot, dataset, caption=caption, more=more, size=(6.8, 6.0), shape=(2,)))
    return run_findings(
        dataset,
        cautions=[] if monotone else [rose],
        sentences=[f"{outcome(values)}; {dataset.attrs['particles']} particles"],
        tables=[*level_table(values), Table(caption="Times at which half the weight is carried", rows=rows, digits=5)],
        drawings=drawings,
        chart=history_chart(dataset, renamed(directions, FACTS), MASSES),
        remarks=remarks(values),
        values=values,
        overview=partial(_particles_figure, dataset),
        go_on=RESUME_SOLVE,
    )


def coupling_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `solve_coupling`."""
    columns = {"t": "time"} | {axis_label(name, plain=True): name for name in DISTANCES}
    rows = rows_of(dataset.isel(time=spread_times(dataset.sizes["time"], MOST_ROWS)), columns)
    caption = "Linearised distance of the neurons from their followers, its bound, and the noise that drives it."
    more = f"At the end the distance is {float(dataset['linear_error'][-1]):.3g}."
    drawings = [drawing_of(_plot_distances, dataset, caption=caption, more=more)]
    return run_findings(dataset, tables=[Table(caption="Distances over time", rows=rows)], drawings=drawings)


def chaos_findings(dataset: xr.Dataset) -> Findings:
    """Return the findings on an answer of `propagation_of_chaos`: exponents at some times, how many of all are −1."""
    columns = {"time": "time", "loss": "mean_field_loss", **{name: name for name in EXPONENTS}}
    exponent, error = (dataset[name].values for name in EXPONENTS[:2])
    reached = float(dataset["loss_level_time"].values[-1])
    summary = {
        "points": rows_of(dataset.isel(time=spread_times(dataset.sizes["time"], MOST_POINTS)), columns),
        "times": int(np.isfinite(exponent).sum()),
        "times_as_theory": int(np.sum(np.abs(exponent + 1.0) <= BAND * error)),
        "loss_tenth_time": reached,
    }
    sentences = [
        "Exponents in m of E(f_m - f_inf)^2 and of mean |Delta_i|^2; theory: -1. Errors: bootstrap over the starts.",
        f"The first is -1 within {BAND:g} standard errors at {summary['times_as_theory']} of {summary['times']} times, "
        "which share their starts.",
    ]
    if np.isfinite(reached):
        sentences.append(f"The loss of the mean field falls below a tenth at t = {reached:.5g}.")
    draw = partial(figures.figure_of, plot_chaos, dataset, size=CHAOS_SIZE, shape=(1, 3))
    return study_findings(dataset, summary, sentences, draw)


# --- the law of the overlaps ------------------------------------------------------------------------------------------


def plot_particles(
    dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, direction: int = 1, style: str | None = None
) -> Sequence[Axes]:
    """Draw the density of the overlaps w·θ_p over log time, with its median and quartiles, and the loss below.

    The answer is of `solve_mean_field`, and `direction` the number p of one of its directions, or ValueError is raised.
    `axes` are two Axes that should share their time, by default new ones in a `style` (see `figure_style`); they are
    returned.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher, solve_mean_field
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> given = {"particles": 1024, "save_at": SaveAt.geometric(0.1, 20.0, 20), "progress": False}
    >>> density, loss = plot_particles(solve_mean_field(problem, **given))
    >>> density.get_ylabel(), loss.get_xlabel()
    ('overlap with direction 1', 'flow time $t$')
    """
    figures.check_drawable(dataset, overlap_density=("time", "direction", "overlap_bin"))
    numbers = dataset["direction"].values.tolist()
    require(
        np.isscalar(direction) and direction in numbers,
        f"Argument `direction` must be one of {', '.join(map(str, numbers))}, but is {as_text(direction)}.",
    )
    axes = figures.panels_or_new(axes, 2, (7.0, 6.0), 2, style=style, sharex=True, height_ratios=HEIGHTS)
    shown = np.isfinite(dataset["loss"].values) & (dataset["time"].values > 0)
    _draw_density(axes[0], dataset.sel(direction=direction).isel(time=shown))
    draw_loss(axes[1], dataset.isel(time=shown))
    return axes


def _particles_figure(dataset: xr.Dataset) -> Figure:
    """Return the figure of the density of overlaps with each direction over time, above the loss."""
    directions = dataset["direction"].values[:MOST_DRAWN].tolist()
    sharing: Arguments = {"sharex": True, "sharey": "row", "squeeze": False, "height_ratios": HEIGHTS}
    figure, panels = figures.new_panels((3.0 + 4.2 * len(directions), 6.0), 2, len(directions), **sharing)
    for column, direction in enumerate(directions):
        plot_particles(dataset, panels[:, column], direction=direction)
    for ax in panels[:, 1:].flat:
        ax.set_ylabel("")
    figure.suptitle(figures.headline(dataset), fontsize="medium")
    return figure


def _draw_density(ax: Axes, dataset: xr.Dataset) -> None:
    """Draw the density of overlaps over time in colours, with its median and quartiles."""
    from matplotlib.colors import LogNorm

    time, middle = dataset["time"].values, dataset["overlap_bin"].values
    density = dataset["overlap_density"].values
    top, step = float(density.max()), float(middle[1] - middle[0])
    # Halfway between times in the logarithm; a single time is a tenth wide on each side.
    inner = np.sqrt(time[1:] * time[:-1])
    first, last = time[[0, -1]] ** 2 / (inner[[0, -1]] if inner.size else time[0] * np.array([1.1, 1.0 / 1.1]))
    edges = np.concatenate([[first], inner, [last]])
    mesh = ax.pcolormesh(
        edges,
        np.append(middle - 0.5 * step, middle[-1] + 0.5 * step),
        np.maximum(density, FAINTEST * top).T,
        norm=LogNorm(FAINTEST * top, top),
        cmap="magma_r",
        rasterized=True,
    )
    for share, line, label in ((0.25, ":", "quartiles"), (0.5, "-", "median"), (0.75, ":", None)):
        curve = dataset["overlap_quantile"].sel(share=share).values
        ax.plot(time, curve, color="white", lw=2.6)
        ax.plot(time, curve, line, color=MEASURED, lw=1.4, label=label)
    overlap = f"{axis_label('overlap_quantile')} {int(dataset['direction'])}"
    ax.set(xscale="log", xlim=(time[0], time[-1]), ylim=(-1.0, 1.0), ylabel=overlap)
    ax.figure.colorbar(mesh, ax=ax, label=axis_label("overlap_density"), pad=0.01)
    ax.legend(framealpha=0.85, fontsize=small(ax), loc="lower left")


def draw_loss(ax: Axes, dataset: xr.Dataset) -> None:
    """Draw the loss of a mean field, the times of its levels, and the loss that the student's link leaves."""
    time, loss = dataset["time"].values, dataset["loss"].values
    lowest, floor = 1e-8 * float(loss[0]), float(dataset.attrs["loss_floor"])
    ax.loglog(time, np.maximum(loss, lowest), color=MEASURED, lw=1.8, label="loss" if floor > lowest else None)
    if floor > lowest:
        ax.axhline(floor, color=REFERENCE, lw=0.9, ls=":", label="beyond the student's link")
    scale = float(dataset.attrs["teacher_loss"])
    for level, reached in zip(dataset["loss_level"].values, dataset["loss_level_time"].values, strict=True):
        if np.isfinite(reached):
            ax.plot([reached], [level * scale], "o", color=PREDICTED, ms=5)
            # To the left near the end of the axis, where it would be cut off.
            late = reached > time[-1] * (time[0] / time[-1]) ** 0.25
            style: Arguments = {"ha": "right", "va": "top"} if late else {"ha": "left", "va": "bottom"}
            style |= {"textcoords": "offset points", "fontsize": small(ax)}
            ax.annotate(f"$t = {reached:.4g}$", (reached, level * scale), (-6, -3) if late else (6, 3), **style)
    finish_panel(ax, "time", "loss", loc="lower left")


def _plot_distances(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw the distance from the linearised dynamics, its bound, and the size of the noise, against time."""
    time = dataset["time"].values
    for name, line, colour in zip(DISTANCES, ("-", "--", ":"), (MEASURED, PREDICTED, REFERENCE), strict=True):
        shown = (time > 0) & (dataset[name].values > 0)
        ax.loglog(time[shown], dataset[name].values[shown], color=colour, ls=line, lw=1.6, label=axis_label(name))
    finish_panel(ax, "time", "linearised_distance")


# --- propagation of chaos ---------------------------------------------------------------------------------------------


def plot_chaos(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Sequence[Axes]:
    """Draw m E(f_m − f_∞)², √m |Δ| and the exponents in m over log time.

    Curves are means over the seeds, bands two standard errors; where widths collapse the scaling holds. The dotted
    line is the time at which the loss of the mean field falls below a tenth. The answer is of `propagation_of_chaos`,
    or ValueError is raised. `axes` are three Axes, for the function gap, the coupling error and the exponents, by
    default new ones in a `style` (see `figure_style`); they are returned.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher, propagation_of_chaos
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> given = {"widths": (16, 32, 64), "seeds": 4, "save_at": SaveAt.at([0.0, 1.0, 2.0])}
    >>> gap, error, exponents = plot_chaos(propagation_of_chaos(problem, **given))
    >>> exponents.get_xlabel(), exponents.get_ylabel()
    ('flow time $t$', 'exponent in the width $m$')
    """
    figures.check_drawable(dataset, function_gap=("width", "seed", "time"))
    axes = figures.panels_or_new(axes, 3, CHAOS_SIZE, 1, 3, style=style)
    shown = dataset.isel(time=dataset["time"].values > 0)
    colours = shades(shown.sizes["width"], 0.85, first=0.05)
    for ax, name in zip(axes, ("function_gap", "coupling_error", "width_exponent"), strict=True):
        if name in shown:
            draw_widths(ax, shown, name, colours, alpha=0.15)
            ax.set_ylim(0.0, None)
        else:
            lowest = -1.6
            for quantity, label, line, colour in (
                ("function_gap", r"$\mathrm{E}(f_m - f_\infty)^2$", "-", MEASURED),
                ("coupling", r"mean $|\Delta_i|^2$", "--", PREDICTED),
            ):
                exponent, error = (
                    shown[f"{quantity}_exponent"].values,
                    BAND * shown[f"{quantity}_exponent_error"].values,
                )
                band = exponent, exponent - error, exponent + error
                figures.draw_band(ax, shown["time"].values, band, colour, 0.18, ls=line, lw=1.5, label=label)
                lowest = float(np.nanmin(band[1], initial=lowest))
            ax.axhline(-1.0, color=REFERENCE, lw=0.9)
            ax.set_ylim(max(lowest, -3.0), 0.1)
        ax.set(xscale="log", xlim=shown["time"].values[[0, -1]])
        finish_panel(ax, "time", name)
        for reached in shown["loss_level_time"].values[-1:]:
            if np.isfinite(reached):
                ax.axvline(reached, color=REFERENCE, lw=0.9, ls=":")
    return axes


def draw_widths(ax: Axes, dataset: xr.Dataset, name: str, colours: Any, alpha: float) -> None:
    """Draw the mean over starts of the variable `name` at every width over time, with a band of two standard errors.

    `colours` has a colour for each width; `alpha`, from 0 to 1, is the opacity of the bands.
    """
    time = dataset["time"].values
    for width, colour in zip(dataset["width"].values, colours, strict=False):
        mean, error = figures.mean_band(dataset[name].sel(width=width).transpose("seed", "time").values)
        band = mean, mean - error, mean + error
        figures.draw_band(ax, time, band, colour, alpha, lw=1.5, label=f"$m = {width}$")
